"""Hypothesis strategies for field tables, properties and methods of AMQP 0.9.1."""

from __future__ import annotations

from typing import get_args, get_type_hints

from hypothesis import strategies as st

from headgate.protocols.amqp091.fields import Field, FieldType
from headgate.protocols.amqp091.methods import METHODS, Domain, Method
from headgate.protocols.amqp091.properties import BasicProperties

_RANGES = {
    FieldType.BYTE: (-(2**7), 2**7 - 1),
    FieldType.UNSIGNED_BYTE: (0, 2**8 - 1),
    FieldType.SHORT: (-(2**15), 2**15 - 1),
    FieldType.UNSIGNED_SHORT: (0, 2**16 - 1),
    FieldType.INT: (-(2**31), 2**31 - 1),
    FieldType.UNSIGNED_INT: (0, 2**32 - 1),
    FieldType.LONG: (-(2**63), 2**63 - 1),
    FieldType.TIMESTAMP: (-(2**63) // 1000 + 1, 2**63 // 1000 - 1),
}
_BOUNDARIES = (0, 1, -1, 127, 128, -128, 255, 256, 2**31 - 1, 2**62)


def _integers(kind: FieldType) -> st.SearchStrategy[int]:
    low, high = _RANGES[kind]
    return st.sampled_from([value for value in _BOUNDARIES if low <= value <= high]) | st.integers(low, high)


octets = st.one_of(
    st.binary(max_size=12),
    st.text(max_size=12).map(str.encode),
    st.sampled_from((255, 256, 4096, 4097)).map(lambda size: b"x" * size),
)

# Not-a-number is left out: tables with it do not equal themselves.
_HELD = {
    FieldType.BOOLEAN: st.booleans(),
    **{kind: _integers(kind) for kind in _RANGES},
    FieldType.FLOAT: st.floats(width=32, allow_nan=False),
    FieldType.DOUBLE: st.floats(allow_nan=False),
    FieldType.LONG_STRING: octets,
    FieldType.BINARY: octets,
    FieldType.VOID: st.none(),
}

names = st.sampled_from(
    ("a", "x-a", "x-b", "CC", "BCC", "", "é", "region", "x-stream-offset", "x-basic-type")
) | st.binary(max_size=255).map(lambda name: name.decode("utf-8", "surrogateescape"))

storable_scalars = st.sampled_from(sorted(_HELD)).flatmap(lambda kind: _HELD[kind].map(lambda held: Field(kind, held)))
"""Values of every type that a stream can keep, no compounds."""

scalars = storable_scalars | st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1)).map(
    lambda held: Field(FieldType.DECIMAL, held)
)


def _compounds(members: st.SearchStrategy[Field]) -> st.SearchStrategy[Field]:
    return st.one_of(
        st.lists(members, max_size=4).map(lambda held: Field(FieldType.ARRAY, tuple(held))),
        st.dictionaries(names, members, max_size=3).map(lambda held: Field(FieldType.TABLE, held)),
    )


fields = st.recursive(scalars, _compounds, max_leaves=8)
storable_fields = st.recursive(storable_scalars, _compounds, max_leaves=8)
tables = st.dictionaries(names, fields, max_size=5)
storable_tables = st.dictionaries(names.filter(lambda name: name not in ("CC", "BCC")), storable_fields, max_size=5)

short_strings = st.binary(max_size=255).map(lambda octets: octets.decode("utf-8", "surrogateescape")) | st.text(
    max_size=20
)


def properties_with(headers: st.SearchStrategy[dict[str, Field]]) -> st.SearchStrategy[BasicProperties]:
    """Properties with any of the fields."""
    optional_text = st.none() | short_strings
    return st.builds(
        BasicProperties,
        content_type=optional_text,
        content_encoding=optional_text,
        headers=st.none() | headers,
        delivery_mode=st.none() | st.integers(0, 255),
        priority=st.none() | st.integers(0, 255),
        correlation_id=optional_text,
        reply_to=optional_text,
        expiration=st.none() | st.integers(0, 2**32 - 1).map(str),
        message_id=optional_text,
        timestamp=st.none() | st.integers(-(2**63) // 1000 + 1, 2**63 // 1000 - 1),
        type=optional_text,
        user_id=optional_text,
        app_id=optional_text,
    )


_FORMS = {
    Domain.BIT: st.booleans(),
    Domain.OCTET: st.integers(0, 2**8 - 1),
    Domain.SHORT: st.integers(0, 2**16 - 1),
    Domain.LONG: st.integers(0, 2**32 - 1),
    Domain.LONG_LONG: st.integers(0, 2**64 - 1),
    Domain.SHORT_STRING: short_strings,
    Domain.LONG_STRING: st.binary(max_size=300),
    Domain.TABLE: tables,
}


def _method(kind: type[Method]) -> st.SearchStrategy[Method]:
    hints = get_type_hints(kind, include_extras=True)
    return st.builds(kind, **{name: _FORMS[get_args(hints[name])[1]] for name in kind.__struct_fields__})


methods = st.sampled_from(sorted(METHODS)).flatmap(lambda code: _method(METHODS[code]))
"""Every method with any values."""
