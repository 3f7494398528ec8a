"""Topics whose files cannot be written, or belong to another process: what is refused, and that all goes on later."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokers import batch, publish, scan, stored
from failing_disk import Disk
from headgate.broker import DeadLetterReason
from headgate.broker.consumers import ConsumerOptions
from headgate.errors import (
    CorruptChunkError,
    HeadgateError,
    LogError,
    ResourceNotFoundError,
    StorageFullError,
    StreamLockedError,
)
from headgate.ledger import Ledger, copy_number, offset_of
from headgate.log import OffsetSpecification, Stream, StreamArguments, Writer, read_pin, stream_folder
from headgate.message import Message
from headgate.message.body_schema import BodySchema, SchemaFormat
from headgate.message.body_schema.schema import _decoders
from headgate.topic import (
    AddRule,
    ChangeSubscription,
    CreateSubscription,
    RuleDefinition,
    SubscriptionSettings,
    TopicEditor,
    forwarded,
)
from headgate.topic.decisions import Decider
from log_streams import quick_folder
from topic_lab import BLUE, NO_MESSAGE, RED, RED_ONLY, Lab

STRICT = (
    CreateSubscription("strict", dead_letter_on_errors=True),
    AddRule("strict", RuleDefinition("Fails", sql="color > 5")),
    AddRule("strict", RuleDefinition("Red", sql="color = 'red'")),
)
DEAD = "orders/Subscriptions/red/$DeadLetterQueue"


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def lab(disk: Disk) -> Iterator[Lab]:
    with quick_folder() as folder:
        lab = Lab(Path(folder), open_file=disk)
        yield lab
        disk.full = ""
        lab.broker.close()


def turns(lab: Lab, count: int = 15) -> None:
    """A second and a half, tick by tick."""
    for _ in range(count):
        lab.turn(after_ms=100)


# counts


def test_counts_are_the_same_after_a_restart(lab: Lab) -> None:
    act = AddRule("red", RuleDefinition("Act", sql="color = 'red'", action="SET color = 'pink'"))
    lab.topic(*RED_ONLY, act, *STRICT)
    lab.publish(RED, RED, NO_MESSAGE, BLUE, RED)
    red, strict = lab.link(want=3), lab.link("orders/Subscriptions/strict", want=2)
    red.receiver.settler.complete(red.tokens[:1])
    strict.receiver.settler.complete(strict.tokens[:1])
    lab.turn()
    assert [lab.counts("red"), lab.counts("strict")] == [(3, 2, 0, 0), (1, 1, 0, 5)]
    lab.restart()
    lab.broker.topics.get("orders")
    lab.turn()
    assert [lab.counts("red"), lab.counts("strict")] == [(3, 2, 0, 0), (1, 1, 0, 5)]


# moves


def test_forward_to_a_stream_of_another_process_holds_nobody_up_and_goes_on(lab: Lab) -> None:
    lab.session.create_topic("paid")
    lab.topic(
        *RED_ONLY,
        CreateSubscription("on", forward_to="paid"),
        AddRule("on", RuleDefinition("R", sql="color = 'red'")),
    )
    link = lab.link(want=100)
    with Writer.open(Stream.open(stream_folder(lab.root, "paid")), now_ms=0):
        lab.publish(RED)
        turns(lab)
        for expected in range(2, 10):
            lab.publish(RED)
            lab.turn(after_ms=100)
            assert len(link.deliveries) == expected
    turns(lab)
    assert lab.session.stream_info("paid").message_count == 9


def test_dead_letters_wait_for_room(lab: Lab, disk: Disk) -> None:
    lab.topic(*RED_ONLY)
    link = lab.link(want=10)
    lab.publish(RED, RED)
    disk.full = "dead-letters"
    link.receiver.settler.dead_letter(link.tokens, link.answers.append, why=DeadLetterReason("R"))
    turns(lab)
    assert link.answers == [[True, True]]
    disk.full = ""
    turns(lab)
    assert lab.counts() == (0, 0, 0, 2)


def test_nothing_waits_for_a_clock_that_went_back(lab: Lab, disk: Disk) -> None:
    lab.topic(*RED_ONLY)
    lab.publish(RED, RED)
    link = lab.link(want=2)
    turns(lab)
    disk.full = "dead-letters"
    link.receiver.settler.dead_letter(link.tokens[:1], link.answers.append, why=DeadLetterReason("R"))
    link.receiver.settler.complete(link.tokens[1:], link.answers.append)
    lab.turn()
    disk.full = ""
    lab.turn(after_ms=-7_200_000)
    turns(lab)
    assert lab.counts() == (0, 0, 0, 1)
    pin = read_pin(stream_folder(lab.root, "orders"))
    assert pin is not None and pin.offset == 2


def test_a_forward_whose_target_is_being_written_waits_without_turns(lab: Lab) -> None:
    lab.session.create_topic("paid")
    lab.topic(CreateSubscription("on", forward_to="paid"), AddRule("on", RuleDefinition("R", sql="color = 'red'")))
    target = lab.broker.catalogue.get("paid")
    target.is_writing = True
    lab.publish(RED)
    lab.turn()
    assert stored(lab.root, "paid") == []
    target.is_writing = False
    lab.turn(after_ms=100)
    assert stored(lab.root, "paid") == [forwarded(RED, number=1, source=None)]


def test_a_forward_gives_its_target_back(lab: Lab) -> None:
    lab.session.create_topic("paid")
    lab.topic(CreateSubscription("on", forward_to="paid"), AddRule("on", RuleDefinition("R", sql="color = 'red'")))
    lab.publish(RED)
    for _ in range(5):
        lab.turn(after_ms=5_000)
    Writer.open(Stream.open(stream_folder(lab.root, "paid")), now_ms=0).close()


# a full ledger


def test_settlement_is_refused_while_the_ledger_has_no_room(
    lab: Lab, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    lab.topic(*RED_ONLY)
    link = lab.link(want=2)
    lab.publish(RED, RED, RED, RED)
    disk.full = "/ledger/"
    link.receiver.settler.complete(link.tokens[:1], link.answers.append)
    link.receiver.want(10)
    lab.turn()
    link.receiver.settler.complete(link.tokens[1:2], link.answers.append)
    lab.turn()
    assert [type(each) for each in link.answers] == [StorageFullError, StorageFullError]
    assert link.offsets == [0, 1]
    (warned,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "/ledger/" in warned.getMessage()
    lab.publish(RED)
    plain = lab.session.message_consumer("orders", ConsumerOptions(OffsetSpecification.first()))
    plain.want(10)
    scan(plain)
    found = plain.take(10, 1 << 20)
    assert found is not None and found.offsets.tolist() == [0, 1, 2, 3, 4]
    disk.full = ""
    turns(lab)
    assert link.offsets == [0, 1, 2, 3, 4]
    link.receiver.settler.complete(link.tokens[1:], link.answers.append)
    lab.turn()
    assert link.answers[2:] == [[True] * 4]
    assert lab.counts() == (0, 0, 0, 0)


@pytest.mark.parametrize("nothing_is_written", [True, False])
def test_a_copy_without_attempts_left_becomes_a_dead_letter_at_its_turn(
    lab: Lab, disk: Disk, nothing_is_written: bool
) -> None:
    """Its last claim ended while nothing could be written, or fewer attempts are allowed since it came back."""
    allowed = [ChangeSubscription("red", settings=SubscriptionSettings(max_delivery_count=count)) for count in (1, 2)]
    lab.topic(*RED_ONLY, allowed[not nothing_is_written])
    lab.publish(RED, RED)
    link = lab.link(want=2)
    if nothing_is_written:
        disk.full = "/ledger/"
    link.receiver.settler.complete(link.tokens[1:], link.answers.append)
    lab.turn()
    lab.turn(after_ms=60_000)
    disk.full = ""
    lab.change(allowed[0])
    link.receiver.want(1)
    turns(lab)
    assert link.offsets == [0, 1]
    assert lab.counts() == (0, 0, 0, 1)


def test_a_claim_that_ends_before_it_is_written_down_takes_no_attempt(lab: Lab, disk: Disk) -> None:
    lab.topic(*RED_ONLY, ChangeSubscription("red", settings=SubscriptionSettings(max_delivery_count=1)))
    lab.publish(RED)
    disk.full = "/ledger/"
    link = lab.link(want=1)
    lab.turn(after_ms=60_000)
    assert link.offsets == []
    disk.full = ""
    turns(lab)
    assert (link.offsets, [each.attempt for each in link.deliveries]) == ([0], [1])
    link.receiver.want(1)
    lab.turn(after_ms=60_000)
    assert (link.offsets, lab.counts()) == ([0], (0, 0, 0, 1))


@pytest.mark.parametrize("dead_letters", [False, True])
def test_a_ledger_that_cannot_be_written_any_more_is_opened_again(lab: Lab, disk: Disk, dead_letters: bool) -> None:
    lab.topic(*RED_ONLY)
    lab.publish(RED, RED, RED, RED)
    name = "orders/Subscriptions/red"
    if dead_letters:
        link, name = lab.link(want=4), DEAD
        link.receiver.settler.dead_letter(link.tokens, why=DeadLetterReason("R"))
        lab.turn()
    link = lab.link(name, want=2)
    link.receiver.settler.complete(link.tokens[:1], link.answers.append)
    lab.turn()
    disk.broken = "/ledger/"
    link.receiver.settler.complete(link.tokens[1:], link.answers.append)
    lab.turn()
    disk.broken = ""
    first, second = link.answers
    assert (first, type(second), len(link.ends)) == ([True], LogError, 1)
    turns(lab)
    again = lab.link(name, want=10)
    turns(lab, 592)
    # What was answered with an error may have been written down, or not.
    assert (link.offsets, [offset for offset in again.offsets if offset != 1]) == ([0, 1], [2, 3])
    again.receiver.settler.complete(again.tokens, again.answers.append)
    lab.turn()
    assert again.answers == [[True] * len(again.tokens)]


def test_settlement_that_came_while_a_commit_failed_is_refused_and_written_with_it(lab: Lab, disk: Disk) -> None:
    lab.topic(*RED_ONLY)
    lab.publish(RED, RED, RED)
    worker = lab.restart_to_disk()
    disk.full = "/ledger/"
    link = lab.link(want=3)
    worker.run_one()
    assert link.offsets == []
    disk.full = ""
    turns(lab)
    worker.run_one()
    assert link.offsets == [0, 1, 2]
    link.receiver.settler.complete(link.tokens[:1], link.answers.append)
    lab.turn()
    link.receiver.settler.complete(link.tokens[1:2], link.answers.append)
    link.receiver.settler.dead_letter(link.tokens[2:], link.answers.append, why=DeadLetterReason("bad"))
    disk.full = "/ledger/"
    for answered in (1, 3):
        worker.run_one()
        assert [type(each) for each in link.answers] == [StorageFullError] * answered
        lab.turn()
    disk.full = ""
    while worker.jobs:
        worker.run_one()
        turns(lab)
    for _ in range(2):
        assert lab.counts() == (0, 0, 0, 1)
        lab.worker = None
        lab.restart()


def test_failures_decided_while_the_ledger_has_no_room_become_dead_letters(lab: Lab, disk: Disk) -> None:
    lab.topic(*RED_ONLY, *STRICT)
    link = lab.link(want=10)
    lab.publish(RED)
    disk.full = "/ledger/"
    link.receiver.settler.complete(link.tokens, link.answers.append)
    lab.turn()
    lab.publish(BLUE, NO_MESSAGE)
    disk.full = ""
    turns(lab)
    assert lab.counts("strict") == (1, 0, 0, 3)


def test_a_subscription_made_while_the_ledger_has_no_room_is_there_later(lab: Lab, disk: Disk) -> None:
    lab.topic(*RED_ONLY)
    link = lab.link(want=10)
    lab.publish(RED)
    disk.full = "/ledger/"
    link.receiver.settler.complete(link.tokens, link.answers.append)
    lab.turn()
    lab.change(CreateSubscription("late"), AddRule("late", RuleDefinition("All", sql="1=1")))
    lab.publish(RED)
    disk.full = ""
    turns(lab)
    assert lab.counts("late") == (1, 0, 0, 0)
    assert link.offsets == [0, 1]


def test_dead_letters_are_settled_when_there_is_room_again(lab: Lab, disk: Disk) -> None:
    lab.topic(*RED_ONLY)
    link = lab.link(want=10)
    lab.publish(RED, RED)
    link.receiver.settler.dead_letter(link.tokens, why=DeadLetterReason("R"))
    lab.turn()
    dead = lab.link(DEAD, want=10)
    assert len(dead.deliveries) == 2
    disk.full = "dead-letters/ledger"
    dead.receiver.settler.complete(dead.tokens[:1], dead.answers.append)
    lab.turn()
    disk.full = ""
    turns(lab)
    dead.receiver.settler.complete(dead.tokens[1:], dead.answers.append)
    lab.turn()
    assert isinstance(dead.answers[0], StorageFullError)
    assert dead.answers[1:] == [[True]]


# postings


def test_a_block_that_cannot_be_written_forgets_nothing(lab: Lab, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.topic.decisions.block.BLOCK_OFFSETS", 8)
    lab.topic(*RED_ONLY, *STRICT)
    link = lab.link(want=100)
    lab.publish(*[RED] * 5)
    disk.full = "/postings/"
    lab.publish(*[RED] * 5)
    lab.turn()
    assert link.offsets == list(range(8))
    disk.full = ""
    turns(lab)
    assert link.offsets == list(range(10))
    assert lab.counts("strict") == (10, 0, 0, 10)


def test_what_is_appended_over_the_end_of_a_block_is_decided_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.topic.decisions.block.BLOCK_OFFSETS", 8)
    lab.topic(*RED_ONLY)
    told: list[HeadgateError | None] = []
    for first in range(0, 40, 5):
        # Each has a chunk of its own.
        publisher = lab.session.publisher("orders", reference=f"p{first}")
        publisher.publish(batch([RED] * 5, told.append, sequences=range(5)))
    lab.turn()
    assert told == [None] * 8
    assert lab.broker.topics.get("orders").counters.messages_decided == 40
    assert lab.link(want=100).offsets == list(range(40))


def test_a_search_that_begins_between_copies_of_one_message_misses_none(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.topic.decisions.block.BLOCK_OFFSETS", 8)
    monkeypatch.setattr("headgate.broker.topics.subscription_source._AHEAD", 1)
    act = AddRule("red", RuleDefinition("Act", sql="color = 'red'", action="SET color = 'pink'"))
    lab.topic(*RED_ONLY, act)
    lab.publish(*[RED] * 20)
    link = lab.link()
    for _ in range(50):
        link.receiver.want(1)
        lab.turn()
    assert [each.copy for each in link.deliveries] == [
        copy_number(offset, rule) for offset in range(20) for rule in (0, 2)
    ]
    assert lab.counts() == (0, 40, 0, 0)


def test_failures_in_a_row_hold_nothing_up_and_leave_no_holes(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.broker.topics.dispatcher._HOLES_A_TURN", 3)
    lab.topic(*STRICT)
    strict = lab.broker.topics.get("orders").subscriptions.find("strict").dispatcher
    lab.publish(RED)
    for _ in range(10):
        lab.publish(NO_MESSAGE)
    lab.publish(RED)
    assert lab.counts("strict") == (2, 0, 0, 12)
    peeked = lab.broker.topics.get("orders").browser.peek("strict", copy_number(1), 1)
    assert [offset_of(each.copy) for each in peeked] == [11]
    link = lab.link("orders/Subscriptions/strict")
    for _ in range(2):
        link.receiver.want(1)
        lab.turn()
    assert link.offsets == [0, 11]
    # With nothing to give out, nobody has to look for that.
    link.receiver.want(0)
    for _ in range(10):
        lab.publish(NO_MESSAGE)
    assert len(strict.view.available()) == 1
    assert lab.counts("strict") == (0, 2, 0, 22)


# rules


def test_a_change_that_cannot_be_written_is_refused(lab: Lab, disk: Disk) -> None:
    lab.topic(*RED_ONLY)
    disk.full = "topic.journal"
    changes = (CreateSubscription("late"), AddRule("red", RuleDefinition("Blue", sql="color = 'blue'")))
    answers = lab.change(*changes)
    assert [type(each) for each in answers] == [StorageFullError]
    lab.publish(BLUE)
    assert lab.counts() == (0, 0, 0, 0)
    with pytest.raises(ResourceNotFoundError):
        lab.link("orders/Subscriptions/late")
    disk.full = ""
    lab.change(*changes)
    lab.publish(BLUE)
    assert lab.counts() == (1, 0, 0, 0)


# removed while nobody looked


def test_what_a_removed_subscription_had_goes_also_where_another_process_removed_it(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    link = lab.link(want=10)
    lab.publish(RED)
    link.receiver.settler.dead_letter(link.tokens, why=DeadLetterReason())
    lab.turn()
    lab.broker.close()
    stream = Stream.open(stream_folder(lab.root, "orders"))
    with TopicEditor.open(stream, now_ms=0) as editor:
        editor.remove_subscription("red", now_ms=0)
    lab.opened()
    lab.broker.topics.get("orders")
    lab.turn()
    lab.broker.close()
    with Ledger.open(stream, now_ms=0) as ledger:
        assert ledger.views() == []
    assert not list(stream.path.glob("subscriptions/*"))
    lab.opened()


def test_a_poison_copy_that_every_process_dies_of_becomes_a_dead_letter(lab: Lab) -> None:
    lab.topic(*RED_ONLY, ChangeSubscription("red", settings=SubscriptionSettings(max_delivery_count=2)))
    lab.publish(RED)
    for attempt in (1, 2):
        link = lab.link(want=1)
        assert [each.attempt for each in link.deliveries] == [attempt]
        lab.restart()
        lab.clock.now += 60_000
    link = lab.link(want=1)
    assert link.deliveries == []
    assert lab.counts() == (0, 0, 0, 1)


def test_damage_of_one_topic_does_not_stop_others(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    lab.session.create_topic("other")
    lab.change(CreateSubscription("all"), AddRule("all", RuleDefinition("All", sql="1=1")), topic="other")
    path = stream_folder(lab.root, "orders") / "00000000000000000000.segment"
    lab.publish(RED)
    lab.publish(RED)
    stop = path.stat().st_size
    # The messages appended last are in memory, whatever becomes of the file.
    for _ in range(20):
        lab.publish(BLUE)
    data = bytearray(path.read_bytes())
    data[stop - 10 : stop] = bytes(10)
    path.write_bytes(data)
    orders, other = lab.link(), lab.link("other/Subscriptions/all", want=10)
    orders.receiver.want(10)
    publisher = lab.session.publisher("other")
    assert publish(lab.broker, publisher, [RED]) is None
    lab.turn()
    assert other.offsets == [0]
    assert orders.offsets == [0]
    assert isinstance(orders.ends[0], CorruptChunkError)


# two processes


SECOND = """
import sys
from pathlib import Path
from headgate.broker import Broker
from headgate.errors import StreamLockedError

broker = Broker(Path(sys.argv[1]), now_ms=lambda: 0)
try:
    broker.topics.get("orders")
except StreamLockedError as error:
    print(error)
"""


def test_a_second_process_is_told_who_has_ledger_and_postings(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    link = lab.link(want=10)
    lab.publish(RED)
    second = [sys.executable, "-c", SECOND, str(lab.root)]
    told = subprocess.run(second, capture_output=True, text=True, check=True).stdout
    assert "/ledger/" in told and f"process {os.getpid()}" in told
    with pytest.raises(StreamLockedError, match=f"process {os.getpid()}"):
        Decider.open(Stream.open(stream_folder(lab.root, "orders")), now_ms=0)
    link.receiver.settler.complete(link.tokens, link.answers.append)
    lab.turn()
    assert link.answers == [[True]]


def test_receivers_settle_while_another_process_writes_the_stream(lab: Lab) -> None:
    lab.topic(*RED_ONLY)
    for _ in range(3):
        lab.turn(after_ms=10_000)
    stream = Stream.open(stream_folder(lab.root, "orders"))
    link = lab.link(want=10)
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(RED, None), (BLUE, None), (RED, None)], now_ms=0)
        turns(lab, 2)
        assert link.offsets == [0, 2]
        link.receiver.settler.complete(link.tokens, link.answers.append)
        lab.turn()
        assert link.answers == [[True, True]]
        answers: list[object] = []
        lab.session.change_topic("orders", [CreateSubscription("late")], answers.append)
        lab.turn()
        assert isinstance(answers[0], StreamLockedError)
    assert [type(each) for each in lab.change(CreateSubscription("late"))] == [int]


def test_a_topic_waits_for_the_library_that_decodes_its_bodies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("fastavro", reason="headgate[avro] is not installed")
    schema = BodySchema(SchemaFormat.AVRO, ((None, b'{"type": "map", "values": "int"}'),))
    arguments = StreamArguments(body_schema=schema.text)
    Stream.create(stream_folder(tmp_path, "orders"), name="orders", now_ms=0, arguments=arguments)
    lab = Lab(tmp_path)
    lab.topic(CreateSubscription("red"), AddRule("red", RuleDefinition("n", sql="body.n > 1", dialect="amqp")))
    _decoders.cache_clear()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "fastavro", None)
        lab.restart()
        lab.publish(*[Message(b"\x02\x02n" + bytes([2 * n]) + b"\0").encode() for n in range(4)])
        lab.pass_time(60_000)
        assert lab.counts() == (0, 0, 0, 0)
        assert "topic 'orders' cannot be decided: rule 'n': schemas of Avro need fastavro" in caplog.text
    lab.pass_time(60_000)
    assert lab.link(want=9).offsets == [2, 3]
    lab.broker.close()
