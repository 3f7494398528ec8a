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

import hashlib
import uuid
from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from headgate.broker.filter_values import with_slack
from headgate.errors import (
    LimitExceededError,
    MessageError,
    PreconditionFailedError,
)
from headgate.log import Entries, Writer
from headgate.message import AmqpType, EncodedMessages, FieldReference, Message, Section
from headgate.message.lookup import locate_bytes

MOST_IDS = 4_000_000
"""Limit: ids of one stream within its window; more are refused. An id takes up to 160 bytes of memory."""

_ID = FieldReference(Section.PROPERTIES, position=0)
_DIGEST_BYTES = 15
"""With these an object of Python has 48 bytes, with one more 64; two ids out of 2^50 share a digest by a chance of
2^-21."""

_UUID = 0x98


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
