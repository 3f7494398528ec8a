"""Messages of one connection on their way into streams: collected while frames are read, published together.

AMQP 0.9.1 and STOMP publish message by message; the messages of one read of the socket go to the broker as one batch
per stream. A message may go to several streams; its publisher gets one confirm, when it is in all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Generic, TypeVar

from headgate.broker import Headers, PublishBatch, Publisher, Session
from headgate.clock import Clock
from headgate.errors import BrokerError, HeadgateError, LogError
from headgate.log import Entries, FilterValues
from headgate.server.settings import Limits

IDLE_MS = 60_000
"""After this idle time a publisher is closed."""

T = TypeVar("T")
Settled = Callable[[list[T], HeadgateError | None], None]
"""Called with the tickets of messages that are in their streams, or that failed with the error."""


class _Pending(Generic[T]):
    __slots__ = ("filter_values", "messages", "tickets")

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.filter_values: list[bytes | None] = []
        self.tickets: list[T] = []


class Outbox(Generic[T]):
    """The messages that a connection publishes, from `open` to `end`.

    `tickets` stand for messages; they are hashable and different from each other.
    """

    def __init__(self, clock: Clock, limits: Limits, settled: Settled[T]) -> None:
        self._clock = clock
        self._limits = limits
        self._settled = settled
        self._session: Session | None = None
        self._pending: dict[tuple[str, str], _Pending[T]] = {}
        self._routes: dict[tuple[str, str], list[str]] = {}
        self._publishers: dict[str, tuple[Publisher, int]] = {}
        self._several: dict[T, int] = {}
        self._errors: dict[T, HeadgateError] = {}

    def open(self, session: Session) -> None:
        """The client is known: it may publish."""
        self._session = session

    def end(self) -> None:
        """Hand over the pending messages and close the session; harmless a second time, and before `open`."""
        if self._session is not None:
            self.flush()
            self._session.close()
            self._session = None

    def route(self, exchange: str, routing_key: str, headers: Headers) -> list[str]:
        """Names of the streams that a message goes to; errors as `Session.route`.

        The route is looked up once per `flush`, or for each message if its headers matter.
        """
        streams = self._routes.get((exchange, routing_key))
        if streams is None:
            assert self._session is not None
            streams = self._session.route(exchange, routing_key, headers)
            if not self._session.needs_headers(exchange):
                self._routes[exchange, routing_key] = streams
        return streams

    def add(self, exchange: str, streams: list[str], message: bytes, filter_value: bytes | None, ticket: T) -> None:
        """Publish a message to one or more streams with the next `flush`."""
        if len(streams) > 1:
            self._several[ticket] = len(streams)
        for stream in streams:
            pending = self._pending.get((stream, exchange))
            if pending is None:
                pending = self._pending[stream, exchange] = _Pending()
            pending.messages.append(message)
            pending.filter_values.append(filter_value)
            pending.tickets.append(ticket)

    def flush(self) -> None:
        """Hand everything to the broker; call this before a declaration, for messages that were published before it."""
        self._routes.clear()
        if not self._pending:
            return
        collected, self._pending = self._pending, {}
        for (stream, exchange), pending in collected.items():
            try:
                publisher = self._publisher(stream, exchange)
            except (BrokerError, LogError) as error:
                self._settle(pending.tickets, error)
                continue
            self._publish(publisher, pending)

    def _publish(self, publisher: Publisher, pending: _Pending[T]) -> None:
        values = FilterValues.of(pending.filter_values) if any(pending.filter_values) else None
        written = functools.partial(self._settle, pending.tickets)
        publisher.publish(PublishBatch(Entries.of(pending.messages, values), written))

    def _settle(self, tickets: list[T], error: HeadgateError | None) -> None:
        if not self._several:
            self._settled(tickets, error)
            return
        done: dict[HeadgateError | None, list[T]] = {}
        for ticket in tickets:
            left = self._several.get(ticket, 1) - 1
            if error is not None and ticket in self._several:
                self._errors[ticket] = error
            if left:
                self._several[ticket] = left
            else:
                self._several.pop(ticket, None)
                done.setdefault(self._errors.pop(ticket, error), []).append(ticket)
        for found, settled in done.items():
            self._settled(settled, found)

    def _publisher(self, stream: str, exchange: str) -> Publisher:
        assert self._session is not None
        known = self._publishers.pop(stream, None)
        publisher = known[0] if known is not None and not known[0].is_closed else None
        if publisher is None:
            while len(self._publishers) >= self._limits.publishers:
                self._publishers.pop(next(iter(self._publishers)))[0].close()
            publisher = self._session.publisher(stream, exchange=exchange)
        # Last used, last in order.
        self._publishers[stream] = (publisher, self._clock.now_ms())
        return publisher

    def tick(self, now_ms: int) -> None:
        """Close idle publishers."""
        for stream, (publisher, used_ms) in list(self._publishers.items()):
            if now_ms - used_ms < IDLE_MS:
                break
            publisher.close()
            del self._publishers[stream]
