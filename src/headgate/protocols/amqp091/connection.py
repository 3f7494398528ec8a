"""The server's end of an AMQP 0.9.1 connection: bytes in, events out; methods in, bytes out.

What is legal when:

    HEADER           protocol header               → STARTING         sent: connection.start
    STARTING         connection.start-ok           → AUTHENTICATING   nothing is read until `authenticated`
    AUTHENTICATING   our `authenticated`           → TUNING           sent: connection.tune
    TUNING           connection.tune-ok            → OPENING
    OPENING          connection.open               → OPEN             sent: connection.open-ok
    OPEN             methods and contents of channels, connection.update-secret
    any but HEADER   connection.close              → FINISHED         sent: connection.close-ok
    any but HEADER   our `refuse` or `close`       → CLOSING          sent: connection.close
    CLOSING          connection.close-ok           → FINISHED         everything else is ignored

    channel: OPEN    methods of `CHANNEL_METHODS`; basic.publish, then its header, then its body
    channel: CLOSING channel.close-ok, channel.close; everything else is ignored

Source: AMQP 0-9-1, sections 2.2.4 and 4.2; codes as RabbitMQ gives them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence

import msgspec

from headgate.errors import LocalProtocolError, RemoteProtocolError
from headgate.protocols.amqp091 import methods as m
from headgate.protocols.amqp091.codec import decode_method, encode_method
from headgate.protocols.amqp091.codes import CHANNEL_CODES, ReplyCode, reply_text
from headgate.protocols.amqp091.events import (
    Authenticate,
    ChannelClosed,
    ChannelFailed,
    ChannelOpened,
    ConnectionClosed,
    ConnectionFailed,
    Event,
    MethodReceived,
    Published,
)
from headgate.protocols.amqp091.fields import FieldType, Table
from headgate.protocols.amqp091.frames import (
    FRAME_END,
    FRAME_HEAD,
    FRAME_OVERHEAD_BYTES,
    HEARTBEAT,
    MIN_FRAME_SIZE_BYTES,
    PROTOCOL_HEADER,
    FrameType,
    encode_content,
    encode_frame,
)
from headgate.protocols.amqp091.properties import decode_content_header


class ConnectionState(enum.Enum):
    """Where a connection stands; see the head of this module."""

    HEADER = "header"
    STARTING = "starting"
    AUTHENTICATING = "authenticating"
    TUNING = "tuning"
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"
    FINISHED = "finished"


_UNREAD = (ConnectionState.AUTHENTICATING, ConnectionState.FINISHED)
"""States in which nothing is read: until the client is known, and at the end."""

_CONNECTION_METHODS: dict[ConnectionState, type[m.Method]] = {
    ConnectionState.STARTING: m.ConnectionStartOk,
    ConnectionState.TUNING: m.ConnectionTuneOk,
    ConnectionState.OPENING: m.ConnectionOpen,
    ConnectionState.OPEN: m.ConnectionUpdateSecret,
}
"""The one method that each state accepts on channel 0, besides connection.close."""

CHANNEL_METHODS: frozenset[type[m.Method]] = frozenset(
    {
        m.ChannelFlow,
        m.ExchangeDeclare,
        m.ExchangeDelete,
        m.ExchangeBind,
        m.ExchangeUnbind,
        m.QueueDeclare,
        m.QueueBind,
        m.QueuePurge,
        m.QueueDelete,
        m.QueueUnbind,
        m.BasicQos,
        m.BasicConsume,
        m.BasicCancel,
        m.BasicGet,
        m.BasicAck,
        m.BasicReject,
        m.BasicNack,
        m.BasicRecover,
        m.BasicRecoverAsync,
        m.ConfirmSelect,
        m.TxSelect,
        m.TxCommit,
        m.TxRollback,
    }
)
"""Methods that a client may send on an open channel, besides channel.close and basic.publish."""


class ConnectionLimits(msgspec.Struct, frozen=True):
    """The limits of the server; the client may ask for less of the first three."""

    channel_max: int = 2047
    frame_max_bytes: int = 131_072
    heartbeat_s: int = 60
    message_bytes: int = 16_777_216
    unfinished_bytes: int = 4 * 16_777_216
    """Unfinished message bodies, on all channels together."""


class _Channel(msgspec.Struct):
    """A channel, and the message that is coming in on it."""

    is_closing: bool = False
    method: m.BasicPublish | None = None
    header: bytes | None = None
    parts: list[bytes] = []
    missing_bytes: int = 0


class ServerConnection:
    """The core of one connection. `receive` is to be read to its end, output is taken with `take_output`."""

    def __init__(
        self,
        *,
        server_properties: Table,
        mechanisms: Sequence[str],
        limits: ConnectionLimits,
        virtual_host: str = "/",
    ) -> None:
        self.state = ConnectionState.HEADER
        self.limits = limits
        self.channel_max = limits.channel_max
        self.frame_max_bytes = MIN_FRAME_SIZE_BYTES
        self.heartbeat_s = 0
        self.client_properties: Table = {}
        self._server_properties = server_properties
        self._mechanisms = " ".join(mechanisms).encode()
        self._virtual_host = virtual_host
        self._channels: dict[int, _Channel] = {}
        self._buffer = bytearray()
        self._needed = len(PROTOCOL_HEADER)
        self._unfinished_bytes = 0
        self._output: list[bytes] = []

    # what the client says

    def receive(self, data: bytes | memoryview) -> Iterator[Event]:
        """The events of these bytes and of bytes left over; asking for the next event reads the next frame.

        So the answer to an event goes out before the answer to the next. A violation is answered here and becomes an
        event, too; nothing is raised.
        """
        if self.state is not ConnectionState.FINISHED:
            self._buffer += data
        return self._events()

    def _events(self) -> Iterator[Event]:
        if len(self._buffer) < self._needed:
            return
        data = bytes(self._buffer)
        self._buffer.clear()
        position, end = 0, len(data)
        try:
            if self.state is ConnectionState.HEADER:
                position = len(PROTOCOL_HEADER)
                self._protocol_header(data[:position])
            while self.state not in _UNREAD:
                if end - position < FRAME_HEAD.size:
                    self._needed = FRAME_HEAD.size
                    break
                kind, channel, size = FRAME_HEAD.unpack_from(data, position)
                start = position + FRAME_HEAD.size
                if size > self.frame_max_bytes - FRAME_OVERHEAD_BYTES:
                    yield self._frame_error(f"frame of {size} bytes, expected at most {self.frame_max_bytes}")
                    break
                stop = start + size
                if stop >= end:
                    self._needed = size + FRAME_OVERHEAD_BYTES
                    break
                if data[stop] != FRAME_END:
                    yield self._frame_error(f"frame ends with {data[stop]:#04x}, expected {FRAME_END:#04x}")
                    break
                position = stop + 1
                event = self._frame(kind, channel, data[start:stop])
                if event is not None:
                    yield event
        finally:
            if self.state is not ConnectionState.FINISHED:
                self._buffer[:0] = data[position:]

    def _protocol_header(self, header: bytes) -> None:
        if header != PROTOCOL_HEADER:
            self._output.append(PROTOCOL_HEADER)
            self.state = ConnectionState.FINISHED
            return
        self.state = ConnectionState.STARTING
        self._send(0, m.ConnectionStart(0, 9, self._server_properties, self._mechanisms, b"en_US"))

    def _frame_error(self, reason: str) -> Event:
        """Nothing behind a broken frame can be read."""
        error = RemoteProtocolError(reason, code=ReplyCode.FRAME_ERROR)
        was_closing = self.state is ConnectionState.CLOSING
        if not was_closing:
            self._close_connection(ReplyCode.FRAME_ERROR, reason, None)
        self.state = ConnectionState.FINISHED
        return ConnectionFailed(error)

    def _frame(self, kind: int, channel: int, payload: bytes) -> Event | None:
        known = self._channels.get(channel)
        is_closing = self.state is ConnectionState.CLOSING or (known is not None and known.is_closing)
        if is_closing:
            return self._while_closing(channel, payload) if kind == FrameType.METHOD else None
        method: m.Method | None = None
        try:
            if kind == FrameType.METHOD:
                method = decode_method(payload)
                return self._connection_method(method) if channel == 0 else self._channel_method(channel, known, method)
            if kind == FrameType.HEADER and channel:
                return self._content_header(channel, known, payload)
            if kind == FrameType.BODY and channel:
                return self._content_body(channel, known, payload)
            if kind == FrameType.HEARTBEAT and channel == 0:
                return None
            if kind in (FrameType.HEADER, FrameType.BODY, FrameType.HEARTBEAT):
                raise RemoteProtocolError(
                    f"{FrameType(kind).name.lower()} frame on channel {channel}", code=ReplyCode.UNEXPECTED_FRAME
                )
            raise RemoteProtocolError(f"unknown frame type {kind}", code=ReplyCode.FRAME_ERROR)
        except RemoteProtocolError as error:
            self.refuse(channel, ReplyCode(int(error.code)), error.reason, cause=method)
            if self.state is ConnectionState.CLOSING:
                return ConnectionFailed(error)
            return ChannelFailed(channel, error)

    def _while_closing(self, channel: int, payload: bytes) -> Event | None:
        """Handle a method that the peer sent before it read our close: only close and close-ok count."""
        code = FRAME_CODES.get(payload[:4])
        if channel == 0 and code in (m.ConnectionClose, m.ConnectionCloseOk):
            if code is m.ConnectionClose:
                self._send(0, m.ConnectionCloseOk())
            self.state = ConnectionState.FINISHED
        elif self.state is not ConnectionState.CLOSING and code in (m.ChannelClose, m.ChannelCloseOk):
            if code is m.ChannelClose:
                self._send(channel, m.ChannelCloseOk())
            else:
                del self._channels[channel]
        return None

    def _connection_method(self, method: m.Method) -> Event | None:
        if isinstance(method, m.ConnectionClose):
            self._send(0, m.ConnectionCloseOk())
            self.finish()
            return ConnectionClosed()
        if type(method) is not _CONNECTION_METHODS.get(self.state):
            raise RemoteProtocolError(
                f"unexpected method {type(method).__name__} in connection state {self.state.value}",
                code=ReplyCode.CHANNEL_ERROR if self.state is ConnectionState.OPEN else ReplyCode.COMMAND_INVALID,
            )
        if isinstance(method, m.ConnectionStartOk):
            self.state = ConnectionState.AUTHENTICATING
            self.client_properties = method.client_properties
            return Authenticate(method.mechanism, method.response)
        if isinstance(method, m.ConnectionTuneOk):
            self._tune(method)
            return None
        if isinstance(method, m.ConnectionOpen):
            if method.virtual_host != self._virtual_host:
                raise RemoteProtocolError(f"vhost {method.virtual_host} not found", code=ReplyCode.NOT_ALLOWED)
            self.state = ConnectionState.OPEN
            self._send(0, m.ConnectionOpenOk())
            return None
        return MethodReceived(0, method)

    def _tune(self, method: m.ConnectionTuneOk) -> None:
        for name, found, low, high in (
            ("frame_max", method.frame_max, MIN_FRAME_SIZE_BYTES, self.limits.frame_max_bytes),
            ("channel_max", method.channel_max, 1, self.limits.channel_max),
        ):
            if not low <= found <= high:
                raise RemoteProtocolError(
                    f"negotiated {name} = {found} is not within {low} and {high}", code=ReplyCode.NOT_ALLOWED
                )
        self.frame_max_bytes = method.frame_max
        self.channel_max = method.channel_max
        self.heartbeat_s = method.heartbeat
        self.state = ConnectionState.OPENING

    def _channel_method(self, channel: int, known: _Channel | None, method: m.Method) -> Event | None:
        if self.state is not ConnectionState.OPEN:
            raise RemoteProtocolError(
                f"channel {channel} used in connection state {self.state.value}", code=ReplyCode.UNEXPECTED_FRAME
            )
        if isinstance(method, m.ChannelOpen):
            if known is not None:
                raise RemoteProtocolError("second 'channel.open' seen", code=ReplyCode.CHANNEL_ERROR)
            if channel > self.channel_max or len(self._channels) >= self.channel_max:
                raise RemoteProtocolError(
                    f"channel {channel} is beyond the negotiated channel_max ({self.channel_max})",
                    code=ReplyCode.NOT_ALLOWED,
                )
            self._channels[channel] = _Channel()
            self._send(channel, m.ChannelOpenOk())
            return ChannelOpened(channel)
        if known is None:
            raise RemoteProtocolError("expected 'channel.open'", code=ReplyCode.CHANNEL_ERROR)
        if known.method is not None:
            raise RemoteProtocolError(
                f"{type(method).__name__} in the middle of a message", code=ReplyCode.UNEXPECTED_FRAME
            )
        if isinstance(method, m.BasicPublish):
            known.method = method
            return None
        if isinstance(method, m.ChannelClose):
            del self._channels[channel]
            self._send(channel, m.ChannelCloseOk())
            return ChannelClosed(channel)
        if type(method) not in CHANNEL_METHODS:
            raise RemoteProtocolError(
                f"{type(method).__name__} is not for clients to send here", code=ReplyCode.COMMAND_INVALID
            )
        return MethodReceived(channel, method)

    # contents

    def _content_header(self, channel: int, known: _Channel | None, payload: bytes) -> Event | None:
        if known is None or known.method is None or known.header is not None:
            raise RemoteProtocolError("content header without a method for it", code=ReplyCode.UNEXPECTED_FRAME)
        size, _ = decode_content_header(payload)
        if size > self.limits.message_bytes:
            raise RemoteProtocolError(
                f"message size {size} is larger than configured max size {self.limits.message_bytes}",
                code=ReplyCode.PRECONDITION_FAILED,
            )
        if not size:
            return self._published(channel, known, payload, b"")
        known.header = payload
        known.missing_bytes = size
        return None

    def _content_body(self, channel: int, known: _Channel | None, payload: bytes) -> Event | None:
        if known is None or known.header is None:
            raise RemoteProtocolError("content body without a header for it", code=ReplyCode.UNEXPECTED_FRAME)
        if len(payload) > known.missing_bytes:
            raise RemoteProtocolError(
                f"{len(payload)} bytes of body, {known.missing_bytes} expected", code=ReplyCode.FRAME_ERROR
            )
        known.missing_bytes -= len(payload)
        if not known.missing_bytes and not known.parts:
            return self._published(channel, known, known.header, payload)
        known.parts.append(payload)
        self._unfinished_bytes += len(payload)
        if not known.missing_bytes:
            return self._published(channel, known, known.header, b"".join(known.parts))
        if self._unfinished_bytes > self.limits.unfinished_bytes:
            raise RemoteProtocolError("too much content that has begun and not ended", code=ReplyCode.RESOURCE_ERROR)
        return None

    def _published(self, channel: int, known: _Channel, header: bytes, body: bytes) -> Event:
        method = known.method
        assert method is not None
        self._forget_content(known)
        return Published(channel, method, header, body)

    def _forget_content(self, known: _Channel) -> None:
        if known.parts:
            self._unfinished_bytes -= sum(map(len, known.parts))
            known.parts = []
        known.method = known.header = None

    # what this side says

    def authenticated(self) -> None:
        """Accept the client's credentials; the next `receive` reads the bytes that it sent meanwhile.

        Raises LocalProtocolError.
        """
        if self.state is not ConnectionState.AUTHENTICATING:
            raise LocalProtocolError(f"authenticated in connection state {self.state.value}")
        self.state = ConnectionState.TUNING
        self._needed = 0
        limits = self.limits
        self._send(0, m.ConnectionTune(limits.channel_max, limits.frame_max_bytes, limits.heartbeat_s))
        self.frame_max_bytes = limits.frame_max_bytes

    def client_can(self, capability: str) -> bool:
        """Whether the client announced a capability, such as `consumer_cancel_notify`."""
        capabilities = self.client_properties.get("capabilities")
        if capabilities is None or capabilities.type is not FieldType.TABLE:
            return False
        announced = capabilities.value.get(capability)
        return announced is not None and announced.type is FieldType.BOOLEAN and announced.value

    def is_open(self, channel: int) -> bool:
        """Whether methods may be sent on a channel, or on the connection (0)."""
        if self.state is not ConnectionState.OPEN:
            return False
        known = self._channels.get(channel)
        return channel == 0 or (known is not None and not known.is_closing)

    def send(self, channel: int, method: m.Method) -> None:
        """Send a method on an open channel, or on channel 0 of an open connection. Raises LocalProtocolError."""
        self._check_open(channel)
        self._send(channel, method)

    def send_content(self, channel: int, method: bytes, header: bytes, body: bytes) -> int:
        """Send a method with content: payloads of method and header, and the body; gives the size of the frames.

        Raises LocalProtocolError.
        """
        self._check_open(channel)
        frames = encode_content(channel, method, header, body, self.frame_max_bytes)
        self._output.append(frames)
        return len(frames)

    def send_heartbeat(self) -> None:
        """Send a heartbeat."""
        self._output.append(HEARTBEAT)

    def refuse(self, channel: int, code: ReplyCode, reason: str, *, cause: m.Method | None = None) -> None:
        """Close the channel with this code; the connection, if the code is not one of channels.

        Raises LocalProtocolError on a channel that is not open.
        """
        if channel and code in CHANNEL_CODES:
            self._check_open(channel)
            known = self._channels[channel]
            known.is_closing = True
            self._forget_content(known)
            self._send(channel, m.ChannelClose(code, reply_text(code, reason), *(cause.CODE if cause else (0, 0))))
        else:
            self._close_connection(code, reason, cause)

    def close(self, code: ReplyCode, reason: str) -> None:
        """End the connection; does nothing if it has ended."""
        if self.state in (ConnectionState.HEADER, ConnectionState.STARTING):
            self.finish()
        elif self.state not in (ConnectionState.CLOSING, ConnectionState.FINISHED):
            self._close_connection(code, reason, None)

    def finish(self) -> None:
        """End the connection silently: nothing more is read or sent."""
        self.state = ConnectionState.FINISHED
        self._channels.clear()
        self._buffer.clear()
        self._unfinished_bytes = 0

    def take_output(self) -> bytes:
        """The bytes to be sent since the last time."""
        output = b"".join(self._output)
        self._output.clear()
        return output

    def _close_connection(self, code: ReplyCode, reason: str, cause: m.Method | None) -> None:
        self._channels.clear()
        self._unfinished_bytes = 0
        self.state = ConnectionState.CLOSING
        self._needed = min(self._needed, FRAME_HEAD.size)
        self._send(0, m.ConnectionClose(code, reply_text(code, reason), *(cause.CODE if cause else (0, 0))))

    def _check_open(self, channel: int) -> None:
        if not self.is_open(channel):
            raise LocalProtocolError(f"channel {channel} is not open, connection state {self.state.value}")

    def _send(self, channel: int, method: m.Method) -> None:
        self._output.append(encode_frame(FrameType.METHOD, channel, encode_method(method)))


FRAME_CODES: dict[bytes, type[m.Method]] = {
    b"".join(number.to_bytes(2, "big") for number in method.CODE): method for method in m.METHODS.values()
}
"""Methods by the first four bytes of their frames."""
