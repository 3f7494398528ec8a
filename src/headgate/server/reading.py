"""When a client is read: not while it has a reason to wait."""

from __future__ import annotations

from headgate.server.link import Link

MAX_UNTAKEN_BYTES = 1 << 20
"""Answers that a client has not taken: beyond them it is not asked for more."""


class ReadingGate:
    """Pauses the reading of a link while there is a reason to, and resumes it with the end of the last one.

    Deliveries do not count as answers: a client may well send a lot before it reads, and neither side would ever go on.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._reasons: set[str] = set()
        self._untaken_bytes = 0

    @property
    def is_shut(self) -> bool:
        """Whether the client is not read."""
        return bool(self._reasons)

    def set(self, reason: str, on: bool) -> None:
        """There is a reason not to read, or it has ended."""
        before = self.is_shut
        (self._reasons.add if on else self._reasons.discard)(reason)
        if before != self.is_shut:
            (self._link.pause_reading if self.is_shut else self._link.resume_reading)()

    def answered(self, size_bytes: int) -> None:
        """So many bytes are about to be written; they wait if the link takes nothing now."""
        if not self._link.is_writable:
            self._untaken_bytes += size_bytes

    def limit_answers(self) -> None:
        """Shut for a client that does not take its answers."""
        self.set("slow", self._untaken_bytes > MAX_UNTAKEN_BYTES)

    def taken(self) -> None:
        """The link takes more again."""
        self._untaken_bytes = 0
        self.set("slow", False)

    def open(self) -> None:
        """Read on, whatever the reasons were: the peer is only listened to until it has gone."""
        self._reasons.clear()
        self._link.resume_reading()
