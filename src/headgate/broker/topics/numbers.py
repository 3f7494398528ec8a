"""The sequence numbers of copies, as clients of Service Bus see them."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", int, NDArray[np.int64])


def sequence_number(copy: Number) -> Number:
    """The number of a copy (offset · 2^20 + rule): one more than that, so above 0 and below 2^63.

    It grows with the offset, then with the rule, which is the order of the copies of a message: the plain copy is that
    of rule 0, others have the numbers of their rules in order of creation. Nothing else goes into it, so it stays the
    same over restarts and changes of rules. Numbers have gaps. Dead letters are numbered by their own stream.
    """
    return copy + 1


def copy_of(number: int) -> int:
    """The copy with a sequence number; 0 for numbers below 1, as a place to begin at."""
    return max(number - 1, 0)
