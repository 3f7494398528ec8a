"""Publishing: confirms behind the write, deduplication, storage that fails, writes in the background."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from brokers import START_MS, Answers, Background, SetClock, batch, open_broker, open_session, publish, stored
from headgate.broker import Publisher
from headgate.broker.broker import Broker
from headgate.broker.settings import BrokerSettings
from headgate.broker.write_job import above
from headgate.errors import (
    HeadgateError,
    PreconditionFailedError,
    ResourceNotFoundError,
    StorageFullError,
    StreamLockedError,
)
from headgate.log import ChunkType, Durability, Entries, Stream, Writer, stream_folder
from headgate.log.entries import SubBatch
from headgate.log.format import INDEX_RECORD_BYTES, Compression
from headgate.message import Message
from log_streams import FailingFiles


def chunks(root: Path, name: str) -> list[tuple[int, int]]:
    """Records and Bloom length of the chunks with messages."""
    found = []
    for segment in Stream.open(stream_folder(root, name)).segments():
        with segment.open() as reader:
            headers = reader.headers(0, len(reader.chunks()))
            for row in np.flatnonzero(headers.chunk_type == ChunkType.USER).tolist():
                found.append((int(headers.num_records[row]), int(headers.bloom_length[row])))
    return found


def test_a_message_is_confirmed_when_it_is_in_the_stream(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {})
    publisher = session.publisher("orders")
    answers = Answers()
    publisher.publish(batch([b"a", b"b"], answers.to("first")))
    publisher.publish(batch([b"c"], answers.to("second")))
    assert not answers.given and stored(tmp_path, "orders") == []
    broker.write_queued()
    assert answers.given == [("first", None), ("second", None)]
    assert stored(tmp_path, "orders") == [b"a", b"b", b"c"]
    assert session.stream_info("orders").next_offset == 3
    broker.close()


def test_what_a_full_disk_or_a_closed_publisher_refuses_is_counted(tmp_path: Path) -> None:
    files = FailingFiles(OSError(errno.ENOSPC, "No space left on device"))
    broker = open_broker(tmp_path, settings=BrokerSettings(open_file=files))
    session = open_session(broker)
    session.declare_stream("orders", {})
    publisher = session.publisher("orders")
    assert publish(broker, publisher, [b"0"]) is None
    answers = Answers()
    files.budget = files.written + 20
    publisher.publish(batch([b"1"], answers.to("full")))
    broker.write_queued()
    files.budget = None
    publisher.publish(batch([b"2"], answers.to("room")))
    broker.write_queued()
    publisher.close()
    publisher.publish(batch([b"3"], answers.to("closed")))
    broker.write_queued()
    assert answers.confirmed == ["room"]
    assert [type(error) for error in answers.refused] == [StorageFullError, ResourceNotFoundError]
    assert (publisher.entries_published, publisher.entries_confirmed, publisher.entries_refused) == (4, 2, 2)
    broker.close()
    assert stored(tmp_path, "orders") == [b"0", b"2"]


def test_waking_is_asked_for_once_until_everything_queued_is_written(tmp_path: Path) -> None:
    woken: list[int] = []
    broker = open_broker(tmp_path, wake=lambda: woken.append(1))
    session = open_session(broker)
    for name in ("a", "b"):
        session.declare_stream(name, {})
        for _ in range(2):
            session.publisher(name).publish(batch([b"m"], lambda _error: None))
    assert len(woken) == 1
    broker.write_queued()
    session.publisher("a").publish(batch([b"m"], lambda _error: None))
    assert len(woken) == 2
    broker.close()


def test_what_several_publishers_without_a_name_queued_shares_a_chunk_and_a_named_one_has_its_own(
    tmp_path: Path,
) -> None:
    broker = open_broker(tmp_path)
    session, other = open_session(broker), open_session(broker)
    session.declare_stream("orders", {})
    answers = Answers()
    session.publisher("orders").publish(batch([b"1"], answers.to(1)))
    named = session.publisher("orders", reference="p")
    named.publish(batch([b"n1", b"n2"], answers.to(2), sequences=[5, 6]))
    other.publisher("orders").publish(batch([b"2", b"3"], answers.to(3)))
    named.publish(batch([b"n3"], answers.to(4), sequences=[9]))
    broker.write_queued()
    assert sorted(answers.confirmed) == [1, 2, 3, 4]  # type: ignore[type-var]
    assert chunks(tmp_path, "orders") == [(3, 0), (3, 0)]
    assert stored(tmp_path, "orders") == [b"1", b"2", b"3", b"n1", b"n2", b"n3"]
    assert session.last_sequence("orders", "p") == 9
    broker.close()


@pytest.mark.parametrize("count", [3, 10_000])
def test_a_whole_batch_is_one_chunk_in_its_place(tmp_path: Path, count: int) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {})
    publishers = [session.publisher("orders") for _ in range(2)]
    answers = Answers()
    given = [[b"1"], [b"%d" % number * 30 for number in range(count)], [b"2"], [b"3"], [b"4"] * count]
    for number, messages in enumerate(given):
        made = batch(messages, answers.to(number))
        made.is_whole = number in (1, 4)
        publishers[number % 2].publish(made)
    broker.write_queued()
    assert answers.given == [(number, None) for number in range(5)]
    assert stored(tmp_path, "orders") == [message for messages in given for message in messages]
    assert [records for records, _ in chunks(tmp_path, "orders")] == [1, count, 2, count]
    broker.close()


def test_a_duplicate_is_confirmed_and_left_out_also_after_a_restart(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {})
    publisher = session.publisher("orders", reference="p")
    assert publish(broker, publisher, [b"1", b"2", b"3"], sequences=[1, 2, 3]) is None
    assert publish(broker, publisher, [b"2", b"3", b"4"], sequences=[2, 3, 4]) is None
    assert publish(broker, publisher, [b"x", b"y"], sequences=[1, 4]) is None
    broker.close()
    broker = open_broker(tmp_path)
    session = open_session(broker)
    assert session.last_sequence("orders", "p") == 4
    publisher = session.publisher("orders", reference="p")
    assert publish(broker, publisher, [b"4", b"9"], sequences=[4, 2**64 - 1]) is None
    assert session.last_sequence("orders", "p") == 2**64 - 1
    assert session.last_sequence("orders", "unknown") is None
    broker.close()
    assert stored(tmp_path, "orders") == [b"1", b"2", b"3", b"4", b"9"]


def test_two_publishers_of_one_name_are_one_to_deduplication_within_one_write(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    one, two = open_session(broker), open_session(broker)
    one.declare_stream("orders", {})
    answers = Answers()
    one.publisher("orders", reference="p").publish(batch([b"1", b"2"], answers.to(1), sequences=[1, 2]))
    two.publisher("orders", reference="p").publish(batch([b"2", b"3"], answers.to(2), sequences=[2, 3]))
    broker.write_queued()
    assert answers.given == [(1, None), (2, None)]
    assert stored(tmp_path, "orders") == [b"1", b"2", b"3"]
    assert broker.catalogue.get("orders").counters.messages_duplicate == 1
    broker.close()


@pytest.mark.parametrize(
    ("sequences", "last", "expected"),
    [
        ([1, 2, 3], None, [True, True, True]),
        ([0], None, [True]),
        ([0, 1], 0, [False, True]),
        ([5, 5, 4, 6], 3, [True, False, False, True]),
        ([2**63, 2**64 - 1], 2**63, [False, True]),
        ([], 7, []),
    ],
)
def test_new_sequences_are_above_the_last_and_above_all_before_them(
    sequences: list[int], last: int | None, expected: list[bool]
) -> None:
    assert above(np.array(sequences, dtype=np.uint64), last).tolist() == expected


def test_sub_batches_are_kept_as_they_are_and_share_no_chunk_with_messages(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {})
    packed = SubBatch.of([b"2", b"3", b"4"], Compression.GZIP).encode()
    entries = [b"1", packed, b"5"]
    assert publish(broker, session.publisher("orders"), entries, records=[0, 3, 0]) is None
    assert chunks(tmp_path, "orders") == [(1, 0), (3, 0), (1, 0)]
    assert stored(tmp_path, "orders") == [b"1", b"2", b"3", b"4", b"5"]
    counters = broker.catalogue.get("orders").counters
    assert (counters.messages_published, counters.messages_confirmed, counters.chunks_written) == (5, 3, 3)
    broker.close()


def test_filter_values_are_in_the_chunks_of_the_declared_size(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {"stream-filter-size-bytes": 20})
    publish(broker, session.publisher("orders"), [b"1"], values=[b"AMER"])
    publish(broker, session.publisher("orders"), [b"1"] * 100, values=[b"AMER", None] * 50)
    publish(broker, session.publisher("orders"), [b"1"] * 2, values=[None, b""])
    assert chunks(tmp_path, "orders") == [(1, 20), (100, 20), (2, 0)]
    broker.close()


def test_columns_that_do_not_fit_are_refused_before_anything_is_queued(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {})
    plain, named = session.publisher("orders"), session.publisher("orders", reference="p")
    wrong = batch([b"abc"], lambda _error: None)
    data, starts, lengths = wrong.entries.columns
    wrong.entries = Entries(data, starts, lengths + 1)
    for publisher, sent in (
        (plain, wrong),
        (plain, batch([b"a"], lambda _error: None, sequences=[1])),
        (named, batch([b"a"], lambda _error: None)),
        (named, batch([b"a"], lambda _error: None, sequences=[1, 2])),
    ):
        with pytest.raises(ValueError, match=r"bytes|sequences"):
            publisher.publish(sent)
    assert not broker.catalogue.get("orders").queue
    broker.close()


def test_what_a_closed_publisher_had_queued_is_still_written_and_nothing_more(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {})
    publisher = session.publisher("orders")
    answers = Answers()
    publisher.publish(batch([b"1"], answers.to(1)))
    session.close()
    publisher.close()
    publisher.publish(batch([b"2"], answers.to(2)))
    broker.write_queued()
    assert answers.confirmed == [1] and [type(error) for error in answers.refused] == [ResourceNotFoundError]
    assert stored(tmp_path, "orders") == [b"1"]
    broker.close()


def test_closing_the_broker_writes_and_confirms_what_is_queued(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {})
    answers = Answers()
    session.publisher("orders").publish(batch([b"1"], answers.to(1)))
    broker.close()
    assert answers.confirmed == [1] and stored(tmp_path, "orders") == [b"1"]


def test_closing_gives_the_locks_back_even_where_a_publisher_fails_at_its_confirm(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {})

    def failing(_error: HeadgateError | None) -> None:
        raise ZeroDivisionError

    session.publisher("orders").publish(batch([b"1"], failing))
    with pytest.raises(ZeroDivisionError):
        broker.close()
    Writer.open(Stream.open(stream_folder(tmp_path, "orders")), now_ms=START_MS).close()


# storage that fails


def full_disk_broker(root: Path, files: FailingFiles) -> Broker:
    return open_broker(root, settings=BrokerSettings(open_file=files))


def test_a_full_disk_refuses_what_is_queued_and_publishers_go_on_when_there_is_room_again(tmp_path: Path) -> None:
    files = FailingFiles(OSError(errno.ENOSPC, "No space left on device"))
    broker = full_disk_broker(tmp_path, files)
    session = open_session(broker)
    session.declare_stream("orders", {})
    publisher = session.publisher("orders")
    assert publish(broker, publisher, [b"1"]) is None
    files.budget = files.written + 10
    answers = Answers()
    publisher.publish(batch([b"2"], answers.to(2)))
    open_session(broker).publisher("orders").publish(batch([b"3"], answers.to(3)))
    broker.write_queued()
    assert [type(error) for error in answers.refused] == [StorageFullError, StorageFullError]
    assert stored(tmp_path, "orders") == [b"1"]
    files.budget = None
    assert publish(broker, publisher, [b"4"]) is None
    assert stored(tmp_path, "orders") == [b"1", b"4"]
    broker.close()


def test_a_write_that_could_not_be_taken_back_is_recovered_by_the_next_one(tmp_path: Path) -> None:
    files = FailingFiles(OSError(errno.ENOSPC, "No space left on device"))
    broker = full_disk_broker(tmp_path, files)
    session = open_session(broker)
    session.declare_stream("orders", {})
    publisher = session.publisher("orders")
    assert publish(broker, publisher, [b"1"]) is None
    session.store_offset("orders", "reader", 0)
    files.budget, files.fail_truncate = files.written + 10, True
    assert isinstance(publish(broker, publisher, [b"2"]), StorageFullError)
    assert broker.catalogue.get("orders").writer is None
    assert session.stored_offset("orders", "reader") == 0
    files.budget, files.fail_truncate = None, False
    assert publish(broker, publisher, [b"3"]) is None
    broker.close()
    assert stored(tmp_path, "orders") == [b"1", b"3"]
    assert open_session(open_broker(tmp_path)).stored_offset("orders", "reader") == 0


def test_a_whole_chunk_that_could_not_be_taken_back_counts_for_the_broker_as_for_readers(tmp_path: Path) -> None:
    files = FailingFiles(OSError(errno.ENOSPC, "No space left on device"))
    broker = full_disk_broker(tmp_path, files)
    session = open_session(broker)
    session.declare_stream("orders", {})
    session.declare_stream("others", {})
    before = files.written
    assert publish(broker, session.publisher("others"), [b"1"]) is None
    # As many bytes as that chunk took, and none for its index record.
    files.budget, files.fail_truncate = files.written + files.written - before - INDEX_RECORD_BYTES, True
    assert isinstance(publish(broker, session.publisher("orders"), [b"1"]), StorageFullError)
    assert stored(tmp_path, "orders") == [b"1"]
    assert session.stream_info("orders").next_offset == 1
    files.budget, files.fail_truncate = None, False
    broker.close()


class FullDisk:
    """A broker with the stream `orders`, on a disk that is full when the test says so."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = FailingFiles(OSError(errno.ENOSPC, "No space left on device"))
        self.restart()
        self.session.declare_stream("orders", {})

    def restart(self) -> None:
        self.broker = full_disk_broker(self.root, self.files)
        self.session = open_session(self.broker)

    def publisher(self) -> Publisher:
        return open_session(self.broker).publisher("orders", reference="p")

    def send(self, publisher: Publisher, *numbers: int) -> type[HeadgateError] | None:
        bodies = [b"%d" % number for number in numbers]
        error = publish(self.broker, publisher, bodies, sequences=list(numbers))
        return None if error is None else type(error)

    def fill(self) -> None:
        self.files.budget = self.files.written

    def stored(self) -> list[int]:
        self.broker.close()
        return [int(body) for body in stored(self.root, "orders")]


@pytest.fixture
def disk(tmp_path: Path) -> FullDisk:
    return FullDisk(tmp_path)


@pytest.mark.parametrize("restarts", [False, True])
def test_nothing_later_is_confirmed_before_what_was_refused_is_stored(disk: FullDisk, restarts: bool) -> None:
    publisher = disk.publisher()
    other = disk.publisher()
    assert disk.send(publisher, 1) is None
    disk.fill()
    assert disk.send(publisher, *range(2, 42)) is StorageFullError
    disk.files.budget = None
    for each in (publisher, other):
        assert disk.send(each, 42) is PreconditionFailedError
    assert disk.send(publisher, 1) is None
    if restarts:
        disk.broker.close()
        disk.restart()
        publisher = disk.publisher()
    assert disk.session.last_sequence("orders", "p") == 1
    assert disk.send(publisher, *range(2, 20)) is None
    if not restarts:
        assert disk.send(publisher, *range(20, 40), 43) is PreconditionFailedError
        # What was refused with it is to be sent again, too.
        assert disk.send(publisher, *range(20, 43)) is None
        assert disk.send(publisher, 44) is PreconditionFailedError
    assert disk.send(publisher, *range(20, 45)) is None
    assert disk.send(publisher, 50) is None
    assert disk.stored() == [*range(1, 45), 50]


def test_a_publisher_that_is_declared_anew_begins_anew(disk: FullDisk) -> None:
    publisher = disk.publisher()
    assert disk.send(publisher, 1) is None
    disk.fill()
    assert disk.send(publisher, 2, 3) is StorageFullError
    disk.files.budget = None
    again = disk.publisher()
    assert disk.send(again, 4) is None
    # It was overtaken: to confirm it would be a lie, to store it out of order.
    for each in (publisher, again):
        assert disk.send(each, 2) is PreconditionFailedError
        assert disk.send(each, 4) is None
    assert disk.send(publisher, 5) is PreconditionFailedError
    assert disk.send(again, 5) is None
    disk.fill()
    assert disk.send(again, 6) is StorageFullError
    disk.files.budget = None
    assert disk.send(again, 7) is PreconditionFailedError
    assert disk.stored() == [1, 4, 5]


def test_whatever_a_message_was_refused_for_holds_back_what_follows(disk: FullDisk) -> None:
    disk.session.declare_stream("regions", {"headgate-filter-source": "application_properties.region"})
    publisher = disk.session.publisher("regions", reference="p")
    amer = Message(b"m", application_properties={"region": "AMER"}).encode()
    assert publish(disk.broker, publisher, [amer], sequences=[1]) is None
    wrong = publish(disk.broker, publisher, [amer], sequences=[2], values=[b"EMEA"])
    assert isinstance(wrong, PreconditionFailedError) and "sequence" not in str(wrong)
    publisher.hold_back(np.array([3], dtype=np.uint64))
    for sequences in ([3], [4], [2, 4]):
        held = publish(disk.broker, publisher, [amer] * len(sequences), sequences=sequences)
        assert isinstance(held, PreconditionFailedError) and "send again from" in str(held)
    assert publisher.is_held_back
    for number in (2, 3, 4):
        assert publish(disk.broker, publisher, [amer], sequences=[number]) is None
    assert not publisher.is_held_back
    disk.broker.close()
    assert len(stored(disk.root, "regions")) == 4


def test_what_was_refused_because_another_process_writes_is_no_duplicate_later(disk: FullDisk) -> None:
    publisher = disk.publisher()
    assert disk.send(publisher, 1) is None
    disk.broker.catalogue.get("orders").close_writer()
    with Writer.open(Stream.open(stream_folder(disk.root, "orders")), now_ms=START_MS):
        assert disk.send(publisher, 1, 2) is StreamLockedError
    assert disk.send(publisher, 3) is PreconditionFailedError
    assert disk.send(publisher, 1) is None
    assert disk.send(publisher, 2, 3) is None
    assert disk.stored() == [1, 2, 3]


def test_an_error_that_is_none_of_storage_refuses_the_batch_and_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    for name in ("bad", "good"):
        session.declare_stream(name, {})
    answers = Answers()
    bad, good = session.publisher("bad"), session.publisher("good")
    append = Writer.append_runs

    def failing(writer: Writer, *arguments: object, **more: object) -> object:
        if writer.stream.name == "bad":
            raise ZeroDivisionError
        return append(writer, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Writer, "append_runs", failing)
    bad.publish(batch([b"1"], answers.to("bad")))
    good.publish(batch([b"1"], answers.to("good")))
    with pytest.raises(ZeroDivisionError):
        broker.write_queued()
    broker.write_queued()
    assert answers.confirmed == ["good"] and len(answers.refused) == 1
    monkeypatch.undo()
    assert publish(broker, bad, [b"2"]) is None
    broker.close()


def test_a_publisher_that_fails_at_its_confirm_keeps_no_other_from_hearing(tmp_path: Path) -> None:
    woken: list[int] = []
    broker = open_broker(tmp_path, wake=lambda: woken.append(1))
    session = open_session(broker)
    answers = Answers()

    def failing(_error: HeadgateError | None) -> None:
        raise ZeroDivisionError

    for name in ("a", "b"):
        session.declare_stream(name, {})
        session.publisher(name).publish(batch([b"1"], failing if name == "a" else answers.to("other stream")))
    open_session(broker).publisher("a").publish(batch([b"2"], answers.to("same stream")))
    woken.clear()
    with pytest.raises(ZeroDivisionError):
        broker.write_queued()
    assert answers.confirmed == ["same stream"] and woken
    broker.write_queued()
    assert answers.confirmed == ["same stream", "other stream"]
    broker.close()


def test_a_publisher_that_publishes_when_it_is_told_waits_for_the_next_turn(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {})
    publisher = session.publisher("orders")
    told: list[HeadgateError | None] = []

    def again(error: HeadgateError | None) -> None:
        told.append(error)
        publisher.publish(batch([b"m"], again if len(told) < 4 else told.append))

    publisher.publish(batch([b"m"], again))
    for count in range(1, 4):
        broker.write_queued()
        assert len(told) == count
    broker.close()
    assert told == [None] * 5 and len(stored(tmp_path, "orders")) == 5


def test_a_stream_that_another_process_writes_refuses_publishers_and_names_the_holder(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {})
    with (
        Writer.open(Stream.open(stream_folder(tmp_path, "orders")), now_ms=START_MS),
        pytest.raises(StreamLockedError, match=r"process \d+"),
    ):
        session.publisher("orders")
    session.publisher("orders")
    broker.close()


def test_the_writer_is_given_back_ten_seconds_after_the_last_publisher_left(tmp_path: Path) -> None:
    clock = SetClock()
    broker = open_broker(tmp_path, clock=clock)
    session = open_session(broker)
    session.declare_stream("orders", {})
    publisher = session.publisher("orders")
    stream = broker.catalogue.get("orders")
    broker.tick(clock.now + 60_000)
    publisher.close()
    broker.tick(clock.now + 61_000)
    broker.tick(clock.now + 70_900)
    assert stream.writer is not None
    broker.tick(clock.now + 71_000)
    assert stream.writer is None
    with Writer.open(stream.stream, now_ms=START_MS) as writer:
        writer.append([(b"m", None)], now_ms=START_MS)
    assert session.stream_info("orders").next_offset == 1
    broker.close()


# writes in the background


def disk_broker(root: Path, worker: Background) -> Broker:
    return open_broker(root, settings=BrokerSettings(durability=Durability.DISK), run_in_worker=worker)


def test_appends_to_the_disk_run_in_the_background_and_what_comes_meanwhile_goes_together(tmp_path: Path) -> None:
    worker = Background()
    broker = disk_broker(tmp_path, worker)
    session = open_session(broker)
    session.declare_stream("orders", {})
    publisher = session.publisher("orders", reference="p")
    answers = Answers()
    for number in range(1, 5):
        publisher.publish(batch([b"%d" % number], answers.to(number), sequences=[number]))
        broker.write_queued()
    session.store_offset("orders", "reader", 1)
    broker.tick(START_MS + 5_000)
    assert session.stored_offset("orders", "reader") == 1
    assert not answers.given and len(worker.jobs) == 1
    worker.run_one()
    broker.write_queued()
    assert answers.confirmed == [1] and len(worker.jobs) == 1
    worker.run_one()
    assert answers.confirmed == [1, 2, 3, 4] and not worker.jobs
    assert chunks(tmp_path, "orders") == [(1, 0), (3, 0)]
    broker.close()
    assert stored(tmp_path, "orders") == [b"1", b"2", b"3", b"4"]


def test_an_error_in_the_background_refuses_the_batch_and_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Background()
    broker = disk_broker(tmp_path, worker)
    session = open_session(broker)
    session.declare_stream("orders", {})
    answers = Answers()
    session.publisher("orders").publish(batch([b"1"], answers.to(1)))
    broker.write_queued()
    _work, then = worker.jobs.pop()
    with pytest.raises(ZeroDivisionError):
        then(ZeroDivisionError())
    assert len(answers.refused) == 1
    broker.close()


def test_what_a_worker_could_not_write_is_refused_when_the_broker_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing does not wait to be told of the error, which is none of storage."""
    worker = Background()
    broker = disk_broker(tmp_path, worker)
    session = open_session(broker)
    session.declare_stream("orders", {})
    answers = Answers()
    session.publisher("orders").publish(batch([b"1"], answers.to(1)))
    broker.write_queued()
    work, _then = worker.jobs.pop()

    def fail(*_: object, **__: object) -> None:
        raise OSError(24, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "append_runs", fail)
        with pytest.raises(OSError, match="too many"):
            work()
    broker.close()
    assert not answers.confirmed and len(answers.refused) == 1
    assert stored(tmp_path, "orders") == []


def test_closing_waits_for_what_is_written_in_the_background(tmp_path: Path) -> None:
    worker = Background()
    broker = disk_broker(tmp_path, worker)
    session = open_session(broker)
    session.declare_stream("orders", {})
    publisher = session.publisher("orders")
    answers = Answers()
    publisher.publish(batch([b"1"], answers.to(1)))
    broker.write_queued()
    publisher.publish(batch([b"2"], answers.to(2)))
    work, then = worker.jobs.pop()
    work()
    broker.close()
    assert answers.confirmed == [1, 2]
    then(None)
    assert answers.confirmed == [1, 2]
    assert stored(tmp_path, "orders") == [b"1", b"2"]


def test_files_of_a_deleted_stream_are_removed_in_the_background(tmp_path: Path) -> None:
    worker = Background()
    broker = open_broker(tmp_path, run_in_worker=worker)
    session = open_session(broker)
    session.declare_stream("orders", {})
    assert publish(broker, session.publisher("orders"), [b"1"]) is None
    session.delete_stream("orders")
    deleted = tmp_path / ".headgate" / "deleted"
    assert session.streams() == [] and len(list(deleted.iterdir())) == 1
    worker.run_one()
    assert not list(deleted.iterdir()) and not worker.jobs
    broker.close()
