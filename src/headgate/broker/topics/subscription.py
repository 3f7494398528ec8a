"""One subscription of a topic at work, and how users see it."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.broker.delivery import TargetKind
from headgate.broker.topics.dispatcher import CopyCounts, Dispatcher
from headgate.broker.topics.policy import SubscriptionPolicy
from headgate.broker.topics.settler import ViewCounters
from headgate.broker.topics.subscription_source import SubscriptionSource
from headgate.errors import PreconditionFailedError
from headgate.ledger import offset_of
from headgate.topic import SubscriptionSettings, SubscriptionVersion


@dataclass(slots=True)
class SubscriptionInfo:
    """A subscription as users see it; `pins` is the lowest offset that it needs, None if it needs none.

    `dead_lettered` and `deferred` are None where files would have to be opened to count them.
    """

    name: str
    number: int
    settings: SubscriptionSettings
    counts: CopyCounts
    dead_lettered: int | None
    deferred: int | None
    receivers: int
    forwarding: int
    """Copies and dead letters on their way to other streams."""
    pins: int | None
    counters: ViewCounters


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """The number of copies that wait for a receiver or for their time, and the number of receivers."""

    message_count: int
    consumer_count: int


@dataclass(slots=True)
class BrokerSubscription:
    """A subscription with the source and the dispatcher of its copies."""

    version: SubscriptionVersion
    policy: SubscriptionPolicy
    source: SubscriptionSource
    dispatcher: Dispatcher

    def follow(self, version: SubscriptionVersion, settings: SubscriptionSettings) -> None:
        """Apply a change: `settings` are in force, within the limits of the topic."""
        self.version = version
        self.policy.settings = settings
        self.policy.forwards = version.forward_to is not None
        elsewhere, number = version.settings.forward_dead_letters_to, version.number
        self.policy.dead_letters = (
            TargetKind.DEAD_LETTERS.named(number) if elsewhere is None else TargetKind.STREAM.named(elsewhere)
        )

    def refusal(self) -> PreconditionFailedError:
        """The error for receivers of a subscription that forwards its copies."""
        return PreconditionFailedError(
            f"the subscription forwards to {self.version.forward_to!r}; nobody receives from it",
            subject=self.dispatcher.name,
        )

    def needed_from(self, decided_until: int) -> int:
        """The lowest offset that it may need; all messages below `decided_until` are decided."""
        view = self.dispatcher.view
        if self.dispatcher.unseen:
            return offset_of(view.floor)
        # It has no copies among the decided messages that were not looked at.
        return min(offset_of(view.floor_of_rows), decided_until)
