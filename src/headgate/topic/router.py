"""Which copies a batch of messages gives to each subscription of a topic (servicebus_filters, sections 1.1 and 1.2).

Every rule examines the message as it arrived. All rules without action that select it give one copy together, the
message's own bytes; each rule with an action gives a copy of its own, which the action changed and which holds the
rule's name as `RuleName`. A rule that cannot be evaluated, or whose action cannot, gives no copy; the others are not
disturbed. The fall-through subscription gets the messages of which no other subscription got a copy, also bytes that
are not a message.

A copy is identified by offset, subscription and rule, the plain one as rule 0; routing a batch again gives the same
bytes, since `newid()` in an action is derived from that identity.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from headgate.arrays import order_of
from headgate.evaluate import Filter, Verdict, changed_copies, malformed_rows
from headgate.evaluate.rules import RuleSet
from headgate.message import EncodedMessages
from headgate.topic.copies import NO_COPIES, Copies, CopyRun, Counters, DeadLetter, Int64Array, copy_identity, joined
from headgate.topic.dead_letters import letter_of
from headgate.topic.model import Topic
from headgate.topic.rule import Rule

ERRORS_COUNTED = 250
"""Limit: rules of a topic up to which the errors of all filters are found. With more rules, equalities may be looked up
in an index, which does not notice errors; then only errors of subscriptions that keep dead letters are found."""

_MOST_ADDED = 200
"""Limit: new rules that are added to a router. With more of them, or as many removed rules, the router is built
again."""


@dataclass(slots=True)
class Decided:
    """Pairs of row and slot, sorted by row, then slot: where filters are true, and where they fail.

    A slot is a place in `Router.slot_rules`. When errors are complete, and when `unknown` is None, is described at
    `RuleCounters`; `unknown` is `(slots,)`.
    """

    rows: Int64Array
    slots: Int64Array
    error_rows: Int64Array
    error_slots: Int64Array
    unknown: Int64Array | None = None


@dataclass(slots=True)
class Placed:
    """Copies, with the bytes of changed ones in `changed`, and the dead letters of rules that failed.

    `decided` are the verdicts of the filters; `failed_rows` and `failed_slots` are pairs of row and slot where an
    action failed.
    """

    copies: CopyRun
    changed: EncodedMessages
    failures: CopyRun
    decided: Decided
    failed_rows: Int64Array
    failed_slots: Int64Array


class Router:
    """Makes the copies of a topic whose rules stay the same. May be pickled; not for several threads at once.

    `stream` is the name of the messages' stream. An *exact* router evaluates each rule alone and counts unknown
    verdicts and errors of all rules: for tests of rules; it is slower, and gives the same copies.
    """

    def __init__(self, topic: Topic, *, stream: str, exact: bool = False) -> None:
        self._stream = stream
        self._exact = exact
        self._slots: list[_Slot] = []
        self._groups: list[_Group] = []
        self._assign(topic.numbered(), None)

    def changed(self, topic: Topic) -> Router:
        """A router for the topic after a change; unchanged rules are taken over.

        Cost: a look at every rule, and milliseconds per new rule; with few new rules much cheaper than a new router.
        """
        router = Router.__new__(Router)
        router._stream, router._exact = self._stream, self._exact
        router._assign(topic.numbered(), self)
        return router

    def _assign(self, topic: Topic, before: Router | None) -> None:
        self.topic = topic
        counts_errors = sum(len(subscription.rules) for subscription in topic.subscriptions) <= ERRORS_COUNTED
        wanted = [
            _Slot(place, subscription.number, rule, subscription.dead_letter_on_errors, counts_errors)
            for place, subscription in enumerate(topic.subscriptions)
            for rule in subscription.rules
        ]
        kept: dict[tuple[int, int], int] = {}
        if before is not None and not self._exact:
            kept = {slot.key: number for number, slot in enumerate(before._slots) if slot.in_force}
            kept = {
                slot.key: kept[slot.key]
                for slot in wanted
                if slot.key in kept and slot.decides_as(before._slots[kept[slot.key]])
            }
        if (
            before is None
            or len(wanted) - len(kept) > _MOST_ADDED
            or len(before._slots) > 2 * len(wanted) + _MOST_ADDED
        ):
            kept, before = {}, None
        self._slots = [] if before is None else [slot.gone() for slot in before._slots]
        added = []
        places = []
        for slot in wanted:
            number = kept.get(slot.key)
            if number is None:
                number = len(self._slots)
                self._slots.append(slot)
                added.append(number)
            else:
                self._slots[number] = slot
            places.append(number)
        self._places = np.array(places, dtype=np.int64)
        self._groups = [
            _Group.of(
                self._slots, added, None if before is None else before._groups[timed], timed=timed, exact=self._exact
            )
            for timed in (False, True)
        ]
        self._subscription_of = np.array([slot.place for slot in self._slots], dtype=np.int64)
        self._number_of = np.array([slot.rule.number for slot in self._slots], dtype=np.int64)
        self._has_action = np.array([slot.rule.has_action for slot in self._slots], dtype=np.bool_)
        self._acts = bool(self._has_action.any())
        self._keeps_errors = np.array([slot.keeps_errors for slot in self._slots], dtype=np.bool_)
        self.counts_errors = np.array([slot.keeps_errors or slot.counts_errors for slot in self._slots], dtype=np.bool_)
        """Of which slots errors are complete, as far as they are in force."""
        self._fail_on_malformed = np.array(
            [] if self._exact else [number for number, slot in enumerate(self._slots) if slot.fails_on_malformed_only],
            dtype=np.int64,
        )
        self._fall_through = next((at for at, each in enumerate(topic.subscriptions) if each.fall_through), None)

    @cached_property
    def rules(self) -> list[tuple[str, Rule]]:
        """Every rule with the name of its subscription, in the order of the topic."""
        return [(each.name, rule) for each in self.topic.subscriptions for rule in each.rules]

    @property
    def slot_rules(self) -> list[tuple[int, Rule]]:
        """Place of the subscription and rule by slot; −1 for a rule that is no longer in force."""
        return [(slot.place, slot.rule) for slot in self._slots]

    def route(
        self,
        batch: EncodedMessages,
        offsets: Int64Array,
        timestamps_ms: Int64Array,
        *,
        room: NDArray[np.uint8] | None = None,
    ) -> Copies:
        """The copies of messages; `offsets` and `timestamps_ms`, when they arrived, are `(messages,)`.

        UTC() is the time at which the message arrived. The content of messages never raises. Changed copies are written
        into `room`, the buffer of copies that are no longer used, if it is large enough.
        """
        return self.copies(self.decide(batch, timestamps_ms), batch, offsets, timestamps_ms, room=room)

    def copies(
        self,
        decided: Decided,
        batch: EncodedMessages,
        offsets: Int64Array,
        timestamps_ms: Int64Array,
        *,
        room: NDArray[np.uint8] | None = None,
    ) -> Copies:
        """The copies of messages that `decide` has decided; arrays as in `route`."""
        runs, changed = self._make(decided, batch, offsets, timestamps_ms, room)
        count = len(self._slots)
        counters = Counters(
            self.rules,
            self._places,
            matched=np.bincount(decided.slots, minlength=count),
            failed_actions=np.bincount(changed.failed_slots, minlength=count),
            errors=np.bincount(decided.error_slots, minlength=count),
            unknown=decided.unknown,
            last_failure=last_failures(count, offsets, decided, changed.failed_rows, changed.failed_slots),
            counts_errors=self.counts_errors | self._exact,
        )
        letters = self._dead_letters(batch, offsets, timestamps_ms, decided, changed)
        return Copies(self.topic, batch, runs, changed.messages, counters, letters)

    def slots_of(self, place: int) -> tuple[NDArray[np.intp], Int64Array]:
        """The slots of the rules of a subscription, by its place in the topic, and the numbers of these rules."""
        slots = np.flatnonzero(self._subscription_of == place)
        return slots, self._number_of[slots]

    def place(self, batch: EncodedMessages, offsets: Int64Array, timestamps_ms: Int64Array) -> Placed:
        """The copies that messages give, and the rules that make dead letters of them; arrays as in `route`."""
        if not self._slots and self._fall_through is None:
            return _NOTHING_PLACED
        decided = self.decide(batch, timestamps_ms)
        runs, changed = self._make(decided, batch, offsets, timestamps_ms, None)
        copies = joined([run for run in runs if len(run)])
        if not len(decided.error_rows) and not len(changed.failed_rows):
            return Placed(copies, changed.messages, NO_COPIES, decided, _NO_ROWS, _NO_ROWS)
        rows = np.concatenate([decided.error_rows, changed.failed_rows])
        slots = np.concatenate([decided.error_slots, changed.failed_slots])
        kept = self._keeps_errors[slots]
        failures = self._run_of_rules(rows[kept], slots[kept])
        return Placed(copies, changed.messages, failures, decided, changed.failed_rows, changed.failed_slots)

    def _make(
        self,
        decided: Decided,
        batch: EncodedMessages,
        offsets: Int64Array,
        timestamps_ms: Int64Array,
        room: NDArray[np.uint8] | None,
    ) -> tuple[list[CopyRun], _Changed]:
        """The copies, and the bytes that actions made."""
        plain_rows, plain_slots = decided.rows, decided.slots
        changed = _NOTHING_CHANGED
        runs = []
        if self._acts:
            acts = self._has_action[plain_slots]
            rows, slots = plain_rows[acts], plain_slots[acts]
            plain_rows, plain_slots = plain_rows[~acts], plain_slots[~acts]
            changed = self._act(batch, offsets, timestamps_ms, rows, slots, room)
            runs.append(self._run_of_rules(changed.rows, changed.slots))
        runs.append(self._plain(plain_rows, plain_slots))
        if self._fall_through is not None:
            taken = np.zeros(len(batch), dtype=np.bool_)
            for run in runs:
                taken[run.rows] = True
            left = np.flatnonzero(~taken).astype(np.int64)
            runs.append(CopyRun.plain(np.full(len(left), self._fall_through, dtype=np.int64), left))
        return runs, changed

    def _run_of_rules(self, rows: Int64Array, slots: Int64Array) -> CopyRun:
        """One copy per pair of row and rule; the sources are the places in `rows`."""
        places, rules = self._subscription_of[slots], self._number_of[slots]
        order = np.lexsort((rules, rows, places))
        return CopyRun(places[order], rows[order], rules[order], order.astype(np.int64))

    def _plain(self, rows: Int64Array, slots: Int64Array) -> CopyRun:
        """One plain copy for each row and subscription, however many rules want it; the rows come in order."""
        places = self._subscription_of[slots]
        if len(rows) < 2:
            return CopyRun.plain(places, rows)
        order = order_of(places, below=len(self.topic.subscriptions))
        places, rows = places[order], rows[order]
        again = (places[1:] == places[:-1]) & (rows[1:] == rows[:-1])
        if again.any():
            first = np.flatnonzero(np.concatenate(([True], ~again)))
            places, rows = places[first], rows[first]
        return CopyRun.plain(places, rows)

    def decide(self, batch: EncodedMessages, timestamps_ms: Int64Array) -> Decided:
        """Which filters are true for which messages, and which fail; `timestamps_ms` has the UTC() of each message."""
        unknown = np.zeros(len(self._slots), dtype=np.int64) if self._exact else None
        anytime, timed = self._groups
        if not len(timed):
            decided = anytime.decide(batch, 0, 0, unknown)
            decided.unknown = unknown
            return self._with_malformed(decided, batch)
        found = [anytime.decide(batch, 0, 0, unknown)]
        starts = np.flatnonzero(np.diff(timestamps_ms, prepend=timestamps_ms[:1] - 1)).tolist()
        for start, stop in zip(starts, [*starts[1:], len(batch)], strict=True) if starts else ():
            part = batch.take(slice(start, stop))
            found.append(timed.decide(part, int(timestamps_ms[start]), start, unknown))
        rows, slots, error_rows, error_slots = (
            np.concatenate([getattr(each, name) for each in found])
            for name in ("rows", "slots", "error_rows", "error_slots")
        )
        order, error_order = np.lexsort((slots, rows)), np.lexsort((error_slots, error_rows))
        decided = Decided(rows[order], slots[order], error_rows[error_order], error_slots[error_order], unknown)
        return self._with_malformed(decided, batch)

    def _with_malformed(self, decided: Decided, batch: EncodedMessages) -> Decided:
        """Add the errors of filters that fail on nothing but bytes that are not a message."""
        if not len(self._fail_on_malformed):
            return decided
        malformed = malformed_rows(batch)
        if not len(malformed):
            return decided
        rows = np.concatenate([decided.error_rows, np.repeat(malformed, len(self._fail_on_malformed))])
        slots = np.concatenate([decided.error_slots, np.tile(self._fail_on_malformed, len(malformed))])
        order = np.lexsort((slots, rows))
        return replace(decided, error_rows=rows[order], error_slots=slots[order])

    def _act(
        self,
        batch: EncodedMessages,
        offsets: Int64Array,
        timestamps_ms: Int64Array,
        rows: Int64Array,
        slots: Int64Array,
        room: NDArray[np.uint8] | None,
    ) -> _Changed:
        """The copies that the actions of rules make of the rows that they selected."""
        used, which = np.unique(slots, return_inverse=True)
        of_used = [self._slots[number] for number in used.tolist()]

        def identity_of(pair: int) -> bytes:
            slot = of_used[which[pair]]
            return self._identity(slot.subscription, int(offsets[rows[pair]]), slot.rule)

        copies = changed_copies(
            [(slot.rule.action, slot.rule.name) for slot in of_used if slot.rule.action is not None],
            which.astype(np.int64),
            batch.take(rows),
            now_ms=timestamps_ms[rows],
            identity_of=identity_of,
            room=room,
        )
        made, failed = copies.rows, copies.failed
        return _Changed(copies.messages, rows[made], slots[made], rows[failed], slots[failed])

    def _identity(self, subscription: int, offset: int, rule: Rule) -> bytes:
        return copy_identity(self._stream, offset, subscription, rule.number)

    def _dead_letters(
        self,
        batch: EncodedMessages,
        offsets: Int64Array,
        timestamps_ms: Int64Array,
        decided: Decided,
        changed: _Changed,
    ) -> list[DeadLetter]:
        """One copy for each message and subscription with failures, which all are described in it, by rule number."""
        failed: dict[tuple[int, int], list[_Slot]] = {}
        for rows, slots in (
            (decided.error_rows, decided.error_slots),
            (changed.failed_rows, changed.failed_slots),
        ):
            kept = self._keeps_errors[slots]
            for row, number in zip(rows[kept].tolist(), slots[kept].tolist(), strict=True):
                slot = self._slots[number]
                failed.setdefault((slot.place, row), []).append(slot)
        letters = []
        for (place, row), slots_of in sorted(failed.items(), key=lambda each: each[0]):
            subscription, offset = slots_of[0].subscription, int(offsets[row])
            encoded = letter_of(
                batch.message(row),
                (slot.rule for slot in slots_of),
                now_ms=int(timestamps_ms[row]),
                identity_of=partial(self._identity, subscription, offset),
            )
            letters.append(DeadLetter(place, row, encoded))
        return letters


def last_failures(
    count: int, offsets: Int64Array, decided: Decided, failed_rows: Int64Array, failed_slots: Int64Array
) -> Int64Array:
    """The last offset that the rule of each slot failed for, −1 without one, `(count,)`; rows ascend with offsets."""
    last = np.full(count, -1, dtype=np.int64)
    for rows, slots in ((decided.error_rows, decided.error_slots), (failed_rows, failed_slots)):
        if len(rows):
            np.maximum.at(last, slots, offsets[rows])
    return last


@dataclass(frozen=True, slots=True)
class _Changed:
    """Copies that actions changed, row and slot of each, and pairs of row and slot where an action failed."""

    messages: EncodedMessages
    rows: Int64Array
    slots: Int64Array
    failed_rows: Int64Array
    failed_slots: Int64Array


_NO_ROWS = np.empty(0, dtype=np.int64)
_NOTHING_CHANGED = _Changed(EncodedMessages.of([]), _NO_ROWS, _NO_ROWS, _NO_ROWS, _NO_ROWS)
_NOTHING_PLACED = Placed(
    NO_COPIES,
    _NOTHING_CHANGED.messages,
    NO_COPIES,
    Decided(_NO_ROWS, _NO_ROWS, _NO_ROWS, _NO_ROWS),
    _NO_ROWS,
    _NO_ROWS,
)


@dataclass(frozen=True, slots=True)
class _Slot:
    """A rule of a subscription; `place` is the subscription's place in the topic, −1 for a rule no longer in force."""

    place: int
    subscription: int
    rule: Rule
    keeps_errors: bool
    counts_errors: bool

    @property
    def key(self) -> tuple[int, int]:
        return self.subscription, self.rule.number

    @property
    def in_force(self) -> bool:
        return self.place >= 0

    @property
    def fails_on_malformed_only(self) -> bool:
        """Whether errors are kept, and the filter, a correlation that may be looked up, has none for a message."""
        is_looked_up = self.rule.definition.correlation is not None and not self.counts_errors
        return self.in_force and self.keeps_errors and is_looked_up

    @property
    def asks_for_errors(self) -> bool:
        """Whether the errors of its filter have to be found with its matches: a set without them may be indexed."""
        return self.counts_errors or (self.keeps_errors and self.rule.definition.correlation is None)

    def decides_as(self, other: _Slot) -> bool:
        """Whether the compiled rule of the other slot can be used for this one."""
        finds = self.keeps_errors == other.keeps_errors and self.counts_errors == other.counts_errors
        return finds and (self.rule is other.rule or self.rule == other.rule)

    def gone(self) -> _Slot:
        return replace(self, place=-1)


class _Group:
    """Rules that are decided together: `slots` of the numbers of a rule set, −1 where the filter is not in it."""

    def __init__(self, numbers: Int64Array, filters: list[Filter], rule_set: RuleSet | None) -> None:
        self._numbers = numbers
        self._filters = filters
        self._rule_set = rule_set

    @staticmethod
    def of(slots: list[_Slot], added: list[int], before: _Group | None, *, timed: bool, exact: bool) -> _Group:
        """The group of the slots whose filters use the time, or do not; `added` are the slots that `before` lacks."""
        new = [number for number in added if slots[number].rule.filter.uses_time is timed]
        if before is None or before._rule_set is None:
            filters = [slots[number].rule.filter for number in new]
            errors = [at for at, number in enumerate(new) if slots[number].asks_for_errors]
            rule_set = None if exact else RuleSet(filters, exact_errors=errors)
            return _Group(np.array(new, dtype=np.int64), filters, rule_set)
        rule_set, numbers = before._rule_set, before._numbers.tolist()
        for at, number in enumerate(numbers):
            if number >= 0 and not slots[number].in_force:
                rule_set = rule_set.without(at)
                numbers[at] = -1
        for number in new:
            rule_set = rule_set.with_filter(slots[number].rule.filter, exact_errors=slots[number].asks_for_errors)
            numbers.append(number)
        return _Group(np.array(numbers, dtype=np.int64), [], rule_set)

    def __len__(self) -> int:
        """How many filters there are."""
        return int((self._numbers >= 0).sum())

    def decide(self, batch: EncodedMessages, now_ms: int, first_row: int, unknown: Int64Array | None) -> Decided:
        """The verdicts for a batch whose rows count from `first_row`; a given `unknown` counts unknown verdicts."""
        if self._rule_set is not None:
            found = self._rule_set.match(batch, now_ms=now_ms)
            return Decided(
                found.rows + first_row if first_row else found.rows,
                self._numbers[found.rules],
                found.error_rows + first_row if first_row else found.error_rows,
                self._numbers[found.error_rules],
            )
        true, errors = [], []
        for number, each in zip(self._numbers.tolist(), self._filters, strict=True):
            verdicts = each.verdicts(batch, now_ms=now_ms)
            if unknown is not None:
                unknown[number] += int((verdicts == Verdict.UNKNOWN).sum())
            true.append(np.flatnonzero(verdicts == Verdict.TRUE))
            errors.append(np.flatnonzero(verdicts == Verdict.ERROR))
        return Decided(*self._pairs(true, first_row), *self._pairs(errors, first_row))

    def _pairs(self, found: list[NDArray[np.intp]], first_row: int) -> tuple[Int64Array, Int64Array]:
        rows = np.concatenate([*found, np.empty(0, dtype=np.intp)]).astype(np.int64) + first_row
        slots = np.repeat(self._numbers, [len(each) for each in found])
        order = np.lexsort((slots, rows))
        return rows[order], slots[order]
