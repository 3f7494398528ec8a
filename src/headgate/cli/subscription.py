"""`headgate subscription`: the views of a topic."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from cyclopts import App, Parameter

from headgate.cli.options import DEFAULT_ROOT, AsJson, LockTimeout, Root, SubscriptionName, TopicName, json_of
from headgate.cli.topic import changing, told, write_subscriptions
from headgate.clock import now_ms
from headgate.errors import ConfigError

commands = App(name="subscription", help="Create and remove the subscriptions of a topic.")

FallThrough: TypeAlias = Annotated[
    bool, Parameter(negative=(), help="It gets what no other subscription took, and has no rules.")
]
DeadLetterOnErrors: TypeAlias = Annotated[
    bool, Parameter(negative=(), help="Messages that a rule cannot be evaluated for give a dead-letter copy.")
]
ForwardTo: TypeAlias = Annotated[str | None, Parameter(help="Topic that its copies go to.")]


@commands.command
def create(
    topic: TopicName,
    name: SubscriptionName,
    /,
    *,
    fall_through: FallThrough = False,
    dead_letter_on_errors: DeadLetterOnErrors = False,
    forward_to: ForwardTo = None,
    rule: Annotated[
        list[str] | None,
        Parameter(
            negative=(),
            allow_leading_hyphen=True,
            help='Rule as JSON, such as {"name": "red", "sql": "color = \'red\'"}. Repeatable.',
        ),
    ] = None,
    no_rules: Annotated[
        bool, Parameter(negative=(), help="Without rules: it gets nothing until one is added.")
    ] = False,
    lock_timeout: LockTimeout = 5.0,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Create a subscription; without --rule and --no-rules it gets every message, by the rule $Default."""
    from headgate.topic import DEFAULT_RULES, Rule, RuleDefinition, Subscription

    if no_rules and rule:
        raise ConfigError("--no-rules and --rule: found both, expected one of them")
    rules = DEFAULT_RULES
    if rule or no_rules:
        rules = tuple(Rule.of(RuleDefinition.of(json_of(text, "--rule"))) for text in rule or ())
    made = Subscription(
        name, rules, fall_through=fall_through, dead_letter_on_errors=dead_letter_on_errors, forward_to=forward_to
    )
    with changing(topic, lock_timeout, root) as editor:
        return told(editor.create_subscription(made, now_ms=now_ms()))


@commands.command
def change(
    topic: TopicName,
    name: SubscriptionName,
    /,
    *,
    fall_through: FallThrough = False,
    dead_letter_on_errors: DeadLetterOnErrors = False,
    forward_to: ForwardTo = None,
    lock_timeout: LockTimeout = 5.0,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Give a subscription these properties and no others; its rules stay."""
    from headgate.topic import Subscription

    wanted = Subscription(
        name, (), fall_through=fall_through, dead_letter_on_errors=dead_letter_on_errors, forward_to=forward_to
    )
    with changing(topic, lock_timeout, root) as editor:
        return told(editor.change_subscription(wanted, now_ms=now_ms()))


@commands.command
def ls(topic: TopicName, /, *, as_json: AsJson = False, root: Root = DEFAULT_ROOT) -> int:
    """List the subscriptions of a topic."""
    from headgate.topic import RuleHistory, topic_stream

    write_subscriptions(RuleHistory.load(topic_stream(root, topic)), as_json=as_json)
    return 0


@commands.command
def rm(
    topic: TopicName, name: SubscriptionName, /, *, lock_timeout: LockTimeout = 5.0, root: Root = DEFAULT_ROOT
) -> int:
    """Remove a subscription and its rules."""
    with changing(topic, lock_timeout, root) as editor:
        return told(editor.remove_subscription(name, now_ms=now_ms()), is_gone=True)
