"""Bodies and answers of requests about topics, and the changes that bodies describe."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from headgate.errors import ConfigError
from headgate.topic import (
    DEFAULT_RULES,
    DEFAULT_SETTINGS,
    Change,
    Rule,
    RuleDefinition,
    Subscription,
    creation_of,
)

_TOKEN = re.compile("[0-9a-fA-F]{32}")


class Outcome(StrEnum):
    """The outcome of a received copy."""

    COMPLETE = "complete"
    ABANDON = "abandon"
    DEAD_LETTER = "dead-letter"
    DEFER = "defer"
    RENEW = "renew"


class TopicBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of a topic to change; limits that are left out stay, or are the default in a new topic."""

    limits: dict[str, int] = {}


class ReceiveBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """At most `count` copies, waiting `wait_s` for the first; `encoded`: with their bytes."""

    count: int = 1
    wait_s: float = 0.0
    encoded: bool = False


class SettleBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The outcome of copies, by their tokens; the other fields belong to some outcomes."""

    outcome: Outcome
    tokens: list[str]
    reason: str | None = None
    description: str | None = None
    properties: dict[str, Any] | None = None
    delay_ms: int | None = None

    def packed(self) -> list[bytes]:
        """The tokens as bytes. Raises ConfigError for a malformed one."""
        for token in self.tokens:
            if _TOKEN.fullmatch(token) is None:
                raise ConfigError(f"tokens: found {token!r}, expected 32 hexadecimal digits")
        return [bytes.fromhex(token) for token in self.tokens]


class DryRunBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule in its written form, tried on the messages at the `last` offsets."""

    rule: dict[str, Any]
    last: int = 1000
    samples: int = 3


class NamedAnswer(msgspec.Struct, frozen=True):
    """What was made, changed or deleted."""

    name: str


class ChangeAnswer(msgspec.Struct, frozen=True):
    """The offset from which a change of rules is in force."""

    in_force_from: int


class CopiesAnswer(msgspec.Struct, frozen=True):
    """A page of copies, and the copy at which the next page begins."""

    messages: list[dict[str, Any]]
    offset: int = msgspec.field(name="from")
    rule: int
    next_offset: int
    """The next offset of the topic's stream: pages end there."""


class PurgeAnswer(msgspec.Struct, frozen=True):
    """How many copies were settled."""

    purged: int


class SettleAnswer(msgspec.Struct, frozen=True):
    """For each token whether the copy was still held; the new end of renewed locks."""

    settled: list[bool]
    locked_until_ms: int | msgspec.UnsetType = msgspec.UNSET


def named_rule(name: str, given: Mapping[str, Any]) -> RuleDefinition:
    """A rule from its written form, in which the name may be left out. Raises ConfigError."""
    if given.get("name", name) != name:
        raise ConfigError(f"the body names the rule {given['name']!r}, the path {name!r}; expected one name")
    return RuleDefinition.of({**given, "name": name})


def new_subscription(name: str, given: Mapping[str, Any]) -> list[Change]:
    """The changes that add a subscription from a JSON object; without `rules` it has the rule `$Default`.

    Raises ConfigError.
    """
    properties = dict(given)
    rules = properties.pop("rules", None)
    settings = DEFAULT_SETTINGS.changed(properties.pop("settings", {}))
    expected = {"fall_through": bool, "dead_letter_on_errors": bool, "forward_to": str | None}
    for key, value in properties.items():
        if key not in expected:
            raise ConfigError(f"a subscription has no property {key!r}; expected one of {', '.join(expected)}")
        if not isinstance(value, expected[key]):
            raise ConfigError(f"{key}: found {value!r}")
    if rules is not None and not isinstance(rules, list):
        raise ConfigError(f"rules: found {rules!r}, expected a list of rules")
    made = DEFAULT_RULES if rules is None else tuple(Rule.of(RuleDefinition.of(rule)) for rule in rules)
    return creation_of(Subscription(name, made, settings=settings, **properties))
