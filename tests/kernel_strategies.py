"""Hypothesis strategies for the kernel in languages with types: messages whose values meet what filters say of them.

Messages are put together from encoding bytes, as in `strategies`; keys appear in several letter cases, twice, and in
the sections that system properties are read from.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from hypothesis import strategies as st

from rocketmq_strategies import NAMES as ROCKETMQ_NAMES
from rocketmq_strategies import texts as rocketmq_texts
from strategies import (
    booleans,
    compound,
    encoded_messages,
    float_encodings,
    integer_encodings,
    quoted,
    section,
    string,
    symbol,
    uuids,
    valueless,
    values,
)

INTEGERS = (0, 1, -1, 5, 7, 10, 9000, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1)
DOUBLES = (0.0, -0.0, 0.1, 0.5, 5.0, 10.0, 19.99, -2.5, 2.0**53, 2.0**63, 1e300, float("inf"), float("nan"))
TEXTS = (
    "",
    "5",
    "10",
    "19.99",
    "red",
    "Red",
    "reed",
    "true",
    "TRUE",
    "a_c",
    "a%c",
    "abc",
    "ab\nc",
    "é",
    "日本",
    "a😎",
    "\ue000",
)
TIMES_MS = (0, 1, -1, 1_700_000_000_000, 1_700_000_060_000, 253_402_300_799_999, -62_135_596_800_000, 2**62)
TICKS = (0, 1, 600_000_000, -600_000_000, 10_000, 2**62)


def _times(ms: int) -> bytes:
    return b"\x83" + struct.pack(">q", ms)


def time_span(ticks: int) -> bytes:
    """A described time span."""
    return b"\x00" + symbol(b"com.microsoft:timespan") + b"\x81" + struct.pack(">q", ticks)


_described = st.one_of(
    st.sampled_from(TICKS).map(time_span),
    st.just(b"\x00" + symbol(b"com.microsoft:uri") + string(b"red")),
    st.just(b"\x00" + symbol(b"com.microsoft:datetime-offset") + b"\x81" + struct.pack(">q", 638_000_000_000_000_000)),
)
typed_values = st.one_of(
    st.sampled_from(INTEGERS).flatmap(lambda value: st.sampled_from(integer_encodings(value))),
    st.sampled_from(DOUBLES).flatmap(lambda value: st.sampled_from(float_encodings(value))),
    st.sampled_from(TEXTS).map(lambda text: string(text.encode())),
    st.sampled_from(TEXTS).map(lambda text: symbol(text.encode())),
    st.sampled_from(TIMES_MS).map(_times),
    rocketmq_texts.map(lambda text: string(text.encode())),
    booleans, uuids, _described, valueless, values,
)  # fmt: skip
"""Encoded values of every type, most of them from small pools."""


@st.composite
def _maps(draw: st.DrawFn, code: int, keys: Sequence[str]) -> bytes:
    elements: list[bytes] = []
    for _ in range(draw(st.integers(0, 7))):
        key = draw(st.sampled_from(keys)).encode()
        odd = draw(st.integers(0, 20)) == 0
        elements.append(symbol(key) if odd != (code == 0x72) else string(key, wide=draw(st.integers(0, 9)) == 0))
        elements.append(draw(typed_values))
    return section(code, compound(0xC1, elements, wide=draw(st.integers(0, 4)) == 0))


@st.composite
def _properties(draw: st.DrawFn) -> bytes:
    fields = [draw(st.one_of(st.just(b"\x40"), typed_values)) for _ in range(draw(st.integers(0, 13)))]
    return section(0x73, compound(0xC0, fields))


_headers = typed_values.map(lambda ttl: section(0x70, compound(0xC0, [b"\x41", b"\x50\x04", ttl])))


@st.composite
def _messages(draw: st.DrawFn, annotations: Sequence[str], keys: Sequence[str]) -> bytes:
    parts = [draw(part) if draw(st.booleans()) else b"" for part in (_headers, _maps(0x72, annotations), _properties())]
    if draw(st.integers(0, 9)) > 0:
        parts.append(draw(_maps(0x74, keys)))
    whole = b"".join(parts) + b"\x00\x53\x75\xa0\x00"
    return whole if draw(st.integers(0, 9)) > 0 else whole[: draw(st.integers(0, len(whole)))]


_ROCKETMQ_ANNOTATIONS = tuple(f"x-opt-rocketmq-{name}" for name in ("tag", "keys", "WAIT", "PGROUP"))
rocketmq_messages = st.one_of(
    _messages(_ROCKETMQ_ANNOTATIONS, ROCKETMQ_NAMES),
    _messages(_ROCKETMQ_ANNOTATIONS, ROCKETMQ_NAMES),
    encoded_messages(),
)
"""Messages that the expressions of `rocketmq_strategies` speak of."""

KEYS = ("a", "A", "b", "price", "Price", "PRICE", "color", "a_long_property_name", "A_Long_Property_Name", "é", "É")
_SERVICE_BUS_ANNOTATIONS = (
    "x-opt-partition-key", "x-opt-scheduled-enqueue-time", "x-opt-enqueue-sequence-number", "x-opt-message-state",
)  # fmt: skip
servicebus_messages = st.one_of(
    _messages(_SERVICE_BUS_ANNOTATIONS, KEYS), _messages(_SERVICE_BUS_ANNOTATIONS, KEYS), encoded_messages()
)
"""Messages that `servicebus_expressions` speak of."""

_names = st.sampled_from(
    (*(key for key in KEYS if key.isascii()), "a", "b", "price", "[é]", "missing", "property('COLOR')",
     "sys.MessageId", "sys.CorrelationId", "sys.Label", "sys.ContentType", "sys.PartitionKey", "sys.TimeToLive",
     "sys.ScheduledEnqueueTimeUtc", "sys.ExpiresAtUtc", "sys.EnqueuedSequenceNumber", "sys.State", "sys.DeliveryCount")
)  # fmt: skip
_constants = st.one_of(
    st.sampled_from(INTEGERS[:13]).filter(lambda value: 0 <= value < 2**63).map(str),
    st.sampled_from(("0.1", "0.5", "5.0", "10.0", "19.99", "1E300", "0.0")),
    st.sampled_from(TEXTS).map(quoted),
    st.sampled_from(("TRUE", "FALSE", "NULL", "@time", "@span", "@guid")),
)
PARAMETERS = ("time", "span", "guid")
"""Names of the parameters that expressions use."""

_patterns = st.one_of(
    st.sampled_from(("%", "", "a%", "%c", "a%c", "abc", "_", "a_c", "%b%", "__", "%_", "r%d", "_%", "%é%")),
    st.text(alphabet="ab%_é\n", max_size=6),
).map(quoted)


def _sums(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*/%"), inner),
        st.builds("{}({})".format, st.sampled_from("+-"), inner),
    )


_values = st.recursive(st.one_of(_names, _names, _constants), _sums, max_leaves=3)
_predicates = st.one_of(
    st.builds("{} {} {}".format, _values, st.sampled_from(("=", "<>", "!=", "<", "<=", ">", ">=")), _values),
    st.builds("{} {} {}".format, _names, st.sampled_from(("=", "<>", "<", ">=")), _constants),
    st.builds("{} {}LIKE {}".format, _values, st.sampled_from(("", "NOT ")), _patterns),
    st.builds(
        "{} {}IN ({})".format,
        _values,
        st.sampled_from(("", "NOT ")),
        st.lists(st.one_of(_constants, _constants, _names), min_size=1, max_size=4).map(", ".join),
    ),
    st.builds("{} IS {}NULL".format, _names.filter(lambda name: "(" not in name), st.sampled_from(("", "NOT "))),
    st.builds("EXISTS({})".format, _names.filter(lambda name: "(" not in name)),
)


def _logical(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{} AND {}".format, inner, inner),
        st.builds("{} OR {}".format, inner, inner),
        st.builds("NOT {}".format, inner),
        st.builds("({})".format, inner),
    )


servicebus_expressions = st.recursive(_predicates, _logical, max_leaves=6)
"""Texts most of which the dialect `servicebus` accepts."""

_targets = st.one_of(
    st.sampled_from([key for key in KEYS if key.isascii()]),
    st.sampled_from(("a", "b", "Price", "new", "new", "[é]", "RuleName")),
    st.sampled_from(
        ("sys.MessageId", "sys.Label", "sys.To", "sys.SessionId", "sys.ContentType", "sys.PartitionKey",
         "sys.TimeToLive", "sys.ScheduledEnqueueTimeUtc", "sys.ForcePersistence", "sys.ReplyToSessionId")
    ),
)  # fmt: skip
_assigned = st.one_of(_values, _names, _constants, st.sampled_from(("newid()", "'id ' + newid()", "a + 1", "b + ''")))
_statements = st.one_of(
    st.builds("SET {} = {}".format, _targets, _assigned),
    st.builds("SET {} = {}".format, _targets, _assigned),
    st.builds("REMOVE {}".format, _targets),
)
servicebus_actions = st.lists(_statements, min_size=1, max_size=4).map("; ".join)
"""Texts of actions, most of which are accepted."""
