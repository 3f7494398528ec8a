"""One request about topics: what is asked for, by whom, and what it is answered with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from headgate.broker import Session
from headgate.errors import ConfigError
from headgate.ledger import MAX_OFFSET, MAX_RULE, copy_number
from headgate.topic import SubscriptionName

MOST_COPIES = 1000
"""At most so many copies are shown, received or settled by one request."""

_SHOWN_COPIES = 100


@dataclass(frozen=True, slots=True)
class TopicRequest:
    """One request: the parts of its path, decoded, such as `("topics", "a/b")`."""

    method: str
    path: tuple[str, ...]
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request is answered with: a value of JSON, and whether something new was made."""

    value: object
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A request with what its path names, by the session of who asks."""

    request: TopicRequest
    session: Session
    topic: str = ""
    subscription: str = ""
    group: str = ""
    rule: str = ""
    dead_letters: bool = False

    @property
    def name(self) -> SubscriptionName:
        """The subscription, or its dead letters."""
        return SubscriptionName(self.topic, self.subscription, self.dead_letters)

    @property
    def start(self) -> int:
        """The copy to begin at, by offset and rule. Raises ConfigError."""
        return copy_number(self._number("from", 0, 0, MAX_OFFSET), self._number("rule", 0, 0, MAX_RULE))

    @property
    def limit(self) -> int:
        """At most so many copies are asked for. Raises ConfigError."""
        return self._number("limit", _SHOWN_COPIES, 1, MOST_COPIES)

    def _number(self, key: str, default: int, least: int, most: int) -> int:
        text = self.request.query.get(key)
        if text is None:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) < 20 and least <= int(text) <= most):
            raise ConfigError(f"{key}: found {text!r}, expected a number of {least} to {most}")
        return int(text)

    @property
    def encoded(self) -> bool:
        """Whether messages are asked for as bytes."""
        return self.request.query.get("encoded") == "true"

    @property
    def only(self) -> str | None:
        """Which of making and changing is asked for. Raises ConfigError."""
        only = self.request.query.get("only")
        if only not in (None, "new", "existing"):
            raise ConfigError(f"only: found {only!r}, expected new or existing")
        return only


Handler = Callable[[Asked], Awaitable[Answer]]
"""Answers a request; raises what `TopicRequests.answer` does."""
