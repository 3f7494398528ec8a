"""Where the copies of a view come from: the postings of a topic, or all messages of a stream without rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headgate.broker.topics.copies import ReadCopies
from headgate.columns import total
from headgate.errors import LogError, MessageGivenUpError, OffsetOutOfRangeError
from headgate.ledger import MAX_RULE, copy_number, offset_of, rule_of
from headgate.log import MessageCounts, Stream
from headgate.message import EncodedMessages
from headgate.message.lookup import MessageCollector
from headgate.scan import MessageReader
from headgate.topic.deciding import CopyReader, Decider

Int64Array = NDArray[np.int64]

FAILED_RULES = MAX_RULE
"""The rule in the copy number of a dead letter whose message made rules of the subscription fail."""

_RULE_BITS = MAX_RULE.bit_length()
_READ_FIRST = 8
_MOST_READ_FIRST = 256
_READ_FACTOR = 4
_AHEAD = 1024
_KEPT_BYTES = 64 << 10
_NOTHING = np.empty(0, dtype=np.int64)
_NO_COPIES = ReadCopies(_NOTHING, _NOTHING, EncodedMessages.of([]))


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


class SubscriptionSource:
    """The copies of one subscription, by its number, from the postings of its topic.

    A dispatcher asks for consecutive copies, some at a time: copies found or read beyond a request are kept for the
    next one.
    """

    def __init__(self, number: int, decider: Decider, reader: CopyReader) -> None:
        self._number = number
        self._decider = decider
        self._postings = decider.postings
        self._reader = reader
        self._ahead_start = 0
        self._ahead = Found(_NOTHING, 0)
        self._read_ahead = _NO_COPIES
        self._given_ahead = 0
        """How many of the copies read ahead were given."""
        self._read_first = _READ_FIRST
        """How many copies the next read begins with, by the size of the last ones."""

    def find(self, start: int, stop: int, limit: int) -> Found:
        """See `CopySource`."""
        start = max(start, copy_number(self._decider.first_offset))
        stop = min(stop, copy_number(self._decider.next_offset))
        if stop <= start:
            return Found(_NOTHING, start)
        ahead = self._ahead
        first = int(ahead.copies.searchsorted(start))
        if not self._ahead_start <= start < ahead.searched or (
            ahead.searched < stop and len(ahead.copies) - first < limit
        ):
            ahead = self._ahead = self._search(start, max(limit, _AHEAD))
            self._ahead_start, first = start, 0
        found = ahead.copies[first : first + limit]
        if len(found) and found[-1] >= stop:
            found = found[: found.searchsorted(stop)]
        if len(found) == limit:
            return Found(found, int(found[-1]) + 1)
        return Found(found, min(stop, ahead.searched))

    def decided(self, copies: Int64Array, start: int, stop: int) -> None:
        """Note the copies decided from `start` to `stop`, so that a dispatcher at the end need not search for them."""
        if self._ahead_start <= start <= self._ahead.searched:
            kept = self._ahead.copies[self._ahead.copies < start]
            kept = kept[-_AHEAD:]
            self._ahead_start = int(kept[0]) if len(kept) == _AHEAD else self._ahead_start
            self._ahead = Found(np.concatenate([kept, copies]), stop)
        else:
            self._ahead_start, self._ahead = start, Found(copies, stop)

    def _search(self, start: int, limit: int) -> Found:
        """At most `limit` copies from `start` on, from the postings."""
        stop = copy_number(self._decider.next_offset)
        parts: list[Int64Array] = []
        left = limit
        for runs in self._postings.runs(self._number, offset_of(start)):
            # Of the message at `start` some copies may lie before it.
            firsts = np.maximum(runs.firsts, start - runs.rules + MAX_RULE >> _RULE_BITS)
            lengths = np.clip(runs.stops - firsts, 0, left)
            enough = int(np.searchsorted(np.cumsum(lengths), left)) + 1
            firsts, lengths, rules = firsts[:enough], lengths[:enough], runs.rules[:enough]
            within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            copies = (np.repeat(firsts, lengths) + within << _RULE_BITS) | np.repeat(rules, lengths)
            parts.append(copies[:left])
            left -= len(parts[-1])
            if not left:
                break
        found = np.concatenate(parts) if parts else _NOTHING
        return Found(found, stop if left else int(found[-1]) + 1)

    def read(self, copies: Int64Array, *, max_bytes: int) -> ReadCopies:
        """See `CopySource`."""
        known, copies = self._known(copies, max_bytes)
        max_bytes -= total(known.messages.lengths)
        if not len(copies) or max_bytes <= 0:
            return known
        wanted = copies if len(copies) >= self._read_first else self._with_next(copies)

        def read_part(part: Int64Array) -> tuple[Int64Array, EncodedMessages]:
            batch = self._reader.read(self._number, part >> _RULE_BITS, part & MAX_RULE)
            return batch.timestamps_ms, batch.messages

        read = _read_some(
            wanted,
            read_part,
            first=self._read_first,
            max_bytes=max_bytes,
            first_offset=lambda: self._decider.first_offset,
            behind=known,
        )
        size_bytes = total(read.messages.lengths)
        self._read_first = max(_READ_FIRST, min(_KEPT_BYTES * len(read) // (size_bytes + 1), _MOST_READ_FIRST))
        asked = int(read.copies.searchsorted(copies[-1], side="right"))
        if asked == len(read):
            self._forget_ahead()
            return read
        self._read_ahead, self._given_ahead = read, asked
        return read.take(slice(asked))

    def _forget_ahead(self) -> None:
        self._read_ahead, self._given_ahead = _NO_COPIES, 0

    def _known(self, copies: Int64Array, max_bytes: int) -> tuple[ReadCopies, Int64Array]:
        """The first of some copies that were read ahead, up to `max_bytes`, and the copies still to be read."""
        ahead, first = self._read_ahead, self._given_ahead
        if first == len(ahead):
            return _NO_COPIES, copies
        if ahead.copies[first] != copies[0]:
            first = int(ahead.copies.searchsorted(copies[0]))
        known = ahead.take(slice(first, first + len(copies)))
        if len(copies) > 1:
            differs = known.copies != copies[: len(known)]
            count = int(differs.argmax()) if differs.any() else len(known)
            count = min(count, int(np.cumsum(known.messages.lengths[:count]).searchsorted(max_bytes)) + 1)
            known = known.take(slice(count))
        elif len(known) and known.copies[0] != copies[0]:
            known = _NO_COPIES
        # The next request goes on behind the copies given now.
        self._given_ahead = first + len(known)
        if self._given_ahead == len(ahead):
            self._forget_ahead()
        return known, copies[len(known) :]

    def _with_next(self, copies: Int64Array) -> Int64Array:
        """A few copies, and the ones likely to be asked for next."""
        ahead = self._ahead.copies
        first = int(ahead.searchsorted(copies[-1], side="right"))
        if first == len(ahead):
            return copies
        return np.concatenate([copies, ahead[first : first + self._read_first - len(copies)]])

    def session_ids(self, copies: Int64Array) -> tuple[int, list[str | None]]:
        """How many of the first copies were deleted, and the session ids of the others, as far as they are decided.

        A session id is as the rule's action leaves it; None without one.
        """
        deleted = int(copies.searchsorted(copy_number(self._decider.first_offset)))
        kept = copies[deleted:]
        return deleted, self._postings.session_ids(self._number, kept >> _RULE_BITS, kept & MAX_RULE)

    def count(self, start: int, stop: int) -> int:
        """See `CopySource`."""
        start, stop = max(start, copy_number(self._decider.first_offset)), min(stop, self.end)
        total = 0
        # Copies of one message may lie on both sides of an end.
        if rule_of(start):
            whole = min(copy_number(offset_of(start) + 1), stop)
            total += self._count_within_message(start, whole)
            start = whole
        if rule_of(stop) and stop > start:
            whole = max(copy_number(offset_of(stop)), start)
            total += self._count_within_message(whole, stop)
            stop = whole
        return total + self._postings.count_between(self._number, offset_of(start), offset_of(stop))

    def _count_within_message(self, start: int, stop: int) -> int:
        """The number of copies of one message at or above `start` and below `stop`."""
        offset, runs = offset_of(start), next(self._postings.runs(self._number, offset_of(start)), None)
        if runs is None:
            return 0
        rules = runs.rules[runs.firsts == offset]
        return int(((rules >= rule_of(start)) & (rules < rule_of(start) + stop - start)).sum())

    @property
    def end(self) -> int:
        """See `CopySource`."""
        return copy_number(self._decider.next_offset)


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
        return Found(offsets << _RULE_BITS, max(start, copy_number(searched)))

    def read(self, copies: Int64Array, *, max_bytes: int) -> ReadCopies:
        """See `CopySource`."""

        def read(part: Int64Array) -> tuple[Int64Array, EncodedMessages]:
            batch = self._reader.read(part >> _RULE_BITS)
            return batch.timestamps_ms, batch.messages

        first_offset = self._stream.first_offset
        return _read_some(copies, read, first=_READ_FIRST, max_bytes=max_bytes, first_offset=first_offset)

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


def _read_some(
    copies: Int64Array,
    read: Callable[[Int64Array], tuple[Int64Array, EncodedMessages]],
    *,
    first: int,
    max_bytes: int,
    first_offset: Callable[[], int],
    behind: ReadCopies = _NO_COPIES,
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
    return ReadCopies(np.concatenate(found), np.concatenate(times), collector.take()) if found else _NO_COPIES
