"""The copies of a subscription as `tail` reads them: on files through the rules in force, of a server page by page."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.cli.options import naming_option
from headgate.cli.remote import FOLLOW_ADVICE, Location
from headgate.errors import ConfigError, ConnectionLostError

if TYPE_CHECKING:
    from headgate.client import ReadCopy, Topics
    from headgate.log import OffsetSpecification
    from headgate.scan import Cursor, ScanBatch, ScanCounters

_PAGE = 500
_POLL_S = 0.05
_PATIENCE_S = 30.0
"""After this time without progress a read that ends stops waiting for messages to be decided."""


class CopyCursor:
    """A cursor over the stream of a topic, whose messages become the copies of one subscription.

    These are the same copies, with the same bytes, as the subscription's receivers get.
    """

    def __init__(self, cursor: Cursor, folder: Path, number: int) -> None:
        self._cursor = cursor
        self._folder = folder
        self._number = number
        self._ready: deque[ScanBatch] = deque()

    @staticmethod
    def over(cursor: Cursor, topic: str, root: Path, subscription: str) -> CopyCursor:
        """A cursor over the copies of an existing subscription. Raises RuleNotFoundError."""
        from headgate.log import resolve_stream
        from headgate.topic import RuleHistory

        stream = resolve_stream(topic, root)
        return CopyCursor(cursor, stream.path, RuleHistory.load(stream).subscription(subscription).number)

    @property
    def counters(self) -> ScanCounters:
        """The counters of reading the stream."""
        return self._cursor.counters

    @property
    def is_finished(self) -> bool:
        """Whether everything before the end was read."""
        return not self._ready and self._cursor.is_finished

    def read(self, now_ms: int) -> ScanBatch | None:
        """The next copies, perhaps none of a batch; None at the present end."""
        if not self._ready:
            batch = self._cursor.read(now_ms)
            if batch is None:
                return None
            self._ready.extend(self._copies(batch))
        return self._ready.popleft()

    def _copies(self, batch: ScanBatch) -> list[ScanBatch]:
        import numpy as np

        from headgate.scan import ScanBatch
        from headgate.topic import RoutersInForce

        found: list[ScanBatch] = []
        offsets = batch.offsets
        first = 0
        # The rules after the messages: all that decide these are known then.
        routers = RoutersInForce.of(self._folder)
        for stop, router in routers.within(int(offsets[0]), int(offsets[-1]) + 1) if len(batch) else ():
            behind = int(np.searchsorted(offsets, stop))
            part = slice(first, behind)
            first = behind
            location = next(
                (at for at, each in enumerate(router.topic.subscriptions) if each.number == self._number), None
            )
            if location is None or part.start == part.stop:
                continue
            times = batch.timestamps_ms[part]
            copies = router.route(batch.messages.take(part), offsets[part], times)
            rows = copies.rows[copies.of(location)]
            found.append(ScanBatch(copies.messages(location), offsets[part][rows], times[rows]))
        return found or [ScanBatch(batch.messages.take(slice(0, 0)), offsets[:0], batch.timestamps_ms[:0])]

    def close(self) -> None:
        """End the read."""
        self._cursor.close()


def open_copies(
    location: Location,
    topic: str,
    subscription: str,
    *,
    start: OffsetSpecification,
    end: OffsetSpecification | None,
    follow: bool,
) -> ServerCopyCursor:
    """A cursor over the copies of a subscription of a server. Raises ConfigError for a wrong `start` or `end`."""
    from headgate.log import OffsetKind

    topics = location.management().topics
    behind = topics.copies(topic, subscription, limit=1).next_offset

    def offset_of(at: OffsetSpecification) -> int:
        known = {OffsetKind.OFFSET: at.value, OffsetKind.FIRST: 0, OffsetKind.NEXT: behind}
        if at.kind in known:
            return known[at.kind]
        with location.client() as client:
            return client.resolve_offset(topic, at)

    if follow and end is not None and end.kind is not OffsetKind.OFFSET:
        raise ConfigError(f"--until: found {end}, expected an offset, because --follow waits for what is not there")
    begin = offset_of(start)
    if begin > behind and not follow:
        with naming_option("--from", advice=FOLLOW_ADVICE):
            raise ConfigError(f"found {start}, which lies behind the end of the topic, offset {behind}")
    stop = None if end is None else offset_of(end)
    if not follow:
        stop = behind if stop is None else min(stop, behind)
    return ServerCopyCursor(topics, topic, subscription, begin, stop, waits=not follow)


@dataclass(slots=True)
class ServerCopyCursor:
    """The copies of a subscription of a server: page by page, from `offset` on, up to `stop` if it is given.

    A read that `waits` has an end that is written: it gives nothing only when everything before was read.
    """

    topics: Topics
    topic: str
    subscription: str
    offset: int
    stop: int | None
    waits: bool
    rule: int = 0
    counters: ScanCounters = field(init=False)

    def __post_init__(self) -> None:
        from headgate.scan import ScanCounters

        self.counters = ScanCounters()

    @property
    def is_finished(self) -> bool:
        """Whether everything before the end was read."""
        return self.stop is not None and self.offset >= self.stop

    def read(self, now_ms: int) -> ScanBatch | None:
        """The next copies, perhaps none of a page; None at the present end."""
        waited_s = 0.0
        while not self.is_finished:
            before = self.offset, self.rule
            page = self.topics.copies(self.topic, self.subscription, offset=self.offset, rule=self.rule, limit=_PAGE)
            self.offset, self.rule = page.offset, page.rule
            if (self.offset, self.rule) != before:
                return self._counted([copy for copy in page.copies if self.stop is None or copy.offset < self.stop])
            if not self.waits:
                return None
            if waited_s >= _PATIENCE_S:
                raise ConnectionLostError(
                    f"messages from offset {self.offset} on are not decided after {_PATIENCE_S:g} s", server=self.topic
                )
            # It is behind its publishers.
            time.sleep(_POLL_S)
            waited_s += _POLL_S
        return None

    def _counted(self, copies: Sequence[ReadCopy]) -> ScanBatch:
        self.counters.messages_evaluated += len(copies)
        self.counters.messages_matched += len(copies)
        self.counters.bytes_read += sum(len(copy.encoded) for copy in copies)
        return _batch_of(copies)

    def close(self) -> None:
        """Nothing is open."""


def _batch_of(copies: Sequence[ReadCopy]) -> ScanBatch:
    import numpy as np

    from headgate.message import EncodedMessages
    from headgate.scan import ScanBatch

    return ScanBatch(
        EncodedMessages.of([copy.encoded for copy in copies]),
        np.array([copy.offset for copy in copies], dtype=np.int64),
        np.array([copy.timestamp_ms for copy in copies], dtype=np.int64),
    )
