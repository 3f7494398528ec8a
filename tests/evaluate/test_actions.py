"""Rule actions: what SET and REMOVE make of a copy, and what they refuse."""

from __future__ import annotations

import datetime
import math
import pickle
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ConfigError, FilterError, FilterLimitError, FilterSyntaxError, FilterTypeError
from headgate.evaluate.actions import Action
from headgate.evaluate.verdict import EvaluationFailed
from headgate.language import Limits
from headgate.language.servicebus.values import DATE_TIME_OFFSET, EPOCH_TICKS, URI, time_span
from headgate.message import AmqpType, AmqpValue, Message, Section
from headgate.message.decimals import decimal_of
from headgate.message.fields import FieldReference
from servicebus_filters import VALUES, described, messages
from strategies import binary, compound, section, string

NOON = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC)


def applied(text: str, message: Message | None = None, *, identity: bytes = b"s/1/r", **options: Any) -> Message:
    return Action.parse(text, **options).apply(message or Message(b""), now_ms=0, identity=identity)


def held(message: Message, name: str) -> AmqpValue | None:
    return message.whole_value(FieldReference(Section.APPLICATION_PROPERTIES, key=name.encode()))


def of(kind: AmqpType, value: Any) -> AmqpValue:
    return AmqpValue(kind, value)


def test_the_example_of_the_documentation() -> None:
    order = Message(b"an order", application_properties={"color": "red", "quantity": 10, "priority": "high"})
    copy = applied("SET quantity = quantity / 2; REMOVE priority;SET sys.CorrelationId = 'low';", order)
    assert copy == Message(b"an order", correlation_id="low", application_properties={"color": "red", "quantity": 5})
    assert order.application_properties is not None and "priority" in order.application_properties


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("5", of(AmqpType.LONG, 5)),
        ("5.0", of(AmqpType.DOUBLE, 5.0)),
        ("1e3", of(AmqpType.DOUBLE, 1000.0)),
        ("TRUE", of(AmqpType.BOOLEAN, True)),
        ("'text'", of(AmqpType.STRING, "text")),
        ("NULL", of(AmqpType.NULL, None)),
        ("missing", of(AmqpType.NULL, None)),
        ("missing + 1", of(AmqpType.NULL, None)),
        # a property alone keeps its exact type, in an expression it is promoted
        ("int", of(AmqpType.INT, 7)),
        ("int + 0", of(AmqpType.LONG, 7)),
        ("INT", of(AmqpType.INT, 7)),
        ("property('i' + 'nt')", of(AmqpType.INT, 7)),
        ("float", of(AmqpType.FLOAT, 0.5)),
        ("-float", of(AmqpType.DOUBLE, -0.5)),
        ("sym", of(AmqpType.SYMBOL, "s")),
        ("sym + ''", of(AmqpType.STRING, "s")),
        ("uri", described(URI, of(AmqpType.STRING, "u"))),
        ("later - noon", time_span(36_000_000_000)),
        ("noon + (later - noon)", of(AmqpType.TIMESTAMP, 1_704_114_000_000)),
        ("sys.TimeToLive", time_span(50_000_000)),
        ("sys.MessageId", of(AmqpType.STRING, "42")),
        ("sys.Label", of(AmqpType.NULL, None)),
        ("@p", of(AmqpType.STRING, "given")),
    ],
)
def test_a_new_property_has_the_type_of_its_value(value: str, expected: AmqpValue) -> None:
    message = Message(
        b"",
        ttl=5000,
        message_id=42,
        application_properties={
            "int": of(AmqpType.INT, 7),
            "float": of(AmqpType.FLOAT, 0.5),
            "sym": of(AmqpType.SYMBOL, "s"),
            "uri": described(URI, of(AmqpType.STRING, "u")),
            "noon": NOON,
            "later": NOON + datetime.timedelta(hours=1),
        },
    )
    assert held(applied(f"SET new = {value}", message, parameters={"p": "given"}), "new") == expected


@pytest.mark.parametrize(
    ("existing", "value", "expected"),
    [
        (of(AmqpType.DOUBLE, 1.5), "2", of(AmqpType.DOUBLE, 2.0)),
        (of(AmqpType.FLOAT, 1.5), "2", of(AmqpType.FLOAT, 2.0)),
        (of(AmqpType.FLOAT, 1.5), "2.5", of(AmqpType.DOUBLE, 2.5)),
        (of(AmqpType.INT, 1), "2", of(AmqpType.LONG, 2)),
        (of(AmqpType.LONG, 1), "2.0", of(AmqpType.DOUBLE, 2.0)),
        (of(AmqpType.LONG, 1), "int", of(AmqpType.LONG, 7)),
        (of(AmqpType.SHORT, 1), "int", of(AmqpType.INT, 7)),
        (of(AmqpType.INT, 1), "byte", of(AmqpType.INT, -3)),
        (of(AmqpType.UINT, 1), "byte", of(AmqpType.BYTE, -3)),
        (of(AmqpType.ULONG, 1), "ubyte", of(AmqpType.ULONG, 200)),
        (of(AmqpType.ULONG, 1), "2", of(AmqpType.LONG, 2)),
        (of(AmqpType.UINT, 1), "char", of(AmqpType.UINT, 65)),
        (of(AmqpType.DOUBLE, 1.0), "float", of(AmqpType.DOUBLE, 0.5)),
        (decimal_of(AmqpType.DECIMAL64, 1), "2", decimal_of(AmqpType.DECIMAL64, 2)),
        (decimal_of(AmqpType.DECIMAL32, 1), "12345678", of(AmqpType.LONG, 12_345_678)),
        (of(AmqpType.STRING, "x"), "2", of(AmqpType.LONG, 2)),
        (of(AmqpType.LONG, 1), "'x'", of(AmqpType.STRING, "x")),
        (of(AmqpType.NULL, None), "2", of(AmqpType.LONG, 2)),
        (of(AmqpType.DOUBLE, 1.5), "missing", of(AmqpType.NULL, None)),
        (
            described(DATE_TIME_OFFSET, of(AmqpType.LONG, 5)),
            "noon",
            described(DATE_TIME_OFFSET, of(AmqpType.LONG, EPOCH_TICKS + 17_041_104_000_000_000)),
        ),
    ],
)
def test_a_value_becomes_the_type_that_it_replaces_where_c_sharp_converts(
    existing: AmqpValue, value: str, expected: AmqpValue
) -> None:
    others = {
        "int": of(AmqpType.INT, 7),
        "byte": of(AmqpType.BYTE, -3),
        "ubyte": of(AmqpType.UBYTE, 200),
        "char": of(AmqpType.CHAR, 65),
        "float": of(AmqpType.FLOAT, 0.5),
        "noon": NOON,
    }
    message = Message(b"", application_properties={"Old": existing, **others})
    assert held(applied(f"SET old = {value}", message), "Old") == expected


@pytest.mark.parametrize(
    ("existing", "texts", "expected"),
    [
        (of(AmqpType.INT, 1), ["12", " +12 ", "012"], of(AmqpType.INT, 12)),
        (of(AmqpType.UBYTE, 1), ["255"], of(AmqpType.UBYTE, 255)),
        (of(AmqpType.LONG, 1), ["-9223372036854775808"], of(AmqpType.LONG, -(2**63))),
        (of(AmqpType.DOUBLE, 1.0), ["0.1", "1E-1"], of(AmqpType.DOUBLE, 0.1)),
        (of(AmqpType.DOUBLE, 1.0), ["-Infinity"], of(AmqpType.DOUBLE, -math.inf)),
        (of(AmqpType.FLOAT, 1.0), ["2.5"], of(AmqpType.FLOAT, 2.5)),
        (of(AmqpType.BOOLEAN, True), ["false", " FALSE"], of(AmqpType.BOOLEAN, False)),
        (of(AmqpType.CHAR, 65), ["é"], of(AmqpType.CHAR, 0xE9)),
        (
            of(AmqpType.UUID, uuid.UUID(int=1)),
            ["{0000000a-0000-0000-0000-000000000007}", "0000000A000000000000000000000007"],
            of(AmqpType.UUID, uuid.UUID("0000000a-0000-0000-0000-000000000007")),
        ),
        (
            of(AmqpType.TIMESTAMP, 1),
            ["2024-01-01T12:00:00Z", "2024-01-01 12:00", "2024-01-01T14:00:00.0009+02:00"],
            of(AmqpType.TIMESTAMP, 1_704_110_400_000),
        ),
        (of(AmqpType.TIMESTAMP, 1), ["1969-12-31"], of(AmqpType.TIMESTAMP, -86_400_000)),
        (
            described(DATE_TIME_OFFSET, of(AmqpType.LONG, 5)),
            ["1970-01-01T00:00:00.0000007"],
            described(DATE_TIME_OFFSET, of(AmqpType.LONG, EPOCH_TICKS + 7)),
        ),
        (time_span(1), ["00:01", "PT1M", "0.00:01:00.0000000"], time_span(600_000_000)),
        (time_span(1), ["-1.00:00:00.5"], time_span(-864_005_000_000)),
        (described(URI, of(AmqpType.STRING, "u")), ["a:b"], described(URI, of(AmqpType.STRING, "a:b"))),
        (decimal_of(AmqpType.DECIMAL64, 1), ["12.50"], decimal_of(AmqpType.DECIMAL64, 1250, -2)),
    ],
)
def test_a_string_becomes_the_value_that_it_writes_of_the_type_that_it_replaces(
    existing: AmqpValue, texts: list[str], expected: AmqpValue
) -> None:
    for text in texts:
        message = Message(
            b"", application_properties={"Old": existing, "text": text, "symbol": of(AmqpType.SYMBOL, text)}
        )
        actions = [
            f"SET old = '{text}'",
            f"SET old = '{text[:1]}' + '{text[1:]}'",
            "SET old = text",
            "SET old = symbol",
        ]
        for action in actions if text.isascii() else actions[:-1]:
            assert held(applied(action, message), "Old") == expected, action
        assert held(applied("SET old = @p", message, parameters={"p": text}), "Old") == expected


@pytest.mark.parametrize(
    ("existing", "text"),
    [
        (of(AmqpType.INT, 1), "2147483648"),
        (of(AmqpType.INT, 1), "1.0"),
        (of(AmqpType.INT, 1), "1_000"),
        (of(AmqpType.INT, 1), "٣"),
        (of(AmqpType.INT, 1), ""),
        (of(AmqpType.DOUBLE, 1.0), "1e400"),
        (of(AmqpType.DOUBLE, 1.0), "1,5"),
        (of(AmqpType.FLOAT, 1.0), "1e39"),
        (of(AmqpType.BOOLEAN, True), "1"),
        (of(AmqpType.CHAR, 65), "ab"),
        (of(AmqpType.UUID, uuid.UUID(int=1)), "{0000000a000000000000000000000007)"),
        (of(AmqpType.TIMESTAMP, 1), "01/31/2026"),
        (of(AmqpType.TIMESTAMP, 1), "2026-02-30"),
        (of(AmqpType.TIMESTAMP, 1), "9999-12-31T23:59:59-01:00"),
        (time_span(1), "5"),
        (time_span(1), "24:00"),
        (decimal_of(AmqpType.DECIMAL32, 1), "12345678"),
        (decimal_of(AmqpType.DECIMAL32, 1), "1" * 5_000),
        (decimal_of(AmqpType.DECIMAL32, 1), "1e900"),
        (of(AmqpType.BINARY, b"x"), "1"),
        (of(AmqpType.SYMBOL, "x"), "1"),
        (of(AmqpType.NULL, None), "1"),
    ],
)
def test_a_string_that_writes_no_value_of_that_type_stays_a_string(existing: AmqpValue, text: str) -> None:
    message = Message(b"", application_properties={"Old": existing})
    assert held(applied("SET old = @p", message, parameters={"p": text}), "Old") == of(AmqpType.STRING, text)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("SET sys.Label = 5", {"subject": "5"}),
        ("SET sys.Subject = 2.5", {"subject": "2.5"}),
        ("SET sys.To = TRUE", {"to": "True"}),
        ("SET sys.ReplyTo = 'a'; SET sys.To = sys.ReplyTo + 'b'", {"reply_to": "a", "to": "ab"}),
        ("SET sys.MessageId = guid", {"message_id": "00000000-0000-0000-0000-000000000007"}),
        ("SET sys.ContentType = 'text/plain'", {"content_type": "text/plain"}),
        ("SET sys.SessionId = 's'; SET sys.ReplyToSessionId = 'r'", {"group_id": "s", "reply_to_group_id": "r"}),
        ("SET sys.Label = missing", {}),
        ("SET sys.Label = 'x'; REMOVE sys.LABEL", {}),
        ("REMOVE sys.Label", {}),
        ("SET sys.TimeToLive = span", {"ttl": 1500}),
        ("SET sys.TimeToLive = long", {"ttl": 2**32 - 1}),
        ("SET sys.ForcePersistence = TRUE; REMOVE sys.ForcePersistence", {}),
        ("SET sys.PartitionKey = 'p'", {"message_annotations": {"x-opt-partition-key": "p"}}),
        ("SET sys.TransactionPartitionKey = 'p'", {"message_annotations": {"x-opt-via-partition-key": "p"}}),
        ("SET sys.TimeToLive = '00:01:00.5'", {"ttl": 60_500}),
        ("SET sys.TimeToLive = 'PT' + '5M'", {"ttl": 300_000}),
        ("SET sys.ForcePersistence = 'False'", {}),
        (
            "SET sys.ScheduledEnqueueTimeUtc = '2024-01-01T13:00+01:00'",
            {"message_annotations": {"x-opt-scheduled-enqueue-time": NOON}},
        ),
        ("SET sys.ScheduledEnqueueTime = noon", {"message_annotations": {"x-opt-scheduled-enqueue-time": NOON}}),
    ],
)
def test_system_properties_are_set_with_their_types(action: str, expected: dict[str, Any]) -> None:
    given = {
        "guid": uuid.UUID(int=7),
        "span": time_span(15_000_000),
        "long": time_span(2**62),
        "noon": NOON,
    }
    copy = applied(action, Message(b"", application_properties=given))
    wanted = Message(b"", application_properties=given, **expected)
    assert (copy.header, copy.properties or None, copy.message_annotations) == (
        wanted.header,
        wanted.properties,
        wanted.message_annotations,
    )


@pytest.mark.parametrize(
    ("action", "cause"),
    [
        ("SET a = 1 / zero", "division by zero"),
        ("SET a = s + 1 - 2", "- does not take a string and a number"),
        ("SET a = list", "no property can hold a list"),
        ("SET a = other", "no property can hold a described"),
        ("SET a = property(zero)", "property.* takes a string, found a number"),
        ("SET sys.TimeToLive = 5", "sys.TimeToLive is a time span, in milliseconds, found a number"),
        ("SET sys.TimeToLive = span - span", "sys.TimeToLive is a time span above zero"),
        (
            "SET sys.ScheduledEnqueueTimeUtc = 'now'",
            "sys.ScheduledEnqueueTimeUtc is a date-time, such as '2026-01-31T12:00:00Z', found 'now'",
        ),
        ("SET sys.ForcePersistence = 'x'", "sys.ForcePersistence is a boolean, such as 'true', found 'x'"),
        ("SET sys.TimeToLive = '5'", "sys.TimeToLive is a time span, in milliseconds, such as '00:05:00', found '5'"),
        ("SET sys.ContentType = 'größe'", "sys.ContentType takes ASCII"),
        ("SET sys.Label = bytes", "a binary has no text"),
        ("SET sys.Label = list", "a value of another type has no text"),
        ("SET sys.SessionId = long", "sys.SessionId has 129 characters, 128 are allowed"),
        ("SET a = huge + huge", "a property of 40006 bytes, 32768 are allowed"),
        ("SET a = huge; SET b = huge; SET c = huge; SET d = huge", "properties of .* bytes, 65536 are allowed"),
    ],
)
def test_an_action_that_fails_says_why(action: str, cause: str) -> None:
    message = Message(
        b"",
        application_properties={
            "zero": 0,
            "s": "x",
            "list": [1],
            "other": described("other", of(AmqpType.LONG, 1)),
            "span": time_span(1),
            "bytes": b"x",
            "long": "x" * 129,
            "huge": "y" * 20_000,
        },
    )
    with pytest.raises(EvaluationFailed, match=cause):
        applied(action, message)


def test_the_limits_of_what_an_action_makes_are_configuration() -> None:
    message = Message(b"body" * 100, application_properties={"s": "x" * 50})
    limits = Limits(property_bytes=200_000, properties_bytes=200_000, message_bytes=600, identifier_characters=50)
    applied("SET t = s; SET sys.MessageId = s", message, limits=limits)
    with pytest.raises(EvaluationFailed, match=r"sys\.MessageId has 51 characters, 50 are allowed"):
        applied("SET sys.MessageId = s + 'x'", message, limits=limits)
    with pytest.raises(EvaluationFailed, match=r"a message of .* bytes, 600 are allowed"):
        applied("SET t = s + s; SET u = s + s", message, limits=limits)


def test_a_message_that_was_too_large_before_may_be_changed_unless_it_grows() -> None:
    message = Message(b"", application_properties={"a": "x" * 70_000, "b": "yy"})
    assert held(applied("SET b = 'y'", message), "b") == of(AmqpType.STRING, "y")
    assert held(applied("REMOVE a; SET b = 'longer'", message), "b") == of(AmqpType.STRING, "longer")
    with pytest.raises(EvaluationFailed, match="properties of 70"):
        applied("SET b = 'longer'", message)


def test_statements_see_what_those_before_them_did() -> None:
    copy = applied("SET a = 1 SET b = a + 1; REMOVE a SET c = a; SET b = b * 10", Message(b""))
    assert [held(copy, name) for name in "abc"] == [None, of(AmqpType.LONG, 20), of(AmqpType.NULL, None)]


def test_newid_depends_on_the_copy_and_the_place_alone() -> None:
    action = "SET a = newid(); SET b = newid()"
    copy = applied(action)
    first, second = held(copy, "a"), held(copy, "b")
    assert first is not None and second is not None and first != second
    assert first.type is AmqpType.UUID and first.value.version == 4
    assert applied(action) == copy
    assert held(applied(action, identity=b"s/2/r"), "a") != first
    assert held(applied("SET x = 'y'; SET a = newid()"), "a") == first


def test_what_an_action_does_not_touch_keeps_its_bytes() -> None:
    header = section(0x70, compound(0xC0, [b"\x41"], wide=True))
    entry = [string(b"a", wide=True), b"\x81" + (5).to_bytes(8, "big")]
    body = section(0x75, binary(b"z", wide=True), wide_descriptor=True)
    copy = applied("SET b = TRUE", Message.decode(header + section(0x74, compound(0xC1, entry)) + body))
    assert copy.encode() == header + section(0x74, compound(0xC1, [*entry, string(b"b"), b"\x41"])) + body


def test_properties_that_are_not_framed_as_they_say_fail_the_action() -> None:
    message = Message.decode(b"\x00\x53\x74\xc1\x04\x01\xa1\x01a")
    with pytest.raises(EvaluationFailed, match="announces 1 elements"):
        applied("SET b = 1", message)


@pytest.mark.parametrize(
    ("text", "kind", "found", "reason"),
    [
        ("", FilterSyntaxError, "", "expected SET or REMOVE"),
        ("  ", FilterSyntaxError, "", "expected SET or REMOVE"),
        (";", FilterSyntaxError, ";", "expected SET or REMOVE"),
        ("SET a = 1;;", FilterSyntaxError, ";", "expected SET or REMOVE"),
        ("SET", FilterSyntaxError, "", "expected a property"),
        ("SET a", FilterSyntaxError, "", "expected '=' after the property"),
        ("SET a 1", FilterSyntaxError, "1", "expected '=' after the property"),
        ("SET a =", FilterSyntaxError, "", "expected a value or a name"),
        ("SET 'a' = 1", FilterSyntaxError, "'a'", "expected a property"),
        ("SET p('a') = 1", FilterSyntaxError, "p('a')", "found a function"),
        ("SET a = b = c", FilterSyntaxError, "=", "expected an operator, ';', another statement"),
        ("SET a = b AND c", FilterSyntaxError, "AND", "expected an operator, ';', another statement"),
        ("SET a = (b = c)", FilterSyntaxError, "(b = c)", "found a condition, expected a value"),
        ("SET set = 1", FilterSyntaxError, "set", "found keyword set, expected a property"),
        ("SET user.remove = 1", FilterSyntaxError, "user.remove", "remove is a reserved word"),
        ("REMOVE", FilterSyntaxError, "", "expected a property"),
        ("REMOVE a = 1", FilterSyntaxError, "=", "expected ';', another statement"),
        ("UPDATE a = 1", FilterSyntaxError, "UPDATE", "expected SET or REMOVE"),
        ("a = 1", FilterSyntaxError, "a", "expected SET or REMOVE"),
        ("SET sys.Nope = 1", FilterTypeError, "sys.Nope", "there is no system property 'Nope'"),
        ("REMOVE sys.Nope", FilterTypeError, "sys.Nope", "there is no system property 'Nope'"),
        ("SET a = sys.Nope", FilterTypeError, "sys.Nope", "there is no system property 'Nope'"),
        ("SET sys.SequenceNumber = 1", FilterTypeError, "sys.SequenceNumber", "SequenceNumber is read-only"),
        ("REMOVE sys.EnqueuedTimeUtc", FilterTypeError, "sys.EnqueuedTimeUtc", "EnqueuedTimeUtc is read-only"),
        ("SET other.a = 1", FilterTypeError, "other.a", "found scope 'other'"),
        ("SET a = @x", FilterTypeError, "@x", "no value is given for the parameter @x"),
        ("SET a = " + "(1+" * 150 + "b" + ")" * 150, FilterLimitError, None, "nested deeper"),
    ],
)
def test_an_action_that_cannot_be_is_refused(
    text: str, kind: type[FilterError], found: str | None, reason: str
) -> None:
    with pytest.raises(kind) as refused:
        Action.parse(text)
    assert reason in refused.value.reason
    assert found is None or refused.value.token == found
    assert str(refused.value).startswith("servicebus action refused: ")


def test_an_action_has_at_most_32_expressions_and_1024_characters() -> None:
    Action.parse(" ".join(f"SET a{number} = 1" for number in range(32)))
    with pytest.raises(FilterLimitError, match="more than the 32 expressions") as refused:
        Action.parse(" ".join(f"SET a{number} = 1" for number in range(33)))
    assert refused.value.token == "SET a32 = 1"
    assert len(Action.parse("REMOVE a " * 40, limits=Limits(action_expressions=40)).statements) == 40
    with pytest.raises(FilterLimitError, match="1025 characters"):
        Action.parse("SET a = 1".ljust(1025))
    Action.parse("SET a = 1".ljust(1025), limits=Limits(action_characters=1025))


def test_parameters_of_an_action_are_checked() -> None:
    with pytest.raises(ConfigError, match="no value of Service Bus"):
        Action.parse("SET a = @x", parameters={"x": []})


def test_an_action_survives_pickling() -> None:
    action = Action.parse("SET a = @x; REMOVE b", parameters={"x": 5}, limits=Limits(property_bytes=100))
    copy = pickle.loads(pickle.dumps(action))
    assert copy == action and hash(copy) == hash(action) and copy != Action.parse("REMOVE b")
    assert repr(copy) == "<Action: SET a = @x; REMOVE b>"
    assert held(copy.apply(Message(b""), now_ms=0, identity=b""), "a") == of(AmqpType.LONG, 5)


_TARGETS = st.sampled_from(("n", "S", "t", "new", "sys.Label", "sys.TimeToLive", "sys.PartitionKey", "sys.SessionId"))
_EXPRESSIONS = st.sampled_from(
    (
        *("n", "n + 1", "s", "s + n", "t", "1", "2.5", "'x'", "missing", "NULL", "newid()", "price", "[x y] - price"),
        *("sys.Label", "sys.TimeToLive", "property(s)", "-n", "n / price"),
    )
)
_STATEMENTS = st.one_of(
    st.tuples(_TARGETS, _EXPRESSIONS).map(lambda parts: f"SET {parts[0]} = {parts[1]}"),
    _TARGETS.map(lambda target: f"REMOVE {target}"),
)


@given(st.lists(_STATEMENTS, min_size=1, max_size=5).map("; ".join), messages())
def test_an_action_gives_a_message_or_says_why_not(text: str, message: Message) -> None:
    before = message.encode()
    try:
        copy = applied(text, message)
    except EvaluationFailed as failed:
        copy = message
        if not str(failed):
            raise AssertionError("no cause") from failed
    copy.decode_all()
    assert message.encode() == before
    assert copy.body == message.body


@given(messages(), VALUES)
def test_a_property_that_is_set_and_removed_again_leaves_the_others_as_they_were(
    message: Message, value: AmqpValue
) -> None:
    with_source = message.with_changes([(FieldReference(Section.APPLICATION_PROPERTIES, key=b"source"), value)])
    try:
        copy = applied("SET copied = source", with_source)
    except EvaluationFailed:
        assert value.type in (AmqpType.LIST, AmqpType.DESCRIBED)
        return
    assert held(copy, "copied") == value
    assert applied("REMOVE Copied", copy) == with_source


def test_a_parameter_keeps_its_type_where_a_property_is_set_to_it_alone() -> None:
    for value in (of(AmqpType.INT, 2), of(AmqpType.FLOAT, 0.5), of(AmqpType.UBYTE, 7), of(AmqpType.SYMBOL, "x")):
        assert held(applied("SET n = @p", parameters={"p": value}), "n") == value
    assert held(applied("SET n = @p + 1", parameters={"p": of(AmqpType.INT, 2)}), "n") == of(AmqpType.LONG, 3)
    assert held(applied("SET n = @p", parameters={"p": None}), "n") == of(AmqpType.NULL, None)


def test_the_name_of_the_rule_counts_as_what_the_copy_holds() -> None:
    limits = Limits(properties_bytes=200)
    for size in range(100, 180):
        message = Message(b"", application_properties={"text": "x" * size})
        action = Action.parse("SET text = text", limits=limits)
        try:
            copy = action.apply(message, now_ms=0, identity=b"", rule="r" * 20)
        except EvaluationFailed:
            assert size > 130
            continue
        assert copy.section_bytes(Section.APPLICATION_PROPERTIES) <= limits.properties_bytes
        assert held(copy, "RuleName") == of(AmqpType.STRING, "r" * 20)
    with pytest.raises(EvaluationFailed, match="properties of"):
        action.apply(message, now_ms=0, identity=b"", rule="r" * 20)


def test_a_message_beyond_a_limit_may_have_the_name_of_a_rule_but_nothing_else() -> None:
    message = Message(b"", application_properties={"text": "x" * 300})
    limits = Limits(properties_bytes=200)
    copy = Action.parse("REMOVE other", limits=limits).apply(message, now_ms=0, identity=b"", rule="r")
    assert held(copy, "RuleName") == of(AmqpType.STRING, "r")
    with pytest.raises(EvaluationFailed, match="properties of"):
        Action.parse("SET other = 1", limits=limits).apply(message, now_ms=0, identity=b"", rule="r")
