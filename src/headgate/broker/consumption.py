"""The ledger of one stream at work: what a turn changes is written down with one message, and only then told.

    calls of the turn ──► ledger in memory ──► commit ──► answers, deliveries

A commit that fails tells nobody anything: answers get its error, deliveries wait for the next one that succeeds. One
that waits for the device is made by a worker: what is called meanwhile is for the next one.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from headgate.broker.indexing import RunInWorker
from headgate.errors import HeadgateError, LogError
from headgate.ledger import Expired, Ledger, LedgerWrite, View

logger = logging.getLogger("headgate.broker")

Settled = Callable[[list[bool] | HeadgateError], None]
"""Called once, in the broker's thread: for each token whether its claim still stood, or why nothing was settled."""


class ViewDispatcher(Protocol):
    """Who gives out the copies of one view: of a subscription, of a small stream, or of a consumer group."""

    is_queued: bool
    """Kept by `Consumption.ready`."""

    @property
    def view(self) -> View:
        """Whose copies these are."""

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for copies."""

    def wake(self) -> None:
        """There may be more copies than before."""

    def dispatch(self, now_ms: int) -> bool:
        """Find and claim a bounded amount; whether it is to be asked again. Raises HeadgateError for damage."""

    def deliver(self, *, check: bool) -> None:
        """The claims are on disk: give out what was claimed. `check`: that took long, and claims may have ended."""

    def expired(self, expired: Expired) -> None:
        """Claims ended by their time."""

    def ended_locks(self) -> None:
        """Something was due: locks of sessions may have ended, and what waited may be available."""

    def end(self, error: HeadgateError) -> None:
        """The view is no more, or its messages are damaged."""


class Consumption:
    """An open ledger with the dispatchers of its views; `touch` asks for a turn. In the broker's thread only."""

    def __init__(
        self,
        ledger: Ledger,
        touch: Callable[[], None],
        guarded: Callable[[], AbstractContextManager[None]],
        run_in_worker: RunInWorker | None,
    ) -> None:
        """`guarded` is for what reads the files of messages; see `BrokerStream.guarded`. Commits are made by
        `run_in_worker` if it is given.
        """
        self.ledger = ledger
        self.touch = touch
        self.guarded = guarded
        self.trouble: LogError | None = None
        """Why the last commit failed; None where it did not."""
        self._stuck: dict[ViewDispatcher, LogError] = {}
        """Dispatchers whose next copy cannot be read."""
        self.receiving: dict[ViewDispatcher, None] = {}
        """The dispatchers that have receivers: few of thousands, and asked for in every turn."""
        self._dispatchers: dict[int, ViewDispatcher] = {}
        self._ready: deque[ViewDispatcher] = deque()
        self._given: list[ViewDispatcher] = []
        """Those with deliveries that wait for the commit."""
        self._answers: list[tuple[Settled, list[bool]]] = []
        self._run_in_worker = run_in_worker
        self._commit: _Commit | None = None
        """What a worker was given."""

    def add(self, dispatcher: ViewDispatcher) -> None:
        """A view gets a dispatcher."""
        self._dispatchers[dispatcher.view.number] = dispatcher

    def remove(self, view: View) -> None:
        """A view is dropped with all that it had."""
        dispatcher = self._dispatchers.pop(view.number, None)
        if dispatcher is not None:
            self._stuck.pop(dispatcher, None)

    def ready(self, dispatcher: ViewDispatcher) -> None:
        """A dispatcher may have something to give out: it is asked in the next turn."""
        if not dispatcher.is_queued:
            dispatcher.is_queued = True
            self._ready.append(dispatcher)
            self.touch()

    def give(self, dispatcher: ViewDispatcher) -> None:
        """A dispatcher claimed copies: they are delivered behind the commit."""
        self._given.append(dispatcher)

    def answer(self, then: Settled, held: list[bool]) -> None:
        """Call `then` behind the commit."""
        self._answers.append((then, held))
        self.touch()

    @property
    def stuck_by(self) -> LogError | None:
        """Why the next copy of some view cannot be read; None where each can, as far as somebody wanted it."""
        return next(iter(self._stuck.values()), None)

    @property
    def is_behind(self) -> bool:
        """Whether something waits to be written down, or told."""
        return self._commit is not None or self.ledger.has_changes or bool(self._answers)

    @property
    def takes_more(self) -> bool:
        """Whether what is changed now is written down with the end of this turn."""
        return self.trouble is None and self._commit is None

    @property
    def is_awaited(self) -> bool:
        """Whether a receiver waits for copies."""
        return any(dispatcher.is_wanted for dispatcher in self.receiving)

    def wake_all(self) -> None:
        """There are copies for somebody: everyone who waits is asked."""
        for dispatcher in self.receiving:
            dispatcher.wake()

    def expire(self, now_ms: int) -> None:
        """Take back what is due: claims that ended, and copies that waited."""
        if now_ms < self.ledger.next_due_ms:
            return
        self.wake_all()
        for expired in self.ledger.due(now_ms):
            dispatcher = self._dispatchers.get(expired.view)
            if dispatcher is not None:
                dispatcher.expired(expired)
        for dispatcher in self._dispatchers.values():
            dispatcher.ended_locks()

    def dispatch(self, now_ms: int) -> None:
        """Let every dispatcher that may have something give out a bounded amount."""
        if not self.takes_more:
            # They have their turn when it does again.
            return
        for _ in range(len(self._ready)):
            dispatcher = self._ready.popleft()
            dispatcher.is_queued = False
            is_wanted = dispatcher.is_wanted
            try:
                with self.guarded():
                    has_more = dispatcher.dispatch(now_ms)
            except HeadgateError as error:
                # Its messages are damaged: receivers are told, everyone else goes on.
                if isinstance(error, LogError):
                    self._stuck[dispatcher] = error
                dispatcher.end(error)
                continue
            if is_wanted:
                self._stuck.pop(dispatcher, None)
            if has_more:
                self.ready(dispatcher)

    def commit(self, now_ms: int) -> bool:
        """Write down what changed, then tell it; whether both is done. What a worker writes is told in a later turn."""
        if self._commit is not None:
            return False
        commit = _Commit(self.ledger.begin(now_ms), self._answers, self._given)
        self._answers, self._given = [], []
        if self._run_in_worker is None or commit.write is None:
            commit.run()
            return self._finish(commit)
        self._commit = commit
        self._run_in_worker(commit.run, lambda error: self._written(commit, error))
        return False

    def _written(self, commit: _Commit, error: BaseException | None) -> None:
        """A worker is done, unless somebody waited for it meanwhile."""
        if self._commit is commit:
            self._commit = None
            self._finish(commit)
            self.touch()
        if isinstance(error, BaseException):
            raise error

    def _finish(self, commit: _Commit) -> bool:
        if commit.write is not None:
            try:
                self.ledger.finish(commit.write)
            except LogError as error:
                if self.trouble is None:
                    logger.warning("nothing is settled or given out: %s", error)
                self.trouble = error
                self._given[:0] = commit.given
                _tell(commit.answers, error)
                return False
        had_trouble, self.trouble = self.trouble is not None, None
        _tell(commit.answers, None)
        for dispatcher in commit.given:
            dispatcher.deliver(check=had_trouble or self._run_in_worker is not None)
        if had_trouble:
            self.wake_all()
            self.touch()
        return True

    def stop(self) -> None:
        """From now on commits are made here; what a worker was given ends first. Again is harmless."""
        self._run_in_worker = None
        commit, self._commit = self._commit, None
        if commit is not None:
            commit.run()
            self._finish(commit)

    def end(self, error: HeadgateError) -> None:
        """The stream is gone: every receiver ends, every answer is the error."""
        self.stop()
        answers, self._answers = self._answers, []
        _tell(answers, error)
        for dispatcher in list(self._dispatchers.values()):
            dispatcher.end(error)
        self._dispatchers.clear()

    def close(self) -> None:
        """Give the ledger back; what was not committed did not happen."""
        self.stop()
        self.ledger.close()


class _Commit:
    """What is written, and what is told behind that: answers, and the deliveries of dispatchers."""

    __slots__ = ("_has_run", "_lock", "answers", "given", "write")

    def __init__(
        self, write: LedgerWrite | None, answers: list[tuple[Settled, list[bool]]], given: list[ViewDispatcher]
    ) -> None:
        self.write = write
        self.answers = answers
        self.given = given
        self._lock = threading.Lock()
        self._has_run = False

    def run(self) -> None:
        """Write it, once: by the worker, or by who cannot wait for a worker that has not begun."""
        with self._lock:
            if not self._has_run and self.write is not None:
                self._has_run = True
                self.write.run()


def _tell(answers: list[tuple[Settled, list[bool]]], error: HeadgateError | None) -> None:
    for then, held in answers:
        then(held if error is None else error)
