"""Messages of a stream by their offsets, for callers that know these: queues, subscriptions with decided copies.

Where few messages of a chunk are wanted, and the caller knows their places and checksums, only these are read.
"""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.errors import CorruptChunkError, MessageGivenUpError, OffsetOutOfRangeError
from headgate.log import ChunkType, Segment, SegmentReader, Stream, crcs_of_ranges, decode_headers
from headgate.log.format import ENTRY_HEAD_BYTES, windows
from headgate.message import SLACK_BYTES, EncodedMessages
from headgate.message.lookup import MessageCollector
from headgate.scan.counters import ScanCounters
from headgate.scan.offset_range import EVERYWHERE
from headgate.scan.reading import ScanBatch, read_in_full
from headgate.scan.request import ScanRequest
from headgate.scan.stage_two import Decider

Int64Array = NDArray[np.int64]

Locate = Callable[[Int64Array], NDArray[np.void]]
"""The places of messages by their offsets, `(offsets,)` of `headgate.log.ENTRY_DTYPE`; zeros where not known."""

_KEPT_READERS = 4
_LIVE_BYTES = 1 << 20
"""Chunks within this distance of the end of a growing stream are copied; chunks before it are mapped."""

_DENSE_SHARE = 4
"""A chunk is read in full where more than one message in this many is wanted: it costs less than single reads."""

_HEAD_DTYPE = np.dtype(f"V{ENTRY_HEAD_BYTES}")
_NOTHING = np.empty(0, dtype=np.int64)


class MessageReader:
    """Reads messages of one stream, beside its writer, and keeps files open. Not for several threads at once."""

    def __init__(self, stream: Stream, recent: Callable[[], Sequence[ScanBatch]] = tuple) -> None:
        """`recent` gives the newest messages of the stream that are in memory, ascending: a few batches."""
        self.stream = stream
        self._recent = recent
        self._segments: Sequence[Segment] = []
        self._readers: OrderedDict[int, SegmentReader] = OrderedDict()
        self._next_offset = 0
        self._held: _Held | None = None
        self._decider = Decider(ScanRequest(), EVERYWHERE)

    def __enter__(self) -> MessageReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; closing twice is harmless. Messages read from mapped files stay valid."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        self._segments, self._next_offset, self._held = [], 0, None

    def read(self, offsets: Int64Array, locate: Locate | None = None) -> ScanBatch:
        """The messages of some offsets `(messages,)`, ascending, each once; all of them, or an error.

        With `locate`, which is asked only where it helps, single messages are read and checked by its checksums. Where
        one does not agree, the whole chunk is read, and the chunk alone decides. The bytes lie in a mapping or in a
        buffer that the next read overwrites. Memory: the messages, and a window of chunks; the caller bounds their
        number.

        Raises OffsetOutOfRangeError for an offset that retention deleted, or that has no message yet, CorruptChunkError
        with file and position, StreamNotFoundError and its kinds for a deleted stream.
        """
        if not len(offsets):
            return ScanBatch(EncodedMessages.of([]), offsets, offsets)
        held = self._in_memory(offsets)
        if held is None:
            held = self._held_at(offsets)
        if held is not None:
            return held
        try:
            return self._read(offsets, locate)
        except (CorruptChunkError, OffsetOutOfRangeError):
            # The known files may be those before retention, or before a write that was taken back.
            self.close()
            return self._read(offsets, locate)

    def _in_memory(self, offsets: Int64Array) -> ScanBatch | None:
        """The messages, if all of them are in memory."""
        parts: list[ScanBatch] = []
        for batch in reversed(self._recent()):
            first = int(offsets.searchsorted(batch.offsets[0]))
            if first < len(offsets):
                part = _picked(batch, offsets[first:])
                if part is None:
                    return None
                parts.insert(0, part)
                if not first:
                    return parts[0] if len(parts) == 1 else _joined(parts)
                offsets = offsets[:first]
        return None

    def _held_at(self, offsets: Int64Array) -> ScanBatch | None:
        """The messages from the chunk that was read last, if it has them all and still is in the stream."""
        held = self._held
        if held is None or not held.batch.offsets[0] <= offsets[0] <= offsets[-1] <= held.batch.offsets[-1]:
            return None
        return _picked(held.batch, offsets) if held.reader.header_bytes(held.row) == held.header else None

    def _read(self, offsets: Int64Array, locate: Locate | None) -> ScanBatch:
        self._held = None
        first, last = int(offsets[0]), int(offsets[-1])
        if last >= self._next_offset:
            self._refresh(last)
        found = _Found(offsets)
        place = bisect.bisect_right(self._segments, first, key=_first_chunk_id) - 1
        if place < 0:
            raise self._missing(first)
        begin = 0
        while begin < len(offsets):
            is_last = place + 1 == len(self._segments)
            behind = self._next_offset if is_last else self._segments[place + 1].first_chunk_id
            end = len(offsets) if last < behind else int(np.searchsorted(offsets, behind))
            if end > begin:
                self._read_segment(self._opened(self._segments[place]), slice(begin, end), found, locate)
            begin, place = end, place + 1
        return found.batch()

    def _refresh(self, offset: int) -> None:
        """Look where the stream ends now. Raises OffsetOutOfRangeError unless it ends behind an offset."""
        if self._segments:
            newest = self._opened(self._segments[-1])
            newest.chunks(refresh=True)
            self._next_offset = newest.next_chunk_id
        if offset >= self._next_offset:
            self._segments = self.stream.segments()
            if not self._segments:
                self.stream.check_is_there()
                raise self._missing(offset)
            for gone in self._readers.keys() - {each.first_chunk_id for each in self._segments}:
                self._readers.pop(gone).close()
            newest = self._opened(self._segments[-1])
            newest.chunks(refresh=True)
            self._next_offset = newest.next_chunk_id
        if offset >= self._next_offset:
            self.stream.check_is_there()
            raise self._missing(offset)

    def _opened(self, segment: Segment) -> SegmentReader:
        reader = self._readers.pop(segment.first_chunk_id, None)
        if reader is not None and reader.segment != segment:
            reader.close()
            reader = None
        if reader is None:
            reader = segment.open()
        self._readers[segment.first_chunk_id] = reader
        if len(self._readers) > _KEPT_READERS:
            self._readers.popitem(last=False)[1].close()
        return reader

    def _read_segment(self, reader: SegmentReader, part: slice, found: _Found, locate: Locate | None) -> None:
        """Find the messages of a part of the wanted offsets, all in one segment."""
        offsets = found.offsets[part]
        table = reader.chunks()
        rows = table.chunk_id.searchsorted(offsets, side="right") - 1
        chunks = _distinct(rows)
        if (table.type[chunks] != ChunkType.USER).any():
            offset = int(offsets[np.argmax(table.type[rows] != ChunkType.USER)])
            raise MessageGivenUpError(
                f"offset {offset} of stream {self.stream.name!r} has no message; it was damaged, and given up",
                path=self.stream.place,
            )
        begin, stop = int(table.position[chunks[0]]), int(reader.stops_of(chunks[-1:])[0])
        if stop - begin >= _LIVE_BYTES or stop + _LIVE_BYTES <= reader.stop_position:
            reader.map_to(stop)
        is_mapped = reader.is_mapped(stop)
        left = np.arange(part.start, part.stop)
        if locate is not None and is_mapped:
            alone = self._read_entries(reader, rows, found, left, locate)
            if alone.all():
                return
            if alone.any():
                left, rows = left[~alone], rows[~alone]
                chunks = _distinct(rows)
        wanted = found.offsets[left]
        for batch in read_in_full(reader, chunks, self._decider, ScanCounters()):
            if not len(batch):
                continue
            within = slice(0, len(wanted))
            if len(chunks) > 1:
                within = slice(*wanted.searchsorted((batch.offsets[0], batch.offsets[-1] + 1)).tolist())
            picked = _picked(batch, wanted[within])
            if picked is None:
                raise self._missing(int(wanted[within.start]))
            found.add(left[within], picked, is_stable=is_mapped)
            if len(chunks) == 1:
                row = int(chunks[0])
                self._held = _Held(reader, row, reader.header_bytes(row), batch)

    def _read_entries(
        self, reader: SegmentReader, rows: NDArray[np.intp], found: _Found, places: NDArray[np.intp], locate: Locate
    ) -> NDArray[np.bool_]:
        """Read single entries of chunks with few wanted messages; gives which of `places` were found, `(places,)`."""
        offsets = found.offsets[places]
        table = reader.chunks()
        chunks, chunk_of, counts = np.unique(rows, return_inverse=True, return_counts=True)
        positions, stops = table.position[chunks], reader.stops_of(chunks)
        data, _ = reader.gather(positions, stops)
        headers = decode_headers(data, positions)
        sound = headers.sound() & ~reader.contradicted(headers, table, chunks, stops)
        is_read = sound & (counts * _DENSE_SHARE <= headers.num_records)
        is_alone: NDArray[np.bool_] = is_read[chunk_of]
        if not is_alone.any():
            return is_alone
        entries = locate(offsets[is_alone])
        of_entry = chunk_of[is_alone]
        starts, crcs = entries["position"].astype(np.int64), entries["crc"].astype(np.int64)
        data_starts = (headers.bloom_positions + headers.bloom_length)[of_entry]
        right = (starts >= data_starts) & (starts + ENTRY_HEAD_BYTES <= stops[of_entry])
        starts = np.where(right, starts, data_starts)
        sizes = windows(data, _HEAD_DTYPE)[starts].view(">u4").astype(np.int64) + ENTRY_HEAD_BYTES
        right &= starts + sizes <= data_starts + headers.data_length[of_entry]
        right[right] = crcs_of_ranges(data, starts[right], sizes[right]) == crcs[right]
        # Where one entry differs from the noted one, its chunk is read in full.
        is_read[of_entry[~right]] = False
        kept = is_read[of_entry]
        is_alone = is_read[chunk_of]
        messages = EncodedMessages(data, starts[kept] + ENTRY_HEAD_BYTES, sizes[kept] - ENTRY_HEAD_BYTES)
        times = table.timestamp_ms[rows[is_alone]]
        found.add(places[is_alone], ScanBatch(messages, offsets[is_alone], times), is_stable=True)
        return is_alone

    def _missing(self, offset: int) -> OffsetOutOfRangeError:
        first = self._segments[0].first_chunk_id if self._segments else 0
        what = "was deleted by retention" if offset < first else "has no message"
        return OffsetOutOfRangeError(
            f"offset {offset} of stream {self.stream.name!r} {what}; it has the offsets {first} to {self._next_offset}",
            path=self.stream.place,
        )


@dataclass(frozen=True, slots=True)
class _Held:
    """The messages of one chunk, in a reader's buffer."""

    reader: SegmentReader
    row: int
    header: bytes
    batch: ScanBatch


class _Found:
    """The messages found for the wanted `offsets`; bytes in a buffer that the next read overwrites are copied."""

    def __init__(self, offsets: Int64Array) -> None:
        self.offsets = offsets
        self._missing = len(offsets)
        self._parts: list[tuple[NDArray[np.intp], ScanBatch]] = []

    def add(self, places: NDArray[np.intp], batch: ScanBatch, *, is_stable: bool) -> None:
        """Add the messages of some places among the offsets."""
        if not len(places):
            return
        self._missing -= len(places)
        if self._missing and not is_stable:
            batch = ScanBatch(_copied([batch.messages]), batch.offsets, batch.timestamps_ms)
        self._parts.append((places, batch))

    def batch(self) -> ScanBatch:
        """All of them, in order."""
        parts = self._parts
        if len(parts) == 1:
            return parts[0][1]
        messages = [batch.messages for _, batch in parts]
        if any(each.data is not messages[0].data for each in messages):
            messages = [_copied(messages)]
        order = np.argsort(np.concatenate([places for places, _ in parts]), kind="stable")
        starts, lengths, times = (
            np.concatenate(columns)[order]
            for columns in (
                [each.starts for each in messages],
                [each.lengths for each in messages],
                [batch.timestamps_ms for _, batch in parts],
            )
        )
        return ScanBatch(EncodedMessages(messages[0].data, starts, lengths), self.offsets, times)


def _first_chunk_id(segment: Segment) -> int:
    return segment.first_chunk_id


def _distinct(rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Rows, ascending, each once."""
    if rows[0] == rows[-1]:
        return rows[:1]
    return rows[np.flatnonzero(np.diff(rows, prepend=-1))]


def _copied(parts: list[EncodedMessages]) -> EncodedMessages:
    """Messages side by side in one new buffer."""
    collector = MessageCollector(room_bytes=sum(int(each.lengths.sum()) for each in parts) + SLACK_BYTES)
    for each in parts:
        collector.add(each)
    return collector.take()


def _joined(parts: Sequence[ScanBatch]) -> ScanBatch:
    """The messages of several batches, one behind the other, in one buffer."""
    return ScanBatch(
        EncodedMessages.of([message for part in parts for message in part.messages.all_bytes()]),
        np.concatenate([part.offsets for part in parts]),
        np.concatenate([part.timestamps_ms for part in parts]),
    )


def _picked(batch: ScanBatch, offsets: Int64Array) -> ScanBatch | None:
    """The messages of some of a batch's offsets; None if one of them is not there."""
    first, count = int(batch.offsets.searchsorted(offsets[0])), len(offsets)
    if count == int(offsets[-1] - offsets[0]) + 1:
        part: slice | NDArray[np.intp] = slice(first, first + count)
    else:
        part = np.minimum(np.searchsorted(batch.offsets, offsets), len(batch) - 1)
    there = batch.offsets[part]
    if len(there) < count or (there != offsets).any():
        return None
    return ScanBatch(batch.messages.take(part), offsets, batch.timestamps_ms[part])
