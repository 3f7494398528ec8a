"""What a server's side of AMQP 1.0 has to be after each word of a peer, kept in small records: the model of a test."""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.protocols.amqp10 import Condition, ConnectionSettings
from headgate.protocols.amqp10.performatives import Transfer

LIMITS = ConnectionSettings(
    max_frame_size=512, channel_max=1, handle_max=3, incoming_window=5, max_message_size=430, max_partial_bytes=800
)
MODULUS = 2**32


@dataclass
class Faulty(Exception):  # noqa: N818 - the model says who is at fault, a test catches it
    """The peer may not say that: what ends (a link, a session, the connection), and the condition it is told."""

    scope: str
    condition: Condition


@dataclass
class LinkModel:
    """One link; `credit` and `count` are those of the end that sends, as the server knows them."""

    name: str
    publishes: bool
    count: int
    credit: int = 0
    first_count: int = 0
    parts: bytes | None = None
    parts_id: int = 0
    parts_settled: bool = False
    is_ended: bool = False
    """The server has detached; the peer has not answered."""
    expected: list[tuple[int, bytes]] = field(default_factory=list)
    """Delivery ids and bytes of messages for the peer that it has not heard in full."""
    heard: bytes = b""
    heard_count: int = 0
    """What the peer has counted of the server's messages."""

    def move(self, count: int) -> None:
        """So many messages more, by the end that sends."""
        self.credit -= count
        self.count = (self.count + count) % MODULUS


Delivery = tuple[str, int, bytes, bool]
"""Name of the link, delivery id, message, settled."""


@dataclass
class SessionModel:
    """One session: how many transfers either side still takes, and the links by the peer's handles."""

    window: int = LIMITS.incoming_window
    peer_window: int = 0
    transfers_heard: int = 0
    """Of the server, by the peer."""
    transfers_said: int = 0
    next_id: int = 0
    links: dict[int, LinkModel] = field(default_factory=dict)
    is_ended: bool = False

    def link(self, handle: int) -> LinkModel:
        """The link of a handle; a fault of the session where there is none."""
        if handle not in self.links:
            raise Faulty("session", Condition.UNATTACHED_HANDLE)
        return self.links[handle]

    def count_in(self, transfers: int) -> None:
        """So many transfers of the peer come."""
        if transfers > self.window:
            raise Faulty("session", Condition.WINDOW_VIOLATION)
        self.window -= transfers
        self.transfers_said += transfers

    def refill(self) -> None:
        """The server opens its window once half of it is used."""
        if self.window <= LIMITS.incoming_window // 2:
            self.window = LIMITS.incoming_window

    def transfer(self, transfer: Transfer, payload: bytes, partial_bytes: int) -> Delivery | None:
        """One transfer that was counted in: the message that is complete with it.

        `partial_bytes`: of incomplete messages on all links before it.
        """
        link = self.link(transfer.handle)
        if link.is_ended:
            return None
        if not link.publishes:
            raise Faulty("session", Condition.NOT_ALLOWED)
        if link.parts is None:
            if transfer.delivery_id is None:
                raise Faulty("session", Condition.INVALID_FIELD)
            if not link.credit:
                raise Faulty("link", Condition.TRANSFER_LIMIT_EXCEEDED)
            link.move(1)
            link.parts_id, link.parts_settled = transfer.delivery_id, False
        whole = (link.parts or b"") + payload
        if len(whole) > LIMITS.max_message_size:
            raise Faulty("link", Condition.MESSAGE_SIZE_EXCEEDED)
        link.parts_settled |= bool(transfer.settled)
        if partial_bytes + len(payload) > LIMITS.max_partial_bytes:
            raise Faulty("connection", Condition.RESOURCE_LIMIT_EXCEEDED)
        link.parts = whole if transfer.more and not transfer.aborted else None
        return None if transfer.more or transfer.aborted else (link.name, link.parts_id, whole, link.parts_settled)
