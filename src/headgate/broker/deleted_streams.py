"""Deleted streams: what they have in object storage, and then their files, are removed in the background.

The folder of a deleted stream was set aside. It says what is in object storage, so it stays until that is gone: a
deletion that fails is tried again, and one that a crash ended is finished by the next broker.
"""

from __future__ import annotations

import os
from pathlib import Path

from headgate.broker.environment import Environment, run_here
from headgate.broker.repeated_failure import RepeatedFailure
from headgate.errors import HeadgateError, LogError
from headgate.log import Stream, deleted_folder, remove_set_aside

LONGEST_PAUSE_MS = 60_000


class DeletedStreams:
    """The folders of deleted streams; all calls are made in the broker's thread."""

    def __init__(self, environment: Environment) -> None:
        self._now_ms = environment.now_ms
        self._workers = environment.workers
        self._failed: dict[Path, RepeatedFailure] = {}
        """Folders whose deletion failed, until it is tried again."""
        self._is_closing = False
        folder = deleted_folder(environment.root)
        for name in sorted(os.listdir(folder)) if folder.is_dir() else []:
            self.remove(folder / name)

    def remove(self, folder: Path) -> None:
        """Remove a folder that was set aside, and before that what its stream has in object storage."""
        failure = self._failed.pop(folder, None) or RepeatedFailure(LONGEST_PAUSE_MS)
        worker = self._workers.transfers if _has_remote(folder) else None

        def work() -> None:
            remove_set_aside(folder)

        def ended(error: BaseException | None) -> None:
            if error is None:
                return
            if not isinstance(error, HeadgateError | OSError):
                raise error
            failure.note("objects of a deleted stream are still there; tried again", error, self._now_ms())
            self._failed[folder] = failure

        (worker or self._workers.urgent or run_here)(work, ended)

    def tick(self, now_ms: int) -> None:
        """Try again what failed; called about once a second."""
        for folder, failure in list(self._failed.items()):
            if not self._is_closing and not failure.rests(now_ms):
                self.remove(folder)

    def close(self) -> None:
        """Begin nothing more; the next broker goes on."""
        self._is_closing = True


def _has_remote(folder: Path) -> bool:
    try:
        return Stream.open(folder).remote is not None
    except LogError:
        return False
