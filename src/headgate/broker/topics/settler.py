"""Settlement of the copies of one subscription, or of its dead letters, by their tokens.

A settlement counts when `then` is called without an error: when it is on disk.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from headgate.broker.delivery import (
    NO_PROPERTIES,
    Consumption,
    CopySource,
    LeaseCounters,
    Leases,
    Movement,
    Properties,
    Settled,
    nobody_asks,
    noted,
)
from headgate.broker.topics.policy import SubscriptionPolicy
from headgate.errors import PreconditionFailedError
from headgate.ledger import Tokens, View

Receiver = TypeVar("Receiver")


@dataclass(frozen=True, slots=True)
class DeadLetterReason:
    """Why a copy becomes a dead letter: application properties; `properties`, plain or typed JSON, are further ones."""

    reason: str | None = None
    description: str | None = None
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True)
class ViewCounters(LeaseCounters):
    """Counters of the copies of a view, since the broker opened it.

    `outlived` counts copies that outlived their time to live. `dead_lettered` counts copies that receivers
    dead-lettered, copies with too many attempts, and outlived ones where these become dead letters. `expired` counts
    claims that ended.
    """

    decided: int = 0
    released: int = 0
    deferred: int = 0
    outlived: int = 0


class Settler(Leases[Receiver]):
    """Settlement of the claimed copies of a subscription by clients, whichever receiver claimed them."""

    def __init__(
        self,
        name: str,
        view: View,
        source: CopySource,
        consumption: Consumption,
        policy: SubscriptionPolicy,
        now_ms: Callable[[], int],
    ) -> None:
        super().__init__(name, view, source, consumption, now_ms)
        self.policy: SubscriptionPolicy = policy
        self.counters: ViewCounters = ViewCounters()

    @property
    def lock_ms(self) -> int:
        """How long a claim lasts."""
        return self.policy.settings.lock_ms

    @property
    def time_to_live_ms(self) -> int | None:
        """How long copies live, unless their messages say less; None: for ever."""
        return self.policy.settings.default_time_to_live_ms

    @property
    @abstractmethod
    def lag(self) -> int:
        """How many copies no receiver has."""

    def holds(self, tokens: Sequence[bytes]) -> list[bool]:
        """For each token whether its claim still stands."""
        held: list[bool] = self.view.holds(Tokens.unpack(tokens)).tolist()
        return held

    def release(
        self,
        tokens: Sequence[bytes],
        then: Settled = nobody_asks,
        *,
        counts: bool,
        delay_ms: int | None = None,
        properties: Properties = NO_PROPERTIES,
    ) -> None:
        """Give copies back. If it `counts`, a copy after its last allowed attempt becomes a dead letter.

        Copies are available after `delay_ms`; None: after the subscription's backoff if it `counts`, else at once. At
        their next delivery `properties` replace those of the same names.
        """

        def settle(given: Tokens) -> NDArray[np.bool_]:
            self._keep_properties(given, properties)
            dead_lettered = self.counters.dead_lettered
            if counts:
                held = self._fail(given, delay_ms)
            else:
                held = self.view.release(given, counts=False, not_before_ms=self._not_before(delay_ms))
            self.counters.released += int(np.count_nonzero(held)) - (self.counters.dead_lettered - dead_lettered)
            return held

        self.change(tokens, then, settle)
        self.wake()

    def _keep_properties(self, tokens: Tokens, properties: Properties) -> None:
        """Note properties for claimed copies, which they have when they are given out again."""
        if properties:
            for copy in tokens.copies[self.view.holds(tokens)].tolist():
                self.view.note(copy, noted(self.view.notes.get(copy), properties))

    def dead_letter(self, tokens: Sequence[bytes], then: Settled = nobody_asks, *, why: DeadLetterReason) -> None:
        """Move copies to the dead letters. Dead letters themselves are only settled."""
        if self.policy.dead_letters is None:
            then(PreconditionFailedError("dead letters have no dead letters of their own", subject=self.name))
            return
        movement = Movement(why.reason, why.description, dict(why.properties), self.policy.subscription)
        self.change(tokens, then, lambda given: self.dead_letter_held(given, movement))

    def defer(
        self, tokens: Sequence[bytes], then: Settled = nobody_asks, *, properties: Properties = NO_PROPERTIES
    ) -> None:
        """Defer copies: they are received by their number only, with `properties` as for `release`."""
        target = self.policy.deferred
        if target is None:
            then(PreconditionFailedError("what is here cannot be deferred", subject=self.name))
            return
        movement = Movement(properties=dict(properties))

        def settle(given: Tokens) -> NDArray[np.bool_]:
            held = self._move_claimed(given, target, movement)
            self.counters.deferred += int(np.count_nonzero(held))
            return held

        self.change(tokens, then, settle)

    def renew(self, tokens: Sequence[bytes], then: Settled = nobody_asks) -> int:
        """Renew claims for a lock time from now; gives their end, in milliseconds."""
        until_ms = self.now_ms() + self.policy.settings.lock_ms
        self.change(tokens, then, lambda given: self.view.renew(given, until_ms))
        return until_ms
