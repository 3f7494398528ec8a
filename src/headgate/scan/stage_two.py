"""Deciding the messages of chunks in memory: checksums, entries, verdicts; compiled, or the same in Python."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headgate import kernels
from headgate.arrays import total
from headgate.evaluate import NO_SAMPLE, UNDECIDED, BodySample, Verdict, layout, malformed_rows, sample_body
from headgate.log import ChunkHeaders, StopReason, WalkedEntries, first_mismatch, walk_entries
from headgate.message import EncodedMessages
from headgate.scan.layout import ChunkBlock
from headgate.scan.offset_range import OffsetRange
from headgate.scan.request import ScanRequest

Int64Array = NDArray[np.int64]

KERNEL = "headgate.scan.kernel"

_CHUNK_FIELDS = ChunkBlock._fields
_NOTHING = np.empty(0, dtype=np.int64)


class Obstacle(enum.IntEnum):
    """Why deciding ended before the last chunk; numbers as in `kernel.py`."""

    MALFORMED = 1
    """The entries do not fill the chunk's data, or their number is not that of its records."""
    SUB_BATCH = 2
    """The chunk holds a sub-batch, which has to be unpacked."""
    WRONG_CHECKSUM = 3


@dataclass(slots=True)
class ChunksInMemory:
    """Chunks in a buffer: `words` has a row for each, a `ChunkBlock`."""

    data: NDArray[np.uint8]
    words: Int64Array

    @staticmethod
    def of(headers: ChunkHeaders, data_starts: Int64Array) -> ChunksInMemory:
        """Chunks with these headers; their data parts start at `data_starts` in the buffer of the headers."""
        records = headers.records
        words = np.empty((len(records), len(_CHUNK_FIELDS)), dtype=np.int64)
        words[:, 0] = data_starts
        for column, name in enumerate(_CHUNK_FIELDS[1:], 1):
            words[:, column] = records[name]
        return ChunksInMemory(headers.data, words)

    def __len__(self) -> int:
        return len(self.words)

    @property
    def data_starts(self) -> Int64Array:
        """Where the data part of each chunk starts."""
        return self.words[:, _CHUNK_FIELDS.index("data_start")]

    @property
    def data_lengths(self) -> Int64Array:
        """Bytes of the data part."""
        return self.words[:, _CHUNK_FIELDS.index("data_length")]

    @property
    def entry_counts(self) -> Int64Array:
        """Entries of each chunk, a sub-batch counted as one."""
        return self.words[:, _CHUNK_FIELDS.index("num_entries")]

    @property
    def record_counts(self) -> Int64Array:
        """Messages of each chunk."""
        return self.words[:, _CHUNK_FIELDS.index("num_records")]

    @property
    def chunk_ids(self) -> Int64Array:
        """Offset of the first message."""
        return self.words[:, _CHUNK_FIELDS.index("chunk_id")]

    @property
    def crcs(self) -> Int64Array:
        """CRC-32 of the data part."""
        return self.words[:, _CHUNK_FIELDS.index("crc")]


@dataclass(slots=True)
class Tally:
    """Number of messages in the wanted range by verdict; a read that is not exact counts unknown as false.

    `bodies` says whether paths of the filter find JSON.
    """

    evaluated: int = 0
    unknown: int = 0
    error: int = 0
    bodies: BodySample = NO_SAMPLE


@dataclass(slots=True)
class Decided:
    """The messages kept of the chunks before `stop_chunk`: bytes, offsets, and the number of the chunk of each.

    `malformed` are the offsets, ascending, found to hold no AMQP message: all of them if the request is exact.
    `obstacle` is the reason why deciding ended at chunk `stop_chunk`; None when all chunks were decided.
    """

    messages: EncodedMessages
    offsets: Int64Array
    chunk_rows: Int64Array
    malformed: Int64Array
    tally: Tally
    stop_chunk: int
    obstacle: Obstacle | None


class DecideBuffers:
    """Buffers for the results of the kernel, kept from call to call; `reserve` first. For one thread at a time.

    `columns` `(4, capacity)` and `verdicts` `(capacity,)` describe the kept messages; `counts` `(7,)` is the tally
    by verdict, the reason for the end, and the chunk. `addresses` are those of the columns, the verdicts, tally and
    reason.
    """

    __slots__ = ("addresses", "capacity", "columns", "counts", "verdicts")

    columns: Int64Array
    verdicts: NDArray[np.uint8]
    addresses: tuple[int, ...]

    def __init__(self) -> None:
        self.counts = np.zeros(7, dtype=np.int64)
        self.capacity = -1

    def reserve(self, capacity: int) -> None:
        """Make room for `capacity` messages."""
        if capacity > self.capacity:
            self.columns = np.empty((4, capacity), dtype=np.int64)
            self.verdicts = np.empty(capacity, dtype=np.uint8)
            self.capacity = capacity
            address, counts = kernels.address_of(self.columns), kernels.address_of(self.counts)
            columns = [address + 8 * capacity * column for column in range(4)]
            self.addresses = (*columns, kernels.address_of(self.verdicts), counts, counts + 8 * 5)


@dataclass(slots=True)
class Decider:
    """Decides chunks for one request; because of its `buffers`, for one thread at a time.

    `are_checked`: the checksums of the chunks were compared already.
    """

    request: ScanRequest
    within: OffsetRange
    buffers: DecideBuffers = field(default_factory=DecideBuffers)
    are_checked: bool = False

    @property
    def _verifies(self) -> bool:
        return self.request.verify_checksums and not self.are_checked

    def decide(self, chunks: ChunksInMemory, first_chunk: int) -> Decided:
        """The kept messages of the chunks from number `first_chunk` on, up to an obstacle."""
        program = None if self.request.filter is None else self.request.filter.program
        # Without a filter the kernel is loaded if it was compiled before, but is not worth compiling.
        is_wanted = self.request.filter is not None or kernels.is_compiled(KERNEL)
        kernel = kernels.load(KERNEL) if is_wanted else None
        checksum = None if kernel is None else kernels.load("headgate.kernels.checksum")
        fits = program is None or program.takes(self.request.now_ms)
        if kernel is None or checksum is None or not fits or (program is None and self.request.filter is not None):
            return self._in_python(chunks, first_chunk)
        table = 0
        chunk_count = len(chunks)
        if self._verifies:
            if checksum.HAS_CARRYLESS_MULTIPLY:
                table = kernels.address_of(kernels.byte_table())
            else:
                chunk_count = self._first_wrong_checksum(chunks, first_chunk)
        buffers, within = self.buffers, self.within
        words = chunks.words
        # An entry has at least the four bytes of its length.
        buffers.reserve(total(np.minimum(chunks.entry_counts[first_chunk:], chunks.data_lengths[first_chunk:] >> 2)))
        buffers.counts[:] = 0
        address = kernels.address_of
        code = layout.CODE_EXACT if self.request.exact else layout.CODE_SELECT
        registers = None if program is None else program.registers_at(self.request.now_ms)
        run = (0, code, 0, 0)
        if program is not None and registers is not None:
            run = (program.words_address, code, program.pool_address, address(registers))
        kept = kernel.decide_chunks(
            address(chunks.data),
            address(words),
            first_chunk,
            chunk_count,
            table,
            *run,
            within.start,
            within.stop,
            *buffers.addresses,
        )
        *tally, reason, chunk = buffers.counts.tolist()
        counted = Tally(sum(tally))
        if self.request.exact:
            counted = Tally(counted.evaluated, tally[Verdict.UNKNOWN], tally[Verdict.ERROR])
        if chunk > first_chunk and program is not None:
            counted.bodies = _sampled(chunks, first_chunk, self.request)
        if reason == 0 and chunk_count < len(chunks):
            reason = Obstacle.WRONG_CHECKSUM
        starts, lengths, offsets, rows = buffers.columns[:, :kept].copy()
        messages, malformed = EncodedMessages(chunks.data, starts, lengths), _NOTHING
        if program is not None and (buffers.verdicts[:kept] != Verdict.TRUE).any():
            assert self.request.filter is not None
            verdicts = buffers.verdicts[:kept].copy()
            left_open = np.flatnonzero(verdicts == UNDECIDED)
            self.request.filter.settle(verdicts, messages, self.request.now_ms)
            if self.request.exact:
                counted.unknown += int((verdicts[left_open] == Verdict.UNKNOWN).sum())
                counted.error += int((verdicts[left_open] == Verdict.ERROR).sum())
            malformed = offsets[_malformed_among(messages, verdicts)]
            true = np.flatnonzero(verdicts == Verdict.TRUE)
            messages, offsets, rows = messages.take(true), offsets[true], rows[true]
        return Decided(messages, offsets, rows, malformed, counted, chunk, Obstacle(reason) if reason else None)

    def _first_wrong_checksum(self, chunks: ChunksInMemory, first_chunk: int) -> int:
        """The first chunk from `first_chunk` on with a wrong checksum; the number of chunks if there is none."""
        part = slice(first_chunk, None)
        bad = first_mismatch(chunks.data, chunks.data_starts[part], chunks.data_lengths[part], chunks.crcs[part])
        return len(chunks) if bad is None else first_chunk + bad

    def _in_python(self, chunks: ChunksInMemory, first_chunk: int) -> Decided:
        stop = self._first_wrong_checksum(chunks, first_chunk) if self._verifies else len(chunks)
        obstacle = Obstacle.WRONG_CHECKSUM if stop < len(chunks) else None
        walked = self._walk(chunks, first_chunk, stop)
        if walked.stop is not None:
            stop = walked.stop.chunk
            is_sub_batch = walked.stop.reason is StopReason.SUB_BATCH
            obstacle = Obstacle.SUB_BATCH if is_sub_batch else Obstacle.MALFORMED
        counts = chunks.entry_counts[first_chunk:stop]
        other = np.flatnonzero(counts != chunks.record_counts[first_chunk:stop])
        if len(other):
            stop, obstacle = first_chunk + int(other[0]), Obstacle.MALFORMED
            counts = chunks.entry_counts[first_chunk:stop]
            walked = self._walk(chunks, first_chunk, stop)
        rows = np.repeat(np.arange(first_chunk, stop, dtype=np.int64), counts)
        wanted = np.flatnonzero((walked.offsets >= self.within.start) & (walked.offsets < self.within.stop))
        messages = EncodedMessages(chunks.data, walked.starts[wanted], walked.lengths[wanted])
        offsets, rows = walked.offsets[wanted], rows[wanted]
        kept, malformed, tally = select(messages, self.request)
        return Decided(messages.take(kept), offsets[kept], rows[kept], offsets[malformed], tally, stop, obstacle)

    @staticmethod
    def _walk(chunks: ChunksInMemory, first_chunk: int, stop_chunk: int) -> WalkedEntries:
        return walk_entries(
            chunks.data,
            data_starts=chunks.data_starts[:stop_chunk],
            data_lengths=chunks.data_lengths[:stop_chunk],
            entry_counts=chunks.entry_counts[:stop_chunk],
            chunk_ids=chunks.chunk_ids[:stop_chunk],
            first_chunk=first_chunk,
        )


def select(messages: EncodedMessages, request: ScanRequest) -> tuple[NDArray[np.intp], NDArray[np.intp], Tally]:
    """The rows that a request keeps, the rows found to be no AMQP message, and the number of verdicts."""
    tally = Tally(len(messages.starts), bodies=sample_body(messages, request.filter))
    if request.filter is None:
        return np.arange(len(messages)), np.empty(0, dtype=np.intp), tally
    verdicts = request.filter.verdicts(messages, now_ms=request.now_ms, exact=request.exact)
    if request.exact:
        tally.unknown, tally.error = (int((verdicts == verdict).sum()) for verdict in (Verdict.UNKNOWN, Verdict.ERROR))
    return np.flatnonzero(verdicts == Verdict.TRUE), _malformed_among(messages, verdicts), tally


def _sampled(chunks: ChunksInMemory, chunk: int, request: ScanRequest) -> BodySample:
    """The sample of a chunk whose entries are messages, each behind its length (four bytes, big-endian)."""
    if request.filter is None or not request.filter.has_body_paths or not chunks.entry_counts[chunk]:
        return NO_SAMPLE
    starts = chunks.data_starts[chunk : chunk + 1]
    lengths = chunks.data[starts[0] : starts[0] + 4].view(">u4").astype(np.int64)
    return sample_body(EncodedMessages(chunks.data, starts + 4, lengths), request.filter)


def _malformed_among(messages: EncodedMessages, verdicts: NDArray[np.uint8]) -> NDArray[np.intp]:
    """The rows that are no AMQP messages; other rows have errors of the filter language."""
    errors = np.flatnonzero(verdicts == Verdict.ERROR)
    return errors if not len(errors) else errors[malformed_rows(messages.take(errors))]
