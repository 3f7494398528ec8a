"""Receivers: a receiver gives the copies of a subscription to one link, and settles them.

A receiver says how many copies its peer takes; it is given them when their claims are on disk. A settlement counts when
`then` is called without an error: when it is on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headgate.broker.delivery import NO_PROPERTIES, GivenCopies, Properties, Settled, nobody_asks
from headgate.errors import HeadgateError
from headgate.topic import SubscriptionName

if TYPE_CHECKING:
    from headgate.broker.topics.dispatcher import Dispatcher


def nobody_waits() -> None:
    """A `ran_out` that does nothing."""


@dataclass(frozen=True, slots=True)
class DeadLetterReason:
    """Why a copy becomes a dead letter: application properties; `properties`, plain or typed JSON, are further ones."""

    reason: str | None = None
    description: str | None = None
    properties: Properties = field(default_factory=dict)


class Settler:
    """Settles copies of one subscription by their tokens, of any receiver; from `BrokerTopic.settler`."""

    __slots__ = ("_dispatcher",)

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    @property
    def lock_ms(self) -> int:
        """How long a claim lasts."""
        return self._dispatcher.policy.settings.lock_ms

    @property
    def time_to_live_ms(self) -> int | None:
        """How long copies live, unless their messages say less; None: for ever."""
        return self._dispatcher.policy.settings.default_time_to_live_ms

    def holds(self, tokens: Sequence[bytes]) -> list[bool]:
        """For each token whether its claim still stands."""
        return self._dispatcher.holds(tokens)

    def complete(self, tokens: Sequence[bytes], then: Settled = nobody_asks) -> None:
        """Settle copies: they do not come back."""
        self._dispatcher.complete(tokens, then)

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
        self._dispatcher.release(tokens, then, counts=counts, delay_ms=delay_ms, properties=properties)

    def dead_letter(self, tokens: Sequence[bytes], then: Settled = nobody_asks, *, why: DeadLetterReason) -> None:
        """Move copies to the dead letters. Dead letters themselves are only settled."""
        self._dispatcher.dead_letter(tokens, then, why)

    def defer(
        self, tokens: Sequence[bytes], then: Settled = nobody_asks, *, properties: Properties = NO_PROPERTIES
    ) -> None:
        """Defer copies: they are received by their number only, with `properties` as for `release`."""
        self._dispatcher.defer(tokens, then, properties)

    def renew(self, tokens: Sequence[bytes], then: Settled = nobody_asks) -> int:
        """Renew claims for a lock time from now; gives their end, in milliseconds."""
        return self._dispatcher.renew(tokens, then)


@dataclass(frozen=True, slots=True)
class ReceiverCalls:
    """The link of a receiver: the calls that it gets, how copies are settled, and its name in its protocol.

    `deliver` is called with copies in order, at most as many as are wanted; `ran_out` each time that more are wanted
    than there are; `ended` when the subscription is no more. With `settles_first` copies are settled before they are
    given out, and a peer that fails loses them.
    """

    deliver: Callable[[GivenCopies], None]
    ended: Callable[[HeadgateError], None]
    ran_out: Callable[[], None] = nobody_waits
    settles_first: bool = False
    tag: str = ""


class Receiver(Settler):
    """One link's receiver, from `BrokerTopic.receiver` to `close`."""

    __slots__ = (
        "_link",
        "delivered_bytes",
        "delivered_messages",
        "given_before",
        "is_closed",
        "name",
        "settles_first",
        "tag",
        "wanted",
    )

    def __init__(self, dispatcher: Dispatcher, link: ReceiverCalls) -> None:
        super().__init__(dispatcher)
        self._link = link
        self.settles_first = link.settles_first
        self.tag = link.tag
        self.wanted = 0
        self.delivered_messages = self.delivered_bytes = 0
        self.given_before = -1
        """How many copies it had been given at the last check after deciding stopped."""
        self.is_closed = False
        self.name: SubscriptionName | None = None
        """The subscription that its session receives from, for lists."""

    @property
    def lag(self) -> int:
        """How many copies of its subscription are free for a receiver."""
        counts = self._dispatcher.counts()
        return counts.active + counts.waiting

    def want(self, count: int) -> None:
        """Set how many copies its peer takes now; 0 while the link is full."""
        self.wanted = count
        if count:
            self._dispatcher.touch()

    def close(self) -> None:
        """Stop receiving; its copies stay claimed until their time. Again is harmless."""
        if not self.is_closed:
            self.is_closed = True
            self.wanted = 0
            self._dispatcher.left(self)

    # the dispatcher's side

    def given(self, deliveries: GivenCopies, size_bytes: int) -> None:
        """Deliver copies whose claims are on disk; their messages have `size_bytes` bytes."""
        self.delivered_messages += len(deliveries.attempts)
        self.delivered_bytes += size_bytes
        self._link.deliver(deliveries)

    def run_out(self) -> None:
        """It was given all available copies, and wants more."""
        self._link.ran_out()

    def end(self, error: HeadgateError) -> None:
        """Its subscription is no more."""
        if not self.is_closed:
            self.is_closed = True
            self.wanted = 0
            self._link.ended(error)
