"""The reading engine in any order of calls against a model: what lies between two places of a reader, filtered."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from chunks import encode_chunk, headers_of
from examples import examples
from headgate.errors import CorruptChunkError, LogError
from headgate.evaluate.filter import Filter
from headgate.log import BloomMatcher, Stream, StreamArguments, Writer
from headgate.log.entries import SubBatch
from headgate.log.format import CHUNK_HEADER_BYTES, ChunkHeader, Compression
from headgate.log.tracking_records import TrackingKind, TrackingRecord, encode_records
from headgate.scan import ScanBatch, ScanCounters, ScanRequest
from headgate.scan.engine import Phase, ReadingEngine, Scan, held_bytes
from headgate.scan.engine.engine import AnyReader
from headgate.scan.fetch import AppendedChunks, ChunkColumns, SharedLog, SharedReads, Takes
from log_streams import quick_folder
from shared_streams import FILTER_VALUES, FILTERS, REGIONS, body

SEGMENT_BYTES = 3000
WINDOWS_BYTES = 20_000
HANDED_BYTES = 64 << 10
"""What is larger is not given to the engine, which then says only that the stream grew."""
TIME_FILTERS = [Filter.parse(f"n % 2 = 0 AND UTC() > {limit}") for limit in (500, 3_000)]
ALL = 1 << 30

KINDS = st.lists(
    st.tuples(st.sampled_from(["plain", "one value", "values", "named", "sub-batch", "malformed"]), st.integers(1, 12)),
    min_size=1,
    max_size=4,
)
REQUESTS = st.tuples(
    st.one_of(st.none(), st.sampled_from([*FILTERS, *TIME_FILTERS])), FILTER_VALUES, st.booleans(), st.booleans()
)
"""Filter, filter values, match unfiltered, whether chunks are taken."""

Row = tuple[int, int, bytes]
"""Offset, time, body."""


@dataclass
class Chunk:
    """A chunk as it was written."""

    chunk_id: int
    time_ms: int
    bodies: list[bytes]
    bloom: bytes
    size_bytes: int

    @property
    def stop(self) -> int:
        return self.chunk_id + len(self.bodies)


@dataclass(eq=False)
class Follower:
    """A reader, what it must get and count, and what it got; `is_unbroken`: it read on from where it began."""

    reader: AnyReader
    takes: Takes
    request: ScanRequest
    is_unbroken: bool = True
    expected: list[Row] = field(default_factory=list, repr=False)
    got: list[Row] = field(default_factory=list, repr=False)
    counters: ScanCounters = field(default_factory=ScanCounters, repr=False)
    link_is_full: bool = False

    def passed(self, chunks: list[Chunk], start: int, stop: int, now_ms: int) -> None:
        """It came from one offset to another."""
        wanted, values, counters = self.request.filter, self.request.filter_values, self.counters
        matcher = BloomMatcher(values, match_unfiltered=self.request.match_unfiltered) if values else None
        for chunk in [each for each in chunks if each.stop > start and each.chunk_id < stop]:
            counters.chunks_examined += 1
            if matcher is not None and not matcher.matches(chunk.bloom):
                counters.chunks_skipped += 1
                counters.bytes_skipped += chunk.size_bytes
                continue
            counters.bytes_read += chunk.size_bytes
            rows = [(offset, chunk.time_ms, each) for offset, each in enumerate(chunk.bodies, chunk.chunk_id)]
            if self.takes is Takes.CHUNKS:
                self.expected += rows
                continue
            rows = [row for row in rows if row[0] >= start]
            kept = [row for row in rows if wanted is None or wanted.matches(row[2], now_ms=now_ms)]
            self.expected += kept
            counters.messages_evaluated += len(rows)
            counters.messages_matched += len(kept)
            if wanted is not None:
                counters.messages_malformed += sum(row[2].startswith(b"\0no") for row in rows)
                counters.chunks_without_match += not kept


def rows_of(taken: ScanBatch | ChunkColumns, damaged: set[int]) -> list[Row]:
    """What was taken, as a client reads it."""
    if isinstance(taken, ScanBatch):
        bodies = [taken.messages.message(row) for row in range(len(taken))]
        return list(zip(taken.offsets.tolist(), taken.timestamps_ms.tolist(), bodies, strict=True))
    found: list[Row] = []
    for at, start, length in zip(
        taken.header_starts.tolist(), taken.data_starts.tolist(), taken.data_lengths.tolist(), strict=True
    ):
        header = ChunkHeader.decode(taken.data[at : at + CHUNK_HEADER_BYTES].tobytes(), path="", position=0)
        data = taken.data[start : start + length].tobytes()
        assert zlib.crc32(data) == header.crc or header.chunk_id in damaged
        found += [(header.chunk_id + number, header.timestamp_ms, each) for number, each in enumerate(bodies_of(data))]
    return found


def bodies_of(data: bytes) -> list[bytes]:
    """The messages of the data part of a chunk; of a sub-batch, too."""
    found, at = [], 0
    while at < len(data):
        if data[at] & 0x80:
            size = int.from_bytes(data[at + 7 : at + 11], "big")
            return bodies_of(data[at + 11 : at + 11 + size])
        length = int.from_bytes(data[at : at + 4], "big")
        found.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    return found


class EngineMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = quick_folder()
        self.now_ms = 0
        self.followers: list[Follower] = []
        self.scans: list[tuple[Follower, Scan, int | None]] = []
        """Under way, with the time at which they ran."""
        self.ready: set[Follower] = set()
        self.writer: Writer | None = None
        self.begin_stream()

    def begin_stream(self) -> None:
        arguments = StreamArguments(max_segment_size_bytes=SEGMENT_BYTES)
        self.stream = Stream.create(Path(self.folder.name) / "s", name="s", now_ms=0, arguments=arguments)
        self.reads = SharedReads(windows_bytes=WINDOWS_BYTES, most_open_segments=3)
        self.log = SharedLog(self.stream, self.reads)
        self.engine = ReadingEngine(self.log, end=0, now_ms=self.now_ms)
        self.chunks: list[Chunk] = []
        self.damaged: set[int] = set()
        self.first_offsets: set[int] = set()
        """That retention left."""
        self.number = self.sequence = 0

    def teardown(self) -> None:
        while self.scans:
            self.end_scan(0)
        for follower in self.followers:
            self.engine.close(follower.reader)
        assert self.log.filters.reader_count == 0
        self.log.close()
        assert self.reads.bytes_held == 0
        if self.writer is not None:
            self.writer.close()
        self.folder.cleanup()

    def moving(self, action: Callable[[], Any], *, read_ms: int | None = None) -> Any:
        """Do what may move readers along; `read_ms` is the time at which what they pass was read."""
        before = [(each, each.reader.offset, each.reader.lost) for each in self.followers]
        result = action()
        for follower, offset, lost in before:
            reader = follower.reader
            if reader.lost > lost:
                assert not follower.reader.pending and reader.offset == offset + reader.lost - lost
                assert reader.offset in self.first_offsets
                follower.is_unbroken = False
            elif reader.offset > offset:
                follower.passed(self.chunks, offset, reader.offset, self.now_ms if read_ms is None else read_ms)
        return result

    def written(self, writer: Writer, parts: list[tuple[bytes, list[bytes]]]) -> tuple[Any, int]:
        """Append chunks in one go; gives their bytes and places, and the offset behind them."""
        data = np.frombuffer(bytearray(b"".join(chunk for chunk, _ in parts)), dtype=np.uint8)
        sizes = np.array([len(chunk) for chunk, _ in parts], dtype=np.int64)
        positions = np.cumsum(sizes) - sizes
        appended = writer.append_chunks(data, positions, now_ms=self.now_ms)
        for chunk_id, (chunk, bodies) in zip(appended.chunk_ids.tolist(), parts, strict=True):
            bloom = chunk[CHUNK_HEADER_BYTES : CHUNK_HEADER_BYTES + chunk[44]]
            self.chunks.append(Chunk(chunk_id, self.now_ms, bodies, bloom, len(chunk)))
        return AppendedChunks(data, headers_of(data), self.stream.path, stop=appended.next_offset), appended.next_offset

    def part(self, kind: str, count: int) -> tuple[bytes, list[bytes]]:
        numbers = range(self.number, self.number + count)
        self.number += count
        bodies = [b"\0no message" if kind == "malformed" and each % 2 else body(each) for each in numbers]
        values: list[bytes | None] = [None] * count
        trailer = b""
        if kind == "one value":
            values = [REGIONS[self.number % 3].encode()] * count
        elif kind == "values":
            values = [REGIONS[each % 3].encode() for each in numbers]
        elif kind == "named":
            self.sequence += 1
            trailer = encode_records([TrackingRecord(TrackingKind.SEQUENCE, b"p", self.sequence)])
        elif kind == "large":
            bodies[0] = b"\0no" + b"x" * HANDED_BYTES
        entries: list[bytes | SubBatch] = list(bodies)
        if kind == "sub-batch":
            entries, values = [SubBatch.of(bodies, Compression.NONE)], []
        return encode_chunk(entries, values, filter_size_bytes=16, trailer=trailer), bodies

    # the stream

    def own_writer(self) -> Writer:
        if self.writer is None:
            self.writer = Writer.open(self.stream, now_ms=self.now_ms)
            # What others wrote before is told first.
            self.look()
        return self.writer

    @rule(kinds=KINDS, times=st.integers(1, 3))
    def append(self, kinds: list[tuple[str, int]], times: int) -> None:
        for _ in range(times):
            self.append_parts([self.part(kind, count) for kind, count in kinds])

    @rule(kinds=KINDS, times=st.integers(1, 4), at_most=st.sampled_from([1, 5, ALL]), want=st.sampled_from([0, 6, ALL]))
    def live(self, kinds: list[tuple[str, int]], times: int, at_most: int, want: int) -> None:
        """Everyone takes of what comes at once, all or a part, and wants more."""
        for _ in range(times):
            self.append(kinds, 1)
            for follower in self.followers:
                self.take_some(follower, at_most, 1 << 20)
                self.take_some(follower, at_most, 1 << 20)
                if want:
                    self.want_of(follower, want)

    @rule(what=st.sampled_from(["bytes", "records"]))
    def append_much(self, what: str) -> None:
        self.append_parts([self.part("large", 2) if what == "bytes" else self.part("plain", 1100)])

    def append_parts(self, parts: list[tuple[bytes, list[bytes]]]) -> None:
        writer = self.own_writer()
        was_ready, self.ready = self.ready, set()
        before = [(each, each.reader.phase, each.reader.next_offset, self.is_given(each)) for each in self.followers]
        chunks, end = self.written(writer, parts)
        is_little = len(chunks.data) <= HANDED_BYTES and sum(len(bodies) for _, bodies in parts) <= 1024
        self.moving(lambda: self.engine.appended(end, chunks if is_little else None, now_ms=self.now_ms))
        for follower, phase, next_offset, is_given in before:
            reader = follower.reader
            if is_little and is_given:
                assert reader.phase is Phase.WAITING and reader.offset == end
                kept = sum(held_bytes(reader.pending.buffers).values())
                assert kept <= 2 * len(chunks.data) + 4096
            else:
                assert reader.phase is (Phase.DUE if phase is Phase.WAITING else phase)
                assert reader.next_offset == next_offset
            assert (follower in self.ready) == (phase is Phase.WAITING and reader.wanted > 0)
        self.ready |= was_ready

    def is_given(self, follower: Follower) -> bool:
        reader = follower.reader
        at_end = reader.phase is Phase.WAITING and reader.offset == self.engine.end and not reader.pending
        return at_end and reader.wanted > 0 and not follower.link_is_full

    @rule()
    def store_offset(self) -> None:
        writer = self.own_writer()
        writer.store_offset("reader", self.number)
        writer.flush_offsets(now_ms=self.now_ms)
        self.moving(lambda: self.engine.appended(writer.next_offset))

    @precondition(lambda self: not self.damaged)
    @rule(kind=st.sampled_from(["plain", "values", "named"]), count=st.integers(1, 12), is_told=st.booleans())
    def another_process_appends(self, kind: str, count: int, is_told: bool) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None
        with Writer.open(self.stream, now_ms=self.now_ms) as writer:
            self.written(writer, [self.part(kind, count)])
        if is_told:
            self.look()

    @rule()
    def look(self) -> None:
        end = self.stream.next_offset()
        if end > self.engine.end:
            self.moving(lambda: self.engine.appended(end))

    @precondition(lambda self: len(self.chunks) > 6)
    @rule(kept_bytes=st.sampled_from([1, 4000]))
    def retention(self, kept_bytes: int) -> None:
        writer = self.own_writer()
        arguments = writer.settings.arguments
        writer.change(now_ms=self.now_ms, arguments=msgspec.structs.replace(arguments, max_length_bytes=kept_bytes))
        writer.change(now_ms=self.now_ms, arguments=arguments)
        self.first_offsets.add(writer.first_offset)

    @precondition(lambda self: len(self.chunks) > 6 and not self.damaged)
    @rule(data=st.data())
    def damage(self, data: st.DataObject) -> None:
        """Flip the last bit of the data of a chunk that nobody came to."""
        # A writer that opens the stream later may take it for what a crash left.
        self.own_writer()
        reached = max((each.reader.offset for each in self.followers), default=0)
        reached = max([reached, *(scan.portion.next_offset for _, scan, _ in self.scans if scan.portion)])
        segments = self.stream.segments()
        rows = [chunk.chunk_id for chunk in self.chunks if chunk.chunk_id >= max(reached, segments[0].first_chunk_id)]
        if not rows:
            return
        chunk_id = data.draw(st.sampled_from(rows))
        segment = [each for each in segments if each.first_chunk_id <= chunk_id][-1]
        with segment.open() as reader:
            table = reader.chunks()
            row = table.chunk_id.tolist().index(chunk_id)
            at = int(table.position[row])
            header = reader.header(row)
        content = bytearray(segment.segment_path.read_bytes())
        content[at + CHUNK_HEADER_BYTES + header.bloom_length + header.data_length - 1] ^= 1
        if segment == segments[-1]:
            with segment.segment_path.open("r+b") as file:
                file.write(content)
        else:
            # What is mapped of a sealed segment stays as it was read.
            other = segment.segment_path.with_suffix(".new")
            other.write_bytes(content)
            os.replace(other, segment.segment_path)
        self.damaged.add(chunk_id)

    @precondition(lambda self: len(self.chunks) > 12)
    @rule(is_made_again=st.booleans(), is_given_before=st.booleans())
    def delete(self, is_made_again: bool, is_given_before: bool) -> None:
        """The stream goes; whoever reads on gets what it found before, or is told."""
        if self.writer is not None:
            self.writer.close()
            self.writer = None
        if is_given_before:
            for number in range(len(self.scans)):
                self.run_scan(number)
        shutil.rmtree(self.stream.path)
        if is_made_again:
            Stream.create(self.stream.path, name="s", now_ms=1)
        while self.scans:
            self.end_scan(0, is_deleted=True)
        for follower in list(self.followers):
            self.engine.want(follower.reader, ALL)
            follower.link_is_full = False
            self.take_all(follower)
            self.check_got(follower, len(follower.expected))
            self.close(follower)
        self.log.close()
        assert self.reads.bytes_held == 0
        shutil.rmtree(self.stream.path, ignore_errors=True)
        self.begin_stream()

    # readers

    @initialize(kinds=st.lists(KINDS, max_size=8), wishes=st.lists(REQUESTS, max_size=7))
    def some_read_from_the_beginning(self, kinds: list[list[tuple[str, int]]], wishes: list[Any]) -> None:
        for each in kinds:
            self.append(each, 1)
        for wish in wishes:
            self.attach(wish, ALL, 0.0)

    @rule(wish=REQUESTS, want=st.sampled_from([0, 3, ALL]), share=st.one_of(st.none(), st.floats(0, 1), st.just(1.0)))
    def attach(self, wish: tuple[Filter | None, tuple[bytes, ...], bool, bool], want: int, share: float | None) -> None:
        wanted, values, unfiltered, takes_chunks = wish
        takes = Takes.MESSAGES
        if takes_chunks:
            takes = Takes.CHUNKS if wanted is None else Takes.MATCHING_CHUNKS
        request = ScanRequest(filter=wanted, filter_values=values, match_unfiltered=unfiltered and bool(values))
        make = self.engine.chunk_reader if takes_chunks else self.engine.message_reader
        follower = Follower(make(request), takes, request)
        follower.reader.on_ready = lambda: self.ready.add(follower)
        follower.reader.takes_more = lambda: not follower.link_is_full
        self.followers.append(follower)
        self.engine.want(follower.reader, want)
        if share is not None:
            self.begin(follower, share)

    def begin(self, follower: Follower, share: float) -> None:
        """Somewhere between the first offset kept and the end."""
        del follower.expected[len(follower.got) :]
        first = self.log.first_offset()
        offset = first + round(share * max(0, self.engine.end - first))
        follower.is_unbroken &= follower.reader.generation == 0
        self.engine.begin(follower.reader, offset)
        self.ready.add(follower)

    @precondition(lambda self: self.followers)
    @rule(data=st.data(), count=st.sampled_from([0, 1, 7, ALL]))
    def want(self, data: st.DataObject, count: int) -> None:
        self.want_of(data.draw(st.sampled_from(self.followers)), count)

    def want_of(self, follower: Follower, count: int) -> None:
        reader, was_ready = follower.reader, follower in self.ready
        self.ready.discard(follower)
        is_woken = count > 0 and not reader.wanted
        self.engine.want(reader, count)
        assert reader.wanted == count and (follower in self.ready) == is_woken
        if was_ready:
            self.ready.add(follower)

    @precondition(lambda self: self.followers)
    @rule(data=st.data())
    def link_fills_or_empties(self, data: st.DataObject) -> None:
        follower = data.draw(st.sampled_from(self.followers))
        follower.link_is_full = not follower.link_is_full
        if not follower.link_is_full:
            self.ready.add(follower)

    @precondition(lambda self: self.followers)
    @rule(data=st.data(), at_most=st.integers(1, 20), max_bytes=st.sampled_from([1, 200, 1 << 20]))
    def take(self, data: st.DataObject, at_most: int, max_bytes: int) -> None:
        self.take_some(data.draw(st.sampled_from(self.followers)), at_most, max_bytes)

    def take_some(self, follower: Follower, at_most: int, max_bytes: int) -> bool:
        reader, before = follower.reader, follower.reader.wanted
        batch: Any = self.engine.take(reader, at_most, max_bytes)  # type: ignore[arg-type]
        if batch is None:
            assert not reader.pending or not reader.is_active or not before
            return False
        assert 1 <= len(batch) <= min(at_most, before) and reader.wanted == before - len(batch)
        follower.got += rows_of(batch, self.damaged)
        return True

    def take_all(self, follower: Follower) -> None:
        while self.take_some(follower, ALL, 1 << 20):
            pass

    @precondition(lambda self: self.followers)
    @rule(data=st.data(), share=st.floats(0, 1))
    def stop_and_begin_elsewhere(self, data: st.DataObject, share: float) -> None:
        """A single active consumer whose turn ends and comes."""
        follower = data.draw(st.sampled_from(self.followers))
        if data.draw(st.booleans()):
            self.engine.stop(follower.reader)
            assert follower.reader.phase is Phase.IDLE and not self.take_some(follower, 1, 1)
            follower.is_unbroken = False
            del follower.expected[len(follower.got) :]
        if data.draw(st.booleans()):
            follower.got.clear()
            follower.expected.clear()
            self.begin(follower, share)

    @precondition(lambda self: self.followers)
    @rule(data=st.data())
    def detach(self, data: st.DataObject) -> None:
        follower = data.draw(st.sampled_from(self.followers))
        self.close(follower)
        assert not self.take_some(follower, 1, 1) and self.engine.scan_due(follower.reader) is None

    def close(self, follower: Follower) -> None:
        for _ in range(2):
            self.engine.close(follower.reader)
        self.followers.remove(follower)
        self.ready.discard(follower)

    @rule(unused_ms=st.sampled_from([0, 1_000]))
    def drop_unused(self, unused_ms: int) -> None:
        for follower in self.followers:
            reader = follower.reader
            next_offset, had_pending = reader.next_offset, bool(reader.pending)
            self.engine.drop_unused(reader, self.now_ms - unused_ms)
            assert reader.next_offset == next_offset
            if had_pending and not reader.pending:
                follower.is_unbroken = False
                del follower.expected[len(follower.got) :]
                self.ready.add(follower)

    @rule(passed_ms=st.sampled_from([10, 60, 1_000]))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.engine.tick(self.now_ms)

    # scans

    @precondition(lambda self: self.followers)
    @rule(data=st.data(), may_wait=st.booleans())
    def begin_scan(self, data: st.DataObject, may_wait: bool) -> None:
        self.begins_scan(data.draw(st.sampled_from(self.followers)), may_wait=may_wait)

    def begins_scan(self, follower: Follower, *, may_wait: bool) -> bool:
        scan = self.engine.scan_due(follower.reader)
        if scan is None:
            return False
        assert follower.reader.wanted > 0 and follower.reader.pending.is_low
        if not self.engine.begin_scan(scan, may_wait=may_wait):
            assert may_wait and follower.reader.phase is Phase.GATHERING
            return False
        self.scans.append((follower, scan, None))
        assert self.engine.scan_due(follower.reader) is None
        return True

    @precondition(lambda self: self.followers)
    @rule(data=st.data(), meanwhile=st.sampled_from(["nothing", "append", "retention", "detach", "begin"]))
    def scan(self, data: st.DataObject, meanwhile: str) -> None:
        """A whole scan, and what happens before it runs or before it ends."""
        follower = data.draw(st.sampled_from(self.followers))
        if not self.begins_scan(follower, may_wait=False):
            return
        if data.draw(st.booleans()):
            self.run_scan(len(self.scans) - 1)
        match meanwhile:
            case "append":
                self.append([("values", 3)], 1)
            case "retention":
                self.retention(1)
            case "detach":
                self.close(follower)
            case "begin":
                follower.got.clear()
                follower.expected.clear()
                self.begin(follower, data.draw(st.floats(0, 1)))
        self.end_scan(len(self.scans) - 1)

    @precondition(lambda self: self.scans)
    @rule(data=st.data())
    def run_one(self, data: st.DataObject) -> None:
        self.run_scan(data.draw(st.integers(0, len(self.scans) - 1)))

    def run_scan(self, number: int) -> None:
        follower, scan, read_ms = self.scans[number]
        if read_ms is None:
            try:
                scan.run(self.now_ms)
            except LogError as error:
                scan.error = error
            self.scans[number] = (follower, scan, self.now_ms)

    @precondition(lambda self: self.scans)
    @rule(data=st.data())
    def end_one(self, data: st.DataObject) -> None:
        self.end_scan(data.draw(st.integers(0, len(self.scans) - 1)))

    def end_scan(self, number: int, *, is_deleted: bool = False) -> None:
        self.run_scan(number)
        follower, scan, read_ms = self.scans.pop(number)
        error = self.moving(lambda: self.engine.end_scan(scan), read_ms=read_ms)
        if follower in self.followers:
            self.ready.add(follower)
        if error is None:
            return
        if not is_deleted:
            # For a deleted stream the engine's owner asks whether it is there, whatever the error is.
            assert isinstance(error, CorruptChunkError)
            self.told_of_damage(follower)

    def told_of_damage(self, follower: Follower) -> None:
        """It has all that lies before the damaged chunk, and ends."""
        (damaged,) = self.damaged
        assert follower.takes is not Takes.CHUNKS
        before = len(follower.expected)
        assert follower.reader.offset < damaged + len(self.chunk_at(damaged).bodies)
        follower.passed(self.chunks, follower.reader.offset, damaged, self.now_ms)
        assert len(follower.expected) == before
        self.engine.want(follower.reader, ALL)
        self.take_all(follower)
        self.check_got(follower, len(follower.expected))
        self.close(follower)

    def chunk_at(self, chunk_id: int) -> Chunk:
        return next(chunk for chunk in self.chunks if chunk.chunk_id == chunk_id)

    # together

    @precondition(lambda self: self.followers)
    @rule()
    def everyone_reads_to_the_end(self) -> None:
        """As a pump does: it asks those that are ready, and nobody else; time passes."""
        self.look()
        for follower in self.followers:
            self.want_of(follower, ALL)
            if follower.link_is_full:
                follower.link_is_full = False
                self.ready.add(follower)
        while self.scans:
            self.end_scan(0)
        for _ in range(200):
            for follower in [each for each in self.followers if each in self.ready]:
                self.ready.discard(follower)
                self.take_all(follower)
                if self.begins_scan(follower, may_wait=True):
                    self.end_scan(len(self.scans) - 1)
            if not self.ready and not any(each.reader.phase is Phase.GATHERING for each in self.followers):
                break
            self.time_passes(60)
        else:
            raise AssertionError("somebody never comes to the end")
        for follower in self.followers:
            if follower.reader.is_active:
                assert follower.reader.at_end and follower.reader.offset == self.engine.end
                self.check_got(follower, len(follower.expected))
                if follower.is_unbroken and not self.damaged:
                    assert follower.reader.counters == follower.counters

    def check_got(self, follower: Follower, count: int) -> None:
        """It got the first so many messages of what it must get."""
        got, expected = follower.got, follower.expected[:count]
        if follower.takes is Takes.CHUNKS and self.damaged:
            # The data of whole chunks is given unchecked.
            assert [row[:2] for row in got] == [row[:2] for row in expected]
        else:
            assert got == expected

    @invariant()
    def nobody_got_what_is_not_his(self) -> None:
        for follower in self.followers:
            self.check_got(follower, len(follower.got))

    @invariant()
    def what_waits_is_bounded(self) -> None:
        # What is damaged has a place among them, and takes no memory.
        charged = [tile for tile in [*self.log._windows, *self.log._results] if tile.charged_bytes]
        assert self.reads.bytes_held <= WINDOWS_BYTES or len(charged) <= 1
        for follower in self.followers:
            reader = follower.reader
            waiting = follower.expected[len(follower.got) :]
            assert bool(reader.pending) == bool(waiting)
            if waiting:
                assert reader.next_offset == waiting[0][0]


TestReadingEngine = EngineMachine.TestCase
TestReadingEngine.settings = examples(3)
