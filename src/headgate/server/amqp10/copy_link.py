"""Base of links that deliver copies of subscriptions: a link's credit is the demand of its receiver."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from headgate.arrays import largest
from headgate.broker import GivenCopies, Receiver
from headgate.message import EncodedMessages
from headgate.protocols.amqp10 import Condition, Error
from headgate.server.amqp10.service import ServedLink


class ReceiverLink(ServedLink, ABC):
    """A link of a receiver of the broker; the receiver calls `_deliver` and `_ran_out`."""

    _receiver: Receiver

    @abstractmethod
    def _encoded(self, given: GivenCopies) -> EncodedMessages:
        """Copies as messages for the peer."""

    @abstractmethod
    def _send(self, given: GivenCopies, messages: EncodedMessages) -> None:
        """Send copies, and keep their tokens for settling."""

    def credit_changed(self) -> None:
        """The peer granted credit, or drains it."""
        self.go_on()
        if self._link.drain and not self._link.credit:
            self._link.use_up_credit()

    def go_on(self) -> None:
        """Ask for as many copies as there is credit, while the link can send them."""
        self._receiver.want(self._room())

    def _room(self) -> int:
        link = self._link
        takes_more = link.credit and link.is_attached and self._handler.is_writable and link.session.may_send
        return link.credit if takes_more else 0

    @property
    def _most_bytes(self) -> int | None:
        """The largest message that the peer takes; None or 0 for any."""
        return self._link.attach.max_message_size

    def _deliver(self, given: GivenCopies) -> None:
        link, count = self._link, len(given)
        # The peer may have withdrawn credit while claims were being written.
        sent = min(count, link.credit)
        if sent:
            taken = given if sent == count else given[:sent]
            messages = self._encoded(taken)
            limit = self._most_bytes
            if limit and largest(messages.lengths) > limit:
                sent = int(np.argmax(messages.lengths > limit))
                if sent:
                    self._send(given[:sent], messages.take(slice(sent)))
                self._refuse_large(given[sent:])
                return
            self._send(taken, messages)
        if sent < count:
            self._give_back(given[sent:])
        if link.drain and not link.credit:
            link.use_up_credit()
        self._handler.flush()
        if self._room() != self._receiver.wanted:
            self.go_on()

    def _give_back(self, unsent: GivenCopies) -> None:
        tokens = unsent.packed_tokens()
        if tokens:
            self._receiver.settler.release(tokens, counts=False)

    def _refuse_large(self, unsent: GivenCopies) -> None:
        """End the link: the next message is too large for the peer. The attempt counts, so it ends as a dead letter."""
        self._give_back(unsent[1:])
        tokens = unsent[:1].packed_tokens()
        if tokens:
            self._receiver.settler.release(tokens, counts=True)
        reason = f"the receiver takes at most {self._most_bytes} bytes, the next message is larger"
        self._handler.detach(self._link, Error(Condition.MESSAGE_SIZE_EXCEEDED, reason))

    def _ran_out(self) -> None:
        if self._link.drain and self._link.is_attached:
            self._link.use_up_credit()
            self._receiver.want(0)
            self._handler.flush()
