"""Something that goes wrong and is tried again: told once, and not tried all the time."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from headgate.broker.timing import is_over

_RETRY_MS = 1_000

logger = logging.getLogger("headgate.broker")


@dataclass(slots=True)
class Trouble:
    """The last thing that went wrong, and when it is tried again."""

    text: str = ""
    noted_ms: int = 0

    def note(self, what: str, error: Exception, now_ms: int) -> None:
        """It went wrong, perhaps again."""
        self.noted_ms = now_ms
        if str(error) != self.text:
            self.text = str(error)
            logger.warning("%s: %s", what, error)

    def clear(self) -> None:
        """It went well."""
        self.text = ""

    def rests(self, now_ms: int) -> bool:
        """Whether it is not yet tried again."""
        return bool(self.text) and not is_over(self.noted_ms, _RETRY_MS, now_ms)
