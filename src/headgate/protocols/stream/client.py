"""The client's side of a connection: handshake, requests and their replies, confirms, deliveries.

    connection = ClientConnection(user="guest", password="guest", virtual_host="/")
    socket.sendall(connection.take_output())
    for event in connection.receive(socket.recv(65536)): ...        # Opened is among them when all is well

Nothing here waits: the caller matches replies by the correlation id that `request` returned.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.errors import LocalProtocolError, RemoteProtocolError
from headgate.log import FilterValues
from headgate.protocols.sasl import plain_response
from headgate.protocols.stream import frames as f
from headgate.protocols.stream.codec import decode_from_server, encode
from headgate.protocols.stream.codes import CLIENT_VERSIONS, REPLY_BIT, Command, ResponseCode, name_of_code
from headgate.protocols.stream.deliver_frames import Deliver, decode_deliver
from headgate.protocols.stream.framing import FrameAssembler, ProtocolViolation, lower_limit
from headgate.protocols.stream.publish_frames import (
    PublishConfirm,
    PublishError,
    decode_confirm,
    decode_publish_error,
    encode_publish,
)

UInt64Array = NDArray[np.uint64]
Int64Array = NDArray[np.int64]


class ClientState(Enum):
    """The states of a client's connection, by the answer that it waits for."""

    GREETING = "waiting for the server's properties"
    HANDSHAKE = "waiting for the list of mechanisms"
    AUTHENTICATING = "waiting for the answer to the credentials"
    TUNING = "waiting for limits"
    OPENING = "waiting for the virtual host"
    VERSIONS = "waiting for command versions"
    OPENED = "open"
    CLOSING = "closing"
    CLOSED = "closed"


_EXPECTED: Mapping[ClientState, type[f.Frame]] = {
    ClientState.GREETING: f.PeerPropertiesReply,
    ClientState.HANDSHAKE: f.SaslHandshakeReply,
    ClientState.AUTHENTICATING: f.SaslAuthenticateReply,
    ClientState.TUNING: f.Tune,
    ClientState.OPENING: f.OpenReply,
    ClientState.VERSIONS: f.ExchangeCommandVersionsReply,
}
"""The one frame that leads on, in the states of the handshake; Heartbeat and Close may come in any."""

MAX_RECEIVED_BYTES = 256 << 20
"""Limit: bytes of a received frame. A chunk is delivered whole, even beyond the agreed frame size; RabbitMQ's chunks
reach some mebibytes."""

_SIZE = struct.Struct(">I")
_KEY = struct.Struct(">H")
_MANY = {Command.DELIVER, Command.PUBLISH_CONFIRM, Command.PUBLISH_ERROR}


@dataclass(frozen=True, slots=True)
class ServerInformation:
    """The server's description of itself in the handshake: its properties, its address, its commands."""

    properties: Mapping[str, str] = field(default_factory=dict)
    mechanisms: tuple[str, ...] = ()
    advertised: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[int, int] = field(default_factory=dict)
    """Highest version of each command that the server takes, by key."""

    @property
    def headgate_version(self) -> str | None:
        """The version of Headgate where the server is one."""
        return self.properties.get("headgate")


@dataclass(frozen=True, slots=True)
class Opened:
    """The handshake is over: requests may be made."""

    server: ServerInformation


ClientEvent = f.Frame | Opened | PublishConfirm | PublishError | Deliver | ProtocolViolation


class ClientConnection:
    """Bytes of a server in, events out; requests in, bytes out. The handshake runs by itself.

    Events after `Opened`: replies (`Reply`, `MetadataReply`), PublishConfirm, PublishError, Deliver, MetadataUpdate,
    ConsumerUpdate (answer it with a ConsumerUpdateReply), CreditReply, Heartbeat, Close (answered by itself).
    A handshake that the server refuses is a ProtocolViolation with the server's code.
    """

    def __init__(
        self,
        *,
        user: str = "guest",
        password: str = "guest",
        virtual_host: str = "/",
        properties: Mapping[str, str] | None = None,
        frame_max: int = 1 << 20,
        heartbeat_s: int = 60,
        mechanism: str = "PLAIN",
    ) -> None:
        self.state = ClientState.GREETING
        self.server = ServerInformation()
        self.frame_max = frame_max
        self.heartbeat_s = heartbeat_s
        self._credentials = plain_response(user, password) if mechanism == "PLAIN" else b""
        self._mechanism = mechanism
        self._virtual_host = virtual_host
        self._frames = FrameAssembler(self._walk)
        self._events: list[ClientEvent] = []
        self._output = bytearray()
        self._last_correlation = 0
        self._asked: dict[int, Command] = {}
        self._send_request(f.PeerProperties(dict(properties or {"product": "headgate"})))

    def receive(self, data: bytes | bytearray | memoryview) -> list[ClientEvent]:
        """The events of these bytes and of an incomplete frame before them. Never raises."""
        if self.state is not ClientState.CLOSED:
            self._frames.receive(data)
        events, self._events = self._events, []
        return events

    def request(self, frame: f.Request) -> int:
        """Send a request; gives the correlation id that the reply will have. LocalProtocolError unless open."""
        self._check_open(type(frame).__name__)
        return self._send_request(frame)

    def send(self, frame: f.Frame) -> None:
        """Send a frame without a reply: Credit, StoreOffset, Heartbeat. Raises LocalProtocolError."""
        self._check_open(type(frame).__name__)
        if isinstance(frame, f.Request):
            raise LocalProtocolError(f"{type(frame).__name__} has a reply: `request` it")
        self._output += encode(frame)

    def publish(
        self,
        publisher_id: int,
        publishing_ids: UInt64Array,
        data: NDArray[np.uint8],
        starts: Int64Array,
        lengths: Int64Array,
        *,
        filter_values: FilterValues | None = None,
        entries_have_heads: bool = False,
    ) -> bytes:
        """Publish frames for entries, to be written after `take_output`; arguments as `publishing.encode_publish`.

        Raises LocalProtocolError.
        """
        self._check_open("Publish")
        return encode_publish(
            publisher_id,
            publishing_ids,
            data,
            starts,
            lengths,
            filter_values=filter_values,
            entries_have_heads=entries_have_heads,
            frame_bytes=self.frame_max,
        )

    def close(self, reason: str = "OK") -> None:
        """Ask for the end of the connection; CloseReply is the last event. Raises LocalProtocolError."""
        self._check_open("Close")
        self._send_request(f.Close(ResponseCode.OK, reason))
        self.state = ClientState.CLOSING

    def take_output(self) -> bytes:
        """The bytes to write to the server; each byte is returned once."""
        output = bytes(self._output)
        self._output.clear()
        return output

    def _send_request(self, frame: f.Request) -> int:
        self._last_correlation = self._last_correlation % (2**32 - 1) + 1
        self._asked[self._last_correlation] = frame.command
        self._output += encode(msgspec.structs.replace(frame, correlation_id=self._last_correlation))
        return self._last_correlation

    def _check_open(self, what: str) -> None:
        if self.state is not ClientState.OPENED:
            raise LocalProtocolError(f"{what} while the connection is {self.state.value}")

    def _walk(self, view: memoryview, position: int) -> int:
        while self.state is not ClientState.CLOSED:
            left = len(view) - position
            if left < _SIZE.size:
                return position
            size = _SIZE.unpack_from(view, position)[0]
            if size > MAX_RECEIVED_BYTES:
                self._violated(f"a frame of {size} bytes; {MAX_RECEIVED_BYTES} are taken", ResponseCode.FRAME_TOO_LARGE)
                break
            if left < _SIZE.size + size:
                return position
            body = view[position + _SIZE.size : position + _SIZE.size + size]
            position += _SIZE.size + size
            try:
                self._receive_frame(body)
            except RemoteProtocolError as error:
                self._fail(error)
        return len(view)

    def _receive_frame(self, body: memoryview) -> None:
        key = _KEY.unpack_from(body)[0] if len(body) >= _KEY.size else 0
        if key in _MANY:
            if self.state not in (ClientState.OPENED, ClientState.CLOSING):
                self._violated(f"{Command(key).name} while {self.state.value}", ResponseCode.UNKNOWN_FRAME)
            elif key == Command.DELIVER:
                self._events.append(decode_deliver(body))
            elif key == Command.PUBLISH_CONFIRM:
                self._events.append(decode_confirm(bytes(body)))
            else:
                self._events.append(decode_publish_error(bytes(body)))
            return
        frame = decode_from_server(bytes(body))
        if isinstance(frame, f.Reply | f.MetadataReply) and self._asked.pop(frame.correlation_id, None) != key & (
            REPLY_BIT - 1
        ):
            self._violated(f"{type(frame).__name__} answers no request", ResponseCode.UNKNOWN_FRAME)
        elif isinstance(frame, f.Close):
            self._output += encode(f.CloseReply(correlation_id=frame.correlation_id))
            self._events.append(frame)
            self.state = ClientState.CLOSED
        elif isinstance(frame, f.Heartbeat):
            self._events.append(frame)
        elif self.state in _EXPECTED:
            self._advance(frame)
        else:
            self._events.append(frame)
            if isinstance(frame, f.CloseReply):
                self.state = ClientState.CLOSED

    def _advance(self, frame: f.Frame) -> None:
        if not isinstance(frame, _EXPECTED[self.state]):
            self._violated(f"{type(frame).__name__} while {self.state.value}", ResponseCode.UNKNOWN_FRAME)
            return
        if isinstance(frame, f.Reply) and frame.code != ResponseCode.OK:
            words = f"{type(frame).__name__}: {name_of_code(frame.code)}"
            self._fail(RemoteProtocolError(f"the server refuses the connection: {words}", code=frame.code))
            return
        server = self.server
        if isinstance(frame, f.PeerPropertiesReply):
            self.server = ServerInformation(frame.properties)
            self.state = ClientState.HANDSHAKE
            self._send_request(f.SaslHandshake())
        elif isinstance(frame, f.SaslHandshakeReply):
            self.server = ServerInformation(server.properties, tuple(frame.mechanisms))
            self.state = ClientState.AUTHENTICATING
            self._send_request(f.SaslAuthenticate(self._mechanism, self._credentials))
        elif isinstance(frame, f.SaslAuthenticateReply):
            self.state = ClientState.TUNING
        elif isinstance(frame, f.Tune):
            self.frame_max = lower_limit(self.frame_max, frame.frame_max)
            self.heartbeat_s = lower_limit(self.heartbeat_s, frame.heartbeat_s)
            self.state = ClientState.OPENING
            self._output += encode(f.Tune(self.frame_max, self.heartbeat_s))
            self._send_request(f.Open(self._virtual_host))
        elif isinstance(frame, f.OpenReply):
            self.server = ServerInformation(server.properties, server.mechanisms, frame.properties)
            self.state = ClientState.VERSIONS
            self._send_request(f.ExchangeCommandVersions(CLIENT_VERSIONS))
        elif isinstance(frame, f.ExchangeCommandVersionsReply):
            versions = {key: highest for key, _, highest in frame.versions}
            self.server = ServerInformation(server.properties, server.mechanisms, server.advertised, versions)
            self.state = ClientState.OPENED
            self._events.append(Opened(self.server))

    def _violated(self, reason: str, code: ResponseCode) -> None:
        self._fail(RemoteProtocolError(reason, code=code))

    def _fail(self, error: RemoteProtocolError) -> None:
        self._events.append(ProtocolViolation(error))
        self.state = ClientState.CLOSED
