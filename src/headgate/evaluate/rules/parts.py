"""The parts of a rule set: each has filters that are evaluated together in one way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headgate.errors import MessageError
from headgate.evaluate import reference
from headgate.evaluate.filter import Filter
from headgate.evaluate.verdict import Verdict
from headgate.message import EncodedMessages, Message

ROW_SHIFT = 31
"""A pair of message and filter is one integer: row << ROW_SHIFT | number."""


@dataclass(slots=True, frozen=True)
class Member:
    """A filter of a rule set under its number; `exact_errors` asks for the messages that are errors to it."""

    number: int
    filter: Filter
    exact_errors: bool


_NOTHING = np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class Found:
    """Pairs as integers, `(n,)` int64 each: where a filter is true, and where it is an error.

    The pairs of one part are sorted, or a few sorted pieces one after the other.
    """

    matches: NDArray[np.int64]
    errors: NDArray[np.int64]

    @staticmethod
    def joined(found: Iterable[Found]) -> Found:
        """All pairs of some parts."""
        parts = list(found)
        if len(parts) == 1:
            return parts[0]
        empty = _NOTHING
        return Found(
            np.concatenate([empty, *(part.matches for part in parts)]),
            np.concatenate([empty, *(part.errors for part in parts)]),
        )


class Part(Protocol):
    """Some filters of a set. Immutable; may be pickled and used by several threads."""

    def __len__(self) -> int:
        """How many filters it has."""

    @property
    def members(self) -> Sequence[Member]:
        """Its filters."""

    def match(self, batch: EncodedMessages, now_ms: int) -> Found:
        """Where its filters are true or an error, for each message."""


@dataclass(slots=True, frozen=True)
class AlonePart:
    """A few filters, each by its own program: sharing would gain nothing."""

    members: Sequence[Member]

    def __len__(self) -> int:
        return len(self.members)

    def match(self, batch: EncodedMessages, now_ms: int) -> Found:
        """One pass over the messages for each filter."""
        return Found.joined(_alone(member, batch, now_ms) for member in self.members)


def _alone(member: Member, batch: EncodedMessages, now_ms: int) -> Found:
    if not member.exact_errors:
        matching = np.flatnonzero(member.filter.mask(batch, now_ms=now_ms))
        return Found(_pairs(matching, member), _NOTHING)
    verdicts = member.filter.verdicts(batch, now_ms=now_ms)
    return Found(
        _pairs(np.flatnonzero(verdicts == Verdict.TRUE), member),
        _pairs(np.flatnonzero(verdicts == Verdict.ERROR), member),
    )


def _pairs(rows: NDArray[np.intp], member: Member) -> NDArray[np.int64]:
    return rows.astype(np.int64) << ROW_SHIFT | member.number


@dataclass(slots=True, frozen=True)
class ReferencePart:
    """Filters that only the reference evaluator decides; each message is decoded once."""

    members: Sequence[Member]

    def __len__(self) -> int:
        return len(self.members)

    def match(self, batch: EncodedMessages, now_ms: int) -> Found:
        """One walk over the tree for each pair of message and filter."""
        return by_reference(((row, self.members) for row in range(len(batch))), batch, now_ms)


def by_reference(asked: Iterable[tuple[int, Iterable[Member]]], batch: EncodedMessages, now_ms: int) -> Found:
    """The results of the reference evaluator for some filters on some messages."""
    matches: list[int] = []
    errors: list[int] = []
    for row, members in asked:
        for member, verdict in _verdicts(batch.message(row), members, now_ms):
            if verdict is Verdict.TRUE:
                matches.append(row << ROW_SHIFT | member.number)
            elif verdict is Verdict.ERROR and member.exact_errors:
                errors.append(row << ROW_SHIFT | member.number)
    return Found(np.array(matches, dtype=np.int64), np.array(errors, dtype=np.int64))


def _verdicts(data: bytes, members: Iterable[Member], now_ms: int) -> Iterator[tuple[Member, Verdict]]:
    try:
        message = Message.decode(data)
    except MessageError:
        yield from ((member, Verdict.ERROR) for member in members)
        return
    for member in members:
        yield member, reference.verdict(member.filter.tree, message, now_ms)
