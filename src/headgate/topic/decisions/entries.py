"""The places of messages that any subscription has a copy of: a small part of all where filters are selective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.log import ENTRY_DTYPE
from headgate.topic.decisions.runs import NOTHING, Int64Array


@dataclass(frozen=True, slots=True)
class Entries:
    """Offsets of messages, ascending, and where each lies with its checksum, `(messages,)` of ENTRY_DTYPE."""

    offsets: Int64Array
    entries: NDArray[np.void]

    def __len__(self) -> int:
        return len(self.offsets)

    def of(self, offsets: Int64Array) -> NDArray[np.void]:
        """The entries of some offsets, `(offsets,)`; zeros for an offset without one."""
        found = np.zeros(len(offsets), dtype=ENTRY_DTYPE)
        if len(self.offsets):
            places = np.minimum(self.offsets.searchsorted(offsets), len(self.offsets) - 1)
            is_there = self.offsets[places] == offsets
            found[is_there] = self.entries[places[is_there]]
        return found

    @staticmethod
    def joined(parts: Sequence[Entries]) -> Entries:
        """The entries of several parts, one part behind the other."""
        if not parts:
            return NO_ENTRIES
        # Else numpy turns the bytes of numbers round.
        entries = np.concatenate([part.entries for part in parts], dtype=ENTRY_DTYPE)
        return Entries(np.concatenate([part.offsets for part in parts]), entries)


NO_ENTRIES = Entries(NOTHING, np.zeros(0, dtype=ENTRY_DTYPE))
