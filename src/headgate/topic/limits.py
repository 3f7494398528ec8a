"""The limits of topics, subscriptions and rules: configuration, with the defaults of servicebus_filters, section 7."""

from __future__ import annotations

import msgspec

from headgate.errors import ConfigError


class TopicLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much a topic may hold; `docs/reference/rules.md` shows the table.

    Counted are SQL filters and correlation filters of all subscriptions together; the true filter and the false filter
    count as neither, tag expressions and property maps count as correlation filters. Lengths are in characters.
    """

    subscriptions: int = 2_000
    sql_filters: int = 2_000
    correlation_filters: int = 100_000
    topic_name_characters: int = 260
    subscription_name_characters: int = 50
    rule_name_characters: int = 50

    def check(self) -> None:
        """Raise ConfigError that names the first limit below its least sensible value."""
        for name in self.__struct_fields__:
            least = 1 if name.endswith("_characters") else 0
            if getattr(self, name) < least:
                raise ConfigError(f"limit {name} is {getattr(self, name)}; expected {least} or more")


DEFAULT_LIMITS = TopicLimits()
"""The limits of a topic that is created without its own."""

LIMIT_MEANINGS: dict[str, str] = {
    "subscriptions": "subscriptions of a topic",
    "sql_filters": "SQL filters of a topic, all subscriptions together",
    "correlation_filters": "correlation filters, tag expressions and property maps, all subscriptions together",
    "topic_name_characters": "characters of a topic's name",
    "subscription_name_characters": "characters of a subscription's name",
    "rule_name_characters": "characters of a rule's name",
}
"""What each limit counts, for the reference page."""
