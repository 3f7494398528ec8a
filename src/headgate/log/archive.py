"""Archiving a stream that RabbitMQ writes: a replica with the same chunks, whose sealed segments go to object storage.

    RabbitMQ's folder ──► chunks as they are ──► the archive, a stream of ours ──► segments in object storage
    (only read)            ids, times, epochs,    (segments begin where the         (`remote/mover.py`)
                           bytes unchanged         original's do)

The archive goes on where it ends, so a process that died is simply started again. Segments that are not copied yet are
kept open: RabbitMQ may delete their files meanwhile. What it deleted while no archiver ran is missing: an error, or by
the operator's decision empty bookkeeping chunks in place of it, as `salvage.py` has them.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.errors import (
    ConfigError,
    LogError,
    OffsetOutOfRangeError,
    RemoteStorageError,
    StreamExistsError,
)
from headgate.log import format as f
from headgate.log.bloom import DEFAULT_FILTER_SIZE_BYTES
from headgate.log.files import storage_error
from headgate.log.lock import Wait, no_wait
from headgate.log.pairs import DAMAGED_FOLDER
from headgate.log.remote.mover import MoveReport, move_segments
from headgate.log.salvage import empty_chunk
from headgate.log.segment import SegmentReader
from headgate.log.settings import StreamArguments
from headgate.log.stream import Stream
from headgate.log.writer import Durability, Writer

logger = logging.getLogger("headgate.log")

MOST_MISSING = 1 << 24
"""Limit: missing offsets that an archive can go on behind; each takes some 80 bytes."""

_MOST_HELD = 256
"""Limit: segments that are kept open, the oldest ones, which retention takes first."""

_COPY_BYTES = 16 << 20
_FILLED_AT_ONCE = 1 << 16
_TRY_AGAIN_MS = 5000


@dataclass(slots=True)
class ArchiveReport:
    """What an archiver did: chunks and bytes that it copied, segments that it moved and their bytes.

    `missing` counts the offsets that it went on behind.
    """

    chunks: int = 0
    copied_bytes: int = 0
    moved: int = 0
    moved_bytes: int = 0
    missing: int = 0


class Archiver:
    """Copies one foreign stream into its archive, whose lock it holds, until `close`. Not for several threads."""

    def __init__(self, source: Stream, writer: Writer, *, allow_gap: bool) -> None:
        self.report = ArchiveReport()
        self._source = source
        self._writer = writer
        self._allow_gap = allow_gap
        self._held: dict[int, SegmentReader] = {}
        """Segments of the source that are not copied yet, by first offset, ascending."""
        self._last = b""
        """The header of the last chunk of the archive; empty without one."""
        self._has_sealed = True
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="headgate-archive")
        self._moving: Future[MoveReport | None] | None = None
        self._move_after_ms = 0
        self._warned = ""
        with writer.stream.segments()[-1].open() as reader:
            rows = len(reader.chunks())
            if rows:
                self._last = reader.header_bytes(rows - 1)
        segments = source.segments()
        at = segments.row_of(self.next_offset - 1)
        if at >= 0:
            with segments[at].open() as reader:
                self._check_before(reader, int(np.searchsorted(reader.chunks().chunk_id, self.next_offset)))

    @staticmethod
    def open(
        source: Stream,
        folder: Path,
        *,
        name: str,
        remote: str,
        local_bytes: int = 0,
        allow_gap: bool = False,
        now_ms: int,
        wait: Wait = no_wait,
    ) -> Archiver:
        """The archiver of a foreign stream into the stream in a folder, which is made if it is missing.

        Raises ConfigError for a source that is not foreign or another remote, StreamExistsError for a stream that is no
        archive of it, StreamLockedError, LogError.
        """
        if not source.is_foreign:
            raise ConfigError(
                f"stream {source.name!r} is not RabbitMQ's: its own segments move when it has a remote "
                "(headgate stream create --remote)"
            )
        archive = Stream.find(folder)
        if archive is None:
            segments = source.segments()
            arguments = StreamArguments(
                filter_size_bytes=max(source.filter_size_bytes, DEFAULT_FILTER_SIZE_BYTES),
                initial_offset=segments[0].first_chunk_id if segments else 0,
                remote=remote,
                local_bytes=local_bytes,
            )
            archive = Stream.create(
                folder, name=name, now_ms=now_ms, arguments=arguments, archive_of=source.identity, wait=wait
            )
        assert archive.settings is not None
        found = archive.settings
        if found.archive_of != source.identity:
            what = "no archive" if found.archive_of is None else f"the archive of {found.archive_of}"
            raise StreamExistsError(f"stream {name!r} is there and is {what}; give another name", path=folder)
        if found.arguments.remote != remote:
            raise ConfigError(f"the archive is at {found.arguments.remote}, not at {remote}; give it another name")
        writer = Writer.open(archive, now_ms=now_ms, wait=wait, durability=Durability.DISK)
        try:
            if found.arguments.local_bytes != local_bytes:
                arguments = msgspec.structs.replace(found.arguments, local_bytes=local_bytes)
                writer.change(now_ms=now_ms, arguments=arguments)
            return Archiver(source, writer, allow_gap=allow_gap)
        except BaseException:
            writer.close()
            raise

    def __enter__(self) -> Archiver:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Wait for the segment that is being moved, close all files and release the lock."""
        self._pool.shutdown()
        for reader in self._held.values():
            reader.close()
        self._held.clear()
        self._writer.close()

    @property
    def next_offset(self) -> int:
        """The offset behind the archive."""
        return self._writer.next_offset

    def look(self) -> None:
        """Open the segments that the source has now and the archive lacks; keep them open until they are copied.

        Raises OffsetOutOfRangeError if retention was faster, or goes on behind the missing offsets where that is
        allowed; StreamNotFoundError if the source was deleted and nothing of it is left to copy; LogError.
        """
        segments = self._source.segments()
        if not segments:
            if not self._held:
                self._source.check_is_there()
            return
        for row in range(max(0, segments.row_of(self.next_offset)), len(segments)):
            if len(self._held) >= _MOST_HELD:
                break
            segment = segments[row]
            if segment.first_chunk_id not in self._held and segment.stop_offset != self.next_offset:
                try:
                    self._held[segment.first_chunk_id] = segment.open()
                except OffsetOutOfRangeError:
                    continue
        first = min(self._held, default=None)
        if first is not None and first > self.next_offset:
            self._go_on_behind(first)

    def copy(self) -> int:
        """Copy some megabytes of what `look` found; gives their bytes, 0 if there is nothing more.

        Raises CorruptChunkError for damage in the source; LogError if the source is not what was archived, or the
        archive cannot be written.
        """
        while (first := min(self._held, default=None)) is not None:
            reader = self._held[first]
            table = reader.chunks(refresh=True)
            row = int(np.searchsorted(table.chunk_id, self.next_offset))
            self._check_before(reader, row)
            if row < len(table):
                if table.chunk_id[row] != self.next_offset:
                    raise self._differs(reader)
                return self._copy_from(reader, row)
            if reader.next_chunk_id < self.next_offset and len(table):
                raise self._differs(reader)
            if len(self._held) == 1:
                break
            # The next one was there before the index was read, so this one is complete.
            del self._held[first]
            reader.close()
            if (then := min(self._held)) > self.next_offset:
                self._go_on_behind(then)
        return 0

    def move(self, *, now_ms: int, warns: bool) -> None:
        """Begin to move sealed segments, beside the copying; let the local files of moved ones go. Call it often.

        Storage that fails is tried again later: until then the segments stay here. With `warns` the log has each other
        error once; `finish` raises one that lasts.
        """
        if self._moving is not None:
            if not self._moving.done():
                return
            try:
                self._take(self._moving.result())
                self._warned = ""
            except RemoteStorageError as error:
                if warns and str(error) != self._warned:
                    self._warned = str(error)
                    logger.warning("%s; segments stay here, and are tried again", error)
                self._has_sealed, self._move_after_ms = True, now_ms + _TRY_AGAIN_MS
            self._moving = None
        if self._has_sealed and now_ms >= self._move_after_ms:
            self._has_sealed = False
            self._moving = self._pool.submit(move_segments, self._writer.stream, now_ms=now_ms)

    def finish(self, *, now_ms: int) -> None:
        """Move all sealed segments before this returns. Raises RemoteStorageError, LogError."""
        if self._moving is not None:
            moving, self._moving = self._moving, None
            self._take(moving.result())
        self._take(move_segments(self._writer.stream, now_ms=now_ms))

    def _take(self, moved: MoveReport | None) -> None:
        if moved is not None:
            self.report.moved += moved.moved
            self.report.moved_bytes += moved.moved_bytes
        self._writer.release_local()

    def _copy_from(self, reader: SegmentReader, row: int) -> int:
        table = reader.chunks()
        start = int(table.position[row])
        stop_row = max(row + 1, int(np.searchsorted(table.position, start + _COPY_BYTES)))
        stop = int(table.position[stop_row]) if stop_row < len(table) else reader.stop_position
        data = reader.read(start, stop)[: stop - start]
        positions = table.position[row:stop_row] - start
        begins = row == 0 and reader.segment.first_chunk_id == self.next_offset
        self._append(data, positions, begins_segment=begins)
        self.report.chunks += stop_row - row
        self.report.copied_bytes += stop - start
        return stop - start

    def _append(self, data: NDArray[np.uint8], positions: NDArray[np.int64], *, begins_segment: bool) -> None:
        self._has_sealed |= self._writer.append_replica(data, positions, begins_segment=begins_segment)
        last = int(positions[-1])
        self._last = data[last : last + f.CHUNK_HEADER_BYTES].tobytes()

    def _check_before(self, reader: SegmentReader, row: int) -> None:
        """Raise LogError if the chunk before a row of the source is not the last one of the archive."""
        if 0 < row <= len(reader.chunks()) and self._last and reader.header_bytes(row - 1) != self._last:
            raise self._differs(reader)

    def _differs(self, reader: SegmentReader) -> LogError:
        return LogError(
            f"the chunks before offset {self.next_offset} are not those in the archive: RabbitMQ took back what it had "
            "not confirmed, or somebody wrote to one of the two; begin a new archive under another name",
            path=reader.path,
        )

    def _go_on_behind(self, stop: int) -> None:
        start = self.next_offset
        gone = (
            f"offsets {start} to {stop - 1} of stream {self._source.name!r} were deleted by RabbitMQ's retention "
            "before they were archived"
        )
        if not self._allow_gap:
            raise OffsetOutOfRangeError(f"{gone}; --allow-gap goes on behind them", path=self._source.path)
        if stop - start > MOST_MISSING:
            raise OffsetOutOfRangeError(
                f"{gone}; an archive goes on behind at most {MOST_MISSING} missing offsets: begin a new one under "
                "another name",
                path=self._source.path,
            )
        self._note_missing(start, stop)
        last = f.ChunkHeader.decode(self._last, path=self._source.path, position=0) if self._last else None
        if last is None:
            with self._held[stop].segment.open() as reader:
                last = reader.header(0)
        chunk = empty_chunk(start, last)
        for first in range(start, stop, _FILLED_AT_ONCE):
            ids = range(first, min(first + _FILLED_AT_ONCE, stop))
            data = np.tile(np.frombuffer(chunk, dtype=np.uint8), len(ids))
            positions = np.arange(len(ids), dtype=np.int64) * len(chunk)
            for position, chunk_id in zip(positions.tolist(), ids, strict=True):
                last.stamp(data.data, position, chunk_id=chunk_id, timestamp_ms=last.timestamp_ms, epoch=last.epoch)
            self._append(data, positions, begins_segment=False)
        self.report.missing += stop - start
        logger.warning("%s; the archive goes on behind them", gone)

    def _note_missing(self, start: int, stop: int) -> None:
        """Note the offsets as given up, as a repair does, for readers that must not pass over them unseen."""
        folder = self._writer.stream.path / DAMAGED_FOLDER
        try:
            folder.mkdir(exist_ok=True)
            (folder / f"{start:020d}-{stop:020d}.bytes").touch()
        except OSError as error:
            raise storage_error(error, folder) from error
