"""RabbitMQ's service: links that publish, links that consume from streams and subscriptions, management link pairs.

Source: amqp10_rabbit, sections 2 to 5.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from headgate.protocols.amqp10 import Condition, Link, Source, address_text
from headgate.protocols.amqp10.performatives import RECEIVER, SENDER, SETTLED, Attach
from headgate.protocols.sasl import Credentials
from headgate.server.amqp10.addresses import MANAGEMENT, parse_queue, parse_route
from headgate.server.amqp10.browser_link import COPY, BrowsingLink, is_browsing
from headgate.server.amqp10.consumer_link import ConsumingLink, confirmed_attach
from headgate.server.amqp10.filters import read_filters
from headgate.server.amqp10.management import respond
from headgate.server.amqp10.publisher_link import PublishingLink
from headgate.server.amqp10.replies import ReplyLink, is_requester
from headgate.server.amqp10.requests import Request, RequestNode
from headgate.server.amqp10.service import RefusedAttachError, ServedLink, our_terminus
from headgate.server.amqp10.subscription_link import SubscribingLink, shown_message
from headgate.server.amqp10.subscription_link import confirmed_attach as confirmed_subscribing
from headgate.server.identity import NODE
from headgate.topic import SubscriptionName

if TYPE_CHECKING:
    from headgate.server.amqp10.handler import Amqp10Handler

_PAIRED = "paired"

logger = logging.getLogger("headgate.server.amqp10")


class RabbitService:
    """Serves RabbitMQ's addresses on one connection: addresses that begin with a slash, and the null address."""

    refuses_without_termini = False
    ignores_strays = False

    def __init__(self, handler: Amqp10Handler) -> None:
        self._handler = handler
        self._management = _ManagementNode(handler)

    def mechanisms(self) -> Sequence[str]:
        """None: its clients are users."""
        return ()

    def knows(self, credentials: Credentials) -> bool:
        """False: its clients are users."""
        return False

    def close(self) -> None:
        """Nothing to do: the links are closed already."""

    def claims(self, address: str | None) -> bool:
        """Whether an address is one of RabbitMQ's."""
        return address is None or address.startswith("/")

    def serve(self, link: Link, attach: Attach) -> tuple[ServedLink, Attach]:
        """The server side of a link, and the answer to its attach. Raises HeadgateError for a refused link."""
        is_reply_link = is_requester(link, attach)
        terminus = our_terminus(link, attach, second=False, dynamic=is_reply_link)
        address = address_text(terminus)
        answer = replace(
            attach, rcv_settle_mode=0, unsettled=None, desired_capabilities=None, offered_capabilities=None
        )
        if is_reply_link:
            replies = ReplyLink(self._handler, link)
            return replies, replies.confirmed_attach(answer)
        if address == MANAGEMENT:
            _check_paired(attach)
            if link.role is SENDER:
                answer.snd_settle_mode = SETTLED
            return self._management.serve(link), answer
        if link.role is RECEIVER:
            route = None if address is None else parse_route(address)
            return PublishingLink(self._handler, link, route), answer
        assert isinstance(terminus, Source)
        if address is None:
            raise RefusedAttachError(Condition.INVALID_FIELD, "a source has an address: /queues/<queue>")
        queue = parse_queue(address)
        subscription = self._handler.broker.subscription_of(queue)
        if subscription is not None:
            return self._subscribing(link, attach, subscription, terminus)
        return self._consuming(link, attach, queue, terminus)

    def _consuming(self, link: Link, attach: Attach, stream: str, source: Source) -> tuple[ServedLink, Attach]:
        settings = self._handler.context.settings
        filters = read_filters(source.filter or (), settings.filters.dialect, sql_bytes=settings.limits.filter_bytes)
        if filters.attach_refused is not None:
            raise RefusedAttachError(Condition.PRECONDITION_FAILED, filters.attach_refused)
        for refused in filters.refused:
            self._leave_out(link, f"stream {stream!r}", refused.index, refused.reason)
        return ConsumingLink(self._handler, link, stream, filters), confirmed_attach(attach, filters)

    def _subscribing(
        self, link: Link, attach: Attach, name: SubscriptionName, source: Source
    ) -> tuple[ServedLink, Attach]:
        for index, _ in enumerate(source.filter or ()):
            self._leave_out(link, str(name), index, "a subscription has what its rules give it")
        if is_browsing(attach):
            topic, dead_letters = self._handler.broker.topic_of(name), name.is_dead_letter
            peek = partial(topic.browser.peek, name.subscription, dead_letters=dead_letters)
            browsing = BrowsingLink(self._handler, link, attach, peek=peek, encoded=shown_message)
            return browsing, confirmed_subscribing(attach, COPY)
        return SubscribingLink(self._handler, link, attach, name), confirmed_subscribing(attach)

    def _leave_out(self, link: Link, node: str, index: int, reason: str) -> None:
        """Leave out a filter; the setting `filters.on_bad_filter` decides whether that refuses the link."""
        name = self._handler.name
        logger.warning("%s: link %r to %s: filter %d is left out: %s", name, link.name, node, index, reason)
        if self._handler.context.settings.filters.on_bad_filter == "detach":
            raise RefusedAttachError(Condition.PRECONDITION_FAILED, reason)


class _ManagementNode(RequestNode):
    """Management: a request and its response go on two links of one session and one name."""

    def respond(self, request: Request) -> bytes | None:
        """The response to a request. Raises MessageError for bytes that are not a message."""
        return respond(request.message, self._handler.broker, request.answer, node=NODE)

    def route(self, request: Request, links: Sequence[Link]) -> Link | None:
        """The other link of the pair."""
        ours = request.link
        return next((link for link in links if link.session is ours.session and link.name == ours.name), None)


def _check_paired(attach: Attach) -> None:
    properties = {} if attach.properties is None else {key.value: value.value for key, value in attach.properties.value}
    if properties.get(_PAIRED) is not True:
        reason = "management needs a pair of links: two of the same name, both with the property paired"
        raise RefusedAttachError(Condition.PRECONDITION_FAILED, reason)
