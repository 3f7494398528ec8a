"""Counts and samples of a trial: bounded for any number of messages, mergeable, plain JSON between processes.

Rules, subscriptions and compared names are known by their places in the `TrialRequest`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.errors import MessageError
from headgate.message import Message

Int64Array = NDArray[np.int64]

MOST_PAIRS = 100_000
"""At most this many pairs of rules are counted; `Overlaps.complete` is false if there were more."""

MOST_SAMPLES_KEPT = 10_000
"""At most this many samples are kept in all, however many rules there are."""

_PAIRS_AT_ONCE = 1 << 20
_SHOWN_TEXT_CHARACTERS = 200
_SHOWN_ENTRIES = 50
_SHOWN_CHARACTERS = 4_000


class Shared(msgspec.Struct):
    """How many messages went to none, to one and to several."""

    none: int = 0
    one: int = 0
    several: int = 0

    def count(self, takers: NDArray[np.intp]) -> None:
        """Count messages by how many take each: `(messages,)`."""
        none, one = int((takers == 0).sum()), int((takers == 1).sum())
        self.none += none
        self.one += one
        self.several += len(takers) - none - one

    def add(self, other: Shared) -> None:
        """Add the counts of other messages."""
        self.none += other.none
        self.one += other.one
        self.several += other.several


class Overlap(msgspec.Struct, array_like=True):
    """In how many messages a pair meets, and the first of them."""

    messages: int
    first_offset: int


class Overlaps(msgspec.Struct):
    """Pairs that meet in the same message, by `first * width + second` with first ≤ second."""

    width: int
    pairs: dict[int, Overlap] = {}
    complete: bool = True

    def count(self, rows: Int64Array, members: Int64Array, offsets: Int64Array) -> None:
        """Count the members of messages; `rows` are ascending, the members of a row in any order, also repeated.

        Messages with the same members are counted together; the cost is the square of how many members meet.
        """
        order = np.lexsort((members, rows))
        rows, members = rows[order], members[order]
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        lengths = np.diff(starts, append=len(rows))
        for length in np.unique(lengths[lengths > 1]).tolist():
            firsts = starts[lengths == length]
            sets = members[firsts[:, None] + np.arange(length)]
            _, first, counts = np.unique(sets, axis=0, return_index=True, return_counts=True)
            if length * (length - 1) // 2 > MOST_PAIRS:
                self.complete = False
                length = int((2 * MOST_PAIRS) ** 0.5)
            left, right = np.triu_indices(length, 1)
            at_once = max(1, _PAIRS_AT_ONCE // len(left))
            for start in range(0, len(first), at_once):
                part = slice(start, start + at_once)
                kept = sets[first[part]]
                keys = np.sort(kept[:, left] * self.width + kept[:, right], axis=1)
                # Where a member is repeated, so are its pairs: they still meet in one message.
                is_new = np.ones(keys.shape, dtype=np.bool_)
                np.not_equal(keys[:, 1:], keys[:, :-1], out=is_new[:, 1:])
                own_rows = rows[firsts[first[part]]]
                self._fold(
                    keys[is_new],
                    np.broadcast_to(counts[part, None], keys.shape)[is_new],
                    np.broadcast_to(offsets[own_rows, None], keys.shape)[is_new],
                )

    def _fold(self, keys: Int64Array, counts: NDArray[np.intp], offsets: Int64Array) -> None:
        found, inverse = np.unique(keys, return_inverse=True)
        totals = np.bincount(inverse, weights=counts).astype(np.int64)
        first = np.full(len(found), np.iinfo(np.int64).max)
        np.minimum.at(first, inverse, offsets)
        for key, messages, offset in zip(found.tolist(), totals.tolist(), first.tolist(), strict=True):
            self._add(key, Overlap(messages, offset))

    def _add(self, key: int, overlap: Overlap) -> None:
        known = self.pairs.get(key)
        if known is not None:
            known.messages += overlap.messages
            known.first_offset = min(known.first_offset, overlap.first_offset)
        elif len(self.pairs) < MOST_PAIRS:
            self.pairs[key] = overlap
        else:
            self.complete = False

    def add(self, other: Overlaps) -> None:
        """Add the pairs of other messages."""
        self.complete &= other.complete
        for key, overlap in other.pairs.items():
            self._add(key, overlap)


class SampleKind(enum.Enum):
    """The kind of an example; the place beside it is the rule or subscription."""

    MATCHED = "matched"
    ERROR = "error"
    FAILED_ACTION = "failed_action"
    NONE = "none"
    SEVERAL = "several"
    ONLY_OLD = "only_old"
    ONLY_NEW = "only_new"
    CHANGED = "changed"


class Sample(msgspec.Struct):
    """One message: its offset, its content (long parts are cut), and why it was kept."""

    offset: int
    timestamp_ms: int
    message: Any
    note: str | None = None


class Findings(msgspec.Struct):
    """The counts of a trial over some messages; `TrialReport` has the same under names.

    Per rule: `matched`, `failed_actions`, `errors` and `unknown` (−1 where not counted), `clauses` (per clause how many
    false, true, unknown, error). Per subscription: `received` messages, `copies`. `by_rules` counts messages by how
    many rules are true, `by_copies` by how many copies they give. Per compared name: `rule_changes` (both, only old,
    only new), `subscription_changes` (same, changed, only old, only new); `messages_changed` have any change of copies.
    Where a rule has a path into bodies, `unreadable_bodies` counts those that are no JSON, or not of the stream's
    schema: every path is unknown there.
    """

    matched: list[int]
    failed_actions: list[int]
    errors: list[int]
    unknown: list[int]
    clauses: list[list[list[int]]]
    received: list[int]
    copies: list[int]
    rule_overlaps: Overlaps
    subscription_overlaps: Overlaps
    rule_changes: list[list[int]]
    subscription_changes: list[list[int]]
    samples: dict[str, list[Sample]] = {}
    messages: int = 0
    malformed: int = 0
    unreadable_bodies: int = 0
    messages_changed: int = 0
    by_rules: Shared = msgspec.field(default_factory=Shared)
    by_copies: Shared = msgspec.field(default_factory=Shared)

    def add(self, other: Findings, *, samples: int) -> None:
        """Add the findings of other messages, keeping the first `samples` of each kind by offset."""
        for name in ("messages", "malformed", "unreadable_bodies", "messages_changed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("matched", "failed_actions", "received", "copies"):
            setattr(self, name, _sum(getattr(self, name), getattr(other, name)))
        for name in ("errors", "unknown"):
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, [-1 if one < 0 else one + two for one, two in zip(mine, theirs, strict=True)])
        for name in ("rule_changes", "subscription_changes"):
            setattr(self, name, list(map(_sum, getattr(self, name), getattr(other, name))))
        self.clauses = [list(map(_sum, one, two)) for one, two in zip(self.clauses, other.clauses, strict=True)]
        self.by_rules.add(other.by_rules)
        self.by_copies.add(other.by_copies)
        self.rule_overlaps.add(other.rule_overlaps)
        self.subscription_overlaps.add(other.subscription_overlaps)
        for key, found in other.samples.items():
            merged = sorted([*self.samples.get(key, ()), *found], key=lambda sample: sample.offset)
            self.samples[key] = merged[:samples]

    def samples_of(self, kind: SampleKind, place: int = 0) -> list[Sample]:
        """The samples of a kind, by offset."""
        return self.samples.get(sample_key(kind, place), [])


def sample_key(kind: SampleKind, place: int) -> str:
    """The key of samples in `Findings.samples`."""
    return f"{kind.value}:{place}"


def _sum(one: list[int], two: list[int]) -> list[int]:
    return [left + right for left, right in zip(one, two, strict=True)]


def described(encoded: bytes) -> dict[str, Any]:
    """A message as JSON for a sample: long texts and maps cut, bytes that are not a message as hex."""
    try:
        shown: dict[str, Any] = Message.decode(encoded).describe(typed=False)
    except MessageError as error:
        shown = {"malformed": str(error), "encoded_hex": encoded[: _SHOWN_TEXT_CHARACTERS // 2].hex()}
    shown = _cut(shown)
    if len(msgspec.json.encode(shown)) > _SHOWN_CHARACTERS:
        return {"size_bytes": len(encoded), "too_long_to_show": sorted(shown)}
    return shown


def _cut(value: Any) -> Any:
    match value:
        case str() if len(value) > _SHOWN_TEXT_CHARACTERS:
            return value[:_SHOWN_TEXT_CHARACTERS] + "…"
        case Mapping():
            entries = list(value.items())[:_SHOWN_ENTRIES]
            rest = {"…": f"{len(value) - _SHOWN_ENTRIES} more"} if len(value) > _SHOWN_ENTRIES else {}
            return {key: _cut(each) for key, each in entries} | rest
        case list():
            rest_items = [f"… {len(value) - _SHOWN_ENTRIES} more"] if len(value) > _SHOWN_ENTRIES else []
            return [_cut(each) for each in value[:_SHOWN_ENTRIES]] + rest_items
        case _:
            return value
