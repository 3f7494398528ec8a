"""Links on which clients read a subscription of a topic, or its dead letters, and settle each copy.

Outcomes and ends of links and connections have the effect that they have on a quorum queue of RabbitMQ 4.3:

    accepted                                done with
    rejected                                a dead letter; condition and description of its error say why
    modified, undeliverable-here            a dead letter
    modified, delivery-failed               given out again, the attempt counts
    released, modified; link detached       given out again, the attempt does not count
    session or connection ended             given out again, the attempt counts

Source: amqp10_rabbit, sections 2 and 5; outcomes, header and annotations were read off RabbitMQ 4.3.6.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.broker import DeadLetterReason, Delivery, GivenCopies, ReadCopy, ReceiverCalls
from headgate.errors import HeadgateError, ResourceNotFoundError
from headgate.message import AmqpType, AmqpValue, EncodedMessages
from headgate.protocols.amqp10 import (
    Accepted,
    Condition,
    DeliveryState,
    Error,
    Link,
    Modified,
    Received,
    Rejected,
    Released,
    annotated_message,
    condition_of,
)
from headgate.protocols.amqp10.events import Outcomes
from headgate.protocols.amqp10.performatives import SETTLED, Attach
from headgate.server.amqp10.consumer_link import OUTCOMES
from headgate.server.amqp10.copy_link import ReceiverLink
from headgate.server.unsettled_copies import Settlement, UnsettledCopies
from headgate.topic import SubscriptionName

if TYPE_CHECKING:
    from headgate.server.amqp10.handler import Amqp10Handler

DELIVERY_COUNT = "x-delivery-count"
"""The annotation, or the header, with the number of failed attempts; absent on the first attempt."""

logger = logging.getLogger("headgate.server.amqp10")


class SubscribingLink(ReceiverLink):
    """One link of a receiver: its credit is the demand, delivery tags are tokens."""

    def __init__(self, handler: Amqp10Handler, link: Link, attach: Attach, name: SubscriptionName) -> None:
        """Raises BrokerError and LogError, also if the user may not receive from the subscription."""
        super().__init__(handler, link)
        self._name = name
        self._receiver = handler.broker.receiver(
            name,
            ReceiverCalls(
                deliver=self._deliver,
                ended=self._ended,
                ran_out=self._ran_out,
                settles_first=attach.snd_settle_mode == SETTLED,
                tag=link.name,
            ),
        )
        self._unsettled = UnsettledCopies(
            self._receiver.settler, self._failed, handler.call_soon, is_dead_letter=name.is_dead_letter
        )

    def close(self) -> None:
        """The link has ended: unsettled copies go back."""
        super().close()
        was_detached = not self._link.is_attached and self._link.session.is_mapped
        self._unsettled.give_back(Settlement.RELEASE if was_detached else Settlement.FAIL)
        self._receiver.close()

    def tick(self, now_ms: int) -> None:
        """Renew the claims on copies that the client has not settled yet."""
        self._unsettled.tick(now_ms)

    def _encoded(self, given: GivenCopies) -> EncodedMessages:
        return EncodedMessages.of(map(_message, given))

    def _send(self, given: GivenCopies, messages: EncodedMessages) -> None:
        if given.tokens is None:
            for message in messages.all_bytes():
                self._link.send(message)
        else:
            ids = self._link.send_tagged(messages, given.tags, settled=False)
            self._unsettled.add(ids, given)

    def _ended(self, error: HeadgateError) -> None:
        self._unsettled.forget()
        condition = Condition.RESOURCE_DELETED if isinstance(error, ResourceNotFoundError) else condition_of(error)
        self._handler.detach(self._link, Error(condition, str(error)))

    # settling

    def decided(self, outcomes: Outcomes) -> None:
        """The peer sent the outcome of copies; it gets an answer, if it waits for one, when that is on disk."""
        state = outcomes.state
        if isinstance(state, Received) or (state is None and not outcomes.settled):
            return
        settlement, why = _settlement_of(state)

        def answered() -> None:
            if not outcomes.settled and self.may_speak:
                self._link.settle(outcomes.ids, state)
                self._handler.flush()

        self._unsettled.settle(outcomes.ids, settlement, why=why, then=answered)

    def _failed(self, error: HeadgateError) -> None:
        """A settlement failed to reach the disk: the copies come back, and the link ends with the error."""
        logger.warning("link %r to %s: %s", self._link.name, self._name, error)
        if self.may_speak:
            self._handler.detach(self._link, Error(condition_of(error), str(error)))


def _message(delivery: Delivery) -> bytes:
    """A copy as it is sent."""
    return _counted(delivery.message, delivery.attempt - 1)


def shown_message(copy: ReadCopy) -> bytes:
    """A copy as it is sent to a browsing peer."""
    return _counted(copy.message, copy.attempts)


def _counted(message: bytes, failed: int) -> bytes:
    annotations = {DELIVERY_COUNT: AmqpValue(AmqpType.LONG, failed)} if failed else {}
    return annotated_message(message, annotations, delivery_count=failed)


def _settlement_of(state: DeliveryState | None) -> tuple[Settlement, DeadLetterReason | None]:
    """The settlement of an outcome; without an outcome it is release, the default outcome of the source."""
    match state:
        case Accepted():
            return Settlement.COMPLETE, None
        case Rejected(error=Error() as error):
            return Settlement.DEAD_LETTER, DeadLetterReason(error.condition, error.description)
        case Rejected() | Modified(undeliverable_here=True):
            return Settlement.DEAD_LETTER, None
        case Modified(delivery_failed=True):
            return Settlement.FAIL, None
    return Settlement.RELEASE, None


def confirmed_attach(attach: Attach, distribution_mode: str = "move") -> Attach:
    """The answer to a receiver's attach: no filter is in force, as rules decide which messages it gets."""
    source = attach.source
    assert source is not None
    return replace(
        attach,
        snd_settle_mode=SETTLED if attach.snd_settle_mode == SETTLED else 0,
        rcv_settle_mode=0,
        source=replace(
            source,
            distribution_mode=distribution_mode,
            filter=None if source.filter is None else (),
            default_outcome=Released(),
            outcomes=OUTCOMES if source.outcomes is None else source.outcomes,
            capabilities=None,
        ),
        unsettled=None,
        offered_capabilities=None,
        desired_capabilities=None,
    )
