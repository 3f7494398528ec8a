"""Sources of the copies of a view: they find copies, and read them. The one here gives all messages of a stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headgate.broker.delivery.copies import ReadCopies
from headgate.errors import LogError, MessageGivenUpError, OffsetOutOfRangeError
from headgate.ledger import MAX_RULE, copy_number, offset_of, rule_of
from headgate.log import MessageCounts, Stream
from headgate.message import EncodedMessages
from headgate.message.lookup import MessageCollector
from headgate.scan import MessageReader

Int64Array = NDArray[np.int64]

RULE_BITS = MAX_RULE.bit_length()
"""The bits of a copy number that have its rule."""

READ_FIRST = 8
"""How many copies are read at first while their sizes are not known."""

_READ_FACTOR = 4
_NOTHING = np.empty(0, dtype=np.int64)
NO_COPIES = ReadCopies(_NOTHING, _NOTHING, EncodedMessages.of([]))


@dataclass(slots=True)
class Found:
    """Copies of a view, ascending; up to copy `searched` there are no others."""

    copies: Int64Array
    searched: int


class CopySource(Protocol):
    """Finds and reads copies for a dispatcher; not for several threads at once."""

    def find(self, start: int, stop: int, limit: int) -> Found:
        """At most `limit` copies at or above `start` and below `stop`, as far as they are decided."""

    def read(self, copies: Int64Array, *, max_bytes: int) -> ReadCopies:
        """The first of these copies, up to `max_bytes` but at least one if any is left; deleted ones are left out.

        The last one shows how far the read went; it stops before damage. Raises LogError where damage comes first.
        """

    def count(self, start: int, stop: int) -> int:
        """The number of decided copies at or above `start` and below `stop`."""

    @property
    def end(self) -> int:
        """The copy behind all decided ones."""


class StreamSource:
    """The messages of a stream that has no rules; each is one plain copy."""

    def __init__(self, stream: Stream, reader: MessageReader, next_offset: Callable[[], int]) -> None:
        """`next_offset` gives the offset behind the last message."""
        self._stream = stream
        self._reader = reader
        self._counts = MessageCounts()
        self._next_offset = next_offset

    def find(self, start: int, stop: int, limit: int) -> Found:
        """See `CopySource`."""
        first, behind = self._offsets(start, stop)
        # Tracking chunks, few among the messages, are searched with them.
        searched = min(first + limit, behind)
        offsets = self._counts.messages(self._stream, first, searched)
        while len(offsets) < limit and searched < behind:
            more = min(searched + limit, behind)
            offsets = np.append(offsets, self._counts.messages(self._stream, searched, more))[:limit]
            searched = more if len(offsets) < limit else int(offsets[-1]) + 1
        return Found(offsets << RULE_BITS, max(start, copy_number(searched)))

    def read(self, copies: Int64Array, *, max_bytes: int) -> ReadCopies:
        """See `CopySource`."""

        def read(part: Int64Array) -> tuple[Int64Array, EncodedMessages]:
            batch = self._reader.read(part >> RULE_BITS)
            return batch.timestamps_ms, batch.messages

        first_offset = self._stream.first_offset
        return read_some(copies, read, first=READ_FIRST, max_bytes=max_bytes, first_offset=first_offset)

    def count(self, start: int, stop: int) -> int:
        """See `CopySource`."""
        return self._counts.between(self._stream, *self._offsets(start, stop))

    def _offsets(self, start: int, stop: int) -> tuple[int, int]:
        """The range of offsets whose plain copies lie between two copies."""
        first = offset_of(start) + (1 if rule_of(start) else 0)
        behind = offset_of(stop) + (1 if rule_of(stop) else 0)
        first = max(first, self._stream.first_offset())
        return first, max(first, min(behind, self._next_offset()))

    @property
    def end(self) -> int:
        """See `CopySource`."""
        return copy_number(self._next_offset())


def whole_offsets(copies: Int64Array) -> list[tuple[int, int]]:
    """The ranges of copies that have the offsets of some plain copies, ascending: adjacent offsets are one range.

    A view that is told of them has no holes between the copies of a `StreamSource`.
    """
    offsets = copies >> RULE_BITS
    if not len(offsets):
        return []
    cuts = np.flatnonzero(np.diff(offsets) > 1) + 1
    return [(copy_number(int(part[0])), copy_number(int(part[-1]) + 1)) for part in np.split(offsets, cuts.tolist())]


def read_some(
    copies: Int64Array,
    read: Callable[[Int64Array], tuple[Int64Array, EncodedMessages]],
    *,
    first: int,
    max_bytes: int,
    first_offset: Callable[[], int],
    behind: ReadCopies = NO_COPIES,
) -> ReadCopies:
    """Read the first of some copies: `first` of them, then more at a time, as their sizes are not known.

    The result begins with the copies in `behind`, which precede them.
    """
    collector = MessageCollector()
    found, times = [], []
    if len(behind):
        collector.add(behind.messages)
        found.append(behind.copies)
        times.append(behind.timestamps_ms)
    stop_bytes = collector.size_bytes + max_bytes
    begin, count = 0, first
    while begin < len(copies) and collector.size_bytes < stop_bytes:
        part = kept = copies[begin : begin + count]
        try:
            timestamps_ms, messages = read(part)
        except MessageGivenUpError:
            # Read the remaining ones one by one.
            if len(part) > 1:
                count = 1
                continue
            kept, timestamps_ms, messages = part[:0], _NOTHING, EncodedMessages.of([])
        except OffsetOutOfRangeError:
            kept = part[part >= copy_number(first_offset())]
            timestamps_ms, messages = read(kept) if len(kept) else (_NOTHING, EncodedMessages.of([]))
        except LogError:
            # Read the copies before the damage one by one.
            if len(part) == 1 and not found:
                raise
            if len(part) == 1:
                break
            count = 1
            continue
        collector.add(messages)
        found.append(kept)
        times.append(timestamps_ms)
        begin += len(part)
        if count > 1:
            count *= _READ_FACTOR
    if len(found) == 1:
        return ReadCopies(found[0], times[0], collector.take())
    return ReadCopies(np.concatenate(found), np.concatenate(times), collector.take()) if found else NO_COPIES
