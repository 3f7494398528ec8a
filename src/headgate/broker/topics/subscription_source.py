"""The copies of a subscription, from the postings of its topic."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headgate.arrays import total
from headgate.broker.delivery import NO_COPIES, READ_FIRST, RULE_BITS, Found, ReadCopies, read_some
from headgate.ledger import MAX_RULE, copy_number, offset_of, rule_of
from headgate.message import EncodedMessages
from headgate.topic.decisions import CopyReader, Decider, Step

Int64Array = NDArray[np.int64]

FAILED_RULES = MAX_RULE
"""The rule in the copy number of a dead letter whose message made rules of the subscription fail."""

_MOST_READ_FIRST = 256
_AHEAD = 1024
_KEPT_BYTES = 64 << 10
_NOTHING = np.empty(0, dtype=np.int64)


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
        self._read_ahead = NO_COPIES
        self._given_ahead = 0
        """How many of the copies read ahead were given."""
        self._read_first = READ_FIRST
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

    def decided(self, step: Step, start: int, stop: int) -> None:
        """Note the copies that a step decided, from `start` to `stop`: a dispatcher at the end need not search them."""
        copies = self._copies_of(step)
        if self._ahead_start <= start <= self._ahead.searched:
            kept = self._ahead.copies[self._ahead.copies < start]
            kept = kept[-_AHEAD:]
            self._ahead_start = int(kept[0]) if len(kept) == _AHEAD else self._ahead_start
            self._ahead = Found(np.concatenate([kept, copies]), stop)
        else:
            self._ahead_start, self._ahead = start, Found(copies, stop)

    def _copies_of(self, step: Step) -> Int64Array:
        """The copies that a step gives to the subscription, ascending."""
        number, parts = self._number, []
        for selected in step.selected:
            if len(selected.taking_all) and number in selected.taking_all:
                parts.append(selected.sound << RULE_BITS)
            if len(selected.copies.offsets):
                own = selected.copies.of(number)
                parts.append(own.offsets << RULE_BITS | own.rules)
        return parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))

    def _search(self, start: int, limit: int) -> Found:
        """At most `limit` copies from `start` on, from the postings."""
        stop = copy_number(self._decider.next_offset)
        parts: list[Int64Array] = []
        left = limit
        for runs in self._postings.runs(self._number, offset_of(start)):
            # Of the message at `start` some copies may lie before it.
            firsts = np.maximum(runs.firsts, start - runs.rules + MAX_RULE >> RULE_BITS)
            lengths = np.clip(runs.stops - firsts, 0, left)
            enough = int(np.searchsorted(np.cumsum(lengths), left)) + 1
            firsts, lengths, rules = firsts[:enough], lengths[:enough], runs.rules[:enough]
            within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            copies = (np.repeat(firsts, lengths) + within << RULE_BITS) | np.repeat(rules, lengths)
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
            batch = self._reader.read(self._number, part >> RULE_BITS, part & MAX_RULE)
            return batch.timestamps_ms, batch.messages

        read = read_some(
            wanted,
            read_part,
            first=self._read_first,
            max_bytes=max_bytes,
            first_offset=lambda: self._decider.first_offset,
            behind=known,
        )
        size_bytes = total(read.messages.lengths)
        count = len(read.copies)
        self._read_first = max(READ_FIRST, min(_KEPT_BYTES * count // (size_bytes + 1), _MOST_READ_FIRST))
        asked = int(read.copies.searchsorted(copies[-1], side="right"))
        if asked == count:
            self._forget_ahead()
            return read
        self._read_ahead, self._given_ahead = read, asked
        return read.take(slice(asked))

    def _forget_ahead(self) -> None:
        self._read_ahead, self._given_ahead = NO_COPIES, 0

    def _known(self, copies: Int64Array, max_bytes: int) -> tuple[ReadCopies, Int64Array]:
        """The first of some copies that were read ahead, up to `max_bytes`, and the copies still to be read."""
        ahead, first = self._read_ahead, self._given_ahead
        if first == len(ahead.copies):
            return NO_COPIES, copies
        if ahead.copies[first] != copies[0]:
            first = int(ahead.copies.searchsorted(copies[0]))
        known = ahead.take(slice(first, first + len(copies)))
        if len(copies) > 1:
            differs = known.copies != copies[: len(known)]
            count = int(differs.argmax()) if differs.any() else len(known)
            count = min(count, int(np.cumsum(known.messages.lengths[:count]).searchsorted(max_bytes)) + 1)
            known = known.take(slice(count))
        elif len(known) and known.copies[0] != copies[0]:
            known = NO_COPIES
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
        return deleted, self._postings.session_ids(self._number, kept >> RULE_BITS, kept & MAX_RULE)

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
