"""The server's end of a STOMP connection: bytes in, events out; frames in, bytes out.

What is legal when:

    CONNECTING      CONNECT, STOMP                   → AUTHENTICATING   nothing is read until `connected`
    AUTHENTICATING  our `connected`                  → OPEN             sent: CONNECTED
    OPEN            SEND, SUBSCRIBE, UNSUBSCRIBE, ACK, NACK
    OPEN            DISCONNECT                       → LEAVING          nothing is read any more
    LEAVING         our `disconnected`               → CLOSED
    OPEN, LEAVING   our `refuse`                     as it was          sent: ERROR
    any             our `fail`, or a wrong frame     → CLOSED           sent: ERROR

Transactions (BEGIN, COMMIT, ABORT, the header `transaction`) are refused.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping

from headgate.errors import HeadgateError, LocalProtocolError, RemoteProtocolError
from headgate.protocols.stomp import events as e
from headgate.protocols.stomp.codes import error_message
from headgate.protocols.stomp.frames import Frame, FrameReader, Version, encode_frame, join_frame

_TRANSACTIONS = ("BEGIN", "COMMIT", "ABORT")

MAX_CONNECT_BODY_BYTES = 1024
"""A frame that opens a connection has no body; this much is skipped."""


class ConnectionState(enum.Enum):
    """Where a connection stands; see the head of this module."""

    CONNECTING = "connecting"
    AUTHENTICATING = "authenticating"
    OPEN = "open"
    LEAVING = "leaving"
    CLOSED = "closed"


class ServerConnection:
    """The core of one connection. `receive` is to be read to its end, output is taken with `take_output`."""

    def __init__(self, *, max_body_bytes: int) -> None:
        self.state = ConnectionState.CONNECTING
        self.version = Version.V1_0
        self._max_body_bytes = max_body_bytes
        self._reader = FrameReader(max_body_bytes=MAX_CONNECT_BODY_BYTES)
        self._output: list[bytes] = []

    def receive(self, data: bytes | memoryview) -> Iterator[e.Event]:
        """The events of these bytes and of bytes left over; asking for the next event reads the next frame.

        A violation is answered here and becomes an event, too; nothing is raised.
        """
        if self.state is not ConnectionState.CLOSED:
            self._reader.add(data)
        return self._events()

    def _events(self) -> Iterator[e.Event]:
        while self.state in (ConnectionState.CONNECTING, ConnectionState.OPEN):
            frame: Frame | None = None
            try:
                frame = self._reader.next()
                if frame is None:
                    return
                event = self._frame(frame)
            except RemoteProtocolError as error:
                self.fail(error, receipt=frame.headers.get("receipt") if frame else None)
                event = e.Failed(error)
            yield event

    def _frame(self, frame: Frame) -> e.Event:
        if self.state is ConnectionState.CONNECTING:
            if frame.command not in ("CONNECT", "STOMP"):
                raise RemoteProtocolError("You must log in using CONNECT first", code="Illegal command")
            return self._connect(frame.headers)
        read = _COMMANDS.get(frame.command)
        if frame.command in _TRANSACTIONS or (read is not None and "transaction" in frame.headers):
            raise RemoteProtocolError("transactions are not served", code="not_implemented")
        if read is None:
            raise RemoteProtocolError(f'Could not interpret command "{frame.command[:40]}"', code="Bad command")
        return read(self, frame)

    def _connect(self, headers: dict[str, str]) -> e.Event:
        offered = headers.get("accept-version", Version.V1_0).split(",")
        common = [version for version in Version if version in offered]
        if not common:
            raise RemoteProtocolError(f"Supported versions are {','.join(Version)}", code="Version mismatch")
        self.version = self._reader.version = common[-1]
        self.state = ConnectionState.AUTHENTICATING
        return e.Connect(
            headers.get("login"),
            headers.get("passcode"),
            headers.get("host", "/"),
            _heart_beat(headers.get("heart-beat", "0,0")),
        )

    def _send(self, frame: Frame) -> e.Event:
        headers = frame.headers
        destination = _required(headers, "destination", "SEND")
        if "message-id" in headers:
            # It names what is delivered: the publisher's own would be lost.
            reason = "'message-id' is not allowed on 'SEND'; the header of a message's own id is 'amqp-message-id'"
            raise RemoteProtocolError(reason, code="Invalid header")
        return e.Send(destination, headers, frame.body, headers.get("receipt"))

    def _subscribe(self, frame: Frame) -> e.Event:
        headers = frame.headers
        destination = _required(headers, "destination", "SUBSCRIBE")
        mode = headers.get("ack", e.AckMode.AUTO)
        if mode not in list(e.AckMode):
            raise RemoteProtocolError(
                f"'ack' is {mode[:40]!r}; expected one of {', '.join(e.AckMode)}", code="Invalid header"
            )
        return e.Subscribe(
            _key(headers), headers.get("id"), destination, e.AckMode(mode), headers, headers.get("receipt")
        )

    def _unsubscribe(self, frame: Frame) -> e.Event:
        if "id" not in frame.headers and "destination" not in frame.headers:
            raise RemoteProtocolError(
                "UNSUBSCRIBE must include a 'destination' or 'id' header", code="Missing destination or id"
            )
        return e.Unsubscribe(_key(frame.headers), frame.headers.get("receipt"))

    def _acknowledge(self, frame: Frame) -> e.Event:
        name = "id" if self.version is Version.V1_2 else "message-id"
        if name not in frame.headers:
            raise RemoteProtocolError(f"{frame.command} must include the '{name}' header", code="Missing header")
        return e.Acknowledge(frame.headers[name], frame.headers.get("receipt"))

    def _disconnect(self, frame: Frame) -> e.Event:
        self.state = ConnectionState.LEAVING
        self._reader.clear()
        return e.Disconnect(frame.headers.get("receipt"))

    # what this side says

    def connected(self, *, session: str, server: str, heart_beat_ms: tuple[int, int]) -> None:
        """Accept the client; the next `receive` reads the bytes that it sent meanwhile. Raises LocalProtocolError."""
        self._check(ConnectionState.AUTHENTICATING)
        self.state = ConnectionState.OPEN
        self._reader.max_body_bytes = self._max_body_bytes
        headers = [
            ("version", str(self.version)),
            ("session", session),
            ("server", server),
            ("heart-beat", ",".join(map(str, heart_beat_ms))),
        ]
        self._output.append(encode_frame("CONNECTED", headers, b"", self.version))

    def message(self, headers: bytes, body: bytes) -> int:
        """A message for a subscription, its headers as `encode_headers` gives them; gives the bytes it takes.

        Raises LocalProtocolError.
        """
        self._check(ConnectionState.OPEN)
        frame = join_frame(b"MESSAGE", headers, body)
        self._output.append(frame)
        return len(frame)

    def receipt(self, receipt: str) -> None:
        """Send a receipt: the request that asked for it is done. Raises LocalProtocolError."""
        self._check(ConnectionState.OPEN, ConnectionState.LEAVING)
        self._output.append(encode_frame("RECEIPT", [("receipt-id", receipt)], b"", self.version))

    def disconnected(self, receipt: str | None) -> None:
        """Everything before DISCONNECT is done."""
        if receipt is not None:
            self.receipt(receipt)
        self.finish()

    def heart_beat(self) -> None:
        """Say that this side is there."""
        self._output.append(b"\n")

    def fail(self, error: HeadgateError, *, receipt: str | None = None) -> None:
        """Send an error, and end the connection. Does nothing if the connection has ended."""
        if self.state is not ConnectionState.CLOSED:
            self._tell(error, receipt, ())
            self.finish()

    def refuse(
        self, error: HeadgateError, *, receipt: str | None = None, headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        """Report the error with one stream, and go on; harmless if the connection has ended.

        The standard has the connection end with every ERROR; RabbitMQ continues after that of a subscription that it
        cancels.
        """
        if self.state is not ConnectionState.CLOSED:
            self._tell(error, receipt, headers)

    def _tell(self, error: HeadgateError, receipt: str | None, headers: Iterable[tuple[str, str]]) -> None:
        told = [
            ("message", error_message(error)),
            ("content-type", "text/plain"),
            ("version", ",".join(Version)),
            *headers,
        ]
        if receipt is not None:
            told.append(("receipt-id", receipt))
        self._output.append(encode_frame("ERROR", told, str(error).encode("utf-8", "replace"), self.version))

    def finish(self) -> None:
        """End the connection silently: nothing more is read or sent."""
        self.state = ConnectionState.CLOSED
        self._reader.clear()

    def take_output(self) -> bytes:
        """The bytes to be sent since the last time."""
        output = b"".join(self._output)
        self._output.clear()
        return output

    def _check(self, *states: ConnectionState) -> None:
        if self.state not in states:
            raise LocalProtocolError(f"the connection is {self.state.value}")


def _required(headers: Mapping[str, str], name: str, command: str) -> str:
    if name not in headers:
        raise RemoteProtocolError(f"{command} must include a '{name}' header", code=f"Missing {name}")
    return headers[name]


def _key(headers: Mapping[str, str]) -> str:
    """The key of a subscription: its id, else its destination."""
    return f"T_{headers['id']}" if "id" in headers else f"Q_{headers['destination']}"


def _heart_beat(text: str) -> tuple[int, int]:
    parts = text.split(",")
    if len(parts) != 2 or not all(part.isascii() and part.strip().isdigit() and len(part) <= 9 for part in parts):
        raise RemoteProtocolError(f"'heart-beat' is {text[:40]!r}; expected two numbers", code="Invalid header")
    return int(parts[0]), int(parts[1])


_COMMANDS: Mapping[str, Callable[[ServerConnection, Frame], e.Event]] = {
    "SEND": ServerConnection._send,
    "SUBSCRIBE": ServerConnection._subscribe,
    "UNSUBSCRIBE": ServerConnection._unsubscribe,
    "ACK": ServerConnection._acknowledge,
    "NACK": ServerConnection._acknowledge,
    "DISCONNECT": ServerConnection._disconnect,
}
"""The frames that a client may send on an open connection."""
