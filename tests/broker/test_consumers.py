"""Consumers one at a time: the end of a stream, damage, retention, memory, groups, other threads and processes."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from brokers import START_MS, Answers, SetClock, batch, open_broker, open_session, publish, scan
from headgate.broker.broker import Broker
from headgate.broker.consumers import (
    DROP_AFTER_MS,
    KEPT_MS,
    TRIM_MS,
    ChunkConsumer,
    Consumer,
    ConsumerOptions,
    Consumers,
    MessageConsumer,
)
from headgate.broker.publishers import Publisher
from headgate.broker.session import Session
from headgate.broker.settings import BrokerSettings
from headgate.derived.match_index.registry import FilterRegistry
from headgate.errors import CorruptChunkError, LimitExceededError
from headgate.evaluate.filter import Filter
from headgate.log import OffsetSpecification, Stream, StreamArguments, Writer, stream_folder
from headgate.log.format import CHUNK_HEADER_BYTES, INDEX_RECORD_BYTES
from headgate.scan.fetch import Fetcher, SharedLog, SharedReads
from log_streams import PART, FailingFiles, write_with_a_pair_given_up
from match_indexes import build_index
from shared_streams import FILTERS, body

FIRST = OffsetSpecification.first()
NEXT = OffsetSpecification.next()


@pytest.fixture
def session(broker: Broker) -> Session:
    opened = open_session(broker)
    opened.declare_stream("s", {})
    return opened


def _options(start: OffsetSpecification = FIRST, wanted: str | None = None, **more: object) -> ConsumerOptions:
    return ConsumerOptions(start=start, filter=None if wanted is None else Filter.parse(wanted), **more)  # type: ignore[arg-type]


def _write(broker: Broker, publisher: Publisher, numbers: range, *, per_chunk: int = 10) -> None:
    for start in range(numbers.start, numbers.stop, per_chunk):
        part = range(start, min(start + per_chunk, numbers.stop))
        assert publish(broker, publisher, [body(number) for number in part]) is None


def _read(consumer: MessageConsumer) -> list[int]:
    """The offsets of everything there is."""
    consumer.want(1 << 20)
    found: list[int] = []
    while True:
        if consumer.scan_due():
            scan(consumer)
        batch = consumer.take(7, 1 << 20)
        if batch is not None:
            found += batch.offsets.tolist()
        elif not consumer.scan_due():
            return found


def _read_to(consumer: MessageConsumer, offset: int) -> list[int]:
    """The offsets that a consumer gets until it stands at an offset."""
    found: list[int] = []
    while consumer.next_offset < offset:
        if consumer.scan_due():
            scan(consumer)
        batch = consumer.take(100, 1 << 20)
        found += [] if batch is None else batch.offsets.tolist()
    return found


def _is_small(consumer: MessageConsumer) -> bool:
    due = consumer.scan_due()
    assert due is not None
    return consumer.is_small(due)


def _chunk_ids(consumer: ChunkConsumer) -> list[int]:
    consumer.want(1 << 20)
    found: list[int] = []
    while True:
        if consumer.scan_due():
            scan(consumer)
        batch = consumer.take(1 << 20)
        if batch is not None:
            found += [
                int.from_bytes(batch.data[at + 24 : at + 32].tobytes(), "big") for at in batch.header_starts.tolist()
            ]
        elif not consumer.scan_due():
            return found


# whole chunks far behind


def _read_raw(consumer: ChunkConsumer) -> tuple[list[bytes], int]:
    """The data parts of all chunks, and the memory that they lay in beside mapped files."""
    consumer.want(1 << 20)
    found, held = [], 0
    while True:
        if consumer.scan_due():
            scan(consumer)
        held = max(held, sum(consumer.held_bytes().values()))
        batch = consumer.take(1 << 20)
        if batch is not None:
            parts = zip(batch.data_starts.tolist(), batch.data_lengths.tolist(), strict=True)
            found += [batch.data[start : start + length].tobytes() for start, length in parts]
        elif not consumer.scan_due():
            return found, held


def test_chunks_far_behind_are_views_of_the_file_but_for_its_end(broker: Broker, session: Session) -> None:
    publisher = session.publisher("s")
    large = [bytes([number]) * 100_000 for number in range(60)]
    for message in large[:30]:
        assert publish(broker, publisher, [message]) is None
    consumer = session.chunk_consumer("s", _options())
    first, held = _read_raw(consumer)
    assert held <= 256 << 10
    # The mapping that was made does not reach what comes now.
    for message in large[30:]:
        assert publish(broker, publisher, [message]) is None
    second, held = _read_raw(consumer)
    assert held <= 256 << 10
    assert [data[4:] for data in first + second] == large


def test_a_file_that_a_recovery_would_cut_is_not_mapped(broker: Broker, session: Session, tmp_path: Path) -> None:
    publisher = session.publisher("s")
    for number in range(30):
        assert publish(broker, publisher, [bytes([number]) * 100_000]) is None
    (segment,) = Stream.open(stream_folder(tmp_path, "s")).segments()
    with open(segment.segment_path, "r+b") as file:
        file.seek(-50_000, os.SEEK_END)
        file.write(b"what a loss of power left")
    found, held = _read_raw(session.chunk_consumer("s", _options()))
    assert len(found) == 30 and held > 512 << 10


def test_chunks_of_a_wanted_filter_value_far_behind_are_views_too(broker: Broker, session: Session) -> None:
    publisher = session.publisher("s")
    large = [bytes([number]) * 100_000 for number in range(40)]
    for number, message in enumerate(large):
        assert publish(broker, publisher, [message], values=[b"odd" if number % 2 else b"even"]) is None
    consumer = session.chunk_consumer("s", _options(filter_values=(b"odd",)))
    found, held = _read_raw(consumer)
    assert [data[4:] for data in found] == large[1::2]
    assert held <= 256 << 10


# the end of a stream


def test_the_filtered_lag_is_the_share_of_the_lag_that_the_filter_has_kept_so_far(
    broker: Broker, session: Session
) -> None:
    publisher = session.publisher("s")
    _write(broker, publisher, range(90))
    third, everything = (session.message_consumer("s", _options(wanted=text)) for text in ("n % 3 = 0", None))
    assert third.filtered_lag == third.lag == 90, "nothing is known before it has read"
    for consumer in (third, everything):
        _read(consumer)
        assert consumer.filtered_lag == consumer.lag == 0
    _write(broker, publisher, range(90, 150))
    assert (third.lag, third.filtered_lag) == (60, 20)
    assert (everything.lag, everything.filtered_lag) == (60, 60)


def test_the_lag_counts_messages_and_no_bookkeeping(broker: Broker, session: Session) -> None:
    publisher = session.publisher("s")
    stream = broker.catalogue.get("s")
    consumers = [session.message_consumer("s", _options(wanted=text)) for text in ("n % 2 = 0", None)]
    for start in range(0, 40, 10):
        _write(broker, publisher, range(start, start + 10))
        session.store_offset("s", "app", start)
        stream.flush_offsets(now_ms=START_MS)
    assert (stream.next_offset, stream.messages_from(0)) == (44, 40)
    assert [(consumer.lag, consumer.filtered_lag) for consumer in consumers] == [(40, 40)] * 2
    for consumer in consumers:
        _read(consumer)
    assert [(consumer.lag, consumer.filtered_lag) for consumer in consumers] == [(0, 0)] * 2
    stream.flush_offsets(now_ms=START_MS)
    session.store_offset("s", "app", 39)
    stream.flush_offsets(now_ms=START_MS)
    assert stream.next_offset == 45 and [consumer.lag for consumer in consumers] == [0, 0]
    _write(broker, publisher, range(40, 50))
    assert [(consumer.lag, consumer.filtered_lag) for consumer in consumers] == [(10, 5), (10, 10)]


def test_a_consumer_at_the_end_is_woken_once_per_write_and_reads_only_what_is_new(
    broker: Broker, session: Session
) -> None:
    publisher = session.publisher("s")
    _write(broker, publisher, range(100))
    consumer = session.message_consumer("s", _options(NEXT))
    woken: list[int] = []
    consumer.listen(lambda: woken.append(1))
    consumer.want(3)
    woken.clear()
    assert consumer.at_end and consumer.lag == 0
    _write(broker, publisher, range(100, 105))
    assert woken == [1]
    assert consumer.has_pending and not consumer.scan_due() and not consumer.at_end
    assert consumer.lag == 5
    assert consumer.counters.messages_evaluated == 5
    batch = consumer.take(10, 1 << 20)
    assert batch is not None and batch.offsets.tolist() == [100, 101, 102]
    assert batch.timestamps_ms.tolist() == [START_MS] * 3
    assert consumer.take(10, 1 << 20) is None
    assert consumer.next_offset == 103 and consumer.lag == 2
    _write(broker, publisher, range(105, 106))
    assert woken == [1], "without credit there is nothing to do"


@pytest.mark.parametrize(
    ("count", "size_bytes", "is_handed"), [(1, 1, True), (1024, 1, True), (1025, 1, False), (1, 1 << 16, False)]
)
def test_what_is_little_is_handed_to_who_waits_without_a_look_at_a_file(
    broker: Broker,
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    size_bytes: int,
    is_handed: bool,
) -> None:
    publisher = session.publisher("s")
    messages, chunks = session.message_consumer("s", _options()), session.chunk_consumer("s", _options())
    for consumer in (messages, chunks):
        consumer.want(2000)
    with monkeypatch.context() as patch:
        patch.setattr(SharedLog, "place", lambda *_: pytest.fail("looked at a file"))
        assert publish(broker, publisher, [b"x" * size_bytes] * count) is None
        for consumer in (messages, chunks):
            assert consumer.has_pending == is_handed and (consumer.scan_due() is None) == is_handed
    assert _read(messages) == list(range(count)) and _chunk_ids(chunks) == [0]


def test_a_message_that_comes_alone_is_handed_over_too(
    broker: Broker, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = session.message_consumer("s", _options(wanted="n = 1"))
    consumer.want(10)
    monkeypatch.setattr(SharedLog, "place", lambda *_: pytest.fail("looked at a file"))
    publisher, answers = session.publisher("s"), Answers()
    for number in range(2):
        publisher.publish(batch([body(number)], answers.to(number)))
        broker.write_queued()
    assert answers.confirmed == [0, 1] and consumer.next_offset == 1
    taken = consumer.take(10, 1 << 20)
    assert taken is not None and taken.messages.message(0) == body(1) and consumer.at_end


@pytest.mark.parametrize("is_taken_back", [True, False])
@pytest.mark.parametrize("visible", [0, 1])
def test_nothing_of_a_write_that_failed_is_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: int, is_taken_back: bool
) -> None:
    files = FailingFiles(OSError(errno.ENOSPC, "No space left on device"))
    broker = open_broker(tmp_path, settings=BrokerSettings(open_file=files))
    session = open_session(broker)
    session.declare_stream("s", {})
    named = [session.publisher("s", reference=name) for name in ("p", "q")]
    consumer = session.message_consumer("s", _options())
    consumer.want(100)

    def publish_two_chunks(sequence: int) -> Answers:
        answers = Answers()
        for number, publisher in enumerate(named):
            publisher.publish(batch([body(number)], answers.to(number), sequences=[sequence]))
        broker.write_queued()
        return answers

    before = files.written
    assert publish_two_chunks(1).confirmed == [0, 1]
    assert consumer.has_pending and _read(consumer) == [0, 1]
    files.budget = 2 * files.written - before - (2 - visible) * INDEX_RECORD_BYTES
    files.fail_truncate = not is_taken_back
    with monkeypatch.context() as patch:
        patch.setattr(Fetcher, "fetch_appended", lambda *_: pytest.fail("handed over"))
        assert len(publish_two_chunks(2).refused) == 2
        assert not consumer.has_pending
    files.budget, files.fail_truncate = None, False
    assert publish(broker, session.publisher("s"), [body(7)]) is None
    # What could not be taken back is whole: the recovery that the next writer begins with keeps it.
    kept = visible if is_taken_back else 2
    assert _read(consumer) == list(range(2, 2 + kept + 1))
    broker.close()


def test_a_long_way_to_the_end_is_no_small_scan(broker: Broker, session: Session) -> None:
    publisher = session.publisher("s")
    _write(broker, publisher, range(3000), per_chunk=500)
    far, near = (session.message_consumer("s", _options(OffsetSpecification.offset(at))) for at in (0, 2700))
    for consumer in (far, near):
        consumer.want(1)
    assert not _is_small(far)
    assert _is_small(near)
    large = session.message_consumer("s", _options(NEXT))
    large.want(1)
    assert publish(broker, publisher, [b"\x00Su\xb0\x00\x01\x86\xa0" + bytes(100_000)]) is None
    assert not _is_small(large)


def test_what_another_writer_appends_is_read_after_the_next_look(broker: Broker, session: Session) -> None:
    consumer = session.message_consumer("s", _options(wanted="n % 2 = 0"))
    consumer.want(100)
    woken: list[int] = []
    consumer.listen(lambda: woken.append(1))
    stream = Stream.open(stream_folder(broker.root, "s"))
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(body(number), None) for number in range(6)], now_ms=1)
        assert not consumer.scan_due()
        broker.tick(START_MS + 100)
        assert woken and _read(consumer) == [0, 2, 4]
        writer.change(now_ms=2, arguments=StreamArguments(max_segment_size_bytes=500))
        for number in range(6, 40):
            writer.append([(body(number), None)], now_ms=2)
            if number % 5 == 0:
                broker.tick(START_MS + 100 + number)
                _read(consumer)
        broker.tick(START_MS + 1000)
        _read(consumer)
    assert consumer.next_offset == 40 and consumer.delivered_messages == 20


@pytest.mark.parametrize("looks", list(itertools.product([False, True], repeat=5)))
def test_a_consumer_that_waits_in_a_pair_that_is_given_up_reads_on(
    broker: Broker, session: Session, looks: tuple[bool, ...]
) -> None:
    stream = Stream.open(stream_folder(broker.root, "s"))
    steps = write_with_a_pair_given_up(stream, [body(number) for number in range(5 * PART)])
    next(steps)
    consumer = session.message_consumer("s", _options())
    found = _read(consumer)
    for count, is_looked_at in zip(steps, [*looks, True], strict=True):
        if is_looked_at:
            broker.tick(START_MS)
            found += _read(consumer)
            assert found == list(range(count)) and consumer.at_end


# damage and retention


@pytest.mark.parametrize("readers", [1, 2, 6])
def test_what_lies_before_a_damaged_chunk_is_delivered_before_the_error(
    broker: Broker, session: Session, readers: int
) -> None:
    publisher = session.publisher("s")
    _write(broker, publisher, range(100))
    _damage(broker.root, chunk=4, at=CHUNK_HEADER_BYTES + 30)
    consumers = [session.message_consumer("s", _options(wanted=each.text)) for each in FILTERS[:readers]]
    behind = session.message_consumer("s", _options(OffsetSpecification.offset(50)))
    for consumer, wanted in zip(consumers, FILTERS, strict=False):
        consumer.want(1000)
        found = _read_to(consumer, 40)
        with pytest.raises(CorruptChunkError, match="checksum of chunk 40"):
            scan(consumer)
        assert found == [number for number in range(40) if wanted.matches(body(number), now_ms=0)]
        assert consumer.next_offset == 40
    assert _read(behind) == list(range(50, 100))


@pytest.mark.parametrize("readers", [1, 3])
def test_a_damaged_header_stops_consumers_of_chunks_at_that_chunk(
    broker: Broker, session: Session, readers: int
) -> None:
    publisher = session.publisher("s")
    _write(broker, publisher, range(100))
    _damage(broker.root, chunk=4, at=0)
    consumers = [session.chunk_consumer("s", _options()) for _ in range(readers)]
    for consumer in consumers:
        consumer.want(1000)
        scan(consumer)
        batch = consumer.take(1 << 20)
        assert batch is not None and len(batch) == 4
        with pytest.raises(CorruptChunkError, match="no chunk here"):
            scan(consumer)


def test_a_damaged_chunk_that_stage_1_skips_disturbs_nobody(broker: Broker, session: Session) -> None:
    publisher = session.publisher("s")
    for number, value in enumerate([b"a", b"b", b"a"]):
        publish(broker, publisher, [body(number)], values=[value])
    _damage(broker.root, chunk=1, at=CHUNK_HEADER_BYTES + 16 + 10)
    session.message_consumer("s", _options())
    consumer = session.message_consumer("s", _options(filter_values=(b"a",)))
    assert _read(consumer) == [0, 2]


def _damage(root: Path, *, chunk: int, at: int) -> None:
    [segment] = Stream.open(stream_folder(root, "s")).segments()
    with segment.open() as reader:
        position = int(reader.chunks().position[chunk])
    content = bytearray(segment.segment_path.read_bytes())
    content[position + at] ^= 0x41
    segment.segment_path.write_bytes(content)


def test_a_consumer_that_retention_overtook_goes_on_at_the_first_message_kept_and_is_told(
    broker: Broker, session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    session.declare_stream("short", {"stream-max-segment-size-bytes": 1000, "max-length-bytes": 2500})
    publisher = session.publisher("short")
    _write(broker, publisher, range(20))
    consumer = session.message_consumer("short", _options())
    chunks = session.chunk_consumer("short", _options())
    told: list[int] = []
    consumer.when_lost(told.append)
    consumer.want(5)
    scan(consumer)
    assert consumer.take(5, 1 << 20) is not None
    _write(broker, publisher, range(20, 200))
    first = session.stream_info("short").first_offset
    assert first > 20
    found = _read(consumer)
    kept = [number for number in found if number >= first]
    assert kept == list(range(first, 200))
    assert told == [consumer.lost] and consumer.lost == first - (found[found.index(first) - 1] + 1)
    with caplog.at_level("WARNING", logger="headgate.broker"):
        assert _chunk_ids(chunks)[0] == first and chunks.lost == first
    assert f"{first} messages of stream 'short' were deleted before a consumer came to them" in caplog.text


def test_a_consumer_has_a_bounded_number_of_filter_values(session: Session) -> None:
    session.declare_stream("s", {})
    values = tuple(b"%d" % number for number in range(1001))
    assert session.chunk_consumer("s", _options(filter_values=values[1:])).stream == "s"
    for consume in (session.chunk_consumer, session.message_consumer):
        with pytest.raises(LimitExceededError, match="more than 1000 filter values"):
            consume("s", _options(filter_values=values))


# memory


def test_what_a_consumer_without_credit_leaves_is_dropped_and_read_again(
    broker: Broker, session: Session, clock: SetClock
) -> None:
    _write(broker, session.publisher("s"), range(100))
    consumer = session.message_consumer("s", _options(wanted="n % 3 = 0"))
    consumer.want(2)
    scan(consumer)
    first = consumer.take(100, 1 << 20)
    assert first is not None and first.offsets.tolist() == [0, 3]
    for passed_ms in (100, DROP_AFTER_MS - 100):
        broker.tick(START_MS + passed_ms)
        assert consumer.has_pending
    broker.tick(START_MS + DROP_AFTER_MS)
    assert not consumer.has_pending and consumer.next_offset == 6
    assert first.messages.message(1) == body(3)
    assert _read(consumer) == list(range(6, 100, 3))


def test_a_thousand_consumers_at_the_end_take_neither_descriptors_nor_much_memory(
    broker: Broker, session: Session
) -> None:
    publisher = session.publisher("s")
    _write(broker, publisher, range(1000), per_chunk=100)
    wanted = Filter.parse("n % 3 = 0")
    _read(session.message_consumer("s", ConsumerOptions(start=FIRST, filter=wanted)))
    before = len(os.listdir("/proc/self/fd"))
    gc.collect()
    tracemalloc.start()
    try:
        consumers = [session.message_consumer("s", ConsumerOptions(start=NEXT, filter=wanted)) for _ in range(1000)]
        for consumer in consumers:
            consumer.want(10)
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / len(consumers) < 6000
    assert len(os.listdir("/proc/self/fd")) <= before
    _write(broker, publisher, range(1000, 1001))
    for consumer in consumers:
        assert not consumer.scan_due() and consumer.at_end and consumer.counters.messages_evaluated == 1
    assert len(os.listdir("/proc/self/fd")) <= before


def test_memory_shared_for_reading_is_given_back_when_nobody_reads(tmp_path: Path) -> None:
    reads = SharedReads()
    broker = open_broker(tmp_path / "other")
    consumers = Consumers(now_ms=lambda: START_MS, reads=reads)
    owner = open_session(broker)
    owner.declare_stream("s", {})
    _write(broker, owner.publisher("s"), range(100))
    readers = [consumers.message_consumer(broker.catalogue.get("s"), _options()) for _ in range(2)]
    for consumer in readers:
        assert len(_read(consumer)) == 100
    assert reads.bytes_held > 0
    consumers.tick(START_MS + TRIM_MS)
    assert reads.bytes_held > 0, "it was used since the last look"
    consumers.tick(START_MS + 2 * TRIM_MS)
    assert reads.bytes_held == 0
    for consumer in readers:
        consumer.close()
    broker.close()


def test_a_consumer_that_ends_gives_back_what_it_held(broker: Broker, session: Session) -> None:
    _write(broker, session.publisher("s"), range(100))
    descriptors = len(os.listdir("/proc/self/fd"))
    consumers: list[Consumer] = [session.message_consumer("s", _options()), session.chunk_consumer("s", _options())]
    for consumer in consumers:
        consumer.want(10)
        scan(consumer)
    assert len(os.listdir("/proc/self/fd")) > descriptors
    assert session.stream_info("s").consumer_count == 2
    for consumer in consumers:
        consumer.close()
    assert session.stream_info("s").consumer_count == 0
    assert len(broker.consumers) == 0
    broker.tick(START_MS + KEPT_MS)
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_files_stay_open_for_a_consumer_that_comes_soon(broker: Broker, session: Session) -> None:
    _write(broker, session.publisher("s"), range(100))
    descriptors = len(os.listdir("/proc/self/fd"))
    first = session.message_consumer("s", _options())
    assert len(_read(first)) == 100
    used = len(os.listdir("/proc/self/fd"))
    first.close()
    broker.tick(START_MS + KEPT_MS - 1)
    second = session.message_consumer("s", _options())
    assert len(_read(second)) == 100
    broker.tick(START_MS + 2 * KEPT_MS)
    assert len(os.listdir("/proc/self/fd")) == used > descriptors
    second.close()
    session.delete_stream("s")
    assert len(os.listdir("/proc/self/fd")) <= descriptors


# filters


def test_filters_that_ask_for_the_time_are_decided_at_every_read(
    broker: Broker, session: Session, clock: SetClock
) -> None:
    _write(broker, session.publisher("s"), range(10))
    consumers = [session.message_consumer("s", _options(wanted=f"UTC() > {START_MS + 5}")) for _ in range(5)]
    assert [_read(consumer) for consumer in consumers[:4]] == [[]] * 4
    clock.now = START_MS + 6
    assert _read(consumers[4]) == list(range(10))


def test_results_of_the_match_index_stand_for_evaluating(broker: Broker, session: Session) -> None:
    _write(broker, session.publisher("s"), range(100))
    stream = Stream.open(stream_folder(broker.root, "s"))
    FilterRegistry(stream).register("group#topic", "n % 3 = 0", "amqp", now_ms=1)
    build_index(stream, now_ms=2)
    consumers = [session.message_consumer("s", _options(wanted="n % 3 = 0")) for _ in range(3)]
    for consumer in consumers:
        assert _read(consumer) == list(range(0, 100, 3))
        assert consumer.counters.messages_decided_by_index == 100
        assert consumer.counters.messages_evaluated == 0


# threads


def test_consumers_in_several_threads_get_what_is_written_meanwhile(broker: Broker, session: Session) -> None:
    session.declare_stream("busy", {"stream-max-segment-size-bytes": 20_000})
    publisher = session.publisher("busy")
    _write(broker, publisher, range(1000), per_chunk=50)
    wanted = [*FILTERS, None, None]
    consumers = [
        session.message_consumer("busy", ConsumerOptions(start=OffsetSpecification.offset(37 * number), filter=each))
        for number, each in enumerate(wanted)
    ]
    found: list[list[int]] = [[] for _ in consumers]
    with ThreadPoolExecutor(4) as pool:
        for number in range(1000, 2000, 20):
            for consumer in consumers:
                consumer.want(50)
            running = []
            for consumer in consumers:
                due = consumer.scan_due()
                if due is not None and consumer.begin_scan(due, may_wait=False):
                    running.append((consumer, due, pool.submit(consumer.run, due)))
            _write(broker, publisher, range(number, number + 20))
            for consumer, due, future in running:
                future.result(timeout=60)
                assert consumer.end_scan(due) is None
            for consumer, offsets in zip(consumers, found, strict=True):
                batch = consumer.take(50, 1 << 20)
                if batch is not None:
                    offsets += batch.offsets.tolist()
    for number, (consumer, offsets, each) in enumerate(zip(consumers, found, wanted, strict=True)):
        offsets += _read(consumer)
        assert offsets == [
            offset for offset in range(37 * number, 2000) if each is None or each.matches(body(offset), now_ms=0)
        ]


def test_a_consumer_may_end_or_begin_elsewhere_while_it_scans(
    broker: Broker, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(broker, session.publisher("s"), range(100))
    entered, go_on = threading.Event(), threading.Event()
    original = Fetcher.fetch

    def slow(fetcher: Fetcher, *arguments: Any) -> object:
        found = original(fetcher, *arguments)
        entered.set()
        assert go_on.wait(60)
        return found

    monkeypatch.setattr(Fetcher, "fetch", slow)
    ending, moving = (session.message_consumer("s", _options()) for _ in range(2))
    with ThreadPoolExecutor(2) as pool:
        for consumer in (ending, moving):
            consumer.want(1000)
            entered.clear()
            due = consumer.scan_due()
            assert due is not None and consumer.begin_scan(due, may_wait=False)
            running = pool.submit(consumer.run, due)
            assert entered.wait(60)
            assert not consumer.scan_due() and not consumer.at_end
            if consumer is ending:
                consumer.close()
                assert _shared_by(broker) == 2, "its scan still uses what it holds"
            else:
                consumer.deactivated()
                consumer.activate(OffsetSpecification.offset(90))
            go_on.set()
            running.result(60)
            assert consumer.end_scan(due) is None
            go_on.clear()
    monkeypatch.undo()
    assert _shared_by(broker) == len(broker.consumers) == 1
    assert ending.take(1, 1) is None
    assert _read(moving) == list(range(90, 100))


def _shared_by(broker: Broker) -> int:
    """How many readers share what is read of the stream."""
    engine = broker.catalogue.get("s").engine
    assert engine is not None
    return engine.log.filters.reader_count


# groups


def test_the_active_member_of_a_group_reads_from_where_it_answers(broker: Broker, session: Session) -> None:
    publisher = session.publisher("s")
    _write(broker, publisher, range(20))
    asked: list[tuple[str, bool]] = []

    def member(name: str) -> MessageConsumer:
        return session.message_consumer(
            "s",
            _options(NEXT, name="g", single_active=True, on_active=lambda active: asked.append((name, active))),
        )

    one, two = member("one"), member("two")
    broker.write_queued()
    assert asked == [("one", True)]
    for consumer in (one, two):
        consumer.want(100)
        assert not consumer.scan_due() and not consumer.is_active
    one.activate(OffsetSpecification.offset(15))
    assert _read(one) == list(range(15, 20))
    _write(broker, publisher, range(20, 25))
    assert one.has_pending and not two.has_pending and not two.scan_due()
    one.close()
    assert asked == [("one", True), ("two", True)]
    two.activate(None)
    assert two.is_active and _read(two) == []
    _write(broker, publisher, range(25, 27))
    assert _read(two) == [25, 26]


def test_a_member_that_is_asked_to_stop_gives_nothing_more(broker: Broker, session: Session) -> None:
    _write(broker, session.publisher("s"), range(20))
    consumer = session.message_consumer("s", _options(single_active=True, name="g"))
    broker.write_queued()
    assert consumer.is_active
    consumer.want(100)
    scan(consumer)
    assert consumer.has_pending
    consumer.shared = None
    consumer.deactivated()
    assert consumer.take(1, 1) is None and not consumer.scan_due() and not consumer.has_pending


def test_deleting_a_stream_ends_its_consumers(broker: Broker, session: Session) -> None:
    _write(broker, session.publisher("s"), range(20))
    consumer = session.message_consumer("s", _options())
    consumer.want(10)
    scan(consumer)
    session.delete_stream("s")
    assert consumer.take(1, 1) is None and not consumer.scan_due()
    assert len(broker.consumers) == 0


def test_wishes_for_filter_values_follow_the_original() -> None:
    def asked(*values: bytes, unfiltered: bool = False) -> tuple[tuple[bytes, ...], bool]:
        request = _options(filter_values=values, match_unfiltered=unfiltered).request()
        return request.filter_values, request.match_unfiltered

    assert asked() == ((), False)
    assert asked(unfiltered=True) == ((), False), "without a value it has no effect"
    assert asked(b"a") == ((b"a",), False)
    assert asked(b"a", b"") == ((b"a",), True)
    assert asked(b"") == ((b"",), True)


def test_memory_that_many_consumers_leave_pending_is_dropped_at_once(
    broker: Broker, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.broker.consumers.PENDING_BYTES", 1000)
    _write(broker, session.publisher("s"), range(100))
    stopped, going = (session.message_consumer("s", _options()) for _ in range(2))
    for consumer, credit in ((stopped, 1), (going, 50)):
        consumer.want(credit)
        scan(consumer)
        assert consumer.take(1, 1) is not None
    broker.tick(START_MS)
    assert not stopped.has_pending and going.has_pending
    assert _read(stopped) == list(range(1, 100))


def test_consumers_are_made_without_a_session_too(broker: Broker, session: Session) -> None:
    stream = broker.catalogue.get("s")
    _write(broker, session.publisher("s"), range(10))
    consumers = Consumers(now_ms=lambda: START_MS)
    consumer = consumers.chunk_consumer(stream, _options(wanted="n < 3 OR n = 5"))
    assert _chunk_ids(consumer) == [0, 5]
    consumer.close()
    assert not len(consumers)
