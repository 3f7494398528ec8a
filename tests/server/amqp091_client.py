"""A client of AMQP 0.9.1 in the words of the protocol, for what libraries would not send."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from types import TracebackType

from headgate.protocols.amqp091 import methods as m
from headgate.protocols.amqp091.codec import decode_method, encode_method
from headgate.protocols.amqp091.fields import Table, boolean, long_string, table
from headgate.protocols.amqp091.frames import PROTOCOL_HEADER, FrameType, encode_content, encode_frame
from headgate.protocols.amqp091.properties import (
    BasicProperties,
    decode_content_header,
    decode_properties,
    encode_content_header,
)
from waiting import LIMIT_S

STREAM: Table = {"x-queue-type": long_string("stream")}


@dataclass
class Received:
    """A method of the server, with its content if it has one."""

    channel: int
    method: m.Method
    properties: BasicProperties | None = None
    body: bytes = b""


@dataclass
class Client:
    """One connection; `call` sends a method and waits for the next one on its channel."""

    port: int
    user: str = "guest"
    password: str = "guest"
    virtual_host: str = "/"
    heartbeat: int = 0
    capabilities: tuple[str, ...] = ("consumer_cancel_notify", "authentication_failure_close")
    buffer: bytes = b""
    waiting: list[Received] = field(default_factory=list)
    heartbeats: int = 0
    mechanism: str = "PLAIN"
    response: bytes | None = None
    connected: socket.socket | None = None

    def __post_init__(self) -> None:
        self.socket = self.connected or socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def log_in(self) -> m.Method:
        """Until connection.tune, or what comes in its place."""
        self.socket.sendall(PROTOCOL_HEADER)
        self.start = self.next(0)
        properties = {
            "product": long_string("test"),
            "capabilities": table({name: boolean(True) for name in self.capabilities}),
        }
        response = f"\0{self.user}\0{self.password}".encode() if self.response is None else self.response
        return self.call(0, m.ConnectionStartOk(properties, self.mechanism, response, "en_US"))

    def open(self, *channels: int) -> Client:
        tune = self.log_in()
        assert isinstance(tune, m.ConnectionTune), tune
        self.tune = tune
        self.say(0, m.ConnectionTuneOk(tune.channel_max, tune.frame_max, self.heartbeat))
        opened = self.call(0, m.ConnectionOpen(self.virtual_host))
        assert isinstance(opened, m.ConnectionOpenOk), opened
        for channel in channels:
            assert self.call(channel, m.ChannelOpen()) == m.ChannelOpenOk()
        return self

    def say(self, channel: int, *methods: m.Method) -> None:
        frames = [encode_frame(FrameType.METHOD, channel, encode_method(method)) for method in methods]
        self.socket.sendall(b"".join(frames))

    def call(self, channel: int, method: m.Method) -> m.Method:
        self.say(channel, method)
        return self.next(channel)

    def publish(
        self,
        channel: int,
        routing_key: str,
        body: bytes = b"",
        *,
        exchange: str = "",
        mandatory: bool = False,
        headers: Table | None = None,
        **properties: object,
    ) -> None:
        method = m.BasicPublish(exchange=exchange, routing_key=routing_key, mandatory=mandatory)
        header = encode_content_header(BasicProperties(headers=headers, **properties), len(body))
        self.socket.sendall(encode_content(channel, encode_method(method), header, body, 131_072))

    def publish_and_say(self, channel: int, routing_key: str, body: bytes, *methods: m.Method) -> None:
        """A message and what follows it, so that the server reads them at once."""
        header = encode_content_header(BasicProperties(), len(body))
        published = encode_content(
            channel, encode_method(m.BasicPublish(routing_key=routing_key)), header, body, 131_072
        )
        frames = [encode_frame(FrameType.METHOD, channel, encode_method(method)) for method in methods]
        self.socket.sendall(published + b"".join(frames))

    def next(self, channel: int) -> m.Method:
        """The next method on a channel; what comes on others waits."""
        return self.receive(channel).method

    def receive(self, channel: int) -> Received:
        while True:
            for place, received in enumerate(self.waiting):
                if received.channel == channel:
                    return self.waiting.pop(place)
            self.waiting.append(self._read())

    def _read(self) -> Received:
        kind, channel, payload = self._frame()
        assert kind == FrameType.METHOD, kind
        received = Received(channel, decode_method(payload))
        if isinstance(received.method, m.BasicDeliver | m.BasicReturn | m.BasicGetOk):
            _, _, header = self._frame()
            received.properties = decode_properties(header)
            size, _ = decode_content_header(header)
            while len(received.body) < size:
                received.body += self._frame()[2]
        return received

    def _frame(self) -> tuple[int, int, bytes]:
        while True:
            if len(self.buffer) >= 7:
                size = int.from_bytes(self.buffer[3:7], "big")
                if len(self.buffer) >= size + 8:
                    frame, self.buffer = self.buffer[: size + 8], self.buffer[size + 8 :]
                    assert frame[-1] == 0xCE
                    if frame[0] != FrameType.HEARTBEAT:
                        return frame[0], int.from_bytes(frame[1:3], "big"), frame[7:-1]
                    self.heartbeats += 1
                    continue
            data = self.socket.recv(65536)
            if not data:
                raise EOFError("the server closed the connection")
            self.buffer += data

    def is_closed(self) -> bool:
        """Whether the server closes the connection, waited for."""
        try:
            while True:
                self._read()
        except EOFError:
            return True

    # what most tests do

    def declare(self, channel: int, queue: str, **arguments: object) -> m.Method:
        given = {**STREAM, **{f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}}
        return self.call(channel, m.QueueDeclare(queue=queue, durable=True, arguments=given))

    def consume(self, channel: int, queue: str, *, prefetch: int = 10, tag: str = "c", **arguments: object) -> m.Method:
        assert self.call(channel, m.BasicQos(prefetch_count=prefetch)) == m.BasicQosOk()
        given = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
        return self.call(channel, m.BasicConsume(queue=queue, consumer_tag=tag, arguments=given))
