"""One group on one queue in the order of its message groups: the unsettled messages, and the next that may be given.

The ledger knows which messages are unsettled, but not their message groups: these are read once after a start
(`learn`), and noted as messages come (`note`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headgate.broker.consumer_groups.message_groups import MessageGroups
from headgate.broker.delivery import CopySource, ReadCopies, drop_copies
from headgate.ledger import Standing, View
from headgate.message import EncodedMessages, parse_field
from headgate.message.lookup import locate_bytes

INDEXED_BYTES = 512 << 10
"""Limit: bytes read at a time to learn message groups."""

_COPIES_A_STEP = 2_048
_MESSAGE_GROUP = parse_field("properties.group-id")


class MessageOrder:
    """Follows a view of the ledger, and never leads it: messages settled meanwhile are left out at their turn."""

    __slots__ = ("_groups", "_known_until", "_source", "_view")

    def __init__(self, view: View, source: CopySource) -> None:
        self._view = view
        self._source = source
        self._groups = MessageGroups()
        self._known_until = 0
        """Below this copy the message groups of all unsettled messages are known."""

    @property
    def is_known(self) -> bool:
        """Whether the message groups of all unsettled messages are known; before that nothing may be given."""
        return self._known_until >= self._view.seen_until

    @property
    def has_free(self) -> bool:
        """Whether `take` may give messages."""
        return self._groups.has_free

    def learn(self) -> None:
        """Learn the message groups of unsettled messages, some at a time. Raises LogError."""
        copies = self._view.unsettled(self._known_until, _COPIES_A_STEP)
        if not len(copies):
            self._known_until = self._view.seen_until
            return
        read = self._source.read(copies, max_bytes=INDEXED_BYTES)
        last = int(read.copies[-1]) if len(read) else int(copies[-1])
        gone = np.setdiff1d(copies[copies <= last], read.copies)
        drop_copies(self._view, gone[self._view.standings(gone) == Standing.AVAILABLE])
        for copy, group, standing in zip(
            read.copies.tolist(),
            _message_groups(read.messages),
            self._view.standings(read.copies).tolist(),
            strict=True,
        ):
            if standing == Standing.AVAILABLE:
                self._groups.add([copy], [group])
            elif standing != Standing.SETTLED:
                self._groups.add_held(copy, group)
        self._known_until = last + 1

    def note(self, found: ReadCopies, covered: Sequence[tuple[int, int]]) -> None:
        """Note new messages, which wait for their turn; `covered` are the ranges searched for them."""
        self._view.postpone(found.copies, 0, covered=covered)
        self._known_until = self._view.seen_until
        self._groups.add(found.copies.tolist(), _message_groups(found.messages))

    def take(self, limit: int) -> NDArray[np.int64]:
        """At most `limit` available messages of free message groups, in order; these groups are held from now on.

        Messages that are not claimed then go back by `changed`.
        """
        while len(copies := np.array(self._groups.take(limit), dtype=np.int64)):
            is_available = self._view.standings(copies) == Standing.AVAILABLE
            self.changed(copies[~is_available])
            if is_available.any():
                available: NDArray[np.int64] = copies[is_available]
                return available
        return copies

    def changed(self, copies: Sequence[int] | NDArray[np.int64]) -> None:
        """Messages that members had may have been settled or released."""
        if not len(copies):
            return
        column = np.asarray(copies, dtype=np.int64)
        standings = self._view.standings(column)
        self._groups.settled(column[standings == Standing.SETTLED].tolist())
        # One that waits for its time holds up its message group.
        self._groups.back(column[standings == Standing.AVAILABLE].tolist())

    def look_at_held(self) -> None:
        """Check all held messages: by now they may be settled or available."""
        self.changed(self._groups.held())


def _message_groups(messages: EncodedMessages) -> list[bytes]:
    """The message group of each message; all messages without one share one."""
    starts, lengths = locate_bytes(messages, _MESSAGE_GROUP)
    data = messages.data
    return [
        bytes(data[start : start + length]) if length > 0 else b""
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]
