"""Receivers: one link's way to the copies of a subscription, and to settling them.

A receiver says how many copies its peer takes; it is given them when their claims are on disk. What it settles counts
when `then` is called without an error, which is when that is on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from headgate.broker.consumption import Settled
from headgate.broker.topics.copies import GivenCopies
from headgate.errors import HeadgateError
from headgate.topic import SubscriptionName

if TYPE_CHECKING:
    from headgate.broker.topics.dispatcher import Dispatcher

Properties = Mapping[str, object]
"""Application properties that a copy gets, plain or typed JSON."""

NO_PROPERTIES: Properties = MappingProxyType({})


def nobody_asks(_result: list[bool] | HeadgateError) -> None:
    """For who settles without waiting for the answer."""


def nobody_waits() -> None:
    """For who need not know that there is nothing more for now."""


@dataclass(frozen=True, slots=True)
class DeadLetterReason:
    """Why a copy becomes a dead letter: application properties; `properties`, plain or typed JSON, are further ones."""

    reason: str | None = None
    description: str | None = None
    properties: Properties = field(default_factory=dict)


class Settler:
    """Settles copies of one subscription by their tokens, whoever received them; from `BrokerTopic.settler`."""

    __slots__ = ("_dispatcher",)

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    @property
    def lock_ms(self) -> int:
        """How long a claim lasts."""
        return self._dispatcher.settings().lock_ms

    @property
    def time_to_live_ms(self) -> int | None:
        """How long copies live that do not say less themselves; None: for ever."""
        return self._dispatcher.settings().default_time_to_live_ms

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
        """Give copies back. One that `counts` and was the last attempt allowed becomes a dead letter.

        They are available after `delay_ms`; None: after the subscription's backoff where it `counts`, else at once.
        When they are given out again they have `properties` in place of those of these names.
        """
        self._dispatcher.release(tokens, then, counts=counts, delay_ms=delay_ms, properties=properties)

    def dead_letter(self, tokens: Sequence[bytes], then: Settled = nobody_asks, *, why: DeadLetterReason) -> None:
        """Move copies to the dead letters. Dead letters themselves are only settled."""
        self._dispatcher.dead_letter(tokens, then, why)

    def defer(
        self, tokens: Sequence[bytes], then: Settled = nobody_asks, *, properties: Properties = NO_PROPERTIES
    ) -> None:
        """Put copies aside: they are received by their number only, with `properties` as `release` says."""
        self._dispatcher.defer(tokens, then, properties)

    def renew(self, tokens: Sequence[bytes], then: Settled = nobody_asks) -> int:
        """Claims end a lock time after now; gives that time, in milliseconds."""
        return self._dispatcher.renew(tokens, then)


class Receiver(Settler):
    """One link's receiver, from `BrokerTopic.receiver` to `close`.

    `deliver` is called with copies in order, at most as many as are wanted; `ran_out` when more are wanted than there
    are now, each time that this is found; `ended` when the subscription is no more. With `settles_first` copies are
    settled before they are given out, and a peer that fails loses them.
    """

    __slots__ = (
        "_deliver",
        "_ended",
        "_ran_out",
        "delivered_bytes",
        "delivered_messages",
        "given_before",
        "is_closed",
        "name",
        "settles_first",
        "tag",
        "wanted",
    )

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        deliver: Callable[[GivenCopies], None],
        ended: Callable[[HeadgateError], None],
        ran_out: Callable[[], None],
        settles_first: bool,
        tag: str,
    ) -> None:
        super().__init__(dispatcher)
        self._deliver = deliver
        self._ended = ended
        self._ran_out = ran_out
        self.settles_first = settles_first
        self.tag = tag
        self.wanted = 0
        self.delivered_messages = self.delivered_bytes = 0
        self.given_before = -1
        """How many it was given when nothing more could be decided, and it was last looked at."""
        self.is_closed = False
        self.name: SubscriptionName | None = None
        """What its session received it from, for lists."""

    @property
    def lag(self) -> int:
        """How many copies of its subscription are free for a receiver."""
        counts = self._dispatcher.counts()
        return counts.active + counts.waiting

    def want(self, count: int) -> None:
        """Its peer takes so many copies from now on; 0 while the link is full."""
        self.wanted = count
        if count:
            self._dispatcher.touch()

    def close(self) -> None:
        """It is given nothing more; what it has stays claimed until its time. Again is harmless."""
        if not self.is_closed:
            self.is_closed = True
            self.wanted = 0
            self._dispatcher.left(self)

    # the dispatcher's side

    def given(self, deliveries: GivenCopies, size_bytes: int) -> None:
        """Copies whose claims are on disk are its own; their messages have so many bytes."""
        self.delivered_messages += len(deliveries)
        self.delivered_bytes += size_bytes
        self._deliver(deliveries)

    def run_out(self) -> None:
        """It was given all that there is, and wants more."""
        self._ran_out()

    def end(self, error: HeadgateError) -> None:
        """Its subscription is no more."""
        if not self.is_closed:
            self.is_closed = True
            self.wanted = 0
            self._ended(error)
