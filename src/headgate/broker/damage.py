"""Damage of streams: found by reading or writing, logged once, kept for lists.

An error of the file system counts as an error of the stream whose files are read.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import (
    HeadgateError,
    LogError,
    OffsetOutOfRangeError,
    RemoteStorageError,
    StorageFullError,
    StreamExistsError,
    StreamLockedError,
    StreamNotFoundError,
    StreamReadOnlyError,
)

_SOUND = (
    StreamNotFoundError,
    StreamExistsError,
    StreamLockedError,
    StreamReadOnlyError,
    StorageFullError,
    OffsetOutOfRangeError,
    RemoteStorageError,
)
_MOST_REASONS = 100
"""Limit: kept reasons of one stream; beyond it all are forgotten, and logged again."""

logger = logging.getLogger("headgate.broker")


def is_damage(error: BaseException) -> bool:
    """Whether an error means damaged files of a stream: no lock, full disk, missing stream or storage that fails."""
    return isinstance(error, LogError) and not isinstance(error, _SOUND)


@dataclass(slots=True)
class _Damage:
    """One damage: the text for clients, and the state of the file when it was found."""

    text: str
    path: Path
    found: os.stat_result | None

    def is_there(self) -> bool:
        """Whether the file seems unchanged; a file that only grew may be as damaged as before."""
        now = _stat(self.path)
        if now is None or self.found is None:
            return now is self.found
        before, self.found = self.found, now
        is_same_file = (before.st_dev, before.st_ino) == (now.st_dev, now.st_ino)
        return is_same_file and (before.st_mtime_ns == now.st_mtime_ns or now.st_size > before.st_size)


class KnownDamage:
    """The known damage of streams; for several threads."""

    def __init__(self) -> None:
        self._said: dict[str, dict[str, _Damage]] = {}
        """Stream → place of the error → damage."""
        self._lock = threading.Lock()

    def failed(self, stream: str, folder: Path, error: HeadgateError | OSError) -> HeadgateError:
        """The error to raise for a failure while a stream was read; damage is logged, each reason once.

        If the whole `folder` is gone the stream was deleted, which is no damage.
        """
        if isinstance(error, OSError):
            error = LogError(f"reading failed ({error.strerror or error})", path=error.filename or folder)
        if isinstance(error, LogError) and is_damage(error) and os.path.exists(folder):
            error.advice = (
                f"stream {stream!r} is damaged: headgate stream repair {stream} mends it while the server is stopped, "
                "or says what would be given up"
            )
            if self._is_new(stream, error):
                logger.error("stream %r is damaged: %s", stream, error.place)
        return error

    @contextmanager
    def guard(self, stream: str, folder: Path) -> Iterator[None]:
        """A context that turns errors inside as `failed` does."""
        try:
            yield
        except (LogError, OSError) as error:
            failure = self.failed(stream, folder, error)
            if failure is error:
                raise
            raise failure from error

    def of(self, stream: str) -> str | None:
        """The known damage of a stream; None without any, or when its files were restored."""
        with self._lock:
            said = self._said.get(stream, {})
            for place, damage in list(said.items()):
                if damage.is_there():
                    return damage.text
                del said[place]
            return None

    def all(self) -> dict[str, str]:
        """The known damage of all streams, by their names."""
        with self._lock:
            streams = sorted(self._said)
        return {stream: text for stream in streams if (text := self.of(stream)) is not None}

    def forget(self, stream: str) -> None:
        """A stream is deleted or repaired: damage found from now on is logged again."""
        with self._lock:
            self._said.pop(stream, None)

    def _is_new(self, stream: str, error: LogError) -> bool:
        with self._lock:
            said = self._said.setdefault(stream, {})
            if error.place in said:
                return False
            if len(said) >= _MOST_REASONS:
                said.clear()
            said[error.place] = _Damage(str(error), error.path, _stat(error.path))
            return True


def _stat(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None
