"""Hypothesis strategies for typed AMQP values and whole messages made of them."""

from __future__ import annotations

import uuid

from hypothesis import strategies as st

from headgate.message import AmqpArray, AmqpType, AmqpValue, Body, Described, Section
from headgate.message.types import DECIMAL_SIZES, INTEGER_RANGES

_BOUNDARIES = (0, 1, -1, 127, 128, 255, 256, -128, -129, 2**31, 2**63 - 1, 2**64 - 1)


def _integers(kind: AmqpType) -> st.SearchStrategy[int]:
    low, high = INTEGER_RANGES[kind]
    known = [value for value in _BOUNDARIES if low <= value <= high]
    return st.one_of(st.sampled_from(known), st.integers(low, high))


def _octets() -> st.SearchStrategy[bytes]:
    return st.one_of(st.binary(max_size=12), st.integers(250, 260).map(bytes))


_texts = _octets().map(lambda octets: octets.decode("utf-8", "surrogateescape")) | st.text(
    st.characters(codec="utf-8"), max_size=12
)

_HELD: dict[AmqpType, st.SearchStrategy[object]] = {
    AmqpType.NULL: st.none(),
    AmqpType.BOOLEAN: st.booleans(),
    **{kind: _integers(kind) for kind in INTEGER_RANGES},
    AmqpType.FLOAT: st.floats(width=32),
    AmqpType.DOUBLE: st.floats(),
    **{kind: st.binary(min_size=size, max_size=size) for kind, size in DECIMAL_SIZES.items()},
    AmqpType.UUID: st.binary(min_size=16, max_size=16).map(lambda octets: uuid.UUID(bytes=octets)),
    AmqpType.BINARY: _octets(),
    AmqpType.STRING: _texts,
    AmqpType.SYMBOL: _texts,
}


def _of(kind: AmqpType) -> st.SearchStrategy[AmqpValue]:
    return _HELD[kind].map(lambda held: AmqpValue(kind, held))


scalars = st.sampled_from(sorted(_HELD, key=lambda kind: kind.value)).flatmap(_of)
"""Values of every type that is no compound."""


def _lists(members: st.SearchStrategy[AmqpValue]) -> st.SearchStrategy[AmqpValue]:
    return st.lists(members, max_size=4).map(lambda values: AmqpValue(AmqpType.LIST, tuple(values)))


def _maps(members: st.SearchStrategy[AmqpValue]) -> st.SearchStrategy[AmqpValue]:
    pairs = st.lists(st.tuples(members, members), max_size=3)
    return pairs.map(lambda held: AmqpValue(AmqpType.MAP, tuple(held)))


def _arrays(members: st.SearchStrategy[AmqpValue]) -> st.SearchStrategy[AmqpValue]:
    def of_kind(kind: AmqpType, elements: st.SearchStrategy[AmqpValue]) -> st.SearchStrategy[AmqpValue]:
        return st.builds(
            lambda held, descriptor: AmqpValue(AmqpType.ARRAY, AmqpArray(kind, tuple(held), descriptor)),
            st.lists(elements, max_size=4),
            st.none() | scalars,
        )

    of_scalars = st.sampled_from(sorted(_HELD, key=lambda kind: kind.value)).flatmap(
        lambda kind: of_kind(kind, _of(kind))
    )
    of_lists = of_kind(AmqpType.LIST, _lists(members))
    of_arrays = of_kind(AmqpType.ARRAY, of_scalars)
    return st.one_of(of_scalars, of_lists, of_kind(AmqpType.MAP, _maps(members)), of_arrays)


def _described(members: st.SearchStrategy[AmqpValue]) -> st.SearchStrategy[AmqpValue]:
    return st.builds(Described, members, members).map(lambda held: AmqpValue(AmqpType.DESCRIBED, held))


typed_values = st.recursive(
    scalars,
    lambda members: st.one_of(_lists(members), _maps(members), _arrays(members), _described(members)),
    max_leaves=8,
)
"""Values of every type, compounds inside each other."""

_named_maps = st.lists(st.tuples(scalars, typed_values), max_size=4).map(
    lambda pairs: AmqpValue(AmqpType.MAP, tuple(pairs))
)
_sections = st.fixed_dictionaries(
    {},
    optional={
        Section.HEADER: st.lists(typed_values, max_size=5),
        Section.DELIVERY_ANNOTATIONS: _named_maps,
        Section.MESSAGE_ANNOTATIONS: _named_maps,
        Section.PROPERTIES: st.lists(typed_values, max_size=13),
        Section.APPLICATION_PROPERTIES: _named_maps,
        Section.FOOTER: _named_maps,
    },
)


def _without_trailing_nulls(value: AmqpValue | list[AmqpValue]) -> AmqpValue:
    if isinstance(value, AmqpValue):
        return value
    while value and value[-1].type is AmqpType.NULL:
        value = value[:-1]
    return AmqpValue(AmqpType.LIST, tuple(value))


sections = _sections.map(lambda held: {section: _without_trailing_nulls(value) for section, value in held.items()})
"""Any subset of the list and map sections, of any values; lists without nulls at the end."""

bodies = st.one_of(
    st.none(),
    st.lists(st.binary(max_size=300), min_size=1, max_size=3).map(lambda parts: Body.data(*parts)),
    st.lists(_lists(typed_values), min_size=1, max_size=3).map(lambda parts: Body.sequence(*parts)),
    typed_values.map(Body.value),
)
"""Bodies of every kind, or none."""
