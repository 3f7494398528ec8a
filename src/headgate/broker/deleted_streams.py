"""Deleted streams: what they have in object storage, and then their files, are removed in the background.

The folder of a deleted stream was set aside. It says what is in object storage, so it stays until that is gone: a
deletion that fails is tried again, and one that a crash ended is finished by the next broker.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from headgate.broker.environment import Environment, run_here
from headgate.broker.intervals import is_over
from headgate.errors import HeadgateError, LogError
from headgate.log import Stream, deleted_folder, remove_set_aside

FIRST_PAUSE_MS = 1_000
LONGEST_PAUSE_MS = 60_000

logger = logging.getLogger("headgate.broker")


@dataclass(slots=True)
class _Waiting:
    """A folder whose deletion is tried again after a pause."""

    since_ms: int
    pause_ms: int
    is_running: bool = True
    told: str = ""


class DeletedStreams:
    """The folders of deleted streams; all calls are made in the broker's thread."""

    def __init__(self, environment: Environment) -> None:
        self._now_ms = environment.now_ms
        self._workers = environment.workers
        self._waiting: dict[Path, _Waiting] = {}
        self._is_closing = False
        folder = deleted_folder(environment.root)
        for name in sorted(os.listdir(folder)) if folder.is_dir() else []:
            self.remove(folder / name)

    def remove(self, folder: Path) -> None:
        """Remove a folder that was set aside, and before that what its stream has in object storage."""
        waiting = self._waiting.setdefault(folder, _Waiting(0, 0))
        waiting.is_running = True
        worker = self._workers.transfers if _has_remote(folder) else None

        def work() -> None:
            remove_set_aside(folder)

        def ended(error: BaseException | None) -> None:
            if error is not None and not isinstance(error, HeadgateError | OSError):
                raise error
            if error is None:
                self._waiting.pop(folder, None)
                return
            waiting.is_running, waiting.since_ms = False, self._now_ms()
            waiting.pause_ms = min(max(FIRST_PAUSE_MS, 2 * waiting.pause_ms), LONGEST_PAUSE_MS)
            if str(error) != waiting.told:
                waiting.told = str(error)
                logger.warning("objects of a deleted stream are still there; tried again: %s", error)

        (worker or self._workers.urgent or run_here)(work, ended)

    def tick(self, now_ms: int) -> None:
        """Try again what failed; called about once a second."""
        for folder, waiting in list(self._waiting.items()):
            if not waiting.is_running and not self._is_closing and is_over(waiting.since_ms, waiting.pause_ms, now_ms):
                self.remove(folder)

    def close(self) -> None:
        """Begin nothing more; the next broker goes on."""
        self._is_closing = True


def _has_remote(folder: Path) -> bool:
    try:
        return Stream.open(folder).remote is not None
    except LogError:
        return False
