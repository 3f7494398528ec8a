"""The messages of some chunks, read in the cheapest way that the answers about them allow.

Four ways, all with the same messages: a chunk that an answer rules out is not read; where an answer is trusted, only
the messages that may match are read, each checked by itself; where these are many, the whole chunk is read at once, and
not evaluated if all of them are certain; all other chunks are read in full and evaluated.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headgate.log import SegmentReader
from headgate.scan.answers import (
    Answer,
    Answers,
    AnswerSource,
    WantedEntries,
    are_few,
    cut,
    in_a_row,
    read_entries,
    wanted_entries,
)
from headgate.scan.counters import ScanCounters
from headgate.scan.offset_range import OffsetRange
from headgate.scan.reading import WINDOW_BYTES, ScanBatch, read_in_full
from headgate.scan.request import ScanRequest
from headgate.scan.segments import UNREADABLE
from headgate.scan.stage_two import DecideBuffers, Decider

Int64Array = NDArray[np.int64]

_MAPPED_WINDOW_BYTES = 16 << 20
"""Single messages of a mapped segment are not copied, so more of them may be taken at a time."""

_MAPPED_FROM_BYTES = 1 << 20
"""From this many bytes on, looking whether the newest segment may be mapped pays."""

_DENSE_SHARE = 4
"""Where more than one message in this many is wanted, reading the whole chunk is cheaper than single messages."""

_LARGE_MESSAGE_BYTES = 1024
"""Where messages are larger than this on average, evaluating all costs more than reading the wanted ones singly."""


class _Way(enum.IntEnum):
    """How a chunk is read."""

    NOT = 0
    DIRECT = 1
    """The wanted messages only."""
    WHOLE = 2
    """The whole chunk, of which the messages that the answer names are kept without evaluation."""
    EVALUATED = 3


def read_rows(
    reader: SegmentReader,
    rows: Int64Array,
    request: ScanRequest,
    within: OffsetRange,
    counters: ScanCounters,
    answers: Answers | None,
    buffers: DecideBuffers | None = None,
) -> Iterator[ScanBatch]:
    """The messages of the chunks in `rows` of the reader's table, in order, that lie `within` and pass the filter.

    `answers` are asked first; `buffers` are reused. Batches, errors and memory: those of `read_in_full`, and a few
    megabytes of answers.
    """
    if len(rows):
        _map(reader, rows)
    decider = Decider(request, within, buffers or DecideBuffers())
    knowing = answers.knowing(reader, rows) if answers is not None else ()
    if answers is None or not knowing:
        yield from read_in_full(reader, rows, decider, counters)
        return
    if len(knowing) > 1:
        messages = _extent(reader, rows, within)[1]
        rows, _ = _narrowed(reader, rows, within, knowing, counters)
        if are_few(_extent(reader, rows, within)[1], messages):
            knowing = knowing[:1]
    for answer in answers.answers(reader, rows, within, knowing):
        yield from _AnsweredRead(reader, answer, decider, counters).batches()


def _map(reader: SegmentReader, rows: Int64Array) -> None:
    """Map the segment where much is to be read: views of the file are cheaper than copies."""
    stop = int(reader.stops_of(rows[-1:])[0])
    if stop - int(reader.chunks().position[rows[0]]) >= _MAPPED_FROM_BYTES:
        reader.map_to(stop)


def rows_left(
    reader: SegmentReader, rows: Int64Array, within: OffsetRange, answers: Answers, counters: ScanCounters
) -> Int64Array:
    """The `rows` that no answer rules out; the others are counted."""
    if not answers.is_asked:
        return rows
    rows, asked = _narrowed(reader, rows, within, answers.sources, counters)
    knowing = answers.knowing(reader, rows, but=asked)
    if not knowing:
        return rows
    kept = [rows[:0]]
    positions = reader.chunks().position
    for answer in answers.answers(reader, rows, within, knowing):
        place = in_a_row(answer.rows)
        sizes = reader.stop_positions()[place] - positions[place]
        kept.append(answer.rows[_count_ruled_out(answer, sizes, counters)])
    return np.concatenate(kept)


def _narrowed(
    reader: SegmentReader,
    rows: Int64Array,
    within: OffsetRange,
    sources: Sequence[AnswerSource],
    counters: ScanCounters,
) -> tuple[Int64Array, list[AnswerSource]]:
    """The `rows` that every source leaves without a look at messages, the others counted; and which sources could say.

    A source is asked about the rows that those before it left.
    """
    asked: list[AnswerSource] = []
    for source in sources:
        left = source.left(reader, rows, within) if len(rows) else None
        if left is not None:
            _count_dropped(reader, rows, left, within, source, counters)
            rows = left
            asked.append(source)
    return rows, asked


def _count_dropped(
    reader: SegmentReader,
    rows: Int64Array,
    left: Int64Array,
    within: OffsetRange,
    source: AnswerSource,
    counters: ScanCounters,
) -> None:
    """Count the chunks of `rows` that are not in `left`."""
    size, messages = _extent(reader, rows, within)
    left_size, left_messages = _extent(reader, left, within)
    counters.bytes_skipped += size - left_size
    source.count(counters, chunks=len(rows) - len(left), messages=messages - left_messages)


def _extent(reader: SegmentReader, rows: Int64Array, within: OffsetRange) -> tuple[int, int]:
    """Bytes of some chunks, and how many offsets `within` they hold. Chunks in a row cost nothing."""
    if not len(rows):
        return 0, 0
    table, stops, next_ids = reader.chunks(), reader.stop_positions(), reader.next_chunk_ids()
    first = last = rows
    if int(rows[-1]) - int(rows[0]) + 1 == len(rows):
        first, last = rows[:1], rows[-1:]
    offsets = (
        next_ids[last].clip(within.start, within.stop).sum()
        - table.chunk_id[first].clip(within.start, within.stop).sum()
    )
    return int(stops[last].sum() - table.position[first].sum()), int(offsets)


def _count_ruled_out(answer: Answer, sizes: Int64Array, counters: ScanCounters) -> Int64Array:
    """Count the chunks that an answer rules out, and give the numbers of the others.

    `sizes` are the bytes of the answer's chunks.
    """
    left = np.flatnonzero(~answer.ruled_out)
    counters.bytes_skipped += int(sizes.sum() - sizes[left].sum())
    messages = int(answer.records.sum() - answer.records[left].sum())
    answer.source.count(counters, chunks=len(answer.rows) - len(left), messages=messages)
    return left


@dataclass(slots=True)
class _AnsweredRead:
    """A read of some chunks by an answer about them."""

    reader: SegmentReader
    answer: Answer
    decider: Decider
    counters: ScanCounters

    def batches(self) -> Iterator[ScanBatch]:
        """The messages, in stream order: runs of chunks that are read the same way."""
        answer = self.answer
        sizes = self.reader.stops_of(answer.rows) - self.reader.chunks().position[answer.rows]
        kept = _count_ruled_out(answer, sizes, self.counters)
        entries, direct = wanted_entries(self.reader, answer, self._sparse(sizes))
        ways = np.full(len(answer.rows), _Way.EVALUATED)
        ways[answer.decided] = _Way.WHOLE
        ways[direct] = _Way.DIRECT
        for run in np.split(kept, np.flatnonzero(np.diff(ways[kept])) + 1):
            if not len(run):
                continue
            way = ways[run[0]]
            if way == _Way.DIRECT:
                first, stop = np.searchsorted(entries.chunks, [run[0], run[-1] + 1]).tolist()
                yield from self._direct(entries.part(first, stop), sizes)
            elif way == _Way.WHOLE:
                yield from self._whole(answer.rows[run])
            else:
                yield from read_in_full(self.reader, answer.rows[run], self.decider, self.counters)

    def _sparse(self, sizes: Int64Array) -> NDArray[np.bool_]:
        """Chunks whose wanted messages are few enough to be read one by one."""
        sparse: NDArray[np.bool_] = self.answer.counts * _DENSE_SHARE <= self.answer.records
        return sparse | (~self.answer.decided & (sizes > self.answer.records * _LARGE_MESSAGE_BYTES))

    def _direct(self, entries: WantedEntries, sizes: Int64Array) -> Iterator[ScanBatch]:
        answer, counters = self.answer, self.counters
        is_mapped = len(entries.stops) > 0 and self.reader.is_mapped(int(entries.stops[-1]))
        limit = _MAPPED_WINDOW_BYTES if is_mapped else WINDOW_BYTES
        for part in cut(entries, limit, count_gaps=not is_mapped):
            chunks = np.flatnonzero(np.bincount(part.chunks, minlength=len(answer.rows)))
            evaluate = not part.certain.all()
            try:
                read = read_entries(self.reader, part, self.decider.request, evaluate=evaluate)
                if read is None:
                    answer.source.distrust(answer, "an entry is not the one that was indexed")
            except UNREADABLE:
                # Readers of whole chunks know what to do then.
                read = None
            if read is None:
                yield from read_in_full(self.reader, answer.rows[chunks], self.decider, counters)
                continue
            read_bytes = int((part.stops - part.positions).sum())
            counters.bytes_read += read_bytes
            counters.bytes_skipped += int(sizes[chunks].sum()) - read_bytes
            decided = int(answer.records[chunks].sum())
            messages, offsets, places = read[0], part.offsets, part.chunks
            if evaluate:
                decided -= len(messages)
                counters.messages_evaluated += len(messages)
                rows = np.flatnonzero(read[1])
                messages, offsets, places = messages.take(rows), offsets[rows], places[rows]
                hits = np.bincount(places, minlength=len(answer.rows))[chunks]
                counters.chunks_without_match += int((hits == 0).sum())
            answer.source.count(counters, chunks=0, messages=decided)
            counters.messages_matched += len(messages)
            times = answer.headers["timestamp_ms"][places].astype(np.int64)
            yield ScanBatch(messages, offsets, times)

    def _whole(self, rows: Int64Array) -> Iterator[ScanBatch]:
        """The messages that the answer names, of chunks that are read as a whole."""
        counted = ScanCounters()
        decider = Decider(replace(self.decider.request, filter=None), self.decider.within)
        wanted = self.answer.offsets
        try:
            for batch in read_in_full(self.reader, rows, decider, counted):
                if not len(batch):
                    yield batch
                    continue
                first, stop = np.searchsorted(wanted, [batch.offsets[0], batch.offsets[-1] + 1]).tolist()
                named = np.zeros(int(batch.offsets[-1] - batch.offsets[0]) + 1, dtype=np.bool_)
                named[wanted[first:stop] - batch.offsets[0]] = True
                kept = np.flatnonzero(named[batch.offsets - batch.offsets[0]])
                self.counters.messages_matched += len(kept)
                yield ScanBatch(batch.messages.take(kept), batch.offsets[kept], batch.timestamps_ms[kept])
        finally:
            self.answer.source.count(self.counters, chunks=0, messages=counted.messages_evaluated)
            self.counters.bytes_read += counted.bytes_read
            self.counters.chunks_corrupt += counted.chunks_corrupt
