"""A socket of a client that shows the transfers which came on it: their delivery tags and flags."""

from __future__ import annotations

import socket

from headgate.protocols.amqp10.composites import decode_composite
from headgate.protocols.amqp10.frames import read_frame
from headgate.protocols.amqp10.performatives import Transfer


class Tap:
    """A socket that remembers what came."""

    def __init__(self, connected: socket.socket) -> None:
        self._connected = connected
        self.heard = b""

    def __enter__(self) -> Tap:
        return self

    def __exit__(self, *raised: object) -> None:
        self._connected.close()

    def __getattr__(self, name: str) -> object:
        return getattr(self._connected, name)

    def recv(self, size: int) -> bytes:
        data = self._connected.recv(size)
        self.heard += data
        return data

    def transfers(self) -> list[Transfer]:
        """The first frames of the deliveries that came."""
        found, position, view = [], 0, memoryview(self.heard)
        while position < len(view):
            if view[position : position + 4] == b"AMQP":
                position += 8
                continue
            frame = read_frame(view, position, 1 << 20)
            assert frame is not None
            body, position = bytes(view[frame.body : frame.stop]), frame.stop
            if body:
                record, _ = decode_composite(body, 0, len(body))
                if isinstance(record, Transfer) and record.delivery_tag is not None:
                    found.append(record)
        return found
