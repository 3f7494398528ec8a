"""Evaluation of a bound tree: true, false, unknown or error for a message.

    Filter, Engine, Verdict           the door: a filter, the evaluator that decides, the result
    Explanation, Clause               the verdict of each clause on a message (`Filter.explain`)
    wanted_values                     of a chunk: which filter values can make the filter true (`pruning`)
    needed_keys, KeyCondition         of any place: which values of some fields can (`pruning`)
    Action, copies_of                 the action of a rule, applied to a message; `changed_copies`: to many; `CopyRule`:
                                      what copies need of a rule
    evaluate, servicebus_value        one tree over one message, and one field, by the reference
    malformed_rows                    which rows of a batch are not messages
    body_values, locate_values        values at paths into bodies; where the bytes of a declared field stand
    unreadable_bodies, sample_body    which bodies are no JSON; whether the first one is

Hidden: the two evaluators, which always agree: the reference (one message, slow, obvious: the oracle) and the kernel (a
flat program interpreted over batches of encoded messages). Many filters at once are in `headgate.evaluate.rules`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.evaluate.actions import Action, changed_copies
    from headgate.evaluate.body.sample import NO_SAMPLE, BodySample, sample_body
    from headgate.evaluate.body.values import body_values, locate_values, unreadable_bodies
    from headgate.evaluate.explanation import Clause, Explanation
    from headgate.evaluate.filter import Engine, Filter
    from headgate.evaluate.pruning import (
        Every,
        FieldAmong,
        KeyCondition,
        KeyValue,
        Some,
        Truth,
        needed_keys,
        some_of,
        wanted_values,
    )
    from headgate.evaluate.reference import evaluate
    from headgate.evaluate.semantics.servicebus import field as servicebus_value
    from headgate.evaluate.topic_reference import CopyRule, copies_of
    from headgate.evaluate.validity import malformed_rows
    from headgate.evaluate.verdict import EVALUATOR_REVISION, UNDECIDED, Verdict
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
