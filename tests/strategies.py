"""Hypothesis strategies shared by the tests: encoded messages in every AMQP 1.0 encoding, and `rabbitmq` expressions.

Messages are put together from encoding bytes, not by the codec under test, so that every width, the zero forms, the
32-bit compounds and odd values (NaN, broken UTF-8, described values, equal keys) appear. Names and values come from
small pools that messages and expressions share: comparisons hit often.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from hypothesis import strategies as st

KEYS = (b"n", b"s", b"t", b"m", b"region", b"price", b"a_long_property_name", "schlüssel".encode(), b"", b"p.subject")
INTEGERS = (
    0,
    1,
    -1,
    4,
    5,
    7,
    9,
    -5,
    127,
    128,
    -128,
    255,
    256,
    32767,
    65535,
    -32768,
    2**31 - 1,
    2**31,
    -(2**31),
    2**32 - 1,
)
WIDE_INTEGERS = (2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63), 2**63, 2**63 + 1, 2**64 - 1)
FLOATS = (
    0.0,
    -0.0,
    0.1,
    0.5,
    1.0,
    -1.0,
    5.0,
    99.99,
    1e-300,
    1.5e300,
    1.7976931348623157e308,
    2.0**53,
    2.0**63,
    -(2.0**63),
    2.0**64,
)
TEXTS = (
    "",
    "a",
    "b",
    "ab",
    "abc",
    "ABC",
    "aXc",
    "a_c",
    "a%c",
    "AMER",
    "EMEA",
    "order.created",
    "ab\nc",
    "abc\n",
    "\n",
    "é",
    "日本語",
    "a😎c",
)
ODD_BYTES = (b"\xff\xfe", b"a\xffc", b"\xc3", b"\xed\xa0\x80", b"abc\x00", b"\x00" * 16, bytes(range(16)))


def _sized(constructor8: int, content: bytes, wide: bool) -> bytes:
    if wide or len(content) > 255:
        return bytes([constructor8 + 0x10]) + struct.pack(">I", len(content)) + content
    return bytes([constructor8, len(content)]) + content


def string(content: bytes, *, wide: bool = False) -> bytes:
    """A string of these bytes, str8 or str32."""
    return _sized(0xA1, content, wide)


def symbol(content: bytes, *, wide: bool = False) -> bytes:
    """A symbol of these bytes, sym8 or sym32."""
    return _sized(0xA3, content, wide)


def binary(content: bytes, *, wide: bool = False) -> bytes:
    """A binary of these bytes, vbin8 or vbin32."""
    return _sized(0xA0, content, wide)


def compound(constructor8: int, elements: list[bytes], *, wide: bool = False) -> bytes:
    """A list (0xc0) or map (0xc1) of encoded elements, in its 8-bit or 32-bit form."""
    content = b"".join(elements)
    if wide or len(content) > 254 or len(elements) > 255:
        return bytes([constructor8 + 0x10]) + struct.pack(">II", len(content) + 4, len(elements)) + content
    return bytes([constructor8, len(content) + 1, len(elements)]) + content


def section(code: int, value: bytes, *, wide_descriptor: bool = False) -> bytes:
    """A section with a smallulong or ulong descriptor."""
    return (b"\x00\x80" + struct.pack(">Q", code) if wide_descriptor else b"\x00\x53" + bytes([code])) + value


def integer_encodings(value: int) -> list[bytes]:
    """Every encoding of every integer type that holds the value, char and timestamp included."""
    forms: list[tuple[int, str, int, int]] = [
        (0x50, ">B", 0, 2**8), (0x51, ">b", -(2**7), 2**7), (0x52, ">B", 0, 2**8), (0x53, ">B", 0, 2**8),
        (0x54, ">b", -(2**7), 2**7), (0x55, ">b", -(2**7), 2**7), (0x60, ">H", 0, 2**16), (0x61, ">h", -(2**15), 2**15),
        (0x70, ">I", 0, 2**32), (0x71, ">i", -(2**31), 2**31), (0x73, ">I", 0, 2**32), (0x80, ">Q", 0, 2**64),
        (0x81, ">q", -(2**63), 2**63), (0x83, ">q", -(2**63), 2**63),
    ]  # fmt: skip
    encodings = [bytes([code]) + struct.pack(form, value) for code, form, low, high in forms if low <= value < high]
    return [*encodings, b"\x43", b"\x44"] if value == 0 else encodings


def float_encodings(value: float) -> list[bytes]:
    """The double, and the float nearest to it."""
    double = b"\x82" + struct.pack(">d", value)
    try:
        return [double, b"\x72" + struct.pack(">f", value)]
    except OverflowError:
        return [double]


_integers = st.one_of(st.sampled_from(INTEGERS), st.sampled_from(WIDE_INTEGERS), st.integers(-(2**63), 2**64 - 1))
_floats = st.one_of(
    st.sampled_from(FLOATS), st.floats(width=64), st.sampled_from((float("nan"), float("inf"), float("-inf")))
)
_contents = st.one_of(
    st.sampled_from(TEXTS).map(str.encode),
    st.sampled_from(ODD_BYTES),
    st.text(max_size=12).map(str.encode),
    st.binary(max_size=20),
    st.sampled_from((b"x" * 255, b"x" * 256, b"a" * 300)),
)
_string_constructors: tuple[Callable[..., bytes], ...] = (string, symbol, binary)

integers = _integers.flatmap(lambda value: st.sampled_from(integer_encodings(value)))
"""Encoded integers of every type and width."""

floats = _floats.flatmap(lambda value: st.sampled_from(float_encodings(value)))
"""Encoded floats and doubles, NaN and infinities included."""

strings = st.builds(
    lambda constructor, content, wide: constructor(content, wide=wide),
    st.sampled_from(_string_constructors), _contents, st.booleans(),
)  # fmt: skip
"""Encoded strings, symbols and binaries, with and without valid UTF-8."""

booleans = st.sampled_from((b"\x41", b"\x42", b"\x56\x00", b"\x56\x01"))
"""Every encoding of true and false."""

valueless = st.one_of(
    st.just(b"\x40"),
    st.binary(min_size=4, max_size=4).map(lambda raw: b"\x74" + raw),
    st.binary(min_size=8, max_size=8).map(lambda raw: b"\x84" + raw),
    st.binary(min_size=16, max_size=16).map(lambda raw: b"\x94" + raw),
    st.sampled_from(
        (
            b"\x45",
            compound(0xC0, [b"\x41", string(b"abc")]),
            compound(0xC0, [b"\x54\x05"], wide=True),
            compound(0xC1, [string(b"n"), b"\x54\x05"]),
            compound(0xC1, [], wide=True),
            b"\xe0\x04\x02\x54\x05\x06",
            b"\xf0" + struct.pack(">II", 7, 2) + b"\x54\x05\x06",
            b"\x00\xa3\x03abc\x54\x05",
            b"\x00\x53\x10\x00\x53\x11\xa1\x03abc",
        )
    ),
)
"""Encoded values that no filter can use: null, decimals, compounds, described values."""

uuids = st.one_of(st.just(bytes(range(16))), st.binary(min_size=16, max_size=16)).map(lambda raw: b"\x98" + raw)
"""Encoded uuids."""

values = st.one_of(
    integers, floats, strings, booleans, uuids, valueless, st.sampled_from(TEXTS).map(lambda t: string(t.encode()))
)
"""Any encoded value."""

_timestamps = st.sampled_from((0, 5, 1_767_225_600_000, 1_767_225_600_001, -1)).map(
    lambda ms: b"\x83" + struct.pack(">q", ms)
)
_null = st.just(b"\x40")
_identifiers = st.one_of(_null, integers, strings, uuids)
_texts = st.one_of(_null, st.sampled_from(TEXTS).map(lambda t: string(t.encode())), strings)
_properties_fields = (
    _identifiers, st.one_of(_null, strings), _texts, _texts, _texts, _identifiers, _texts, _texts,
    st.one_of(_null, _timestamps), st.one_of(_null, _timestamps), _texts, st.one_of(_null, integers), _texts,
)  # fmt: skip
_header_fields = (
    st.one_of(_null, booleans), st.one_of(_null, st.integers(0, 9).map(lambda p: bytes([0x50, p])), values),
    st.one_of(_null, integers), st.one_of(_null, booleans), st.one_of(_null, integers),
)  # fmt: skip


@st.composite
def _list_sections(draw: st.DrawFn, code: int, fields: tuple[st.SearchStrategy[bytes], ...]) -> bytes:
    count = draw(st.integers(0, len(fields)))
    elements = [draw(st.one_of(field, values) if draw(st.integers(0, 9)) == 0 else field) for field in fields[:count]]
    if not elements and draw(st.booleans()):
        return section(code, b"\x45", wide_descriptor=draw(st.booleans()))
    wide = draw(st.integers(0, 3)) == 0
    return section(code, compound(0xC0, elements, wide=wide), wide_descriptor=draw(st.integers(0, 5)) == 0)


@st.composite
def _map_sections(draw: st.DrawFn, code: int, key_constructor: Callable[..., bytes]) -> bytes:
    elements: list[bytes] = []
    for _ in range(draw(st.integers(0, 8))):
        key = draw(st.one_of(st.sampled_from(KEYS), st.text(max_size=6).map(str.encode)))
        odd_key = draw(st.integers(0, 30)) == 0
        elements.append(draw(values) if odd_key else key_constructor(key, wide=draw(st.integers(0, 5)) == 0))
        elements.append(draw(values))
    wide = draw(st.integers(0, 3)) == 0
    return section(code, compound(0xC1, elements, wide=wide), wide_descriptor=draw(st.integers(0, 5)) == 0)


_bodies = st.sampled_from((section(0x75, binary(b"body")), section(0x77, string(b"abc")), section(0x76, b"\x45"), b""))


@st.composite
def encoded_messages(draw: st.DrawFn) -> bytes:
    """A well-formed message: any subset of the sections in order, each in any encoding."""
    parts = [
        _list_sections(0x70, _header_fields),
        _map_sections(0x71, symbol),
        _map_sections(0x72, symbol),
        _list_sections(0x73, _properties_fields),
        _map_sections(0x74, string),
    ]
    likely = (0.4, 0.1, 0.2, 0.6, 0.9)
    chosen = [part for part, chance in zip(parts, likely, strict=True) if draw(st.integers(0, 99)) < 100 * chance]
    return b"".join(draw(part) for part in chosen) + draw(_bodies)


@st.composite
def damaged_messages(draw: st.DrawFn) -> bytes:
    """A well-formed message, then cut, with bytes changed, or with bytes behind it; often no message any more."""
    message = bytearray(draw(encoded_messages()))
    if draw(st.booleans()):
        del message[draw(st.integers(0, len(message))) :]
    for _ in range(draw(st.integers(0, 3))):
        if message:
            message[draw(st.integers(0, len(message) - 1))] = draw(st.integers(0, 255))
    return bytes(message) + draw(st.one_of(st.just(b""), st.binary(max_size=8)))


def _short(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """The same strategy under a short name: hypothesis warns of names that grow with every use in another."""

    @st.composite
    def part(draw: st.DrawFn) -> str:
        return draw(strategy)

    return part()


def quoted(text: str) -> str:
    """A string constant of the dialect `rabbitmq`."""
    return "'" + text.replace("'", "''") + "'"


def _delimited(key: bytes) -> str:
    return "[" + key.decode().replace("[", "[[").replace("]", "]]") + "]"


_SECTION_FIELDS = (
    "h.priority", "header.priority", "p.message_id", "p.user_id", "p.to", "p.subject", "p.reply_to", "p.correlation_id",
    "p.content_type", "p.content_encoding", "p.absolute_expiry_time", "p.creation_time", "p.group_id",
    "properties.group_sequence", "p.reply_to_group_id",
)  # fmt: skip

names = st.one_of(
    st.sampled_from(
        (
            "n",
            "s",
            "t",
            "m",
            "region",
            "price",
            "a.n",
            "application_properties.region",
            "a_long_property_name",
            "absent",
        )
    ),
    st.sampled_from(KEYS).map(_delimited),
    st.sampled_from(_SECTION_FIELDS),
)
"""Fields as an expression of the dialect `rabbitmq` names them."""

_float_texts = st.sampled_from(
    (
        "0.0",
        "0.1",
        "0.5",
        "1.0",
        "5.0",
        "99.99",
        "1.7976931348623157E308",
        "1.0E-300",
        "9007199254740992.0",
        "9223372036854775808.0",
    )
)
_integer_texts = st.one_of(
    st.sampled_from(INTEGERS + WIDE_INTEGERS).map(lambda value: str(abs(value))),
    st.integers(0, 2**64).map(str),
    st.sampled_from(("00005", "18446744073709551616", "1" + "0" * 330)),
)
_hex_texts = st.sampled_from(ODD_BYTES).map(lambda raw: "0x" + raw.hex().upper())
constants = st.one_of(
    _integer_texts, _float_texts, st.sampled_from(TEXTS).map(quoted), _hex_texts, st.sampled_from(("TRUE", "FALSE")),
    st.text(alphabet=st.characters(codec="utf-8"), max_size=5).map(quoted),
)  # fmt: skip
"""Constants of the dialect `rabbitmq`."""

_patterns = st.one_of(
    st.sampled_from(
        (
            "%",
            "",
            "a%",
            "%c",
            "a%c",
            "abc",
            "_",
            "a_c",
            "%b%",
            "a%c%",
            "__",
            "%_",
            "_%",
            "order.%",
            "%日%",
            "%%",
            "a_%",
            "%a%b%c%",
        )
    ),
    st.text(alphabet="ab%_é", max_size=8),
)
_likes = st.one_of(
    st.builds(
        lambda negated, pattern: f"{negated}LIKE {quoted(pattern)}", st.sampled_from(("", "", "NOT ")), _patterns
    ),
    st.sampled_from(
        ("LIKE 'a!_c' ESCAPE '!'", "LIKE '!%%' ESCAPE '!'", "NOT LIKE 'a\\%c' ESCAPE '\\'", "LIKE '%!_%' ESCAPE '!'")
    ),
)


def _sums(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{} {} {}".format, inner, st.sampled_from("+-*/%"), inner),
        st.builds("{} {} ({} {} {})".format, inner, st.sampled_from("+-*/%"), inner, st.sampled_from("+-*/%"), inner),
        st.builds("{}({})".format, st.sampled_from("+-"), inner),
    )


_atoms = _short(st.one_of(names, names, constants, st.just("UTC()")))
_operands = _short(st.one_of(_atoms, _atoms, _atoms, _sums(_atoms)))
_predicates = _short(
    st.one_of(
        st.builds("{} {} {}".format, _operands, st.sampled_from(("=", "<>", "!=", "<", "<=", ">", ">=")), _operands),
        st.builds("{} {} {}".format, names, st.sampled_from(("=", "<>", "<", ">=")), constants),
        st.builds("{} {}".format, _operands, _likes),
        st.builds(
            "{} {}IN ({})".format,
            _operands,
            st.sampled_from(("", "NOT ")),
            st.lists(_operands, min_size=1, max_size=4).map(", ".join),
        ),
        st.builds(
            "{} {}IN ({})".format,
            names,
            st.sampled_from(("", "NOT ")),
            st.lists(constants, min_size=1, max_size=5).map(", ".join),
        ),
        st.builds("{} IS {}NULL".format, names, st.sampled_from(("", "NOT "))),
        _operands,
    )
)


def _logical(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{} AND {}".format, inner, inner),
        st.builds("{} OR {}".format, inner, inner),
        st.builds("NOT {}".format, inner),
        st.builds("({})".format, inner),
        st.builds("({}) = ({})".format, inner, inner),
        st.builds("({}) IN (TRUE, ({}))".format, inner, inner),
        st.builds("-({}) < 5".format, inner),
    )


expressions = st.recursive(_predicates, _logical, max_leaves=6)
"""Texts that the dialect `rabbitmq` accepts; they reach every operator, and mix kinds freely."""
