"""Requests and replies of classic clients: a producer gets the reply to its request on its own connection.

    a producer's `request` ──► a message like any other, which says who asks (REPLY_TO_CLIENT)
    its consumer's reply   ──► the connection on which that client said that it is there ──► taken: answered

A reply is not stored: nobody could read it later. The original also stores it, unless `storeReplyMessageEnable` is
false. Source: `ReplyMessageProcessor` of RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from headgate.broker import Session
from headgate.errors import LimitExceededError
from headgate.protocols.rocketmq import MAX_PROPERTIES_BYTES, read_properties
from headgate.protocols.rocketmq.remoting import Command, RequestCode, ResponseCode, read_send
from headgate.protocols.rocketmq.remoting import headers as h
from headgate.server.context import ServerContext
from headgate.server.rocketmq.remoting.answers import Answer, Tell
from headgate.server.transport import Buffer, Transport

TAKEN_S = 10.0
"""After this time a client that did not confirm its reply counts as gone."""

_MOST_CLIENTS = 100
"""Limit: producing clients per connection."""

_REPLY_TO = b"REPLY_TO_CLIENT"


class RequestReply:
    """The replies that the clients of one connection send and get."""

    def __init__(
        self,
        transport: Transport,
        context: ServerContext,
        answer: Answer,
        tell: Tell,
        *,
        born_host: str,
        store_host: str,
    ) -> None:
        """`born_host` is the client's `address:port`, `store_host` the server's, as clients are told."""
        self._transport = transport
        self._context = context
        self._answer = answer
        self._tell = tell
        self._born_host = born_host
        self._store_host = store_host
        self._limit_bytes = context.settings.rocketmq.message_size_bytes
        self._clients: set[str] = set()
        self.requests: Mapping[int, Callable[[Session, Command], None]] = {
            RequestCode.SEND_REPLY_MESSAGE: self._reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self._reply,
        }

    def heard(self, client_id: str) -> None:
        """A producing client sent a heartbeat: its replies come to this connection from now on."""
        if client_id not in self._clients and len(self._clients) >= _MOST_CLIENTS:
            raise LimitExceededError(f"more than {_MOST_CLIENTS} clients on one connection")
        self._clients.add(client_id)
        self._context.requesters[client_id] = self._give

    def left(self, client_id: str) -> None:
        """The client sends no more; a second call is harmless."""
        self._clients.discard(client_id)
        if self._context.requesters.get(client_id) == self._give:
            del self._context.requesters[client_id]

    def end(self) -> None:
        """The connection is gone."""
        for client_id in tuple(self._clients):
            self.left(client_id)

    def _reply(self, session: Session, command: Command) -> None:
        request = read_send(command)
        session.check_writes(request.topic)
        body, properties = bytes(command.body), request.properties.encode("utf-8", "replace")  # type: ignore[arg-type]
        if len(body) > self._limit_bytes or len(properties) > MAX_PROPERTIES_BYTES:
            raise LimitExceededError(f"the message is illegal, a reply has at most {self._limit_bytes} bytes")
        client = dict(read_properties(properties)).get(_REPLY_TO, b"").decode("utf-8", "replace")
        if not client:
            self._refuse(command, "reply message properties[REPLY_TO_CLIENT] is null")
            return
        give = self._context.requesters.get(client)
        if give is None:
            self._refuse(command, f"push reply message fail, channel of <{client}> not found.")
            return
        # The waiting request keeps no body: the client may never confirm the reply.
        asked = msgspec.structs.replace(command, fields={}, body=b"")
        # It has no place.
        place = {"msgId": "0", "queueId": str(max(request.queue_id, 0)), "queueOffset": "0"}

        def given(was_taken: bool) -> None:
            if was_taken:
                self._answer(asked, asked.answer(ResponseCode.SUCCESS, fields=place))
            else:
                self._refuse(asked, f"push reply message to {client} fail.")

        give(self._fields(request), body, given)

    def _fields(self, request: h.SendRequest) -> dict[str, str]:
        now_ms = self._context.clock.now_ms()
        separator = "" if request.properties.endswith("\x02") or not request.properties else "\x02"
        return {
            "bornHost": self._born_host,
            "storeHost": self._store_host,
            "storeTimestamp": str(now_ms),
            "producerGroup": request.producer_group,
            "topic": request.topic,
            "defaultTopic": request.default_topic,
            "defaultTopicQueueNums": str(request.default_topic_queue_nums),
            "queueId": str(request.queue_id),
            "sysFlag": str(request.sys_flag),
            "bornTimestamp": str(request.born_timestamp),
            "flag": str(request.flag),
            "properties": f"{request.properties}{separator}PUSH_REPLY_TIME\x01{now_ms}\x02",
            "reconsumeTimes": str(request.reconsume_times),
            "unitMode": str(request.unit_mode).lower(),
        }

    def _refuse(self, command: Command, remark: str) -> None:
        self._answer(command, command.answer(ResponseCode.SYSTEM_ERROR, remark=remark))

    def _give(self, fields: dict[str, str], body: Buffer, then: Callable[[bool], None]) -> None:
        """Give a reply to the client of this connection; `then` is called once with whether the client took it."""
        if not self._transport.is_writable:
            # The client does not take its earlier data: replies do not pile up for it.
            then(False)
            return
        is_over = False

        def ended(answer: Command | None) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                cancel()
                then(answer is not None and answer.code == ResponseCode.SUCCESS)

        cancel = self._transport.call_later(TAKEN_S, lambda: ended(None))
        self._tell(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, fields, ended, body)
