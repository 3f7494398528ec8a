"""`$management`: peeking, locks, dispositions, rules; in the encodings of the clients."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator

import pytest

from headgate.message import AmqpArray, AmqpType, AmqpValue, Body, Message, amqp_value
from headgate.protocols.amqp10.performatives import RECEIVER
from headgate.protocols.amqp10.terminus import Accepted, Rejected, Source, Target
from headgate.protocols.servicebus import guid_of
from server.amqp10_client import Client, client_of
from server.entities import ServedEntities
from server.running import RunningServer
from server.servicebus_client import Requests, bodies, peek_lock, settle
from server.tap import Tap
from waiting import LIMIT_S


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with client_of(server.ports["amqp"], mechanism="MSSBCBS", response=b"") as client:
        yield client


def _send(client: Client, address: str, *found: bytes, **properties: object) -> None:
    messages = [Message(body, application_properties=properties).encode() for body in found]
    assert set(map(type, client.send(client.sender(address), *messages))) == {Accepted}


def _int(number: int) -> AmqpValue:
    return AmqpValue(AmqpType.INT, number)


def _array(*guids: uuid.UUID) -> AmqpValue:
    return AmqpValue(AmqpType.ARRAY, AmqpArray(AmqpType.UUID, tuple(map(amqp_value, guids))))


def _received(client: Client, address: str, count: int) -> tuple[object, list[int], list[uuid.UUID]]:
    """A link with messages that came on it: their delivery ids, and their lock tokens as clients show them."""
    tap = client.socket
    link = peek_lock(client, address, credit=count)
    ids = [one.id for one in client.receive(link, count)]
    tags = [one.delivery_tag for one in tap.transfers() if one.handle == link.handle][-count:]
    return link, ids, [guid_of(tag) for tag in tags]


@pytest.fixture
def tapped(server: RunningServer) -> Iterator[Client]:
    tap = Tap(socket.create_connection(("127.0.0.1", server.ports["amqp"]), timeout=LIMIT_S))
    with client_of(server.ports["amqp"], connected=tap, mechanism="MSSBCBS", response=b"") as client:
        yield client


def test_peeking_shows_what_is_not_settled_from_a_number_on(
    client: Client, entities: ServedEntities, name: str
) -> None:
    entities.queue(name)
    _send(client, name, b"1", b"2", b"3")
    link = peek_lock(client, name, credit=1)
    client.receive(link, 1)
    requests = Requests(client, f"{name}/$management")

    def peek(start: int, count: int) -> list[Message]:
        status, found = requests.do("peek-message", from_sequence_number=start, message_count=_int(count))
        assert status in (200, 204)
        return [Message.decode(each["message"]) for each in found.get("messages", [])]

    found = peek(1, 2)
    assert [each.body.octets() for each in found] == [b"1", b"2"]
    numbers = [each.message_annotations["x-opt-sequence-number"].value for each in found]
    assert [each.body.octets() for each in peek(numbers[1] + 1, 5)] == [b"3"]
    assert peek(2**40, 5) == [] and "x-opt-locked-until" not in found[0].message_annotations
    assert requests.do("peek-message", from_sequence_number=1, message_count=_int(5), session_id="s")[0] == 400


def test_locks_are_renewed_by_their_tokens(tapped: Client, entities: ServedEntities, name: str) -> None:
    entities.queue(name, lock_ms=2_000)
    _send(tapped, name, b"1", b"2")
    link, ids, tokens = _received(tapped, name, 2)
    requests = Requests(tapped, f"{name}/$management")
    status, found = requests.do("renew-lock", lock_tokens=_array(*tokens))
    assert status == 200 and len(found["expirations"]) == 2 and found["expirations"][0] > 1_700_000_000_000
    assert settle(tapped, link, ids[0], ids[1], Accepted()) == Accepted()
    status, found = requests.do("renew-lock", lock_tokens=_array(tokens[0]))
    assert status == 410


@pytest.mark.parametrize(
    ("disposition", "address", "count"),
    [("completed", "", None), ("abandoned", "", 1), ("suspended", "/$DeadLetterQueue", 0), ("defered", "", None)],
)
def test_dispositions_count_whoever_says_them(
    tapped: Client, server: RunningServer, entities: ServedEntities, name: str, disposition: str, address: str,
    count: int | None,
) -> None:  # fmt: skip
    entities.queue(name)
    _send(tapped, name, b"1")
    link, ids, tokens = _received(tapped, name, 1)
    # From another connection: that of the link may be gone.
    with client_of(server.ports["amqp"], mechanism="ANONYMOUS", response=b"") as other:
        requests = Requests(other, f"{name}/$management")
        body = {
            "disposition_status": disposition, "lock_tokens": _array(*tokens),
            "deadletter_reason": "why", "deadletter_description": "because",
        }  # fmt: skip
        assert requests.do("update-disposition", **body) == (200, {})
        assert requests.do("update-disposition", **body)[0] == 410
        if count is not None:
            (again,) = other.receive(peek_lock(other, f"{name}{address}", credit=1), 1)
            assert again.message.header["delivery-count"].value == 1
        else:
            assert other.drain(peek_lock(other, f"{name}{address}", credit=0)) == []
    state = settle(tapped, link, ids[0], ids[0], Accepted())
    assert isinstance(state, Rejected) and state.error.condition == "com.microsoft:message-lock-lost"


def test_rules_are_added_listed_and_removed(client: Client, entities: ServedEntities, name: str) -> None:
    entities.topic(name, s=None)
    address = f"{name}/Subscriptions/s"
    requests = Requests(client, f"{name}/subscriptions/S/$management")
    status, found = requests.do("enumerate-rules", top=_int(100), skip=_int(0))
    assert status == 200 and len(found["rules"]) == 1
    correlation = {"correlation-filter": {"label": "red", "to": None, "properties": {"n": _int(2)}}}
    assert requests.do("add-rule", rule_name="red", rule_description=correlation) == (200, {})
    action = {"sql-filter": {"expression": "n > 5"}, "sql-rule-action": {"expression": "SET big = TRUE"}}
    assert requests.do("add-rule", rule_name="big", rule_description=action)[0] == 200
    assert requests.do("remove-rule", rule_name="$Default")[0] == 200
    # In force from the answer on.
    _send(client, name, b"1", n=1)
    _send(client, name, b"9", n=9)
    sender = client.sender(name)
    client.send(sender, Message(b"2", subject="red", application_properties={"n": 2}).encode())
    assert bodies(client, peek_lock(client, address), 2) == [b"9", b"2"]
    status, found = requests.do("enumerate-rules", top=_int(1), skip=_int(1))
    (rule,) = found["rules"]
    told = rule["rule-description"]
    assert told.descriptor == AmqpValue(AmqpType.ULONG, 1335734829060)
    filter_, action_, name_, created = told.value.value
    assert (filter_.value.descriptor.value, action_.value.descriptor.value) == (0x1370000006, 0x13700000006)
    assert name_ == amqp_value("big") and created.type is AmqpType.TIMESTAMP
    assert requests.do("enumerate-rules", top=_int(10), skip=_int(2)) == (204, {})


@pytest.mark.parametrize(
    ("operation", "body", "status", "condition", "text"),
    [
        (
            "add-rule",
            {"rule-name": "$default", "rule-description": {"sql-filter": {"expression": "1=1"}}},
            409,
            "com.microsoft:entity-already-exists",
            "The messaging entity 'Topic:",
        ),
        ("remove-rule", {"rule-name": "no"}, 404, "amqp:not-found", "The messaging entity 'Topic:"),
        (
            "add-rule",
            {"rule-name": "r", "rule-description": {"sql-filter": {"expression": "a ="}}},
            400,
            "com.microsoft:argument-error",
            "There was an error parsing the SQL expression. [Token line=1, column=4, Token in error=,",
        ),
        (
            "add-rule",
            {"rule-name": "r", "rule-description": {"sql-filter": {"expression": "a = '" + "x" * 1100 + "'"}}},
            400,
            "com.microsoft:argument-error",
            "",
        ),
        (
            "add-rule",
            {"rule-name": "r", "rule-description": {"correlation-filter": {"label": None}}},
            400,
            "com.microsoft:argument-error",
            "",
        ),
        ("add-rule", {"rule-name": "r", "rule-description": None}, 400, "com.microsoft:argument-error", ""),
        ("receive-by-sequence-number", {}, 501, "amqp:not-implemented", ""),
        ("schedule-message", {}, 501, "amqp:not-implemented", ""),
    ],
)
def test_what_is_refused_is_told_and_leaves_no_trace(
    client: Client,
    entities: ServedEntities,
    name: str,
    operation: str,
    body: object,
    status: int,
    condition: str,
    text: str,
) -> None:
    entities.topic(name, s=None)
    requests = Requests(client, f"{name}/Subscriptions/s/$management")
    found, told, properties = requests.ask(f"com.microsoft:{operation}", body)
    assert (found, told) == (status, {})
    assert properties["errorCondition"] == AmqpValue(AmqpType.SYMBOL, condition)
    assert properties["statusDescription"].value.startswith(text)
    assert len(requests.do("enumerate-rules")[1]["rules"]) == 1


def test_a_place_without_rules_or_messages_refuses_them(client: Client, entities: ServedEntities, name: str) -> None:
    entities.topic(name, s=None)
    requests = Requests(client, f"{name}/$management")
    assert requests.do("enumerate-rules")[0] == 400
    assert requests.do("peek-message", from_sequence_number=1, message_count=_int(1))[0] == 400


def test_responses_find_their_link_as_each_client_asks(client: Client, entities: ServedEntities, name: str) -> None:
    entities.queue(name)
    address = f"{name}/$management"
    by_target = Requests(client, address)
    by_name = client.attach(RECEIVER, name="by-name", source=Source(amqp_value(address)), target=Target())
    by_name.grant(5)
    body = {"from-sequence-number": 1, "message-count": _int(1)}
    for reply_to in ("by-name", None, by_target.reply_to):
        properties = {"message-id": "i"} | ({} if reply_to is None else {"reply-to": reply_to})
        asked = {"operation": "com.microsoft:peek-message"}
        message = Message(Body.value(body), properties=properties, application_properties=asked)
        by_target.requests.send(message.encode())
    assert len(client.receive(by_name, 2)) == 2 and len(client.receive(by_target.responses, 1)) == 1
