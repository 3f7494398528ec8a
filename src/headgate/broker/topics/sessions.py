"""Copies given out by session: one receiver has a session, and gets the copies of that session only, in order.

    session_receiver(None) ──► waits ──► next session with copies ──► locked ──► commit ──► accepted, deliveries
    session_receiver("x")  ───────────────────────────────────────────┘

The copies of a view are noted in the ledger when they are decided, with or without receivers, so they are known by
session before one is taken.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from headgate.broker.delivery import Consumption, GivenCopies, Movement, ReadCopy, Settled, drop_copies, nobody_asks
from headgate.broker.topics.dispatcher import BYTES_A_TURN, COPIES_A_TURN, Dispatcher
from headgate.broker.topics.policy import SubscriptionPolicy
from headgate.broker.topics.receiver import Receiver, ReceiverCalls
from headgate.broker.topics.session_index import SessionIndex
from headgate.broker.topics.subscription_source import SubscriptionSource
from headgate.errors import HeadgateError, LogError, PreconditionFailedError, SessionLockedError, SessionLockLostError
from headgate.ledger import View
from headgate.topic.decisions import MAX_SESSION_ID_BYTES

NO_SESSION = "Session id is null"

T = TypeVar("T")
Found = Callable[[T | HeadgateError], None]
"""Called once, in a later turn, with the result or the error."""


class SessionReceiver(Receiver):
    """A receiver of one session, from `Receivers.open_session` to `close`, which gives the session back.

    `accepted` is called once with the receiver, when it has its session: behind the commit of the lock, and before
    any delivery. `ended` is also called when the lock ends: SessionLockLostError.
    """

    __slots__ = ("_accepted", "_sessions", "lock", "locked_until_ms", "session")

    def __init__(
        self, dispatcher: SessionDispatcher, link: ReceiverCalls, accepted: Callable[[SessionReceiver], None]
    ) -> None:
        super().__init__(dispatcher, link)
        self._sessions = dispatcher
        self._accepted = accepted
        self.session: str | None = None
        """The id of its session; None until it has one."""
        self.lock = 0
        self.locked_until_ms = 0

    def renew_lock(self, then: Settled = nobody_asks) -> int:
        """Renew the lock for a lock time from now; gives its end. `then` gets one bool: whether it still stood."""
        return self._sessions.renew_lock(self, then)

    def state(self) -> bytes | None:
        """The state of its session; None without one."""
        return None if self.session is None else self._sessions.view.session_state(self.session)

    def set_state(self, state: bytes | None, then: Settled = nobody_asks) -> None:
        """Set the state of its session; None removes it. `then` gets one bool: whether the lock still stood."""
        self._sessions.set_state(self, state, then)

    # the dispatcher's side

    def locked(self, session: str, lock: int, until_ms: int) -> None:
        """Take over a session."""
        self.session, self.lock, self.locked_until_ms = session, lock, until_ms

    def accept(self, result: list[bool] | HeadgateError) -> None:
        """The lock is on disk, or could not be written."""
        if isinstance(result, HeadgateError):
            # The lock in memory ends by its time.
            self._sessions.refused(self, result)
        elif not self.is_closed:
            self._accepted(self)


class SessionDispatcher(Dispatcher):
    """Gives the copies of one view by session."""

    def __init__(
        self,
        name: str,
        view: View,
        source: SubscriptionSource,
        consumption: Consumption,
        policy: SubscriptionPolicy,
        now_ms: Callable[[], int],
    ) -> None:
        super().__init__(name, view, source, consumption, policy, now_ms)
        self._copies = source
        self._order = self._index = SessionIndex(view)
        self._indexed = 0
        """Copies below this that the ledger knows are in the index."""
        self._searched = 0
        """Copies below this are known to the ledger, or do not exist."""
        self._asked: list[Callable[[HeadgateError | None], None]] = []

    # receivers

    def lock(self, receiver: SessionReceiver, session: str) -> None:
        """Give a session to a receiver.

        Raises SessionLockedError if another receiver has it, PreconditionFailedError for an id that is too long,
        LogError.
        """
        if len(session.encode("utf-8", "surrogateescape")) > MAX_SESSION_ID_BYTES:
            reason = f"a session id of more than {MAX_SESSION_ID_BYTES} bytes"
            raise PreconditionFailedError(reason, subject=self.name)
        until_ms = self.now_ms() + self.policy.settings.lock_ms
        lock = self.view.lock_session(session, until_ms)
        if lock is None:
            raise SessionLockedError(f"session {session!r} is with another receiver", subject=self.name)
        self._locked(receiver, session, lock, until_ms)

    def _locked(self, receiver: SessionReceiver, session: str, lock: int, until_ms: int) -> None:
        self._index.hold(session)
        receiver.locked(session, lock, until_ms)
        self._consumption.answer(receiver.accept, [])

    @property
    def is_wanted(self) -> bool:
        """See `ViewDispatcher`."""
        return any(self.waits(receiver) for receiver in self.receivers)

    def waits(self, receiver: Receiver) -> bool:
        """Whether a receiver waits for copies, or for a session."""
        return receiver.wanted > 0 or (isinstance(receiver, SessionReceiver) and receiver.session is None)

    @property
    def follows(self) -> bool:
        """Copies are noted when they are decided."""
        return True

    def wake(self) -> None:
        """Note copies in the next turn, and give them out."""
        self.touch()

    def left(self, receiver: Receiver) -> None:
        """A receiver gives back its session, and its copies of it as if they had not been claimed."""
        super().left(receiver)
        if isinstance(receiver, SessionReceiver) and receiver.session is not None:
            session = receiver.session
            # While the ledger takes nothing, the lock ends by its time.
            with contextlib.suppress(LogError):
                if self.view.holds_session(session, receiver.lock):
                    tokens = self.view.session_claims(session)
                    self.view.release(tokens, counts=False)
                    self.view.unlock_session(session, receiver.lock)
                    self._index.changed(tokens.copies)
                    self._index.offer(session)
            self.touch()

    def refused(self, receiver: SessionReceiver, error: HeadgateError) -> None:
        """The lock of a receiver could not be written down."""
        if not receiver.is_closed:
            self.receivers.remove(receiver)
            receiver.end(error)

    def ended_locks(self) -> None:
        """End receivers whose locks have ended, and offer their sessions."""
        for receiver in list(self.receivers):
            if not isinstance(receiver, SessionReceiver) or receiver.session is None:
                continue
            if not self.view.holds_session(receiver.session, receiver.lock):
                self.receivers.remove(receiver)
                reason = f"the lock of session {receiver.session!r} has ended"
                receiver.end(SessionLockLostError(reason, subject=self.name))
        for session in self._index.held:
            if not self.view.is_locked(session):
                self._index.offer(session)
        self.wake()

    def renew_lock(self, receiver: SessionReceiver, then: Settled) -> int:
        """See `SessionReceiver.renew_lock`."""
        until_ms = self.now_ms() + self.policy.settings.lock_ms

        def renew(session: str) -> bool:
            held = self.view.renew_session(session, receiver.lock, until_ms)
            if held:
                receiver.locked_until_ms = until_ms
            return held

        self._in_session(receiver, then, renew)
        return until_ms

    def set_state(self, receiver: SessionReceiver, state: bytes | None, then: Settled) -> None:
        """See `SessionReceiver.set_state`."""
        now_ms = self.now_ms()
        self._in_session(
            receiver, then, lambda session: self.view.set_session_state(session, receiver.lock, state, now_ms)
        )

    def _in_session(self, receiver: SessionReceiver, then: Settled, do: Callable[[str], bool]) -> None:
        self.used_ms = self.now_ms()
        try:
            held = receiver.session is not None and do(receiver.session)
        except LogError as error:
            then(error)
            return
        self._consumption.answer(then, [held])

    # looking

    def sessions(self, then: Found[list[str]], *, set_after_ms: int | None) -> None:
        """See `Browser.sessions`."""

        def find() -> list[str]:
            with_state = {
                name
                for name, held in self.view.sessions().items()
                if held.state is not None and (set_after_ms is None or held.set_ms > set_after_ms)
            }
            return sorted(with_state if set_after_ms is not None else with_state | self._index.sessions())

        self._ask(find, then)

    def peek_session(self, session: str, from_copy: int, limit: int, then: Found[tuple[list[ReadCopy], int]]) -> None:
        """As `peek`, of one session; `then` is called once all decided copies are indexed by session."""

        def find() -> tuple[list[ReadCopy], int]:
            copies = self._index.unsettled(session)
            first = copies[copies >= from_copy][:limit]
            return self._peeked(first, is_all=len(first) < limit)

        self._ask(find, then)

    def _ask(self, find: Callable[[], T], then: Found[T]) -> None:
        """Answer a request in the turn in which the sessions of all decided copies are known."""
        self.used_ms = self.now_ms()

        def answer(error: HeadgateError | None) -> None:
            found: T | HeadgateError
            try:
                found = find() if error is None else error
            except HeadgateError as failure:
                found = failure
            then(found)

        self._asked.append(answer)
        self.touch()

    def _answer(self, error: HeadgateError | None) -> None:
        asked, self._asked = self._asked, []
        for answer in asked:
            answer(error)

    def end(self, error: HeadgateError) -> None:
        """The view is no more, or its messages are damaged."""
        super().end(error)
        self._answer(error)

    # giving out

    def _claim(self, now_ms: int) -> bool:
        if self.policy.forwards:
            self._answer(None)
            return False
        may_have_more = self._index_known() or self._note_decided()
        if not may_have_more:
            self._answer(None)
        self._accept(now_ms)
        for receiver in list(self.receivers):
            if isinstance(receiver, SessionReceiver) and receiver.session is not None and receiver.wanted > 0:
                may_have_more |= self._give_next(receiver, receiver.session, now_ms)
        return may_have_more

    def _index_known(self) -> bool:
        """Index some copies that the ledger knew when it was opened; whether there are more."""
        stop = min(self.view.next_copy, self.source.end)
        if self._indexed >= stop:
            return False
        known = self.view.unsettled(self._indexed, COPIES_A_TURN)
        known = known[known < stop]
        if not len(known):
            self._indexed = self._searched = stop
            return False
        copies, sessions, self._indexed = self._with_sessions(known)
        self._index.add(copies, [session or "" for session in sessions])
        return True

    def _note_decided(self) -> bool:
        """Note some decided copies in the ledger; whether there are more."""
        start, end = max(self.view.next_copy, self._searched), self.source.end
        if start >= end:
            return False
        found = self.source.find(start, end, COPIES_A_TURN)
        fresh, searched = found.copies[self.view.unseen(found.copies)], found.searched
        if len(fresh):
            copies, sessions, stop = self._with_sessions(fresh)
            searched = searched if stop > int(fresh[-1]) else stop
            self.unseen -= int(fresh.searchsorted(stop))
            has_session = np.array([session is not None for session in sessions], dtype=np.bool_)
            self._refuse(copies[~has_session])
            first = self.view.next_copy
            self.view.postpone(copies[has_session], 0, covered=[(first, searched)] if first < searched else [])
            self._index.add(copies[has_session], [session for session in sessions if session is not None])
        self._indexed = self._searched = searched
        has_more = searched < end
        self.unseen = max(self.unseen, 0) if has_more else 0
        return has_more

    def _with_sessions(self, copies: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[str | None], int]:
        """The first of some copies with their sessions, and the copy behind them; settles deleted ones."""
        deleted, sessions = self._copies.session_ids(copies)
        drop_copies(self.view, copies[:deleted])
        end = deleted + len(sessions)
        stop = int(copies[end]) if end < len(copies) else int(copies[-1]) + 1
        return copies[deleted:end], sessions, stop

    def _refuse(self, copies: NDArray[np.int64]) -> None:
        """Copies without a session become dead letters."""
        if len(copies) and self.policy.dead_letters is not None:
            why = "the subscription gives copies out by session, and the copy has no session id of at most 512 bytes"
            movement = Movement(NO_SESSION, why, subscription=self.policy.subscription)
            self._dead_letter_available(copies, movement)

    def _accept(self, now_ms: int) -> None:
        """Give sessions to receivers that wait for any session, in order of their coming."""
        until_ms = now_ms + self.policy.settings.lock_ms
        for receiver in list(self.receivers):
            if not isinstance(receiver, SessionReceiver) or receiver.session is not None:
                continue
            lock = session = None
            while lock is None:
                session = self._index.next_session()
                if session is None:
                    return
                # A session that an earlier process locked is offered when its lock ends.
                lock = self.view.lock_session(session, until_ms)
            assert session is not None
            self._locked(receiver, session, lock, until_ms)

    def _give_next(self, receiver: SessionReceiver, session: str, now_ms: int) -> bool:
        """Claim the next copies of a session for its receiver; whether there may be more for it."""
        copies = self._index.take(session, min(receiver.wanted, COPIES_A_TURN))
        if not len(copies):
            return False
        found, stop = self._read_available(copies, BYTES_A_TURN)
        self._index.put_back(copies[copies >= stop])
        taken = copies[copies < stop]
        found = self._without_outlived(found, now_ms)
        if len(found):
            until_ms = receiver.locked_until_ms
            claim = self.view.claim(found.copies, until_ms, session=session)
            self._give(receiver, GivenCopies(found, claim.tokens, claim.attempts, until_ms))
        self._index.changed(taken)
        return receiver.wanted > 0

    def purge(self, then: Callable[[int | HeadgateError], None]) -> None:
        """Settle all current copies; `then` gets how many, behind the commit."""
        super().purge(then)
        self._index.all_changed()
