"""`headgate rule`: what a subscription selects, and since when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import App, Parameter

from headgate.cli.options import (
    DEFAULT_ROOT,
    AsJson,
    LockTimeout,
    Parameters,
    Root,
    RuleName,
    SubscriptionName,
    TopicName,
    json_of,
    parameters_of,
)
from headgate.cli.output import write_facts, write_json, write_rows, write_table
from headgate.cli.rule_test import rule_test
from headgate.cli.topic import changing, told
from headgate.cli.units import shown_time
from headgate.clock import now_ms
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from headgate.topic import Rule, RuleVersion

commands = App(
    name="rule",
    help="Test rules on what is there; add, replace and remove those of a subscription, show their history.",
)
commands.command(rule_test, name="test")


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class RuleOptions:
    """What a rule is given as: one kind of filter, and an action."""

    sql: Annotated[str | None, Parameter(help="SQL filter.", allow_leading_hyphen=True)] = None
    dialect: Annotated[str | None, Parameter(help="Language of --sql; the default is `servicebus`.")] = None
    correlation: Annotated[
        str | None, Parameter(help='Correlation filter as JSON: {"label": "x", "properties": {"color": "red"}}.')
    ] = None
    tags: Annotated[str | None, Parameter(help="Tag expression, such as 'paid || refunded'.")] = None
    properties: Annotated[str | None, Parameter(help='Property filters as JSON, such as {"subject": "&p:order."}.')] = (
        None
    )
    application_properties: Annotated[
        str | None, Parameter(help="Property filters on application properties, as JSON.")
    ] = None
    action: Annotated[
        str | None, Parameter(help="What to do with the copy, such as 'SET quantity = quantity / 2'.")
    ] = None
    parameter: Parameters = None

    def rule(self, name: str) -> Rule:
        """The rule of that name. Raises ConfigError for invalid JSON."""
        from headgate.topic import Rule, RuleDefinition

        return Rule.of(
            RuleDefinition(
                name,
                sql=self.sql,
                dialect=self.dialect,
                correlation=_object(self.correlation, "--correlation"),
                tags=self.tags,
                properties=_object(self.properties, "--properties"),
                application_properties=_object(self.application_properties, "--application-properties"),
                action=self.action,
                parameters=parameters_of(self.parameter),
            )
        )


_NO_OPTIONS = RuleOptions()


@commands.command
def add(
    topic: TopicName,
    subscription: SubscriptionName,
    name: RuleName,
    /,
    *,
    options: RuleOptions = _NO_OPTIONS,
    lock_timeout: LockTimeout = 5.0,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Add a rule; it decides the messages that are published from then on."""
    rule = options.rule(name)
    with changing(topic, lock_timeout, root) as editor:
        return told(editor.add_rule(subscription, rule, now_ms=now_ms()))


@commands.command
def replace(
    topic: TopicName,
    subscription: SubscriptionName,
    name: RuleName,
    /,
    *,
    options: RuleOptions = _NO_OPTIONS,
    lock_timeout: LockTimeout = 5.0,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Replace filter and action of a rule; each message meets the old rule or the new one, none both."""
    rule = options.rule(name)
    with changing(topic, lock_timeout, root) as editor:
        return told(editor.replace_rule(subscription, rule, now_ms=now_ms()))


@commands.command
def rm(
    topic: TopicName,
    subscription: SubscriptionName,
    name: RuleName,
    /,
    *,
    lock_timeout: LockTimeout = 5.0,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Remove a rule."""
    with changing(topic, lock_timeout, root) as editor:
        return told(editor.remove_rule(subscription, name, now_ms=now_ms()), is_gone=True)


@commands.command
def ls(
    topic: TopicName, subscription: SubscriptionName, /, *, as_json: AsJson = False, root: Root = DEFAULT_ROOT
) -> int:
    """List the rules of a subscription in order of creation."""
    from headgate.topic import RuleHistory, topic_stream

    versions = RuleHistory.load(topic_stream(root, topic)).rules(subscription)
    rows = [_row(version) if as_json else _facts(version) for version in versions]
    nothing = f"no rules: the subscription gets nothing; add one with: headgate rule add {topic} {subscription} NAME"
    columns = ("name", "number", "in_force_from", "filter", "action")
    write_rows(rows, columns, as_json=as_json, nothing=nothing)
    return 0


@commands.command
def show(
    topic: TopicName,
    subscription: SubscriptionName,
    name: RuleName,
    /,
    *,
    as_json: AsJson = False,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Show one rule."""
    from headgate.topic import RuleHistory, topic_stream

    version = RuleHistory.load(topic_stream(root, topic)).rule(subscription, name)
    if as_json:
        write_json(_row(version))
        return 0
    facts = _facts(version)
    if version.rule.parameters is not None:
        facts["parameters"] = msgspec.json.encode(version.rule.parameters).decode()
    write_facts(facts)
    return 0


@commands.command
def history(
    topic: TopicName,
    subscription: Annotated[str | None, Parameter(help="Only the rules of this subscription.")] = None,
    /,
    *,
    prune_below: Annotated[
        int | None, Parameter(help="First forget the versions that no message from this offset on was decided by.")
    ] = None,
    as_json: AsJson = False,
    lock_timeout: LockTimeout = 5.0,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Show every version of every rule, with the offsets of the messages that it decides."""
    from headgate.topic import RuleHistory, topic_stream

    if prune_below is not None:
        with changing(topic, lock_timeout, root) as editor:
            editor.prune(prune_below)
    versions = RuleHistory.load(topic_stream(root, topic)).versions(subscription)
    if as_json:
        for name, version in versions:
            write_json({"subscription": name, **_row(version)})
        return 0
    rows = [
        (
            name,
            version.rule.name,
            version.number,
            version.from_offset,
            version.to_offset,
            shown_time(version.at_ms),
            version.rule.filter_text,
            version.rule.action,
        )
        for name, version in versions
    ]
    write_table(("subscription", "rule", "number", "from_offset", "to_offset", "since", "filter", "action"), rows)
    return 0


def _facts(version: RuleVersion) -> dict[str, Any]:
    return {
        "name": version.rule.name,
        "number": version.number,
        "in_force_from": version.from_offset,
        "since": shown_time(version.at_ms),
        "filter": version.rule.filter_text,
        "action": version.rule.action,
    }


def _row(version: RuleVersion) -> dict[str, Any]:
    rule: dict[str, Any] = msgspec.to_builtins(version.rule)
    return {
        **rule,
        "number": version.number,
        "from_offset": version.from_offset,
        "to_offset": version.to_offset,
        "since": shown_time(version.at_ms),
    }


def _object(text: str | None, option: str) -> dict[str, Any] | None:
    if text is None:
        return None
    value = json_of(text, option)
    if not isinstance(value, dict):
        raise ConfigError(f"{option}: found {text!r}, expected a JSON object")
    return value
