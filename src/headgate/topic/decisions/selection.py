"""Which copies a batch of messages gives, while the rules stay the same.

Results that are the same for every message are not stored per message: rules that are true for all messages, and bytes
that are not a message, where every rule fails.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headgate.evaluate import BodySample, malformed_rows, sample_body
from headgate.language.tree import Constant
from headgate.message import EncodedMessages
from headgate.topic.copies import PLAIN, CopyRun
from headgate.topic.decisions.pairs import NO_PAIRS, Pairs
from headgate.topic.decisions.rule_counts import NOT_ASKED, RuleCounts, SlotCounts
from headgate.topic.decisions.runs import NOTHING, Int64Array
from headgate.topic.decisions.session_ids import NO_SESSION_IDS, SessionIds, SessionNames
from headgate.topic.model import Subscription, Topic
from headgate.topic.router import Placed, Router
from headgate.topic.rule import Rule


@dataclass(frozen=True, slots=True)
class Selected:
    """The copies that some messages give: `copies`, and `failures` where a rule makes a dead letter of a message.

    Each of the subscriptions `taking_all` gets a plain copy of every message of `sound`; each subscription in
    `failing_on_malformed` a dead letter of all bytes in `malformed`, which are not a message. `sound` and `malformed`
    are offsets `(messages,)`, ascending; they are told apart only if a subscription needs it. `sessions` has the
    session ids of copies whose subscriptions give them out by session. `num_failures` counts filters and actions that
    failed, one for each rule and message. `bodies` says whether paths of filters find JSON.
    """

    copies: Pairs
    failures: Pairs
    sound: Int64Array
    malformed: Int64Array
    taking_all: Int64Array
    failing_on_malformed: Int64Array
    sessions: SessionIds
    num_failures: int
    bodies: BodySample


class Selector:
    """Selects by the rules of one topic; not for several threads at once."""

    def __init__(self, topic: Topic, *, stream: str, before: Selector | None = None) -> None:
        """`stream` is the name of the topic's stream; compiled rules of `before` still in force are taken over."""
        taking_all = [each for each in topic.subscriptions if any(map(_takes_all, each.rules))]
        failing = [each for each in topic.subscriptions if each.dead_letter_on_errors and each.rules]
        self._taking_all = _numbers(taking_all)
        self._failing = _numbers(failing)
        self._fall_through = next((each.number for each in topic.subscriptions if each.fall_through), None)
        self._asks_for_malformed = bool(taking_all or failing or self._fall_through is not None)
        kept = tuple(_without_constants(each, all_taken=bool(taking_all)) for each in topic.subscriptions)
        rest = replace(topic, subscriptions=kept)
        self._router: Router = Router(rest, stream=stream) if before is None else before._router.changed(rest)
        self._numbers = _numbers(topic.subscriptions)
        filters = (rule.filter for place, rule in self._router.slot_rules if place >= 0)
        self._in_bodies = next((each for each in filters if each.has_body_paths), None)
        """A filter with paths into bodies, if a rule has one."""
        self._by_session = np.array([each.settings.requires_session for each in topic.subscriptions], dtype=np.bool_)
        self._all_by_session = any(each.settings.requires_session for each in taking_all)
        self._topic = topic
        self._counted_before = {} if before is None else before._counts()
        # Counts by the rule's slot in the router; the same for all rules: messages taken, bytes that are no message.
        self._slot_counts = SlotCounts(self._router.counts_errors)
        self._taken = self._malformed = 0
        self._last_malformed: int | None = None
        self._failed_first: dict[tuple[int, int], Rule] = {}

    def select(self, batch: EncodedMessages, offsets: Int64Array, timestamps_ms: Int64Array) -> Selected:
        """The copies that messages give; `offsets` and `timestamps_ms`, when they arrived, are `(messages,)`."""
        malformed = NOTHING
        if self._asks_for_malformed:
            wrong = malformed_rows(batch)
            if len(wrong):
                malformed = offsets[wrong]
                self._malformed += len(malformed)
                self._last_malformed = int(malformed[-1])
                sound = np.delete(np.arange(len(batch)), wrong)
                batch, offsets, timestamps_ms = batch.take(sound), offsets[sound], timestamps_ms[sound]
        placed = self._router.place(batch, offsets, timestamps_ms)
        failed_first = self._slot_counts.add(placed, offsets)
        if len(failed_first):
            self._note_first_failures(failed_first)
        self._taken += len(offsets)
        copies = self._pairs(placed.copies, offsets)
        if len(self._taking_all) and len(copies.rules):
            # Where only dead letters are asked for, the matches of other rules are among the copies of all messages.
            copies = copies.take(
                np.flatnonzero((copies.rules != PLAIN) | ~np.isin(copies.subscriptions, self._taking_all))
            )
        if self._fall_through is not None and len(malformed):
            copies = self._with_plain(copies, self._fall_through, malformed)
        failures = self._pairs(placed.failures, offsets)
        sessions = self._session_ids(placed, batch, offsets)
        num_failures = len(placed.decided.error_slots) + len(placed.failed_slots)
        bodies = sample_body(batch, self._in_bodies)
        return Selected(
            copies, failures, offsets, malformed, self._taking_all, self._failing, sessions, num_failures, bodies
        )

    def _session_ids(self, placed: Placed, batch: EncodedMessages, offsets: Int64Array) -> SessionIds:
        """The session ids of copies that are given out by session: of their messages, or of changed copies."""
        if not self._by_session.any():
            return NO_SESSION_IDS
        run = placed.copies
        is_asked = self._by_session[run.subscriptions]
        is_plain = run.sources < 0
        acting = np.flatnonzero(is_asked & ~is_plain)
        rows = np.arange(len(batch)) if self._all_by_session else np.unique(run.rows[is_asked & is_plain])
        names = SessionNames()
        names.add_plain(batch.take(rows), offsets[rows])
        copies = Pairs(self._numbers[run.subscriptions[acting]], offsets[run.rows[acting]], run.rules[acting])
        names.add(placed.changed.take(run.sources[acting]), copies)
        return names.taken()

    def counts(self, subscription: int) -> dict[int, RuleCounts]:
        """The counts of each rule of a subscription, by its number; empty for a missing subscription.

        Counts of earlier selectors for the same rule are included. Another thread may call this while this one selects.
        """
        place = int(np.searchsorted(self._numbers, subscription))
        if place == len(self._numbers) or self._numbers[place] != subscription:
            return {}
        slots, numbers = self._router.slots_of(place)
        asked = dict(zip(numbers.tolist(), slots.tolist(), strict=True))
        rules = self._topic.subscriptions[place].rules
        return {rule.number: self._counts_of(subscription, rule, asked.get(rule.number)) for rule in rules}

    def first_failures(self) -> dict[tuple[int, int], Rule]:
        """The rules that failed for the first time since this was asked last, by numbers of subscription and rule."""
        found, self._failed_first = self._failed_first, {}
        return found

    def _note_first_failures(self, slots: NDArray[np.intp]) -> None:
        slot_rules = self._router.slot_rules
        for place, rule in (slot_rules[slot] for slot in slots.tolist()):
            key = int(self._numbers[place]), rule.number
            known = self._counted_before.get(key)
            if known is None or known[0] != rule or not known[1].has_failed:
                self._failed_first[key] = rule

    def _counts_of(self, subscription: int, rule: Rule, slot: int | None) -> RuleCounts:
        """The counts of a rule; `slot` is its slot in the router, if the router has it."""
        if slot is not None:
            counts = self._slot_counts.of(slot)
        elif _constant(rule) is not None:
            counts = RuleCounts(self._taken if _takes_all(rule) else 0, errors=0)
        else:
            return NOT_ASKED
        if self._last_malformed is not None and counts.errors is not None:
            # Taken out before the router sees it.
            counts = counts.with_others(RuleCounts(errors=self._malformed, last_failure=self._last_malformed))
        known = self._counted_before.get((subscription, rule.number))
        return counts if known is None or known[0] != rule else counts.with_others(known[1])

    def _counts(self) -> dict[tuple[int, int], tuple[Rule, RuleCounts]]:
        """The counts of the rules in force, by the numbers of subscription and rule; without rules that did nothing."""
        slot_of = {
            (int(self._numbers[place]), rule.number): slot
            for slot, (place, rule) in enumerate(self._router.slot_rules)
            if place >= 0
        }
        counted = set(self._slot_counts.counted().tolist())
        found = {}
        for subscription in self._topic.subscriptions:
            for rule in subscription.rules:
                key = subscription.number, rule.number
                slot = slot_of.get(key)
                if slot is None or slot in counted or self._malformed or key in self._counted_before:
                    counts = self._counts_of(subscription.number, rule, slot)
                    if counts.matched or counts.has_failed:
                        found[key] = rule, counts
                    elif counts is NOT_ASKED and key in self._counted_before:
                        found[key] = self._counted_before[key]
        return found

    def _pairs(self, run: CopyRun, offsets: Int64Array) -> Pairs:
        return Pairs(self._numbers[run.subscriptions], offsets[run.rows], run.rules) if len(run.rows) else NO_PAIRS

    @staticmethod
    def _with_plain(copies: Pairs, subscription: int, offsets: Int64Array) -> Pairs:
        subscriptions = np.append(copies.subscriptions, np.full(len(offsets), subscription))
        joined = Pairs(
            subscriptions,
            np.append(copies.offsets, offsets),
            np.append(copies.rules, np.full(len(offsets), PLAIN)),
        )
        return joined.take(np.lexsort((joined.rules, joined.offsets, joined.subscriptions)))


def _numbers(subscriptions: list[Subscription] | tuple[Subscription, ...]) -> Int64Array:
    return np.array([each.number for each in subscriptions], dtype=np.int64)


def _takes_all(rule: Rule) -> bool:
    """Whether the rule gives a plain copy of every message."""
    return not rule.has_action and _constant(rule) is True


def _constant(rule: Rule) -> object:
    """The value of a filter that is the same for every message; None for one that depends on the message."""
    tree = rule.filter.tree
    return tree.value if isinstance(tree, Constant) else None


def _without_constants(subscription: Subscription, *, all_taken: bool) -> Subscription:
    """A subscription with only the rules that have to be evaluated: without constant filters and rules they make idle.

    If `all_taken`, another subscription takes every message, so the fall-through gets none.
    """
    takes_all = any(map(_takes_all, subscription.rules))

    def is_evaluated(rule: Rule) -> bool:
        if _constant(rule) is not None:
            return rule.has_action and _constant(rule) is True
        may_fail = subscription.dead_letter_on_errors and rule.definition.correlation is None
        return rule.has_action or not takes_all or may_fail

    rules = tuple(filter(is_evaluated, subscription.rules))
    return replace(subscription, rules=rules, fall_through=subscription.fall_through and not all_taken)
