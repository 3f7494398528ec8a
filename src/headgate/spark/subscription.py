"""The tasks of a read of a subscription: the copies that the messages of chunks gave it.

Where the topic was decided, the postings name these copies, and only they are read; elsewhere the rules are evaluated.
Both give the same copies, byte for byte, by the rules that were in force at each offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from headgate.derived import MATCH_INDEX
from headgate.log import Stream, check_identity
from headgate.message import EncodedMessages
from headgate.scan import ChunkRange, OffsetRange, OnCorrupt, ScanBatch, ScanCounters, ScanRequest, read_range
from headgate.topic import RoutersInForce, postings_folder
from headgate.topic.decisions import CopyReader, CopyRuns, Postings

_COPIES_AT_ONCE = 4096

Int64Array = NDArray[np.int64]


ReadChunks: TypeAlias = Callable[[ChunkRange], Iterator[ScanBatch]]
"""Gives the batches of a range of chunks, in order."""


class SubscriptionRead:
    """Reads ranges of chunks of one topic; for one task."""

    def __init__(self, subscription: str, request: ScanRequest, counted: ScanCounters) -> None:
        self._subscription = subscription
        self._request = request
        self._counted = counted
        self._routers: RoutersInForce | None = None
        self._room: NDArray[np.uint8] | None = None
        self._postings: Postings | None = None
        self._reader: CopyReader | None = None

    def __enter__(self) -> ReadChunks:
        return self._read

    def __exit__(self, *_: object) -> None:
        if self._postings is not None and self._reader is not None:
            self._reader.close()
            self._postings.close()

    def _read(self, chunks: ChunkRange) -> Iterator[ScanBatch]:
        """The copies that the messages of some chunks gave, in order of offset and rule."""
        segment = chunks.segment
        check_identity(segment.folder, segment.identity, name=segment.folder.name)
        rest = chunks
        # A damaged chunk gives nothing where it is skipped; read one by one, its messages that check would be there.
        if MATCH_INDEX in self._request.sources and self._request.on_corrupt is OnCorrupt.FAIL:
            self._open_postings(Stream.open(segment.folder))
            if self._postings is not None:
                found, behind = self._decided(self._postings, chunks)
                yield from self._copies(chunks, found)
                rest = _from_offset(chunks, behind)
        if len(rest.rows):
            yield from self._routed(rest)

    def _open_postings(self, stream: Stream) -> None:
        if self._postings is None and postings_folder(stream).is_dir():
            self._postings = Postings.open(stream)
            self._reader = CopyReader(self._postings)

    def _decided(self, postings: Postings, chunks: ChunkRange) -> tuple[list[tuple[int, CopyRuns]], int]:
        """The copies of the subscription by its number, in order, and the offset up to which that is all of them."""
        pieces = _offsets_of(chunks)
        found = [
            (number, runs)
            for start, stop in pieces
            for first, behind, number in postings.history.lives(self._subscription, start, stop)
            for runs in postings.runs(number, first, behind)
        ]
        # Last: reading the postings may have shown that some are not valid.
        behind = postings.decided_until(pieces[0][0])
        self._counted.messages_decided_by_index += sum(max(0, min(stop, behind) - start) for start, stop in pieces)
        return [(number, runs.below(behind)) for number, runs in found], behind

    def _copies(self, chunks: ChunkRange, found: list[tuple[int, CopyRuns]]) -> Iterator[ScanBatch]:
        """Copies that are named by offset and rule."""
        segment = chunks.segment
        for number, runs in found:
            offsets, rules = runs.columns()
            for first in range(0, len(offsets), _COPIES_AT_ONCE):
                part = slice(first, first + _COPIES_AT_ONCE)
                assert self._reader is not None
                copies = self._reader.read(number, offsets[part], rules[part])
                # Files that were open by now are of the stream that was planned for, if that is there still.
                check_identity(segment.folder, segment.identity, name=segment.folder.name)
                yield self._kept(copies.messages, copies.offsets, copies.timestamps_ms, chunks.body_schema)

    def _routed(self, chunks: ChunkRange) -> Iterator[ScanBatch]:
        """Copies by asking the rules."""
        if self._routers is None:
            self._routers = RoutersInForce.of(chunks.segment.folder, self._subscription)
        wanted = self._subscription.casefold()
        counted = ScanCounters()
        try:
            for batch in read_range(chunks, replace(self._request, filter=None), counted):
                start = 0
                while start < len(batch):
                    first, last = int(batch.offsets[start]), int(batch.offsets[-1])
                    behind, router = next(self._routers.within(first, last + 1))
                    part = slice(start, int(np.searchsorted(batch.offsets, behind)))
                    start = part.stop
                    names = [each.name.casefold() for each in router.topic.subscriptions]
                    if wanted not in names:
                        continue
                    offsets, times = batch.offsets[part], batch.timestamps_ms[part]
                    copies = router.route(batch.messages.take(part), offsets, times, room=self._room)
                    if self._room is None or len(copies.room) > len(self._room):
                        self._room = copies.room
                    place = names.index(wanted)
                    rows = copies.rows[copies.of(place)]
                    yield self._kept(copies.messages(place), offsets[rows], times[rows], chunks.body_schema)
        finally:
            counted.messages_matched = 0
            self._counted.add(counted)

    def _kept(
        self, messages: EncodedMessages, offsets: Int64Array, timestamps_ms: Int64Array, body_schema: str | None
    ) -> ScanBatch:
        """The copies for which the filter of the read is true."""
        request = self._request.over(body_schema)
        if request.filter is not None:
            rows = np.flatnonzero(request.filter.mask(messages, now_ms=self._request.now_ms))
            messages, offsets, timestamps_ms = messages.take(rows), offsets[rows], timestamps_ms[rows]
        self._counted.messages_matched += len(offsets)
        return ScanBatch(messages, offsets, timestamps_ms)


def _offsets_of(chunks: ChunkRange) -> list[tuple[int, int]]:
    """The offsets of some chunks, consecutive ones joined: start and stop, in order."""
    with chunks.segment.open() as reader:
        starts, stops = reader.chunks().chunk_id[chunks.rows], reader.next_chunk_ids()[chunks.rows]
    starts, stops = np.maximum(starts, chunks.within.start), np.minimum(stops, chunks.within.stop)
    apart = np.flatnonzero(starts[1:] != stops[:-1])
    firsts, lasts = starts[np.append(0, apart + 1)].tolist(), stops[np.append(apart, len(stops) - 1)].tolist()
    return list(zip(firsts, lasts, strict=True))


def _from_offset(chunks: ChunkRange, offset: int) -> ChunkRange:
    """The part of some chunks from an offset on."""
    with chunks.segment.open() as reader:
        rows = chunks.rows[reader.next_chunk_ids()[chunks.rows] > offset]
    within = OffsetRange(max(chunks.within.start, offset), chunks.within.stop)
    if within.start >= within.stop:
        rows = rows[:0]
    return replace(chunks, rows=rows, within=within)
