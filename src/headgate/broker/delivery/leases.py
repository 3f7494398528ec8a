"""Leases on the copies of one view: how a claimed copy is given, and how it ends.

find and claim: subclasses ──► lease ──► commit ──► given ──┬─► complete
                                                           ├─► release, or its time ends ──► available again
                                                           └─► after the last attempt, or by dead_letter ──► moved
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from headgate.arrays import total
from headgate.broker.delivery.consumption import Consumption, Settled, ViewDispatcher, nobody_asks
from headgate.broker.delivery.copies import GivenCopies, ReadCopies
from headgate.broker.delivery.moves import Movement, with_note
from headgate.broker.delivery.sources import CopySource
from headgate.broker.observer import message_parts
from headgate.errors import LogError, PreconditionFailedError
from headgate.ledger import Expired, Tokens, View
from headgate.message import EncodedMessages

Receiver = TypeVar("Receiver")


class Policy(Protocol):
    """How the copies of a view are delivered; read at each use, so that a change counts at once."""

    @property
    def max_attempts(self) -> int:
        """After this many failed attempts a copy becomes a dead letter."""

    @property
    def dead_letters(self) -> str | None:
        """The target of dead letters, as the ledger names it; None: no copy becomes one."""

    @property
    def exhausted(self) -> Movement | None:
        """The change of a copy that becomes a dead letter after its last attempt; None: none."""

    def backoff_ms(self, attempt: int) -> int:
        """How long a copy waits after a failed attempt, if nobody says otherwise."""


class Order(Protocol):
    """The order in which copies are given out, where it is another one than theirs: by session, by message group."""

    def changed(self, copies: NDArray[np.int64]) -> None:
        """Copies that receivers had may have been settled or released."""


@dataclass(slots=True)
class LeaseCounters:
    """Counters of the copies of a view, since the broker opened it."""

    delivered: int = 0
    delivered_bytes: int = 0
    completed: int = 0
    dead_lettered: int = 0
    expired: int = 0
    """Claims that ended by their time."""


class Leases(ViewDispatcher, Generic[Receiver]):
    """The claimed copies of one view, each from its claim to its end; in the broker's thread only.

    `name` is that of the view, for users; `order` follows what becomes of claimed copies.
    """

    policy: Policy
    counters: LeaseCounters

    def __init__(
        self, name: str, view: View, source: CopySource, consumption: Consumption, now_ms: Callable[[], int]
    ) -> None:
        self.name = name
        self.view = view
        self.source = source
        self.is_queued = False
        self.used_ms = now_ms()
        """When it was last used: a receiver came or left, or copies were peeked at or settled."""
        self.now_ms = now_ms
        self._order: Order | None = None
        self._consumption = consumption
        self._given: list[tuple[Receiver, GivenCopies]] = []
        """Claimed copies that wait for the commit."""

    # reading

    def _read(self, copies: NDArray[np.int64], max_bytes: int) -> ReadCopies:
        """The first of some copies, as `CopySource.read` gives them, with the properties noted for them."""
        found = self.source.read(copies, max_bytes=max_bytes)
        notes = self.view.notes
        if notes and any(copy in notes for copy in found.copies.tolist()):
            messages = [
                with_note(each.message, notes[each.copy]) if each.copy in notes else each.message for each in found
            ]
            return ReadCopies(found.copies, found.timestamps_ms, EncodedMessages.of(messages))
        return found

    def _read_available(self, copies: NDArray[np.int64], max_bytes: int, *, fresh: int = 0) -> tuple[ReadCopies, int]:
        """The first of some available copies, `fresh` of which are new, and the copy behind them.

        Copies of deleted messages are settled; copies without attempts left become dead letters.
        """
        are_known = fresh < len(copies)
        found = self._read(copies, max_bytes)
        count = len(found.copies)
        last = int(found.copies[-1] if count else copies[-1])
        if last < copies[-1]:
            copies = copies[copies <= last]
        if count < len(copies):
            # Retention deleted the messages of the others.
            drop_copies(self.view, np.setdiff1d(copies, found.copies))
        return self._not_over(found) if are_known else found, last + 1

    def _not_over(self, found: ReadCopies) -> ReadCopies:
        """The copies with attempts left; the others become dead letters.

        Such others exist where claims ended while nothing could be written, or where fewer attempts are allowed now.
        """
        policy = self.policy
        over = self.view.attempts_of(found.copies) >= policy.max_attempts
        if policy.dead_letters is None or not over.any():
            return found
        self._dead_letter_available(found.copies[over], policy.exhausted)
        return found.take(~over)

    # giving

    def touch(self) -> None:
        """A receiver wants copies: it is given some in the next turn, or told that there are none."""
        self._consumption.ready(self)

    @abstractmethod
    def left(self, receiver: Receiver) -> None:
        """A receiver takes no more."""

    def _lease(self, receiver: Receiver, given: GivenCopies) -> None:
        """Give claimed copies to a receiver behind the commit."""
        self._given.append((receiver, given))
        self._consumption.give(self)

    def deliver(self, *, check: bool) -> None:
        """See `ViewDispatcher`."""
        given, self._given = self._given, []
        for receiver, part in given:
            if check and part.tokens is not None:
                held = self.view.holds(part.tokens)
                if not held.all():
                    self._lapsed(receiver, part.read.copies[~held])
                    part = part.take(held)
            self._hand_over(receiver, part)

    def _lapsed(self, receiver: Receiver, copies: NDArray[np.int64]) -> None:
        """Claims ended before they were written down: nobody was given these copies, which is no attempt."""
        self.view.uncount(copies)
        self._consumption.touch()
        self.wake()

    def _give_back(self, given: GivenCopies) -> None:
        """Release claimed copies that did not get to their receiver, as if they had not been claimed."""
        if given.tokens is not None and self._consumption.trouble is None:
            self.view.release(given.tokens, counts=False)
            if self._order is not None:
                self._order.changed(given.tokens.copies)
            self._consumption.touch()
            self.wake()

    @abstractmethod
    def _hand_over(self, receiver: Receiver, given: GivenCopies) -> None:
        """The claims of some copies are on disk: give them to their receiver if it is still there."""

    def _count_delivered(self, given: GivenCopies) -> int:
        """Count copies that are given now; gives the bytes of their messages."""
        size_bytes = total(given.read.messages.lengths)
        self.counters.delivered += len(given.attempts)
        self.counters.delivered_bytes += size_bytes
        if self._consumption.delivered is not None:
            self._consumption.delivered(self.name, len(given.attempts), message_parts(given.read.messages))
        return size_bytes

    # settling

    def complete(self, tokens: Sequence[bytes], then: Settled = nobody_asks) -> None:
        """Settle copies: they do not come back. `then` as for `change`."""

        def settle(given: Tokens) -> NDArray[np.bool_]:
            held = self.view.complete(given)
            self.counters.completed += int(np.count_nonzero(held))
            return held

        self.change(tokens, then, settle)

    def change(self, tokens: Sequence[bytes], then: Settled, change: Callable[[Tokens], NDArray[np.bool_]]) -> None:
        """Change claimed copies; `change` gives for each whether its claim still stood.

        `then` gets that behind the commit, or, if nothing was changed, the error: LogError, PreconditionFailedError.
        """
        self.used_ms = self.now_ms()
        try:
            given = Tokens.unpack(tokens)
            held = change(given)
        except (LogError, ValueError) as error:
            reason = error if isinstance(error, LogError) else PreconditionFailedError(str(error), subject=self.name)
            then(reason)
            return
        if self._order is not None:
            self._order.changed(given.copies)
        self._consumption.answer(then, held.tolist())

    def _attempts(self, tokens: Tokens) -> NDArray[np.int64]:
        """`(tokens,)`: how often each copy was given out; 0 where its claim stands no more."""
        return self.view.attempts(tokens)

    def _fail(self, tokens: Tokens, delay_ms: int | None) -> NDArray[np.bool_]:
        """Release copies that nobody consumed, or move them to the dead letters after their last attempt.

        They are available after `delay_ms`; None: after their backoff.
        """
        policy, attempts = self.policy, self._attempts(tokens)
        held = np.zeros(len(tokens), dtype=np.bool_)
        for attempt in np.unique(attempts[attempts > 0]).tolist():
            own = attempts == attempt
            if attempt >= policy.max_attempts and policy.dead_letters is not None:
                held[own] = self.dead_letter_held(tokens.take(own), policy.exhausted)
            else:
                wait_ms = policy.backoff_ms(attempt) if delay_ms is None else delay_ms
                not_before_ms = self._not_before(wait_ms)
                held[own] = self.view.release(tokens.take(own), counts=True, not_before_ms=not_before_ms)
        return held

    def _not_before(self, delay_ms: int | None) -> int:
        return self.now_ms() + delay_ms if delay_ms else 0

    # dead letters and other moves

    def dead_letter_held(self, tokens: Tokens, movement: Movement | None) -> NDArray[np.bool_]:
        """Turn claimed copies into dead letters; whether each claim still stood. Raises LogError."""
        target = self.policy.dead_letters
        assert target is not None
        held = self._move_claimed(tokens, target, movement)
        self.counters.dead_lettered += int(np.count_nonzero(held))
        return held

    def _dead_letter_available(self, copies: NDArray[np.int64], movement: Movement | None) -> None:
        """Turn available copies into dead letters. Raises LogError."""
        target = self.policy.dead_letters
        assert target is not None
        self._move_available(copies, target, movement)
        self.counters.dead_lettered += len(copies)

    def _move_available(self, copies: NDArray[np.int64], target: str, movement: Movement | None) -> None:
        """Move available copies, with the properties noted for them."""
        notes = self.view.notes
        own = [copy for copy in copies.tolist() if copy in notes] if notes else []
        for copy in own:
            self.view.move_available([copy], target, _change_of(movement, notes[copy]))
        self.view.move_available(np.setdiff1d(copies, own) if own else copies, target, _change_of(movement))

    def _move_claimed(self, tokens: Tokens, target: str, movement: Movement | None) -> NDArray[np.bool_]:
        """Move claimed copies, with the properties noted for them; whether each claim still stood."""
        notes = self.view.notes
        if not notes:
            return self.view.move(tokens, target, _change_of(movement))
        held = np.zeros(len(tokens), dtype=np.bool_)
        for row, copy in enumerate(tokens.copies.tolist()):
            one = Tokens(tokens.copies[row : row + 1], tokens.claims[row : row + 1])
            held[row] = self.view.move(one, target, _change_of(movement, notes.get(copy)))[0]
        return held

    # time

    def expired(self, expired: Expired) -> None:
        """See `ViewDispatcher`: copies are available again, or become dead letters after their last attempt."""
        policy = self.policy
        self.counters.expired += len(expired.copies)
        if policy.dead_letters is not None and self._consumption.trouble is None:
            over = expired.copies[expired.attempts >= policy.max_attempts]
            for _, waiting in self._given:
                over = np.setdiff1d(over, waiting.read.copies)
            if len(over):
                self._dead_letter_available(over, policy.exhausted)
        if self._order is not None:
            self._order.changed(expired.copies)


def drop_copies(view: View, copies: NDArray[np.int64]) -> None:
    """Settle available copies. Raises LogError."""
    if len(copies):
        view.complete_ranges([(copy, copy + 1) for copy in copies.tolist()])


def _change_of(movement: Movement | None, note: bytes | None = None) -> bytes:
    """The change that a move keeps, as bytes: the movement with the properties of a note."""
    if movement is None:
        return b""
    return (movement if note is None else movement.behind(note)).encode()
