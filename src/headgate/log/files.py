"""Files for writing: one class per open file; errors of the file system become LogErrors."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from headgate.errors import LogError, StorageFullError, StreamReadOnlyError

NEW_SUFFIX = ".new"
"""Suffix of files that are about to be renamed; after a crash they can be deleted."""

_FOR_ALL = 0o666
_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}
_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}


def storage_error(error: OSError, path: str | Path) -> LogError:
    """The LogError for an error of the file system while writing `path`."""
    if error.errno in _FULL:
        return StorageFullError(
            f"no room for more bytes ({error.strerror}); what was confirmed stays readable", path=path
        )
    if error.errno in _READ_ONLY:
        return StreamReadOnlyError(f"cannot be written ({error.strerror})", path=path)
    return LogError(f"writing failed ({error.strerror or error})", path=path)


class DiskFile:
    """A file of the operating system, written at given positions; tests replace it by one that fails."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FOR_ALL)

    def size(self) -> int:
        """Bytes in the file."""
        return os.fstat(self._descriptor).st_size

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of `data` at `position`. Raises OSError, possibly after a part of it."""
        write_all(self._descriptor, data, position)

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        """Flush data to the device."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


OpenFile = Callable[[Path], DiskFile]
"""Opens a file for writing, and creates it if it does not exist."""


def file_size(path: str | Path) -> int:
    """Bytes of a file now; 0 if it does not exist."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[int]:
    """A descriptor of a file or folder, for reading."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_all(descriptor: int, count: int, position: int) -> bytes:
    """`count` bytes of a file from `position` on; fewer where it ends before."""
    parts = []
    while count > 0 and (part := os.pread(descriptor, count, position)):
        parts.append(part)
        position += len(part)
        count -= len(part)
    return b"".join(parts)


def write_all(descriptor: int, data: bytes | bytearray | memoryview, position: int) -> None:
    """Write all of `data` at a position of a file. Raises OSError, possibly after a part of it."""
    left = len(data)
    while left:
        written = os.pwrite(descriptor, data, position)
        if written == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left -= written
        if left:
            data = memoryview(data)[written:]
            position += written


_unflushed: list[str] = []
"""Folders in which nothing waits for the device, each with a separator behind it."""


@contextlib.contextmanager
def unflushed(folder: Path) -> Iterator[None]:
    """Within this context the process flushes no file below `folder`: for roots not needed after a power loss."""
    place = os.path.join(os.path.abspath(folder), "")
    _unflushed.append(place)
    try:
        yield
    finally:
        _unflushed.remove(place)


def _is_unflushed(path: Path) -> bool:
    return bool(_unflushed) and os.path.join(os.path.abspath(path), "").startswith(tuple(_unflushed))


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to the device, so that new names survive a power loss."""
    if _is_unflushed(folder):
        return
    with opened(folder) as descriptor:
        os.fsync(descriptor)


def sync_file(path: Path) -> None:
    """Flush a file to the device."""
    if _is_unflushed(path):
        return
    with opened(path) as descriptor:
        os.fsync(descriptor)


def replace_file(path: Path, content: bytes, *, flushed: bool = True, mode: int = _FOR_ALL) -> None:
    """Replace the content of `path` by rename: readers see the old or the new file.

    If `flushed`, that holds after a power loss, too. `mode` are the permissions before the process's umask. Raises
    StorageFullError, StreamReadOnlyError or LogError; then the old content stays.
    """

    def write(descriptor: int) -> None:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    _replace(path, write, flushed=flushed, mode=mode)


def replace_by_start(path: Path, size: int) -> None:
    """Replace a file by its first `size` bytes: a process that has mapped the old file still sees all of it.

    Truncating the file instead would kill a process that reads its mapping behind the cut. Raises as `replace_file`.
    """

    replace_by_parts(path, [(0, size)])


Part = bytes | tuple[int, int]
"""Bytes, or a range of bytes of a file, start and stop."""


def replace_by_parts(path: Path, parts: Iterable[Part]) -> None:
    """Replace a file by bytes and parts of itself, in order. Raises as `replace_file`."""

    def write(descriptor: int) -> None:
        with path.open("rb") as file:
            for part in parts:
                if isinstance(part, bytes):
                    rest = memoryview(part)
                    while rest:
                        rest = rest[os.write(descriptor, rest) :]
                    continue
                copied, stop = part
                while copied < stop:
                    sent = os.sendfile(descriptor, file.fileno(), copied, stop - copied)
                    if not sent:
                        raise OSError(errno.EIO, "the file became shorter")
                    copied += sent

    _replace(path, write, flushed=True)


def _replace(path: Path, write: Callable[[int], None], *, flushed: bool, mode: int = _FOR_ALL) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}{NEW_SUFFIX}")
    try:
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
            try:
                write(descriptor)
                if flushed and not _is_unflushed(path):
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, path)
            if flushed:
                sync_folder(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise storage_error(error, path) from error


def remove_file(path: Path) -> None:
    """Remove a file for good, also after a power loss. Raises StreamReadOnlyError or LogError."""
    try:
        path.unlink()
        sync_folder(path.parent)
    except OSError as error:
        raise storage_error(error, path) from error
