"""Preview of a rule before it is added: which of the last messages it would select, and how its action changes them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headgate.log import OffsetSpecification, Stream
from headgate.scan import Cursor, ScanBatch, ScanRequest
from headgate.topic.limits import TopicLimits
from headgate.topic.model import Subscription, Topic, check_compiles, folded
from headgate.topic.router import Router
from headgate.topic.rule import Rule, RuleDefinition
from headgate.topic.trial.findings import Sample, described
from headgate.topic.trial.report import TrialReport
from headgate.topic.trial.request import TrialRequest
from headgate.topic.trial.trial import Trial

_MOST_OTHERS = 100
"""Limit: other rules that overlaps are counted with; a subscription may have a hundred thousand."""


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field that an action changes; None: the message does not have it."""

    field: str
    before: object
    after: object


@dataclass(frozen=True, slots=True)
class ChangeSample:
    """The changes of an action to one message."""

    offset: int
    timestamp_ms: int
    changes: list[FieldChange]


@dataclass(frozen=True, slots=True)
class RuleOverlap:
    """How many messages another rule of the subscription selects, too, and the first of them."""

    rule: str
    messages: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class DryRun:
    """The counts of a rule over the messages at the offsets `start … stop`, as in `RuleFindings`."""

    start: int
    stop: int
    messages: int
    unreadable_bodies: int
    """Of a rule with a path into bodies: those that are no JSON, or not of the stream's schema."""
    matched: int
    errors: int
    unknown: int
    failed_actions: int
    samples: list[Sample] = field(default_factory=list)
    error_samples: list[Sample] = field(default_factory=list)
    changes: list[ChangeSample] = field(default_factory=list)
    overlaps: list[RuleOverlap] = field(default_factory=list)
    """The largest first."""

    def as_dict(self) -> dict[str, Any]:
        """The whole as plain values."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def dry_run(
    stream: Stream,
    rule: Rule,
    *,
    topic: str,
    subscription: str,
    limits: TopicLimits,
    last: int,
    samples: int = 3,
    others: Sequence[RuleDefinition] = (),
) -> DryRun:
    """Try a rule on the messages at the `last` offsets of a topic's stream; `samples` of each kind are shown.

    Overlaps are counted with `others`, at most the first 100; one of the same name is what the rule replaces.
    Nothing is written. `UTC()` is when each message arrived. Raises RuleError for a rule that `limits` or its text do
    not allow, ConfigError for `samples`, LogError. Memory: that of a cursor.
    """
    check_compiles(rule, topic, subscription, limits)
    names = {f"{subscription}/{other.name}": other for other in others if folded(other.name) != folded(rule.name)}
    beside = dict(itertools.islice(names.items(), _MOST_OTHERS))
    rules = (rule, *(Rule.of(other, limits=limits.content) for other in beside.values()))
    request = TrialRequest(
        _topic_of(topic, subscription, limits, *rules), stream.name, samples=samples, body_schema=stream.body_schema
    )
    trial = Trial(request)
    alone = _topic_of(topic, subscription, limits, rule).over(stream.body_schema)
    router = Router(alone, stream=stream.name) if rule.has_action else None
    stop = stream.next_offset()
    start = max(stream.first_offset(), stop - last)
    changes: list[ChangeSample] = []
    for batch in _batches(stream, start, stop):
        for first in range(0, len(batch), trial.most_messages):
            part = slice(first, first + trial.most_messages)
            messages, offsets, times = batch.messages.take(part), batch.offsets[part], batch.timestamps_ms[part]
            trial.add(messages, offsets, times)
            if router is not None and len(changes) < samples:
                copies = router.route(messages, offsets, times)
                for row, _, encoded in copies.changed(0)[: samples - len(changes)]:
                    changed = differences(described(messages.message(row)), described(encoded))
                    changes.append(ChangeSample(int(offsets[row]), int(times[row]), changed))
    findings = trial.take()
    report = TrialReport(request, findings, start, stop)
    found = report.rules[0]
    return DryRun(
        start,
        stop,
        findings.messages,
        findings.unreadable_bodies,
        found.matched,
        found.errors or 0,
        found.unknown or 0,
        found.failed_actions,
        found.samples,
        found.error_samples,
        changes,
        [
            RuleOverlap(beside[pair.second].name, pair.messages, pair.first_offset)
            for pair in report.rule_overlaps
            if pair.first == f"{subscription}/{rule.name}"
        ],
    )


def _topic_of(topic: str, subscription: str, limits: TopicLimits, *rules: Rule) -> Topic:
    return Topic(topic, (Subscription(subscription, rules),), limits)


def _batches(stream: Stream, start: int, stop: int) -> Iterator[ScanBatch]:
    with Cursor(
        stream, ScanRequest(now_ms=0), start=OffsetSpecification.offset(start), now_ms=0, stop_offset=stop
    ) as cursor:
        while (batch := cursor.read(0)) is not None:
            yield batch


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[FieldChange]:
    """The fields that differ, by name, of two messages as JSON."""
    old, new = _fields(before), _fields(after)
    return [
        FieldChange(name, old.get(name), new.get(name))
        for name in sorted(old.keys() | new.keys())
        if name not in old or name not in new or old[name] != new[name]
    ]


def _fields(shown: dict[str, Any]) -> dict[str, object]:
    """`section.field` and its value; the body is one field."""
    found: dict[str, object] = {}
    for section, content in shown.items():
        if isinstance(content, dict) and section != "body":
            found |= {f"{section}.{name}": value for name, value in content.items()}
        else:
            found[section] = content
    return found
