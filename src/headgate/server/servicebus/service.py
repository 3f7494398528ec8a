"""The service for Service Bus clients on one connection: links to entities, to `$cbs` and to `$management`.

Source: servicebus_wire, sections 3 to 7.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from headgate.broker import Entity, Right
from headgate.errors import ConfigError, HeadgateError
from headgate.protocols.amqp10 import Condition, Link
from headgate.protocols.amqp10.performatives import RECEIVER, SETTLED, Attach
from headgate.protocols.sasl import Credentials, Mechanism
from headgate.protocols.servicebus import (
    SESSION_FILTER,
    Address,
    Part,
    Refusal,
    is_cbs,
    not_found,
    parse_address,
    refusal_of,
    session_request,
)
from headgate.server.amqp10 import BrowsingLink, RefusedAttachError, ServedLink, address_of, is_browsing, our_terminus
from headgate.server.servicebus.access import ConnectionAccess
from headgate.server.servicebus.entity_link import EmptyLink, EntityNode, RefusedError, node_of
from headgate.server.servicebus.management import ClaimsNode, ManagementNode
from headgate.server.servicebus.receiver_link import ReceivingLink, SessionLink, given_message
from headgate.server.servicebus.sender_link import SendingLink

if TYPE_CHECKING:
    from headgate.server.amqp10 import Amqp10Handler

logger = logging.getLogger("headgate.server.servicebus")

_SELECTORS = frozenset({"apache.org:selector-filter:string", "jms-selector", 0x0000_468C_0000_0004})
"""Names and descriptors of the filters that JMS clients send for selectors."""

_SEND_VIA = "com.microsoft:transfer-destination-address"


class ServiceBusService:
    """Serves Service Bus's addresses on one connection: all that do not begin with a slash."""

    refuses_without_termini = True
    ignores_strays = True

    def __init__(self, handler: Amqp10Handler) -> None:
        self._access = ConnectionAccess(handler)
        self._handler = handler
        self._claims = ClaimsNode(handler, self._access)
        self._management: dict[str, ManagementNode] = {}

    def mechanisms(self) -> Sequence[str]:
        """The mechanisms of clients that get their rights by tokens."""
        return (Mechanism.ANONYMOUS, Mechanism.MSSBCBS) if self._access.takes_strangers else ()

    def knows(self, credentials: Credentials) -> bool:
        """Whether the credentials are an access key's, or a client's that gets its rights by tokens or needs none."""
        return self._access.knows(credentials)

    def close(self) -> None:
        """The connection has ended."""
        self._access.close()

    def claims(self, address: str | None) -> bool:
        """Whether an address is one of Service Bus's."""
        return address is not None and not address.startswith("/")

    def serve(self, link: Link, attach: Attach) -> tuple[ServedLink, Attach | None]:
        """The server side of a link, and its attach's answer; None without a session yet. Raises RefusedAttachError."""
        our_terminus(link, attach, second=True)
        text = address_of(link, attach) or ""
        link.max_message_size = self._handler.context.settings.servicebus.message_size_bytes
        # Some clients report the reason of a rejection, but of a link that ends while they send only that it ended.
        link.rejects_large = True
        answer = replace(attach, unsettled=None, desired_capabilities=None, offered_capabilities=None)
        if is_cbs(text):
            return self._claims.serve(link), answer
        try:
            address = parse_address(text)
        except ConfigError:
            raise _refused(not_found(text)) from None
        try:
            return self._serve(link, answer, address)
        except RefusedError as error:
            raise _refused(error.refusal) from error
        except HeadgateError as error:
            if isinstance(error, RefusedAttachError):
                raise
            raise _refused(refusal_of(error, str(address))) from error

    def _serve(self, link: Link, answer: Attach, address: Address) -> tuple[ServedLink, Attach | None]:
        entity = self._handler.context.broker.entities.find(address.entity)
        if address.is_management:
            return self._managing(link, node_of(entity, address)), answer
        if link.role is RECEIVER:
            return self._sending(link, answer, entity, address), answer
        return self._receiving(link, answer, node_of(entity, address))

    def _managing(self, link: Link, node: EntityNode) -> ServedLink:
        # Dead letters have a management node of their own.
        management = self._management.get(str(node))
        if management is None:
            management = self._management[str(node)] = ManagementNode(self._handler, self._access, node)
        return management.serve(link)

    def _sending(self, link: Link, attach: Attach, entity: Entity, address: Address) -> ServedLink:
        if address.subscription is not None or address.part is not Part.MESSAGES:
            raise RefusedAttachError(Condition.NOT_ALLOWED, f"{address}: messages are sent to a topic or a queue")
        properties = () if attach.properties is None else attach.properties.value
        if any(key.value == _SEND_VIA for key, _ in properties):
            raise RefusedAttachError(Condition.NOT_IMPLEMENTED, "messages are not sent via another entity")
        return SendingLink(self._handler, link, self._access, node_of(entity, address))

    def _receiving(self, link: Link, answer: Attach, node: EntityNode) -> tuple[ServedLink, Attach | None]:
        self._access.check(Right.LISTEN, node.path)
        settles_first = answer.snd_settle_mode == SETTLED
        answer = self._with_served_filters(link, answer, node)
        asked = session_request(answer)
        if asked is not None:
            if node.part is not Part.MESSAGES:
                raise RefusedAttachError(Condition.NOT_ALLOWED, f"{node}: dead letters are in no session")
            return SessionLink(
                self._handler, link, self._access, node, asked, answer, settles_first=settles_first
            ), None
        if node.part is Part.TRANSFER_DEAD_LETTERS:
            return EmptyLink(self._handler, link), answer
        if is_browsing(answer):
            return self._browsing(link, answer, node), answer
        return ReceivingLink(self._handler, link, self._access, node, settles_first=settles_first), answer

    def _browsing(self, link: Link, answer: Attach, node: EntityNode) -> ServedLink:
        name, time_to_live_ms = node.receivable, node.time_to_live_ms
        topic = node.entity.topic
        return BrowsingLink(
            self._handler,
            link,
            answer,
            peek=partial(topic.browser.peek, name.subscription, dead_letters=name.is_dead_letter),
            encoded=lambda copy: given_message(node, copy, time_to_live_ms),
        )

    def _with_served_filters(self, link: Link, answer: Attach, node: EntityNode) -> Attach:
        """The answer to a receiver with the filters that are in force.

        Raises RefusedAttachError for a selector: without it the receiver would take messages that it does not want.
        """
        source = answer.source
        if source is None or not source.filter:
            return answer
        served = []
        for entry in source.filter:
            found = entry.read()
            if found.name.value == SESSION_FILTER:
                served.append(entry)
            elif {str(found.name.value), found.descriptor and found.descriptor.value} & _SELECTORS:
                text = f"{node}: selectors are not served; the rules of a subscription select messages"
                raise RefusedAttachError(Condition.NOT_IMPLEMENTED, text)
            else:
                name = self._handler.name
                logger.warning("%s: link %r to %s: the filter %s is left out", name, link.name, node, found.name.value)
        return replace(answer, source=replace(source, filter=tuple(served)))


def _refused(refusal: Refusal) -> RefusedAttachError:
    return RefusedAttachError(refusal.condition, refusal.text)
