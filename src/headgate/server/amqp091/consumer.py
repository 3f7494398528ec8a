"""Consumers of AMQP 0.9.1: messages of a stream become deliveries of a channel; see `subscription_queue`, too."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import TypeAlias

from headgate.broker import LOST, ConsumerOptions
from headgate.errors import HeadgateError
from headgate.protocols.amqp091 import OFFSET_HEADER, Unacknowledged, encode_short_string, long, read_deliveries
from headgate.protocols.amqp091.methods import BasicDeliver
from headgate.server.amqp091.outlet import Outlet
from headgate.server.unsettled_copies import Settlement

MAX_MESSAGES = 512
"""Limit: deliveries of one consumer before others have their turn."""

_DELIVER = b"".join(number.to_bytes(2, "big") for number in BasicDeliver.CODE)


class ChannelConsumer(abc.ABC):
    """One consumer of a channel, from basic.consume until it is stopped."""

    def __init__(self, outlet: Outlet, *, channel: int, queue: str, tag: str) -> None:
        self.channel = channel
        self.queue = queue
        self.tag = tag
        self.is_open = True
        self._outlet = outlet
        self._methods: dict[tuple[str | None, str | None, bool], tuple[bytes, bytes]] = {}

    @abc.abstractmethod
    def start(self) -> None:
        """Deliver from now on."""

    @abc.abstractmethod
    def settled(self, tags: list[int], settlement: Settlement) -> None:
        """The client settled some of its messages."""

    @abc.abstractmethod
    def has_lost(self, stream: str) -> bool:
        """Whether it consumed from this deleted stream, even if one of the same name exists again."""

    def stop(self) -> None:
        """Deliver no more; a second call is harmless."""
        self.is_open = False

    def _method(self, exchange: str | None, routing_key: str | None, *, redelivered: bool) -> tuple[bytes, bytes]:
        """basic.deliver before and after the delivery tag. Without a routing key it has the name of the queue."""
        key = (exchange, routing_key, redelivered)
        known = self._methods.get(key)
        if known is None:
            if len(self._methods) >= 256:
                self._methods.clear()
            before = _DELIVER + encode_short_string(self.tag)
            route = (exchange or "", self.queue if routing_key is None else routing_key)
            behind = bytes([redelivered]) + b"".join(map(encode_short_string, route))
            known = self._methods[key] = (before, behind)
        return known


Lost: TypeAlias = Callable[[ChannelConsumer, HeadgateError], None]
"""Tells the channel that a consumer gets nothing more, and why."""


class StreamConsumer(ChannelConsumer):
    """A consumer of a stream; its credit is the prefetch, and each settled message gives one credit back."""

    def __init__(
        self,
        outlet: Outlet,
        unacknowledged: Unacknowledged[ChannelConsumer],
        options: ConsumerOptions,
        lost: Lost,
        *,
        channel: int,
        queue: str,
        tag: str,
        prefetch: int,
    ) -> None:
        """`lost` is called when the stream cannot be read any further.

        Raises BrokerError and LogError, also if the user may not consume from the stream.
        """
        super().__init__(outlet, channel=channel, queue=queue, tag=tag)
        self._unacknowledged = unacknowledged
        self._prefetch = prefetch
        self._lost = lost
        self._consumer = outlet.session.message_consumer(queue, options)

    def start(self) -> None:
        """Deliver from now on."""
        self._consumer.want(self._prefetch)
        self._outlet.pump.add(self._consumer, self._deliver, lambda error: self._lost(self, error))

    def _deliver(self, budget_bytes: int) -> int | None:
        """Send the messages within the budget; returns their bytes on the wire, None if there are none."""
        core = self._outlet.core
        if not (self.is_open and core.is_open(self.channel)):
            return None
        batch = self._consumer.take(MAX_MESSAGES, budget_bytes)
        if batch is None:
            return None
        send, delivered = core.send_content, self._unacknowledged.delivered
        size, lost = 0, self._consumer.lost_before
        for message, body, offset in read_deliveries(batch.messages, batch.offsets):
            before, behind = self._method(message.exchange, message.routing_key, redelivered=False)
            method = b"%b%b%b" % (before, delivered(self).to_bytes(8, "big"), behind)
            header = message.content_header(offset, len(body))
            if lost:
                header = message.plain_header({OFFSET_HEADER: long(offset), LOST: long(lost)}, len(body))
                lost = 0
            size += send(self.channel, method, header, body)
        self._outlet.flush()
        return size

    def settled(self, tags: list[int], settlement: Settlement) -> None:
        """Give credit back; the settlement does not matter, as a stream keeps its messages."""
        if self.is_open:
            self._consumer.want_more(len(tags))

    def has_lost(self, stream: str) -> bool:
        """Whether it consumed from this deleted stream."""
        return self.queue == stream and self._consumer.is_closed

    def stop(self) -> None:
        """Deliver no more; a second call is harmless."""
        if self.is_open:
            super().stop()
            self._outlet.pump.remove(self._consumer)
            self._consumer.close()
