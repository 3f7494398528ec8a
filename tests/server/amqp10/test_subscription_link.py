"""Links that read subscriptions: outcomes, what comes back when a link ends, drain, management of their queues."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.broker.users import Permissions
from headgate.errors import StorageFullError
from headgate.log import Writer
from headgate.message import Message, amqp_value
from headgate.protocols.amqp10 import (
    Accepted,
    ConnectionSettings,
    DeliveryState,
    Error,
    Modified,
    RawEntry,
    Rejected,
    Released,
)
from headgate.protocols.amqp10.events import Ended, StateChanged
from headgate.protocols.amqp10.performatives import RECEIVER, SECOND, SETTLED, Disposition
from headgate.topic import CreateSubscription, RemoveSubscription, SubscriptionSettings
from server.amqp10_client import Client, Management, Received, client_of, rabbitmq_handler
from server.running import RunningServer, running_server
from server.subscriptions import ServedTopic, address, served_topic
from waiting import eventually

FIRST = RawEntry.of("offset", "rabbitmq:stream-offset-spec", amqp_value("first"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("server"), handlers={"amqp": rabbitmq_handler}) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with client_of(server.ports["amqp"]) as client:
        yield client


@pytest.fixture
def topic(server: RunningServer) -> ServedTopic:
    return served_topic(server, f"shop/orders-{uuid.uuid4()}")


def publish(client: Client, topic: ServedTopic, *colors: str) -> None:
    """One message for each color, numbered from 0."""
    link = client.sender(address(topic.name))
    messages = [
        Message(b"%d" % number, properties={"subject": "order"}, application_properties={"color": color})
        for number, color in enumerate(colors)
    ]
    assert client.send(link, *messages) == [Accepted()] * len(messages)


def settle(client: Client, received: Received, state: DeliveryState | None, *, settled: bool = True) -> None:
    (session,) = client.connection.sessions
    session.send(Disposition(RECEIVER, received.id, received.id, settled, state))
    client.flush()


def bodies(received: list[Received]) -> list[bytes]:
    return [one.message.body.octets() for one in received]


def delivery(received: Received) -> tuple[int, bool, object]:
    """How often its delivery failed before: by the header, whether nobody had it, by the annotation."""
    header = {name: value.value for name, value in received.message.header.items()}
    count = received.message.message_annotations.get("x-delivery-count")
    return header["delivery-count"], header["first-acquirer"], count and count.value


def test_a_receiver_gets_the_copies_of_a_subscription_with_the_action_applied(client, topic):
    publish(client, topic, "red", "blue", "red")
    link = client.receiver(address(topic.queue), credit=10)
    received = client.receive(link, 2)
    assert bodies(received) == [b"0", b"2"]
    first = received[0].message
    assert {name: value.value for name, value in first.application_properties.items()} == {
        "color": "red",
        "priority": "high",
        "RuleName": "Red",
    }
    assert first.properties["subject"] == amqp_value("order")
    assert {name: value.value for name, value in first.message_annotations.items()} == {
        "x-exchange": "",
        "x-routing-key": topic.name,
    }
    assert delivery(received[0]) == (0, True, None)


def test_the_answer_to_an_attach_is_that_of_a_queue_and_has_no_filters(client, topic):
    link = client.receiver(address(topic.queue), filters=(FIRST,), name="mine")
    source = link.peer.source
    assert source.filter == ()
    assert source.address == amqp_value(address(topic.queue))
    assert (source.distribution_mode, source.capabilities, source.default_outcome) == ("move", None, Released())
    assert source.outcomes[0] == "amqp:accepted:list"
    assert link.peer.offered_capabilities is None
    assert (link.peer.initial_delivery_count, link.peer.rcv_settle_mode, link.peer.snd_settle_mode) == (0, 0, 0)


ERROR = Error("shop:unreadable", "no such article")


@pytest.mark.parametrize(
    ("state", "counts"),
    [(Accepted(), (0, 0, 0)), (Rejected(ERROR), (0, 0, 1)), (Modified(undeliverable_here=True), (0, 0, 1))],
)
def test_an_outcome_that_ends_a_copy(client, topic, state, counts):
    publish(client, topic, "red")
    link = client.receiver(address(topic.queue), credit=2)
    (received,) = client.receive(link, 1)
    settle(client, received, state)
    eventually(lambda: topic.counts() == counts)


@pytest.mark.parametrize(
    ("state", "found"),
    [
        (Released(), (0, True, None)),
        (Modified(), (0, True, None)),
        (None, (0, True, None)),
        (Modified(delivery_failed=True), (1, False, 1)),
    ],
)
def test_an_outcome_after_which_a_copy_comes_again(client, topic, state, found):
    publish(client, topic, "red")
    link = client.receiver(address(topic.queue), credit=2)
    (received,) = client.receive(link, 1)
    settle(client, received, state)
    (again,) = client.receive(link, 1)
    assert (bodies([again]), delivery(again)) == ([b"0"], found)


def test_an_unsettled_disposition_is_answered_when_it_is_on_disk(client, topic):
    publish(client, topic, "red")
    (received,) = client.receive(client.receiver(address(topic.queue), credit=1), 1)
    settle(client, received, Accepted(), settled=False)
    client.pump(lambda: any(not event.received for event in client.of(StateChanged)))
    (told,) = [event for event in client.of(StateChanged) if not event.received]
    assert (told.first, told.settled, told.state) == (received.id, True, Accepted())
    assert topic.counts() == (0, 0, 0)


def test_what_is_rejected_is_read_from_the_dead_letters_and_rejected_there_it_is_done_with(client, topic):
    publish(client, topic, "red")
    (received,) = client.receive(client.receiver(address(topic.queue), credit=1), 1)
    settle(client, received, Rejected(ERROR))
    link = client.receiver(address(topic.dead_letters), credit=1)
    (dead,) = client.receive(link, 1)
    properties = {name: value.value for name, value in dead.message.application_properties.items()}
    assert properties == {
        "color": "red",
        "priority": "high",
        "RuleName": "Red",
        "DeadLetterReason": "shop:unreadable",
        "DeadLetterErrorDescription": "no such article",
    }
    assert topic.depth(topic.dead_letters) == (0, 1)
    settle(client, dead, Rejected(ERROR))
    eventually(lambda: topic.counts() == (0, 0, 0))


def test_a_copy_that_fails_too_often_is_a_dead_letter(client, server):
    topic = served_topic(server, f"t-{uuid.uuid4()}", SubscriptionSettings(max_delivery_count=2))
    publish(client, topic, "red")
    link = client.receiver(address(topic.queue), credit=9)
    for failed in range(2):
        (received,) = client.receive(link, 1)
        assert delivery(received)[0] == failed
        settle(client, received, Modified(delivery_failed=True))
    eventually(lambda: topic.counts() == (0, 0, 1))


def test_copies_of_a_settled_link_are_gone(client, topic):
    publish(client, topic, "red", "red", "red")
    link = client.receiver(address(topic.queue), credit=2, snd_settle_mode=SETTLED)
    assert link.peer.snd_settle_mode == SETTLED
    assert bodies(client.receive(link, 2)) == [b"0", b"1"]
    assert topic.counts() == (1, 0, 0)


def test_credit_is_what_a_link_is_given(client, topic):
    publish(client, topic, *["red"] * 5)
    link = client.receiver(address(topic.queue), credit=2)
    assert bodies(client.receive(link, 2)) == [b"0", b"1"]
    assert topic.counts() == (3, 2, 0)
    link.grant(1)
    assert bodies(client.receive(link, 1)) == [b"2"]
    assert topic.counts() == (2, 3, 0)


def test_a_drained_link_gets_what_there_is_and_its_credit_back(client, topic):
    link = client.receiver(address(topic.queue))
    assert client.drain(link) == []
    publish(client, topic, "red", "blue", "red")
    assert bodies(client.drain(link)) == [b"0", b"2"]
    assert client.drain(link, credit=5) == []
    publish(client, topic, "red")
    assert bodies(client.drain(link, credit=1)) == [b"0"]


def test_what_a_detached_link_had_goes_to_the_next_one(client, topic):
    publish(client, topic, "red", "red")
    first = client.receiver(address(topic.queue), credit=5)
    second = client.receiver(address(topic.queue), credit=5)
    received = client.receive(first, 2)
    settle(client, received[0], Accepted())
    first.detach()
    (again,) = client.receive(second, 1)
    assert (bodies([again]), delivery(again)) == ([b"1"], (0, True, None))


@pytest.mark.parametrize("how", ["session", "connection"])
def test_what_was_unsettled_when_all_ended_counts_as_an_attempt(server, client, topic, how):
    publish(client, topic, "red")
    with client_of(server.ports["amqp"]) as other:
        other.receive(other.receiver(address(topic.queue), credit=5), 1)
        if how == "session":
            other.connection.sessions[0].end()
            other.pump(lambda: bool(other.of(Ended)))
    (again,) = client.receive(client.receiver(address(topic.queue), credit=1), 1)
    assert delivery(again) == (1, False, 1)


def test_receivers_share_a_subscription(client, topic):
    links = [client.receiver(address(topic.queue), credit=5) for _ in range(2)]
    publish(client, topic, *["red"] * 4)
    client.pump(lambda: len(client.messages) == 4)
    assert [len(client.receive(link, 0)) for link in links] == [2, 2]


def test_a_receiver_gets_no_message_that_is_larger_than_it_takes(client, topic):
    publish(client, topic, "red", "red")
    link = client.receiver(address(topic.queue), max_message_size=20, credit=5)
    assert client.detached(link)[0] == "amqp:link:message-size-exceeded"
    received = client.receive(client.receiver(address(topic.queue), credit=5), 2)
    assert [delivery(one)[0] for one in received] == [1, 0]


@pytest.mark.parametrize("what", ["topic", "subscription"])
def test_links_end_with_what_they_read(client, topic, what):
    publish(client, topic, "red")
    link = client.receiver(address(topic.queue), credit=5)
    dead = client.receiver(address(topic.dead_letters), credit=5)
    client.receive(link, 1)
    if what == "topic":
        topic.delete()
    else:
        topic.change(RemoveSubscription("red"))
    assert client.detached(link)[0] == "amqp:resource-deleted"
    assert client.detached(dead)[0] == "amqp:resource-deleted"
    assert client.receiver(address(topic.queue)).is_attached is False


def test_what_a_client_holds_stays_its_own_beyond_the_lock_time(client, server):
    topic = served_topic(server, f"t-{uuid.uuid4()}", SubscriptionSettings(lock_ms=1000))
    publish(client, topic, "red")
    (received,) = client.receive(client.receiver(address(topic.queue), credit=1), 1)
    clock = server.context.clock
    deadline = clock.now_ms() + 1500
    server.until(lambda: clock.now_ms() > deadline)
    assert topic.counts() == (0, 1, 0)
    settle(client, received, Accepted())
    eventually(lambda: topic.counts() == (0, 0, 0))


def test_links_that_are_refused(client, topic, server):
    for found, condition in (
        (f"{topic.name}/Subscriptions/blue", "amqp:not-found"),
        ("nothing/Subscriptions/red", "amqp:not-found"),
    ):
        assert client.detached(client.receiver(address(found)))[0] == condition
    link = client.receiver(address(topic.queue), rcv_settle_mode=SECOND)
    assert client.detached(link)[0] == "amqp:not-implemented"
    topic.change(CreateSubscription("ordered", settings=SubscriptionSettings(requires_session=True)))
    link = client.receiver(address(f"{topic.name}/Subscriptions/ordered"))
    assert client.detached(link)[0] == "amqp:precondition-failed"
    assert client.detached(client.sender(address(topic.queue)))[0] == "amqp:not-found"
    users = server.context.broker.users
    server.call(users.add, "eve", "eve")
    server.call(users.permit, "eve", Permissions("", "", f"{topic.name}/Subscriptions/RED"))
    with client_of(server.ports["amqp"], response=b"\0eve\0eve") as eve:
        link = eve.receiver(address(f"{topic.name}/Subscriptions/RED"))
        assert eve.detached(link)[0] == "amqp:unauthorized-access"


def test_a_session_that_takes_few_transfers_at_a_time_gets_all(server, topic):
    with client_of(server.ports["amqp"], settings=ConnectionSettings(incoming_window=4)) as client:
        publish(client, topic, *["red"] * 50)
        link = client.receiver(address(topic.queue), credit=50)
        assert bodies(client.receive(link, 50)) == [b"%d" % number for number in range(50)]


def test_a_settlement_that_is_not_on_disk_ends_the_link(client, topic, monkeypatch):
    def full(writer: Writer, message: bytes, *, now_ms: int) -> None:
        raise StorageFullError("no space left", path=Path("ledger"))

    publish(client, topic, "red")
    link = client.receiver(address(topic.queue), credit=1)
    (received,) = client.receive(link, 1)
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "append_message", full)
        settle(client, received, Accepted())
        assert client.detached(link)[0] == "amqp:resource-limit-exceeded"


# Its queue in management


def test_a_subscription_is_shown_as_a_queue(client, topic):
    publish(client, topic, "red", "red")
    client.receive(client.receiver(address(topic.queue), credit=1), 1)
    management = Management(client)
    status, shown = management.request("GET", address(topic.queue))
    assert (status, shown) == (
        200,
        {
            "name": topic.queue,
            "vhost": "/",
            "durable": True,
            "auto_delete": False,
            "exclusive": False,
            "type": "quorum",
            "arguments": {"x-queue-type": "quorum"},
            "leader": "headgate@localhost",
            "replicas": ["headgate@localhost"],
            "message_count": 1,
            "consumer_count": 1,
        },
    )
    quorum = {"arguments": {"x-queue-type": "quorum"}}
    assert management.request("PUT", address(topic.queue), quorum) == (200, shown)
    assert management.request("PUT", address(topic.queue), {"arguments": {"x-queue-type": "stream"}})[0] == 409
    assert management.request("PUT", address(topic.queue), quorum | {"exclusive": True})[0] == 409
    assert management.request("GET", address(topic.dead_letters))[1]["message_count"] == 0
    missing = address(f"{topic.name}/Subscriptions/blue")
    assert management.request("GET", missing)[0] == 404
    assert management.request("PUT", missing, quorum)[0] == 404


def test_a_subscription_is_purged_but_not_deleted_as_a_queue(client, topic):
    publish(client, topic, "red", "blue", "red")
    management = Management(client)
    assert management.request("DELETE", address(topic.queue) + "/messages") == (200, {"message_count": 2})
    assert topic.counts() == (0, 0, 0)
    assert management.request("DELETE", address(f"{topic.name}/Subscriptions/blue") + "/messages")[0] == 404
    status, reason = management.request("DELETE", address(topic.queue))
    assert status == 400
    assert "headgate subscription rm" in reason
