"""Rule actions, applied to copies of messages: to one by the reference, to many by the kernel of edits.

Source: servicebus_filters, section 5; its open points: docs/reference/servicebus-open-points.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headgate.errors import MessageError
from headgate.evaluate.edits import RULE_NAME, EditProgram, FieldKey, compile_edits, field_key, run_edits
from headgate.evaluate.filter import Engine
from headgate.evaluate.reference import evaluate
from headgate.evaluate.verdict import UNDECIDED, EvaluationFailed, Verdict
from headgate.language import Value
from headgate.language import servicebus as v
from headgate.language import tree as t
from headgate.message import (
    DECIMAL_SIZES,
    INTEGER_RANGES,
    PROPERTIES_FIELDS,
    SLACK_BYTES,
    AmqpType,
    AmqpValue,
    Change,
    EncodedMessages,
    FieldReference,
    Message,
    Section,
    decimal_of,
    encode_value,
)


class Action:
    """The action of a rule, parsed once; immutable, may be pickled and used by several threads."""

    __slots__ = ("_programs", "_stages", "limits", "statements", "text")

    def __init__(self, text: str, statements: tuple[v.Statement, ...], limits: v.Limits) -> None:
        self.text = text
        self.statements = statements
        self.limits = limits
        self._stages = _stages(statements)
        self._programs: dict[str | None, list[EditProgram]] = {}

    @classmethod
    def parse(
        cls, text: str, *, parameters: Mapping[str, object] | None = None, limits: v.Limits = v.DEFAULT_LIMITS
    ) -> Action:
        """The action that a text states; `parameters` are the values of `@name`, plain Python or `AmqpValue`.

        Raises FilterError with place and reason, ConfigError for parameters.
        """
        return cls(text, v.parse_action(text, parameters=parameters, limits=limits), limits)

    def apply(self, message: Message, *, now_ms: int, identity: bytes, rule: str | None = None) -> Message:
        """The changed copy; untouched parts keep their encoding.

        Statements see the changes of earlier statements. `now_ms` is the time of the evaluation; `identity` is that of
        the copy (stream, offset, rule), which newid() depends on. The name of a `rule` becomes the copy's application
        property RuleName, in place of a value that the action set. Raises EvaluationFailed for an error of the
        language, and for a copy that would be no legal message.
        """
        changed = message
        try:
            for stage in self._stages:
                found = (self._change(statement, changed, now_ms, identity) for statement in stage)
                changes = [change for change in found if change is not None]
                changed = changed.with_changes(changes) if changes else changed
            named = _named(changed, rule)
            self._check_message(message, named, rule)
        except MessageError as error:
            raise EvaluationFailed(str(error)) from None
        return named

    def programs(self, rule: str | None) -> Sequence[EditProgram]:
        """For the kernel: a program for each stage, the last of which names the rule; empty if only `apply` can do it.

        Made at first use.
        """
        if rule not in self._programs:
            self._programs[rule] = _compiled(self._stages, rule, self.limits)
        return self._programs[rule]

    def __reduce__(self) -> tuple[object, ...]:
        return Action, (self.text, self.statements, self.limits)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Action):
            return NotImplemented
        return (self.text, self.statements, self.limits) == (other.text, other.statements, other.limits)

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"<Action: {self.text}>"

    def _change(self, statement: v.Statement, message: Message, now_ms: int, identity: bytes) -> Change | None:
        """The change that a statement makes to a message; None for no change."""
        if isinstance(statement, v.RemoveProperty):
            removed = _reference(statement.target)
            return None if removed is None else (removed, None)
        tree = _with_new_ids(statement.value, identity)
        value = evaluate(tree, message, now_ms)
        if isinstance(statement.target, v.SystemProperty):
            typed = self._system_value(statement.target, value)
            reference = statement.target.reference
        else:
            reference = statement.target
            typed = _converted(_property_value(tree, value, message, now_ms), message.whole_value(reference))
        if reference is None:
            return None
        if typed is not None:
            self._check_property(reference, typed)
        return reference, typed

    def _system_value(self, target: v.SystemProperty, value: Value) -> AmqpValue | None:
        """The value as the field of a system property holds it; None leaves it unset."""
        if value is None:
            return None
        name = target.names[0]
        kind = v.kind_of(value)
        if isinstance(value, bytes) and target.type in _WRITTEN:
            text, written = value.decode("utf-8", "surrogateescape"), _WRITTEN[target.type]
            read = v.converted(text, written.like)
            if read is None:
                expected = f"sys.{name} is a {target.type.value}, such as {written.example!r}"
                raise EvaluationFailed(f"{expected}, found {text[:40]!r}")
            value = v.value_of(read)
            kind = v.kind_of(value)
        match target.type:
            case v.SystemType.TEXT | v.SystemType.IDENTIFIER:
                return self._system_text(target, v.text_of(value))
            case v.SystemType.TIME_SPAN if kind is v.ValueKind.TIME_SPAN:
                return _milliseconds(name, v.ticks_of(value))
            case v.SystemType.DATE_TIME if kind is v.ValueKind.DATE_TIME:
                return AmqpValue(AmqpType.TIMESTAMP, v.ticks_of(value) // v.TICKS_PER_MS)
            case v.SystemType.BOOLEAN if isinstance(value, bool):
                return AmqpValue(AmqpType.BOOLEAN, value)
            case _:
                raise EvaluationFailed(f"sys.{name} is a {target.type.value}, found a {kind.value}")

    def _system_text(self, target: v.SystemProperty, octets: bytes) -> AmqpValue:
        text = octets.decode("utf-8", "surrogateescape")
        name, limit = target.names[0], self.limits.identifier_characters
        if target.is_limited and len(text) > limit:
            raise EvaluationFailed(f"sys.{name} has {len(text)} characters, {limit} are allowed")
        if target.reference == _CONTENT_TYPE:
            if not text.isascii():
                raise EvaluationFailed(f"sys.{name} takes ASCII, found {text[:40]!r}")
            return AmqpValue(AmqpType.SYMBOL, text)
        return AmqpValue(AmqpType.STRING, text)

    def _check_property(self, reference: FieldReference, value: AmqpValue) -> None:
        size = len(reference.key or b"") + len(encode_value(value))
        if size > self.limits.property_bytes:
            raise EvaluationFailed(f"a property of {size} bytes, {self.limits.property_bytes} are allowed")

    def _check_message(self, before: Message, after: Message, rule: str | None) -> None:
        """Check the limits; a message that exceeded one before may stay so, and may add only the name of the rule."""
        for what, limit, size_of in (
            ("properties", self.limits.properties_bytes, _properties_bytes),
            ("a message", self.limits.message_bytes, _message_bytes),
        ):
            size = size_of(after)
            if size > limit and (size_of(before) <= limit or size > size_of(_named(before, rule))):
                raise EvaluationFailed(f"{what} of {size} bytes, {limit} are allowed")


@dataclass(slots=True)
class ChangedCopies:
    """The results of actions on a batch: `messages`, the copies of `rows`; on the rows `failed` the actions failed.

    Rows are places in the batch, `(copies,)` and `(failures,)` int64, ascending.
    """

    messages: EncodedMessages
    rows: NDArray[np.int64]
    failed: NDArray[np.int64]


def changed_copies(
    actions: Sequence[tuple[Action, str | None]],
    which: NDArray[np.int64],
    batch: EncodedMessages,
    *,
    now_ms: NDArray[np.int64],
    identity_of: Callable[[int], bytes],
    engine: Engine = Engine.KERNEL,
    room: NDArray[np.uint8] | None = None,
) -> ChangedCopies:
    """The copies that `Action.apply` makes of many messages, at the speed of a kernel.

    `actions` have the name of their rule; `which` is `(messages,)`, the place in `actions` for each message, `now_ms`
    the time of each. `identity_of` gives the identity of the copy of a row, and is called where newid() counts.
    Bytes that are no message fail. `apply` handles the rows that the kernel leaves undecided. Copies are written into
    `room`, if it is large enough.
    """
    nowhere = np.zeros(len(batch), dtype=np.int64)
    messages = EncodedMessages(np.zeros(SLACK_BYTES, dtype=np.uint8), nowhere, nowhere)
    statuses = np.full(len(batch), UNDECIDED, dtype=np.uint8)
    programs = [action.programs(rule) if engine is Engine.KERNEL else () for action, rule in actions]
    stages = np.array([len(of_action) for of_action in programs], dtype=np.int64)
    for stage in range(stages.max(initial=0)):
        rows = np.flatnonzero((stages > stage)[which] & (statuses == (Verdict.TRUE if stage else UNDECIDED)))
        wanted = [of_action[stage] if stage < len(of_action) else None for of_action in programs]
        ids, first_ids = _new_ids(wanted, which[rows], map(identity_of, rows.tolist()))
        changed = run_edits(wanted, which[rows], (messages if stage else batch).take(rows), ids, first_ids, room=room)
        # What it holds now is read by the next stage.
        room = None
        if changed is None:
            break
        messages = _placed(messages, rows, changed.messages)
        statuses[rows] = changed.statuses
    settled: dict[int, bytes] = {}
    for row in np.flatnonzero(statuses == UNDECIDED).tolist():
        action, rule = actions[which[row]]
        statuses[row] = Verdict.ERROR
        with contextlib.suppress(EvaluationFailed, MessageError):
            message = Message.decode(batch.message(row))
            copy = action.apply(message, now_ms=int(now_ms[row]), identity=identity_of(row), rule=rule)
            settled[row] = copy.encode()
            statuses[row] = Verdict.TRUE
    if settled:
        messages = _placed(messages, np.array(list(settled)), EncodedMessages.of(settled.values()))
    is_made = statuses == Verdict.TRUE
    return ChangedCopies(messages.take(is_made), np.flatnonzero(is_made), np.flatnonzero(~is_made))


def _placed(messages: EncodedMessages, rows: NDArray[np.intp], others: EncodedMessages) -> EncodedMessages:
    """The messages with others in some rows."""
    if len(rows) == len(messages):
        return others
    starts, lengths = messages.starts.copy(), messages.lengths.copy()
    stop = messages.stop
    starts[rows], lengths[rows] = others.starts + stop, others.lengths
    data = np.concatenate([messages.data[:stop], others.data[: others.stop + SLACK_BYTES]])
    return EncodedMessages(data, starts, lengths)


_EXACT_RULE_NAME = replace(RULE_NAME, ignore_case=False)
_CONTENT_TYPE = FieldReference(Section.PROPERTIES, position=PROPERTIES_FIELDS.index("content-type"))


@dataclass(frozen=True, slots=True)
class _Written:
    """A type of system properties that strings are converted to: a value of it, and a text that is one."""

    like: AmqpValue
    example: str


_WRITTEN: Mapping[v.SystemType, _Written] = {
    v.SystemType.TIME_SPAN: _Written(v.time_span(0), "00:05:00"),
    v.SystemType.DATE_TIME: _Written(AmqpValue(AmqpType.TIMESTAMP, 0), "2026-01-31T12:00:00Z"),
    v.SystemType.BOOLEAN: _Written(AmqpValue(AmqpType.BOOLEAN, False), "true"),
}
_MAX_TTL_MS = INTEGER_RANGES[AmqpType.UINT][1]


def _named(message: Message, rule: str | None) -> Message:
    """The message with the name of the rule, which replaces any RuleName."""
    if rule is None:
        return message
    return message.with_changes([(RULE_NAME, None), (_EXACT_RULE_NAME, AmqpValue(AmqpType.STRING, rule))])


def _properties_bytes(message: Message) -> int:
    return message.section_bytes(Section.APPLICATION_PROPERTIES)


def _message_bytes(message: Message) -> int:
    return len(message.encode())


def _reference(target: v.Target) -> FieldReference | None:
    return target.reference if isinstance(target, v.SystemProperty) else target


def _stages(statements: Sequence[v.Statement]) -> tuple[tuple[v.Statement, ...], ...]:
    """The statements in groups: a group reads and replaces no field that it has changed before."""
    stages: list[list[v.Statement]] = [[]]
    pending: set[FieldKey] = set()
    for statement in statements:
        places = _places_read(statement)
        if pending and (places is None or not places.isdisjoint(pending)):
            stages.append([])
            pending = set()
        stages[-1].append(statement)
        target = _reference(statement.target)
        if target is not None:
            pending.add(field_key(target))
    return tuple(map(tuple, stages))


def _compiled(stages: Sequence[Sequence[v.Statement]], rule: str | None, limits: v.Limits) -> list[EditProgram]:
    programs = []
    for number, stage in enumerate(stages, start=1):
        is_last = number == len(stages)
        program = compile_edits(stage, rule=rule if is_last else None, limits=limits, is_whole=is_last)
        if program is None:
            return []
        programs.append(program)
    return programs


def _new_ids(
    programs: Sequence[EditProgram | None], which: NDArray[np.int64], identities: Iterable[bytes]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The guids that calls of newid() give, `(guids, 16)`, and the first of each message."""
    occurrences = [() if program is None else program.occurrences for program in programs]
    counts = np.array([len(calls) for calls in occurrences], dtype=np.int64)[which]
    if not counts.any():
        return np.empty((0, 16), dtype=np.uint8), np.zeros_like(which)
    made = b"".join(
        v.new_id_octets(identity, occurrence)
        for number, identity in zip(which.tolist(), identities, strict=True)
        for occurrence in occurrences[number]
    )
    return np.frombuffer(made, dtype=np.uint8).reshape(-1, 16), np.cumsum(counts) - counts


def _places_read(statement: v.Statement) -> frozenset[FieldKey] | None:
    """The fields that a statement reads, the value that it replaces included; None if it may read any field."""
    if isinstance(statement, v.RemoveProperty):
        return frozenset()
    nodes = t.walk(statement.value)
    if any(isinstance(node, t.PropertyOf | t.MessageSize) for node in nodes):
        return None
    references = [node.reference for node in nodes if isinstance(node, t.Field)]
    target = _reference(statement.target)
    return frozenset(map(field_key, references if target is None else [*references, target]))


def _with_new_ids(tree: t.Node, identity: bytes) -> t.Node:
    """The tree with the guids of this copy in place of newid()."""
    if not any(isinstance(node, t.NewId) for node in t.walk(tree)):
        return tree
    return t.with_leaves(
        tree, lambda leaf: t.Constant(v.new_id(identity, leaf.occurrence)) if isinstance(leaf, t.NewId) else leaf
    )


def _milliseconds(name: str, ticks: int) -> AmqpValue:
    """A time to live: at least a millisecond, at most about 50 days, the longest that the field holds."""
    if ticks <= 0:
        raise EvaluationFailed(f"sys.{name} is a time span above zero")
    return AmqpValue(AmqpType.UINT, min(max(ticks // v.TICKS_PER_MS, 1), _MAX_TTL_MS))


def _property_value(tree: t.Node, value: Value, message: Message, now_ms: int) -> AmqpValue:
    """The value that a property takes: of another property or a parameter alone, its value with its exact type."""
    typed = tree.typed if isinstance(tree, t.Constant) else None
    reference = _copied_property(tree, message, now_ms)
    if reference is not None:
        typed = message.whole_value(reference)
    if typed is None:
        typed = v.typed_value(value)
    seen = v.value_of(typed)
    if seen is not None and v.kind_of(seen) is v.ValueKind.OTHER:
        raise EvaluationFailed(f"no property can hold a {typed.type.value}")
    return typed


def _copied_property(tree: t.Node, message: Message, now_ms: int) -> FieldReference | None:
    """The application property that the whole expression is."""
    if isinstance(tree, t.PropertyOf):
        name = evaluate(tree.name, message, now_ms)
        key = name if isinstance(name, bytes) else None
        return FieldReference(Section.APPLICATION_PROPERTIES, key=key, ignore_case=True)
    if isinstance(tree, t.Field) and tree.reference.section is Section.APPLICATION_PROPERTIES:
        return tree.reference
    return None


def _converted(value: AmqpValue, existing: AmqpValue | None) -> AmqpValue:
    """The value in the type of the one that it replaces, if C# converts implicitly or a string writes one; else as is.

    Every string converts, not only literals: an assignment sees a value, not its expression.
    """
    if existing is None:
        return value
    if value.type in (AmqpType.STRING, AmqpType.SYMBOL):
        return v.converted(value.value, existing) or value
    wanted = existing.type
    if value.type is AmqpType.TIMESTAMP and v.described_as(existing) == v.DATE_TIME_OFFSET:
        return v.date_time(v.ticks_of(value), with_offset=True)
    if wanted not in v.IMPLICIT_CONVERSIONS.get(value.type, frozenset()):
        return value
    if wanted in DECIMAL_SIZES:
        return decimal_of(wanted, value.value) or value
    if wanted in (AmqpType.FLOAT, AmqpType.DOUBLE):
        return AmqpValue(wanted, float(value.value))
    low, high = INTEGER_RANGES[wanted]
    return AmqpValue(wanted, value.value) if low <= value.value <= high else value
