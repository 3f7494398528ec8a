"""Publishing: what publishers queued becomes chunks, is appended at once, and is confirmed behind the write.

Entries of publishers without a name share chunks. Those of a named publisher get chunks of their own whose trailers say
its last sequence; an entry whose sequence is not above the last one is in the stream already: left out and confirmed.
No timer: whatever is queued when the stream is written goes out together, so chunks grow with the load. A message that
is queued alone takes the shortest way.
"""

from __future__ import annotations

import abc
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.broker.backlog import Backlog
from headgate.broker.batches import PublishBatch, PublishMessage
from headgate.broker.sources import fill_from_source
from headgate.broker.stream import BrokerStream
from headgate.columns import total
from headgate.errors import BrokerError, HeadgateError, LogError, PreconditionFailedError, ResourceNotFoundError
from headgate.log import Appended, Writer
from headgate.log.build import MAX_MESSAGES, BuiltChunks
from headgate.log.runs import Entries, Run, build_runs
from headgate.log.tracking import encode_offsets
from headgate.message.fields import parse_field
from headgate.scan.fetch import AppendedChunks

MAX_CHUNK_BYTES = 1_000_000
"""Data bytes of a chunk, unless one entry is larger: a chunk and its frame fit the 1 MiB of common frame limits."""

HANDED_BYTES = 64 << 10
HANDED_RECORDS = 1024
"""Limit: appends up to both are handed to the readers that wait at the end; larger ones are read from the file."""

_AT_ONCE = np.zeros(1, dtype=np.int64)


class Publisher:
    """One publisher of one stream, from `Session.publisher` to `close`; `reference` is the name that deduplicates.

    `backlog` is its session's, which counts what it queues.
    """

    __slots__ = (
        "_backlog",
        "_closed",
        "_name",
        "_queued",
        "_stream",
        "entries_confirmed",
        "entries_published",
        "entries_refused",
        "is_closed",
        "reference",
    )

    def __init__(
        self,
        stream: BrokerStream,
        *,
        reference: str | None,
        backlog: Backlog,
        queued: Callable[[BrokerStream], None],
        closed: Callable[[BrokerStream, Publisher], None],
    ) -> None:
        self.reference = reference
        self.is_closed = False
        self.entries_published = self.entries_confirmed = self.entries_refused = 0
        self._name = None if reference is None else reference.encode("utf-8", "surrogatepass")
        self._stream = stream
        self._backlog = backlog
        self._queued = queued
        self._closed = closed

    @property
    def stream(self) -> str:
        """Name of the stream."""
        return self._stream.name

    def publish(self, batch: PublishBatch) -> None:
        """Queue a batch; its `written` is called once, later. Raises ValueError for columns that do not fit."""
        entries = Entries(batch.data, batch.starts, batch.lengths, batch.filter_values, batch.sub_batch_records)
        entries.check()
        if (self.reference is None) != (batch.sequences is None):
            raise ValueError("a publisher with a reference gives sequences, another none")
        if batch.sequences is not None and len(batch.sequences) != len(entries):
            raise ValueError(f"{len(batch.sequences)} sequences for {len(entries)} entries")
        self.entries_published += len(entries)
        self._queue(Queued(self, self._name, batch, entries, total(batch.lengths)))

    def publish_message(self, message: PublishMessage) -> None:
        """Queue a message that came alone; ValueError for a publisher with a reference."""
        if self.reference is not None:
            raise ValueError("a publisher with a reference gives sequences")
        self.entries_published += 1
        self._queue(QueuedMessage(self, message))

    def _queue(self, queued: Queued | QueuedMessage) -> None:
        self._backlog.add(len(queued.batch), queued.size_bytes)
        if self.is_closed:
            refuse(self._stream, [queued], ResourceNotFoundError("the publisher was closed", subject=self.stream))
            return
        self._stream.queue.append(queued)
        self._queued(self._stream)

    def answered(self, queued: Queued | QueuedMessage) -> None:
        """What it queued is about to be answered."""
        self._backlog.remove(len(queued.batch), queued.size_bytes)

    def close(self) -> None:
        """No more is published; what is queued is still written. Again is harmless."""
        if not self.is_closed:
            self.is_closed = True
            self._closed(self._stream, self)


@dataclass(slots=True)
class Queued:
    """One batch of `size_bytes` on its way; `entries` and `sequences` are what is left of it to write."""

    publisher: Publisher
    reference: bytes | None
    batch: PublishBatch
    entries: Entries
    size_bytes: int
    sequences: NDArray[np.uint64] | None = None


class QueuedMessage(msgspec.Struct):
    """A message that came alone, on its way."""

    publisher: Publisher
    batch: PublishMessage

    @property
    def size_bytes(self) -> int:
        """Bytes of the message."""
        return len(self.batch.message)

    def in_columns(self) -> Queued:
        """The same as others are, to be written together with them."""
        batch = self.batch.in_columns()
        entries = Entries(batch.data, batch.starts, batch.lengths, batch.filter_values)
        return Queued(self.publisher, None, batch, entries, self.size_bytes)


class WriteJob(abc.ABC):
    """Everything that was queued for one stream, appended with one call.

    `begin` and `finish` belong to the broker's thread; `run` may be in a worker, with nobody else at the writer.
    """

    __slots__ = ("_batches", "_error", "_has_ended", "_now_ms", "_stream", "_writer", "done")

    def __init__(
        self, stream: BrokerStream, writer: Writer, batches: Sequence[Queued | QueuedMessage], *, now_ms: int
    ) -> None:
        self._stream = stream
        self._writer = writer
        self._batches = batches
        self._now_ms = now_ms
        self._error: LogError | None = None
        self._has_ended = False
        self.done: threading.Event | None = None
        """Set when `run` is over, where it is there: for a job that a worker has."""

    @staticmethod
    def begin(stream: BrokerStream, *, now_ms: int) -> WriteJob | None:
        """Take what is queued; None if nothing of it is to be written: duplicates are confirmed, what cannot be is
        refused.
        """
        queue, stream.queue = stream.queue, []
        try:
            writer = stream.open_writer(now_ms=now_ms)
        except (BrokerError, LogError) as error:
            stream.counters.write_errors += 1
            _remember(stream, queue)
            refuse(stream, queue, error)
            return None
        stream.refused.check(writer.last_sequence)
        if stream.offsets:
            stream.hand_offsets_to_writer()
        first = queue[0] if queue else None
        if len(queue) == 1 and isinstance(first, QueuedMessage) and writer.settings.filter_source is None:
            return _WriteMessage(stream, writer, first, now_ms=now_ms)
        batches = _prepared(
            stream, writer, [each.in_columns() if isinstance(each, QueuedMessage) else each for each in queue]
        )
        return _WriteBatches(stream, writer, batches, now_ms=now_ms) if batches else None

    def run(self) -> None:
        """Build the chunks and append them. Errors of storage wait for `finish`; after any other it refuses all."""
        try:
            try:
                self._append()
            except LogError as error:
                self._error = error
            self._has_ended = True
        finally:
            if self.done is not None:
                self.done.set()

    @abc.abstractmethod
    def _append(self) -> None:
        """Do it. Raises LogError."""

    def abandon(self) -> None:
        """The write broke down with an error that is none of storage: nothing was confirmed, so all is refused."""
        self._stream.close_writer()
        _remember(self._stream, self._batches)
        refuse(
            self._stream, self._batches, LogError("writing failed inside of the broker", path=self._stream.stream.path)
        )

    def finish(self) -> None:
        """Tell publishers and readers. A writer that is broken is given back; the next job takes a new one."""
        if not self._has_ended:
            self.abandon()
        elif self._error is None:
            self._tell()
        else:
            self._tell_error(self._error)

    @abc.abstractmethod
    def _tell(self) -> None:
        """Count what is in the stream, wake its readers, confirm."""

    def _appended(
        self, next_offset: int, last_chunk_id: int, data: NDArray[np.uint8], positions: NDArray[np.int64]
    ) -> None:
        """Tell readers; what is little is handed to those that wait for it."""
        stream = self._stream
        is_little = len(data) <= HANDED_BYTES and next_offset - stream.next_offset <= HANDED_RECORDS
        chunks = AppendedChunks(data, positions, stream.stream.path) if is_little and stream.readers else None
        stream.appended(next_offset, last_chunk_id, chunks, now_ms=self._now_ms)

    def _tell_error(self, error: LogError) -> None:
        stream = self._stream
        stream.counters.write_errors += 1
        for reference, sequences in self._named():
            stream.refused.add(reference, sequences, written=self._writer.last_sequence(reference))
        broken = self._writer.is_broken
        if broken:
            stream.close_writer()
        refuse(stream, self._batches, error)
        if not broken:
            # What could not be taken back is there for readers, without having been confirmed.
            with contextlib.suppress(LogError):  # it is in the log, and readers come to it
                stream.refresh()

    def _named(self) -> Iterator[tuple[bytes, NDArray[np.uint64]]]:
        """References of publishers with a name, with the sequences of what was to be written for them."""
        for queued in self._batches:
            if isinstance(queued, Queued) and queued.reference is not None and queued.sequences is not None:
                yield queued.reference, queued.sequences


class _WriteMessage(WriteJob):
    """A message that was queued alone, as a chunk."""

    __slots__ = ("_chunk", "_header", "_queued")

    def __init__(self, stream: BrokerStream, writer: Writer, queued: QueuedMessage, *, now_ms: int) -> None:
        super().__init__(stream, writer, (queued,), now_ms=now_ms)
        self._queued = queued

    def _append(self) -> None:
        message = self._queued.batch
        self._header, self._chunk = self._writer.append_message(
            message.message, message.filter_value, now_ms=self._now_ms
        )

    def _tell(self) -> None:
        queued, header, counters = self._queued, self._header, self._stream.counters
        counters.bytes_published += len(queued.batch.message)
        counters.messages_published += 1
        counters.chunks_written += 1
        counters.bytes_written += header.size_bytes
        self._appended(header.chunk_id + 1, header.chunk_id, np.frombuffer(self._chunk, dtype=np.uint8), _AT_ONCE)
        counters.messages_confirmed += 1
        queued.publisher.entries_confirmed += 1
        queued.publisher.answered(queued)
        queued.batch.written(None)


class _WriteBatches(WriteJob):
    """Batches of publishers, in as few chunks as may be."""

    __slots__ = ("_built", "_runs", "_written")

    def __init__(self, stream: BrokerStream, writer: Writer, batches: Sequence[Queued], *, now_ms: int) -> None:
        super().__init__(stream, writer, batches, now_ms=now_ms)
        self._runs = _runs(batches)
        self._built: BuiltChunks | None = None
        self._written: Appended | None = None

    def _append(self) -> None:
        if not self._runs:
            return
        settings = self._writer.settings
        built = build_runs(
            self._runs,
            filter_size_bytes=settings.arguments.filter_size_bytes,
            max_messages=MAX_MESSAGES,
            max_bytes=MAX_CHUNK_BYTES,
            last_trailer=encode_offsets(self._writer.pending_offsets),
        )
        self._built = built
        self._written = self._writer.append_chunks(
            built.data, built.positions, now_ms=self._now_ms, filter_source=settings.filter_source
        )

    def _tell(self) -> None:
        stream, built, appended = self._stream, self._built, self._written
        counters = stream.counters
        if built is not None and appended is not None:
            counters.bytes_published += sum(total(part.lengths) for run in self._runs for part in run.parts)
            counters.messages_published += total(appended.num_records)
            counters.chunks_written += len(appended.chunk_ids)
            counters.bytes_written += len(built.data)
            self._appended(appended.next_offset, int(appended.chunk_ids[-1]), built.data, built.positions)
        if stream.refused:
            for reference, sequences in self._named():
                stream.refused.written(reference, sequences)
        for queued in self._batches:
            count = len(queued.batch)
            counters.messages_confirmed += count
            queued.publisher.entries_confirmed += count
        _answer(self._batches, None)


def refuse(stream: BrokerStream, batches: Sequence[Queued | QueuedMessage], error: HeadgateError) -> None:
    """Tell the publishers of these batches that nothing of them will be written."""
    for queued in batches:
        stream.counters.messages_refused += len(queued.batch)
        queued.publisher.entries_refused += len(queued.batch)
    _answer(batches, error)


def _remember(stream: BrokerStream, batches: Sequence[Queued | QueuedMessage]) -> None:
    """Keep in mind that what named publishers queued was refused."""
    for queued in batches:
        if isinstance(queued, Queued) and queued.reference is not None and queued.batch.sequences is not None:
            stream.refused.add_unchecked(queued.reference, queued.batch.sequences)


def _answer(batches: Sequence[Queued | QueuedMessage], error: HeadgateError | None) -> None:
    """Tell all publishers; one that fails at it keeps none of the others from hearing. Raises its error afterwards."""
    failures: list[Exception] = []
    for queued in batches:
        queued.publisher.answered(queued)
        try:
            queued.batch.written(error)
        except Exception as failure:  # raised below, when everyone was told
            failures.append(failure)
    if failures:
        raise failures[0]


def _prepared(stream: BrokerStream, writer: Writer, queue: list[Queued]) -> list[Queued]:
    """The batches that are to be answered by this write; those that cannot be written are refused at once."""
    source = writer.settings.filter_source
    field_reference = None if source is None else parse_field(source)
    lasts: dict[bytes, int] = {}
    accepted = []
    for queued in queue:
        last = None
        if queued.reference is not None:
            last = lasts[queued.reference] if queued.reference in lasts else writer.last_sequence(queued.reference)
        try:
            if queued.reference is not None:
                _leave_out_duplicates(stream, queued, last)
            if field_reference is not None and len(queued.entries):
                queued.entries = fill_from_source(queued.entries, field_reference, stream=stream.name)
        except PreconditionFailedError as error:
            if queued.reference is not None and queued.batch.sequences is not None:
                new = queued.batch.sequences[above(queued.batch.sequences, last)]
                stream.refused.add(queued.reference, new, written=last)
            refuse(stream, [queued], error)
            continue
        if queued.reference is not None and queued.sequences is not None and len(queued.sequences):
            lasts[queued.reference] = int(queued.sequences[-1])
        accepted.append(queued)
    return accepted


def _leave_out_duplicates(stream: BrokerStream, queued: Queued, last: int | None) -> None:
    """Keep the entries whose sequence is above `last`, the last one of their publisher.

    Raises PreconditionFailedError for sequences that could not be written before and are overtaken by now: to confirm
    them would be a lie, to write them out of order.
    """
    assert queued.reference is not None and queued.batch.sequences is not None
    sequences = queued.batch.sequences
    if _all_new(sequences, last):
        queued.sequences = sequences
        return
    new = above(sequences, last)
    duplicates = len(sequences) - int(np.count_nonzero(new))
    if duplicates:
        if stream.refused.holds(queued.reference, sequences[~new]):
            raise PreconditionFailedError(
                f"publisher {queued.reference.decode(errors='replace')!r} sends again what was refused, after newer "
                "messages were written; give it a new sequence",
                subject=stream.name,
            )
        stream.counters.messages_duplicate += duplicates
        queued.entries = queued.entries.take(new)
        sequences = sequences[new]
    queued.sequences = sequences


def _all_new(sequences: NDArray[np.uint64], last: int | None) -> bool:
    """Whether there is nothing to leave out: rising, and above the last one. What nearly every batch is."""
    if len(sequences) and last is not None and int(sequences[0]) <= last:
        return False
    return len(sequences) < 2 or bool((sequences[1:] > sequences[:-1]).all())


def above(sequences: NDArray[np.uint64], last: int | None) -> NDArray[np.bool_]:
    """`(entries,)`: which sequences are above `last` and above all before them."""
    new = np.ones(len(sequences), dtype=np.bool_)
    if len(sequences) > 1:
        new[1:] = sequences[1:] > np.maximum.accumulate(sequences)[:-1]
    if last is not None:
        new &= sequences > np.uint64(last)
    return new


def _runs(batches: Sequence[Queued]) -> list[Run]:
    """One run for all publishers without a name, one for each reference, in order of their first entries."""
    runs: dict[bytes | None, Run] = {}
    for queued in batches:
        if not len(queued.entries):
            continue
        run = runs.get(queued.reference)
        if run is None:
            run = runs[queued.reference] = Run([], queued.reference, None if queued.reference is None else [])
        run.parts.append(queued.entries)
        if run.sequences is not None and queued.sequences is not None:
            run.sequences.append(queued.sequences)
    return list(runs.values())
