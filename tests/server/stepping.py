"""A loop that the test moves: calls are made one after another, timers when the clock that the test sets has come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from server.links import SetClock


class Timer:
    """A call that is due later."""

    def __init__(self, due_s: float, call: Callable[[], None]) -> None:
        self.due_s = due_s
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class SteppedLoop:
    """As much of an event loop as event loop and connections use."""

    def __init__(self) -> None:
        self.clock = SetClock()
        self.calls: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.timers: list[Timer] = []

    def set_default_executor(self, executor: object) -> None:
        """Nothing reads files."""

    def call_soon(self, call: Callable[..., None], *arguments: Any) -> None:
        self.calls.append((call, arguments))

    def call_later(self, delay_s: float, call: Callable[..., None], *arguments: Any) -> Timer:
        timer = Timer(self.clock.seconds + delay_s, lambda: call(*arguments))
        self.timers.append(timer)
        return timer

    def step(self) -> None:
        """Makes one call."""
        call, arguments = self.calls.pop(0)
        call(*arguments)

    def settle(self) -> None:
        """Makes calls until there are none."""
        while self.calls:
            self.step()

    @property
    def next_due_s(self) -> float | None:
        """When the next timer is due; None if there is none."""
        return min((timer.due_s for timer in self.timers if not timer.is_cancelled), default=None)

    def pass_time(self, seconds: float) -> None:
        """Sets the clock forward, from timer to timer."""
        until_s = self.clock.seconds + seconds
        self.settle()
        while (due_s := self.next_due_s) is not None and due_s <= until_s:
            self.clock.seconds = max(self.clock.seconds, due_s)
            timer = next(timer for timer in self.timers if timer.due_s == due_s and not timer.is_cancelled)
            self.timers.remove(timer)
            timer.call()
            self.settle()
        self.clock.seconds = until_s
