"""Temporary folders that a killed process does not leave behind for ever.

    <temporary folder>/headgate-<purpose>-…/lock       locked by the process that made it, as long as it lives
    <temporary folder>/headgate-<purpose>-…/files/     its content

Before a folder is made, those of the same user whose lock nobody holds are removed, whatever they were for. The
operating system releases a lock when its holder ends, so a folder in use is never removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from enum import StrEnum
from pathlib import Path


class Purpose(StrEnum):
    """The purpose of a temporary folder."""

    SERVER = "server"
    """The root of a server in memory."""
    SCANS = "scans"
    """The reads of a Spark session."""

    @property
    def prefix(self) -> str:
        """How the names of its folders begin."""
        return f"headgate-{self.value}-"


_LOCK = "lock"
_CONTENT = "files"


class TemporaryFolder:
    """An empty folder of this process, at `path` until it is left or `remove` is called. Raises OSError."""

    def __init__(self, purpose: Purpose) -> None:
        _sweep()
        while True:
            self._folder = Path(tempfile.mkdtemp(prefix=purpose.prefix))
            locked = locked_file(self._folder / _LOCK, create=True)
            # Another process may have swept the folder in the moment before it was locked.
            if locked is not None:
                break
        self._lock = locked
        self.path = self._folder / _CONTENT
        self.path.mkdir()

    def remove(self) -> None:
        """Remove it with all its files, as far as that is possible; again is harmless."""
        if self._lock >= 0:
            _remove(self._folder)
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()


def locked_file(path: Path, *, create: bool) -> int | None:
    """The descriptor of a lock file, held; None if another process holds it, or it is not there (any more)."""
    try:
        descriptor = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def _sweep() -> None:
    prefixes = tuple(purpose.prefix for purpose in Purpose)
    with os.scandir(tempfile.gettempdir()) as entries:
        found = [entry for entry in entries if entry.name.startswith(prefixes)]
    for entry in found:
        with contextlib.suppress(OSError):
            if not entry.is_dir(follow_symlinks=False) or entry.stat(follow_symlinks=False).st_uid != os.getuid():
                continue
            folder = Path(entry.path)
            lock = locked_file(folder / _LOCK, create=False)
            if lock is not None:
                _remove(folder)
                os.close(lock)
            elif not (folder / _LOCK).exists():
                # Its process died before it made the lock. One that is about to make it begins again.
                folder.rmdir()


def _remove(folder: Path) -> None:
    """The lock goes last: as long as something is left it says that nobody lives there."""
    with contextlib.suppress(OSError):
        shutil.rmtree(folder / _CONTENT, ignore_errors=True)
        os.unlink(folder / _LOCK)
        folder.rmdir()
