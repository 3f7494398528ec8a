"""Idle subscriptions: they are removed after the idle time in their settings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headgate.broker.intervals import IdleTimes, is_over
from headgate.broker.repeated_failure import RepeatedFailure
from headgate.broker.topics.dispatcher import Dispatcher
from headgate.broker.topics.rule_change import Changed
from headgate.errors import HeadgateError

LOOK_MS = 1_000

logger = logging.getLogger("headgate.broker")


@dataclass(frozen=True, slots=True)
class IdleSubscription:
    """A subscription that may be removed; `is_used`: it is in use in ways that its dispatcher does not know."""

    number: int
    name: str
    dispatcher: Dispatcher
    is_used: bool


class AutoDelete:
    """Finds idle subscriptions of one topic, and has them removed. The idle time of each starts when it is opened."""

    def __init__(
        self, subscriptions: Callable[[], Iterable[IdleSubscription]], remove: Callable[[str, Changed], None]
    ) -> None:
        """`remove` takes a subscription's name; it may answer at once or later."""
        self._subscriptions = subscriptions
        self._remove = remove
        self._looked_ms = -LOOK_MS
        self._idle_times: IdleTimes[int] = IdleTimes()
        self._removing: set[int] = set()
        self._trouble = RepeatedFailure()

    def tick(self, now_ms: int) -> None:
        """Check once a second; an idle subscription is removed by a change of the topic."""
        if not is_over(self._looked_ms, LOOK_MS, now_ms):
            return
        self._looked_ms = now_ms
        candidates = list(self._subscriptions())
        for candidate in candidates:
            if candidate.is_used or candidate.dispatcher.receivers:
                candidate.dispatcher.used_ms = now_ms
        idle_ms = self._idle_times.look({each.number: each.dispatcher.used_ms for each in candidates}, now_ms)
        for candidate in candidates:
            allowed_ms = candidate.dispatcher.policy.settings.auto_delete_on_idle_ms
            if (
                allowed_ms is not None
                and candidate.number not in self._removing
                and idle_ms[candidate.number] >= allowed_ms
            ):
                self._begin(candidate, allowed_ms, now_ms)

    def _begin(self, candidate: IdleSubscription, allowed_ms: int, now_ms: int) -> None:
        def ended(result: int | HeadgateError) -> None:
            self._removing.discard(candidate.number)
            if isinstance(result, HeadgateError):
                self._trouble.note(f"{candidate.dispatcher.name!r} is idle and stays", result, now_ms)
            else:
                logger.info("%s was removed: nobody used it for %d ms", candidate.dispatcher.name, allowed_ms)

        self._removing.add(candidate.number)
        try:
            self._remove(candidate.name, ended)
        except HeadgateError as error:
            ended(error)
