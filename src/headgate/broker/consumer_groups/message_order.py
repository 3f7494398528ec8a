"""One group on one queue in the order of its message groups: what is unsettled, and what of it may be given.

The ledger knows which messages are unsettled, not their message groups: those are read once after a start (`learn`),
and noted as messages come (`note`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headgate.broker.consumer_groups.message_groups import MessageGroups
from headgate.broker.topics import ReadCopies, StreamSource
from headgate.ledger import Standing, View
from headgate.message import EncodedMessages, parse_field
from headgate.message.lookup import locate_bytes

INDEXED_BYTES = 512 << 10
"""At most so much is read at a time to find out message groups."""

_COPIES_A_STEP = 2_048
_MESSAGE_GROUP = parse_field("properties.group-id")


class MessageOrder:
    """Follows a view of the ledger, and never leads it: what was settled meanwhile is left out when it is reached."""

    __slots__ = ("_groups", "_known_until", "_source", "_view")

    def __init__(self, view: View, source: StreamSource) -> None:
        self._view = view
        self._source = source
        self._groups = MessageGroups()
        self._known_until = 0
        """Below this copy the message groups of all that is unsettled are known."""

    @property
    def is_known(self) -> bool:
        """Whether the message groups of all that is unsettled are known; nothing may be given before."""
        return self._known_until >= self._view.seen_until

    @property
    def has_free(self) -> bool:
        """Whether `take` may give something."""
        return self._groups.has_free

    def learn(self) -> None:
        """Find out the message groups of what is unsettled, some at a time. Raises LogError."""
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
        """Messages that nobody was given wait for their turn; `covered` is all that was looked at for them."""
        self._view.postpone(found.copies, 0, covered=covered)
        self._known_until = self._view.seen_until
        self._groups.add(found.copies.tolist(), _message_groups(found.messages))

    def take(self, limit: int) -> NDArray[np.int64]:
        """Available messages of free message groups, in order, at most so many; they are not free any more.

        Those that are not claimed then go back by `changed`.
        """
        while len(copies := np.array(self._groups.take(limit), dtype=np.int64)):
            is_available = self._view.standings(copies) == Standing.AVAILABLE
            self.changed(copies[~is_available])
            if is_available.any():
                available: NDArray[np.int64] = copies[is_available]
                return available
        return copies

    def changed(self, copies: Sequence[int] | NDArray[np.int64]) -> None:
        """Something became of messages that somebody had."""
        if not len(copies):
            return
        column = np.asarray(copies, dtype=np.int64)
        standings = self._view.standings(column)
        self._groups.settled(column[standings == Standing.SETTLED].tolist())
        # One that waits for its time holds up its message group.
        self._groups.back(column[standings == Standing.AVAILABLE].tolist())

    def look_at_held(self) -> None:
        """Time passed: what somebody had may be settled, or available."""
        self.changed(self._groups.held())


def drop_copies(view: View, copies: NDArray[np.int64]) -> None:
    """Settle messages that nobody has. Raises LogError."""
    if len(copies):
        view.complete_ranges([(copy, copy + 1) for copy in copies.tolist()])


def _message_groups(messages: EncodedMessages) -> list[bytes]:
    """The message group of each message; those without one are one message group."""
    starts, lengths = locate_bytes(messages, _MESSAGE_GROUP)
    data = messages.data
    return [
        bytes(data[start : start + length]) if length > 0 else b""
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]
