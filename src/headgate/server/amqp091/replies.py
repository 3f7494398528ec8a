"""Direct reply-to in AMQP 0.9.1: a channel waits for replies on `amq.rabbitmq.reply-to`, a queue that stores nothing.

Source: RabbitMQ's documentation of direct reply-to; its errors as RabbitMQ 4.3 words them.
"""

from __future__ import annotations

from headgate.protocols.amqp091 import Unacknowledged, read_delivery
from headgate.server.amqp091.consumer import ChannelConsumer
from headgate.server.amqp091.outlet import Outlet
from headgate.server.unsettled_copies import Settlement


class ReplyConsumer(ChannelConsumer):
    """The consumer of the replies to a channel's requests; `queue` is the name that the requests carry."""

    def __init__(
        self, outlet: Outlet, unacknowledged: Unacknowledged[ChannelConsumer], *, channel: int, tag: str
    ) -> None:
        size_bytes = outlet.settings.limits.unconfirmed_bytes
        self._replies = outlet.session.replies.open(self.go_on, size_bytes=size_bytes)
        super().__init__(outlet, channel=channel, queue=self._replies.name, tag=tag)
        self._unacknowledged = unacknowledged

    def start(self) -> None:
        """Nothing to do: replies are delivered as they come."""

    def go_on(self) -> None:
        """Deliver the replies that wait, while the connection takes them."""
        core = self._outlet.core
        while self.is_open and core.is_open(self.channel) and self._outlet.is_writable:
            reply = self._replies.take()
            if reply is None:
                break
            message, body = read_delivery(reply)
            before, behind = self._method(message.exchange, message.routing_key, redelivered=False)
            method = b"%b%b%b" % (before, self._unacknowledged.sent().to_bytes(8, "big"), behind)
            core.send_content(self.channel, method, message.plain_header({}, len(body)), body)
            self._outlet.flush()

    def settled(self, tags: list[int], settlement: Settlement) -> None:
        """Nothing to do: replies are never unsettled."""

    def has_lost(self, stream: str) -> bool:
        """False: it reads no stream."""
        return False

    def stop(self) -> None:
        """Deliver no more; later replies find no requester. A second call is harmless."""
        super().stop()
        self._replies.close()
