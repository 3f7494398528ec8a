"""Nodes that answer requests: requests come on one link, responses go on another one.

A response may come in a later turn, and in another order than the requests. It waits for a response link with credit;
meanwhile its request link is granted one credit less.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.errors import MessageError
from headgate.protocols.amqp10 import Accepted, Condition, Error, Link
from headgate.protocols.amqp10.events import Deliveries
from headgate.protocols.amqp10.performatives import RECEIVER
from headgate.server.amqp10.service import ServedLink

if TYPE_CHECKING:
    from headgate.server.amqp10.handler import Amqp10Handler

_CREDIT = 8
"""Limit: requests of a link without a sent response."""


class Request:
    """One request: the `message` that arrived on `link`."""

    def __init__(self, served: RequestLink, link: Link, message: bytes) -> None:
        self.link = link
        self.message = message
        self.response: bytes | None = None
        self._served = served

    def answer(self, response: bytes) -> None:
        """Give the response, in a later turn than `RequestNode.respond`; without effect if the link has ended."""
        self.response = response
        self._served.answered()


class RequestNode(abc.ABC):
    """A node of one connection; `serve` makes the server side of a link to it."""

    def __init__(self, handler: Amqp10Handler) -> None:
        self._handler = handler
        self.request_links: list[RequestLink] = []
        self.response_links: list[Link] = []

    @abc.abstractmethod
    def respond(self, request: Request) -> bytes | None:
        """The response, None if `Request.answer` gives it later. Raises MessageError for bytes that are no message."""

    @abc.abstractmethod
    def route(self, request: Request, links: Sequence[Link]) -> Link | None:
        """The link for a request's response, out of the response links, oldest first; None to wait for one."""

    def serve(self, link: Link) -> ServedLink:
        """The server side of a link to the node."""
        return (RequestLink if link.role is RECEIVER else ResponseLink)(self._handler, link, self)

    def send_responses(self) -> None:
        """Send the responses that there is credit for."""
        for served in self.request_links:
            served.send_responses()


class RequestLink(ServedLink):
    """A link on which requests come."""

    def __init__(self, handler: Amqp10Handler, link: Link, node: RequestNode) -> None:
        super().__init__(handler, link)
        self._node = node
        self._requests: list[Request] = []
        """Requests without a sent response, oldest first."""

    def attached(self) -> None:
        """Requests may come."""
        self._node.request_links.append(self)
        self._link.grant(_CREDIT)

    def close(self) -> None:
        """The link has ended; its open requests get no response."""
        super().close()
        if self in self._node.request_links:
            self._node.request_links.remove(self)

    def aborted(self) -> None:
        """The peer aborted a request: another may come."""
        self.send_responses()

    def take(self, deliveries: Deliveries) -> None:
        """Answer requests, in order."""
        for delivery in deliveries:
            request = Request(self, self._link, delivery.message)
            self._requests.append(request)
            try:
                response = self._node.respond(request)
            except MessageError as error:
                self._handler.detach(self._link, Error(Condition.DECODE_ERROR, str(error)))
                return
            if response is not None:
                request.response = response
            if not delivery.settled:
                self._link.session.settle(delivery.delivery_id, delivery.delivery_id, Accepted())
        self.send_responses()

    def answered(self) -> None:
        """One of the requests has its response, in a later turn."""
        if self.may_speak:
            self.send_responses()
            self._handler.flush()

    def send_responses(self) -> None:
        """Send the responses that a response link has credit for, and grant as many new requests.

        Without a response link no credit is granted beyond the first.
        """
        if not self._node.response_links:
            return
        self._requests = [request for request in self._requests if not self._is_sent(request)]
        granted = _CREDIT - len(self._requests)
        if self._link.is_attached and self._link.credit <= granted // 2:
            self._link.grant(granted)

    def _is_sent(self, request: Request) -> bool:
        if request.response is None:
            return False
        link = self._node.route(request, self._node.response_links)
        if link is None or not link.is_attached or not link.credit:
            return False
        link.send(request.response, settled=True)
        return True


class ResponseLink(ServedLink):
    """A link on which responses go."""

    def __init__(self, handler: Amqp10Handler, link: Link, node: RequestNode) -> None:
        super().__init__(handler, link)
        self._node = node

    def attached(self) -> None:
        """Responses may go."""
        self._node.response_links.append(self._link)
        self._node.send_responses()

    def close(self) -> None:
        """Responses wait for another link."""
        super().close()
        if self._link in self._node.response_links:
            self._node.response_links.remove(self._link)

    def credit_changed(self) -> None:
        """The peer takes responses."""
        self._node.send_responses()
        if self._link.drain and self._link.is_attached:
            self._link.use_up_credit()
