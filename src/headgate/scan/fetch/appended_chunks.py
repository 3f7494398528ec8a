"""Chunks on their way from a writer to readers that wait for them, without reading them back from a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.log import ChunkHeader, decode_headers
from headgate.log.format import CHUNK_HEADER_BYTES, ENTRY_HEAD_BYTES
from headgate.message import SLACK_BYTES, EncodedMessages
from headgate.scan.counters import ScanCounters
from headgate.scan.fetch.filters import NO_FILTER, SharedFilters
from headgate.scan.fetch.portions import ChunkColumns, ChunkPortion, Portion
from headgate.scan.fetch.reads import SharedReads
from headgate.scan.fetch.window import Outline, SharedChunks
from headgate.scan.offset_range import OffsetRange
from headgate.scan.reading import ScanBatch, Window
from headgate.scan.request import ScanRequest
from headgate.scan.stage_two import select

_SUB_BATCH_BIT = 0x80
_SLACK = bytes(SLACK_BYTES)


class AppendedChunks(msgspec.Struct, eq=False):
    """Chunks as a writer has just written them, headers and all.

    They lie one behind the other in `data`, which does not change any more. `folder` is that of the stream, `stop` the
    offset behind the last of them. The chunks are copied and decoded once for all readers, when the first one takes
    them.
    """

    data: NDArray[np.uint8]
    headers: Sequence[ChunkHeader]
    folder: Path
    stop: int
    _lone: LoneMessage | None = None
    _shared: SharedChunks | None = None
    _window: Window | None = None

    def window(self) -> Window:
        """The chunks in memory; positions count from the first one."""
        if self._window is None:
            sizes = np.array([header.size_bytes for header in self.headers], dtype=np.int64)
            positions = np.cumsum(sizes) - sizes
            headers = decode_headers(_with_slack(self.data), positions)
            data_starts = headers.bloom_positions + headers.bloom_length
            self._window = Window(self.folder, positions, sizes, headers, data_starts)
        return self._window

    def shared(self) -> SharedChunks:
        """The chunks, to be decided once for all readers that wait for them."""
        if self._shared is None:
            window = self.window()
            self._shared = SharedChunks(window, Outline.of(window, keeps_window=True), are_checked=True)
        return self._shared

    def lone(self) -> LoneMessage | None:
        """The message, if there is only one, as in most appends of a quiet stream; else None."""
        if self._lone is None and len(self.headers) == 1 and self.headers[0].num_records == 1:
            header = self.headers[0]
            data_start = CHUNK_HEADER_BYTES + header.bloom_length
            if not self.data[data_start] & _SUB_BATCH_BIT:
                self._lone = LoneMessage(self.data, header, data_start)
        return self._lone


class LoneMessage(msgspec.Struct, eq=False):
    """A message in a chunk of its own, the form of most live traffic: there are no chunks to choose from.

    `AppendedChunks.shared` gives the same in four times the time. Not for several threads.
    """

    data: NDArray[np.uint8]
    header: ChunkHeader
    data_start: int
    _batch: ScanBatch | None = None
    _decided: dict[int, _Decided] = msgspec.field(default_factory=dict)

    def message(self, next_offset: int) -> Portion:
        """The message, for a reader without a filter."""
        return Portion([self._as_batch()], next_offset, self._counters(matched=1))

    def decided(
        self, request: ScanRequest, number: int, next_offset: int, reads: SharedReads, filters: SharedFilters
    ) -> Portion:
        """The message if it passes the request's filter, whose `number` says which readers share it.

        The counters have the reader's share of the deciding time, less the time that this call took for all.
        """
        batch, took_ns = self._as_batch(), 0
        found = self._decided.get(number)
        if found is None:
            begun_ns = reads.cpu_ns()
            kept, malformed, _ = select(batch.messages, request)
            took_ns = reads.cpu_ns() - begun_ns
            found = _Decided([batch] if len(kept) else [], len(malformed), took_ns)
            if number >= NO_FILTER:
                if took_ns:
                    found.share_ns //= filters.sharers(OffsetRange(self.header.chunk_id, next_offset), (number,))
                self._decided[number] = found
        counters = self._counters(matched=len(found.batches))
        counters.messages_malformed, counters.cpu_ns = found.malformed, found.share_ns - took_ns
        counters.chunks_without_match = 1 - counters.messages_matched
        return Portion(found.batches, next_offset, counters)

    def chunk(self, next_offset: int) -> ChunkPortion:
        """Its chunk as stored."""
        header = self.header
        columns = _columns_of_one(0, self.data_start, header.data_length, header.chunk_id, 1)
        counters = ScanCounters(chunks_examined=1, bytes_read=len(self.data))
        return ChunkPortion(next_offset, counters, ChunkColumns(self.data, *columns))

    def _as_batch(self) -> ScanBatch:
        if self._batch is None:
            header, start = self.header, self.data_start + ENTRY_HEAD_BYTES
            starts, lengths, *columns = _columns_of_one(
                start, header.data_length - ENTRY_HEAD_BYTES, header.chunk_id, header.timestamp_ms
            )
            self._batch = ScanBatch(EncodedMessages(_with_slack(self.data), starts, lengths), *columns)
        return self._batch

    def _counters(self, *, matched: int) -> ScanCounters:
        return ScanCounters(
            chunks_examined=1, bytes_read=len(self.data), messages_evaluated=1, messages_matched=matched
        )


class _Decided(msgspec.Struct, eq=False):
    """The verdict of one filter: the message or nothing, malformed messages, and the time that each reader bears."""

    batches: list[ScanBatch]
    malformed: int
    share_ns: int


def _with_slack(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A copy that kernels may read beyond its end."""
    copied = bytearray(data.data)
    copied += _SLACK
    return np.frombuffer(copied, dtype=np.uint8)


def _columns_of_one(*values: int) -> list[NDArray[np.int64]]:
    """Columns of one row."""
    row = np.array(values, dtype=np.int64)
    # Slices one by one cost half of what rows of a matrix do.
    return [row[at : at + 1] for at in range(len(values))]
