"""The rules of a subscription that were in force for a message, their verdicts, and the copies that they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate.broker.topics import FAILED_RULES
from headgate.clock import shown_time
from headgate.errors import MessageError
from headgate.evaluate import CopyRule, Verdict, copies_of, evaluate
from headgate.language import EvaluationFailed
from headgate.log import Stream
from headgate.message import Message
from headgate.topic import (
    Rule,
    RuleHistory,
    Subscription,
    SubscriptionName,
    Topic,
    copy_identity,
)
from headgate.topic.trial import RuleExplanation, explain_rule
from headgate.trace.decisions import decision_of_rule, why_not
from headgate.trace.facts import Facts
from headgate.trace.parts import (
    Decision,
    State,
    Step,
)
from headgate.trace.storage import Located

MOST_RULES = 100
"""Limit: rules that one answer explains; rules that select the message come first."""

_NAMED_RULES = 3


@dataclass(frozen=True, slots=True)
class TopicQuestion:
    """A message of a topic that is asked about, and where to look."""

    root: Path
    stream: Stream
    history: RuleHistory
    located: Located
    facts: Facts
    now_ms: int

    @property
    def offset(self) -> int:
        """The offset of the message."""
        return self.located.stored.offset

    @property
    def arrived_ms(self) -> int:
        """When it arrived."""
        return self.located.stored.timestamp_ms

    def name_of(self, subscription: str, *, dead_letters: bool = False) -> str:
        """The name of a subscription for clients, `orders/Subscriptions/red`, or of its dead letters."""
        return str(SubscriptionName(self.history.topic_name, subscription, dead_letters))


@dataclass(frozen=True, slots=True)
class Selection:
    """The copies of the message for a subscription, by rule number with their bytes; and what the rules say."""

    copies: dict[int, bytes]
    decisions: tuple[Decision, ...]
    text: str
    num_rules: int


def select_copies(question: TopicQuestion, topic: Topic, subscription: Subscription) -> Selection:
    """The copies that the rules of a subscription make of the message, as the topic was in force for it."""
    if subscription.fall_through:
        return _fall_through(question, topic)
    explained, left_out = _explained(question, subscription)
    versions = {
        version.number: version
        for _, version in question.history.versions(subscription.name)
        if version.subscription == subscription.number
        and version.from_offset <= question.offset
        and (version.to_offset is None or question.offset < version.to_offset)
    }
    decisions = tuple(decision_of_rule(each, versions.get(each.rule.number)) for each in explained)
    copies, failures = _copies(question, subscription)
    if failures and subscription.dead_letter_on_errors:
        copies[FAILED_RULES] = question.located.encoded
    return Selection(copies, decisions, _summary(decisions, left_out, copies), len(subscription.rules))


def _explained(question: TopicQuestion, subscription: Subscription) -> tuple[list[RuleExplanation], int]:
    """The explanations of the rules, those that select the message first, and how many rules are left out."""
    rules: Sequence[Rule] = subscription.rules
    if len(rules) > MOST_RULES:
        rules = sorted(rules, key=lambda rule: not _is_true(question, rule))[:MOST_RULES]
    explained = [
        explain_rule(
            rule,
            question.located.encoded,
            now_ms=question.arrived_ms,
            identity=copy_identity(question.stream.name, question.offset, subscription.number, rule.number),
        )
        for rule in rules
    ]
    explained.sort(key=lambda each: each.filter.verdict is not Verdict.TRUE)
    return explained, len(subscription.rules) - len(rules)


def _is_true(question: TopicQuestion, rule: Rule) -> bool:
    try:
        return evaluate(rule.filter.tree, Message.decode(question.located.encoded), question.arrived_ms) is True
    except (EvaluationFailed, MessageError):
        return False


def _copies(question: TopicQuestion, subscription: Subscription) -> tuple[dict[int, bytes], bool]:
    """The copies of the message by rule, and whether a rule failed."""
    encoded = question.located.encoded
    try:
        message = Message.decode(encoded)
    except MessageError:
        return {}, bool(subscription.rules)

    numbers = {rule.name: rule.number for rule in subscription.rules}

    def identity_of(rule: CopyRule) -> bytes:
        return copy_identity(question.stream.name, question.offset, subscription.number, numbers[rule.name])

    made = copies_of(subscription.rules, message, now_ms=question.arrived_ms, identity_of=identity_of)
    copies = {0 if each.rule is None else numbers[each.rule]: each.message.encode() for each in made.copies}
    return copies, bool(made.failures)


def _fall_through(question: TopicQuestion, topic: Topic) -> Selection:
    """The copy of the fall-through subscription, which gets what no other one took."""
    taker = next(
        (each.name for each in topic.subscriptions if not each.fall_through and _copies(question, each)[0]), None
    )
    if taker is None:
        text = "no other subscription took the message, so the fall-through subscription has it"
        return Selection({0: question.located.encoded}, (), text, 0)
    return Selection({}, (), f"subscription {taker!r} took it: a fall-through gets what no other one took", 0)


def _summary(decisions: Sequence[Decision], left_out: int, copies: dict[int, bytes]) -> str:
    selecting = [each for each in decisions if each.verdict == "true" and each.failure is None]
    failing = ", ".join(repr(each.name) for each in decisions if each.verdict == "error" or each.failure is not None)
    kept = f"; a rule that fails makes a dead letter of the message: {failing}" if FAILED_RULES in copies else ""
    if selecting:
        names = ", ".join(repr(each.name) for each in selecting[:_NAMED_RULES])
        more = f" and {len(selecting) - _NAMED_RULES} more" if len(selecting) > _NAMED_RULES else ""
        rules = "rules" if len(selecting) > 1 else "rule"
        changed = sum(rule not in (0, FAILED_RULES) for rule in copies)
        change = f"; {changed} changed by an action" if changed else ""
        return f"{rules} {names}{more} selected the message{change}{kept}"
    if not decisions:
        return "the subscription had no rules: it selects nothing"
    texts = "; ".join(map(why_not, decisions[:_NAMED_RULES]))
    more_rules = len(decisions) + left_out - _NAMED_RULES
    more = f"; and {more_rules} more rules that do not select it" if more_rules > 0 else ""
    return texts + more + kept


def in_force_step(question: TopicQuestion, subscription: Subscription, selected: Selection) -> Step:
    """Which rules were in force for the message, in which languages, and since when."""
    if subscription.fall_through:
        return Step("in force", State.YES, f"{subscription.name!r} was a fall-through subscription, without rules")
    rules = [
        f"{each.name!r} ({each.language or 'no text'}, since offset {each.from_offset}, {shown_time(each.since_ms)})"
        for each in selected.decisions[:_NAMED_RULES]
        if each.from_offset is not None and each.since_ms is not None
    ]
    more = f", and {selected.num_rules - len(rules)} more" if selected.num_rules > len(rules) else ""
    count = f"{selected.num_rules} rule{'s' * (selected.num_rules != 1)}"
    return Step("in force", State.YES, f"{count} at offset {question.offset}: {', '.join(rules)}{more}")


def outside_text(question: TopicQuestion, name: str) -> str:
    """Why a subscription had no rules at the offset: it was made later, or removed before."""
    history, offset = question.history, question.offset
    if history.has_subscription(name):
        version = history.subscription(name)
        begin = history.created()[version.number]
        if begin > offset:
            at = shown_time(version.created_ms or version.at_ms)
            return f"subscription {version.name!r} was created after the message: it begins at offset {begin}, {at}"
    return f"subscription {name!r} did not exist when the message came: it was removed before, or made later"
