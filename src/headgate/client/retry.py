"""Trying again when a connection is lost: how often, how long."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from headgate.errors import ConnectionLostError, EncryptionError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Retry:
    """Pauses between attempts double from `first_s` to `most_s`; after `give_up_after_s` the last error is raised."""

    first_s: float = 0.1
    most_s: float = 5.0
    give_up_after_s: float = 60.0

    def run(self, attempt: Callable[[], T]) -> T:
        """The result of `attempt`, which is repeated as long as it raises ConnectionLostError.

        EncryptionError is raised at once.
        """
        begun = time.monotonic()
        pause_s = self.first_s
        while True:
            try:
                return attempt()
            except EncryptionError:
                raise
            except ConnectionLostError:
                if time.monotonic() + pause_s - begun > self.give_up_after_s:
                    raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, self.most_s)


class Losses:
    """Limits how long connections may break one after the other, as `Retry` limits attempts to connect.

    Otherwise a client would read for ever from a server that always closes at the same damaged chunk.
    """

    def __init__(self, retry: Retry) -> None:
        self._retry = retry
        self._begun_at: float | None = None
        self._connected_at = 0.0
        self._pause_s = 0.0

    def received(self) -> None:
        """The connection was of use."""
        self._begun_at = None

    def lost(self, error: ConnectionLostError) -> None:
        """Return when to connect again; raises the error when that was in vain for too long."""
        retry, now = self._retry, time.monotonic()
        # A connection that lasted long counts as a success, even without traffic.
        if self._begun_at is None or now - self._connected_at > retry.most_s:
            self._begun_at, self._pause_s = now, retry.first_s
        elif now + self._pause_s - self._begun_at > retry.give_up_after_s:
            raise error
        else:
            time.sleep(self._pause_s)
            self._pause_s = min(2 * self._pause_s, retry.most_s)
        self._connected_at = time.monotonic()
