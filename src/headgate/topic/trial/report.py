"""The findings of a trial under the names of rules and subscriptions: for people, for JSON, and as a check."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from headgate.topic.trial.findings import Findings, Overlaps, Sample, SampleKind
from headgate.topic.trial.request import TrialRequest
from headgate.topic.trial.trial import clause_text, clauses_of


@dataclass(frozen=True, slots=True)
class ClauseFindings:
    """How many messages one clause of a filter, evaluated separately, is true, false, unknown or an error for."""

    text: str
    true: int
    false: int
    unknown: int
    errors: int


@dataclass(frozen=True, slots=True)
class RuleFindings:
    """Counts of a rule: messages that its filter selected, failed for, or gave unknown for; None where not counted."""

    subscription: str
    rule: str
    matched: int
    errors: int | None
    unknown: int | None
    failed_actions: int
    clauses: list[ClauseFindings] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    error_samples: list[Sample] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SubscriptionFindings:
    """How many messages a subscription gets, in how many copies."""

    subscription: str
    messages: int
    copies: int
    fall_through: bool


@dataclass(frozen=True, slots=True)
class OverlapFindings:
    """How many messages two of them both take; twice the same name: it has several copies of a message."""

    first: str
    second: str
    messages: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class RuleChange:
    """Messages that a rule selects in both versions, or in one only."""

    subscription: str
    rule: str
    both: int
    only_old: int
    only_new: int


@dataclass(frozen=True, slots=True)
class SubscriptionChange:
    """Messages of which a subscription gets the same copies in both versions, others, or in one version only some."""

    subscription: str
    same: int
    changed: int
    only_old: int
    only_new: int
    samples: dict[str, list[Sample]] = field(default_factory=dict)


@dataclass(frozen=True)
class TrialReport:
    """The findings over the offsets `start … stop` of a stream."""

    request: TrialRequest
    findings: Findings
    start: int
    stop: int

    @cached_property
    def rules(self) -> list[RuleFindings]:
        """Every rule, in the topic's order."""
        return [self._rule(place) for place in range(len(self.request.rules))]

    def _rule(self, place: int) -> RuleFindings:
        found = self.findings
        subscription, rule = self.request.rules[place]
        clauses = []
        if self.request.clauses:
            texts = map(clause_text, clauses_of(rule.filter))
            clauses = [
                ClauseFindings(text, true, false, unknown, errors)
                for text, (false, true, unknown, errors) in zip(texts, found.clauses[place], strict=True)
            ]
        return RuleFindings(
            subscription.name,
            rule.name,
            matched=found.matched[place],
            errors=_counted(found.errors[place]),
            unknown=_counted(found.unknown[place]),
            failed_actions=found.failed_actions[place],
            clauses=clauses,
            samples=found.samples_of(SampleKind.MATCHED, place),
            error_samples=[
                *found.samples_of(SampleKind.ERROR, place),
                *found.samples_of(SampleKind.FAILED_ACTION, place),
            ],
        )

    @property
    def subscriptions(self) -> list[SubscriptionFindings]:
        """Every subscription, in the topic's order."""
        found = zip(self.request.topic.subscriptions, self.findings.received, self.findings.copies, strict=True)
        return [
            SubscriptionFindings(each.name, messages, copies, each.fall_through) for each, messages, copies in found
        ]

    @property
    def rule_overlaps(self) -> list[OverlapFindings]:
        """Pairs of rules, written `subscription/rule`, that select the same messages; the largest overlap first."""
        names = [f"{subscription.name}/{rule.name}" for subscription, rule in self.request.rules]
        return _overlaps(self.findings.rule_overlaps, names)

    @property
    def subscription_overlaps(self) -> list[OverlapFindings]:
        """Pairs of subscriptions that get copies of the same messages; the largest overlap first."""
        names = [subscription.name for subscription in self.request.topic.subscriptions]
        return _overlaps(self.findings.subscription_overlaps, names)

    @property
    def is_partition(self) -> bool:
        """Whether every message gives exactly one copy: no gaps, no overlaps."""
        return not (self.findings.by_copies.none or self.findings.by_copies.several)

    @property
    def rule_changes(self) -> list[RuleChange]:
        """Every rule of both versions; none without a version to compare with."""
        names = self.request.compared_rules.values()
        return [
            RuleChange(subscription, rule, both, only_old, only_new)
            for (subscription, rule), (both, only_old, only_new) in zip(names, self.findings.rule_changes, strict=True)
        ]

    @property
    def subscription_changes(self) -> list[SubscriptionChange]:
        """Every subscription of both versions; none without a version to compare with."""
        names = self.request.compared_subscriptions.values()
        kinds = (SampleKind.CHANGED, SampleKind.ONLY_OLD, SampleKind.ONLY_NEW)
        return [
            SubscriptionChange(
                name,
                same=same,
                changed=changed,
                only_old=only_old,
                only_new=only_new,
                samples={kind.value: self.findings.samples_of(kind, place) for kind in kinds},
            )
            for place, (name, (same, changed, only_old, only_new)) in enumerate(
                zip(names, self.findings.subscription_changes, strict=True)
            )
        ]

    def as_dict(self) -> dict[str, Any]:
        """The whole report as plain values."""
        found = self.findings
        report: dict[str, Any] = {
            "stream": self.request.stream,
            "start": self.start,
            "stop": self.stop,
            "messages": found.messages,
            "malformed": found.malformed,
            "unreadable_bodies": found.unreadable_bodies,
            "by_rules": found.by_rules,
            "by_copies": found.by_copies,
            "is_partition": self.is_partition,
            "rules": _dicts(self.rules),
            "subscriptions": _dicts(self.subscriptions),
            "rule_overlaps": _dicts(self.rule_overlaps),
            "subscription_overlaps": _dicts(self.subscription_overlaps),
            "overlaps_complete": found.rule_overlaps.complete and found.subscription_overlaps.complete,
            "gap_samples": found.samples_of(SampleKind.NONE),
            "overlap_samples": found.samples_of(SampleKind.SEVERAL),
        }
        if self.request.against is not None:
            report["against"] = {
                "messages_changed": found.messages_changed,
                "subscriptions": _dicts(self.subscription_changes),
                "rules": _dicts(self.rule_changes),
            }
        plain: dict[str, Any] = msgspec.to_builtins(report)
        return plain


def _counted(count: int) -> int | None:
    return None if count < 0 else count


def _overlaps(found: Overlaps, names: list[str]) -> list[OverlapFindings]:
    pairs = [
        OverlapFindings(names[key // found.width], names[key % found.width], overlap.messages, overlap.first_offset)
        for key, overlap in sorted(found.pairs.items())
    ]
    return sorted(pairs, key=lambda pair: -pair.messages)


def _dicts(rows: Iterable[Any]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]
