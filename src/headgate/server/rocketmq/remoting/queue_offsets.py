"""Offsets of queues: the committed offsets of groups, the bounds of queues, and the offset of a time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from headgate.broker import Session
from headgate.broker.consumer_groups import RetryQueue
from headgate.errors import PreconditionFailedError
from headgate.log import OffsetSpecification
from headgate.protocols.rocketmq import RETRY_PREFIX
from headgate.protocols.rocketmq.remoting import Command, RequestCode, ResponseCode, read_header
from headgate.protocols.rocketmq.remoting import headers as h
from headgate.server.context import ServerContext
from headgate.server.rocketmq.remoting.answers import Answer, settled
from headgate.server.rocketmq.remoting.pulls import Pulls
from headgate.server.rocketmq.remoting.stream_reads import StreamReads
from headgate.server.rocketmq.remoting.subscriptions import readable_stream, reads_stream


class QueueOffsets:
    """Serves the requests about offsets on one connection."""

    def __init__(
        self,
        context: ServerContext,
        answer: Answer,
        reads: StreamReads,
        pulls: Pulls,
        is_member: Callable[[str], bool],
    ) -> None:
        """`pulls` are the pulls of the connection; `is_member` says whether the client is in a group."""
        self._broker = context.broker
        self._queue_offsets = context.broker.consumer_groups.pull_consumers
        self._answer = answer
        self._reads = reads
        self._pulls = pulls
        self._is_member = is_member
        self.requests: Mapping[int, Callable[[Session, Command], None]] = {
            RequestCode.QUERY_CONSUMER_OFFSET: self._query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update_offset,
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.GET_MIN_OFFSET: self._min_offset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search_offset,
        }

    def _query_offset(self, session: Session, command: Command) -> None:
        request = read_header(command, h.QueryOffsetRequest)
        if request.topic.startswith(RETRY_PREFIX):
            self._answer_offset(command, self._queue_offsets.retries(request.consumer_group).first_number)
            return
        stream = readable_stream(session, request.topic, request.queue_id)
        # A queue that never had a message has no committed offset, even if consumers wait there.
        place, is_used = None, session.bounds(stream)[1] > 0
        if is_used:
            place = self._queue_offsets.place(stream, request.consumer_group)
        if is_used and place is None and request.set_zero_if_not_found:
            place = 0 if self._queue_offsets.begins_at(stream, request.consumer_group) == 0 else None
        if place is None:
            remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
            if not request.set_zero_if_not_found:
                remark = "Not found, do not set to zero, maybe this group boot first"
            self._answer(command, command.answer(ResponseCode.QUERY_NOT_FOUND, remark=remark))
        else:
            self._answer_offset(command, place)

    def _update_offset(self, session: Session, command: Command) -> None:
        request = read_header(command, h.UpdateOffsetRequest)
        group = request.consumer_group
        if self._broker.consumer_groups.find(group) is None:
            remark = f"Group {group} not exist!"
            self._answer(command, command.answer(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=remark))
            return
        told = settled(self._answer, command)
        if request.topic.startswith(RETRY_PREFIX):
            reads = functools.partial(reads_stream, session, self._broker)
            self._queue_offsets.retries(group).complete_below(request.commit_offset, reads, told)
            return
        stream = readable_stream(session, request.topic, request.queue_id)
        if not self._pulls.counts_offsets_of(group, request.topic, request.queue_id):
            told([True])
            return
        if not self._is_member(group):
            self._check_ahead(stream, request)
        self._queue_offsets.done(stream, group, request.commit_offset, None if command.is_one_way else told)

    def _check_ahead(self, stream: str, request: h.UpdateOffsetRequest) -> None:
        """Refuse to set a group back for a client that is not a member; a member's late commit is ignored instead."""
        place = self._queue_offsets.place(stream, request.consumer_group)
        if place is not None and request.commit_offset < place:
            raise PreconditionFailedError(
                f"group {request.consumer_group} is at {place} in queue {request.queue_id} of {request.topic}, and is"
                f" not set back to {request.commit_offset} so: `headgate rocketmq group reset` does that"
            )

    def _max_offset(self, session: Session, command: Command) -> None:
        request = read_header(command, h.QueueRequest)
        if request.topic.startswith(RETRY_PREFIX):
            self._answer_offset(command, self._retries(request.topic).next_number)
        else:
            info = session.stream_info(readable_stream(session, request.topic, request.queue_id))
            self._answer_offset(command, info.next_offset)

    def _min_offset(self, session: Session, command: Command) -> None:
        request = read_header(command, h.QueueRequest)
        if request.topic.startswith(RETRY_PREFIX):
            self._answer_offset(command, self._retries(request.topic).first_number)
        else:
            info = session.stream_info(readable_stream(session, request.topic, request.queue_id))
            self._answer_offset(command, info.first_offset)

    def _retries(self, topic: str) -> RetryQueue:
        return self._queue_offsets.retries(topic.removeprefix(RETRY_PREFIX))

    def _search_offset(self, session: Session, command: Command) -> None:
        request = read_header(command, h.SearchOffsetRequest)
        if request.topic.startswith(RETRY_PREFIX):
            self._answer_offset(command, self._retries(request.topic).first_number)
            return
        stream = readable_stream(session, request.topic, request.queue_id)
        first = session.stream_info(stream).first_offset
        time_ms = max(0, request.timestamp)
        is_upper = request.boundary_type.lower() == "upper"
        found = session.resolution(stream, OffsetSpecification.timestamp(time_ms + is_upper))
        self._reads.run(
            session, command, stream, found, lambda offset: self._answer_offset(command, max(first, offset - is_upper))
        )

    def _answer_offset(self, command: Command, offset: int) -> None:
        self._answer(command, command.answer(ResponseCode.SUCCESS, fields={"offset": str(offset)}))
