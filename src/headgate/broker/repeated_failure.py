"""A repeated failure: logged once, and tried again after a pause."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from headgate.broker.intervals import is_over

_RETRY_MS = 1_000

logger = logging.getLogger("headgate.broker")


@dataclass(slots=True)
class RepeatedFailure:
    """The last failure, and when it happened. Pauses are doubled, up to the longest one, until `clear`."""

    longest_pause_ms: int = _RETRY_MS
    text: str = ""
    noted_ms: int = 0
    _pause_ms: int = 0

    def note(self, what: str, error: Exception, now_ms: int) -> None:
        """Note a failure; the same one again is not logged."""
        self.noted_ms = now_ms
        self._pause_ms = min(max(_RETRY_MS, 2 * self._pause_ms), self.longest_pause_ms)
        if str(error) != self.text:
            self.text = str(error)
            logger.warning("%s: %s", what, error)

    def clear(self) -> None:
        """Note a success."""
        self.text, self._pause_ms = "", 0

    def rests(self, now_ms: int) -> bool:
        """Whether it is too early to try again."""
        return bool(self.text) and not is_over(self.noted_ms, self._pause_ms, now_ms)
