"""Messages whose time has not come: when they are published, that they are once, and what a crash leaves."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from brokers import START_MS, scan
from failing_disk import Disk
from headgate.broker import BrokerTopic, ConsumerOptions, ReadCopy
from headgate.broker.topics import ScheduledMessages
from headgate.errors import (
    EntityDisabledError,
    MessageError,
    PreconditionFailedError,
    ResourceNotFoundError,
    StorageFullError,
)
from headgate.log import OffsetSpecification, OpenFile, Stream, Writer, stream_folder
from headgate.message import Message
from headgate.topic import (
    QUEUE_SUBSCRIPTION,
    AddRule,
    ChangeTopic,
    CreateSubscription,
    RuleDefinition,
    TopicKind,
    TopicSettings,
    TopicStatus,
    waiting_folder,
)
from log_streams import FailingFiles, Killed, killed_process, quick_folder, read_messages
from topic_lab import BLUE, NO_MESSAGE, RED, RED_ONLY, Lab

ALL = (CreateSubscription("all"), AddRule("all", RuleDefinition("All", sql="1=1")))
DUE = START_MS + 5_000
FIRST = 1 << 19
"""The number of the first message for later of a topic without messages."""


@dataclass(slots=True)
class Schedule:
    """What a stream was asked to publish later, and what it answered."""

    lab: Lab
    stream: str = "orders"
    answers: list[object] = field(default_factory=list)

    @property
    def topic(self) -> BrokerTopic:
        return self.lab.broker.topics.get("orders")

    def later(self, *messages: bytes, due_ms: int = DUE) -> None:
        self.messages.schedule(messages, [due_ms] * len(messages), self.answers.append)
        self.lab.turn()

    def cancel(self, *numbers: int) -> object:
        answers: list[object] = []
        self.messages.cancel(numbers, answers.append)
        self.lab.turn()
        (answer,) = answers
        return answer

    @property
    def published(self) -> list[object]:
        """The colours of what is in the stream."""
        stream = Stream.open(stream_folder(self.lab.root, self.stream))
        return [_color(message) for _, message in read_messages(stream)]

    @property
    def messages(self) -> ScheduledMessages:
        return self.lab.broker.topics.scheduler.of(self.lab.broker.catalogue.get(self.stream))

    @property
    def waiting(self) -> int:
        return self.lab.broker.topics.scheduler.count(self.lab.broker.catalogue.get(self.stream))


def _color(message: bytes) -> object:
    properties = Message.decode(message).application_properties
    return properties and properties["color"].value


def colored(color: str) -> bytes:
    return Message(b"b", application_properties={"color": color}).encode()


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def schedule(disk: Disk) -> Iterator[Schedule]:
    with quick_folder() as folder:
        lab = Lab(Path(folder), open_file=disk)
        lab.topic()
        yield Schedule(lab)
        disk.full = ""
        lab.broker.close()


def test_a_message_is_published_once_at_its_time_without_anybody_waiting_for_it(schedule: Schedule) -> None:
    schedule.later(RED, BLUE)
    assert schedule.answers == [[FIRST, FIRST + 1]]
    assert schedule.topic.scheduled.count == 2
    schedule.lab.turn(after_ms=4_999)
    assert schedule.published == []
    for _ in range(3):
        schedule.lab.turn(after_ms=1)
        assert schedule.published == ["red", "blue"]
    assert schedule.topic.scheduled.count == 0


def test_a_message_is_decided_when_it_is_published_and_says_when_it_was_due(schedule: Schedule) -> None:
    schedule.later(RED)
    schedule.lab.change(*RED_ONLY)
    link = schedule.lab.link(want=10)
    schedule.lab.turn(after_ms=5_000)
    (delivery,) = link.deliveries
    annotations = Message.decode(delivery.message).message_annotations
    assert annotations is not None and annotations["x-opt-scheduled-enqueue-time"].value == DUE
    assert delivery.timestamp_ms == DUE


def test_messages_of_one_call_may_be_due_at_several_times(schedule: Schedule) -> None:
    messages = [colored(each) for each in "abcd"]
    schedule.topic.scheduled.schedule(messages, [DUE + 9, DUE, 0, DUE], schedule.answers.append)
    schedule.lab.turn()
    assert schedule.answers == [[FIRST + number for number in range(4)]]
    assert schedule.published == ["c"]
    schedule.lab.turn(after_ms=5_000)
    assert schedule.published == ["c", "b", "d"]
    schedule.lab.turn(after_ms=9)
    assert schedule.published == ["c", "b", "d", "a"]


def test_more_messages_than_one_turn_moves_are_all_published(
    schedule: Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.broker.topics.scheduled_messages._MOVED_A_TURN", 3)
    monkeypatch.setattr("headgate.broker.topics.scheduled_messages._READ_BYTES", 50)
    colors = [f"c{number}" for number in range(10)]
    schedule.later(*map(colored, colors))
    schedule.lab.turn(after_ms=5_000)
    assert schedule.published == colors


def test_who_cancels_in_time_is_told_so(schedule: Schedule) -> None:
    assert schedule.cancel(FIRST) is False
    schedule.later(RED, BLUE)
    for numbers in ([FIRST, 7], [-1], [1 << 62], [FIRST + 2, FIRST + 1]):
        assert schedule.cancel(*numbers) is False
    assert schedule.cancel(FIRST, FIRST) is True and schedule.cancel(FIRST) is False
    schedule.lab.restart()
    schedule.lab.turn(after_ms=5_000)
    assert schedule.published == ["blue"]
    assert schedule.cancel(FIRST + 1) is False


def test_numbers_rise_and_lie_between_those_of_copies(tmp_path: Path) -> None:
    schedule = Schedule(Lab(tmp_path))
    schedule.lab.broker.topics.create("orders", settings=TopicSettings(kind=TopicKind.QUEUE))
    schedule.lab.publish(RED)
    schedule.later(colored("c1"), colored("c2"), due_ms=DUE + 2)
    schedule.lab.restart()
    schedule.later(colored("c3"), due_ms=DUE + 1)
    schedule.lab.publish(BLUE)
    schedule.later(colored("c4"), due_ms=DUE)

    def peek(start: int, count: int) -> list[ReadCopy]:
        return schedule.topic.browser.peek(QUEUE_SUBSCRIPTION, start, count)

    found = peek(0, 10)
    assert [_color(each.message) for each in found] == ["red", "c1", "c2", "c3", "blue", "c4"]
    assert [(each.copy, each.timestamp_ms, int(each.state)) for each in found[1:4]] == [
        (FIRST + place, DUE + due, 2) for place, due in enumerate((2, 2, 1))
    ]
    for first in range(6):
        assert peek(found[first].copy, 2) == found[first : first + 2]
    assert schedule.cancel(found[3].copy, found[1].copy) is True
    assert [_color(each.message) for each in peek(0, 10)] == ["red", "c2", "blue", "c4"]
    schedule.lab.turn(after_ms=6_000)
    assert [_color(each.message) for each in peek(0, 10)] == ["red", "blue", "c2", "c4"]
    assert all(b"x-headgate" not in each.message for each in peek(0, 10))
    schedule.lab.broker.close()


def test_a_call_is_there_as_a_whole_or_not_at_all(schedule: Schedule) -> None:
    """One chunk, which a crash cannot cut."""
    schedule.later(*(colored(f"c{number}" + "x" * 100) for number in range(9_000)))
    assert len(schedule.answers[0]) == 9_000
    (segment,) = Stream.open(waiting_folder(schedule.topic.stream.stream)).segments()
    with segment.open() as reader:
        assert reader.header(0).num_records == 9_000


def test_a_topic_that_takes_no_messages_takes_none_for_later(schedule: Schedule) -> None:
    schedule.lab.change(ChangeTopic(TopicSettings(status=TopicStatus.SEND_DISABLED)))
    schedule.later(RED)
    assert isinstance(schedule.answers[0], EntityDisabledError) and schedule.topic.scheduled.count == 0


def test_what_is_no_message_or_no_time_is_refused(schedule: Schedule) -> None:
    schedule.later(RED, NO_MESSAGE)
    schedule.later(RED, due_ms=-1)
    schedule.later(RED, due_ms=1 << 61)
    assert [type(each) for each in schedule.answers] == [MessageError, *[PreconditionFailedError] * 2]
    assert schedule.topic.scheduled.count == 0


def test_messages_wait_over_a_restart_and_over_their_time(schedule: Schedule) -> None:
    schedule.later(RED)
    schedule.later(BLUE, due_ms=DUE + 60_000)
    schedule.lab.restart()
    schedule.lab.turn()
    assert schedule.topic.scheduled.count == 2
    schedule.lab.broker.close()
    schedule.lab.clock.now = DUE + 10_000
    schedule.lab.opened()
    # Nobody asks for the topic.
    schedule.lab.turn()
    assert schedule.published == ["red"]
    schedule.lab.turn(after_ms=50_000)
    assert schedule.published == ["red", "blue"]


def test_files_are_closed_when_nothing_waits_and_opened_again(schedule: Schedule) -> None:
    schedule.later(RED)
    schedule.lab.turn(after_ms=5_000)
    for _ in range(3):
        schedule.lab.turn(after_ms=10_000)
    Writer.open(Stream.open(waiting_folder(schedule.topic.stream.stream)), now_ms=0).close()
    schedule.later(BLUE, due_ms=schedule.lab.clock.now + 1)
    schedule.lab.turn(after_ms=1)
    assert schedule.published == ["red", "blue"]


def test_what_the_ledger_was_not_told_of_waits_all_the_same(schedule: Schedule) -> None:
    schedule.later(RED)
    lab = schedule.lab
    annotated = Message.decode(BLUE)
    later = Message(b"b", application_properties={"color": "late"}).encode()
    schedule.later(later, due_ms=DUE + 1)
    schedule.cancel(FIRST, FIRST + 1)
    stream = Stream.open(waiting_folder(schedule.topic.stream.stream))
    (_, kept), _ = read_messages(stream)
    lab.broker.close()
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(kept, None), (annotated.encode(), None)], now_ms=0)
    lab.opened()
    lab.turn()
    # One that does not say when it is due is due at once.
    assert schedule.published == ["blue"]
    assert schedule.topic.scheduled.count == 1
    lab.turn(after_ms=5_000)
    assert schedule.published == ["blue", "red"]


def test_messages_are_refused_while_there_is_no_room_and_nothing_else_is_lost(schedule: Schedule, disk: Disk) -> None:
    schedule.later(RED)
    for full in ("waiting/0", "waiting/ledger"):
        disk.full = full
        for _ in range(2):
            schedule.later(BLUE)
            assert isinstance(schedule.answers.pop(), StorageFullError)
        disk.full = ""
        for _ in range(12):
            schedule.lab.turn(after_ms=100)
    schedule.later(colored("green"))
    assert schedule.answers == [[FIRST], schedule.answers[-1]]
    schedule.lab.turn(after_ms=5_000)
    colors = schedule.published
    assert colors[0] == "red" and colors[-1] == "green"
    # Whoever was refused knows nothing.
    assert set(colors[1:-1]) <= {"blue"} and len(colors) <= 4


def test_messages_that_are_due_wait_for_a_stream_of_another_process(schedule: Schedule) -> None:
    schedule.later(RED)
    for _ in range(3):
        schedule.lab.turn(after_ms=10_000)
    schedule.later(BLUE, due_ms=schedule.lab.clock.now + 1_000)
    stream = Stream.open(stream_folder(schedule.lab.root, "orders"))
    with Writer.open(stream, now_ms=0):
        for _ in range(15):
            schedule.lab.turn(after_ms=100)
        assert schedule.published == ["red"]
    for _ in range(15):
        schedule.lab.turn(after_ms=100)
    assert schedule.published == ["red", "blue"]


def test_a_message_has_the_filter_value_that_its_stream_declares(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    source = "application_properties.color"
    lab.session.declare_stream("orders", {"headgate-filter-source": source, "stream-filter-size-bytes": 16})
    lab.topic()
    Schedule(lab).later(RED, due_ms=0)
    stream = Stream.open(stream_folder(tmp_path, "orders"))
    (segment,) = stream.segments()
    with segment.open() as reader:
        assert reader.header(0).bloom_length == 16
    assert stream.settings is not None
    (declared,) = stream.settings.declared
    assert (declared.field, declared.start) == (source, 0)
    lab.broker.close()


@pytest.fixture
def plain(schedule: Schedule) -> Schedule:
    schedule.lab.session.declare_stream("plain", {})
    return Schedule(schedule.lab, "plain")


def test_messages_of_a_plain_stream_wait_too_and_readers_are_told_of_them(plain: Schedule) -> None:
    consumer = plain.lab.session.message_consumer("plain", ConsumerOptions(OffsetSpecification.next()))
    plain.later(RED, BLUE, due_ms=DUE)
    assert plain.answers == [[FIRST, FIRST + 1]] and plain.waiting == 2
    assert plain.cancel(FIRST) is True and plain.cancel(FIRST) is False
    plain.lab.turn(after_ms=5_000)
    assert plain.published == ["blue"] and plain.waiting == 0
    consumer.want(10)
    scan(consumer)
    found = consumer.take(10, 1 << 20)
    assert found is not None and found.offsets.tolist() == [0]


def test_messages_of_a_plain_stream_are_published_after_a_start_without_anybody_asking(plain: Schedule) -> None:
    plain.later(RED)
    plain.lab.restart()
    assert plain.waiting == 1
    plain.lab.broker.close()
    plain.lab.clock.now = DUE + 10_000
    plain.lab.opened()
    plain.lab.turn()
    assert plain.published == ["red"]


def test_messages_wait_while_a_stream_becomes_a_topic_and_a_stream_again(plain: Schedule) -> None:
    plain.later(RED)
    plain.lab.broker.topics.create("plain")
    plain.later(BLUE, due_ms=DUE + 1)
    assert plain.waiting == 2
    plain.lab.broker.topics.remove("plain")
    assert plain.waiting == 2
    plain.lab.turn(after_ms=5_001)
    assert plain.published == ["red", "blue"]


def test_messages_go_with_their_stream(plain: Schedule) -> None:
    plain.later(RED)
    plain.messages.schedule([BLUE], [DUE], plain.answers.append)
    plain.lab.session.delete_stream("plain")
    assert isinstance(plain.answers[1], ResourceNotFoundError)
    plain.lab.session.declare_stream("plain", {})
    assert plain.waiting == 0 and plain.cancel(FIRST) is False
    plain.lab.turn(after_ms=5_000)
    assert plain.published == []


def test_a_stream_without_messages_for_later_opens_no_files_to_count_them(plain: Schedule) -> None:
    assert plain.waiting == 0
    assert not waiting_folder(plain.lab.broker.catalogue.get("plain").stream).exists()


def scenario(schedule: Schedule, confirmed: list[object]) -> None:
    """Schedule, cancel, publish; `confirmed` are messages that must be there, and with `-` those that must not.

    What was asked for and not confirmed may have happened.
    """
    messages = schedule.messages
    for number, due_ms in enumerate([DUE, DUE + 100, DUE]):
        color = f"c{number}"

        def scheduled(answer: object, color: str = color) -> None:
            confirmed.append(color)

        messages.schedule([colored(color)], [due_ms], scheduled)
        schedule.lab.turn()
    confirmed.append("c0 may be canceled")
    messages.cancel([FIRST], lambda held: confirmed.append("-c0") if held is True else None)
    schedule.lab.turn()
    schedule.lab.turn(after_ms=5_000)
    schedule.lab.turn(after_ms=100)


@pytest.mark.slow
def test_a_broker_that_dies_at_any_byte_publishes_what_was_confirmed_and_each_message_once() -> None:
    with quick_folder() as name:
        root = Path(name) / "root"
        lab = Lab(root)
        lab.topic(*ALL)
        lab.session.declare_stream("plain", {})
        lab.broker.close()
        budget = 0
        while True:
            copy = shutil.copytree(root, Path(name) / "copy")
            stream = "plain" if budget % 2 else "orders"
            files = FailingFiles(Killed(), budget=budget)
            confirmed: list[object] = []
            is_done = run_until_killed(copy, stream, files, confirmed)
            # A dead process holds no locks: its files are taken as they are.
            found = shutil.copytree(copy, Path(name) / "found")
            check_what_is_left(found, stream, confirmed)
            for each in (copy, found):
                shutil.rmtree(each)
            if is_done:
                return
            budget += 17


def run_until_killed(root: Path, stream: str, files: OpenFile, confirmed: list[object]) -> bool:
    with killed_process():
        scenario(Schedule(Lab(root, open_file=files), stream), confirmed)
        return True
    return False


def check_what_is_left(root: Path, stream: str, confirmed: list[object]) -> None:
    lab = Lab(root)
    lab.clock.now = DUE + 1_000
    schedule = Schedule(lab, stream)
    lab.turn()
    lab.turn()
    published = schedule.published
    assert len(published) == len(set(published))
    wanted = {"c0", "c1", "c2"} & set(confirmed) - ({"c0"} if "c0 may be canceled" in confirmed else set())
    assert wanted <= set(published)
    assert not ("-c0" in confirmed and "c0" in published)
    if stream == "orders":
        assert lab.counts("all")[0] == len(published)
    lab.broker.close()
