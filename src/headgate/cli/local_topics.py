"""Topics of a root that no server has: requests are answered by a broker in this process, in turns of a loop here."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from headgate.clock import now_ms, patient
from headgate.errors import LogError, StreamLockedError

if TYPE_CHECKING:
    from headgate.broker import Broker
    from headgate.client import Ask, RocketTopics, Topics

_USER = "local"
_TICK_S = 0.05


class LocalManagement:
    """The management of the files of a root, as `Management` of a server."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    @property
    def topics(self) -> Topics:
        """The topics of the root."""
        from headgate.client import Topics

        return Topics(self._ask)

    @property
    def rocketmq(self) -> RocketTopics:
        """Topics and consumer groups as clients of RocketMQ have them."""
        from headgate.client import RocketTopics

        return RocketTopics(self._ask)


@contextlib.contextmanager
def local_management(root: Path, *, lock_timeout_s: float) -> Iterator[LocalManagement]:
    """The management of a root whose lock the caller has; waits for other writers of a stream.

    Raises LogError for damaged files.
    """
    from headgate.broker import Broker, Users, run_here

    loop = asyncio.new_event_loop()
    asking = _Asking(loop)
    users = Users(None, default_user=_USER, default_has_password=False)
    # Nothing runs in the background; topics far behind are decided step by step, in bounded memory.
    broker = Broker(root, now_ms=now_ms, users=users, wake=asking.wake, run_in_background=run_here)
    try:
        asking.begin(broker, lock_timeout_s)
        yield LocalManagement(asking.ask)
    finally:
        asking.end()
        broker.close()
        loop.close()


class _Asking:
    """A loop whose turns end like a server's, but which runs only during a request."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._turn_is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._has_changed = False

    def begin(self, broker: Broker, lock_timeout_s: float) -> None:
        """Take the broker, which needs `wake` to be made."""
        from headgate.server import Router, broker_groups

        self._broker = broker
        self._router = Router(broker_groups(broker))
        self._lock_timeout_s = lock_timeout_s
        self._tick()

    def end(self) -> None:
        """End the turns; after a change, retention is told which offsets are still needed."""
        if self._timer is not None:
            self._timer.cancel()
        for topic in self._broker.topics if self._has_changed else ():
            topic.keep_pinned(now_ms())

    def wake(self) -> None:
        """The broker wants a turn."""
        if not self._turn_is_scheduled:
            self._turn_is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_is_scheduled = False
        self._broker.write_queued()
        self._broker.end_turn()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(_TICK_S, self._tick)
        for topic in self._broker.topics:
            if topic.stream.writer is None:
                # Other processes publish meanwhile; errors of the files are reported when they are read.
                with contextlib.suppress(LogError):
                    topic.stream.look()
            topic.tick(now_ms())
        self._broker.jobs.tick(now_ms())

    def ask(self, method: str, path: Sequence[str], query: Mapping[str, object], body: object) -> Any:
        """The answer to a request; waits while another process writes the stream."""
        texts = {name: [str(value)] for name, value in query.items()}
        data = b"" if body is None else msgspec.json.encode(body)
        self._has_changed |= method != "GET"
        wait = patient(self._lock_timeout_s)
        tries = 0
        while True:
            try:
                if path[0] == "topics" and path[1:] and (method, len(path)) != ("PUT", 2):
                    self._decide(path[1])
                answer = self._loop.run_until_complete(
                    self._router.answer(method, tuple(path), texts, data, user=_USER)
                )
                return msgspec.json.decode(msgspec.json.encode(answer.value, enc_hook=str))
            except StreamLockedError:
                tries += 1
                if not wait(tries):
                    raise

    def _decide(self, name: str) -> None:
        """Let a topic decide all published messages; on files no server does this."""
        topic = self._broker.topics.get(name)
        while not topic.is_decided:
            before = topic.next_offset
            self._broker.topics.turns.ask(topic.stream)
            self._turn()
            if topic.next_offset == before:
                # What hinders it is in the log.
                return
