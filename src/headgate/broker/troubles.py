"""Damage of streams: found when one is read or written, written to the log once, kept for lists.

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
)
_MOST_REASONS = 100
"""Of one stream; beyond them all are forgotten, and said again."""

logger = logging.getLogger("headgate.broker")


def is_damage(error: BaseException) -> bool:
    """Whether an error says that the files of a stream are wrong, and not who may use it just now."""
    return isinstance(error, LogError) and not isinstance(error, _SOUND)


@dataclass(slots=True)
class _Damage:
    """Something wrong: what clients are told of it, and the file as it was then."""

    text: str
    path: Path
    found: os.stat_result | None

    def is_there(self) -> bool:
        """Whether the file is as it was, as far as one can see; a file that only grew may be as wrong as before."""
        now = _stat(self.path)
        if now is None or self.found is None:
            return now is self.found
        before, self.found = self.found, now
        is_same_file = (before.st_dev, before.st_ino) == (now.st_dev, now.st_ino)
        return is_same_file and (before.st_mtime_ns == now.st_mtime_ns or now.st_size > before.st_size)


class Troubles:
    """What was said already, by streams; for several threads."""

    def __init__(self) -> None:
        self._said: dict[str, dict[str, _Damage]] = {}
        """By stream, and by what is wrong."""
        self._lock = threading.Lock()

    def failed(self, stream: str, folder: Path, error: HeadgateError | OSError) -> HeadgateError:
        """What to raise for an error that came while a stream was read; damage is said in the log, each reason once.

        What is missing where the whole `folder` is gone was deleted.
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
        """`failed` for everything that is done inside."""
        try:
            yield
        except (LogError, OSError) as error:
            failure = self.failed(stream, folder, error)
            if failure is error:
                raise
            raise failure from error

    def of(self, stream: str) -> str | None:
        """What is wrong with a stream, as far as somebody met it; None for nothing, or for files that were restored."""
        with self._lock:
            said = self._said.get(stream, {})
            for place, damage in list(said.items()):
                if damage.is_there():
                    return damage.text
                del said[place]
            return None

    def all(self) -> dict[str, str]:
        """What is wrong, by the names of the streams."""
        with self._lock:
            streams = sorted(self._said)
        return {stream: text for stream in streams if (text := self.of(stream)) is not None}

    def forget(self, stream: str) -> None:
        """A stream is gone, or well again: damage that is met from now on is logged again."""
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
