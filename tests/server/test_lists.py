"""Lists, metrics and entities after known traffic: whoever counts the same gives the same number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate import Message
from headgate.broker import ReceiverCalls, Session
from headgate.broker.consumer_groups import ReceiveRequest
from headgate.broker.consumers import ConsumerOptions
from headgate.log import OffsetSpecification
from headgate.topic import AddRule, CreateSubscription, RuleDefinition, SubscriptionName
from server.running import RunningServer, running_server
from server.test_http import listed, metrics

MESSAGES, CHUNKS = 60, 6
FIRST = OffsetSpecification.first()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(tmp_path, handlers={}, stream=[{"name": "orders"}, {"name": "quiet"}]) as running:
        yield running


def traffic(running: RunningServer) -> list[Any]:
    """What consumers of each kind were given of 60 messages in 6 chunks; they stay connected."""
    given: list[Any] = []
    changed: list[object] = []
    broker = running.context.broker

    def begin() -> Session:
        session = broker.open_session("guest", protocol="test", connection="127.0.0.1:1#1")
        session.create_topic("orders")
        rules = [CreateSubscription("red"), AddRule("red", RuleDefinition("Red", sql="color = 'red'"))]
        session.change_topic("orders", rules, changed.append)
        return session

    session = running.call(begin)
    running.until(lambda: changed)

    def consume() -> None:
        stream = broker.catalogue.get("orders")
        writer = stream.open_writer(now_ms=1)
        for chunk in range(CHUNKS):
            colors = ["red" if number % 2 else "blue" for number in range(MESSAGES // CHUNKS)]
            writer.append([(Message(b"x", application_properties={"color": each}).encode(), None) for each in colors],
                          now_ms=chunk + 1)  # fmt: skip
        stream.close_writer()
        stream.refresh()
        chunks = session.chunk_consumer("orders", ConsumerOptions(start=FIRST, name="chunks", tag="1"))
        chunks.want_more(4)
        messages = session.message_consumer("orders", ConsumerOptions(start=FIRST, name="messages", tag="2"))
        messages.want_more(7)
        given.extend((chunks, messages))
        red = SubscriptionName("orders", "red")
        receiver = session.receiver(red, ReceiverCalls(deliver=given.append, ended=given.append, tag="3"))
        receiver.want(3)
        request = ReceiveRequest("packing", ["orders"], None, None, 5, 60_000, given.append)
        broker.consumer_groups.receive(request)

    running.call(consume)
    running.until(lambda: len(given) == 4)

    def take() -> bool:
        chunks, messages = given[:2]
        for consumer in (chunks, messages):
            scan = consumer.scan_due()
            if scan is not None and consumer.begin_scan(scan, may_wait=True):
                consumer.run(scan)
                assert consumer.end_scan(scan) is None
        chunks.take(1 << 20)
        messages.take(messages.wanted, 1 << 20)
        return not chunks.wanted and not messages.wanted

    running.until(take)
    return given


def test_all_lists_and_metrics_give_the_same_numbers(running: RunningServer) -> None:
    traffic(running)
    consumers, found = listed(running, "consumers"), metrics(running, "/metrics/per-object")
    by_tag = {row["tag"]: row for row in consumers}
    assert by_tag["1"]["delivered_chunks"] == 4 and by_tag["1"]["delivered_messages"] == 4 * MESSAGES // CHUNKS
    assert by_tag["2"]["delivered_messages"] == 7

    # Consumers of a stream: as many as the list has.
    rows_of = Counter(row["stream"] for row in consumers)
    assert rows_of == {"orders": 4}
    for stream in listed(running, "streams"):
        name = stream["name"]
        assert stream["consumers"] == rows_of[name]
        assert found[f'rabbitmq_detailed_queue_consumers{{queue="{name}",vhost="/"}}'] == rows_of[name]
        # What was delivered of it: the sum of what its consumers were given.
        delivered = stream["reading"]["delivered_messages"]
        own = [row for row in consumers if row["stream"] == name and row["tag"] in ("1", "2")]
        assert delivered == sum(row["delivered_messages"] for row in own)
        assert found[f'headgate_delivered_messages_total{{stream="{name}"}}'] == delivered
        lags = [row["lag"] for row in consumers if row["stream"] == name]
        largest = found[f'rabbitmq_detailed_stream_consumer_max_offset_lag{{queue="{name}",vhost="/"}}']
        assert largest == max(lags, default=0)
    assert found["rabbitmq_consumers"] == found["rabbitmq_global_consumers"] == len(consumers)
    assert found["rabbitmq_stream_consumer_max_offset_lag"] == max(row["lag"] for row in consumers)
    assert found["rabbitmq_global_messages_delivered_total"] == 4 * MESSAGES // CHUNKS + 7

    # A subscription, by itself and as what its receivers come to.
    (subscription,) = listed(running, "subscriptions")
    (of_subscription,) = [row for row in consumers if row["name"] == "orders/Subscriptions/red"]
    assert subscription["receivers"] == 1 and (subscription["active"], subscription["locked"]) == (MESSAGES // 2 - 3, 3)
    assert of_subscription["lag"] == subscription["active"] + subscription["waiting"]
    assert of_subscription["delivered_messages"] == subscription["counters"]["delivered"] == 3
    labels = '{subscription="red",topic="orders"}'
    assert found[f"headgate_subscription_delivered_total{labels}"] == 3
    assert found[f"headgate_subscription_active{labels}"] == subscription["active"]

    # A consumer group, by itself and as what reads for it.
    (group,) = listed(running, "rocketmq/groups")
    of_group = by_tag["packing"]
    labels = '{group="packing",queue="0",topic="orders"}'
    assert of_group["lag"] == group["lag"] == found[f"headgate_group_lag{labels}"] == MESSAGES
    assert of_group["delivered_messages"] == group["counters"]["delivered"] == 5
    assert of_group["counters"]["messages_matched"] == group["reading"]["messages_matched"]
