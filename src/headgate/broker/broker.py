"""The broker: one root, its streams, exchanges and users, and the work that is done between commands.

Everything happens in one thread, except the work given to workers. Commands come through sessions; the messages
that they queue are written by `write_queued`, which the caller calls soon after `wake` was called.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from headgate.broker.audit import Audit
from headgate.broker.backlog import Backlog
from headgate.broker.catalogue import Catalogue
from headgate.broker.consumer_groups import (
    ConsumerGroups,
    DeadLetterStreams,
    ExpressionRegistry,
    Members,
)
from headgate.broker.consumers import Consumers
from headgate.broker.damage import is_damage
from headgate.broker.entities import Entities
from headgate.broker.environment import Environment, RunInWorker, Workers
from headgate.broker.exchanges import Exchanges
from headgate.broker.intervals import is_over
from headgate.broker.jobs import Jobs
from headgate.broker.keys import KEYS_NAME, AccessKeys
from headgate.broker.match_indexes import IndexLag, MatchIndexes
from headgate.broker.message_topics import MessageTopics
from headgate.broker.observer import BatchObserver
from headgate.broker.publishers import Publisher
from headgate.broker.queue_numbers import QueueNumbers
from headgate.broker.remote_moves import RemoteMoves, RemoteProgress
from headgate.broker.replies import ReplyQueues
from headgate.broker.session import BrokerParts, Check, Session
from headgate.broker.settings import BrokerSettings
from headgate.broker.single_active import SharedNames
from headgate.broker.stream import WRITER_IDLE_MS, BrokerStream, Storage
from headgate.broker.stream_writes import StreamWrites
from headgate.broker.streams import BrokerCounters, Streams
from headgate.broker.topics import Topics
from headgate.broker.users import AUDIT_STREAM, Permission, Users
from headgate.broker.write_job import refuse
from headgate.errors import AccessRefusedError, BrokerError, HeadgateError, LogError, ResourceNotFoundError
from headgate.log import PRIVATE_FOLDER, Durability
from headgate.scan.fetch import CpuTime, unmeasured

RETENTION_MS = 3_600_000
RETAINED_A_TICK = 4
"""Limit: streams checked for old messages in one tick; opening a writer takes milliseconds."""

FLUSH_MS = 1_000
"""After this time, at most, stored offsets that no chunk took along are written."""

logger = logging.getLogger("headgate.broker")


def _but_audit(check: Check, permission: Permission, resource: str) -> None:
    """A check of a session whose rights are no user's: they never reach the audit stream."""
    if resource == AUDIT_STREAM:
        raise AccessRefusedError("only administrators read the audit stream", subject=resource)
    check(permission, resource)


class Broker:
    """One broker over one root folder, from its making to `close`."""

    def __init__(
        self,
        root: Path,
        *,
        now_ms: Callable[[], int],
        cpu_ns: CpuTime = unmeasured,
        settings: BrokerSettings | None = None,
        users: Users | None = None,
        wake: Callable[[], None] = lambda: None,
        run_in_worker: RunInWorker | None = None,
        run_in_background: RunInWorker | None = None,
        run_in_storage: RunInWorker | None = None,
        run_transfer: RunInWorker | None = None,
        observer: BatchObserver | None = None,
    ) -> None:
        """Read the catalogue, exchanges, users and keys; given `users` are taken as they are.

        `cpu_ns` gives the processor time of the calling thread; consumers count their share of it.

        Long work that a client waits for goes through `run_in_worker`, if given: files of deleted streams, changes of
        rules, and with `Durability.DISK` appends and commits of ledgers. Work that may wait goes through
        `run_in_background`, by default the same: match indexes, and the deciding of many messages of topics. What may
        wait for object storage goes through `run_in_storage`, by default as other reads. Segments move there through
        `run_transfer`; without it they stay. `observer` is told of each batch. Raises LogError, ConfigError for wrong
        files.
        """
        self.root = Path(root)
        self.settings = settings or BrokerSettings()
        self.now_ms = now_ms
        self.catalogue = Catalogue(
            self.root,
            storage=Storage(self.settings.durability, self.settings.open_file),
            now_ms=now_ms,
            placement=self.settings.placement,
        )
        private = self.root / PRIVATE_FOLDER
        self.exchanges = Exchanges(private / "exchanges.json")
        self.users = users or Users(
            self.settings.users_file or private / "users.json",
            default_user=self.settings.default_user,
            default_has_password=self.settings.default_has_password,
        )
        self.keys = AccessKeys(private / KEYS_NAME)
        self.consumers = Consumers(now_ms=now_ms, cpu_ns=cpu_ns)
        self.replies = ReplyQueues()
        self.jobs = Jobs(now_ms)
        self.counters = BrokerCounters()
        self.sessions: dict[Session, None] = {}
        self.shared_names = SharedNames(self._later)
        self._wake = wake
        waits_for_disk = self.settings.durability is Durability.DISK
        workers = Workers(
            urgent=run_in_worker,
            background=run_in_background or run_in_worker,
            commits=run_in_worker if waits_for_disk else None,
            storage=run_in_storage,
            transfers=run_transfer,
        )
        self._writes = StreamWrites(
            run_in_worker,
            waits_for_disk=waits_for_disk,
            now_ms=now_ms,
            wake=wake,
            watch=self.watch,
            observer=observer,
        )
        environment = Environment(
            self.root, now_ms, cpu_ns, wake, workers, self.catalogue.find, self.watch, self._writes.know_ids, observer
        )
        self.streams = Streams(environment, self.catalogue, self.exchanges, self._writes, self.counters, self._end)
        self.audit = Audit(self.settings.audit, environment, self.streams, self._writes)
        self._indexing = MatchIndexes(environment)
        self._moves = RemoteMoves(environment, self.catalogue, self._writes)
        self.expressions = ExpressionRegistry(
            environment,
            names=self.catalogue.names,
            streams_of=self._queues_of,
            settings=self.settings.match_index,
            registered=self._registered,
        )
        self.members = Members(self.expressions)
        self.topics = Topics(environment, self._writes)
        self.entities = Entities(environment, self.topics, self.streams, most=self.settings.entities)
        self.message_topics = MessageTopics(self.root, self.streams, self.settings, self.topics.scheduler.of)
        self.queue_numbers = QueueNumbers(self.root, self.catalogue.find)
        self.consumer_groups = ConsumerGroups(
            environment,
            self.settings,
            self.consumers,
            DeadLetterStreams(
                self._dead_letter_stream,
                queue_of=self.message_topics.queue_of,
                message_ids=self.settings.message_ids,
            ),
            self.topics.keep_pinned,
        )
        self._parts = BrokerParts(
            environment,
            self.settings,
            self.counters,
            self.streams,
            self.consumers,
            self.shared_names,
            self.topics,
            self.consumer_groups,
            self.message_topics,
            self.replies,
            self.jobs,
            self.audit,
            self.open_publisher,
            self._ended,
        )
        self._watched: dict[BrokerStream, None] = {}
        self._calls: list[Callable[[], None]] = []
        self._flushed_ms = now_ms()
        self._retained_ms = now_ms()
        self._to_retain: list[str] = []

    def _dead_letter_stream(self, name: str) -> BrokerStream:
        """The stream of a group's dead letters, made if missing."""
        stream = self.catalogue.find(name)
        if stream is None:
            self.streams.declare(name, {}, numbers_as_text=False)
            stream = self.catalogue.get(name)
        self.topics.know_status(stream)
        return stream

    # sessions

    def open_session(
        self,
        user: str,
        *,
        protocol: str,
        connection: str,
        backlog: Backlog | None = None,
        check: Check | None = None,
    ) -> Session:
        """A session for one connection of an authenticated user; `backlog` is as for `Session`.

        `check` checks a permission; by default, whether the user has it.
        """
        check = functools.partial(self.users.check, user) if check is None else functools.partial(_but_audit, check)
        session = Session(self._parts, user, protocol=protocol, connection=connection, backlog=backlog, check=check)
        self.sessions[session] = None
        return session

    def _ended(self, session: Session) -> None:
        self.sessions.pop(session, None)

    # streams

    def watch(self, stream: BrokerStream) -> None:
        """Look after a stream at every tick: it has readers, a writer or offsets to write."""
        self._watched[stream] = None

    def _registered(self, name: str) -> None:
        """The filters in the registry of a stream changed: begin to index it."""
        # An unreadable stream is reported elsewhere.
        with contextlib.suppress(LogError):
            stream = self.catalogue.find(name)
            if stream is not None and stream.next_offset > stream.first_offset:
                self._indexing.begin(stream)

    def index_lag(self, stream: BrokerStream) -> IndexLag | None:
        """How far the match index of a stream is behind; None if this broker does not index it."""
        return self._indexing.lag(stream)

    def remote_progress(self, stream: BrokerStream) -> RemoteProgress | None:
        """How far the segments of a stream have moved to object storage; None for one that has no place there."""
        return self._moves.progress(stream)

    def _queues_of(self, topic: str) -> Sequence[str]:
        """The streams that are the queues of a topic; none for a missing topic."""
        found = self.message_topics.find(topic)
        return () if found is None else found.streams

    def open_publisher(
        self, stream: BrokerStream, reference: str | None, backlog: Backlog, closed: Callable[[Publisher], None]
    ) -> Publisher:
        """A publisher of a stream; takes the stream's writer.

        Raises EntityDisabledError for a topic that takes no messages, CorruptChunkError for a topic that cannot give
        out copies because of damage, StreamLockedError and other LogErrors.
        """
        self.topics.know_status(stream)
        if stream.refuses_with is not None:
            raise stream.refuses_with
        stream.open_writer(now_ms=self.now_ms())
        self.topics.writing(stream)
        self._indexing.begin(stream)

        def ended(publisher: Publisher) -> None:
            stream.publishers.remove(publisher)
            self.counters.publishers_closed += 1
            closed(publisher)

        queue = functools.partial(self._writes.queue, stream)
        publisher = Publisher(
            stream.name, reference=reference, backlog=backlog, refused=stream.refused, queue=queue, closed=ended
        )
        stream.publishers.append(publisher)
        self.counters.publishers_opened += 1
        self.watch(stream)
        return publisher

    def _end(self, stream: BrokerStream) -> Callable[[], None]:
        """End every use of a stream, and refuse its queued messages; gives a call that tells the sessions that used it.

        Sessions are told at the next `write_queued`, so that the client that deleted the stream gets its answer first.
        """
        touched = [session for session in self.sessions if session.uses(stream)]
        self._writes.finish(stream)
        stream.is_deleted = True
        deleted = ResourceNotFoundError("the stream was deleted", subject=stream.name)
        self.topics.forget(stream, deleted)
        self.topics.scheduler.forget(stream, deleted)
        self.consumer_groups.views.forget(stream, deleted)
        self.consumer_groups.pull_consumers.forget(stream.name)
        self.queue_numbers.forget(stream)
        self.shared_names.forget(stream.name)
        queue, stream.queue = stream.queue, []
        refuse(stream, queue, deleted)
        for publisher in list(stream.publishers):
            publisher.close()
        for reader in list(stream.readers):
            reader.close()
        self.consumers.forget(stream)
        stream.close_writer()
        stream.offsets.clear()
        self._watched.pop(stream, None)
        self._writes.forget(stream)

        def tell() -> None:
            for session in touched:
                self._later(functools.partial(session.tell_deleted, stream.name))

        return tell

    def _later(self, call: Callable[[], None]) -> None:
        """Make a call in the next `write_queued`, after the answer of the current command."""
        self._calls.append(call)
        self._wake()

    # writing

    @property
    def has_unwritten(self) -> bool:
        """Whether published messages wait to be written, or are being written."""
        return self._writes.has_jobs or any(stream.queue for stream in self.catalogue)

    def write_queued(self) -> None:
        """Make due calls, then append the batches of publishers; see `StreamWrites.write_queued`."""
        calls, self._calls = self._calls, []
        try:
            while calls:
                calls.pop(0)()
        except BaseException:
            # The calls after the failed one are made in the next turn.
            self._calls[:0] = calls
            self._wake()
            raise
        self.audit.write()
        if self._writes.turns.asked:
            self._writes.write_queued()

    @property
    def is_asked(self) -> bool:
        """Whether a part waits for its turn: a due call, published messages, a topic, a consumer group."""
        topics, views = self.topics, self.consumer_groups.views
        waiting = (
            self._calls,
            self.audit.has_waiting,
            self._writes.turns.asked,
            topics.scheduler.turns.asked,
            topics.turns.asked,
            views.touched,
        )
        return any(waiting)

    def end_turn(self) -> None:
        """Let topics and consumer groups decide, give out and settle; at the end of the loop's turn.

        That is before output is sent.
        """
        if self.topics.scheduler.turns.asked or self.topics.turns.asked:
            self.topics.turn()
        if self.consumer_groups.views.touched:
            self.consumer_groups.views.turn()

    # regular work

    def tick(self, now_ms: int) -> None:
        """Look after the streams in use; to be called every 50 to 100 ms.

        Notices writes of other processes, writes stored offsets within a second, gives back writers that were unused
        for ten seconds, keeps match indexes up, moves segments to object storage, applies retention once an hour.
        """
        self.consumers.tick(now_ms)
        self.topics.tick(now_ms)
        self.entities.tick(now_ms)
        self.jobs.tick(now_ms)
        self.consumer_groups.views.tick(now_ms)
        self.consumer_groups.pull_consumers.tick(now_ms)
        flush_is_due = is_over(self._flushed_ms, FLUSH_MS, now_ms)
        if flush_is_due:
            self._flushed_ms = now_ms
            self._keep_declarations()
            self._indexing.tick(now_ms)
            self._moves.tick(now_ms)
            self.streams.deleted.tick(now_ms)
            self.expressions.tick(now_ms)
            self.members.tick(now_ms)
        for stream in list(self._watched):
            if not stream.is_writing:
                self._look_after_safely(stream, now_ms, flush_is_due)
        if is_over(self._retained_ms, RETENTION_MS, now_ms):
            self._retained_ms = now_ms
            self._to_retain = [*self.catalogue.names(), AUDIT_STREAM]
        for _ in range(min(RETAINED_A_TICK, len(self._to_retain))):
            self._retain(self._to_retain.pop(), now_ms)

    def _keep_declarations(self) -> None:
        """Take over changes that another process made to declaration files, and write down new declarations."""
        for what, keep in (
            ("users", self.users.reload),
            ("access keys", self.keys.reload),
            ("message topics", self.message_topics.reload),
            ("consumer groups", self.consumer_groups.tick),
        ):
            try:
                keep()
            except HeadgateError as error:
                logger.error("the %s stay as they were: %s", what, error)

    def _look_after_safely(self, stream: BrokerStream, now_ms: int, flush_is_due: bool) -> None:
        """Look after one stream; an error is logged once, and does not keep the others from their turn."""
        trouble = ""
        try:
            self._look_after(stream, now_ms, flush_is_due)
        except (LogError, BrokerError) as error:
            trouble = str(error)
            if trouble != stream.trouble and not is_damage(error):
                logger.warning("stream %r cannot be looked after: %s", stream.name, trouble)
        stream.trouble = trouble

    def _look_after(self, stream: BrokerStream, now_ms: int, flush_is_due: bool) -> None:
        # A folder that is removed under our own writer is noticed within a second.
        is_there = stream.look() if stream.writer is None else not flush_is_due or stream.has_folder
        if not is_there:
            tell = self._end(stream)
            self.catalogue.forget(stream)
            tell()
            return
        if flush_is_due and stream.has_pending_offsets:
            self._flush(stream, now_ms)
        if stream.writer is not None and not stream.publishers and not stream.queue:
            if stream.idle_since_ms is None:
                stream.idle_since_ms = now_ms
            elif is_over(stream.idle_since_ms, WRITER_IDLE_MS, now_ms):
                self._flush(stream, now_ms)
                stream.close_writer()
        is_used = stream.readers or stream.publishers or stream.offsets or stream.on_appended is not None
        if stream.writer is None and not is_used:
            del self._watched[stream]

    def _flush(self, stream: BrokerStream, now_ms: int) -> None:
        """Write stored offsets; after a failure they stay, and the next round tries again. Raises LogError."""
        if not stream.has_pending_offsets:
            return
        try:
            stream.flush_offsets(now_ms=now_ms)
        except LogError:
            if stream.writer is not None and stream.writer.is_broken:
                stream.close_writer()
            raise

    def _retain(self, name: str, now_ms: int) -> None:
        """Apply the age limit also while nothing is written; another process that writes the stream does it itself."""
        try:
            stream = self.catalogue.find(name)
            if stream is None or stream.is_writing:
                return
            settings = stream.stream.settings
            if settings is None or settings.arguments.max_age_ms is None:
                return
            if stream.writer is not None:
                stream.writer.apply_retention(now_ms=now_ms)
            else:
                # A writer begins with it; this one is soon given back.
                stream.open_writer(now_ms=now_ms)
                self.watch(stream)
        except HeadgateError as error:
            logger.warning("retention of stream %r was not applied: %s", name, error)

    def close(self) -> None:
        """Write and confirm queued batches, write stored offsets, give all locks back."""
        try:
            self._write_everything()
        finally:
            for session in list(self.sessions):
                session.close()
            self.consumer_groups.pull_consumers.write()
            self.consumer_groups.views.close()
            self.consumers.close()
            self._indexing.close()
            self._moves.close()
            self.streams.deleted.close()
            self.topics.close()
            for stream in self.catalogue:
                stream.close_writer()

    def _write_everything(self) -> None:
        self.write_queued()
        self._writes.stop_worker()
        for stream in self.catalogue:
            self._writes.write_all(stream)
            try:
                self._flush(stream, self.now_ms())
            except (LogError, BrokerError) as error:
                logger.warning("stored offsets of stream %r are lost: %s", stream.name, error)
