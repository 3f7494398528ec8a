"""Turns: a part of the broker that has work asks for one, and gets it in the next turn of the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Part = TypeVar("Part")


class Turns(Generic[Part]):
    """The parts that asked for a turn, in order; `wake` is called when the first one asks."""

    __slots__ = ("_wake", "asked")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.asked: dict[Part, None] = {}
        """The parts that wait for their turn."""
        self._wake = wake

    def ask(self, part: Part) -> None:
        """Give a part its turn next time; again is harmless."""
        if not self.asked:
            self._wake()
        self.asked[part] = None

    def forget(self, part: Part) -> None:
        """A part is no more."""
        self.asked.pop(part, None)

    def take(self, turn: Callable[[Part], None]) -> None:
        """Give each waiting part its turn. After an error the parts behind the failed one have theirs next time."""
        asked, self.asked = self.asked, {}
        try:
            while asked:
                part = next(iter(asked))
                del asked[part]
                turn(part)
        except BaseException:
            self.asked = {**asked, **self.asked}
            self._wake()
            raise
