"""Topics: subscriptions with rules, and the checks on them (servicebus_filters, sections 1, 6 and 7)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace

from headgate.errors import RuleError, RuleExistsError, RuleLimitError
from headgate.topic.folders import QUEUE_SUBSCRIPTION
from headgate.topic.limits import DEFAULT_LIMITS, TopicLimits
from headgate.topic.rule import DEFAULT_RULE_NAME, Rule, RuleDefinition, default_rule
from headgate.topic.settings import DEFAULT_SETTINGS, SubscriptionSettings

DEFAULT_RULES: tuple[Rule, ...] = (default_rule(),)
"""The rules of a subscription that is made without rules."""

_FORBIDDEN = frozenset("@?#*/\\|")


@dataclass(frozen=True, slots=True)
class Subscription:
    """A view of a topic: the messages that its rules select, each rule with an action giving copies of its own.

    Without `rules` given it has the true rule `$Default`. A `fall_through` subscription has no rules; it gets the
    messages that no other subscription of the topic took. `dead_letter_on_errors`: a message that a rule cannot be
    evaluated for gives a dead-letter copy; otherwise the rule just does not select it. `forward_to` names the topic
    that the copies go to. `settings` say how copies are delivered; they have no history, so the present ones count.
    `number` is given by the history: counted from 1, in order of creation, never used again; 0 before.
    """

    name: str
    rules: tuple[Rule, ...] = DEFAULT_RULES
    fall_through: bool = False
    dead_letter_on_errors: bool = False
    forward_to: str | None = None
    settings: SubscriptionSettings = DEFAULT_SETTINGS
    number: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        rules = () if self.fall_through and self.rules is DEFAULT_RULES else tuple(self.rules)
        object.__setattr__(self, "rules", rules)


@dataclass(frozen=True, slots=True)
class Topic:
    """A stream and its subscriptions, in order of creation, as they are in force at one offset."""

    name: str
    subscriptions: tuple[Subscription, ...] = ()
    limits: TopicLimits = DEFAULT_LIMITS

    def check(self, *, compile_rules: bool = True) -> None:
        """Raise RuleError for the first error, with names, place and reason.

        Without `compile_rules` only names and numbers are checked, not filters and actions.
        """
        self.limits.check()
        check_topic_name(self.name, self.limits)
        _check_unique((each.name for each in self.subscriptions), self.name, None)
        for subscription in self.subscriptions:
            check_subscription(subscription, self.name, self.limits)
            for rule in subscription.rules if compile_rules else ():
                check_compiles(rule, self.name, subscription.name, self.limits)
        fall_through = [each.name for each in self.subscriptions if each.fall_through]
        if len(fall_through) > 1:
            raise second_fall_through(self.name, fall_through[1], fall_through[0])
        filters = FilterCounts()
        for subscription in self.subscriptions:
            for rule in subscription.rules:
                filters.add(rule.definition)
        counts = TopicCounts(len(self.subscriptions), filters.sql, filters.correlation)
        check_growth(TopicCounts(), counts, self.limits, self.name)

    def over(self, body_schema: str | None) -> Topic:
        """This topic with rules for a stream that declares this schema of its bodies."""
        if body_schema is None:
            return self

        def bound(rule: Rule) -> Rule:
            return Rule.of(rule.definition, number=rule.number, limits=rule.limits, body_schema=body_schema)

        subscriptions = (replace(each, rules=tuple(map(bound, each.rules))) for each in self.subscriptions)
        return replace(self, subscriptions=tuple(subscriptions))

    def numbered(self) -> Topic:
        """This topic with a number by place for every subscription and rule that has none."""
        return replace(
            self,
            subscriptions=tuple(
                replace(
                    subscription,
                    number=subscription.number or place,
                    rules=tuple(
                        rule
                        if rule.number
                        else Rule.of(
                            rule.definition,
                            number=number,
                            limits=self.limits.content,
                            body_schema=rule.body_schema,
                        )
                        for number, rule in enumerate(subscription.rules, 1)
                    ),
                )
                for place, subscription in enumerate(self.subscriptions, 1)
            ),
        )


@dataclass(slots=True)
class FilterCounts:
    """How many filters of each kind a topic has; true and false filters count as neither."""

    sql: int = 0
    correlation: int = 0

    def add(self, definition: RuleDefinition, by: int = 1) -> None:
        """Count one filter, or with `by` -1 take it off."""
        if definition.is_constant:
            return
        if definition.sql is not None:
            self.sql += by
        else:
            self.correlation += by


@dataclass(frozen=True, slots=True)
class TopicCounts:
    """The counts of a topic that its limits restrict, under the names of the limits."""

    subscriptions: int = 0
    sql_filters: int = 0
    correlation_filters: int = 0


def check_growth(before: TopicCounts, after: TopicCounts, limits: TopicLimits, topic: str) -> None:
    """Raise RuleLimitError if a change makes more of something than the limits allow.

    A count above a limit (the limit was lowered later) may stay, but not grow.
    """
    for counted in fields(TopicCounts):
        found, limit = getattr(after, counted.name), getattr(limits, counted.name)
        if found > max(limit, getattr(before, counted.name)):
            raise RuleLimitError(
                f"the topic would have {found} {counted.name.replace('_', ' ')}; its limit is {limit}", topic=topic
            )


def check_topic_name(name: str, limits: TopicLimits) -> None:
    """Raise RuleError for a name that no topic may have: it may have slashes inside."""
    reason = _wrong_name(name.replace("/", ""), limits.topic_name_characters, length=len(name))
    if reason is None and (name.startswith("/") or name.endswith("/")):
        reason = "the name begins or ends with a slash"
    if reason is not None:
        raise RuleError(reason, topic=name)


def check_subscription(subscription: Subscription, topic: str, limits: TopicLimits) -> None:
    """Raise RuleError for a subscription that is wrong in itself: its name, its rules' names."""
    reason = _wrong_name(subscription.name, limits.subscription_name_characters)
    if subscription.name.startswith("$") and subscription.name != QUEUE_SUBSCRIPTION:
        reason = "the name begins with $, as those of the places behind a subscription do"
    if reason is not None:
        raise RuleError(reason, topic=topic, subscription=subscription.name)
    if subscription.fall_through and subscription.rules:
        raise RuleError(
            f"a fall-through subscription gets what no other one took and has no rules, found "
            f"{len(subscription.rules)}",
            topic=topic,
            subscription=subscription.name,
        )
    if subscription.forward_to == topic:
        raise RuleError("forwards to its own topic", topic=topic, subscription=subscription.name)
    subscription.settings.check(topic, subscription.name)
    if subscription.name == QUEUE_SUBSCRIPTION and subscription.settings.auto_delete_on_idle_ms is not None:
        raise RuleError("the queue's own auto_delete_on_idle_ms says when it is removed, with all it has", topic=topic)
    _check_unique((rule.name for rule in subscription.rules), topic, subscription.name)
    for rule in subscription.rules:
        check_rule_name(rule.name, topic, subscription.name, limits)


def check_rule_name(name: str, topic: str, subscription: str, limits: TopicLimits) -> None:
    """Raise RuleError for a name that no rule may have."""
    reason = None
    if name.startswith("$") and name != DEFAULT_RULE_NAME:
        reason = f"of the names that begin with $ only {DEFAULT_RULE_NAME} is allowed"
    reason = reason or _wrong_name(name, limits.rule_name_characters)
    if reason is not None:
        raise RuleError(reason, topic=topic, subscription=subscription, rule=name)


def check_compiles(rule: Rule, topic: str, subscription: str, limits: TopicLimits) -> None:
    """Raise RuleError, with the place, for a rule whose filter or action is wrong or larger than allowed."""
    try:
        rule.check(limits.content)
    except RuleError as error:
        raise RuleError(
            error.reason, topic=topic, subscription=subscription, rule=rule.name, cause=error.cause
        ) from error


def folded(name: str) -> str:
    """A name of a subscription or rule as it is compared: without case."""
    return name.casefold()


def second_fall_through(topic: str, subscription: str, first: str) -> RuleError:
    """The error for a topic with two fall-through subscriptions."""
    return RuleError(
        f"{first!r} is the fall-through of the topic already, and there can be one",
        topic=topic,
        subscription=subscription,
    )


def _check_unique(names: Iterable[str], topic: str, subscription: str | None) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if folded(name) in seen:
            raise already_exists(name, seen[folded(name)], topic, subscription)
        seen[folded(name)] = name


def already_exists(name: str, other: str, topic: str, subscription: str | None) -> RuleExistsError:
    """The error for a second subscription (`subscription` is None) or rule of a name."""
    reason = (
        "is there already" if name == other else f"is there already, written {other!r}: names are compared without case"
    )
    if subscription is None:
        return RuleExistsError(reason, topic=topic, subscription=name)
    return RuleExistsError(reason, topic=topic, subscription=subscription, rule=name)


def _wrong_name(name: str, max_characters: int, *, length: int | None = None) -> str | None:
    found = len(name) if length is None else length
    if not 1 <= found <= max_characters:
        return f"a name of {found} characters; expected 1 to {max_characters}"
    bad = [character for character in name if character in _FORBIDDEN or not character.isprintable()]
    if bad:
        return f"the name holds {bad[0]!r}; not allowed are {' '.join(sorted(_FORBIDDEN))} and what cannot be printed"
    if name != name.strip():
        return "the name begins or ends with a space"
    return None
