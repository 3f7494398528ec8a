"""The limits of Service Bus for filters and actions, as configuration.

Source: servicebus_filters, section 7; the limits of topics and names are those of `headgate.topic`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from headgate.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a filter, an action and the messages that actions make may hold.

    Raises `ConfigError` for a limit below 1.
    """

    filter_characters: int = 1024
    """Code points of a filter text."""
    action_characters: int = 1024
    """Code points of an action text."""
    action_expressions: int = 32
    """Statements of an action."""
    identifier_characters: int = 128
    """Code points of a message id, a session id and a partition key."""
    property_bytes: int = 32 * 1024
    """Encoded key and value of one property that an action sets."""
    properties_bytes: int = 64 * 1024
    """All application properties together, encoded."""
    message_bytes: int = 1024 * 1024
    """The encoded message."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise ConfigError(f"limit {field.name} is {getattr(self, field.name)}; expected 1 or more")


DEFAULT_LIMITS = Limits()
"""The limits of the service."""
