"""Addresses of Service Bus: servicebus_wire, section 4.

    ENTITY                                     a topic or a queue; its name may hold `/`
    TOPIC/Subscriptions/NAME                   a subscription
    …/$DeadLetterQueue                         the dead letters of a queue or a subscription
    …/$Transfer/$DeadLetterQueue               those that could not be forwarded; always empty here
    …/$management                              requests about any of them
    $cbs                                       tokens

Clients send them bare or as URIs, percent-encoded. The words are compared without case.
"""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import dataclass
from enum import Enum

from headgate.errors import ConfigError

CBS = "$cbs"
"""The node that takes tokens."""

_MANAGEMENT = "$management"
_DEAD_LETTERS = "$deadletterqueue"
_TRANSFER = "$transfer"
_SUBSCRIPTIONS = "subscriptions"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*")


class Part(Enum):
    """Which of the queues of an entity is meant."""

    MESSAGES = ""
    DEAD_LETTERS = "/$DeadLetterQueue"
    TRANSFER_DEAD_LETTERS = "/$Transfer/$DeadLetterQueue"


@dataclass(frozen=True, slots=True)
class Address:
    """An address, read; `subscription` is None for a topic or a queue."""

    entity: str
    subscription: str | None = None
    part: Part = Part.MESSAGES
    is_management: bool = False

    @property
    def path(self) -> str:
        """The entity with its subscription, as Service Bus writes it."""
        return self.entity if self.subscription is None else f"{self.entity}/Subscriptions/{self.subscription}"

    def __str__(self) -> str:
        return f"{self.path}{self.part.value}"


def parse_address(address: str) -> Address:
    """Read an address. Raises ConfigError if it names no entity."""
    segments = relative(address).split("/")
    is_management = segments[-1].lower() == _MANAGEMENT
    if is_management:
        segments.pop()
    part = Part.MESSAGES
    if segments and segments[-1].lower() == _DEAD_LETTERS:
        segments.pop()
        part = Part.DEAD_LETTERS
        if segments and segments[-1].lower() == _TRANSFER:
            segments.pop()
            part = Part.TRANSFER_DEAD_LETTERS
    subscription = None
    if len(segments) > 2 and segments[-2].lower() == _SUBSCRIPTIONS:
        subscription = segments[-1]
        del segments[-2:]
    if not all(segments) or not segments or any(segment.startswith("$") for segment in (*segments, subscription or "")):
        raise ConfigError(f"bad address {address!r}; expected an entity, or <topic>/Subscriptions/<subscription>")
    return Address("/".join(segments), subscription, part, is_management)


def is_cbs(address: str) -> bool:
    """Whether an address is that of the node for tokens."""
    return relative(address).lower() == CBS


def relative(address: str) -> str:
    """An address without scheme and authority, decoded."""
    found = _SCHEME.match(address)
    path = address if found is None else address[found.end() :]
    return urllib.parse.unquote(path, errors="surrogateescape").strip("/")


def covers(scope: str, path: str) -> bool:
    """Whether rights for `scope` count for `path`, both relative: if it is the same path, or above it; without case.

    Rights for the requests about an entity (`$management`) count for the entity.
    """
    granted = [segment for segment in scope.casefold().split("/") if segment and segment != _MANAGEMENT]
    return path.casefold().split("/")[: len(granted)] == granted
