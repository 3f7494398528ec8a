"""A consumer of AMQP 0.9.1: messages of a stream become deliveries of its channel."""

from __future__ import annotations

from collections.abc import Callable

from headgate.broker import MessageConsumer
from headgate.protocols.amqp091 import ServerConnection, Unacknowledged, encode_short_string, read_deliveries
from headgate.protocols.amqp091.methods import BasicDeliver

MAX_MESSAGES = 512
"""Deliveries of one consumer before others have their turn."""

_DELIVER = b"".join(number.to_bytes(2, "big") for number in BasicDeliver.CODE)


class ChannelConsumer:
    """One consumer; its credit is the prefetch, each message that is settled gives a place back."""

    __slots__ = ("_core", "_flush", "_methods", "_unacknowledged", "channel", "consumer", "is_open", "stream", "tag")

    def __init__(
        self,
        core: ServerConnection,
        consumer: MessageConsumer,
        unacknowledged: Unacknowledged[ChannelConsumer],
        flush: Callable[[], None],
        *,
        channel: int,
        stream: str,
        tag: str,
    ) -> None:
        self.consumer = consumer
        self.channel = channel
        self.stream = stream
        self.tag = tag
        self.is_open = True
        self._core = core
        self._unacknowledged = unacknowledged
        self._flush = flush
        self._methods: dict[tuple[str | None, str | None], tuple[bytes, bytes]] = {}

    def deliver(self, budget_bytes: int) -> int | None:
        """Take what there is within the budget, and send it; gives its bytes on the wire, None if there is nothing."""
        if not (self.is_open and self._core.is_open(self.channel)):
            return None
        batch = self.consumer.take(MAX_MESSAGES, budget_bytes)
        if batch is None:
            return None
        send, delivered = self._core.send_content, self._unacknowledged.delivered
        size = 0
        for message, body, offset in read_deliveries(batch.messages, batch.offsets):
            before, behind = self._method(message.exchange, message.routing_key)
            method = b"%b%b%b" % (before, delivered(self).to_bytes(8, "big"), behind)
            size += send(self.channel, method, message.content_header(offset, len(body)), body)
        self._flush()
        return size

    def _method(self, exchange: str | None, routing_key: str | None) -> tuple[bytes, bytes]:
        """basic.deliver before and after the delivery tag. Without a routing key it names the stream."""
        key = (exchange, routing_key)
        known = self._methods.get(key)
        if known is None:
            if len(self._methods) >= 256:
                self._methods.clear()
            before = _DELIVER + encode_short_string(self.tag)
            route = (exchange or "", self.stream if routing_key is None else routing_key)
            behind = b"\0" + b"".join(map(encode_short_string, route))
            known = self._methods[key] = (before, behind)
        return known

    def settled(self, count: int) -> None:
        """The client is done with some of its messages."""
        if self.is_open:
            self.consumer.want_more(count)

    def close(self) -> None:
        """End it; again is harmless."""
        if self.is_open:
            self.is_open = False
            self.consumer.close()
