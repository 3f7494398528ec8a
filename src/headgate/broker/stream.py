"""One stream inside the broker: its bounds, its writer while it has one, its publishers and its readers."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from headgate.broker.damage import KnownDamage
from headgate.broker.publishers import Publisher, Queued
from headgate.broker.refusals import RefusedSequences
from headgate.errors import (
    CorruptChunkError,
    HeadgateError,
    LogError,
    OffsetOutOfRangeError,
    ResourceNotFoundError,
    StorageFullError,
    StreamLockedError,
    StreamNotFoundError,
    StreamReadOnlyError,
)
from headgate.ledger import LEDGER_FOLDER, Ledger
from headgate.log import (
    DiskFile,
    Durability,
    MessageCounts,
    OpenFile,
    Segment,
    Stream,
    StreamLock,
    StreamTail,
    TrackingState,
    Writer,
    load_settings,
    read_tail,
    read_tracking,
    recover,
)
from headgate.log.format import index_name
from headgate.message import EncodedMessages
from headgate.scan import MessageReader, ScanBatch, ScanCounters
from headgate.scan.engine import ReadingEngine
from headgate.scan.fetch import AppendedChunks

if TYPE_CHECKING:
    from headgate.broker.duplicates import RecentIds

WRITER_IDLE_MS = 10_000
"""After this time without a publisher a stream's writer gives the lock back."""

logger = logging.getLogger("headgate.broker")


@dataclass(frozen=True, slots=True)
class Storage:
    """How streams and ledgers are written: durability of a confirm, and how files are opened (tests replace it)."""

    durability: Durability = Durability.PROCESS
    open_file: OpenFile = DiskFile

    def writer(self, stream: Stream, *, now_ms: int) -> Writer:
        """The writer of a stream. Raises StreamLockedError that names the holder, other LogErrors."""
        return Writer.open(stream, now_ms=now_ms, durability=self.durability, open_file=self.open_file)

    def ledger(self, stream: Stream, *, now_ms: int, folder: str = LEDGER_FOLDER) -> Ledger:
        """A ledger beside a stream. Raises as `writer`."""
        return Ledger.open(stream, folder=folder, now_ms=now_ms, durability=self.durability, open_file=self.open_file)


class StreamReader(Protocol):
    """The side of a consumer that a stream calls; always in the broker's thread."""

    def close(self) -> None:
        """The stream was deleted, or the session ends; again is harmless. Calls `remove_reader`."""


class CountedReader(Protocol):
    """Counters of a consumer, for lists."""

    delivered_messages: int
    delivered_bytes: int

    @property
    def lost(self) -> int:
        """Messages deleted by retention before it came to them."""

    @property
    def counters(self) -> ScanCounters:
        """Messages examined, skipped and kept."""


@dataclass(slots=True)
class StreamCounters:
    """Counts of messages that went into a stream since the broker began."""

    messages_published: int = 0
    """Messages written, in sub-batches as well."""
    messages_confirmed: int = 0
    """Entries confirmed: messages and whole sub-batches, as publishers count them."""
    messages_duplicate: int = 0
    """Entries left out as duplicates, by the publisher's sequence or by message id; they are confirmed as well."""
    messages_refused: int = 0
    """Entries answered with an error."""
    bytes_published: int = 0
    """Bytes of the entries that were written."""
    chunks_written: int = 0
    bytes_written: int = 0
    """Bytes of whole chunks."""
    write_errors: int = 0


@dataclass(slots=True)
class ReadingCounters:
    """Counts of messages that consumers took from a stream."""

    consumers: int = 0
    delivered_messages: int = 0
    """Messages delivered, in whole chunks as well."""
    delivered_chunks: int = 0
    """Chunks delivered to consumers that take chunks."""
    delivered_bytes: int = 0
    messages_lost: int = 0
    """Messages deleted by retention before a consumer came to them."""
    scan: ScanCounters = field(default_factory=ScanCounters)

    @staticmethod
    def of(consumers: Iterable[CountedReader]) -> ReadingCounters:
        """The sum over some consumers."""
        read = ReadingCounters()
        for consumer in consumers:
            read.add(consumer)
        return read

    def add(self, consumer: CountedReader) -> None:
        """Add the counts of one consumer."""
        self.consumers += 1
        self.delivered_messages += consumer.delivered_messages
        self.delivered_chunks += getattr(consumer, "delivered_chunks", 0)
        self.delivered_bytes += consumer.delivered_bytes
        self.messages_lost += consumer.lost
        self.scan.add(consumer.counters)

    def include(self, other: ReadingCounters) -> None:
        """Add the counts of other consumers."""
        self.consumers += other.consumers
        self.delivered_messages += other.delivered_messages
        self.delivered_chunks += other.delivered_chunks
        self.delivered_bytes += other.delivered_bytes
        self.messages_lost += other.messages_lost
        self.scan.add(other.scan)


@dataclass(slots=True, eq=False)
class BrokerStream:
    """One stream of the catalogue. Not for several threads, but fields for readers may be read from any.

    `stream` is for readers. `next_offset` is behind all committed messages, `last_chunk_id` is the id of the last chunk
    (−1: none); both only grow. `writer` is set while this process holds the stream's lock; `is_writing` while a worker
    thread uses it. `queue` has the batches that publishers wait for.
    """

    name: str
    stream: Stream
    storage: Storage
    troubles: KnownDamage
    tail: StreamTail
    counters: StreamCounters = field(default_factory=StreamCounters)
    ended: ReadingCounters = field(default_factory=ReadingCounters)
    """Counts of consumers that have ended."""
    writer: Writer | None = None
    is_writing: bool = False
    queue: list[Queued] = field(default_factory=list)
    publishers: list[Publisher] = field(default_factory=list)
    readers: dict[StreamReader, Callable[[], None] | None] = field(default_factory=dict)
    """Consumer → the call when it has ended; in order of their coming."""
    offsets: dict[bytes, int] = field(default_factory=dict)
    """Stored offsets that the writer does not have yet."""
    refused: RefusedSequences = field(default_factory=RefusedSequences)
    next_offset: int = 0
    last_chunk_id: int = -1
    is_deleted: bool = False
    refusal: HeadgateError | None = None
    """The error for publishers by the settings of the topic; None: they are accepted."""
    stopped_by: LogError | None = None
    """The damage that stops giving out copies of the topic: messages published now would reach no receiver."""
    recent_ids: RecentIds | None = None
    """The message ids for duplicate detection; None without it."""
    moved_from: int | None = None
    """The lowest offset that consumer groups have yet to move; None without one."""
    idle_since_ms: int | None = None
    trouble: str = ""
    """The error when the stream was last looked after; empty without one."""
    on_appended: Callable[[AppendedChunks | None], None] | None = None
    """Called after an append, with all new chunks or None; it belongs to the stream's topic, if that is open."""
    engine: ReadingEngine | None = None
    """The engine that its consumers read with, while it has some; it is told of every append."""
    _suspected: str = ""
    """The damage found at the last look at the files; empty without any."""
    _folder_time_ns: int = 0
    _following: Path | None = None
    """The index file of the segment that would follow the newest; None if the newest has no chunk yet."""
    _sealed: tuple[int, Segment, int] | None = None
    """The folder's time, its newest segment, and the bytes of the pairs before it."""
    _message_counts: MessageCounts = field(default_factory=functools.partial(MessageCounts, fetches=False))
    _tracking: tuple[int, TrackingState] | None = None

    @staticmethod
    def open(stream: Stream, *, storage: Storage, troubles: KnownDamage, now_ms: int) -> BrokerStream:
        """The broker's side of a stream on disk, recovered before it is read. Raises LogError."""
        _recover(stream, now_ms=now_ms)
        folder_time_ns = _time_ns(stream.path)
        opened = BrokerStream(stream.name, stream, storage, troubles, read_tail(stream), _folder_time_ns=folder_time_ns)
        opened._take(opened.tail)
        return opened

    @property
    def refuses_with(self) -> HeadgateError | None:
        """The error for publishers; None: they are accepted."""
        return self.refusal or self.stopped_by

    @property
    def damage(self) -> str | None:
        """The known damage of its files, or of files beside them; None without any."""
        return self.troubles.of(self.name)

    @property
    def is_there(self) -> bool:
        """Whether its folder is still there."""
        return os.path.exists(self.stream.path)

    def guarded(self) -> AbstractContextManager[None]:
        """A context for reading its files: every failure inside becomes a LogError, and damage is logged."""
        return self.troubles.guard(self.name, self.stream.path)

    # readers

    def add_reader(self, reader: StreamReader) -> None:
        """Add a consumer, which is told of all appends from now on."""
        self.readers[reader] = None

    def remove_reader(self, reader: StreamReader) -> None:
        """Remove a consumer; again is harmless."""
        gone = self.readers.pop(reader, None)
        if gone is not None:
            gone()

    def when_removed(self, reader: StreamReader, gone: Callable[[], None]) -> None:
        """Call `gone` when a consumer has ended."""
        self.readers[reader] = gone

    @property
    def first_offset(self) -> int:
        """The first offset that is kept."""
        return self.tail.first_offset if self.writer is None else self.writer.first_offset

    def messages_from(self, offset: int) -> int:
        """How many messages are kept from an offset on, without bookkeeping chunks. Any thread.

        Cost: some microseconds while nothing is written; else, and the first time, see `MessageCounts`.
        """
        return self._message_counts.between(self.stream, max(offset, self.first_offset), self.next_offset)

    def messages_in(self, start: int, stop: int) -> int:
        """How many messages a range of committed offsets has, or had. Cost as of `messages_from`."""
        return self._message_counts.between(self.stream, start, stop)

    def size_bytes(self) -> int:
        """Bytes as of `SegmentList.size_bytes`. Cost: three `stat` while no segment comes or goes, else as there.

        Raises LogError.
        """
        with self.guarded():
            folder_time_ns = _time_ns(self.stream.path)
            if self._sealed is None or self._sealed[0] != folder_time_ns:
                segments = self.stream.segments()
                if not segments:
                    return 0
                newest, size = segments[-1], segments.size_bytes(but_newest=True)
                # As in `look`, one time may stand for two changes of the folder; not where it was written to since.
                is_certain = _time_ns(newest.segment_path) > folder_time_ns
                self._sealed = (folder_time_ns, newest, size) if is_certain else None
                return size + newest.size_bytes()
            _, newest, size = self._sealed
            return size + newest.size_bytes()

    def read_message(self, offset: int) -> ScanBatch:
        """One message by its offset. Opens and closes files. Raises OffsetOutOfRangeError, other LogErrors."""
        with self.guarded(), MessageReader(self.stream) as reader:
            batch = reader.read(np.array([offset], dtype=np.int64))
            # The bytes outlive the reader.
            return ScanBatch(EncodedMessages.of([batch.messages.message(0)]), batch.offsets, batch.timestamps_ms)

    def reading(self, consumers: Iterable[CountedReader]) -> ReadingCounters:
        """The counts of the given consumers and of all that have ended."""
        read = ReadingCounters.of(consumers)
        read.include(self.ended)
        return read

    # the writer

    def open_writer(self, *, now_ms: int) -> Writer:
        """The writer, taken now if needed; never waits for a lock.

        Raises StreamLockedError that names the holder, StreamReadOnlyError for a foreign folder, LogError.
        """
        if self.is_deleted:
            raise ResourceNotFoundError("the stream was deleted", subject=self.name)
        if self.writer is None:
            with self.guarded():
                self.writer = self._opened_writer(now_ms)
        self.idle_since_ms = None
        return self.writer

    def _opened_writer(self, now_ms: int) -> Writer:
        writer = self.storage.writer(self.stream, now_ms=now_ms)
        try:
            self.stream = writer.stream
            self._tracking = None
            self.refresh()
        except BaseException:
            writer.close()
            raise
        return writer

    def close_writer(self) -> None:
        """Give the lock back; the next publisher takes it again."""
        if self.writer is not None:
            writer, self.writer = self.writer, None
            self.idle_since_ms = None
            # Keep the stored offsets that no chunk carries yet.
            self.offsets = {**writer.pending_offsets, **self.offsets}
            writer.close()
            if writer.is_broken:
                # A whole chunk that could not be taken back counts, now that nobody writes (log/segment_end.py).
                with contextlib.suppress(LogError):  # it is in the log, and readers come to it
                    self.refresh()

    def appended(
        self, next_offset: int, last_chunk_id: int, chunks: AppendedChunks | None = None, *, now_ms: int = 0
    ) -> None:
        """The writer appended: readers that wait at the end are given all new `chunks`; without these they look."""
        self.next_offset, self.last_chunk_id = next_offset, last_chunk_id
        if self.engine is not None:
            self.engine.appended(next_offset, chunks, now_ms=now_ms)
        if self.on_appended is not None:
            self.on_appended(chunks)

    # what others write

    def refresh(self) -> None:
        """Look at the files; wakes readers if new messages came. Raises LogError."""
        before = self.next_offset
        with self.guarded():
            folder_time_ns = _time_ns(self.stream.path)
            self._take(read_tail(self.stream))
        self._folder_time_ns = folder_time_ns
        if self._suspected:
            # Another process was writing; real damage will be found again.
            self._suspected = ""
            self.troubles.forget(self.name)
        if self.engine is not None:
            self.engine.damaged(None)
            if self.next_offset > before:
                self.engine.appended(self.next_offset)
        if self.on_appended is not None and self.next_offset > before:
            self.on_appended(None)

    def _take(self, tail: StreamTail) -> None:
        self.tail = tail
        following = self.stream.path / index_name(tail.next_offset)
        self._following = None if following == tail.newest_index else following
        # A stream that a recovery cut may end before the last known offset: readers stay where they are.
        self.next_offset = max(self.next_offset, tail.next_offset)
        self.last_chunk_id = max(self.last_chunk_id, tail.last_chunk_id)

    def look(self) -> bool:
        """Notice appends, new segments and deletions by another process. False when the stream is gone.

        Cost: three `stat` while nothing happens; none with a writer, beside which no other process writes. Raises
        LogError for damaged files; when the same damage is found twice in a row, readers that wait for more are told.
        """
        if self.writer is not None:
            return True
        try:
            with self.guarded():
                return not self._has_changed() or self._follow()
        except CorruptChunkError as error:
            # Not at once: another process may have cut the files while they were read.
            is_certain, self._suspected = self._suspected == str(error), str(error)
            if self.engine is not None:
                self.engine.damaged(error if is_certain else None)
            raise

    def _follow(self) -> bool:
        try:
            found = Stream.open(self.stream.path)
            if found.identity != self.stream.identity:
                return False
            self.stream = found
            self.refresh()
        except (StreamNotFoundError, OffsetOutOfRangeError):
            # While a writer recovers there may be no pair of files for a moment.
            return self.has_folder
        return True

    @property
    def has_folder(self) -> bool:
        """Whether its folder still has this stream, not another one of its name. Raises LogError."""
        settings = load_settings(self.stream.path)
        return settings is not None and settings.identity == self.stream.identity

    def _has_changed(self) -> bool:
        """Whether the newest index grew, or another segment begins where it ends, or files came or went."""
        return (
            _size(self.tail.newest_index) != self.tail.index_size_bytes
            or (self._following is not None and os.path.exists(self._following))
            # Not sufficient alone: two changes within one tick of the file system's clock leave one time.
            or _time_ns(self.stream.path) != self._folder_time_ns
        )

    # tracking

    def store_offset(self, reference: bytes, offset: int) -> None:
        """Keep a consumer's offset: visible at once, in the stream with the next chunk or the next `flush_offsets`."""
        self.offsets[reference] = offset
        if self.writer is not None and not self.is_writing:
            self.hand_offsets_to_writer()

    def hand_offsets_to_writer(self) -> None:
        """Give the stored offsets to the writer, for its next chunk."""
        if self.writer is not None:
            for reference, offset in self.offsets.items():
                self.writer.store_offset(reference, offset)
            self.offsets.clear()

    @property
    def has_pending_offsets(self) -> bool:
        """Whether stored offsets wait to be written."""
        return bool(self.offsets) or (self.writer is not None and bool(self.writer.pending_offsets))

    def flush_offsets(self, *, now_ms: int) -> None:
        """Write stored offsets that no chunk took along; takes the writer if it is free. Raises LogError."""
        writer = self.open_writer(now_ms=now_ms)
        self.hand_offsets_to_writer()
        writer.flush_offsets(now_ms=now_ms)
        self.refresh()

    def stored_offset(self, reference: bytes) -> int | None:
        """The offset that a consumer stored last; None if it stored none."""
        if reference in self.offsets:
            return self.offsets[reference]
        if self.writer is not None:
            return self.writer.stored_offset(reference)
        return self._tracked().offsets.get(reference)

    def last_sequence(self, reference: bytes) -> int | None:
        """The highest sequence that a publisher wrote; None if none is known."""
        if self.writer is not None:
            return self.writer.last_sequence(reference)
        known = self._tracked().sequences.get(reference)
        return None if known is None else known[1]

    def _tracked(self) -> TrackingState:
        """The state in the files; read again only when they grew."""
        if self._tracking is None or self._tracking[0] != self.next_offset:
            with self.guarded():
                self._tracking = (self.next_offset, read_tracking(self.stream))
        return self._tracking[1]


def _recover(stream: Stream, *, now_ms: int) -> None:
    """Cut the partial chunk that a crash left at the end, so that no reader meets it.

    A stream that another process writes (it has done so itself), or whose files cannot be written, is read as it is. A
    foreign one is left alone. Raises CorruptChunkError for damage that no crash explains.
    """
    if stream.is_foreign:
        return
    try:
        with StreamLock.acquire(stream.path, now_ms=now_ms):
            recover(stream.path)
    except (StreamLockedError, StreamReadOnlyError, StorageFullError) as error:
        logger.debug("stream %r is read as it is: %s", stream.name, error)


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return -1


def _time_ns(path: Path) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return -1
