"""Consumer groups read by the bits of their expressions: what they announce is calculated while messages come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from group_lab import GroupLab
from headgate.broker.consumers import ConsumerOptions
from headgate.broker.settings import BrokerSettings
from headgate.derived.match_index.registry import Announcement
from headgate.derived.match_index.settings import IndexSettings
from headgate.evaluate.filter import Filter
from headgate.log import OffsetSpecification
from headgate.message import Message
from headgate.server.listings import consumer_rows

SQL = "rocketmq"
TEXT = "bucket BETWEEN 20 AND 39 AND kind = 'order'"
SECOND_MS = 1_000


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[GroupLab]:
    made = GroupLab(tmp_path)
    made.broker.close()
    made.settings = BrokerSettings(match_index=IndexSettings(calculate_filter_bitmap=True))
    made.opened()
    yield made
    made.broker.close()


def bodies(count: int) -> list[bytes]:
    properties = [{"bucket": str(number % 100), "kind": "order"} for number in range(count)]
    return [Message(b"x" * 100, application_properties=each).encode() for each in properties]


def test_a_group_that_is_behind_reads_what_its_bits_allow_up_to_where_the_index_is(lab: GroupLab) -> None:
    lab.broker.expressions.announce("g", "client", {"q0": Announcement(TEXT, SQL, 1)})
    lab.turn(SECOND_MS)
    lab.publish(bodies(300))
    lab.turn(SECOND_MS)
    lab.publish(bodies(50))
    wanted = Filter.parse(TEXT, SQL)
    offsets = [*lab.receive(100, only=wanted).offsets, *lab.receive(100, only=wanted).offsets]
    assert offsets == [offset for offset in range(350) if 20 <= offset % 100 < 40]
    read = lab.view().scan_counters
    assert (read.messages_decided_by_index, read.messages_evaluated) == (300, 50)
    assert read.bytes_read < 160 * len(bodies(1)[0]), "60 of 300, and the chunk of the last 50"
    lab.turn(SECOND_MS)
    lab.receive(100, group="other", only=wanted)
    read = lab.view("other").scan_counters
    assert (read.messages_decided_by_index, read.messages_evaluated) == (350, 0)


def test_an_expression_has_bits_for_what_was_there_before_it_though_nothing_comes(lab: GroupLab) -> None:
    lab.publish(bodies(100))
    lab.restart()
    lab.broker.expressions.announce("g", "client", {"q0": Announcement(TEXT, SQL, 1)})
    for _ in range(3):
        lab.turn(SECOND_MS)
    assert lab.receive(100, only=Filter.parse(TEXT, SQL)).offsets == [*range(20, 40)]
    read = lab.view().scan_counters
    assert (read.messages_decided_by_index, read.messages_evaluated) == (100, 0)


def test_a_late_expression_has_bits_for_new_messages_at_once(lab: GroupLab) -> None:
    lab.broker.expressions.announce("g", "client", {"q0": Announcement("bucket = '1'", SQL, 1)})
    lab.turn(SECOND_MS)
    lab.publish(bodies(100))
    lab.turn(SECOND_MS)
    wanted = Filter.parse(TEXT, SQL)
    assert lab.receive(100, only=wanted).offsets == [*range(20, 40)]
    assert lab.view().scan_counters.messages_evaluated == 100
    lab.broker.expressions.subscribe("g", "client", "q0", Announcement(TEXT, SQL, 2))
    lab.turn(SECOND_MS)
    lab.publish(bodies(50))
    lab.turn(SECOND_MS)
    lab.receive(100, only=wanted)
    assert lab.view().scan_counters.messages_decided_by_index == 50


def test_a_member_that_reads_for_itself_reads_what_its_bits_allow(lab: GroupLab) -> None:
    lab.broker.expressions.announce("g", "client", {"q0": Announcement(TEXT, SQL, 1)})
    lab.turn(SECOND_MS)
    lab.publish(bodies(200))
    lab.turn(SECOND_MS)
    options = ConsumerOptions(OffsetSpecification.offset(10), filter=Filter.parse(TEXT, SQL), name="g")
    consumer = lab.session.message_consumer("q0", options)
    consumer.want(100)
    scan = consumer.scan_due()
    assert scan is not None and consumer.begin_scan(scan, may_wait=False)
    consumer.run(scan)
    assert consumer.end_scan(scan) is None
    batch = consumer.take(100, 1 << 20)
    assert batch is not None and batch.offsets.tolist() == [*range(20, 40), *range(120, 140)]
    assert (consumer.counters.messages_decided_by_index, consumer.counters.messages_evaluated) == (190, 0)


def test_a_list_says_what_reading_for_a_group_took(lab: GroupLab) -> None:
    lab.publish(bodies(100))
    assert lab.receive(100, only=Filter.parse(TEXT, SQL)).offsets == [*range(20, 40)]
    (row,) = consumer_rows(lab.broker, "guest")
    assert (row["stream"], row["name"], row["tag"], row["filter"]) == ("q0", "g", "g", TEXT)
    assert (row["counters"]["messages_evaluated"], row["counters"]["messages_matched"]) == (100, 20)
