"""Building the sidecar of a segment: every registered filter over every chunk that is new to it, nothing twice.

It works on one segment at a time, and is run by its callers: any build (`kind.py`), a broker that writes
(`incremental_build.py`), a test.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from headgate import kernels
from headgate.derived.match_index.identity import FilterKey, key_of
from headgate.derived.match_index.registry import RegisteredFilter, Registration
from headgate.errors import (
    CorruptChunkError,
    CorruptSidecarError,
    LogError,
    OffsetOutOfRangeError,
)
from headgate.evaluate import Filter
from headgate.evaluate.rules import RuleSet
from headgate.log import (
    ENTRY_DTYPE,
    HEADER_BYTES_DTYPE,
    BlockContent,
    ChunkType,
    IndexedFilter,
    Segment,
    SegmentReader,
    Sidecar,
    SidecarBlock,
    noted_entries,
    write_sidecar,
)
from headgate.message import EncodedMessages
from headgate.scan import Decider, OffsetRange, OnCorrupt, ScanCounters, ScanRequest, Window, open_windows, read_window

Int64Array = NDArray[np.int64]
Mask = NDArray[np.bool_]

_HEADER_ROWS = 16_384
_HEADER_WORDS = HEADER_BYTES_DTYPE.itemsize // 8
_WRITE_ATTEMPTS = 3
_WINDOW_BYTES = 1 << 20
"""Limit: bytes decided at a time. They stay in the processor's cache while filter after filter goes over them."""

_FEWEST_RULES = 4
"""From this many filters on a rule set is faster than one filter after the other."""

_KEPT_FILTERS = 1024


@dataclass(slots=True)
class BuildCounters:
    """Counters of a build."""

    segments: int = 0
    segments_written: int = 0
    """Segments with a new or replaced sidecar; the other sidecars were complete."""
    chunks: int = 0
    chunks_decided: int = 0
    """Chunks that were read, because they or a filter were new to the sidecar."""
    chunks_corrupt: int = 0
    """Damaged chunks: readers find them without the index."""
    messages_decided: int = 0
    bytes_written: int = 0

    @staticmethod
    def total(parts: Iterable[BuildCounters]) -> BuildCounters:
        """The counters of some builds together."""
        found = BuildCounters()
        for part in parts:
            found.add(part)
        return found

    def add(self, other: BuildCounters) -> None:
        """Add the counters of another build."""
        for counter in fields(self):
            setattr(self, counter.name, getattr(self, counter.name) + getattr(other, counter.name))


def bring_up_to_date(segment: Segment, registration: Registration, *, full: bool = False) -> BuildCounters:
    """Bring the sidecar of one segment up to date; `full` calculates everything anew.

    Memory: about twice the size of the sidecar (8 bytes per message, and a bit per filter). A segment
    that retention deletes meanwhile is passed over.
    """
    done = BuildCounters(segments=1)
    try:
        with segment.open() as reader:
            done.chunks = len(reader.chunks())
            if not done.chunks or not registration.filters:
                return done
            building = Building(reader, wanted_filters(registration))
            is_kept = False if full else building.take_over(opened_sidecar(segment))
            decided = building.decide(done)
            if decided or not is_kept:
                done.bytes_written = replace_sidecar(segment, building.blocks())
                done.segments_written = 1
    except OffsetOutOfRangeError:
        return done
    return done


def replace_sidecar(segment: Segment, blocks: Sequence[BlockContent], *, flushed: bool = True) -> int:
    """Write a sidecar; tries again if a starting writer removed the new file before it was renamed."""
    for attempt in range(1, _WRITE_ATTEMPTS + 1):
        try:
            return write_sidecar(segment, blocks, flushed=flushed)
        except LogError as error:
            if attempt == _WRITE_ATTEMPTS or not isinstance(error.__cause__, FileNotFoundError):
                raise
    raise AssertionError("unreachable")


def opened_sidecar(segment: Segment) -> Sidecar | None:
    """The sidecar of a segment; None without a usable one."""
    try:
        return Sidecar.open(segment)
    except CorruptSidecarError:
        return None


@dataclass(frozen=True, slots=True)
class WantedFilter:
    """A registered filter, and the key of its results."""

    id: str
    expression: Filter
    key: FilterKey

    @property
    def indexed(self) -> IndexedFilter:
        """How a sidecar names it."""
        return IndexedFilter(self.id, self.key.dialect, self.key.text_hash, self.key.evaluator)


def wanted_filters(registration: Registration) -> list[WantedFilter]:
    """The registered filters, in order. Raises FilterError, ConfigError for a text that is not a valid filter."""
    found = []
    for each in registration.filters:
        expression, key = _parsed(each.text, each.dialect)
        found.append(WantedFilter(each.id, expression, key))
    return found


@functools.lru_cache(_KEPT_FILTERS)
def _parsed(text: str, dialect: str) -> tuple[Filter, FilterKey]:
    expression = RegisteredFilter("", text, dialect, 0, 0).parsed()
    key = key_of(expression)
    assert key is not None, "the registry refuses filters without a key"
    return expression, key


@dataclass(slots=True, eq=False)
class _Column:
    """One filter while its results are collected: `covered` `(chunks,)`, `bits` one per offset."""

    wanted: WantedFilter
    covered: Mask
    bits: NDArray[np.uint8]


class Building:
    """Results of some filters over the chunks `first_row … stop_row` of a segment, in memory.

    Memory: some bytes per message, and a bit per filter. Rows of arrays count from the first one.
    """

    def __init__(
        self,
        reader: SegmentReader,
        wanted: Sequence[WantedFilter],
        first_row: int = 0,
        stop_row: int | None = None,
    ) -> None:
        table = reader.chunks()
        rows = slice(first_row, len(table) if stop_row is None else stop_row)
        self._reader = reader
        self._rows = rows
        self._chunk_ids = table.chunk_id[rows]
        self._next_ids = reader.next_chunk_ids()[rows]
        self._user = table.type[rows] == ChunkType.USER
        self._start = int(self._chunk_ids[0])
        self._stop = int(self._next_ids[-1])
        count = self._stop - self._start
        self._headers = np.zeros(len(self._chunk_ids), dtype=HEADER_BYTES_DTYPE)
        self._entries = np.zeros(count, dtype=ENTRY_DTYPE)
        self._columns = [
            _Column(each, np.zeros(len(self._chunk_ids), dtype=np.bool_), np.zeros(-(-count // 8), dtype=np.uint8))
            for each in wanted
        ]

    def missing(self, key: FilterKey) -> list[tuple[int, int]]:
        """The ranges of rows without results of a filter; tracking chunks need none."""
        column = next(each for each in self._columns if each.wanted.key == key)
        found = _ranges(self._user & ~column.covered)
        return [(first + self._rows.start, stop + self._rows.start) for first, stop in found]

    # what is there already

    def take_over(self, sidecar: Sidecar | None) -> bool:
        """Take over the results of a sidecar for chunks that are unchanged; damaged blocks are ignored.

        Gives whether the sidecar is already as a build would write it: one block with all these chunks and filters.
        """
        if sidecar is None:
            return False
        now = _headers(self._reader, self._rows.start, self._rows.stop)
        for block in sidecar.blocks:
            try:
                self._take_over(block, now)
            except CorruptSidecarError:
                continue
        return (
            len(sidecar.blocks) == 1
            and sidecar.damage is None
            and (sidecar.blocks[0].directory.first_chunk, sidecar.blocks[0].stop_chunk)
            == (self._rows.start, self._rows.stop)
            and list(sidecar.blocks[0].filters) == [column.wanted.indexed for column in self._columns]
        )

    def _take_over(self, block: SidecarBlock, now: NDArray[np.void]) -> None:
        offset = self._rows.start
        first, stop = max(block.directory.first_chunk, offset), min(block.stop_chunk, self._rows.stop)
        columns = self._columns_in(block)
        if first >= stop or not columns:
            return
        rows = np.arange(first - offset, stop - offset)
        inside = (self._chunk_ids[rows] >= block.directory.start) & (self._next_ids[rows] <= block.directory.stop)
        known = block.headers(first, stop).view(np.uint64).reshape(-1, _HEADER_WORDS)
        current = now[rows].view(np.uint64).reshape(-1, _HEADER_WORDS)
        same = rows[inside & (known == current).all(axis=1) & known.any(axis=1)]
        if not len(same):
            return
        begin, end = int(self._chunk_ids[same[0]]), int(self._next_ids[same[-1]])
        part = slice(begin - self._start, end - self._start)
        lengths = self._next_ids - self._chunk_ids
        entries = block.entries(begin, end)
        results = [(column, block.bits(number, begin, end)) for column, number in columns]

        def places_of(chunks: Int64Array) -> Int64Array:
            """Places of their messages, counted from `begin`."""
            mask = np.zeros(len(self._chunk_ids), dtype=np.bool_)
            mask[chunks] = True
            return np.flatnonzero(np.repeat(mask[same[0] : same[-1] + 1], lengths[same[0] : same[-1] + 1]))

        places = places_of(same)
        self._headers[same] = now[same]
        self._entries[part][places] = entries[places]
        for column, bits in results:
            fresh = same[~column.covered[same]]
            taken = places_of(fresh)
            _put_bits(column.bits, taken + part.start, bits[taken])
            column.covered[fresh] = True

    def _columns_in(self, block: SidecarBlock) -> list[tuple[_Column, int]]:
        """The columns that a block has results of, with their numbers in it."""
        numbers: dict[FilterKey, int] = {}
        for number, each in enumerate(block.filters):
            numbers.setdefault(FilterKey(each.dialect, each.text_hash, each.evaluator), number)
        found = [(column, numbers.get(column.wanted.key)) for column in self._columns]
        return [(column, number) for column, number in found if number is not None]

    # what is new

    def decide(self, done: BuildCounters) -> bool:
        """Evaluate every filter over the chunks that it does not cover yet; gives whether there were any."""
        missing = np.zeros(len(self._chunk_ids), dtype=np.bool_)
        for column in self._columns:
            missing |= ~column.covered
        rows = np.flatnonzero(missing & self._user)
        if not len(rows):
            return False
        kernels.load("headgate.kernels.checksum")
        decider = Decider(ScanRequest(on_corrupt=OnCorrupt.SKIP), OffsetRange(self._start, self._stop))
        counters = ScanCounters()
        for part, window in open_windows(self._reader, rows + self._rows.start, _WINDOW_BYTES, counters):
            self._decide_window(rows[part], window, decider, counters)
        done.chunks_decided += len(rows)
        done.chunks_corrupt += counters.chunks_corrupt
        done.messages_decided += counters.messages_evaluated
        return True

    def _decide_window(self, rows: Int64Array, window: Window, decider: Decider, counters: ScanCounters) -> None:
        headers = window.headers.records.view(HEADER_BYTES_DTYPE)
        shifts = window.positions - window.headers.starts
        present = np.searchsorted(self._chunk_ids, window.chunks.chunk_ids)
        decided = np.zeros(len(self._chunk_ids), dtype=np.bool_)
        for batch in read_window(window, decider, counters):
            if not len(batch):
                continue
            chunks = np.searchsorted(self._chunk_ids, batch.offsets, side="right") - 1
            decided[chunks] = True
            places = batch.offsets - self._start
            if batch.messages.data is window.chunks.data:
                shift = shifts[np.searchsorted(present, chunks)]
                messages = batch.messages
                self._entries[places] = noted_entries(messages.data, messages.starts, messages.lengths, shift)
            else:
                self._entries[places] = np.zeros(1, dtype=ENTRY_DTYPE)
            self._match(batch.messages, places, chunks)
        self._headers[rows] = np.zeros(1, dtype=HEADER_BYTES_DTYPE)
        self._headers[present] = headers
        self._headers[rows[~decided[rows]]] = np.zeros(1, dtype=HEADER_BYTES_DTYPE)
        for column in self._columns:
            column.covered[rows] = decided[rows]

    def _match(self, messages: EncodedMessages, places: Int64Array, chunks: Int64Array) -> None:
        """Evaluate each filter over the messages of chunks that it does not cover."""
        whole = [column for column in self._columns if not column.covered[chunks].any()]
        if len(whole) >= _FEWEST_RULES:
            found = _rules(tuple(column.wanted.expression for column in whole)).match(messages, now_ms=0)
            matches = np.zeros((len(whole), len(messages)), dtype=np.bool_)
            matches[found.rules, found.rows] = True
            for column, row in zip(whole, matches, strict=True):
                _put_bits(column.bits, places, row)
        else:
            whole = []
        for column in self._columns:
            rows = np.flatnonzero(~column.covered[chunks])
            if len(rows) and column not in whole:
                part = messages if len(rows) == len(messages) else messages.take(rows)
                # A registered filter does not depend on the time.
                _put_bits(column.bits, places[rows], column.wanted.expression.mask(part, now_ms=0))

    # what is written

    def blocks(self) -> list[BlockContent]:
        """One block, or one for all filters that cover the same chunks; at least one."""
        groups: dict[bytes, list[_Column]] = {}
        for column in self._columns:
            groups.setdefault((column.covered & self._user).tobytes(), []).append(column)
        found = [self._block(columns) for columns in groups.values()]
        return [block for block in found if block.decided] or found[:1]

    def _block(self, columns: Sequence[_Column]) -> BlockContent:
        covered = columns[0].covered & self._user
        headers = self._headers.copy()
        headers[~covered] = np.zeros(1, dtype=HEADER_BYTES_DTYPE)
        return BlockContent(
            self._rows.start,
            self._start,
            int((self._next_ids - self._chunk_ids)[covered].sum()),
            headers,
            self._entries,
            tuple(column.wanted.indexed for column in columns),
            np.stack([column.bits for column in columns]),
        )


def _put_bits(array: NDArray[np.uint8], places: Int64Array, values: Mask) -> None:
    """Set the bits at `places`, ascending, to `values`. Cost: by the span from the first to the last."""
    if len(places):
        first, stop = int(places[0]) // 8, int(places[-1]) // 8 + 1
        bits = np.unpackbits(array[first:stop], bitorder="little")
        bits[places - 8 * first] = values
        array[first:stop] = np.packbits(bits, bitorder="little")


def _ranges(mask: Mask) -> list[tuple[int, int]]:
    """The rows that are marked, as ranges."""
    borders = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return list(zip(borders[::2].tolist(), borders[1::2].tolist(), strict=True))


@functools.lru_cache(4)
def _rules(filters: tuple[Filter, ...]) -> RuleSet:
    """A rule set of some filters, cached: making it takes a while, and the filters seldom change."""
    return RuleSet(filters)


def _headers(reader: SegmentReader, first_row: int, stop_row: int) -> NDArray[np.void]:
    """The headers of some chunks now, `(chunks,)` of HEADER_BYTES_DTYPE; zeros near a damaged one."""
    found = np.zeros(stop_row - first_row, dtype=HEADER_BYTES_DTYPE)
    for first in range(first_row, stop_row, _HEADER_ROWS):
        stop = min(first + _HEADER_ROWS, stop_row)
        try:
            headers = reader.headers(first, stop).records.view(HEADER_BYTES_DTYPE)
        except CorruptChunkError:
            continue
        found[first - first_row : stop - first_row] = headers
    return found
