"""`headgate rule explain`: why a rule gave a copy of a message, or none."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from headgate.cli.explanation import explanation_row, given_message, message_at, write_explanation
from headgate.cli.options import DEFAULT_ROOT, AsJson, Root, RuleName, SubscriptionName, TopicName
from headgate.cli.output import write_json, write_line
from headgate.clock import now_ms
from headgate.errors import ConfigError, RuleNotFoundError, did_you_mean


def explain(
    topic: TopicName,
    subscription: SubscriptionName,
    name: RuleName,
    /,
    *,
    offset: Annotated[int | None, Parameter(help="Offset of the message in the topic.")] = None,
    message: Annotated[
        str | None, Parameter(help="A message as `publish` takes it, JSON on one line.", allow_leading_hyphen=True)
    ] = None,
    as_json: AsJson = False,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Say what a rule makes of a message: each clause of its filter, in its own language, and its action.

    A stored message is judged by the rule that was in force for it, with the time of its arrival as `UTC()`.
    """
    from headgate.evaluate import Verdict, explain_message
    from headgate.topic import RuleHistory, failure_of, topic_stream
    from headgate.topic import copy_identity as identity_of

    if (message is None) == (offset is None):
        raise ConfigError("expected a message: either --offset N, or --message JSON")
    stream = topic_stream(root, topic)
    history = RuleHistory.load(stream)
    number = history.subscription(subscription).number
    if offset is None:
        rules = {each.number: each for each in history.at(stream.next_offset()).subscriptions if each.number == number}
        in_force = {rule.number: rule for each in rules.values() for rule in each.rules}
        (encoded, _), arrived_ms = given_message(str(message)), now_ms()
    else:
        encoded, arrived_ms = message_at(stream, offset)
        in_force = history.rules_at(number, offset)
    rule = next((rule for rule in in_force.values() if rule.name.casefold() == name.casefold()), None)
    if rule is None:
        at = "now" if offset is None else f"for offset {offset}, see headgate rule history {topic}"
        near = did_you_mean(name, [rule.name for rule in in_force.values()])
        raise RuleNotFoundError(
            f"no such rule is in force {at}{near}", topic=topic, subscription=subscription, rule=name
        )
    explanation = explain_message(rule.filter, encoded, now_ms=arrived_ms)
    identity = identity_of(stream.name, offset or 0, number, rule.number)
    does = "no copy by this rule"
    if explanation.verdict is Verdict.TRUE:
        failure = failure_of(rule, encoded, now_ms=arrived_ms, identity=identity)
        if failure is not None:
            does = f"no copy by this rule: its action fails: {failure}"
        else:
            does = "a copy that the action changes" if rule.has_action else "the message as it is"
    if as_json:
        write_json({"rule": rule.name, "result": does, **explanation_row(explanation, explanation.stage.value, [])})
        return 0
    write_line(f"{rule.name}: {rule.definition.filter_text}")
    write_explanation(explanation, explanation.stage.value, [])
    write_line(f"gives {does}")
    return 0
