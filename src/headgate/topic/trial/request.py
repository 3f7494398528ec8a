"""The request of a trial: a topic, perhaps another version of it, and the detail of the report. Tasks get JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec

from headgate.errors import ConfigError
from headgate.language.servicebus import Limits
from headgate.topic.model import Subscription, Topic, folded
from headgate.topic.rule import Rule, RuleDefinition

MOST_SAMPLES = 100
"""Limit: samples of each kind."""


@dataclass(frozen=True)
class TrialRequest:
    """A trial of `topic` over messages of the stream called `stream`.

    `against` is the version that it is compared with, subscription by subscription and rule by rule of the same name
    (names are compared without case). `as_of_ms` is what UTC() gives; None: the time at which each message arrived.
    `samples` are kept of each kind. With `clauses` every clause of every filter is counted by itself. An `exact` trial
    counts unknown verdicts and errors of all rules, evaluating each alone; without it rules go through the rule engine,
    and errors are counted for subscriptions that want dead letters. `body_schema` is what the stream declares.
    """

    topic: Topic
    stream: str
    against: Topic | None = None
    as_of_ms: int | None = None
    samples: int = 3
    clauses: bool = False
    exact: bool = True
    body_schema: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.samples <= MOST_SAMPLES:
            raise ConfigError(f"samples: found {self.samples}, expected 0 to {MOST_SAMPLES}")
        topic = self.topic.over(self.body_schema).numbered()
        if self.against is not None:
            object.__setattr__(self, "against", against := self.against.over(self.body_schema).numbered())
            # A copy is known by numbers, and newid() follows from that: the same rule must have the same in both.
            topic = _numbered_as(topic, against)
        object.__setattr__(self, "topic", topic)

    @cached_property
    def rules(self) -> list[tuple[Subscription, Rule]]:
        """Every rule of the topic with its subscription, in the topic's order."""
        return [(subscription, rule) for subscription in self.topic.subscriptions for rule in subscription.rules]

    @cached_property
    def compared_subscriptions(self) -> dict[str, str]:
        """Names of subscriptions of both versions by name without case: first from `against`, then the new ones."""
        versions = [] if self.against is None else [self.against, self.topic]
        names: dict[str, str] = {}
        for topic in versions:
            for subscription in topic.subscriptions:
                names.setdefault(folded(subscription.name), subscription.name)
        return names

    @cached_property
    def compared_rules(self) -> dict[tuple[str, str], tuple[str, str]]:
        """Names of subscription and rule of both versions by the same without case: as `compared_subscriptions`."""
        versions = [] if self.against is None else [self.against, self.topic]
        names: dict[tuple[str, str], tuple[str, str]] = {}
        for topic in versions:
            for subscription in topic.subscriptions:
                for rule in subscription.rules:
                    key = folded(subscription.name), folded(rule.name)
                    names.setdefault(key, (subscription.name, rule.name))
        return names

    def encode(self) -> str:
        """This request as JSON."""
        return msgspec.json.encode(self, enc_hook=_plain).decode()

    @staticmethod
    def decode(text: str) -> TrialRequest:
        """The request that `encode` wrote."""
        return msgspec.json.decode(text, type=TrialRequest, dec_hook=_rule)


def _numbered_as(topic: Topic, other: Topic) -> Topic:
    """The topic with the numbers of another one where names are the same, and higher, unused numbers elsewhere."""
    numbers = {folded(each.name): each for each in other.subscriptions}
    unused = _behind(each.number for each in other.subscriptions)
    subscriptions = []
    for subscription in topic.subscriptions:
        same = numbers.get(folded(subscription.name))
        known = {} if same is None else {folded(rule.name): rule.number for rule in same.rules}
        unused_rules = _behind(known.values())
        rules = (
            (rule, known[folded(rule.name)] if folded(rule.name) in known else next(unused_rules))
            for rule in subscription.rules
        )
        limits = topic.limits.content
        subscriptions.append(
            replace(
                subscription,
                number=next(unused) if same is None else same.number,
                rules=tuple(
                    Rule.of(rule.definition, number=number, limits=limits, body_schema=rule.body_schema)
                    for rule, number in rules
                ),
            )
        )
    return replace(topic, subscriptions=tuple(subscriptions))


def _behind(numbers: Iterable[int]) -> Iterator[int]:
    last = max(numbers, default=0)
    while True:
        last += 1
        yield last


def _plain(rule: Any) -> object:
    """The parts of a rule, for JSON."""
    assert isinstance(rule, Rule)
    return rule.definition, rule.number, rule.limits


def _rule(_: type, written: object) -> Rule:
    definition, number, limits = msgspec.convert(written, tuple[RuleDefinition, int, Limits])
    return Rule.of(definition, number=number, limits=limits)
