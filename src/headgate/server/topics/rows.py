"""Rows of topics, subscriptions, rules and copies for lists and answers: one mapping each."""

from __future__ import annotations

import base64
import bisect
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from headgate.broker import Broker, BrokerTopic, Delivery, ReadCopy, SubscriptionInfo
from headgate.errors import HeadgateError, MessageError
from headgate.ledger import offset_of, rule_of
from headgate.message import Message
from headgate.server.listings import error_of, may_read
from headgate.topic import RuleHistory, RuleVersion
from headgate.topic.decisions import RuleCounts

Row = dict[str, Any]

RULES_LISTED = 500
"""Limit: rules in the list of all topics' rules: a topic may have a hundred thousand."""


def readable_topics(broker: Broker, user: str) -> Iterator[tuple[str, BrokerTopic | HeadgateError]]:
    """The topics that a user may read, by name; for one that cannot be opened, its error."""
    for name in broker.topics.names():
        if may_read(broker.users, user, name):
            try:
                yield name, broker.topics.get(name)
            except HeadgateError as error:
                yield name, error


def subscription_infos(broker: Broker) -> Iterator[tuple[BrokerTopic, list[SubscriptionInfo]]]:
    """The open topics with their subscriptions, as far as known without opening a file."""
    for topic in broker.topics:
        yield topic, topic.subscriptions.known_infos()


def topic_rows(broker: Broker, user: str) -> Iterator[Row]:
    """The topics that a user may read; the row of an unreadable topic has its error."""
    for name, found in readable_topics(broker, user):
        try:
            if isinstance(found, HeadgateError):
                raise found
            yield topic_row(found)
        except HeadgateError as error:
            yield {"name": name, "error": str(error)}


def topic_row(topic: BrokerTopic) -> Row:
    """One topic with the sums over its subscriptions. Raises LogError."""
    history, infos = topic.history, topic.subscriptions.infos()
    return {
        "name": topic.stream.name,
        "subscriptions": len(infos),
        "sql_filters": history.counts.sql,
        "correlation_filters": history.counts.correlation,
        "last_change": history.last_change,
        "first_offset": topic.stream.first_offset,
        "next_offset": topic.stream.next_offset,
        "undecided": topic.stream.next_offset - topic.next_offset,
        "active": sum(info.counts.active for info in infos),
        "locked": sum(info.counts.locked for info in infos),
        "waiting": sum(info.counts.waiting for info in infos),
        "dead_lettered": sum(info.dead_lettered or 0 for info in infos),
        "deferred": sum(info.deferred or 0 for info in infos),
        "pins": min((info.pins for info in infos if info.pins is not None), default=None),
        "counters": asdict(topic.counters),
        **error_of(topic.stream),
    }


def topic_detail(topic: BrokerTopic) -> Row:
    """One topic with its limits, its subscriptions and their rules. Raises LogError."""
    history, held = topic.history, HeldBack.of(topic)
    limits = {name: getattr(history.limits, name) for name in history.limits.__struct_fields__}
    return {
        **topic_row(topic),
        "history_from": history.pruned_below,
        "limits": limits,
        "subscriptions": [
            {**subscription_row(topic, info, held), "rules": rules_in_force(topic, info.name)}
            for info in topic.subscriptions.infos()
        ],
    }


def subscription_rows(broker: Broker, user: str) -> Iterator[Row]:
    """The subscriptions of all topics that a user may read; one row for a topic that cannot be opened."""
    for name, found in readable_topics(broker, user):
        try:
            if isinstance(found, HeadgateError):
                raise found
            held = HeldBack.of(found)
            rows = [subscription_row(found, info, held) for info in found.subscriptions.infos()]
        except HeadgateError as error:
            rows = [{"topic": name, "error": str(error)}]
        yield from rows


def subscription_row(topic: BrokerTopic, info: SubscriptionInfo, held: HeldBack) -> Row:
    """One subscription: its settings, counts of its copies, the bytes that it holds back, its counters."""
    history = topic.history
    version = history.subscription(info.name)
    return {
        "topic": topic.stream.name,
        "name": info.name,
        "number": info.number,
        "rules": len(history.rules(info.name)),
        "fall_through": version.fall_through,
        "dead_letter_on_errors": version.dead_letter_on_errors,
        "forward_to": version.forward_to,
        "in_force_from": version.from_offset,
        "settings": info.settings.json_object(),
        "active": info.counts.active,
        "locked": info.counts.locked,
        "waiting": info.counts.waiting,
        "deferred": info.deferred,
        "dead_lettered": info.dead_lettered,
        "forwarding": info.forwarding,
        "receivers": info.receivers,
        "pins": info.pins,
        "held_back_bytes": held.behind(info.pins),
        "counters": asdict(info.counters),
        **error_of(topic.stream),
    }


def rule_rows(broker: Broker, user: str) -> Iterator[Row]:
    """The first rules in force of all topics that a user may read; one row for a topic that cannot be opened."""
    left = RULES_LISTED
    for name, topic in readable_topics(broker, user):
        if isinstance(topic, HeadgateError):
            yield {"topic": name, "error": str(topic)}
            continue
        history = topic.history
        for version in history.subscriptions():
            counts = topic.rule_failures.counts(version.name)
            for rule in history.rules(version.name)[:left]:
                yield {
                    "topic": topic.stream.name,
                    "subscription": version.name,
                    "name": rule.rule.name,
                    "filter": rule.rule.filter_text,
                    "action": rule.rule.action,
                    "number": rule.number,
                    "from_offset": rule.from_offset,
                    **_counted(topic, version.name, rule, counts[rule.number]),
                    **error_of(topic.stream),
                }
                left -= 1
            if left <= 0:
                return


def rules_in_force(topic: BrokerTopic, subscription: str) -> list[Row]:
    """The rules of a subscription, each with its counters since the server opened the topic."""
    counts = topic.rule_failures.counts(subscription)
    return [
        {**rule_row(each), **_counted(topic, subscription, each, counts[each.number])}
        for each in topic.history.rules(subscription)
    ]


def _counted(topic: BrokerTopic, subscription: str, rule: RuleVersion, counts: RuleCounts) -> Row:
    last = counts.last_failure
    return {
        "matched": counts.matched,
        "errors": counts.errors,
        "failed_actions": counts.failed_actions,
        "last_failure_offset": last,
        "last_failure_reason": None if last is None else topic.rule_failures.reason(subscription, rule, last),
    }


def rule_row(version: RuleVersion) -> Row:
    """One version of a rule, in its written form, with the offsets that it decides."""
    rule: Row = msgspec.to_builtins(version.rule)
    return {
        **rule,
        "number": version.number,
        "from_offset": version.from_offset,
        "to_offset": version.to_offset,
        "at_ms": version.at_ms,
    }


def history_rows(history: RuleHistory) -> list[Row]:
    """Every version of every rule, with its subscription."""
    return [{"subscription": name, **rule_row(version)} for name, version in history.versions()]


def copy_row(copy: ReadCopy, *, encoded: bool) -> Row:
    """One copy that was read: as JSON, or with its bytes in base64."""
    return {
        "offset": offset_of(copy.copy),
        "rule": rule_of(copy.copy),
        "timestamp_ms": copy.timestamp_ms,
        "state": copy.state.name.lower(),
        **_content(copy.message, encoded=encoded),
    }


def delivery_row(delivery: Delivery, *, encoded: bool) -> Row:
    """One delivered copy."""
    return {
        "offset": offset_of(delivery.copy),
        "rule": rule_of(delivery.copy),
        "attempt": delivery.attempt,
        "timestamp_ms": delivery.timestamp_ms,
        "token": delivery.token.hex(),
        "locked_until_ms": delivery.locked_until_ms,
        **_content(delivery.message, encoded=encoded),
    }


def _content(message: bytes, *, encoded: bool) -> Row:
    if encoded:
        return {"encoded": base64.b64encode(message).decode()}
    try:
        return {"message": Message.decode(message).describe(typed=False)}
    except MessageError as error:
        return {"malformed": str(error), "encoded": base64.b64encode(message).decode()}


@dataclass(frozen=True, slots=True)
class HeldBack:
    """How many bytes of segments a needed offset holds back, in a topic as it is now."""

    starts: list[int]
    bytes_from: list[int]

    @staticmethod
    def of(topic: BrokerTopic) -> HeldBack:
        """Cost: one `stat` per segment. Raises LogError."""
        with topic.stream.guarded():
            segments = topic.stream.stream.segments()
            sizes = [segment.size_bytes() for segment in segments]
        return HeldBack([segment.first_chunk_id for segment in segments], list(_sums_from(sizes)))

    def behind(self, offset: int | None) -> int:
        """The bytes of an offset's segment and all later ones; 0 for None."""
        if offset is None or not self.starts:
            return 0
        return self.bytes_from[max(bisect.bisect_right(self.starts, offset) - 1, 0)]


def _sums_from(sizes: Iterable[int]) -> Iterator[int]:
    left = sum(sizes)
    for size in sizes:
        yield left
        left -= size
