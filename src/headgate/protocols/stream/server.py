"""The server's side of a connection: the frames that each state allows, and their answers (stream_protocol.md, 3)."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from headgate.errors import LocalProtocolError, RemoteProtocolError
from headgate.protocols.stream import frames as f
from headgate.protocols.stream.codec import decode_from_client, encode
from headgate.protocols.stream.codes import Command, ResponseCode
from headgate.protocols.stream.deliver_frames import Buffer, encode_deliver
from headgate.protocols.stream.framing import FrameAssembler, ProtocolViolation, lower_limit
from headgate.protocols.stream.publish_frames import (
    DEFAULT_EXPANSION_LIMIT_BYTES,
    PUBLISH_HEAD_BYTES,
    Publish,
    encode_confirms,
    encode_publish_errors,
    parse_publish_run,
)
from headgate.protocols.stream.wire import malformed

UInt64Array = NDArray[np.uint64]
Int64Array = NDArray[np.int64]


class ServerState(StrEnum):
    """How far a connection is."""

    CONNECTED = "connected"
    GREETED = "greeted"
    HANDSHAKEN = "mechanisms listed"
    AUTHENTICATING = "authenticating"
    TUNING = "tuning"
    TUNED = "tuned"
    OPENING = "opening"
    OPENED = "open"
    CLOSING = "closing"
    LEAVING = "closed by the client"
    CLOSED = "closed"


_OPENING = {f.PeerProperties, f.SaslHandshake, f.Tune, f.TuneReply, f.Open}
_STEADY = set(f.FROM_CLIENT) - _OPENING - {f.Close, f.CloseReply}

_NEXT: Mapping[ServerState, Mapping[type[f.Frame], ServerState]] = {
    ServerState.CONNECTED: {f.PeerProperties: ServerState.GREETED},
    ServerState.GREETED: {f.SaslHandshake: ServerState.HANDSHAKEN},
    ServerState.HANDSHAKEN: {f.SaslAuthenticate: ServerState.AUTHENTICATING},
    ServerState.AUTHENTICATING: {},
    ServerState.TUNING: {
        f.Tune: ServerState.TUNED,
        f.TuneReply: ServerState.TUNED,
        f.Heartbeat: ServerState.TUNING,
    },
    ServerState.TUNED: {f.Open: ServerState.OPENING, f.Heartbeat: ServerState.TUNED},
    ServerState.OPENING: {},
    ServerState.OPENED: {**dict.fromkeys(_STEADY, ServerState.OPENED), f.Close: ServerState.LEAVING},
    ServerState.CLOSING: {f.CloseReply: ServerState.CLOSED, f.Close: ServerState.LEAVING},
    ServerState.LEAVING: {},
    ServerState.CLOSED: {},
}
"""Frames that each state accepts, and the state after them; an open connection accepts `Publish` as well."""

_DECIDED_BY_REPLY = {
    ServerState.AUTHENTICATING: (f.SaslAuthenticateReply, ServerState.TUNING),
    ServerState.OPENING: (f.OpenReply, ServerState.OPENED),
}
"""States that end with our reply: with code OK in the state given, else closed."""

_WAITS_FOR_REPLY = (f.SaslAuthenticate, f.Open)
"""Requests that halt reading until they are answered."""

_DEAF = (ServerState.LEAVING, ServerState.CLOSED)
"""States in which received bytes are ignored."""

FRAME_MAX_BEFORE_OPEN = 8192
_HELD_MAX = 4 << 20
_SIZE = struct.Struct(">I")
_KEY = struct.Struct(">H")
_PUBLISH_VERSIONS = (b"\0\1", b"\0\2")
_CLOSE_CORRELATION = 1
_REASONS = {ResponseCode.UNKNOWN_FRAME: "unknown frame", ResponseCode.FRAME_TOO_LARGE: "frame too large"}


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The limits of a server: frame size in bytes, heartbeat in seconds, 0 is none; sub-batch expansion in bytes."""

    frame_max: int = 1 << 20
    heartbeat_s: int = 60
    expansion_limit_bytes: int = DEFAULT_EXPANSION_LIMIT_BYTES


ServerEvent = f.Frame | Publish | ProtocolViolation


class ServerConnection:
    """Bytes of a client in, events out; replies in, bytes out.

    Requests, `Close` among them, are answered in their order with `send(reply)`. `SaslAuthenticate`, `Open` and a
    ProtocolViolation halt reading until they are answered (the last with `fail`); then `go_on` gives the later events.
    When the state is CLOSED and the output is taken, the socket is closed.
    """

    def __init__(self, limits: ServerLimits | None = None) -> None:
        self.limits = limits or ServerLimits()
        self.state = ServerState.CONNECTED
        self.frame_max = self.limits.frame_max
        """The largest frame, without its size, that either side sends once it is tuned; 0 is no limit."""
        self.heartbeat_s = self.limits.heartbeat_s
        self.deliver_version = 1
        self._frames = FrameAssembler(self._walk)
        self._events: list[ServerEvent] = []
        self.output = bytearray()
        """The bytes for the client that `take_output` gives."""
        self._unanswered: deque[tuple[Command, int]] = deque()
        self._last_correlation = _CLOSE_CORRELATION
        self._violation: ProtocolViolation | None = None

    def receive(self, data: bytes | bytearray | memoryview) -> list[ServerEvent]:
        """The events of these bytes and of an incomplete frame before them. `data` is not kept. Never raises."""
        if self.state not in _DEAF:
            self._frames.receive(data)
            limit = _HELD_MAX if self.state is ServerState.OPENED else FRAME_MAX_BEFORE_OPEN
            if self._frames.is_halted and self._frames.held_bytes > limit and self._violation is None:
                self._violated("more behind a request than may wait for its reply", ResponseCode.FRAME_TOO_LARGE)
        events, self._events = self._events, []
        return events

    def go_on(self) -> list[ServerEvent]:
        """The events of bytes that came while reading was halted; empty while it is halted."""
        if self._frames.is_halted and self._violation is None and not self._waits():
            self._frames.go_on()
        events, self._events = self._events, []
        return events

    def send(self, frame: f.Frame) -> None:
        """Send a frame; a reply must belong to the oldest unanswered request. Raises LocalProtocolError."""
        if self.state is ServerState.CLOSED:
            raise LocalProtocolError(f"{type(frame).__name__} on a closed connection")
        if isinstance(frame, f.Reply | f.MetadataReply):
            asked = (frame.command, frame.correlation_id)
            if not self._unanswered or self._unanswered[0] != asked:
                raise LocalProtocolError(f"{type(frame).__name__} {frame.correlation_id} answers no request in turn")
            self._unanswered.popleft()
        else:
            self._check_open(type(frame).__name__)
        self.output += encode(frame)
        if isinstance(frame, f.CloseReply):
            self.state = ServerState.CLOSED
        elif self.state in _DECIDED_BY_REPLY:
            self._decided(frame)

    def reply(self, request: f.Request, code: int = ResponseCode.OK) -> None:
        """Answer a request with nothing but a code."""
        self.send(f.REPLY_OF[request.command](correlation_id=request.correlation_id, code=code))

    def ask_consumer(self, subscription_id: int, *, active: bool) -> int:
        """Send a ConsumerUpdate; gives the correlation id that its reply will have."""
        self._last_correlation = self._last_correlation % (2**32 - 1) + 1
        correlation = self._last_correlation
        self.send(f.ConsumerUpdate(subscription_id, int(active), correlation_id=correlation))
        return correlation

    def confirm(self, publisher_id: int, publishing_ids: UInt64Array) -> None:
        """The entries of these publishing ids are in the stream. Raises LocalProtocolError."""
        self._check_open("PublishConfirm")
        self.output += encode_confirms(publisher_id, publishing_ids, frame_max=self.frame_max)

    def refuse(self, publisher_id: int, publishing_ids: UInt64Array, code: ResponseCode) -> None:
        """The entries of these publishing ids are not in the stream. Raises LocalProtocolError."""
        self._check_open("PublishError")
        self.output += encode_publish_errors(publisher_id, publishing_ids, code, frame_max=self.frame_max)

    def deliver(
        self,
        subscription_id: int,
        data: NDArray[np.uint8],
        *,
        header_starts: Int64Array,
        data_starts: Int64Array,
        data_lengths: Int64Array,
        committed_chunk_id: int,
    ) -> list[Buffer]:
        """The output up to now and Deliver frames for chunks behind it, in pieces; arguments as `encode_deliver`.

        Raises LocalProtocolError.
        """
        self._check_open("Deliver")
        frames = encode_deliver(
            subscription_id,
            data,
            header_starts=header_starts,
            data_starts=data_starts,
            data_lengths=data_lengths,
            committed_chunk_id=committed_chunk_id,
            version=self.deliver_version,
        )
        return [self.take_output(), *frames] if self.output else frames

    def close(self, code: ResponseCode, reason: str) -> None:
        """Send Close on an open connection and wait for the client's reply. Raises LocalProtocolError."""
        self._check_open("Close")
        self.output += encode(f.Close(code, reason, correlation_id=_CLOSE_CORRELATION))
        self._unanswered.clear()
        self.state = ServerState.CLOSING
        # Read what waited for a reply that is not sent any more: the client's own Close may be in it.
        self._frames.go_on()

    def fail(self, violation: ProtocolViolation) -> None:
        """Answer a violation: with a Close where the protocol has one for it, else the connection is CLOSED at once."""
        self._violation = None
        if violation.is_answered and self.state is ServerState.OPENED:
            self.close(ResponseCode(int(violation.error.code)), _REASONS[ResponseCode(int(violation.error.code))])
        else:
            self.state = ServerState.CLOSED

    def take_output(self) -> bytes:
        """The bytes to write to the client; each byte is returned once."""
        if not self.output:
            return b""
        output = bytes(self.output)
        self.output.clear()
        return output

    def _waits(self) -> bool:
        return bool(self._unanswered) and self._unanswered[-1][0] in (Command.SASL_AUTHENTICATE, Command.OPEN)

    def _walk(self, view: memoryview, position: int) -> int:
        while not self._frames.is_halted:
            if self.state in _DEAF:
                return len(view)
            left = len(view) - position
            if left < _SIZE.size:
                return position
            if self.state is ServerState.OPENED and left >= 6 and _KEY.unpack_from(view, position + 4)[0] == 2:
                published, position = parse_publish_run(
                    view,
                    position,
                    frame_max=self.frame_max or 2**32,
                    expansion_limit_bytes=self.limits.expansion_limit_bytes,
                )
                self._events += published
                left = len(view) - position
                if left < _SIZE.size:
                    return position
            size = _SIZE.unpack_from(view, position)[0]
            is_tuned = self.state in (ServerState.OPENED, ServerState.CLOSING)
            if size > ((self.frame_max or 2**32) if is_tuned else FRAME_MAX_BEFORE_OPEN):
                self._frames.skip(_SIZE.size + size)
                if self.state is not ServerState.CLOSING:
                    self._violated(f"a frame of {size} bytes", ResponseCode.FRAME_TOO_LARGE)
                return position
            if left < _SIZE.size + size:
                return position
            body = bytes(view[position + _SIZE.size : position + _SIZE.size + size])
            position += _SIZE.size + size
            self._receive_frame(body)
        return position

    def _receive_frame(self, body: bytes) -> None:
        if self.state is ServerState.OPENED and len(body) >= 2 and _KEY.unpack_from(body)[0] == Command.PUBLISH:
            # A whole one that was not read in bulk. Where it is one at all, the original closes silently.
            is_one = len(body) >= PUBLISH_HEAD_BYTES - _SIZE.size and body[2:4] in _PUBLISH_VERSIONS
            self._violated("malformed frame: Publish", ResponseCode.UNKNOWN_FRAME, is_answered=not is_one)
            return
        try:
            frame = decode_from_client(body)
            following = _NEXT[self.state].get(type(frame))
            if following is None:
                malformed(f"{type(frame).__name__} while the connection is {self.state.value}")
        except RemoteProtocolError as error:
            # What still comes when we have sent Close was sent before the client read it.
            if self.state is not ServerState.CLOSING:
                self._violated(error.reason, ResponseCode.UNKNOWN_FRAME)
            return
        self.state = following
        self._events.append(frame)
        self._take_in(frame)

    def _take_in(self, frame: f.Frame) -> None:
        if isinstance(frame, f.Request):
            self._unanswered.append((frame.command, frame.correlation_id))
            self._frames.is_halted = isinstance(frame, _WAITS_FOR_REPLY)
        elif isinstance(frame, f.Tune):
            self.frame_max = lower_limit(self.limits.frame_max, frame.frame_max)
            self.heartbeat_s = lower_limit(self.limits.heartbeat_s, frame.heartbeat_s)
        if isinstance(frame, f.ExchangeCommandVersions):
            deliver = [highest for key, _, highest in frame.versions if key == Command.DELIVER]
            self.deliver_version = 2 if deliver and max(deliver) >= 2 else 1

    def _decided(self, frame: f.Frame) -> None:
        reply, following = _DECIDED_BY_REPLY[self.state]
        if isinstance(frame, reply):
            self.state = following if frame.code == ResponseCode.OK else ServerState.CLOSED
            if self.state is ServerState.TUNING:
                self.output += encode(f.Tune(self.limits.frame_max, self.limits.heartbeat_s))

    def _violated(self, reason: str, code: ResponseCode, *, is_answered: bool = True) -> None:
        self._violation = ProtocolViolation(
            RemoteProtocolError(reason, code=code), is_answered and self.state is ServerState.OPENED
        )
        self._events.append(self._violation)
        self._frames.is_halted = True

    def _check_open(self, what: str) -> None:
        # Until its Close is answered a client may be told what happened before.
        if self.state not in (ServerState.OPENED, ServerState.LEAVING):
            raise LocalProtocolError(f"{what} while the connection is {self.state.value}")
