"""Which rules are in force at which offset: the history of a topic, read from its journal.

A change is in force from the offset of the stream at which it was made: messages below it are decided by the rules
before the change, messages from it on by the rules after it. It is made under the stream's writer lock and is on disk
before any message at that offset can be written; so a reader that takes the end of the stream first and the history
second knows every rule that it needs.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from headgate.errors import LogError, OffsetOutOfRangeError, RuleNotFoundError, did_you_mean
from headgate.language.servicebus import Limits
from headgate.log import Stream
from headgate.topic import record as r
from headgate.topic.journal import JOURNAL_NAME, read_lines
from headgate.topic.limits import TopicLimits
from headgate.topic.model import FilterCounts, Subscription, Topic, folded
from headgate.topic.rule import Rule, RuleDefinition

_Line = TypeVar("_Line")


@dataclass(slots=True)
class RulesInForce:
    """Offsets `start … stop` for which the topic is the same; `since` is where these rules came into force."""

    start: int
    stop: int
    since: int


@dataclass(slots=True)
class _OpenSubscription:
    version: r.SubscriptionVersion
    rules: dict[str, r.RuleVersion]


class RuleHistory:
    """The rules of a topic at every offset, as the journal said when it was loaded.

    Only an editor changes it; a reader loads it again to see later changes.
    """

    __slots__ = (
        "_boundaries",
        "_closed_rules",
        "_closed_subscriptions",
        "_compiled",
        "_earlier_limits",
        "_open",
        "body_schema",
        "changes_since_head",
        "counts",
        "created_ms",
        "limits",
        "next_subscription",
        "path",
        "pruned_below",
        "settings",
        "topic_name",
        "updated_ms",
    )

    def __init__(self, head: r.Head, path: Path, body_schema: str | None = None) -> None:
        self.path = path
        self.body_schema = body_schema
        """The schema of bodies that the topic's stream declares."""
        self.topic_name = head.topic
        self.created_ms = head.created_ms
        self.updated_ms = head.updated_ms or head.created_ms
        """When its settings or limits were last changed."""
        self.limits = head.limits
        self.settings = head.settings
        self._earlier_limits = list(head.earlier_limits)
        self.pruned_below = head.pruned_below
        self.next_subscription = head.next_subscription
        self.changes_since_head = 0
        self.counts = FilterCounts()
        self._open: dict[str, _OpenSubscription] = {}
        self._closed_subscriptions: list[r.SubscriptionVersion] = []
        self._closed_rules: list[r.RuleVersion] = []
        self._compiled: dict[Limits, dict[tuple[int, int, int], Rule]] = {}
        versions: list[r.SubscriptionVersion | r.RuleVersion] = [*head.subscriptions, *head.rules]
        starts = {version.from_offset for version in versions}
        ends = {version.to_offset for version in versions if version.to_offset is not None}
        self._boundaries = sorted(starts | ends | {each.to_offset for each in head.earlier_limits})
        by_number: dict[int, _OpenSubscription] = {}
        for subscription in head.subscriptions:
            if subscription.to_offset is None:
                opened = _OpenSubscription(subscription, {})
                self._open[folded(subscription.name)] = by_number[subscription.number] = opened
            else:
                self._closed_subscriptions.append(subscription)
        for rule in head.rules:
            if rule.to_offset is None:
                by_number[rule.subscription].rules[folded(rule.rule.name)] = rule
                self.counts.add(rule.rule)
            else:
                self._closed_rules.append(rule)

    @staticmethod
    def load(stream: Stream) -> RuleHistory:
        """The history of a topic's stream. Raises RuleNotFoundError for another stream, LogError for a damaged file."""
        history = RuleHistory.find(stream)
        if history is None:
            raise RuleNotFoundError(
                "the stream is no topic; make it one with: headgate topic create", topic=stream.name
            )
        return history

    @staticmethod
    def find(stream: Stream) -> RuleHistory | None:
        """The history of a topic; None for a stream that is not a topic."""
        path = stream.path / JOURNAL_NAME
        found = read_lines(path)
        return None if found is None else RuleHistory.of_lines(found.lines, path, stream.body_schema)

    @staticmethod
    def of_lines(lines: list[bytes], path: Path, body_schema: str | None) -> RuleHistory:
        """The history that a head and the changes behind it make. Raises LogError where they do not fit."""
        history = RuleHistory(_decoded_head(lines[0], path), path, body_schema)
        for line in lines[1:]:
            history.apply(_decoded(line, r.Record, path))
        return history

    def head(self, *, pruned_below: int) -> r.Head:
        """This history as one line, without versions that ended at or below an offset."""
        below = max(pruned_below, self.pruned_below)
        return r.Head(
            topic=self.topic_name,
            created_ms=self.created_ms,
            limits=self.limits,
            updated_ms=self.updated_ms,
            settings=self.settings,
            pruned_below=below,
            next_subscription=self.next_subscription,
            subscriptions=[
                each for each in self._every_subscription() if each.to_offset is None or each.to_offset > below
            ],
            rules=[each for each in self._every_rule() if each.to_offset is None or each.to_offset > below],
            earlier_limits=[each for each in self._earlier_limits if each.to_offset > below],
        )

    # what is in force

    @property
    def last_change(self) -> int:
        """The offset from which the last change is in force; 0 without any."""
        return self._boundaries[-1] if self._boundaries else 0

    @property
    def current(self) -> Topic:
        """The topic for the next messages."""
        return self._at(self.last_change)

    def at(self, offset: int) -> Topic:
        """The topic as it was in force for the message at an offset.

        Raises OffsetOutOfRangeError if what was in force there is pruned. Cost: one look at every version.
        """
        self._check_kept(offset)
        return self._at(offset)

    def ranges(self, first: int, stop: int) -> Iterator[RulesInForce]:
        """The offsets `first … stop` in pieces with the same rules, in order; none if there are no offsets.

        Raises OffsetOutOfRangeError if what was in force at `first` is pruned.
        """
        start = first
        while start < stop:
            self._check_kept(start)
            place = bisect.bisect_right(self._boundaries, start)
            end = min(stop, self._boundaries[place]) if place < len(self._boundaries) else stop
            since = self._boundaries[place - 1] if place else 0
            yield RulesInForce(start, end, since)
            start = end

    def _check_kept(self, offset: int) -> None:
        if offset < self.pruned_below:
            raise OffsetOutOfRangeError(
                f"the rules for offset {offset} are pruned; the history begins at offset {self.pruned_below}",
                path=self.path,
            )

    def lives(self, subscription: str, first: int, stop: int) -> list[tuple[int, int, int]]:
        """Which of the offsets `first … stop` a subscription of a name, without case, has: start, stop, its number.

        In order; one that was removed and made again has another number. Raises RuleNotFoundError for a name that no
        subscription ever had, OffsetOutOfRangeError if what was in force at `first` is pruned.
        """
        found = [version for version in self._every_subscription() if folded(version.name) == folded(subscription)]
        if not found:
            near = did_you_mean(subscription, {version.name for version in self._every_subscription()})
            raise RuleNotFoundError(
                f"there is no such subscription{near}", topic=self.topic_name, subscription=subscription
            )
        if first < stop:
            self._check_kept(first)
        places = (
            (max(first, each.from_offset), stop if each.to_offset is None else min(stop, each.to_offset), each.number)
            for each in sorted(found, key=lambda each: each.from_offset)
        )
        return [place for place in places if place[0] < place[1]]

    def rules_at(self, subscription: int, offset: int) -> dict[int, Rule]:
        """The rules of one subscription for the message at an offset, all by number; none for a subscription not there.

        Raises as `at`. Cost: a look at each subscription, at its rules, and at each version that ended.
        """
        self._check_kept(offset)
        content = self._limits_at(offset).content
        compiled = self._compiled.setdefault(content, {})
        versions = [version for version in self._closed_rules if version.subscription == subscription]
        for opened in self._open.values():
            if opened.version.number == subscription:
                versions += opened.rules.values()
        return {
            version.number: self._rule(version, content, compiled) for version in versions if _in_force(version, offset)
        }

    def _rule(self, version: r.RuleVersion, limits: Limits, compiled: dict[tuple[int, int, int], Rule]) -> Rule:
        """The rule of a version; one object per version under the same limits, so that it is compiled once."""
        key = version.subscription, version.number, version.from_offset
        rule = compiled.get(key)
        if rule is None or rule.definition != version.rule:
            rule = Rule.of(version.rule, number=version.number, limits=limits, body_schema=self.body_schema)
            compiled[key] = rule
        return rule

    def _limits_at(self, offset: int) -> TopicLimits:
        return next((each.limits for each in self._earlier_limits if offset < each.to_offset), self.limits)

    def _at(self, offset: int) -> Topic:
        limits = self._limits_at(offset)
        subscriptions = [version for version in self._every_subscription() if _in_force(version, offset)]
        content = limits.content
        compiled = self._compiled.setdefault(content, {})
        rules: dict[int, list[r.RuleVersion]] = {version.number: [] for version in subscriptions}
        for rule in self._every_rule():
            if _in_force(rule, offset):
                rules[rule.subscription].append(rule)
        return Topic(
            self.topic_name,
            tuple(
                Subscription(
                    version.name,
                    tuple(
                        self._rule(rule, content, compiled) for rule in sorted(rules[version.number], key=_by_number)
                    ),
                    fall_through=version.fall_through,
                    dead_letter_on_errors=version.dead_letter_on_errors,
                    forward_to=version.forward_to,
                    settings=version.settings,
                    number=version.number,
                )
                for version in sorted(subscriptions, key=_by_number)
            ),
            limits,
        )

    def share_compiled(self, before: RuleHistory) -> None:
        """Take over compiled rules from an earlier state of the history; rules that differ are compiled anew."""
        self._compiled = before._compiled

    # single entries

    def subscription(self, name: str) -> r.SubscriptionVersion:
        """The subscription of a name, without case, as it is in force; raises RuleNotFoundError."""
        return self._opened(name).version

    def created(self) -> dict[int, int]:
        """The offset from which each subscription has messages, by its number."""
        created: dict[int, int] = {}
        for version in self._every_subscription():
            created[version.number] = min(version.from_offset, created.get(version.number, version.from_offset))
        return created

    def subscriptions(self) -> list[r.SubscriptionVersion]:
        """All subscriptions in force, in order of creation."""
        return [opened.version for opened in self._open.values()]

    def has_subscription(self, name: str) -> bool:
        """Whether a subscription of that name, without case, is in force."""
        return folded(name) in self._open

    def rules(self, subscription: str) -> list[r.RuleVersion]:
        """The rules of a subscription in force, in order of creation; raises RuleNotFoundError."""
        return list(self._opened(subscription).rules.values())

    def rule(self, subscription: str, name: str) -> r.RuleVersion:
        """The rule of a name, without case, as it is in force; raises RuleNotFoundError."""
        opened = self._opened(subscription)
        version = opened.rules.get(folded(name))
        if version is None:
            raise RuleNotFoundError(
                f"there is no such rule{did_you_mean(name, (each.rule.name for each in opened.rules.values()))}",
                topic=self.topic_name,
                subscription=opened.version.name,
                rule=name,
            )
        return version

    def has_rule(self, subscription: str, name: str) -> bool:
        """Whether a rule of that name, without case, is in force. Raises RuleNotFoundError for the subscription."""
        return folded(name) in self._opened(subscription).rules

    def versions(self, subscription: str | None = None) -> list[tuple[str, r.RuleVersion]]:
        """Every version of every rule that is known, with the name of its subscription; of one subscription if named.

        In order of the offset from which they are in force.
        """
        names = {version.number: version.name for version in self._every_subscription()}
        found = [(names[rule.subscription], rule) for rule in self._every_rule()]
        if subscription is not None:
            found = [(name, rule) for name, rule in found if folded(name) == folded(subscription)]
        return sorted(found, key=lambda each: (each[1].from_offset, each[1].subscription, each[1].number))

    def _every_subscription(self) -> Iterator[r.SubscriptionVersion]:
        yield from self._closed_subscriptions
        yield from self.subscriptions()

    def _every_rule(self) -> Iterator[r.RuleVersion]:
        yield from self._closed_rules
        for opened in self._open.values():
            yield from opened.rules.values()

    def _opened(self, name: str) -> _OpenSubscription:
        opened = self._open.get(folded(name))
        if opened is None:
            near = did_you_mean(name, (each.version.name for each in self._open.values()))
            raise RuleNotFoundError(f"there is no such subscription{near}", topic=self.topic_name, subscription=name)
        return opened

    # changes

    def apply(self, record: r.Record) -> None:
        """Take over changes that are right; only editors and `load` do."""
        if record.offset < self.last_change:
            raise LogError(f"a change at offset {record.offset} behind one at {self.last_change}", path=self.path)
        try:
            for change in record.changes:
                self.apply_change(change, record.offset, record.at_ms)
        except KeyError as error:
            raise LogError(f"a change of what is not there: {error}", path=self.path) from error
        self.changes_since_head += 1

    def apply_change(self, change: r.Change, offset: int, at_ms: int) -> None:
        """Take over one step of a change that is in force from `offset` on."""
        match change:
            case r.ChangeLimits():
                # Limits under which no message was decided are forgotten.
                if offset > (self._earlier_limits[-1].to_offset if self._earlier_limits else 0):
                    self._earlier_limits.append(r.EarlierLimits(offset, self.limits))
                self.limits = change.limits
                self.updated_ms = at_ms
            case r.ChangeTopic():
                self.settings = change.settings
                self.updated_ms = at_ms
                # In force everywhere at once, as those of subscriptions.
                return
            case r.CreateSubscription():
                self._open_subscription(change, self.next_subscription, 1, {}, offset, at_ms, created_ms=at_ms)
                self.next_subscription += 1
            case r.ChangeSubscription():
                opened = self._open[folded(change.name)]
                before = opened.version
                before.settings = change.settings
                before.updated_ms = at_ms
                if _versioned(before) == _versioned(change):
                    # Settings are in force everywhere at once: no offset is a boundary between them.
                    return
                self._close(before, self._closed_subscriptions, offset)
                self._open_subscription(
                    change, before.number, before.next_rule, opened.rules, offset, at_ms, created_ms=before.created_ms
                )
            case r.RemoveSubscription():
                opened = self._open.pop(folded(change.name))
                for version in opened.rules.values():
                    self._close_rule(version, offset)
                self._close(opened.version, self._closed_subscriptions, offset)
            case r.AddRule():
                opened = self._open[folded(change.subscription)]
                self._open_rule(opened, change.rule, opened.version.next_rule, offset, at_ms)
                opened.version.next_rule += 1
            case r.ReplaceRule():
                opened = self._open[folded(change.subscription)]
                replaced = opened.rules[folded(change.rule.name)]
                self._close_rule(replaced, offset)
                self._open_rule(opened, change.rule, replaced.number, offset, at_ms)
            case r.RemoveRule():
                opened = self._open[folded(change.subscription)]
                self._close_rule(opened.rules.pop(folded(change.rule)), offset)
        if offset > self.last_change or not self._boundaries:
            self._boundaries.append(offset)

    def _open_subscription(
        self,
        change: r.SubscriptionProperties,
        number: int,
        next_rule: int,
        rules: dict[str, r.RuleVersion],
        offset: int,
        at_ms: int,
        *,
        created_ms: int,
    ) -> None:
        version = r.SubscriptionVersion(
            number=number,
            name=change.name,
            from_offset=offset,
            at_ms=at_ms,
            fall_through=change.fall_through,
            dead_letter_on_errors=change.dead_letter_on_errors,
            forward_to=change.forward_to,
            settings=change.settings,
            next_rule=next_rule,
            created_ms=created_ms,
            updated_ms=at_ms,
        )
        self._open[folded(change.name)] = _OpenSubscription(version, rules)

    def _open_rule(self, opened: _OpenSubscription, rule: RuleDefinition, number: int, offset: int, at_ms: int) -> None:
        version = r.RuleVersion(opened.version.number, number, offset, at_ms, rule)
        opened.rules[folded(rule.name)] = version
        self.counts.add(rule)

    def _close_rule(self, version: r.RuleVersion, offset: int) -> None:
        self._close(version, self._closed_rules, offset)
        self.counts.add(version.rule, -1)

    @staticmethod
    def _close(
        version: r.SubscriptionVersion | r.RuleVersion,
        closed: list[r.SubscriptionVersion] | list[r.RuleVersion],
        offset: int,
    ) -> None:
        # A version that never decided a message is dropped.
        if version.from_offset < offset:
            version.to_offset = offset
            closed.append(version)  # type: ignore[arg-type]


def _versioned(of: r.SubscriptionVersion | r.SubscriptionProperties) -> tuple[object, ...]:
    """The parts of a subscription that have a history: all but its settings."""
    return of.name, of.fall_through, of.dead_letter_on_errors, of.forward_to


def _by_number(version: r.SubscriptionVersion | r.RuleVersion) -> int:
    return version.number


def _in_force(version: r.SubscriptionVersion | r.RuleVersion, offset: int) -> bool:
    return version.from_offset <= offset and (version.to_offset is None or offset < version.to_offset)


def _decoded_head(line: bytes, path: Path) -> r.Head:
    head = _decoded(line, r.Head, path)
    if head.format != r.HISTORY_FORMAT:
        raise LogError(f"a rule history of format {head.format}, expected {r.HISTORY_FORMAT}", path=path)
    return head


def _decoded(line: bytes, kind: type[_Line], path: Path) -> _Line:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LogError(f"not the rule history of a topic: {error}", path=path) from error
