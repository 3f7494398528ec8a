"""ReceiveMessage requests, checked, and answers to acknowledgements.

Source: rocketmq_wire, A3; `ReceiveMessageActivity` of RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headgate.protocols.rocketmq import Status, check_group, check_invisible_time, check_topic, refused
from headgate.protocols.rocketmq.grpc import messages as pb
from headgate.protocols.rocketmq.grpc.fields import full_name, milliseconds
from headgate.protocols.rocketmq.grpc.settings import GrpcLimits

_ATTEMPT_ID_CHARACTERS = 255


@dataclass(frozen=True, slots=True)
class Receive:
    """One receive; `is_renewed` asks the server to renew the invisible time of the delivered messages.

    `polling_ms` None: as long as the call may last. `queue` is the number of the queue, −1 for any; `attempt_id` is
    empty if the client sends none.
    """

    group: str
    topic: str
    filter_type: int
    filter_text: str
    count: int
    invisible_ms: int
    is_renewed: bool
    polling_ms: int | None
    queue: int
    attempt_id: str


def receive_request(request: pb.ReceiveMessageRequest, limits: GrpcLimits) -> Receive:
    """The request, checked. Raises RemoteProtocolError with a status if it is refused."""
    group, topic = full_name(request.group), full_name(request.message_queue.topic)
    check_group(group)
    check_topic(topic)
    if request.batch_size < 1:
        raise refused(Status.BAD_REQUEST, f"a batch of {request.batch_size} messages; expected 1 at least")
    invisible_ms = limits.renewed_ms
    if not request.auto_renew:
        invisible_ms = milliseconds(request.invisible_duration)
        check_invisible_time(invisible_ms, limits.messages, is_changed=False)
    if len(request.attempt_id) > _ATTEMPT_ID_CHARACTERS:
        raise refused(Status.BAD_REQUEST, f"an attempt id has at most {_ATTEMPT_ID_CHARACTERS} characters")
    polling_ms = None
    if request.HasField("long_polling_timeout"):
        polling_ms = milliseconds(request.long_polling_timeout)
        if polling_ms < 0:
            raise refused(Status.ILLEGAL_POLLING_TIME, "the time of long polling is less than none")
    return Receive(
        group,
        topic,
        request.filter_expression.type,
        request.filter_expression.expression,
        min(request.batch_size, limits.batch),
        invisible_ms,
        request.auto_renew,
        polling_ms,
        request.message_queue.id,
        request.attempt_id,
    )


def ack_response(entries: Iterable[pb.AckMessageEntry], statuses: Sequence[pb.Status]) -> pb.AckMessageResponse:
    """The answer with the status of each entry, in their order; the one for all is theirs if they have the same."""
    results = [
        pb.AckMessageResultEntry(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status)
        for entry, status in zip(entries, statuses, strict=True)
    ]
    overall = statuses[0]
    if any(status.code != overall.code for status in statuses):
        overall = pb.Status(code=Status.MULTIPLE_RESULTS, message="mixed results")
    return pb.AckMessageResponse(status=overall, entries=results)
