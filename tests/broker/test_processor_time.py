"""The processor time that a broker's owner lets it measure is told of consumers and of topics."""

from __future__ import annotations

import itertools
from pathlib import Path

from brokers import SetClock, open_session, publish
from headgate.broker import Broker
from headgate.broker.consumers import ConsumerOptions
from headgate.evaluate.filter import Filter
from headgate.log import OffsetSpecification
from headgate.message import Message
from topic_lab import RED_ONLY

SECOND_MS = 1_000
MESSAGES = [Message(application_properties={"color": color}).encode() for color in ("red", "blue")]


def test_reading_and_deciding_take_the_time_that_passes_meanwhile(tmp_path: Path) -> None:
    clock, looks = SetClock(), itertools.count(0, 1_000)
    broker = Broker(tmp_path, now_ms=clock, cpu_ns=lambda: next(looks))
    session = open_session(broker)
    session.create_topic("orders")
    session.change_topic("orders", RED_ONLY, lambda answer: None)
    wanted = Filter.parse("color = 'red'", "amqp")
    options = ConsumerOptions(OffsetSpecification.first(), filter=wanted)
    consumer = session.message_consumer("orders", options)
    consumer.want(10)
    assert publish(broker, session.publisher("orders"), MESSAGES) is None
    clock.now += SECOND_MS
    broker.tick(clock.now)
    broker.end_turn()
    assert consumer.take(10, 1_000_000) is not None
    assert consumer.counters.cpu_ns > 0
    assert broker.topics.get("orders").counters.cpu_ns > 0
    broker.close()
