"""What links to entities share: the place that they lead to, and whether it may be used as long as they are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.broker import Entity, Right
from headgate.errors import HeadgateError
from headgate.protocols.amqp10 import Condition, Error, Link
from headgate.protocols.servicebus import Address, Part, Refusal, disabled, refusal_of
from headgate.server.amqp10 import ServedLink
from headgate.topic import SubscriptionName, SubscriptionStatus, TopicKind

if TYPE_CHECKING:
    from headgate.server.amqp10 import Amqp10Handler
    from headgate.server.servicebus.service import ServiceBusService


class RefusedError(HeadgateError):
    """Something that is refused with a condition of Service Bus's own."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class Place:
    """An entity, one of its subscriptions where that is meant, and which of the queues there."""

    entity: Entity
    subscription: str | None
    part: Part

    @property
    def path(self) -> str:
        """Its name, spelled as it was created: what rights are asked for."""
        name = self.entity.name
        return name if self.subscription is None else f"{name}/Subscriptions/{self.subscription}"

    def __str__(self) -> str:
        return f"{self.path}{self.part.value}"

    @property
    def is_dead_letter(self) -> bool:
        """Whether it is the dead letters of an entity."""
        return self.part is Part.DEAD_LETTERS

    @property
    def receivable(self) -> SubscriptionName:
        """What a receiver of the broker takes. Raises RefusedError for a topic, which gives nothing itself."""
        if self.subscription is None and self.entity.kind is TopicKind.TOPIC:
            text = f"{self.path} is a topic: messages are received from its subscriptions"
            raise RefusedError(Refusal(Condition.NOT_ALLOWED, 400, text))
        return self.entity.receivable(self.subscription, dead_letters=self.is_dead_letter)

    @property
    def takes_messages(self) -> bool:
        """Whether its status lets clients send to it."""
        return self.entity.settings.status.takes_messages

    @property
    def gives_messages(self) -> bool:
        """Whether its status, and that of its subscription, let clients receive from it."""
        found = self.entity.queue if self.subscription is None else self.entity.subscription(self.subscription)
        return self.entity.settings.status.gives_copies and found.settings.status is SubscriptionStatus.ACTIVE


def place_of(entity: Entity, address: Address) -> Place:
    """The place that an address means. Raises ResourceNotFoundError for a subscription that is not there."""
    name = None if address.subscription is None else entity.subscription(address.subscription).name
    return Place(entity, name, address.part)


class EntityLink(ServedLink):
    """A link to an entity; it ends when the connection has no right on it any more, or its status says so."""

    def __init__(
        self, handler: Amqp10Handler, link: Link, service: ServiceBusService, place: Place, right: Right
    ) -> None:
        """Raises AccessRefusedError and RefusedError."""
        super().__init__(handler, link)
        self._service = service
        self._place = place
        self._right = right
        service.access.check(right, place.path)
        if not self._is_enabled:
            raise RefusedError(disabled(str(place)))

    @property
    def _is_enabled(self) -> bool:
        return self._place.takes_messages if self._right is Right.SEND else self._place.gives_messages

    def tick(self, now_ms: int) -> None:
        """End where the rights are over, or the entity was disabled."""
        try:
            self._service.access.check(self._right, self._place.path)
            refusal = None if self._is_enabled else disabled(str(self._place))
        except HeadgateError as error:
            refusal = refusal_of(error, str(self._place))
        if refusal is not None and self.may_speak:
            self._detach(refusal)

    def _detach(self, refusal: Refusal) -> None:
        self._handler.detach(self._link, error_of(refusal))


class EmptyLink(ServedLink):
    """A link to messages that are never there."""

    def credit_changed(self) -> None:
        """A drain is over at once."""
        if self._link.drain and self._link.is_attached:
            self._link.use_up_credit()


def error_of(refusal: Refusal) -> Error:
    """A refusal as AMQP tells it."""
    return Error(refusal.condition, refusal.text)
