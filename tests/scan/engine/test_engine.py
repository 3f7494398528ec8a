"""The engine's moves, one by one: what is handed over and to whom, what waits, what is dropped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chunks import encode_chunk, headers_of
from headgate.errors import CorruptChunkError, LogError
from headgate.evaluate.filter import Filter
from headgate.log import OffsetSpecification, Stream, StreamArguments, Writer
from headgate.log.entries import SubBatch
from headgate.log.format import Compression
from headgate.scan import Cursor, ScanBatch, ScanCounters, ScanRequest
from headgate.scan.engine import Event, Phase, Reader, ReadingEngine, Scan, engine
from headgate.scan.engine.engine import AnyReader
from headgate.scan.engine.phases import MOVES, after
from headgate.scan.fetch import AppendedChunks, ChunkColumns, SharedLog, SharedReads
from headgate.scan.fetch.window import SharedChunks
from shared_streams import body

PER_CHUNK = 5
EVEN = Filter.parse("n % 2 = 0")
FOUR_FILTERS = [Filter.parse(f"n % 4 = {number}") for number in range(4)]


@dataclass
class Written:
    """A stream, its writer, and an engine that hears of what is appended."""

    stream: Stream
    writer: Writer
    engine: ReadingEngine
    count: int = 0
    woken: list[AnyReader] = field(default_factory=list)

    def append(
        self, entries: list[bytes | SubBatch], *, values: list[bytes | None] | None = None, tell: bool = True
    ) -> AppendedChunks:
        chunk = encode_chunk(entries, values or [], filter_size_bytes=16)
        data, positions = np.frombuffer(bytearray(chunk), dtype=np.uint8), np.zeros(1, dtype=np.int64)
        appended = self.writer.append_chunks(data, positions, now_ms=7)
        chunks = AppendedChunks(data, headers_of(data), self.stream.path, stop=appended.next_offset)
        if tell:
            self.engine.appended(appended.next_offset, chunks, now_ms=7)
        return chunks

    def append_messages(self, count: int, *, tell: bool = True) -> AppendedChunks:
        numbers = range(self.count, self.count + count)
        self.count += count
        return self.append([body(number) for number in numbers], tell=tell)

    def reader(self, offset: int | None, *, wanted: Filter | None = None, want: int = 1000) -> Reader[ScanBatch]:
        reader = self.engine.message_reader(ScanRequest(filter=wanted))
        reader.on_ready = lambda: self.woken.append(reader)
        self.engine.want(reader, want)
        if offset is not None:
            self.engine.begin(reader, offset)
        return reader

    def scan(self, reader: AnyReader) -> LogError | None:
        scan = self.begin(reader)
        run(scan)
        return self.engine.end_scan(scan)  # type: ignore[return-value]

    def begin(self, reader: AnyReader) -> Scan:
        scan = self.engine.scan_due(reader)
        assert scan is not None and self.engine.begin_scan(scan, may_wait=False)
        return scan

    def take(self, reader: Reader[ScanBatch]) -> list[int]:
        found = []
        while (batch := self.engine.take(reader, 1000, 1 << 20)) is not None:
            found += batch.offsets.tolist()
        return found

    def read(self, reader: Reader[ScanBatch]) -> list[int]:
        """Everything that there is, by scans."""
        found = self.take(reader)
        while self.engine.scan_due(reader) is not None:
            error = self.scan(reader)
            if error is not None:
                raise error
            found += self.take(reader)
        return found


def run(scan: Scan) -> None:
    try:
        scan.run(7)
    except LogError as error:
        scan.error = error


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0)
    with Writer.open(stream, now_ms=0) as writer:
        log = SharedLog(stream, SharedReads())
        yield Written(stream, writer, ReadingEngine(log, end=0))
        log.close()


@pytest.fixture
def no_files(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """From now on no file of a stream is looked at."""

    def fail(*_: Any) -> None:
        raise AssertionError("looked at a file")

    monkeypatch.setattr(SharedLog, "place", fail)
    monkeypatch.setattr(SharedLog, "_list", fail)
    return monkeypatch


def counted(stream: Stream, request: ScanRequest, start: int) -> ScanCounters:
    """What a cursor counts."""
    with Cursor(stream, request, start=OffsetSpecification.offset(start), now_ms=7) as cursor:
        while cursor.read(7) is not None:
            pass
        return cursor.counters


# the table


def test_everything_in_the_table_of_phases_happens(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    moves: set[tuple[Phase, Event]] = set()

    def noting(phase: Phase, event: Event) -> Phase:
        moves.add((phase, event))
        return after(phase, event)

    monkeypatch.setattr(engine, "after", noting)
    reading = written.engine
    written.append_messages(PER_CHUNK)

    def idle() -> AnyReader:
        return written.reader(None, wanted=FOUR_FILTERS[0])

    def due() -> AnyReader:
        return written.reader(0, wanted=FOUR_FILTERS[0])

    others = [written.reader(0, wanted=each) for each in FOUR_FILTERS]

    def gathering() -> AnyReader:
        reader = written.reader(3, wanted=FOUR_FILTERS[0])
        for _ in range(2):
            scan = reading.scan_due(reader)
            assert scan is not None and not reading.begin_scan(scan, may_wait=True)
        return reader

    def scanning() -> AnyReader:
        reader = due()
        written.begin(reader)
        return reader

    def waiting() -> AnyReader:
        return written.reader(reading.end)

    for make in (idle, due, gathering, scanning, waiting):
        reading.stop(make())
        reading.close(make())
        reading.begin(make(), 0)
    written.begin(gathering())
    handed = waiting()
    written.append_messages(1)
    assert handed.pending
    written.append_messages(1)
    assert handed.phase is Phase.DUE
    assert written.scan(others[0]) is None
    assert written.scan(written.reader(0)) is None
    first = written.begin(others[1])
    first.run(7)
    written.append_messages(1)
    assert reading.end_scan(first) is None and others[1].phase is Phase.DUE
    failing = written.begin(others[2])
    failing.error = CorruptChunkError("damaged", path="s")
    assert reading.end_scan(failing) is failing.error
    assert moves == {(phase, event) for phase, events in MOVES.items() for event in events}


@pytest.mark.parametrize("move", ["begin", "stop", "scan"])
def test_a_closed_reader_is_not_moved(written: Written, move: str) -> None:
    written.append_messages(1)
    reader = written.reader(0)
    scan = written.engine.scan_due(reader)
    assert scan is not None
    for _ in range(2):
        written.engine.close(reader)
    moves = {
        "begin": lambda: written.engine.begin(reader, 0),
        "stop": lambda: written.engine.stop(reader),
        "scan": lambda: written.engine.begin_scan(scan, may_wait=False),
    }
    with pytest.raises(ValueError, match="closed"):
        moves[move]()
    assert written.engine.scan_due(reader) is None and written.engine.take(reader, 1, 1) is None


def test_two_scans_of_one_reader_are_a_wrong_move(written: Written) -> None:
    written.append_messages(1)
    reader = written.reader(0)
    second = written.engine.scan_due(reader)
    assert second is not None
    written.begin(reader)
    assert written.engine.scan_due(reader) is None
    with pytest.raises(ValueError, match="scanning"):
        written.engine.begin_scan(second, may_wait=False)


def test_looking_changes_nothing(written: Written) -> None:
    written.append_messages(PER_CHUNK)
    reader = written.reader(0)

    def state() -> list[object]:
        return [getattr(reader, name) for name in ("phase", "offset", "generation", "wanted", "scan", "counters")]

    before = state()
    for _ in range(2):
        assert written.engine.scan_due(reader) is not None and reader.next_offset == 0 and not reader.at_end
        assert state() == before and not reader.pending


# what is handed over


def test_what_is_appended_is_there_for_who_waits_without_a_look_at_a_file(
    written: Written, no_files: pytest.MonkeyPatch
) -> None:
    everything, even = written.reader(0), written.reader(0, wanted=EVEN)
    chunks = written.engine.chunk_reader(ScanRequest())
    matching = written.engine.chunk_reader(ScanRequest(filter=EVEN))
    for reader in (chunks, matching):
        written.engine.want(reader, 10)
        written.engine.begin(reader, 0)
    written.woken.clear()
    written.append_messages(4)
    assert written.woken == [everything, even]
    assert written.take(everything) == [0, 1, 2, 3] and written.take(even) == [0, 2]
    assert [each.at_end for each in (everything, even)] == [True, True]
    for reader, ids in ((chunks, [0]), (matching, [0, 2])):
        taken = written.engine.take(reader, 10, 1 << 20)
        assert taken is not None and taken.chunk_ids.tolist() == ids
    no_files.undo()
    for reader, request in ((everything, ScanRequest()), (even, ScanRequest(filter=EVEN))):
        assert reader.counters == counted(written.stream, request, 0)


def test_the_same_filter_is_decided_once(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    decided: list[object] = []
    original = SharedChunks._decide

    def decide(*arguments: Any) -> object:
        decided.append(arguments[1].filter)
        return original(*arguments)

    monkeypatch.setattr(SharedChunks, "_decide", decide)
    now = Filter.parse("n % 2 = 0 AND UTC() > 6")
    readers = [written.reader(0, wanted=wanted) for wanted in (EVEN, EVEN, None, None, now, now)]
    written.append_messages(3)
    assert [written.take(reader) for reader in readers] == [[0, 2]] * 2 + [[0, 1, 2]] * 2 + [[0, 2]] * 2
    assert decided == [EVEN, None, now, now], "verdicts that ask for the time are not shared"


@pytest.mark.parametrize(
    "kind", ["message", "message with a value", "sub-batch of one", "two messages", "malformed message"]
)
@pytest.mark.parametrize("takes", ["messages", "chunks"])
@pytest.mark.parametrize("wanted", [None, EVEN, Filter.parse("n = 1"), Filter.parse("n = 0 AND UTC() > 6")], ids=str)
def test_what_is_handed_over_is_what_the_file_gives(
    written: Written, kind: str, takes: str, wanted: Filter | None
) -> None:
    def reader() -> AnyReader:
        request = ScanRequest(filter=wanted)
        engine = written.engine
        made = engine.message_reader(request) if takes == "messages" else engine.chunk_reader(request)
        written.engine.want(made, 10)
        written.engine.begin(made, 0)
        return made

    entries: list[bytes | SubBatch] = [body(0)]
    if kind == "sub-batch of one":
        entries = [SubBatch.of([body(0)], Compression.NONE)]
    elif kind == "two messages":
        entries.append(body(1))
    elif kind == "malformed message":
        entries = [b"\xff"]
    # The second is given what was decided for the first.
    both = [reader(), reader()]
    written.append(entries, values=[b"a"] if kind == "message with a value" else None)
    read = reader()
    assert all(handed.at_end != bool(handed.pending) for handed in both)
    assert written.scan(read) is None
    expected = written.engine.take(read, 10, 1 << 20)
    for handed in both:
        assert handed.counters.chunks_examined == 1
        assert handed.counters == read.counters and handed.offset == read.offset
        found = written.engine.take(handed, 10, 1 << 20)
        assert (found is None) == (expected is None) and (found is None or _contents(found) == _contents(expected))


def _contents(batch: ScanBatch | ChunkColumns | None) -> list[tuple[object, ...]]:
    """Bytes and numbers of messages or chunks; places in a buffer are relative to their chunk."""
    assert batch is not None
    if isinstance(batch, ScanBatch):
        messages = batch.messages
        bodies = [messages.message(row) for row in range(len(messages))]
        return list(zip(bodies, batch.offsets.tolist(), batch.timestamps_ms.tolist(), strict=True))
    data = batch.data.tobytes()
    columns = batch.chunk_ids, batch.header_starts, batch.data_starts, batch.data_lengths
    return [
        (chunk_id, start - header, data[header:start], data[start : start + length])
        for chunk_id, header, start, length in zip(*(column.tolist() for column in columns), strict=True)
    ]


def test_a_verdict_that_asks_for_the_time_takes_that_of_the_append(written: Written) -> None:
    early, late = (written.reader(0, wanted=Filter.parse(f"UTC() > {limit}")) for limit in (6, 7))
    written.append_messages(1)
    assert (written.take(early), written.take(late)) == ([0], [])


def _without_credit(written: Written) -> AnyReader:
    return written.reader(written.engine.end, want=0)


def _without_a_place(written: Written) -> AnyReader:
    return written.reader(None)


def _that_stopped(written: Written) -> AnyReader:
    reader = written.reader(written.engine.end)
    written.engine.stop(reader)
    return reader


def _with_pending(written: Written) -> AnyReader:
    reader = written.reader(0)
    assert written.scan(reader) is None and reader.pending and reader.phase is Phase.WAITING
    return reader


def _that_scans(written: Written) -> AnyReader:
    reader = written.reader(0)
    written.begin(reader)
    return reader


def _whose_link_is_full(written: Written) -> AnyReader:
    reader = written.reader(written.engine.end)
    reader.takes_more = lambda: False
    return reader


def _behind(written: Written) -> AnyReader:
    return written.reader(PER_CHUNK - 1)


def _ahead(written: Written) -> AnyReader:
    return written.reader(written.engine.end + 3)


NOT_HANDED = [
    _without_credit,
    _without_a_place,
    _that_stopped,
    _with_pending,
    _that_scans,
    _whose_link_is_full,
    _behind,
    _ahead,
]


@pytest.mark.parametrize("make", NOT_HANDED)
def test_nothing_is_handed_to_others(written: Written, make: Any) -> None:
    written.append_messages(PER_CHUNK)
    reader = make(written)
    before = (reader.offset, reader.next_offset, bool(reader.pending), reader.counters)
    chunks = written.append_messages(2, tell=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(reader.fetcher), "fetch_appended", lambda *_: pytest.fail("handed over"))
        written.engine.appended(written.writer.next_offset, chunks, now_ms=7)
    assert before == (reader.offset, reader.next_offset, bool(reader.pending), reader.counters)


def test_who_was_not_given_it_reads_it_from_the_file(written: Written) -> None:
    written.append_messages(PER_CHUNK)
    readers = [make(written) for make in (_without_credit, _with_pending, _whose_link_is_full, _behind)]
    written.append_messages(2)
    written.append_messages(2)
    for reader in readers:
        written.engine.want(reader, 1000)
        reader.takes_more = lambda: True
    first, everything = list(range(PER_CHUNK, PER_CHUNK + 4)), list(range(PER_CHUNK + 4))
    assert [written.read(reader) for reader in readers] == [first, everything, first, [PER_CHUNK - 1, *first]]
    assert all(reader.at_end for reader in readers)


def test_a_reader_that_is_given_nothing_is_not_woken_but_one_that_was_at_the_end_and_wants_more(
    written: Written,
) -> None:
    written.append_messages(PER_CHUNK)
    behind, at_end, full, _ = readers = [
        make(written) for make in (_behind, _with_pending, _whose_link_is_full, _without_credit)
    ]
    written.woken.clear()
    written.append_messages(1)
    assert behind not in written.woken
    assert written.woken == [at_end, full]
    assert len(readers) == 4


def test_without_chunks_those_who_wait_read_the_file(written: Written) -> None:
    reader = written.reader(0)
    written.append_messages(2, tell=False)
    written.woken.clear()
    written.engine.appended(2)
    assert written.woken == [reader] and not reader.pending and written.read(reader) == [0, 1]


def test_bookkeeping_moves_readers_along(written: Written) -> None:
    reader = written.reader(0)
    for _ in range(2):
        written.append_messages(2)
        assert written.take(reader) == [written.engine.end - 2, written.engine.end - 1]
        written.writer.store_offset("r", written.engine.end)
        written.writer.flush_offsets(now_ms=7)
        written.engine.appended(written.writer.next_offset)
        assert written.read(reader) == [] and reader.at_end and reader.offset == written.engine.end


def test_chunks_behind_a_snapshot_of_the_same_append_are_handed_over(
    written: Written, no_files: pytest.MonkeyPatch
) -> None:
    written.writer.store_offset("r", 1)
    written.writer.change(now_ms=7, arguments=StreamArguments(max_segment_size_bytes=1))
    reader = written.reader(0)
    found = []
    for _ in range(3):
        written.append_messages(1)
        found += written.take(reader)
        assert reader.at_end and reader.offset == written.engine.end
    assert len(found) == 3 and found[-1] > 3, "snapshots have offsets, too"


def _broken_sub_batch() -> SubBatch:
    whole = SubBatch.of([body(number) for number in range(8)], Compression.GZIP)
    return replace(whole, body=b"\0" + whole.body[1:])


@pytest.mark.parametrize("what", ["broken", "large"])
def test_a_sub_batch_that_cannot_be_unpacked_is_the_error_that_the_file_gives(written: Written, what: str) -> None:
    request = ScanRequest(filter=EVEN, max_expanded_bytes=1 << 20 if what == "broken" else 100)
    readers = [written.engine.message_reader(request) for _ in range(2)]
    for reader in readers:
        written.engine.want(reader, 10)
        written.engine.begin(reader, 0)
    whole = written.engine.chunk_reader(ScanRequest())
    written.engine.want(whole, 10)
    written.engine.begin(whole, 0)
    entry = _broken_sub_batch() if what == "broken" else SubBatch.of([body(n) for n in range(8)], Compression.GZIP)
    written.append([entry])
    assert whole.pending, "chunks are given as they are"
    with (
        Cursor(written.stream, request, start=OffsetSpecification.first(), now_ms=7) as cursor,
        pytest.raises(CorruptChunkError) as expected,
    ):
        cursor.read(7)
    for reader in readers:
        assert not reader.pending and reader.phase is Phase.DUE
        error = written.scan(reader)
        assert error is not None and str(error) == str(expected.value)


def test_what_a_request_asks_beyond_a_filter_is_read_from_the_file(written: Written) -> None:
    exact = written.engine.message_reader(ScanRequest(filter=Filter.parse("absent > 1"), exact=True))
    until = written.engine.message_reader(ScanRequest(), stop_offset=1)
    for reader in (exact, until):
        written.engine.want(reader, 10)
        written.engine.begin(reader, 0)
    written.append_messages(3)
    assert written.read(exact) == [] and exact.counters.messages_unknown == 3
    assert written.read(until) == [0]


def test_a_filter_that_only_the_reference_evaluates_is_decided_by_a_scan(written: Written) -> None:
    slow = Filter.parse("[größe] IS NULL AND n = 1", "servicebus")
    assert slow.program is None
    reader = written.reader(0, wanted=slow)
    written.append_messages(3)
    assert not reader.pending and reader.phase is Phase.DUE
    scan = written.engine.scan_due(reader)
    assert scan is not None and not scan.is_small
    assert written.read(reader) == [1]


def test_the_buffers_of_the_writer_are_not_kept(written: Written) -> None:
    reader = written.reader(0)
    chunks = written.append_messages(2)
    chunks.data[:] = 0
    batch = written.engine.take(reader, 10, 1 << 20)
    assert batch is not None and [batch.messages.message(row) for row in range(2)] == [body(0), body(1)]


# what is wanted, taken and dropped


def test_a_reader_is_woken_when_it_wants_something_after_nothing(written: Written) -> None:
    written.append_messages(3)
    reader = written.reader(0, want=0)
    assert written.engine.scan_due(reader) is None and not written.woken
    for count, woken in ((2, [reader]), (3, [reader]), (0, [reader]), (1, [reader, reader])):
        written.engine.want(reader, count)
        assert written.woken == woken and reader.wanted == count
    assert written.scan(reader) is None
    batch = written.engine.take(reader, 10, 1 << 20)
    assert batch is not None and batch.offsets.tolist() == [0], "no more than it wants"
    assert reader.wanted == 0 and written.engine.take(reader, 10, 1 << 20) is None
    assert reader.pending and reader.next_offset == 1


def test_what_nobody_took_for_long_is_dropped_and_read_again(written: Written) -> None:
    written.append_messages(6)
    reader = written.reader(0, want=2)
    written.engine.tick(1000)
    assert written.scan(reader) is None and written.take(reader) == [0, 1]
    written.engine.drop_unused(reader, 999)
    assert reader.pending
    written.engine.drop_unused(reader, 1000)
    assert not reader.pending and reader.next_offset == 2 and not reader.at_end
    written.engine.want(reader, 10)
    assert written.read(reader) == [2, 3, 4, 5]


@pytest.mark.parametrize("how", ["stop", "begin", "close"])
@pytest.mark.parametrize("runs_before", [True, False])
def test_the_result_of_a_scan_from_a_place_that_was_left_is_dropped(
    written: Written, how: str, runs_before: bool
) -> None:
    written.append_messages(PER_CHUNK)
    reader = written.reader(0)
    scan = written.begin(reader)
    if runs_before:
        run(scan)
    match how:
        case "stop":
            written.engine.stop(reader)
        case "begin":
            written.engine.begin(reader, 2)
        case "close":
            written.engine.close(reader)
    assert written.engine.scan_due(reader) is None, "one scan at a time"
    assert written.engine.log.filters.reader_count == 1, "its scan still uses what it holds"
    if not runs_before:
        run(scan)
    written.woken.clear()
    assert written.engine.end_scan(scan) is None
    assert not reader.pending and reader.counters == ScanCounters()
    assert written.engine.log.filters.reader_count == (how != "close")
    if how == "begin":
        assert written.woken == [reader] and reader.phase is Phase.DUE
        assert written.read(reader) == [2, 3, 4]


def test_what_comes_while_a_scan_finds_nothing_is_due_afterwards(written: Written) -> None:
    written.append_messages(1)
    reader = written.reader(1)
    # As if another process had changed something.
    written.engine.appended(1)
    scan = written.begin(reader)
    run(scan)
    assert scan.portion is None
    written.append_messages(1)
    assert written.engine.end_scan(scan) is None
    assert reader.phase is Phase.DUE and written.read(reader) == [1]
