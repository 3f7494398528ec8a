"""Something that goes wrong and is tried again: told once, and not tried all the time."""

from __future__ import annotations

import logging
from dataclasses import dataclass

_RETRY_MS = 1_000

logger = logging.getLogger("headgate.broker")


@dataclass(slots=True)
class Trouble:
    """The last thing that went wrong, and when it is tried again."""

    text: str = ""
    not_before_ms: int = 0

    def note(self, what: str, error: Exception, now_ms: int) -> None:
        """It went wrong, perhaps again."""
        self.not_before_ms = now_ms + _RETRY_MS
        if str(error) != self.text:
            self.text = str(error)
            logger.warning("%s: %s", what, error)

    def clear(self) -> None:
        """It went well."""
        self.text, self.not_before_ms = "", 0
