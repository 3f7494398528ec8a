"""The tail of lookup: tables of an open segment, in the memory of a process that asks for it again and again.

A table covers `RUN_BLOCKS` complete blocks; messages behind the last one are read. The first use costs reading all
messages so far, so a process that asks once or twice, for instance a command, keeps no tables.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.derived.lookup.build import values_of
from headgate.derived.lookup.table import BLOCK_MESSAGES, Table, blocks_of, make_table
from headgate.errors import LogError
from headgate.log import SegmentReader
from headgate.message import parse_field
from headgate.scan import OffsetRange

RUN_BLOCKS = 16

_FIRST_LOOKS = 4
"""A tail is made after this many looks at a segment: a planned read takes two."""

_MOST_TAILS = 64


@dataclass(frozen=True, slots=True)
class Mark:
    """A chunk by its id and its header, which holds the checksum of its data."""

    chunk_id: int
    header: bytes

    @staticmethod
    def before(reader: SegmentReader, stop: int) -> Mark:
        """The last chunk that begins before an offset; there must be one. Cost: reading a header."""
        ids = reader.chunks().chunk_id
        row = int(np.searchsorted(ids, stop)) - 1
        return Mark(int(ids[row]), reader.header_bytes(row))

    def stands(self, reader: SegmentReader) -> bool:
        """Whether the chunk is still there, unchanged: then all chunks before it are unchanged.

        Cost: reading a header.
        """
        ids = reader.chunks().chunk_id
        row = int(np.searchsorted(ids, self.chunk_id))
        return row < len(ids) and ids[row] == self.chunk_id and reader.header_bytes(row) == self.header


class Tail:
    """The tables of one open segment, for all readers of a process, in any thread."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._lock = threading.Lock()
        self._looks = 0
        self._fields: tuple[str, ...] = ()
        self._runs: list[dict[str, Table]] = []
        self._mark: Mark | None = None

    def grow(self, reader: SegmentReader, fields: Sequence[str]) -> tuple[int, Mark | None]:
        """Add new messages; gives the number of known blocks, from the first offset of the segment on, and a mark.

        The mark is the last chunk of these blocks, None for no blocks: the blocks are valid while it is unchanged.

        Cost: reading the new messages; without any, one header.
        """
        with self._lock:
            self._looks += 1
            if self._looks <= _FIRST_LOOKS:
                return 0, None
            if self._fields != tuple(fields) or (self._mark is not None and not self._mark.stands(reader)):
                self._fields, self._runs, self._mark = tuple(fields), [], None
            run = RUN_BLOCKS * BLOCK_MESSAGES
            references = [parse_field(field) for field in self._fields]
            for number in range(len(self._runs), (reader.next_chunk_id - self._first) // run):
                within = OffsetRange(self._first + number * run, self._first + (number + 1) * run)
                try:
                    mark = Mark.before(reader, within.stop)
                    found = list(values_of(reader, references, within))
                except LogError:
                    # The reader of these messages finds the damage, and reports it.
                    break
                if not (mark.stands(reader) and (self._mark is None or self._mark.stands(reader))):
                    # A recovery cut the segment, and it grew again, while it was read.
                    self._runs, self._mark = [], None
                    break
                offsets = np.concatenate([np.empty(0, dtype=np.int64), *(each for each, _ in found)])
                blocks = (offsets - within.start) // BLOCK_MESSAGES
                tables = {}
                for place, field in enumerate(self._fields):
                    values = np.concatenate([np.empty(0, dtype=np.uint32), *(each[place] for _, each in found)])
                    tables[field] = make_table(values, blocks, count=RUN_BLOCKS, block_messages=BLOCK_MESSAGES)
                self._runs.append(tables)
                self._mark = mark
            return RUN_BLOCKS * len(self._runs), self._mark

    def blocks(self, field: str, fingerprints: NDArray[np.uint32], count: int) -> NDArray[np.bool_] | None:
        """`(count,)`: which of the first blocks may hold one of some values; None if not known."""
        with self._lock:
            runs = self._runs[: count // RUN_BLOCKS]
        if RUN_BLOCKS * len(runs) < count or any(field not in run for run in runs):
            return None
        return np.concatenate([blocks_of(run[field], fingerprints) for run in runs])


_tails: OrderedDict[tuple[str, str, int], Tail] = OrderedDict()
_tails_lock = threading.Lock()


def tail_of(reader: SegmentReader) -> Tail:
    """The tail of an open segment; the same for all readers of the process."""
    segment = reader.segment
    key = str(segment.folder), segment.identity, segment.first_chunk_id
    with _tails_lock:
        found = _tails.setdefault(key, Tail(segment.first_chunk_id))
        _tails.move_to_end(key)
        while len(_tails) > _MOST_TAILS:
            _tails.popitem(last=False)
        return found
