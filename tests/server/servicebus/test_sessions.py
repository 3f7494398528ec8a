"""Sessions of Service Bus's clients: who gets which, what waits, what a lock that ends leaves, and `$management`."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.message import AmqpArray, AmqpType, AmqpValue, Message, amqp_value
from headgate.protocols.amqp10 import Link
from headgate.protocols.amqp10.events import Detached
from headgate.protocols.amqp10.performatives import SETTLED, Detach, Flow
from headgate.protocols.amqp10.terminus import Accepted, Modified, RawEntry, Rejected, Released, Source
from headgate.protocols.servicebus import guid_of
from headgate.topic import RuleDefinition, TopicSettings, TopicStatus
from server.amqp10_client import Client, Received, client_of
from server.entities import ServedEntities
from server.running import RunningServer
from server.servicebus_client import (
    SESSION_FILTER,
    Requests,
    attach_session,
    bodies,
    peek_lock,
    refused,
    send_batch,
    session_link,
    session_of,
    settle,
)
from server.tap import Tap
from waiting import LIMIT_S

TICKS_BEFORE_1970 = 621_355_968_000_000_000
ANY_TIME = AmqpValue(AmqpType.TIMESTAMP, 253_402_300_800_000)


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with client_of(server.ports["amqp"], mechanism="ANONYMOUS", response=b"") as client:
        yield client


@pytest.fixture
def other(server: RunningServer) -> Iterator[Client]:
    with client_of(server.ports["amqp"], mechanism="ANONYMOUS", response=b"") as client:
        yield client


@pytest.fixture
def queue(entities: ServedEntities, name: str) -> str:
    return entities.queue(name, requires_session=True)


def _message(session: str | None, body: bytes = b"m") -> bytes:
    return Message(body, properties={"group-id": session}).encode()


def _send(client: Client, address: str, *sessions: str) -> None:
    """Messages of sessions; the body of each is its number."""
    messages = [_message(session, b"%d" % number) for number, session in enumerate(sessions)]
    assert set(map(type, client.send(client.sender(address), *messages))) == {Accepted}


def _leave(client: Client, link: Link) -> None:
    link.detach()
    client.pump(lambda: bool(client.of(Detached, link)))


def _counts(found: list[Received]) -> list[tuple[bytes, int]]:
    """Bodies, and how often each was delivered before."""
    return [(each.message.body.octets(), each.message.header["delivery-count"].value) for each in found]


def _listed(requests: Requests, updated: AmqpValue = ANY_TIME, skip: int = 0, top: int = 100) -> list[str]:
    page = {"skip": AmqpValue(AmqpType.INT, skip), "top": AmqpValue(AmqpType.INT, top)}
    status, found = requests.do("get-message-sessions", last_updated_time=updated, **page)
    assert (status, found.get("skip", skip)) in ((200, skip), (204, skip))
    return found.get("sessions-ids", [])


# who gets which


@pytest.mark.parametrize("descriptor", [None, SESSION_FILTER])
def test_a_link_has_one_session_and_says_which(client: Client, queue: str, descriptor: str | None) -> None:
    _send(client, queue, "b", "a", "b", "a", "a")
    before_ms = time.time() * 1000
    named, session = session_link(client, queue, "a", credit=10, descriptor=descriptor)
    free, of_next = session_link(client, queue.upper(), credit=10, descriptor=descriptor)
    assert (session, of_next) == ("a", "b")
    for link in (named, free):
        (entry,) = link.peer.source.filter
        assert entry.read().descriptor == (None if descriptor is None else AmqpValue(AmqpType.SYMBOL, descriptor))
    told = {key.value: value for key, value in named.peer.properties.value}["com.microsoft:locked-until-utc"]
    assert told.type is AmqpType.LONG
    until_ms = (told.value - TICKS_BEFORE_1970) // 10_000
    assert before_ms < until_ms < time.time() * 1000 + 60_001
    (first, *_) = found = client.receive(named, 3)
    assert [each.message.body.octets() for each in found] == [b"1", b"3", b"4"]
    assert first.message.message_annotations["x-opt-locked-until"].value == until_ms
    assert first.message.properties["group-id"] == amqp_value("a")
    assert bodies(client, free, 2) == [b"0", b"2"]


def test_messages_of_a_session_go_back_to_their_place(client: Client, queue: str) -> None:
    _send(client, queue, *"aaaa")
    link, _ = session_link(client, queue, "a")
    link.grant(2)
    first, second = client.receive(link, 2)
    assert settle(client, link, first.id, first.id, Modified(delivery_failed=True)) == Modified(delivery_failed=True)
    assert settle(client, link, second.id, second.id, Released()) == Released()
    found = client.drain(link)
    assert _counts(found) == [(b"0", 1), (b"1", 0), (b"2", 0), (b"3", 0)] and link.credit == 0
    assert settle(client, link, found[0].id, found[2].id, Accepted()) == Accepted()
    assert client.drain(link) == []
    _leave(client, link)
    again, _ = session_link(client, queue, "a")
    # Closing counts as no attempt.
    assert _counts(client.drain(again)) == [(b"3", 0)]


def test_what_is_received_and_deleted_is_gone(client: Client, queue: str) -> None:
    _send(client, queue, *"aab")
    link, session = session_link(client, queue, credit=1, snd_settle_mode=SETTLED, rcv_settle_mode=0)
    assert (session, bodies(client, link, 1)) == ("a", [b"0"])
    _leave(client, link)
    again, _ = session_link(client, queue, "a", snd_settle_mode=SETTLED, rcv_settle_mode=0)
    assert [each.message.body.octets() for each in client.drain(again)] == [b"1"]


def test_who_waits_for_a_session_keeps_nobody_waiting(client: Client, queue: str) -> None:
    waiting = [attach_session(client, queue) for _ in range(3)]
    # Credit may come before the answer.
    early = waiting[2]
    early.credit = 5
    early.session.send(Flow(0, 100, 0, 100, early.handle, None, 5))
    _send(client, queue, "x", "x")
    assert session_of(client, waiting[0], credit=5) == "x" and bodies(client, waiting[0], 2) == [b"0", b"1"]
    waiting[1].session.send(Detach(waiting[1].handle, True))
    client.pump(lambda: bool(client.of(Detached, waiting[1])))
    _send(client, queue, "y")
    assert session_of(client, waiting[2]) == "y" and bodies(client, waiting[2], 1) == [b"0"]
    _leave(client, waiting[0])
    assert session_link(client, queue)[1] == "x"


def test_who_is_gone_while_it_waited_has_no_session(
    client: Client, server: RunningServer, entities: ServedEntities, queue: str
) -> None:
    topic = server.context.broker.topics.get(queue)
    with client_of(server.ports["amqp"], mechanism="ANONYMOUS", response=b"") as gone:
        attach_session(gone, queue)
        Requests(gone, f"{queue}/$management").do("renew-session-lock", session_id="x")
        assert topic.subscriptions.info("$queue").receivers == 1
    while topic.subscriptions.info("$queue").receivers:
        Requests(client, f"{queue}/$management")
    _send(client, queue, "x")
    assert session_link(client, queue)[1] == "x"


# refusals


def test_sessions_that_are_not_to_be_had(client: Client, other: Client, entities: ServedEntities, queue: str) -> None:
    link, _ = session_link(client, queue, "a", wait_ms=1)
    held = attach_session(other, queue, "a")
    assert refused(other, held)[0] == "com.microsoft:session-cannot-be-locked"
    assert refused(other, attach_session(other, queue, wait_ms=1))[0] == "com.microsoft:timeout"
    # The time that was given to wait is over, and counts no more.
    assert client.drain(link) == [] and link.is_attached
    plain = entities.queue(f"{queue}-plain")
    for link in (
        peek_lock(other, queue),
        attach_session(other, plain, "a"),
        attach_session(other, queue, "a" * 513),
        attach_session(other, f"{queue}/$DeadLetterQueue", "a"),
        attach_session(other, f"{queue}/$Transfer/$DeadLetterQueue"),
    ):
        assert refused(other, link)[0] == "amqp:not-allowed"
    number = RawEntry.of(SESSION_FILTER, SESSION_FILTER, amqp_value(5))
    link = attach_session(other, queue, source=Source(amqp_value(queue), filter=(number,)))
    assert refused(other, link)[0] == "com.microsoft:argument-error"
    waiting = attach_session(other, entities.subscription(entities.topic(f"{queue}-t"), "s", requires_session=True))
    Requests(other, f"{queue}/$management")
    entities.change(f"{queue}-t", TopicSettings(status=TopicStatus.RECEIVE_DISABLED))
    assert refused(other, waiting)[0] == "com.microsoft:entity-disabled"


def test_a_queue_of_sessions_takes_no_message_without_one(client: Client, queue: str) -> None:
    link = client.sender(queue)
    taken, no_session = client.send(link, _message("a"), _message(None))
    assert taken == Accepted() and isinstance(no_session, Rejected)
    assert no_session.error.condition == "amqp:not-allowed"
    assert no_session.error.description.startswith("The SessionId was not set on a message")
    assert isinstance(send_batch(client, link, _message("a"), _message(None)), Rejected)
    assert len(client.drain(session_link(client, queue, "a")[0])) == 1


def test_a_subscription_makes_dead_letters_of_messages_without_a_session(
    client: Client, entities: ServedEntities, name: str
) -> None:
    entities.topic(name)
    act = RuleDefinition("act", sql="color = 'red'", action="SET sys.SessionId = 'acted'")
    acted = entities.subscription(name, "acted", act, requires_session=True)
    every = entities.subscription(name, "every", requires_session=True)
    red = Message(b"red", application_properties={"color": "red"}).encode()
    client.send(client.sender(name), red, _message("a", b"a"))
    for address, session, body in ((acted, "acted", b"red"), (every, "a", b"a")):
        link, found = session_link(client, address, credit=5)
        (one,) = client.receive(link, 1)
        assert (found, one.message.body.octets()) == (session, body)
        assert one.message.properties["group-id"] == amqp_value(session)
    (letter,) = client.receive(peek_lock(client, f"{every}/$DeadLetterQueue"), 1)
    assert letter.message.application_properties["DeadLetterReason"].value == "Session id is null"
    assert client.drain(peek_lock(client, f"{acted}/$DeadLetterQueue", credit=0)) == []


# locks


def test_a_lock_that_ends_ends_the_link(client: Client, other: Client, entities: ServedEntities, name: str) -> None:
    entities.queue(name, requires_session=True, lock_ms=1_000)
    _send(client, name, "a")
    link, _ = session_link(client, name, "a", credit=1)
    client.receive(link, 1)
    later = attach_session(other, name)
    requests = Requests(client, f"{name}/$management")
    assert client.detached(link)[0] == "com.microsoft:session-lock-lost"
    assert session_of(other, later) == "a" and _counts(other.drain(later)) == [(b"0", 1)]
    token = AmqpValue(AmqpType.LIST, (AmqpValue(AmqpType.UUID, uuid.uuid4()),))
    asked = {"disposition-status": "completed", "lock-tokens": token, "session-id": "a"}
    for operation, body in (
        ("renew-session-lock", {"session-id": "a"}),
        ("get-session-state", {"session-id": "a"}),
        ("set-session-state", {"session-id": "a", "session-state": b"x"}),
        ("update-disposition", asked),
    ):
        status, _, told = requests.ask(f"com.microsoft:{operation}", body)
        assert (status, told["errorCondition"].value) == (410, "com.microsoft:session-lock-lost")


def test_a_lock_is_renewed_for_all_messages_of_the_session(client: Client, queue: str) -> None:
    _send(client, queue, "a")
    link, _ = session_link(client, queue, "a", credit=1)
    (first,) = client.receive(link, 1)
    until_ms = first.message.message_annotations["x-opt-locked-until"].value
    requests = Requests(client, f"{queue}/$management")
    while (renewed := requests.do("renew-session-lock", session_id="a")) == (200, {"expiration": until_ms}):
        """The clock has not gone on."""
    assert renewed[0] == 200 and until_ms < renewed[1]["expiration"] < time.time() * 1000 + 60_001
    client.send(client.sender(queue), _message("a", b"later"))
    (later,) = client.drain(link)
    assert later.message.message_annotations["x-opt-locked-until"].value == renewed[1]["expiration"]


# `$management`


def test_the_state_of_a_session_is_kept(client: Client, other: Client, queue: str) -> None:
    link, _ = session_link(client, queue, "a")
    requests = Requests(client, f"{queue}/$management")
    assert requests.do("get-session-state", session_id="a") == (200, {"session-state": None})
    assert requests.do("set-session-state", session_id="a", session_state=b"\0state") == (200, {})
    assert requests.do("get-session-state", session_id="a") == (200, {"session-state": b"\0state"})
    assert Requests(other, f"{queue}/$management").do("get-session-state", session_id="a")[0] == 410
    assert requests.do("set-session-state", session_id="a", session_state="text")[0] == 400
    _leave(client, link)
    session_link(other, queue, "a")
    requests = Requests(other, f"{queue}/$management")
    assert requests.do("get-session-state", session_id="a") == (200, {"session-state": b"\0state"})
    assert requests.do("set-session-state", session_id="a", session_state=None) == (200, {})
    assert requests.do("get-session-state", session_id="a") == (200, {"session-state": None})


def test_sessions_are_listed_and_peeked(client: Client, entities: ServedEntities, queue: str) -> None:
    _send(client, queue, "c", "a", "b", "a")
    requests = Requests(client, f"{queue}/$management")
    began = AmqpValue(AmqpType.TIMESTAMP, int(time.time() * 1000) - 1)
    assert (_listed(requests), _listed(requests, began)) == (["a", "b", "c"], [])
    assert (_listed(requests, skip=1, top=1), _listed(requests, skip=3)) == (["b"], [])
    session_link(client, queue, "d")
    requests.do("set-session-state", session_id="d", session_state=b"x")
    assert (_listed(requests), _listed(requests, began)) == (["a", "b", "c", "d"], ["d"])

    def peek(session: str, start: int = 1) -> list[bytes]:
        asked = {"from_sequence_number": start, "message_count": AmqpValue(AmqpType.INT, 9), "session_id": session}
        status, found = requests.do("peek-message", **asked)
        assert status == (200 if found else 204)
        return [Message.decode(each["message"]).body.octets() for each in found.get("messages", [])]

    link, _ = session_link(client, queue, "a", credit=1)
    (first,) = client.receive(link, 1)
    assert peek("a") == [b"1", b"3"] and peek("b") == [b"2"] and peek("d") == []
    number = first.message.message_annotations["x-opt-sequence-number"].value
    assert peek("a", number + 1) == [b"3"]
    plain = Requests(client, f"{entities.queue(f'{queue}-plain')}/$management")
    assert plain.do("get-message-sessions", last_updated_time=ANY_TIME)[0] == 400


def test_messages_of_a_session_are_settled_by_management(
    server: RunningServer, entities: ServedEntities, queue: str
) -> None:
    tap = Tap(socket.create_connection(("127.0.0.1", server.ports["amqp"]), timeout=LIMIT_S))
    with client_of(server.ports["amqp"], connected=tap, mechanism="MSSBCBS", response=b"") as client:
        _send(client, queue, "a", "a", "a", "b")
        link, _ = session_link(client, queue, "a", credit=3)
        client.receive(link, 3)
        tokens = [guid_of(one.delivery_tag) for one in tap.transfers() if one.handle == link.handle]
        requests = Requests(client, f"{queue}/$management")

        def settle_by(status: str, guid: uuid.UUID, session: str | None) -> int:
            array = AmqpValue(AmqpType.ARRAY, AmqpArray(AmqpType.UUID, (amqp_value(guid),)))
            asked = {"disposition_status": status, "lock_tokens": array, "session_id": session}
            return requests.do("update-disposition", **asked)[0]

        assert settle_by("completed", tokens[0], "b") == 410
        assert settle_by("completed", tokens[0], None) == 400
        assert [settle_by("completed", tokens[0], "a") for _ in range(2)] == [200, 410]
        assert settle_by("abandoned", tokens[1], "a") == 200
        assert settle_by("suspended", tokens[2], "a") == 200
        assert _counts(client.drain(link)) == [(b"1", 1)]
        assert bodies(client, peek_lock(client, f"{queue}/$DeadLetterQueue"), 1) == [b"2"]


def test_deferred_messages_are_received_by_who_has_their_session(client: Client, queue: str) -> None:
    _send(client, queue, "a", "b")
    links = {each: session_link(client, queue, each, credit=1)[0] for each in "ab"}
    for link in links.values():
        (one,) = client.receive(link, 1)
        settle(client, link, one.id, one.id, Modified(None, True))
    requests = Requests(client, f"{queue}/$management")
    longs = tuple(AmqpValue(AmqpType.LONG, (number << 20) + 1) for number in range(2))
    numbers = AmqpValue(AmqpType.ARRAY, AmqpArray(AmqpType.LONG, longs))

    def receive(session: str | None) -> tuple[int, list[bytes], list[uuid.UUID]]:
        status, found = requests.do("receive-by-sequence-number", sequence_numbers=numbers, session_id=session)
        messages = found.get("messages", [])
        bodies = [Message.decode(each["message"]).body.octets() for each in messages]
        return status, bodies, [each["lock-token"] for each in messages]

    assert [receive(each)[0] for each in (None, "no")] == [400, 410]
    status, found, (token,) = receive("b")
    assert (status, found) == (200, [b"1"])
    array = AmqpValue(AmqpType.ARRAY, AmqpArray(AmqpType.UUID, (amqp_value(token),)))
    asked = {"disposition_status": "completed", "lock_tokens": array, "session_id": "b"}
    assert [requests.do("update-disposition", **asked)[0] for _ in range(2)] == [200, 410]
    _, peeked = requests.do("peek-message", from_sequence_number=1, message_count=9, session_id="a")
    (message,) = peeked["messages"]
    assert Message.decode(message["message"]).message_annotations["x-opt-message-state"].value == 1


def test_a_request_of_a_receiver_is_for_its_session_if_it_names_the_link_alone(
    client: Client, entities: ServedEntities, queue: str
) -> None:
    _send(client, queue, "a", "a", "b")
    link, _ = session_link(client, queue, "a", credit=1)
    (one,) = client.receive(link, 1)
    settle(client, link, one.id, one.id, Modified(None, True))
    requests = Requests(client, f"{queue}/$management")

    def ask(operation: str, link_name: str, **body: object) -> tuple[int, dict[str, Any]]:
        named = {name.replace("_", "-"): value for name, value in body.items()}
        return requests.ask(f"com.microsoft:{operation}", named, **{"associated-link-name": link_name})[:2]

    def peek(link_name: str) -> list[bytes]:
        _, found = ask("peek-message", link_name, from_sequence_number=1, message_count=9)
        return [Message.decode(each["message"]).body.octets() for each in found["messages"]]

    assert (peek(link.name), peek("of another")) == ([b"0", b"1"], [b"0", b"1", b"2"])
    numbers = AmqpValue(AmqpType.ARRAY, AmqpArray(AmqpType.LONG, (AmqpValue(AmqpType.LONG, 1),)))
    assert ask("receive-by-sequence-number", "of another", sequence_numbers=numbers)[0] == 400
    _, found = ask("receive-by-sequence-number", link.name, sequence_numbers=numbers)
    (token,) = (each["lock-token"] for each in found["messages"])
    tokens = AmqpValue(AmqpType.ARRAY, AmqpArray(AmqpType.UUID, (amqp_value(token),)))
    assert ask("update-disposition", link.name, disposition_status="completed", lock_tokens=tokens)[0] == 200
    assert peek(link.name) == [b"1"]
