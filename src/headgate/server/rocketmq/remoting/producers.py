"""Producers: messages on their way into the queues of topics, one by one or in batches.

The messages of one read of the socket go to the broker as one batch per queue; each request is answered with the
places of its messages when they are stored. A client's batch is stored as a whole if it fits into a chunk.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headgate.broker import MessageTopic, PublishBatch, Publisher, Session, Written
from headgate.broker.consumer_groups import dead_letters_of
from headgate.errors import (
    AccessRefusedError,
    BrokerError,
    HeadgateError,
    LimitExceededError,
    PreconditionFailedError,
    UnsupportedError,
)
from headgate.log import MAX_MESSAGES, Entries
from headgate.protocols.rocketmq import (
    MAX_PROPERTIES_BYTES,
    NOWHERE,
    RETRY_PREFIX,
    amqp_of_sent,
    check_topic,
    compression_of,
    decode_batch,
    decompressed,
    delay_ms,
    message_id,
)
from headgate.protocols.rocketmq.remoting import Command, ResponseCode, read_header, read_send
from headgate.protocols.rocketmq.remoting import headers as h
from headgate.server.context import ServerContext
from headgate.server.rocketmq.message_ids import place_of_stream
from headgate.server.rocketmq.remoting.answers import Answer, refusal
from headgate.server.rocketmq.remoting.routes import BROKER_NAME, REGION

IDLE_MS = 60_000
"""After this idle time a publisher is closed."""

_WHOLE_BYTES = 900_000
_PREPARED = "TRAN_MSG\x01true"
_UNIQUE = "\x02UNIQ_KEY\x01"
_ADDED = {"MSG_REGION": REGION, "TRACE_ON": "false"}
"""Fields of every answer. The server collects no traces, so clients are told that tracing is off."""

_QueueKey = tuple[str, str]
"""A topic, for its permissions, and the stream of one of its queues."""


@dataclass(slots=True)
class _Sent:
    """A request whose messages are published: `count` of them, in a row."""

    command: Command
    queue: int
    transaction: str
    count: int


@dataclass(slots=True)
class _Pending:
    """Messages and their requests for one queue until the next `flush`."""

    messages: list[bytes] = field(default_factory=list)
    requests: list[_Sent] = field(default_factory=list)


class Producers:
    """Serves the producers of one connection."""

    def __init__(self, context: ServerContext, answer: Answer, *, born_host: str, store_host: bytes) -> None:
        """`born_host` is the client's `address:port`, `store_host` the `host_bytes` of the server."""
        self._context = context
        self._answer = answer
        self._born_host = born_host
        self._store_host = store_host
        self._limit_bytes = context.settings.rocketmq.message_size_bytes
        self._pending: dict[tuple[Session, _QueueKey], _Pending] = {}
        self._publishers: dict[tuple[Session, _QueueKey], tuple[Publisher, int]] = {}
        self._turns = 0
        """Counts requests that leave the choice of the queue to the server."""

    def send(self, session: Session, command: Command) -> None:
        """Take a request; it is answered later. Raises HeadgateError for one that is refused."""
        request = read_send(command)
        if request.topic.startswith(RETRY_PREFIX):
            self._give_up(session, command, request)
            return
        topic = self._topic(session, request)
        queue = self._queue(topic, request.queue_id)
        if _PREPARED in request.properties:
            raise AccessRefusedError("sending transaction message is forbidden", subject=topic.name)
        if request.batch:
            self._send_batch(session, command, request, topic, queue)
            return
        message = self._message(request, bytes(command.body), request.properties.encode("utf-8", "replace"))  # type: ignore[arg-type]
        sent = _Sent(command, queue, _unique_key(request.properties), 1)
        due_ms = due_of(request.properties, self._context.clock.now_ms())
        if due_ms is not None:
            scheduled = functools.partial(self._scheduled, sent, topic.name, due_ms)
            session.schedule_message(topic, queue, message, due_ms, scheduled)
            return
        pending = self._of(session, topic, queue)
        pending.messages.append(message)
        pending.requests.append(sent)

    def recall(self, session: Session, command: Command) -> None:
        """Take back a scheduled message. Raises HeadgateError for a request that is refused."""
        request = read_header(command, h.RecallRequest)
        topic = self._context.broker.message_topics.get(request.topic)
        handle = _read_recall_handle(request.recall_handle, request.topic)

        def recalled(error: HeadgateError | None) -> None:
            answer = command.answer(ResponseCode.SUCCESS, fields={"msgId": handle}) if error is None else None
            self._answer(command, answer or refusal(command, error or BrokerError("it was not recalled")))

        session.recall_message(topic, handle, recalled)

    def flush(self) -> None:
        """Hand everything to the broker."""
        if not self._pending:
            return
        collected, self._pending = self._pending, {}
        for (session, place), pending in collected.items():
            self._publish(session, place, pending.messages, pending.requests)

    def tick(self, now_ms: int) -> None:
        """Close idle publishers."""
        for key, (publisher, used_ms) in list(self._publishers.items()):
            if now_ms - used_ms < IDLE_MS:
                break
            publisher.close()
            del self._publishers[key]

    # one request

    def _give_up(self, session: Session, command: Command, request: h.SendRequest) -> None:
        """Store a dead letter: after too many attempts, a member sends a message that it could not consume.

        Clients do that for queues that they consume in order, and where a message could not be sent back.
        """
        session.check_writes(request.topic)
        group = request.topic.removeprefix(RETRY_PREFIX)
        groups = self._context.broker.consumer_groups
        settings = groups.ensure(group)
        most = request.max_reconsume_times
        most = settings.max_attempts - 1 if most is None else most
        in_order = self._context.broker.members.has_locks(group, now_ms=self._context.clock.now_ms())
        if request.reconsume_times <= most and not in_order:
            raise UnsupportedError("a message comes again when it is sent back, not when it is sent", subject=group)
        stream = groups.views.dead_letter_streams.find(dead_letters_of(group)).name
        message = self._message(request, bytes(command.body), request.properties.encode("utf-8", "replace"))  # type: ignore[arg-type]
        sent = _Sent(command, 0, _unique_key(request.properties), 1)
        self._publish(session, (request.topic, stream), [message], [sent])

    def _topic(self, session: Session, request: h.SendRequest) -> MessageTopic:
        found = session.message_topic(request.topic)
        if found is not None:
            return found
        check_topic(request.topic)
        wanted = request.default_topic_queue_nums
        most = self._context.broker.message_topics.queues_of_new
        return session.ensure_message_topic(request.topic, min(wanted, most) if wanted > 0 else most, for_producer=True)

    def _queue(self, topic: MessageTopic, number: int) -> int:
        queues = len(topic.streams)
        if number < 0:
            self._turns += 1
            return self._turns % queues
        if number >= queues:
            raise PreconditionFailedError(f"request queueId[{number}] is illegal", subject=topic.name)
        return number

    def _message(self, request: h.SendRequest, body: bytes, properties: bytes) -> bytes:
        """The message as it is stored. Raises LimitExceededError, RemoteProtocolError."""
        if len(body) > self._limit_bytes or len(properties) > MAX_PROPERTIES_BYTES:
            raise LimitExceededError(
                "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
                f"{self._limit_bytes}B, msg properties length limit 32KB."
            )
        compression = compression_of(request.sys_flag)
        if compression is not None:
            body = decompressed(body, compression, self._context.settings.limits.message_size_bytes)
        return amqp_of_sent(
            properties,
            body,
            born_ms=request.born_timestamp,
            born_host=self._born_host,
            flag=request.flag,
            reconsume_times=max(0, request.reconsume_times),
        )

    def _send_batch(
        self, session: Session, command: Command, request: h.SendRequest, topic: MessageTopic, queue: int
    ) -> None:
        body = bytes(command.body)  # type: ignore[arg-type]
        if len(body) > self._limit_bytes:
            self._message(request, body, b"")
        compression = compression_of(request.sys_flag)
        if compression is not None:
            body = decompressed(body, compression, self._context.settings.limits.message_size_bytes)
        request.sys_flag = 0
        messages = []
        for batched in decode_batch(body):
            request.flag = batched.flag
            messages.append(self._message(request, batched.body, batched.properties))
        sent = _Sent(command, queue, _unique_key(request.properties), len(messages))
        # Earlier messages of the same read are published first.
        self.flush()
        self._publish(session, (topic.name, topic.streams[queue]), messages, [sent], is_whole=_fits_chunk(messages))

    def _of(self, session: Session, topic: MessageTopic, queue: int) -> _Pending:
        key = (session, (topic.name, topic.streams[queue]))
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = _Pending()
        return pending

    # publishing

    def _publish(
        self,
        session: Session,
        place: _QueueKey,
        messages: list[bytes],
        requests: list[_Sent],
        *,
        is_whole: bool = False,
    ) -> None:
        try:
            publisher = self._publisher(session, place)
        except HeadgateError as error:
            self._published(requests, place[1], None, error)
            return
        places = Written()
        written = functools.partial(self._published, requests, place[1], places)
        publisher.publish(PublishBatch(Entries.of(messages, None), written, places=places, is_whole=is_whole))

    def _published(
        self, requests: list[_Sent], stream: str, places: Written | None, error: HeadgateError | None
    ) -> None:
        if error is not None or places is None:
            for sent in requests:
                self._refuse(sent.command, error)
            return
        offsets = places.as_list()
        place = place_of_stream(self._context.broker, stream)
        ids = [message_id(self._store_host, place + offset) for offset in offsets]
        first = 0
        for sent in requests:
            self._stored(sent, offsets[first], ids[first : first + sent.count])
            first += sent.count

    def _stored(self, sent: _Sent, first_offset: int, ids: Sequence[str]) -> None:
        fields = {
            "msgId": ",".join(ids),
            "queueId": str(sent.queue),
            "queueOffset": str(first_offset),
            "transactionId": sent.transaction,
            **_ADDED,
        }
        self._answer(sent.command, sent.command.answer(ResponseCode.SUCCESS, fields=fields))

    def _scheduled(self, sent: _Sent, topic: str, due_ms: int, result: str | HeadgateError) -> None:
        if isinstance(result, HeadgateError):
            self._refuse(sent.command, result)
            return
        fields = {
            # A scheduled message has no place yet.
            "msgId": message_id(self._store_host, NOWHERE),
            "queueId": str(sent.queue),
            "queueOffset": "0",
            "transactionId": sent.transaction,
            "recallHandle": _recall_handle(topic, due_ms, result),
            **_ADDED,
        }
        self._answer(sent.command, sent.command.answer(ResponseCode.SUCCESS, fields=fields))

    def _refuse(self, command: Command, error: HeadgateError | None) -> None:
        assert error is not None
        self._answer(command, refusal(command, error))

    def _publisher(self, session: Session, place: _QueueKey) -> Publisher:
        known = self._publishers.pop((session, place), None)
        publisher = known[0] if known is not None and not known[0].is_closed else None
        if publisher is None:
            while len(self._publishers) >= self._context.settings.limits.publishers:
                self._publishers.pop(next(iter(self._publishers)))[0].close()
            topic, stream = place
            publisher = session.publisher(stream, exchange=topic)
        # Last used, last in order.
        self._publishers[session, place] = (publisher, self._context.clock.now_ms())
        return publisher


def due_of(properties: str, now_ms: int) -> int | None:
    """The time when a message is due, by its properties; None: now.

    As in the original a delay level counts before a delay, and a delay before a time. Raises PreconditionFailedError
    for a text that is no number.
    """
    if "DELAY" not in properties and "TIMER_DELIVER_MS" not in properties:
        return None
    entries = (entry.partition("\x01") for entry in properties.split("\x02"))
    held = {name: value for name, _, value in entries if name in _DELAYS}
    for name, to_due in _DELAYS.items():
        text = held.get(name)
        if text:
            if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
                if name == "DELAY" and text.removeprefix("-").isdecimal():
                    return None
                raise PreconditionFailedError(f"{name} is {text[:40]!r}; expected a number")
            due_ms = to_due(int(text), now_ms)
            return due_ms if due_ms > now_ms else None
    return None


_MOST_DIGITS = 15
_DELAYS: dict[str, Callable[[int, int], int]] = {
    "DELAY": lambda level, now_ms: now_ms + delay_ms(level),
    "TIMER_DELAY_SEC": lambda seconds, now_ms: now_ms + seconds * 1000,
    "TIMER_DELAY_MS": lambda milliseconds, now_ms: now_ms + milliseconds,
    "TIMER_DELIVER_MS": lambda time_ms, now_ms: time_ms,
}
"""Properties that say when a message is due."""


def _recall_handle(topic: str, due_ms: int, handle: str) -> str:
    """A recall handle in the clients' form: they read the broker's name from it."""
    return base64.urlsafe_b64encode(f"v1 {topic} {BROKER_NAME} {due_ms} {handle}".encode()).decode()


def _read_recall_handle(text: str, topic: str) -> str:
    """The broker's handle within a client's recall handle. Raises PreconditionFailedError."""
    try:
        version, of_topic, _, _, handle = base64.b64decode(text, b"-_", validate=True).decode().split(" ")
    except ValueError:
        version, of_topic, handle = "", "", ""
    if version != "v1" or of_topic != topic:
        raise PreconditionFailedError("recall handle is invalid", subject=topic)
    return handle


def _fits_chunk(messages: list[bytes]) -> bool:
    return len(messages) <= MAX_MESSAGES and sum(map(len, messages)) <= _WHOLE_BYTES


def _unique_key(properties: str) -> str:
    """The id that the client made; empty without one."""
    _, found, rest = f"\x02{properties}".partition(_UNIQUE)
    return rest.partition("\x02")[0] if found else ""
