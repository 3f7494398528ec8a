"""Readers: each reads one queue for one group of a connection, from pull to pull.

    the stream's engine ──found──► encoded ahead, many at a time ──cut──► the answers to this pull, and the next ones

A pull asks for 32 messages; encoding so few at a time costs more than the messages themselves.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable

from headgate.broker import ConsumerOptions, MessageConsumer, Session
from headgate.broker.consumer_groups import PulledQueue
from headgate.evaluate import Filter
from headgate.log import OffsetSpecification
from headgate.protocols.rocketmq import StoredFrom, StoredMessages, encode_stored
from headgate.protocols.rocketmq.remoting import Command
from headgate.protocols.rocketmq.remoting import headers as h

MOST_MESSAGES = 1_024
"""Limit: messages per answer, however many the client asks for; `MOST_BYTES` is the limit in bytes."""
MOST_BYTES = 4 << 20

AHEAD_MESSAGES = 512
AHEAD_BYTES = 1 << 20
"""Limit: messages and bytes that are found and encoded ahead of the next pull."""
AHEAD_MS = 2_000


class Waiting:
    """A pull that is not answered: how long it is held, and whether it may wait at the end of its queue as well.

    It takes at most `count` messages, and at most `size_bytes` if it takes more than one.
    """

    __slots__ = ("command", "count", "is_held", "may_wait", "request", "size_bytes", "until_ms")

    def __init__(self, command: Command, request: h.PullRequest, until_ms: int, may_wait: bool) -> None:
        self.command = command
        self.request = request
        self.until_ms = until_ms
        self.may_wait = may_wait
        self.is_held = False
        """Whether its reader has reached the end of the queue: messages passed over after that do not end the pull."""
        self.count = min(max(request.max_msg_nums, 1), MOST_MESSAGES)
        self.size_bytes = min(max(request.max_msg_bytes, 1), MOST_BYTES)


class Ahead:
    """Encoded messages, one behind the other as in an answer: their offsets, and where each ends."""

    __slots__ = ("body", "next_offset", "offsets", "row", "stops")

    def __init__(self, messages: StoredMessages, offsets: list[int], next_offset: int) -> None:
        self.body, self.stops = messages
        self.offsets = offsets
        self.next_offset = next_offset
        """The offset behind everything that was scanned for these messages."""
        self.row = 0

    def cut(self, count: int, max_bytes: int) -> tuple[int, int]:
        """Take the next rows, `start … stop`, at least one."""
        start = self.row
        begin = self.stops[start - 1] if start else 0
        stop = min(start + count, len(self.offsets))
        if self.stops[stop - 1] - begin > max_bytes:
            stop = max(start + 1, bisect.bisect_right(self.stops, begin + max_bytes, start, stop))
        self.row = stop
        return start, stop

    def bytes_of(self, start: int, stop: int) -> memoryview:
        """The messages of some rows."""
        return self.body[self.stops[start - 1] if start else 0 : self.stops[stop - 1]]

    @property
    def is_taken(self) -> bool:
        """Whether nothing is left."""
        return self.row == len(self.offsets)

    @property
    def resumes_at(self) -> int:
        """The offset where a reader goes on that takes no more of these messages."""
        return self.next_offset if self.is_taken else self.offsets[self.row]


class QueueReader:
    """Reads on from where the last pull of a queue ended; `waiting` is the pull that is not answered yet."""

    __slots__ = (
        "_used_ms",
        "ahead",
        "consumer",
        "end_watch",
        "filter",
        "moved_to",
        "next_offset",
        "session",
        "source",
        "stream",
        "taken",
        "view",
        "waiting",
        "was_used",
    )

    def __init__(
        self, session: Session, request: h.PullRequest, stream: str, source: StoredFrom, wanted: Filter | None
    ) -> None:
        """Errors as of `Session.message_consumer`."""
        options = ConsumerOptions(
            OffsetSpecification.offset(request.queue_offset),
            filter=wanted,
            name=request.consumer_group,
            tag=request.topic,
        )
        self.session = session
        self.stream = stream
        self.source = source
        self.filter = wanted
        self.consumer: MessageConsumer = session.message_consumer(stream, options, topic=request.topic)
        self.view: PulledQueue | None = None
        self.next_offset = request.queue_offset
        """The next offset, as the last answer gave it."""
        self.waiting: Waiting | None = None
        self.end_watch: Callable[[], None] = _nothing
        self.ahead: Ahead | None = None
        """Messages encoded ahead of the next pull."""
        self.taken = 0
        """How many messages the last `take` returned."""
        self.moved_to: int | None = None
        """The offset that its member was sent to, because its queue was deleted and made again."""
        self.was_used = False
        """Whether messages were taken since the last tick."""
        self._used_ms = 0

    def goes_on_at(self, offset: int) -> bool:
        """Go to the offset of a pull; returns whether that is possible."""
        if self.consumer.is_closed:
            return False
        if self.next_offset != offset:
            self._go_to(offset)
        return True

    def _go_to(self, offset: int) -> None:
        self.ahead = None
        self.next_offset = offset
        self.consumer.activate(OffsetSpecification.offset(offset))

    @property
    def position(self) -> int:
        """The offset behind everything that was given or passed over."""
        return self.consumer.next_offset if self.ahead is None else self.ahead.resumes_at

    @property
    def at_end(self) -> bool:
        """Whether nothing is left to give, and everything committed was scanned."""
        return self.ahead is None and self.consumer.at_end

    def want(self, count: int) -> None:
        """Read `count` messages for a pull, or more: other pulls will follow, so reading goes on meanwhile."""
        self.consumer.want(max(count, AHEAD_MESSAGES))

    def take(self, count: int, max_bytes: int, *, may_be_ahead: bool) -> memoryview | bytes | None:
        """The next messages, encoded; None if there are none now, empty if other members hold all of the next ones.

        With `may_be_ahead` it encodes more of the found messages, and keeps them.
        """
        self.was_used = True
        ahead = self.ahead
        if ahead is None:
            if may_be_ahead:
                ahead = self._encode(max(count, AHEAD_MESSAGES), max(max_bytes, AHEAD_BYTES))
            else:
                ahead = self._encode(count, max_bytes)
            if ahead is None:
                return None
        start, stop = ahead.cut(count, max_bytes)
        self.ahead = None if ahead.is_taken else ahead
        self.taken = stop - start
        view = self.view
        if view is None or view.is_closed:
            return ahead.bytes_of(start, stop)
        given = view.given(ahead.offsets[start], ahead.offsets[stop - 1] + 1)
        if not len(given):
            return ahead.bytes_of(start, stop)
        # These messages are redelivered by themselves, or another member has them.
        left_out = set(given.tolist())
        rows = [row for row in range(start, stop) if ahead.offsets[row] not in left_out]
        self.taken = len(rows)
        return b"".join(ahead.bytes_of(row, row + 1) for row in rows)

    def _encode(self, count: int, max_bytes: int) -> Ahead | None:
        batch = self.consumer.take(count, max_bytes)
        if batch is None:
            return None
        self.consumer.want(0 if self.consumer.is_memory_short else AHEAD_MESSAGES)
        messages = encode_stored(
            batch.messages,
            offsets=batch.offsets,
            timestamps_ms=batch.timestamps_ms,
            reconsume_times=None,
            source=self.source,
        )
        return Ahead(messages, batch.offsets.tolist(), self.consumer.next_offset)

    def tick(self, now_ms: int) -> None:
        """Keep the reservation of a queue that its member pulls; drop messages read ahead of other queues."""
        if self.was_used or self.waiting is not None:
            self.was_used = False
            self._used_ms = now_ms
            if self.view is not None and not self.view.is_closed:
                self.view.pulled()
        elif now_ms - self._used_ms >= AHEAD_MS:
            self.consumer.want(0)
            if self.ahead is not None:
                self._go_to(self.next_offset)
        if self.waiting is None and self.consumer.is_memory_short:
            self.consumer.want(0)

    def close(self) -> None:
        """It reads no more."""
        self.end_watch()
        if self.view is not None:
            self.view.end(self.consumer)
        self.consumer.close()


def _nothing() -> None:
    """The end of a watch that does not exist."""
