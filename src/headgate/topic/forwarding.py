"""Subscriptions that forward their copies or dead letters to another topic: the order of topics; loops are refused.

A forwarded copy is a new message of the target topic: it gets an offset and a time there, its system properties are
read again, and the rules of that topic see the copy as it arrived. `RuleName` stays, as any user property does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headgate.errors import RuleError, TargetNotFoundError
from headgate.topic.model import Topic


def forward_order(topics: Iterable[Topic]) -> list[Topic]:
    """The topics, each before its forwarding targets, otherwise in the given order.

    Raises RuleError that names the path of a loop, TargetNotFoundError for a target that is not among them.
    """
    by_name = {topic.name: topic for topic in topics}
    for topic in by_name.values():
        for subscription in topic.subscriptions:
            if subscription.forward_to is not None and subscription.forward_to not in by_name:
                raise target_not_found(topic.name, subscription.name, subscription.forward_to)
    return _ordered(by_name)


def forward_targets(topic: Topic) -> list[str]:
    """The topics that a topic forwards to, each once."""
    return list(dict.fromkeys(target for _, target in _forwards(topic)))


def check_no_loop(start: Topic, find: Callable[[str], Topic | None]) -> None:
    """Raise RuleError, which names the path, if forwarding from `start` can lead back to a topic on the path.

    `find` gives the topic of a name, None where there is none. Each topic that can be reached is examined once.
    """
    reached = {start.name: start}
    waiting = [start]
    while waiting:
        for target in forward_targets(waiting.pop()):
            found = None if target in reached else find(target)
            if found is not None:
                reached[target] = found
                waiting.append(found)
    _ordered(reached)


def _ordered(by_name: dict[str, Topic]) -> list[Topic]:
    """Depth first, without recursion: a topic is put down when all that it forwards to are."""
    behind: list[Topic] = []
    done: set[str] = set()
    for start in reversed(by_name):
        # The way from `start`: topics, and the subscription by which each was left last.
        way: dict[str, str] = {}
        stack = [] if start in done else [(start, iter(_forwards(by_name[start])))]
        while stack:
            name, forwards = stack[-1]
            step = next(((by, target) for by, target in forwards if target in by_name and target not in done), None)
            if step is None:
                stack.pop()
                way.pop(name, None)
                done.add(name)
                behind.append(by_name[name])
                continue
            way[name], target = step
            if target in way:
                raise _loop(target, way)
            stack.append((target, iter(_forwards(by_name[target]))))
    return behind[::-1]


def _forwards(topic: Topic) -> list[tuple[str, str]]:
    """Subscription and target of everything that a topic forwards."""
    return [
        (each.name, target)
        for each in topic.subscriptions
        for target in (each.forward_to, each.settings.forward_dead_letters_to)
        if target is not None
    ]


def _loop(name: str, way: dict[str, str]) -> RuleError:
    names = list(way)
    steps = [f"{topic}/{way[topic]}" for topic in names[names.index(name) :]]
    path = " → ".join([*steps, name])
    return RuleError(f"forwarding in a loop: {path}", topic=name, subscription=way[name])


def target_not_found(topic: str, subscription: str, target: str, *, kind: str = "topic") -> TargetNotFoundError:
    """The error for a subscription that forwards to a missing topic or stream (`kind`)."""
    return TargetNotFoundError(
        f"forwards to {target!r}, and there is no such {kind}", topic=topic, subscription=subscription, target=target
    )
