"""Copies for dead letters: messages that a rule could not be evaluated for, and why (servicebus_filters, 1.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from headgate.errors import LogError, MessageError
from headgate.evaluate import evaluate
from headgate.language import EvaluationFailed
from headgate.log import Stream
from headgate.message import AmqpType, AmqpValue, Message
from headgate.scan import MessageReader
from headgate.topic.copies import copy_identity
from headgate.topic.origin import DESCRIPTION_PROPERTY, REASON_PROPERTY, with_properties
from headgate.topic.rule import Rule

REASON = "FilterEvaluationException"
_UNKNOWN = "the rule could not be evaluated"


def dead_letter(encoded: bytes, description: str) -> bytes:
    """The message with reason and description as application properties; all else keeps its bytes.

    Bytes that are not a message become the body of a new one.
    """
    marks = {REASON_PROPERTY: REASON, DESCRIPTION_PROPERTY: description}
    return with_properties(encoded, {name: AmqpValue(AmqpType.STRING, text) for name, text in marks.items()})


def failure_of(rule: Rule, encoded: bytes, *, now_ms: int, identity: bytes) -> str | None:
    """Why a rule fails for these bytes: its filter has the verdict error, or its action fails; None if neither does.

    `now_ms` is the time at which the message arrived, `identity` that of the copy (`copy_identity`).
    """
    try:
        message = Message.decode(encoded)
        evaluate(rule.filter.tree, message, now_ms)
        if rule.action is not None:
            rule.action.apply(message, now_ms=now_ms, identity=identity, rule=rule.name)
    except (EvaluationFailed, MessageError) as failed:
        return str(failed)
    return None


def failure_at(stream: Stream, rule: Rule, *, subscription: int, offset: int) -> str:
    """Why a rule of a subscription, by its number, gave no copy of the message at an offset, which is read again."""
    try:
        with MessageReader(stream) as reader:
            found = reader.read(np.array([offset], dtype=np.int64))
            identity = copy_identity(stream.name, offset, subscription, rule.number)
            encoded, arrived_ms = found.messages.message(0), int(found.timestamps_ms[0])
            return failure_of(rule, encoded, now_ms=arrived_ms, identity=identity) or _UNKNOWN
    except LogError as error:
        return f"its message cannot be read any more: {error}"


def letter_of(encoded: bytes, rules: Iterable[Rule], *, now_ms: int, identity_of: Callable[[Rule], bytes]) -> bytes:
    """The dead letter of a message that some rules of a subscription failed on: all are described in it, by number."""
    causes = (
        f"rule {rule.name!r}: {failure_of(rule, encoded, now_ms=now_ms, identity=identity_of(rule)) or _UNKNOWN}"
        for rule in sorted(rules, key=lambda rule: rule.number)
    )
    return dead_letter(encoded, "; ".join(causes))
