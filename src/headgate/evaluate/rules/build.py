"""Which filters of a set are evaluated together, and how."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from headgate.evaluate.rules.engine import EnginePart
from headgate.evaluate.rules.parts import AlonePart, Member, Part, ReferencePart
from headgate.evaluate.rules.plan import plan_of
from headgate.language.tree import Field, Rules, ValueRules, walk

MOST_ALONE = 3
"""At most this many filters are evaluated one after the other."""


def parts_of(members: Sequence[Member]) -> tuple[Part, ...]:
    """Parts that have each filter once: one for each language, more where fields are too many for one program."""
    if len(members) <= MOST_ALONE:
        return (AlonePart(members),) if members else ()
    by_rules: defaultdict[Rules, list[Member]] = defaultdict(list)
    anywhere: list[Member] = []
    mixed: list[Member] = []
    for member in members:
        rules = {id(node.rules): node.rules for node in walk(member.filter.tree) if isinstance(node, Field)}
        if member.filter.has_own_rules:
            mixed.append(member)
        elif len(rules) == 1:
            by_rules[rules.popitem()[1]].append(member)
        else:
            (mixed if rules else anywhere).append(member)
    if anywhere:
        by_rules[next(iter(by_rules), ValueRules.RABBITMQ)] += anywhere
    parts = [part for rules_, of_rules in by_rules.items() for part in _parts(of_rules, rules_)]
    return (*parts, ReferencePart(mixed)) if mixed else tuple(parts)


def _parts(members: Sequence[Member], rules: Rules) -> list[Part]:
    if len(members) <= MOST_ALONE:
        return [AlonePart(members)]
    plan = plan_of(members, rules)
    if plan is not None:
        return [EnginePart(members, plan)]
    half = len(members) // 2
    return [*_parts(members[:half], rules), *_parts(members[half:], rules)]
