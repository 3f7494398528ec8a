"""Requests and responses, in the encodings that clients send and read."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from headgate import errors
from headgate.errors import ConfigError, MessageError
from headgate.language.servicebus import DEFAULT_LIMITS
from headgate.message import AmqpArray, AmqpType, AmqpValue, Body, Message, amqp_value
from headgate.protocols.servicebus import (
    LOCK_LOST,
    CorrelationDescription,
    RequestMessage,
    RuleDescription,
    enumerated,
    guid_of,
    refusal_of,
    renewed,
    token_of,
    told_rule,
)
from headgate.protocols.servicebus.requests import (
    NO_CONTENT,
    AddRule,
    Disposition,
    EnumerateRules,
    GetSessionState,
    ListSessions,
    PeekMessages,
    PutToken,
    RemoveRule,
    RenewLocks,
    RenewSession,
    SetSessionState,
    UnknownOperation,
    UpdateDispositions,
)
from headgate.topic import Rule, RuleDefinition

GUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
TAG = bytes.fromhex("33221100554477668899aabbccddeeff")


def _request(operation: str, body: object, **fields: Any) -> RequestMessage:
    asked = {"operation": operation, **fields.pop("asked", {})}
    properties = {"message-id": fields.pop("identity", GUID), **fields}
    return RequestMessage(Message(Body.value(body), properties=properties, application_properties=asked).encode())


def _int(number: int) -> AmqpValue:
    return AmqpValue(AmqpType.INT, number)


def _array(*guids: uuid.UUID) -> AmqpValue:
    return AmqpValue(AmqpType.ARRAY, AmqpArray(AmqpType.UUID, tuple(map(amqp_value, guids))))


def test_a_lock_token_is_a_guid_in_the_order_of_dotnet() -> None:
    assert guid_of(TAG) == GUID and token_of(GUID) == TAG


def _time(milliseconds: int) -> AmqpValue:
    return AmqpValue(AmqpType.TIMESTAMP, milliseconds)


@pytest.mark.parametrize(
    ("operation", "body", "asked"),
    [
        (
            "peek-message",
            {"from-sequence-number": 7, "message-count": _int(3)},
            PeekMessages(7, 3, None),
        ),
        ("renew-lock", {"lock-tokens": _array(GUID)}, RenewLocks([TAG])),
        (
            "update-disposition",
            {
                "disposition-status": "suspended",
                "lock-tokens": _array(GUID, GUID),
                "deadletter-reason": "r",
                "deadletter-description": None,
            },
            UpdateDispositions(Disposition.SUSPENDED, [TAG, TAG], "r", None, {}, None),
        ),
        ("renew-session-lock", {"session-id": "s"}, RenewSession("s")),
        ("get-session-state", {"session-id": "s"}, GetSessionState("s")),
        ("set-session-state", {"session-id": "s", "session-state": b"x"}, SetSessionState("s", b"x")),
        ("set-session-state", {"session-id": "s", "session-state": None}, SetSessionState("s", None)),
        # Without a time clients say one that is behind all others.
        (
            "get-message-sessions",
            {"last-updated-time": _time(253_402_300_800_000), "skip": _int(2), "top": _int(9)},
            ListSessions(None, 2, 9),
        ),
        (
            "get-message-sessions",
            {"last-updated-time": _time(253_402_300_799_999)},
            ListSessions(253_402_300_799_999, 0, 100),
        ),
        ("remove-rule", {"rule-name": "red"}, RemoveRule("red")),
        ("enumerate-rules", {"top": _int(100), "skip": _int(2)}, EnumerateRules(100, 2)),
        ("enumerate-rules", {}, EnumerateRules(100, 0)),
        (
            "add-rule",
            # As JavaScript sends it: null for what is not set, symbols or strings as keys.
            {
                "rule-name": "red",
                "rule-description": AmqpValue(
                    AmqpType.MAP,
                    (
                        (AmqpValue(AmqpType.SYMBOL, "sql-filter"), amqp_value({"expression": "color = 'red'"})),
                        (amqp_value("correlation-filter"), amqp_value(None)),
                        (amqp_value("sql-rule-action"), amqp_value(None)),
                    ),
                ),
            },
            AddRule(RuleDescription("red", "color = 'red'")),
        ),
        (
            "add-rule",
            {
                "rule-name": "eu",
                "rule-description": {
                    "correlation-filter": {"label": "l", "to": None, "properties": {"n": _int(2)}},
                    "sql-rule-action": {"expression": "SET a = 1"},
                },
            },
            AddRule(RuleDescription("eu", CorrelationDescription({"label": "l"}, {"n": _int(2)}), "SET a = 1")),
        ),
        ("purge", {}, UnknownOperation("purge")),
    ],
)
def test_what_a_request_asks_for(operation: str, body: dict[str, object], asked: object) -> None:
    assert _request(f"com.microsoft:{operation}", body).operation() == asked


@pytest.mark.parametrize(
    ("operation", "body", "reason"),
    [
        ("peek-message", {"from-sequence-number": "7", "message-count": 1}, "from-sequence-number"),
        ("renew-lock", {"lock-tokens": []}, "lock-tokens"),
        ("renew-lock", {"lock-tokens": ["x"]}, "lock-tokens"),
        ("update-disposition", {"disposition-status": "done", "lock-tokens": _array(GUID)}, "disposition-status"),
        ("renew-session-lock", {}, "session-id"),
        ("set-session-state", {"session-id": "s", "session-state": "text"}, "session-state"),
        ("get-message-sessions", {"last-updated-time": "now"}, "last-updated-time"),
        ("add-rule", {"rule-name": "r", "rule-description": {}}, "one filter"),
        ("add-rule", {"rule-description": {"sql-filter": {"expression": "1=1"}}}, "rule-name"),
        ("add-rule", {"rule-name": "r", "rule-description": {"sql-filter": {}}}, "expression"),
        ("remove-rule", None, "body"),
    ],
)
def test_wrong_arguments_are_named(operation: str, body: object, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        _request(f"com.microsoft:{operation}", body).operation()


def test_bytes_that_are_no_message_are_no_request() -> None:
    with pytest.raises(MessageError):
        RequestMessage(b"\x00\x53\x77")


def test_a_token_is_looked_at_by_its_text_not_by_its_type() -> None:
    message = _request("put-token", "the token", asked={"type": "jwt", "name": "sb://h/e"})
    assert message.put_token() == PutToken("sb://h/e", "the token")
    for wrong in (_request("put-token", 1, asked={"name": "e"}), _request("other", "x", asked={"name": "e"})):
        with pytest.raises(ConfigError):
            wrong.put_token()


@pytest.mark.parametrize("identity", [GUID, "text", AmqpValue(AmqpType.ULONG, 7)])
def test_a_response_has_the_id_of_its_request_in_its_type(identity: object) -> None:
    for response in (
        _request("put-token", "t", identity=identity).claimed(),
        _request("x", {}, identity=identity).refused(LOCK_LOST),
    ):
        assert Message.decode(response).properties["correlation-id"] == amqp_value(identity)


def test_responses_say_what_clients_read() -> None:
    claimed = Message.decode(_request("put-token", "t").claimed()).application_properties
    assert claimed == {"status-code": _int(202), "status-description": amqp_value("Accepted")}
    asked = {"com.microsoft:tracking-id": "track"}
    refused = Message.decode(_request("x", {}, asked=asked).refused(LOCK_LOST))
    condition = AmqpValue(AmqpType.SYMBOL, "com.microsoft:message-lock-lost")
    assert refused.application_properties == {
        "statusCode": _int(410),
        "statusDescription": amqp_value(LOCK_LOST.text),
        "errorCondition": condition,
        "error-condition": condition,
        "com.microsoft:tracking-id": amqp_value("track"),
    }
    done = Message.decode(_request("x", {}).answered(renewed(2, 5), status=NO_CONTENT))
    assert done.application_properties["statusCode"] == _int(204)
    ((key, times),) = done.body.values()[0].value
    five = AmqpValue(AmqpType.TIMESTAMP, 5)
    assert (key.value, times.value) == ("expirations", AmqpArray(AmqpType.TIMESTAMP, (five, five)))


def _told(rule: RuleDescription) -> tuple[int, tuple[AmqpValue, ...]]:
    described = told_rule(rule).value
    assert described.descriptor.type is AmqpType.ULONG
    return described.descriptor.value, described.value.value


@pytest.mark.parametrize(
    ("rule", "filter_descriptor", "action_descriptor"),
    [
        (RuleDescription("r", "1=1"), 0x1370000007, 0x13700000005),
        (RuleDescription("r", " 1 = 0"), 0x1370000008, 0x13700000005),
        (RuleDescription("r", "a = 1", "SET b = 2"), 0x1370000006, 0x13700000006),
        (RuleDescription("r", CorrelationDescription({"to": "x"})), 0x1370000009, 0x13700000005),
    ],
)
def test_rules_are_told_by_numbers(rule: RuleDescription, filter_descriptor: int, action_descriptor: int) -> None:
    number, (filter_, action, name) = _told(rule)
    assert (number, name.value) == (0x13700000004, "r")
    assert number == 1335734829060 and filter_descriptor - 83483426822 in (0, 1, 2, 3)
    assert filter_.value.descriptor.value == filter_descriptor
    assert action.value.descriptor.value == action_descriptor


def test_a_rule_is_told_with_its_fields_in_order() -> None:
    correlation = CorrelationDescription({"message-id": "m", "content-type": "c"}, {"n": _int(2)})
    _, (filter_, action, _, created) = _told(RuleDescription("r", correlation, "SET a = 1", created_ms=9))
    *texts, properties = filter_.value.value.value
    assert [text.value for text in texts] == [None, "m", None, None, None, None, None, "c"]
    assert properties.value == ((amqp_value("n"), _int(2)),)
    assert action.value.value.value[0].value == "SET a = 1" and created == AmqpValue(AmqpType.TIMESTAMP, 9)
    ((key, rules),) = enumerated([told_rule(RuleDescription("r", "1=1"))]).items()
    assert key == "rules" and rules.value[0].value[0][0] == amqp_value("rule-description")


@pytest.mark.parametrize(
    ("error", "condition", "status", "text"),
    [
        (
            errors.ResourceNotFoundError("no", subject="o"),
            "amqp:not-found",
            404,
            "The messaging entity 'orders' could not be found.",
        ),
        (
            errors.RuleNotFoundError("no", topic="t", subscription="s", rule="r"),
            "amqp:not-found",
            404,
            "The messaging entity 'Topic:t|s|r' could not be found.",
        ),
        (
            errors.RuleExistsError("there", topic="t", subscription="s", rule="r"),
            "com.microsoft:entity-already-exists",
            409,
            "The messaging entity 'Topic:t|s|r' already exists.",
        ),
        (errors.RuleLimitError("too many", topic="t"), "amqp:resource-limit-exceeded", 403, "topic 't': too many"),
        (errors.AccessRefusedError("no right", subject="o"), "amqp:unauthorized-access", 401, "o: no right"),
        (errors.ConfigError("wrong"), "com.microsoft:argument-error", 400, "wrong"),
        (errors.UnsupportedError("not served"), "amqp:not-implemented", 501, "not served"),
        (errors.CorruptChunkError("broken", path="p"), "amqp:internal-error", 500, "p: broken"),
    ],
)
def test_errors_are_told_in_the_words_of_the_service(
    error: errors.HeadgateError, condition: str, status: int, text: str
) -> None:
    refusal = refusal_of(error, "orders")
    assert (refusal.condition, refusal.status, refusal.text) == (condition, status, text)


def test_a_wrong_expression_is_told_with_line_column_and_token() -> None:
    with pytest.raises(errors.RuleError) as caught:
        Rule.of(RuleDefinition("r", sql="a = 1\n AND == 2")).check(DEFAULT_LIMITS)
    refusal = refusal_of(caught.value)
    assert refusal.status == 400 and refusal.condition == "com.microsoft:argument-error"
    start = "There was an error parsing the SQL expression. [Token line=2, column="
    assert refusal.text.startswith(start) and "Token in error==" in refusal.text
