"""A client of RocketMQ's classic protocol for tests of the server: requests as written, every wait with a limit."""

from __future__ import annotations

import itertools
import json
import socket
import ssl
from collections.abc import Mapping

from headgate.protocols.rocketmq.remoting import Command, Flag, ProtocolViolation, RemotingConnection, RequestCode, sign
from rocketmq_client import StoredMessage, decode_stored
from server.running import RunningServer
from waiting import LIMIT_S

VERSION = 1_000


class RemotingClient:
    """A connection; with a `key` it signs what it asks."""

    def __init__(
        self,
        server: RunningServer,
        listener: str = "rocketmq_classic",
        *,
        key: tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.ports[listener]), timeout=LIMIT_S)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self.key = key
        self._connection = RemotingConnection()
        self._numbers = itertools.count(1)
        self._answers: dict[int, Command] = {}
        self.pushed: list[Command] = []

    def ask(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes | object = b"", flag: int = 0
    ) -> int:
        """Send a request; gives its number."""
        number = next(self._numbers)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        texts = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in (fields or {}).items()
        }
        command = Command(code=code, opaque=number, flag=flag, fields=texts, body=data)
        if self.key is not None:
            sign(command, *self.key)
        self._connection.send(command)
        self.socket.sendall(b"".join(self._connection.take_output()))
        return number

    def reply(self, request: Command, body: bytes = b"", *, code: int = 0) -> None:
        """Answer what the server asked."""
        self._connection.send(request.answer(code, body=body))
        self.socket.sendall(b"".join(self._connection.take_output()))

    def tell(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> None:
        """Send a request that is not answered."""
        self.ask(code, fields, body, flag=Flag.ONE_WAY)

    def answer(self, number: int) -> Command:
        """The answer to a request."""
        while number not in self._answers:
            self._receive()
        return self._answers.pop(number)

    def call(self, code: int, fields: Mapping[str, object] | None = None, body: bytes | object = b"") -> Command:
        """Send a request, and wait for its answer."""
        return self.answer(self.ask(code, fields, body))

    def next_pushed(self) -> Command:
        """What the server asks next of the client."""
        while not self.pushed:
            self._receive()
        return self.pushed.pop(0)

    def has_answer(self, number: int) -> bool:
        """Whether a request is answered by the time that a later one is."""
        self.call(RequestCode.GET_BROKER_CLUSTER_INFO)
        return number in self._answers

    def _receive(self) -> None:
        data = self.socket.recv(1 << 20)
        if not data:
            raise EOFError("the server closed the connection")
        for event in self._connection.receive(data):
            assert not isinstance(event, ProtocolViolation), event
            if event.is_response:
                self._answers[event.opaque] = event
            else:
                self.pushed.append(event)

    def close(self) -> None:
        self.socket.close()

    # what clients do

    def send(
        self, topic: str, body: bytes = b"body", *, queue: int = 0, properties: str = "", **more: object
    ) -> Command:
        fields = {
            "a": "producers",
            "b": topic,
            "c": "TBW102",
            "d": 4,
            "e": queue,
            "f": 0,
            "g": 5,
            "h": 0,
            "i": properties,
        }
        return self.call(RequestCode.SEND_MESSAGE_V2, {**fields, **more}, body)

    def heartbeat(
        self,
        group: str,
        topic: str,
        expression: str = "*",
        *,
        kind: str = "TAG",
        version: int = VERSION,
        client: str = "one",
        model: str = "CLUSTERING",
    ) -> Command:
        subscription = {"topic": topic, "subString": expression, "expressionType": kind, "subVersion": version}
        consumer = {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": model,
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [subscription],
        }
        body = {"clientID": client, "consumerDataSet": [consumer], "producerDataSet": []}
        return self.call(RequestCode.HEART_BEAT, body=body)

    def pull(self, group: str, topic: str, offset: int = 0, **more: object) -> Command:
        return self.answer(self.ask_pull(group, topic, offset, **more))

    def ask_pull(
        self, group: str, topic: str, offset: int = 0, *, hold_ms: int = 0, queue: int = 0, **more: object
    ) -> int:
        fields = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": queue,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": 2 if hold_ms else 0,
            "commitOffset": 0,
            "suspendTimeoutMillis": hold_ms,
            "subVersion": VERSION,
            "maxMsgBytes": 262_144,
        }
        return self.ask(RequestCode.PULL_MESSAGE, {**fields, **more})


def stored(answer: Command) -> list[StoredMessage]:
    """The messages of an answer."""
    assert isinstance(answer.body, bytes)
    return decode_stored(answer.body)


def bodies(answer: Command) -> list[bytes]:
    """Their bodies."""
    return [message.body for message in stored(answer)]


def properties(message: StoredMessage) -> dict[str, str]:
    """The properties of a message."""
    entries = (entry.partition("\x01") for entry in message.properties.decode().split("\x02") if entry)
    return {name: value for name, _, value in entries}
