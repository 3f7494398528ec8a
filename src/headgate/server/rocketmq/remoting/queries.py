"""Queries for messages by id or key, for people: bounded, and without effect on consumption.

An id is a place, which is read; a key is searched in all queues of its topic, in the time range of the request.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headgate.broker import ConsumerOptions, MessageConsumer, Session
from headgate.errors import HeadgateError, OffsetOutOfRangeError
from headgate.evaluate import Filter
from headgate.log import OffsetSpecification
from headgate.message import EncodedMessages
from headgate.protocols.rocketmq import StoredFrom, encode_stored, from_amqp
from headgate.protocols.rocketmq.remoting import Command, RequestCode, ResponseCode, read_header
from headgate.protocols.rocketmq.remoting import headers as h
from headgate.scan import ScanBatch
from headgate.server.context import ServerContext
from headgate.server.pump import Pump
from headgate.server.rocketmq.message_ids import place_of_stream
from headgate.server.rocketmq.remoting.answers import Answer, refusal
from headgate.server.rocketmq.remoting.routes import CLUSTER, REGION
from headgate.server.rocketmq.remoting.stream_reads import StreamReads
from headgate.server.rocketmq.remoting.subscriptions import find_message, readable_stream
from headgate.server.transport import Transport

LOOKED_MS = 5_000
"""A search for a key ends after this time; its client waits for six seconds."""

_MOST_FOUND = 64
_MOST_FOUND_BYTES = 8 << 20
_MOST_SEARCHES = 4
_BATCH = 64

logger = logging.getLogger("headgate.server.rocketmq")


@dataclass(slots=True)
class _Search:
    """One search for a key, in all queues of its topic."""

    command: Command
    request: h.QueryMessageRequest
    until_ms: int
    consumers: dict[MessageConsumer, StoredFrom] = field(default_factory=dict)
    found: list[bytes] = field(default_factory=list)
    found_bytes: int = 0
    last_ms: int = 0


class Queries:
    """Serves the queries of one connection."""

    def __init__(
        self, transport: Transport, context: ServerContext, answer: Answer, reads: StreamReads, *, store_host: bytes
    ) -> None:
        self._context = context
        self._answer = answer
        self._reads = reads
        self._store_host = store_host
        self._pump = Pump(transport)
        self._transport = transport
        self._searches: dict[int, _Search] = {}
        """By the number of the request."""
        self.requests: Mapping[int, Callable[[Session, Command], None]] = {
            RequestCode.VIEW_MESSAGE_BY_ID: self._view,
            RequestCode.QUERY_MESSAGE: self._query,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._earliest,
        }

    def end(self) -> None:
        """The connection is gone."""
        for search in list(self._searches.values()):
            self._close(search)

    # by place

    def _view(self, session: Session, command: Command) -> None:
        request = read_header(command, h.ViewMessageRequest)
        place = find_message(session, self._context.broker, request.offset, request.topic)
        source = self._source(session, place.topic, place.queue, place.stream)

        def viewed(batch: ScanBatch | None) -> None:
            if batch is None:
                remark = f"can not find message by the offset, {request.offset}"
                self._answer(command, command.answer(ResponseCode.SYSTEM_ERROR, remark=remark))
                return
            body = _encoded(batch.messages, batch.offsets, batch.timestamps_ms, source)
            self._answer(command, command.answer(ResponseCode.SUCCESS, body=body))

        read = _or_none(session.message_read(place.stream, place.offset))
        self._reads.run(session, command, place.stream, read, viewed)

    def _earliest(self, session: Session, command: Command) -> None:
        request = read_header(command, h.QueueRequest)
        stream = readable_stream(session, request.topic, request.queue_id)
        first, _ = session.bounds(stream)

        def read(batch: ScanBatch | None) -> None:
            time_ms = -1 if batch is None else int(batch.timestamps_ms[0])
            self._answer(command, command.answer(ResponseCode.SUCCESS, fields={"timestamp": str(time_ms)}))

        self._reads.run(session, command, stream, _or_none(session.message_read(stream, first)), read)

    def _source(self, session: Session, topic: str, queue: int, stream: str) -> StoredFrom:
        identity = session.stream_info(stream).identity
        place = place_of_stream(self._context.broker, stream)
        return StoredFrom(topic, queue, place, self._store_host, identity, {"CLUSTER": CLUSTER, "MSG_REGION": REGION})

    # by key

    def _query(self, session: Session, command: Command) -> None:
        request = read_header(command, h.QueryMessageRequest)
        topic = self._context.broker.message_topics.get(request.topic)
        session.check_reads(topic.name)
        if len(self._searches) >= _MOST_SEARCHES:
            remark = f"more than {_MOST_SEARCHES} queries at a time"
            self._answer(command, command.answer(ResponseCode.SYSTEM_BUSY, remark=remark))
            return
        search = _Search(command, request, self._context.clock.now_ms() + LOOKED_MS)
        wanted = _filter_of(request.key, is_unique=request.is_unique)
        start = OffsetSpecification.timestamp(max(0, request.begin_timestamp))
        self._searches[command.opaque] = search
        try:
            for queue, stream in enumerate(topic.streams):
                source = self._source(session, topic.name, queue, stream)
                consumer = session.message_consumer(stream, ConsumerOptions(start, filter=wanted), topic=topic.name)
                search.consumers[consumer] = source
        except HeadgateError:
            self._close(search)
            raise
        for consumer in list(search.consumers):
            consumer.want(_BATCH)
            self._pump.add(
                consumer,
                functools.partial(self._deliver, search, consumer),
                functools.partial(self._failed, search),
            )

    def _deliver(self, search: _Search, consumer: MessageConsumer, budget_bytes: int) -> int | None:
        if consumer not in search.consumers:
            return None
        batch = consumer.take(_BATCH, budget_bytes)
        if batch is None:
            if consumer.at_end:
                self._done(search, consumer)
            return None
        request, source = search.request, search.consumers[consumer]
        is_over = False
        for row in range(len(batch)):
            stored_ms = int(batch.timestamps_ms[row])
            if stored_ms > request.end_timestamp:
                is_over = True
                break
            data, offset = batch.messages.message(row), int(batch.offsets[row])
            if (
                not request.is_unique
                and request.key not in from_amqp(data, identity=source.identity, offset=offset).keys
            ):
                continue
            if stored_ms >= request.begin_timestamp:
                self._found(search, batch.messages.take(slice(row, row + 1)), offset, stored_ms, source)
        if self._has_enough(search):
            self._finish(search)
        elif is_over or consumer.at_end:
            self._done(search, consumer)
        else:
            consumer.want(_BATCH)
        return 1

    def _found(
        self, search: _Search, message: EncodedMessages, offset: int, stored_ms: int, source: StoredFrom
    ) -> None:
        if self._has_enough(search):
            return
        columns = np.array([offset], dtype=np.int64), np.array([stored_ms], dtype=np.int64)
        stored = _encoded(message, *columns, source)
        search.found.append(stored)
        search.found_bytes += len(stored)
        search.last_ms = max(search.last_ms, stored_ms)

    @staticmethod
    def _has_enough(search: _Search) -> bool:
        most = min(max(search.request.max_num, 1), _MOST_FOUND)
        return len(search.found) >= most or search.found_bytes >= _MOST_FOUND_BYTES

    def _done(self, search: _Search, consumer: MessageConsumer) -> None:
        """One queue has nothing more."""
        self._pump.remove(consumer)
        consumer.close()
        search.consumers.pop(consumer, None)
        if not search.consumers:
            self._finish(search)

    def _failed(self, search: _Search, error: HeadgateError) -> None:
        if self._searches.get(search.command.opaque) is search:
            self._close(search)
            self._answer(search.command, refusal(search.command, error))

    def _finish(self, search: _Search) -> None:
        if self._searches.get(search.command.opaque) is not search:
            return
        self._close(search)
        command = search.command
        fields = {"indexLastUpdateTimestamp": str(search.last_ms), "indexLastUpdatePhyoffset": "0"}
        if search.found:
            answer = command.answer(ResponseCode.SUCCESS, fields=fields, body=search.found)
        else:
            remark = "can not find message, maybe time range not correct"
            answer = command.answer(ResponseCode.QUERY_NOT_FOUND, fields=fields, remark=remark)
        self._answer(command, answer)

    def _close(self, search: _Search) -> None:
        self._searches.pop(search.command.opaque, None)
        for consumer in search.consumers:
            self._pump.remove(consumer)
            consumer.close()
        search.consumers.clear()

    def wake(self) -> None:
        """The transport takes more."""
        self._pump.wake()

    def tick(self, now_ms: int) -> None:
        """End searches whose time is over."""
        for search in list(self._searches.values()):
            if search.until_ms <= now_ms:
                self._finish(search)


def _or_none(read: Callable[[], ScanBatch]) -> Callable[[], ScanBatch | None]:
    """The same, which gives None where there is no message."""

    def found() -> ScanBatch | None:
        try:
            return read()
        except OffsetOutOfRangeError:
            return None

    return found


def _encoded(
    messages: EncodedMessages,
    offsets: NDArray[np.int64],
    timestamps_ms: NDArray[np.int64],
    source: StoredFrom,
) -> bytes:
    stored = encode_stored(messages, offsets=offsets, timestamps_ms=timestamps_ms, reconsume_times=None, source=source)
    return bytes(stored.octets)


def _filter_of(key: str, *, is_unique: bool) -> Filter:
    """The filter of a search: the id, or keys that contain the text; a whole key is compared afterwards."""
    text = key.replace("'", "''")
    return Filter.parse(f"UNIQ_KEY = '{text}'" if is_unique else f"KEYS CONTAINS '{text}'", "rocketmq")
