"""Reading the message ids that a stream took lately, for duplicate detection: a job for the stream's writer."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import numpy as np

from headgate.broker.duplicates import RecentIds, digests_of
from headgate.broker.stream import BrokerStream
from headgate.broker.write_job import refuse
from headgate.errors import BrokerError, HeadgateError, LogError, StreamNotFoundError
from headgate.log import OffsetSpecification, Stream
from headgate.scan import OffsetRange, ScanCounters, ScanRequest, plan, read_range
from headgate.topic import waiting_folder

LONG_READ = 4_096
"""Limit: offsets read for their ids in the loop's own turn; a worker reads more."""

_ALL = ScanRequest()


class ReadIds:
    """Reads unknown ids from the stream, as a job for the stream's writer: nothing is appended meanwhile.

    `needed` and `finish` belong to the broker's thread; `run` may be in a worker.
    """

    __slots__ = ("_error", "_found", "_has_ended", "_ids", "_now_ms", "_start", "_stop", "_stream", "done")

    def __init__(self, stream: BrokerStream, ids: RecentIds, stop: int, *, now_ms: int) -> None:
        self._stream = stream
        self._ids = ids
        self._start = ids.known_until
        self._stop = stop
        self._now_ms = now_ms
        self._found: list[tuple[list[bytes], int]] = []
        self._error: LogError | None = None
        self._has_ended = False

    @staticmethod
    def needed(stream: BrokerStream, *, now_ms: int) -> ReadIds | None:
        """The job to run before the next write; None if the ids are known, or if nothing can be written now."""
        ids = stream.recent_ids
        if ids is None:
            return None
        try:
            stop = stream.open_writer(now_ms=now_ms).next_offset
        except (BrokerError, LogError):
            # The next write reports it.
            return None
        return None if ids.known_until == stop else ReadIds(stream, ids, stop, now_ms=now_ms)

    @property
    def is_long(self) -> bool:
        """Whether it is long enough for a worker."""
        start = self._stream.first_offset if self._start is None else self._start
        return self._stop - start > LONG_READ

    @property
    def is_known(self) -> bool:
        """Whether the ids were read."""
        return self._ids.known_until == self._stop

    def run(self) -> None:
        """Read the ids. Errors wait for `finish`."""
        try:
            if self._start is None:
                # Scheduled messages count as well.
                with contextlib.suppress(StreamNotFoundError):
                    self._read(Stream.open(waiting_folder(self._stream.stream)), None, None)
            self._read(self._stream.stream, self._start, self._stop)
            self._has_ended = True
        except LogError as error:
            self._error = error

    def _read(self, stream: Stream, start: int | None, stop: int | None) -> None:
        since_ms = self._now_ms - self._ids.window_ms + 1
        if start is None:
            start = stream.offset_of(OffsetSpecification.timestamp(max(since_ms, 0)), now_ms=self._now_ms)
        self._found += _ids_between(stream, start, stream.next_offset() if stop is None else stop, since_ms)

    def finish(self) -> None:
        """Note the ids; if they could not be read, refuse the queued messages."""
        if self._has_ended:
            if self._start is None:
                self._ids.forget()
            for digests, taken_ms in self._found:
                self._ids.note(digests, taken_ms)
            self._ids.known_until = self._stop
            return
        error: HeadgateError = self._error or LogError("reading message ids failed", path=self._stream.stream.path)
        with contextlib.suppress(HeadgateError), self._stream.guarded():
            raise error
        queue, self._stream.queue = self._stream.queue, []
        refuse(self._stream, queue, error)

    def abandon(self) -> None:
        """The job never ran, or failed with an internal error."""
        self._has_ended = False
        self.finish()


def _ids_between(stream: Stream, start: int, stop: int, since_ms: int) -> Iterator[tuple[list[bytes], int]]:
    """The ids of messages between two offsets that are not older than a time, by the times of their chunks."""
    for chunks in plan(stream, _ALL, OffsetRange(start, stop)).ranges:
        for batch in read_range(chunks, _ALL, ScanCounters()):
            digests = digests_of(batch.messages)
            times = batch.timestamps_ms
            # Messages of one time come in a row.
            borders = [*np.flatnonzero(np.diff(times, prepend=-1)).tolist(), len(times)]
            for first, behind in itertools.pairwise(borders):
                if int(times[first]) >= since_ms:
                    yield [each for each in digests[first:behind] if each is not None], int(times[first])
