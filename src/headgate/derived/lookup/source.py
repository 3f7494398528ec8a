"""Lookup files as a source of answers: which messages lie in a block that may hold a match."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headgate.derived.lookup.declaration import fields_in, spelled
from headgate.derived.lookup.files import lookup_file_of
from headgate.derived.lookup.fingerprints import fingerprints_of_values
from headgate.derived.lookup.keys import block_keys, matching_blocks
from headgate.derived.lookup.table import BLOCK_MESSAGES, block_messages_of
from headgate.derived.lookup.tail import RUN_BLOCKS, Mark, tail_of
from headgate.errors import CorruptSidecarError, LogError
from headgate.evaluate import Filter
from headgate.log import ChunkType, Segment, SegmentReader, StreamSettings, derived_folder_of
from headgate.log.format import HEADER_DTYPE
from headgate.scan import OffsetRange, ScanCounters
from headgate.scan.answers import MOST_OFFSETS, Answer, AnswerSource, asked_offsets, in_a_row

Int64Array = NDArray[np.int64]

_NO_HEADER = np.zeros(1, dtype=HEADER_DTYPE)
"""The header in all answers: lookup files know no places, so their messages cannot be read one by one."""


class LookupWarning(RuntimeWarning):
    """A lookup file is there and cannot be used; the messages are read instead, and a build makes it again."""


class SegmentLookup:
    """Whether the stream of an open segment has lookup fields."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment

    @functools.cached_property
    def _has_fields(self) -> bool:
        try:
            return bool(fields_in(derived_folder_of(self._segment)))
        except LogError:
            # The next read of the file warns.
            return True

    def look(self) -> bool:
        """See `SegmentFiles`. Cost: one look for one file, whichever files are made later."""
        return self._has_fields


@dataclass(frozen=True, slots=True)
class Cover:
    """Which blocks of a segment may hold a match, `(blocks,)`, from the offset `first` on; known up to `stop`.

    For an open segment it is valid while the chunk of the `mark` is unchanged: a recovery may cut the segment, which
    then grows again.
    """

    first: int
    stop: int
    block_messages: int
    blocks: NDArray[np.bool_]
    mark: Mark | None

    def ranges(self) -> tuple[Int64Array, Int64Array]:
        """Begin and end of the ranges of offsets that may match, ascending and disjoint."""
        borders = np.flatnonzero(np.diff(self.blocks, prepend=False, append=False))
        offsets = self.first + borders * self.block_messages
        return offsets[::2], np.minimum(offsets[1::2], self.stop)


class LookupSource(AnswerSource):
    """Answers from lookup files for the filter of a request. No match that it names is certain.

    Chunks are read in full: it has no entries. Files of sealed segments are found by name, tails of open segments are
    the process's: it holds none.
    """

    name = "lookup"

    def __init__(self, filter_: Filter) -> None:
        self._filter = filter_
        self._known: tuple[SegmentReader, int, Cover | None] | None = None
        self._files = _Files()

    def count(self, counters: ScanCounters, *, chunks: int, messages: int) -> None:
        """See `AnswerSource`."""
        counters.chunks_skipped_by_lookup += chunks
        counters.messages_decided_by_lookup += messages

    def reach(self, reader: SegmentReader, row: int) -> tuple[int, int]:
        """See `AnswerSource`."""
        cover = self._cover(reader, row)
        if cover is None:
            return row, row
        return row, max(row, int(np.searchsorted(reader.next_chunk_ids(), cover.stop, side="right")))

    def answers(self, reader: SegmentReader, rows: Int64Array, within: OffsetRange) -> Iterator[Answer]:
        """See `AnswerSource`. In one piece where few messages may match."""
        if not len(rows):
            return
        table = reader.chunks()
        place = in_a_row(rows)
        chunk_ids, next_ids = table.chunk_id[place], reader.next_chunk_ids()[place]
        begins, ends = asked_offsets(reader, rows, within)
        cover = self._cover(reader, int(rows[0]))
        counts = np.zeros(len(rows), dtype=np.int64)
        trusted = np.zeros(len(rows), dtype=np.bool_)
        if cover is not None:
            trusted = table.type[place] == ChunkType.USER
            trusted[int(np.searchsorted(next_ids, cover.stop, side="right")) :] = False
            some = _chunks_of(cover, chunk_ids, within)
            sums = np.append(0, np.cumsum(cover.blocks, dtype=np.int64))
            counts[some] = _before(cover, sums, ends[some]) - _before(cover, sums, begins[some])
            counts[~trusted] = 0
        records = ends - begins
        total = None if int(counts.sum()) <= MOST_OFFSETS else np.cumsum(counts)
        first = 0
        while first < len(rows):
            before = int(total[first - 1]) if total is not None and first else 0
            stop = len(rows)
            if total is not None:
                stop = max(first + 1, int(np.searchsorted(total, before + MOST_OFFSETS, side="right")))
            part = slice(first, stop)
            offsets, chunks = _offsets(cover, begins[part], ends[part], counts[part])
            yield Answer(
                rows[part],
                trusted[part],
                records[part],
                counts[part],
                offsets,
                chunks,
                np.zeros(len(offsets), dtype=np.bool_),
                np.broadcast_to(_NO_HEADER, stop - first),
                self,
            )
            first = stop

    def left(self, reader: SegmentReader, rows: Int64Array, within: OffsetRange) -> Int64Array | None:
        """See `AnswerSource`. Worth having: with small chunks, a look at each takes longer than all else."""
        cover, place = self._cover(reader, int(rows[0])), in_a_row(rows)
        if cover is None or not isinstance(place, slice):
            return None
        some = _chunks_of(cover, reader.chunks().chunk_id[place], within)
        unknown = int(np.searchsorted(reader.next_chunk_ids()[place], cover.stop, side="right"))
        return rows[np.append(some[some < unknown], np.arange(unknown, len(rows)))]

    def _cover(self, reader: SegmentReader, row: int) -> Cover | None:
        """The cover of a segment, looked up once; for an open segment again after each new run of blocks.

        Rows near the end of an open segment cause no look-up.
        """
        known, segment, runs = self._known, reader.segment, 0
        if known is not None and known[0] is not reader:
            known = None
        if known is not None and known[2] is not None and known[2].mark is not None:
            known = known if known[2].mark.stands(reader) else None
        if not segment.is_sealed:
            run, stop = RUN_BLOCKS * BLOCK_MESSAGES, reader.next_chunk_id
            runs = (stop - segment.first_chunk_id) // run
            ids = reader.chunks().chunk_id
            if not runs or row >= len(ids) or stop - int(ids[row]) < run:
                return known[2] if known is not None else None
        if known is None or known[1] != runs:
            known = reader, runs, self._look(reader)
            self._known = known
        return known[2]

    def _look(self, reader: SegmentReader) -> Cover | None:
        """The cover from the lookup files of a segment, or the tail of an open one; None if it does not help."""
        segment = reader.segment
        fields = self._files.fields(segment)
        keys = block_keys(self._filter, fields) if fields else None
        if keys is None:
            return None
        first, mark = segment.first_chunk_id, None
        if segment.stop_offset is None:
            tail, size = tail_of(reader), BLOCK_MESSAGES
            count, mark = tail.grow(reader, fields)
            stop = first + count * size
        else:
            stop = segment.stop_offset
            count, size = _shape_of(segment)

        def blocks_of(field: str, fingerprints: NDArray[np.uint32]) -> NDArray[np.bool_] | None:
            if segment.is_sealed:
                return self._files.blocks(segment, field, fingerprints)
            return tail.blocks(field, fingerprints, count)

        found = matching_blocks(keys, blocks_of, count) if count else None
        if found is None or 2 * int(found.sum()) > count:
            # Reading all costs hardly more, and is shared with other readers.
            return None
        return Cover(first, stop, size, found, mark)


class _Files:
    """The lookup files of segments, asked one segment after the other; warns once if a file cannot be used."""

    def __init__(self) -> None:
        self._fields: tuple[Path, tuple[str, ...]] | None = None
        self._warned = False

    def fields(self, segment: Segment) -> tuple[str, ...]:
        """The lookup fields of the segment's stream."""
        folder = derived_folder_of(segment)
        if self._fields is None or self._fields[0] != folder:
            try:
                self._fields = folder, fields_in(folder)
            except LogError as error:
                self._fields = folder, ()
                self._warn(str(error))
        return self._fields[1]

    def blocks(self, segment: Segment, field: str, fingerprints: NDArray[np.uint32]) -> NDArray[np.bool_] | None:
        """Which blocks of a sealed segment may have one of the fingerprints, `(blocks,)`; None if that is not known."""
        try:
            file = lookup_file_of(segment, field)
            if file is None:
                return None
            shape, (count, size) = file.directory.shape, _shape_of(segment)
            if (shape.blocks, shape.block_messages) != (count, size):
                raise CorruptSidecarError(f"{shape.blocks} blocks, expected {count}", path=file.path)
            return file.blocks(fingerprints)
        except CorruptSidecarError as error:
            self._warn(str(error))
        except LogError:
            # The reader of the segment finds the damage, and reports it.
            pass
        return None

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(f"lookup not used: {text}; read without it", LookupWarning, stacklevel=3)


def _shape_of(segment: Segment) -> tuple[int, int]:
    """The number of blocks of a sealed segment, and the number of offsets of a block."""
    assert segment.stop_offset is not None
    offsets = segment.stop_offset - segment.first_chunk_id
    size = block_messages_of(offsets)
    return max(1, -(-offsets // size)), size


class ValueLookup:
    """Finds the chunks of sealed segments that may hold one of some filter values, by lookup files of their field.

    A Bloom filter of at most 255 bytes says little of values of high cardinality; this is for requests by filter
    values, which deliver whole chunks. It rules out only chunks written while the field was the declared source.
    """

    def __init__(self, settings: StreamSettings, values: Collection[bytes]) -> None:
        """At least one of `values`, and none empty: the empty value stands for messages without a value."""
        self._settings = settings
        self._fingerprints = fingerprints_of_values(values)
        self._declared = {each.field for each in settings.declared}
        self._known: tuple[Segment, list[tuple[str, Cover]]] | None = None
        self._files = _Files()

    def keep(self, segment: Segment, chunk_ids: Int64Array, next_ids: Int64Array) -> NDArray[np.bool_]:
        """`(chunks,)`: which have to be read; all of an open segment. Cost: reading parts of a file, once."""
        keep = np.ones(len(chunk_ids), dtype=np.bool_)
        if not segment.is_sealed or not len(chunk_ids):
            return keep
        if self._known is None or self._known[0] != segment:
            self._known = segment, list(self._covers(segment))
        for field, cover in self._known[1]:
            sums = np.append(0, np.cumsum(cover.blocks, dtype=np.int64))
            has_one = _before(cover, sums, next_ids) > _before(cover, sums, chunk_ids)
            keep &= has_one | ~self._settings.declared_mask(field, chunk_ids, next_ids)
        return keep

    def count(self, counters: ScanCounters, chunks: int) -> None:
        """See `ChunkTest`."""
        counters.chunks_skipped_by_lookup += chunks

    def _covers(self, segment: Segment) -> Iterator[tuple[str, Cover]]:
        fields = self._files.fields(segment)
        for declared in sorted(self._declared):
            field = spelled(declared)
            blocks = self._files.blocks(segment, field, self._fingerprints) if field in fields else None
            if blocks is not None and segment.stop_offset is not None:
                _, size = _shape_of(segment)
                yield declared, Cover(segment.first_chunk_id, segment.stop_offset, size, blocks, None)


def _chunks_of(cover: Cover, chunk_ids: Int64Array, within: OffsetRange) -> Int64Array:
    """The numbers of the chunks, ascending, with offsets `within` that lie in blocks that may match."""
    starts, stops = (bounds.clip(within.start, within.stop) for bounds in cover.ranges())
    starts, stops = starts[starts < stops], stops[starts < stops]
    firsts = np.maximum(np.searchsorted(chunk_ids, starts, side="right") - 1, 0)
    lengths = np.maximum(np.searchsorted(chunk_ids, stops) - firsts, 0)
    behind = np.cumsum(lengths)
    if not len(behind):
        return np.empty(0, dtype=np.int64)
    return np.unique(np.arange(int(behind[-1])) + np.repeat(firsts - (behind - lengths), lengths))


def _before(cover: Cover, sums: Int64Array, offsets: Int64Array) -> Int64Array:
    """For each offset: the number of offsets before it that lie in blocks that may match."""
    places = np.clip(offsets - cover.first, 0, cover.stop - cover.first)
    blocks = places // cover.block_messages
    inside = np.append(cover.blocks, False)[blocks]
    return sums[blocks] * cover.block_messages + np.where(inside, places % cover.block_messages, 0)


def _offsets(
    cover: Cover | None, begins: Int64Array, ends: Int64Array, counts: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """The offsets of some chunks that lie in blocks that may match, and the number of the chunk of each."""
    some = np.flatnonzero(counts)
    if cover is None or not len(some):
        nothing = np.empty(0, dtype=np.int64)
        return nothing, nothing
    sizes = (ends - begins)[some]
    stops = np.cumsum(sizes)
    offsets = np.arange(int(stops[-1])) + np.repeat(begins[some] - (stops - sizes), sizes)
    chunks = np.repeat(some, sizes)
    kept = cover.blocks[(offsets - cover.first) // cover.block_messages]
    return offsets[kept], chunks[kept]
