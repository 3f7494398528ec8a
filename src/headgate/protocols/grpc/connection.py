"""One connection of HTTP/2 with calls of gRPC, at the server's end.

    receive(bytes) → events        take_output() → bytes
    CallBegan      a call's headers are there: answer it, or refuse it by its end
    CallReadable   `take_message` gives another answer than before: a message, or that there is none any more
    CallWritable   all that was written to a call has left
    CallEnded      the peer gave it up, or broke the rules: nothing of it is taken any more

Limit: until `take_message` asks for them, the peer may send 64 KiB of a call's messages, one window. A ViolationError
of `receive` ends the connection; a fault of one call ends that call. No bytes of a peer raise anything else.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import hpack

from headgate.errors import RemoteProtocolError
from headgate.protocols.grpc import framing
from headgate.protocols.grpc.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    FRAME_BYTES,
    HEADER_BYTES,
    LARGEST_WINDOW,
    PADDED,
    PREFACE,
    PRIORITIZED,
    WINDOW_BYTES,
    ErrorCode,
    Frame,
    Setting,
    frame,
    go_away,
    reset,
    settings,
    window_update,
)
from headgate.protocols.grpc.framing import PREFIX_BYTES, StatusCode

_CONNECTION_WINDOW = 4 << 20
_MOST_BLOCK_BYTES = 32_768
"""Limit: bytes of a block of header fields as sent; expanded, the connection's limit counts."""
_MOST_CONTINUATIONS = 8
_MOST_IDLE_FRAMES = 10_000
"""Limit: frames in a row that advance no call; more end the connection."""
_FIXED_SIZES = {Frame.PRIORITY: 5, Frame.RST_STREAM: 4, Frame.PING: 8, Frame.WINDOW_UPDATE: 4}
_NUMBER = struct.Struct(">I")
_SETTING = struct.Struct(">HI")


class ViolationError(RemoteProtocolError):
    """The peer broke the rules of HTTP/2; it was told, and the connection is over."""

    def __init__(self, reason: str, error: ErrorCode = ErrorCode.PROTOCOL_ERROR) -> None:
        super().__init__(reason, code=error)
        self.error = error


@dataclass(frozen=True, slots=True)
class GrpcLimits:
    """The limits for one peer."""

    calls: int
    """Calls at once; further calls wait at the peer, or are refused."""
    message_bytes: int
    header_bytes: int = 16_384


@dataclass(frozen=True, slots=True)
class CallBegan:
    """A call to `path`; `headers` are the client's other header fields."""

    call: int
    path: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CallReadable:
    """A wanted message has arrived, or no more will come."""

    call: int


@dataclass(frozen=True, slots=True)
class CallWritable:
    """All that was written to the call has left."""

    call: int


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The call is over before it was answered."""

    call: int


Event: TypeAlias = CallBegan | CallReadable | CallWritable | CallEnded


class _Stream:
    """The state of one call."""

    __slots__ = (
        "buffer",
        "encoding",
        "has_ended",
        "has_headers",
        "is_wanted",
        "left",
        "receive_window",
        "received",
        "send_window",
        "trailers",
    )

    def __init__(self, send_window: int) -> None:
        self.receive_window = WINDOW_BYTES
        self.send_window = send_window
        self.buffer = bytearray()
        self.encoding = ""
        self.received = 0
        """Bytes of messages so far."""
        self.is_wanted = False
        self.has_ended = False
        """The peer sends no more."""
        self.has_headers = False
        """Ours were sent."""
        self.left: deque[memoryview] = deque()
        """Encoded messages that wait for the peer's windows."""
        self.trailers: bytes | None = None
        """The trailers to send after `left`."""


class GrpcConnection:
    """The calls of one connection, by the numbers of their streams."""

    def __init__(self, limits: GrpcLimits) -> None:
        self._limits = limits
        self._input = bytearray()
        self._has_preface = False
        self._has_settings = False
        self._streams: dict[int, _Stream] = {}
        self._last = 0
        """The highest number of a stream of the peer."""
        self._is_leaving = False
        self._decoder = hpack.Decoder(limits.header_bytes)
        self._block: tuple[int, int, bytearray, int] | None = None
        """An unfinished block of header fields: stream, flags, its bytes so far, number of further frames."""
        self._receive_window = _CONNECTION_WINDOW
        self._send_window = WINDOW_BYTES
        self._initial_send_window = WINDOW_BYTES
        self._most_frame_bytes = FRAME_BYTES
        self._idle_frames = 0
        self.frames = 0
        """How many came."""
        self._held: dict[int, None] = {}
        """Calls with messages that wait for a window."""
        self._events: list[Event] = []
        told = {
            Setting.MAX_CONCURRENT_STREAMS: limits.calls,
            Setting.MAX_HEADER_LIST_SIZE: limits.header_bytes,
        }
        self._output: list[bytes] = [settings(told), window_update(0, _CONNECTION_WINDOW - WINDOW_BYTES)]

    # what the peer sends

    def receive(self, data: bytes | memoryview) -> list[Event]:
        """Take bytes of the peer. Raises ViolationError, once; then only `take_output` has a meaning."""
        self._input += data
        self._events = []
        try:
            self._read()
        except ViolationError as error:
            self._output.append(go_away(self._last, error.error, error.reason))
            raise
        return self._events

    @property
    def has_part(self) -> bool:
        """Whether the peer owes the rest of a frame, or of a block of header fields."""
        return bool(self._input) or self._block is not None

    def received(self, call: int) -> int | None:
        """How many bytes of a message that began have come; None where the peer owes nothing of one."""
        stream = self._streams.get(call)
        if stream is None or stream.has_ended or self._size(stream) is not None or not stream.is_wanted:
            return None
        return stream.received

    def has_part_of(self, call: int) -> bool:
        """Whether a part of a message is there."""
        stream = self._streams.get(call)
        return stream is not None and bool(stream.buffer)

    def take_output(self) -> list[bytes]:
        """The bytes to send, in pieces; once."""
        taken, self._output = self._output, []
        return taken

    @property
    def calls(self) -> int:
        """How many there are."""
        return len(self._streams)

    def _read(self) -> None:
        data = self._input
        position = 0
        if not self._has_preface:
            if not PREFACE.startswith(bytes(data[: len(PREFACE)])):
                raise ViolationError("found bytes that are not HTTP/2, expected its connection preface")
            if len(data) < len(PREFACE):
                return
            self._has_preface = True
            position = len(PREFACE)
        end = len(data)
        view = memoryview(data)
        while end - position >= HEADER_BYTES:
            size = data[position] << 16 | data[position + 1] << 8 | data[position + 2]
            if size > FRAME_BYTES:
                view.release()
                raise ViolationError(f"a frame of {size} bytes", ErrorCode.FRAME_SIZE_ERROR)
            begin = position + HEADER_BYTES
            if end - begin < size:
                break
            kind, flags = data[position + 3], data[position + 4]
            (stream,) = _NUMBER.unpack_from(data, position + 5)
            position = begin + size
            self.frames += 1
            self._frame(kind, flags, stream & LARGEST_WINDOW, bytes(view[begin:position]))
        view.release()
        del data[:position]

    def _frame(self, kind: int, flags: int, stream: int, content: bytes) -> None:
        if self._block is not None and (kind != Frame.CONTINUATION or stream != self._block[0]):
            raise ViolationError("found another frame, expected CONTINUATION of the header fields")
        if not self._has_settings and (kind != Frame.SETTINGS or flags & ACK):
            raise ViolationError("the first frame does not tell settings")
        if _FIXED_SIZES.get(kind, len(content)) != len(content):  # type: ignore[call-overload]
            raise ViolationError("a frame of a wrong size", ErrorCode.FRAME_SIZE_ERROR)
        if kind == Frame.DATA:
            self._data(flags, stream, content)
            return
        if kind == Frame.HEADERS:
            self._headers(flags, stream, content)
            return
        self._idle_frames += 1
        if self._idle_frames > _MOST_IDLE_FRAMES:
            raise ViolationError("too many frames that bring nothing on", ErrorCode.ENHANCE_YOUR_CALM)
        match kind:
            case Frame.CONTINUATION:
                self._continuation(flags, content)
            case Frame.SETTINGS:
                self._settings(flags, stream, content)
            case Frame.PING:
                if stream:
                    raise ViolationError("a ping of a stream")
                if not flags & ACK:
                    self._output.append(frame(Frame.PING, ACK, 0, content))
            case Frame.WINDOW_UPDATE:
                self._window_update(stream, content)
            case Frame.RST_STREAM:
                self._check_begun(stream)
                if self._forget(stream):
                    self._events.append(CallEnded(stream))
            case Frame.PRIORITY:
                if not stream:
                    raise ViolationError("a priority of no stream")
            case Frame.GOAWAY:
                if stream:
                    raise ViolationError("a stream goes away")
                self._is_leaving = True
            case Frame.PUSH_PROMISE:
                raise ViolationError("a promise of a client")
            case _:
                # Extensions of HTTP/2 are not known here.
                pass

    def _check_begun(self, stream: int) -> None:
        if not stream % 2 or stream > self._last:
            raise ViolationError("a frame of a stream that was not begun")

    def _settings(self, flags: int, stream: int, content: bytes) -> None:
        if stream:
            raise ViolationError("settings of a stream")
        if flags & ACK:
            if content:
                raise ViolationError("an answer to settings with content", ErrorCode.FRAME_SIZE_ERROR)
            return
        if len(content) % _SETTING.size:
            raise ViolationError("settings of a wrong size", ErrorCode.FRAME_SIZE_ERROR)
        self._has_settings = True
        for name, value in _SETTING.iter_unpack(content):
            if name == Setting.INITIAL_WINDOW_SIZE:
                if value > LARGEST_WINDOW:
                    raise ViolationError("too large a window", ErrorCode.FLOW_CONTROL_ERROR)
                more, self._initial_send_window = value - self._initial_send_window, value
                for each in self._streams.values():
                    each.send_window += more
                    if each.send_window > LARGEST_WINDOW:
                        raise ViolationError("too large a window", ErrorCode.FLOW_CONTROL_ERROR)
            elif name == Setting.MAX_FRAME_SIZE:
                if not FRAME_BYTES <= value < 1 << 24:
                    raise ViolationError("a wrong size of frames")
                self._most_frame_bytes = min(value, 1 << 20)
            elif name == Setting.ENABLE_PUSH and value > 1:
                raise ViolationError("a wrong setting")
        self._output.append(frame(Frame.SETTINGS, ACK, 0))
        self._send_held()

    def _window_update(self, number: int, content: bytes) -> None:
        count = _NUMBER.unpack(content)[0] & LARGEST_WINDOW
        if not number:
            self._send_window += count
            if not count or self._send_window > LARGEST_WINDOW:
                raise ViolationError("a wrong window", ErrorCode.FLOW_CONTROL_ERROR)
            self._send_held()
            return
        self._check_begun(number)
        stream = self._streams.get(number)
        if stream is None:
            return
        stream.send_window += count
        if not count or stream.send_window > LARGEST_WINDOW:
            self._break(number, ErrorCode.FLOW_CONTROL_ERROR)
        elif stream.left:
            self._send(number, stream)

    def _headers(self, flags: int, stream: int, content: bytes) -> None:
        if not stream % 2:
            raise ViolationError("a stream of the server")
        content = _unpadded(flags, content)
        if flags & PRIORITIZED:
            if len(content) < 5:
                raise ViolationError("a priority of a wrong size", ErrorCode.FRAME_SIZE_ERROR)
            content = content[5:]
        if flags & END_HEADERS:
            self._begin(stream, flags, content)
        else:
            self._block = (stream, flags, bytearray(content), 0)

    def _continuation(self, flags: int, content: bytes) -> None:
        if self._block is None:
            raise ViolationError("a continuation of nothing")
        stream, first_flags, block, frames = self._block
        block += content
        if len(block) > _MOST_BLOCK_BYTES or frames >= _MOST_CONTINUATIONS:
            raise ViolationError("too many header fields", ErrorCode.ENHANCE_YOUR_CALM)
        if flags & END_HEADERS:
            self._block = None
            self._begin(stream, first_flags, bytes(block))
        else:
            self._block = (stream, first_flags, block, frames + 1)

    def _begin(self, number: int, flags: int, block: bytes) -> None:
        # Also of a call that is not served: the table of fields is of the whole connection.
        try:
            fields = self._decoder.decode(block, raw=True)
        except Exception as error:
            # hpack has errors of its own, and lets others through for some wrong bytes.
            raise ViolationError(f"header fields: {error}", ErrorCode.COMPRESSION_ERROR) from error
        if number <= self._last:
            self._trailers(number, flags)
            return
        self._last = number
        if self._is_leaving or len(self._streams) >= self._limits.calls:
            self._output.append(reset(number, ErrorCode.REFUSED_STREAM))
            return
        headers = {_text(name): _text(value) for name, value in fields}
        path = headers.get(":path", "")
        if headers.get(":method") != "POST" or not path.startswith("/"):
            self._output.append(reset(number, ErrorCode.PROTOCOL_ERROR))
            return
        if not headers.get("content-type", "").startswith("application/grpc"):
            fields_sent = framing.UNSUPPORTED_MEDIA_TYPE
            self._output.append(frame(Frame.HEADERS, END_HEADERS | END_STREAM, number, fields_sent))
            return
        stream = self._streams[number] = _Stream(self._initial_send_window)
        stream.encoding = headers.get("grpc-encoding", "identity")
        stream.has_ended = bool(flags & END_STREAM)
        self._events.append(CallBegan(number, path, headers))

    def _trailers(self, number: int, flags: int) -> None:
        stream = self._streams.get(number)
        if stream is None:
            return
        if stream.has_ended or not flags & END_STREAM:
            self._break(number, ErrorCode.PROTOCOL_ERROR)
            return
        stream.has_ended = True
        self._told_readable(number, stream)

    def _data(self, flags: int, number: int, content: bytes) -> None:
        self._check_begun(number)
        size = len(content)
        self._receive_window -= size
        if self._receive_window < 0:
            raise ViolationError("more than the window", ErrorCode.FLOW_CONTROL_ERROR)
        if self._receive_window < _CONNECTION_WINDOW // 2:
            self._output.append(window_update(0, _CONNECTION_WINDOW - self._receive_window))
            self._receive_window = _CONNECTION_WINDOW
        content = _unpadded(flags, content)
        stream = self._streams.get(number)
        if stream is None:
            return
        stream.receive_window -= size
        if stream.has_ended or stream.receive_window < 0:
            self._break(number, ErrorCode.STREAM_CLOSED if stream.has_ended else ErrorCode.FLOW_CONTROL_ERROR)
            return
        if content:
            self._idle_frames = 0
            stream.buffer += content
            stream.received += len(content)
        elif not flags & END_STREAM:
            self._idle_frames += 1
            if self._idle_frames > _MOST_IDLE_FRAMES:
                raise ViolationError("too many frames that bring nothing on", ErrorCode.ENHANCE_YOUR_CALM)
        stream.has_ended = bool(flags & END_STREAM)
        if stream.is_wanted:
            self._told_readable(number, stream)

    def _told_readable(self, number: int, stream: _Stream) -> None:
        if stream.is_wanted and (stream.has_ended or self._size(stream) is not None):
            stream.is_wanted = False
            self._events.append(CallReadable(number))
        elif stream.is_wanted:
            self._grant(number, stream)

    def _break(self, number: int, code: ErrorCode) -> None:
        """End a call because the peer broke the rules of HTTP/2."""
        self._output.append(reset(number, code))
        if self._forget(number):
            self._events.append(CallEnded(number))

    def _forget(self, number: int) -> bool:
        self._held.pop(number, None)
        return self._streams.pop(number, None) is not None

    # messages of a call

    def take_message(self, call: int) -> bytes | None:
        """The next message of a call; None: there is none, and `CallReadable` says when that is no longer so.

        After the end of the call, or of the peer's messages (`has_said_all`), there are no more. A message that is too
        long, or in an unknown compression, ends the call with a status.
        """
        stream = self._streams.get(call)
        if stream is None:
            return None
        size = self._size(stream)
        if size is None:
            stream.is_wanted = not stream.has_ended
            if stream.is_wanted:
                self._grant(call, stream)
            return None
        buffer = stream.buffer
        compressed, message = buffer[0], bytes(buffer[PREFIX_BYTES : PREFIX_BYTES + size])
        del buffer[: PREFIX_BYTES + size]
        if compressed:
            return self._expanded(call, stream, message)
        if size > self._limits.message_bytes:
            self._refuse(call, size)
            return None
        return message

    def has_said_all(self, call: int) -> bool:
        """Whether no message of a call is there, and none will come."""
        stream = self._streams.get(call)
        return stream is None or (stream.has_ended and self._size(stream) is None)

    def _expanded(self, call: int, stream: _Stream, message: bytes) -> bytes | None:
        if not framing.is_known(stream.encoding):
            self.finish(call, StatusCode.UNIMPLEMENTED, "this compression is not served: expected gzip or deflate")
            return None
        found = framing.expanded(message, stream.encoding, self._limits.message_bytes)
        if found is None:
            self.finish(call, StatusCode.RESOURCE_EXHAUSTED, "a compressed message is wrong, or too large")
        return found

    def _refuse(self, call: int, size: int) -> None:
        text = f"received a message of {size} bytes, at most {self._limits.message_bytes} are taken"
        self.finish(call, StatusCode.RESOURCE_EXHAUSTED, text)
        # Who waits for the message hears that there is none.
        self._events.append(CallReadable(call))

    @staticmethod
    def _size(stream: _Stream) -> int | None:
        """The size of the message that is there as a whole; None where there is none."""
        buffer = stream.buffer
        if len(buffer) < PREFIX_BYTES:
            return None
        size: int = _NUMBER.unpack_from(buffer, 1)[0]
        return size if len(buffer) - PREFIX_BYTES >= size else None

    def _grant(self, number: int, stream: _Stream) -> None:
        """Let the peer send the rest of the message that is wanted."""
        buffer, missing = stream.buffer, 0
        if len(buffer) >= PREFIX_BYTES:
            (size,) = _NUMBER.unpack_from(buffer, 1)
            if size > self._limits.message_bytes:
                self._refuse(number, size)
                return
            missing = PREFIX_BYTES + size - len(buffer)
        if stream.receive_window >= WINDOW_BYTES // 2:
            return
        more = max(WINDOW_BYTES, missing) - stream.receive_window
        stream.receive_window += more
        self._output.append(window_update(number, more))

    # answers of a call

    def send(self, call: int, message: bytes) -> bool:
        """Answer a message. True if all bytes have left; else `CallWritable` tells when."""
        stream = self._streams.get(call)
        if stream is None:
            return True
        self._begin_answer(call, stream)
        stream.left.append(memoryview(framing.prefixed(message)))
        self._send(call, stream)
        return not stream.left

    def finish(self, call: int, code: StatusCode = StatusCode.OK, text: str = "") -> None:
        """End a call after its answers; does nothing if the call has ended."""
        stream = self._streams.get(call)
        if stream is None or stream.trailers is not None:
            return
        fields = framing.trailer_fields(code, text)
        stream.trailers = fields if stream.has_headers else framing.RESPONSE_FIELDS + fields
        if not stream.left:
            self._end(call, stream)

    def answer(self, call: int, message: bytes) -> None:
        """Answer a call with one message, and end it."""
        self.send(call, message)
        self.finish(call)

    def cancel(self, call: int) -> None:
        """End a call at once."""
        if self._forget(call):
            self._output.append(reset(call, ErrorCode.CANCEL))

    def rest(self) -> None:
        """Reset the count of frames that advance no call, after some time has passed."""
        self._idle_frames = 0

    def ping(self) -> None:
        """Ask whether the peer is there."""
        self._output.append(frame(Frame.PING, 0, 0, bytes(8)))

    def leave(self, code: ErrorCode = ErrorCode.NO_ERROR, text: str = "") -> None:
        """Take no further calls."""
        self._is_leaving = True
        self._output.append(go_away(self._last, code, text))

    @property
    def is_leaving(self) -> bool:
        """Whether no further calls are taken."""
        return self._is_leaving

    def _begin_answer(self, call: int, stream: _Stream) -> None:
        if not stream.has_headers:
            stream.has_headers = True
            self._output.append(frame(Frame.HEADERS, END_HEADERS, call, framing.RESPONSE_FIELDS))

    def _send(self, number: int, stream: _Stream) -> None:
        """Send as many bytes as the windows allow."""
        left, was_held = stream.left, number in self._held
        while left:
            room = min(stream.send_window, self._send_window)
            piece = left[0]
            size = len(piece)
            if room <= 0:
                self._held[number] = None
                return
            most = min(room, self._most_frame_bytes)
            if size > most:
                left[0] = piece[most:]
                piece, size = piece[:most], most
            else:
                left.popleft()
            stream.send_window -= size
            self._send_window -= size
            self._idle_frames = 0
            self._output.append(frame(Frame.DATA, 0, number, bytes(piece)))
        self._held.pop(number, None)
        if stream.trailers is not None:
            self._end(number, stream)
        elif was_held:
            self._events.append(CallWritable(number))

    def _send_held(self) -> None:
        for number in tuple(self._held):
            if self._send_window <= 0:
                return
            stream = self._streams.get(number)
            if stream is not None:
                self._send(number, stream)

    def _end(self, call: int, stream: _Stream) -> None:
        assert stream.trailers is not None
        self._output.append(frame(Frame.HEADERS, END_HEADERS | END_STREAM, call, stream.trailers))
        self._forget(call)
        if not stream.has_ended:
            # The peer need not send the rest.
            self._output.append(reset(call, ErrorCode.NO_ERROR))


def _unpadded(flags: int, content: bytes) -> bytes:
    if not flags & PADDED:
        return content
    if not content or content[0] >= len(content):
        raise ViolationError("more padding than content")
    return content[1 : len(content) - content[0]]


def _text(octets: bytes) -> str:
    return octets.decode("utf-8", "replace")
