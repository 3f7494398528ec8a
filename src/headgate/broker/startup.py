"""Opening after a start, a few parts each tick: timed work beside streams goes on without a client."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from headgate.errors import BrokerError, LogError
from headgate.log import STREAMS_FOLDER, name_of_folder

logger = logging.getLogger("headgate.broker")


class Startup:
    """The streams that have a file or folder of some name, each opened once after the start."""

    def __init__(self, root: Path, has: str, open_: Callable[[str], object], a_tick: int, trouble: str) -> None:
        """`open_` opens the state of one stream; LogError and BrokerError are logged with `trouble` about it."""
        self._root = root
        self._has = has
        self._open = open_
        self._a_tick = a_tick
        self._trouble = trouble
        self._left: list[str] | None = None

    def names(self) -> list[str]:
        """The names of these streams, sorted."""
        return sorted(name_of_folder(path.parent) for path in self._root.glob(f"{STREAMS_FOLDER}/*/{self._has}"))

    def tick(self) -> None:
        """Open the next ones."""
        if self._left is None:
            self._left = self.names()
        for _ in range(min(self._a_tick, len(self._left))):
            self.open(self._left.pop())

    def open(self, name: str) -> None:
        """Open one; an error is logged."""
        try:
            self._open(name)
        except (LogError, BrokerError) as error:
            logger.warning(f"{self._trouble}: %s", name, error)

    def again(self, name: str) -> None:
        """Open one in a later tick, as it was closed."""
        if self._left is not None:
            self._left.append(name)
