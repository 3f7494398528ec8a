"""One accepted connection: between the loop's transport and the handler of a protocol.

The output of a handler in one turn of the loop leaves together at its end. `is_writable` is false from
`HIGH_WATER_BYTES` not yet taken by the system until `LOW_WATER_BYTES` are left.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from headgate.server.connections import ConnectionRecord, ip_address
from headgate.server.context import HandlerFactory
from headgate.server.event_loop import EventLoop
from headgate.server.listening_sockets import protocol_of
from headgate.server.socket_writer import Sender
from headgate.server.transport import Buffer, Handler, Peer, T
from headgate.server.wrong_protocol import Spoken, refused, spoken_by

HIGH_WATER_BYTES = 512 * 1024
LOW_WATER_BYTES = 128 * 1024
_CARRY_AMQP = ("amqp", "servicebus")
"""Protocols of the listeners whose connections carry AMQP; Service Bus clients also do so over WebSockets."""

_ONE_PIECE = (bytes, bytearray, memoryview)
_JOINED_BYTES = 128 * 1024
"""Up to this many bytes, pieces are copied into one: that is cheaper than handing over many small pieces."""
_LARGE_PIECE_BYTES = 16 * 1024
"""From this average size on, pieces are handed over as they are."""
_SENT_IN_THREAD_BYTES = 256 * 1024
"""From this many bytes on, a thread sends the output of a turn."""

logger = logging.getLogger("headgate.server")


@dataclass(frozen=True, slots=True)
class ConnectionCalls:
    """The calls by which a connection is accepted, counted and forgotten.

    `administration` gives what makes the protocol for HTTP clients at the ports of AMQP, or None.
    """

    admits: Callable[[Connection], bool]
    opened: Callable[[Connection, str], ConnectionRecord]
    lost: Callable[[Connection], None]
    administration: Callable[[], Callable[[], asyncio.Protocol] | None]


class Connection(asyncio.BufferedProtocol):
    """The `Transport` of a handler, and the protocol of the loop. An error in the handler ends this connection only."""

    def __init__(self, event_loop: EventLoop, calls: ConnectionCalls, listener: str, factory: HandlerFactory) -> None:
        self._event_loop = event_loop
        self._calls = calls
        self._listener = listener
        self._factory = factory
        self._transport: asyncio.Transport
        self._peer: Peer
        self._handler: Handler | None = None
        self._record: ConnectionRecord
        self._pending: list[Buffer] = []
        self._pending_bytes = 0
        self._transport_is_full = False
        self._sender: Sender | None = None
        self._owes_writable = False
        self._ends_when_sent = False
        self._has_heard_end = False
        self._reads = True
        self._is_closing = False
        self._is_leaving = False
        """Whether the peer is to close first: see `leave`."""
        self._is_lost = False
        self._failure: Exception | None = None
        self._lingers: asyncio.TimerHandle | None = None
        self.calls_due = 0
        """How many calls of `call_soon` are still to be made: they may write more."""

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accepted; with TLS, after its handshake."""
        self._transport = cast(asyncio.Transport, transport)
        peer = _peer_of(self._transport)
        if peer is not None:
            self._peer = peer
        if peer is None or not self._calls.admits(self):
            self._is_closing = self._is_lost = True
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES, low=LOW_WATER_BYTES)
        self._record = self._calls.opened(self, self._listener)
        self._guarded(self._make_handler)

    def _make_handler(self) -> None:
        self._handler = self._factory(self, self._event_loop.context)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer that all connections share: its bytes are taken before the loop reads again."""
        return self._event_loop.receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """`nbytes` bytes are at the start of the buffer."""
        if self._is_closing or self._handler is None:
            return
        is_first = self._record.bytes_received == 0
        self._record.bytes_received += nbytes
        if is_first and self._is_elsewhere(bytes(self._event_loop.receive_buffer[:nbytes])):
            return
        try:
            self._handler.received(self._event_loop.receive_buffer[:nbytes])
        except Exception as error:
            self._failed(error)

    def _is_elsewhere(self, first: bytes) -> bool:
        """Whether the client speaks another protocol than its port: then that serves it, or it is told and closed."""
        is_amqp = protocol_of(self._listener) in _CARRY_AMQP
        administration = self._calls.administration() if protocol_of(self._listener) == "amqp" else None
        if administration is not None and spoken_by(first) is Spoken.HTTP:
            self._leave_to(administration(), first)
            return True
        answer = refused(first, self._listener, self._event_loop.context.ports, *((Spoken.AMQP,) if is_amqp else ()))
        if answer is None:
            return False
        if answer:
            self.write(answer)
        self.close()
        return True

    def _leave_to(self, protocol: asyncio.Protocol, first: bytes) -> None:
        """Let another protocol serve the client from its first bytes on."""
        transport = self._transport
        # The loop chooses how to read when reading begins.
        transport.pause_reading()
        self.connection_lost(None)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(first)
        transport.resume_reading()

    def eof_received(self) -> bool:
        """The peer sends no more: pending output goes out, then the transport closes."""
        self.flush(is_last=True)
        self._has_heard_end = True
        if self._sends:
            self.finish()
        return self._sends

    def finish(self) -> None:
        """The peer has closed the connection, or a layer below it: close it too, once everything written is out."""
        if self._is_closing and not self._is_leaving:
            return
        self.flush(is_last=True)
        self._is_closing, self._is_leaving = True, False
        if self._lingers is not None:
            self._lingers.cancel()
        self._lingers = self._event_loop.loop.call_later(self._linger_s, self._transport.abort)
        if self._sends:
            self._ends_when_sent = True
        else:
            self._end()

    def pause_writing(self) -> None:
        """The transport holds too much."""
        self._transport_is_full = True

    def resume_writing(self) -> None:
        """The transport takes more."""
        self._transport_is_full = False
        if self._handler is not None and not self._is_closing:
            self._owes_writable = False
            self._guarded(self._handler.writable)

    def connection_lost(self, reason: Exception | None) -> None:
        """The transport was closed."""
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._pending.clear()
        if self._sender is not None:
            self._sender.close()
        if self._lingers is not None:
            self._lingers.cancel()
        handler, self._handler = self._handler, None
        if handler is not None:
            self._guarded(handler.lost, self._failure or reason)
        self._calls.lost(self)

    # What the event loop calls.

    def flush(self, *, is_last: bool = False) -> None:
        """Hand the output of this turn to the transport; unless this `is_last`, the handler may write more."""
        pieces, count = self._pending, self._pending_bytes
        self._pending, self._pending_bytes = [], 0
        if pieces and not self._is_closing:
            self._record.bytes_sent += count
            if (self._sender is not None or count >= _SENT_IN_THREAD_BYTES) and self._is_for_thread(count):
                assert self._sender is not None
                self._sender.send(pieces, count)
                self._owes_writable |= not self._sender.has_room
            elif len(pieces) == 1:
                self._transport.write(pieces[0])
            elif count <= _JOINED_BYTES and count < _LARGE_PIECE_BYTES * len(pieces):
                self._transport.write(b"".join(pieces))
            else:
                self._transport.writelines(pieces)
        if self._owes_writable and not is_last:
            self._tell_writable()

    @property
    def record(self) -> ConnectionRecord:
        """The record of the connection."""
        return self._record

    @property
    def is_closing(self) -> bool:
        """Whether nothing more is received from the peer."""
        return self._is_closing

    def tick(self, now_ms: int) -> None:
        """Time passes."""
        if self._handler is not None and not self._is_closing:
            self._guarded(self._handler.tick, now_ms)

    def shut_down(self) -> None:
        """The server stops."""
        if self._handler is not None and not self._is_closing:
            self._guarded(self._handler.shut_down)

    # What the handler calls.

    @property
    def peer(self) -> Peer:
        """The other end."""
        return self._peer

    @property
    def is_writable(self) -> bool:
        """Whether more may be written now; when that becomes true again, the handler's `writable` is called."""
        if self._transport_is_full or self._pending_bytes >= HIGH_WATER_BYTES or self._is_closing:
            return False
        return self._sender is None or self._sender.has_room

    def write(self, data: Buffer | Sequence[Buffer]) -> None:
        """Send bytes, in order, at the end of this turn; dropped when the connection is closing."""
        if self._is_closing:
            return
        if not self._pending:
            self._event_loop.flush_later(self)
        if isinstance(data, _ONE_PIECE):
            self._pending.append(data)
            self._pending_bytes += len(data)
        else:
            self._pending.extend(data)
            self._pending_bytes += sum(map(len, data))
        if self._pending_bytes >= HIGH_WATER_BYTES:
            self._owes_writable = True

    def hand_over(self, handler: Handler) -> None:
        """Let another handler serve the connection from now on."""
        self._handler = handler

    def pause_reading(self) -> None:
        """Take no more from the peer until `resume_reading`."""
        if self._reads and not self._is_closing:
            self._reads = self._record.is_read = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take from the peer again."""
        if not self._reads and not self._is_lost:
            self._reads = self._record.is_read = True
            self._transport.resume_reading()

    def close(self) -> None:
        """Close once everything written is out, within the linger time; nothing is received any more.

        The peer is read and ignored until it closes as well: a socket closed with unread bytes would be reset, and the
        peer would lose the last output.
        """
        if not self._is_closing:
            self.finish()

    def leave(self) -> None:
        """Let the peer close first: its close was accepted. Nothing is received any more.

        After the linger time, or when a layer below hears the peer close, this end closes. A client that meets the end
        of the connection while it still handles the answer may take a clean close for a lost connection.
        """
        if self._is_closing:
            return
        self.flush(is_last=True)
        self._is_closing = self._is_leaving = True
        self.resume_reading()
        self._lingers = self._event_loop.loop.call_later(self._linger_s, self.finish)

    @property
    def _linger_s(self) -> float:
        return self._event_loop.context.settings.timeouts.linger_s

    def _end(self) -> None:
        if self._transport.is_closing():
            return
        if self._transport.can_write_eof() and not self._has_heard_end:
            self._transport.write_eof()
            self.resume_reading()
        else:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._is_closing = True
        self._transport.abort()

    def call_soon(self, call: Callable[[], None]) -> None:
        """Make a call at the end of this turn of the loop, or in its next."""
        self.calls_due += 1
        self._event_loop.call_soon(functools.partial(self._called, call))

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Callable[[], None]:
        """Make a call in `delay_s`, unless the connection is closed by then; the returned handle cancels it."""
        return self._event_loop.loop.call_later(delay_s, self._alive, call).cancel

    def run_in_worker(self, work: Callable[[], T], then: Callable[[T | BaseException], None]) -> None:
        """Run long work in a thread of the pool; `then` gets its result or error in the loop's thread.

        It is called even if the connection is gone by then.
        """
        self._event_loop.run_in_worker(work, lambda result: self._guarded(then, result))

    def run_in_storage(self, work: Callable[[], T], then: Callable[[T | BaseException], None]) -> None:
        """As `run_in_worker`, for work that may wait for object storage: it delays no other work."""
        self._event_loop.run_in_storage(work, lambda result: self._guarded(then, result))

    def _called(self, call: Callable[[], None]) -> None:
        self.calls_due -= 1
        if not self._is_lost:
            try:
                call()
            except Exception as error:
                self._failed(error)

    def _alive(self, call: Callable[..., None], *arguments: Any) -> None:
        if not self._is_lost:
            self._guarded(call, *arguments)

    # Sending in a thread.

    @property
    def _sends(self) -> bool:
        """Whether a thread has something to send: later output goes after it."""
        return self._sender is not None and self._sender.is_busy

    def _is_for_thread(self, count: int) -> bool:
        """Whether a thread sends these bytes: it is still sending, or they are many, and the transport holds none and
        does not encrypt.
        """
        if self._sends:
            return True
        if count < _SENT_IN_THREAD_BYTES:
            return False
        if self._peer.is_encrypted or self._transport.get_write_buffer_size() or self._transport.is_closing():
            return False
        if self._sender is None:
            socket = self._transport.get_extra_info("socket")
            if socket is None:
                # A layer below puts the output into frames.
                return False
            self._sender = Sender(
                socket.fileno(),
                self._event_loop.loop,
                self._event_loop.run_in_sender_thread,
                moved=self._moved,
                failed=self._not_sent,
            )
        return True

    def _moved(self) -> None:
        if self._ends_when_sent and not self._sends:
            self._end()
        self._tell_writable()

    def _not_sent(self, error: BaseException) -> None:
        """The thread could not send: the peer is gone, or our own code has an error."""
        if isinstance(error, OSError):
            self.abort()
        else:
            self._failed(error)

    def _tell_writable(self) -> None:
        if self._owes_writable and self._handler is not None and self.is_writable:
            self._owes_writable = False
            self._guarded(self._handler.writable)

    def _guarded(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call into the handler; any exception is an error in our own code, and ends this connection only."""
        try:
            call(*arguments)
        except Exception as error:
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        logger.error("%s: the handler failed, the connection is closed", self._record.name, exc_info=error)
        self._event_loop.context.connections.totals.failed += 1
        self._failure = error if isinstance(error, Exception) else None
        if not self._is_lost:
            self.abort()


def _peer_of(transport: asyncio.Transport) -> Peer | None:
    """The peer's address; None if it has left already."""
    name, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    if not name or not local:
        return None
    host, port = name[:2]
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    address = ip_address(host)
    return Peer(
        host=str(address),
        port=port,
        is_loopback=address.is_loopback,
        is_encrypted=tls is not None,
        certificate_name=None if tls is None else _common_name(tls.getpeercert()),
        local_host=str(ip_address(local[0])),
    )


def _common_name(certificate: Any) -> str | None:
    for names in (certificate or {}).get("subject", ()):
        for kind, value in names:
            if kind == "commonName":
                return str(value)
    return None
