"""Names of the rules in force: two ranges of offsets with the same name were decided by the same rules.

A name is the sum of the hashes of everything in force (128 bits), so that the names for all offsets of a history cost
one hash for each version of a rule, for any number of changes.
"""

from __future__ import annotations

import bisect
import hashlib
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from headgate.evaluate import EVALUATOR_REVISION
from headgate.topic.history import RuleHistory
from headgate.version import __version__

EVALUATOR = f"{__version__}/{EVALUATOR_REVISION}"
"""The version of the deciding program; postings of another version are decided again."""

_DIGEST_BYTES = 16
_MODULUS = 1 << (8 * _DIGEST_BYTES)
_ENCODER = msgspec.json.Encoder(order="deterministic")


class RuleState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """The name of the rules in force from offset `start` on, up to the next state."""

    start: int
    name: str


class RuleStates:
    """The names of the rules in force at every offset of a history. Cost: microseconds per version of a rule."""

    def __init__(self, history: RuleHistory) -> None:
        head = history.head(pruned_below=history.pruned_below)
        changes: defaultdict[int, int] = defaultdict(int)

        def add(start: int, stop: int | None, *content: object) -> None:
            hashed = _hash(content)
            changes[start] += hashed
            if stop is not None:
                changes[stop] -= hashed

        for each in head.subscriptions:
            properties = each.fall_through, each.dead_letter_on_errors, each.settings.requires_session
            add(each.from_offset, each.to_offset, each.number, *properties)
        for rule in head.rules:
            add(rule.from_offset, rule.to_offset, rule.subscription, rule.number, rule.rule)
        start = 0
        for earlier in head.earlier_limits:
            add(start, earlier.to_offset, earlier.limits.content)
            start = earlier.to_offset
        add(start, None, head.limits.content)
        self.pruned_below = history.pruned_below
        self._starts: list[int] = []
        self._names: list[str] = []
        total = 0
        for offset in sorted(changes):
            total = (total + changes[offset]) % _MODULUS
            self._starts.append(offset)
            self._names.append(f"{total:032x}")

    def within(self, start: int, stop: int) -> tuple[RuleState, ...]:
        """The states for offsets `start … stop`, in order, no two neighbours the same; none without offsets."""
        found: list[RuleState] = []
        place = max(0, bisect.bisect_right(self._starts, start) - 1)
        while place < len(self._starts) and (not found or self._starts[place] < stop) and start < stop:
            name = self._names[place]
            if not found or found[-1].name != name:
                found.append(RuleState(max(start, self._starts[place]), name))
            place += 1
        return tuple(found)


def from_offset(states: Sequence[RuleState], start: int) -> tuple[RuleState, ...]:
    """The states from an offset on."""
    behind = [each for each in states if each.start > start]
    before = [each for each in states if each.start <= start]
    return (*(RuleState(start, each.name) for each in before[-1:]), *behind)


def _hash(content: object) -> int:
    digest = hashlib.blake2b(_ENCODER.encode(content), digest_size=_DIGEST_BYTES)
    return int.from_bytes(digest.digest())
