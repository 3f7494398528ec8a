"""`headgate rule explain`: why the rules of a topic made copies of a message or none, and what their actions do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headgate.cli.explanation import explanation_row, given_message, message_at, write_explanation
from headgate.cli.options import DEFAULT_ROOT, AsJson, Root, RuleName, SubscriptionName, TopicName
from headgate.cli.output import json_cell, write_json, write_line, write_table
from headgate.clock import now_ms
from headgate.errors import ConfigError, RuleNotFoundError, did_you_mean
from headgate.visible import visible

if TYPE_CHECKING:
    from headgate.topic import Rule, RuleHistory, Subscription, Topic
    from headgate.topic.trial import RuleExplanation


def explain(
    topic: TopicName,
    subscription: SubscriptionName | None = None,
    name: RuleName | None = None,
    /,
    *,
    offset: Annotated[int | None, Parameter(help="Offset of the message in the topic.")] = None,
    message: Annotated[
        str | None, Parameter(help="A message as `publish` takes it, JSON on one line.", allow_leading_hyphen=True)
    ] = None,
    as_json: AsJson = False,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Explain the results of rules for a message: each clause of the filter, and the changes of the action.

    All rules of a topic are asked, those of one subscription, or one rule.

    A stored message is judged by the rule that was in force for it, with the time of its arrival as `UTC()`.
    """
    from headgate.topic import RuleHistory, copy_identity, topic_stream
    from headgate.topic.trial import explain_rule

    if (message is None) == (offset is None):
        raise ConfigError("expected a message: either --offset N, or --message JSON")
    stream = topic_stream(root, topic)
    history = RuleHistory.load(stream)
    in_force = history.at(stream.next_offset() if offset is None else offset)
    if offset is None:
        (encoded, _), arrived_ms = given_message(str(message)), now_ms()
    else:
        encoded, arrived_ms = message_at(stream, offset)
    found = [
        (each.name, explain_rule(rule, encoded, now_ms=arrived_ms, identity=identity))
        for each, rule in _asked(history, in_force, subscription, name, offset)
        for identity in [copy_identity(stream.name, offset or 0, each.number, rule.number)]
    ]
    for number, (of, explained) in enumerate(found):
        shown, stage = explained.filter, explained.filter.stage.value
        if as_json:
            does = {"result": _result(explained), "failure": explained.failure, "changes": _changes(explained)}
            write_json({"subscription": of, "rule": explained.rule.name, **does, **explanation_row(shown, stage, [])})
            continue
        if number:
            write_line()
        subscription_name = of + "/" if name is None else ""
        write_line(visible(f"{subscription_name}{explained.rule.name}: {explained.rule.definition.filter_text}"))
        write_explanation(shown, stage, [])
        if explained.changes:
            rows = [(each.field, json_cell(each.before), json_cell(each.after)) for each in explained.changes]
            write_table(("field", "before", "after"), rows)
        write_line(visible(f"gives {_result(explained)}"))
    return 0


def _asked(
    history: RuleHistory, in_force: Topic, subscription: str | None, name: str | None, offset: int | None
) -> list[tuple[Subscription, Rule]]:
    """The requested rules, with their subscriptions. Raises RuleNotFoundError."""
    number = None if subscription is None else history.subscription(subscription).number
    asked = [each for each in in_force.subscriptions if number is None or each.number == number]
    rules = [(each, rule) for each in asked for rule in each.rules]
    if name is None:
        return rules
    named = [(each, rule) for each, rule in rules if rule.name.casefold() == name.casefold()]
    if not named:
        at = "now" if offset is None else f"for offset {offset}, see headgate rule history {in_force.name}"
        near = did_you_mean(name, [rule.name for _, rule in rules])
        raise RuleNotFoundError(
            f"no such rule is in force {at}{near}", topic=in_force.name, subscription=subscription, rule=name
        )
    return named


def _result(explained: RuleExplanation) -> str:
    from headgate.evaluate import Verdict

    if explained.failure is not None:
        return f"no copy by this rule: its action fails: {explained.failure}"
    if explained.filter.verdict is not Verdict.TRUE:
        return "no copy by this rule"
    return "the message as it is" if explained.changes is None else "a copy that the action changes"


def _changes(explained: RuleExplanation) -> list[dict[str, object]] | None:
    if explained.changes is None:
        return None
    return [{"field": each.field, "before": each.before, "after": each.after} for each in explained.changes]
