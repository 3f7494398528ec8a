"""The ledger of one stream at work: what a turn changes is written down with one message, and only then told.

    calls of the turn ──► ledger in memory ──► commit ──► answers, deliveries

A commit that fails tells nobody anything: answers get its error, deliveries wait for the next one that succeeds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager

from headgate.broker.topics.dispatcher import Dispatcher
from headgate.broker.topics.receiver import Settled
from headgate.errors import HeadgateError, LogError
from headgate.ledger import Ledger, View


class Consumption:
    """An open ledger with the dispatchers of its views; `touch` asks for a turn. In the broker's thread only."""

    def __init__(
        self, ledger: Ledger, touch: Callable[[], None], guarded: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """`guarded` is for what reads the files of messages; see `BrokerStream.guarded`."""
        self.ledger = ledger
        self.touch = touch
        self._guarded = guarded
        self.trouble: LogError | None = None
        """Why the last commit failed; None where it did not."""
        self.receiving: dict[Dispatcher, None] = {}
        """The dispatchers that have receivers: few of thousands, and asked for in every turn."""
        self._dispatchers: dict[int, Dispatcher] = {}
        self._ready: deque[Dispatcher] = deque()
        self._given: list[Dispatcher] = []
        """Those with deliveries that wait for the commit."""
        self._answers: list[tuple[Settled, list[bool]]] = []

    def add(self, dispatcher: Dispatcher) -> None:
        """A view gets a dispatcher."""
        self._dispatchers[dispatcher.view.number] = dispatcher

    def remove(self, view: View) -> None:
        """A view is dropped with all that it had."""
        self._dispatchers.pop(view.number, None)

    def of_view(self, number: int) -> Dispatcher | None:
        """The dispatcher of a view, by the view's number."""
        return self._dispatchers.get(number)

    def ready(self, dispatcher: Dispatcher) -> None:
        """A dispatcher may have something to give out: it is asked in the next turn."""
        if not dispatcher.is_queued:
            dispatcher.is_queued = True
            self._ready.append(dispatcher)
            self.touch()

    def give(self, dispatcher: Dispatcher) -> None:
        """A dispatcher claimed copies: they are delivered behind the commit."""
        self._given.append(dispatcher)

    def answer(self, then: Settled, held: list[bool]) -> None:
        """Call `then` behind the commit."""
        self._answers.append((then, held))
        self.touch()

    @property
    def is_behind(self) -> bool:
        """Whether something waits to be written down, or told."""
        return self.ledger.has_changes or bool(self._answers)

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
        for _ in range(len(self._ready)):
            dispatcher = self._ready.popleft()
            dispatcher.is_queued = False
            if self.trouble is not None:
                continue
            try:
                with self._guarded():
                    has_more = dispatcher.dispatch(now_ms)
            except HeadgateError as error:
                # Its messages are damaged: receivers are told, everyone else goes on.
                dispatcher.end(error)
                continue
            if has_more:
                self.ready(dispatcher)

    def commit(self, now_ms: int) -> bool:
        """Write down what changed, then tell it; whether that succeeded."""
        try:
            self.ledger.commit(now_ms)
        except LogError as error:
            self.trouble = error
            self._tell(error)
            return False
        had_trouble, self.trouble = self.trouble is not None, None
        self._tell(None)
        given, self._given = self._given, []
        for dispatcher in given:
            dispatcher.deliver(check=had_trouble)
        if had_trouble:
            self.wake_all()
        return True

    def _tell(self, error: HeadgateError | None) -> None:
        answers, self._answers = self._answers, []
        for then, held in answers:
            then(held if error is None else error)

    def end(self, error: HeadgateError) -> None:
        """The stream is gone: every receiver ends, every answer is the error."""
        self._tell(error)
        for dispatcher in list(self._dispatchers.values()):
            dispatcher.end(error)
        self._dispatchers.clear()

    def close(self) -> None:
        """Give the ledger back; what was not committed did not happen."""
        self.ledger.close()
