"""What a filter needs of a field to be true, as keys of a hash index.

A filter is true only if, for one of its *accesses*, the message has one of its keys. `=`, IN and the texts of a LIKE
pattern under AND are accesses; an OR is one if all its branches are. Which constants may be keys depends on what
equality means (`ValueRules`): the key of the message's value must be the key of the constant whenever the language
finds them equal. What is negated is no access: nearly every message fulfils it.

Bounds of a number are an access, too: `range_of` joins those on one field.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from headgate.evaluate import layout
from headgate.evaluate.rules.layout import BEGINNING, END, LONGEST_KEY
from headgate.evaluate.rules.normal import Junction, Literal, Normal, conjuncts
from headgate.language import Value
from headgate.language import tree as t
from headgate.message import FieldReference, Section

Key: TypeAlias = tuple[int, int, int | bytes]
"""A field by number, and the kind and content of a value: bytes, a number in its simplest form, or a boolean.

The kinds BEGINNING, END and ANYWHERE say where in a text the content is.
"""

ANYWHERE = -1
"""The plan makes a window of it."""

SHORTEST_ANYWHERE = 3
"""Shorter texts occur in too many values."""


@dataclass(slots=True, frozen=True)
class EqualityRules:
    """The facts about `=` in a language that the index uses.

    `numbers_below` bounds the constants that equal exactly the numbers of the same value; `silent_kinds` are kinds of
    registers that never equal a key; values of other kinds, except the kinds of keys, are open.
    """

    numbers_below: int
    booleans: bool
    silent_kinds: tuple[int, ...]

    def open_kinds(self, reference: FieldReference) -> int:
        """The kinds, as bits, of values of a field whose equality only the reference knows."""
        known = [layout.BYTES, layout.NULL, layout.ABSENT, layout.VALUELESS]
        if reference.section is not Section.PROPERTIES or self is _RABBITMQ:
            known += [*self.silent_kinds, layout.BOOLEAN] if self.booleans else self.silent_kinds
            if self.numbers_below:
                known += [layout.INTEGER, layout.FLOAT]
        return ~sum(1 << kind for kind in set(known))


_RABBITMQ = EqualityRules(2**63, True, (layout.LARGE,))
_SERVICE_BUS = EqualityRules(2**53, True, (layout.LARGE, layout.TIMESTAMP, layout.UUID, layout.BINARY))

EQUALITIES: Mapping[Hashable, EqualityRules] = {
    t.ValueRules.RABBITMQ: _RABBITMQ,
    t.ValueRules.SERVICE_BUS: _SERVICE_BUS,
    t.ValueRules.CORRELATION: _SERVICE_BUS,
    # A number that a producer typed is compared with a text as numbers: only texts are keys.
    t.ValueRules.ROCKETMQ: EqualityRules(0, False, ()),
}
"""The rules with indexed equalities."""


_FAMILIES = {layout.FLOAT: layout.INTEGER}
"""Kinds of keys that any language compares with each other."""


@dataclass(slots=True, frozen=True)
class Access:
    """A filter is true only for messages with one of `keys`, because of its conjunct at `place`."""

    keys: tuple[Key, ...]
    place: int
    whole: bool
    """Whether having one of the keys makes the conjunct true."""


@dataclass(slots=True, frozen=True)
class RangeAccess:
    """A filter is true only for messages with a number from `low` to `high` in a field, because of some conjuncts."""

    field: int
    low: float
    high: float
    low_excluded: bool
    high_excluded: bool
    whole: frozenset[int]
    """The places of the conjuncts that such a number makes true; others have bounds that are no doubles."""


@dataclass(slots=True)
class _Range:
    """Numbers within bounds: the greatest lower one and whether it is excluded, the least upper one and whether it is
    included; and the places of the bounds that are exact."""

    low: tuple[float, bool] = (-math.inf, False)
    high: tuple[float, bool] = (math.inf, True)
    whole: list[int] = field(default_factory=list)

    def narrow(self, operator: t.CompareOperator, value: float) -> None:
        match operator:
            case t.CompareOperator.LESS | t.CompareOperator.LESS_OR_EQUAL:
                self.high = min(self.high, (value, operator is t.CompareOperator.LESS_OR_EQUAL))
            case _:
                self.low = max(self.low, (value, operator is t.CompareOperator.GREATER))


class Accesses:
    """Finds the accesses of filters; their fields are numbered as they are met.

    A set may have a hundred thousand equalities, and hashes of references and rules are slow: look-ups use their parts.
    """

    def __init__(self, refused: Collection[FieldReference]) -> None:
        self.references: list[FieldReference] = []
        self._refused = refused
        self._numbers: dict[tuple[bytes | tuple[bytes | int, ...] | None, int | None], list[int]] = {}
        self._equalities = {id(rules): equality for rules, equality in EQUALITIES.items()}

    def of(self, node: Normal) -> list[Access]:
        """The accesses of a filter by keys; one conjunct may be several."""
        found = []
        for place, part in enumerate(conjuncts(node)):
            if isinstance(part, Literal) and not part.negated and isinstance(part.predicate, t.Like | t.TextTest):
                found += [Access((key,), place, whole) for key, whole in self._text_keys(part.predicate)]
                continue
            keys = self._keys_of(part)
            if keys:
                # Behind a member of another kind, IN may have failed before it came to the one that is equal.
                whole = isinstance(part, Literal) and len({_FAMILIES.get(kind, kind) for _, kind, _ in keys}) == 1
                found.append(Access(tuple(dict.fromkeys(keys)), place, whole))
        return found

    def range_of(self, node: Normal) -> RangeAccess | None:
        """The access of a filter by bounds of a field, from below and from above; of several the first."""
        found: dict[int, _Range] = {}
        for place, part in enumerate(conjuncts(node)):
            if not isinstance(part, Literal) or part.negated or not isinstance(part.predicate, t.Compare):
                continue
            bound = _bound(part.predicate)
            equality = self._equalities.get(id(part.predicate.rules))
            if bound is None or equality is None or not equality.numbers_below:
                continue
            field, operator, value, exact = bound
            number = -1 if id(field.rules) not in self._equalities else self._number(field.reference)
            if number >= 0:
                bounded = found.setdefault(number, _Range())
                bounded.narrow(operator, value)
                if exact and abs(value) < equality.numbers_below:
                    bounded.whole.append(place)
        for number, bounded in found.items():
            (low, low_excluded), (high, high_included) = bounded.low, bounded.high
            if -math.inf < low <= high < math.inf:
                return RangeAccess(number, low, high, low_excluded, not high_included, frozenset(bounded.whole))
        return None

    def _text_keys(self, predicate: t.Like | t.TextTest) -> list[tuple[Key, bool]]:
        """Texts that the subject must hold, and whether the predicate asks for nothing else."""
        field = predicate.subject
        if predicate.negated or not isinstance(field, t.Field):
            return []
        rules = predicate.rules if isinstance(predicate, t.Like) else field.rules
        if id(rules) not in self._equalities or id(field.rules) not in self._equalities:
            return []
        number = self._number(field.reference)
        if number < 0:
            return []
        return [((number, kind, text), whole) for kind, text, whole in _texts(predicate) if len(text) <= LONGEST_KEY]

    def _keys_of(self, part: Normal) -> list[Key] | None:
        """Keys of which a message has one whenever the part is true for it; None if none are known."""
        if isinstance(part, Literal):
            return None if part.negated else self._keys_of_predicate(part.predicate)
        options = [self._keys_of(inner) for inner in part.parts]
        if isinstance(part, Junction) and part.all_of:
            return min((keys for keys in options if keys), key=len, default=None)
        every: list[Key] = []
        for keys in options:
            if keys is None:
                return None
            every += keys
        return every

    def _keys_of_predicate(self, predicate: t.Node) -> list[Key] | None:
        match predicate:
            case t.Like() | t.TextTest():
                # The longest names the fewest messages.
                keys = [key for key, _ in self._text_keys(predicate)]
                return [max(keys, key=lambda key: len(key[2]) if isinstance(key[2], bytes) else 0)] if keys else None
            case t.Compare(operator=t.CompareOperator.EQUAL, left=t.Field() as field, right=t.Constant() as constant):
                return self._keys(field, predicate.rules, (constant,))
            case t.Compare(operator=t.CompareOperator.EQUAL, left=t.Constant() as constant, right=t.Field() as field):
                return self._keys(field, predicate.rules, (constant,))
            case t.In(subject=t.Field() as field, members=members, negated=False):
                return self._keys(field, predicate.rules, members)
            case _:
                return None

    def _keys(self, field: t.Field, rules: t.Rules, members: Iterable[t.Node]) -> list[Key] | None:
        equality = self._equalities.get(id(rules))
        if equality is None or id(field.rules) not in self._equalities:
            return None
        number = self._number(field.reference)
        if number < 0:
            return None
        keys: list[Key] = []
        for member in members:
            found = key_of_value(member.value, equality) if isinstance(member, t.Constant) else None
            if found is None:
                return None
            keys.append((number, *found))
        return keys

    def _number(self, reference: FieldReference) -> int:
        """The number of a field, -1 for one that is not indexed."""
        alike = self._numbers.setdefault((reference.path or reference.key, reference.position), [])
        for number in alike:
            if self.references[number] == reference:
                return number
        is_inside = bool(reference.path) and reference.section is not Section.DATA
        if reference.default is not None or is_inside or reference in self._refused:
            return -1
        alike.append(len(self.references))
        self.references.append(reference)
        return alike[-1]


def _texts(predicate: t.Like | t.TextTest) -> list[tuple[int, bytes, bool]]:
    """Kind and content of the keys of a pattern, and whether the key says all."""
    if isinstance(predicate, t.TextTest):
        kind = _PLACES[predicate.kind]
        if not predicate.text or (kind == ANYWHERE and len(predicate.text) < SHORTEST_ANYWHERE):
            return []
        return [(kind, predicate.text, kind != ANYWHERE)]
    pattern = predicate.pattern
    match pattern.shape:
        case t.LikeShape.EXACT:
            return [(layout.BYTES, pattern.prefix, True)]
        case t.LikeShape.GENERAL:
            # A line feed behind the last text is tolerated in some languages: it need not be the end.
            texts = [(place, part) for place, part in enumerate(pattern.elements) if isinstance(part, bytes)]
            return [
                (ANYWHERE if place else BEGINNING, text, False)
                for place, text in texts
                if not place or len(text) >= SHORTEST_ANYWHERE
            ]
        case _:
            ends = [(BEGINNING, pattern.prefix), (END, pattern.suffix)]
            found = [(kind, text) for kind, text in ends if text]
            return [(kind, text, len(found) == 1) for kind, text in found]


_PLACES = {
    t.TextTestKind.STARTS_WITH: BEGINNING,
    t.TextTestKind.ENDS_WITH: END,
    t.TextTestKind.CONTAINS: ANYWHERE,
}


def _bound(node: t.Compare) -> tuple[t.Field, t.CompareOperator, float, bool] | None:
    """Field and operator of a comparison by order with a number, and the number (True) or the next double outside."""
    match node:
        case t.Compare(left=t.Field() as field, right=t.Constant(value=value), operator=operator):
            pass
        case t.Compare(left=t.Constant(value=value), right=t.Field() as field):
            operator = node.operator.mirrored
        case _:
            return None
    if operator.is_equality or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        nearest = float(value)
    except OverflowError:
        return None
    if operator in (t.CompareOperator.LESS, t.CompareOperator.LESS_OR_EQUAL):
        outside = math.nextafter(nearest, math.inf) if nearest < value else nearest
    else:
        outside = math.nextafter(nearest, -math.inf) if nearest > value else nearest
    return field, operator, outside, nearest == value


def key_of_value(value: Value, equality: EqualityRules) -> tuple[int, int | bytes] | None:
    """Kind and content of the key of a value; None for values that are not keys."""
    if isinstance(value, bytes):
        return (layout.BYTES, value) if len(value) <= LONGEST_KEY else None
    if isinstance(value, bool):
        return (layout.BOOLEAN, int(value)) if equality.booleans else None
    if not isinstance(value, int | float) or not -equality.numbers_below < value < equality.numbers_below:
        return None
    if isinstance(value, float) and math.floor(value) != value:
        return layout.FLOAT, int.from_bytes(struct.pack("<d", value), "little", signed=True)
    return layout.INTEGER, int(value)
