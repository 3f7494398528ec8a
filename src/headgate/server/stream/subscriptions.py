"""The subscriptions of a connection: their options, credit and chunks, and which member of a group is active."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from headgate.broker import ChunkConsumer, ConsumerOptions, Session
from headgate.errors import (
    ConfigError,
    FilterError,
    HeadgateError,
    LimitExceededError,
    LogError,
    PreconditionFailedError,
)
from headgate.evaluate import Filter
from headgate.log.format import assemble_chunk
from headgate.protocols.stream import ResponseCode, name_of_code
from headgate.protocols.stream import frames as f
from headgate.scan.fetch import ChunkColumns
from headgate.server.pump import Pump
from headgate.server.settings import ServerSettings
from headgate.server.stream.outlet import Outlet

UPDATE_LIMIT_S = 60.0
"""How long a client may take to answer a ConsumerUpdate."""

SQL = "x-headgate-sql"
DIALECT = "x-headgate-dialect"
"""Properties of a subscription that RabbitMQ does not have: a filter for each message, and its language."""

END = "x-headgate-end"
"""The property with the offset at which a client stops, also of Headgate alone. When all messages before it were
examined, an empty chunk with that id is sent, without credit: behind a filter a client cannot know it otherwise."""

_FILTER_PREFIX = "filter."
_MOST_DIGITS = 18

logger = logging.getLogger("headgate.server.stream")


@dataclass(slots=True)
class _Subscription:
    """One subscription; when everything before `end` was examined, the client is told, and `end` becomes None."""

    number: int
    consumer: ChunkConsumer
    end: int | None


@dataclass(frozen=True, slots=True)
class _Asked:
    """A ConsumerUpdate that was sent, and the time limit of its answer."""

    subscription: _Subscription
    active: bool
    limit_s: float


class Subscriptions:
    """Subscriptions by their ids, 0 to 255. `failed` gets a stream that cannot be read any more, and the error."""

    def __init__(
        self,
        session: Session,
        outlet: Outlet,
        pump: Pump,
        settings: ServerSettings,
        *,
        clock_s: Callable[[], float],
        failed: Callable[[str, HeadgateError], None],
    ) -> None:
        self._session = session
        self._outlet = outlet
        self._pump = pump
        self._settings = settings
        self._clock_s = clock_s
        self._failed = failed
        self._subscriptions: dict[int, _Subscription] = {}
        self._asked: dict[int, _Asked] = {}

    def __contains__(self, number: object) -> bool:
        """Whether there is a subscription with this id."""
        return number in self._subscriptions

    def subscribe(self, request: f.Subscribe) -> Callable[[], None]:
        """A new subscription; call the returned function after the reply. Raises LimitExceededError, BrokerError."""
        number = request.subscription_id
        if len(self._subscriptions) >= self._settings.limits.consumers:
            raise LimitExceededError(f"more than {self._settings.limits.consumers} consumers", subject=request.stream)
        options, end = self._options(request), _end(request)
        consumer = self._session.chunk_consumer(request.stream, options)
        subscription = self._subscriptions[number] = _Subscription(number, consumer, end)

        def begin() -> None:
            self._pump.add(
                consumer,
                functools.partial(self._deliver, subscription),
                lambda error: self._failed(consumer.stream, error),
            )
            consumer.want_more(request.credit)

        return begin

    def unsubscribe(self, number: int) -> bool:
        """End a subscription; False if there is none with this id."""
        subscription = self._subscriptions.pop(number, None)
        if subscription is None:
            return False
        self._pump.remove(subscription.consumer)
        subscription.consumer.close()
        return True

    def drop_stream(self, stream: str, *, only_ended: bool) -> None:
        """Forget all subscriptions of a stream, or only the subscriptions that the broker has ended."""
        for number, own in list(self._subscriptions.items()):
            if own.consumer.stream == stream and (own.consumer.is_closed or not only_ended):
                self.unsubscribe(number)

    def end(self) -> None:
        """The connection ends."""
        for number in list(self._subscriptions):
            self.unsubscribe(number)

    def credit(self, frame: f.Credit) -> None:
        """Take credit for more chunks; only an error is answered."""
        subscription = self._subscriptions.get(frame.subscription_id)
        if subscription is None:
            self._refuse_credit(frame, ResponseCode.SUBSCRIPTION_ID_UNKNOWN)
            return
        subscription.consumer.want_more(frame.credit)
        if subscription.consumer.options.single_active and not subscription.consumer.is_active:
            self._refuse_credit(frame, ResponseCode.PRECONDITION_FAILED)

    def answered(self, reply: f.ConsumerUpdateReply) -> None:
        """A client answered a ConsumerUpdate."""
        asked = self._asked.pop(reply.correlation_id, None)
        if asked is None:
            logger.info("user %r answers a consumer update that nobody sent", self._session.user)
            return
        subscription = asked.subscription
        if self._subscriptions.get(subscription.number) is not subscription:
            return
        if reply.code != ResponseCode.OK:
            logger.warning(
                "subscription %d of stream %r answers a consumer update with %s; it is updated all the same",
                subscription.number,
                subscription.consumer.stream,
                name_of_code(reply.code),
            )
        if not asked.active:
            subscription.consumer.deactivated()
            return
        try:
            subscription.consumer.activate(reply.offset)
        except LogError as error:
            self._failed(subscription.consumer.stream, error)

    @property
    def is_overdue(self) -> bool:
        """Whether a client has not answered a ConsumerUpdate in time."""
        now_s = self._clock_s()
        return any(asked.limit_s < now_s for asked in self._asked.values())

    def _options(self, request: f.Subscribe) -> ConsumerOptions:
        properties = request.properties
        if properties.get("chunk_selector") == "all":
            raise PreconditionFailedError("only chunks with messages are delivered", subject=request.stream)
        single_active = properties.get("single-active-consumer") == "true"

        def on_active(active: bool) -> None:
            self._ask(request.subscription_id, active=active)

        return ConsumerOptions(
            start=request.offset,
            filter_values=tuple(
                text.encode(errors="surrogateescape")
                for key, text in properties.items()
                if key.startswith(_FILTER_PREFIX)
            ),
            match_unfiltered=properties.get("match-unfiltered") == "true",
            filter=self._filter(properties, request.stream),
            name=properties.get("name"),
            tag=str(request.subscription_id),
            single_active=single_active,
            super_stream=properties.get("super-stream"),
            on_active=on_active if single_active else None,
        )

    def _filter(self, properties: Mapping[str, str], stream: str) -> Filter | None:
        """The filter for messages; it is refused as a whole if any part is wrong."""
        text = properties.get(SQL)
        if text is None:
            if DIALECT in properties:
                raise PreconditionFailedError(f"{DIALECT} without {SQL}", subject=stream)
            return None
        limit = self._settings.limits.filter_bytes
        if len(text.encode(errors="surrogateescape")) > limit:
            raise LimitExceededError(f"a filter of more than {limit} bytes", subject=stream)
        try:
            return Filter.parse(text, properties.get(DIALECT, self._settings.filters.dialect))
        except (FilterError, ConfigError) as error:
            logger.warning(
                "user %r on %s: the filter of a subscription to stream %r is refused: %s",
                self._session.user,
                self._session.connection,
                stream,
                error,
            )
            raise

    def _deliver(self, subscription: _Subscription, budget: int) -> int | None:
        if not self._outlet.is_open:
            return None
        consumer = subscription.consumer
        chunks = consumer.take(budget)
        written = None if chunks is None else self._outlet.deliver(subscription.number, chunks, consumer.last_chunk_id)
        end = subscription.end
        if end is not None and not consumer.has_pending and consumer.next_offset >= end:
            subscription.end = None
            written = (written or 0) + self._outlet.deliver(subscription.number, _empty_chunk(end), end)
        return written

    def _ask(self, number: int, *, active: bool) -> None:
        subscription = self._subscriptions[number]
        if not self._outlet.is_open:
            return
        correlation = self._outlet.ask_consumer(number, active=active)
        self._asked[correlation] = _Asked(subscription, active, self._clock_s() + UPDATE_LIMIT_S)

    def _refuse_credit(self, frame: f.Credit, code: ResponseCode) -> None:
        self._outlet.send(f.CreditReply(code, frame.subscription_id))


def _end(request: f.Subscribe) -> int | None:
    text = request.properties.get(END)
    if text is not None and not (text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise PreconditionFailedError(f"{END} is {text!r}; expected an offset", subject=request.stream)
    return None if text is None else int(text)


def _empty_chunk(chunk_id: int) -> ChunkColumns:
    header, chunk = assemble_chunk(b"", num_entries=0, num_records=0, chunk_id=chunk_id)
    starts = np.zeros(1, dtype=np.int64)
    data, ids = np.frombuffer(chunk, dtype=np.uint8), starts + chunk_id
    return ChunkColumns(data, starts, starts + header.size_bytes, starts, ids, starts)
