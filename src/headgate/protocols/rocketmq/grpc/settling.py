"""Answers to acknowledgements: a status for each entry, and one for all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headgate.protocols.rocketmq import Status
from headgate.protocols.rocketmq.grpc import messages as pb


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
