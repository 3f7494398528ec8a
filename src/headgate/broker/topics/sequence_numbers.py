"""The sequence numbers of copies, as clients of Service Bus see them."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", int, NDArray[np.int64])


def sequence_number(copy: Number) -> Number:
    """The sequence number of a copy (offset · 2^20 + rule): the copy plus one, so above 0 and below 2^63.

    It grows with the offset, then with the rule, which orders the copies of a message: the plain copy has rule 0,
    others the numbers of their rules, in order of creation. It depends on nothing else, so it stays the same over
    restarts and changes of rules. Numbers have gaps. Dead letters are numbered by their own stream.
    """
    return copy + 1


def copy_of(number: int) -> int:
    """The copy with a sequence number; for numbers below 1 it is 0, the beginning."""
    return max(number - 1, 0)
