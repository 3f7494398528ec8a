"""The dead letters of one subscription: given out like other copies, and chosen ones resubmitted or deleted.

    resubmit ──► move in the ledger of the dead letters ──► commit ──► appended to the stream ──► noted as done

A resubmission is a move of the ledger, so a process that is killed at any point of it publishes each dead letter once:
before the commit the dead letter is still there, after it the next process appends what the stream does not have.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from headgate.broker.delivery import Consumption, CopySource, Movement, ReadCopy, drop_copies, whole_offsets
from headgate.broker.topics.dispatcher import BYTES_A_TURN, COPIES_A_TURN, Dispatcher
from headgate.broker.topics.policy import SubscriptionPolicy
from headgate.errors import HeadgateError, LogError, MessageGivenUpError
from headgate.ledger import Move, Standing, View, rule_of
from headgate.topic import Origin, origin_of

Taken = Callable[[list[int] | HeadgateError], None]
"""Called once, behind the commit, with the copies that left the dead letters, or the error."""


class DeadLetterDispatcher(Dispatcher):
    """Gives out dead letters, and takes chosen ones away. A dead letter that a receiver holds stays where it is."""

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
        self._ahead: dict[int, ReadCopy] = {}
        """Messages of moves that were read ahead, by copy."""

    @property
    def stop(self) -> int:
        """The copy behind all dead letters that there are now."""
        return self.source.end

    @property
    def unsettled(self) -> int:
        """How many there are, also those that receivers hold."""
        counts = self.counts()
        return counts.active + counts.locked + counts.waiting

    def read(self, copies: Sequence[int]) -> list[ReadCopy]:
        """The first of some dead letters, ascending, that are not settled; at least one if there is any."""
        self.used_ms = self.now_ms()
        chosen = self._unsettled(copies)
        return list(self._read(chosen, BYTES_A_TURN)) if len(chosen) else []

    def resubmit(self, copies: Sequence[int], target: str, movement: Movement, then: Taken) -> None:
        """Move the available ones among some dead letters, ascending, to a stream; `then` gets these."""
        self._take(copies, then, lambda free: self._move_available(free, target, movement))

    def delete_chosen(self, copies: Sequence[int], then: Taken) -> None:
        """Settle the available ones among some dead letters, ascending; `then` gets these."""
        self._take(copies, then, lambda free: drop_copies(self.view, free))

    def _take(self, copies: Sequence[int], then: Taken, take: Callable[[NDArray[np.int64]], None]) -> None:
        self.used_ms = self.now_ms()
        try:
            free = self._available_among(self._unsettled(copies))
            take(free)
            self.view.postpone((), 0, covered=whole_offsets(free))
        except LogError as error:
            then(error)
            return
        self.count_unseen()
        self._consumption.tell(then, free.tolist())

    def _unsettled(self, copies: Sequence[int]) -> NDArray[np.int64]:
        """The copies that are messages here, and not settled."""
        here = [copy for copy in copies if 0 <= copy < self.source.end and not rule_of(copy)]
        chosen = np.array(here, dtype=np.int64)
        left: NDArray[np.int64] = chosen[self.view.unseen(chosen) | (self.view.standings(chosen) != Standing.SETTLED)]
        return left

    def _available_among(self, unsettled: NDArray[np.int64]) -> NDArray[np.int64]:
        is_free = self.view.unseen(unsettled) | (self.view.standings(unsettled) == Standing.AVAILABLE)
        free: NDArray[np.int64] = unsettled[is_free]
        return free

    def waiting_moves(self, target: str) -> int:
        """How many dead letters are on their way to a target."""
        return len(self._consumption.ledger.moves().get(target, ()))

    # carrying out its moves: see `MovedCopies`

    def read_ahead(self, moves: Sequence[Move]) -> None:
        """Read the first moves together; unreadable ones are found later, one by one."""
        copies = np.array(sorted(move.copy for move in moves[:COPIES_A_TURN]), dtype=np.int64)
        with contextlib.suppress(LogError):
            self._ahead = {each.copy: each for each in self.source.read(copies, max_bytes=BYTES_A_TURN)}

    def forget(self) -> None:
        """Forget the messages that were read ahead."""
        self._ahead = {}

    def moved(self, move: Move, _movement: Movement) -> tuple[bytes, Origin]:
        """The message of a move, and its origin. Raises LogError."""
        read = self._ahead.pop(move.copy, None)
        if read is None:
            read = next(iter(self.source.read(np.array([move.copy], dtype=np.int64), max_bytes=1)), None)
        if read is None:
            raise MessageGivenUpError(f"the dead letter {move.copy} is not there any more", path=self.name)
        return read.message, origin_of(read.message) or Origin(read.copy, read.timestamp_ms, move.attempt)
