"""The session ids of copies: a plain copy has the one of its message, another copy the one that its action leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headgate.message import EncodedMessages, parse_field
from headgate.message.lookup import locate_bytes
from headgate.topic.copies import PLAIN
from headgate.topic.decisions.pairs import NO_PAIRS, Pairs
from headgate.topic.decisions.runs import NOTHING, Int64Array

MAX_SESSION_ID_BYTES = 512
"""Limit: bytes of a session id. A longer one counts as none, so messages cannot make postings large."""

OF_MESSAGES = 0
"""The subscription number that stands for the plain copies of all subscriptions."""

_GROUP_ID = parse_field("properties.group_id")
_RULE_BITS = 32


@dataclass(frozen=True, slots=True)
class SessionIds:
    """The session ids of the copies that have one: `names[places[i]]` is the one of copy i; `places` is `(copies,)`.

    Plain copies have the number `OF_MESSAGES` as their subscription.
    """

    copies: Pairs
    places: Int64Array
    names: Sequence[bytes]


NO_SESSION_IDS = SessionIds(NO_PAIRS, NOTHING, ())


def find_places(
    copies: Pairs, places: Int64Array, subscription: int, offsets: Int64Array, rules: Int64Array
) -> Int64Array:
    """The places of a subscription's copies, from `copies` and `places` as in `SessionIds`; −1 without a session id.

    The copies are named by offset and rule, `(copies,)` ascending, and lie in one block.
    """
    found = np.full(len(offsets), -1, dtype=np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    is_plain = rules == PLAIN
    for number, rows in ((OF_MESSAGES, np.flatnonzero(is_plain)), (subscription, np.flatnonzero(~is_plain))):
        own = copies.rows_of(number)
        start, stop = (own.start + copies.offsets[own].searchsorted((first, last + 1))).tolist()
        if len(rows) and start < stop:
            keys = _keys(copies.offsets[start:stop] - first, copies.rules[start:stop])
            wanted = _keys(offsets[rows] - first, rules[rows])
            at = np.minimum(keys.searchsorted(wanted), len(keys) - 1)
            is_there = keys[at] == wanted
            found[rows[is_there]] = places[start + at[is_there]]
    return found


def _keys(offsets: Int64Array, rules: Int64Array) -> Int64Array:
    """Offsets, counted from one of the block, and rules; they sort like the pairs."""
    return (offsets << _RULE_BITS) | rules


class SessionNames:
    """Session ids in the making."""

    def __init__(self) -> None:
        self._names: dict[bytes, int] = {}
        self._copies: list[Pairs] = []
        self._places: list[Int64Array] = []

    def add_plain(self, messages: EncodedMessages, offsets: Int64Array) -> None:
        """Add messages with any plain copy, with their offsets, ascending; call `add` afterwards."""
        subscriptions, rules = (np.full(len(offsets), value, dtype=np.int64) for value in (OF_MESSAGES, PLAIN))
        self.add(messages, Pairs(subscriptions, offsets, rules))

    def add(self, messages: EncodedMessages, copies: Pairs) -> None:
        """Add copies with their bytes, `(copies,)`."""
        starts, lengths = locate_bytes(messages, _GROUP_ID)
        rows = np.flatnonzero((lengths >= 0) & (lengths <= MAX_SESSION_ID_BYTES))
        names, data = self._names, messages.data.data
        bounds = zip(starts[rows].tolist(), (starts + lengths)[rows].tolist(), strict=True)
        places = [names.setdefault(bytes(data[start:stop]), len(names)) for start, stop in bounds]
        self._copies.append(copies.take(rows))
        self._places.append(np.array(places, dtype=np.int64))

    def taken(self) -> SessionIds:
        """All that were added."""
        return SessionIds(Pairs.concatenated(self._copies), np.concatenate(self._places), list(self._names))
