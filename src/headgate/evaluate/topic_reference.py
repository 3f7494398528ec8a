"""The copies of a message on one subscription, straight from the specification: the oracle for topics.

Source: servicebus_filters, sections 1.1 and 1.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headgate.evaluate.actions import Action
from headgate.evaluate.filter import Filter
from headgate.evaluate.reference import evaluate
from headgate.evaluate.verdict import EvaluationFailed
from headgate.message import Message


class CopyRule(Protocol):
    """A rule, as far as copies need it."""

    @property
    def name(self) -> str:
        """The name of the rule."""

    @property
    def filter(self) -> Filter:
        """Which messages it selects."""

    @property
    def action(self) -> Action | None:
        """The action on the rule's copy; None: the rule gives no separate copy."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A message that a subscription gets: from a rule with an action (`rule`), or from all rules without one (None)."""

    rule: str | None
    message: Message


@dataclass(frozen=True, slots=True)
class Failure:
    """A rule that did not select the message because its filter or its action failed, and why."""

    rule: str
    cause: str


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies of one message: the plain copy first, then the copies of rules with an action, in the rules' order."""

    copies: tuple[Copy, ...]
    failures: tuple[Failure, ...]


def copies_of(
    rules: Sequence[CopyRule], message: Message, *, now_ms: int, identity_of: Callable[[CopyRule], bytes]
) -> Copies:
    """The copies of a message on a subscription with these rules, in the order of their creation. Never raises.

    Every filter sees the message as it arrived. `identity_of` gives the identity that newid() in a rule's action uses.
    """
    plain = False
    changed: list[Copy] = []
    failures: list[Failure] = []
    for rule in rules:
        try:
            if evaluate(rule.filter.tree, message, now_ms) is not True:
                continue
            if rule.action is None:
                plain = True
            else:
                copy = rule.action.apply(message, now_ms=now_ms, identity=identity_of(rule), rule=rule.name)
                changed.append(Copy(rule.name, copy))
        except EvaluationFailed as failed:
            failures.append(Failure(rule.name, str(failed)))
    return Copies((*([Copy(None, message)] if plain else []), *changed), tuple(failures))
