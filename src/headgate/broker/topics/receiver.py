"""Receivers: a receiver gives the copies of a subscription to one link, which settles them by the receiver's settler.

A receiver says how many copies its peer takes; it is given them when their claims are on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headgate.broker.delivery import GivenCopies
from headgate.broker.topics.settler import Settler
from headgate.errors import HeadgateError
from headgate.topic import SubscriptionName


def nobody_waits() -> None:
    """A `ran_out` that does nothing."""


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


class Receiver:
    """One link's receiver, from `Receivers.open` to `close`."""

    __slots__ = (
        "_link",
        "delivered_bytes",
        "delivered_messages",
        "given_before",
        "is_closed",
        "name",
        "settler",
        "settles_first",
        "tag",
        "wanted",
    )

    def __init__(self, settler: Settler[Receiver], link: ReceiverCalls) -> None:
        self.settler = settler
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
        return self.settler.lag

    def want(self, count: int) -> None:
        """Set how many copies its peer takes now; 0 while the link is full."""
        self.wanted = count
        if count:
            self.settler.touch()

    def close(self) -> None:
        """Stop receiving; its copies stay claimed until their time. Again is harmless."""
        if not self.is_closed:
            self.is_closed = True
            self.wanted = 0
            self.settler.left(self)

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
