"""Which filters of a set are evaluated together, and how."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.evaluate.rules.parts import AlonePart, Member, Part, ReferencePart

MOST_ALONE = 3
"""So many filters are evaluated one after the other."""


def parts_of(members: Sequence[Member]) -> tuple[Part, ...]:
    """Parts that have each of the filters once."""
    if len(members) <= MOST_ALONE:
        return (AlonePart(members),) if members else ()
    return (ReferencePart(members),)
