"""Direct reply-to in AMQP 1.0: a receiver asks for a source of its own, and the server answers with its address.

    source      dynamic, with the capability `rabbitmq:volatile-queue`; the answer has the address of a reply queue
    target      that address, or a message's `to`: messages for it go to the receiver, settled; nothing is stored

Source: RabbitMQ's documentation of direct reply-to, since version 4.2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.message import amqp_value
from headgate.protocols.amqp10 import Condition, Error, Link, Source
from headgate.protocols.amqp10.performatives import SENDER, SETTLED, Attach
from headgate.server.amqp10.addresses import queue_address
from headgate.server.amqp10.service import ServedLink

if TYPE_CHECKING:
    from headgate.server.amqp10.handler import Amqp10Handler

VOLATILE_QUEUE = "rabbitmq:volatile-queue"


def is_requester(link: Link, attach: Attach) -> bool:
    """Whether a receiver asks for a reply queue."""
    source = attach.source
    return link.role is SENDER and source is not None and bool(source.dynamic) and _is_volatile(source)


def _is_volatile(source: Source) -> bool:
    return VOLATILE_QUEUE in (source.capabilities or ())


class ReplyLink(ServedLink):
    """The link on which a requester gets its replies, as its credit allows."""

    def __init__(self, handler: Amqp10Handler, link: Link) -> None:
        super().__init__(handler, link)
        size_bytes = handler.context.settings.limits.unconfirmed_bytes
        self._replies = handler.broker.replies.open(self.go_on, size_bytes=size_bytes)

    def confirmed_attach(self, attach: Attach) -> Attach:
        """The answer to the attach, with the address that requests name in `reply-to`."""
        source = attach.source
        assert source is not None
        address = amqp_value(queue_address(self._replies.name))
        source = replace(source, address=address, filter=None, capabilities=(VOLATILE_QUEUE,))
        return replace(attach, snd_settle_mode=SETTLED, source=source)

    def credit_changed(self) -> None:
        """The peer granted credit, or drains it."""
        self.go_on()

    def go_on(self) -> None:
        """Send the replies that wait."""
        link = self._link
        while self.may_speak and link.sendable:
            reply = self._replies.take()
            if reply is None:
                break
            limit = link.attach.max_message_size
            if limit and len(reply) > limit:
                reason = f"the receiver takes no message of {len(reply)} bytes"
                self._handler.detach(link, Error(Condition.MESSAGE_SIZE_EXCEEDED, reason))
                return
            link.send(reply, settled=True)
        if self.may_speak and link.drain:
            link.use_up_credit()
        self._handler.flush()

    def close(self) -> None:
        """The link has ended: later replies find no requester."""
        super().close()
        self._replies.close()
