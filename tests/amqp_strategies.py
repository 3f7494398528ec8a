"""Hypothesis strategies of the dialect `amqp`: expressions that use its extensions, and messages that they reach into.

Beside `strategies.py`, whose pools of names and values they share. Messages hold nested maps, lists and arrays, keys of
annotations of every type, footers, dates and texts; generators are typed, so that most expressions have a value.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from hypothesis import strategies as st

from strategies import (
    TEXTS,
    binary,
    booleans,
    compound,
    constants,
    expressions,
    integer_encodings,
    integers,
    names,
    quoted,
    section,
    string,
    symbol,
    valueless,
    values,
)

T = TypeVar("T")

KEYS = ("s", "t", "n", "m", "x", "map", "list", "when", "temp", "", "two words")
DATES = (
    "1970-01-01",
    "1969-12-31T23:59:59.9999",
    "2024-02-29T12:00",
    "2023-02-29",
    "2026-01-01T00:00:00+05:30",
    "2026-01-01T00:00:00.123456789Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59-23:59",
    "2026-01-01T24:00",
    "2026-01-01T00:00:00.",
    "1900-02-29",
    "2000-02-29",
    "20260101",
)


def _short(strategy: st.SearchStrategy[T]) -> st.SearchStrategy[T]:
    """The same strategy under a short name: hypothesis warns of names that grow with every use in another."""

    @st.composite
    def part(draw: st.DrawFn) -> T:
        return draw(strategy)

    return part()


_texts = st.one_of(
    st.sampled_from((*TEXTS, *DATES)),
    st.text(alphabet="aZé日😎ßİ \n", max_size=9),
    st.sampled_from(("x" * 40, "Order.Created", "STRASSE")),
)
_long = st.just(33_000).map(lambda count: b"y" * count)
_octets = st.one_of(
    _texts.map(str.encode),
    _texts.map(str.encode),
    st.binary(max_size=9),
    _long,
)
text_values = st.builds(
    lambda constructor, octets, wide: constructor(octets, wide=wide),
    st.sampled_from((string, string, symbol, binary)),
    _octets,
    st.booleans(),
)
"""Encoded strings, symbols and binaries: texts, dates, and bytes that are no UTF-8."""

_small_integers = st.integers(-3, 12).flatmap(lambda value: st.sampled_from(integer_encodings(value)))
_special_floats = st.sampled_from(
    [b"\x82" + struct.pack(">d", value) for value in (float("inf"), float("-inf"), float("nan"), 0.5)]
    + [b"\x72" + struct.pack(">f", value) for value in (float("inf"), float("-inf"), float("nan"))]
)
_scalars = st.one_of(text_values, text_values, _small_integers, _special_floats, booleans, values)
_keys = st.one_of(
    st.sampled_from(KEYS).flatmap(lambda key: st.sampled_from((string(key.encode()), symbol(key.encode(), wide=True)))),
    st.integers(0, 3).flatmap(lambda number: st.sampled_from(integer_encodings(number))),
    st.sampled_from((b"\x40", b"\x41", binary(b"s"), b"\x00\x41\xa1\x01s")),
)


def _array(constructor: int, contents: list[bytes], *, wide: bool, descriptor: bytes) -> bytes:
    inside = descriptor + bytes([constructor]) + b"".join(contents)
    if wide or len(inside) > 254:
        return b"\xf0" + struct.pack(">II", len(inside) + 4, len(contents)) + inside
    return bytes([0xE0, len(inside) + 1, len(contents)]) + inside


_descriptors = st.sampled_from((b"", b"", b"", b"\x00" + symbol(b"d"), b"\x00\x00\x41\x41"))
_arrays = st.one_of(
    st.builds(
        lambda numbers, wide, descriptor: _array(
            0x71, [struct.pack(">i", number) for number in numbers], wide=wide, descriptor=descriptor
        ),
        st.lists(st.integers(-3, 12), max_size=4), st.booleans(), _descriptors,
    ),
    st.builds(
        lambda texts, wide, descriptor: _array(
            0xB1, [struct.pack(">I", len(text)) + text for text in texts], wide=wide, descriptor=descriptor
        ),
        st.lists(_octets, max_size=4), st.booleans(), _descriptors,
    ),
    st.builds(lambda count: _array(0x41, [b""] * count, wide=False, descriptor=b""), st.integers(0, 4)),
    st.builds(
        lambda ones: _array(0xC0, [bytes([len(one) + 1, 1]) + one for one in ones], wide=False, descriptor=b""),
        st.lists(_small_integers, max_size=3),
    ),
)  # fmt: skip


def _containers(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.one_of(
        st.builds(
            lambda elements, wide: compound(0xC0, elements, wide=wide), st.lists(inner, max_size=4), st.booleans()
        ),
        st.builds(
            lambda pairs, wide: compound(0xC1, [part for pair in pairs for part in pair], wide=wide),
            st.lists(st.tuples(_keys, inner), max_size=5),
            st.booleans(),
        ),
    )


containers = _short(st.recursive(st.one_of(_arrays, valueless, _scalars), _containers, max_leaves=10))
"""Encoded values nested in maps, lists and arrays."""

_any = _short(st.one_of(containers, containers, _scalars))


def _of_key(key: str) -> st.SearchStrategy[bytes]:
    """What a key of that name mostly holds, so that operators often find the kind they take."""
    usual: dict[str, st.SearchStrategy[bytes]] = {
        "n": _small_integers,
        "m": _small_integers,
        "temp": _special_floats,
        "when": st.sampled_from(DATES).map(lambda text: string(text.encode())),
        "map": containers.map(lambda value: compound(0xC1, [string(b"s"), value, symbol(b"n"), b"\x54\x05"])),
        "list": st.lists(containers, max_size=3).map(lambda elements: compound(0xC0, elements)),
    }
    return usual.get(key, _texts.map(lambda text: string(text.encode())))


@st.composite
def _entries(draw: st.DrawFn, code: int, *, symbols: bool) -> bytes:
    pairs: list[bytes] = []
    for key in draw(st.lists(st.sampled_from(KEYS), max_size=4)) + [key for key in KEYS if draw(st.integers(0, 9)) < 8]:
        constructor = draw(st.sampled_from((string, symbol))) if symbols else string
        odd = draw(st.integers(0, 12)) == 0
        pairs.append(draw(_keys) if odd else constructor(key.encode(), wide=draw(st.integers(0, 5)) == 0))
        pairs.append(draw(_any if draw(st.integers(0, 5)) == 0 else _of_key(key)))
    return section(code, compound(0xC1, pairs, wide=draw(st.booleans())), wide_descriptor=draw(st.integers(0, 5)) == 0)


_null = st.just(b"\x40")
_header = st.tuples(
    st.one_of(_null, booleans, values),
    st.one_of(_null, st.integers(0, 9).map(lambda priority: bytes([0x50, priority])), values),
    st.one_of(_null, st.sampled_from((b"\x43", b"\x52\x05", b"\x70\x00\x00\xea\x60")), values),
    st.one_of(_null, booleans),
    st.one_of(_null, st.sampled_from((b"\x43", b"\x52\x05", b"\x53\x05"))),
).flatmap(lambda fields: st.integers(0, 5).map(lambda count: section(0x70, compound(0xC0, list(fields[:count])))))
_properties = st.lists(st.one_of(_null, text_values, integers), max_size=13).map(
    lambda fields: section(0x73, compound(0xC0, fields))
)
_bodies = st.sampled_from(
    (
        section(0x75, binary(b"body")),
        section(0x75, binary(b"one")) + section(0x75, binary(b"two", wide=True), wide_descriptor=True),
        section(0x77, compound(0xC1, [string(b"k"), b"\x41"])),
        section(0x76, b"\x45"),
        b"",
        b"\x00\xa3\x10amqp:data:binary" + binary(b"symbolic"),
        section(0x77, b"\x00\x41\x41"),
        section(0x75, b"\xa0\xff"),
    )
)


@st.composite
def amqp_messages(draw: st.DrawFn) -> bytes:
    """A message with containers in its maps and, often, a footer; its body may be broken."""
    parts = [
        _header,
        _entries(0x71, symbols=True),
        _entries(0x72, symbols=True),
        _properties,
        _entries(0x74, symbols=False),
    ]
    likely = (50, 20, 40, 40, 95)
    chosen = [part for part, chance in zip(parts, likely, strict=True) if draw(st.integers(0, 99)) < chance]
    footer = draw(_entries(0x78, symbols=True)) if draw(st.booleans()) else b""
    return b"".join(draw(part) for part in chosen) + draw(_bodies) + footer


def _delimited(key: str) -> str:
    return f"[{key}]"


_plain_names = st.one_of(
    st.sampled_from(KEYS).map(lambda key: key if key.isalpha() else _delimited(key)),
    st.sampled_from(("h.durable", "h.ttl", "h.first_acquirer", "h.delivery_count", "header.priority")),
    st.sampled_from(("p.subject", "p.to", "p.message_id", "p.creation_time")),
    st.builds(
        lambda prefix, key: f"{prefix}.{key if key.isalpha() else _delimited(key)}",
        st.sampled_from(("m", "d", "f", "a", "message_annotations", "delivery_annotations", "footer")),
        st.sampled_from(KEYS),
    ),
    names,
)
_references = st.one_of(
    st.integers(0, 3).map(lambda number: f"[{number}]"),
    st.sampled_from(KEYS).map(lambda key: f"['{key}']"),
    st.sampled_from(KEYS).map(lambda key: f'["{key}"]'),
    st.just("[2147483647]"),
)
amqp_names = st.builds(
    lambda name, path: name + "".join(path),
    _plain_names,
    st.one_of(st.just([]), st.lists(_references, min_size=1, max_size=3)),
)
"""Fields of every section, with and without references."""


_numbers = st.one_of(
    st.integers(0, 9).map(str),
    st.integers(0, 4).map(str),
    st.sampled_from(("n", "m", "n - 2", "-m", "99999999999999999999", "temp", "x", "list[0]")),
    st.builds("({} - 3)".format, st.sampled_from(("n", "m"))),
)


def _functions(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    # A field stands in every call: what has no value for constants alone is refused.
    return st.one_of(
        st.builds("{}({})".format, st.sampled_from(("LOWER", "UPPER")), inner),
        st.builds("{}({}, {})".format, st.sampled_from(("LEFT", "RIGHT", "SUBSTRING")), inner, _numbers),
        st.builds("SUBSTRING({}, {}, {})".format, inner, _numbers, _numbers),
        st.builds("{} || {}".format, inner, st.one_of(inner, _texts.map(quoted))),
        st.builds("({} || {})".format, st.one_of(_texts.map(quoted), constants), inner),
    )


_usual_texts = st.sampled_from(("s", "t", "x", "when"))
_other_texts = st.sampled_from(("m.s", "f.t", "map['s']", "list[0]", "p.subject"))
_text_names = _short(st.one_of(_usual_texts, _usual_texts, _usual_texts, _other_texts, amqp_names))
_text_terms = _short(st.recursive(_text_names, _functions, max_leaves=3))
_dates = _short(st.one_of(st.just("DATE(when)"), st.builds("DATE({})".format, _text_terms)))
_operators = st.sampled_from(("=", "<>", "!=", "<", "<=", ">", ">="))
_specials = st.sampled_from(("INF", "-INF", "+INF", "NAN"))
_extended = _short(
    st.one_of(
        st.builds("{} {} {}".format, _text_terms, _operators, st.one_of(_texts.map(quoted), _text_terms)),
        st.builds("{} {} {}".format, amqp_names, _operators, st.one_of(constants, amqp_names)),
        st.builds("{} LIKE {}".format, _text_terms, st.sampled_from(("'a%'", "'%é_'", "'%'", "'_'", "'Order.%'"))),
        st.builds("{} IN ({}, {})".format, _text_terms, _texts.map(quoted), _text_terms),
        st.builds("temp {} {}".format, _operators, _specials),
        st.builds("{} {} {}".format, amqp_names, _operators, _specials),
        st.builds("{} {} {}".format, _specials, _operators, amqp_names),
        st.builds("EXISTS({})".format, amqp_names),
        st.builds("{} IS {}NULL".format, amqp_names, st.sampled_from(("", "NOT "))),
        st.builds("{} {} {}".format, _dates, _operators, st.sampled_from(("0", "1767225600000", "-1", "DATE(when)"))),
        st.builds("{} + {} {} 1".format, _dates, _numbers, _operators),
        amqp_names,
    )
)


def _logical(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{} AND {}".format, inner, inner),
        st.builds("{} OR {}".format, inner, inner),
        st.builds("NOT {}".format, inner),
        st.builds("({})".format, inner),
        st.builds("({}) = ({})".format, inner, inner),
    )


amqp_expressions = st.recursive(st.one_of(_extended, _extended, _extended, expressions), _logical, max_leaves=4)
"""Texts of the dialect `amqp`: all extensions, mixed with what `rabbitmq` accepts.

A few are refused: a function of constants alone that has no value.
"""
