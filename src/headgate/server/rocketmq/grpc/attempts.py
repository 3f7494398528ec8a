"""What the last answer to a client held, by the id of its attempt.

A client repeats an attempt, with the id that it had, when the answer did not reach it: its call was broken or took too
long. In groups with `fifo`, where what was lost holds up its message groups, what it was given then is taken back,
uncounted, and it is given that again, without waiting until it is visible. In others attempts have no meaning: who
sends one id for all its receives would have what it works on taken back.

It is kept in memory, one answer for each queue of a topic that a client names: what a restart forgets comes when its
invisible time is over. Source: `ConsumerOrderInfoManager` of RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Mapping

Place = tuple[str, str, int]
"""Group, topic, and the queue that is named; −1 for any."""

_MOST_PLACES = 1_024
"""Answers to one client that are kept; the oldest goes first."""

_NOTHING: Mapping[int, list[bytes]] = {}


class Attempts:
    """The last answers to one client."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[Place, tuple[str, Mapping[int, list[bytes]]]] = {}

    def answered(self, place: Place, attempt_id: str, tokens: Mapping[int, list[bytes]]) -> None:
        """An attempt was answered with messages, by their tokens and queues; attempts without id are not repeated."""
        self._last.pop(place, None)
        if attempt_id and tokens:
            self._last[place] = attempt_id, tokens
            if len(self._last) > _MOST_PLACES:
                del self._last[next(iter(self._last))]

    def repeated(self, place: Place, attempt_id: str) -> Mapping[int, list[bytes]]:
        """What the attempt was answered with before; nothing where another one was, or none."""
        last_id, tokens = self._last.get(place, ("", _NOTHING))
        if last_id != attempt_id:
            return _NOTHING
        self._last.pop(place, None)
        return tokens
