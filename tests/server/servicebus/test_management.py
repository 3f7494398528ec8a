"""`$management`: peeking, locks, dispositions, rules; in the encodings of the clients."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator

import pytest

from headgate.broker import AUDIT_STREAM, read_audit
from headgate.message import AmqpArray, AmqpType, AmqpValue, Body, Message, amqp_value
from headgate.protocols.amqp10 import Link
from headgate.protocols.amqp10.performatives import RECEIVER
from headgate.protocols.amqp10.terminus import Accepted, Modified, Rejected, Source, Target
from headgate.protocols.servicebus import guid_of
from server.amqp10_client import Client, client_of
from server.entities import ServedEntities
from server.running import RunningServer
from server.servicebus_client import Requests, bodies, peek_lock, settle
from server.tap import Tap
from waiting import LIMIT_S

_SCHEDULED = "x-opt-scheduled-enqueue-time"


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


def _received_here(client: Client, address: str, count: int) -> tuple[Link, list[int]]:
    """A link with messages that came on it, and their delivery ids."""
    link = peek_lock(client, address, credit=count)
    return link, [one.id for one in client.receive(link, count)]


def _longs(*numbers: int) -> AmqpValue:
    members = tuple(AmqpValue(AmqpType.LONG, number) for number in numbers)
    return AmqpValue(AmqpType.ARRAY, AmqpArray(AmqpType.LONG, members))


def _map(**given: str) -> AmqpValue:
    pairs = tuple((AmqpValue(AmqpType.SYMBOL, name), amqp_value(text)) for name, text in given.items())
    return AmqpValue(AmqpType.MAP, pairs)


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


def test_deferred_messages_are_received_by_number_and_settled_by_token(
    client: Client, entities: ServedEntities, name: str
) -> None:
    entities.queue(name, lock_ms=30_000)
    _send(client, name, b"0", b"1", b"2")
    link, ids = _received_here(client, name, 3)
    settle(client, link, ids[1], ids[2], Modified(True, True, _map(color="red")))
    requests = Requests(client, f"{name}/$management")
    numbers = [(place << 20) + 1 for place in range(3)]

    def receive(*found: int, mode: AmqpValue) -> tuple[int, list[tuple[uuid.UUID, Message]]]:
        status, told = requests.do(
            "receive-by-sequence-number", sequence_numbers=_longs(*found), receiver_settle_mode=mode
        )
        return status, [(each["lock-token"], Message.decode(each["message"])) for each in told.get("messages", [])]

    status, found = receive(*numbers, mode=AmqpValue(AmqpType.UINT, 1))
    assert status == 200 and [each.body.octets() for _, each in found] == [b"1", b"2"]
    token, message = found[0]
    # Go's client takes the token from the message, the others from beside it.
    assert [each.delivery_annotations for _, each in found] == [
        {"x-opt-lock-token": amqp_value(each)} for each, _ in found
    ]
    told = {key: value.value for key, value in message.message_annotations.items()}
    assert (told["x-opt-sequence-number"], told["x-opt-message-state"]) == (numbers[1], 1)
    assert told["x-opt-locked-until"] > told["x-opt-enqueued-time"] and len(told) == 5
    assert message.header["delivery-count"].value == 1
    assert message.application_properties["color"] == amqp_value("red")
    assert receive(*numbers, mode=AmqpValue(AmqpType.UBYTE, 1)) == (404, [])
    assert requests.do("renew-lock", lock_tokens=_array(token, found[1][0]))[0] == 200

    def update(status: str, token: uuid.UUID, **more: object) -> int:
        return requests.do("update-disposition", disposition_status=status, lock_tokens=_array(token), **more)[0]

    assert update("abandoned", token, properties_to_modify={"color": "blue", "n": _int(1)}) == 200
    assert update("abandoned", token) == 410
    _, ((token, message),) = receive(numbers[1], mode=_int(1))
    assert message.header["delivery-count"].value == 2
    assert message.application_properties == {"color": amqp_value("blue"), "n": _int(1)}
    assert update("defered", token, properties_to_modify={"n": [1]}) == 400
    assert update("suspended", token, deadletter_reason="why", deadletter_description="because") == 200
    assert update("completed", found[1][0]) == 200
    (letter,) = client.receive(peek_lock(client, f"{name}/$DeadLetterQueue"), 1)
    assert letter.message.application_properties["DeadLetterReason"] == amqp_value("why")
    assert letter.message.message_annotations["x-opt-enqueue-sequence-number"].value == numbers[1]
    # Received and deleted.
    settle(client, link, ids[0], ids[0], Modified(None, True))
    (_, ((_, message),)) = receive(numbers[0], mode=_int(0))
    assert message.body.octets() == b"0" and "x-opt-locked-until" not in message.message_annotations
    assert message.delivery_annotations is None
    assert receive(numbers[0], mode=_int(0))[0] == 404


def test_messages_are_scheduled_peeked_and_canceled(
    client: Client, server: RunningServer, entities: ServedEntities, name: str
) -> None:
    entities.queue(name)
    requests = Requests(client, f"{name}/$management")
    late = AmqpValue(AmqpType.TIMESTAMP, 4_000_000_000_000)
    given = [
        {"message-id": str(number), "message": Message(b"%d" % number, message_annotations={_SCHEDULED: late}).encode()}
        for number in range(3)
    ]
    _send(client, name, b"before")
    status, told = requests.do("schedule-message", messages=given)
    numbers = told["sequence-numbers"]
    assert status == 200 and numbers == sorted(set(numbers)) and len(numbers) == 3
    _send(client, name, b"behind")

    def peek(start: int, count: int) -> list[Message]:
        _, found = requests.do("peek-message", from_sequence_number=start, message_count=_int(count))
        return [Message.decode(each["message"]) for each in found.get("messages", [])]

    found = peek(1, 10)
    assert [each.body.octets() for each in found] == [b"before", b"0", b"1", b"2", b"behind"]
    annotations = [each.message_annotations for each in found]
    assert [each["x-opt-sequence-number"].value for each in annotations[1:4]] == numbers
    assert [each["x-opt-message-state"].value for each in annotations] == [0, 2, 2, 2, 0]
    assert annotations[1][_SCHEDULED] == late and len(annotations[1]) == 5
    assert [each.body.octets() for each in peek(numbers[1], 2)] == [b"1", b"2"]
    counts = server.call(lambda: server.context.broker.entities.find(name).counts())
    assert (counts.active, counts.scheduled) == (2, 3)
    assert requests.do("cancel-scheduled-message", sequence_numbers=_longs(numbers[0], numbers[0] + 99))[0] == 404
    assert requests.do("cancel-scheduled-message", sequence_numbers=_longs(numbers[0], numbers[2])) == (200, {})
    assert requests.do("cancel-scheduled-message", sequence_numbers=_longs(numbers[0]))[0] == 404
    assert [each.body.octets() for each in peek(1, 10)] == [b"before", b"1", b"behind"]
    # What is due is there at once.
    past = Message(b"now", message_annotations={_SCHEDULED: AmqpValue(AmqpType.TIMESTAMP, 1)}).encode()
    assert requests.do("schedule-message", messages=[{"message": past}])[0] == 200
    (_, _, now) = client.receive(peek_lock(client, name), 3)
    assert now.message.body.octets() == b"now"
    dead = Requests(client, f"{name}/$DeadLetterQueue/$management")
    assert dead.do("schedule-message", messages=given)[0] == 400


def test_messages_are_deleted_in_batches(client: Client, entities: ServedEntities, name: str) -> None:
    entities.queue(name)
    _send(client, name, *(b"%d" % number for number in range(5)))
    link, ids = _received_here(client, name, 2)
    settle(client, link, ids[1], ids[1], Rejected())
    requests = Requests(client, f"{name}/$management")
    dead = Requests(client, f"{name}/$DeadLetterQueue/$management")
    past, future = (AmqpValue(AmqpType.TIMESTAMP, moment) for moment in (1_000, 4_000_000_000_000))

    def delete(requests: Requests, count: int, **more: object) -> tuple[int, object]:
        return requests.do("batch-delete-messages", message_count=_int(count), **more)

    assert delete(requests, 9, enqueued_time_utc=past) == delete(dead, 9, enqueued_time_utc=past) == (204, {})
    assert delete(requests, 1, enqueued_time_utc=future) == (200, {"message-count": 1})
    assert delete(requests, 4_000) == (200, {"message-count": 2})
    assert delete(dead, 4_000, enqueued_time_utc=future) == (200, {"message-count": 1})
    assert delete(requests, 4_000) == delete(dead, 1) == (204, {})
    # The one with a lock is still there.
    assert settle(client, link, ids[0], ids[0], Accepted()) == Accepted()


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
    broker = entities.server.context.broker
    entries = read_audit(entities.server.call(lambda: broker.catalogue.get(AUDIT_STREAM)).stream)
    changes = [(row.action, row.subject, row.outcome) for row in entries if row.subject.startswith(f"{name}/")]
    assert changes == [
        ("rule.create", f"{address}/Rules/red", "done"),
        ("rule.create", f"{address}/Rules/big", "done"),
        ("rule.delete", f"{address}/Rules/$Default", "done"),
    ]


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
        ("receive-by-sequence-number", {}, 400, "com.microsoft:argument-error", "sequence-numbers"),
        (
            "receive-by-sequence-number",
            {"sequence-numbers": [1], "receiver-settle-mode": 2},
            400,
            "com.microsoft:argument-error",
            "receiver-settle-mode",
        ),
        ("receive-by-sequence-number", {"sequence-numbers": [1]}, 404, "com.microsoft:message-not-found", ""),
        ("schedule-message", {"messages": []}, 400, "com.microsoft:argument-error", "messages"),
        ("schedule-message", {"messages": [{"message": b"x"}]}, 400, "com.microsoft:argument-error", ""),
        ("batch-delete-messages", {"message-count": 4_001}, 400, "com.microsoft:argument-out-of-range", ""),
        ("get-message-sessions-of", {}, 501, "amqp:not-implemented", ""),
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
