"""One connection to one server: a blocking socket under the core of the protocol."""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from headgate.client.address import SCHEME, TLS_SCHEME, ServerAddress
from headgate.client.codes import refusal
from headgate.errors import ConnectionLostError, HeadgateError, RemoteProtocolError
from headgate.log import FilterValues, OffsetSpecification
from headgate.message import EncodedMessages
from headgate.protocols.sasl import Mechanism
from headgate.protocols.stream import (
    ClientConnection,
    ClientEvent,
    ClientState,
    Command,
    Opened,
    ProtocolViolation,
    ResponseCode,
    name_of_code,
)
from headgate.protocols.stream import frames as f
from headgate.version import __version__

Event: TypeAlias = ClientEvent

_READ_BYTES = 1 << 18
_HANDSHAKE_CODES = {
    ResponseCode.SASL_MECHANISM_UNSUPPORTED,
    ResponseCode.AUTHENTICATION_FAILURE,
    ResponseCode.SASL_ERROR,
    ResponseCode.SASL_CHALLENGE,
    ResponseCode.LOOPBACK_ONLY,
    ResponseCode.VIRTUAL_HOST_ACCESS_FAILURE,
}


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """Ids of the first chunk, the last one, and the last one that is safe; None while the stream is empty.

    `identity` tells a stream from others of its name, before and after; only a Headgate says it, else None, and
    whether it has a schema of its bodies.
    """

    first_chunk_id: int | None
    last_chunk_id: int | None
    committed_chunk_id: int | None
    identity: str | None = None
    has_body_schema: bool = False


class Connection:
    """A connection to one server. After `timeout_s` without an answer, every wait ends with an error.

    ConnectionLostError if the server is not reachable, is gone, or does not answer; then the connection cannot be used
    further. Errors of the handshake: AuthenticationError, AccessRefusedError.
    """

    def __init__(self, address: ServerAddress, *, timeout_s: float, heartbeat_s: int) -> None:
        self.address = address
        self.server = address.place
        self._user = address.user
        self._timeout_s = timeout_s
        self._events: deque[Event] = deque()
        self._broken: ConnectionLostError | None = None
        self.uses = 0
        """How many subscriptions were made on it before."""
        self._core = ClientConnection(
            user=address.user,
            password=address.password,
            virtual_host=address.virtual_host,
            properties={"product": "headgate client", "version": __version__, "platform": "Python"},
            heartbeat_s=heartbeat_s,
            mechanism=Mechanism.PLAIN if address.user else Mechanism.EXTERNAL,
        )
        self._socket = self._connected(address)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._sent_at = self._received_at = begun = time.monotonic()
        try:
            self._write(self._core.take_output())
            self._await_opening()
        except (RemoteProtocolError, ConnectionLostError) as error:
            self._socket.close()
            if address.tls is None and (self._received_at == begun or isinstance(error, RemoteProtocolError)):
                from headgate.client.encryption import plain_refusal

                refusal = plain_refusal(
                    address.host, address.port, self.server, encrypted=f"{TLS_SCHEME}://{self.server}"
                )
                if refusal is not None:
                    raise refusal from error
            if isinstance(error, ConnectionLostError):
                raise
            raise RemoteProtocolError(
                f"{self.server}: no opening, is this its port of the stream protocol? {error}",
                code=error.code,
            ) from error
        except BaseException:
            self._socket.close()
            raise

    def _connected(self, address: ServerAddress) -> socket.socket:
        context = None if address.tls is None else address.tls.context()
        try:
            made = socket.create_connection((address.host, address.port), self._timeout_s)
            try:
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                # A program may be busy with a message for longer than a heartbeat; the kernel still finds a dead peer.
                made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                return made if context is None else context.wrap_socket(made, server_hostname=address.host)
            except BaseException:
                made.close()
                raise
        except OSError as error:
            if context is not None:
                from headgate.client.encryption import tls_refusal

                refusal = tls_refusal(error, address.place, plain=f"{SCHEME}://{address.place}")
                if refusal is not None:
                    raise refusal from error
            raise ConnectionLostError(f"no connection: {error}", server=address.place) from error

    def _await_opening(self) -> None:
        until = time.monotonic() + self._timeout_s
        while True:
            for event in self._receive(max(0.0, until - time.monotonic())):
                if isinstance(event, Opened):
                    return
            if time.monotonic() >= until:
                raise self._lost(f"no answer within {self._timeout_s} s while {self._core.state.value}")

    @property
    def properties(self) -> Mapping[str, str]:
        """The server's properties."""
        return self._core.server.properties

    @property
    def product(self) -> str:
        """Name and version of the server, for messages."""
        return f"{self.properties.get('product', 'the server')} {self.properties.get('version', '')}".rstrip()

    @property
    def is_headgate(self) -> bool:
        """Whether the server is a Headgate."""
        return self._core.server.headgate_version is not None

    @property
    def has_filter_values(self) -> bool:
        """Whether the server takes filter values and skips chunks by them."""
        return self._core.server.versions.get(Command.PUBLISH, 1) >= 2

    @property
    def frame_max(self) -> int:
        """Bytes of the largest frame that both sides take; 0 for no limit."""
        return self._core.frame_max

    @property
    def can_resolve_offsets(self) -> bool:
        """Whether the server can resolve an offset specification."""
        return Command.RESOLVE_OFFSET_SPECIFICATION in self._core.server.versions

    def request(self, frame: f.Request, subject: str) -> f.Reply:
        """The reply to a request; `subject` names its object in errors. Raises the error for a refusal."""
        reply = self._answer_to(self.ask(frame))
        assert isinstance(reply, f.Reply)
        if reply.code != ResponseCode.OK:
            raise refusal(reply.code, subject, server=self.server)
        return reply

    def ask(self, frame: f.Request) -> int:
        """Send a request without waiting; its reply is among the events, with the correlation id given here."""
        self._check()
        correlation_id = self._core.request(frame)
        self._write(self._core.take_output())
        return correlation_id

    def send(self, frame: f.Frame) -> None:
        """Send a frame that has no reply."""
        self._check()
        self._core.send(frame)
        self._write(self._core.take_output())

    def publish(
        self,
        publisher_id: int,
        ids: NDArray[np.uint64],
        entries: EncodedMessages,
        values: FilterValues | None,
        *,
        entries_have_heads: bool = False,
    ) -> None:
        """Send messages, or with `entries_have_heads` entries of another form; see `encode_publish`."""
        self._check()
        self._write(
            self._core.publish(
                publisher_id,
                ids,
                entries.data,
                entries.starts,
                entries.lengths,
                filter_values=values,
                entries_have_heads=entries_have_heads,
            )
        )

    def events(self, timeout_s: float | None) -> list[Event]:
        """Frames that the server sent unasked since the last call; waits if there are none. Empty when time is up.

        `timeout_s` None: wait for ever. Heartbeats are sent while it waits, and expected.
        """
        self._check()
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._events:
            left_s = None if until is None else max(0.0, until - time.monotonic())
            self._events.extend(self._receive(self._at_most_a_beat(left_s)))
            self._check_heard()
            if until is not None and time.monotonic() >= until:
                break
        found = list(self._events)
        self._events.clear()
        return found

    def metadata(self, *streams: str) -> f.MetadataReply:
        """Which servers have some streams; without a name a Headgate tells all that the user may read."""
        reply = self._answer_to(self.ask(f.Metadata(streams)))
        assert isinstance(reply, f.MetadataReply)
        return reply

    def resolve_offset(self, stream: str, place: OffsetSpecification) -> int:
        """The offset that a place is now."""
        reply = self.request(f.ResolveOffsetSpecification(stream, place), stream)
        if not isinstance(reply, f.ResolveOffsetSpecificationReply) or reply.offset is None:
            raise RemoteProtocolError(f"{self.server} resolves an offset without saying one")
        return reply.offset.value

    def statistics(self, stream: str) -> StreamStatistics:
        """Which chunks a stream has."""
        reply = self.request(f.StreamStats(stream), stream)
        assert isinstance(reply, f.StreamStatsReply)
        found = dict(reply.statistics)
        first, last, committed = (
            None if found.get(name, -1) < 0 else found[name]
            for name in ("first_chunk_id", "last_chunk_id", "committed_chunk_id")
        )
        prefix = f.IDENTITY_STATISTIC
        identity = next((name.removeprefix(prefix) for name in found if name.startswith(prefix)), None)
        return StreamStatistics(first, last, committed, identity, f.BODY_SCHEMA_STATISTIC in found)

    def stored_offset(self, name: str, stream: str) -> int | None:
        """The bookmark of a name; None if there is none."""
        reply = self._answer_to(self.ask(f.QueryOffset(name, stream)))
        assert isinstance(reply, f.QueryOffsetReply)
        if reply.code == ResponseCode.NO_OFFSET:
            return None
        if reply.code != ResponseCode.OK:
            raise refusal(reply.code, stream, server=self.server)
        return reply.offset

    def last_sequence(self, name: str, stream: str) -> int:
        """The highest publishing id of a name; 0 for none."""
        reply = self.request(f.QueryPublisherSequence(name, stream), stream)
        assert isinstance(reply, f.QueryPublisherSequenceReply)
        return reply.sequence

    @property
    def is_open(self) -> bool:
        """Whether nothing is known that ended it."""
        return self._broken is None

    def is_idle(self) -> bool:
        """Whether the server still holds an idle connection; frames it sent since are dropped."""
        try:
            while self.is_open and self._is_readable(0.0):
                self._receive(0.0)
        except HeadgateError:
            return False
        self._events.clear()
        return self.is_open

    def forsake(self) -> None:
        """Close the socket silently: the connection is that of another process, which shares it by a fork."""
        self._broken = ConnectionLostError("the connection belongs to another process", server=self.server)
        self._socket.close()

    def close(self) -> None:
        """Say goodbye where the server still listens, and close the socket. Never raises for a lost connection."""
        if self._broken is not None:
            self._socket.close()
            return
        try:
            if self._core.state is ClientState.OPENED:
                self._core.close()
                self._write(self._core.take_output())
        except ConnectionLostError:
            # It is closed already, by the other side.
            return
        finally:
            self._broken = ConnectionLostError("the connection was closed on this side", server=self.server)
            self._socket.close()

    def _answer_to(self, correlation_id: int) -> f.Frame:
        until = time.monotonic() + self._timeout_s
        while True:
            found: f.Frame | None = None
            for event in self._receive(max(0.0, until - time.monotonic())):
                if isinstance(event, f.Reply | f.MetadataReply) and event.correlation_id == correlation_id:
                    found = event
                else:
                    self._events.append(event)
            if found is not None:
                return found
            if time.monotonic() >= until:
                raise self._lost(f"no answer within {self._timeout_s} s")

    def _receive(self, timeout_s: float | None) -> list[Event]:
        """The events of one read of the socket, without heartbeats; empty when nothing arrives in time."""
        if not self._is_readable(timeout_s):
            return []
        try:
            data = self._socket.recv(_READ_BYTES)
        except OSError as error:
            raise self._lost(str(error)) from error
        if not data:
            raise self._lost("the server closed the connection")
        self._received_at = time.monotonic()
        events = self._core.receive(data)
        self._write(self._core.take_output())
        for event in events:
            if isinstance(event, ProtocolViolation):
                raise self._refused(event.error)
            if isinstance(event, f.Close):
                raise self._closed(event)
        return [event for event in events if not isinstance(event, f.Heartbeat)]

    def _is_readable(self, timeout_s: float | None) -> bool:
        pending = getattr(self._socket, "pending", None)
        if pending is not None and pending():
            return True
        return bool(self._poll.poll(None if timeout_s is None else 1000 * timeout_s))

    def _closed(self, event: f.Close) -> HeadgateError:
        """The error for a Close: no retry after one for a mistake of the client."""
        lost = self._lost(f"the server closed the connection: {event.reason} ({name_of_code(event.closing_code)})")
        if event.closing_code in (ResponseCode.UNKNOWN_FRAME, ResponseCode.FRAME_TOO_LARGE):
            return RemoteProtocolError(str(lost), code=event.closing_code)
        return lost

    def _refused(self, error: RemoteProtocolError) -> HeadgateError:
        """The error that ends the connection: a refusal of the handshake, or bytes that are not the protocol's."""
        self._lost(error.reason)
        if error.code in _HANDSHAKE_CODES:
            return refusal(int(error.code), f"user {self._user!r} at {self.server}", server=self.server)
        return error

    def _write(self, data: bytes) -> None:
        if not data:
            return
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self._lost(str(error)) from error
        self._sent_at = time.monotonic()

    def _at_most_a_beat(self, timeout_s: float | None) -> float | None:
        """Seconds until the next heartbeat is due; sends one that is due now."""
        beat_s = self._core.heartbeat_s
        if not beat_s:
            return timeout_s
        if time.monotonic() - self._sent_at >= beat_s / 2:
            self.send(f.Heartbeat())
        due_s = beat_s / 2
        return due_s if timeout_s is None else min(due_s, timeout_s)

    def _check_heard(self) -> None:
        """Raise an error if the server was silent too long; call it after reading the socket, never before."""
        beat_s = self._core.heartbeat_s
        if beat_s and time.monotonic() - self._received_at > 2 * beat_s:
            raise self._lost(f"no word from the server for {2 * beat_s} s")

    def _check(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _lost(self, reason: str) -> ConnectionLostError:
        self._broken = ConnectionLostError(reason, server=self.server)
        self._socket.close()
        return self._broken
