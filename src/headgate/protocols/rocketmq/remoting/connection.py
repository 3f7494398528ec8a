"""A connection: bytes in, commands out; commands in, bytes out. Both sides have it: a broker sends requests, too."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from headgate.errors import RemoteProtocolError
from headgate.protocols.rocketmq.remoting.frames import (
    MAX_FRAME_BYTES,
    Buffer,
    Command,
    decode_frame,
    encode_frame,
    malformed,
)

_SIZE = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class ProtocolViolation:
    """A fault of the peer. It gets no answer: the connection is closed, and no more of it is read."""

    error: RemoteProtocolError


class RemotingConnection:
    """Frames of one connection. Commands may come, and be answered, in any order."""

    __slots__ = ("_is_broken", "_max_frame_bytes", "_needed", "_output", "_partial")

    def __init__(self, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._partial = bytearray()
        """The beginning of an incomplete frame."""
        self._needed = 4
        """How many bytes must have come before the next look at them."""
        self._output: list[Buffer] = []
        self._is_broken = False

    def receive(self, data: Buffer) -> list[Command | ProtocolViolation]:
        """The commands that are complete now, in their order; a violation is the last event."""
        if self._is_broken:
            return []
        if self._partial:
            self._partial += data
            if len(self._partial) < self._needed:
                return []
            whole, self._partial = self._partial, bytearray()
            return self._walk(memoryview(whole))
        return self._walk(memoryview(data))

    def _walk(self, data: memoryview) -> list[Command | ProtocolViolation]:
        events: list[Command | ProtocolViolation] = []
        position, size = 0, len(data)
        try:
            while size - position >= 4:
                (length,) = _SIZE.unpack_from(data, position)
                if length > self._max_frame_bytes:
                    raise malformed(f"a frame of {length} bytes; at most {self._max_frame_bytes} are taken")
                if length > size - position - 4:
                    self._keep(data[position:], 4 + length)
                    return events
                events.append(decode_frame(data[position + 4 : position + 4 + length]))
                position += 4 + length
        except RemoteProtocolError as error:
            self._is_broken = True
            events.append(ProtocolViolation(error))
            return events
        if position < size:
            self._keep(data[position:], 4)
        return events

    def _keep(self, rest: memoryview, needed: int) -> None:
        self._partial += rest
        self._needed = needed

    def send(self, command: Command) -> None:
        """Write a command; bodies are not copied, and must not change until they are sent."""
        self._output += encode_frame(command)

    def take_output(self) -> list[Buffer]:
        """The bytes to send, in pieces; once."""
        output, self._output = self._output, []
        return output
