"""The messages in the last answer to a client, by the id of its attempt.

A client repeats an attempt, with the same id, when the answer did not reach it: the call was broken or took too long.
In groups with `fifo`, where lost messages hold up their message groups, the messages of the lost answer are taken
back, without counting the delivery, and given again before their invisible time is over. In other groups attempts have
no meaning: a client that sends one id with all its receives would lose the messages that it works on.

Answers are kept in memory, one for each queue of a topic that a client names: after a restart, lost messages come
again when their invisible time is over. Source: `ConsumerOrderInfoManager` of RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Mapping

QueueKey = tuple[str, str, int]
"""Group, topic, and the queue that the client names; −1 for any."""

_MOST_PLACES = 1_024
"""Limit: answers kept per client; the oldest goes first."""

_NOTHING: Mapping[int, list[bytes]] = {}


class Attempts:
    """The last answers to one client."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[QueueKey, tuple[str, Mapping[int, list[bytes]]]] = {}

    def answered(self, place: QueueKey, attempt_id: str, tokens: Mapping[int, list[bytes]]) -> None:
        """Keep the tokens, by queue, that an attempt was answered with; attempts without an id are not kept."""
        self._last.pop(place, None)
        if attempt_id and tokens:
            self._last[place] = attempt_id, tokens
            if len(self._last) > _MOST_PLACES:
                del self._last[next(iter(self._last))]

    def repeated(self, place: QueueKey, attempt_id: str) -> Mapping[int, list[bytes]]:
        """The tokens of the attempt's earlier answer; none if the last attempt was another one, or there was none."""
        last_id, tokens = self._last.get(place, ("", _NOTHING))
        if last_id != attempt_id:
            return _NOTHING
        self._last.pop(place, None)
        return tokens
