"""AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue: consumers settle the messages they hold."""

from __future__ import annotations

from headgate.broker import MessageTopic
from headgate.broker.consumer_groups import GroupView
from headgate.errors import RemoteProtocolError
from headgate.protocols.rocketmq import (
    Limits,
    ReceiptHandle,
    Status,
    check_group,
    check_invisible_time,
    receipt_handles,
    refused,
)
from headgate.protocols.rocketmq.grpc import OK, GrpcLimits, ack_response, full_name, milliseconds, status_of
from headgate.protocols.rocketmq.grpc import messages as pb
from headgate.server.context import ServerContext
from headgate.server.rocketmq.grpc.broker_answers import Answer
from headgate.server.rocketmq.grpc.clients import GrpcClient
from headgate.server.rocketmq.grpc.resources import Resources

_NOT_HELD = "the message is not held by this receipt handle any more"


class SettlementCalls:
    """Serves consumers that hold messages."""

    def __init__(self, context: ServerContext, resources: Resources) -> None:
        self._resources = resources
        self._limits = GrpcLimits(Limits(body_bytes=context.settings.rocketmq.message_size_bytes))

    async def acknowledge(self, client: GrpcClient, request: pb.AckMessageRequest) -> pb.AckMessageResponse:
        """Settle messages, with one commit per queue."""
        entries = request.entries
        if not 1 <= len(entries) <= self._limits.entries:
            raise refused(Status.BAD_REQUEST, f"{len(entries)} entries; expected 1 to {self._limits.entries}")
        topic, group = self._found(client, request)
        statuses: dict[int, pb.Status] = {}
        of_queue: dict[int, list[tuple[int, bytes]]] = {}
        for number, entry in enumerate(entries):
            try:
                handle = _handle(entry.receipt_handle, topic, group)
            except RemoteProtocolError as error:
                statuses[number] = status_of(error)
            else:
                of_queue.setdefault(handle.queue, []).append((number, handle.token))
        waiting: list[tuple[list[tuple[int, bytes]], Answer[list[bool]]]] = []
        for queue, given in of_queue.items():
            answer: Answer[list[bool]] = Answer()
            tokens = [token for _, token in given]
            view = client.session.group_view(topic, queue, group)
            client.renewals.drop(view, tokens)
            view.complete(tokens, answer)
            waiting.append((given, answer))
        for given, answer in waiting:
            for (number, _), is_settled in zip(given, await answer.result(), strict=True):
                statuses[number] = OK if is_settled else _LOST
        return ack_response(entries, [statuses[number] for number in range(len(entries))])

    async def change_invisible(
        self, client: GrpcClient, request: pb.ChangeInvisibleDurationRequest
    ) -> pb.ChangeInvisibleDurationResponse:
        """Change when a message is visible to others; it gets a new handle, unless it is visible at once."""
        invisible_ms = milliseconds(request.invisible_duration)
        check_invisible_time(invisible_ms, self._limits.messages, is_changed=True)
        topic, group = self._found(client, request)
        handle, view = self._held(client, request, topic, group)
        changed: Answer[list[bool]] = Answer()
        text = request.receipt_handle
        if invisible_ms > 0:
            tokens = view.claim_again([handle.token], invisible_ms, changed)
            _check(await changed.result())
            [text] = receipt_handles(topic.name, group, handle.queue, tokens)
        else:
            view.change_invisible([handle.token], 0, changed)
            _check(await changed.result())
        return pb.ChangeInvisibleDurationResponse(status=OK, receipt_handle=text)

    async def dead_letter(
        self, client: GrpcClient, request: pb.ForwardMessageToDeadLetterQueueRequest
    ) -> pb.ForwardMessageToDeadLetterQueueResponse:
        """Make a message a dead letter."""
        handle, view = self._held(client, request, *self._found(client, request))
        moved: Answer[list[bool]] = Answer()
        view.dead_letter([handle.token], moved)
        _check(await moved.result())
        return pb.ForwardMessageToDeadLetterQueueResponse(status=OK)

    def _found(
        self,
        client: GrpcClient,
        request: pb.AckMessageRequest | pb.ChangeInvisibleDurationRequest | pb.ForwardMessageToDeadLetterQueueRequest,
    ) -> tuple[MessageTopic, str]:
        group = full_name(request.group)
        check_group(group)
        return self._resources.topic(client, full_name(request.topic), for_producer=False), group

    def _held(
        self,
        client: GrpcClient,
        request: pb.ChangeInvisibleDurationRequest | pb.ForwardMessageToDeadLetterQueueRequest,
        topic: MessageTopic,
        group: str,
    ) -> tuple[ReceiptHandle, GroupView]:
        handle = _handle(request.receipt_handle, topic, group)
        view = client.session.group_view(topic, handle.queue, group)
        client.renewals.drop(view, [handle.token])
        return handle, view


_LOST = pb.Status(code=Status.INVALID_RECEIPT_HANDLE, message=_NOT_HELD)


def _handle(text: str, topic: MessageTopic, group: str) -> ReceiptHandle:
    handle = ReceiptHandle.decode(text, topic.name, group)
    if handle.queue >= len(topic.streams):
        raise refused(Status.INVALID_RECEIPT_HANDLE, f"the topic has {len(topic.streams)} queues")
    return handle


def _check(result: list[bool]) -> None:
    if not result[0]:
        raise refused(Status.INVALID_RECEIPT_HANDLE, _NOT_HELD)
