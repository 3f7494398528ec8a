"""The limits of topics, subscriptions and rules: configuration, with the defaults of servicebus_filters, section 7."""

from __future__ import annotations

import functools

import msgspec

from headgate.errors import ConfigError
from headgate.language.servicebus import DEFAULT_LIMITS as DEFAULT_CONTENT_LIMITS
from headgate.language.servicebus import Limits


class TopicLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Limits of a topic, of its rules and of the copies that actions make; `docs/reference/rules.md` has the table.

    SQL filters and correlation filters are counted over all subscriptions; the true filter and the false filter
    count as neither, tag expressions and property maps count as correlation filters. Lengths of texts and names are in
    characters. A text is measured when its rule is made, in every language.
    """

    subscriptions: int = 2_000
    sql_filters: int = 2_000
    correlation_filters: int = 100_000
    topic_name_characters: int = 260
    subscription_name_characters: int = 50
    rule_name_characters: int = 50
    filter_characters: int = DEFAULT_CONTENT_LIMITS.filter_characters
    action_characters: int = DEFAULT_CONTENT_LIMITS.action_characters
    action_expressions: int = DEFAULT_CONTENT_LIMITS.action_expressions
    identifier_characters: int = DEFAULT_CONTENT_LIMITS.identifier_characters
    property_bytes: int = DEFAULT_CONTENT_LIMITS.property_bytes
    properties_bytes: int = DEFAULT_CONTENT_LIMITS.properties_bytes
    message_bytes: int = DEFAULT_CONTENT_LIMITS.message_bytes
    unsettled_bytes: int = 1 << 30

    def check(self) -> None:
        """Check all limits. Raises ConfigError that names the first limit below its smallest allowed value."""
        for name in self.__struct_fields__:
            least = 0 if name in COUNTED else 1
            if getattr(self, name) < least:
                raise ConfigError(f"limit {name} is {getattr(self, name)}; expected {least} or more")

    @property
    def content(self) -> Limits:
        """The limits of filters, actions and the messages that actions make."""
        return _content(self)


@functools.lru_cache(maxsize=64)
def _content(limits: TopicLimits) -> Limits:
    return Limits(**{name: getattr(limits, name) for name in _CONTENT})


_CONTENT = tuple(Limits.__dataclass_fields__)

COUNTED = ("subscriptions", "sql_filters", "correlation_filters")
"""The limits that may be 0."""

DEFAULT_LIMITS = TopicLimits()
"""The limits of a topic that is created without its own."""

LIMIT_MEANINGS: dict[str, str] = {
    "subscriptions": "subscriptions of a topic",
    "sql_filters": "SQL filters of a topic, all subscriptions together",
    "correlation_filters": "correlation filters, tag expressions and property maps, all subscriptions together",
    "topic_name_characters": "characters of a topic's name",
    "subscription_name_characters": "characters of a subscription's name",
    "rule_name_characters": "characters of a rule's name",
    "filter_characters": "characters of a filter text, in any language",
    "action_characters": "characters of an action text",
    "action_expressions": "statements of an action",
    "identifier_characters": "characters of a message id, session id or partition key that an action sets",
    "property_bytes": "bytes of one property that an action sets, key and value",
    "properties_bytes": "bytes of all application properties of a copy that an action made",
    "message_bytes": "bytes of a copy that an action made",
    "unsettled_bytes": "bytes from the first unsettled message of any subscription to the end; more are refused",
}
"""The meaning of each limit, for the reference page."""
