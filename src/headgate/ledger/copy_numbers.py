"""Copies and tokens as numbers: a copy of a message for a view, and the proof of its claim.

A copy, (offset, rule), is one integer that sorts like the pair: `offset · 2^20 + rule`. A token is the copy and the
number of its claim. No two claims of a ledger have the same number, so the token of an earlier claim fits no later one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]

RULE_BITS = 20
MAX_RULE = (1 << RULE_BITS) - 1
MAX_OFFSET = (1 << 63 - RULE_BITS) - 1
NO_COPY = (1 << 63) - 1
"""Above every copy: the end of the copies that were not seen yet."""

_TOKEN = struct.Struct(">qq")
TOKEN_BYTES = _TOKEN.size


def copy_number(offset: int, rule: int = 0) -> int:
    """The copy that a rule made of the message at `offset`; rule 0 is the plain copy.

    Raises ValueError for an offset of 2^43 or more, or a rule of 2^20 or more.
    """
    if not (0 <= offset <= MAX_OFFSET and 0 <= rule <= MAX_RULE):
        raise ValueError(f"copy of offset {offset} and rule {rule}; expected below 2^43 and below 2^20")
    return offset << RULE_BITS | rule


def offset_of(copy: int) -> int:
    """The offset of the message that a copy was made of."""
    return copy >> RULE_BITS


def rule_of(copy: int) -> int:
    """The rule that made a copy; 0 for the plain one."""
    return copy & MAX_RULE


@dataclass(slots=True)
class Tokens:
    """Tokens as two columns, `(tokens,)` int64; copies may be in any order, each at most once in a call."""

    copies: Int64Array
    claims: Int64Array

    def __len__(self) -> int:
        return len(self.copies)

    @staticmethod
    def of(pairs: Iterable[tuple[int, int]]) -> Tokens:
        """Tokens from (copy, claim)."""
        columns = np.array(list(pairs), dtype=np.int64).reshape(-1, 2)
        return Tokens(columns[:, 0], columns[:, 1])

    @staticmethod
    def of_claim(copies: Int64Array, claim: int) -> Tokens:
        """The tokens of some copies of one claim."""
        return Tokens(copies, np.full(len(copies), claim, dtype=np.int64))

    @staticmethod
    def unpack(packed: Sequence[bytes]) -> Tokens:
        """Tokens from their bytes. Raises ValueError for one that is not 16 bytes long."""
        if any(map(TOKEN_BYTES.__ne__, map(len, packed))):
            raise ValueError(f"a token of other than {TOKEN_BYTES} bytes")
        columns = np.frombuffer(b"".join(packed), dtype=">i8").astype(np.int64).reshape(-1, 2)
        return Tokens(columns[:, 0], columns[:, 1])

    def pack(self) -> list[bytes]:
        """16 bytes per token, as a delivery tag or a receipt handle carries them."""
        return list(map(_TOKEN.pack, self.copies.tolist(), self.claims.tolist()))

    def octets(self) -> NDArray[np.uint8]:
        """As `pack`, in rows, `(tokens, 16)`."""
        columns = np.empty((len(self.copies), 2), dtype=">i8")
        columns[:, 0], columns[:, 1] = self.copies, self.claims
        return columns.view(np.uint8)

    def take(self, rows: NDArray[np.bool_]) -> Tokens:
        """The tokens selected by a mask."""
        return Tokens(self.copies[rows], self.claims[rows])
