"""One connection of a client of the classic protocol: its requests, and the server's requests to it.

Requests are answered in any order. One-way requests are not answered. An unknown request is answered with a code of
its own, as in the original.
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Callable

from headgate.broker import Session
from headgate.errors import AuthenticationError, HeadgateError, ResourceNotFoundError
from headgate.protocols.rocketmq import RETRY_PREFIX, host_bytes
from headgate.protocols.rocketmq.remoting import (
    Command,
    Flag,
    ProtocolViolation,
    RemotingConnection,
    RequestCode,
    ResponseCode,
    encode_body,
    not_supported,
    read_header,
)
from headgate.protocols.rocketmq.remoting import headers as h
from headgate.server.context import ServerContext
from headgate.server.flow_control import FlowControl
from headgate.server.rocketmq.remoting.access import Access
from headgate.server.rocketmq.remoting.answers import refusal
from headgate.server.rocketmq.remoting.group_members import GroupMembers
from headgate.server.rocketmq.remoting.producers import Producers
from headgate.server.rocketmq.remoting.pulls import Pulls
from headgate.server.rocketmq.remoting.queries import Queries
from headgate.server.rocketmq.remoting.queue_offsets import QueueOffsets
from headgate.server.rocketmq.remoting.request_reply import RequestReply
from headgate.server.rocketmq.remoting.routes import cluster_of, route_of
from headgate.server.rocketmq.remoting.stream_reads import StreamReads
from headgate.server.transport import Buffer, Transport

PROTOCOL = "RocketMQ"
SILENCE_S = 180.0
"""After this silence a client is cut off. Clients send something every 30 seconds; the original waits for 120."""

_FRAME_ROOM_BYTES = 1 << 20
"""Room in a frame beside the largest batch of messages."""

_MOST_ASKED = 1_000
"""Limit: requests that wait for the client's answer. Beyond it the oldest counts as unanswered."""

logger = logging.getLogger("headgate.server.rocketmq")


class RemotingHandler:
    """One connection; both roles of the original, name server and broker, are served on each."""

    def __init__(self, transport: Transport, context: ServerContext) -> None:
        self._transport = transport
        self._context = context
        self._record = context.connections.of(transport)
        self._record.protocol = PROTOCOL
        limit = context.settings.rocketmq.message_size_bytes
        self._connection = RemotingConnection(max_frame_bytes=max(2 * limit, 16 << 20) + _FRAME_ROOM_BYTES)
        self._flow = FlowControl(transport, context.clock)
        self._opaques = itertools.count(1)
        self._answers: dict[int, Callable[[Command | None], None]] = {}
        """The server's requests by number: the callback for the client's answer, or for None if there is none."""
        self._access = Access(transport, context, protocol=PROTOCOL, opened=self._opened)
        host, port = context.advertised_classic_address(transport.peer)
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        store_host = host_bytes(transport.peer.local_host or "127.0.0.1", port)
        born_host = _born_host(transport.peer.host, transport.peer.port)
        self._producers = Producers(context, self._answer, born_host=born_host, store_host=store_host)
        self._request_reply = RequestReply(
            transport, context, self._answer, self._tell, born_host=born_host, store_host=self._address
        )
        self._members = GroupMembers(transport, context, self._answer, self._tell, self._request_reply)
        self._pulls = Pulls(transport, context, self._answer, self._members.refresh, store_host=store_host)
        reads = StreamReads(transport, self._answer)
        self._queue_offsets = QueueOffsets(context, self._answer, reads, self._pulls, self._members.is_member)
        self._queries = Queries(transport, context, self._answer, reads, store_host=store_host)
        self._is_open = True
        self._flush_is_due = False
        """Whether a flush in this turn will send the answers."""
        self._requests: dict[int, Callable[[Command], None]] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster,
            RequestCode.END_TRANSACTION: self._end_transaction,
            **{
                code: self._with_session(self._producers.send)
                for code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
            },
            RequestCode.RECALL_MESSAGE: self._with_session(self._producers.recall),
            **{
                code: self._with_session(self._pulls.pull)
                for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
            },
            **{code: self._with_session(call) for code, call in self._request_reply.requests.items()},
            **{code: self._with_session(call) for code, call in self._members.requests.items()},
            **{code: self._with_session(call) for code, call in self._queue_offsets.requests.items()},
            **{code: self._with_session(call) for code, call in self._queries.requests.items()},
        }

    # what the event loop calls

    def received(self, data: memoryview) -> None:
        """Bytes of the client."""
        self._flow.heard()
        self._flush_is_due = True
        for event in self._connection.receive(data):
            if isinstance(event, ProtocolViolation):
                logger.warning("%s: %s", self._record.name, event.error)
                self._end()
                self._transport.close()
                return
            if event.is_response:
                self._answered(event)
            else:
                self._handle(event)
        self._producers.flush()
        self._flush()
        self._flow.limit_answers()

    def writable(self) -> None:
        """The transport takes more."""
        self._flow.taken()
        self._pulls.wake()
        self._queries.wake()

    def tick(self, now_ms: int) -> None:
        """Time passes: end held requests, close unused publishers, cut off a silent client."""
        if not self._is_open:
            return
        self._producers.tick(now_ms)
        self._pulls.tick(now_ms)
        self._queries.tick(now_ms)
        self._flush()
        if self._flow.is_silent(SILENCE_S):
            logger.info("%s: silent for %d seconds", self._record.name, SILENCE_S)
            self._transport.abort()

    def lost(self, reason: Exception | None) -> None:
        """The connection was closed."""
        self._end()

    def shut_down(self) -> None:
        """The server stops; clients look for another server by themselves."""
        self._end()
        self._transport.close()

    # requests

    def _handle(self, command: Command) -> None:
        call = self._requests.get(command.code)
        if call is None:
            remark = not_supported(command.code)
            self._answer(command, command.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark))
            return
        try:
            call(command)
        except AuthenticationError as error:
            self._refuse_later(command, error)
        except HeadgateError as error:
            logger.debug("%s: request %d: %s", self._record.name, command.code, error)
            self._answer(command, refusal(command, error))

    def _with_session(self, call: Callable[[Session, Command], None]) -> Callable[[Command], None]:
        return lambda command: call(self._access.session_of(command), command)

    def _opened(self, session: Session) -> None:
        self._flow.limit_backlog(session.backlog, self._context.settings.limits)

    def _route(self, command: Command) -> None:
        self._access.session_of(command)
        topic = read_header(command, h.RouteRequest).topic
        group = topic.removeprefix(RETRY_PREFIX) if topic.startswith(RETRY_PREFIX) else None
        is_retry = group is not None and self._members.has_retries(group)
        try:
            route = route_of(self._context.broker.message_topics, topic, self._address, is_retry=is_retry)
        except ResourceNotFoundError:
            remark = f"No topic route info in name server for the topic: {topic}"
            self._answer(command, command.answer(ResponseCode.TOPIC_NOT_EXIST, remark=remark))
            return
        self._answer(command, command.answer(ResponseCode.SUCCESS, body=encode_body(route)))

    def _cluster(self, command: Command) -> None:
        self._access.session_of(command)
        self._answer(command, command.answer(ResponseCode.SUCCESS, body=encode_body(cluster_of(self._address))))

    def _end_transaction(self, command: Command) -> None:
        remark = "transaction messages are not served"
        self._answer(command, command.answer(ResponseCode.NO_PERMISSION, remark=remark))

    # answers

    def _answer(self, request: Command, answer: Command) -> None:
        """Answer a request, unless it is one-way or the connection has ended."""
        if request.is_one_way or not self._is_open:
            return
        try:
            self._connection.send(answer)
        except ValueError as error:
            logger.warning("%s: an answer that cannot be written: %s", self._record.name, error)
            return
        self._flush_soon()

    def _refuse_later(self, command: Command, error: HeadgateError) -> None:
        """Delay the refusal of a wrong key or signature, as with passwords: this slows the guessing of secrets."""
        delay_s = self._context.settings.timeouts.login_failure_s
        self._transport.call_later(delay_s, functools.partial(self._answer, command, refusal(command, error)))

    def _flush_soon(self) -> None:
        if not self._flush_is_due:
            self._flush_is_due = True
            self._transport.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        self._flow.say(self._connection.take_output())

    # requests to the client

    def _tell(
        self,
        code: RequestCode,
        fields: dict[str, str],
        answered: Callable[[Command | None], None] | None = None,
        body: Buffer = b"",
    ) -> None:
        """Send a request to the client; without `answered` it is one-way."""
        if not self._is_open:
            return
        number = next(self._opaques)
        if answered is not None:
            while len(self._answers) >= _MOST_ASKED:
                self._answers.pop(next(iter(self._answers)))(None)
            self._answers[number] = answered
        flag = Flag.ONE_WAY if answered is None else Flag(0)
        self._connection.send(Command(code=code, opaque=number, flag=flag, fields=fields, body=body))
        self._flush_soon()

    def _answered(self, answer: Command) -> None:
        call = self._answers.pop(answer.opaque, None)
        if call is not None:
            call(answer)

    # the end

    def _end(self) -> None:
        """End everything that the connection has in the broker; a second call is harmless."""
        if not self._is_open:
            return
        self._is_open = False
        self._producers.flush()
        self._pulls.end()
        self._members.end()
        self._request_reply.end()
        self._queries.end()
        self._access.end()
        answers, self._answers = self._answers, {}
        for call in answers.values():
            call(None)


def _born_host(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
