"""What the match index says of chunks: which messages may match, where it can be believed, and nothing elsewhere.

Results are believed for a chunk if the reader's own filter, in this state of the program, is among those the sidecar
was computed for over that chunk, and the chunk's header is the one that was seen then: it holds the CRC of the data.
Everything else, a damaged file included, is left to the full read, which decides alone what is right.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.errors import CorruptChunkError, CorruptSidecarError
from headgate.log import HEADER_BYTES_DTYPE, ChunkType, IndexedFilter, SegmentReader, Sidecar
from headgate.log.format import HEADER_DTYPE
from headgate.scan.match_index.bit_map import BitMapParameters, has_positions
from headgate.scan.match_index.identity import key_of
from headgate.scan.request import OffsetRange, ScanRequest

Int64Array = NDArray[np.int64]

_MOST_ROWS = 16_384
_MOST_OFFSETS = 1 << 18
"""An answer is about so many chunks and messages: what bounds the memory of a look-up."""

_HEADER_WORDS = HEADER_BYTES_DTYPE.itemsize // 8


class MatchIndexWarning(RuntimeWarning):
    """A match index is there and cannot be used; the messages are read and evaluated instead."""


@dataclass(slots=True)
class Answer:
    """What the index says of some chunks, `rows` of the reader's table.

    `trusted`, `records` (messages in the range asked for) and `counts` (those of them that may match; 0 where not
    trusted) are `(rows,)`. `offsets` are the messages of trusted chunks that may match, ascending, `chunks` the number
    in `rows` of the chunk of each. If `exact`, they do match. `headers` are those of trusted chunks, `(rows,)`.
    """

    rows: Int64Array
    trusted: NDArray[np.bool_]
    records: Int64Array
    counts: Int64Array
    offsets: Int64Array
    chunks: Int64Array
    exact: bool
    headers: NDArray[np.void]

    @property
    def ruled_out(self) -> NDArray[np.bool_]:
        """Chunks that hold no match in the range asked for."""
        found: NDArray[np.bool_] = self.trusted & (self.counts == 0)
        return found


class MatchIndex:
    """The match index as one reader sees it, for the filter of a request. Keeps one sidecar open, warns at most once.

    Not for several threads at once.
    """

    def __init__(self, request: ScanRequest) -> None:
        usable = request.filter is not None and request.match_index and not request.exact
        self._key = key_of(request.filter) if usable and request.filter is not None else None
        self._opened: _Opened | None = None
        self._warned = False

    @property
    def is_asked(self) -> bool:
        """Whether there is any use in asking: results of the filter may be kept, and the request allows it."""
        return self._key is not None

    def close(self) -> None:
        """Give the open file back; the next question opens it again."""
        if self._opened is not None and self._opened.sidecar is not None:
            self._opened.sidecar.close()
        self._opened = None

    def answers(self, reader: SegmentReader, rows: Int64Array, within: OffsetRange) -> Iterator[Answer]:
        """What the index says of chunks, in pieces of bounded size, together all `rows`, in their order."""
        chunk_ids = reader.chunks().chunk_id
        first = 0
        while first < len(rows):
            behind = np.searchsorted(chunk_ids[rows], chunk_ids[rows[first]] + _MOST_OFFSETS)
            stop = min(max(first + 1, int(behind)), first + _MOST_ROWS)
            yield self._answer(reader, rows[first:stop], within)
            first = stop

    def entries(self, reader: SegmentReader, start: int, stop: int) -> NDArray[np.void] | None:
        """Entries of the offsets `start … stop`, as the sidecar has them; None if it cannot be read."""
        opened = self._open(reader)
        try:
            return None if opened.sidecar is None else opened.sidecar.entries(start, stop)
        except CorruptSidecarError as error:
            self._give_up(opened, error)
            return None

    def distrust(self, reader: SegmentReader, reason: str) -> None:
        """Pass over the sidecar of this segment from now on: its entries are not what lies in the segment."""
        opened = self._open(reader)
        if opened.sidecar is not None:
            self._give_up(opened, CorruptSidecarError(reason, path=opened.sidecar.path))

    def _answer(self, reader: SegmentReader, rows: Int64Array, within: OffsetRange) -> Answer:
        begins = np.maximum(reader.chunks().chunk_id[rows], within.start)
        ends = np.maximum(np.minimum(reader.next_chunk_ids()[rows], within.stop), begins)
        opened = self._open(reader)
        if opened.sidecar is not None:
            try:
                return self._ask(opened, opened.sidecar, reader, rows, begins, ends)
            except CorruptSidecarError as error:
                self._give_up(opened, error)
        nothing = np.empty(0, dtype=np.int64)
        none = np.zeros(len(rows), dtype=np.int64)
        headers = np.empty(0, dtype=HEADER_DTYPE)
        return Answer(rows, none.astype(np.bool_), ends - begins, none, nothing, nothing, False, headers)

    def _ask(
        self,
        opened: _Opened,
        sidecar: Sidecar,
        reader: SegmentReader,
        rows: Int64Array,
        begins: Int64Array,
        ends: Int64Array,
    ) -> Answer:
        covered_by = opened.covered_by(reader)[rows]
        trusted = covered_by >= 0
        headers = np.zeros(len(rows), dtype=HEADER_DTYPE)
        if trusted.any():
            same, found = self._same_headers(sidecar, reader, rows[trusted])
            headers[trusted] = found
            if not same.all():
                self._warn(f"{sidecar.path}: stale, computed for other chunks than are there now")
            trusted[trusted] = same
        offsets = np.empty(0, dtype=np.int64)
        counts = np.zeros(len(rows), dtype=np.int64)
        for number in np.unique(covered_by[trusted]).tolist():
            own = np.flatnonzero(trusted & (covered_by == number) & (ends > begins))
            if len(own):
                start, stop = int(begins[own[0]]), int(ends[own[-1]])
                may = _may_match(sidecar, opened.filters[number], start, stop)
                if (begins[own[1:]] != ends[own[:-1]]).any():
                    may &= _inside(begins[own] - start, ends[own] - start, len(may))
                matches = np.flatnonzero(may)
                counts[own] = np.diff(np.searchsorted(matches, np.append(begins[own] - start, len(may))))
                offsets = np.concatenate([offsets, matches + start])
        if len(opened.filters) > 1:
            offsets.sort()
        chunks = np.repeat(np.arange(len(rows)), counts)
        exact = sidecar.directory.arrays is None
        return Answer(rows, trusted, ends - begins, counts, offsets, chunks, exact, headers)

    @staticmethod
    def _same_headers(
        sidecar: Sidecar, reader: SegmentReader, rows: Int64Array
    ) -> tuple[NDArray[np.bool_], NDArray[np.void]]:
        """Which chunks have the header that the sidecar knows, and these headers."""
        start, stop = int(rows[0]), int(rows[-1]) + 1
        known = sidecar.headers(start, stop)[rows - start]
        try:
            found = reader.headers(start, stop).records.view(HEADER_BYTES_DTYPE)[rows - start]
        except CorruptChunkError:
            # Whoever reads these chunks in full finds the one that does not check, and says so.
            return np.zeros(len(rows), dtype=np.bool_), known.view(HEADER_DTYPE)
        seen, now = (each.view(np.uint64).reshape(-1, _HEADER_WORDS) for each in (known, found))
        return np.all(seen == now, axis=1), known.view(HEADER_DTYPE)

    def _open(self, reader: SegmentReader) -> _Opened:
        opened = self._opened
        if opened is not None and opened.is_of(reader):
            return opened
        self.close()
        try:
            sidecar = Sidecar.open(reader.segment)
        except CorruptSidecarError as error:
            sidecar = None
            self._warn(f"{error}; read without it")
        self._opened = _Opened(reader, sidecar, [])
        if sidecar is not None:
            self._opened.filters = self._matching(sidecar)
        return self._opened

    def _matching(self, sidecar: Sidecar) -> list[IndexedFilter]:
        key = self._key
        same = [
            each
            for each in sidecar.directory.filters
            if key is not None and (each.dialect, each.text_hash) == (key.dialect, key.text_hash)
        ]
        found = [each for each in same if key is not None and each.evaluator == key.evaluator]
        if same and not found:
            self._warn(
                f"{sidecar.path}: stale, computed by another version of Headgate ({same[0].evaluator}); read without "
                "it. `headgate index build` computes it anew"
            )
        return found

    def _give_up(self, opened: _Opened, error: CorruptSidecarError) -> None:
        self._warn(f"{error}; read without it")
        if opened.sidecar is not None:
            opened.sidecar.close()
        opened.sidecar = None

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(f"match index not used: {text}", MatchIndexWarning, stacklevel=2)


@dataclass(slots=True)
class _Opened:
    """The sidecar of the segment that was asked about last, None if there is none that can be used."""

    reader: SegmentReader
    sidecar: Sidecar | None
    filters: list[IndexedFilter]

    def is_of(self, reader: SegmentReader) -> bool:
        """Whether this is still the sidecar of the reader's segment: a growing segment may have got a new one."""
        if self.reader is not reader:
            return False
        if not reader.segment.is_newest:
            return True
        return Sidecar.identity_at(reader.segment) == (None if self.sidecar is None else self.sidecar.identity)

    def covered_by(self, reader: SegmentReader) -> Int64Array:
        """Per chunk of the segment the number of a filter that was computed over all of it, -1 for none."""
        table = reader.chunks()
        ends = reader.next_chunk_ids()
        found = np.full(len(table), -1, dtype=np.int64)
        assert self.sidecar is not None
        known = np.arange(len(table)) < self.sidecar.directory.chunks
        known &= (table.type == ChunkType.USER) & (ends <= self.sidecar.directory.stop)
        for number, each in enumerate(self.filters):
            for start, stop in each.ranges:
                inside = known & (table.chunk_id >= start) & (ends <= stop)
                found[inside] = number
        return found


def _may_match(sidecar: Sidecar, indexed: IndexedFilter, start: int, stop: int) -> NDArray[np.bool_]:
    """Which of the offsets `start … stop` may match, exactly which in the layout `exact`."""
    if sidecar.directory.arrays is None:
        if indexed.bits is None:
            raise CorruptSidecarError("neither bits nor bit arrays in it", path=sidecar.path)
        return sidecar.bits(indexed.bits, start, stop)
    positions = parameters_named(sidecar.directory.parameters, sidecar).positions(indexed.id)
    return has_positions(sidecar.arrays(start, stop), positions)


def parameters_name(parameters: BitMapParameters) -> str:
    """How a sidecar names the parameters of its bit arrays."""
    return f"{parameters.positions_per_id}/{parameters.bit_length}"


def parameters_named(name: str, sidecar: Sidecar) -> BitMapParameters:
    """The parameters of that name; CorruptSidecarError for an invalid name, or arrays of another size."""
    positions, _, bits = name.partition("/")
    if positions.isdecimal() and bits.isdecimal() and len(name) < 20:
        found = BitMapParameters(int(positions), int(bits))
        if found.bit_length == 8 * sidecar.directory.array_bytes and found.bit_length > 0:
            return found
    raise CorruptSidecarError(f"parameters {name[:40]!r} do not fit its bit arrays", path=sidecar.path)


def _inside(begins: Int64Array, ends: Int64Array, count: int) -> NDArray[np.bool_]:
    """`(count,)`: which places lie in one of some ranges, ascending and apart."""
    borders = np.zeros(count + 1, dtype=np.int8)
    borders[begins] += 1
    borders[ends] -= 1
    found: NDArray[np.bool_] = np.cumsum(borders[:-1], dtype=np.int8) > 0
    return found
