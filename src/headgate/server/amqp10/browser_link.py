"""Browsing links: receivers that ask for the distribution mode `copy`, as JMS browsers do, and take no messages.

A browsing link sends the unsettled copies, including those that a receiver holds, in order and each once. It claims
none, and the peer's outcomes change nothing. Source: OASIS AMQP 1.0 part 3 (messaging), section 3.5.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from headgate.broker import ReadCopy
from headgate.errors import HeadgateError
from headgate.message import EncodedMessages
from headgate.protocols.amqp10 import Error, Link, Received, condition_of
from headgate.protocols.amqp10.events import Outcomes
from headgate.protocols.amqp10.performatives import SETTLED, Attach
from headgate.server.amqp10.service import ServedLink

if TYPE_CHECKING:
    from headgate.server.amqp10.handler import Amqp10Handler

COPY = "copy"
_MOST_READ = 256


def is_browsing(attach: Attach) -> bool:
    """Whether a receiver asks to look at messages without taking them."""
    return attach.source is not None and attach.source.distribution_mode == COPY


class BrowsingLink(ServedLink):
    """One link of a browser.

    `peek` takes a copy's number and a limit, and returns copies from there on; `encoded` encodes a copy for the peer.
    """

    def __init__(
        self,
        handler: Amqp10Handler,
        link: Link,
        attach: Attach,
        *,
        peek: Callable[[int, int], Sequence[ReadCopy]],
        encoded: Callable[[ReadCopy], bytes],
    ) -> None:
        """Raises the errors of `peek`."""
        super().__init__(handler, link)
        self._peek = peek
        self._encoded = encoded
        self._settles = attach.snd_settle_mode == SETTLED
        self._next = 0
        # An error of the first peek refuses the link.
        peek(self._next, 1)

    def credit_changed(self) -> None:
        """The peer granted credit, or drains it."""
        self.go_on()

    def tick(self, now_ms: int) -> None:
        """Send copies that may have arrived."""
        self.go_on()

    def go_on(self) -> None:
        """Send copies while there is credit; a drain is over when no copies are left."""
        link = self._link
        while room := self._room():
            try:
                copies = self._peek(self._next, min(room, _MOST_READ))
            except HeadgateError as error:
                self._handler.detach(link, Error(condition_of(error), str(error)))
                return
            if not copies:
                break
            self._next = copies[-1].copy + 1
            messages = EncodedMessages.of([self._encoded(copy) for copy in copies])
            numbers = np.array([copy.copy for copy in copies], dtype=">i8")
            link.send_tagged(messages, numbers.view(np.uint8).reshape(-1, 8), settled=self._settles)
        if link.drain and self.may_speak and (not link.credit or self._takes_more):
            link.use_up_credit()
        self._handler.flush()

    def _room(self) -> int:
        return self._link.credit if self._takes_more else 0

    @property
    def _takes_more(self) -> bool:
        return self.may_speak and self._handler.is_writable and self._link.session.may_send

    def decided(self, outcomes: Outcomes) -> None:
        """The peer sent the outcome of copies: it has no effect, and is only confirmed if the peer waits for that."""
        if not outcomes.settled and not isinstance(outcomes.state, Received):
            self._link.settle(outcomes.ids, outcomes.state)
