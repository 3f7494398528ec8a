"""The bytes of copies: a message of the topic's stream as it is, or as the action of a rule changes it.

A copy is made again whenever it is read, from message, rule in force and time of arrival: always the same bytes as from
`Router.route`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.errors import LogError, RuleNotFoundError
from headgate.evaluate import Action, changed_copies
from headgate.log import ENTRY_DTYPE
from headgate.message import EncodedMessages
from headgate.message.lookup import MessageCollector
from headgate.scan import MessageReader
from headgate.topic.copies import PLAIN, copy_identity
from headgate.topic.dead_letters import letter_of
from headgate.topic.decisions.block import end_of
from headgate.topic.decisions.postings import Postings
from headgate.topic.decisions.runs import Int64Array
from headgate.topic.rule import Rule

_KEPT_RULES = 4096


@dataclass(slots=True)
class CopyBatch:
    """Copies of a subscription in order: bytes, offset and rule of each, and when its message arrived, `(copies,)`.

    The bytes lie in a mapping of a file or in a buffer that the next read overwrites: copy them to keep them.
    """

    messages: EncodedMessages
    offsets: Int64Array
    rules: Int64Array
    timestamps_ms: Int64Array

    def __len__(self) -> int:
        return len(self.offsets)


class CopyReader:
    """Reads copies of all subscriptions of a topic; keeps files open. Not for several threads at once."""

    def __init__(self, postings: Postings) -> None:
        self._postings = postings
        self._stream = postings.stream.name
        self._messages = MessageReader(postings.stream, postings.recent)
        self._history = postings.history
        self._rules: dict[tuple[int, int], dict[int, Rule]] = {}

    def __enter__(self) -> CopyReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close files; again is harmless."""
        self._messages.close()

    def read(self, subscription: int, offsets: Int64Array, rules: Int64Array) -> CopyBatch:
        """The copies of a subscription, by its number, that are named by offset and rule, `(copies,)` ascending.

        The subscription must have these copies, according to `Postings`. Memory: their bytes, and a window of chunks;
        the caller bounds their number. Raises OffsetOutOfRangeError for a message that retention deleted,
        CorruptChunkError with file and position, RuleNotFoundError for a rule that gives no such copy.
        """
        is_again = offsets[1:] == offsets[:-1]
        if len(is_again) and is_again.any():
            rows = np.append(0, np.cumsum(~is_again))
            found = self._messages.read(offsets[np.append(True, ~is_again)], self._entries)
            messages, times = found.messages.take(rows), found.timestamps_ms[rows]
        else:
            found = self._messages.read(offsets, self._entries)
            messages, times = found.messages, found.timestamps_ms
        acting = np.flatnonzero(rules != PLAIN)
        if len(acting):
            changed = self._changed(subscription, messages.take(acting), offsets[acting], rules[acting], times[acting])
            messages = changed if len(acting) == len(offsets) else _placed(messages, acting, changed)
        return CopyBatch(messages, offsets, rules, times)

    def dead_letter(self, subscription: int, offset: int, rules: Iterable[int]) -> tuple[bytes, int]:
        """The dead letter of a subscription that `Postings.failures` names by offset and all its rules; 0 is each rule.

        Also when its message arrived. Raises as `read`.
        """
        found = self._messages.read(np.array([offset], dtype=np.int64))
        (piece,) = self._postings.history.ranges(offset, offset + 1)
        in_force = self._rules_at(subscription, piece.since, offset)
        numbers = set(rules)
        failed = [rule for number, rule in in_force.items() if number in numbers or PLAIN in numbers]
        arrived_ms = int(found.timestamps_ms[0])
        letter = letter_of(
            found.messages.message(0),
            failed,
            now_ms=arrived_ms,
            identity_of=lambda rule: copy_identity(self._stream, offset, subscription, rule.number),
        )
        return letter, arrived_ms

    def _changed(
        self,
        subscription: int,
        messages: EncodedMessages,
        offsets: Int64Array,
        rules: Int64Array,
        timestamps_ms: Int64Array,
    ) -> EncodedMessages:
        """The messages as the actions of rules change them."""
        actions: list[tuple[Action, str | None]] = []
        which = np.empty(len(offsets), dtype=np.int64)
        for piece in self._postings.history.ranges(int(offsets[0]), int(offsets[-1]) + 1):
            part = slice(*np.searchsorted(offsets, (piece.start, piece.stop)).tolist())
            numbers, places = np.unique(rules[part], return_inverse=True)
            if not len(numbers):
                continue
            in_force = self._rules_at(subscription, piece.since, piece.start)
            which[part] = places + len(actions)
            for number in numbers.tolist():
                rule = in_force.get(number)
                if rule is None or rule.action is None:
                    raise self._no_copy(subscription, number, int(offsets[part][0]))
                actions.append((rule.action, rule.name))

        def identity_of(row: int) -> bytes:
            return copy_identity(self._stream, int(offsets[row]), subscription, int(rules[row]))

        copies = changed_copies(actions, which, messages, now_ms=timestamps_ms, identity_of=identity_of)
        if len(copies.failed):
            row = int(copies.failed[0])
            raise self._no_copy(subscription, int(rules[row]), int(offsets[row]))
        return copies.messages

    def _rules_at(self, subscription: int, since: int, offset: int) -> dict[int, Rule]:
        """The rules of a subscription for an offset, by number; they are the same from the offset `since` on."""
        if self._history is not self._postings.history or len(self._rules) >= _KEPT_RULES:
            self._history, self._rules = self._postings.history, {}
        found = self._rules.get((subscription, since))
        if found is None:
            found = self._rules[subscription, since] = self._history.rules_at(subscription, offset)
        return found

    def _no_copy(self, subscription: int, rule: int, offset: int) -> RuleNotFoundError:
        return RuleNotFoundError(
            f"rule {rule} of subscription {subscription} gives no copy of the message at offset {offset}",
            topic=self._stream,
        )

    def _entries(self, offsets: Int64Array) -> NDArray[np.void]:
        """Where messages lie by the postings; zeros where these cannot tell."""
        found = np.zeros(len(offsets), dtype=ENTRY_DTYPE)
        first = 0
        while first < len(offsets):
            start = int(offsets[first])
            stop = int(np.searchsorted(offsets, end_of(start)))
            part = offsets[first:stop]
            with contextlib.suppress(LogError, OSError):
                found[first:stop] = self._postings.entries(part)
            first = stop
        return found


def _placed(messages: EncodedMessages, rows: NDArray[np.intp], others: EncodedMessages) -> EncodedMessages:
    """The messages with others in some rows, side by side in a new buffer."""
    kept = np.ones(len(messages), dtype=np.bool_)
    kept[rows] = False
    places = np.flatnonzero(kept)
    collector = MessageCollector()
    collector.add(messages.take(places))
    collector.add(others)
    order = np.empty(len(messages), dtype=np.int64)
    order[np.concatenate([places, rows])] = np.arange(len(messages))
    return collector.take().take(order)
