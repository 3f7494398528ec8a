"""The interface between the event loop and the handlers of protocols, in both directions. No asyncio here.

All calls are made in the thread of the event loop, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Peer:
    """The client at the other end; `certificate_name` is the user named by a checked TLS client certificate.

    `local_host` is the address of this machine that the peer connected to, empty if it is not known.
    """

    host: str
    port: int
    is_loopback: bool
    is_encrypted: bool = False
    certificate_name: str | None = None
    local_host: str = ""


class Known(Protocol):
    """A client that appears in lists."""

    @property
    def peer(self) -> Peer:
        """The other end."""


class Caller(Known, Protocol):
    """A client that is answered later: a transport, or a request over HTTP."""

    def call_soon(self, call: Callable[[], None]) -> None:
        """Make a call in the loop's next turn."""

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Callable[[], None]:
        """Make a call in `delay_s`, unless the caller has left by then; the returned handle cancels it."""


class Transport(Caller, Protocol):
    """One accepted connection, as seen by its handler."""

    @property
    def is_writable(self) -> bool:
        """Whether more may be written now; when that becomes true again, the handler's `writable` is called."""

    def write(self, data: Buffer | Sequence[Buffer]) -> None:
        """Send bytes, in order, as soon as possible; the buffers must not change afterwards. Never blocks."""

    def hand_over(self, handler: Handler) -> None:
        """Let another handler serve the connection from now on."""

    def pause_reading(self) -> None:
        """Take no more from the peer until `resume_reading`: its full socket slows it down."""

    def resume_reading(self) -> None:
        """Take from the peer again."""

    def close(self) -> None:
        """Close once everything written is out, within a bounded time; nothing is received any more."""

    def leave(self) -> None:
        """Let the peer close first, after a handshake that it began; as `close` if it does not within that time."""

    def abort(self) -> None:
        """Close at once."""

    def run_in_worker(self, work: Callable[[], T], then: Callable[[T | BaseException], None]) -> None:
        """Run long work in a thread of the pool; `then` gets its result or error in the loop's thread.

        Unlike the calls above, `then` is called even if the connection is gone.
        """

    def run_in_storage(self, work: Callable[[], T], then: Callable[[T | BaseException], None]) -> None:
        """As `run_in_worker`, for work that may wait for object storage: it delays no other work."""


class Handler(Protocol):
    """One protocol on one connection."""

    def received(self, data: memoryview) -> None:
        """Bytes from the peer, at least one; `data` is valid only during the call."""

    def writable(self) -> None:
        """The transport takes more again: go on delivering."""

    def tick(self, now_ms: int) -> None:
        """Called about twice a second: heartbeats, timeouts."""

    def lost(self, reason: Exception | None) -> None:
        """The connection was closed: end its publishers and consumers. The last call."""

    def shut_down(self) -> None:
        """The server stops: tell the client in its protocol, then close the transport."""
