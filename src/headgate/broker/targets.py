"""Targets of forwarding, and the check that a user may send to them.

Every change of subscriptions, of any protocol, passes here (`Topics.change`), with a function that checks the
right. A target that the subscription has already is not checked again when another setting changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from headgate.topic import Change, ChangeSubscription, CreateSubscription, RuleHistory, SubscriptionVersion

CheckTarget: TypeAlias = Callable[[str], None]
"""Raises AccessRefusedError unless the user may send to the topic or stream of that name."""


def any_target(_name: str) -> None:
    """Allow any target: for the operator's configuration, and for changes that name none."""


def check_targets(history: RuleHistory, changes: Sequence[Change], check: CheckTarget) -> None:
    """Check every new target that changes give a subscription; names are spelled as targets were created.

    Raises the errors of `check`.
    """
    for change in changes:
        if isinstance(change, CreateSubscription | ChangeSubscription):
            is_there = history.has_subscription(change.name)
            known = _targets(history.subscription(change.name)) if is_there else frozenset()
            for target in sorted(_targets(change) - known):
                check(target)


def _targets(of: CreateSubscription | ChangeSubscription | SubscriptionVersion) -> frozenset[str]:
    return frozenset(name for name in (of.forward_to, of.settings.forward_dead_letters_to) if name is not None)
