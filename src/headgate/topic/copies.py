"""Which copies a batch of messages gives to each subscription of a topic (servicebus_filters, sections 1.1 and 1.2).

Every rule looks at the message as it arrived. All rules without action that select it give one copy together, the
message's own bytes; each rule with an action gives a copy of its own, which the action changed and which holds the
rule's name as `RuleName`. A rule that cannot be evaluated, or whose action cannot, gives no copy; the others are not
disturbed. The fall-through subscription gets what no other one got a copy of, also bytes that are no message.

A copy is known by offset, subscription and rule, the plain one as rule 0; a routed batch that is repeated gives the
same bytes, since `newid()` in an action is derived from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headgate.errors import MessageError
from headgate.evaluate.copies import named_after
from headgate.evaluate.rules import RuleSet
from headgate.evaluate.verdict import EvaluationFailed, Verdict
from headgate.message import EncodedMessages, Message
from headgate.topic.dead_letters import dead_letter, failure_of
from headgate.topic.model import Topic
from headgate.topic.rule import Rule

Int64Array = NDArray[np.int64]

PLAIN = 0
"""The rule number of a plain copy."""


def copy_identity(stream: str, offset: int, subscription: int, rule: int) -> bytes:
    """What tells a copy from every other one; the same for a copy that is made again."""
    return b"\0".join((stream.encode(), b"%d" % offset, b"%d" % subscription, b"%d" % rule))


@dataclass(slots=True)
class RuleCounters:
    """What one rule did with the messages of a batch.

    `matched`: it selected the message; `errors`: its filter could not be evaluated; `failed_actions`: its action. In an
    exact router `errors` holds bytes that are no message, too, and `unknown` is counted; in any other `unknown` is
    None, and so is `errors` unless the subscription wants dead-letter copies.
    """

    subscription: str
    rule: str
    matched: int = 0
    failed_actions: int = 0
    errors: int | None = None
    unknown: int | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A copy for the dead letters of a subscription (by place in the topic), of the message in `row` of the batch."""

    subscription: int
    row: int
    encoded: bytes


class Copies:
    """The copies of one batch: `(copies,)` arrays, sorted by subscription, row of the message in the batch, rule.

    `subscriptions` are places in `topic.subscriptions`, `rules` numbers, 0 for plain copies. The plain ones are over
    the buffer of the batch: use them before it is.
    """

    def __init__(
        self,
        topic: Topic,
        batch: EncodedMessages,
        keys: tuple[Int64Array, Int64Array, Int64Array],
        changed: list[bytes],
        counters: list[RuleCounters],
        dead_letters: list[DeadLetter],
    ) -> None:
        self.topic = topic
        self.counters = counters
        self.dead_letters = dead_letters
        self._batch = batch
        self._changed = changed
        subscriptions, rows, rules = keys
        order: NDArray[np.intp] = np.lexsort((rules, rows, subscriptions))
        self.subscriptions = subscriptions[order]
        self.rows = rows[order]
        self.rules = rules[order]
        # Changed copies come first in the keys, in the order of `changed`.
        self._sources = order
        self._bounds: NDArray[np.intp] = np.searchsorted(self.subscriptions, np.arange(len(topic.subscriptions) + 1))

    def __len__(self) -> int:
        return len(self.rows)

    def of(self, subscription: int) -> slice:
        """Where the copies of a subscription are, by its place in the topic."""
        return slice(int(self._bounds[subscription]), int(self._bounds[subscription + 1]))

    def messages(self, subscription: int) -> EncodedMessages:
        """The copies of a subscription, in order of offset and rule: the batch's own bytes where none is changed."""
        place = self.of(subscription)
        sources = self._sources[place]
        if not len(sources) or int(sources.min()) >= len(self._changed):
            return self._batch.take(self.rows[place])
        return self._joined.take(np.where(sources < len(self._changed), sources, self.rows[place] + len(self._changed)))

    def plain_rows(self, subscription: int) -> Int64Array:
        """The rows of the batch that a subscription gets as they are, ascending."""
        place = self.of(subscription)
        plain: Int64Array = self.rows[place][self.rules[place] == PLAIN]
        return plain

    def changed(self, subscription: int) -> list[tuple[int, int, bytes]]:
        """Row, rule and bytes of the copies of a subscription that an action changed, in order."""
        place = self.of(subscription)
        return [
            (int(row), int(rule), self._changed[source])
            for row, rule, source in zip(self.rows[place], self.rules[place], self._sources[place], strict=True)
            if source < len(self._changed)
        ]

    @cached_property
    def _joined(self) -> EncodedMessages:
        """The changed copies and, behind them, all messages of the batch, in one buffer."""
        batch, changed = self._batch, EncodedMessages.of(self._changed)
        first = int(batch.starts.min(initial=len(batch.data)))
        moved = len(changed.data) - first
        return EncodedMessages(
            np.concatenate([changed.data, batch.data[first:]]),
            np.concatenate([changed.starts, batch.starts + moved]),
            np.concatenate([changed.lengths, batch.lengths]),
        )


@dataclass(slots=True)
class _Decided:
    """Pairs of row and place of the rule, sorted by row, then rule: where filters are true, and where they fail."""

    rows: Int64Array
    rules: Int64Array
    error_rows: Int64Array
    error_rules: Int64Array


class Router:
    """Makes the copies of a topic whose rules stay the same. May be pickled; not for several threads at once.

    `stream` is the name of the stream whose messages these are. An *exact* one evaluates each rule alone and counts
    unknown verdicts and errors of all of them: for tests of rules; it is slower, and gives the same copies.
    """

    def __init__(self, topic: Topic, *, stream: str, exact: bool = False) -> None:
        self.topic = topic.numbered()
        self._stream = stream
        self._exact = exact
        self._rules = [rule for subscription in self.topic.subscriptions for rule in subscription.rules]
        counts = [len(subscription.rules) for subscription in self.topic.subscriptions]
        self._subscription_of = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
        self._number_of = np.array([rule.number for rule in self._rules], dtype=np.int64)
        self._has_action = np.array([rule.has_action for rule in self._rules], dtype=np.bool_)
        keeps = [each.dead_letter_on_errors for each in self.topic.subscriptions]
        self._keeps_errors = np.repeat(np.array(keeps, dtype=np.bool_), counts)
        self._fall_through = next((at for at, each in enumerate(self.topic.subscriptions) if each.fall_through), None)
        uses_time = np.array([rule.filter.uses_time for rule in self._rules], dtype=np.bool_)
        self._groups = [
            _Group(self._rules, np.flatnonzero(chosen), self._keeps_errors, exact=exact)
            for chosen in (~uses_time, uses_time)
        ]

    @property
    def rules(self) -> list[tuple[str, Rule]]:
        """Every rule with the name of its subscription, in the order of the counters."""
        return [
            (self.topic.subscriptions[place].name, rule)
            for place, rule in zip(self._subscription_of.tolist(), self._rules, strict=True)
        ]

    def route(self, batch: EncodedMessages, offsets: Int64Array, timestamps_ms: Int64Array) -> Copies:
        """The copies of messages; `offsets` and `timestamps_ms`, when they arrived, are `(messages,)`.

        What UTC() gives is the time at which the message arrived. Never raises for what messages hold.
        """
        counters = [RuleCounters(name, rule.name) for name, rule in self.rules]
        decided = self._decide(batch, timestamps_ms, counters)
        _count(counters, decided, self._keeps_errors | self._exact)
        acts = self._has_action[decided.rules]
        plain_rows, plain_of = decided.rows[~acts], self._subscription_of[decided.rules[~acts]]
        action_rows, action_rules = decided.rows[acts], decided.rules[acts]
        failures = [
            (int(row), int(rule), "")
            for row, rule in zip(decided.error_rows, decided.error_rules, strict=True)
            if self._keeps_errors[rule]
        ]
        changed, made, failed = self._act(batch, offsets, timestamps_ms, action_rows, action_rules)
        for row, rule, cause in failed:
            counters[rule].failed_actions += 1
            if self._keeps_errors[rule]:
                failures.append((row, rule, cause))
        # One plain copy, however many rules want it.
        width = max(1, len(batch))
        plain = np.unique(plain_of * width + plain_rows)
        subscriptions = [self._subscription_of[action_rules[made]], plain // width]
        rows = [action_rows[made], plain % width]
        numbers = [self._number_of[action_rules[made]], np.full(len(plain), PLAIN, dtype=np.int64)]
        if self._fall_through is not None:
            taken = np.zeros(len(batch), dtype=np.bool_)
            for some in rows:
                taken[some] = True
            left = np.flatnonzero(~taken).astype(np.int64)
            subscriptions.append(np.full(len(left), self._fall_through, dtype=np.int64))
            rows.append(left)
            numbers.append(np.full(len(left), PLAIN, dtype=np.int64))
        keys = (np.concatenate(subscriptions), np.concatenate(rows), np.concatenate(numbers))
        letters = self._dead_letters(batch, timestamps_ms, failures)
        return Copies(self.topic, batch, keys, changed, counters, letters)

    def _decide(self, batch: EncodedMessages, timestamps_ms: Int64Array, counters: list[RuleCounters]) -> _Decided:
        anytime, timed = self._groups
        found = [anytime.decide(batch, 0, 0, counters)]
        if len(timed.places) and len(batch):
            starts = np.flatnonzero(np.diff(timestamps_ms, prepend=timestamps_ms[0] - 1)).tolist()
            for start, stop in zip(starts, [*starts[1:], len(batch)], strict=True):
                part = batch.take(slice(start, stop))
                found.append(timed.decide(part, int(timestamps_ms[start]), start, counters))
        if len(found) == 1:
            return found[0]
        rows, rules = (np.concatenate([getattr(each, name) for each in found]) for name in ("rows", "rules"))
        error_rows, error_rules = (
            np.concatenate([getattr(each, name) for each in found]) for name in ("error_rows", "error_rules")
        )
        order, error_order = np.lexsort((rules, rows)), np.lexsort((error_rules, error_rows))
        return _Decided(rows[order], rules[order], error_rows[error_order], error_rules[error_order])

    def _act(
        self,
        batch: EncodedMessages,
        offsets: Int64Array,
        timestamps_ms: Int64Array,
        rows: Int64Array,
        rules: Int64Array,
    ) -> tuple[list[bytes], NDArray[np.intp], list[tuple[int, int, str]]]:
        """The changed copies, which pairs gave one, and the pairs whose action failed, with the cause."""
        changed: list[bytes] = []
        made: list[int] = []
        failed: list[tuple[int, int, str]] = []
        decoded_row, message = -1, Message()
        for pair, (row, place) in enumerate(zip(rows.tolist(), rules.tolist(), strict=True)):
            if row != decoded_row:
                decoded_row, message = row, Message.decode(batch.message(row))
            rule = self._rules[place]
            subscription = self.topic.subscriptions[int(self._subscription_of[place])]
            identity = copy_identity(self._stream, int(offsets[row]), subscription.number, rule.number)
            try:
                changed.append(changed_copy(rule, message, now_ms=int(timestamps_ms[row]), identity=identity).encode())
                made.append(pair)
            except EvaluationFailed as error:
                failed.append((row, place, str(error)))
        return changed, np.array(made, dtype=np.intp), failed

    def _dead_letters(
        self, batch: EncodedMessages, timestamps_ms: Int64Array, failures: list[tuple[int, int, str]]
    ) -> list[DeadLetter]:
        """One copy for each message and subscription with failures, which all are described in it."""
        described: dict[tuple[int, int], list[str]] = {}
        for row, place, cause in sorted(failures):
            rule = self._rules[place]
            cause = cause or failure_of(rule.filter, batch.message(row), now_ms=int(timestamps_ms[row]))
            key = int(self._subscription_of[place]), row
            described.setdefault(key, []).append(f"rule {rule.name!r}: {cause}")
        return [
            DeadLetter(subscription, row, dead_letter(batch.message(row), "; ".join(causes)))
            for (subscription, row), causes in sorted(described.items())
        ]


class _Group:
    """Rules that are decided together; `places` are their places among all rules."""

    def __init__(self, rules: list[Rule], places: NDArray[np.intp], keeps_errors: NDArray[np.bool_], *, exact: bool):
        self.places = places
        self._filters = [rules[place].filter for place in places]
        self._exact = exact
        wanted = np.flatnonzero(keeps_errors[places]).tolist()
        self._rule_set = None if exact else RuleSet(self._filters, exact_errors=wanted)

    def decide(self, batch: EncodedMessages, now_ms: int, first_row: int, counters: list[RuleCounters]) -> _Decided:
        """The verdicts for a batch whose rows count from `first_row`."""
        if self._rule_set is not None:
            found = self._rule_set.match(batch, now_ms=now_ms)
            return _Decided(
                found.rows + first_row,
                self.places[found.rules],
                found.error_rows + first_row,
                self.places[found.error_rules],
            )
        true, errors = [], []
        for place, each in zip(self.places.tolist(), self._filters, strict=True):
            verdicts = each.verdicts(batch, now_ms=now_ms)
            counters[place].unknown = (counters[place].unknown or 0) + int((verdicts == Verdict.UNKNOWN).sum())
            true.append(np.flatnonzero(verdicts == Verdict.TRUE))
            errors.append(np.flatnonzero(verdicts == Verdict.ERROR))
        rows, rules = self._pairs(true, first_row)
        return _Decided(rows, rules, *self._pairs(errors, first_row))

    def _pairs(self, found: list[NDArray[np.intp]], first_row: int) -> tuple[Int64Array, Int64Array]:
        rows = np.concatenate([*found, np.empty(0, dtype=np.intp)]).astype(np.int64) + first_row
        rules = np.repeat(self.places, [len(each) for each in found]).astype(np.int64)
        order = np.lexsort((rules, rows))
        return rows[order], rules[order]


def changed_copy(rule: Rule, message: Message, *, now_ms: int, identity: bytes) -> Message:
    """The copy that a rule with an action gives; raises EvaluationFailed if the action fails on this message."""
    if rule.action is None:
        return message
    try:
        return named_after(rule.name, rule.action.apply(message, now_ms=now_ms, identity=identity))
    except MessageError as error:
        raise EvaluationFailed(str(error)) from error


def _count(counters: list[RuleCounters], decided: _Decided, counts_errors: NDArray[np.bool_]) -> None:
    matched = np.bincount(decided.rules, minlength=len(counters))
    errors = np.bincount(decided.error_rules, minlength=len(counters))
    for place, counter in enumerate(counters):
        counter.matched = int(matched[place])
        if counts_errors[place]:
            counter.errors = int(errors[place])
