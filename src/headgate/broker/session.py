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
from dataclasses import dataclass, replace
from typing import Concatenate, ParamSpec, TypeAlias, TypeVar
from weakref import WeakSet

from headgate.broker.arguments import check_places_nothing
from headgate.broker.audit import Actor, Audit, described_changes
from headgate.broker.backlog import Backlog
from headgate.broker.catalogue import Declared, StreamInfo, check_name, check_reserved, clean_name
from headgate.broker.consumer_groups import (
    ConsumerGroups,
    GroupDeadLetters,
    GroupView,
    PendingReceive,
    ReceiveRequest,
    dead_letters_of,
)
from headgate.broker.consumers import ChunkConsumer, Consumer, ConsumerOptions, Consumers, MessageConsumer
from headgate.broker.environment import Environment
from headgate.broker.jobs import Job, Jobs
from headgate.broker.message_topics import MessageTopic, MessageTopics
from headgate.broker.publishers import Publisher
from headgate.broker.replies import ReplyQueues
from headgate.broker.resubmission import COPIES_SHOWN, Resubmission, ResubmissionWork, Resubmitter
from headgate.broker.resubmission import Origin as DeadLetterOrigin
from headgate.broker.routing import Binding, Exchange, Headers
from headgate.broker.settings import BrokerSettings
from headgate.broker.single_active import SharedName, SharedNames
from headgate.broker.stream import BrokerStream
from headgate.broker.streams import BrokerCounters, Streams
from headgate.broker.super_streams import create_super_stream, delete_super_stream
from headgate.broker.topics import (
    BrokerTopic,
    Changed,
    QueueDepth,
    Receiver,
    ReceiverCalls,
    SessionReceiver,
    Topics,
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
from headgate.ledger import offset_of
from headgate.log import MAX_REFERENCE_BYTES, OffsetSpecification
from headgate.scan import ScanBatch
from headgate.topic import Change, SubscriptionName, TopicKind, TopicLimits

P = ParamSpec("P")
R = TypeVar("R")

Check: TypeAlias = Callable[[Permission, str], None]
"""Raises AccessRefusedError where a permission on a resource is missing."""

logger = logging.getLogger("headgate.broker")


@dataclass(frozen=True, slots=True)
class BrokerParts:
    """The parts of a broker that the commands of its sessions go to.

    `open_publisher` is `Broker.open_publisher`; `ended` is called by each session that closes.
    """

    environment: Environment
    settings: BrokerSettings
    counters: BrokerCounters
    streams: Streams
    consumers: Consumers
    shared_names: SharedNames
    topics: Topics
    consumer_groups: ConsumerGroups
    message_topics: MessageTopics
    replies: ReplyQueues
    jobs: Jobs
    audit: Audit
    open_publisher: Callable[[BrokerStream, str | None, Backlog, Callable[[Publisher], None]], Publisher]
    ended: Callable[[Session], None]


def _audited(
    action: str,
) -> Callable[[Callable[Concatenate[Session, str, P], R]], Callable[Concatenate[Session, str, P], R]]:
    """A command that the audit stream records: its first argument names what it changes.

    A declaration that finds what it declares changes nothing.
    """

    def recorded(command: Callable[Concatenate[Session, str, P], R]) -> Callable[Concatenate[Session, str, P], R]:
        @functools.wraps(command)
        def call(self: Session, name: str, /, *args: P.args, **more: P.kwargs) -> R:
            if more.get("passive"):
                return command(self, name, *args, **more)
            with self._parts.audit.attempt(self.actor, action, str(name)) as attempt:
                result = command(self, name, *args, **more)
                attempt.is_change = result is not Declared.EXISTS
                return result

        return call

    return recorded


class Session:
    """One connection's commands, from `Broker.open_session` to `close`.

    `on_stream_deleted` is called with the name of a deleted stream that this session published to or consumed from,
    after its publishers and consumers were closed and the deletion was answered. `backlog` counts entries that its
    publishers queued and that are not answered. `check` checks a permission.
    """

    __slots__ = (
        "__weakref__",
        "_catalogue",
        "_check",
        "_closed",
        "_consumers",
        "_exchanges",
        "_parts",
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
        parts: BrokerParts,
        user: str,
        *,
        protocol: str,
        connection: str,
        backlog: Backlog | None,
        check: Check,
    ) -> None:
        self.user = user
        self.protocol = protocol
        self.connection = connection
        self.backlog = Backlog() if backlog is None else backlog
        self.on_stream_deleted: Callable[[str], None] | None = None
        self._parts = parts
        self._catalogue = parts.streams.catalogue
        self._exchanges = parts.streams.exchanges
        self._publishers: dict[Publisher, BrokerStream] = {}
        self._consumers: dict[Consumer, BrokerStream] = {}
        self._receivers: list[Receiver] = []
        self._receivings: WeakSet[PendingReceive] = WeakSet()
        self._closed = False
        self._check = check

    @property
    def actor(self) -> Actor:
        """Who acts here, for the audit stream."""
        return Actor(self.user, self.protocol, self.connection)

    # streams

    @_audited("stream.create")
    def declare_stream(
        self,
        name: str,
        arguments: Mapping[str, object],
        *,
        passive: bool = False,
        numbers_as_text: bool = True,
        body_schema: str | None = None,
    ) -> Declared:
        """Make a stream, or find one with equal arguments (without `x-`); `passive`: only find it.

        `body_schema` is the text of the `BodySchema` of a stream that is made, checked.
        `numbers_as_text`: a number may be given as text, as in the stream protocol and STOMP; AMQP says False. Raises
        ResourceExistsError (other arguments), ResourceNotFoundError (passive), UnsuitableArgumentError,
        ReservedNameError and PreconditionFailedError, AccessRefusedError, LogError.
        """
        name = clean_name(name)
        if passive:
            self._catalogue.get(name)
            return Declared.EXISTS
        self._check(Permission.CONFIGURE, name)
        self._check_no_subscription(name)
        check_places_nothing(arguments, stream=name)
        return self._parts.streams.declare(name, arguments, numbers_as_text=numbers_as_text, body_schema=body_schema)

    @_audited("stream.delete")
    def delete_stream(self, name: str) -> int:
        """Delete a stream, and end its publishers and consumers; gives how many messages it had.

        Raises ResourceNotFoundError, AccessRefusedError, LogError.
        """
        name = clean_name(name)
        self._check(Permission.CONFIGURE, name)
        return self._parts.streams.delete(self._catalogue.get(name))

    def stream_info(self, name: str) -> StreamInfo:
        """A stream as it is now; ResourceNotFoundError, LogError."""
        return StreamInfo.of(self._catalogue.get(clean_name(name)))

    def bounds(self, stream: str) -> tuple[int, int]:
        """The first kept offset, and the offset behind the last message; ResourceNotFoundError, LogError."""
        found = self._catalogue.get(stream)
        return found.first_offset, found.next_offset

    def streams(self) -> list[str]:
        """The names of all streams, in order."""
        return self._catalogue.names()

    @property
    def replies(self) -> ReplyQueues:
        """The reply queues of all sessions."""
        return self._parts.replies

    # publishing

    def publisher(self, stream: str, *, reference: str | None = None, exchange: str | None = None) -> Publisher:
        """A publisher of a stream; with a `reference`, its name (not empty), entries that it wrote before are left out.

        With `exchange` the user's permission for that exchange counts instead of that for the stream, as for messages
        that come through a route. Raises ResourceNotFoundError, AccessRefusedError, PreconditionFailedError for a
        reference that is too long, StreamLockedError where another process writes the stream, LogError.
        """
        self._check(Permission.WRITE, stream if exchange is None else exchange)
        found = self._catalogue.get(stream)
        if reference is not None:
            _reference(reference, stream)
            if any(other.reference == reference and used is found for other, used in self._publishers.items()):
                raise PreconditionFailedError(
                    f"this connection has a publisher {reference!r} of the stream already", subject=stream
                )
        publisher = self._parts.open_publisher(found, reference, self.backlog, self._publisher_closed)
        self._publishers[publisher] = found
        return publisher

    def last_sequence(self, stream: str, reference: str) -> int | None:
        """The highest sequence that a publisher wrote; None if none is known. Errors as `publisher`."""
        self._check(Permission.WRITE, stream)
        return self._catalogue.get(stream).last_sequence(_reference(reference, stream))

    def _publisher_closed(self, publisher: Publisher) -> None:
        self._publishers.pop(publisher, None)

    # consuming

    def chunk_consumer(self, stream: str, options: ConsumerOptions) -> ChunkConsumer:
        """A consumer that takes whole chunks; a single active one is told later whether it is active.

        Raises ResourceNotFoundError, AccessRefusedError, PreconditionFailedError, LimitExceededError, LogError.
        """
        found, partition = self._readable(stream, options)
        consumer = self._parts.consumers.chunk_consumer(found, options)
        self._started(consumer, found, options, partition)
        return consumer

    def message_consumer(self, stream: str, options: ConsumerOptions, *, topic: str | None = None) -> MessageConsumer:
        """A consumer that takes messages; errors as `chunk_consumer`.

        With `topic`, of which the stream is a queue, the user's permission for the topic counts, not for the stream.
        """
        found, partition = self._readable(stream, options, topic)
        consumer = self._parts.consumers.message_consumer(found, options)
        self._started(consumer, found, options, partition)
        return consumer

    def message_read(self, stream: str, offset: int) -> Callable[[], ScanBatch]:
        """A call for any thread, as object storage may have to be asked, that reads one message by its offset.

        Opens and closes files. It raises OffsetOutOfRangeError where there is none, other LogErrors; this raises
        ResourceNotFoundError.
        """
        return functools.partial(self._catalogue.get(stream).read_message, offset)

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
        parts = self._parts
        self._consumers[consumer] = stream
        consumer.when_lost(functools.partial(self._lost, stream))
        consumer.observer = parts.environment.observer
        parts.counters.consumers_opened += 1
        parts.environment.watch(stream)
        name = options.name if options.single_active else None
        if name:
            consumer.shared = parts.shared_names.join(stream.name, name, consumer, partition=partition)

        def gone() -> None:
            self._consumers.pop(consumer, None)
            parts.counters.consumers_closed += 1
            stream.ended.add(consumer)
            if name:
                parts.shared_names.leave(stream.name, name, consumer)

        stream.when_removed(consumer, gone)

    def resolution(self, stream: str, start: OffsetSpecification) -> Callable[[], int]:
        """A call for any thread, as object storage may have to be asked, that gives where a reader would begin now.

        That is the id of the chunk, or the next offset if that chunk does not exist yet. It raises LogError; this
        raises ResourceNotFoundError, AccessRefusedError.
        """
        self._check(Permission.READ, stream)
        found, now_ms = self._catalogue.get(stream), self._parts.environment.now_ms()

        def resolved() -> int:
            with found.guarded():
                return found.stream.attach(start, now_ms=now_ms).chunk_id

        return resolved

    def is_stored_remotely(self, stream: str) -> bool:
        """Whether some segments of a stream lie in object storage only. Raises ResourceNotFoundError, LogError."""
        return self._catalogue.get(stream).stream.segments().num_remote > 0

    # topics

    def receiver(self, name: SubscriptionName, link: ReceiverCalls) -> Receiver:
        """A receiver of a subscription, or of its dead letters.

        Raises ResourceNotFoundError, AccessRefusedError, PreconditionFailedError, LogError.
        """
        receiver = self.topic_of(name).receivers.open(name.subscription, link, dead_letters=name.is_dead_letter)
        self._keep(receiver, name)
        return receiver

    def session_receiver(
        self,
        name: SubscriptionName,
        session: str | None,
        link: ReceiverCalls,
        accepted: Callable[[SessionReceiver], None],
    ) -> SessionReceiver:
        """A receiver of one session of a subscription; None: the next free one; see `Receivers.open_session`.

        Raises ResourceNotFoundError, AccessRefusedError, PreconditionFailedError, SessionLockedError, LogError.
        """
        receiver = self.topic_of(name).receivers.open_session(name.subscription, session, link, accepted)
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
        try:
            topic = self._parts.topics.get(name.topic)
            created = topic.subscriptions.named(name)
        except ResourceNotFoundError:
            # Who may not read it does not learn that it is not there.
            self._check(Permission.READ, str(name))
            raise
        self._check(Permission.READ, str(created))
        return topic

    def subscription_of(self, queue: str) -> SubscriptionName | None:
        """The subscription, or its dead letters, that a queue's name means; None if it means none.

        A stream of that name takes precedence. The topic exists; the subscription may not. Raises LogError.
        """
        return self._parts.topics.subscription_of(queue)

    def topic_kind(self, name: str) -> TopicKind | None:
        """Whether a stream is a topic or a queue of Service Bus; None if it is neither, or missing. Raises LogError."""
        return self._parts.topics.kind_of(name)

    def queue_depth(self, name: SubscriptionName) -> QueueDepth:
        """A subscription, or its dead letters, as a queue; errors of `topic_of`."""
        return self.topic_of(name).browser.depth(name.subscription, dead_letters=name.is_dead_letter)

    def purge(self, name: SubscriptionName, then: Callable[[int | HeadgateError], None]) -> None:
        """Settle all copies of a subscription, or of its dead letters; `then` gets how many. Errors of `topic_of`."""
        audit, action = self._parts.audit, "dead-letters.purge" if name.is_dead_letter else "subscription.purge"
        with audit.attempt(self.actor, action, str(name)) as attempt:
            attempt.is_answered_later = True
            told = audit.answered(self.actor, action, str(name), {}, then, described=lambda count: {"copies": count})
            self.topic_of(name).receivers.purge(name.subscription, told, dead_letters=name.is_dead_letter)

    def resubmitter(self, name: SubscriptionName, request: Resubmission) -> Resubmitter:
        """The dead letters of a subscription on their way to another place, for a dry run or a job.

        Raises ResourceNotFoundError, AccessRefusedError, EntityDisabledError, PreconditionFailedError, LogError.
        """

        def check() -> None:
            self.topic_of(name)

        number = self.topic_of(name).subscriptions.find(name.subscription).version.number
        origin = DeadLetterOrigin(
            lambda: self._parts.topics.get(name.topic).dead_letters(name.subscription),
            check,
            self.check_writes,
            number,
        )
        return self._resubmitter(origin, request if request.to is not None else replace(request, to=name.topic))

    def group_resubmitter(self, group: str, request: Resubmission) -> Resubmitter:
        """The same for the dead letters of a consumer group; without a target they go back to their queues."""
        dead_letters = self._parts.consumer_groups.views.dead_letters
        origin = DeadLetterOrigin(lambda: dead_letters(group), lambda: self.check_reads(group), self.check_writes)
        if request.to is not None and request.to.startswith(dead_letters_of("")):
            raise PreconditionFailedError("dead letters are not resubmitted to dead letters", subject=request.to)
        resubmitter = self._resubmitter(origin, request)
        # An unknown group is refused now, but to nobody who may not ask.
        self.group_dead_letters(group)
        return resubmitter

    def _resubmitter(self, origin: DeadLetterOrigin, request: Resubmission) -> Resubmitter:
        parts = self._parts
        return Resubmitter(parts.topics, parts.message_topics, parts.environment, origin, request)

    def resubmit(self, name: SubscriptionName, request: Resubmission, *, rate_per_s: float | None = None) -> Job:
        """Publish dead letters of a subscription again, as a job; errors of `resubmitter`, LimitExceededError."""
        return self._resubmit(str(name), request, lambda: self.resubmitter(name, request), rate_per_s)

    def resubmit_of_group(self, group: str, request: Resubmission, *, rate_per_s: float | None = None) -> Job:
        """The same for the dead letters of a consumer group."""
        return self._resubmit(
            dead_letters_of(group), request, lambda: self.group_resubmitter(group, request), rate_per_s
        )

    def _resubmit(
        self, subject: str, request: Resubmission, made: Callable[[], Resubmitter], rate_per_s: float | None
    ) -> Job:
        asked = {
            "to": request.to,
            "copies": "all" if request.copies is None else [offset_of(copy) for copy in request.copies[:COPIES_SHOWN]],
            "set": request.properties,
            "remove": request.removed,
            "include_untaken": request.includes_untaken,
        }
        audit, actor = self._parts.audit, self.actor
        with audit.attempt(actor, "dead-letters.resubmit", subject, asked) as attempt:
            work = ResubmissionWork(made(), self._parts.environment)
            job = self._parts.jobs.start("resubmission", self.user, subject, work, rate_per_s=rate_per_s)
            job.when_ended = lambda: audit.record(
                actor,
                "dead-letters.resubmitted",
                subject,
                outcome=job.state.value,
                detail={"job": job.id, **work.summary(job)},
            )
            attempt.detail["job"] = job.id
        return job

    def group_dead_letters(self, group: str) -> GroupDeadLetters | None:
        """The dead letters of a consumer group; None where it never had any. Those of a removed group stay.

        Raises AccessRefusedError, ResourceNotFoundError, LogError.
        """
        self.check_reads(group)
        groups = self._parts.consumer_groups
        letters = groups.views.dead_letters(group)
        if letters is None and groups.find(group) is None:
            raise ResourceNotFoundError("no such consumer group", subject=group)
        return letters

    def delete_dead_letters_of_group(
        self, group: str, copies: Sequence[int] | None, then: Callable[[int | HeadgateError], None]
    ) -> None:
        """Settle chosen dead letters of a group, None: all; `then` gets how many. Errors of `group_dead_letters`."""
        audit, action, subject = self._parts.audit, "dead-letters.delete", dead_letters_of(group)
        asked = {"copies": "all" if copies is None else [offset_of(copy) for copy in copies[:COPIES_SHOWN]]}
        with audit.attempt(self.actor, action, subject, asked) as attempt:
            attempt.is_answered_later = True
            letters = self.group_dead_letters(group)
            if letters is None:
                then(0)
                return
            told = audit.answered(self.actor, action, subject, asked, then, described=lambda count: {"count": count})
            if copies is None:
                letters.delete_all(told)
            else:
                letters.delete_chosen(
                    sorted(set(copies)), lambda gone: told(gone if isinstance(gone, HeadgateError) else len(gone))
                )

    def delete_dead_letters(
        self, name: SubscriptionName, copies: Sequence[int], then: Callable[[list[int] | HeadgateError], None]
    ) -> None:
        """Settle chosen dead letters; `then` gets those that nobody held. Errors of `topic_of`."""
        audit, action = self._parts.audit, "dead-letters.delete"
        with audit.attempt(self.actor, action, str(name)) as attempt:
            attempt.is_answered_later = True
            letters = self.topic_of(name).dead_letters(name.subscription)
            if letters is None:
                then([])
                return
            told = audit.answered(self.actor, action, str(name), {}, then, described=_deleted)
            letters.delete_chosen(sorted(set(copies)), told)

    @_audited("topic.create")
    def create_topic(self, name: str, *, limits: TopicLimits | None = None) -> None:
        """Make a stream a topic; a missing stream is made first.

        Raises ResourceExistsError, RuleError for its name, AccessRefusedError, LogError.
        """
        self._check(Permission.CONFIGURE, name)
        check_reserved(name)
        self._parts.topics.create(name, limits)

    @_audited("topic.delete")
    def remove_topic(self, name: str) -> None:
        """Make a topic a plain stream again; its messages stay.

        Raises ResourceNotFoundError, AccessRefusedError, RuleError if another topic forwards to it, LogError.
        """
        self._check(Permission.CONFIGURE, name)
        self._parts.topics.remove(name)

    def change_topic(self, name: str, changes: Sequence[Change], then: Changed) -> None:
        """Change subscriptions and rules; `then` gets the offset from which the change is in force, or the error.

        That offset is behind all messages published before. `then` gets RuleError and its kinds, and LogError. Raises
        ResourceNotFoundError, AccessRefusedError, also for a target of forwarding, and LogError.
        """
        audit, (action, subject, detail) = self._parts.audit, described_changes(name, changes)
        with audit.attempt(self.actor, action, subject, detail) as attempt:
            attempt.is_answered_later = True
            self._check(Permission.CONFIGURE, name)
            told = audit.answered(
                self.actor, action, subject, detail, then, described=lambda offset: {"in_force_from": offset}
            )
            self._parts.topics.change(name, changes, told, check_target=self.check_writes)

    # consumer groups

    def receive_from(self, topic: MessageTopic, request: ReceiveRequest) -> PendingReceive:
        """Give messages of some queues of a topic to a member of a consumer group, as soon as there are some.

        Raises AccessRefusedError, ResourceNotFoundError for a missing queue or group, EntityDisabledError for the
        group, StreamLockedError, LogError.
        """
        self._check(Permission.READ, topic.name)
        _check_queues(topic, request.streams)
        receiving = self._parts.consumer_groups.receive(request)
        self._receivings.add(receiving)
        return receiving

    def group_view(self, topic: MessageTopic, queue: int, group: str) -> GroupView:
        """The place of a consumer group in a queue of a topic, to settle received messages.

        Raises AccessRefusedError, ResourceNotFoundError, StreamLockedError, LogError.
        """
        self._check(Permission.READ, topic.name)
        if not 0 <= queue < len(topic.streams):
            raise ResourceNotFoundError(f"there is no queue {queue}", subject=topic.name)
        return self._parts.consumer_groups.view(topic.streams[queue], group)

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
        found = self._catalogue.get(stream)
        name = _reference(reference, stream)
        if not 0 <= offset < 2**64:
            raise PreconditionFailedError(f"stored offset {offset}; expected 0 to 2^64 - 1", subject=stream)
        if found.stream.is_foreign:
            raise PreconditionFailedError("a foreign stream that was not adopted keeps no offsets", subject=stream)
        found.store_offset(name, offset)
        self._parts.counters.offsets_stored += 1
        self._parts.environment.watch(found)

    def stored_offset(self, stream: str, reference: str) -> int | None:
        """The offset that a consumer stored last; None if it stored none. Errors as `store_offset`."""
        self._check(Permission.READ, stream)
        return self._catalogue.get(stream).stored_offset(_reference(reference, stream))

    # exchanges

    @_audited("exchange.create")
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
        exchanges = self._exchanges
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

    @_audited("exchange.delete")
    def delete_exchange(self, name: str, *, if_unused: bool = False) -> None:
        """Delete an exchange with its bindings; a missing one is no error.

        Raises ReservedNameError, PreconditionFailedError (`if_unused` and it has bindings), AccessRefusedError.
        """
        self._check(Permission.CONFIGURE, name)
        self._exchanges.delete(name, if_unused=if_unused)

    def exchange(self, name: str) -> Exchange:
        """One exchange; ResourceNotFoundError."""
        return self._exchanges.get(name)

    def bind(self, source: str, queue: str, key: str, arguments: Mapping[str, object] | None = None) -> None:
        """Bind a stream to an exchange; the same again changes nothing.

        A subscription counts as bound if its topic is: then nothing changes, else PreconditionFailedError is raised.
        Raises ResourceNotFoundError for either end, ReservedNameError for the exchange without a name,
        PreconditionFailedError for a key or arguments that the exchange does not take, AccessRefusedError, LogError.
        """
        self._check_binding(source, queue)
        if self._exchanges.is_super_stream(source):
            self._check(Permission.CONFIGURE, queue)
            self._check(Permission.READ, queue)
        subscription = self.subscription_of(queue)
        if subscription is not None:
            self._check_topic_is_bound(Binding(source, subscription.topic, key, dict(arguments or {})))
            return
        self._catalogue.get(queue)
        self._exchanges.bind(Binding(source, queue, key, dict(arguments or {})))

    def _check_topic_is_bound(self, wanted: Binding) -> None:
        self._exchanges.get(wanted.source)
        if wanted not in self._exchanges.bindings(source=wanted.source, queue=wanted.queue, key=wanted.key):
            raise PreconditionFailedError(
                f"a subscription receives what its topic receives: bind the queue {wanted.queue} to the exchange"
                f" {wanted.source!r} with this key and these arguments first, and choose by the subscription's rules"
            )

    def unbind(self, source: str, queue: str, key: str, arguments: Mapping[str, object] | None = None) -> None:
        """Undo a binding; a missing one is no error. Raises ReservedNameError, AccessRefusedError, LogError."""
        self._check_binding(source, queue)
        self._exchanges.unbind(Binding(source, queue, key, dict(arguments or {})))

    def bind_exchange(
        self, source: str, destination: str, key: str, arguments: Mapping[str, object] | None = None
    ) -> None:
        """Bind an exchange to the exchange `source`, which gives it matching messages; errors as `bind`."""
        self._check_binding(source, destination)
        self._exchanges.bind(Binding(source, "", key, dict(arguments or {}), destination))

    def unbind_exchange(
        self, source: str, destination: str, key: str, arguments: Mapping[str, object] | None = None
    ) -> None:
        """Undo a binding between exchanges; errors as `unbind`."""
        self._check_binding(source, destination)
        self._exchanges.unbind(Binding(source, "", key, dict(arguments or {}), destination))

    def bindings(
        self,
        source: str | None = None,
        queue: str | None = None,
        key: str | None = None,
        *,
        exchange: str | None = None,
    ) -> list[Binding]:
        """The bindings with these ends and key, None for any, in order of binding."""
        return self._exchanges.bindings(source=source, queue=queue, exchange=exchange, key=key)

    def route(self, exchange: str, routing_key: str, headers: Headers = dict) -> list[str]:
        """Names of the streams that a message goes to; empty if none matches. `headers` is called if they matter.

        Raises ResourceNotFoundError for the exchange, AccessRefusedError, also for an internal one.
        """
        self._check(Permission.WRITE, exchange)
        exchanges = self._exchanges
        if exchanges.get(exchange).internal:
            raise AccessRefusedError(f"cannot publish to internal exchange '{exchange}' in vhost '/'")
        return [name for name in exchanges.route(exchange, routing_key, headers) if self._is_there(name)]

    def needs_headers(self, exchange: str) -> bool:
        """Whether the routes of an exchange depend on headers; False for a missing exchange."""
        return self._exchanges.needs_headers(exchange)

    def _is_there(self, stream: str) -> bool:
        """Whether a stream exists, damaged or not; its publisher reports damage."""
        try:
            return self._catalogue.find(stream) is not None
        except LogError:
            return True

    # super streams

    @_audited("super-stream.create")
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
        check_places_nothing(arguments, stream=name)
        create_super_stream(
            self._parts.streams,
            name,
            list(zip(partitions, binding_keys, strict=True)),
            arguments,
        )

    @_audited("super-stream.delete")
    def delete_super_stream(self, name: str) -> None:
        """Delete a super stream and its partitions.

        Raises ResourceNotFoundError, ReservedNameError for a plain exchange, AccessRefusedError, LogError.
        """
        name = clean_name(name)
        partitions = self._exchanges.partitions(name)
        check_name(name)
        self._check_super_stream(name, partitions)
        delete_super_stream(self._parts.streams, name)

    def partitions(self, name: str) -> list[str]:
        """The partitions of a super stream, in order; ResourceNotFoundError."""
        return self._exchanges.partitions(clean_name(name))

    def route_super_stream(self, name: str, key: str) -> list[str]:
        """The partitions bound with exactly that key, if any; ResourceNotFoundError."""
        self._exchanges.partitions(name)
        return list(self._exchanges.route(name, key))

    # message topics

    def message_topic(self, name: str) -> MessageTopic | None:
        """The message topic of that name; None if there is none. Raises LogError for a damaged stream."""
        return self._parts.message_topics.find(name)

    def ensure_message_topic(self, name: str, queues: int | None = None, *, for_producer: bool) -> MessageTopic:
        """The message topic of that name; a missing one is made if the settings allow it and the user may.

        Raises ResourceNotFoundError where the settings do not, AccessRefusedError, and as `MessageTopics.create`.
        """
        topics = self._parts.message_topics
        found = topics.find(name)
        if found is not None:
            return found
        if not topics.may_create(for_producer=for_producer):
            return topics.ensure(name, queues, for_producer=for_producer)
        with self._parts.audit.attempt(self.actor, "message-topic.create", name):
            self._check(Permission.CONFIGURE, name)
            return topics.ensure(name, queues, for_producer=for_producer)

    def schedule_message(
        self, topic: MessageTopic, queue: int, message: bytes, due_ms: int, then: Callable[[str | HeadgateError], None]
    ) -> None:
        """Publish an encoded message to a queue of a topic when its time comes, exactly once even across crashes.

        `then` gets a handle for `recall_message` when it is on disk, or the error of `ScheduledMessages.schedule`.
        Raises ResourceNotFoundError, AccessRefusedError, LogError.
        """
        self._check(Permission.WRITE, topic.name)
        self._parts.message_topics.schedule(topic, queue, message, due_ms, then)

    def recall_message(self, topic: MessageTopic, handle: str, then: Callable[[HeadgateError | None], None]) -> None:
        """Forget a scheduled message.

        `then` gets None when it will not be published, ResourceNotFoundError if it waits no more, LogError. Raises
        PreconditionFailedError for a wrong handle, AccessRefusedError, LogError.
        """
        self._check(Permission.WRITE, topic.name)
        self._parts.message_topics.recall(topic, handle, then)

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
        self._parts.ended(self)

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
        limit = self._parts.settings.filter_values
        if len(options.filter_values) > limit:
            raise LimitExceededError(f"more than {limit} filter values", subject=stream)
        found = self._catalogue.get(stream)
        return found, self._exchanges.partition_of(options.super_stream, stream)


def _deleted(copies: list[int]) -> dict[str, object]:
    return {"count": len(copies), "copies": [offset_of(copy) for copy in copies[:COPIES_SHOWN]]}


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
