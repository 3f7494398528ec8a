"""The predicates of a set of filters, each once, and their columns: predicates on one field share a look at it."""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headgate.evaluate.rules.normal import Junction, Literal, Normal, Numbered
from headgate.language import tree as t
from headgate.message import FieldReference, Section

NUMBERS_BELOW: Mapping[t.Rules, float] = {
    t.ValueRules.RABBITMQ: math.inf,
    t.ValueRules.SERVICE_BUS: 2.0**53,
    t.ValueRules.CORRELATION: 2.0**53,
}
"""Languages in which a comparison with a number depends on nothing but the kind of a value and, for numbers, on their
order, for constants up to these; not RocketMQ, which parses texts."""


@dataclass(slots=True)
class Column:
    """Predicates on one field, by their places among all.

    With `separable`, they tell apart only `texts` (and other texts alike), numbers by their order to `numbers`, and
    other values by their kinds; numbers one by one unless `orders_numbers`. Otherwise every value is its own class.
    """

    reference: FieldReference
    separable: bool
    orders_numbers: bool
    predicates: list[int] = field(default_factory=list)
    texts: dict[bytes, None] = field(default_factory=dict)
    numbers: set[int | float] = field(default_factory=set)
    asks_for_false: bool = False


@dataclass(slots=True)
class Predicates:
    """The predicates of some filters: `trees`, the columns, and the numbers of `loose` predicates, in no column."""

    trees: list[t.Node] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    loose: list[int] = field(default_factory=list)
    numbers: dict[Hashable, int] = field(default_factory=dict)
    homes: list[int] = field(default_factory=list)
    """For each predicate the place of its column, -1 for loose ones."""

    _places: dict[tuple[FieldReference, bool], int] = field(default_factory=dict)

    def add(self, node: Normal) -> Numbered:
        """The same with numbers instead of predicates."""
        if isinstance(node, Junction):
            return Junction(node.all_of, tuple(self.add(part) for part in node.parts))
        return Literal(self._number(node), node.negated)

    def _number(self, literal: Literal[t.Node]) -> int:
        key = t.identity(literal.predicate)
        number = self.numbers.get(key)
        if number is None:
            number = self.numbers[key] = len(self.trees)
            self.trees.append(literal.predicate)
            self.homes.append(self._home(literal.predicate, number))
        if literal.negated and self.homes[number] >= 0:
            self.columns[self.homes[number]].asks_for_false = True
        return number

    def _home(self, predicate: t.Node, number: int) -> int:
        reference = _only_field(predicate)
        if reference is None:
            self.loose.append(number)
            return -1
        constants = _separated(predicate)
        place = self._places.get((reference, constants is not None))
        if place is None:
            place = self._places[reference, constants is not None] = len(self.columns)
            rules = next(node.rules for node in t.walk(predicate) if isinstance(node, t.Field))
            self.columns.append(Column(reference, constants is not None, rules in NUMBERS_BELOW))
        column = self.columns[place]
        column.predicates.append(number)
        for constant in constants or ():
            if isinstance(constant, bytes):
                column.texts[constant] = None
            else:
                column.numbers.add(constant)
        return place


def field_of_classes(predicate: t.Node) -> FieldReference | None:
    """The field of a predicate that only tells apart some texts, numbers between some bounds, and kinds."""
    return None if _separated(predicate) is None else _only_field(predicate)


def _only_field(predicate: t.Node) -> FieldReference | None:
    """The one field that decides a predicate, if nothing else has a say in it."""
    references = set()
    for node in t.walk(predicate):
        if isinstance(node, t.Now | t.MessageSize | t.PropertyOf | t.AnyElement) or (
            isinstance(node, t.Field) and node.reference.path and node.reference.section is not Section.DATA
        ):
            return None
        if isinstance(node, t.Field):
            references.add(node.reference)
    return references.pop() if len(references) == 1 else None


def _separated(predicate: t.Node) -> list[bytes | int | float] | None:
    """The texts and numbers that a predicate tells apart from others, if it does nothing but that."""
    match predicate:
        case t.Field() | t.IsNull(operand=t.Field()) | t.Exists(operand=t.Field()) | t.HasSimple(operand=t.Field()):
            return []
        case t.BooleanCast(operand=t.Field()):
            return []
        case (
            t.Compare(left=t.Field(), right=t.Constant() as constant)
            | t.Compare(left=t.Constant() as constant, right=t.Field())
        ):
            return _constants((constant,), predicate.rules, predicate.operator.is_equality)
        case t.In(subject=t.Field(), members=members):
            return _constants(members, predicate.rules, True)
        case _:
            return None


def _constants(members: Iterable[t.Node], rules: t.Rules, equality: bool) -> list[bytes | int | float] | None:
    found: list[bytes | int | float] = []
    below = NUMBERS_BELOW.get(rules, 0.0)
    for member in members:
        value = member.value if isinstance(member, t.Constant) else None
        if isinstance(value, bytes) and equality:
            found.append(value)
        elif isinstance(value, int | float) and -below < value < below:
            if not isinstance(value, bool):
                found.append(value)
        else:
            return None
    return found


# -- where the answer to a comparison with a number may change ---------------------------------------------------------


def integer_bounds(numbers: Iterable[int | float]) -> list[int]:
    """Ascending: integers of 64 bits between two neighbours stand in the same order to all of the numbers."""
    bounds = set()
    for number in numbers:
        bounds |= {math.ceil(number), math.floor(number) + 1}
    return sorted(bound for bound in bounds if -(2**63) <= bound < 2**63)


def float_bounds(numbers: Iterable[int | float]) -> list[float]:
    """Ascending: finite doubles between two neighbours stand in the same order to all of the numbers."""
    bounds = set()
    for number in numbers:
        least = _least_double(number)
        bounds |= {least, math.nextafter(least, math.inf) if least == number else least}
    return sorted(bound for bound in bounds if math.isfinite(bound))


def _least_double(number: int | float) -> float:
    """The least double that is not below a number."""
    try:
        nearest = float(number)
    except OverflowError:
        return math.inf if number > 0 else -sys.float_info.max
    return math.nextafter(nearest, math.inf) if nearest < number else nearest


def in_columns(predicates: Predicates) -> Sequence[int]:
    """All predicates, column by column, then the loose ones."""
    return [number for column in predicates.columns for number in column.predicates] + predicates.loose
