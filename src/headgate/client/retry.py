"""Trying again when a connection is lost: how often, how long."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from headgate.errors import ConnectionLostError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Retry:
    """Pauses between attempts double from `first_s` to `most_s`; after `give_up_after_s` the last error is raised."""

    first_s: float = 0.1
    most_s: float = 5.0
    give_up_after_s: float = 60.0

    def run(self, attempt: Callable[[], T]) -> T:
        """What `attempt` gives, which is called again as long as it raises ConnectionLostError."""
        begun = time.monotonic()
        pause_s = self.first_s
        while True:
            try:
                return attempt()
            except ConnectionLostError:
                if time.monotonic() + pause_s - begun > self.give_up_after_s:
                    raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, self.most_s)
