"""The folder with files that are derived from a stream's segments: column files, lookup files, their declarations.

    <stream folder>/derived/                              of our own streams; goes with the stream
    <root>/.headgate/derived/<identity>/                  of foreign ones: nothing is written into RabbitMQ's folders
        <segment, 20 digits>-….<kind>                     derived of that segment; deleted some time after it
        kept/<segment, 20 digits>-….<kind>                the same, never deleted with its segment
        .<segment, 20 digits>-….new                       being written

The stream can be read without these files. A file's name contains a digest of the segment's state, so a newer file has
another name, and the old one stays for `GRACE_MS`: a reader that planned with its path still finds it.

Files of a segment in object storage lie there with it (`remote/derived_mover.py`); those in `kept` stay here. Readers
see them through the cache of their machine: `derived_path` gives where, `make_derived_present` fetches their bytes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import struct
import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from headgate.errors import LogError
from headgate.log.crash_points import BuildStep, reached
from headgate.log.derived_names import (
    DROPPED_MS,
    GONE_SUFFIX,
    GRACE_MS,
    mark_gone,
    mark_of,
    marked_in,
    marked_ms,
    segment_of_name,
    unmark,
)
from headgate.log.files import storage_error, sync_file, sync_folder
from headgate.log.manifest import STREAMS_FOLDER, root_of
from headgate.log.pairs import DERIVED_FOLDER, ids_among
from headgate.log.remote import load_catalogue, load_derived
from headgate.log.seal import read_seal, seal_of, seal_path
from headgate.log.segment import Segment
from headgate.log.staging import PRIVATE_FOLDER
from headgate.log.stream import Stream

KEPT_FOLDER = "kept"

_MOST_DIGESTS = 4096
_MOST_OPENED = 4096

_digests: dict[Hashable, str] = {}

_File = TypeVar("_File")


class OpenedFiles(Generic[_File]):
    """Derived files that this process has checked: the same object while the file is the same. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: dict[tuple[str, int, int, int], _File] = {}

    def get(self, path: Path, check: Callable[[Path, int], _File]) -> _File:
        """The file, made by `check(path, size in bytes)` if it is new or replaced. Raises OSError, and as `check`."""
        found = os.stat(path)
        key = (str(path), found.st_ino, found.st_size, found.st_mtime_ns)
        with self._lock:
            known = self._opened.get(key)
        if known is None:
            checked = check(path, found.st_size)
            with self._lock:
                if len(self._opened) >= _MOST_OPENED:
                    self._opened.clear()
                known = self._opened.setdefault(key, checked)
        return known

    def clear(self) -> None:
        """Check all files again."""
        with self._lock:
            self._opened.clear()


def derived_folder(stream: Stream) -> Path:
    """The folder of the derived files of a stream; it may not exist."""
    return _foreign_folder(stream.path) if stream.is_foreign else stream.path / DERIVED_FOLDER


def derived_folder_of(segment: Segment) -> Path:
    """The folder of the derived files of a segment; it may not exist."""
    return segment.folder / DERIVED_FOLDER if segment.is_own else _foreign_folder(segment.folder)


def make_derived_folder(stream: Stream) -> Path:
    """The derived folder, made if it does not exist. Raises StorageFullError, StreamReadOnlyError, LogError."""
    stream.check_has_folder()
    folder = derived_folder(stream)
    try:
        # Not its parents: a stream that was deleted meanwhile must not come back as an empty folder.
        folder.mkdir(exist_ok=True, parents=stream.is_foreign)
    except OSError as error:
        raise storage_error(error, folder) from error
    return folder


def derived_path(segment: Segment, path: Path) -> Path:
    """Where a derived file of a segment is that would be at `path` in the stream's folder: there, if it exists.

    Else, if it is in object storage, in the cache of this machine, as a hole that `make_derived_present` fills.
    """
    if segment.remote is None or path.exists():
        return path
    return segment.remote.derived_file(path.name) or path


def remote_derived(stream: Stream, suffix: str) -> Iterator[tuple[Segment, str]]:
    """The derived files with a suffix that are in object storage, of segments that are only there, oldest first.

    Without those that are about to be deleted.
    """
    listed = load_derived(stream.path)
    if listed is None:
        return
    segments, marks = stream.segments(), marked_in(derived_folder(stream))
    for first_chunk_id, found in listed.ending_with(suffix):
        segment = segments.beginning_at(first_chunk_id)
        if segment is not None and segment.remote is not None and found.name not in marks:
            yield segment, found.name


def headers_digest(segment: Segment) -> str:
    """16 hexadecimal digits for the chunk headers of a sealed segment, which hold the checksums of all data.

    Cost: reading the segment's seal; without one the header of each chunk; remembered while file and seal have their
    size and time. Raises CorruptChunkError, OffsetOutOfRangeError.
    """
    path = segment.segment_path
    key = _state_of(segment)
    known = None if key is None else _digests.get(key)
    if known is not None:
        return known
    seal = read_seal(path) if segment.is_own else None
    if seal is None:
        with segment.open() as reader:
            seal = seal_of(reader)
    digest = hashlib.sha256(seal.header_crcs.astype(">u4").tobytes()).hexdigest()[:16]
    # The digest may be that of files that replaced these meanwhile.
    if key is not None and key == _state_of(segment):
        if len(_digests) >= _MOST_DIGESTS:
            _digests.clear()
        _digests[key] = digest
    return digest


def _state_of(segment: Segment) -> Hashable | None:
    """The state of a sealed segment's files, which changes when they are replaced; None without a segment file."""
    path = segment.segment_path
    state: list[Hashable] = [str(path), segment.identity]
    for each in (path, seal_path(path)) if segment.is_own else (path,):
        try:
            found = os.stat(each)
        except OSError:
            if each == path:
                return None
            continue
        state.append((found.st_ino, found.st_size, found.st_mtime_ns))
    return tuple(state)


def derived_bytes(stream: Stream) -> int:
    """Bytes of all derived files of a stream, declarations included; a file with two names counts once."""
    folder = derived_folder(stream)
    sizes: dict[int, int] = {}
    for each in (folder, folder / KEPT_FOLDER):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for entry in os.scandir(each):
                with contextlib.suppress(FileNotFoundError):
                    if entry.is_file(follow_symlinks=False):
                        sizes[entry.inode()] = entry.stat().st_size
    return sum(sizes.values())


def streams_with_derived(root: Path) -> Iterator[Stream]:
    """The streams under a root that have a derived folder, in order of folder names; damaged streams are left out.

    Opens no other stream.
    """
    try:
        folders = sorted(entry.path for entry in os.scandir(root / STREAMS_FOLDER) if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return
    for folder in map(Path, folders):
        if (folder / DERIVED_FOLDER).is_dir() or _foreign_folder(folder).is_dir():
            with contextlib.suppress(LogError):
                yield Stream.open(folder)


def sweep_derived(stream: Stream, *, now_ms: int, suffix: str = "", superseded: Collection[str] = ()) -> int:
    """Remove files whose segment has been gone for `GRACE_MS`, and after the same time the `superseded` ones.

    `superseded` are the names of all files with this `suffix` that a newer file replaces, kept files included. A file
    whose segment is found gone for the first time is marked with the time and stays. Gives how many were removed; files
    that cannot be removed stay for the next time.
    """
    folder = derived_folder(stream)
    removed = sweep_folder(folder, stream.path, now_ms=now_ms, suffix=suffix, superseded=superseded)
    if suffix:
        removed += _sweep(folder / KEPT_FOLDER, None, now_ms=now_ms, suffix=suffix, superseded=superseded)
    return removed


def sweep_folder(
    folder: Path, of_stream: Path, *, now_ms: int, suffix: str = "", superseded: Collection[str] = ()
) -> int:
    """`sweep_derived` of the derived folder of the stream in the folder `of_stream`, without its folder `kept`."""
    return _sweep(folder, of_stream, now_ms=now_ms, suffix=suffix, superseded=superseded)


def _sweep(folder: Path, of_stream: Path | None, *, now_ms: int, suffix: str, superseded: Collection[str]) -> int:
    """Sweep one folder; without `of_stream` no segment counts as gone."""
    try:
        names = set(os.listdir(folder))
        # Listed after the files: so the file of a segment that came meanwhile does not look like one without a segment.
        segments = None if of_stream is None else _segments_of(of_stream)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    found = None if of_stream is None else load_derived(of_stream)
    # The marks of files in object storage are for the mover, which deletes them there. A writer's sweep, which knows of
    # no kind, takes all files for such, as the list may be long.
    listed = found.names() if found is not None and suffix else set()
    is_for_mover = found is not None and not suffix
    removed = 0
    for name in names | (listed & set(superseded)):
        of = name.removesuffix(GONE_SUFFIX)
        segment, path = segment_of_name(of, unfinished=True), folder / of
        if segment is None:
            continue
        is_gone = of in superseded or (segments is not None and segment not in segments)
        with contextlib.suppress(OSError):
            if name != of:
                # Whether a newer file replaces it, only the sweep of its own kind knows.
                is_wanted = not is_gone and suffix and of.endswith(suffix) and marked_ms(path) != DROPPED_MS
                if is_wanted or not (is_for_mover or of in names or of in listed):
                    unmark(folder, [of])
            elif is_gone and mark_of(path).name not in names:
                mark_gone(path, now_ms)
            elif is_gone and of in names and now_ms - marked_ms(path) >= GRACE_MS:
                path.unlink(missing_ok=True)
                if not (is_for_mover or of in listed):
                    unmark(folder, [of])
                removed += 1
    return removed


def _segments_of(folder: Path) -> set[int]:
    """First offsets of the segments of a stream, in its folder or in object storage. Raises LogError."""
    catalogue = load_catalogue(folder)
    remote = set() if catalogue is None else set(catalogue.rows["first"].tolist())
    return remote | ids_among(os.listdir(folder))[0]


def remove_unfinished(folder: Path, first_chunk_id: int, suffix: str) -> None:
    """Remove the unfinished files of dead builders for a segment. The caller keeps others from building it."""
    with contextlib.suppress(FileNotFoundError, LogError):
        for name in os.listdir(folder):
            if name.startswith(f".{first_chunk_id:020d}-") and name.endswith(suffix):
                (folder / name).unlink(missing_ok=True)


@contextlib.contextmanager
def changing(folder: Path, lock_name: str) -> Iterator[None]:
    """Lock a declaration in a derived folder for a change; waits for other holders of the lock.

    Raises as `storage_error`.
    """
    with _lock_file(folder / lock_name) as descriptor:
        # No limit on the wait: the lock is held for a few file operations only, and the kernel frees it at death.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def building(folder: Path, lock_name: str, first_chunk_id: int) -> Iterator[None]:
    """Lock a segment for building its files; waits for another builder.

    One open file description holds the lock. Raises as `storage_error`.
    """
    with _lock_file(folder / lock_name) as descriptor:
        if hasattr(fcntl, "F_OFD_SETLKW"):
            request = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, first_chunk_id, 1, 0)
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, request)
        else:
            # Systems without such locks build one segment of a stream at a time.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _lock_file(path: Path) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise storage_error(error, path) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def drop_remote_derived(stream: Stream, suffix: str) -> set[str]:
    """Have the next move delete the files with a suffix in object storage; gives their names.

    Raises StreamReadOnlyError, LogError.
    """
    listed = load_derived(stream.path)
    names = set() if listed is None else {found.name for _, found in listed.ending_with(suffix)}
    for name in names:
        try:
            mark_gone(derived_folder(stream) / name, DROPPED_MS)
        except OSError as error:
            raise storage_error(error, derived_folder(stream)) from error
    return names


def delete_derived(paths: Iterable[Path]) -> int:
    """Delete files; gives how many were there. Raises StreamReadOnlyError, LogError."""
    deleted = 0
    for path in paths:
        try:
            path.unlink()
            deleted += 1
        except FileNotFoundError:
            continue
        except OSError as error:
            raise storage_error(error, path) from error
    return deleted


def finish_derived(temporary: Path, path: Path) -> None:
    """Flush a written file to the disk, then give it its name. Raises OSError."""
    sync_file(temporary)
    reached(BuildStep.CHECKED)
    # What is made anew after it was dropped is to stay.
    unmark(path.parent, [path.name])
    os.replace(temporary, path)
    sync_folder(path.parent)
    reached(BuildStep.RENAMED)


def _foreign_folder(folder: Path) -> Path:
    folder = folder.resolve()
    return root_of(folder) / PRIVATE_FOLDER / DERIVED_FOLDER / folder.name
