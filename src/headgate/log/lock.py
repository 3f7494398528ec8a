"""One writer per stream: a lock that the operating system releases when its holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import platform
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from headgate.errors import StreamLockedError, StreamNotFoundError
from headgate.log.files import storage_error

LOCK_NAME = "writer.lock"
_NOTE_BYTES = 256
_GLANCES = 3

Wait = Callable[[int], bool]
"""Waits while another writer holds a lock: called with the number of failed attempts, it pauses and returns whether to
try again. `headgate.clock.patient` makes one."""


def no_wait(tries: int) -> bool:
    """Never try again."""
    return False


class StreamLock:
    """The right to write a stream. The file is deleted only with the stream; it holds a note (pid, host, start)."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @staticmethod
    def acquire(
        folder: Path, *, now_ms: int, wait: Wait = no_wait, note: Mapping[str, str] = MappingProxyType({})
    ) -> StreamLock:
        """Take the lock of a stream folder; `now_ms` is noted as the holder's start, together with `note`.

        Raises StreamLockedError that names the holder, StreamNotFoundError if there is no such folder,
        StreamReadOnlyError, StorageFullError.
        """
        path = f"{folder}/{LOCK_NAME}"
        descriptor = _locked_file(folder, path, wait)
        try:
            noted = {**note, "pid": os.getpid(), "host": platform.node(), "started_ms": now_ms}
            content = json.dumps(noted).encode()
            # The lock counts, not the note: a full disk must not keep a writer from truncating or retaining.
            with contextlib.suppress(OSError):
                # Overwritten, not truncated first: file systems flush a file that was truncated and grows again.
                os.pwrite(descriptor, content.ljust(_NOTE_BYTES), 0)
        except BaseException:
            os.close(descriptor)
            raise
        return StreamLock(descriptor)

    def release(self) -> None:
        """Release the lock; releasing twice is harmless."""
        if self._descriptor >= 0:
            # Unlock explicitly, not only by closing: a forked child may have inherited the descriptor.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> StreamLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def is_held(folder: Path) -> bool:
    """Whether a writer, or any other process that changes the stream, holds its lock now."""
    try:
        descriptor = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        # Closing releases it.
        os.close(descriptor)
    return False


def lock_note(folder: Path) -> dict[str, object]:
    """The note of the last holder of a lock; empty if it cannot be read."""
    try:
        noted = json.loads((folder / LOCK_NAME).read_bytes())
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


def _locked_file(folder: Path, path: str, wait: Wait) -> int:
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError as error:
            raise StreamNotFoundError("no stream here: its folder is gone", path=folder) from error
        except OSError as error:
            raise storage_error(error, path) from error
        try:
            _take(descriptor, path, wait)
            if _is_still_there(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        # Its holder deleted the stream: this lock does not protect a stream that was created since.
        os.close(descriptor)


def _is_still_there(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _take(descriptor: int, path: str, wait: Wait) -> None:
    for tries in itertools.count(1):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if tries <= _GLANCES:
                # The holder may be a reader that looks for a writer (`is_held`), for some microseconds.
                os.sched_yield()
                continue
            if not wait(tries - _GLANCES):
                raise StreamLockedError(f"another writer holds the stream: {_holder(descriptor)}", path=path) from error
        except OSError as error:
            raise storage_error(error, path) from error


def _holder(descriptor: int) -> str:
    try:
        noted = json.loads(os.pread(descriptor, 4096, 0))
        since = datetime.fromtimestamp(int(noted["started_ms"]) // 1000, UTC)
        return f"process {int(noted['pid'])} on {noted['host']}, since {since:%Y-%m-%dT%H:%M:%SZ}"
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return "an unknown process"
