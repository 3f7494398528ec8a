"""Publishing: queued batches become chunks, are appended with one write, and are confirmed after it.

Entries of publishers without a name share chunks. Entries of a named publisher get chunks of their own, whose trailers
have its last sequence; an entry whose sequence is not above the last one is in the stream already: left out and
confirmed. So is a message whose id came within the window of a stream with duplicate detection
(`headgate.broker.duplicates`).
No timer: all batches queued when the stream is written go out together, so chunks grow with the load.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headgate.arrays import total
from headgate.broker.filter_values import fill_from_source
from headgate.broker.observer import BatchObserver, queued_parts
from headgate.broker.publishers import Queued
from headgate.broker.stream import BrokerStream
from headgate.errors import (
    BrokerError,
    HeadgateError,
    LimitExceededError,
    LogError,
    PreconditionFailedError,
)
from headgate.log import MAX_MESSAGES, ChunkHeader, Run, Writer
from headgate.message import parse_field
from headgate.scan.fetch import AppendedChunks

if TYPE_CHECKING:
    from headgate.broker.duplicates import NewIds

MAX_CHUNK_BYTES = 1_000_000
"""Data bytes of a chunk, unless one entry is larger: a chunk and its frame fit the 1 MiB of common frame limits."""

HANDED_BYTES = 64 << 10
HANDED_RECORDS = 1024
"""Limit: appends up to both are handed to the readers that wait at the end; larger ones are read from the file."""


class WriteJob:
    """One append of all batches queued for a stream, in as few chunks as possible.

    `begin` and `finish` belong to the broker's thread; `run` may be in a worker that has the writer for itself.
    """

    __slots__ = (
        "_batches",
        "_error",
        "_has_ended",
        "_ids",
        "_now_ms",
        "_observer",
        "_run_of",
        "_runs",
        "_stream",
        "_writer",
        "_written",
        "done",
    )

    def __init__(
        self,
        stream: BrokerStream,
        writer: Writer,
        batches: Sequence[Queued],
        ids: NewIds | None,
        *,
        now_ms: int,
        observer: BatchObserver | None,
    ) -> None:
        self._stream = stream
        self._observer = observer
        self._ids = ids
        self._writer = writer
        self._batches = batches
        self._runs, self._run_of = _runs(batches)
        self._now_ms = now_ms
        self._written: tuple[NDArray[np.uint8], list[ChunkHeader]] | None = None
        """The bytes of the chunks, and their headers."""
        self._error: LogError | None = None
        self._has_ended = False

    @staticmethod
    def begin(stream: BrokerStream, *, now_ms: int, observer: BatchObserver | None = None) -> WriteJob | None:
        """Take the queued batches; None if nothing is left to write. Duplicates are confirmed, bad batches refused."""
        queue, stream.queue = stream.queue, []
        try:
            writer = stream.open_writer(now_ms=now_ms)
        except (BrokerError, LogError) as error:
            stream.counters.write_errors += 1
            refuse(stream, queue, error)
            if observer is not None:
                _observe(observer, stream, queue, began_ms=now_ms, error=error)
            return None
        if stream.refused.unchecked:
            stream.refused.check(writer.last_sequence)
        if stream.offsets:
            stream.hand_offsets_to_writer()
        ids = None if stream.recent_ids is None else stream.recent_ids.about_to_write(now_ms)
        batches = _prepared(stream, writer, queue, ids)
        return WriteJob(stream, writer, batches, ids, now_ms=now_ms, observer=observer) if batches else None

    def run(self) -> None:
        """Build and append the chunks. `finish` reports errors of storage, and refuses all batches after any other."""
        try:
            if self._runs:
                self._written = self._writer.append_runs(
                    self._runs,
                    max_messages=MAX_MESSAGES,
                    max_bytes=MAX_CHUNK_BYTES,
                    now_ms=self._now_ms,
                    filter_source=self._writer.settings.filter_source,
                )
        except LogError as error:
            self._error = error
        self._has_ended = True

    def abandon(self) -> None:
        """Refuse all batches: the write failed with an error not of storage, and nothing was confirmed."""
        self._stream.close_writer()
        refuse(
            self._stream, self._batches, LogError("writing failed inside of the broker", path=self._stream.stream.path)
        )

    def finish(self) -> None:
        """Answer publishers, wake readers. A broken writer is closed; the next job takes a new one."""
        if not self._has_ended:
            self.abandon()
        elif self._error is None:
            self._tell()
        else:
            self._tell_error(self._error)
        if self._observer is not None and self._has_ended:
            _observe(self._observer, self._stream, self._batches, began_ms=self._now_ms, error=self._error)

    def _tell(self) -> None:
        """Count the written entries, wake readers, confirm."""
        counters = self._stream.counters
        if self._ids is not None:
            self._ids.written(self._writer)
        if self._written is not None:
            data, headers = self._written
            counters.messages_published += sum([header.num_records for header in headers])
            counters.chunks_written += len(headers)
            counters.bytes_written += len(data)
            self._tell_readers(data, headers)
        is_asked = False
        for queued in self._batches:
            is_whole = queued.entries.count == queued.count
            counters.bytes_published += queued.size_bytes if is_whole else queued.entries.size_bytes
            counters.messages_confirmed += queued.count
            queued.publisher.entries_confirmed += queued.count
            is_asked = is_asked or queued.batch.places is not None
        if is_asked:
            self._tell_places()
        _answer(self._batches, None)

    def _tell_places(self) -> None:
        """Give the offsets of entries to the batches that ask: in the order of `_runs`, chunk by chunk."""
        headers = [] if self._written is None else self._written[1]
        if len(headers) == 1 and self._has_run_on(headers[0]):
            offset = headers[0].chunk_id
            for queued in self._batches:
                if queued.batch.places is not None:
                    queued.batch.places.fill_run(offset, queued.count)
                offset += queued.count
            return
        chunk_ids = np.array([header.chunk_id for header in headers], dtype=np.int64)
        num_records = np.array([header.num_records for header in headers], dtype=np.int64)
        records_before = np.cumsum(num_records) - num_records
        first = 0
        by_run = sorted(zip(self._run_of, self._batches, strict=True), key=lambda each: each[0])
        for _, queued in by_run:
            records = queued.entries.record_counts
            if queued.batch.places is not None:
                queued.batch.places.fill(chunk_ids, records_before, first, records, queued.kept)
            first += total(records)

    def _has_run_on(self, header: ChunkHeader) -> bool:
        """Whether each entry of the only chunk is one message, and none was left out."""
        count = sum(queued.count for queued in self._batches)
        return header.num_records == count and all(queued.kept is None for queued in self._batches)

    def _tell_readers(self, data: NDArray[np.uint8], headers: Sequence[ChunkHeader]) -> None:
        """Tell readers of the append; a small one is handed to readers that wait for it."""
        stream, next_offset = self._stream, self._writer.next_offset
        chunks = None
        is_awaited = stream.readers or stream.on_appended is not None
        if is_awaited and len(data) <= HANDED_BYTES and next_offset - stream.next_offset <= HANDED_RECORDS:
            chunks = AppendedChunks(data, headers, stream.stream.path, stop=next_offset)
        stream.appended(next_offset, headers[-1].chunk_id, chunks, now_ms=self._now_ms)

    def _tell_error(self, error: LogError) -> None:
        stream = self._stream
        stream.counters.write_errors += 1
        broken = self._writer.is_broken
        if broken:
            stream.close_writer()
        refuse(stream, self._batches, error)
        if not broken:
            # Entries that could not be taken back are there for readers, though unconfirmed.
            with contextlib.suppress(LogError):  # it is in the log, and readers come to it
                stream.refresh()


def _observe(
    observer: BatchObserver,
    stream: BrokerStream,
    batches: Sequence[Queued],
    *,
    began_ms: int,
    error: HeadgateError | None,
) -> None:
    count = sum(total(queued.entries.record_counts) for queued in batches)
    observer.published(stream.name, count, queued_parts(batches), began_ms=began_ms, error=error)


def refuse(stream: BrokerStream, batches: Sequence[Queued], error: HeadgateError) -> None:
    """Refuse batches: their publishers are told that none of their entries will be written."""
    for queued in batches:
        stream.counters.messages_refused += queued.count
        queued.publisher.entries_refused += queued.count
        if queued.batch.sequences is not None:
            queued.publisher.hold_back(queued.batch.sequences)
    _answer(batches, error)


def _answer(batches: Sequence[Queued], error: HeadgateError | None) -> None:
    """Answer all publishers; if one call fails the others are still made. Raises the first error afterwards."""
    failures: list[Exception] = []
    for queued in batches:
        queued.publisher.backlog.remove(queued.count, queued.size_bytes)
        try:
            queued.batch.written(error)
        except Exception as failure:  # raised below, when everyone was told
            failures.append(failure)
    if failures:
        raise failures[0]


def _prepared(stream: BrokerStream, writer: Writer, queue: list[Queued], ids: NewIds | None) -> list[Queued]:
    """The batches that this write answers; batches that cannot be written are refused at once."""
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
                if stream.refused:
                    _check_order(stream, queued, last)
            if field_reference is not None and len(queued.entries):
                queued.entries = fill_from_source(queued.entries, field_reference, stream=stream.name)
            if ids is not None and len(queued.entries):
                _leave_out(stream, queued, ids.without_duplicates(queued.entries, stream=stream.name))
        except (PreconditionFailedError, LimitExceededError) as error:
            refuse(stream, [queued], error)
            continue
        if queued.reference is not None and queued.sequences is not None and len(queued.sequences):
            lasts[queued.reference] = int(queued.sequences[-1])
            stream.refused.taken(queued.reference, queued.sequences)
        accepted.append(queued)
    return accepted


def _leave_out_duplicates(stream: BrokerStream, queued: Queued, last: int | None) -> None:
    """Keep the entries whose sequence is above `last`, the last one of their publisher.

    Raises PreconditionFailedError for sequences that were refused before and are overtaken by now: confirming them
    would be false, writing them out of order.
    """
    assert queued.reference is not None and queued.batch.sequences is not None
    sequences = queued.batch.sequences
    if _all_new(sequences, last):
        queued.sequences = sequences
        return
    new = above(sequences, last)
    if stream.refused.overtaken(queued.reference, sequences[~new]):
        raise PreconditionFailedError(
            f"publisher {queued.reference.decode(errors='replace')!r} sends again what was refused, after it was "
            "declared anew and newer messages were written; give it a new sequence",
            subject=stream.name,
        )
    queued.sequences = sequences
    _leave_out(stream, queued, new)


def _check_order(stream: BrokerStream, queued: Queued, last: int | None) -> None:
    """Raise PreconditionFailedError if an earlier, refused sequence of the publisher has to be stored first."""
    assert queued.reference is not None and queued.sequences is not None
    missing = stream.refused.missing(queued.reference, queued.publisher.declared, last, queued.sequences)
    if missing is not None:
        raise PreconditionFailedError(
            f"publisher {queued.reference.decode(errors='replace')!r} was refused the sequence {missing}, and sends "
            f"{int(queued.sequences[-1])}; send again from {missing} on, or declare the publisher anew",
            subject=stream.name,
        )


def _leave_out(stream: BrokerStream, queued: Queued, new: NDArray[np.bool_]) -> None:
    """Keep the new entries; the others count as written."""
    duplicates = len(new) - int(np.count_nonzero(new))
    if not duplicates:
        return
    stream.counters.messages_duplicate += duplicates
    queued.entries = queued.entries.take(new)
    if queued.sequences is not None:
        queued.sequences = queued.sequences[new]
    kept = np.ones(queued.count, dtype=np.bool_) if queued.kept is None else queued.kept.copy()
    kept[np.flatnonzero(kept)[~new]] = False
    queued.kept = kept


def _all_new(sequences: NDArray[np.uint64], last: int | None) -> bool:
    """Whether no entry is to be left out: all rising, and above the last one, as in nearly every batch."""
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


def _runs(batches: Sequence[Queued]) -> tuple[list[Run], list[int]]:
    """The runs that batches are written in, in order of their first entries, and the number of each batch's run.

    One run for each reference. Publishers without a name share one; a batch that is whole has its own, between those
    before it and those behind.
    """
    runs: list[Run] = []
    numbers: list[int] = []
    open_runs: dict[bytes | None, int] = {}
    for queued in batches:
        if not queued.entries.count:
            numbers.append(0)
            continue
        number = None if queued.batch.is_whole else open_runs.get(queued.reference)
        if number is None:
            number = len(runs)
            sequences: list[NDArray[np.uint64]] | None = None if queued.reference is None else []
            runs.append(Run([], queued.reference, sequences, queued.batch.is_whole))
            if queued.batch.is_whole:
                open_runs.pop(queued.reference, None)
            else:
                open_runs[queued.reference] = number
        run = runs[number]
        run.parts.append(queued.entries)
        if run.sequences is not None and queued.sequences is not None:
            run.sequences.append(queued.sequences)
        numbers.append(number)
    return runs, numbers
