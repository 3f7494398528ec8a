"""What links share on which copies of subscriptions go: credit is what their receiver wants."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from headgate.broker import Delivery, Receiver
from headgate.protocols.amqp10 import Condition, Error
from headgate.server.amqp10.service import ServedLink


class ReceiverLink(ServedLink, ABC):
    """A link of a receiver of the broker; `_deliver` and `_ran_out` are what the receiver calls."""

    _receiver: Receiver

    @abstractmethod
    def _encoded(self, delivery: Delivery) -> bytes:
        """A copy as it is sent."""

    @abstractmethod
    def _send(self, delivery: Delivery, data: bytes) -> None:
        """Send a copy, and keep what settles it."""

    def credit_changed(self) -> None:
        """The peer granted credit, or wants it used up."""
        self.go_on()
        if self._link.drain and not self._link.credit:
            self._link.use_up_credit()

    def go_on(self) -> None:
        """Want what there is credit for, as long as the link can take it."""
        self._receiver.want(self._room())

    def _room(self) -> int:
        link = self._link
        takes_more = link.is_attached and self._handler.is_writable and link.session.may_send
        return link.credit if takes_more else 0

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        link = self._link
        sent = 0
        for delivery in deliveries:
            if not link.credit:
                # It was taken back while claims were being written.
                break
            data = self._encoded(delivery)
            if link.attach.max_message_size and len(data) > link.attach.max_message_size:
                self._refuse_large(deliveries[sent:])
                return
            sent += 1
            self._send(delivery, data)
        self._give_back(deliveries[sent:])
        if link.drain and not link.credit:
            link.use_up_credit()
        self._handler.flush()
        if self._room() != self._receiver.wanted:
            self.go_on()

    def _give_back(self, unsent: Sequence[Delivery]) -> None:
        tokens = [delivery.token for delivery in unsent if delivery.token]
        if tokens:
            self._receiver.release(tokens, counts=False)

    def _refuse_large(self, unsent: Sequence[Delivery]) -> None:
        """The peer takes no message as large as the next one: that attempt failed, so that it ends as a dead letter."""
        first, *rest = unsent
        self._give_back(rest)
        if first.token:
            self._receiver.release([first.token], counts=True)
        reason = f"the receiver takes at most {self._link.attach.max_message_size} bytes, the next message is larger"
        self._handler.detach(self._link, Error(Condition.MESSAGE_SIZE_EXCEEDED, reason))

    def _ran_out(self) -> None:
        if self._link.drain and self._link.is_attached:
            self._link.use_up_credit()
            self._receiver.want(0)
            self._handler.flush()
