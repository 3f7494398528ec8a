"""A small stream beside a topic, with a ledger and one view: dead letters, or deferred copies, of a subscription."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path

from headgate.broker.delivery import Consumption, MovedCopies, Mover, StreamSource
from headgate.broker.environment import Environment
from headgate.broker.stream import BrokerStream, Storage
from headgate.broker.topics.dead_letters import DeadLetterDispatcher
from headgate.broker.topics.deferred_copies import DeferredDispatcher, DeferredIndex
from headgate.broker.topics.dispatcher import Dispatcher
from headgate.broker.topics.policy import SubscriptionPolicy
from headgate.errors import HeadgateError, LogError
from headgate.ledger import NEVER, Ledger, Move, append_moves, offset_of
from headgate.log import Stream, StreamArguments, Writer, read_tail
from headgate.scan import MessageReader
from headgate.topic import QUEUE_VIEW

IDLE_MS = 10_000
"""After this time without use the files of a small stream are closed; the next use opens them again."""

_SEGMENT_BYTES = 16 << 20


class Subqueue:
    """A small stream in a folder, made when the first message comes; its files are open while it is used."""

    def __init__(
        self,
        name: str,
        folder: Path,
        topic: BrokerStream,
        environment: Environment,
        policy: SubscriptionPolicy,
        *,
        is_deferred: bool,
        mover_of: Callable[[Ledger, MovedCopies], Mover],
        touched: Callable[[Subqueue], None],
    ) -> None:
        """It holds deferred copies, or else dead letters; `mover_of` gives the mover of those that leave it."""
        self.name = name
        self._folder = folder
        self._storage = topic.storage
        self._policy = policy
        self._is_deferred = is_deferred
        self._mover_of = mover_of
        self._now_ms = environment.now_ms
        self._touched = touched
        self._guarded = topic.guarded
        self._commits = environment.workers.commits
        self._delivered = environment.delivered_of(topic)
        self._writer: Writer | None = None
        self._consumption: Consumption | None = None
        self._dispatcher: DeadLetterDispatcher | DeferredDispatcher | None = None
        self._index = DeferredIndex()
        self._reader: MessageReader | None = None
        self._next_offset = 0
        self._count = None if folder.exists() else 0
        self._used_ms = self._now_ms()

    @property
    def exists(self) -> bool:
        """Whether a message ever came."""
        return self._folder.exists()

    @property
    def is_open(self) -> bool:
        """Whether files are open."""
        return self._writer is not None or self._consumption is not None

    @property
    def is_received(self) -> bool:
        """Whether it has receivers."""
        return self._dispatcher is not None and bool(self._dispatcher.receivers)

    def append(self, ledger: Ledger, target: str, made: Callable[[Move], tuple[bytes, bytes | None] | None]) -> int:
        """Append the pending moves of a ledger; gives how many are done. Raises LogError."""
        self._used_ms = now_ms = self._now_ms()
        if self._writer is None:
            with self._guarded():
                self._writer = self._storage.writer(self._stream(), now_ms=now_ms)
            self._touched(self)
        before = self._writer.next_offset
        try:
            moved = append_moves(ledger, target, self._writer, made=made, now_ms=now_ms)
        except BaseException:
            self._count = None
            raise
        else:
            self._count = None if self._count is None else self._count + self._writer.next_offset - before
        finally:
            if self._writer.is_broken:
                self._writer.close()
                self._writer = None
            elif self._dispatcher is not None:
                self._next_offset = self._writer.next_offset
                self._dispatcher.count_unseen()
                self._dispatcher.wake()
                self._touched(self)
        return moved

    def deferred(self) -> DeferredDispatcher | None:
        """The dispatcher of deferred copies; None where there never were any. Raises as `dispatcher`."""
        if not self.exists:
            return None
        dispatcher = self.dispatcher()
        assert isinstance(dispatcher, DeferredDispatcher)
        return dispatcher

    def dead_letters(self) -> DeadLetterDispatcher | None:
        """The dispatcher of dead letters; None where there never were any. Raises as `dispatcher`."""
        if not self.exists:
            return None
        dispatcher = self.dispatcher()
        assert isinstance(dispatcher, DeadLetterDispatcher)
        return dispatcher

    def dispatcher(self) -> DeadLetterDispatcher | DeferredDispatcher:
        """The dispatcher of its messages; opens its ledger. Raises StreamLockedError and other LogErrors."""
        self._used_ms = now_ms = self._now_ms()
        if self._dispatcher is None:
            try:
                with self._guarded():
                    self._dispatcher = self._opened_dispatcher(now_ms)
            except BaseException:
                self._close_reading()
                raise
            self._touched(self)
        return self._dispatcher

    def _opened_dispatcher(self, now_ms: int) -> DeadLetterDispatcher | DeferredDispatcher:
        """A new dispatcher, with the files that it needs; after an error some of them are open."""
        stream = self._stream()
        ledger = self._storage.ledger(stream, now_ms=now_ms)
        self._consumption = Consumption(
            ledger, lambda: self._touched(self), self._guarded, self._commits, self._delivered
        )
        self._reader = MessageReader(stream)
        self._next_offset = read_tail(stream).next_offset
        source = StreamSource(stream, self._reader, lambda: self._next_offset)
        made = functools.partial(DeferredDispatcher, index=self._index) if self._is_deferred else DeadLetterDispatcher
        dispatcher: DeadLetterDispatcher | DeferredDispatcher = made(
            self.name,
            ledger.view(QUEUE_VIEW, 0),
            source,
            self._consumption,
            self._policy,
            self._now_ms,
        )
        self._consumption.mover = self._mover_of(ledger, dispatcher)
        dispatcher.count_unseen()
        self._consumption.add(dispatcher)
        self._consumption.expire(now_ms)
        return dispatcher

    @property
    def known_count(self) -> int | None:
        """How many messages are not settled, without opening a file; None where only the files know it."""
        return self._count if self._dispatcher is None else _unsettled(self._dispatcher)

    def count(self) -> int:
        """How many messages are not settled; opens the files if that is not known. Raises LogError."""
        known = self.known_count
        return _unsettled(self.dispatcher()) if known is None else known

    def turn(self, now_ms: int) -> None:
        """Take back expired claims, give out, commit, carry out moves."""
        if self._consumption is not None:
            self._consumption.expire(now_ms)
            self._consumption.dispatch(now_ms)
            self._consumption.commit(now_ms)
            self._consumption.move(now_ms)
            if (error := self._consumption.broken_by) is not None:
                self.end(error)

    def tick(self, now_ms: int) -> None:
        """Drop settled messages, and close the files after `IDLE_MS` without use."""
        if self.is_received:
            self._used_ms = now_ms
        consumption = self._consumption
        if consumption is not None and consumption.is_due(now_ms):
            self._touched(self)
        is_waiting = consumption is not None and (consumption.ledger.next_due_ms < NEVER or consumption.ledger.moves())
        if self._writer is not None:
            self._drop_settled(self._writer)
        if self.is_open and not is_waiting and now_ms - self._used_ms >= IDLE_MS:
            with contextlib.suppress(LogError):  # the next time will do
                self._drop_all_settled(now_ms)
            self.close()

    def _drop_settled(self, writer: Writer) -> bool:
        """Delete the first file if none of its messages is needed; whether it was deleted."""
        floor = None if self._dispatcher is None else self._dispatcher.view.floor
        return floor is not None and writer.drop_first_below(offset_of(floor))

    def _drop_all_settled(self, now_ms: int) -> None:
        """The same for all files, if the dispatcher is open and there is more than one file."""
        if self._dispatcher is None or len(self._stream().segments()) < 2:
            return
        if self._writer is None:
            self._writer = self._storage.writer(self._stream(), now_ms=now_ms)
        while self._drop_settled(self._writer):
            pass

    def close(self) -> None:
        """Close all files; again is harmless."""
        self._count = self.known_count
        self._close_reading()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _close_reading(self) -> None:
        """Close all but the writer."""
        if self._consumption is not None:
            self._consumption.close()
        if self._reader is not None:
            self._reader.close()
        self._consumption = self._dispatcher = self._reader = None

    def end_receivers(self, error: HeadgateError) -> None:
        """End the receivers; others may come later."""
        if self._dispatcher is not None:
            self._dispatcher.end(error)

    def end(self, error: HeadgateError) -> None:
        """Its subscription is removed: receivers end."""
        if self._consumption is not None:
            self._consumption.end(error)
        self.close()

    def _stream(self) -> Stream:
        return small_stream(self._folder, self.name, storage=self._storage, now_ms=self._now_ms())


def _unsettled(dispatcher: Dispatcher) -> int:
    counts = dispatcher.counts()
    return counts.active + counts.locked + counts.waiting


def small_stream(folder: Path, name: str, *, storage: Storage, now_ms: int) -> Stream:
    """The stream in a folder beside a topic, created if missing. Raises LogError."""
    return Stream.find(folder) or Stream.create(
        folder,
        name=name,
        now_ms=now_ms,
        arguments=StreamArguments(max_segment_size_bytes=_SEGMENT_BYTES),
        open_file=storage.open_file,
    )
