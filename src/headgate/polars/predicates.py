"""Conditions that a predicate of polars implies, as far as the reading of a stream can use them.

A predicate is read from its JSON, which polars calls unstable: the extra pins polars, and an unknown part gives no
condition, so it skips nothing. polars applies the predicate itself to all rows that are read; so a condition here must
hold for every row for which the predicate is true. It is written in the language `amqp` where that sees the same value
as the column, or more:

| column                              | asked by                                                                     |
| ----------------------------------- | ---------------------------------------------------------------------------- |
| offset                              | first and last offset                                                        |
| timestamp                           | first and last time of a chunk                                               |
| text                                | = and IN; not of one character, since AMQP's char is text in a column only   |
| integers                            | comparisons, IN                                                              |
| float, double                       | comparisons, IN; polars has infinities beyond all numbers, and NaN above all |
|                                     | (not of a body: the number in the text is another than the column's nearest) |
| boolean                             | = and the column itself                                                      |
| timestamp of a field                | comparisons, in milliseconds                                                 |
| filter_value, ids, whole columns,   | nothing: values of several types look the same there, or it is too rarely    |
| bytes, decimals                     | asked                                                                        |
"""

from __future__ import annotations

import datetime
import functools
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars

from headgate.language import field_text
from headgate.message import FieldReference, Section, parse_field
from headgate.message.arrow import DeclaredColumn, SparkType

_Json = Any
_MOST_CONSTANTS = 64
"""A filter has at most 200 tokens."""
_INTEGERS = (SparkType.TINYINT, SparkType.SMALLINT, SparkType.INT, SparkType.BIGINT)
_FLOATS = (SparkType.FLOAT, SparkType.DOUBLE)
_IDS = ("message_id", "correlation_id")
_OPERATORS = {"Eq": "=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Between:
    """Whole numbers from `lowest` to `highest`, both among them; None = no bound."""

    lowest: int | None = None
    highest: int | None = None

    @staticmethod
    def of(operator: str, number: int) -> Between:
        """The numbers for which `x operator number`."""
        return {
            "=": Between(number, number),
            "<": Between(None, number - 1),
            "<=": Between(None, number),
            ">": Between(number + 1, None),
            ">=": Between(number, None),
        }[operator]

    def both(self, other: Between) -> Between:
        """Numbers that are in both."""
        lowest = [bound for bound in (self.lowest, other.lowest) if bound is not None]
        highest = [bound for bound in (self.highest, other.highest) if bound is not None]
        return Between(max(lowest, default=None), min(highest, default=None))

    def either(self, other: Between) -> Between:
        """Numbers that are in one of them, or between them."""
        lowest = None if self.lowest is None or other.lowest is None else min(self.lowest, other.lowest)
        highest = None if self.highest is None or other.highest is None else max(self.highest, other.highest)
        return Between(lowest, highest)


@dataclass(frozen=True, slots=True)
class Needed:
    """Conditions that hold for every row for which a predicate is true; by default none."""

    offsets: Between = Between()
    times_us: Between = Between()
    """Microseconds since 1970 of the row's chunk."""
    condition: str | None = None
    """A filter of the language `amqp`."""

    def both(self, other: Needed) -> Needed:
        """The conditions of rows for which both predicates are true."""
        conditions = [each for each in (self.condition, other.condition) if each is not None]
        return Needed(
            self.offsets.both(other.offsets),
            self.times_us.both(other.times_us),
            " AND ".join(f"({each})" for each in conditions) if conditions else None,
        )

    def either(self, other: Needed) -> Needed:
        """The conditions of rows for which at least one of two predicates is true."""
        conditions = self.condition, other.condition
        return Needed(
            self.offsets.either(other.offsets),
            self.times_us.either(other.times_us),
            None if None in conditions else f"({conditions[0]}) OR ({conditions[1]})",
        )


def needed_by(predicate: polars.Expr, columns: Mapping[str, DeclaredColumn | str]) -> Needed:
    """The conditions of rows for which the predicate is true; `columns` are the table's, by name."""
    return _needed(json.loads(predicate.meta.serialize(format="json")), columns)


def _needed(node: _Json, columns: Mapping[str, DeclaredColumn | str]) -> Needed:
    match node:
        case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
            return _needed(left, columns).both(_needed(right, columns))
        case {"BinaryExpr": {"left": left, "op": "Or" | "LogicalOr", "right": right}}:
            return _needed(left, columns).either(_needed(right, columns))
        case {"BinaryExpr": {"left": {"Column": name}, "op": operator, "right": {"Literal": _} as literal}}:
            return _compared(columns.get(name), _OPERATORS.get(operator), _constants(literal))
        case {"BinaryExpr": {"left": {"Literal": _} as literal, "op": operator, "right": {"Column": name}}}:
            turned = _TURNED.get(_OPERATORS.get(operator, ""))
            return _compared(columns.get(name), turned, _constants(literal))
        case {"Function": {"input": [{"Column": name}, *given], "function": {"Boolean": function}}}:
            return _asked(columns.get(name), function, given)
        case {"Column": name}:
            return _compared(columns.get(name), "=", [True])
    return Needed()


def _asked(column: DeclaredColumn | str | None, function: _Json, given: list[_Json]) -> Needed:
    if not given or not all(isinstance(each, dict) and each.keys() == {"Literal"} for each in given):
        return Needed()
    match function:
        case {"IsIn": {"nulls_equal": False}}:
            members = [each for each in _constants(given[0]) if each is not None]
            return _one_of(column, members) if members else Needed()
        case {"IsBetween": {"closed": closed}} if len(given) == 2:
            lower = ">=" if closed in ("Both", "Left") else ">"
            upper = "<=" if closed in ("Both", "Right") else "<"
            low, high = (_constants(each) for each in given)
            return _compared(column, lower, low).both(_compared(column, upper, high))
    return Needed()


def _constants(literal: _Json) -> list[Any]:
    """The value of a literal, or the members of a list; none where that is not known."""
    try:
        read = polars.Expr.deserialize(io.StringIO(json.dumps(literal)), format="json")
    except polars.exceptions.ComputeError:
        # JSON has no infinities and no NaN.
        return []
    held = polars.select(read).to_series()
    found: list[Any] = (held.explode() if isinstance(held.dtype, polars.List) else held).to_list()
    return found


def _one_of(column: DeclaredColumn | str | None, members: list[Any]) -> Needed:
    if not isinstance(column, DeclaredColumn):
        return functools.reduce(Needed.either, [_compared(column, "=", [member]) for member in members])
    if len(members) > _MOST_CONSTANTS:
        numbers = column.kind in _INTEGERS and all(type(member) is int for member in members)
        ends = ((">=", min(members)), ("<=", max(members))) if numbers else ()
        return functools.reduce(Needed.both, [_compared(column, end, [bound]) for end, bound in ends], Needed())
    texts = [_constant(column, "=", member) for member in members]
    known = [text for text in texts if text is not None]
    if len(known) < len(texts):
        return Needed()
    return Needed(condition=f"{_name(column)} IN ({', '.join(known)})")


def _compared(column: DeclaredColumn | str | None, operator: str | None, constants: list[Any]) -> Needed:
    if column is None or operator is None or len(constants) != 1:
        return Needed()
    (constant,) = constants
    match column, constant:
        case "offset", int():
            return Needed(offsets=Between.of(operator, constant))
        case "timestamp", datetime.datetime() if constant.tzinfo is not None:
            return Needed(times_us=Between.of(operator, _microseconds(constant)))
        case DeclaredColumn(), _:
            return Needed(condition=_condition(column, operator, constant))
    return Needed()


def _condition(column: DeclaredColumn, operator: str, constant: Any) -> str | None:
    text = _constant(column, operator, constant)
    if text is None:
        return None
    name = _name(column)
    compared = f"{name} {operator} {text}"
    if column.kind in _FLOATS and operator in (">", ">="):
        return f"{compared} OR {name} = INF OR {name} = NAN"
    return f"{compared} OR {name} = -INF" if column.kind in _FLOATS and operator in ("<", "<=") else compared


def _name(column: DeclaredColumn) -> str:
    if column.section is Section.DATA:
        return column.field
    if column.section in (Section.HEADER, Section.PROPERTIES):
        return field_text(parse_field(f"{column.section.name.lower()}.{column.field}"))
    return field_text(FieldReference(column.section, key=column.field.encode()))


def _constant(column: DeclaredColumn, operator: str, constant: Any) -> str | None:
    """The constant for a field, which gives the same answer as the comparison of the column; None without one."""
    kind = column.kind
    if column.section is Section.DATA and kind in _FLOATS:
        return None
    if isinstance(constant, bool):
        return str(constant).upper() if kind is SparkType.BOOLEAN and operator == "=" else None
    if isinstance(constant, int) and kind in _INTEGERS:
        return str(constant)
    if isinstance(constant, float) and kind in _FLOATS and math.isfinite(constant):
        digits = format(Decimal(constant), "f")
        return digits if "." in digits else f"{digits}.0"
    if isinstance(constant, str) and kind is SparkType.STRING and operator == "=" and len(constant) != 1:
        quoted = constant.replace("'", "''")
        return None if column.section is Section.PROPERTIES and column.field in _IDS else f"'{quoted}'"
    if isinstance(constant, datetime.datetime) and kind is SparkType.TIMESTAMP:
        milliseconds, more = divmod(_microseconds(constant), 1000)
        if operator == "=":
            return None if more else str(milliseconds)
        return str(milliseconds + 1 if more and operator in ("<", ">=") else milliseconds)
    return None


def _microseconds(moment: datetime.datetime) -> int:
    return (moment - _EPOCH) // datetime.timedelta(microseconds=1)
