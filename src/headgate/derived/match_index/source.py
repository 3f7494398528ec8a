"""Answers from the match index: the messages of chunks that match, where its results can be believed.

Results are believed for a chunk if the reader's own filter, in this state of the program, is among those the sidecar
was computed for over that chunk, and the chunk's header, which holds the CRC of the data, is unchanged. All other
chunks, those of a damaged file included, are left to the full read, which alone decides.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.derived.match_index.identity import FilterKey, key_of
from headgate.errors import CorruptChunkError, CorruptSidecarError
from headgate.evaluate import Filter
from headgate.log import (
    ENTRY_DTYPE,
    HEADER_BYTES_DTYPE,
    ChunkTable,
    ChunkType,
    IndexedFilter,
    SegmentReader,
    Sidecar,
    SidecarBlock,
)
from headgate.log.format import HEADER_DTYPE
from headgate.scan import OffsetRange, ScanCounters
from headgate.scan.answers import Answer, AnswerSource, SegmentFiles, asked_offsets, pieces

Int64Array = NDArray[np.int64]

_MOST_COVERS = 256
"""Limit: filters whose `Cover` is kept for a segment; four bytes for each chunk."""

_HEADER_WORDS = HEADER_BYTES_DTYPE.itemsize // 8


class MatchIndexWarning(RuntimeWarning):
    """A match index is there and cannot be used; the messages are read and evaluated instead."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A filter's results in a block: `number` is its place among the filters of the block."""

    block: SidecarBlock
    number: int


@dataclass(frozen=True, slots=True)
class Cover:
    """Which sidecar has results of a filter: row r of the segment in `parts[owners[r]]`, −1 for none.

    `owners` is `(rows,)` int32, of the segment as it was when the sidecar had `blocks` blocks. The first
    `settled_blocks` lie within its chunk table: their parts, `settled_parts`, are not looked at again when it grows.
    """

    sidecar: Sidecar
    blocks: int
    owners: NDArray[np.int32]
    parts: tuple[_Part, ...]
    settled_blocks: int
    settled_parts: int


@dataclass(slots=True)
class _IndexAnswer(Answer):
    """An answer of the match index; `cover` is its source, None where nothing is trusted."""

    cover: Cover | None


class SegmentIndex:
    """The growing sidecar of an open segment, with its cover for each filter: for all readers, in any thread."""

    def __init__(self, reader: SegmentReader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self._sidecar: Sidecar | None = None
        self._error: CorruptSidecarError | None = None
        self._identity: tuple[int, int] | None = None
        self._has_looked = False
        self._dropped: set[SidecarBlock] = set()
        self._covers: dict[FilterKey, Cover] = {}

    @property
    def reader(self) -> SegmentReader:
        """The segment."""
        return self._reader

    def look(self) -> bool:
        """Look whether there is a sidecar, and whether it was replaced or grew. Cost: two `stat` if it was not."""
        with self._lock:
            segment = self._reader.segment
            identity = Sidecar.identity_at(segment)
            if not self._has_looked or identity != self._identity:
                self._has_looked, self._identity = True, identity
                self._sidecar, self._error = None, None
                self._dropped.clear()
                self._covers.clear()
                try:
                    self._sidecar = None if identity is None else Sidecar.open(segment)
                except CorruptSidecarError as error:
                    self._error = error
            if self._sidecar is not None:
                self._sidecar.refresh()
                self._error = self._sidecar.damage
            return self._sidecar is not None or self._error is not None

    @property
    def error(self) -> CorruptSidecarError | None:
        """The error of a damaged sidecar, as it was at the last look."""
        return self._error

    def cover(self, key: FilterKey) -> Cover | None:
        """Where the sidecar has results of a filter, as it was at the last look; None without a sidecar."""
        with self._lock:
            sidecar = self._sidecar
            if sidecar is None:
                return None
            known = self._covers.get(key)
            table = self._reader.chunks()
            blocks = sidecar.blocks
            if known is not None and (len(known.owners), known.blocks) == (len(table), len(blocks)):
                return known
            if known is None and len(self._covers) >= _MOST_COVERS:
                del self._covers[next(iter(self._covers))]
            found = self._covers[key] = self._extended(known, key, sidecar, blocks, table)
            return found

    def _extended(
        self,
        known: Cover | None,
        key: FilterKey,
        sidecar: Sidecar,
        blocks: tuple[SidecarBlock, ...],
        table: ChunkTable,
    ) -> Cover:
        if known is None or len(known.owners) > len(table):
            known = Cover(sidecar, 0, np.empty(0, dtype=np.int32), (), 0, 0)
        rows = len(table)
        owners = np.concatenate([known.owners, np.full(rows - len(known.owners), -1, dtype=np.int32)])
        parts = list(known.parts[: known.settled_parts])
        settled, settled_parts = known.settled_blocks, known.settled_parts
        for place in range(settled, len(blocks)):
            block = blocks[place]
            first, stop = block.directory.first_chunk, block.stop_chunk
            number = _number_of(key, block.filters)
            is_here = first < rows and table.chunk_id[first] == block.directory.start
            if number is not None and is_here and block not in self._dropped:
                owners[first:stop] = len(parts)
                parts.append(_Part(block, number))
            if stop <= rows and settled == place:
                settled, settled_parts = place + 1, len(parts)
        return Cover(sidecar, len(blocks), owners, tuple(parts), settled, settled_parts)

    def drop(self, block: SidecarBlock) -> None:
        """Stop using a damaged block."""
        with self._lock:
            self._dropped.add(block)
            self._covers.clear()


@dataclass(frozen=True, slots=True)
class _Headers:
    """The headers of rows from `start` on, `(rows,)` of HEADER_BYTES_DTYPE."""

    start: int
    headers: NDArray[np.void]

    def of(self, rows: Int64Array) -> NDArray[np.void]:
        """The headers of some of the rows."""
        return self.headers[rows - self.start]


def _number_of(key: FilterKey, filters: Sequence[IndexedFilter]) -> int | None:
    for number, each in enumerate(filters):
        if (each.text_hash, each.dialect, each.evaluator) == (key.text_hash, key.dialect, key.evaluator):
            return number
    return None


class MatchIndex(AnswerSource):
    """The match index as one reader sees it, for the filter of a request."""

    name = "match index"

    def __init__(self, filter_: Filter) -> None:
        self._filter = filter_
        self._segment: SegmentIndex | None = None
        self._distrusted: Sidecar | None = None
        self._warned = False

    @functools.cached_property
    def _key(self) -> FilterKey | None:
        """The key of the filter's results; None if none may be kept."""
        return key_of(self._filter)

    def use(self, files: SegmentFiles) -> None:
        """See `AnswerSource`."""
        assert isinstance(files, SegmentIndex)
        self._segment = files

    def close(self) -> None:
        """Release the open files; the next question opens them again."""
        self._segment = None

    def count(self, counters: ScanCounters, *, chunks: int, messages: int) -> None:
        """Count the chunks and messages that an answer spared."""
        counters.chunks_skipped_by_index += chunks
        counters.messages_decided_by_index += messages

    def reach(self, reader: SegmentReader, row: int) -> tuple[int, int]:
        """Begin and end of the next rows without a gap, from `row` on, that the index may say something of."""
        cover = self._cover(reader)
        if cover is None or row >= len(cover.owners):
            return row, row
        known = cover.owners[row:] >= 0
        first = int(np.argmax(known))
        if not known[first]:
            return row, row
        behind = int(np.argmin(known[first:]))
        stop = len(known) if known[first + behind] else first + behind
        return row + first, row + stop

    def answers(self, reader: SegmentReader, rows: Int64Array, within: OffsetRange) -> Iterator[Answer]:
        """See `AnswerSource`."""
        for piece in pieces(reader, rows):
            yield self._answer(reader, piece, within)

    def entries(self, reader: SegmentReader, answer: Answer, start: int, stop: int) -> NDArray[np.void] | None:
        """Entries of the offsets `start … stop` from the blocks of an answer; None if a block cannot be read.

        Zeros for chunks that the answer does not trust.
        """
        cover = self._cover_of(answer)
        found = np.zeros(stop - start, dtype=ENTRY_DTYPE)
        if cover is None:
            return found
        next_ids = reader.next_chunk_ids()
        chunk_ids = reader.chunks().chunk_id
        trusted = answer.rows[answer.trusted]
        for run in _runs(cover.owners[trusted], trusted):
            first = max(start, int(chunk_ids[run[0]]))
            last = min(stop, int(next_ids[run[-1]]))
            if first < last:
                block = cover.parts[cover.owners[run[0]]].block
                try:
                    found[first - start : last - start] = block.entries(first, last)
                except CorruptSidecarError as error:
                    self._drop(block, error)
                    return None
        return found

    def distrust(self, answer: Answer, reason: str) -> None:
        """Stop using the sidecar of an answer: its entries do not agree with the segment."""
        cover = self._cover_of(answer)
        if cover is not None:
            self._distrusted = cover.sidecar
            self._warn(f"{self._distrusted.path}: {reason}; read without it")

    @staticmethod
    def _cover_of(answer: Answer) -> Cover | None:
        return answer.cover if isinstance(answer, _IndexAnswer) else None

    def _answer(self, reader: SegmentReader, rows: Int64Array, within: OffsetRange) -> Answer:
        begins, ends = asked_offsets(reader, rows, within)
        while (cover := self._cover(reader)) is not None:
            damaged, found = self._ask(cover, reader, rows, begins, ends)
            if damaged is None:
                return found
        return self._nothing(rows, ends - begins)

    def _nothing(self, rows: Int64Array, records: Int64Array) -> Answer:
        nothing = np.empty(0, dtype=np.int64)
        none = np.zeros(len(rows), dtype=np.int64)
        trusted, certain = none.astype(np.bool_), np.empty(0, dtype=np.bool_)
        headers = np.zeros(len(rows), dtype=HEADER_DTYPE)
        return _IndexAnswer(rows, trusted, records, none, nothing, nothing, certain, headers, self, None)

    def _ask(
        self, cover: Cover, reader: SegmentReader, rows: Int64Array, begins: Int64Array, ends: Int64Array
    ) -> tuple[SidecarBlock | None, Answer]:
        """The block that turned out to be damaged, or None, and the answer, which is empty with a damaged block."""
        table = reader.chunks()
        owners = np.full(len(rows), -1, dtype=np.int64)
        known = rows < len(cover.owners)
        owners[known] = cover.owners[rows[known]]
        owners[table.type[rows] != ChunkType.USER] = -1
        headers = np.zeros(len(rows), dtype=HEADER_DTYPE)
        trusted = np.zeros(len(rows), dtype=np.bool_)
        counts = np.zeros(len(rows), dtype=np.int64)
        matches = [np.empty(0, dtype=np.int64)]
        now = self._headers_now(reader, rows[owners >= 0])
        places = np.flatnonzero(owners >= 0)[: len(now.headers)]
        for run in _runs(owners[places], places):
            part = cover.parts[owners[run[0]]]
            try:
                same, is_stale = self._seen(part.block, rows[run], now)
                own = run[same]
                trusted[own] = True
                headers[own] = now.of(rows[own]).view(HEADER_DTYPE)
                if is_stale:
                    self._warn(f"{cover.sidecar.path}: stale, computed for other chunks than are there now")
                own = own[ends[own] > begins[own]]
                if len(own):
                    found = _matches(part, begins[own], ends[own])
                    counts[own] = np.diff(np.searchsorted(found, np.append(begins[own], ends[own[-1]])))
                    matches.append(found)
            except CorruptSidecarError as error:
                self._drop(part.block, error)
                return part.block, self._nothing(rows, ends - begins)
        offsets = matches[-1] if len(matches) == 2 else np.concatenate(matches)
        chunks = np.repeat(np.arange(len(rows)), counts)
        certain = np.ones(len(offsets), dtype=np.bool_)
        return None, _IndexAnswer(rows, trusted, ends - begins, counts, offsets, chunks, certain, headers, self, cover)

    @staticmethod
    def _headers_now(reader: SegmentReader, rows: Int64Array) -> _Headers:
        """The headers of the range from the first to the last of some rows; none if a chunk there is damaged."""
        start, stop = (int(rows[0]), int(rows[-1]) + 1) if len(rows) else (0, 0)
        try:
            return _Headers(start, reader.headers(start, stop).records.view(HEADER_BYTES_DTYPE))
        except CorruptChunkError:
            # The reader that reads these chunks in full finds the damaged one, and reports it.
            return _Headers(start, np.empty(0, dtype=HEADER_BYTES_DTYPE))

    @staticmethod
    def _seen(block: SidecarBlock, rows: Int64Array, now: _Headers) -> tuple[NDArray[np.bool_], bool]:
        """Which chunks have the header that a block knows, and whether any chunk has another header."""
        start, stop = int(rows[0]), int(rows[-1]) + 1
        known = block.headers(start, stop)[rows - start].view(np.uint64).reshape(-1, _HEADER_WORDS)
        found = now.of(rows).view(np.uint64).reshape(-1, _HEADER_WORDS)
        same: NDArray[np.bool_] = np.all(known == found, axis=1)
        return same, bool(known[~same].any())

    def _cover(self, reader: SegmentReader) -> Cover | None:
        """Where the sidecar of a segment has results of the filter; None if it has none."""
        if self._segment is None or self._segment.reader is not reader:
            self._segment = SegmentIndex(reader)
        if not self._segment.look() or self._key is None:
            return None
        if self._segment.error is not None:
            self._warn(f"{self._segment.error}; read without it")
        cover = self._segment.cover(self._key)
        if cover is None or cover.sidecar is self._distrusted:
            return None
        if not cover.parts:
            self._warn_of_other_evaluator(cover.sidecar)
            return None
        return cover

    def _warn_of_other_evaluator(self, sidecar: Sidecar) -> None:
        key = self._key
        for each in sidecar.filters_of_last or ():
            if key is not None and (each.dialect, each.text_hash) == (key.dialect, key.text_hash):
                self._warn(
                    f"{sidecar.path}: stale, computed by another version of Headgate ({each.evaluator}); read without "
                    "it. `headgate index build` computes it anew"
                )

    def _drop(self, block: SidecarBlock, error: CorruptSidecarError) -> None:
        self._warn(f"{error}; read without it")
        if self._segment is not None:
            self._segment.drop(block)

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(f"match index not used: {text}", MatchIndexWarning, stacklevel=2)


def _runs(owners: NDArray[np.integer[Any]], items: Int64Array) -> list[Int64Array]:
    """The items in runs of the same owner; `owners` and `items` are `(items,)`."""
    return np.split(items, np.flatnonzero(np.diff(owners)) + 1) if len(items) else []


def _matches(part: _Part, begins: Int64Array, ends: Int64Array) -> Int64Array:
    """The offsets of matches in some ranges, which are ascending and disjoint."""
    start, stop = int(begins[0]), int(ends[-1])
    found = part.block.bits(part.number, start, stop)
    if (begins[1:] != ends[:-1]).any():
        found = found & _inside(begins - start, ends - start, len(found))
    return np.flatnonzero(found) + start


def _inside(begins: Int64Array, ends: Int64Array, count: int) -> NDArray[np.bool_]:
    """`(count,)`: which places lie in one of some ranges, ascending and disjoint."""
    borders = np.zeros(count + 1, dtype=np.int8)
    borders[begins] += 1
    borders[ends] -= 1
    found: NDArray[np.bool_] = np.cumsum(borders[:-1], dtype=np.int8) > 0
    return found
