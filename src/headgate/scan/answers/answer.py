"""Answers: facts about some chunks of a segment for the filter of one request; and the sources of answers.

A reader is handed kinds of sources in its request (`SourceKind`), and knows no more of them than these protocols.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from headgate.evaluate import Filter
from headgate.log import Segment, SegmentReader, StreamSettings
from headgate.scan.counters import ScanCounters
from headgate.scan.offset_range import OffsetRange

Int64Array = NDArray[np.int64]

MOST_ROWS = 16_384
MOST_OFFSETS = 1 << 18
"""Limits: chunks and offsets of one answer. They bound the memory of a look-up."""


@dataclass(slots=True)
class Answer:
    """An answer about some chunks, `rows` of the reader's table.

    `(rows,)` are `trusted`, `records` (messages in the range asked for), `counts` (records that may match; 0 where not
    trusted), and `headers`, set for trusted chunks. `offsets` are the messages of trusted chunks that may match,
    ascending, `chunks` the number in `rows` of the chunk of each; `certain` messages do match, the others have to be
    evaluated. `source` is the source that gave the answer.
    """

    rows: Int64Array
    trusted: NDArray[np.bool_]
    records: Int64Array
    counts: Int64Array
    offsets: Int64Array
    chunks: Int64Array
    certain: NDArray[np.bool_]
    headers: NDArray[np.void]
    source: AnswerSource

    @property
    def ruled_out(self) -> NDArray[np.bool_]:
        """Chunks that hold no match in the range asked for."""
        found: NDArray[np.bool_] = self.trusted & (self.counts == 0)
        return found

    @property
    def decided(self) -> NDArray[np.bool_]:
        """Chunks of which no message has to be evaluated."""
        if self.certain.all():
            return self.trusted
        found = self.trusted.copy()
        found[self.chunks[~self.certain]] = False
        return found

    def narrowed(self, other: Answer) -> Self:
        """This answer, less the messages that another one about the same chunks rules out; certain as either knows."""
        both = other.trusted[self.chunks]
        places = np.minimum(np.searchsorted(other.offsets, self.offsets), max(len(other.offsets) - 1, 0))
        named = np.zeros(len(self.offsets), dtype=np.bool_)
        certain = self.certain
        if len(other.offsets):
            named = other.offsets[places] == self.offsets
            certain = certain | (named & other.certain[places])
        kept = named | ~both
        ruled_out = other.ruled_out & ~self.trusted
        if kept.all() and not ruled_out.any():
            return replace(self, certain=certain)
        chunks = self.chunks[kept]
        return replace(
            self,
            trusted=self.trusted | ruled_out,
            counts=np.bincount(chunks, minlength=len(self.rows)),
            offsets=self.offsets[kept],
            chunks=chunks,
            certain=certain[kept],
        )

    def part(self, start: int, stop: int) -> Self:
        """The answer for the rows `start … stop` alone."""
        if (start, stop) == (0, len(self.rows)):
            return self
        rows = slice(start, stop)
        first, last = np.searchsorted(self.chunks, [start, stop]).tolist()
        return replace(
            self,
            rows=self.rows[rows],
            trusted=self.trusted[rows],
            records=self.records[rows],
            counts=self.counts[rows],
            offsets=self.offsets[first:last],
            chunks=self.chunks[first:last] - start,
            certain=self.certain[first:last],
            headers=self.headers[rows],
        )


def in_a_row(rows: Int64Array) -> slice | Int64Array:
    """Rows as an index: without a gap, the usual case, as a slice, which copies nothing. At least one row."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if len(rows) == last - first + 1 else rows


def asked_offsets(reader: SegmentReader, rows: Int64Array, within: OffsetRange) -> tuple[Int64Array, Int64Array]:
    """First and stop of the offsets of some chunks, at least one, that lie in a range; equal where none does."""
    place = in_a_row(rows)
    begins, ends = reader.chunks().chunk_id[place], reader.next_chunk_ids()[place]
    if within.start > begins[0] or within.stop < ends[-1]:
        begins = np.maximum(begins, within.start)
        ends = np.maximum(np.minimum(ends, within.stop), begins)
    return begins, ends


class Purpose(enum.Enum):
    """The purpose that answers are asked for."""

    PLANNING = "which chunks are read; only what costs next to nothing counts"
    READING = "the messages that match"
    PLANNED = "the messages that match, in chunks that a plan left"
    SHARED = "the messages that match, where one pass would decide for several readers, or the results change with time"
    COUNTING = "their number"


class SegmentFiles(Protocol):
    """The derived files of one kind of an open segment, shared by all its readers. Safe for several threads."""

    def look(self) -> bool:
        """Look whether there are any, damaged ones included. Cheap, as it is asked for each read."""


class ChunkTest(Protocol):
    """A test of stage 1: which chunks may hold one of the filter values of a request. Not for several threads."""

    def keep(self, segment: Segment, chunk_ids: Int64Array, next_ids: Int64Array) -> NDArray[np.bool_]:
        """`(chunks,)`: which chunks, of one segment, have to be read. Each holds offsets `chunk_id … next_id`."""

    def count(self, counters: ScanCounters, chunks: int) -> None:
        """Count chunks that it ruled out."""


class SourceKind(Protocol):
    """One kind of derived files, as a request names it. Picklable; kinds that are equal are the same."""

    def source(self, filter_: Filter, now_ms: int, purpose: Purpose) -> AnswerSource | None:
        """A source of answers for a filter; None if it can say nothing for this filter and purpose."""

    def segment_files(self, reader: SegmentReader) -> SegmentFiles:
        """The files of an open segment; no look at them yet."""

    def chunk_test(self, settings: StreamSettings, values: Collection[bytes]) -> ChunkTest | None:
        """A test for filter values, none of them empty, in a stream with these settings; None if it has none."""


class AnswerSource(ABC):
    """One kind of derived knowledge about the chunks of a segment, for the filter of one request.

    It warns at most once of what it cannot use. Not for several threads at once.
    """

    name: ClassVar[str]
    """Its name as shown to users."""

    def use(self, files: SegmentFiles) -> None:
        """Use these files, of its kind and of an open segment, from now on; other readers share them."""
        return

    @abstractmethod
    def reach(self, reader: SegmentReader, row: int) -> tuple[int, int]:
        """Begin and end of the next rows without a gap, from `row` on, that the source may say something of."""

    @abstractmethod
    def answers(self, reader: SegmentReader, rows: Int64Array, within: OffsetRange) -> Iterator[Answer]:
        """Its answers for chunks, in pieces of bounded size: together all `rows`, in their order."""

    def left(self, reader: SegmentReader, rows: Int64Array, within: OffsetRange) -> Int64Array | None:
        """The `rows` that may hold a match, as far as that costs next to nothing; None if it cannot tell so."""
        return None

    def entries(self, reader: SegmentReader, answer: Answer, start: int, stop: int) -> NDArray[np.void] | None:
        """Entries of the offsets `start … stop`, `(offsets,)` of ENTRY_DTYPE: position, and CRC-32, of each message.

        Zeros where it does not know them. None if it knows none, or what it knew cannot be read: whole chunks are read.
        """
        return None

    def distrust(self, answer: Answer, reason: str) -> None:
        """Stop using the file that an answer is from: its entries do not agree with the segment."""
        return

    @abstractmethod
    def count(self, counters: ScanCounters, *, chunks: int, messages: int) -> None:
        """Count chunks that an answer of it ruled out, and messages that it decided."""

    def close(self) -> None:
        """Give open files back; the next question opens them again."""
        return


def pieces(reader: SegmentReader, rows: Int64Array) -> Iterator[Int64Array]:
    """`rows` in parts that an answer may be about, in their order."""
    chunk_ids = reader.chunks().chunk_id
    first = 0
    while first < len(rows):
        behind = np.searchsorted(chunk_ids[rows], chunk_ids[rows[first]] + MOST_OFFSETS)
        stop = min(max(first + 1, int(behind)), first + MOST_ROWS)
        yield rows[first:stop]
        first = stop
