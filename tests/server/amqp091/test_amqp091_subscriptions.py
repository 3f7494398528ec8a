"""Subscriptions as queues of AMQP 0.9.1: consuming, getting, settling, what an end gives back, declarations."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.errors import LogError
from headgate.log import Writer
from headgate.protocols.amqp091 import methods as m
from headgate.protocols.amqp091.fields import Table, boolean, long, long_string
from headgate.server.amqp091 import Amqp091Handler
from headgate.topic import RemoveSubscription, SubscriptionSettings
from server.amqp091_client import STREAM, Client, Received
from server.running import RunningServer, running_server
from server.subscriptions import ServedTopic, served_topic
from waiting import eventually

QUORUM: Table = {"x-queue-type": long_string("quorum")}
FAILED: Table = {"color": long_string("red"), "priority": long_string("high"), "RuleName": long_string("Red")}
"""The headers of a copy that is given out for the first time."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("amqp091")
    with running_server(folder, handlers={"amqp": Amqp091Handler}, limits={"consumers": 3}) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with Client(server.ports["amqp"]).open(1) as opened:
        yield opened


@pytest.fixture
def topic(server: RunningServer) -> ServedTopic:
    return served_topic(server, f"shop/orders-{uuid.uuid4()}")


def publish(client: Client, topic: ServedTopic, *colors: str) -> None:
    """One message for each color, numbered from 0; returns when they are confirmed."""
    client.call(900, m.ChannelOpen())
    client.call(900, m.ConfirmSelect())
    for number, color in enumerate(colors):
        client.publish(900, topic.name, b"%d" % number, headers={"color": long_string(color)}, message_id="id")
    confirmed = 0
    while confirmed < len(colors):
        ack = client.next(900)
        assert isinstance(ack, m.BasicAck)
        confirmed = ack.delivery_tag
    client.call(900, m.ChannelClose())


def consume(client: Client, queue: str, *, prefetch: int = 10, tag: str = "c", **given: object) -> None:
    client.call(1, m.BasicQos(prefetch_count=prefetch))
    assert client.call(1, m.BasicConsume(queue=queue, consumer_tag=tag, **given)) == m.BasicConsumeOk(tag)


def deliveries(client: Client, count: int) -> list[Received]:
    received = [client.receive(1) for _ in range(count)]
    assert all(isinstance(one.method, m.BasicDeliver) for one in received), received
    return received


def get(client: Client, queue: str, *, no_ack: bool = False) -> Received:
    client.say(1, m.BasicGet(queue=queue, no_ack=no_ack))
    return client.receive(1)


def closed(answer: m.Method, kind: type[m.Method], code: int, text: str = "") -> None:
    assert type(answer) is kind, answer
    assert answer.reply_code == code, answer
    assert text in answer.reply_text, answer


# consuming


def test_a_consumer_gets_the_copies_of_a_subscription_with_the_action_applied(client, topic):
    publish(client, topic, "red", "blue", "red")
    consume(client, topic.queue)
    first, second = deliveries(client, 2)
    assert first.method == m.BasicDeliver("c", 1, False, "", topic.name)
    assert (first.properties.headers, first.properties.message_id) == (FAILED, "id")
    assert (first.body, second.body, second.method.delivery_tag) == (b"0", b"2", 2)


def test_the_prefetch_is_what_a_consumer_may_have(client, topic):
    publish(client, topic, *["red"] * 4)
    consume(client, topic.queue, prefetch=2)
    assert [one.body for one in deliveries(client, 2)] == [b"0", b"1"]
    assert topic.counts() == (2, 2, 0)
    client.say(1, m.BasicAck(1))
    assert [one.body for one in deliveries(client, 1)] == [b"2"]
    client.say(1, m.BasicAck(3, multiple=True))
    assert [one.body for one in deliveries(client, 1)] == [b"3"]
    client.say(1, m.BasicAck(0, multiple=True))
    eventually(lambda: topic.counts() == (0, 0, 0))


def test_a_consumer_without_acknowledgement_needs_no_prefetch_and_what_it_got_is_gone(client, topic):
    publish(client, topic, *["red"] * 3)
    consume(client, topic.queue, prefetch=0, no_ack=True)
    assert [one.method.delivery_tag for one in deliveries(client, 3)] == [1, 2, 3]
    assert topic.counts() == (0, 0, 0)
    closed(client.call(1, m.BasicAck(1)), m.ChannelClose, 406, "unknown delivery tag 1")


@pytest.mark.parametrize("method", [m.BasicNack(1, requeue=True), m.BasicReject(1, requeue=True)])
def test_what_is_requeued_comes_again_and_the_attempt_counts(client, topic, method):
    publish(client, topic, "red")
    consume(client, topic.queue)
    deliveries(client, 1)
    client.say(1, method)
    (again,) = deliveries(client, 1)
    assert again.method == m.BasicDeliver("c", 2, True, "", topic.name)
    assert again.properties.headers == {"x-delivery-count": long(1), **FAILED}


@pytest.mark.parametrize("method", [m.BasicNack(0, multiple=True), m.BasicReject(1)])
def test_what_is_rejected_is_read_from_the_dead_letters_and_rejected_there_it_is_done_with(client, topic, method):
    publish(client, topic, "red")
    consume(client, topic.queue)
    deliveries(client, 1)
    client.say(1, method)
    eventually(lambda: topic.counts() == (0, 0, 1))
    dead = get(client, topic.dead_letters)
    assert isinstance(dead.method, m.BasicGetOk)
    headers = dead.properties.headers
    assert headers["DeadLetterReason"] == long_string("rejected")
    assert FAILED.items() <= headers.items()
    client.say(1, m.BasicReject(dead.method.delivery_tag))
    eventually(lambda: topic.counts() == (0, 0, 0))


def test_what_fails_too_often_is_a_dead_letter(client, server):
    topic = served_topic(server, f"t-{uuid.uuid4()}", SubscriptionSettings(max_delivery_count=2))
    publish(client, topic, "red")
    consume(client, topic.queue)
    for tag in (1, 2):
        deliveries(client, 1)
        client.say(1, m.BasicNack(tag, requeue=True))
    eventually(lambda: topic.counts() == (0, 0, 1))


def test_recover_gives_out_what_is_unacknowledged(client, topic):
    publish(client, topic, "red", "red", "red")
    consume(client, topic.queue, prefetch=2)
    deliveries(client, 2)
    client.say(1, m.BasicAck(1), m.BasicRecover(requeue=True))
    assert client.next(1) == m.BasicRecoverOk()
    again = deliveries(client, 2)
    assert [(one.method.delivery_tag, one.method.redelivered, one.body) for one in again] == [
        (3, True, b"1"),
        (4, False, b"2"),
    ]
    client.say(1, m.BasicRecover(requeue=False))
    closed(client.next(0), m.ConnectionClose, 540)


def test_a_cancelled_consumer_keeps_what_it_has_until_the_channel_ends(client, topic):
    publish(client, topic, "red", "red", "red")
    consume(client, topic.queue, prefetch=2)
    deliveries(client, 2)
    assert client.call(1, m.BasicCancel("c")) == m.BasicCancelOk("c")
    client.say(1, m.BasicAck(1))
    eventually(lambda: topic.counts() == (1, 1, 0))
    assert client.call(1, m.ChannelClose()) == m.ChannelCloseOk()
    eventually(lambda: topic.counts() == (2, 0, 0))
    assert topic.depth(topic.queue) == (2, 0)


@pytest.mark.parametrize("how", ["channel", "connection", "error"])
def test_what_was_unacknowledged_when_a_channel_ends_comes_again(server, client, topic, how):
    publish(client, topic, "red")
    with Client(server.ports["amqp"]).open(1) as other:
        consume(other, topic.queue)
        deliveries(other, 1)
        if how == "channel":
            other.call(1, m.ChannelClose())
        elif how == "error":
            closed(other.call(1, m.BasicAck(77)), m.ChannelClose, 406)
    consume(client, topic.queue)
    (again,) = deliveries(client, 1)
    assert (again.method.redelivered, again.properties.headers["x-delivery-count"]) == (True, long(1))


def test_a_consumer_is_cancelled_when_the_subscription_is_removed(client, topic):
    publish(client, topic, "red")
    consume(client, topic.dead_letters, tag="d")
    consume(client, topic.queue)
    deliveries(client, 1)
    topic.change(RemoveSubscription("red"))
    assert {client.next(1), client.next(1)} == {m.BasicCancel("c", True), m.BasicCancel("d", True)}
    # What it had may still be acknowledged.
    client.say(1, m.BasicAck(1))
    closed(client.call(1, m.BasicConsume(queue=topic.queue)), m.ChannelClose, 404, "no such subscription")


def test_a_consumer_is_cancelled_when_the_topic_is_deleted_over_its_own_connection(client, topic):
    consume(client, topic.queue)
    client.say(1, m.QueueDelete(queue=topic.name))
    assert {client.next(1), client.next(1)} == {m.BasicCancel("c", True), m.QueueDeleteOk(0)}


def test_consumers_that_are_refused(server, topic):
    cases = [
        (m.BasicConsume(queue=topic.queue, exclusive=True), 403),
        (m.BasicConsume(queue=f"{topic.name}/Subscriptions/blue"), 404),
        *(
            (m.BasicConsume(queue=topic.queue, arguments={name: long_string("first")}), 406)
            for name in ("x-stream-offset", "x-stream-filter", "x-headgate-sql", "x-priority")
        ),
    ]
    with Client(server.ports["amqp"]).open() as client:
        for method, code in cases:
            client.call(1, m.ChannelOpen())
            closed(client.call(1, method), m.ChannelClose, code)
            client.say(1, m.ChannelCloseOk())
    eventually(lambda: topic.depth(topic.queue) == (0, 0))


def test_cancelled_consumers_do_not_count(client, topic):
    for _ in range(4):
        consume(client, topic.queue)
        client.call(1, m.BasicCancel("c"))
    assert topic.depth(topic.queue) == (0, 0)


def test_a_settlement_that_is_not_on_disk_ends_the_channel(client, topic, monkeypatch):
    def damaged(writer: Writer, message: bytes, *, now_ms: int) -> None:
        raise LogError("it cannot be written", path=Path("ledger"))

    publish(client, topic, "red")
    consume(client, topic.queue)
    deliveries(client, 1)
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "append_message", damaged)
        client.say(1, m.BasicAck(1))
        closed(client.next(1), m.ChannelClose, 406, "it cannot be written")


# getting


def test_get_gives_one_copy_or_says_that_there_is_none(client, topic):
    assert get(client, topic.queue).method == m.BasicGetEmpty()
    publish(client, topic, "red", "blue", "red")
    first = get(client, topic.queue)
    assert first.method == m.BasicGetOk(1, False, "", topic.name, 1)
    assert (first.body, first.properties.headers) == (b"0", FAILED)
    assert get(client, topic.queue, no_ack=True).body == b"2"
    assert get(client, topic.queue).method == m.BasicGetEmpty()
    assert topic.counts() == (0, 1, 0)
    client.say(1, m.BasicNack(1, requeue=True))
    assert get(client, topic.queue).method == m.BasicGetOk(3, True, "", topic.name, 0)
    client.say(1, m.BasicAck(3))
    eventually(lambda: topic.counts() == (0, 0, 0))


def test_gets_are_answered_in_order(client, topic):
    publish(client, topic, "red", "red")
    client.say(1, *[m.BasicGet(queue=queue) for queue in (topic.queue, topic.dead_letters, topic.queue, topic.queue)])
    answers = [client.receive(1) for _ in range(4)]
    assert [answer.body for answer in answers] == [b"0", b"", b"1", b""]
    assert [type(answer.method) for answer in answers] == [m.BasicGetOk, m.BasicGetEmpty] * 2


# its queue


def test_a_declaration_finds_the_subscription_with_its_counts(client, topic):
    publish(client, topic, "red", "red", "red")
    consume(client, topic.queue, prefetch=1)
    deliveries(client, 1)
    found = m.QueueDeclareOk(topic.queue, 2, 1)
    assert client.call(1, m.QueueDeclare(queue=topic.queue, passive=True)) == found
    assert client.call(1, m.QueueDeclare(queue=topic.queue, durable=True, arguments=QUORUM)) == found
    assert client.call(1, m.QueueDeclare(queue=topic.dead_letters, passive=True)) == m.QueueDeclareOk(
        topic.dead_letters, 0, 0
    )


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"durable": True, "arguments": STREAM}, 406),
        ({"durable": True}, 406),
        ({"durable": False, "arguments": QUORUM}, 406),
        ({"durable": True, "arguments": {**QUORUM, "x-single-active-consumer": boolean(True)}}, 406),
    ],
)
def test_other_declarations_of_a_subscription_are_refused(client, topic, given, code):
    answer = client.call(1, m.QueueDeclare(queue=topic.queue, **given))
    closed(answer, m.ChannelClose, code, "it is a subscription")


def test_a_subscription_that_is_not_there_is_not_declared(client, topic):
    answer = client.call(1, m.QueueDeclare(queue=f"{topic.name}/Subscriptions/blue", durable=True, arguments=QUORUM))
    closed(answer, m.ChannelClose, 404, "no such subscription")


def test_a_subscription_is_purged_but_not_deleted_as_a_queue(client, topic):
    publish(client, topic, "red", "blue", "red")
    assert client.call(1, m.QueuePurge(queue=topic.queue)) == m.QueuePurgeOk(2)
    assert topic.counts() == (0, 0, 0)
    closed(client.call(1, m.QueueDelete(queue=topic.queue)), m.ChannelClose, 406, "headgate subscription rm")


def test_nothing_is_published_to_a_subscription(client, topic):
    client.publish(1, topic.queue, b"stray", mandatory=True)
    assert client.receive(1).method == m.BasicReturn(312, "NO_ROUTE", "", topic.queue)


def test_a_subscription_is_bound_where_its_topic_is(client, topic):
    """Frameworks declare their queue and bind it to an exchange."""
    exchange = f"of-{topic.name}"
    client.call(1, m.ExchangeDeclare(exchange=exchange, type="fanout", durable=True))
    assert client.call(1, m.QueueBind(queue=topic.name, exchange=exchange)) == m.QueueBindOk()
    assert client.call(1, m.QueueBind(queue=topic.queue, exchange=exchange)) == m.QueueBindOk()
    refused = client.call(1, m.QueueBind(queue=topic.queue, exchange=exchange, routing_key="red"))
    closed(refused, m.ChannelClose, 406, f"bind the queue {topic.name} to the exchange")
