"""Paths of requests to administration: servicebus_wire, section 8.

    $Resources/topics, $Resources/queues           all topics, all queues
    $namespaceinfo                                 what they are in
    ENTITY                                         a topic or a queue; its name may hold `/`
    TOPIC/subscriptions                            the subscriptions of a topic
    TOPIC/subscriptions/NAME
    TOPIC/subscriptions/NAME/rules                 the rules of a subscription
    TOPIC/subscriptions/NAME/rules/NAME
    ENTITY/$DeadLetterQueue, …/$Transfer/…         the dead letters of a queue, or of a subscription

The words are compared without case; a slash at the end means nothing; names are percent-encoded, slashes or not.
"""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass
from enum import Enum, auto

from headgate.errors import ConfigError
from headgate.protocols.servicebus.addresses import Part, parse_address

_SUBSCRIPTIONS, _RULES = "subscriptions", "rules"
_DEAD_LETTERS = "/$deadletterqueue"
_KEPT_CHARACTERS = "/$~!*'()@:;,=&+"


class ResourceKind(Enum):
    """The kinds of resources."""

    NAMESPACE = auto()
    TOPICS = auto()
    QUEUES = auto()
    ENTITY = auto()
    SUBSCRIPTIONS = auto()
    SUBSCRIPTION = auto()
    RULES = auto()
    RULE = auto()
    DEAD_LETTERS = auto()


@dataclass(frozen=True, slots=True)
class Resource:
    """A path, read: the kind of resource, and the names in it."""

    kind: ResourceKind
    entity: str = ""
    subscription: str = ""
    rule: str = ""
    part: Part = Part.MESSAGES

    @property
    def path(self) -> str:
        """The path as Service Bus spells it, without a slash in front: for rights, and for texts."""
        match self.kind:
            case ResourceKind.NAMESPACE:
                return "$namespaceinfo"
            case ResourceKind.TOPICS:
                return "$Resources/topics"
            case ResourceKind.QUEUES:
                return "$Resources/queues"
            case ResourceKind.SUBSCRIPTIONS:
                return f"{self.entity}/Subscriptions"
            case ResourceKind.SUBSCRIPTION:
                return f"{self.entity}/Subscriptions/{self.subscription}"
            case ResourceKind.RULES:
                return f"{self.entity}/Subscriptions/{self.subscription}/Rules"
            case ResourceKind.RULE:
                return f"{self.entity}/Subscriptions/{self.subscription}/Rules/{self.rule}"
            case ResourceKind.DEAD_LETTERS:
                return f"{self.owner.path}{self.part.value}"
            case _:
                return self.entity

    @property
    def owner(self) -> Resource:
        """The queue or the subscription that dead letters belong to."""
        kind = ResourceKind.SUBSCRIPTION if self.subscription else ResourceKind.ENTITY
        return Resource(kind, self.entity, self.subscription)

    @property
    def encoded_path(self) -> str:
        """The path for a URL: clients take names from its end, most without decoding them."""
        return urllib.parse.quote(self.path, safe=_KEPT_CHARACTERS)


_PLACES = {
    "$resources/topics": ResourceKind.TOPICS,
    "$resources/queues": ResourceKind.QUEUES,
    "$namespaceinfo": ResourceKind.NAMESPACE,
}


def parse_resource(path: str) -> Resource:
    """Read a path as it is sent. Raises ConfigError if it names nothing."""
    try:
        decoded = urllib.parse.unquote(path, errors="strict").strip("/")
    except UnicodeDecodeError:
        raise ConfigError(f"bad path {path!r}; expected UTF-8 in what is percent-encoded") from None
    place = _PLACES.get(decoded.lower())
    if place is not None:
        return Resource(place)
    if decoded.lower().endswith(_DEAD_LETTERS):
        address = parse_address(path)
        return Resource(ResourceKind.DEAD_LETTERS, address.entity, address.subscription or "", part=address.part)
    segments = decoded.split("/")
    if not all(segments) or any(segment.startswith("$") for segment in segments[:-1]):
        raise ConfigError(f"bad path {decoded!r}; expected that of an entity, a subscription or a rule")
    words = [segment.lower() for segment in segments]
    if len(words) > 4 and words[-4] == _SUBSCRIPTIONS and words[-2] == _RULES:
        return Resource(ResourceKind.RULE, "/".join(segments[:-4]), segments[-3], segments[-1])
    if len(words) > 3 and words[-3] == _SUBSCRIPTIONS and words[-1] == _RULES:
        return Resource(ResourceKind.RULES, "/".join(segments[:-3]), segments[-2])
    if len(words) > 2 and words[-2] == _SUBSCRIPTIONS:
        return Resource(ResourceKind.SUBSCRIPTION, "/".join(segments[:-2]), segments[-1])
    if len(words) > 1 and words[-1] == _SUBSCRIPTIONS:
        return Resource(ResourceKind.SUBSCRIPTIONS, "/".join(segments[:-1]))
    return Resource(ResourceKind.ENTITY, decoded)
