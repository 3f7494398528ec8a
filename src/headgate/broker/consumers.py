"""Consumers: who reads a stream, with which filters, and how much credit is left. What they share is in `scan.fetch`.

A consumer is an offset. It reads on (`scan`, in any thread) while it has credit and nothing pending; what was found is
pending until it is taken (`take`), and each message or chunk that is taken uses credit. What a filter drops uses none.
Everything but `scan` is called in the broker's thread.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headgate.broker.batches import ChunkBatch
from headgate.broker.gathering import Gathering
from headgate.broker.pending import PendingChunks, PendingMessages, held_bytes
from headgate.errors import LogError
from headgate.evaluate.filter import Filter
from headgate.log import OffsetSpecification
from headgate.scan import ScanBatch, ScanCounters, ScanRequest
from headgate.scan.fetch import ChunkPortion, Portion, SharedLog, SharedReader, SharedReads

if TYPE_CHECKING:
    from headgate.broker.groups import Group
    from headgate.broker.stream import BrokerStream

DROP_AFTER_MS = 2_000
"""So long a consumer may leave what is pending; then it is dropped, and read again when it goes on."""

KEPT_MS = 3_000
"""So long the files of a stream stay open without a consumer: whoever comes then finds them mapped into memory."""

TRIM_MS = 10_000
"""So often memory for reading that nobody uses just then is given back."""

PENDING_BYTES = 64 << 20
"""Above so many bytes that are pending in memory, what consumers without credit leave is dropped at once."""


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """What a consumer asks for.

    Stage 1 is `filter_values` and `match_unfiltered` (the value `b""` means the same), stage 2 is `filter`. `name` is
    the consumer's reference, `tag` what its protocol calls it. A `single_active` consumer of a `super_stream`, or of
    none, is told by `on_active` to begin or to stop; it answers with `activate` or `deactivated`.
    """

    start: OffsetSpecification
    filter_values: tuple[bytes, ...] = ()
    match_unfiltered: bool = False
    filter: Filter | None = None
    name: str | None = None
    tag: str = ""
    single_active: bool = False
    super_stream: str | None = None
    on_active: Callable[[bool], None] | None = None

    def request(self) -> ScanRequest:
        """What is asked of the stream; without a wanted value `match_unfiltered` has no effect."""
        wanted = tuple(value for value in self.filter_values if value)
        unfiltered = bool(self.filter_values) and (self.match_unfiltered or len(wanted) < len(self.filter_values))
        return ScanRequest(
            filter=self.filter, filter_values=wanted or ((b"",) if unfiltered else ()), match_unfiltered=unfiltered
        )


class Consumer(ABC):
    """One consumer of one stream, from `Consumers` to `close`.

    `on_ready` is called when there may be something to take or to scan: new chunks, credit, activation. `lost` counts
    offsets that retention deleted before the consumer came to them; it goes on behind them, and `on_lost` is told.
    """

    __slots__ = (
        "_arrived",
        "_consumers",
        "_counters",
        "_gathering",
        "_generation",
        "_is_closed",
        "_is_scanning",
        "_lock",
        "_log",
        "_looked_to",
        "_passed_offsets",
        "_pending",
        "_reader",
        "_scan_offset",
        "_stream",
        "_used_ms",
        "credit",
        "delivered_bytes",
        "group",
        "is_active",
        "lost",
        "on_lost",
        "on_ready",
        "options",
    )

    _pending: PendingMessages | PendingChunks

    def __init__(
        self, consumers: Consumers, stream: BrokerStream, gathering: Gathering, options: ConsumerOptions
    ) -> None:
        self.options = options
        self.credit = 0
        self.is_active = False
        self.group: Group | None = None
        self.on_ready: Callable[[], None] = _nothing
        self.on_lost: Callable[[int], None] | None = None
        self._counters = ScanCounters()
        self.delivered_bytes = 0
        self.lost = 0
        self._consumers = consumers
        self._stream = stream
        self._gathering = gathering
        self._log = log = gathering.log
        self._lock = threading.Lock()
        self._is_closed = self._is_scanning = False
        self._generation = 0
        self._arrived: tuple[int, Portion | ChunkPortion | None, int] | None = None
        self._looked_to = -1
        self._scan_offset = self._passed_offsets = 0
        self._used_ms = consumers.time_ms
        self._reader = SharedReader(log, options.request())
        if not options.single_active:
            try:
                self._begin(options.start)
            except BaseException:
                self._reader.close()
                raise

    # what it may be sent

    def add_credit(self, count: int) -> None:
        """Let it take so many messages or chunks more."""
        self.set_credit(self.credit + count)

    def set_credit(self, count: int) -> None:
        """Let it take so many messages or chunks from now on."""
        before, self.credit = self.credit, count
        self._reader.is_waiting = self.is_active and count > 0
        if count <= 0 < before:
            self._gathering.moved(self._reader.offset)
        if count > 0 >= before:
            self.on_ready()

    # reading

    @property
    def stream(self) -> str:
        """Name of the stream."""
        return self._stream.name

    @property
    def counters(self) -> ScanCounters:
        """What its reads examined, skipped and kept."""
        self._collect()
        return self._counters

    @property
    def is_closed(self) -> bool:
        """Whether it takes nothing more: it was closed, or its stream is deleted."""
        return self._is_closed

    @property
    def has_pending(self) -> bool:
        """Whether `take` gives something as soon as there is credit."""
        self._collect()
        return bool(self._pending)

    @property
    def needs_scan(self) -> bool:
        """Whether it has credit, little pending, and something committed was not looked at yet."""
        self._collect()
        return (
            self.credit > 0
            and self.is_active
            and self._pending.is_low
            and not self._is_scanning
            and not self._is_closed
            and not self._has_seen_all()
        )

    @property
    def scan_is_small(self) -> bool:
        """Whether the next scan is over in well under a millisecond.

        So it is where the next messages are decided for others already, and for few new ones at the end of the stream.
        Raises nothing: what is wrong with the end of the stream is said when the consumer has come there.
        """
        if self._reader.is_decided(self._scan_offset):
            return True
        wanted = self.options.filter
        if wanted is not None and wanted.program is None:
            return False
        try:
            return self._log.is_small(self._scan_offset, self._stream.next_offset)
        except (LogError, OSError):
            return False

    def may_scan(self) -> bool:
        """Whether to scan now, of what is no small scan; if not, others come up that it reads on with.

        `on_ready` is called when they are there, or when it has waited long enough. Asked only before a scan.
        """
        return not self._reader.is_shared or self._gathering.may_scan(self, self._scan_offset)

    @property
    def at_end(self) -> bool:
        """Whether nothing is pending and everything committed was looked at."""
        self._collect()
        return not self._pending and not self._is_scanning and self._has_seen_all()

    @property
    def next_offset(self) -> int:
        """The offset of the next message to take, or to look at."""
        self._collect()
        return self._pending.next_offset if self._pending else self._scan_offset

    @property
    def lag(self) -> int:
        """How many messages there are that it has neither taken nor passed over."""
        return self._stream.messages_from(self.next_offset)

    @property
    def filtered_lag(self) -> int:
        """About how many of those it will be given: as large a share as of what it has looked at so far."""
        lag = self.lag
        passed = self._stream.messages_in(self._scan_offset - self._passed_offsets, self._scan_offset)
        if not passed:
            return lag
        return round(lag * min(1.0, self._counters.messages_matched / passed))

    def scan(self) -> None:
        """Read on: some mebibytes at most. In any thread, one call at a time.

        Raises LogError, CorruptChunkError first of all, which is in the log then: the consumer cannot go on.
        """
        with self._lock:
            if self._is_closed:
                return
            self._is_scanning = True
            generation, offset, end = self._generation, self._scan_offset, self._stream.next_offset
        try:
            with self._stream.guarded():
                portion = self._read(offset)
                if portion is None and self._stream.damage is not None:
                    raise self._stream.damage
            self._arrived = (generation, portion, end)
        except LogError:
            if self._stream.is_there:
                raise
            # Who uses it hears at the next tick that it was deleted.
            self._arrived = (generation, None, end)
        finally:
            with self._lock:
                self._is_scanning = False
                if self._is_closed:
                    self._release()

    def appended(self) -> None:
        """The stream grew."""
        if self.credit > 0 and self.is_active:
            self.on_ready()

    @abstractmethod
    def _read(self, offset: int) -> Portion | ChunkPortion | None:
        """What comes next from an offset on."""

    def _has_seen_all(self) -> bool:
        if self._stream.damage is not None:
            return False
        end = self._stream.next_offset
        return self._scan_offset >= end or self._looked_to >= end

    def _collect(self) -> None:
        """Take over what the last scan found, if it is not about a place that was left meanwhile."""
        arrived = self._arrived
        if arrived is None:
            return
        # Only now: a scan may end in another thread between the two, but none begins before this one is taken over.
        self._arrived = None
        self._gathering.ended(self)
        if arrived[0] != self._generation:
            return
        _, portion, end = arrived
        if portion is None:
            self._looked_to = end
            return
        self._counters.add(portion.counters)
        before, self._scan_offset = self._scan_offset, portion.next_offset
        self._passed_offsets += portion.next_offset - before
        self._gathering.moved(before)
        self._used_ms = self._consumers.time_ms
        self._keep(portion)
        self._reader.is_delivering = bool(self._pending)
        if portion.lost:
            self.lost += portion.lost
            if self.on_lost is not None:
                self.on_lost(portion.lost)

    def _clear(self) -> None:
        """Forget what is pending."""
        self._pending.clear()
        self._reader.is_delivering = False

    @abstractmethod
    def _keep(self, portion: Portion | ChunkPortion) -> None:
        """Put what was read behind what is pending."""

    def _used(self, count: int, size_bytes: int) -> None:
        """So much was taken."""
        self.credit -= count
        self.delivered_bytes += size_bytes
        self._used_ms = self._consumers.time_ms
        self._reader.is_waiting = self.credit > 0
        self._reader.is_delivering = bool(self._pending)
        if not self.credit:
            self._gathering.moved(self._reader.offset)

    def _begin(self, start: OffsetSpecification) -> None:
        """Read on from somewhere else."""
        if self._stream.writer is None:
            self._stream.look()
        end = self._stream.next_offset
        with self._stream.guarded():
            offset = self._log.attach(start, end=end, now_ms=self._consumers.now_ms())
        self._generation += 1
        self._looked_to = -1
        self._scan_offset = self._reader.offset = offset
        self._clear()
        self.is_active = True
        self._reader.is_waiting = self.credit > 0

    # memory

    @property
    def pending_buffers(self) -> list[NDArray[np.uint8]]:
        """The memory that pending messages or chunks lie in."""
        return self._pending.buffers

    def drop_unused(self, used_before_ms: int) -> None:
        """Forget what is pending if it was not touched since a time; it is read again when the consumer goes on."""
        if self._pending and self._used_ms <= used_before_ms and not self._is_scanning:
            self._collect()
            self._scan_offset = self._pending.next_offset
            self._clear()

    # who is active

    def asked(self, active: bool) -> None:
        """Its group wants it to begin or to stop; `on_active` is told, and without one it does so at once.

        From a consumer that shall stop nothing is taken any more, whenever it answers.
        """
        if not active:
            self._stop()
        if self.options.on_active is not None:
            self.options.on_active(active)
        elif active:
            self.activate(None)
        else:
            self.deactivated()

    def activate(self, start: OffsetSpecification | None) -> None:
        """The answer to being asked to begin: from `start`, or from where its options say. Raises LogError."""
        if self._is_closed:
            return
        self._begin(self.options.start if start is None else start)
        self._answer()
        self.on_ready()

    def deactivated(self) -> None:
        """The answer to being asked to stop; what is pending is left to whoever comes next."""
        if self._is_closed:
            return
        self._stop()
        self._answer()

    def _stop(self) -> None:
        self.is_active = self._reader.is_waiting = False
        self._generation += 1
        self._clear()
        self._gathering.moved(self._reader.offset)

    def _answer(self) -> None:
        if self.group is not None:
            self.group.answered(self)

    def close(self) -> None:
        """It takes nothing more; again is harmless."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if not self._is_scanning:
                self._release()
        self.is_active = self._reader.is_waiting = False
        self._generation += 1
        self._clear()
        self.on_ready = _nothing
        self._stream.remove_reader(self)
        self._gathering.left(self)
        self._gathering.moved(self._reader.offset)

    def _release(self) -> None:
        self._reader.close()
        self._consumers.left(self)


class MessageConsumer(Consumer):
    """Takes messages: one credit each."""

    __slots__ = ("delivered_messages",)

    _pending: PendingMessages

    def __init__(
        self, consumers: Consumers, stream: BrokerStream, gathering: Gathering, options: ConsumerOptions
    ) -> None:
        self._pending = PendingMessages()
        self.delivered_messages = 0
        super().__init__(consumers, stream, gathering, options)

    def take(self, max_messages: int, max_bytes: int) -> ScanBatch | None:
        """The next messages, as far as credit and both limits allow, but at least one; None if there is nothing now.

        The bytes stay as they are as long as they are referenced.
        """
        self._collect()
        if not self._pending or self.credit <= 0 or not self.is_active:
            return None
        batch = self._pending.take(min(max_messages, self.credit), max_bytes)
        self.delivered_messages += len(batch)
        self._used(len(batch), int(batch.messages.lengths.sum()))
        return batch

    def _read(self, offset: int) -> Portion | None:
        return self._reader.read(offset, self._consumers.now_ms())

    def _keep(self, portion: Portion | ChunkPortion) -> None:
        assert isinstance(portion, Portion)
        self._pending.add(portion)


class ChunkConsumer(Consumer):
    """Takes whole chunks: one credit each.

    With a filter, messages that match and follow one another make a chunk of their own.
    """

    __slots__ = ("delivered_chunks",)

    _pending: PendingChunks

    def __init__(
        self, consumers: Consumers, stream: BrokerStream, gathering: Gathering, options: ConsumerOptions
    ) -> None:
        self._pending = PendingChunks()
        self.delivered_chunks = 0
        super().__init__(consumers, stream, gathering, options)

    def take(self, max_bytes: int) -> ChunkBatch | None:
        """The next chunks, as far as credit and `max_bytes` of data allow, but at least one; None if there is nothing.

        The bytes stay as they are as long as they are referenced.
        """
        self._collect()
        if not self._pending or self.credit <= 0 or not self.is_active:
            return None
        batch = self._pending.take(self.credit, max_bytes, self._stream.last_chunk_id)
        self.delivered_chunks += len(batch)
        self._used(len(batch), int(batch.data_lengths.sum()))
        return batch

    def _read(self, offset: int) -> ChunkPortion | None:
        if self.options.filter is None:
            return self._reader.read_chunks(offset)
        return self._reader.read_matching_chunks(offset, self._consumers.now_ms())

    def _keep(self, portion: Portion | ChunkPortion) -> None:
        assert isinstance(portion, ChunkPortion)
        self._pending.add(portion)


class Consumers:
    """The consumers of a broker's streams, and what they share: windows, open files, bounds of memory."""

    def __init__(self, *, now_ms: Callable[[], int], reads: SharedReads | None = None) -> None:
        self.now_ms = now_ms
        self.time_ms = self._trimmed_ms = now_ms()
        self._reads = SharedReads() if reads is None else reads
        self._logs: dict[BrokerStream, Gathering] = {}
        self._unused_since_ms: dict[BrokerStream, int] = {}
        self._members: dict[Consumer, BrokerStream] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._members)

    def message_consumer(self, stream: BrokerStream, options: ConsumerOptions) -> MessageConsumer:
        """A consumer that takes messages. Raises LogError for what is wrong with the stream's files."""
        with self._log_of(stream) as gathering:
            consumer = MessageConsumer(self, stream, gathering, options)
            self._joined(consumer, stream)
        return consumer

    def chunk_consumer(self, stream: BrokerStream, options: ConsumerOptions) -> ChunkConsumer:
        """A consumer that takes whole chunks; errors as `message_consumer`."""
        with self._log_of(stream) as gathering:
            consumer = ChunkConsumer(self, stream, gathering, options)
            self._joined(consumer, stream)
        return consumer

    def tick(self, now_ms: int) -> None:
        """Time passes: what consumers left pending for long is dropped, at once where memory is short."""
        self.time_ms = now_ms
        if now_ms - self._trimmed_ms >= TRIM_MS:
            self._trimmed_ms = now_ms
            self._reads.trim()
        self._close_unused(now_ms - KEPT_MS)
        for gathering in list(self._logs.values()):
            gathering.tick()
        waiting = []
        held: dict[int, int] = {}
        for consumer in list(self._members):
            if consumer.has_pending:
                consumer.drop_unused(now_ms - DROP_AFTER_MS)
                buffers = held_bytes(consumer.pending_buffers)
                held.update(buffers)
                if buffers and consumer.credit <= 0:
                    waiting.append(consumer)
        if sum(held.values()) > PENDING_BYTES:
            for consumer in waiting:
                consumer.drop_unused(now_ms)

    def left(self, consumer: Consumer) -> None:
        """A consumer ended. In any thread."""
        with self._lock:
            stream = self._members.pop(consumer, None)
            if stream is not None:
                self._note_use(stream)

    def forget(self, stream: BrokerStream) -> None:
        """A stream is deleted, and its consumers have ended: its files are not kept open for others."""
        with self._lock:
            if self._unused_since_ms.pop(stream, None) is not None:
                self._logs.pop(stream).log.close()

    def close(self) -> None:
        """Close the files that no consumer uses."""
        self._close_unused(self.time_ms)

    @contextmanager
    def _log_of(self, stream: BrokerStream) -> Iterator[Gathering]:
        with self._lock:
            found = self._logs.get(stream)
            if found is None:
                with stream.guarded():
                    log = SharedLog(stream.stream, self._reads)
                found = self._logs[stream] = Gathering(log, time_ms=lambda: self.time_ms)
        try:
            yield found
        finally:
            with self._lock:
                self._note_use(stream)

    def _joined(self, consumer: Consumer, stream: BrokerStream) -> None:
        with self._lock:
            self._members[consumer] = stream
        stream.add_reader(consumer)

    def _note_use(self, stream: BrokerStream) -> None:
        if stream not in self._logs:
            return
        if stream in self._members.values():
            self._unused_since_ms.pop(stream, None)
        else:
            self._unused_since_ms.setdefault(stream, self.time_ms)

    def _close_unused(self, latest_ms: int) -> None:
        """Close the files of streams without a consumer since a time."""
        with self._lock:
            for stream in [each for each, since_ms in self._unused_since_ms.items() if since_ms <= latest_ms]:
                del self._unused_since_ms[stream]
                self._logs.pop(stream).log.close()


def _nothing() -> None:
    """What a consumer tells until somebody listens."""
