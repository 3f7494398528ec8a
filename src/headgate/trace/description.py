"""The answer as text for people: one line for each step, the clauses below the rule or filter that they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from headgate.clock import shown_time
from headgate.trace.parts import AnsweredClause, ConsumerAnswer, Decision, Search, Step, StoredMessage
from headgate.visible import visible

_INDENT = "  "


def described(
    stream: str,
    *,
    search: Search,
    message: StoredMessage | None,
    missing: str | None,
    consumers: Sequence[ConsumerAnswer],
    left_out: int,
) -> str:
    """The parts of an answer as text; a short line for each consumer where several were asked about."""
    return "\n".join(map(visible, _lines(stream, search, message, missing, consumers, left_out)))


def _lines(
    stream: str,
    search: Search,
    message: StoredMessage | None,
    missing: str | None,
    consumers: Sequence[ConsumerAnswer],
    left_out: int,
) -> Iterator[str]:
    if message is not None:
        name = "" if message.id is None else f", id {message.id!r}"
        yield f"message {message.offset} of {stream!r}{name}, from {shown_time(message.timestamp_ms)}"
    yield from _searched(search)
    if len(consumers) == 1:
        yield from _in_full(consumers[0])
        return
    if missing is not None:
        yield missing
        return
    if not consumers:
        yield "nobody: the stream has no subscription, no consumer group and no stored offset"
    else:
        # Where it is stored is the same for all.
        yield from (_line(step) for step in consumers[0].steps if step.step in ("stored", "confirmed"))
    for consumer in consumers:
        yield f"{consumer.kind} {consumer.name!r}: {consumer.fate}: {consumer.summary}"
    if left_out:
        yield f"and {left_out} more: name one of them"


def _searched(search: Search) -> Iterator[str]:
    if search.by == "offset":
        return
    using = f" by {' and '.join(search.using)}" if search.using else ""
    until = "" if search.is_complete else "; the time was over before all were searched"
    yield (
        f"found by {search.by}{using}: {search.messages_examined} of {search.messages_searched} messages were "
        f"read{until}"
    )


def _in_full(consumer: ConsumerAnswer) -> Iterator[str]:
    yield f"{consumer.kind} {consumer.name!r}: {consumer.fate}"
    steps = list(consumer.steps)
    for step in steps:
        yield _line(step)
        if step.step == "decided":
            for decision in consumer.decisions:
                yield from _decision(decision)
    if consumer.stage is not None:
        yield f"decided by: {consumer.stage}"
    for copy in consumer.copies:
        for event in copy.events:
            yield f"{_INDENT}{shown_time(event.at_ms)}  {event.text}"


def _line(step: Step) -> str:
    return f"{step.step + ':':<11}{step.text}"


def _decision(decision: Decision) -> Iterator[str]:
    name = "filter" if decision.name is None else f"rule {decision.name!r}"
    yield f"{_INDENT}{name}: {decision.text}"
    if decision.clauses is not None:
        yield from _clause(decision.clauses, 2)
    for warning in decision.warnings:
        yield f"{_INDENT * 2}warning: {warning}"
    if decision.failure is not None:
        yield f"{_INDENT * 2}its action fails: {decision.failure}"
    for change in decision.changes or ():
        yield f"{_INDENT * 2}{change.field}: {_value(change.before)} becomes {_value(change.after)}"


def _value(value: object) -> str:
    """A value of typed JSON in words, as clauses say it."""
    if value is None:
        return "nothing"
    if isinstance(value, dict) and value.keys() == {"t", "v"}:
        text = value["v"]
        return (
            f"{value['t']} {text!r}" if isinstance(text, str) else f"{value['t']} {msgspec.json.encode(text).decode()}"
        )
    return repr(value) if isinstance(value, str) else msgspec.json.encode(value).decode()


def _clause(clause: AnsweredClause, depth: int) -> Iterator[str]:
    note = f"   -- {clause.note}" if clause.note else ""
    yield f"{_INDENT * depth}{clause.verdict:<8}{' '.join(clause.text.split())}{note}"
    for operand in clause.operands:
        yield from _clause(operand, depth + 1)
