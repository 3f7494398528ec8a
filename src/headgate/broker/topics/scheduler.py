"""The scheduled messages of all streams of a broker, topics or not; a stream has no files until one is scheduled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

from headgate.broker.environment import Environment
from headgate.broker.startup import Startup
from headgate.broker.stream import BrokerStream
from headgate.broker.topics.scheduled_messages import ScheduledMessages
from headgate.broker.turns import Turns
from headgate.errors import HeadgateError
from headgate.topic import WAITING_NAME, waiting_folder

_OPENED_A_TICK = 4
"""Streams with scheduled messages opened per tick after a start, so that these are published without a client."""


class Scheduler:
    """The scheduled messages of one broker's streams; in its thread only."""

    def __init__(self, environment: Environment, know_status: Callable[[BrokerStream], None]) -> None:
        """`know_status` lets a stream know whether its topic takes messages."""
        self._environment = environment
        self._know_status = know_status
        self._waiting: dict[BrokerStream, ScheduledMessages] = {}
        self.turns: Turns[BrokerStream] = Turns(environment.wake)
        self._startup = Startup(
            environment.root,
            WAITING_NAME,
            self._open,
            _OPENED_A_TICK,
            "messages of stream %r that wait for their time cannot be read",
        )

    def of(self, stream: BrokerStream) -> ScheduledMessages:
        """The scheduled messages of a stream. Raises LogError for a topic that cannot be read."""
        self._know_status(stream)
        waiting = self._waiting.get(stream)
        if waiting is None:
            touched = functools.partial(self.turns.ask, stream)
            waiting = self._waiting[stream] = ScheduledMessages(stream, replace(self._environment, wake=touched))
        return waiting

    def count(self, stream: BrokerStream) -> int:
        """How many messages of a stream wait for their time. Cost: a `stat` where there never were any.

        Raises LogError.
        """
        if stream not in self._waiting and not waiting_folder(stream.stream).exists():
            return 0
        return self.of(stream).count

    def turn(self) -> None:
        """Store requested messages, publish due ones; before the turn of the topics, which decide these."""
        self.turns.take(self._turn)

    def _turn(self, stream: BrokerStream) -> None:
        waiting = self._waiting.get(stream)
        if waiting is not None:
            waiting.turn(self._environment.now_ms())

    def tick(self, now_ms: int) -> None:
        """Look after the streams in use; opens the unused ones, some at a time."""
        for waiting in self._waiting.values():
            waiting.tick(now_ms)
        self._startup.tick()

    def _open(self, name: str) -> None:
        stream = self._environment.find(name)
        if stream is not None:
            self.of(stream).tick(self._environment.now_ms())

    def forget(self, stream: BrokerStream, error: HeadgateError) -> None:
        """A stream is deleted."""
        self.turns.forget(stream)
        waiting = self._waiting.pop(stream, None)
        if waiting is not None:
            waiting.end(error)

    def close(self) -> None:
        """Close all files."""
        for waiting in self._waiting.values():
            waiting.close()
        self._waiting.clear()
