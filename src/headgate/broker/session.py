"""The commands of one connection, as its user: each checks the user's permissions.

declare, delete a stream or exchange    configure on it
publish to a stream or exchange         write on it, now or later
consume, store and query offsets        read on the stream
bind, unbind                            write on the stream or exchange that it leads to, read on the exchange
bind a stream to a super stream         also configure and read on it: it is read and deleted by the name of that
make, delete a super stream             configure on it and its partitions; read on it, write on them, as they are bound
give an exchange an alternate one       read on it, write on the alternate exchange
query a publisher's sequence            write on the stream
receive, settle, peek, purge            read on the subscription, by its whole name
receive and settle as a consumer group  read on the topic
change subscriptions and rules          configure on the topic, write on what copies or dead letters are to go to
make a message topic by using it        configure on it
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakSet

import numpy as np

from headgate.broker.backlog import Backlog
from headgate.broker.catalogue import Declared, arguments_declared, check_name, check_reserved, clean_name
from headgate.broker.consumer_groups import GroupView, PendingReceive, ReceiveRequest
from headgate.broker.consumers import ChunkConsumer, Consumer, ConsumerOptions, MessageConsumer
from headgate.broker.message_topics import MessageTopic
from headgate.broker.publishers import Publisher
from headgate.broker.replies import ReplyQueues
from headgate.broker.routing import Binding, Exchange, Headers
from headgate.broker.single_active import SharedName
from headgate.broker.stream import BrokerStream
from headgate.broker.super_streams import create_super_stream, delete_super_stream
from headgate.broker.topics import (
    BrokerTopic,
    Changed,
    QueueDepth,
    Receiver,
    ReceiverCalls,
    ScheduledMessages,
    SessionReceiver,
)
from headgate.broker.users import Permission
from headgate.errors import (
    AccessRefusedError,
    HeadgateError,
    LimitExceededError,
    LogError,
    PreconditionFailedError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from headgate.log import MAX_REFERENCE_BYTES, OffsetSpecification
from headgate.message import EncodedMessages
from headgate.scan import MessageReader, ScanBatch
from headgate.topic import Change, SubscriptionName, TopicKind, TopicLimits

if TYPE_CHECKING:
    from headgate.broker.broker import Broker

Check: TypeAlias = Callable[[Permission, str], None]
"""Raises AccessRefusedError where a permission on a resource is missing."""

_MARK_CHARACTERS = 8
"""Characters of a stream's identity in handles of scheduled messages, so that handles of a deleted stream fail."""

logger = logging.getLogger("headgate.broker")


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream as clients see it; `identity` differs from that of others of its name, `arguments` are without `x-`.

    Chunk ids are −1 while there is no chunk. `message_count` counts as RabbitMQ does: all offsets, also those of chunks
    without messages.
    """

    name: str
    identity: str
    arguments: dict[str, object]
    first_offset: int
    next_offset: int
    first_chunk_id: int
    last_chunk_id: int
    committed_chunk_id: int
    message_count: int
    publisher_count: int
    consumer_count: int


class Session:
    """One connection's commands, from `Broker.open_session` to `close`.

    `on_stream_deleted` is called with the name of a deleted stream that this session published to or consumed from,
    after its publishers and consumers were closed and the deletion was answered. `backlog` counts entries that its
    publishers queued and that are not answered. `check` checks a permission; by default, whether the user has it.
    """

    __slots__ = (
        "__weakref__",
        "_broker",
        "_check",
        "_closed",
        "_consumers",
        "_publishers",
        "_receivers",
        "_receivings",
        "backlog",
        "connection",
        "on_stream_deleted",
        "protocol",
        "user",
    )

    def __init__(
        self,
        broker: Broker,
        user: str,
        *,
        protocol: str,
        connection: str,
        backlog: Backlog | None = None,
        check: Check | None = None,
    ) -> None:
        self.user = user
        self.protocol = protocol
        self.connection = connection
        self.backlog = Backlog() if backlog is None else backlog
        self.on_stream_deleted: Callable[[str], None] | None = None
        self._broker = broker
        self._publishers: dict[Publisher, BrokerStream] = {}
        self._consumers: dict[Consumer, BrokerStream] = {}
        self._receivers: list[Receiver] = []
        self._receivings: WeakSet[PendingReceive] = WeakSet()
        self._closed = False
        self._check = functools.partial(broker.users.check, user) if check is None else check

    # streams

    def declare_stream(
        self, name: str, arguments: Mapping[str, object], *, passive: bool = False, numbers_as_text: bool = True
    ) -> Declared:
        """Make a stream, or find one with equal arguments (without `x-`); `passive`: only find it.

        `numbers_as_text`: a number may be given as text, as in the stream protocol and STOMP; AMQP says False. Raises
        ResourceExistsError (other arguments), ResourceNotFoundError (passive), UnsuitableArgumentError,
        ReservedNameError and PreconditionFailedError, AccessRefusedError, LogError.
        """
        name = clean_name(name)
        if passive:
            self._broker.catalogue.get(name)
            return Declared.EXISTS
        self._check(Permission.CONFIGURE, name)
        self._check_no_subscription(name)
        return self._broker.streams.declare(name, arguments, numbers_as_text=numbers_as_text)

    def delete_stream(self, name: str) -> int:
        """Delete a stream, and end its publishers and consumers; gives how many messages it had.

        Raises ResourceNotFoundError, AccessRefusedError, LogError.
        """
        name = clean_name(name)
        self._check(Permission.CONFIGURE, name)
        return self._broker.streams.delete(self._broker.catalogue.get(name))

    def stream_info(self, name: str) -> StreamInfo:
        """A stream as it is now; ResourceNotFoundError, LogError."""
        stream = self._broker.catalogue.get(clean_name(name))
        first = stream.first_offset
        is_empty = stream.last_chunk_id < 0
        return StreamInfo(
            name=stream.name,
            identity=stream.stream.identity,
            arguments=arguments_declared(stream),
            first_offset=first,
            next_offset=stream.next_offset,
            first_chunk_id=-1 if is_empty else first,
            last_chunk_id=stream.last_chunk_id,
            committed_chunk_id=stream.last_chunk_id,
            message_count=stream.next_offset - first,
            publisher_count=len(stream.publishers),
            consumer_count=len(stream.readers),
        )

    def bounds(self, stream: str) -> tuple[int, int]:
        """The first kept offset, and the offset behind the last message; ResourceNotFoundError, LogError."""
        found = self._broker.catalogue.get(stream)
        return found.first_offset, found.next_offset

    def streams(self) -> list[str]:
        """The names of all streams, in order."""
        return self._broker.catalogue.names()

    @property
    def replies(self) -> ReplyQueues:
        """The reply queues of all sessions."""
        return self._broker.replies

    # publishing

    def publisher(self, stream: str, *, reference: str | None = None, exchange: str | None = None) -> Publisher:
        """A publisher of a stream; with a `reference`, its name (not empty), entries that it wrote before are left out.

        With `exchange` the user's permission for that exchange counts instead of that for the stream, as for messages
        that come through a route. Raises ResourceNotFoundError, AccessRefusedError, PreconditionFailedError for a
        reference that is too long, StreamLockedError where another process writes the stream, LogError.
        """
        self._check(Permission.WRITE, stream if exchange is None else exchange)
        found = self._broker.catalogue.get(stream)
        if reference is not None:
            _reference(reference, stream)
            if any(other.reference == reference and used is found for other, used in self._publishers.items()):
                raise PreconditionFailedError(
                    f"this connection has a publisher {reference!r} of the stream already", subject=stream
                )
        publisher = self._broker.open_publisher(found, reference, self.backlog, self._publisher_closed)
        self._publishers[publisher] = found
        return publisher

    def last_sequence(self, stream: str, reference: str) -> int | None:
        """The highest sequence that a publisher wrote; None if none is known. Errors as `publisher`."""
        self._check(Permission.WRITE, stream)
        return self._broker.catalogue.get(stream).last_sequence(_reference(reference, stream))

    def _publisher_closed(self, publisher: Publisher) -> None:
        self._publishers.pop(publisher, None)

    # consuming

    def chunk_consumer(self, stream: str, options: ConsumerOptions) -> ChunkConsumer:
        """A consumer that takes whole chunks; a single active one is told later whether it is active.

        Raises ResourceNotFoundError, AccessRefusedError, PreconditionFailedError, LimitExceededError, LogError.
        """
        found, partition = self._readable(stream, options)
        consumer = self._broker.consumers.chunk_consumer(found, options)
        self._started(consumer, found, options, partition)
        return consumer

    def message_consumer(self, stream: str, options: ConsumerOptions, *, topic: str | None = None) -> MessageConsumer:
        """A consumer that takes messages; errors as `chunk_consumer`.

        With `topic`, of which the stream is a queue, the user's permission for the topic counts, not for the stream.
        """
        found, partition = self._readable(stream, options, topic)
        consumer = self._broker.consumers.message_consumer(found, options)
        self._started(consumer, found, options, partition)
        return consumer

    def read_message(self, stream: str, offset: int) -> ScanBatch:
        """One message by its offset. Opens and closes files.

        Raises OffsetOutOfRangeError where there is none, ResourceNotFoundError, LogError.
        """
        found = self._broker.catalogue.get(stream)
        with found.guarded(), MessageReader(found.stream) as reader:
            batch = reader.read(np.array([offset], dtype=np.int64))
            # The bytes outlive the reader.
            return ScanBatch(EncodedMessages.of([batch.messages.message(0)]), batch.offsets, batch.timestamps_ms)

    def _lost(self, stream: BrokerStream, offsets: int) -> None:
        """Log messages lost to retention; the consumer is told with the next message if its protocol can say it."""
        logger.warning(
            "user %r on %s: %d messages of stream %r were deleted before a consumer came to them",
            self.user,
            self.connection,
            offsets,
            stream.name,
        )

    def _started(
        self, consumer: Consumer, stream: BrokerStream, options: ConsumerOptions, partition: int | None
    ) -> None:
        """Keep a consumer until it ends; a single active one joins the others of its name.

        They are first asked to begin after the answer to the subscription.
        """
        broker = self._broker
        self._consumers[consumer] = stream
        consumer.when_lost(functools.partial(self._lost, stream))
        broker.counters.consumers_opened += 1
        broker.watch(stream)
        shared: SharedName | None = None
        if options.single_active and options.name:
            shared = consumer.shared = broker.shared_name(stream, options.name, partition=partition)
            shared.join(consumer)
            broker.later(shared.settle)

        def gone() -> None:
            self._consumers.pop(consumer, None)
            broker.counters.consumers_closed += 1
            stream.ended.add(consumer)
            if shared is not None and options.name:
                shared.leave(consumer)
                broker.drop_unshared_name(stream, options.name)

        stream.when_removed(consumer, gone)

    def resolve_offset(self, stream: str, start: OffsetSpecification) -> int:
        """The id of the chunk that a reader would begin with now; the next offset if that chunk does not exist yet.

        Raises ResourceNotFoundError, AccessRefusedError, LogError.
        """
        self._check(Permission.READ, stream)
        found = self._broker.catalogue.get(stream)
        with found.guarded():
            return found.stream.attach(start, now_ms=self._broker.now_ms()).chunk_id

    def _partition(self, stream: BrokerStream, options: ConsumerOptions) -> int | None:
        """The number of a stream among the partitions of the options' super stream; None if it is none of them."""
        exchanges = self._broker.exchanges
        if not options.super_stream or options.super_stream not in exchanges:
            return None
        partitions = exchanges.partitions(options.super_stream)
        return partitions.index(stream.name) if stream.name in partitions else None

    # topics

    def receiver(self, name: SubscriptionName, link: ReceiverCalls) -> Receiver:
        """A receiver of a subscription, or of its dead letters.

        Raises ResourceNotFoundError, AccessRefusedError, PreconditionFailedError, LogError.
        """
        receiver = self.topic_of(name).receiver(name.subscription, link, dead_letters=name.is_dead_letter)
        self._keep(receiver, name)
        return receiver

    def session_receiver(
        self,
        name: SubscriptionName,
        session: str | None,
        link: ReceiverCalls,
        accepted: Callable[[SessionReceiver], None],
    ) -> SessionReceiver:
        """A receiver of one session of a subscription; None: the next free one; see `BrokerTopic.session_receiver`.

        Raises ResourceNotFoundError, AccessRefusedError, PreconditionFailedError, SessionLockedError, LogError.
        """
        receiver = self.topic_of(name).session_receiver(name.subscription, session, link, accepted)
        self._keep(receiver, name)
        return receiver

    def _keep(self, receiver: Receiver, name: SubscriptionName) -> None:
        receiver.name = name
        self._receivers = [each for each in self._receivers if not each.is_closed]
        self._receivers.append(receiver)

    def topic_of(self, name: SubscriptionName) -> BrokerTopic:
        """The topic of a subscription that the user may read.

        Raises ResourceNotFoundError, AccessRefusedError, LogError.
        """
        topic = self._broker.topics.get(name.topic)
        self._check(Permission.READ, str(topic.named(name)))
        return topic

    def subscription_of(self, queue: str) -> SubscriptionName | None:
        """The subscription, or its dead letters, that a queue's name means; None if it means none.

        A stream of that name takes precedence. The topic exists; the subscription may not. Raises LogError.
        """
        name = SubscriptionName.parse(queue)
        if name is None:
            return None
        if self._broker.catalogue.find(queue) is not None:
            return None
        topic = self._broker.catalogue.find(name.topic)
        return name if topic is not None and self._broker.topics.is_topic(topic) else None

    def topic_kind(self, name: str) -> TopicKind | None:
        """Whether a stream is a topic or a queue of Service Bus; None if it is neither, or missing. Raises LogError."""
        stream = self._broker.catalogue.find(name)
        if stream is None or not self._broker.topics.is_topic(stream):
            return None
        return self._broker.topics.get(name).history.settings.kind

    def queue_depth(self, name: SubscriptionName) -> QueueDepth:
        """A subscription, or its dead letters, as a queue; errors of `topic_of`."""
        return self.topic_of(name).depth(name.subscription, dead_letters=name.is_dead_letter)

    def purge(self, name: SubscriptionName, then: Callable[[int | HeadgateError], None]) -> None:
        """Settle all copies of a subscription, or of its dead letters; `then` gets how many. Errors of `topic_of`."""
        self.topic_of(name).purge(name.subscription, then, dead_letters=name.is_dead_letter)

    def create_topic(self, name: str, *, limits: TopicLimits | None = None) -> None:
        """Make a stream a topic; a missing stream is made first.

        Raises ResourceExistsError, RuleError for its name, AccessRefusedError, LogError.
        """
        self._check(Permission.CONFIGURE, name)
        check_reserved(name)
        self._broker.topics.create(name, limits)

    def remove_topic(self, name: str) -> None:
        """Make a topic a plain stream again; its messages stay.

        Raises ResourceNotFoundError, AccessRefusedError, RuleError if another topic forwards to it, LogError.
        """
        self._check(Permission.CONFIGURE, name)
        self._broker.topics.remove(name)

    def change_topic(self, name: str, changes: Sequence[Change], then: Changed) -> None:
        """Change subscriptions and rules; `then` gets the offset from which the change is in force, or the error.

        That offset is behind all messages published before. `then` gets RuleError and its kinds, and LogError. Raises
        ResourceNotFoundError, AccessRefusedError, also for a target of forwarding, and LogError.
        """
        self._check(Permission.CONFIGURE, name)
        self._broker.topics.change(name, changes, then, check_target=self.check_writes)

    # consumer groups

    def receive_from(self, topic: MessageTopic, request: ReceiveRequest) -> PendingReceive:
        """Give messages of some queues of a topic to a member of a consumer group, as soon as there are some.

        Raises AccessRefusedError, ResourceNotFoundError for a missing queue or group, EntityDisabledError for the
        group, StreamLockedError, LogError.
        """
        self._check(Permission.READ, topic.name)
        _check_queues(topic, request.streams)
        receiving = self._broker.consumer_groups.receive(request)
        self._receivings.add(receiving)
        return receiving

    def group_view(self, topic: MessageTopic, queue: int, group: str) -> GroupView:
        """The place of a consumer group in a queue of a topic, to settle received messages.

        Raises AccessRefusedError, ResourceNotFoundError, StreamLockedError, LogError.
        """
        self._check(Permission.READ, topic.name)
        if not 0 <= queue < len(topic.streams):
            raise ResourceNotFoundError(f"there is no queue {queue}", subject=topic.name)
        return self._broker.consumer_groups.view(topic.streams[queue], group)

    def reads(self, topic: str) -> bool:
        """Whether the user may consume from a topic."""
        try:
            self.check_reads(topic)
        except AccessRefusedError:
            return False
        return True

    def check_reads(self, topic: str) -> None:
        """Raise AccessRefusedError unless the user may consume from a topic."""
        self._check(Permission.READ, topic)

    def check_writes(self, topic: str) -> None:
        """Raise AccessRefusedError unless the user may publish to a topic, existing or not."""
        self._check(Permission.WRITE, topic)

    # offsets

    def store_offset(self, stream: str, reference: str, offset: int) -> None:
        """Keep a consumer's offset: visible at once, on disk within a second.

        Raises ResourceNotFoundError, AccessRefusedError, PreconditionFailedError.
        """
        self._check(Permission.READ, stream)
        found = self._broker.catalogue.get(stream)
        name = _reference(reference, stream)
        if not 0 <= offset < 2**64:
            raise PreconditionFailedError(f"stored offset {offset}; expected 0 to 2^64 - 1", subject=stream)
        if found.stream.is_foreign:
            raise PreconditionFailedError("a foreign stream that was not adopted keeps no offsets", subject=stream)
        found.store_offset(name, offset)
        self._broker.counters.offsets_stored += 1
        self._broker.watch(found)

    def stored_offset(self, stream: str, reference: str) -> int | None:
        """The offset that a consumer stored last; None if it stored none. Errors as `store_offset`."""
        self._check(Permission.READ, stream)
        return self._broker.catalogue.get(stream).stored_offset(_reference(reference, stream))

    # exchanges

    def declare_exchange(
        self,
        name: str,
        *,
        kind: str = "direct",
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, object] | None = None,
        passive: bool = False,
    ) -> Declared:
        """Make an exchange, or find one with equal properties; `passive`: only find it.

        `kind` is direct, fanout, topic or headers. Raises ResourceExistsError (other properties), ResourceNotFoundError
        (passive), UnsupportedError (a kind that only RabbitMQ has), PreconditionFailedError (unknown kind),
        ReservedNameError, AccessRefusedError, LogError.
        """
        exchanges = self._broker.exchanges
        name = clean_name(name)
        if passive:
            exchanges.get(name)
            return Declared.EXISTS
        self._check(Permission.CONFIGURE, name)
        wanted = Exchange(name, kind, durable, auto_delete, internal, dict(arguments or {}))
        if wanted.alternate is not None and name not in exchanges:
            self._check(Permission.READ, name)
            self._check(Permission.WRITE, wanted.alternate)
        return Declared.CREATED if exchanges.declare(wanted) else Declared.EXISTS

    def delete_exchange(self, name: str, *, if_unused: bool = False) -> None:
        """Delete an exchange with its bindings; a missing one is no error.

        Raises ReservedNameError, PreconditionFailedError (`if_unused` and it has bindings), AccessRefusedError.
        """
        self._check(Permission.CONFIGURE, name)
        self._broker.exchanges.delete(name, if_unused=if_unused)

    def exchange(self, name: str) -> Exchange:
        """One exchange; ResourceNotFoundError."""
        return self._broker.exchanges.get(name)

    def bind(self, source: str, queue: str, key: str, arguments: Mapping[str, object] | None = None) -> None:
        """Bind a stream to an exchange; the same again changes nothing.

        A subscription counts as bound if its topic is: then nothing changes, else PreconditionFailedError is raised.
        Raises ResourceNotFoundError for either end, ReservedNameError for the exchange without a name,
        PreconditionFailedError for a key or arguments that the exchange does not take, AccessRefusedError, LogError.
        """
        self._check_binding(source, queue)
        if self._broker.exchanges.is_super_stream(source):
            self._check(Permission.CONFIGURE, queue)
            self._check(Permission.READ, queue)
        subscription = self.subscription_of(queue)
        if subscription is not None:
            self._check_topic_is_bound(Binding(source, subscription.topic, key, dict(arguments or {})))
            return
        self._broker.catalogue.get(queue)
        self._broker.exchanges.bind(Binding(source, queue, key, dict(arguments or {})))

    def _check_topic_is_bound(self, wanted: Binding) -> None:
        self._broker.exchanges.get(wanted.source)
        if wanted not in self._broker.exchanges.bindings(source=wanted.source, queue=wanted.queue, key=wanted.key):
            raise PreconditionFailedError(
                f"a subscription receives what its topic receives: bind the queue {wanted.queue} to the exchange"
                f" {wanted.source!r} with this key and these arguments first, and choose by the subscription's rules"
            )

    def unbind(self, source: str, queue: str, key: str, arguments: Mapping[str, object] | None = None) -> None:
        """Undo a binding; a missing one is no error. Raises ReservedNameError, AccessRefusedError, LogError."""
        self._check_binding(source, queue)
        self._broker.exchanges.unbind(Binding(source, queue, key, dict(arguments or {})))

    def bind_exchange(
        self, source: str, destination: str, key: str, arguments: Mapping[str, object] | None = None
    ) -> None:
        """Bind an exchange to the exchange `source`, which gives it matching messages; errors as `bind`."""
        self._check_binding(source, destination)
        self._broker.exchanges.bind(Binding(source, "", key, dict(arguments or {}), destination))

    def unbind_exchange(
        self, source: str, destination: str, key: str, arguments: Mapping[str, object] | None = None
    ) -> None:
        """Undo a binding between exchanges; errors as `unbind`."""
        self._check_binding(source, destination)
        self._broker.exchanges.unbind(Binding(source, "", key, dict(arguments or {}), destination))

    def bindings(
        self,
        source: str | None = None,
        queue: str | None = None,
        key: str | None = None,
        *,
        exchange: str | None = None,
    ) -> list[Binding]:
        """The bindings with these ends and key, None for any, in order of binding."""
        return self._broker.exchanges.bindings(source=source, queue=queue, exchange=exchange, key=key)

    def route(self, exchange: str, routing_key: str, headers: Headers = dict) -> list[str]:
        """Names of the streams that a message goes to; empty if none matches. `headers` is called if they matter.

        Raises ResourceNotFoundError for the exchange, AccessRefusedError, also for an internal one.
        """
        self._check(Permission.WRITE, exchange)
        exchanges = self._broker.exchanges
        if exchanges.get(exchange).internal:
            raise AccessRefusedError(f"cannot publish to internal exchange '{exchange}' in vhost '/'")
        return [name for name in exchanges.route(exchange, routing_key, headers) if self._is_there(name)]

    def needs_headers(self, exchange: str) -> bool:
        """Whether the routes of an exchange depend on headers; False for a missing exchange."""
        return self._broker.exchanges.needs_headers(exchange)

    def _is_there(self, stream: str) -> bool:
        """Whether a stream exists, damaged or not; its publisher reports damage."""
        try:
            return self._broker.catalogue.find(stream) is not None
        except LogError:
            return True

    # super streams

    def create_super_stream(
        self, name: str, partitions: Sequence[str], binding_keys: Sequence[str], arguments: Mapping[str, object]
    ) -> None:
        """Make the partitions, each with the arguments, and bind them with their keys, pairwise and in order.

        A key may have several partitions. Raises ResourceExistsError if the super stream or a partition exists,
        PreconditionFailedError for counts that differ, duplicate partitions or bad names, AccessRefusedError, LogError;
        then nothing was made.
        """
        name = clean_name(name)
        partitions = [clean_name(partition) for partition in partitions]
        if len(partitions) != len(binding_keys) or not partitions:
            raise PreconditionFailedError(
                f"{len(partitions)} partitions and {len(binding_keys)} binding keys; expected as many, one at least",
                subject=name,
            )
        if len(set(partitions)) < len(partitions):
            raise PreconditionFailedError("two partitions are the same", subject=name)
        for resource in (name, *partitions):
            check_name(resource)
        self._check_super_stream(name, partitions)
        for partition in partitions:
            self._check_no_subscription(partition)
        create_super_stream(
            self._broker.streams,
            name,
            list(zip(partitions, binding_keys, strict=True)),
            arguments,
        )

    def delete_super_stream(self, name: str) -> None:
        """Delete a super stream and its partitions.

        Raises ResourceNotFoundError, ReservedNameError for a plain exchange, AccessRefusedError, LogError.
        """
        name = clean_name(name)
        partitions = self._broker.exchanges.partitions(name)
        check_name(name)
        self._check_super_stream(name, partitions)
        delete_super_stream(self._broker.streams, name)

    def partitions(self, name: str) -> list[str]:
        """The partitions of a super stream, in order; ResourceNotFoundError."""
        return self._broker.exchanges.partitions(clean_name(name))

    def route_super_stream(self, name: str, key: str) -> list[str]:
        """The partitions bound with exactly that key, if any; ResourceNotFoundError."""
        self._broker.exchanges.partitions(name)
        return list(self._broker.exchanges.route(name, key))

    # message topics

    def message_topic(self, name: str) -> MessageTopic | None:
        """The message topic of that name; None if there is none. Raises LogError for a damaged stream."""
        return self._broker.message_topics.find(name)

    def ensure_message_topic(self, name: str, queues: int | None = None, *, for_producer: bool) -> MessageTopic:
        """The message topic of that name; a missing one is made if the settings allow it and the user may.

        Raises ResourceNotFoundError where the settings do not, AccessRefusedError, and as `MessageTopics.create`.
        """
        topics = self._broker.message_topics
        found = topics.find(name)
        if found is not None:
            return found
        if topics.may_create(for_producer=for_producer):
            self._check(Permission.CONFIGURE, name)
        return topics.ensure(name, queues, for_producer=for_producer)

    def schedule_message(
        self, topic: MessageTopic, queue: int, message: bytes, due_ms: int, then: Callable[[str | HeadgateError], None]
    ) -> None:
        """Publish an encoded message to a queue of a topic when its time comes, exactly once even across crashes.

        `then` gets a handle for `recall_message` when it is on disk, or the error of `ScheduledMessages.schedule`.
        Raises ResourceNotFoundError, AccessRefusedError, LogError.
        """
        waiting, mark = self._scheduled(topic, queue)

        def told(numbers: list[int] | HeadgateError) -> None:
            then(numbers if isinstance(numbers, HeadgateError) else f"{queue}.{numbers[0]}.{mark}")

        waiting.schedule([message], [due_ms], told)

    def recall_message(self, topic: MessageTopic, handle: str, then: Callable[[HeadgateError | None], None]) -> None:
        """Forget a scheduled message.

        `then` gets None when it will not be published, ResourceNotFoundError if it waits no more, LogError. Raises
        PreconditionFailedError for a wrong handle, AccessRefusedError, LogError.
        """
        try:
            queue, number, mark = handle.split(".")
            waiting, own_mark = self._scheduled(topic, int(queue))
            numbers = [int(number)]
        except ValueError as error:
            raise PreconditionFailedError("no handle of a message for later", subject=handle[:80]) from error
        gone = ResourceNotFoundError("the message does not wait for its time any more", subject=topic.name)
        if mark != own_mark:
            then(gone)
            return

        def told(is_held: bool | HeadgateError) -> None:
            then(is_held if isinstance(is_held, HeadgateError) else None if is_held else gone)

        waiting.cancel(numbers, told)

    def _scheduled(self, topic: MessageTopic, queue: int) -> tuple[ScheduledMessages, str]:
        """The scheduled messages of a queue, and the mark of its stream in handles."""
        self._check(Permission.WRITE, topic.name)
        if not 0 <= queue < len(topic.streams):
            raise PreconditionFailedError(f"it has {len(topic.streams)} queues, none {queue}", subject=topic.name)
        stream = self._broker.catalogue.get(topic.streams[queue])
        return self._broker.topics.scheduler.of(stream), stream.stream.identity[:_MARK_CHARACTERS]

    # ending

    @property
    def publishers(self) -> tuple[Publisher, ...]:
        """The open publishers."""
        return tuple(self._publishers)

    @property
    def receivers(self) -> tuple[Receiver, ...]:
        """The open receivers."""
        return tuple(receiver for receiver in self._receivers if not receiver.is_closed)

    @property
    def consumers(self) -> tuple[Consumer, ...]:
        """The open consumers."""
        return tuple(self._consumers)

    def uses(self, stream: BrokerStream) -> bool:
        """Whether this session has a publisher or a consumer on a stream."""
        return any(used is stream for used in (*self._publishers.values(), *self._consumers.values()))

    def tell_deleted(self, name: str) -> None:
        """A stream that this session used was deleted."""
        if self.on_stream_deleted is not None and not self._closed:
            self.on_stream_deleted(name)

    def close(self) -> None:
        """End its publishers, consumers and receivers; queued batches are still written. Again is harmless."""
        self._closed = True
        self.backlog.forget()
        for publisher in list(self._publishers):
            publisher.close()
        sharing: dict[SharedName, list[Consumer]] = {}
        for consumer in self._consumers:
            if consumer.shared is not None:
                sharing.setdefault(consumer.shared, []).append(consumer)
        for shared, members in sharing.items():
            shared.leave(*members)
        for consumer in list(self._consumers):
            consumer.close()
        for receiver in self._receivers:
            receiver.close()
        for receiving in list(self._receivings):
            receiving.close()
        self._broker.sessions.pop(self, None)

    # inside

    def _check_no_subscription(self, name: str) -> None:
        """Raise ResourceExistsError for a name that means a subscription."""
        if self.subscription_of(name) is not None:
            raise ResourceExistsError("the name means a subscription of a topic; it is no stream", subject=name)

    def _check_binding(self, source: str, destination: str) -> None:
        self._check(Permission.WRITE, destination)
        self._check(Permission.READ, source)

    def _check_super_stream(self, name: str, partitions: Sequence[str]) -> None:
        """Raise AccessRefusedError unless the user may make or delete a super stream of these partitions."""
        for resource in (name, *partitions):
            self._check(Permission.CONFIGURE, resource)
        for partition in partitions:
            self._check_binding(name, partition)

    def _readable(
        self, stream: str, options: ConsumerOptions, topic: str | None = None
    ) -> tuple[BrokerStream, int | None]:
        """The stream to consume from, and its number among the partitions of its super stream."""
        self._check(Permission.READ, stream if topic is None else topic)
        if options.single_active and not options.name:
            raise PreconditionFailedError("a single active consumer needs a name", subject=stream)
        if options.name is not None:
            _reference(options.name, stream, may_be_empty=True)
        limit = self._broker.settings.filter_values
        if len(options.filter_values) > limit:
            raise LimitExceededError(f"more than {limit} filter values", subject=stream)
        found = self._broker.catalogue.get(stream)
        return found, self._partition(found, options)


def _check_queues(topic: MessageTopic, streams: Sequence[str]) -> None:
    other = next((name for name in streams if name not in topic.streams), None)
    if other is not None:
        raise ResourceNotFoundError(f"it has no queue {other!r}", subject=topic.name)


def _reference(reference: str, stream: str, *, may_be_empty: bool = False) -> bytes:
    """The bytes of a publisher's or consumer's name; PreconditionFailedError for one that the log cannot hold."""
    encoded = reference.encode("utf-8", "surrogatepass")
    if len(encoded) > MAX_REFERENCE_BYTES or not (encoded or may_be_empty):
        raise PreconditionFailedError(
            f"a reference has {len(encoded)} bytes; expected 1 to {MAX_REFERENCE_BYTES}", subject=stream
        )
    return encoded
