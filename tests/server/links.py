"""A link in memory and a clock that is set, for handlers and pumps without sockets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headgate.server.transport import Buffer, Peer


class FakeLink:
    """Keeps what is written; `turn` makes the calls that wait for the loop's next turn."""

    def __init__(self, peer: Peer | None = None) -> None:
        self.peer = peer or Peer("127.0.0.1", 40000, is_loopback=True)
        self.is_writable = True
        self.written = bytearray()
        self.is_closed = False
        self.reads = True
        self.calls: list[Callable[[], None]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.works: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def write(self, data: Buffer | Sequence[Buffer]) -> None:
        self.written += data if isinstance(data, bytes | bytearray | memoryview) else b"".join(data)

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def close(self) -> None:
        self.is_closed = True

    def leave(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def call_soon(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Callable[[], None]:
        timer = (delay_s, call)
        self.timers.append(timer)
        return lambda: self.timers.remove(timer)

    def run_in_storage(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        self.run_in_worker(work, then)

    def run_in_worker(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        self.works.append((work, then))

    def turn(self) -> int:
        """Makes the calls that wait; gives how many there were."""
        calls, self.calls = self.calls, []
        for call in calls:
            call()
        return len(calls)

    def turns(self) -> None:
        """Turns until nobody asks for another; more than a thousand are a busy loop."""
        for _ in range(1000):
            if not self.turn():
                return
        raise AssertionError("the loop never rests")

    def work(self) -> None:
        """Runs the oldest piece of work of the pool."""
        work, then = self.works.pop(0)
        try:
            result = work()
        except BaseException as error:
            result = error
        then(result)


class SetClock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic_s(self) -> float:
        return self.seconds
