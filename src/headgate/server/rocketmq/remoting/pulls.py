"""Pulls: each asks for messages of one queue from an offset on, and waits for them if there are none.

    a pull comes ──► the reader of its queue, where the last pull ended ──► found ──► answered
                                                                       └─► at the end: held, until something
                                                                           comes that its filter is true for

A scan may pass over any number of messages: the answer says how far it came.
"""

from __future__ import annotations

import functools
import logging
import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headgate.broker import Session
from headgate.broker.consumer_groups import Again
from headgate.errors import BrokerError, ConfigError, EntityDisabledError, FilterError, HeadgateError, LogError
from headgate.evaluate import Filter
from headgate.message import EncodedMessages
from headgate.protocols.rocketmq import (
    RETRY_PREFIX,
    StoredFrom,
    encode_stored,
    message_id,
)
from headgate.protocols.rocketmq.remoting import Command, PullFlag, ResponseCode, pull_fields, read_header
from headgate.protocols.rocketmq.remoting import headers as h
from headgate.server.context import ServerContext
from headgate.server.pump import Pump
from headgate.server.rocketmq.message_ids import place_of_stream
from headgate.server.rocketmq.remoting.answers import Answer, refusal
from headgate.server.rocketmq.remoting.queue_readers import QueueReader, Waiting
from headgate.server.rocketmq.remoting.routes import CLUSTER, REGION
from headgate.server.rocketmq.remoting.subscriptions import announced, check_expression, readable_stream, reads_stream
from headgate.server.transport import Transport

HEARTBEAT_WAIT_MS = 3_000
"""How long a pull waits for the heartbeat that announces its filter. Clients send that right after the pull."""

ADDED = {"CLUSTER": CLUSTER, "MSG_REGION": REGION}
"""Properties of every message that clients are given."""

# Numbers, as sums of enumerations are made in Python.
_COMMIT_OFFSET, _MAY_WAIT = int(PullFlag.COMMIT_OFFSET), int(PullFlag.MAY_WAIT)
_HAS_SUBSCRIPTION = int(PullFlag.HAS_SUBSCRIPTION)
_QUEUE, _QUEUE_OFFSET = struct.Struct(">i"), struct.Struct(">q")
_WAIT_MS = 30_000
"""The longest time that a pull is held."""

_MOST_AHEAD = 64
"""Limit: queues per connection with messages encoded ahead."""

_Key = tuple[str, str, int]
"""Group, topic and queue."""

logger = logging.getLogger("headgate.server.rocketmq")


@dataclass(slots=True)
class _Later:
    """A pull that waits for a heartbeat or for redelivered messages, not for new messages of its queue."""

    waiting: Waiting
    end: Callable[[], None]


class Pulls:
    """The pulls of one connection."""

    def __init__(
        self,
        transport: Transport,
        context: ServerContext,
        answer: Answer,
        refresh: Callable[[Session, str], None],
        *,
        store_host: bytes,
    ) -> None:
        """`refresh` asks the members of a group on this connection for their subscriptions."""
        self._refresh = refresh
        self._transport = transport
        self._context = context
        self._broker = context.broker
        self._members = context.broker.members
        self._queue_offsets = context.broker.consumer_groups.pull_consumers
        self._answer = answer
        self._store_host = store_host
        self._pump = Pump(transport)
        self._readers: dict[_Key, QueueReader] = {}
        """Oldest first."""
        self._ahead: dict[QueueReader, None] = {}
        """The readers with messages encoded ahead."""
        self._later: dict[int, tuple[Session, _Later]] = {}
        """By the number of the request."""

    # requests

    def pull(self, session: Session, command: Command) -> None:
        """Take a pull; it is answered when messages are found, or when its time is over. Raises HeadgateError."""
        request = read_header(command, h.PullRequest)
        group, flags = request.consumer_group, request.sys_flag
        if not self._may_pull(command, group):
            return
        may_wait = bool(flags & _MAY_WAIT)
        hold_ms = min(max(request.suspend_timeout_millis, 0), _WAIT_MS) if may_wait else 0
        now_ms = self._context.clock.now_ms()
        waiting = Waiting(command, request, now_ms + hold_ms, may_wait)
        if request.topic.startswith(RETRY_PREFIX):
            self._pull_retries(session, waiting)
            return
        reader = self._readers.get(_key(request))
        if reader is not None and reader.session is not session:
            reader = None
        if reader is None or reader.consumer.is_closed:
            stream = readable_stream(session, request.topic, request.queue_id)
            if reader is not None and self._begins_anew(reader, session, waiting):
                return
            reader = None
        else:
            stream = reader.stream
        if flags & _COMMIT_OFFSET and self._members.is_shared(group):
            self._queue_offsets.done(stream, group, request.commit_offset)
        wanted = (
            self._own_filter(command, request) if flags & _HAS_SUBSCRIPTION else self._filter_of_group(session, waiting)
        )
        if not isinstance(wanted, _Refused):
            self._read(reader, session, waiting, wanted)

    def _may_pull(self, command: Command, group: str) -> bool:
        """Whether members of a group may pull messages; if not, the request is refused."""
        try:
            settings = self._broker.consumer_groups.ensure(group)
        except EntityDisabledError:
            self._refuse(command, ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}")
            return False
        except (BrokerError, LogError) as error:
            remark = f"subscription group [{group}] does not exist, {error}"
            self._refuse(command, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
            return False
        if not (settings.broadcast or self._members.is_shared(group)) and self._members.of(group):
            remark = f"the consumer group[{group}] can not consume by broadcast way"
            self._refuse(command, ResponseCode.NO_PERMISSION, remark)
            return False
        return True

    def _own_filter(self, command: Command, request: h.PullRequest) -> Filter | _Refused | None:
        """The filter that the request itself carries."""
        limit = self._context.settings.limits.filter_bytes
        wanted = announced(request.subscription, request.expression_type, request.sub_version, limit)
        try:
            return check_expression(wanted)
        except (FilterError, ConfigError) as error:
            remark = f"parse the consumer's subscription failed: {error}"
            return self._refuse(command, ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark)

    def _filter_of_group(self, session: Session, waiting: Waiting) -> Filter | _Refused | None:
        """The filter that the group announced with heartbeats."""
        command, request = waiting.command, waiting.request
        found = self._members.subscription(request.consumer_group, request.topic)
        if found is None:
            what = "subscription" if self._members.of(request.consumer_group) else "group info"
            return self._refuse(command, ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's {what} not exist")
        if found.announcement.version < request.sub_version:
            # Refused at once, its client waits for three seconds; the heartbeat is on its way.
            self._wait_for_heartbeat(session, waiting)
            return REFUSED
        if found.refusal is not None:
            remark = f"The broker's consumer filter data is not exist!Your expression may be wrong! {found.refusal}"
            return self._refuse(command, ResponseCode.FILTER_DATA_NOT_EXIST, remark)
        return found.filter

    def _refuse(self, command: Command, code: ResponseCode, remark: str) -> _Refused:
        self._answer(command, command.answer(code, remark=remark))
        return REFUSED

    def _wait_for_heartbeat(self, session: Session, waiting: Waiting) -> None:
        command, request = waiting.command, waiting.request
        number = command.opaque

        def changed() -> None:
            _, later = self._later.pop(number)
            later.end()
            try:
                self.pull(session, command)
            except HeadgateError as error:
                self._answer(command, refusal(command, error))

        waiting.until_ms = min(waiting.until_ms, self._context.clock.now_ms() + HEARTBEAT_WAIT_MS)
        end = self._members.watch(request.consumer_group, request.topic, changed)
        self._keep(session, waiting, end)
        self._refresh(session, request.consumer_group)

    def _keep(self, session: Session, waiting: Waiting, end: Callable[[], None]) -> None:
        earlier = self._later.pop(waiting.command.opaque, None)
        if earlier is not None:
            earlier[1].end()
        self._later[waiting.command.opaque] = (session, _Later(waiting, end))

    # one queue

    def _read(self, reader: QueueReader | None, session: Session, waiting: Waiting, wanted: Filter | None) -> None:
        request = waiting.request
        if reader is None or not self._goes_on(reader, request.queue_offset, wanted):
            reader = self._opened(session, waiting, wanted)
            if reader is None:
                return
        if reader.waiting is not None:
            self._answer_held(reader)
        reader.waiting = waiting
        if reader.view is not None and not reader.view.is_closed:
            if not reader.was_used:
                reader.view.pulled()
        elif self._members.is_shared(request.consumer_group):
            reader.view = self._queue_offsets.pulled(reader.stream, request.consumer_group, request.queue_offset)
            reader.view.begin(reader.consumer)
        if reader.ahead is None:
            if reader.at_end:
                waiting.is_held = True
                if not waiting.may_wait:
                    self._answer_held(reader)
                    return
            reader.want(waiting.count)
        if self._transport.is_writable:
            # Messages that are ready need no turn of the pump.
            self._deliver(reader, 0)
        if reader.waiting is not None:
            reader.consumer.wake()

    @staticmethod
    def _goes_on(reader: QueueReader, offset: int, wanted: Filter | None) -> bool:
        if reader.filter is not wanted and reader.filter != wanted:
            return False
        if reader.next_offset == offset:
            return not reader.consumer.is_closed
        first, end = reader.consumer.bounds
        return first <= offset <= end and reader.goes_on_at(offset)

    def _opened(self, session: Session, waiting: Waiting, wanted: Filter | None) -> QueueReader | None:
        """A reader that begins at the pull's offset; None for an offset outside the queue, which is answered here."""
        command, request = waiting.command, waiting.request
        stream = readable_stream(session, request.topic, request.queue_id)
        first, end = session.bounds(stream)
        if not first <= request.queue_offset <= end:
            moved_to = first if request.queue_offset < first else end
            group = request.consumer_group
            if moved_to == end and self._queue_offsets.place(stream, group) is None:
                # The offset belongs to an earlier queue of this name.
                moved_to = self._queue_offsets.begins_at(stream, group)
            self._answer_moved(session, command, stream, moved_to)
            return None
        key = _key(request)
        if key in self._readers:
            self._close(key)
        while len(self._readers) >= self._context.settings.rocketmq.pulls:
            self._close(next(iter(self._readers)))
        identity = session.stream_info(stream).identity
        place = place_of_stream(self._broker, stream)
        source = StoredFrom(request.topic, request.queue_id, place, self._store_host, identity, ADDED)
        reader = self._readers[key] = QueueReader(session, request, stream, source, wanted)
        reader.end_watch = self._members.watch(
            request.consumer_group, request.topic, lambda: self._subscription_changed(reader)
        )
        self._pump.add(
            reader.consumer,
            lambda budget: self._deliver(reader, budget),
            lambda error: self._failed(reader, error),
        )
        return reader

    def counts_offsets_of(self, group: str, topic: str, queue: int) -> bool:
        """Whether a member's offsets belong to the queue as it is now.

        They do not if the queue was deleted and made again since, and the member was not told.
        """
        reader = self._readers.get((group, topic, queue))
        return reader is None or not self._was_made_again(reader)

    def _was_made_again(self, reader: QueueReader) -> bool:
        if not reader.consumer.is_closed:
            return False
        return self._broker.catalogue.get(reader.stream).stream.identity != reader.source.identity

    def _begins_anew(self, reader: QueueReader, session: Session, waiting: Waiting) -> bool:
        """If the queue was deleted and made again, tell the member where its group begins; returns whether it did."""
        request = waiting.request
        if request.queue_offset == reader.moved_to or not self._was_made_again(reader):
            return False
        reader.moved_to = self._queue_offsets.begins_at(reader.stream, request.consumer_group)
        self._answer_moved(session, waiting.command, reader.stream, reader.moved_to)
        return True

    def _answer_moved(self, session: Session, command: Command, stream: str, offset: int) -> None:
        first, end = session.bounds(stream)
        fields = pull_fields(next_offset=offset, min_offset=first, max_offset=end)
        self._answer(command, command.answer(ResponseCode.PULL_OFFSET_MOVED, fields=fields, remark="OFFSET_MOVED"))

    def _close(self, key: _Key) -> None:
        reader = self._readers.pop(key)
        self._ahead.pop(reader, None)
        self._answer_held(reader)
        self._pump.remove(reader.consumer)
        reader.close()

    # answers

    def _deliver(self, reader: QueueReader, budget_bytes: int) -> int | None:
        """Answer the waiting pull if there are messages for it. One answer is as large as the client asks for."""
        waiting = reader.waiting
        if waiting is None:
            return None
        may_be_ahead = len(self._ahead) < _MOST_AHEAD
        body = reader.take(waiting.count, waiting.size_bytes, may_be_ahead=may_be_ahead)
        if reader.ahead is None:
            self._ahead.pop(reader, None)
        else:
            self._ahead[reader] = None
        if body is None:
            if reader.at_end and not waiting.is_held:
                waiting.is_held = True
                # The messages were all passed over: the answer says so, and the client waits with its next request.
                if reader.position > waiting.request.queue_offset or not waiting.may_wait:
                    self._answer_held(reader)
            return None
        if not body:
            reader.want(waiting.count)
            return 1
        self._end(reader, waiting, ResponseCode.SUCCESS, "FOUND", body)
        return len(body)

    def _answer_held(self, reader: QueueReader) -> None:
        """Answer the waiting pull, if there is one, with how far its reader came."""
        waiting = reader.waiting
        if waiting is None:
            return
        if reader.position > waiting.request.queue_offset:
            self._end(reader, waiting, ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
        else:
            self._end(reader, waiting, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE")

    def _end(
        self, reader: QueueReader, waiting: Waiting, code: ResponseCode, remark: str, body: bytes | memoryview = b""
    ) -> None:
        reader.waiting = None
        if reader.ahead is None and (len(self._ahead) >= _MOST_AHEAD or reader.consumer.is_memory_short):
            reader.consumer.want(0)
        reader.next_offset = max(reader.position, waiting.request.queue_offset)
        if reader.view is not None:
            count = reader.taken if len(body) else 0
            reader.view.answered(count, len(body), reader.next_offset - waiting.request.queue_offset)
        first, end = reader.consumer.bounds
        fields = pull_fields(next_offset=reader.next_offset, min_offset=first, max_offset=end)
        command = waiting.command
        self._answer(command, command.answer(code, fields=fields, remark=remark, body=body))

    def _failed(self, reader: QueueReader, error: HeadgateError) -> None:
        """The queue cannot be read."""
        logger.info("a pull of %r: %s", reader.stream, error)
        waiting, reader.waiting = reader.waiting, None
        reader.consumer.want(0)
        if waiting is not None:
            self._answer(waiting.command, refusal(waiting.command, error))

    def _subscription_changed(self, reader: QueueReader) -> None:
        """The group's filter has changed: a pull that waits is answered, so that its client pulls with the new one."""
        waiting = reader.waiting
        if waiting is None or waiting.request.sys_flag & _HAS_SUBSCRIPTION:
            return
        found = self._members.subscription(waiting.request.consumer_group, waiting.request.topic)
        if found is None or found.filter != reader.filter:
            self._answer_held(reader)

    # redelivery

    def _pull_retries(self, session: Session, waiting: Waiting) -> None:
        command, request = waiting.command, waiting.request
        group = request.consumer_group
        if request.topic != RETRY_PREFIX + group or request.queue_id != 0:
            remark = f"topic[{request.topic}] is not that of the group"
            self._refuse(command, ResponseCode.INVALID_PARAMETER, remark)
            return
        retries = self._queue_offsets.retries(group)
        if request.sys_flag & _COMMIT_OFFSET:
            retries.complete_below(request.commit_offset, functools.partial(reads_stream, session, self._broker))
        topics = [topic for topic in self._members.topics(group) if session.reads(topic)]
        queues = {
            stream: (topic, queue)
            for topic in topics
            if (found := session.message_topic(topic)) is not None
            for queue, stream in enumerate(found.streams)
        }
        if self._give_again(session, waiting, queues):
            return
        if not waiting.may_wait:
            self._answer_nothing_again(waiting)
            return

        def ready() -> None:
            if self._later.pop(command.opaque, None) is not None and not self._give_again(session, waiting, queues):
                self._answer_nothing_again(waiting)

        self._keep(session, waiting, retries.wait(list(queues), ready))

    def _give_again(self, session: Session, waiting: Waiting, queues: dict[str, tuple[str, int]]) -> bool:
        request = waiting.request
        retries = self._queue_offsets.retries(request.consumer_group)
        found = retries.from_number(request.queue_offset, waiting.count, waiting.size_bytes, queues.__contains__)
        if not found:
            return False
        body = b"".join(self._stored_again(session, request.topic, each, *queues[each.stream]) for each in found)
        fields = pull_fields(
            next_offset=found[-1].number + 1, min_offset=retries.first_number, max_offset=retries.next_number
        )
        command = waiting.command
        self._answer(command, command.answer(ResponseCode.SUCCESS, fields=fields, remark="FOUND", body=body))
        return True

    def _stored_again(self, session: Session, retry_topic: str, again: Again, topic: str, queue: int) -> bytes:
        """A redelivered message in the client's form: of the retry topic, with the place where it is stored."""
        message = again.message
        place = place_of_stream(self._broker, again.stream)
        added = {
            **ADDED,
            "RETRY_TOPIC": topic,
            "ORIGIN_MESSAGE_ID": message_id(self._store_host, place + message.offset),
        }
        identity = session.stream_info(again.stream).identity
        stored = bytearray(
            encode_stored(
                EncodedMessages.of([message.message]),
                offsets=np.array([message.offset], dtype=np.int64),
                timestamps_ms=np.array([message.timestamp_ms], dtype=np.int64),
                reconsume_times=np.array([message.attempt - 1], dtype=np.int64),
                source=StoredFrom(retry_topic, queue, place, self._store_host, identity, added),
            ).octets
        )
        # Its place in the retry queue; the place where it is stored stays that of its own queue.
        _QUEUE.pack_into(stored, 12, 0)
        _QUEUE_OFFSET.pack_into(stored, 20, again.number)
        return bytes(stored)

    def _answer_nothing_again(self, waiting: Waiting) -> None:
        retries = self._queue_offsets.retries(waiting.request.consumer_group)
        fields = pull_fields(
            next_offset=max(waiting.request.queue_offset, retries.first_number),
            min_offset=retries.first_number,
            max_offset=retries.next_number,
        )
        command = waiting.command
        self._answer(command, command.answer(ResponseCode.PULL_NOT_FOUND, fields=fields, remark="NO_NEW_MESSAGE"))

    # time, and the end

    def wake(self) -> None:
        """The transport takes more."""
        self._pump.wake()

    def tick(self, now_ms: int) -> None:
        """Answer pulls whose time is over."""
        for reader in list(self._readers.values()):
            reader.tick(now_ms)
            waiting = reader.waiting
            if waiting is None:
                if reader.ahead is None:
                    self._ahead.pop(reader, None)
                continue
            if reader.consumer.is_closed or (waiting.until_ms <= now_ms and (waiting.may_wait or reader.at_end)):
                self._answer_held(reader)
        for number, (_, later) in list(self._later.items()):
            if later.waiting.until_ms <= now_ms:
                del self._later[number]
                later.end()
                self._answer_later(later.waiting)

    def _answer_later(self, waiting: Waiting) -> None:
        if waiting.request.topic.startswith(RETRY_PREFIX):
            self._answer_nothing_again(waiting)
        else:
            remark = "the consumer's subscription not latest"
            self._refuse(waiting.command, ResponseCode.SUBSCRIPTION_NOT_LATEST, remark)

    def end(self) -> None:
        """The connection is gone."""
        for key in list(self._readers):
            self._close(key)
        later, self._later = self._later, {}
        for _, each in later.values():
            each.end()


def _key(request: h.PullRequest) -> _Key:
    return request.consumer_group, request.topic, request.queue_id


class _Refused:
    """Stands for a request that was answered already, or waits."""


REFUSED = _Refused()
