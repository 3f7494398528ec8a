"""Consumers of streams, with their filters. The reading itself is in the stream's `ReadingEngine`.

A consumer tells the engine how much its protocol's link wants, runs the scans that are due, and takes the found
messages. Everything but `run` is called in the broker's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.arrays import total
from headgate.broker.observer import BatchObserver, chunk_parts, message_parts
from headgate.derived import sources_of
from headgate.errors import HeadgateError, LogError
from headgate.evaluate import Filter
from headgate.log import OffsetKind, OffsetSpecification
from headgate.scan import ScanBatch, ScanCounters, ScanRequest
from headgate.scan.engine import Phase, Reader, ReadingEngine, Scan, held_bytes
from headgate.scan.fetch import ChunkColumns, CpuTime, SharedLog, SharedReads, unmeasured

if TYPE_CHECKING:
    from headgate.broker.single_active import SharedName
    from headgate.broker.stream import BrokerStream

DROP_AFTER_MS = 2_000
"""After this time without credit pending results are dropped, and read again later."""

KEPT_MS = 3_000
"""How long the files of a stream stay open, and mapped, without a consumer, for the next one."""

TRIM_MS = 10_000
"""After this time without use memory for reading is freed."""

PENDING_BYTES = 64 << 20
"""Limit: pending bytes in memory; above it, pending results of consumers without credit are dropped at once."""


LOST = "x-headgate-lost"
"""The name under which a message carries the number of messages before it that retention deleted unread."""


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """Options of a consumer: its start, its filters and its names.

    Stage 1 is `filter_values` and `match_unfiltered` (the value `b""` means the same), stage 2 is `filter`. `name` is
    the consumer's reference, `tag` its name in its protocol. A `single_active` consumer, with or without a
    `super_stream`, is told by `on_active` to begin or to stop; it answers with `activate` or `deactivated`.
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
        """The request to the stream; without a wanted value `match_unfiltered` has no effect."""
        wanted = tuple(value for value in self.filter_values if value)
        unfiltered = bool(self.filter_values) and (self.match_unfiltered or len(wanted) < len(self.filter_values))
        return ScanRequest(
            filter=self.filter,
            filter_values=wanted or ((b"",) if unfiltered else ()),
            match_unfiltered=unfiltered,
            sources=sources_of(),
        )


class Consumer:
    """One consumer of one stream, from `Consumers` to `close`.

    `on_ready` is called when there may be messages to take or to scan: after new chunks, credit or activation.
    `takes_more` says whether the link can send now. `lost` counts offsets that retention deleted before the consumer
    came to them; it goes on behind them, and `on_lost` is called.
    """

    __slots__ = (
        "_consumers",
        "_engine",
        "_reader",
        "_stream",
        "delivered_bytes",
        "delivered_messages",
        "observer",
        "options",
        "shared",
    )

    _reader: Reader[ScanBatch] | Reader[ChunkColumns]

    def __init__(
        self, consumers: Consumers, stream: BrokerStream, engine: ReadingEngine, options: ConsumerOptions
    ) -> None:
        self.options = options
        self.shared: SharedName | None = None
        self.observer: BatchObserver | None = None
        """Is told of what it takes; None for a consumer that is no client's."""
        self.delivered_messages = self.delivered_bytes = 0
        self._consumers = consumers
        self._stream = stream
        self._engine = engine
        if not options.single_active:
            try:
                self._begin(options.start)
            except BaseException:
                engine.close(self._reader)
                raise

    # what it may be sent

    @property
    def wanted(self) -> int:
        """How many messages or chunks its link can take."""
        return self._reader.wanted

    def want(self, count: int) -> None:
        """Set how many messages or chunks its link can take."""
        self._engine.want(self._reader, count)

    def want_more(self, count: int) -> None:
        """Add to the number of messages or chunks that its link can take."""
        self._engine.want(self._reader, self._reader.wanted + count)

    def wake(self) -> None:
        """Let the link look again for messages to take, or news to send."""
        self._reader.wake()

    # reading

    @property
    def stream(self) -> str:
        """Name of the stream."""
        return self._stream.name

    @property
    def counters(self) -> ScanCounters:
        """Counters of the messages that its reads examined, skipped and kept."""
        return self._reader.counters

    @property
    def lost(self) -> int:
        """How many offsets retention deleted before it came to them."""
        return self._reader.lost

    @property
    def is_active(self) -> bool:
        """Whether it reads: a single active consumer only when its turn has come."""
        return self._reader.is_active

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or its stream was deleted."""
        return self._reader.phase is Phase.CLOSED

    @property
    def has_pending(self) -> bool:
        """Whether `take` gives messages as soon as there is credit."""
        return bool(self._reader.pending)

    @property
    def at_end(self) -> bool:
        """Whether nothing is pending and all committed messages were looked at."""
        return self._reader.at_end

    @property
    def next_offset(self) -> int:
        """The offset of the next message to take, or to look at."""
        return self._reader.next_offset

    @property
    def begun_at(self) -> int:
        """The offset at which it began to read; later, if retention took what it had not come to."""
        return self._reader.offset - self._reader.passed_offsets

    @property
    def bounds(self) -> tuple[int, int]:
        """The first kept offset of its stream, and the offset behind its last message."""
        return self._stream.first_offset, self._stream.next_offset

    @property
    def lag(self) -> int:
        """How many messages it has neither taken nor passed over."""
        return self._stream.messages_from(self.next_offset)

    @property
    def filtered_lag(self) -> int:
        """An estimate of how many messages of its `lag` match: the share that matched so far."""
        lag, reader = self.lag, self._reader
        passed = self._stream.messages_in(self.begun_at, reader.offset)
        if not passed:
            return lag
        return round(lag * min(1.0, reader.counters.messages_matched / passed))

    def listen(self, on_ready: Callable[[], None], takes_more: Callable[[], bool] = lambda: True) -> None:
        """Call `on_ready` when there may be messages to take or to scan; `takes_more`: whether the link can send."""
        self._reader.on_ready, self._reader.takes_more = on_ready, takes_more

    def when_lost(self, on_lost: Callable[[int], None]) -> None:
        """Call `on_lost` with the number of offsets that retention deleted before it came to them, now and later."""
        self._reader.on_lost = on_lost
        if self.lost:
            on_lost(self.lost)

    # scans

    def scan_due(self) -> Scan | None:
        """The next scan; None unless the link can take more, little is pending, and unread messages are committed."""
        return self._engine.scan_due(self._reader)

    def is_small(self, scan: Scan) -> bool:
        """Whether a scan takes well under a millisecond.

        Raises nothing: damage at the end of the stream is reported when the consumer gets there.
        """
        try:
            return scan.is_small
        except (LogError, OSError):
            return False

    def begin_scan(self, scan: Scan, *, may_wait: bool) -> bool:
        """Begin a scan, which is then run and ended; False if, with `may_wait`, it first waits for others to catch up.

        Then `on_ready` is called when they have, or after some time.
        """
        return self._engine.begin_scan(scan, may_wait=may_wait)

    def run(self, scan: Scan) -> None:
        """Run a scan, over some mebibytes at most; in any thread. An error is kept in the scan; damage is logged."""
        try:
            with self._stream.guarded():
                scan.run(self._consumers.now_ms())
        except LogError as error:
            # The users of a deleted stream are told at the next tick.
            if self._stream.is_there:
                scan.error = error

    def end_scan(self, scan: Scan) -> HeadgateError | None:
        """Take over the results of a scan; gives the error for which the consumer cannot go on."""
        return self._engine.end_scan(scan)

    def _begin(self, start: OffsetSpecification) -> None:
        """Read on from another place. Raises LogError."""
        engine = self._engine
        with self._stream.guarded():
            if engine.log.may_wait_for_storage(start):
                engine.begin_at(self._reader, start)
            else:
                offset = engine.log.attach(start, end=engine.end, now_ms=self._consumers.now_ms())
                engine.begin(self._reader, offset)
        self._count_lost_before(start)

    def _count_lost_before(self, start: OffsetSpecification) -> None:
        """Count offsets deleted before a consumer came back to them.

        Offset 0 does not count: to many clients it means the beginning.
        """
        if start.kind is OffsetKind.OFFSET and start.value:
            settings = self._stream.stream.settings
            asked = max(start.value, 0 if settings is None else settings.arguments.initial_offset)
            lost = self._stream.first_offset - asked
            if lost > 0:
                self._reader.lost += lost
                if self._reader.on_lost is not None:
                    self._reader.on_lost(lost)

    # memory

    @property
    def is_memory_short(self) -> bool:
        """Whether too much is pending: a consumer that wants nothing now says so, which drops its pending results."""
        return self._consumers.is_short

    def held_bytes(self) -> dict[int, int]:
        """The memory of pending messages or chunks: buffer identity → bytes; none for mapped files."""
        return held_bytes(self._reader.pending.buffers)

    def drop_unused(self, used_before_ms: int) -> None:
        """Drop pending results if none was taken since a time; they are read again when the consumer goes on."""
        self._engine.drop_unused(self._reader, used_before_ms)

    # who is active

    def asked(self, active: bool) -> None:
        """Ask it to begin or stop, among the consumers of its name; without `on_active` it does so at once.

        A consumer that is asked to stop gives no more messages, even before its answer.
        """
        if not active:
            self._engine.stop(self._reader)
        if self.options.on_active is not None:
            self.options.on_active(active)
        elif active:
            self.activate(None)
        else:
            self.deactivated()

    def activate(self, start: OffsetSpecification | None) -> None:
        """The answer to the question to begin: from `start`, or from the start in its options. Raises LogError."""
        if self.is_closed:
            return
        self._stream.look()
        self._begin(self.options.start if start is None else start)
        self._answer()
        self._reader.wake()

    def deactivated(self) -> None:
        """The answer to the question to stop; pending messages are left to the next active consumer."""
        if self.is_closed:
            return
        self._engine.stop(self._reader)
        self._answer()

    def _answer(self) -> None:
        if self.shared is not None:
            self.shared.answered(self)

    def _observe(self, observer: BatchObserver, count: int, messages: Iterable[memoryview]) -> None:
        observer.delivered(self.stream, self.options.name or "", count, messages)

    def close(self) -> None:
        """End the consumer; again is harmless."""
        if self.is_closed:
            return
        self._engine.close(self._reader)
        self._stream.remove_reader(self)
        self._consumers.left(self)


class MessageConsumer(Consumer):
    """Takes messages."""

    __slots__ = ("_told_lost", "lost_before")

    _reader: Reader[ScanBatch]

    def __init__(
        self, consumers: Consumers, stream: BrokerStream, engine: ReadingEngine, options: ConsumerOptions
    ) -> None:
        self._told_lost = self.lost_before = 0
        """`lost_before`: how many offsets retention deleted between the last batch and the one before it."""
        self._reader = engine.message_reader(options.request())
        super().__init__(consumers, stream, engine, options)

    def take(self, max_messages: int, max_bytes: int) -> ScanBatch | None:
        """The next messages, as many as are wanted within both limits, at least one; None if there are none now.

        The bytes do not change as long as they are referenced.
        """
        batch = self._engine.take(self._reader, max_messages, max_bytes)
        if batch is not None:
            lost = self._reader.lost
            self.lost_before, self._told_lost = lost - self._told_lost, lost
            self.delivered_messages += len(batch.offsets)
            self.delivered_bytes += total(batch.messages.lengths)
            if self.observer is not None:
                self._observe(self.observer, len(batch.offsets), message_parts(batch.messages))
        return batch


class ChunkConsumer(Consumer):
    """Takes whole chunks.

    With a filter, messages that match and follow one another make a chunk of their own.
    """

    __slots__ = ("delivered_chunks",)

    _reader: Reader[ChunkColumns]

    def __init__(
        self, consumers: Consumers, stream: BrokerStream, engine: ReadingEngine, options: ConsumerOptions
    ) -> None:
        self.delivered_chunks = 0
        self._reader = engine.chunk_reader(options.request())
        super().__init__(consumers, stream, engine, options)

    @property
    def last_chunk_id(self) -> int:
        """The id of the last chunk of its stream."""
        return self._stream.last_chunk_id

    def take(self, max_bytes: int) -> ChunkColumns | None:
        """The next chunks, as many as are wanted within `max_bytes` of data, at least one; None if there are none.

        The bytes do not change as long as they are referenced.
        """
        chunks = self._engine.take(self._reader, self._reader.wanted, max_bytes)
        if chunks is None:
            return None
        self.delivered_chunks += len(chunks.chunk_ids)
        self.delivered_bytes += total(chunks.data_lengths)
        messages = total(chunks.num_records)
        self.delivered_messages += messages
        if self.observer is not None:
            self._observe(self.observer, messages, chunk_parts(chunks))
        return chunks


class Consumers:
    """The consumers of a broker's streams, with their shared windows, open files and memory limits."""

    def __init__(
        self,
        *,
        now_ms: Callable[[], int],
        cpu_ns: CpuTime = unmeasured,
        reads: SharedReads | None = None,
    ) -> None:
        self.now_ms = now_ms
        self._time_ms = self._trimmed_ms = now_ms()
        self._reads = SharedReads(cpu_ns=cpu_ns) if reads is None else reads
        self._members: dict[Consumer, BrokerStream] = {}
        self._engines: dict[BrokerStream, ReadingEngine] = {}
        self._unused_since_ms: dict[BrokerStream, int] = {}
        self.is_short = False
        """Whether more than PENDING_BYTES were pending at the last tick."""

    def __len__(self) -> int:
        return len(self._members)

    def message_consumer(self, stream: BrokerStream, options: ConsumerOptions) -> MessageConsumer:
        """A consumer that takes messages. Raises LogError for damaged files of the stream."""
        with self._engine_of(stream) as engine:
            consumer = MessageConsumer(self, stream, engine, options)
            self._joined(consumer, stream)
        return consumer

    def chunk_consumer(self, stream: BrokerStream, options: ConsumerOptions) -> ChunkConsumer:
        """A consumer that takes whole chunks; errors as `message_consumer`."""
        with self._engine_of(stream) as engine:
            consumer = ChunkConsumer(self, stream, engine, options)
            self._joined(consumer, stream)
        return consumer

    def tick(self, now_ms: int) -> None:
        """Drop results that are pending for long, at once where memory is short; close unused files."""
        self._time_ms = now_ms
        if now_ms - self._trimmed_ms >= TRIM_MS:
            self._trimmed_ms = now_ms
            self._reads.trim()
        self._close_unused(now_ms - KEPT_MS)
        for engine in list(self._engines.values()):
            engine.tick(now_ms)
        waiting = []
        held: dict[int, int] = {}
        for consumer in list(self._members):
            if consumer.has_pending:
                consumer.drop_unused(now_ms - DROP_AFTER_MS)
                buffers = consumer.held_bytes()
                held.update(buffers)
                if buffers and not consumer.wanted:
                    waiting.append(consumer)
        self.is_short = sum(held.values()) > PENDING_BYTES
        if self.is_short:
            for consumer in waiting:
                consumer.drop_unused(now_ms)

    def left(self, consumer: Consumer) -> None:
        """A consumer ended."""
        self._note_use(self._members.pop(consumer))

    def forget(self, stream: BrokerStream) -> None:
        """A stream is deleted, and its consumers have ended: close its files."""
        if self._unused_since_ms.pop(stream, None) is not None:
            self._close_engine(stream)

    def close(self) -> None:
        """Close the files that no consumer uses."""
        self._close_unused(self._time_ms)

    @contextmanager
    def _engine_of(self, stream: BrokerStream) -> Iterator[ReadingEngine]:
        engine = self._engines.get(stream)
        if engine is None:
            with stream.guarded():
                log = SharedLog(stream.stream, self._reads)
            engine = ReadingEngine(log, end=stream.next_offset, now_ms=self._time_ms)
            self._engines[stream] = stream.engine = engine
        try:
            yield engine
        finally:
            self._note_use(stream)

    def _joined(self, consumer: Consumer, stream: BrokerStream) -> None:
        self._members[consumer] = stream
        stream.add_reader(consumer)

    def _note_use(self, stream: BrokerStream) -> None:
        if stream in self._members.values():
            self._unused_since_ms.pop(stream, None)
        else:
            self._unused_since_ms.setdefault(stream, self._time_ms)

    def _close_unused(self, latest_ms: int) -> None:
        """Close the files of streams that had no consumer since a time."""
        for stream in [each for each, since_ms in self._unused_since_ms.items() if since_ms <= latest_ms]:
            del self._unused_since_ms[stream]
            self._close_engine(stream)

    def _close_engine(self, stream: BrokerStream) -> None:
        stream.engine = None
        self._engines.pop(stream).log.close()
