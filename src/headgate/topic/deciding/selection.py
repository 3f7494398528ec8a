"""Which copies a batch of messages gives, while the rules stay the same.

What is the same for every message is not written down for each: rules that are true for all messages, and what becomes
of bytes that are not a message, where every rule fails.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headgate.evaluate import malformed_rows
from headgate.language.tree import Constant
from headgate.message import EncodedMessages
from headgate.topic.copies import PLAIN, CopyRun
from headgate.topic.deciding.pairs import NO_PAIRS, Pairs
from headgate.topic.deciding.runs import NOTHING, Int64Array
from headgate.topic.deciding.session_ids import NO_SESSION_IDS, SessionIds, SessionNames
from headgate.topic.model import Subscription, Topic
from headgate.topic.router import Placed, Router
from headgate.topic.rule import Rule


@dataclass(frozen=True, slots=True)
class Selected:
    """What some messages give: `copies`, and `failures` where a rule makes a dead letter of a message.

    Each of the subscriptions `taking_all` gets a plain copy of every message of `sound`; each of those in
    `failing_on_malformed` a dead letter of all bytes in `malformed`, which are not a message. `sound` and `malformed`
    are offsets `(messages,)`, ascending; they are told apart only where somebody asks. `sessions` has the session ids
    of copies whose subscriptions give them out by session.
    """

    copies: Pairs
    failures: Pairs
    sound: Int64Array
    malformed: Int64Array
    taking_all: Int64Array
    failing_on_malformed: Int64Array
    sessions: SessionIds


class Selector:
    """Selects by the rules of one topic; not for several threads at once."""

    def __init__(self, topic: Topic, *, stream: str, before: Selector | None = None) -> None:
        """`stream` is the name of the topic's stream; what `before` compiled and is still in force is taken over."""
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
        self._by_session = np.array([each.settings.requires_session for each in topic.subscriptions], dtype=np.bool_)
        self._all_by_session = any(each.settings.requires_session for each in taking_all)
        self._topic = topic
        self._counted_before = {} if before is None else before._counts()
        self._matched = np.zeros(len(self._router.slot_rules), dtype=np.int64)
        self._taken = 0
        # What a rule selected: by its slot in the router, or, if it takes all, the messages that were taken.

    def select(self, batch: EncodedMessages, offsets: Int64Array, timestamps_ms: Int64Array) -> Selected:
        """What messages give; `offsets` and `timestamps_ms`, when they arrived, are `(messages,)`."""
        malformed = NOTHING
        if self._asks_for_malformed:
            wrong = malformed_rows(batch)
            if len(wrong):
                malformed = offsets[wrong]
                sound = np.delete(np.arange(len(batch)), wrong)
                batch, offsets, timestamps_ms = batch.take(sound), offsets[sound], timestamps_ms[sound]
        placed = self._router.place(batch, offsets, timestamps_ms)
        np.add.at(self._matched, placed.matched_slots, 1)
        self._taken += len(offsets)
        copies = self._pairs(placed.copies, offsets)
        if len(self._taking_all):
            # Where only dead letters are asked for, the matches of other rules are among the copies of all messages.
            copies = copies.take(
                np.flatnonzero((copies.rules != PLAIN) | ~np.isin(copies.subscriptions, self._taking_all))
            )
        if self._fall_through is not None and len(malformed):
            copies = self._with_plain(copies, self._fall_through, malformed)
        failures = self._pairs(placed.failures, offsets)
        sessions = self._session_ids(placed, batch, offsets)
        return Selected(copies, failures, offsets, malformed, self._taking_all, self._failing, sessions)

    def _session_ids(self, placed: Placed, batch: EncodedMessages, offsets: Int64Array) -> SessionIds:
        """The session ids of copies that are given out by session: those of their messages, or of changed copies."""
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

    def matched(self, subscription: int) -> dict[int, int | None]:
        """How many messages each rule of a subscription selected, by its number; empty for one that is not there.

        None for a rule that is not asked, because another one of the subscription takes all messages. What selectors
        before this one counted for the same rule is in it. Another thread may ask while this one selects.
        """
        place = int(np.searchsorted(self._numbers, subscription))
        if place == len(self._numbers) or self._numbers[place] != subscription:
            return {}
        slots, numbers = self._router.slots_of(place)
        asked = dict(zip(numbers.tolist(), self._matched[slots].tolist(), strict=True))
        found: dict[int, int | None] = {}
        for rule in self._topic.subscriptions[place].rules:
            if _takes_all(rule):
                found[rule.number] = self._with_before(subscription, rule, self._taken)
            elif rule.number in asked or _constant(rule) is not None:
                found[rule.number] = self._with_before(subscription, rule, asked.get(rule.number, 0))
            else:
                found[rule.number] = None
        return found

    def _with_before(self, subscription: int, rule: Rule, count: int) -> int:
        known = self._counted_before.get((subscription, rule.number))
        return count if known is None or known[0] != rule else count + known[1]

    def _counts(self) -> dict[tuple[int, int], tuple[Rule, int]]:
        """The rules in force that selected messages, by the numbers of subscription and rule, and how many."""
        in_force = {(each.number, rule.number): rule for each in self._topic.subscriptions for rule in each.rules}
        counts = dict.fromkeys(in_force, 0)
        for (place, rule), count in zip(self._router.slot_rules, self._matched.tolist(), strict=True):
            if place >= 0:
                counts[int(self._numbers[place]), rule.number] = count
        counts.update(dict.fromkeys((key for key, rule in in_force.items() if _takes_all(rule)), self._taken))
        totals = {key: (rule, self._with_before(key[0], rule, counts[key])) for key, rule in in_force.items()}
        return {key: found for key, found in totals.items() if found[1]}

    def _pairs(self, run: CopyRun, offsets: Int64Array) -> Pairs:
        return Pairs(self._numbers[run.subscriptions], offsets[run.rows], run.rules) if len(run) else NO_PAIRS

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
    """What the filter is for every message; None for one that depends on the message."""
    tree = rule.filter.tree
    return tree.value if isinstance(tree, Constant) else None


def _without_constants(subscription: Subscription, *, all_taken: bool) -> Subscription:
    """A subscription with the rules that have to be evaluated: constant filters, and what they make idle, left out.

    If `all_taken`, some subscription takes every message, and the fall-through none of them.
    """
    takes_all = any(map(_takes_all, subscription.rules))

    def is_evaluated(rule: Rule) -> bool:
        if _constant(rule) is not None:
            return rule.has_action and _constant(rule) is True
        may_fail = subscription.dead_letter_on_errors and rule.definition.correlation is None
        return rule.has_action or not takes_all or may_fail

    rules = tuple(filter(is_evaluated, subscription.rules))
    return replace(subscription, rules=rules, fall_through=subscription.fall_through and not all_taken)
