"""Explanation of a rule for one message: the verdict of each clause, the changes of its action or why it fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headgate.errors import MessageError
from headgate.evaluate import Explanation, Verdict
from headgate.language import EvaluationFailed
from headgate.message import Message
from headgate.topic.rule import Rule
from headgate.topic.trial.preview import FieldChange, differences


@dataclass(frozen=True, slots=True)
class RuleExplanation:
    """The explanation of a rule for one message.

    `failure` is why its action fails. `changes` are the changes of its action, values as typed JSON; None where it does
    not act: the rule has no action, the message does not match, or the action fails.
    """

    rule: Rule
    filter: Explanation
    failure: str | None = None
    changes: list[FieldChange] | None = None


def explain_rule(rule: Rule, encoded: bytes, *, now_ms: int, identity: bytes) -> RuleExplanation:
    """Explain a rule for a message that arrived at `now_ms`; `identity` is the copy's (`copy_identity`)."""
    explanation = rule.filter.explain(encoded, now_ms=now_ms)
    if rule.action is None or explanation.verdict is not Verdict.TRUE:
        return RuleExplanation(rule, explanation)
    try:
        message = Message.decode(encoded)
        changed = rule.action.apply(message, now_ms=now_ms, identity=identity, rule=rule.name)
    except (EvaluationFailed, MessageError) as failed:
        return RuleExplanation(rule, explanation, failure=str(failed))
    return RuleExplanation(rule, explanation, changes=differences(_typed(message), _typed(changed)))


def _typed(message: Message) -> dict[str, Any]:
    try:
        return message.describe(typed=True)
    except MessageError as error:
        return {"malformed": str(error)}
