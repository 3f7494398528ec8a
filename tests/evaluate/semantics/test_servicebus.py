"""What Service Bus filters mean: kinds and their comparison, arithmetic, unknown values, errors, system properties."""

from __future__ import annotations

import datetime
import math
import pickle
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.evaluate.filter import Filter
from headgate.evaluate.pruning import wanted_values
from headgate.evaluate.verdict import Verdict
from headgate.language import Limits
from headgate.language.servicebus.values import DATE_TIME_OFFSET, EPOCH_TICKS, URI, equals, text_of, time_span, value_of
from headgate.language.values import Value
from headgate.message import AmqpArray, AmqpType, AmqpValue, Message
from headgate.message.decimals import decimal_of
from headgate.message.fields import parse_field
from servicebus_filters import VALUES, described, filters, messages

TRUE, FALSE, UNKNOWN, ERROR = Verdict.TRUE, Verdict.FALSE, Verdict.UNKNOWN, Verdict.ERROR
NOON = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC)
GUID = uuid.UUID("0f8fad5b-d9cb-469f-a165-70867728950e")


def ulong(value: int) -> AmqpValue:
    return AmqpValue(AmqpType.ULONG, value)


def seconds(value: float) -> AmqpValue:
    return time_span(round(value * 10_000_000))


def offset(ticks: int) -> AmqpValue:
    return described(DATE_TIME_OFFSET, AmqpValue(AmqpType.LONG, ticks))


def verdict(text: str, held: dict[str, object] | None = None, **parts: object) -> Verdict:
    message = Message(b"", application_properties=held or {}, **parts)  # type: ignore[arg-type]
    return Filter.parse(text, "servicebus").verdict(message, now_ms=0)


PROPERTIES: dict[str, object] = {
    "n": 10,
    "int": AmqpValue(AmqpType.INT, 7),
    "max": 2**63 - 1,
    "min": -(2**63),
    "big": ulong(2**64 - 1),
    "d": 2.5,
    "double": 2.0**63,
    "f": AmqpValue(AmqpType.FLOAT, 0.1),
    "nan": math.nan,
    "dec": decimal_of(AmqpType.DECIMAL64, 10),
    "c": AmqpValue(AmqpType.CHAR, ord("A")),
    "s": "abc",
    "ten": "10",
    "sym": AmqpValue(AmqpType.SYMBOL, "abc"),
    "uri": described(URI, AmqpValue(AmqpType.STRING, "abc")),
    "astral": "\U0001f60e",
    "late": "\uffff",
    "lines": "a\nb\n",
    "raw": AmqpValue(AmqpType.STRING, b"a\xffb".decode("utf-8", "surrogateescape")),
    "b": True,
    "g": GUID,
    "x": b"abc",
    "t": NOON,
    "later": NOON + datetime.timedelta(minutes=30),
    "half": seconds(1800),
    "zone": offset(EPOCH_TICKS + 17_041_104_000_000_000 + 1),
    "none": None,
    "list": [1],
    "array": AmqpValue(AmqpType.ARRAY, AmqpArray(AmqpType.INT, ())),
    "other": described("other", AmqpValue(AmqpType.LONG, 1)),
    "zero": 0,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # numbers: section 3.3
        ("n = 10 AND n = 10.0 AND int < n", TRUE),
        ("f = 0.1", FALSE),
        ("max = 9223372036854775807.0", TRUE),
        ("max = 9223372036854775808.0", TRUE),
        ("9223372036854775808.0 = max AND double = max AND NOT double > max", TRUE),
        ("big > max", TRUE),
        ("big = -1", FALSE),
        ("big = 18446744073709551616.0", TRUE),
        ("dec = n AND dec = 10.0 AND dec > d", TRUE),
        ("c = 65", TRUE),
        ("nan = nan", FALSE),
        ("nan <> nan", TRUE),
        ("nan < 1 OR nan >= 1", FALSE),
        # strings
        ("s = 'abc' AND s = sym AND s = uri", TRUE),
        ("s <> 'ABC'", TRUE),
        ("s < 'abd' AND s > 'ABD' AND s >= 'abc' AND s <= 'abc'", TRUE),
        ("astral < late", TRUE),
        # kinds without a conversion
        ("ten > 9", ERROR),
        ("ten = 10", ERROR),
        ("ten <> 10", ERROR),
        ("b = 1", ERROR),
        ("b = 'true'", ERROR),
        ("b < TRUE", ERROR),
        ("g < g", ERROR),
        ("g = g", TRUE),
        ("g = 'x'", ERROR),
        ("x = x", TRUE),
        ("x = s", ERROR),
        ("x < x", ERROR),
        ("t = 5", ERROR),
        ("half = 5", ERROR),
        ("list = list", ERROR),
        ("array = 1", ERROR),
        ("other = 1", ERROR),
        ("list IS NULL", FALSE),
        ("EXISTS(list)", TRUE),
        # dates
        ("t < later AND later > t AND t <> later AND t = t", TRUE),
        ("t < zone AND zone < later", TRUE),
        ("later - t = half", TRUE),
        ("t + half = later AND later - half = t", TRUE),
        ("half + half > half AND half - half < half", TRUE),
        ("zone - t > half - half", TRUE),
        ("half + t = later", ERROR),
        ("t + t = t", ERROR),
        ("half * 2 = half", ERROR),
        ("-half = half", ERROR),
        # arithmetic: section 3.4
        ("n / 3 = 3 AND -n / 3 = -3 AND n / -3 = -3", TRUE),
        ("n % 3 = 1 AND -n % 3 = -1 AND n % -3 = 1", TRUE),
        ("n / zero = 1", ERROR),
        ("n % zero = 1", ERROR),
        ("n / 0.0 > 1e300", TRUE),
        ("-n / 0.0 < -1e300", TRUE),
        ("(n - n) / 0.0 = 0", FALSE),
        ("n % 0.0 <> 0", TRUE),
        ("n / 4 = 2 AND n / 4.0 = 2.5", TRUE),
        ("7.5 % 2 = 1.5 AND -7.5 % 2 = -1.5", TRUE),
        ("max + 1 > 0", ERROR),
        ("min - 1 < 0", ERROR),
        ("max * 2 > 0", ERROR),
        ("min / -1 > 0", ERROR),
        ("-min > 0", ERROR),
        ("big + 0 > 0", ERROR),
        ("big - 9223372036854775807 > 0", ERROR),
        ("big / 4 > 0", TRUE),
        ("max + 1.0 = 9223372036854775808.0", TRUE),
        ("1e308 * 10 = 1.0 / 0.0", TRUE),
        ("c + 1 = 66 AND -c = -65", TRUE),
        ("dec + 1 = 11", ERROR),
        ("-dec = 1", ERROR),
        ("s - 'a' = 'bc'", ERROR),
        ("s * 2 = 'x'", ERROR),
        ("-s = 'x'", ERROR),
        ("b + b = 2", ERROR),
        ("s + 'd' = 'abcd'", TRUE),
        ("s + n = 'abc10' AND n + s = '10abc'", TRUE),
        ("s + b + d = 'abcTrue2.5'", TRUE),
        ("s + x = 'abc'", ERROR),
        # unknown values: section 3.2
        ("missing = 1 OR missing <> 1", UNKNOWN),
        ("none = 1", UNKNOWN),
        ("none = NULL", UNKNOWN),
        ("missing + 'a' = 'a'", UNKNOWN),
        ("-missing = 1", UNKNOWN),
        ("missing = list", UNKNOWN),
        ("missing IS NULL AND none IS NULL AND n IS NOT NULL", TRUE),
        ("EXISTS(none)", TRUE),
        ("EXISTS(missing)", FALSE),
        ("NOT missing = 1", UNKNOWN),
        # AND and OR stop at what decides; an error on a side that is evaluated ends it all
        ("n = 1 AND n / zero = 1", FALSE),
        ("n = 10 OR n / zero = 1", TRUE),
        ("n / zero = 1 OR n = 10", ERROR),
        ("n / zero = 1 AND n = 1", ERROR),
        ("missing = 1 AND n / zero = 1", ERROR),
        ("missing = 1 OR n / zero = 1", ERROR),
        ("NOT (n / zero = 1)", ERROR),
        # IN: sections 3.2 and 3.6
        ("n IN (1, 10)", TRUE),
        ("n IN (10.0)", TRUE),
        ("n NOT IN (1, 2)", TRUE),
        ("n IN (1, missing)", UNKNOWN),
        ("n NOT IN (1, missing)", UNKNOWN),
        ("n IN (missing, 10)", TRUE),
        ("missing IN (1 / zero)", UNKNOWN),
        ("n IN ('a')", ERROR),
        ("n IN (10, 'a')", TRUE),
        ("n IN ('a', 10)", ERROR),
        ("n IN (1, n / zero)", ERROR),
        # LIKE: section 3.5
        ("s LIKE 'a%' AND s LIKE '%c' AND s LIKE 'a%c' AND s LIKE '%b%' AND s LIKE '_b_'", TRUE),
        ("s LIKE 'A%' OR s LIKE 'ab' OR s LIKE '__'", FALSE),
        ("lines LIKE 'a%b%' AND lines LIKE 'a_b_' AND lines LIKE '%'", TRUE),
        ("lines LIKE 'a_b'", FALSE),
        ("astral LIKE '_'", TRUE),
        ("raw LIKE 'a_b' AND raw LIKE 'a%b'", TRUE),
        ("n LIKE '1%'", ERROR),
        ("missing LIKE 'a'", UNKNOWN),
        ("s LIKE missing", UNKNOWN),
        ("s LIKE 'a' ESCAPE missing", UNKNOWN),
        ("s NOT LIKE missing", UNKNOWN),
        ("s LIKE n", ERROR),
        ("s LIKE s", TRUE),
        ("s NOT LIKE s", FALSE),
        ("s LIKE 'a' ESCAPE s", ERROR),
        ("s LIKE 'a' + sym ESCAPE n", ERROR),
        ("sym LIKE uri + '' ESCAPE 'a'", FALSE),
        ("s LIKE sym ESCAPE 'c'", ERROR),
        # functions
        ("property('s') = 'abc'", TRUE),
        ("property(s) = 1", UNKNOWN),
        ("property('' + 'N') = 10", TRUE),
        ("property(missing) = 1", UNKNOWN),
        ("property(n) = 1", ERROR),
        ("property(5) = 1", ERROR),
        ("property('sys.Label') = 'x'", UNKNOWN),
        ("newid() <> newid()", TRUE),
        ("newid() = 'x'", ERROR),
        ("1=1", TRUE),
        ("1=0", FALSE),
    ],
)
def test_a_filter_decides(text: str, expected: Verdict) -> None:
    assert verdict(text, PROPERTIES) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sys.MessageId = '42'", TRUE),
        ("sys.CorrelationId = '0f8fad5b-d9cb-469f-a165-70867728950e'", TRUE),
        ("sys.Label = 'order' AND sys.Subject = 'order'", TRUE),
        ("Label = 'order'", UNKNOWN),
        ("sys.ContentType LIKE 'text/%'", TRUE),
        ("sys.To IS NULL AND NOT EXISTS(sys.To)", TRUE),
        ("EXISTS(sys.Label)", TRUE),
        ("sys.To = 'x'", UNKNOWN),
        ("sys.TimeToLive = half", TRUE),
        ("sys.TimeToLive = 1800", ERROR),
        ("sys.EnqueuedTimeUtc = t", TRUE),
        ("sys.PartitionKey = 'p'", TRUE),
        ("sys.ViaPartitionKey IS NULL", TRUE),
        ("sys.EnqueuedSequenceNumber = 7", TRUE),
        ("sys.DeliveryCount = 0", TRUE),
        ("sys.SequenceNumber IS NULL AND sys.LockToken IS NULL AND sys.LockedUntilUtc IS NULL", TRUE),
        ("sys.ForcePersistence IS NULL", TRUE),
        ("sys.Size > 100 AND sys.Size < 1000", TRUE),
        ("sys.State = 0", TRUE),
        ("sys.ExpiresAtUtc > sys.EnqueuedTimeUtc", TRUE),
        ("sys.ReplyTo IS NULL", TRUE),
    ],
)
def test_system_properties_are_read_as_their_types(text: str, expected: Verdict) -> None:
    found = verdict(
        text,
        {"half": seconds(1800), "t": NOON},
        header={"ttl": 1_800_000, "delivery_count": 5},
        message_annotations={
            "x-opt-enqueued-time": NOON,
            "x-opt-partition-key": "p",
            # of another type than the property: as if it were not set
            "x-opt-via-partition-key": 5,
            "x-opt-enqueue-sequence-number": 7,
            "x-opt-sequence-number": 9,
            "x-opt-locked-until": NOON,
            "x-opt-message-state": AmqpValue(AmqpType.INT, 0),
        },
        properties={
            "message_id": 42,
            "correlation_id": GUID,
            "subject": "order",
            "content_type": "text/plain",
            "reply_to": AmqpValue(AmqpType.LONG, 1),
            "absolute_expiry_time": NOON + datetime.timedelta(days=1),
        },
    )
    assert found is expected


def test_a_binary_message_id_is_read_in_hexadecimal() -> None:
    assert verdict("sys.MessageId = '00ff'", message_id=b"\x00\xff") is TRUE
    assert verdict("sys.MessageId IS NULL", message_id=AmqpValue(AmqpType.LONG, 5)) is TRUE


def test_of_properties_that_differ_in_case_the_exact_one_counts_else_the_first() -> None:
    both = {"color": "red", "COLOR": "blue"}
    assert verdict("COLOR = 'blue'", both) is TRUE
    assert verdict("color = 'red'", both) is TRUE
    assert verdict("Color = 'red'", both) is TRUE
    assert verdict("GRÖSSE = 1", {"grösse": 1}) is TRUE
    assert verdict("[K] = 1", {"\u212a": 1}) is UNKNOWN


def test_a_text_beyond_a_mebibyte_is_an_error() -> None:
    assert verdict("a + a = a", {"a": "x" * 600_000}) is ERROR


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "True"),
        (-5, "-5"),
        (5.0, "5"),
        (-0.0, "-0"),
        (0.1, "0.1"),
        (1e15, "1E+15"),
        (123456789012345.0, "123456789012345"),
        (1.5e-5, "1.5E-05"),
        (0.0001, "0.0001"),
        (1.5e300, "1.5E+300"),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        (AmqpValue(AmqpType.CHAR, 0x1F60E), "😎"),
        (AmqpValue(AmqpType.UUID, GUID), str(GUID)),
        (AmqpValue(AmqpType.TIMESTAMP, 1_704_110_400_120), "2024-01-01T12:00:00.120Z"),
        (AmqpValue(AmqpType.TIMESTAMP, 0), "1970-01-01T00:00:00.000Z"),
        (offset(1), "0001-01-01T00:00:00.0000001Z"),
        (seconds(-93_784.5), "-1.02:03:04.5000000"),
        (seconds(60), "00:01:00"),
        (decimal_of(AmqpType.DECIMAL128, -12), "-12"),
    ],
)
def test_the_text_of_a_value_beside_a_string(value: Value, text: str) -> None:
    assert text_of(value).decode() == text


@given(filters(), messages())
def test_evaluating_never_raises_and_tells_truth_from_unknown(text: str, message: Message) -> None:
    filter = Filter.parse(text, "servicebus")
    found = filter.verdict(message, now_ms=0)
    if found is not ERROR:
        opposite = {TRUE: FALSE, FALSE: TRUE, UNKNOWN: UNKNOWN}[found]
        assert Filter.parse(f"NOT ({text})", "servicebus").verdict(message, now_ms=0) is opposite


@given(VALUES, st.lists(VALUES, min_size=1, max_size=3), st.booleans())
def test_in_is_equality_with_one_or_the_other(subject: AmqpValue, members: list[AmqpValue], negated: bool) -> None:
    properties = {"x": subject, **{f"m{number}": member for number, member in enumerate(members)}}
    listed = [f"m{number}" for number in range(len(members))]
    one_of = " OR ".join(f"x = {name}" for name in listed)
    prefix = "NOT " if negated else ""
    expected = verdict(f"{prefix}({one_of})", properties)
    assert verdict(f"x {prefix}IN ({', '.join(listed)})", properties) is expected


@given(VALUES, VALUES)
def test_a_correlation_equality_is_true_only_where_the_sql_equality_is(left: AmqpValue, right: AmqpValue) -> None:
    first, second = value_of(left), value_of(right)
    assert equals(first, second) is equals(second, first)
    if equals(first, second):
        assert verdict("a = b", {"a": left, "b": right}) is TRUE


def test_a_filter_with_parameters_survives_pickling_and_a_limit_of_its_own() -> None:
    text = "a = @x AND " + " AND ".join(["b = 1"] * 150)
    filter = Filter.parse(text, "servicebus", parameters={"@X": 5}, limits=Limits(filter_characters=2000))
    copy = pickle.loads(pickle.dumps(filter))
    assert copy == filter
    assert copy.matches(Message(b"", application_properties={"a": 5, "b": 1}), now_ms=0)


def test_a_filter_says_whether_chance_has_a_part_in_it() -> None:
    assert Filter.parse("a = newid()", "servicebus").uses_chance
    assert not Filter.parse("newid = 1", "servicebus").uses_chance


@pytest.mark.parametrize(
    ("text", "source", "wanted"),
    [
        ("sys.Label IN ('a', 'b') AND n > 5", "properties.subject", {b"a", b"b"}),
        ("sys.PartitionKey = 'a'", "message_annotations.x-opt-partition-key", {b"a"}),
        # an id of another type is compared as its text, and a name without case may mean another key
        ("sys.MessageId = 'a'", "properties.message_id", None),
        ("sys.CorrelationId = 'a'", "properties.correlation_id", None),
        ("region = 'a'", "application_properties.region", None),
        ("sys.Label LIKE 'a'", "properties.subject", None),
    ],
)
def test_only_what_is_compared_as_it_is_stored_names_filter_values(
    text: str, source: str, wanted: set[bytes] | None
) -> None:
    assert wanted_values(Filter.parse(text, "servicebus").tree, parse_field(source)) == wanted
