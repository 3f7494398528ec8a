"""Copies for dead letters: messages that a rule could not be evaluated for, and why (servicebus_filters, 1.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headgate.errors import MessageError
from headgate.evaluate import evaluate
from headgate.language import EvaluationFailed
from headgate.message import AmqpType, AmqpValue, Body, FieldReference, Message, Section
from headgate.topic.rule import Rule

REASON_PROPERTY = "DeadLetterReason"
DESCRIPTION_PROPERTY = "DeadLetterErrorDescription"
REASON = "FilterEvaluationException"


def dead_letter(encoded: bytes, description: str) -> bytes:
    """The message with reason and description as application properties; all else keeps its bytes.

    Bytes that are not a message, or whose application properties cannot be added to, become the body of a new one.
    """
    marks = {REASON_PROPERTY: REASON, DESCRIPTION_PROPERTY: description}
    changes: list[tuple[FieldReference, AmqpValue | None]] = []
    for name, text in marks.items():
        key = name.encode()
        changes.append((FieldReference(Section.APPLICATION_PROPERTIES, key=key, ignore_case=True), None))
        changes.append((FieldReference(Section.APPLICATION_PROPERTIES, key=key), AmqpValue(AmqpType.STRING, text)))
    try:
        return Message.decode(encoded).with_changes(changes).encode()
    except MessageError:
        return Message(Body.data(encoded), application_properties=marks).encode()


def failure_of(rule: Rule, encoded: bytes, *, now_ms: int, identity: bytes) -> str:
    """Why a rule gives no copy of these bytes: its filter has the verdict error, or its action fails.

    `now_ms` is the time at which the message arrived, `identity` that of the copy (`copy_identity`).
    """
    try:
        message = Message.decode(encoded)
        evaluate(rule.filter.tree, message, now_ms)
        if rule.action is not None:
            rule.action.apply(message, now_ms=now_ms, identity=identity, rule=rule.name)
    except (EvaluationFailed, MessageError) as failed:
        return str(failed)
    return "the rule could not be evaluated"


def letter_of(encoded: bytes, rules: Iterable[Rule], *, now_ms: int, identity_of: Callable[[Rule], bytes]) -> bytes:
    """The dead letter of a message that some rules of a subscription failed on: all are described in it, by number."""
    causes = (
        f"rule {rule.name!r}: {failure_of(rule, encoded, now_ms=now_ms, identity=identity_of(rule))}"
        for rule in sorted(rules, key=lambda rule: rule.number)
    )
    return dead_letter(encoded, "; ".join(causes))
