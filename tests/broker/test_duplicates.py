"""Duplicate detection: whose id was there within the window is confirmed and left out, whatever happened between."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers import Answers, Background, batch, publish, stored
from examples import examples
from headgate.broker import duplicates as duplicates_module
from headgate.broker import message_id_read
from headgate.broker.duplicates import RecentIds, digests_of
from headgate.broker.write_job import WriteJob
from headgate.errors import (
    CorruptChunkError,
    LimitExceededError,
    PreconditionFailedError,
    RuleError,
    StorageFullError,
)
from headgate.log import Stream, Writer, read_pin, stream_folder
from headgate.message import AmqpType, AmqpValue, EncodedMessages, FieldReference, Message, Section
from headgate.topic import (
    AddRule,
    ChangeTopic,
    CreateSubscription,
    RuleDefinition,
    TopicLimits,
    TopicSettings,
)
from log_streams import quick_folder
from topic_lab import NO_MESSAGE, Lab

WINDOW_MS = 20_000
DETECTING = TopicSettings(requires_duplicate_detection=True, duplicate_detection_window_ms=WINDOW_MS)
_ID = FieldReference(Section.PROPERTIES, position=0)


def message(number: object, body: bytes = b"b", **more: object) -> bytes:
    return Message(body, message_id=str(number), **more).encode()  # type: ignore[arg-type]


def ids_of(root: Path, name: str = "orders") -> list[object]:
    found = [Message.decode(each).value(_ID) for each in stored(root, name)]
    return [None if value is None else value.value for value in found]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    lab.broker.topics.create("orders", settings=DETECTING)
    yield lab
    lab.broker.close()


def test_a_message_whose_id_is_in_the_window_is_confirmed_and_left_out(lab: Lab) -> None:
    lab.publish(message(1), message(2), message(1, b"other"))
    lab.publish(message(2), message(3))
    assert ids_of(lab.root) == ["1", "2", "3"]
    assert lab.broker.catalogue.get("orders").counters.messages_duplicate == 2
    lab.turn(after_ms=WINDOW_MS - 1)
    lab.publish(message(1))
    assert ids_of(lab.root) == ["1", "2", "3"]
    lab.turn(after_ms=1)
    lab.publish(message(1), message(1))
    assert ids_of(lab.root) == ["1", "2", "3", "1"]


def test_whoever_publishes_and_however(lab: Lab) -> None:
    lab.publish(message(1))
    named = lab.session.publisher("orders", reference="p")
    assert publish(lab.broker, named, [message(1), message(2), message(3)], sequences=[5, 6, 7]) is None
    assert publish(lab.broker, named, [message(2), message(4)], sequences=[6, 8]) is None
    whole = Answers()
    many = batch([message(5), message(1), message(5), message(6)], whole.to("whole"))
    many.is_whole = True
    lab.session.publisher("orders").publish(many)
    nothing = batch([message(1), message(5)], whole.to("nothing"))
    nothing.is_whole = True
    lab.session.publisher("orders").publish(nothing)
    lab.turn()
    assert whole.confirmed == ["whole", "nothing"]
    assert ids_of(lab.root) == ["1", "2", "3", "4", "5", "6"]
    assert lab.broker.catalogue.get("orders").last_sequence(b"p") == 8


def test_what_has_no_id_is_no_duplicate(lab: Lab) -> None:
    without = Message(b"x").encode()
    lab.publish(without, without, NO_MESSAGE, NO_MESSAGE, message(""), message(""))
    assert len(stored(lab.root, "orders")) == 6


def test_ids_are_compared_by_their_text() -> None:
    identity = uuid.uuid4()

    def digest(kind: AmqpType, value: object) -> bytes | None:
        made = Message(b"x").with_changes([(_ID, AmqpValue(kind, value))]).encode()
        return digests_of(EncodedMessages.of([made]))[0]

    assert digest(AmqpType.UUID, identity) == digest(AmqpType.STRING, str(identity)) is not None
    assert digest(AmqpType.ULONG, 7) == digest(AmqpType.STRING, "7") != digest(AmqpType.STRING, "8")
    assert digest(AmqpType.STRING, "\x98" * 8) != digest(AmqpType.STRING, "\x98" * 7)
    assert digest(AmqpType.NULL, None) is None


def test_a_restart_reads_the_ids_from_the_stream(lab: Lab) -> None:
    lab.publish(message("old"))
    lab.turn(after_ms=WINDOW_MS)
    lab.publish(message(1), message(2))
    lab.restart()
    lab.publish(message(2), message("old"), message(3))
    assert ids_of(lab.root) == ["old", "1", "2", "old", "3"]
    assert len(lab.broker.catalogue.get("orders").recent_ids or ()) == 4


def test_a_crash_between_write_and_answer(lab: Lab) -> None:
    lab.publish(message(0))
    answers = Answers()
    stream = lab.broker.catalogue.get("orders")
    lab.session.publisher("orders").publish(batch([message(1)], answers.to("one")))
    job = WriteJob.begin(stream, now_ms=lab.clock.now)
    assert job is not None
    job.run()
    stream.close_writer()
    lab.opened()
    assert answers.given == []
    lab.publish(message(1), message(2))
    assert ids_of(lab.root) == ["0", "1", "2"]


def test_what_was_refused_is_no_duplicate(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = lab.session.publisher("orders")
    lab.turn()

    def full(*_: object, **__: object) -> None:
        raise StorageFullError("no room", path=lab.root)

    with monkeypatch.context() as patched:
        patched.setattr(Writer, "append_runs", full)
        assert isinstance(publish(lab.broker, publisher, [message(1)]), StorageFullError)
    packed = publish(lab.broker, publisher, [message(1), b"\0" * 20], records=[0, 1])
    assert isinstance(packed, PreconditionFailedError)
    lab.publish(message(1))
    assert ids_of(lab.root) == ["1"]


def test_what_others_wrote_counts(lab: Lab) -> None:
    lab.publish(message(1))
    lab.broker.catalogue.get("orders").close_writer()
    with Writer.open(Stream.open(stream_folder(lab.root, "orders")), now_ms=lab.clock.now) as writer:
        writer.append([(message(2), None)], now_ms=lab.clock.now)
    lab.publish(message(1), message(2), message(3))
    assert ids_of(lab.root) == ["1", "2", "3"]


def test_many_ids_are_read_by_a_worker_while_messages_wait(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.publish(*map(message, range(20)))
    worker = lab.worker = Background()
    lab.restart()
    monkeypatch.setattr(message_id_read, "LONG_READ", 10)
    answers = Answers()
    lab.session.publisher("orders").publish(batch([message(7), message(20)], answers.to("b")))
    lab.turn()
    assert answers.given == [] and lab.broker.catalogue.get("orders").is_writing
    while worker.jobs:
        worker.run_one()
        lab.turn()
    assert answers.confirmed == ["b"]
    assert ids_of(lab.root)[20:] == ["20"]
    lab.worker = None


def test_ids_that_cannot_be_read_refuse_what_is_published(lab: Lab) -> None:
    lab.publish(*(message(number, b"x" * 100) for number in range(3)))
    lab.publish(message(3))
    lab.broker.close()
    segment = next(stream_folder(lab.root, "orders").glob("*.segment"))
    raw = bytearray(segment.read_bytes())
    raw[120] ^= 0xFF
    lab.opened()
    publisher = lab.session.publisher("orders")
    segment.write_bytes(raw)
    assert isinstance(publish(lab.broker, publisher, [message(4)]), CorruptChunkError)


def test_the_window_may_change_and_the_rest_may_not(lab: Lab) -> None:
    lab.publish(message(1))
    lab.turn(after_ms=WINDOW_MS)
    longer = TopicSettings(requires_duplicate_detection=True, duplicate_detection_window_ms=2 * WINDOW_MS)
    lab.change(ChangeTopic(longer))
    lab.publish(message(1), message(2))
    assert ids_of(lab.root) == ["1", "2"]
    lab.turn(after_ms=WINDOW_MS)
    lab.change(ChangeTopic(DETECTING))
    lab.publish(message(2))
    assert ids_of(lab.root) == ["1", "2", "2"]
    (refused,) = lab.change(ChangeTopic(TopicSettings()))
    assert isinstance(refused, RuleError) and "requires_duplicate_detection cannot be changed" in str(refused)


def test_a_stream_without_detection_and_one_that_is_plain_again_keep_everything(lab: Lab) -> None:
    lab.broker.topics.create("plain")
    plain = lab.session.publisher("plain")
    assert publish(lab.broker, plain, [message(1), message(1)]) is None
    lab.publish(message(1), message(1))
    lab.broker.topics.remove("orders")
    assert publish(lab.broker, lab.session.publisher("orders"), [message(1)]) is None
    assert (ids_of(lab.root, "plain"), ids_of(lab.root)) == (["1", "1"], ["1", "1"])


def test_copies_that_are_forwarded_are_looked_at_there(lab: Lab) -> None:
    lab.broker.topics.create("source")
    lab.change(
        CreateSubscription("a", forward_to="orders"),
        AddRule("a", RuleDefinition("A", sql="1=1")),
        CreateSubscription("b", forward_to="orders"),
        AddRule("b", RuleDefinition("B", sql="1=1")),
        topic="source",
    )
    lab.publish(message(1))
    for _ in range(2):
        assert publish(lab.broker, lab.session.publisher("source"), [message(1), message(2)]) is None
        lab.turn()
        lab.turn(after_ms=100)
    assert ids_of(lab.root) == ["1", "2"]
    info = lab.broker.topics.get("source").subscriptions.infos()
    assert [(each.counts.active, each.dead_lettered, each.forwarding) for each in info] == [(0, 0, 0)] * 2
    lab.publish(message(2))
    assert ids_of(lab.root) == ["1", "2"]


def test_messages_for_later_count_from_when_they_are_sent(lab: Lab) -> None:
    topic = lab.broker.topics.get("orders")
    lab.publish(message(0))
    told: list[object] = []
    topic.scheduled.schedule([message(1)], [lab.clock.now + 1_000], told.append)
    lab.turn()
    lab.restart()
    lab.publish(message(1), message(2))
    assert ids_of(lab.root) == ["0", "2"]
    lab.turn(after_ms=1_000)
    lab.turn(after_ms=100)
    assert ids_of(lab.root) == ["0", "2", "1"]


def test_messages_for_later_are_looked_at_when_they_are_sent(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = lab.broker.topics.get("orders")
    lab.publish(message(0))

    def scheduled(*numbers: int) -> list[object]:
        told: list[object] = []
        due_ms = lab.clock.now + 1_000
        topic.scheduled.schedule(list(map(message, numbers)), [due_ms] * len(numbers), told.append)
        lab.turn()
        return told

    ((first, *others),) = scheduled(1, 0, 1)  # type: ignore[misc]
    assert first > 0 and others == [-1, -1]
    assert scheduled(1, 1) == [[-1, -1]]

    def full(*_: object, **__: object) -> None:
        raise StorageFullError("no room", path=lab.root)

    with monkeypatch.context() as patched:
        patched.setattr(Writer, "append_runs", full)
        (refused,) = scheduled(2)
        assert isinstance(refused, StorageFullError)
    lab.turn(after_ms=1_000)
    assert len(scheduled(2)) == 1
    lab.publish(message(1), message(2), message(3))
    lab.turn(after_ms=1_000)
    lab.turn(after_ms=100)
    assert ids_of(lab.root) == ["0", "1", "3", "2"]
    stream = topic.stream
    stream.is_writing = True
    assert scheduled(4) == []
    stream.is_writing = False
    lab.turn(after_ms=100)
    assert topic.scheduled.count == 1


def test_another_process_that_has_the_topic_changes_nothing(lab: Lab) -> None:
    lab.publish(message(1))
    lab.broker.topics.get("orders").stream.close_writer()
    lab.publish(message(2))
    lab.broker.close()
    other = Lab(lab.root)
    other.broker.topics.get("orders")
    lab.opened()
    publisher = lab.session.publisher("orders")
    assert publish(lab.broker, publisher, [message(1), message(3)]) is None
    other.broker.close()
    assert ids_of(lab.root) == ["1", "2", "3"]


def test_retention_keeps_the_window_and_does_not_count_it(lab: Lab) -> None:
    lab.broker.streams.delete(lab.broker.catalogue.get("orders"))
    lab.broker.topics.create("orders", TopicLimits(unsettled_bytes=500), settings=DETECTING)
    for number in range(20):
        lab.publish(message(number, b"x" * 100))
        lab.turn(after_ms=2_000)
    pin = read_pin(stream_folder(lab.root, "orders"))
    assert pin is not None and pin.offset in (9, 10)
    assert pin.quota_bytes > 1_000
    lab.restart()
    lab.publish(message(12), message(20))
    assert ids_of(lab.root)[-2:] == ["19", "20"]


def test_more_ids_than_may_be_are_refused(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates_module, "MOST_IDS", 3)
    publisher = lab.session.publisher("orders")
    assert publish(lab.broker, publisher, [message(1), message(2)]) is None
    assert isinstance(publish(lab.broker, publisher, [message(3), message(4)]), LimitExceededError)
    assert publish(lab.broker, publisher, [message(1), message(3)][1:]) is None
    lab.turn(after_ms=WINDOW_MS)
    assert publish(lab.broker, publisher, [message(4)]) is None
    assert ids_of(lab.root) == ["1", "2", "3", "4"]


class _Model:
    """What is stored, by the rule alone."""

    def __init__(self) -> None:
        self.stored: list[tuple[str, int]] = []

    def publish(self, number: str, now_ms: int) -> None:
        if not any(each == number and now_ms - then < WINDOW_MS for each, then in self.stored):
            self.stored.append((number, now_ms))


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "publish", "whole", "restart", "close"]),
        st.lists(st.integers(0, 5), min_size=1, max_size=4),
        st.sampled_from([0, 1, WINDOW_MS // 2, WINDOW_MS - 1, WINDOW_MS]),
    ),
    max_size=12,
)


@examples(0.3)
@given(steps=_STEPS)
def test_any_walk_stores_what_the_rule_says(steps: list[tuple[str, list[int], int]]) -> None:
    model = _Model()
    with quick_folder() as folder:
        lab = Lab(Path(folder))
        lab.broker.topics.create("orders", settings=DETECTING)
        for what, numbers, after_ms in steps:
            lab.turn(after_ms=after_ms)
            if what == "restart":
                lab.restart()
            elif what == "close":
                lab.broker.catalogue.get("orders").close_writer()
            answers = Answers()
            one = batch(list(map(message, numbers)), answers.to("b"))
            one.is_whole = what == "whole"
            lab.session.publisher("orders").publish(one)
            lab.turn()
            assert answers.confirmed == ["b"]
            for number in numbers:
                model.publish(str(number), lab.clock.now)
            recent = lab.broker.catalogue.get("orders").recent_ids
            assert recent is not None and len(recent) <= 6
        assert ids_of(lab.root) == [number for number, _ in model.stored] if steps else True
        lab.broker.close()


def test_what_expires_is_forgotten() -> None:
    ids = RecentIds(10)
    ids.note([b"a", b"b"], 0)
    ids.note([b"b"], 5)
    ids.expire(9)
    assert len(ids) == 2
    ids.expire(10)
    assert len(ids) == 1 and ids.holds(b"b", 14) and not ids.holds(b"b", 15)
    assert np.array_equal(ids.about_to_write(20).new([b"b", None, b"b", None]), [True, True, False, True])
