"""Rules of a topic that fail for messages: told in the log, counted, and made dead letters of where that is wanted."""

from __future__ import annotations

import logging

import numpy as np

from headgate.broker.delivery import Movement
from headgate.broker.stream import BrokerStream
from headgate.broker.topics.subscription_source import FAILED_RULES
from headgate.broker.topics.subscriptions import BrokerSubscriptions
from headgate.broker.topics.topic_decider import TopicDecider
from headgate.ledger import copy_number, offset_of
from headgate.topic import Rule, RuleVersion, failure_at
from headgate.topic.decisions import RuleCounts, Selected

_FAILURES_TOLD = 10
"""Limit: failed rules named in the log at once."""

logger = logging.getLogger("headgate.broker")


class RuleFailures:
    """The failed rules of one topic; in the broker's thread only."""

    def __init__(self, stream: BrokerStream, decider: TopicDecider, subscriptions: BrokerSubscriptions) -> None:
        self._stream = stream
        self._topic_decider = decider
        self._subscriptions = subscriptions
        self.failing: dict[int, int] = {}
        """Subscriptions whose rules failed, with the first offset whose dead letters are not in the ledger yet."""
        self._reasons: dict[tuple[int, int], tuple[int, str]] = {}
        """Known reasons of failures, by subscription and rule: the offset of the message, and the reason."""

    # what failed

    def counts(self, subscription: str) -> dict[int, RuleCounts]:
        """The counts of each rule in force, by its number, for the messages decided since the topic was opened.

        A rule that was replaced counts anew. Raises ResourceNotFoundError.
        """
        found = self._subscriptions.find(subscription).version
        counts = self._topic_decider.decider.counts(found.number)
        rules = self._subscriptions.history.rules(found.name)
        return {rule.number: counts.get(rule.number, RuleCounts()) for rule in rules}

    def reason(self, subscription: str, rule: RuleVersion, offset: int) -> str:
        """Why a rule in force failed for the message at an offset. The message is read again, the last answer is kept.

        Raises ResourceNotFoundError.
        """
        number = self._subscriptions.find(subscription).version.number
        of = Rule.of(rule.rule, number=rule.number, limits=self._subscriptions.history.limits.content)
        return self._reason(number, of, offset)

    def _reason(self, subscription: int, rule: Rule, offset: int) -> str:
        known = self._reasons.get((subscription, rule.number))
        if known is None or known[0] != offset:
            reason = failure_at(self._stream.stream, rule, subscription=subscription, offset=offset)
            known = self._reasons[subscription, rule.number] = offset, reason
        return known[1]

    def tell_first(self) -> None:
        """Log the rules that failed for the first time since the topic was opened, or since they were changed."""
        failed = self._topic_decider.decider.first_failures()
        for (number, _), rule in list(failed.items())[:_FAILURES_TOLD]:
            found = self._subscriptions.get(number)
            last = self._topic_decider.decider.counts(number).get(rule.number, RuleCounts()).last_failure
            if found is not None and last is not None:
                logger.warning(
                    "rule %r of subscription %r of topic %r gives no copy of the message at offset %d: %s; this is "
                    "logged once, `headgate rule ls` shows how often it fails",
                    rule.name,
                    found.version.name,
                    self._stream.name,
                    last,
                    self._reason(number, rule, last),
                )
        more = len(failed) - _FAILURES_TOLD
        if more > 0:
            logger.warning(
                "%d more rules of topic %r failed; `headgate rule ls` shows how often", more, self._stream.name
            )

    # their dead letters

    def note(self, selected: Selected, start: int) -> None:
        """Note the subscriptions whose rules failed in a step from `start` on."""
        failing = selected.failures.subscriptions.tolist()
        if len(selected.malformed):
            failing += selected.failing_on_malformed.tolist()
        for number in failing:
            self.failing.setdefault(number, start)

    def sweep(self) -> None:
        """Move the dead letters that an earlier process decided but did not move."""
        for number, found in self._subscriptions.items():
            if found.version.dead_letter_on_errors:
                self._move(number, offset_of(found.dispatcher.view.next_copy))

    def move(self) -> None:
        """Move the messages for which rules failed to the dead letters; for a ledger that takes changes."""
        while self.failing:
            self._move(*self.failing.popitem())

    def _move(self, number: int, offset: int) -> None:
        """Move messages from an offset on, for which the rules of a subscription failed, to its dead letters."""
        found = self._subscriptions.get(number)
        if found is None:
            return
        view = found.dispatcher.view
        start = max(offset, self._topic_decider.decider.first_offset)
        offsets = {
            failed
            for runs in self._topic_decider.decider.postings.failures(number, start)
            for failed, _ in runs.pairs()
        }
        copies = np.array(sorted(copy_number(each, FAILED_RULES) for each in offsets), dtype=np.int64)
        copies = copies[view.unseen(copies)]
        if len(copies):
            # The failed rules and their reasons are found again when the message is moved.
            target = found.policy.dead_letters
            assert target is not None
            view.move_available(copies, target, Movement(subscription=number).encode())
            found.dispatcher.close_holes()
