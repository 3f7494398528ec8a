"""Roll-forward: a writer that opens a stream first adds the chunks that manifests decided.

A commit may die at any instant. The next holder of a stream's lock appends the missing chunks, after the last
publisher sequence in the stream, so that a batch is stored once, in order, and before anything newer.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headgate.errors import CorruptChunkError
from headgate.log.adoption import StagedSegment
from headgate.log.chunk_builder import Bytes, Int64Array, stamp_sequences
from headgate.log.crash_points import CommitStep, reached
from headgate.log.files import sync_folder
from headgate.log.format import CHUNK_HEADER_BYTES, ChunkHeader
from headgate.log.manifest import ONE_TIME_PREFIX, Commits, Manifest, Output
from headgate.log.settings import load_settings
from headgate.log.staging import StagedChunks, least_adopted_bytes
from headgate.log.stream import Stream
from headgate.log.tracking import read_tracking

if TYPE_CHECKING:
    from headgate.log.writer import Writer

BLOCK_BYTES = 8 << 20
"""Bytes of whole chunks appended with one write; a larger chunk makes a larger block."""


def finish_pending(writer: Writer, commits: Commits, stream: str, *, committing: Manifest | None = None) -> None:
    """Append the missing chunks that manifests list for this stream; complete manifests that are then fully appended.

    `commits` are the commits of the stream, and `stream` is its name in them: see `Commits.of_stream`.
    The batch of the manifest `committing` is not completed: its commit completes it after all streams.
    The commit closes the stream at once, so unless the batch is durable its sequence is not written into
    `stream.json`: trailers hold it until the next writer, which finds the manifest here, or the completed batch.
    Raises LogError for a wrong or missing manifest or staged file, and the errors of appending; the next writer does
    the rest of the work.
    """
    opened = writer.stream
    pending = commits.pending()
    # Read under the stream's lock: a query in the settings without a manifest is done.
    known = opened.settings.sequences if opened.settings else ()
    forgotten = {query for query in known if query.startswith(ONE_TIME_PREFIX)}
    forgotten -= {manifest.query for manifest in pending}
    for manifest in pending:
        is_own = committing is not None and (manifest.query, manifest.batch) == (committing.query, committing.batch)
        output = manifest.by_stream.get(stream)
        if output is None:
            continue
        # Chunks for a deleted stream are not appended to another stream created in its place.
        if output.identity == opened.identity:
            keeps = not (is_own and _is_in_trailers(manifest))
            _finish_output(writer, commits.root, manifest, output, forgotten, keeps_sequence=keeps)
        if not is_own and is_done(commits.root, manifest):
            reached(CommitStep.FINISHED)
            commits.complete(manifest)
            reached(CommitStep.COMPLETED)


def is_done(root: Path, manifest: Manifest) -> bool:
    """Whether every stream of a batch has all its chunks, by `stream.json` or trailers.

    A deleted stream counts as done, also if another one was created under its name.
    """
    # Streams are written in this order, so the last one shows soonest that chunks are missing.
    return all(_has_all(root, manifest, output) for output in reversed(manifest.by_stream.values()))


def _has_all(root: Path, manifest: Manifest, output: Output) -> bool:
    folder = root / output.stream
    settings = load_settings(folder)
    if settings is None or settings.identity != output.identity:
        return True
    if settings.sequences.get(manifest.query, -1) >= manifest.last_sequence(output):
        return True
    if not _is_in_trailers(manifest):
        return False
    found = read_tracking(Stream(folder, settings)).sequences.get(manifest.query.encode())
    return found is not None and found[1] >= manifest.last_sequence(output)


def copied_bytes(output: Output, max_segment_size_bytes: int) -> int:
    """The bytes of an output that do not become segments as they are."""
    least = least_adopted_bytes(max_segment_size_bytes, output.staged)
    return sum(part.size_bytes for part in output.staged if not _is_large(part, least))


def _is_large(part: StagedChunks, least_adopted: int) -> bool:
    return part.head_bytes > 0 and part.size_bytes >= least_adopted


def _is_in_trailers(manifest: Manifest) -> bool:
    """Whether trailers alone record the progress of a batch: only if the batch need not survive a power loss."""
    return not manifest.durable


def _finish_output(
    writer: Writer,
    root: Path,
    manifest: Manifest,
    output: Output,
    forgotten: Collection[str],
    *,
    keeps_sequence: bool,
) -> None:
    last = writer.last_sequence(manifest.query)
    number = 0 if last is None else max(0, last + 1 - manifest.first_sequence)
    _Finishing(writer, root, manifest, output, number).run()
    if manifest.durable:
        _flush(writer.stream)
    reached(CommitStep.APPENDED)
    if keeps_sequence:
        # A flush of a small file takes along all that the file system has not written yet.
        writer.record_sequence(
            manifest.query, manifest.last_sequence(output), forgotten=forgotten, flushed=manifest.durable
        )
    reached(CommitStep.RECORDED)


@dataclass(slots=True)
class _Finishing:
    """The chunks of one output on their way into its stream; `number` is that of the next one."""

    writer: Writer
    root: Path
    manifest: Manifest
    output: Output
    number: int

    def run(self) -> None:
        """Large files become segments, the chunks of all others are appended."""
        least = least_adopted_bytes(self.writer.settings.arguments.max_segment_size_bytes, self.output.staged)
        before = 0
        for is_large, group in groupby(self.output.staged, key=lambda part: _is_large(part, least)):
            parts = list(group)
            for together in [[part] for part in parts] if is_large else [parts]:
                chunks = sum(part.chunks for part in together)
                if is_large and self.number < before + chunks:
                    self._adopt(together[0], self.number - before, least)
                self._append(together, max(0, self.number - before))
                before += chunks

    def _append(self, parts: Iterable[StagedChunks], first_chunk: int) -> None:
        """Append the chunks of some files, from a number on."""
        for block, positions in _blocks(self.root, parts, first_chunk=first_chunk):
            self._put(block, positions)

    def _put(self, block: Bytes, positions: Int64Array) -> None:
        reached(CommitStep.APPENDING)
        first, manifest = self.manifest.first_sequence + self.number, self.manifest
        stamp_sequences(block, positions, np.arange(first, first + len(positions), dtype=np.uint64))
        self.writer.append_chunks(
            block,
            positions,
            now_ms=manifest.timestamp_ms,
            filter_source=self.output.filter_source,
            is_decided=True,
        )
        self.number += len(positions)

    def _adopt(self, part: StagedChunks, first_chunk: int, least_bytes: int) -> None:
        """Make a file a segment, from a chunk on, if it can be one and still has enough chunks for the stream."""
        staged = StagedSegment.of(self.root, part)
        if not self.writer.takes_segments:
            self._put(staged.read(first_chunk), np.zeros(1, dtype=np.int64))
            first_chunk += 1
        if first_chunk == part.chunks or staged.size_bytes - staged.positions[first_chunk] < least_bytes:
            return
        is_adopted = self.writer.adopt(
            staged,
            first_chunk=first_chunk,
            first_sequence=self.manifest.first_sequence + self.number,
            now_ms=self.manifest.timestamp_ms,
            filter_source=self.output.filter_source,
        )
        if is_adopted:
            self.number += part.chunks - first_chunk


def _flush(stream: Stream) -> None:
    """Flush the stream to the device, including chunks of a writer that died before flushing them."""
    segments = stream.segments()
    for segment in segments[segments.num_remote :]:
        for path in (segment.segment_path, segment.index_path):
            with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                os.fdatasync(file.fileno())
    sync_folder(stream.path)


def _blocks(root: Path, staged: Iterable[StagedChunks], *, first_chunk: int) -> Iterator[tuple[Bytes, Int64Array]]:
    """Blocks of whole chunks from number `first_chunk` on, and where each chunk starts; the buffer is reused.

    Small files share a block, and so the cost of an append.
    """
    room, starts, size = _room(), list[int](), 0
    for part in staged:
        if first_chunk >= part.chunks:
            first_chunk -= part.chunks
            continue
        if size and size + part.size_bytes > len(room):
            yield room[:size], np.array(starts, dtype=np.int64)
            starts, size = [], 0
        if part.size_bytes > len(room):
            yield from _blocks_of_file(root, part, first_chunk=first_chunk)
        else:
            found = _read_chunks(root, part, room[size : size + part.size_bytes])[first_chunk:]
            if not first_chunk:
                starts += [size + start for start in found]
                size += part.size_bytes
            elif found:
                yield room[size + found[0] : size + part.size_bytes], np.array(found, dtype=np.int64) - found[0]
        first_chunk = 0
    if size:
        yield room[:size], np.array(starts, dtype=np.int64)


def _read_chunks(root: Path, part: StagedChunks, target: Bytes) -> list[int]:
    """Read a staged file into a buffer of its size; returns the starts of its chunks."""
    path = part.file(root)
    with part.open(root) as descriptor:
        size = part.read(descriptor, target, 0)
    if size < part.size_bytes:
        raise CorruptChunkError("a staged file ends too early", path=path, position=size)
    starts, end = _whole_chunks(target, path, 0)
    if end != part.size_bytes:
        raise CorruptChunkError("a staged chunk is longer than its file", path=path, position=max(starts, default=0))
    return starts


_KEPT = threading.local()


def _room() -> Bytes:
    """This thread's buffer, which is reused: fresh memory from the system costs more than the copy into it."""
    block: Bytes | None = getattr(_KEPT, "block", None)
    if block is None or len(block) != BLOCK_BYTES:
        block = _KEPT.block = np.empty(BLOCK_BYTES, dtype=np.uint8)
    return block


def _blocks_of_file(root: Path, part: StagedChunks, *, first_chunk: int) -> Iterator[tuple[Bytes, Int64Array]]:
    """As `_blocks`, for one file that is larger than the buffer."""
    path = part.file(root)
    with part.open(root) as descriptor:
        buffer = np.empty(min(BLOCK_BYTES, part.size_bytes), dtype=np.uint8)
        position = 0
        while position < part.size_bytes:
            size = part.read(descriptor, buffer, position)
            if size < min(len(buffer), part.size_bytes - position):
                raise CorruptChunkError("a staged file ends too early", path=path, position=position + size)
            starts, end = _whole_chunks(buffer[:size], path, position)
            if end > size:
                if position + end > part.size_bytes:
                    raise CorruptChunkError("a staged chunk is longer than its file", path=path, position=position)
                buffer = np.empty(end, dtype=np.uint8)
                continue
            position += end
            kept = starts[first_chunk:]
            first_chunk -= len(starts) - len(kept)
            if kept:
                yield buffer[kept[0] : end], np.array(kept, dtype=np.int64) - kept[0]


def _whole_chunks(block: Bytes, path: str, position: int) -> tuple[list[int], int]:
    """The starts of the whole chunks of a block, and their end; without one the end of the first, outside the block."""
    view = block.data
    starts: list[int] = []
    end = 0
    while end < len(block):
        rest = len(block) - end
        if rest < CHUNK_HEADER_BYTES and starts:
            break
        header = ChunkHeader.decode(view[end : end + CHUNK_HEADER_BYTES], path=path, position=position + end)
        if header.size_bytes > rest:
            return (starts, end) if starts else ([], header.size_bytes)
        starts.append(end)
        end += header.size_bytes
    return starts, end
