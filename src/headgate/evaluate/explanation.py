"""Why a message did, or did not, pass: the value of every clause, the reasons, the traps, and which stage decides."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from headgate.errors import MessageError
from headgate.evaluate.pruning import wanted_values
from headgate.evaluate.reference import evaluate
from headgate.evaluate.verdict import EvaluationFailed, Verdict
from headgate.language import Value, constant_text, field_text, is_number, is_utf8
from headgate.language import tree as t
from headgate.message import AmqpType, AmqpValue, FieldReference, JsonKind, Message, Section

FILTER_VALUE_ANNOTATION = FieldReference(Section.MESSAGE_ANNOTATIONS, key=b"x-stream-filter-value")
"""Where a publisher states the filter value of a message."""


class Stage(enum.Enum):
    """Which stage decides about the message."""

    CHUNK = "stage 1: the filter value is not wanted; the message is read only if its chunk holds a wanted one, too"
    MESSAGE = "stage 2: the expression decides"


@dataclass(frozen=True, slots=True)
class Clause:
    """A logical operator with its operands, or a condition; `verdict` is its value in its place.

    `note` describes the values of a condition's fields. `span` is its place in the text of the filter.
    """

    text: str
    span: t.Span
    verdict: Verdict
    note: str
    operands: tuple[Clause, ...] = ()

    def walk(self) -> Iterator[Clause]:
        """The clause and all below it, each before its operands."""
        yield self
        for operand in self.operands:
            yield from operand.walk()


@dataclass(frozen=True, slots=True)
class Explanation:
    """The verdict of a filter on one message, with the reasons.

    `clauses` is None for bytes that are not a message. `reasons` are the conditions that keep the message from
    matching, empty if it matches. `warnings` are traps: kinds that cannot be compared, names that only nearly fit,
    wanted filter values that the expression does not imply.
    """

    verdict: Verdict
    clauses: Clause | None
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    stage: Stage


def explain(
    tree: t.Node,
    text: str,
    message: Message | bytes | memoryview,
    *,
    now_ms: int,
    filter_values: Sequence[bytes] = (),
    match_unfiltered: bool = False,
    filter_value: bytes | None = None,
    declared_source: FieldReference | None = None,
) -> Explanation:
    """Explain the verdict of a filter, by its tree and text, on `message`. Never raises.

    `filter_values` are the wanted filter values of stage 1 (none: no stage 1), `filter_value` is the message's own;
    without it, its annotation `x-stream-filter-value` counts. `declared_source` is the field that the stream's filter
    values come from.
    """
    if not isinstance(message, Message):
        try:
            message = Message.decode(message)
        except MessageError as error:
            return Explanation(Verdict.ERROR, None, (str(error),), (), Stage.MESSAGE)
    explainer = _Explainer(text, message, now_ms)
    clauses = explainer.clause(tree)
    if filter_value is None:
        filter_value = _annotated_value(message)
    skipped = bool(filter_values) and not _is_wanted(filter_value, filter_values, match_unfiltered)
    warnings = [*explainer.warnings, *_unimplied(tree, filter_values, declared_source)]
    return Explanation(
        verdict=clauses.verdict,
        clauses=clauses,
        reasons=tuple(dict.fromkeys(_reasons(clauses, wanted=Verdict.TRUE))),
        warnings=tuple(dict.fromkeys(warnings)),
        stage=Stage.CHUNK if skipped else Stage.MESSAGE,
    )


def _annotated_value(message: Message) -> bytes | None:
    typed = message.value(FILTER_VALUE_ANNOTATION)
    return typed.octets() if typed is not None and typed.type is AmqpType.STRING else None


def _is_wanted(filter_value: bytes | None, wanted: Sequence[bytes], match_unfiltered: bool) -> bool:
    if not filter_value:
        return match_unfiltered or b"" in wanted
    return filter_value in wanted


def _unimplied(tree: t.Node, wanted: Sequence[bytes], source: FieldReference | None) -> Iterator[str]:
    """Warnings that messages with other filter values than the wanted could match: the reader never gets them."""
    if not wanted or source is None:
        return
    name = field_text(source)
    implied = wanted_values(tree, source)
    if implied is None:
        yield f"the expression names no wanted {name}: what it matches under other filter values is not read"
        return
    for value in sorted(implied - set(wanted)):
        yield f"the expression also matches {name} = {constant_text(value)}, which is no wanted filter value"


class _Explainer:
    def __init__(self, text: str, message: Message, now_ms: int) -> None:
        self.text = text
        self.message = message
        self.now_ms = now_ms
        self.warnings: list[str] = []

    def clause(self, node: t.Node) -> Clause:
        operands: tuple[Clause, ...] = ()
        if isinstance(node, t.And | t.Or | t.Not):
            operands = tuple(self.clause(operand) for operand in t.children(node))
            for operand, clause in zip(t.children(node), operands, strict=True):
                self._warn_of_operand(operand, clause)
            note = ""
        else:
            exact = {below.operand for below in t.walk(node) if isinstance(below, t.CompareSpecial)}
            described = [self._described(below, exact=below in exact) for below in _readings(node)]
            note = ", ".join(dict.fromkeys(described))
            self._warn(node)
        try:
            verdict = Verdict.of(evaluate(node, self.message, self.now_ms))
        except EvaluationFailed as failed:
            verdict = Verdict.ERROR
            if not operands and str(failed) not in note:
                note = "; ".join(part for part in (note, str(failed)) if part)
        return Clause(self._text(node), node.span, verdict, note, operands)

    def _value(self, node: t.Node) -> Value:
        """The value of a node; None also where its evaluation fails, which its clause notes."""
        try:
            return evaluate(node, self.message, self.now_ms)
        except EvaluationFailed:
            return None

    def _text(self, node: t.Node) -> str:
        return self.text[slice(*node.span)]

    def _described(self, field: t.Field | t.Attribute, *, exact: bool) -> str:
        """The value of a field, as text; `exact`: the condition sees infinities and NaN."""
        if isinstance(field, t.Attribute):
            try:
                value = evaluate(field, self.message, self.now_ms)
            except EvaluationFailed as failed:
                return str(failed)
            return f"{field.name} is {constant_text(value)}"
        if field.reference.section is Section.DATA:
            return self._described_in_body(field.reference)
        name = field_text(field.reference)
        typed = self.message.value(field.reference)
        if typed is None or typed.type is AmqpType.NULL:
            if field.reference.default is not None:
                return f"{name} is absent, its default is {constant_text(field.reference.default)}"
            is_null_entry = typed is not None and field.reference.key is not None
            return f"{name} is null" if is_null_entry else f"{name} is absent{self._near(field)}"
        if field.reference.only not in (None, typed.type):
            default = field.reference.default
            counted = "counts as absent" + (f", its default is {constant_text(default)}" if default is not None else "")
            return f"{name} is of type {typed.type.value}, which {counted}"
        value = self._value(field)
        if isinstance(value, AmqpValue):
            return f"{name} is {typed.type.value} {value.value}"
        if value is None and typed.octets() == b"" and field.rules is t.ValueRules.ROCKETMQ:
            return f"{name} is an empty string, which is NULL"
        if value is None:
            is_float = typed.type in (AmqpType.FLOAT, AmqpType.DOUBLE)
            kind = f"{typed.type.value} {typed.value}" if is_float else f"of type {typed.type.value}"
            return f"{name} is {kind}" + ("" if exact and is_float else ", which is unknown to filters")
        return f"{name} is {typed.type.value} {constant_text(value)}"

    def _described_in_body(self, reference: FieldReference) -> str:
        document, name = self.message.document(reference.schema), field_text(reference).rstrip(".")
        if document is None:
            return f"the body is not {'JSON' if reference.schema is None else reference.schema}"
        found = self.message.json_value(reference.path, reference.schema)
        if found is None or found.kind is JsonKind.NULL:
            return f"{name} is {'absent' if found is None else 'null'}"
        is_unknown = found.scalar() is None and found.kind is not JsonKind.ARRAY
        return f"{name} is the {found.kind.value} {found.shown()}" + (", which is unknown" if is_unknown else "")

    def _near(self, field: t.Field) -> str:
        """A key of the message that differs in letter case only."""
        key = (field.reference.key or b"").decode(errors="replace").lower()
        if field.reference.section is not Section.APPLICATION_PROPERTIES or field.reference.path:
            return ""
        try:
            keys = self.message.application_properties or {}
        except MessageError:
            return ""
        near = [candidate for candidate in keys if candidate.lower() == key]
        return f" (the message has {near[0]!r})" if near else ""

    def _warn_of_operand(self, operand: t.Node, clause: Clause) -> None:
        value = self._value(operand)
        if value is not None and not isinstance(value, bool):
            self.warnings.append(
                f"`{clause.text}` is {_kind(value)} here; as an operand of AND, OR and NOT it is unknown"
            )

    def _warn(self, node: t.Node) -> None:
        for below in () if isinstance(node, t.AnyElement) else t.walk(node):
            if getattr(below, "rules", t.ValueRules.RABBITMQ) is not t.ValueRules.RABBITMQ:
                continue
            match below:
                case t.Compare(operator, left, right):
                    self._warn_of_comparison(below, operator, left, right)
                case t.In(subject, members):
                    value = self._value(subject)
                    known = [member for member in map(self._value, members) if member is not None]
                    if value is not None and known and all(_kind(value) != _kind(member) for member in known):
                        self._trap(subject, value, f"`{self._text(below)}` lists values of other kinds, none is equal")
                case t.Like(subject=subject):
                    self._warn_of_operands(below, (subject,), _is_text)
                case t.Arithmetic() | t.Sign():
                    self._warn_of_operands(below, t.children(below), is_number)
                case t.Concatenate():
                    self._warn_of_operands(below, t.children(below), _is_text)
                case t.Call(arguments=arguments) if self._value(below) is None:
                    for operand, takes_text in zip(arguments, (True, False, False), strict=False):
                        self._warn_of_argument(below, operand, takes_text=takes_text)
                case t.CompareSpecial(operand=operand):
                    value = self._value(operand)
                    if value is not None and not is_number(value):
                        result = Verdict.of(self._value(below)).name.lower()
                        self._trap(operand, value, f"`{self._text(below)}` asks for a number and is {result}")
                case _:
                    continue

    def _warn_of_operands(self, node: t.Node, operands: Sequence[t.Node], fits: Callable[[Value], bool]) -> None:
        for operand in operands:
            value = self._value(operand)
            if value is not None and not fits(value):
                self._trap(operand, value, f"`{self._text(node)}` is unknown")

    def _warn_of_argument(self, call: t.Node, operand: t.Node, *, takes_text: bool) -> None:
        value = self._value(operand)
        if value is None:
            return
        if takes_text and isinstance(value, bytes):
            if not is_utf8(value):
                self.warnings.append(f"`{self._text(operand)}` is not UTF-8 here; `{self._text(call)}` is unknown")
        elif takes_text or not is_number(value):
            self._trap(operand, value, f"`{self._text(call)}` is unknown")
        elif isinstance(value, float):
            self.warnings.append(f"`{self._text(operand)}` is no integer here; `{self._text(call)}` is unknown")

    def _warn_of_comparison(self, node: t.Node, operator: t.CompareOperator, left: t.Node, right: t.Node) -> None:
        first, second = self._value(left), self._value(right)
        if first is None or second is None:
            return
        result = Verdict.of(self._value(node)).name.lower()
        if _kind(first) != _kind(second):
            if isinstance(left, t.Constant):
                left, first, second = right, second, first
            self._trap(left, first, f"`{self._text(node)}` compares it with {_kind(second)} and is {result}")
        elif isinstance(first, bool) and not operator.is_equality:
            self._trap(left, first, f"`{self._text(node)}` asks for an order of booleans and is {result}")

    def _trap(self, operand: t.Node, value: Value, consequence: str) -> None:
        self.warnings.append(f"`{self._text(operand)}` is {_kind(value)} here; {consequence}")


def _readings(node: t.Node) -> list[t.Field | t.Attribute]:
    """The fields and the attributes of events that a tree reads, from left to right."""
    if isinstance(node, t.Field | t.Attribute):
        return [node]
    return [reading for operand in t.children(node) for reading in _readings(operand)]


def _is_text(value: Value) -> bool:
    return isinstance(value, bytes)


def _kind(value: Value) -> str:
    if isinstance(value, bool):
        return "a boolean"
    return "a string" if isinstance(value, bytes) else "a number"


def _reasons(clause: Clause, wanted: Verdict) -> Iterator[str]:
    """The conditions that keep a clause from being `wanted`, in the order of the text."""
    if clause.verdict is wanted:
        return
    if clause.operands:
        is_negation = len(clause.operands) == 1
        below = Verdict(not wanted) if is_negation else wanted
        for operand in clause.operands:
            yield from _reasons(operand, below)
        return
    note = f" ({clause.note})" if clause.note else ""
    yield f"`{clause.text}` is {clause.verdict.name.lower()}{note}"
