"""The part of a filter that declared columns alone decide, exactly as its language decides it.

Decided are tests of one declared column against constants: comparisons, IN, BETWEEN (which is two comparisons), IS
NULL, and a bare column of booleans; under AND, OR, NOT. `UTC()` is a constant here. Everything else is `FromBytes`:
nothing is known of it before the message is evaluated. The table of docs/design/columns.md lists which comparisons
count in which language; here each language has a function, and comparisons that it does not name are `FromBytes`.

A test holds only for rows that are exact in its column: with a bit in `inexact` it says nothing of the row.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from headgate.evaluate import Filter, evaluate
from headgate.language import EvaluationFailed, Value, is_number
from headgate.language import tree as t
from headgate.language.servicebus import SystemType, system_type
from headgate.message import HEADER_FIELDS, PROPERTIES_FIELDS, AmqpType, AmqpValue, FieldReference, Message, Section
from headgate.message.arrow import INTEGER_RANGES, DeclaredColumn, SparkType

ColumnValue: TypeAlias = bool | int | float | bytes
"""A constant in the type of its column: bytes for text, as UTF-8, and binary; microseconds since 1970 for a time."""


@dataclass(frozen=True, slots=True)
class ColumnComparison:
    """`column operator value` for values that are not null: numbers by value, bytes by their order, `=` of booleans.

    Here and in the other tests: `absent` is the result where the column is null, None for unknown; `empty_is_absent`
    says that an empty text counts as null.
    """

    column: str
    operator: t.CompareOperator
    value: ColumnValue
    absent: bool | None
    empty_is_absent: bool = False


@dataclass(frozen=True, slots=True)
class ColumnMembership:
    """`column IN (values)`; without values it is false wherever there is a value."""

    column: str
    values: tuple[ColumnValue, ...]
    absent: bool | None
    empty_is_absent: bool = False


@dataclass(frozen=True, slots=True)
class ColumnNull:
    """`column IS NULL`: false where there is a value."""

    column: str
    absent: bool | None
    empty_is_absent: bool = False


@dataclass(frozen=True, slots=True)
class ColumnAnd:
    """Three-valued conjunction."""

    operands: tuple[ColumnNode, ...]


@dataclass(frozen=True, slots=True)
class ColumnOr:
    """Three-valued disjunction."""

    operands: tuple[ColumnNode, ...]


@dataclass(frozen=True, slots=True)
class ColumnNot:
    """Three-valued negation."""

    operand: ColumnNode


@dataclass(frozen=True, slots=True)
class FromBytes:
    """A condition that only the message decides: true, false, unknown or an error."""


ColumnTest: TypeAlias = ColumnComparison | ColumnMembership | ColumnNull
ColumnNode: TypeAlias = ColumnTest | ColumnAnd | ColumnOr | ColumnNot | FromBytes


@dataclass(frozen=True, slots=True)
class ColumnFilter:
    """A filter over columns: `tree`, and the names of the `columns` in it, in the order of declaration.

    A row for which the tree is not true does not match. If it `is_whole`, a row for which it is true does match; else
    the message has to be evaluated. Both hold for rows that are exact in these columns.
    """

    tree: ColumnNode
    columns: tuple[str, ...]
    is_whole: bool


def column_filter(filter: Filter, columns: Sequence[DeclaredColumn], *, now_ms: int = 0) -> ColumnFilter | None:
    """The part of a filter that these columns decide; None if they could not rule out a single row.

    `now_ms` is what `UTC()` gives. Cost: a few walks over the filter's tree.
    """
    if filter.has_own_rules:
        return None
    tree = _Builder(columns, now_ms).node(filter.tree)
    if not _can_rule_out(tree, True):
        return None
    used = {test.column for test in tests_of(tree)}
    names = tuple(column.name for column in columns if column.name in used)
    return ColumnFilter(tree, names, not any(isinstance(node, FromBytes) for node in _nodes(tree)))


def tests_of(node: ColumnNode) -> Iterable[ColumnTest]:
    """The tests of single columns in a tree."""
    return (each for each in _nodes(node) if isinstance(each, ColumnTest))


def _nodes(node: ColumnNode) -> Iterator[ColumnNode]:
    yield node
    match node:
        case ColumnAnd(operands) | ColumnOr(operands):
            for operand in operands:
                yield from _nodes(operand)
        case ColumnNot(operand):
            yield from _nodes(operand)


def _can_rule_out(node: ColumnNode, truth: bool) -> bool:
    """Whether the node can show for a row that its outcome is not `truth`."""
    match node:
        case ColumnAnd(operands) | ColumnOr(operands):
            found = [_can_rule_out(operand, truth) for operand in operands]
            return any(found) if isinstance(node, ColumnAnd) is truth else all(found)
        case ColumnNot(operand):
            return _can_rule_out(operand, not truth)
        case FromBytes():
            return False
        case _:
            return True


_FROM_BYTES = FromBytes()
_EMPTY = Message.decode(b"")
"""A message without any field, which counts as one whose fields are null."""


class _Kind(enum.Enum):
    """The kind of a column's exact values."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    TIME = "timestamp"
    FLOAT = "float"
    DOUBLE = "double"
    TEXT = "string or symbol"
    BINARY = "binary"


_KINDS = {
    SparkType.BOOLEAN: _Kind.BOOLEAN,
    SparkType.TINYINT: _Kind.INTEGER,
    SparkType.SMALLINT: _Kind.INTEGER,
    SparkType.INT: _Kind.INTEGER,
    SparkType.BIGINT: _Kind.INTEGER,
    SparkType.TIMESTAMP: _Kind.TIME,
    SparkType.FLOAT: _Kind.FLOAT,
    SparkType.DOUBLE: _Kind.DOUBLE,
    SparkType.STRING: _Kind.TEXT,
    SparkType.BINARY: _Kind.BINARY,
}
_TYPES = {
    _Kind.BOOLEAN: AmqpType.BOOLEAN,
    _Kind.TIME: AmqpType.TIMESTAMP,
    _Kind.FLOAT: AmqpType.FLOAT,
    _Kind.DOUBLE: AmqpType.DOUBLE,
    _Kind.TEXT: AmqpType.STRING,
    _Kind.BINARY: AmqpType.BINARY,
}
_LISTS = {Section.HEADER: HEADER_FIELDS, Section.PROPERTIES: PROPERTIES_FIELDS}
_SYMBOLS = ("content_type", "content_encoding")
_UNSIGNED = {SparkType.SMALLINT: AmqpType.UBYTE, SparkType.BIGINT: AmqpType.UINT}

_EXACT_INTEGERS = 2**53
"""Between this and its negative every integer is a double."""

_EXACT_FLOAT_INTEGERS = 2**24


@dataclass(frozen=True, slots=True)
class _Column:
    """A declared column; `type` is the AMQP type of all its exact values, None for signed integers of any width."""

    name: str
    kind: _Kind
    type: AmqpType | None
    limits: tuple[int, int]

    @staticmethod
    def of(declared: DeclaredColumn) -> _Column | None:
        """A declared column; None for decimal, which no test takes."""
        kind = _KINDS.get(declared.kind)
        if kind is None:
            return None
        found = _TYPES.get(kind)
        if declared.section in _LISTS:
            if kind is _Kind.INTEGER:
                found = _UNSIGNED[declared.kind]
            elif declared.section is Section.PROPERTIES and declared.field in _SYMBOLS:
                found = AmqpType.SYMBOL
        return _Column(declared.name, kind, found, INTEGER_RANGES.get(declared.kind, INTEGER_RANGES[SparkType.BIGINT]))


_Compared: TypeAlias = "tuple[t.CompareOperator, ColumnValue] | bool | None"
"""A comparison of a column: with a constant of its type; the same for every value; or None: only the bytes decide."""


class _Builder:
    """Turns bound trees into trees over columns."""

    def __init__(self, columns: Sequence[DeclaredColumn], now_ms: int) -> None:
        self._columns = columns
        self._now_ms = now_ms

    def node(self, node: t.Node) -> ColumnNode:
        """A condition as one over columns."""
        match node:
            case t.And(operands):
                return ColumnAnd(tuple(self.node(operand) for operand in operands))
            case t.Or(operands):
                return ColumnOr(tuple(self.node(operand) for operand in operands))
            case t.Not(operand):
                return ColumnNot(self.node(operand))
            case t.Compare():
                return self._comparison(node)
            case t.CompareSpecial():
                return self._special(node)
            case t.In(negated=True):
                return ColumnNot(self._membership(replace(node, negated=False)))
            case t.In():
                return self._membership(node)
            case t.IsNull(operand, negated=True):
                return ColumnNot(self._null(t.IsNull(operand)))
            case t.IsNull():
                return self._null(node)
            case t.Field(rules=t.ValueRules.RABBITMQ | t.ValueRules.SERVICE_BUS):
                return self._bare(node)
            case _:
                return _FROM_BYTES

    def _comparison(self, node: t.Compare) -> ColumnNode:
        field, other, operator = node.left, node.right, node.operator
        is_mirrored = isinstance(other, t.Field)
        if is_mirrored:
            field, other, operator = other, field, operator.mirrored
        if not isinstance(field, t.Field) or not isinstance(node.rules, t.ValueRules):
            return _FROM_BYTES
        column, constant = self._column(field), self._constant(other)
        if column is None or constant is None:
            return _FROM_BYTES
        if is_mirrored and node.rules in _ROCKETMQ and column.kind not in (_Kind.TEXT, _Kind.BOOLEAN):
            return _FROM_BYTES
        found = _RULES[node.rules](column, operator, constant)
        return self._test(column, field, node, found)

    def _special(self, node: t.CompareSpecial) -> ColumnNode:
        """A comparison with an infinity or NaN: all exact numbers are finite, so it is the same for each."""
        field, number = node.operand, node.number
        column = self._column(field) if isinstance(field, t.Field) else None
        if column is None or not isinstance(field, t.Field):
            return _FROM_BYTES
        holds = node.operator is t.CompareOperator.NOT_EQUAL
        if column.kind not in (_Kind.TEXT, _Kind.BINARY, _Kind.BOOLEAN):
            if number is t.SpecialNumber.INFINITY:
                holds |= node.operator in (t.CompareOperator.LESS, t.CompareOperator.LESS_OR_EQUAL)
            elif number is t.SpecialNumber.NEGATIVE_INFINITY:
                holds |= node.operator in (t.CompareOperator.GREATER, t.CompareOperator.GREATER_OR_EQUAL)
        return self._test(column, field, node, holds)

    def _test(self, column: _Column, field: t.Field, node: t.Node, found: _Compared) -> ColumnNode:
        absent = self._absent(node)
        if found is None or absent is _Failed.FAILED:
            return _FROM_BYTES
        is_absent = _empty_is_absent(field, column)
        if found is False:
            return ColumnMembership(column.name, (), absent, is_absent)
        if found is True:
            return ColumnNot(ColumnMembership(column.name, (), None if absent is None else not absent, is_absent))
        return ColumnComparison(column.name, *found, absent, is_absent)

    def _membership(self, node: t.In) -> ColumnNode:
        field, rules = node.subject, node.rules
        if not isinstance(field, t.Field) or not isinstance(rules, t.ValueRules):
            return _FROM_BYTES
        column, constants = self._column(field), [self._constant(member) for member in node.members]
        if column is None or (rules in _ROCKETMQ and column.kind is not _Kind.TEXT):
            return _FROM_BYTES
        values: list[ColumnValue] = []
        for constant in constants:
            found = None if constant is None else _RULES[rules](column, t.CompareOperator.EQUAL, constant)
            if found is None or found is True:
                return _FROM_BYTES
            if found is not False:
                values.append(found[1])
        absent = self._absent(node)
        if absent is _Failed.FAILED:
            return _FROM_BYTES
        return ColumnMembership(column.name, tuple(values), absent, _empty_is_absent(field, column))

    def _null(self, node: t.IsNull) -> ColumnNode:
        field = node.operand
        column = self._column(field) if isinstance(field, t.Field) else None
        if column is None or not isinstance(field, t.Field):
            return _FROM_BYTES
        absent = self._absent(node)
        if absent is _Failed.FAILED:
            return _FROM_BYTES
        return ColumnNull(column.name, absent, _empty_is_absent(field, column))

    def _bare(self, field: t.Field) -> ColumnNode:
        """A field as a condition: values other than booleans are unknown."""
        column = self._column(field)
        if column is None or column.kind is not _Kind.BOOLEAN:
            return _FROM_BYTES
        return self._test(column, field, field, (t.CompareOperator.EQUAL, True))

    def _column(self, field: t.Field) -> _Column | None:
        """The column that holds a field as its language sees it, or None."""
        declared = next((each for each in self._columns if _is_of(each, field.reference)), None)
        column = None if declared is None else _Column.of(declared)
        if column is None or field.reference.only not in (None, column.type):
            return None
        if field.rules in _ROCKETMQ:
            is_seen = column.type in _ROCKETMQ_TYPES or (column.type is None and column.kind is _Kind.INTEGER)
            return column if is_seen else None
        if field.rules is t.ValueRules.SERVICE_BUS:
            of_system = system_type(field.reference)
            is_seen = of_system is None or (
                of_system in (SystemType.TEXT, SystemType.IDENTIFIER) and column.kind is _Kind.TEXT
            )
            return column if is_seen else None
        return column if field.rules is t.ValueRules.RABBITMQ else None

    def _constant(self, node: t.Node) -> Value:
        """The value of an expression that does not depend on the message; None for others, and for NULL."""
        if any(isinstance(each, _OF_MESSAGES) for each in t.walk(node)):
            return None
        try:
            return evaluate(node, _EMPTY, self._now_ms)
        except EvaluationFailed:
            return None

    def _absent(self, node: t.Node) -> bool | _Failed | None:
        """The result of a test for a message without the field; None for unknown."""
        try:
            found = evaluate(node, _EMPTY, self._now_ms)
        except EvaluationFailed:
            return _Failed.FAILED
        return found if isinstance(found, bool) else None


class _Failed(enum.Enum):
    """An evaluation ended with an error."""

    FAILED = "failed"


_OF_MESSAGES = (t.Field, t.PropertyOf, t.NewId, t.MessageSize)
_ROCKETMQ = (t.ValueRules.ROCKETMQ, t.ValueRules.ROCKETMQ_MAP)
_ROCKETMQ_TYPES = (AmqpType.BOOLEAN, AmqpType.FLOAT, AmqpType.DOUBLE, AmqpType.STRING)


def _is_of(declared: DeclaredColumn, reference: FieldReference) -> bool:
    """Whether a column is declared for a field."""
    if declared.section is not reference.section:
        return False
    if declared.section is Section.DATA:
        # Bodies that are decoded by a schema have no columns.
        return reference.schema is None and reference.path == declared.path
    if reference.path:
        return False
    names = _LISTS.get(declared.section)
    if names is not None:
        return reference.position == names.index(declared.field.replace("_", "-"))
    key = declared.field.encode()
    if reference.ignore_case and reference.key is not None and key.isascii() and reference.key.isascii():
        # A row with another spelling beside this one is not exact.
        return key.lower() == reference.key.lower()
    return key == reference.key


def _empty_is_absent(field: t.Field, column: _Column) -> bool:
    return field.rules is t.ValueRules.ROCKETMQ and column.kind is _Kind.TEXT


def _rabbitmq(column: _Column, operator: t.CompareOperator, constant: Value) -> _Compared:
    """Numbers by exact value, bytes by their order, unlike kinds: `=` false, `<>` true, order false."""
    if column.kind in (_Kind.TEXT, _Kind.BINARY):
        is_like = isinstance(constant, bytes)
    elif column.kind is _Kind.BOOLEAN:
        is_like = isinstance(constant, bool) and operator.is_equality
    else:
        is_like = is_number(constant)
    if is_like:
        return _exactly(column, operator, constant)
    return operator is t.CompareOperator.NOT_EQUAL


def _rocketmq(column: _Column, operator: t.CompareOperator, constant: Value) -> _Compared:
    """Texts and booleans: equality with their like. Numbers: integers by value, else as doubles or floats."""
    if column.kind in (_Kind.TEXT, _Kind.BOOLEAN):
        wanted = bytes if column.kind is _Kind.TEXT else bool
        return _exactly(column, operator, constant) if isinstance(constant, wanted) and operator.is_equality else None
    if not isinstance(constant, AmqpValue):
        return None
    number = constant.value
    if constant.type in (AmqpType.INT, AmqpType.LONG):
        if column.kind is _Kind.FLOAT and abs(number) > _EXACT_FLOAT_INTEGERS:
            return None
        return _promoted(column, operator, number)
    if constant.type is not AmqpType.DOUBLE or number == 0:
        return None
    return _promoted(column, operator, number)


def _service_bus(column: _Column, operator: t.CompareOperator, constant: Value) -> _Compared:
    """Texts and booleans: equality with their like; numbers, an integer beside a double as a double."""
    if column.kind in (_Kind.TEXT, _Kind.BOOLEAN):
        wanted = bytes if column.kind is _Kind.TEXT else bool
        return _exactly(column, operator, constant) if isinstance(constant, wanted) and operator.is_equality else None
    if column.kind in (_Kind.INTEGER, _Kind.FLOAT, _Kind.DOUBLE) and is_number(constant):
        return _promoted(column, operator, constant)
    return None


def _correlation(column: _Column, operator: t.CompareOperator, constant: Value) -> _Compared:
    """Equality by exact value; unlike kinds are unequal."""
    if column.kind in (_Kind.TEXT, _Kind.BOOLEAN):
        wanted = bytes if column.kind is _Kind.TEXT else bool
        return _exactly(column, operator, constant) if isinstance(constant, wanted) else None
    if column.kind in (_Kind.INTEGER, _Kind.FLOAT, _Kind.DOUBLE) and is_number(constant):
        return _exactly(column, operator, constant)
    return None


_RULES: Mapping[t.ValueRules, Callable[[_Column, t.CompareOperator, Value], _Compared]] = {
    t.ValueRules.RABBITMQ: _rabbitmq,
    t.ValueRules.ROCKETMQ: _rocketmq,
    t.ValueRules.ROCKETMQ_MAP: _rocketmq,
    t.ValueRules.SERVICE_BUS: _service_bus,
    t.ValueRules.CORRELATION: _correlation,
}


def _promoted(column: _Column, operator: t.CompareOperator, number: Value) -> _Compared:
    """A comparison where an integer beside a double becomes a double."""
    assert isinstance(number, int | float)
    if not math.isfinite(number):
        return None
    if column.kind is _Kind.INTEGER:
        # From there on several integers convert to the same double.
        is_exact = isinstance(number, int) or abs(number) < _EXACT_INTEGERS
        return _exactly(column, operator, number) if is_exact else None
    return operator, float(number)


def _exactly(column: _Column, operator: t.CompareOperator, constant: Value) -> _Compared:
    """A comparison by exact value with a constant of the column's kind; numbers are of one kind."""
    match column.kind, constant:
        case _Kind.TEXT | _Kind.BINARY, bytes():
            return operator, constant
        case _Kind.BOOLEAN, bool():
            return operator, constant
        case _, bool():
            return None
        case _Kind.FLOAT | _Kind.DOUBLE, int() | float():
            return _of_doubles(operator, constant)
        case _Kind.INTEGER, int() | float():
            return _of_integers(operator, constant, *column.limits)
        case _Kind.TIME, int() | float():
            lowest, highest = column.limits
            found = _of_integers(operator, constant, -(-lowest // 1000), highest // 1000)
            return (found[0], int(found[1]) * 1000) if isinstance(found, tuple) else found
        case _:
            return None


def _of_integers(operator: t.CompareOperator, number: int | float, lowest: int, highest: int) -> _Compared:
    """`x operator number` for integers x from `lowest` to `highest`, with an integer among them."""
    if isinstance(number, float) and not math.isfinite(number):
        return None
    floor, ceiling = math.floor(number), math.ceil(number)
    match operator:
        case t.CompareOperator.EQUAL | t.CompareOperator.NOT_EQUAL:
            if floor == ceiling and lowest <= floor <= highest:
                return operator, floor
            return operator is t.CompareOperator.NOT_EQUAL
        case t.CompareOperator.LESS | t.CompareOperator.GREATER_OR_EQUAL:
            if lowest < ceiling <= highest:
                return operator, ceiling
            return (ceiling > highest) is (operator is t.CompareOperator.LESS)
        case _:
            if lowest <= floor < highest:
                return operator, floor
            return (floor >= highest) is (operator is t.CompareOperator.LESS_OR_EQUAL)


def _of_doubles(operator: t.CompareOperator, number: int | float) -> _Compared:
    """`x operator number` for finite doubles x, with a double."""
    if number != number:
        return None
    try:
        nearest = float(number)
    except OverflowError:
        nearest = math.inf if number > 0 else -math.inf
    if nearest == number:
        return operator, nearest
    if operator.is_equality:
        return operator is t.CompareOperator.NOT_EQUAL
    if operator in (t.CompareOperator.LESS, t.CompareOperator.LESS_OR_EQUAL):
        below = nearest if nearest < number else math.nextafter(nearest, -math.inf)
        return t.CompareOperator.LESS_OR_EQUAL, below
    above = nearest if nearest > number else math.nextafter(nearest, math.inf)
    return t.CompareOperator.GREATER_OR_EQUAL, above
