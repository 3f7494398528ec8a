"""Chunks as a server delivers them, and the messages in them: checksums, sub-batches, and a filter of this side.

A delivered chunk is its header and its data part; the Bloom bytes and the trailer that the header speaks of stay on the
server (stream_protocol, section 6). The messages are found and decided as in chunks read from files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from headgate.errors import CorruptChunkError, RemoteProtocolError
from headgate.log import decode_headers
from headgate.log.format import CHUNK_HEADER_BYTES, SLACK_BYTES, ChunkHeader
from headgate.scan import Decider, OffsetRange, ScanBatch, ScanCounters, ScanRequest, Window, read_window

NO_END = 2**63 - 1
"""The end of a read that has none."""

Chunk = bytes | bytearray | memoryview


class ChunkReader:
    """The messages of the chunks of one subscription that lie in a range of offsets and pass a filter, in order.

    `position` is the offset after the last chunk that was read: a subscription from there on goes on without loss.
    """

    def __init__(self, place: str, request: ScanRequest, within: OffsetRange) -> None:
        self.counters = ScanCounters()
        self.position: int | None = None
        self._place = Path(place)
        self._request = request
        self._within = within
        self._decider = Decider(request, within)

    def begin_at(self, offset: int) -> None:
        """From now on messages before that offset are not wanted: chunks come whole."""
        self._within = OffsetRange(offset, self._within.stop)
        self._decider = Decider(self._request, self._within)

    def now(self, now_ms: int) -> None:
        """Set the value of `UTC()` for the next chunks."""
        if now_ms != self._request.now_ms:
            self._request = replace(self._request, now_ms=now_ms)
            self._decider = Decider(self._request, self._within)

    def read(self, chunks: Sequence[Chunk]) -> Iterator[ScanBatch]:
        """The messages of delivered chunks; a batch is valid until the next `read`.

        Raises CorruptChunkError for a wrong checksum or wrong entries, RemoteProtocolError for bytes that are not a
        chunk.
        """
        if not chunks:
            return
        try:
            window = self._window(chunks)
            yield from read_window(window, self._decider, self.counters)
        except CorruptChunkError as error:
            # The reader of files says a byte of a file; here there is none.
            raise CorruptChunkError(error.reason, path=self._place) from error
        last = window.headers.records[-1]
        self.position = int(last["chunk_id"]) + int(last["num_records"])

    def pass_over(self, chunks: Sequence[Chunk]) -> None:
        """Continue after delivered chunks that are not read here; bytes that are not a chunk leave the position."""
        for chunk in chunks:
            with contextlib.suppress(CorruptChunkError):
                self.position = ChunkHeader.decode(chunk, path=self._place, position=0).next_chunk_id

    def _window(self, chunks: Sequence[Chunk]) -> Window:
        lengths = np.fromiter((len(chunk) for chunk in chunks), dtype=np.int64, count=len(chunks))
        if int(lengths.min()) < CHUNK_HEADER_BYTES:
            raise RemoteProtocolError(
                f"a chunk of {int(lengths.min())} bytes; its header alone has {CHUNK_HEADER_BYTES}"
            )
        starts = np.cumsum(lengths) - lengths
        data = np.frombuffer(b"".join([*chunks, bytes(SLACK_BYTES)]), dtype=np.uint8)
        headers = decode_headers(data, starts)
        headers.check(path=self._place, positions=starts)
        if not np.array_equal(headers.data_length + CHUNK_HEADER_BYTES, lengths):
            raise RemoteProtocolError("a delivered chunk is not as long as its header says")
        self.counters.chunks_examined += len(chunks)
        self.counters.bytes_read += int(lengths.sum())
        return Window(self._place, starts, lengths, headers, starts + CHUNK_HEADER_BYTES)
