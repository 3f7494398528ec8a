"""ReceiveMessage: the messages that consumers get.

An answer is a stream: a status, the messages, the time. A receive that finds nothing is held until its time is over.
It looks at all queues of the topic, whichever queue it names, as in the original: otherwise clients that go from queue
to queue would wait at an empty one.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, Iterator

from headgate.broker import MessageTopic
from headgate.broker.consumer_groups import PendingReceive as Held
from headgate.broker.consumer_groups import Received, ReceiveRequest
from headgate.protocols.rocketmq import Limits, Status, receipt_handles, refused
from headgate.protocols.rocketmq.grpc import (
    OK,
    DeliveredFrom,
    Delivery,
    GrpcLimits,
    Receive,
    delivered_messages,
    receive_request,
    timestamp,
)
from headgate.protocols.rocketmq.grpc import messages as pb
from headgate.server.context import ServerContext
from headgate.server.rocketmq.grpc.broker_answers import Answer
from headgate.server.rocketmq.grpc.clients import GrpcClient
from headgate.server.rocketmq.grpc.filters import GroupFilters
from headgate.server.rocketmq.grpc.resources import Resources

ANSWERED_BEFORE_S = 0.5
"""How long before the end of its call a receive that finds nothing is answered."""

LOOKED_S = 0.25
"""How long at most a receive goes on after its time, with messages that are there already."""


class ReceiveCalls:
    """Serves receives."""

    def __init__(self, context: ServerContext, resources: Resources, filters: GroupFilters) -> None:
        self._context = context
        self._resources = resources
        self._filters = filters
        self._limits = GrpcLimits(Limits(body_bytes=context.settings.rocketmq.message_size_bytes))
        self._held: set[Held] = set()

    def stop(self) -> None:
        """Answer the receives that wait."""
        for held in tuple(self._held):
            held.end(at_once=True)

    async def receive(
        self, client: GrpcClient, request: pb.ReceiveMessageRequest, left_s: float | None
    ) -> AsyncGenerator[bytes, None]:
        """The answer, piece by piece; `left_s` is the rest of the call's time, None for no end.

        Raises HeadgateError for a refused receive, before the first piece.
        """
        asked = receive_request(request, self._limits)
        topic = self._resources.topic(client, asked.topic, for_producer=False)
        self._resources.group(asked.group)
        filter = self._filters.get(asked.filter_type, asked.filter_text)
        # Only queues that exist: other numbers make no more places.
        place = (asked.group, topic.name, asked.queue if asked.queue < len(topic.streams) else -1)
        is_fifo = self._context.broker.consumer_groups.settings_of(asked.group).fifo
        attempt_id = asked.attempt_id if is_fifo else ""
        for queue, tokens in client.attempts.repeated(place, attempt_id).items():
            if queue < len(topic.streams):
                view = client.session.group_view(topic, queue, asked.group)
                client.renewals.drop(view, tokens)
                view.take_back(tokens)
        if asked.is_renewed and len(client.renewals) >= self._context.settings.rocketmq.renewed_messages:
            raise refused(Status.TOO_MANY_REQUESTS, "too many messages are not settled (rocketmq.renewed_messages)")
        client.asks(asked.group, asked.topic, asked.filter_type, asked.filter_text)
        answer: Answer[Received] = Answer()
        held = client.session.receive_from(
            topic,
            ReceiveRequest(
                group=asked.group,
                streams=topic.streams,
                filter=filter.fresh,
                filter_again=filter.again,
                count=asked.count,
                invisible_ms=asked.invisible_ms,
                then=answer,
            ),
        )
        self._held.add(held)
        loop, held_s = asyncio.get_running_loop(), self._held_s(asked, left_s)
        timers = (
            loop.call_later(held_s, held.end),
            loop.call_later(held_s + LOOKED_S, functools.partial(held.end, at_once=True)),
        )
        received = Received()
        try:
            received = await answer.result()
            if received.messages:
                yield _status(OK)
                for piece in self._messages(client, topic, request, asked, received):
                    yield piece
            else:
                text = "no match message" if received.was_filtered else "no new message"
                yield _status(pb.Status(code=Status.MESSAGE_NOT_FOUND, message=text))
            yield self._time()
            client.attempts.answered(place, attempt_id, _by_queue(received))
            received = Received()
        finally:
            for timer in timers:
                timer.cancel()
            self._held.discard(held)
            held.close()
            self._take_back(client, topic, asked, received)

    def refusal(self, status: pb.Status) -> Iterator[bytes]:
        """The answer to a receive that is refused."""
        yield _status(status)
        yield self._time()

    def _messages(
        self,
        client: GrpcClient,
        topic: MessageTopic,
        request: pb.ReceiveMessageRequest,
        asked: Receive,
        received: Received,
    ) -> list[bytes]:
        now_ms = self._context.clock.now_ms()
        handles: dict[int, Iterator[str]] = {}
        identities: dict[int, str] = {}
        for queue, tokens in _by_queue(received).items():
            if asked.is_renewed:
                view = client.session.group_view(topic, queue, asked.group)
                client.renewals.add(view, tokens, invisible_ms=asked.invisible_ms, now_ms=now_ms)
            handles[queue] = iter(receipt_handles(topic.name, asked.group, queue, tokens))
            identities[queue] = self._context.broker.catalogue.get(topic.streams[queue]).stream.identity
        given = [
            Delivery(
                next(handles[each.queue]),
                identities[each.queue],
                each.queue,
                each.offset,
                each.timestamp_ms,
                each.attempt,
            )
            for each in received.messages
        ]
        store_host = self._context.settings.advertised.host or "localhost"
        source = DeliveredFrom(request.message_queue.topic, store_host, asked.invisible_ms)
        return delivered_messages([each.message for each in received.messages], given, source)

    @staticmethod
    def _take_back(client: GrpcClient, topic: MessageTopic, asked: Receive, received: Received) -> None:
        """Make messages visible of a call that ended before its whole answer was sent: its client ignores them."""
        for queue, tokens in _by_queue(received).items():
            view = client.session.group_view(topic, queue, asked.group)
            client.renewals.drop(view, tokens)
            view.change_invisible(tokens, 0)

    def _held_s(self, asked: Receive, left_s: float | None) -> float:
        most_s = self._limits.polling_ms / 1000
        wanted_s = most_s if asked.polling_ms is None else min(asked.polling_ms / 1000, most_s)
        return wanted_s if left_s is None else max(0.0, min(wanted_s, left_s - ANSWERED_BEFORE_S))

    def _time(self) -> bytes:
        now = timestamp(self._context.clock.now_ms())
        return pb.ReceiveMessageResponse(delivery_timestamp=now).SerializeToString()


def _by_queue(received: Received) -> dict[int, list[bytes]]:
    """The tokens of an answer, by queue."""
    tokens: dict[int, list[bytes]] = {}
    for each in received.messages:
        tokens.setdefault(each.queue, []).append(each.token)
    return tokens


def _status(status: pb.Status) -> bytes:
    return pb.ReceiveMessageResponse(status=status).SerializeToString()
