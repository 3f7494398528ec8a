"""The dispatcher of a view: it gives copies to receivers, and settles them.

In one turn of the loop it finds available copies, reads them, claims them, and gives them out behind the commit. Copies
are given in order; several receivers take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.arrays import total
from headgate.broker.delivery import (
    NO_PROPERTIES,
    Consumption,
    CopySource,
    GivenCopies,
    Movement,
    Properties,
    ReadCopies,
    ReadCopy,
    Settled,
    nobody_asks,
    noted,
    with_note,
)
from headgate.broker.topics.expiry import outlived
from headgate.broker.topics.receiver import DeadLetterReason, Receiver
from headgate.errors import HeadgateError, LogError, PreconditionFailedError
from headgate.ledger import NO_COPY, Claim, Expired, Tokens, View
from headgate.message import EncodedMessages
from headgate.topic import SubscriptionSettings, origin_of

COPIES_A_TURN = 2048
BYTES_A_TURN = 512 << 10
"""Limit: bytes that one view gives out in one turn; a single larger copy goes alone."""

_HOLES_A_TURN = 256
"""Limit: ranges without copies that one search passes."""

_RUNS_COUNTED = 1 << 20

MAX_DELIVERY_COUNT_EXCEEDED = "MaxDeliveryCountExceeded"
TTL_EXPIRED = "TTLExpiredException"


@dataclass(slots=True)
class Targets:
    """Targets of the copies that a view gives up, as the ledger names them; None: copies may not go there."""

    dead_letters: str | None = None
    deferred: str | None = None
    subscription: int = 0
    """The number of the subscription that the copies come from."""


@dataclass(slots=True)
class CopyCounts:
    """Unsettled copies of a view: `active` ones are available, `waiting` ones will be after their backoff."""

    active: int = 0
    locked: int = 0
    waiting: int = 0


@dataclass(slots=True)
class ViewCounters:
    """Counts of what happened to the copies of a view since the broker opened it.

    `outlived` counts copies that outlived their time to live. `dead_lettered` counts copies that receivers
    dead-lettered, copies with too many attempts, and outlived ones where these become dead letters. `expired` counts
    claims that ended.
    """

    decided: int = 0
    delivered: int = 0
    delivered_bytes: int = 0
    completed: int = 0
    released: int = 0
    dead_lettered: int = 0
    deferred: int = 0
    expired: int = 0
    outlived: int = 0


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


class Dispatcher:
    """Gives the copies of one view to its receivers; in the broker's thread only.

    `settings` and `targets` are called at each use, so a change counts at once. `name` is the view's name for users.
    """

    def __init__(
        self,
        name: str,
        view: View,
        source: CopySource,
        consumption: Consumption,
        *,
        settings: Callable[[], SubscriptionSettings],
        targets: Callable[[], Targets],
        now_ms: Callable[[], int],
        outlives: bool = False,
    ) -> None:
        """Copies that `outlives` are not given out after their lifetime."""
        self.name = name
        self.view = view
        self.source = source
        self.receivers: list[Receiver] = []
        self.counters = ViewCounters()
        self.is_queued = False
        self.unseen = 0
        """How many of its copies were never looked at."""
        self.used_ms = now_ms()
        """When it was last used: a receiver came or left, or copies were peeked at or settled."""
        self.settings = settings
        self._consumption = consumption
        self._targets = targets
        self._now_ms = now_ms
        self._outlives = outlives
        self._given: list[tuple[Receiver, GivenCopies]] = []
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

    # receivers

    def add(self, receiver: Receiver) -> None:
        """Add a receiver; it is given copies from its first `want` on."""
        self.receivers.append(receiver)
        # Without receivers it was not told of copies that came back.
        self._may_have_more = True
        self.used_ms = self._now_ms()
        self._consumption.receiving[self] = None

    def left(self, receiver: Receiver) -> None:
        """Remove a receiver. Copies on their way to it go back, as if they had not been claimed."""
        self.used_ms = self._now_ms()
        self.receivers.remove(receiver)
        if not self.receivers:
            self._consumption.receiving.pop(self, None)
        kept, self._given = self._given, []
        for whose, deliveries in kept:
            if whose is not receiver:
                self._given.append((whose, deliveries))
            elif not receiver.settles_first and self._consumption.trouble is None:
                self.release(deliveries.packed_tokens(), nobody_asks, counts=False, delay_ms=0)

    @property
    def is_wanted(self) -> bool:
        """Whether a receiver waits for copies."""
        return any(self.waits(receiver) for receiver in self.receivers)

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

    def touch(self) -> None:
        """A receiver wants copies: it is given some in the next turn, or told that there are none."""
        self._consumption.ready(self)

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
        wanted = sum([receiver.wanted for receiver in self.receivers])
        if not (wanted and self._may_have_more):
            return False
        settings = self.settings()
        available = self._available(min(wanted, COPIES_A_TURN))
        copies = available.copies
        if not len(copies):
            self._may_have_more = self._search_was_empty(available)
            return self._may_have_more
        found = self._read(copies)
        last = int(copies[-1])
        stop = int(found.copies[-1]) + 1 if len(found) else last + 1
        if stop <= last:
            # The rest has its turn later: it counts as not searched.
            available = available.below(stop)
        if len(found) < len(available.copies):
            # Retention deleted the messages of the others.
            gone = np.setdiff1d(available.copies, found.copies)
            self.view.complete_ranges([(copy, copy + 1) for copy in gone.tolist()])
        if self._outlives:
            found = self._without_outlived(found, now_ms)
        until_ms = now_ms + settings.lock_ms
        claim = self.view.claim(found.copies, until_ms, covered=available.covered)
        self.unseen -= available.fresh
        self._share(found, claim, until_ms)
        self._consumption.give(self)
        self._may_have_more = not available.is_all or len(available.copies) < len(copies)
        return self.is_wanted and self._may_have_more

    def _read(self, copies: NDArray[np.int64]) -> ReadCopies:
        """The first of some copies, as `CopySource.read` gives them, with the properties noted for them."""
        found = self.source.read(copies, max_bytes=BYTES_A_TURN)
        notes = self.view.notes
        if notes and any(copy in notes for copy in found.copies.tolist()):
            messages = [
                with_note(each.message, notes[each.copy]) if each.copy in notes else each.message for each in found
            ]
            return ReadCopies(found.copies, found.timestamps_ms, EncodedMessages.of(messages))
        return found

    def _without_outlived(self, found: ReadCopies, now_ms: int) -> ReadCopies:
        """The copies whose time to live is not over; gives up the others."""
        gone = outlived(found, self.settings().default_time_to_live_ms, now_ms)
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
        return self.settings().dead_letter_on_expiration and self._targets().dead_letters is not None

    def _give_up(self, copies: NDArray[np.int64]) -> None:
        """Dead-letter or settle available copies whose time to live is over."""
        targets = self._targets()
        self.counters.outlived += len(copies)
        if self._keeps_outlived:
            assert targets.dead_letters is not None
            self.counters.dead_lettered += len(copies)
            movement = Movement(
                TTL_EXPIRED, "nobody received the copy in its lifetime", subscription=targets.subscription
            )
            self._move_available(copies, targets.dead_letters, movement)
        else:
            self.view.complete_ranges([(copy, copy + 1) for copy in copies.tolist()])

    def _move_available(self, copies: NDArray[np.int64], target: str, movement: Movement) -> None:
        """Move available copies, with the properties noted for them."""
        notes, change = self.view.notes, movement.encode()
        own = [copy for copy in copies.tolist() if copy in notes] if notes else []
        for copy in own:
            self.view.move_available([copy], target, movement.behind(notes[copy]).encode())
        self.view.move_available(np.setdiff1d(copies, own) if own else copies, target, change)

    def _move_claimed(self, tokens: Tokens, target: str, movement: Movement) -> NDArray[np.bool_]:
        """Move claimed copies, with the properties noted for them; whether each claim still stood."""
        notes, change = self.view.notes, movement.encode()
        if not notes:
            return self.view.move(tokens, target, change)
        held = np.zeros(len(tokens), dtype=np.bool_)
        for row, copy in enumerate(tokens.copies.tolist()):
            one = Tokens(tokens.copies[row : row + 1], tokens.claims[row : row + 1])
            held[row] = self.view.move(one, target, movement.behind(notes[copy]).encode() if copy in notes else change)[
                0
            ]
        return held

    def forward(self, target: str, movement: Movement, now_ms: int) -> bool:
        """Move available copies to a target, a bounded number; whether there may be more. Raises LogError."""
        available = self._available(COPIES_A_TURN)
        if not len(available.copies):
            return self._search_was_empty(available)
        claim = self.view.claim(available.copies, now_ms + self.settings().lock_ms, covered=available.covered)
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
        self.used_ms = self._now_ms()
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
        read = self._read(copies)
        found = list(read)
        for each, attempts in zip(found, self.view.attempts_of(read.copies).tolist(), strict=True):
            each.attempts = attempts
        if found and found[-1].copy < copies[-1]:
            return found, found[-1].copy + 1
        return found, NO_COPY if is_all else int(copies[-1]) + 1

    def purge(self, then: Callable[[int | HeadgateError], None]) -> None:
        """Settle all current copies; `then` gets how many, behind the commit."""
        self.used_ms = self._now_ms()
        counts = self.counts()
        purged = counts.active + counts.locked + counts.waiting
        try:
            self.view.complete_ranges([(0, end)] if (end := self.source.end) else [])
        except LogError as error:
            then(error)
            return
        self.unseen = 0
        self._consumption.answer(lambda result: then(result if isinstance(result, HeadgateError) else purged), [])

    def delete(
        self, limit: int, stop: int, then: Callable[[int | HeadgateError], None], *, before_ms: int | None = None
    ) -> None:
        """Settle the first available copies below `stop`, at most `limit`; `then` gets how many.

        With `before_ms` only copies of messages that arrived before; for a moved copy, in the topic that it was moved
        from. Each copy is read for that.
        """
        self.used_ms = self._now_ms()
        try:
            with self._consumption.guarded():
                deleted = self._delete(limit, stop, before_ms)
        except LogError as error:
            then(error)
            return
        self._consumption.answer(lambda result: then(result if isinstance(result, HeadgateError) else deleted), [])

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
            self.view.complete_ranges([(copy, copy + 1) for copy in copies.tolist()])
            if before_ms is None:
                self.view.postpone([], 0, covered=available.covered)
            self._deleted(copies)
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

    def _deleted(self, copies: NDArray[np.int64]) -> None:
        """Available copies were deleted; for subclasses."""

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
        row, count = 0, len(given)
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
        count = len(given)
        if receiver.settles_first:
            assert given.tokens is not None
            self.counters.completed += count
            self.view.complete(given.tokens)
            given.tokens = None
        receiver.wanted -= count
        self._given.append((receiver, given))

    def deliver(self, *, check: bool) -> None:
        """The claims are on disk: give out the copies. `check`: the write took long, and claims may have ended."""
        given, self._given = self._given, []
        for receiver, deliveries in given:
            if check and deliveries.tokens is not None:
                deliveries = deliveries.take(self.view.holds(deliveries.tokens))
            count = len(deliveries)
            if count and not receiver.is_closed:
                size_bytes = total(deliveries.read.messages.lengths)
                self.counters.delivered += count
                self.counters.delivered_bytes += size_bytes
                receiver.given(deliveries, size_bytes)
        has_run_out, self._has_run_out = self._has_run_out, False
        if has_run_out:
            for receiver in [receiver for receiver in self.receivers if receiver.wanted > 0]:
                receiver.run_out()

    # settling

    def holds(self, tokens: Sequence[bytes]) -> list[bool]:
        """See `Receiver.holds`."""
        held: list[bool] = self.view.holds(Tokens.unpack(tokens)).tolist()
        return held

    def complete(self, tokens: Sequence[bytes], then: Settled) -> None:
        """See `Receiver.complete`."""

        def settle(given: Tokens) -> NDArray[np.bool_]:
            held = self.view.complete(given)
            self.counters.completed += int(np.count_nonzero(held))
            return held

        self._settle(tokens, then, settle)

    def release(
        self,
        tokens: Sequence[bytes],
        then: Settled,
        *,
        counts: bool,
        delay_ms: int | None,
        properties: Properties = NO_PROPERTIES,
    ) -> None:
        """See `Receiver.release`."""

        def settle(given: Tokens) -> NDArray[np.bool_]:
            self._keep_properties(given, properties)
            if not counts:
                held = self.view.release(given, counts=False, not_before_ms=self._not_before(delay_ms))
                self.counters.released += int(held.sum())
                return held
            attempts = self._attempts(given)
            held = np.zeros(len(given), dtype=np.bool_)
            for attempt in np.unique(attempts[attempts > 0]).tolist():
                own = attempts == attempt
                held[own] = self._give_back(given.take(own), attempt, delay_ms)
            return held

        self._settle(tokens, then, settle)
        self.wake()

    def _keep_properties(self, tokens: Tokens, properties: Properties) -> None:
        """Note properties for claimed copies, which they have when they are given out again."""
        if properties:
            for copy in tokens.copies[self.view.holds(tokens)].tolist():
                self.view.note(copy, noted(self.view.notes.get(copy), properties))

    def _attempts(self, tokens: Tokens) -> NDArray[np.int64]:
        """`(tokens,)`: how often each copy was given out; 0 where its claim stands no more."""
        return self.view.attempts(tokens)

    def _give_back(self, tokens: Tokens, attempt: int, delay_ms: int | None) -> NDArray[np.bool_]:
        """Release copies that have the same number of attempts, or dead-letter them."""
        settings = self.settings()
        targets = self._targets()
        target = targets.dead_letters
        if attempt >= settings.max_delivery_count and target is not None:
            held = self._move_claimed(tokens, target, _too_many(settings.max_delivery_count, targets.subscription))
            self.counters.dead_lettered += int(held.sum())
            return held
        delay_ms = _backoff_ms(settings, attempt) if delay_ms is None else delay_ms
        held = self.view.release(tokens, counts=True, not_before_ms=self._not_before(delay_ms))
        self.counters.released += int(held.sum())
        return held

    def _not_before(self, delay_ms: int | None) -> int:
        return self._now_ms() + delay_ms if delay_ms else 0

    def dead_letter(self, tokens: Sequence[bytes], then: Settled, why: DeadLetterReason) -> None:
        """See `Receiver.dead_letter`."""
        targets = self._targets()
        movement = Movement(why.reason, why.description, dict(why.properties), targets.subscription)
        refusal = "dead letters have no dead letters of their own"

        def count(moved: int) -> None:
            self.counters.dead_lettered += moved

        self._move(tokens, then, targets.dead_letters, movement, refusal, count)

    def defer(self, tokens: Sequence[bytes], then: Settled, properties: Properties) -> None:
        """See `Receiver.defer`."""

        def count(moved: int) -> None:
            self.counters.deferred += moved

        movement = Movement(properties=dict(properties))
        self._move(tokens, then, self._targets().deferred, movement, "what is here cannot be deferred", count)

    def _move(
        self,
        tokens: Sequence[bytes],
        then: Settled,
        target: str | None,
        movement: Movement,
        refusal: str,
        count: Callable[[int], None],
    ) -> None:
        if target is None:
            then(PreconditionFailedError(refusal, subject=self.name))
            return

        def settle(given: Tokens) -> NDArray[np.bool_]:
            held = self._move_claimed(given, target, movement)
            count(int(held.sum()))
            return held

        self._settle(tokens, then, settle)

    def renew(self, tokens: Sequence[bytes], then: Settled) -> int:
        """See `Receiver.renew`."""
        until_ms = self._now_ms() + self.settings().lock_ms
        self._settle(tokens, then, lambda given: self.view.renew(given, until_ms))
        return until_ms

    def _settle(self, tokens: Sequence[bytes], then: Settled, settle: Callable[[Tokens], NDArray[np.bool_]]) -> None:
        self.used_ms = self._now_ms()
        try:
            held = settle(Tokens.unpack(tokens))
        except (LogError, ValueError) as error:
            reason = error if isinstance(error, LogError) else PreconditionFailedError(str(error), subject=self.name)
            then(reason)
            return
        self._consumption.answer(then, held.tolist())

    def ended_locks(self) -> None:
        """Locks of sessions may have ended; for subclasses."""

    def expired(self, expired: Expired) -> None:
        """Claims ended: copies are available again, or become dead letters after too many attempts."""
        settings = self.settings()
        targets = self._targets()
        target = targets.dead_letters
        self.counters.expired += len(expired.copies)
        if target is not None and self._consumption.trouble is None:
            over = expired.copies[expired.attempts >= settings.max_delivery_count]
            if len(over):
                self.counters.dead_lettered += len(over)
                self._move_available(over, target, _too_many(settings.max_delivery_count, targets.subscription))


def _backoff_ms(settings: SubscriptionSettings, attempt: int) -> int:
    """How long a copy waits after a failed attempt."""
    waits = settings.backoff_ms
    return waits[min(attempt, len(waits)) - 1] if waits else 0


def _too_many(count: int, subscription: int) -> Movement:
    reason = f"the copy was given out {count} times, and not completed"
    return Movement(MAX_DELIVERY_COUNT_EXCEEDED, reason, subscription=subscription)
