"""Flow control with a client: when it is read, whether it takes its answers, and silence on both sides."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from headgate.broker import Backlog
from headgate.clock import Clock
from headgate.server.settings import Limits
from headgate.server.transport import Buffer, Transport

MAX_UNTAKEN_BYTES = 1 << 20
"""Limit: bytes of answers that a client has not taken. Beyond it the client is not read."""


class Waiting(enum.Enum):
    """Why a client is not read."""

    LOGIN = "its login is being checked"
    UNWRITTEN = "too much of what it published is not in its streams yet"
    LEAVING = "all that it published is answered first, then the connection ends"
    SLOW = "it does not take its answers"


class FlowControl:
    """The reads and writes of a handler on its transport.

    The client is read while there is no reason to wait. Deliveries do not count as untaken answers: a client may send
    a lot before it reads, and neither side would ever go on. Silence is measured by the clock that never jumps; a
    client that is not read is not silent, unless the reason is that it takes no answers.
    """

    __slots__ = ("_clock", "_heard_s", "_said_s", "_slow_since_s", "_transport", "_untaken_bytes", "_waiting")

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self._transport = transport
        self._clock = clock
        self._waiting: set[Waiting] = set()
        self._untaken_bytes = 0
        self._slow_since_s: float | None = None
        self._heard_s = self._said_s = clock.monotonic_s()

    # hearing

    def heard(self) -> None:
        """Bytes came from the client."""
        self._heard_s = self._clock.monotonic_s()

    def is_silent(self, limit_s: float) -> bool:
        """Whether for longer than `limit_s` nothing came from a client that is read, or no answer was taken."""
        if self._slow_since_s is not None:
            return self._clock.monotonic_s() - self._slow_since_s > limit_s
        return not self._waiting and self._clock.monotonic_s() - self._heard_s > limit_s

    def wait(self, reason: Waiting) -> None:
        """Do not read the client for now."""
        if not self._waiting:
            self._transport.pause_reading()
        self._waiting.add(reason)

    def go_on(self, reason: Waiting) -> None:
        """A reason to wait has ended. Again is harmless."""
        # Mostly there is no reason, and hashing an enumeration runs in Python.
        if self._waiting and reason in self._waiting:
            self._waiting.remove(reason)
            if not self._waiting:
                self._resume()

    def only_listen(self) -> None:
        """Read on without regard to reasons to wait: the client is not served any more, only read until it has gone."""
        self._waiting.clear()
        self._slow_since_s = None
        self._resume()

    def _resume(self) -> None:
        self.heard()
        self._transport.resume_reading()

    def limit_backlog(self, backlog: Backlog, limits: Limits) -> None:
        """Wait while the messages of the client that are not in their streams yet exceed the limits."""
        backlog.limit(
            entries=limits.unconfirmed_messages,
            size_bytes=limits.unconfirmed_bytes,
            # At once: a loop may read dozens of times in one turn, before anything is written.
            full=lambda: self.wait(Waiting.UNWRITTEN),
            room=lambda: self.go_on(Waiting.UNWRITTEN),
        )

    # saying

    def say(self, output: Buffer | Sequence[Buffer]) -> None:
        """Send bytes, if there are any."""
        if output:
            if not self._transport.is_writable:
                pieces = (output,) if isinstance(output, bytes | bytearray | memoryview) else output
                self._untaken_bytes += sum(map(len, pieces))
            self._said_s = self._clock.monotonic_s()
            self._transport.write(output)

    def is_due(self, interval_s: float) -> bool:
        """Whether nothing was sent for `interval_s`."""
        return self._clock.monotonic_s() - self._said_s >= interval_s

    def limit_answers(self) -> None:
        """Wait for a client that does not take its answers."""
        if self._untaken_bytes > MAX_UNTAKEN_BYTES:
            if self._slow_since_s is None:
                self._slow_since_s = self._clock.monotonic_s()
            self.wait(Waiting.SLOW)

    def taken(self) -> None:
        """The transport takes more again."""
        self._untaken_bytes = 0
        self._slow_since_s = None
        self.go_on(Waiting.SLOW)
