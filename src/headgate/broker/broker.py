"""The broker: one root, its streams, exchanges and users, and the work that is done between commands.

Everything happens in one thread, except the work given to workers. Commands come through sessions; the messages
that they queue are written by `write_queued`, which the caller calls soon after `wake` was called.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from headgate.broker.arguments import changed_arguments
from headgate.broker.backlog import Backlog
from headgate.broker.catalogue import Catalogue, Declared
from headgate.broker.consumer_groups import (
    ConsumerGroups,
    DeadLetterStreams,
    ExpressionRegistry,
    Members,
)
from headgate.broker.consumers import Consumers
from headgate.broker.damage import is_damage
from headgate.broker.entities import Entities
from headgate.broker.environment import Environment, RunInWorker, Workers, run_here
from headgate.broker.exchanges import Exchanges
from headgate.broker.keys import KEYS_NAME, AccessKeys
from headgate.broker.match_indexes import IndexLag, MatchIndexes
from headgate.broker.message_id_read import ReadIds
from headgate.broker.message_topics import MessageTopics
from headgate.broker.publishers import Publisher, Queued
from headgate.broker.publishing import WriteJob, refuse
from headgate.broker.queue_numbers import QueueNumbers
from headgate.broker.replies import ReplyQueues
from headgate.broker.settings import BrokerSettings
from headgate.broker.single_active import SharedName
from headgate.broker.stream import WRITER_IDLE_MS, BrokerStream, Storage
from headgate.broker.targets import CheckTarget, any_target, check_targets
from headgate.broker.timing import is_over
from headgate.broker.topics import Changed, RuleChange, Topics
from headgate.broker.users import Users
from headgate.errors import BrokerError, HeadgateError, LogError, ResourceNotFoundError
from headgate.log import PRIVATE_FOLDER, Durability, StreamArguments
from headgate.scan.fetch import CpuTime, unmeasured
from headgate.topic import (
    DEFAULT_SETTINGS,
    DEFAULT_TOPIC_SETTINGS,
    Change,
    SubscriptionSettings,
    TopicLimits,
    TopicSettings,
    check_removable,
    create_topic,
    remove_topic,
)

if TYPE_CHECKING:
    from headgate.broker.session import Check, Session

RETENTION_MS = 3_600_000
RETAINED_A_TICK = 4
"""Limit: streams checked for old messages in one tick; opening a writer takes milliseconds."""

FLUSH_MS = 1_000
"""After this time, at most, stored offsets that no chunk took along are written."""

WRITE_LIMIT_S = 60.0
"""How long the broker waits, when it must, for a write in the background before it gives it up."""

logger = logging.getLogger("headgate.broker")

_Job: TypeAlias = WriteJob | RuleChange | ReadIds
"""Jobs that need a stream's writer for themselves."""


@dataclass(slots=True)
class BrokerCounters:
    """Commands since the broker began."""

    streams_created: int = 0
    streams_deleted: int = 0
    publishers_opened: int = 0
    publishers_closed: int = 0
    consumers_opened: int = 0
    consumers_closed: int = 0
    offsets_stored: int = 0


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
    ) -> None:
        """Read the catalogue, exchanges, users and keys; given `users` are taken as they are.

        `cpu_ns` gives the processor time of the calling thread; consumers count their share of it.

        Long work that a client waits for goes through `run_in_worker`, if given: files of deleted streams, changes of
        rules, and with `Durability.DISK` appends and commits of ledgers. Work that may wait goes through
        `run_in_background`, by default the same: match indexes, and the deciding of many messages of topics. Raises
        LogError, ConfigError for wrong files.
        """
        self.root = Path(root)
        self.settings = settings or BrokerSettings()
        self.now_ms = now_ms
        self.catalogue = Catalogue(
            self.root, storage=Storage(self.settings.durability, self.settings.open_file), now_ms=now_ms
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
        self.counters = BrokerCounters()
        self.sessions: dict[Session, None] = {}
        self.shared_names: dict[tuple[str, str], SharedName] = {}
        self._wake = wake
        self._waits_for_disk = self.settings.durability is Durability.DISK
        self._workers = Workers(
            urgent=run_in_worker,
            background=run_in_background or run_in_worker,
            commits=run_in_worker if self._waits_for_disk else None,
        )
        self._is_closing = False
        """Whether the broker ends: then no worker is given a job that needs a stream's writer."""
        environment = Environment(
            self.root, now_ms, cpu_ns, wake, self._workers, self.catalogue.find, self.watch, self._know_ids
        )
        self._indexing = MatchIndexes(environment)
        self.expressions = ExpressionRegistry(
            environment,
            names=self.catalogue.names,
            streams_of=self._queues_of,
            settings=self.settings.match_index,
            registered=self._registered,
        )
        self.members = Members(self.expressions)
        self.topics = Topics(environment, functools.partial(self.change_topic, check_target=any_target))
        self.entities = Entities(self)
        self.message_topics = MessageTopics(self)
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
        self._unwritten: dict[BrokerStream, None] = {}
        self._jobs: dict[BrokerStream, _Job] = {}
        """Jobs that a worker has."""
        self._watched: dict[BrokerStream, None] = {}
        self._calls: list[Callable[[], None]] = []
        self._flushed_ms = now_ms()
        self._retained_ms = now_ms()
        self._to_retain: list[str] = []

    def _dead_letter_stream(self, name: str) -> BrokerStream:
        """The stream of a group's dead letters, made if missing."""
        stream = self.catalogue.find(name)
        if stream is None:
            self.catalogue.declare(name, {}, now_ms=self.now_ms(), numbers_as_text=False)
            self.counters.streams_created += 1
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
        """A session for one connection of an authenticated user; for `backlog` and `check` see `Session`."""
        from headgate.broker.session import Session

        session = Session(self, user, protocol=protocol, connection=connection, backlog=backlog, check=check)
        self.sessions[session] = None
        return session

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

        queue = functools.partial(self._queue, stream)
        publisher = Publisher(
            stream.name, reference=reference, backlog=backlog, refused=stream.refused, queue=queue, closed=ended
        )
        stream.publishers.append(publisher)
        self.counters.publishers_opened += 1
        self.watch(stream)
        return publisher

    def declare_stream(self, name: str, arguments: Mapping[str, object], *, numbers_as_text: bool = True) -> Declared:
        """Make a stream, or find it with equal arguments; as `Catalogue.declare`."""
        declared = self.catalogue.declare(name, arguments, now_ms=self.now_ms(), numbers_as_text=numbers_as_text)
        if declared is Declared.CREATED:
            self.counters.streams_created += 1
        return declared

    def delete_stream(self, stream: BrokerStream) -> int:
        """Delete a stream: its publishers and consumers end, then sessions are told. Gives its number of messages.

        Messages queued before are written and confirmed, as their publishers get no other answer. Sessions are told at
        the next `write_queued`, so that the client that deleted the stream gets its answer first. Raises
        StreamLockedError where another process writes the stream, StreamReadOnlyError for a foreign one, LogError.
        """
        self._write_all(stream)
        messages = stream.next_offset - stream.first_offset
        touched = [session for session in self.sessions if session.uses(stream)]
        with self.catalogue.taken_for_deletion(stream):
            self._end(stream)
            left = self.catalogue.delete(stream)
        if left is not None:
            self._remove_files(left)
        self.exchanges.forget_queue(stream.name)
        self.counters.streams_deleted += 1
        self._tell(stream.name, touched)
        return messages

    def delete_damaged_stream(self, name: str) -> None:
        """Delete a stream that cannot be opened, and so has no publishers and consumers; errors of `delete_stream`."""
        left = self.catalogue.delete_damaged(name)
        if left is not None:
            self._remove_files(left)
        self.exchanges.forget_queue(name)
        self.counters.streams_deleted += 1

    def _remove_files(self, folder: Path) -> None:
        """Delete files, in a worker as large ones take long; the next broker removes what is left at the end."""
        remove = functools.partial(shutil.rmtree, folder, ignore_errors=True)
        run = None if self._is_closing else self._workers.urgent
        (run or run_here)(remove, lambda _error: None)

    def _end(self, stream: BrokerStream) -> None:
        """End every use of a stream, and refuse its queued messages."""
        self._finish_job(stream)
        stream.is_deleted = True
        deleted = ResourceNotFoundError("the stream was deleted", subject=stream.name)
        self.topics.forget(stream, deleted)
        self.topics.scheduler.forget(stream, deleted)
        self.consumer_groups.views.forget(stream, deleted)
        self.consumer_groups.pull_consumers.forget(stream.name)
        self.queue_numbers.forget(stream)
        for key in [key for key in self.shared_names if key[0] == stream.name]:
            self.shared_names.pop(key).disband()
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
        self._unwritten.pop(stream, None)

    def _tell(self, name: str, sessions: list[Session]) -> None:
        for session in sessions:
            self.later(functools.partial(session.tell_deleted, name))

    def later(self, call: Callable[[], None]) -> None:
        """Make a call in the next `write_queued`, after the answer of the current command."""
        self._calls.append(call)
        self._wake()

    def shared_name(self, stream: BrokerStream, name: str, *, partition: int | None) -> SharedName:
        """The single active consumers of a name on a stream, made if there are none."""
        key = (stream.name, name)
        shared = self.shared_names.get(key)
        if shared is None:
            shared = self.shared_names[key] = SharedName(partition=partition)
        return shared

    def drop_unshared_name(self, stream: BrokerStream, name: str) -> None:
        """Forget a name whose last member left."""
        shared = self.shared_names.get((stream.name, name))
        if shared is not None and not shared.members:
            del self.shared_names[stream.name, name]

    # writing

    @property
    def has_unwritten(self) -> bool:
        """Whether published messages wait to be written, or are being written."""
        return bool(self._jobs) or any(stream.queue for stream in self.catalogue)

    def _queue(self, stream: BrokerStream, queued: Queued) -> None:
        if queued.publisher.is_closed:
            refuse(stream, [queued], ResourceNotFoundError("the publisher was closed", subject=stream.name))
            return
        if stream.refuses_with is not None:
            refuse(stream, [queued], stream.refuses_with)
            return
        stream.queue.append(queued)
        self._write_later(stream)

    def _write_later(self, stream: BrokerStream) -> None:
        if not self._unwritten:
            self._wake()
        self._unwritten[stream] = None

    def write_queued(self) -> None:
        """Make due calls, then append the batches of publishers, stream by stream, and call their `written`.

        With a worker and `Durability.DISK` the appends go on in the background; batches queued meanwhile follow as one
        append.
        """
        calls, self._calls = self._calls, []
        unwritten, self._unwritten = self._unwritten, {}
        try:
            while calls:
                calls.pop(0)()
            for stream in list(unwritten):
                del unwritten[stream]
                self._write(stream)
        except BaseException:
            # The work after the failed one is done in the next turn.
            self._calls[:0] = calls
            self._unwritten = {**unwritten, **self._unwritten}
            self._wake()
            raise

    def _write(self, stream: BrokerStream) -> None:
        if stream.is_writing or not self._know_ids(stream):
            return
        job = WriteJob.begin(stream, now_ms=self.now_ms())
        if job is None:
            return
        self.watch(stream)
        self._run(stream, job, in_worker=self._waits_for_disk)

    def _know_ids(self, stream: BrokerStream) -> bool:
        """Whether all message ids that duplicate detection needs are known; a worker may begin to read them.

        Where they cannot be read, the queued messages are refused.
        """
        job = None if stream.recent_ids is None else ReadIds.needed(stream, now_ms=self.now_ms())
        if job is not None:
            self.watch(stream)
            self._run(stream, job, in_worker=job.is_long)
        return not stream.is_writing and (job is None or job.is_known)

    def _run(self, stream: BrokerStream, job: _Job, *, in_worker: bool) -> None:
        """Run a job that needs a stream's writer; in a worker, the writer is the job's alone until it is finished."""
        run_in_worker = self._workers.urgent
        if run_in_worker is None or self._is_closing or not in_worker:
            try:
                job.run()
            except BaseException:
                job.abandon()
                raise
            job.finish()
            return
        self._jobs[stream] = job
        stream.is_writing = True
        job.done = threading.Event()
        run_in_worker(job.run, lambda error: self._written(stream, job, error))

    def _written(self, stream: BrokerStream, job: _Job, error: BaseException | None) -> None:
        """A worker has ended a job: finish it, unless `_finish_job` has done so meanwhile."""
        if self._jobs.get(stream) is not job:
            return
        self._take_job(stream)
        try:
            if isinstance(error, BaseException):
                job.abandon()
                raise error
            job.finish()
        finally:
            if stream.queue:
                self._write_later(stream)

    def _write_all(self, stream: BrokerStream) -> None:
        """Write all batches queued for a stream, and wait for that."""
        while stream.is_writing or stream.queue:
            self._finish_job(stream)
            if stream.queue:
                self._write(stream)

    def _finish_job(self, stream: BrokerStream) -> None:
        """Wait for a worker's job; a job that never began, as the worker was stopped, confirms nothing."""
        if stream.is_writing:
            job = self._take_job(stream)
            if job.done is None or job.done.wait(WRITE_LIMIT_S):
                job.finish()
            else:
                job.abandon()

    def _take_job(self, stream: BrokerStream) -> _Job:
        """Take over the job that a worker has with the writer."""
        stream.is_writing = False
        return self._jobs.pop(stream)

    def end_turn(self) -> None:
        """Let topics and consumer groups decide, give out and settle; at the end of the loop's turn.

        That is before output is sent.
        """
        self.topics.turn()
        self.consumer_groups.views.turn()

    def create_topic(
        self,
        name: str,
        limits: TopicLimits | None = None,
        *,
        settings: TopicSettings = DEFAULT_TOPIC_SETTINGS,
        queue: SubscriptionSettings = DEFAULT_SETTINGS,
        arguments: StreamArguments | None = None,
    ) -> None:
        """Make a stream a topic; a missing one is made with `arguments`. `queue` as for `headgate.topic.create_topic`.

        Raises RuleExistsError if it is a topic already, RuleError for its name or settings, LogError.
        """
        stream = self.catalogue.find(name)
        if stream is not None:
            self._write_all(stream)
            stream.close_writer()
        create_topic(
            self.root,
            name,
            now_ms=self.now_ms(),
            limits=limits or TopicLimits(),
            settings=settings,
            queue=queue,
            arguments=arguments,
        )

    def remove_topic(self, name: str) -> None:
        """Make a topic a plain stream again: its receivers end, its subscriptions are deleted, its messages stay.

        Raises ResourceNotFoundError, RuleError if another topic forwards to it, StreamLockedError, LogError.
        """
        stream = self.catalogue.find(name)
        if stream is None or not self.topics.is_topic(stream):
            raise ResourceNotFoundError("no such topic", subject=name)
        check_removable(self.root, name)
        self._write_all(stream)
        stream.close_writer()
        self.topics.forget(stream, ResourceNotFoundError("the topic was removed", subject=name))
        stream.recent_ids = None
        remove_topic(self.root, name, now_ms=self.now_ms())

    def change_stream(self, name: str, changes: Mapping[str, object]) -> None:
        """Change limits of a stream, by argument names without `x-`; None removes a limit.

        The change is in force and on disk at the return; messages beyond the limits are deleted. Raises
        ResourceNotFoundError, PreconditionFailedError, StreamLockedError where another process writes the stream,
        LogError.
        """
        stream = self.catalogue.get(name)
        self._finish_job(stream)
        self.watch(stream)
        writer, now_ms = stream.open_writer(now_ms=self.now_ms()), self.now_ms()
        declaration, arguments = changed_arguments(writer.settings, changes)
        known = None if writer.settings.declaration is None else declaration
        writer.change_arguments(arguments, known, now_ms=now_ms)
        stream.stream = replace(stream.stream, settings=writer.settings)
        stream.refresh()

    def change_topic(self, name: str, changes: Sequence[Change], then: Changed, *, check_target: CheckTarget) -> None:
        """Change subscriptions and rules of a topic; `then` gets the offset from which the change is in force.

        `check_target` checks whether the caller may send copies to a target that the changes name.

        Messages published before are written first, and decided by the old rules; later ones wait for the change.
        `then` also gets RuleError and its kinds, StreamLockedError where another process writes the stream, LogError.
        Raises ResourceNotFoundError, AccessRefusedError for a target, LogError.
        """
        topic = self.topics.get(name)
        check_targets(topic.history, changes, check_target)
        self._write_all(topic.stream)
        self.watch(topic.stream)
        try:
            change = topic.begin_change(changes, then)
        except HeadgateError as error:
            then(error)
            return
        self._run(topic.stream, change, in_worker=True)

    # regular work

    def tick(self, now_ms: int) -> None:
        """Look after the streams in use; to be called every 50 to 100 ms.

        Notices writes of other processes, writes stored offsets within a second, gives back writers that were unused
        for ten seconds, keeps match indexes up, applies retention once an hour.
        """
        self.consumers.tick(now_ms)
        self.topics.tick(now_ms)
        self.entities.tick(now_ms)
        self.consumer_groups.views.tick(now_ms)
        self.consumer_groups.pull_consumers.tick(now_ms)
        flush_is_due = is_over(self._flushed_ms, FLUSH_MS, now_ms)
        if flush_is_due:
            self._flushed_ms = now_ms
            self._keep_declarations()
            self._indexing.tick(now_ms)
            self.expressions.tick(now_ms)
            self.members.tick(now_ms)
        for stream in list(self._watched):
            if not stream.is_writing:
                self._look_after_safely(stream, now_ms, flush_is_due)
        if is_over(self._retained_ms, RETENTION_MS, now_ms):
            self._retained_ms = now_ms
            self._to_retain = self.catalogue.names()
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
            touched = [session for session in self.sessions if session.uses(stream)]
            self._end(stream)
            self.catalogue.forget(stream)
            self._tell(stream.name, touched)
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
            self.topics.close()
            for stream in self.catalogue:
                stream.close_writer()

    def _write_everything(self) -> None:
        self.write_queued()
        self._is_closing = True
        for stream in self.catalogue:
            self._write_all(stream)
            try:
                self._flush(stream, self.now_ms())
            except (LogError, BrokerError) as error:
                logger.warning("stored offsets of stream %r are lost: %s", stream.name, error)
