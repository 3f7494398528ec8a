"""The policy of a subscription: how its copies are delivered, and where undeliverable ones go."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.broker.delivery import Movement
from headgate.topic import SubscriptionSettings

MAX_DELIVERY_COUNT_EXCEEDED = "MaxDeliveryCountExceeded"


@dataclass(slots=True)
class SubscriptionPolicy:
    """The policy of one subscription, or of its dead letters; see `Policy`. It is changed in place.

    `settings` are those in force, within the limits of the topic. `dead_letters` and `deferred` are targets as the
    ledger names them; None: copies may not go there. While it `forwards`, receivers get no copies.
    """

    settings: SubscriptionSettings
    dead_letters: str | None = None
    deferred: str | None = None
    subscription: int = 0
    """The number of the subscription that the copies come from."""
    forwards: bool = False
    expires: bool = True
    """Whether copies are not given out after their time to live."""

    @property
    def max_attempts(self) -> int:
        """See `Policy`."""
        return self.settings.max_delivery_count

    @property
    def exhausted(self) -> Movement:
        """See `Policy`."""
        reason = f"the copy was given out {self.max_attempts} times, and not completed"
        return Movement(MAX_DELIVERY_COUNT_EXCEEDED, reason, subscription=self.subscription)

    def backoff_ms(self, attempt: int) -> int:
        """See `Policy`."""
        waits = self.settings.backoff_ms
        return waits[min(attempt, len(waits)) - 1] if waits else 0
