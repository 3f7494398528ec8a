"""Strategies for Service Bus: filter texts, values of properties, and messages that the filters often meet."""

from __future__ import annotations

import uuid

from hypothesis import strategies as st

from headgate.language.servicebus.values import DATE_TIME_OFFSET, EPOCH_TICKS, URI, time_span
from headgate.message import AmqpType, AmqpValue, Described, Message

NAMES = ("n", "N", "s", "t", "Größe", "price", "x y")
_SYSTEM = ("sys.Label", "sys.MessageId", "sys.TimeToLive", "sys.ContentType", "sys.Size", "sys.EnqueuedTimeUtc")
_PROPERTY_TEXTS = ("n", "S", "user.t", "[größe]", "price", '"x y"', "missing", *_SYSTEM)
_TEXTS = ("", "a", "ab", "abc", "A", "1", "%", "_", "a%", "😎", "a\nb", "n")


def _string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_NUMBERS = ("0", "1", "2", "7", "0.0", "0.5", "2.0", "1e300", "9007199254740993", "9223372036854775807")
_LEAVES = st.one_of(
    st.sampled_from(_PROPERTY_TEXTS),
    st.sampled_from(_NUMBERS),
    st.sampled_from(_TEXTS).map(_string),
    st.sampled_from(("TRUE", "FALSE", "NULL", "newid()")),
)


def _values() -> st.SearchStrategy[str]:
    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.tuples(inner, st.sampled_from("+-*/%"), inner).map(lambda parts: f"({' '.join(parts)})"),
            inner.map(lambda value: f"(- {value})"),
            inner.map(lambda value: f"property({value})"),
        )

    return st.recursive(_LEAVES, larger, max_leaves=4)


def filters() -> st.SearchStrategy[str]:
    """Texts of filters that are accepted."""
    values = _values()
    patterns = st.sampled_from(("'a%'", "'%b'", "'_'", "'%'", "'a!%' ESCAPE '!'", "s", "s ESCAPE t", "'a' + s"))
    names = st.sampled_from(_PROPERTY_TEXTS)
    negated = st.sampled_from(("", "NOT "))
    conditions = st.one_of(
        st.tuples(values, st.sampled_from(("=", "<>", "<", "<=", ">", ">=")), values).map(" ".join),
        st.tuples(values, negated, st.lists(values, min_size=1, max_size=3)).map(
            lambda parts: f"{parts[0]} {parts[1]}IN ({', '.join(parts[2])})"
        ),
        st.tuples(values, negated, patterns).map(lambda parts: f"{parts[0]} {parts[1]}LIKE {parts[2]}"),
        st.tuples(names, st.sampled_from(("IS NULL", "IS NOT NULL"))).map(" ".join),
        names.map(lambda name: f"EXISTS({name})"),
    )

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.tuples(inner, st.sampled_from(("AND", "OR")), inner).map(lambda parts: f"({' '.join(parts)})"),
            inner.map(lambda condition: f"NOT ({condition})"),
        )

    return st.recursive(conditions, larger, max_leaves=4)


def described(symbol: str, value: AmqpValue) -> AmqpValue:
    """A value that a symbol describes."""
    return AmqpValue(AmqpType.DESCRIBED, Described(AmqpValue(AmqpType.SYMBOL, symbol), value))


_INTEGERS = st.sampled_from((0, 1, 2, 7, 100))
VALUES: st.SearchStrategy[AmqpValue] = st.one_of(
    st.just(AmqpValue(AmqpType.NULL, None)),
    st.booleans().map(lambda value: AmqpValue(AmqpType.BOOLEAN, value)),
    st.sampled_from(
        (AmqpType.BYTE, AmqpType.UBYTE, AmqpType.SHORT, AmqpType.USHORT, AmqpType.INT, AmqpType.UINT, AmqpType.CHAR)
    ).flatmap(lambda kind: _INTEGERS.map(lambda value: AmqpValue(kind, value))),
    st.sampled_from((0, -1, 7, 2**53 + 1, 2**63 - 1, -(2**63))).map(lambda value: AmqpValue(AmqpType.LONG, value)),
    st.sampled_from((0, 7, 2**63, 2**64 - 1)).map(lambda value: AmqpValue(AmqpType.ULONG, value)),
    st.sampled_from((0.0, -0.0, 0.5, 2.0, 1e300, float("inf"), float("nan"))).map(
        lambda value: AmqpValue(AmqpType.DOUBLE, value)
    ),
    st.sampled_from((0.5, 2.0, 0.1)).map(lambda value: AmqpValue(AmqpType.FLOAT, value)),
    st.sampled_from(_TEXTS).map(lambda value: AmqpValue(AmqpType.STRING, value)),
    st.sampled_from(("a", "ab")).map(lambda value: AmqpValue(AmqpType.SYMBOL, value)),
    st.binary(max_size=3).map(lambda value: AmqpValue(AmqpType.BINARY, value)),
    st.integers(0, 3).map(lambda value: AmqpValue(AmqpType.UUID, uuid.UUID(int=value))),
    st.sampled_from((0, 1, 1_717_200_000_000, -(2**62))).map(lambda value: AmqpValue(AmqpType.TIMESTAMP, value)),
    st.sampled_from((0, 1, -1, 2**63 - 1)).map(time_span),
    st.sampled_from((0, EPOCH_TICKS)).map(lambda ticks: described(DATE_TIME_OFFSET, AmqpValue(AmqpType.LONG, ticks))),
    st.just(described(URI, AmqpValue(AmqpType.STRING, "ab"))),
    st.just(described("other", AmqpValue(AmqpType.LIST, ()))),
    st.binary(min_size=8, max_size=8).map(lambda octets: AmqpValue(AmqpType.DECIMAL64, octets)),
    st.just(AmqpValue(AmqpType.LIST, ())),
)
"""Values of properties, of every type."""


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """Messages with properties of `NAMES` and some system properties."""
    properties = draw(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5))
    fields = {
        "subject": draw(st.none() | VALUES),
        "message_id": draw(st.none() | st.sampled_from(("a", 7, b"\x01", uuid.UUID(int=1)))),
        "ttl": draw(st.none() | st.sampled_from((0, 1000, 2**32 - 1))),
        "content_type": draw(st.none() | st.just("a")),
    }
    annotations = draw(st.none() | VALUES.map(lambda value: {"x-opt-enqueued-time": value}))
    return Message(b"body", application_properties=properties, message_annotations=annotations, **fields)
