"""A subscription of STOMP: messages of a stream become MESSAGE frames."""

from __future__ import annotations

from collections.abc import Callable

from headgate.broker.consumers import MessageConsumer
from headgate.protocols.amqp091.delivery import OFFSET_HEADER, Delivery, read_deliveries
from headgate.protocols.amqp091.tags import Unacknowledged
from headgate.protocols.stomp import ConnectionState, ServerConnection, Version
from headgate.protocols.stomp.destinations import format_destination
from headgate.protocols.stomp.events import AckMode, Subscribe
from headgate.protocols.stomp.messages import headers_of

MAX_MESSAGES = 256
"""Messages of one subscription before others have their turn."""


class Subscription:
    """One subscription; its credit is the prefetch count, each message that is acknowledged gives a place back."""

    __slots__ = (
        "_core",
        "_flush",
        "_is_cumulative",
        "_session",
        "_unacknowledged",
        "consumer",
        "is_open",
        "request",
        "stream",
    )

    def __init__(
        self,
        core: ServerConnection,
        consumer: MessageConsumer,
        request: Subscribe,
        flush: Callable[[], None],
        *,
        stream: str,
        session: str,
    ) -> None:
        self.consumer = consumer
        self.request = request
        self.stream = stream
        self.is_open = True
        self._core = core
        self._flush = flush
        self._session = session
        self._is_cumulative = request.ack_mode is AckMode.CLIENT
        self._unacknowledged: Unacknowledged[str] = Unacknowledged()

    def deliver(self, budget_bytes: int) -> int | None:
        """Take what there is within the budget, and send it; gives its bytes on the wire, None if there is nothing."""
        if not self.is_open or self._core.state is not ConnectionState.OPEN:
            return None
        batch = self.consumer.take(MAX_MESSAGES, budget_bytes)
        if batch is None:
            return None
        size = 0
        for message, body, offset in read_deliveries(batch.messages, batch.offsets):
            size += self._core.message(self._headers(message, offset), body)
        self._flush()
        return size

    def _headers(self, message: Delivery, offset: int) -> list[tuple[str, str]]:
        tag = self._unacknowledged.delivered("")
        message_id = f"{self.request.key}@@{self._session}@@{tag}"
        key = self.stream if message.routing_key is None else message.routing_key
        headers = [
            ("destination", format_destination(message.exchange or "", key)),
            ("message-id", message_id),
            ("redelivered", "false"),
            (OFFSET_HEADER, str(offset)),
        ]
        if self.request.id is not None:
            headers.insert(0, ("subscription", self.request.id))
        if self._core.version is Version.V1_2:
            headers.append(("ack", message_id))
        taken = {name for name, _ in headers}
        return headers + [header for header in headers_of(message.properties) if header[0] not in taken]

    def acknowledge(self, tag: int) -> bool:
        """The client is done with a message, in a cumulative mode with all up to it; False for one it has not."""
        settled = self._unacknowledged.settle(tag, multiple=self._is_cumulative) if tag else None
        if settled is None:
            return False
        if self.is_open:
            self.consumer.add_credit(sum(settled.values()))
        return True

    def close(self) -> None:
        """End it; again is harmless."""
        if self.is_open:
            self.is_open = False
            self.consumer.close()
