"""The rules in force, offset by offset: the history from the journal as of now, and routers for ranges of offsets.

Loaded histories and compiled rules are kept until the journal's file changes.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from headgate.log import Stream
from headgate.topic.history import RuleHistory
from headgate.topic.journal import JOURNAL_NAME
from headgate.topic.model import Topic, folded
from headgate.topic.router import Router

_KEPT_TOPICS = 4


class RoutersInForce:
    """The routers of a topic, each made when the first message that it decides arrives; not for several threads."""

    def __init__(self, history: RuleHistory, stream: str, subscription: str | None = None) -> None:
        self.history = history
        self._stream = stream
        self._subscription = subscription
        self._made: dict[int, Router] = {}

    @staticmethod
    def of(folder: Path, subscription: str | None = None) -> RoutersInForce:
        """The routers of a stream's folder, by its journal as of now. Raises RuleNotFoundError, LogError.

        With the name of a `subscription`, compared without case, they give copies to that subscription only.
        """
        return _routers(folder, subscription, *_state_of_journal(folder))

    def within(self, first: int, stop: int) -> Iterator[tuple[int, Router]]:
        """The routers for offsets `first … stop`, each with the offset up to which it is in force.

        Raises OffsetOutOfRangeError if what was in force at `first` is pruned.
        """
        for piece in self.history.ranges(first, stop):
            router = self._made.get(piece.since)
            if router is None:
                topic = self._wanted_of(self.history.at(piece.start))
                router = self._made[piece.since] = Router(topic, stream=self._stream)
            yield piece.stop, router

    def _wanted_of(self, topic: Topic) -> Topic:
        if self._subscription is None:
            return topic
        wanted = folded(self._subscription)
        kept = tuple(each for each in topic.subscriptions if folded(each.name) == wanted)
        # What falls through depends on all the others.
        return topic if any(each.fall_through for each in kept) else replace(topic, subscriptions=kept)


class FollowedHistory:
    """The history of the topic in a stream's folder, loaded again only when its journal has changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._state = (0, 0, 0)
        self._history: RuleHistory | None = None

    def now(self) -> RuleHistory:
        """The history as the journal is now; the same object until that changes.

        Raises RuleNotFoundError, LogError. Cost without a change: microseconds.
        """
        state = _state_of_journal(self._folder)
        if self._history is None or state != self._state:
            history = RuleHistory.load(Stream.open(self._folder))
            if self._history is not None:
                history.share_compiled(self._history)
            self._history, self._state = history, state
        return self._history


def _state_of_journal(folder: Path) -> tuple[int, int, int]:
    """The state by which a changed journal is noticed: inode, size in bytes, time of change in nanoseconds."""
    try:
        found = os.stat(f"{folder}/{JOURNAL_NAME}")
    except FileNotFoundError:
        return 0, 0, 0
    return found.st_ino, found.st_size, found.st_mtime_ns


@functools.lru_cache(maxsize=_KEPT_TOPICS)
def _routers(folder: Path, subscription: str | None, *_state: int) -> RoutersInForce:
    stream = Stream.open(folder)
    return RoutersInForce(RuleHistory.load(stream), stream.name, subscription)
