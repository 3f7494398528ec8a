"""The sweep of a topic for expired copies, once a second, so that counts are right without a receiver.

As messages lie in order of time, the sweep reads none of them, and knows only the time to live in the settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headgate.broker.intervals import is_over
from headgate.broker.repeated_failure import RepeatedFailure
from headgate.broker.stream import BrokerStream
from headgate.broker.topics.dispatcher import Dispatcher
from headgate.broker.topics.expiry import first_not_before
from headgate.errors import HeadgateError
from headgate.ledger import copy_number

SWEEP_MS = 1_000


class ExpirySweep:
    """Gives up the expired copies of one topic; `touch` asks for a turn."""

    def __init__(
        self, stream: BrokerStream, dispatchers: Callable[[], Iterable[Dispatcher]], touch: Callable[[], None]
    ) -> None:
        self._stream = stream
        self._dispatchers = dispatchers
        self._touch = touch
        self._looked_ms = -SWEEP_MS
        self.is_asked_for = False
        """Whether copies may have expired."""
        self._trouble = RepeatedFailure()

    def tick(self, now_ms: int) -> None:
        """Once a second, ask for a turn if copies may have expired."""
        if is_over(self._looked_ms, SWEEP_MS, now_ms):
            self._looked_ms = now_ms
            self.is_asked_for = any(map(_may_be_outlived, self._dispatchers()))
            if self.is_asked_for:
                self._touch()

    def turn(self, now_ms: int) -> None:
        """Give up some expired copies; asks for another turn if there may be more."""
        try:
            self.is_asked_for = self._run(now_ms)
        except HeadgateError as error:
            self.is_asked_for = False
            self._trouble.note(f"topic {self._stream.name!r}: old copies stay", error, now_ms)
        if self.is_asked_for:
            self._touch()

    def _run(self, now_ms: int) -> bool:
        stops: dict[int, int] = {}
        has_more = False
        for dispatcher in filter(_may_be_outlived, self._dispatchers()):
            lifetime_ms = dispatcher.policy.settings.default_time_to_live_ms
            assert lifetime_ms is not None
            if lifetime_ms not in stops:
                stops[lifetime_ms] = first_not_before(self._stream, now_ms - lifetime_ms + 1)
            has_more |= dispatcher.outlive(copy_number(stops[lifetime_ms]))
        return has_more


def _may_be_outlived(dispatcher: Dispatcher) -> bool:
    return dispatcher.policy.settings.default_time_to_live_ms is not None and dispatcher.counts().active > 0
