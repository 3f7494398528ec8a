"""Answers to QueryRoute and QueryAssignment: the queues of a topic, and where they are reached.

All queues are one broker's. Its address is the one that the client used, as the client wrote it, so that forwarded
ports and names go on working. Source: rocketmq_wire, A3.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from headgate.protocols.rocketmq import Status, refused
from headgate.protocols.rocketmq.grpc import messages as pb

ANY_QUEUE = -1
"""The id of a queue that stands for all queues of the topic."""


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """A topic with that many queues; `accepts` are the types of its messages, `broker` the name of the server."""

    topic: pb.Resource
    queues: int
    accepts: tuple[pb.MessageType, ...]
    broker: str
    endpoints: pb.Endpoints

    def queue(self, number: int) -> pb.MessageQueue:
        """One queue."""
        return pb.MessageQueue(
            topic=self.topic,
            id=number,
            permission=pb.Permission.READ_WRITE,
            broker=pb.Broker(name=self.broker, id=0, endpoints=self.endpoints),
            accept_message_types=self.accepts,
        )


def reached_at(asked: pb.Endpoints, host: str, port: int) -> pb.Endpoints:
    """The broker's address for a client: the endpoints that it gave, else host and port. Raises RemoteProtocolError."""
    if asked.addresses:
        if any(not each.host or not 0 < each.port < 65536 for each in asked.addresses):
            raise refused(Status.ILLEGAL_ACCESS_POINT, "an address of the endpoints has no host, or no port")
        return asked
    try:
        scheme = pb.AddressScheme.IPv6 if ipaddress.ip_address(host).version == 6 else pb.AddressScheme.IPv4
    except ValueError:
        scheme = pb.AddressScheme.DOMAIN_NAME
    return pb.Endpoints(scheme=scheme, addresses=[pb.Address(host=host, port=port)])


def route_response(route: TopicRoute, status: pb.Status) -> pb.QueryRouteResponse:
    """All queues of a topic."""
    return pb.QueryRouteResponse(status=status, message_queues=map(route.queue, range(route.queues)))


def assignment_response(route: TopicRoute, status: pb.Status, *, is_fifo: bool) -> pb.QueryAssignmentResponse:
    """The queues that a push consumer receives from: one entry for any queue, or each queue for a fifo group."""
    numbers: Iterable[int] = range(route.queues) if is_fifo else (ANY_QUEUE,)
    assignments = [pb.Assignment(message_queue=route.queue(number)) for number in numbers]
    return pb.QueryAssignmentResponse(status=status, assignments=assignments)
