"""One request about topics, the session of its user, and its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headgate.broker import Session
from headgate.errors import ConfigError
from headgate.ledger import MAX_OFFSET, MAX_RULE, copy_number
from headgate.topic import SubscriptionName

MOST_COPIES = 1000
"""Limit: copies that one request shows, receives or settles."""

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
    """The answer to a request: a JSON value, and whether something new was created."""

    value: object
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A request with the names in its path, and the session of its user."""

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
        """Limit: copies in the answer. Raises ConfigError."""
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
        """Whether the request asks for messages as bytes."""
        return self.request.query.get("encoded") == "true"

    @property
    def only(self) -> str | None:
        """Whether a PUT may only create (`new`) or only change (`existing`); None: both. Raises ConfigError."""
        only = self.request.query.get("only")
        if only not in (None, "new", "existing"):
            raise ConfigError(f"only: found {only!r}, expected new or existing")
        return only


Handler = Callable[[Asked], Awaitable[Answer]]
"""Answers a request; errors as of `TopicRequests.answer`."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path below `/api`, and its handlers by method: `topics/{topic}/history`.

    A name in braces stands for one part of the path, and is the field of `Asked` with that part.
    """

    path: str
    handlers: Mapping[str, Handler]
    dead_letters: bool = False

    def names(self, path: Sequence[str]) -> dict[str, str] | None:
        """The named parts of a path; None for a path of another route."""
        parts = self.path.split("/")
        if len(parts) != len(path):
            return None
        names = {}
        for part, found in zip(parts, path, strict=True):
            if part.startswith("{"):
                names[part[1:-1]] = found
            elif part != found:
                return None
        return names
