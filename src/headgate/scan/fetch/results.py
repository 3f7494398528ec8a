"""Results of all filters of a stream, decided in one walk over its chunks; only kept messages stay in memory."""

from __future__ import annotations

import threading
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from headgate.arrays import order_of, total
from headgate.errors import CorruptChunkError
from headgate.evaluate import Filter, malformed_rows
from headgate.log import gather, memory_of
from headgate.message import SLACK_BYTES, EncodedMessages
from headgate.scan.counters import ScanCounters
from headgate.scan.fetch.filters import SharedFilters, SharedRules
from headgate.scan.fetch.places import Place
from headgate.scan.fetch.portions import Portion
from headgate.scan.fetch.reads import SharedReads
from headgate.scan.fetch.segments import SegmentView
from headgate.scan.fetch.tiles import Tile
from headgate.scan.fetch.window import (
    Kept,
    Outline,
    Pick,
    decide_window,
    load_rows,
    portion_of,
    user_rows,
)
from headgate.scan.offset_range import EVERYWHERE, OffsetRange
from headgate.scan.reading import ScanBatch
from headgate.scan.request import ScanRequest
from headgate.scan.stage_one import ChunkSelector
from headgate.scan.stage_two import Decider

Int64Array = NDArray[np.int64]

_STEP_BYTES = 4 << 20
"""At most this many bytes of the file are in memory at once."""

_KEPT_BYTES = 4 << 20
"""Results end after this many kept bytes: they wait in memory for the slowest reader."""

_SELECTIVE = 2
"""The condition common to all filters is evaluated first, as long as at most one message in this many passes it."""

_ROW_BYTES = 32
_PAIR_BYTES = 8
_CHUNK_BYTES = 64
_TILE_BYTES = 4096
"""Memory beside the bytes of messages: for each message, pair of filter and message, and chunk; and for the rest."""


@dataclass(slots=True)
class _Decided:
    """The messages that at least one filter of a rule set keeps, and which filter keeps which.

    The filter at place i keeps the messages `rows[borders[i]:borders[i + 1]]` of `kept`, in `chunks_hit[i]` chunks;
    `places` maps the number of a filter to its place. `malformed` holds the offsets that hold no AMQP message.
    """

    places: dict[int, int]
    outline: Outline
    kept: ScanBatch
    rows: Int64Array
    borders: list[int]
    chunks_hit: list[int]
    malformed: Int64Array
    share_ns: int = 0
    """The share of the deciding time that each of its readers bears."""
    picks: dict[Hashable, Pick] = field(default_factory=dict)

    def kept_by(self, place: int) -> Kept:
        """The messages kept by the filter at a place of the rule set."""
        first, stop = self.borders[place], self.borders[place + 1]
        if first == stop:
            return Kept((), 0, 0, self.malformed)
        rows, kept = self.rows[first:stop], self.kept
        batch = ScanBatch(kept.messages.take(rows), kept.offsets[rows], kept.timestamps_ms[rows])
        return Kept((batch,), self.chunks_hit[place], stop - first, self.malformed)

    @property
    def size_bytes(self) -> int:
        """The memory it takes."""
        pairs, chunks = len(self.rows), len(self.outline.sizes)
        size = (
            (0 if _is_view(self.kept) else self.kept.messages.data.nbytes)
            + _ROW_BYTES * len(self.kept)
            + _PAIR_BYTES * pairs
        )
        size += self.malformed.nbytes
        return size + self.outline.headers.data.nbytes + _CHUNK_BYTES * chunks + _TILE_BYTES


class SharedResults(Tile):
    """The results of the filters that were in force, for a tile. Safe for several threads.

    The first reader that asks decides for all; the others wait for it. Once it is decided, no reader waits. Until then
    it may become shorter: it ends where enough is kept, and before a damaged chunk.
    """

    __slots__ = ("_decided", "_is_damaged", "_lock", "_reads", "times_used")

    def __init__(self, segment_id: int, start_row: int, stop_row: int, view: SegmentView, reads: SharedReads) -> None:
        super().__init__(segment_id, start_row, stop_row, view)
        self._reads = reads
        self._lock = threading.Lock()
        self._decided: _Decided | None = None
        self._is_damaged = False
        self.times_used = 0

    @property
    def numbers(self) -> Collection[int]:
        """The numbers of the filters that it is decided for."""
        decided = self._decided
        return () if decided is None else decided.places.keys()

    def decide(self, place: Place, rules: SharedRules, number: int, filters: SharedFilters) -> int | None:
        """Decide it for a rule set, unless it is decided for the filter of this number; None if a chunk is damaged.

        Gives the processor time that it took, which its readers share. If it was decided before, and with more filters
        too much is kept of it, it is dropped in favour of shorter results.
        """
        with self._lock:
            if number in self.numbers:
                return 0
            if self._is_damaged:
                return None
            begun_ns = self._reads.cpu_ns()
            stop_row, decided = self._match(place, rules)
            if decided is None:
                self._is_damaged = True
                return None
            took_ns = self._reads.cpu_ns() - begun_ns
            if took_ns:
                span = OffsetRange(self.first_offset, place.view.offset_at(stop_row))
                decided.share_ns = took_ns // filters.sharers(span, rules.places)
            with self._reads.lock:
                if stop_row == self.stop_row:
                    self._reads.charge(self, decided.size_bytes - self.charged_bytes)
                elif self._decided is None:
                    self.stop_row, self.next_offset = stop_row, place.view.offset_at(stop_row)
                    self._reads.charge(self, decided.size_bytes)
                else:
                    self._reads.forget(self)
                    return took_ns
            self._decided = decided
            return took_ns

    def portion(self, number: int, wanted: Filter | None, selector: ChunkSelector, offset: int) -> tuple[Portion, Pick]:
        """The messages that one filter keeps from an offset on, and the chunks that stage 1 left to it.

        `number` is that of the filter, whose results must be decided.
        """
        decided = self._decided
        assert decided is not None
        self.times_used += 1
        outline = decided.outline
        if offset <= self.first_offset:
            pick = decided.picks.get(selector.key)
            if pick is None:
                pick = decided.picks[selector.key] = outline.pick(selector, 0)
        else:
            ends = outline.chunk_ids + outline.record_counts
            pick = outline.pick(selector, int(np.searchsorted(ends, offset, side="right")))
        if not len(pick.chunks):
            return Portion([], self.next_offset, pick.counters.copy()), pick
        kept = decided.kept_by(decided.places[number])
        portion = portion_of(kept, pick, outline.chunk_ids, offset, self.next_offset, wanted)
        portion.counters.cpu_ns = decided.share_ns
        return portion, pick

    def _match(self, place: Place, rules: SharedRules) -> tuple[int, _Decided | None]:
        """The row at which deciding ended (the last one, the first after enough, or a damaged chunk), and the results.

        None for the results if the first chunks are damaged. It goes step by step, so that little is in memory.
        """
        view, request = place.view, ScanRequest(filter=rules.common)
        outlines: list[Outline] = []
        pieces: list[ScanBatch] = []
        pairs: list[tuple[Int64Array, Int64Array]] = []
        malformed: list[Int64Array] = []
        kept = kept_bytes = 0
        stop_row = self.stop_row
        for rows in _steps(view, user_rows(view, self.start_row, stop_row)):
            if kept_bytes > _KEPT_BYTES:
                stop_row = int(rows[0])
                break
            counters = ScanCounters()
            try:
                window = load_rows(place.opened, view, rows)
                batches, wrong, error = decide_window(
                    window, Decider(request, EVERYWHERE, self._reads.buffers), counters
                )
            except CorruptChunkError as damaged:
                error = damaged
            if error is not None:
                if not outlines:
                    return stop_row, None
                stop_row = int(rows[0])
                break
            is_filtered = request.filter is not None
            if counters.messages_matched * _SELECTIVE > counters.messages_evaluated:
                request = ScanRequest()
            outlines.append(Outline.of(window))
            malformed.append(wrong)
            for batch in batches:
                if not is_filtered:
                    malformed.append(batch.offsets[malformed_rows(batch.messages)])
                matching, places = rules.match(batch.messages)
                piece, matching = _kept(batch, matching)
                pieces.append(piece)
                pairs.append((matching + kept, places))
                kept += len(piece)
                kept_bytes += total(piece.messages.lengths)
        return stop_row, _decided(rules, Outline.joined(outlines), pieces, pairs, malformed)


def _steps(view: SegmentView, rows: Int64Array) -> Iterator[Int64Array]:
    """Rows of chunks in parts of `_STEP_BYTES`, or of one chunk that is larger."""
    ends = np.cumsum(view.sizes(rows))
    first = 0
    while first < len(rows):
        before = int(ends[first - 1]) if first else 0
        stop = max(first + 1, int(np.searchsorted(ends, before + _STEP_BYTES, side="right")))
        yield rows[first:stop]
        first = stop


def _kept(batch: ScanBatch, matching: Int64Array) -> tuple[ScanBatch, Int64Array]:
    """The messages of some rows, each once, and for each given row its place among them; given rows may repeat.

    Messages are copied, without slack behind them, unless they are views of the file.
    """
    rows = np.flatnonzero(np.bincount(matching, minlength=len(batch)))
    kept = ScanBatch(batch.messages.take(rows), batch.offsets[rows], batch.timestamps_ms[rows])
    return kept if _is_view(kept) else _copied(kept), np.searchsorted(rows, matching)


def _is_view(batch: ScanBatch) -> bool:
    return memory_of(batch.messages.data) is None


def _copied(batch: ScanBatch) -> ScanBatch:
    messages = batch.messages
    data = gather(messages.data, messages.starts, messages.lengths)
    copied = EncodedMessages(data, np.cumsum(messages.lengths) - messages.lengths, messages.lengths)
    return ScanBatch(copied, batch.offsets, batch.timestamps_ms)


def _decided(
    rules: SharedRules,
    outline: Outline,
    pieces: Sequence[ScanBatch],
    pairs: Sequence[tuple[Int64Array, Int64Array]],
    malformed: Sequence[Int64Array],
) -> _Decided:
    kept = _joined(pieces)
    count = rules.rules.next_number
    nothing = np.empty(0, dtype=np.int64)
    rows = np.concatenate([nothing, *(rows for rows, _ in pairs)])
    places = np.concatenate([nothing, *(places for _, places in pairs)])
    order = order_of(places, below=count)
    rows, places = rows[order], places[order]
    chunks = np.searchsorted(outline.chunk_ids, kept.offsets, side="right")[rows]
    is_new = np.ones(len(rows), dtype=np.bool_)
    is_new[1:] = (chunks[1:] != chunks[:-1]) | (places[1:] != places[:-1])
    borders = np.searchsorted(places, np.arange(count + 1)).tolist()
    chunks_hit = np.bincount(places[is_new], minlength=count).tolist()
    return _Decided(rules.places, outline, kept, rows, borders, chunks_hit, np.concatenate([nothing, *malformed]))


def _joined(pieces: Sequence[ScanBatch]) -> ScanBatch:
    """Batches as one, with slack behind it: views of one file stay views of it."""
    nothing = np.empty(0, dtype=np.int64)
    lengths = np.concatenate([nothing, *(piece.messages.lengths for piece in pieces)])
    if pieces and _is_view(pieces[0]) and all(each.messages.data is pieces[0].messages.data for each in pieces):
        data = pieces[0].messages.data
        starts = [piece.messages.starts for piece in pieces]
    else:
        pieces = [_copied(piece) if _is_view(piece) else piece for piece in pieces]
        parts = [piece.messages.data for piece in pieces]
        begins = [0, *accumulate(map(len, parts))]
        starts = [piece.messages.starts + begin for piece, begin in zip(pieces, begins, strict=False)]
        data = np.concatenate([*parts, np.zeros(SLACK_BYTES, dtype=np.uint8)])
    return ScanBatch(
        EncodedMessages(data, np.concatenate([nothing, *starts]), lengths),
        np.concatenate([nothing, *(piece.offsets for piece in pieces)]),
        np.concatenate([nothing, *(piece.timestamps_ms for piece in pieces)]),
    )
