"""The dispatcher of a view: it gives copies to receivers.

In one turn of the loop it finds available copies, reads them, claims them, and gives them out behind the commit. Copies
are given in order; several receivers take turns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from headgate.broker.delivery import (
    Consumption,
    CopySource,
    GivenCopies,
    Movement,
    ReadCopies,
    ReadCopy,
    drop_copies,
)
from headgate.broker.topics.expiry import outlived
from headgate.broker.topics.policy import SubscriptionPolicy
from headgate.broker.topics.receiver import Receiver
from headgate.broker.topics.settler import Settler
from headgate.errors import HeadgateError, LogError
from headgate.ledger import NO_COPY, Claim, View
from headgate.topic import origin_of

COPIES_A_TURN = 2048
BYTES_A_TURN = 512 << 10
"""Limit: bytes that one view gives out in one turn; a single larger copy goes alone."""

_HOLES_A_TURN = 256
"""Limit: ranges without copies that one search passes."""

_RUNS_COUNTED = 1 << 20
_wanted = attrgetter("wanted")

TTL_EXPIRED = "TTLExpiredException"


@dataclass(slots=True)
class CopyCounts:
    """Unsettled copies of a view: `active` ones are available, `waiting` ones will be after their backoff."""

    active: int = 0
    locked: int = 0
    waiting: int = 0


@dataclass(slots=True)
class _Available:
    """Available copies, ascending; `fresh` of them are new, and `covered` are the ranges searched for new ones.

    `is_all`: there are no others now.
    """

    copies: NDArray[np.int64]
    covered: list[tuple[int, int]]
    fresh: int
    is_all: bool

    def below(self, stop: int) -> _Available:
        """The copies below a copy."""
        covered = [(first, min(last, stop)) for first, last in self.covered if first < stop]
        copies = self.copies[self.copies < stop]
        fresh = sum(int(((copies >= first) & (copies < last)).sum()) for first, last in covered)
        return _Available(copies, covered, fresh, is_all=False)


class Dispatcher(Settler[Receiver]):
    """Gives the copies of one view to its receivers."""

    def __init__(
        self,
        name: str,
        view: View,
        source: CopySource,
        consumption: Consumption,
        policy: SubscriptionPolicy,
        now_ms: Callable[[], int],
    ) -> None:
        super().__init__(name, view, source, consumption, policy, now_ms)
        self.receivers: list[Receiver] = []
        self.unseen = 0
        """How many of its copies were never looked at."""
        self._has_run_out = False
        self._may_have_more = True
        """Whether copies came, or came back, that no search has found yet."""

    # counting

    def count_unseen(self) -> None:
        """Count anew which copies were never looked at. Cost: one look into the postings for each block with any."""
        self.unseen = self._unseen_between(0, NO_COPY)

    def _unseen_between(self, first: int, last: int) -> int:
        """How many copies between two were never looked at."""
        total = 0
        for start, stop in self.view.available(first, limit=_RUNS_COUNTED):
            if start >= last:
                break
            if stop > start + 1:
                total += self.source.count(max(start, first), min(stop, last))
        return total

    def counts(self) -> CopyCounts:
        """The number of unsettled copies, by state. Cost: microseconds."""
        rows = self.view.counts()
        return CopyCounts(self.unseen + rows.available, rows.claimed, rows.waiting)

    @property
    def lag(self) -> int:
        """See `Settler`."""
        counts = self.counts()
        return counts.active + counts.waiting

    # receivers

    def add(self, receiver: Receiver) -> None:
        """Add a receiver; it is given copies from its first `want` on."""
        self.receivers.append(receiver)
        # Without receivers it was not told of copies that came back.
        self._may_have_more = True
        self.used_ms = self.now_ms()
        self._consumption.receiving[self] = None

    def left(self, receiver: Receiver) -> None:
        """See `Leases`. Copies on their way to it go back, as if they had not been claimed."""
        self.used_ms = self.now_ms()
        self.receivers.remove(receiver)
        if not self.receivers:
            self._consumption.receiving.pop(self, None)
        kept, self._given = self._given, []
        for whose, deliveries in kept:
            if whose is not receiver:
                self._given.append((whose, deliveries))
            else:
                self._give_back(deliveries)

    @property
    def is_wanted(self) -> bool:
        """Whether a receiver waits for copies."""
        return any(map(_wanted, self.receivers))

    def arrived(self, count: int, start: int, stop: int) -> None:
        """`count` copies were decided from `start` to `stop`. Copies looked at before a restart are not new."""
        self.counters.decided += count
        self.unseen += count if self.view.seen_until <= start else self._unseen_between(start, stop)
        self.wake()

    @property
    def follows(self) -> bool:
        """Whether it will soon look for the copies that are decided now."""
        return bool(self.receivers)

    def wake(self) -> None:
        """Copies came, or came back: give them out in the next turn if a receiver waits."""
        self._may_have_more = True
        if self.is_wanted:
            self.touch()

    def end(self, error: HeadgateError) -> None:
        """The view is no more, or its messages are damaged."""
        self._given.clear()
        receivers, self.receivers = self.receivers, []
        self._consumption.receiving.pop(self, None)
        for receiver in receivers:
            receiver.end(error)

    def waits(self, receiver: Receiver) -> bool:
        """Whether a receiver would be given copies at once if there were any."""
        return receiver.wanted > 0

    def end_waiting(self, error: HeadgateError) -> None:
        """Damage keeps further copies back: end the receivers that were given all copies before it.

        Called about once a second. A receiver that was given a copy since the last call is left until the next one, so
        that its copies reach it before its end does.
        """
        if not self._consumption.takes_more:
            return
        for receiver in [each for each in self.receivers if self.waits(each)]:
            if receiver.given_before == receiver.delivered_messages:
                self.left(receiver)
                receiver.end(error)
            receiver.given_before = receiver.delivered_messages

    # giving out

    def dispatch(self, now_ms: int) -> bool:
        """Claim copies for the receivers that wait; whether there may be more to give. Raises LogError."""
        may_have_more = self._claim(now_ms)
        if self.is_wanted and not may_have_more:
            self._has_run_out = True
            self._consumption.give(self)
        return may_have_more

    def _claim(self, now_ms: int) -> bool:
        wanted = sum(map(_wanted, self.receivers))
        if not (wanted and self._may_have_more):
            return False
        available = self._available(min(wanted, COPIES_A_TURN))
        copies = available.copies
        if not len(copies):
            self._may_have_more = self._search_was_empty(available)
            return self._may_have_more
        found, stop = self._read_available(copies, BYTES_A_TURN, fresh=available.fresh)
        if stop <= copies[-1]:
            # The rest has its turn later: it counts as not searched.
            available = available.below(stop)
        if self.policy.expires:
            found = self._without_outlived(found, now_ms)
        until_ms = now_ms + self.policy.settings.lock_ms
        claim = self.view.claim(found.copies, until_ms, covered=available.covered)
        self.unseen -= available.fresh
        self._share(found, claim, until_ms)
        self._may_have_more = not available.is_all or len(available.copies) < len(copies)
        return self._may_have_more and self.is_wanted

    def _without_outlived(self, found: ReadCopies, now_ms: int) -> ReadCopies:
        """The copies whose time to live is not over; gives up the others."""
        gone = outlived(found, self.policy.settings.default_time_to_live_ms, now_ms)
        if gone is None:
            return found
        self._give_up(found.copies[gone])
        return found.take(~gone)

    def outlive(self, stop: int) -> bool:
        """Give up some available copies below `stop`; whether there may be more. Raises LogError."""
        if not self._keeps_outlived:
            return self._settle_below(stop)
        available = self._available(COPIES_A_TURN)
        if not len(available.copies):
            return self._search_was_empty(available)
        available = available.below(stop)
        if not len(available.copies):
            return False
        self._give_up(available.copies)
        self.view.postpone([], 0, covered=available.covered)
        self.unseen -= available.fresh
        return len(available.copies) == COPIES_A_TURN

    def _settle_below(self, stop: int) -> bool:
        """Settle available copies below `stop` by their ranges, without finding each; whether there may be more."""
        runs = self.view.available(limit=COPIES_A_TURN)
        stop = min(stop, self.source.end)
        below = [(start, min(behind, stop), behind == start + 1) for start, behind in runs if start < stop]
        fresh = sum(self.source.count(start, behind) for start, behind, is_known in below if not is_known)
        count = fresh + sum(is_known for _, _, is_known in below)
        may_have_more = len(below) == COPIES_A_TURN
        if count or may_have_more:
            self.view.complete_ranges([(start, behind) for start, behind, _ in below])
            self.unseen -= fresh
            self.counters.outlived += count
        return may_have_more

    @property
    def _keeps_outlived(self) -> bool:
        return self.policy.settings.dead_letter_on_expiration and self.policy.dead_letters is not None

    def _give_up(self, copies: NDArray[np.int64]) -> None:
        """Dead-letter or settle available copies whose time to live is over."""
        self.counters.outlived += len(copies)
        if self._keeps_outlived:
            reason = "nobody received the copy in its lifetime"
            movement = Movement(TTL_EXPIRED, reason, subscription=self.policy.subscription)
            self._dead_letter_available(copies, movement)
        else:
            drop_copies(self.view, copies)

    def forward(self, target: str, movement: Movement, now_ms: int) -> bool:
        """Move available copies to a target, a bounded number; whether there may be more. Raises LogError."""
        available = self._available(COPIES_A_TURN)
        if not len(available.copies):
            return self._search_was_empty(available)
        claim = self.view.claim(available.copies, now_ms + self.policy.settings.lock_ms, covered=available.covered)
        self.unseen -= available.fresh
        self._move_claimed(claim.tokens, target, movement)
        return not available.is_all

    def _search_was_empty(self, available: _Available) -> bool:
        """Note empty ranges between copies that were looked at; whether there is more to search.

        The range at the end is not written down: each message that only other views get would cost a write.
        """
        holes = [(start, stop) for start, stop in available.covered if stop < self.view.seen_until]
        if holes:
            self.view.postpone((), 0, covered=holes)
        return not available.is_all

    def close_holes(self) -> None:
        """Note if all decided copies were looked at: messages whose rules only failed leave holes between them."""
        if not self.unseen:
            self.count_unseen()
            start, stop = self.view.next_copy, self.source.end
            if not self.unseen and start < stop:
                self.view.postpone((), 0, covered=[(start, stop)])

    def peek(self, from_copy: int, limit: int) -> tuple[list[ReadCopy], int]:
        """At most `limit` unsettled copies, at or above a copy; claimed ones are included.

        Also the copy up to which there are no others.
        """
        self.used_ms = self.now_ms()
        copies = self.view.unsettled(from_copy, limit)
        parts = [copies]
        left = limit
        for start, stop in self.view.available(max(from_copy, self.view.next_copy), limit=_RUNS_COUNTED):
            if left <= 0:
                break
            if stop > start + 1:
                parts.append(self.source.find(max(start, from_copy), stop, left).copies)
                left -= len(parts[-1])
        first = np.sort(np.concatenate(parts))[:limit]
        return self._peeked(first, is_all=len(first) < limit)

    def _peeked(self, copies: NDArray[np.int64], *, is_all: bool) -> tuple[list[ReadCopy], int]:
        """The first of some copies, read and with their attempts, and the copy up to which there are no others."""
        if not len(copies):
            return [], NO_COPY
        read = self._read(copies, BYTES_A_TURN)
        found = list(read)
        for each, attempts in zip(found, self.view.attempts_of(read.copies).tolist(), strict=True):
            each.attempts = attempts
        if found and found[-1].copy < copies[-1]:
            return found, found[-1].copy + 1
        return found, NO_COPY if is_all else int(copies[-1]) + 1

    def purge(self, then: Callable[[int | HeadgateError], None]) -> None:
        """Settle all current copies; `then` gets how many, behind the commit."""
        self.used_ms = self.now_ms()
        counts = self.counts()
        purged = counts.active + counts.locked + counts.waiting
        try:
            self.view.complete_ranges([(0, end)] if (end := self.source.end) else [])
        except LogError as error:
            then(error)
            return
        self.unseen = 0
        self._consumption.tell(then, purged)

    def delete(
        self, limit: int, stop: int, then: Callable[[int | HeadgateError], None], *, before_ms: int | None = None
    ) -> None:
        """Settle the first available copies below `stop`, at most `limit`; `then` gets how many.

        With `before_ms` only copies of messages that arrived before; for a moved copy, in the topic that it was moved
        from. Each copy is read for that.
        """
        self.used_ms = self.now_ms()
        try:
            with self._consumption.guarded():
                deleted = self._delete(limit, stop, before_ms)
        except LogError as error:
            then(error)
            return
        self._consumption.tell(then, deleted)

    def _delete(self, limit: int, stop: int, before_ms: int | None) -> int:
        deleted = after = 0
        while deleted < limit:
            available = self._available(min(limit - deleted, COPIES_A_TURN), after).below(min(stop, self.source.end))
            copies = available.copies
            if not len(copies):
                break
            after = int(copies[-1]) + 1
            if before_ms is not None:
                copies = self._arrived_before(copies, before_ms)
            drop_copies(self.view, copies)
            if before_ms is None:
                self.view.postpone([], 0, covered=available.covered)
            if self._order is not None:
                self._order.changed(copies)
            deleted += len(copies)
        self.count_unseen()
        self.counters.completed += deleted
        return deleted

    def _arrived_before(self, copies: NDArray[np.int64], before_ms: int) -> NDArray[np.int64]:
        found: list[int] = []
        while len(copies):
            read = self.source.read(copies, max_bytes=BYTES_A_TURN)
            if not read:
                break
            for each in read:
                origin = origin_of(each.message)
                if (each.timestamp_ms if origin is None else origin.arrived_ms) < before_ms:
                    found.append(each.copy)
            copies = copies[copies > read[-1].copy]
        return np.array(found, dtype=np.int64)

    def _available(self, limit: int, after: int = 0) -> _Available:
        """At most `limit` available copies, from copy `after` on."""
        parts: list[NDArray[np.int64]] = []
        known: list[int] = []
        covered: list[tuple[int, int]] = []
        fresh = 0
        is_all = False
        for start, stop in self.view.available(after, limit=limit + _HOLES_A_TURN):
            if limit <= 0:
                break
            is_all = stop == NO_COPY
            if stop == start + 1:
                known.append(start)
                limit -= 1
                continue
            if known:
                parts.append(np.array(known, dtype=np.int64))
                known = []
            found = self.source.find(start, stop, limit)
            parts.append(found.copies)
            limit -= len(found.copies)
            fresh += len(found.copies)
            if found.searched > start:
                covered.append((start, found.searched))
            if found.searched < stop:
                break
        if known or not parts:
            parts.append(np.array(known, dtype=np.int64))
        copies = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return _Available(copies, covered, fresh, is_all=is_all and limit > 0)

    def _share(self, found: ReadCopies, claim: Claim, until_ms: int) -> None:
        """Give each waiting receiver its part, in order; the one that waited longest comes first."""
        given = GivenCopies(found, claim.tokens, claim.attempts, until_ms)
        row, count = 0, len(given.attempts)
        while row < count:
            waiting = [receiver for receiver in self.receivers if receiver.wanted > 0]
            share = -(-(count - row) // len(waiting))
            for receiver in waiting:
                stop = min(row + min(receiver.wanted, share), count)
                if stop == row:
                    break
                self._give(receiver, given if stop - row == count else given.take(slice(row, stop)))
                row = stop
                # A receiver that got copies goes to the end of the line.
                self.receivers.remove(receiver)
                self.receivers.append(receiver)

    def _give(self, receiver: Receiver, given: GivenCopies) -> None:
        """Assign claimed copies to a receiver, which gets them behind the commit."""
        count = len(given.attempts)
        if receiver.settles_first:
            assert given.tokens is not None
            self.counters.completed += count
            self.view.complete(given.tokens)
            given.tokens = None
        receiver.wanted -= count
        self._lease(receiver, given)

    def _lapsed(self, receiver: Receiver, copies: NDArray[np.int64]) -> None:
        """See `Leases`: the receiver wants as many others."""
        super()._lapsed(receiver, copies)
        receiver.wanted += len(copies)

    def _hand_over(self, receiver: Receiver, given: GivenCopies) -> None:
        if len(given.attempts) and not receiver.is_closed:
            receiver.given(given, self._count_delivered(given))

    def deliver(self, *, check: bool) -> None:
        """See `ViewDispatcher`; receivers that want more are told that there are none."""
        super().deliver(check=check)
        has_run_out, self._has_run_out = self._has_run_out, False
        if has_run_out:
            for receiver in [receiver for receiver in self.receivers if receiver.wanted > 0]:
                receiver.run_out()

    def ended_locks(self) -> None:
        """Locks of sessions may have ended; for subclasses."""
