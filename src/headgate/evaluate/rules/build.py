"""Which filters of a set are evaluated together, and how."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from headgate.evaluate.rules.engine import EnginePart
from headgate.evaluate.rules.parts import AlonePart, Member, Part, ReferencePart
from headgate.evaluate.rules.plan import plan_of
from headgate.language.tree import Field, ValueRules, walk

MOST_ALONE = 3
"""So many filters are evaluated one after the other."""


def parts_of(members: Sequence[Member]) -> tuple[Part, ...]:
    """Parts that have each filter once: one for each language, more where fields are too many for one program."""
    if len(members) <= MOST_ALONE:
        return (AlonePart(members),) if members else ()
    by_rules: defaultdict[frozenset[ValueRules], list[Member]] = defaultdict(list)
    for member in members:
        by_rules[frozenset(node.rules for node in walk(member.filter.tree) if isinstance(node, Field))].append(member)
    # Filters without fields fit anywhere.
    anywhere = by_rules.pop(frozenset(), [])
    if anywhere:
        home = next((rules for rules in by_rules if len(rules) == 1), frozenset({ValueRules.RABBITMQ}))
        by_rules[home] += anywhere
    return tuple(part for rules, of_rules in by_rules.items() for part in _parts(of_rules, rules))


def _parts(members: Sequence[Member], rules: frozenset[ValueRules]) -> list[Part]:
    if len(members) <= MOST_ALONE:
        return [AlonePart(members)]
    if len(rules) != 1:
        return [ReferencePart(members)]
    plan = plan_of(members, *rules)
    if plan is not None:
        return [EnginePart(members, plan)]
    half = len(members) // 2
    return [*_parts(members[:half], rules), *_parts(members[half:], rules)]
