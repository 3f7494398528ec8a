"""SendMessage and RecallMessage: the calls of producers.

The messages of a call are one batch per queue, and so are stored by one write with everything of the same turn. All
messages of a turn go to one queue, and those of the next turn to the next queue: producers that send one by one reach
all queues, and many producers together make larger chunks.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from headgate.broker import PublishBatch, Written
from headgate.log import Entries
from headgate.protocols.rocketmq import Limits, Status, refused, to_amqp
from headgate.protocols.rocketmq.grpc import (
    OK,
    GrpcLimits,
    SentMessage,
    check_type,
    full_name,
    sent_messages,
    sent_response,
)
from headgate.protocols.rocketmq.grpc import messages as pb
from headgate.server.context import ServerContext
from headgate.server.event_loop import EventLoop
from headgate.server.rocketmq.grpc.broker_answers import Answer
from headgate.server.rocketmq.grpc.clients import GrpcClient
from headgate.server.rocketmq.grpc.resources import Resources, accepted_types

_SEPARATOR = "/"
"""In recall handles, between the broker's handle and the message id; the answer to a recall repeats the id."""


class SendCalls:
    """Serves producers."""

    def __init__(self, context: ServerContext, event_loop: EventLoop, resources: Resources) -> None:
        self._context = context
        self._event_loop = event_loop
        self._resources = resources
        self._limits = GrpcLimits(Limits(body_bytes=context.settings.rocketmq.message_size_bytes))
        self._turn = 0
        self._turn_has_begun = False

    async def send(self, client: GrpcClient, request: pb.SendMessageRequest) -> pb.SendMessageResponse:
        """Store messages; the call is answered when all of them are stored or scheduled."""
        now_ms = self._context.clock.now_ms()
        name, messages = sent_messages(request, self._limits, now_ms=now_ms, born_host=client.peer.host)
        topic = self._resources.topic(client, name, for_producer=True)
        types = accepted_types(topic)
        for message in messages:
            check_type(message.type, types, name)
        parts: dict[int, list[SentMessage]] = {}
        waiting: list[tuple[SentMessage, Answer[str]]] = []
        for message in messages:
            queue = self._queue(len(topic.streams), message)
            if message.due_ms is None or message.due_ms <= now_ms:
                parts.setdefault(queue, []).append(message)
            else:
                scheduled: Answer[str] = Answer()
                client.session.schedule_message(topic, queue, to_amqp(message.message), message.due_ms, scheduled)
                waiting.append((message, scheduled))
        published = [
            (part, self._publish(client, topic.streams[queue], topic.name, part)) for queue, part in parts.items()
        ]
        for part, (written, places) in published:
            await written.result()
            for message, offset in zip(part, places.offsets().tolist(), strict=True):
                message.offset = offset
        for message, scheduled in waiting:
            message.recall_handle = f"{await scheduled.result()}{_SEPARATOR}{message.message_id}"
        return sent_response(messages)

    async def recall(self, client: GrpcClient, request: pb.RecallMessageRequest) -> pb.RecallMessageResponse:
        """Take back a message that is not due yet."""
        topic = self._resources.topic(client, full_name(request.topic), for_producer=False)
        handle, separator, message_id = request.recall_handle.partition(_SEPARATOR)
        if not separator:
            raise refused(Status.BAD_REQUEST, "this is no recall handle")
        recalled: Answer[None] = Answer()
        client.session.recall_message(topic, handle, recalled)
        await recalled.result()
        return pb.RecallMessageResponse(status=OK, message_id=message_id)

    def _publish(
        self, client: GrpcClient, stream: str, topic: str, messages: Sequence[SentMessage]
    ) -> tuple[Answer[None], Written]:
        written: Answer[None] = Answer()
        places = Written()
        entries = Entries.of([to_amqp(each.message) for each in messages])
        client.publisher(stream, topic).publish(PublishBatch(entries, written, places=places))
        return written, places

    def _queue(self, queues: int, message: SentMessage) -> int:
        """The queue of a message; all messages of a message group go to the same queue."""
        if message.group is not None:
            return zlib.crc32(message.group.encode("utf-8", "replace")) % queues
        if not self._turn_has_begun:
            self._turn_has_begun = True
            self._turn += 1
            self._event_loop.call_soon(self._end_turn)
        return self._turn % queues

    def _end_turn(self) -> None:
        self._turn_has_begun = False
