"""Duplicate detection: the message ids that a stream took within a window of time; a message with one is left out.

    publish ──► is its id in the window? ──► yes: left out, and confirmed
                     │ no
                     ▼
                 appended ──► its id is remembered                ids that others brought (an earlier process, moves,
                                                                  Spark) are read from the stream before the next write

There is no second store: the stream has the ids, so a message that was written when the process died is known to the
next one. An id counts for all publishers together. Ids of every type of AMQP are compared by their text; nothing else
of a message counts, and a message without an id is never a duplicate. Source: servicebus_wire, section 10; the
service's own documentation of duplicate detection.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import threading
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from headgate.broker.publishing import refuse
from headgate.broker.sources import with_slack
from headgate.broker.stream import BrokerStream
from headgate.errors import (
    BrokerError,
    HeadgateError,
    LimitExceededError,
    LogError,
    MessageError,
    PreconditionFailedError,
    StreamNotFoundError,
)
from headgate.log import Entries, OffsetSpecification, Stream, Writer
from headgate.message import AmqpType, EncodedMessages, FieldReference, Message, Section
from headgate.message.lookup import locate_bytes
from headgate.scan import OffsetRange, ScanCounters, ScanRequest, plan, read_range
from headgate.topic import waiting_folder

MOST_IDS = 4_000_000
"""Limit: ids of one stream within its window; more are refused. An id takes up to 160 bytes of memory."""

LONG_READ = 4_096
"""Limit: offsets read for their ids in the loop's own turn; a worker reads more."""

_ID = FieldReference(Section.PROPERTIES, position=0)
_DIGEST_BYTES = 15
"""With these an object of Python has 48 bytes, with one more 64; two ids out of 2^50 share a digest by a chance of
2^-21."""

_UUID = 0x98
_ALL = ScanRequest()


class RecentIds:
    """The ids of one stream; not for several threads at once.

    `known_until` is the offset up to which its messages are known; None: none are.
    """

    __slots__ = ("_order", "_times", "known_until", "window_ms")

    def __init__(self, window_ms: int) -> None:
        self.window_ms = window_ms
        self.known_until: int | None = None
        self._times: dict[bytes, int] = {}
        self._order: deque[bytes] = deque()

    def __len__(self) -> int:
        return len(self._times)

    def set_window(self, window_ms: int) -> None:
        """Change the window. Ids that count again in a longer one are read from the stream."""
        if window_ms > self.window_ms:
            self.doubt()
        self.window_ms = window_ms

    def holds(self, digest: bytes, now_ms: int) -> bool:
        """Whether an id was taken within the window."""
        taken_ms = self._times.get(digest)
        return taken_ms is not None and now_ms - taken_ms < self.window_ms

    def note(self, digests: Iterable[bytes], taken_ms: int) -> None:
        """Note taken ids, in order of time."""
        for digest in digests:
            if digest not in self._times:
                self._order.append(digest)
            self._times[digest] = taken_ms

    def forget(self) -> None:
        """Forget all ids."""
        self._times.clear()
        self._order.clear()
        self.known_until = None

    def doubt(self) -> None:
        """Some ids may be missing: all are read from the stream before they are needed again."""
        self.known_until = None

    def expire(self, now_ms: int) -> None:
        """Forget ids outside the window."""
        while self._order and now_ms - self._times[self._order[0]] >= self.window_ms:
            del self._times[self._order.popleft()]

    def about_to_write(self, now_ms: int) -> NewIds:
        """The ids of one write, which are checked and noted together."""
        return NewIds(self, now_ms)


class NewIds:
    """The ids of messages about to be written: kept apart until they are."""

    __slots__ = ("_ids", "_known_until", "_now_ms", "taken")

    def __init__(self, ids: RecentIds, now_ms: int) -> None:
        ids.expire(now_ms)
        self.taken: dict[bytes, None] = {}
        self._ids = ids
        self._known_until = ids.known_until
        self._now_ms = now_ms

    def is_duplicate(self, digest: bytes | None) -> bool:
        """Whether an id was taken before; else it is taken now. Raises LimitExceededError if there are too many."""
        if digest is None:
            return False
        if digest in self.taken or self._ids.holds(digest, self._now_ms):
            return True
        self._check_room(1)
        self.taken[digest] = None
        return False

    def is_known(self, message: bytes) -> bool:
        """The same for the id of an encoded message."""
        (digest,) = digests_of(EncodedMessages.of([message]))
        return self.is_duplicate(digest)

    def new(self, digests: Sequence[bytes | None]) -> NDArray[np.bool_]:
        """Which ids, in order, are new, and taken now; LimitExceededError: none is taken."""
        self._check_room(len(digests))
        return np.array([not self.is_duplicate(digest) for digest in digests], dtype=np.bool_)

    def _check_room(self, count: int) -> None:
        if len(self._ids) + len(self.taken) + count > MOST_IDS:
            raise LimitExceededError(
                f"duplicate detection remembers {MOST_IDS} message ids at most; make its window shorter"
            )

    def without_duplicates(self, entries: Entries, *, stream: str) -> NDArray[np.bool_]:
        """Which entries are to be written.

        Raises PreconditionFailedError for a sub-batch, as its messages cannot be left out singly; LimitExceededError.
        """
        if entries.records is not None and bool((entries.records > 0).any()):
            raise PreconditionFailedError(
                "duplicate detection looks at each message; publish without sub-batches", subject=stream
            )
        return self.new(digests_of(with_slack(*entries.columns)))

    def kept(self) -> None:
        """Note the ids: the messages are stored beside the stream, as scheduled ones."""
        self._ids.note(self.taken, self._now_ms)

    def written(self, writer: Writer) -> None:
        """Note the ids: exactly their messages were appended to the stream."""
        if self._known_until is not None and self._ids.known_until == self._known_until:
            self._ids.note(self.taken, self._now_ms)
            self._ids.known_until = writer.next_offset


def digests_of(messages: EncodedMessages) -> list[bytes | None]:
    """A digest of the id of each message; None for one without. Cost: a microsecond each."""
    starts, lengths = locate_bytes(messages, _ID)
    view = messages.data.data
    found: list[bytes | None] = []
    for row, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        if length < 0:
            text = _written_id(messages.message(row))
        elif length == 16 and view[start - 1] == _UUID:
            text = str(uuid.UUID(bytes=bytes(view[start : start + length]))).encode()
        else:
            text = bytes(view[start : start + length])
        found.append(hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest() if text else None)
    return found


def _written_id(message: bytes) -> bytes:
    """The text of an id that is a number; empty without one."""
    try:
        value = Message.decode(message).value(_ID)
    except MessageError:
        return b""
    return b"" if value is None or value.type is AmqpType.NULL else str(value.value).encode()


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
        self.done: threading.Event | None = None

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
        finally:
            if self.done is not None:
                self.done.set()

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
