"""Carrying out the moves of a ledger, target by target; a failed move holds back later ones to its target."""

from __future__ import annotations

from abc import ABC, abstractmethod

from headgate.broker.repeated_failure import RepeatedFailure
from headgate.errors import HeadgateError
from headgate.ledger import Ledger


class Mover(ABC):
    """Appends moved copies to their targets; `name` names the copies in logs."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.moved = 0
        """How many copies were moved to their targets since the ledger was opened."""
        self._name = name
        self._ledger = ledger
        self._held: dict[str, RepeatedFailure] = {}
        """Targets that could not take their moves."""

    def is_due(self, now_ms: int) -> bool:
        """Whether a target with moves left may be tried now."""
        return any(self._may_try(target, now_ms) for target in self._ledger.moves())

    def _may_try(self, target: str, now_ms: int) -> bool:
        held = self._held.get(target)
        return held is None or not held.rests(now_ms)

    def carry_out(self, now_ms: int) -> bool:
        """Append the committed moves to their targets; the ledger notes the finished ones, and is to be committed.

        Gives whether any was appended, so that more may be moved. Moves to a target whose writer is in use wait for
        the next tick.
        """
        before = self.moved
        for target in list(self._ledger.moves()):
            if not self._may_try(target, now_ms):
                continue
            try:
                self.moved += self._carry_to(target, now_ms)
                self._held.pop(target, None)
            except HeadgateError as error:
                held = self._held.setdefault(target, RepeatedFailure())
                held.note(f"{self._name} to {target} wait", error, now_ms)
        return self.moved > before

    @abstractmethod
    def _carry_to(self, target: str, now_ms: int) -> int:
        """Append the moves to one target; gives how many are done. Raises HeadgateError."""
