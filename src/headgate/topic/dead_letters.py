"""Copies for dead letters: messages that a rule could not be evaluated for, and why (servicebus_filters, 1.2)."""

from __future__ import annotations

from headgate.errors import MessageError
from headgate.evaluate import Action, Filter, evaluate
from headgate.language import EvaluationFailed
from headgate.message import AmqpType, AmqpValue, Message
from headgate.topic.moved import DESCRIPTION_PROPERTY, REASON_PROPERTY, with_properties

REASON = "FilterEvaluationException"


def dead_letter(encoded: bytes, description: str) -> bytes:
    """The message with reason and description as application properties; all else keeps its bytes.

    Bytes that are not a message become the body of a new one.
    """
    marks = {REASON_PROPERTY: REASON, DESCRIPTION_PROPERTY: description}
    return with_properties(encoded, {name: AmqpValue(AmqpType.STRING, text) for name, text in marks.items()})


def failure_of(given: Filter, encoded: bytes, *, now_ms: int) -> str:
    """Why a filter has the verdict error for these bytes."""
    try:
        evaluate(given.tree, Message.decode(encoded), now_ms)
    except (EvaluationFailed, MessageError) as failed:
        return str(failed)
    return "the filter could not be evaluated"


def failure_of_action(given: Action, encoded: bytes, *, now_ms: int, identity: bytes, rule: str) -> str:
    """Why the action of a rule gives no copy of these bytes."""
    try:
        given.apply(Message.decode(encoded), now_ms=now_ms, identity=identity, rule=rule)
    except (EvaluationFailed, MessageError) as failed:
        return str(failed)
    return "the action could not be evaluated"
