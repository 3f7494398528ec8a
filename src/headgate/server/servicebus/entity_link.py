"""Base of links to entities: the node of a link, and the check of its right for as long as it is attached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from headgate.broker import Entity, Right
from headgate.errors import HeadgateError, PreconditionFailedError
from headgate.message import AmqpType, AmqpValue, to_json
from headgate.protocols.amqp10 import NO_INFO, Condition, Error, Link
from headgate.protocols.servicebus import Address, Part, Refusal, refusal_of
from headgate.server.amqp10 import ServedLink
from headgate.topic import SubscriptionName, TopicKind

if TYPE_CHECKING:
    from headgate.server.amqp10 import Amqp10Handler
    from headgate.server.servicebus.access import ConnectionAccess


class RefusedError(HeadgateError):
    """A refusal with a condition of Service Bus's own."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


_NOT_SIMPLE = (AmqpType.MAP, AmqpType.LIST, AmqpType.ARRAY)


@dataclass(frozen=True, slots=True)
class EntityNode:
    """An entity or one of its subscriptions, and a part of it: messages or dead letters."""

    entity: Entity
    subscription: str | None
    part: Part

    @property
    def path(self) -> str:
        """The name for checks of rights, spelled as it was created."""
        name = self.entity.name
        return name if self.subscription is None else f"{name}/Subscriptions/{self.subscription}"

    def __str__(self) -> str:
        return f"{self.path}{self.part.value}"

    @property
    def is_dead_letter(self) -> bool:
        """Whether the node is the dead letters of an entity."""
        return self.part is Part.DEAD_LETTERS

    @property
    def time_to_live_ms(self) -> int | None:
        """The lifetime of messages there, unless a message says less itself."""
        entity = self.entity
        found = entity.queue if self.subscription is None else entity.subscription(self.subscription)
        return found.time_to_live_ms

    def kept(self, properties: Mapping[str, AmqpValue]) -> dict[str, object]:
        """Properties for a message there, as the broker keeps them.

        Raises PreconditionFailedError for properties that no message may have.
        """
        for name, value in properties.items():
            if value.type in _NOT_SIMPLE:
                raise PreconditionFailedError(f"the property {name!r} is a {value.type.value}", subject=str(self))
        found: dict[str, object] = {name: to_json(value) for name, value in properties.items()}
        most = self.entity.limits.content.properties_bytes
        if (size := len(msgspec.json.encode(found))) > most:
            raise PreconditionFailedError(f"properties of {size} bytes; at most {most} are allowed", subject=str(self))
        return found

    @property
    def receivable(self) -> SubscriptionName:
        """The name for a receiver of the broker. Raises RefusedError for a topic, which gives no messages itself."""
        if self.subscription is None and self.entity.kind is TopicKind.TOPIC:
            text = f"{self.path} is a topic: messages are received from its subscriptions"
            raise RefusedError(Refusal(Condition.NOT_ALLOWED, 400, text))
        return self.entity.receivable(self.subscription, dead_letters=self.is_dead_letter)


def node_of(entity: Entity, address: Address) -> EntityNode:
    """The node of an address. Raises ResourceNotFoundError for a subscription that does not exist."""
    name = None if address.subscription is None else entity.subscription(address.subscription).name
    return EntityNode(entity, name, address.part)


class EntityLink(ServedLink):
    """A link to an entity; it ends when the connection loses its right on the entity."""

    def __init__(
        self, handler: Amqp10Handler, link: Link, access: ConnectionAccess, node: EntityNode, right: Right
    ) -> None:
        """Raises AccessRefusedError."""
        super().__init__(handler, link)
        self._access = access
        self._node = node
        self._right = right
        access.check(right, node.path)

    def tick(self, now_ms: int) -> None:
        """End the link if the right is lost."""
        try:
            self._check()
        except HeadgateError as error:
            self._end(error_of(refusal_of(error, str(self._node))))

    def _end(self, error: Error) -> None:
        """End the link because of an error."""
        self._handler.detach(self._link, error)

    def _check(self) -> None:
        """Raise HeadgateError if the link may not go on."""
        self._access.check(self._right, self._node.path)


class EmptyLink(ServedLink):
    """A link to a part that never has messages."""

    def credit_changed(self) -> None:
        """A drain is over at once."""
        if self._link.drain and self._link.is_attached:
            self._link.use_up_credit()


def error_of(refusal: Refusal) -> Error:
    """A refusal as an AMQP error."""
    return Error(refusal.condition, refusal.text, NO_INFO)
