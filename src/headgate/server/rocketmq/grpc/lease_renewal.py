"""Renewal of invisible times: the unsettled messages of a push consumer stay invisible while the client lives.

Messages of one receive and queue are renewed together, halfway through their invisible time, for at most three hours,
as in the original. When the client is gone they are visible to others after a second.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Sequence

import msgspec

from headgate.broker.consumer_groups import GroupView
from headgate.errors import HeadgateError

LONGEST_MS = 3 * 3_600_000
LEFT_BEHIND_MS = 1_000

logger = logging.getLogger("headgate.server.rocketmq")


class _Given(msgspec.Struct, eq=False):
    view: GroupView
    tokens: set[bytes]
    invisible_ms: int
    ends_ms: int
    due_ms: int


class Renewals:
    """The unsettled messages of one client whose invisible times are renewed."""

    __slots__ = ("_given", "_held")

    def __init__(self) -> None:
        self._held: dict[tuple[GroupView, bytes], _Given] = {}
        """By group view and token; a token belongs to one queue."""
        self._given: deque[_Given] = deque()
        """Earliest due first."""

    def __len__(self) -> int:
        """How many messages."""
        return len(self._held)

    def add(self, view: GroupView, tokens: Sequence[bytes], *, invisible_ms: int, now_ms: int) -> None:
        """The client was given messages of a queue."""
        given = _Given(view, set(tokens), invisible_ms, now_ms + LONGEST_MS, now_ms + invisible_ms // 2)
        self._given.append(given)
        self._held.update({(view, token): given for token in tokens})

    def drop(self, view: GroupView, tokens: Sequence[bytes]) -> None:
        """The client settled messages, or said when they are visible; unknown tokens are ignored."""
        for token in tokens if self._held else ():
            given = self._held.pop((view, token), None)
            if given is not None:
                given.tokens.discard(token)

    def tick(self, now_ms: int) -> None:
        """Renew the messages that are due."""
        while self._given and (self._given[0].due_ms <= now_ms or not self._given[0].tokens):
            given = self._given.popleft()
            if now_ms >= given.ends_ms:
                self.drop(given.view, tuple(given.tokens))
            elif given.tokens:
                tokens = tuple(given.tokens)
                given.view.change_invisible(
                    tokens, given.invisible_ms, functools.partial(self._renewed, given.view, tokens)
                )
                given.due_ms = now_ms + given.invisible_ms // 2
                self._given.append(given)

    def clear(self) -> None:
        """The client is gone."""
        for given in self._given:
            if given.tokens:
                given.view.change_invisible(tuple(given.tokens), LEFT_BEHIND_MS, lambda _: None)
        self._given.clear()
        self._held.clear()

    def _renewed(self, view: GroupView, tokens: Sequence[bytes], result: Sequence[bool] | HeadgateError) -> None:
        if isinstance(result, HeadgateError):
            logger.warning("%d messages were not renewed: %s", len(tokens), result)
        else:
            self.drop(view, [token for token, is_renewed in zip(tokens, result, strict=True) if not is_renewed])
