"""Moving sealed segments to object storage, and removing those there that retention does not keep.

    upload segment and summary ──► read back, compare ──► catalogue there ──► catalogue here ──► local files may go
    catalogue there without it ──► catalogue here     ──► objects go

So a segment is always in at least one place, and a reader that finds it in a catalogue can read it. A process may die
at any of these steps: `remote.pending` names the objects that may be left over, and the next mover uploads them again
or deletes them. Local files go by `Writer.release_local`, under the lock of the stream. Movers have their own lock,
so uploads keep no writer waiting.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.errors import (
    ConfigError,
    CorruptChunkError,
    LogError,
    OffsetOutOfRangeError,
    RemoteStorageError,
    StreamNotFoundError,
)
from headgate.log import format as f
from headgate.log.checked_json import decode_checked
from headgate.log.checksums import first_mismatch
from headgate.log.crash_points import MoveStep, reached
from headgate.log.files import storage_error
from headgate.log.pairs import SETTINGS_NAME, seal_path
from headgate.log.pin import read_pin
from headgate.log.remote.catalogue import CATALOGUE_OBJECT, ROW_DTYPE, Catalogue, load_catalogue, save_catalogue
from headgate.log.remote.derived_list import DERIVED_OBJECT, load_derived, stored_list
from headgate.log.remote.derived_mover import DerivedMover
from headgate.log.remote.pending import load_pending, note_pending
from headgate.log.remote.segment import segment_object, summary_name
from headgate.log.remote.storage import ObjectStorage, storage_at
from headgate.log.remote.summary import Summary
from headgate.log.retention import count_by_bytes
from headgate.log.segment import Segment, SegmentReader
from headgate.log.settings import StreamSettings, load_settings
from headgate.log.stream import Stream, check_elsewhere

_LOCK_NAME = "remote.lock"
_ROWS_AT_ONCE = 16_384


@dataclass(slots=True)
class MoveReport:
    """The result of one pass: segments that were moved, and their bytes; segments that retention deleted there.

    `derived` counts the derived files that were sent.
    """

    moved: int = 0
    moved_bytes: int = 0
    deleted: int = 0
    derived: int = 0


@dataclass(frozen=True, slots=True)
class RemoteState:
    """What a stream has in object storage: the place, segments and their bytes.

    `unmoved_bytes` are those of sealed segments that are not there yet.
    """

    location: str
    segments: int
    bytes: int
    unmoved_bytes: int

    def facts(self) -> dict[str, object]:
        """The numbers as shown in a table or JSON."""
        return {
            "remote": self.location,
            "remote_segments": self.segments,
            "remote_bytes": self.bytes,
            "unmoved_bytes": self.unmoved_bytes,
        }


def remote_state(stream: Stream) -> RemoteState | None:
    """What a stream has in object storage, by its catalogue; None for a stream without a remote. Raises LogError."""
    if stream.remote is None:
        return None
    rows = (load_catalogue(stream.path) or Catalogue.empty(stream.identity)).rows
    return RemoteState(stream.remote, len(rows), int(rows["segment_bytes"].sum()), unmoved_bytes(stream))


def has_local_to_release(stream: Stream) -> bool:
    """Whether more of the moved segments than `local_bytes` says are still in the stream's folder. Raises LogError."""
    catalogue, settings = load_catalogue(stream.path), stream.settings
    if catalogue is None or settings is None or catalogue.identity != stream.identity:
        return False
    segments = stream.segments()
    here = [each for each in segments[segments.num_remote :] if each.first_chunk_id < catalogue.stop]
    pin = read_pin(stream.path)
    is_free = bool(here) and (pin is None or (here[0].stop_offset or 0) <= pin.offset)
    return is_free and sum(each.segment_bytes() for each in here) > settings.arguments.local_bytes


def move_segments(stream: Stream, *, now_ms: int, goes_on: Callable[[], bool] = lambda: True) -> MoveReport | None:
    """Move the segments of a stream that are due, oldest first, and apply its limits to those that were moved.

    None if another process is at it. Raises ConfigError if the stream has no remote, LogError if another stream has its
    place there, CorruptChunkError for a damaged segment, RemoteStorageError; what was moved before stays moved. Ends
    early when `goes_on` says so.
    """
    with _opened_mover(stream, goes_on) as mover:
        if mover is None:
            return None
        report = MoveReport()
        for segment in mover.due(now_ms):
            if not goes_on():
                return report
            with contextlib.suppress(OffsetOutOfRangeError):
                # Retention may be faster.
                report.moved_bytes += mover.move(segment)
                report.moved += 1
        report.deleted = mover.apply_limits(now_ms)
        report.derived = mover.move_derived(now_ms)
        return report


def apply_remote_limits(stream: Stream, *, now_ms: int) -> bool:
    """Delete what the limits of a stream do not keep in object storage, and move nothing.

    False if another process is at it, perhaps by earlier limits. Errors: those of `move_segments`.
    """
    if not len(load_catalogue(stream.path) or ()):
        return True
    with _opened_mover(stream, lambda: True) as mover:
        if mover is not None:
            mover.apply_limits(now_ms)
        return mover is not None


@contextlib.contextmanager
def _opened_mover(stream: Stream, goes_on: Callable[[], bool]) -> Iterator[_Mover | None]:
    """The mover of a stream, after it finished what another one left; None if another process is at it."""
    settings = load_settings(stream.path)
    location = None if settings is None else Stream(stream.path, settings).remote
    if settings is None or location is None:
        raise ConfigError(f"stream {stream.name!r} has no remote, the place in object storage that its segments go to")
    check_elsewhere(settings.arguments.remote, stream.name, stream.path)
    with _moving(stream.path) as is_ours:
        if not is_ours:
            yield None
            return
        mover = _Mover(Stream(stream.path, settings), settings, storage_at(location), goes_on)
        mover.finish_pending()
        yield mover


def delete_remote(stream: Stream) -> None:
    """Delete everything that a stream has in object storage, whose folder no mover finds any more under its name.

    Waits for one that is at it. Raises RemoteStorageError, LogError.
    """
    if stream.remote is None:
        return
    storage = storage_at(stream.remote)
    with _moving(stream.path, wait=True):
        if _owner(storage) != stream.identity:
            return
        catalogue = load_catalogue(stream.path) or Catalogue.empty(stream.identity)
        pending = load_pending(stream.path)
        derived = load_derived(stream.path) or stored_list(storage, stream.identity)
        ids = {*catalogue.rows["first"].tolist(), *pending.segments}
        storage.delete(CATALOGUE_OBJECT)
        for first_chunk_id in sorted(ids):
            _delete_objects(storage, first_chunk_id)
        for name in (*sorted(pending.files | derived.names()), DERIVED_OBJECT, SETTINGS_NAME):
            storage.delete(name)


def unmoved_bytes(stream: Stream) -> int:
    """Bytes of the sealed segments of a stream with a remote that are not there yet."""
    return sum(segment.segment_bytes() for segment in _unmoved(stream, load_catalogue(stream.path)))


class _Mover:
    def __init__(
        self, stream: Stream, settings: StreamSettings, storage: ObjectStorage, goes_on: Callable[[], bool]
    ) -> None:
        self._stream = stream
        self._goes_on = goes_on
        self._folder = stream.path
        self._settings = settings
        self._storage = storage
        self._is_claimed = False
        self._catalogue = load_catalogue(self._folder) or self._restored()

    def _restored(self) -> Catalogue:
        """The catalogue, which is gone here, as it is in object storage."""
        self._claim()
        raw = self._storage.read(CATALOGUE_OBJECT)
        url = self._storage.url(CATALOGUE_OBJECT)
        found = Catalogue.empty(self._stream.identity) if raw is None else Catalogue.decode(raw, path=url)
        save_catalogue(self._folder, found)
        return found

    def due(self, now_ms: int) -> Iterator[Segment]:
        """The sealed segments that are old enough and not moved yet, oldest first."""
        for segment in _unmoved(self._stream, self._catalogue):
            with contextlib.suppress(OffsetOutOfRangeError):
                with segment.open() as reader:
                    last_ms = int(reader.chunks().timestamp_ms[-1])
                if last_ms > now_ms - self._settings.arguments.remote_after_ms:
                    return
                yield segment

    def move(self, segment: Segment) -> int:
        """Move one segment; gives its bytes. Raises OffsetOutOfRangeError if retention deletes it meanwhile."""
        self._claim()
        if self._catalogue.stop != segment.first_chunk_id:
            # Retention overtook all that were moved.
            self._drop(len(self._catalogue))
        note_pending(self._folder, segments={*load_pending(self._folder).segments, segment.first_chunk_id})
        name, storage = segment_object(segment.first_chunk_id), self._storage
        try:
            with segment.open() as reader:
                summary = _checked_summary(reader)
                table = reader.chunks()
                times = int(table.timestamp_ms[0]), int(table.timestamp_ms[-1])
                num_tracking = int(np.count_nonzero(table.type != f.ChunkType.USER))
            crc = storage.write_file(name, segment.segment_path, goes_on=self._goes_on)
        except FileNotFoundError as error:
            raise OffsetOutOfRangeError("retention deleted the segment", path=segment.segment_path) from error
        encoded = summary.encode()
        storage.write(summary_name(segment.first_chunk_id), encoded)
        reached(MoveStep.UPLOADED)
        found = storage.crc_of(name)
        if found != (summary.segment_bytes, crc) or storage.read(summary_name(segment.first_chunk_id)) != encoded:
            raise RemoteStorageError(
                f"object storage: what is read back differs from what was sent: {found[0]} bytes with CRC-32 "
                f"{found[1]:08x}, sent {summary.segment_bytes} with {crc:08x}; the segment stays where it is",
                path=storage.url(name),
            )
        row = np.zeros(1, dtype=ROW_DTYPE)
        row[0] = (
            segment.first_chunk_id,
            segment.stop_offset,
            summary.segment_bytes,
            len(encoded),
            *times,
            crc,
            num_tracking,
        )
        self._publish(self._catalogue.with_row(row))
        reached(MoveStep.CATALOGUED)
        note_pending(self._folder, segments=load_pending(self._folder).segments - {segment.first_chunk_id})
        return summary.segment_bytes

    def apply_limits(self, now_ms: int) -> int:
        """Delete the oldest moved segments that the limits of the stream do not keep, up to its pin; gives how many."""
        dropped = _dropped(self._stream, self._settings, self._catalogue.rows, now_ms)
        self._drop(dropped)
        return dropped

    def _drop(self, count: int) -> None:
        """Delete the oldest moved segments."""
        if not count:
            return
        gone = self._catalogue.rows["first"][:count].tolist()
        note_pending(self._folder, segments={*load_pending(self._folder).segments, *gone})
        self._publish(self._catalogue.without(count))
        reached(MoveStep.DROPPED)
        self.finish_pending()

    def finish_pending(self) -> None:
        """Delete objects that no catalogue names and no segment here will replace."""
        pending = load_pending(self._folder).segments
        if not pending:
            return
        kept = {*self._catalogue.rows["first"].tolist()}
        local = {segment.first_chunk_id for segment in self._stream.segments_left() if segment.remote is None}
        if pending - kept - local:
            self._claim()
        for first_chunk_id in sorted(pending - kept - local):
            _delete_objects(self._storage, first_chunk_id)
        note_pending(self._folder, segments=pending & (local - kept))

    def move_derived(self, now_ms: int) -> int:
        """Move the derived files of the segments that were moved; gives how many were sent. See `DerivedMover`."""

        def begin() -> ObjectStorage:
            self._claim()
            return self._storage

        return DerivedMover(self._stream, self._catalogue, begin, self._publish, self._goes_on).move(now_ms)

    def _publish(self, catalogue: Catalogue) -> None:
        # In the folder of a deleted stream another one may have been made.
        self._stream.check_is_there()
        # Declared ranges must not be older than the segments that they are about.
        self._write_settings()
        self._storage.write(CATALOGUE_OBJECT, catalogue.encode())
        save_catalogue(self._folder, catalogue)
        self._catalogue = catalogue

    def _claim(self) -> None:
        """Raise LogError if the place in object storage belongs to another stream."""
        if self._is_claimed:
            return
        owner = _owner(self._storage)
        if owner is None:
            self._write_settings()
        elif owner != self._stream.identity:
            raise LogError(
                f"another stream, with the identity {owner}, has this place in object storage; give the stream "
                f"{self._stream.name!r} another remote, or remove what is there",
                path=self._storage.url(""),
            )
        self._is_claimed = True

    def _write_settings(self) -> None:
        path = self._folder / SETTINGS_NAME
        try:
            content = path.read_bytes()
        except FileNotFoundError as error:
            raise StreamNotFoundError("the stream was deleted meanwhile", path=path) from error
        self._storage.write(SETTINGS_NAME, content)


def _owner(storage: ObjectStorage) -> str | None:
    """The identity of the stream whose objects lie at a location; None if there is none."""
    raw = storage.read(SETTINGS_NAME)
    if raw is None:
        return None
    try:
        return str(decode_checked(raw)[0].get("identity", ""))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LogError(f"not the settings of a stream: {error}", path=storage.url(SETTINGS_NAME)) from error


def _unmoved(stream: Stream, catalogue: Catalogue | None) -> list[Segment]:
    stop = 0 if catalogue is None else catalogue.stop
    return [
        segment
        for segment in stream.segments()
        if segment.remote is None and segment.is_sealed and segment.first_chunk_id >= stop
    ]


def _dropped(stream: Stream, settings: StreamSettings, rows: NDArray[np.void], now_ms: int) -> int:
    """The number of rows, oldest first, that the limits of a stream do not keep."""
    arguments, segments = settings.arguments, stream.segments_left()
    ids = [segment.first_chunk_id for segment in segments if segment.remote is None]
    first_local = ids[0] if ids else int(rows["stop"][-1]) if len(rows) else 0
    leading = len(segments) - len(ids)
    only_remote = int(np.searchsorted(rows["first"], first_local))
    if only_remote and not leading:
        # Retention in the folder went past them.
        return only_remote
    dropped = 0
    if arguments.max_length_bytes is not None:
        sizes = [
            *rows["segment_bytes"][:only_remote].tolist(),
            *(segment.segment_bytes() for segment in segments[leading:]),
        ]
        dropped = min(only_remote, count_by_bytes(sizes, arguments.max_length_bytes))
    if arguments.max_age_ms is not None:
        young = np.flatnonzero(rows["last_ms"][:only_remote] >= now_ms - arguments.max_age_ms)
        dropped = max(dropped, int(young[0]) if len(young) else only_remote)
    pin = read_pin(stream.path)
    settled = only_remote if pin is None else int(np.searchsorted(rows["stop"][:only_remote], pin.offset, side="right"))
    return max(min(dropped, settled), settled if arguments.drops_settled and pin is not None else 0)


def _checked_summary(reader: SegmentReader) -> Summary:
    """The summary of a segment, all of whose checksums are right.

    Raises CorruptChunkError, FileNotFoundError if retention deleted it.
    """
    segment, table, size = reader.segment, reader.chunks(), reader.stop_position
    reader.map_to(size)
    data = reader.read(0, size - f.SLACK_BYTES)
    fronts = []
    for start in range(0, len(table), _ROWS_AT_ONCE):
        stop = min(start + _ROWS_AT_ONCE, len(table))
        headers = reader.headers(start, stop)
        positions = table.position[start:stop]
        lengths = headers.front_lengths
        bad = first_mismatch(data, positions + lengths, headers.data_length, headers.records["crc"].astype(np.int64))
        if bad is not None:
            raise CorruptChunkError(
                f"data of chunk {int(table.chunk_id[start + bad])} fails its CRC; the segment is not moved. "
                "headgate stream verify says more",
                path=segment.segment_path,
                position=int(positions[bad]),
            )
        ends = (positions + lengths).tolist()
        fronts += [data[at:end].tobytes() for at, end in zip(positions.tolist(), ends, strict=True)]
    try:
        seal = seal_path(segment.segment_path).read_bytes()
    except FileNotFoundError:
        seal = b""
    return Summary(size, segment.index_path.read_bytes(), b"".join(fronts), seal)


def _delete_objects(storage: ObjectStorage, first_chunk_id: int) -> None:
    for name in (segment_object(first_chunk_id), summary_name(first_chunk_id)):
        storage.delete(name)


@contextlib.contextmanager
def _moving(folder: Path, *, wait: bool = False) -> Iterator[bool]:
    path = folder / _LOCK_NAME
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise storage_error(error, path) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)
