"""A client of STOMP for tests of the server: frames as they are written, every wait with a limit."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from headgate.protocols.stomp.frames import Frame, FrameReader, Version
from server.running import RunningServer
from waiting import LIMIT_S

CONNECT = "CONNECT\naccept-version:1.2\nlogin:guest\npasscode:guest\nhost:/\n{more}\n\0"
STREAM = "x-queue-type:stream\ndurable:true\nauto-delete:false\n"


class Client:
    """A connection, from CONNECT on."""

    def __init__(self, server: RunningServer, more: str = "", *, connect: bool = True) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.ports["stomp"]), timeout=LIMIT_S)
        self.reader = FrameReader(max_body_bytes=1_000_000)
        self.reader.version = Version.V1_2
        self.bytes = b""
        self.came: list[Frame] = []
        if connect:
            self.say(CONNECT.format(more=more))
            self.connected = self.next()
            assert self.connected.command == "CONNECTED", self.connected

    def say(self, *frames: str) -> None:
        self.socket.sendall("".join(frames).encode())

    def next(self) -> Frame:
        """The next frame that nobody has waited for."""
        return self.came.pop(0) if self.came else self._receive()

    def wait(self, that: Callable[[Frame], bool]) -> Frame:
        """The first frame that fulfils a condition; what is before it stays."""
        passed: list[Frame] = []
        while not that(frame := self.next()):
            passed.append(frame)
        self.came[:0] = passed
        return frame

    def _receive(self) -> Frame:
        while (frame := self.reader.next()) is None:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError("the server closed the connection")
            self.bytes += data
            self.reader.add(data)
        return frame

    def send(self, stream: str, *bodies: str, headers: str = STREAM) -> None:
        """Sends and waits for the receipt of each."""
        for number, body in enumerate(bodies):
            self.say(f"SEND\ndestination:/queue/{stream}\nreceipt:{number}\n{headers}\n{body}\0")
            assert self.next() == Frame("RECEIPT", {"receipt-id": str(number)})

    def subscribe(self, stream: str, headers: str = "x-stream-offset:first\n", *, prefetch: int = 10) -> None:
        self.say(
            f"SUBSCRIBE\nid:s\ndestination:/amq/queue/{stream}\nack:client-individual\n"
            f"prefetch-count:{prefetch}\n{headers}\n\0"
        )

    def error(self, message: str, text: str = "") -> Frame:
        """The ERROR that comes, behind which the connection is closed."""
        frame = self.next()
        assert (frame.command, frame.headers["message"]) == ("ERROR", message), frame
        assert text in frame.body.decode()
        with pytest.raises(EOFError):
            self.next()
        return frame
