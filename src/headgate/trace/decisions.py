"""Filters and rules with their verdicts, as answers have them; made of the explanations of `evaluate` and `topic`."""

from __future__ import annotations

from headgate.evaluate import Clause, Explanation
from headgate.topic import RuleVersion
from headgate.topic.trial import RuleExplanation
from headgate.trace.parts import AnsweredClause, ChangedField, Decision


def decision_of_filter(
    text: str, language: str | None, explanation: Explanation, *, name: str | None = None, since_ms: int | None = None
) -> Decision:
    """A filter of a reader, with its verdict."""
    return Decision(
        kind="filter",
        name=name,
        text=text,
        language=language,
        verdict=explanation.verdict.name.lower(),
        clauses=_clause(explanation.clauses),
        reasons=explanation.reasons,
        warnings=explanation.warnings,
        since_ms=since_ms,
    )


def decision_of_rule(explained: RuleExplanation, version: RuleVersion | None) -> Decision:
    """A rule of a subscription, with its verdict; `version` says since when it was in force."""
    definition = explained.rule.definition
    action = explained.rule.action
    changes = explained.changes
    return Decision(
        kind="rule",
        name=explained.rule.name,
        text=definition.filter_text if definition.sql is None else " ".join(definition.sql.split()),
        language=explained.rule.filter.dialect,
        verdict=explained.filter.verdict.name.lower(),
        clauses=_clause(explained.filter.clauses),
        reasons=explained.filter.reasons,
        warnings=explained.filter.warnings,
        from_offset=None if version is None else version.from_offset,
        since_ms=None if version is None else version.at_ms,
        action=None if action is None else action.text,
        failure=explained.failure,
        changes=None
        if changes is None
        else tuple(ChangedField(each.field, each.before, each.after) for each in changes),
    )


def why_not(decision: Decision) -> str:
    """Why a filter or rule does not select the message, or that it does: one clause of a sentence."""
    what = f"rule {decision.name!r}" if decision.kind == "rule" else "the filter"
    if decision.failure is not None:
        return f"{what} is true, and its action fails: {decision.failure}"
    reasons = "; ".join(decision.reasons)
    verdict = "cannot be evaluated" if decision.verdict == "error" else f"is {decision.verdict}"
    return f"{what} {verdict}: {reasons or f'`{decision.text}`'}"


def _clause(clause: Clause | None) -> AnsweredClause | None:
    if clause is None:
        return None
    operands = [each for each in map(_clause, clause.operands) if each is not None]
    return AnsweredClause(clause.text, clause.span, clause.verdict.name.lower(), clause.note, tuple(operands))
