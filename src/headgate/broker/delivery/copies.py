"""Copies on their way out of a broker: read, then claimed. Several copies are columns; iterating gives single ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.ledger import Tokens
from headgate.message import EncodedMessages

Int64Array = NDArray[np.int64]
Rows = slice | NDArray[np.bool_]


class CopyState(IntEnum):
    """The state of an unsettled copy."""

    ACTIVE = 0
    DEFERRED = 1
    """A receiver that asks for it by its number."""
    SCHEDULED = 2
    """Its time."""


class ReadCopy(msgspec.Struct, gc=False):
    """One copy as it is delivered: its encoded message, its arrival time, and its `attempts`: earlier deliveries."""

    copy: int
    timestamp_ms: int
    message: bytes
    attempts: int = 0
    state: CopyState = CopyState.ACTIVE


class Delivery(msgspec.Struct, gc=False):
    """One copy on its way to a peer: `message` is its encoded AMQP 1.0 message, with the action of its rule applied.

    `token` (16 bytes) settles it; it is empty for a copy that is settled already. `copy` is offset · 2^20 + rule;
    `attempt` begins with 1. It arrived in its topic at `timestamp_ms`, and is locked for its peer until
    `locked_until_ms`.
    """

    token: bytes
    copy: int
    attempt: int
    timestamp_ms: int
    locked_until_ms: int
    message: bytes


class ReadCopies(Sequence[ReadCopy]):
    """Copies that were read, ascending: `copies` and `timestamps_ms`, `(copies,)` int64, and their messages.

    They own their bytes: no later read overwrites them.
    """

    __slots__ = ("copies", "messages", "timestamps_ms")

    def __init__(self, copies: Int64Array, timestamps_ms: Int64Array, messages: EncodedMessages) -> None:
        self.copies = copies
        self.timestamps_ms = timestamps_ms
        self.messages = messages

    def __len__(self) -> int:
        return len(self.copies)

    @overload
    def __getitem__(self, row: int) -> ReadCopy: ...

    @overload
    def __getitem__(self, row: slice) -> ReadCopies: ...

    def __getitem__(self, row: int | slice) -> ReadCopy | ReadCopies:
        if isinstance(row, slice):
            return self.take(row)
        return ReadCopy(int(self.copies[row]), int(self.timestamps_ms[row]), self.messages.message(row))

    def __iter__(self) -> Iterator[ReadCopy]:
        return map(ReadCopy, self.copies.tolist(), self.timestamps_ms.tolist(), self.messages.all_bytes())

    def take(self, rows: Rows) -> ReadCopies:
        """The copies of some rows (a slice or a mask), over the same bytes."""
        return ReadCopies(self.copies[rows], self.timestamps_ms[rows], self.messages.take(rows))


class GivenCopies(Sequence[Delivery]):
    """Copies on their way to one peer: the copies read, `attempts` `(copies,)` int64, and the tokens that settle them.

    `tokens` is None where they are settled already. They are locked for the peer until `locked_until_ms`.
    """

    __slots__ = ("attempts", "locked_until_ms", "read", "tokens")

    def __init__(self, read: ReadCopies, tokens: Tokens | None, attempts: Int64Array, locked_until_ms: int) -> None:
        self.read = read
        self.tokens = tokens
        self.attempts = attempts
        self.locked_until_ms = locked_until_ms

    def __len__(self) -> int:
        return len(self.attempts)

    @overload
    def __getitem__(self, row: int) -> Delivery: ...

    @overload
    def __getitem__(self, row: slice) -> GivenCopies: ...

    def __getitem__(self, row: int | slice) -> Delivery | GivenCopies:
        if isinstance(row, slice):
            return self.take(row)
        return next(iter(self.take(slice(row, row + 1 or None))))

    def __iter__(self) -> Iterator[Delivery]:
        until_ms = self.locked_until_ms
        tokens = self.packed_tokens() or [b""] * len(self)
        return (
            Delivery(token, each.copy, attempt, each.timestamp_ms, until_ms, each.message)
            for token, attempt, each in zip(tokens, self.attempts.tolist(), self.read, strict=True)
        )

    def take(self, rows: Rows) -> GivenCopies:
        """The copies of some rows (a slice or a mask)."""
        tokens = self.tokens
        kept = None if tokens is None else Tokens(tokens.copies[rows], tokens.claims[rows])
        return GivenCopies(self.read.take(rows), kept, self.attempts[rows], self.locked_until_ms)

    @property
    def tags(self) -> NDArray[np.uint8]:
        """A unique tag for each copy, `(copies, 16)`: its token, or copy and attempt where it is settled."""
        tokens = Tokens(self.read.copies, self.attempts) if self.tokens is None else self.tokens
        return tokens.octets()

    def packed_tokens(self) -> list[bytes]:
        """The tokens of all copies; empty where they are settled already."""
        return [] if self.tokens is None else self.tokens.pack()
