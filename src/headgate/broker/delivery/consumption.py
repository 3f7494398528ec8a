"""The ledger of one stream at work: the changes of a turn are committed with one message, and answered after that.

    calls of the turn ──► ledger in memory ──► commit ──► answers, deliveries ──► moves ──► commit

After a failed commit answers get its error, and deliveries wait for the next commit that succeeds. A commit that waits
for the device is made by a worker: calls made meanwhile are for the next one.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from headgate.broker.delivery.mover import Mover
from headgate.broker.environment import RunInWorker
from headgate.broker.observer import Delivered
from headgate.errors import HeadgateError, LogError
from headgate.ledger import Expired, Ledger, LedgerWrite, View

logger = logging.getLogger("headgate.broker")

T = TypeVar("T")
Settled = Callable[[list[bool] | HeadgateError], None]
"""Takes the answer to a settlement: for each token whether its claim still stood, or the error; called once."""


def nobody_asks(_result: list[bool] | HeadgateError) -> None:
    """A `Settled` that does nothing."""


class ViewDispatcher(Protocol):
    """The dispatcher of one view: of a subscription, of a small stream, or of a consumer group."""

    is_queued: bool
    """Kept by `Consumption.ready`."""
    view: View
    """The view whose copies it gives out."""

    @property
    def is_wanted(self) -> bool:
        """Whether a receiver waits for copies."""

    def wake(self) -> None:
        """Tell it that there may be more copies."""

    def dispatch(self, now_ms: int) -> bool:
        """Find and claim a bounded number of copies; whether to call again. Raises HeadgateError for damage."""

    def deliver(self, *, check: bool) -> None:
        """The claims are on disk: give out the copies. `check`: the write took long, and claims may have ended."""

    def expired(self, expired: Expired) -> None:
        """Claims ended by their time."""

    def ended_locks(self) -> None:
        """Locks of sessions may have ended, and waiting copies may be available."""

    def end(self, error: HeadgateError) -> None:
        """The view is no more, or its messages are damaged."""


class Consumption:
    """An open ledger with the dispatchers of its views; `touch` asks for a turn. In the broker's thread only."""

    def __init__(
        self,
        ledger: Ledger,
        touch: Callable[[], None],
        guarded: Callable[[], AbstractContextManager[None]],
        worker: RunInWorker | None,
        delivered: Delivered | None = None,
    ) -> None:
        """`guarded` is the context for reading files of messages; see `BrokerStream.guarded`.

        A `worker` makes the commits, if there is one. `delivered` is told of each batch that is given out.
        """
        self.delivered = delivered
        self.ledger = ledger
        self.touch = touch
        self.guarded = guarded
        self.trouble: LogError | None = None
        """The error of the last commit; None if it succeeded."""
        self._stuck: dict[ViewDispatcher, LogError] = {}
        """Dispatchers whose next copy cannot be read."""
        self.receiving: dict[ViewDispatcher, None] = {}
        """The dispatchers that have receivers: few of thousands, and needed in every turn."""
        self.mover: Mover | None = None
        """The mover of the ledger; None for a ledger without moves."""
        self._dispatchers: dict[int, ViewDispatcher] = {}
        self._ready: deque[ViewDispatcher] = deque()
        self._given: list[ViewDispatcher] = []
        """Dispatchers with deliveries that wait for the commit."""
        self._answers: list[tuple[Settled, list[bool]]] = []
        self._worker = worker
        self._is_stopping = False
        """Whether the files are about to be closed: then the worker makes no more commits."""
        self._commit: _Commit | None = None
        """The commit that a worker has."""

    def add(self, dispatcher: ViewDispatcher) -> None:
        """Add the dispatcher of a view."""
        self._dispatchers[dispatcher.view.number] = dispatcher

    def remove(self, view: View) -> None:
        """A view is dropped: forget its dispatcher."""
        dispatcher = self._dispatchers.pop(view.number, None)
        if dispatcher is not None:
            self._stuck.pop(dispatcher, None)

    def ready(self, dispatcher: ViewDispatcher) -> None:
        """A dispatcher may have copies to give out: it is called in the next turn."""
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

    def tell(self, then: Callable[[T | HeadgateError], None], value: T) -> None:
        """Call `then` behind the commit, with a value or the error of the commit."""
        self.answer(lambda result: then(result if isinstance(result, HeadgateError) else value), [])

    @property
    def stuck_by(self) -> LogError | None:
        """Why the next copy of some view cannot be read; None if all wanted ones can."""
        return next(iter(self._stuck.values()), None)

    @property
    def is_behind(self) -> bool:
        """Whether changes wait to be written down, or answers to be given."""
        return self._commit is not None or self.ledger.has_changes or bool(self._answers)

    @property
    def takes_more(self) -> bool:
        """Whether changes made now are written down at the end of this turn."""
        return self.trouble is None and self._commit is None

    @property
    def broken_by(self) -> LogError | None:
        """Why the ledger has to be opened again; None where it need not."""
        return self.trouble if self.trouble is not None and self.ledger.is_broken else None

    def is_due(self, now_ms: int) -> bool:
        """Whether timed work is due: the end of a claim or a wait, a commit that failed, a move that waits."""
        return (
            self.ledger.next_due_ms <= now_ms
            or self.trouble is not None
            or (self.mover is not None and self.mover.is_due(now_ms))
        )

    @property
    def is_awaited(self) -> bool:
        """Whether a receiver waits for copies."""
        return any(dispatcher.is_wanted for dispatcher in self.receiving)

    def wake_all(self) -> None:
        """Wake all dispatchers that have receivers."""
        for dispatcher in self.receiving:
            dispatcher.wake()

    def expire(self, now_ms: int) -> None:
        """Take back ended claims, and copies whose wait is over."""
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
        """Let every dispatcher that may have copies give out a bounded number."""
        if not self.takes_more:
            # Dispatchers have their turn when changes can be written again.
            return
        for _ in range(len(self._ready)):
            dispatcher = self._ready.popleft()
            dispatcher.is_queued = False
            was_wanted = bool(self._stuck) and dispatcher.is_wanted
            try:
                with self.guarded():
                    has_more = dispatcher.dispatch(now_ms)
            except HeadgateError as error:
                # Its messages are damaged: its receivers end, other dispatchers go on.
                if isinstance(error, LogError):
                    self._stuck[dispatcher] = error
                dispatcher.end(error)
                continue
            if was_wanted:
                self._stuck.pop(dispatcher, None)
            if has_more:
                self.ready(dispatcher)

    def commit(self, now_ms: int) -> bool:
        """Write changes down, then answer; whether both are done. If a worker writes, answers come in a later turn."""
        if self._commit is not None:
            return False
        write = self.ledger.begin(now_ms)
        if write is None and self.trouble is None and not self._answers and not self._given:
            return True
        commit = _Commit(write, self._answers, self._given)
        self._answers, self._given = [], []
        if self._worker is None or self._is_stopping or commit.write is None:
            commit.run()
            return self._finish(commit)
        self._commit = commit
        self._worker(commit.run, lambda error: self._written(commit, error))
        return False

    def move(self, now_ms: int) -> None:
        """Carry out the committed moves, and commit that they are done.

        What is committed goes on while a worker writes the next commit: in a busy ledger there is always one.
        """
        if self.trouble is not None or self.mover is None or not self.ledger.moves():
            return
        if self.mover.carry_out(now_ms):
            self.touch()
            self.commit(now_ms)

    def _written(self, commit: _Commit, error: BaseException | None) -> None:
        """A worker has ended a commit: finish it, unless `stop` has done so meanwhile."""
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
            dispatcher.deliver(check=had_trouble or self._worker is not None)
        if had_trouble:
            self.wake_all()
            self.touch()
        return True

    def stop(self) -> None:
        """From now on commits are made here; a worker's commit ends first. Again is harmless."""
        self._is_stopping = True
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
        """Close the ledger; uncommitted changes have not happened."""
        self.stop()
        self.ledger.close()


class _Commit:
    """One commit of the ledger, with the answers and deliveries that follow it."""

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
        """Write it, once: in the worker, or in the broker's thread if that cannot wait for the worker to begin."""
        with self._lock:
            if not self._has_run and self.write is not None:
                self._has_run = True
                self.write.run()


def _tell(answers: list[tuple[Settled, list[bool]]], error: HeadgateError | None) -> None:
    for then, held in answers:
        then(held if error is None else error)
