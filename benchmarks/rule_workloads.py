"""Rules and events that several rule engines can take, for `rule_engines.py`.

A condition is one fact about one field; a rule is all of its conditions. The same rule is written as a filter of
dialect `amqp` and as a pattern in the JSON form of Amazon EventBridge, which Event Ruler and Quamina read; the same
event as a message with application properties, as a flat JSON object, and as a message with that as its body.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from headgate.evaluate import Filter
from headgate.message import Message

Kind: TypeAlias = Literal["equals", "in", "not in", "prefix", "suffix", "contains", "range", "exists"]
Value: TypeAlias = str | int | float
Event: TypeAlias = dict[str, Value]


@dataclass(slots=True, frozen=True)
class Condition:
    """A field and what must hold of it: texts, a range (from, below; None: open), or whether it exists."""

    field: str
    kind: Kind
    values: tuple[Value | None, ...]


Rule: TypeAlias = tuple[Condition, ...]


@dataclass(slots=True, frozen=True)
class Workload:
    """`rule(number, count)` is the rule of that number among `count`; events are drawn to fit them."""

    name: str
    rule: Callable[[int, int], Rule]
    event: Callable[[random.Random, int], Event]


def _equals(field: str, value: Value) -> Condition:
    return Condition(field, "equals", (value,))


ENVIRONMENTS = ("prod", "stage", "dev", "test")
REGIONS = tuple(f"region-{number}" for number in range(20))
TYPES = ("app", "database", "cache", "queue")
METHODS = ("GET", "POST", "PUT", "DELETE")
PRICES_BELOW = 10_000


def _shared_rule(number: int, count: int) -> Rule:
    """The rule of hypermatch's comparison with Quamina and Event Ruler: ten rules share a number."""
    return (
        _equals("env", "prod"),
        _equals("number", str(number % (count // 10))),
        Condition("tag", "in", ("tag1", "tag2")),
        Condition("region", "not in", ("moon",)),
        Condition("type", "in", ("app", "database")),
    )


def _shared_event(chance: random.Random, count: int) -> Event:
    return {
        "name": f"app-myapp-{chance.randrange(10**6)}",
        "env": "prod",
        "number": str(chance.randrange(count // 10)),
        "tag": "tag1",
        "region": "earth",
        "type": "app",
    }


def _shared_rule_with_pattern(number: int, count: int) -> Rule:
    return (Condition("name", "contains", ("-myapp-",)), *_shared_rule(number, count))


def _mixed_rule(number: int, count: int) -> Rule:
    """One of eight forms, each an eighth of the rules."""
    form, place = number % 8, number // 8
    each = count // 8
    # Four rules of a form name the same service.
    service = _equals("service", f"service-{place % (each // 4)}")
    env = _equals("env", ENVIRONMENTS[place % 4])
    match form:
        case 0:
            return (service, env, _equals("method", METHODS[place // 4 % 4]))
        case 1:
            excluded = Condition("region", "not in", (REGIONS[place % 20], REGIONS[place * 7 % 20]))
            return (service, excluded, Condition("type", "in", ("app", "database")))
        case 2:
            return (_prefix(place), Condition("method", "in", ("GET", "POST")))
        case 3:
            return (_suffix(place), Condition("env", "not in", ("test",)))
        case 4:
            return (_contained(place), env)
        case 5:
            return (service, Condition("latency", "range", (place % 100 * 10, None)))
        case 6:
            low = place * PRICES_BELOW / each
            return (Condition("price", "range", (round(low, 2), round(low + 2, 2))), Condition("type", "in", TYPES[:3]))
        case _:
            return (service, Condition("owner", "exists", (place % 2,)), env)


def _prefix(place: int) -> Condition:
    return Condition("url", "prefix", (f"/api/v1/r{place}/",))


def _suffix(place: int) -> Condition:
    return Condition("file", "suffix", (f"-host{place}.log",))


def _contained(place: int) -> Condition:
    return Condition("name", "contains", (f"-app{place}-",))


def _pattern_rule(number: int, count: int) -> Rule:
    """A pattern of its own in every rule."""
    place = number // 3
    match number % 3:
        case 0:
            return (_prefix(place), Condition("method", "in", ("GET", "POST")))
        case 1:
            return (_suffix(place), Condition("env", "not in", ("test",)))
        case _:
            return (_contained(place), _equals("env", ENVIRONMENTS[place % 4]))


def _event(chance: random.Random, each: int) -> Event:
    found: Event = {
        "service": f"service-{chance.randrange(each // 4)}",
        "env": chance.choice(ENVIRONMENTS),
        "region": chance.choice(REGIONS),
        "type": chance.choice(TYPES),
        "method": chance.choice(METHODS),
        "url": f"/api/v1/r{chance.randrange(each)}/items/{chance.randrange(1000)}",
        "file": f"/var/log/{chance.randrange(1000)}-host{chance.randrange(each)}.log",
        "name": f"eu-app{chance.randrange(each)}-{chance.randrange(1000)}",
        "latency": chance.randrange(1000),
        "price": chance.randrange(100 * PRICES_BELOW) / 100,
    }
    if chance.random() < 0.5:
        found["owner"] = "platform"
    return found


WORKLOADS = (
    Workload("shared conditions", _shared_rule, _shared_event),
    Workload("shared conditions and a pattern", _shared_rule_with_pattern, _shared_event),
    Workload("mixed", _mixed_rule, lambda chance, count: _event(chance, count // 8)),
    Workload("a different pattern each", _pattern_rule, lambda chance, count: _event(chance, count // 3)),
)


def rules_of(workload: Workload, count: int) -> list[Rule]:
    """The rules 0 … `count` - 1."""
    return [workload.rule(number, count) for number in range(count)]


def events_of(workload: Workload, count: int, rules: int, *, seed: int = 5) -> list[Event]:
    """`count` events for `rules` rules."""
    chance = random.Random(seed)
    return [workload.event(chance, rules) for _ in range(count)]


# -- as Headgate takes them --------------------------------------------------------------------------------------------


def filter_of(rule: Rule, *, within: str = "") -> Filter:
    """The rule in dialect `amqp`; `within` stands before the name of each field."""
    return Filter.parse(" AND ".join(_sql(condition, within) for condition in rule), "amqp")


def _sql(condition: Condition, within: str) -> str:
    field = within + condition.field
    listed = ", ".join(_sql_value(value) for value in condition.values if value is not None)
    match condition.kind:
        case "equals":
            return f"{field} = {listed}"
        case "in" | "not in":
            return f"{field} {condition.kind.upper()} ({listed})"
        case "prefix":
            return f"{field} LIKE '{condition.values[0]}%'"
        case "suffix":
            return f"{field} LIKE '%{condition.values[0]}'"
        case "contains":
            return f"{field} LIKE '%{condition.values[0]}%'"
        case "exists":
            return f"{field} IS {'NOT ' if condition.values[0] else ''}NULL"
    return " AND ".join(f"{field} {operator} {value}" for operator, value in _bounds(condition))


def _sql_value(value: Value) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


def _bounds(condition: Condition) -> Iterator[tuple[str, Value]]:
    for operator, value in zip((">=", "<"), condition.values, strict=True):
        if value is not None:
            yield operator, value


def message_of(event: Event, *, in_body: bool = False) -> bytes:
    """The event as an encoded message with application properties, or with a JSON body for filters within `body.`."""
    if in_body:
        return Message(document_of(event).encode()).encode()
    return Message(b"{}", application_properties=dict(event)).encode()


# -- as the others take them -------------------------------------------------------------------------------------------


def pattern_of(rule: Rule) -> str:
    """The rule as an event pattern of Amazon EventBridge."""
    return json.dumps({condition.field: _pattern(condition) for condition in rule}, separators=(",", ":"))


def _pattern(condition: Condition) -> list[object]:
    values = list(condition.values)
    match condition.kind:
        case "equals" | "in":
            return list(values)
        case "not in":
            return [{"anything-but": values}]
        case "contains":
            return [{"wildcard": f"*{values[0]}*"}]
        case "range":
            return [{"numeric": [part for bound in _bounds(condition) for part in bound]}]
        case "exists":
            return [{"exists": bool(values[0])}]
        case _:
            return [{condition.kind: values[0]}]


SHORTEST_DOCUMENT = 200


def document_of(event: Event) -> str:
    """The event as a flat JSON object of 200 to 400 bytes; what is missing is a text that no rule asks for."""
    missing = SHORTEST_DOCUMENT - len(json.dumps({**event, "note": ""}, separators=(",", ":")))
    return json.dumps({**event, "note": "-" * missing} if missing > 0 else event, separators=(",", ":"))
