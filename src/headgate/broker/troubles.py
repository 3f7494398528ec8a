"""What is wrong with the files of streams: found by whoever reads or writes one, said in the log once.

An error of the file system counts as an error of the stream whose files are read.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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


class Troubles:
    """What was said already, by streams; for several threads."""

    def __init__(self) -> None:
        self._said: dict[str, set[str]] = {}
        self._lock = threading.Lock()

    def failed(self, stream: str, folder: Path, error: HeadgateError | OSError) -> HeadgateError:
        """What to raise for an error that came while a stream was read; damage is said in the log, each reason once.

        What is missing where the whole `folder` is gone was deleted.
        """
        if isinstance(error, OSError):
            error = LogError(f"reading failed ({error.strerror or error})", path=error.filename or folder)
        if is_damage(error) and os.path.exists(folder) and self._is_new(stream, str(error)):
            logger.error("stream %r is damaged: %s", stream, error)
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

    def forget(self, stream: str) -> None:
        """A stream is gone: what is wrong with one that is made anew is said again."""
        with self._lock:
            self._said.pop(stream, None)

    def _is_new(self, stream: str, reason: str) -> bool:
        with self._lock:
            said = self._said.setdefault(stream, set())
            if reason in said:
                return False
            if len(said) >= _MOST_REASONS:
                said.clear()
            said.add(reason)
            return True
