"""The clients of gRPC: known by the ids that they give themselves, as gRPC hides connections.

A client exists from its first call until it says that it ends, or is silent: no call in progress, and none for
`rocketmq.client_silence_s`. In lists and metrics it is a connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Mapping

from headgate.broker import Publisher, Session
from headgate.derived.match_index import Announcement
from headgate.errors import LimitExceededError
from headgate.language.rocketmq import TAGS
from headgate.protocols.rocketmq.grpc import ClientSettings
from headgate.protocols.rocketmq.grpc import messages as pb
from headgate.server.connections import ConnectionRecord
from headgate.server.context import ServerContext
from headgate.server.rocketmq.grpc.access import PROTOCOL, Identity, open_session
from headgate.server.rocketmq.grpc.filters import DIALECT
from headgate.server.rocketmq.grpc.lease_renewal import Renewals
from headgate.server.rocketmq.grpc.receive_attempts import Attempts
from headgate.server.transport import Peer

PUBLISHER_IDLE_MS = 60_000
"""After this idle time a publisher is closed."""

MESSAGES_READ = 16
"""Limit: sent messages of a client that are received at once; each may be as large as the size limit."""

_HEADERS = {"x-mq-client-id": "client_id", "x-mq-language": "language", "x-mq-client-version": "version"}

logger = logging.getLogger("headgate.server.rocketmq")


def _no_matter() -> None:
    """Ignore changes of a group: gRPC members receive from all queues, and divide none among themselves."""


class GrpcClient:
    """One client: its session at the broker, its settings, its unsettled messages.

    `settings` are None until the client has sent them.
    """

    __slots__ = (
        "_announced",
        "_context",
        "_publishers",
        "_reading",
        "_waiting",
        "attempts",
        "calls",
        "id",
        "identity",
        "peer",
        "record",
        "renewals",
        "seen_s",
        "session",
        "settings",
        "streams",
    )

    def __init__(self, context: ServerContext, client_id: str, identity: Identity, peer: Peer) -> None:
        self.id = client_id
        self.identity = identity
        self.peer = peer
        self.settings: ClientSettings | None = None
        self._announced: dict[str, dict[str, Announcement]] = {}
        """Its filters, by group and topic."""
        self.calls = 0
        """Calls in progress."""
        self.seen_s = context.clock.monotonic_s()
        self.streams: set[asyncio.Event] = set()
        """One for each open stream of settings; setting the event ends the stream."""
        self.renewals = Renewals()
        self.attempts = Attempts()
        self.record: ConnectionRecord
        self.session: Session
        self._context = context
        self._publishers: dict[str, tuple[Publisher, int]] = {}
        self._reading = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def begin(self, headers: Mapping[str, str]) -> None:
        """Register the client: lists show it, and its session at the broker opens."""
        context = self._context
        listener = "rocketmq_tls" if self.peer.is_encrypted else "rocketmq"
        self.record = context.connections.opened(self, listener=listener, now_ms=context.clock.now_ms())
        self.record.protocol = PROTOCOL
        self.record.user = self.identity.name
        self.record.client = {told: headers[name] for name, told in _HEADERS.items() if headers.get(name)}
        self.session = open_session(context, self.identity, self.record.name)
        limits = context.settings.limits
        self.session.backlog.limit(
            entries=limits.unconfirmed_messages,
            size_bytes=limits.unconfirmed_bytes,
            full=self._told_full,
            room=self._told_room,
        )

    def end(self) -> None:
        """The client is gone."""
        for group in self._announced:
            self._context.broker.members.leave(group, self.id)
        for stream in self.streams:
            stream.set()
        self.renewals.clear()
        self.session.close()
        self._context.connections.closed(self)

    # receiving

    def set(self, settings: ClientSettings) -> None:
        """The client sent its settings: its kind, group and filters."""
        self.settings = settings
        if settings.group is not None:
            before = self._announced.get(settings.group, {})
            self._announced[settings.group] = {
                topic: self._announcement(kind, text, before.get(topic))
                for topic, (kind, text) in settings.filters.items()
            }
        self.is_heard()

    def is_heard(self) -> None:
        """The client is alive: it stays a member of its groups, with the filters that it announced."""
        for group in self._announced:
            self._is_member(group)

    def asks(self, group: str, topic: str, kind: int, text: str) -> None:
        """The client receives with a filter, which may be missing in its settings."""
        announced = self._announced.get(group, {})
        last = announced.get(topic)
        now = self._announcement(kind, text, last)
        if now is not last:
            # Announced mappings are not changed any more.
            self._announced[group] = {**announced, topic: now}
            self._is_member(group)

    def _is_member(self, group: str) -> None:
        self._context.broker.members.heartbeat(
            group, self.id, self._announced[group], now_ms=self._context.clock.now_ms(), changed=_no_matter
        )

    def _announcement(self, kind: int, text: str, last: Announcement | None) -> Announcement:
        dialect = DIALECT if kind == pb.FilterType.SQL else TAGS
        if last is not None and (last.text, last.dialect) == (text, dialect):
            return last
        return Announcement(text, dialect, self._context.clock.now_ms())

    # sending

    def publisher(self, stream: str, topic: str) -> Publisher:
        """The client's publisher of a queue of a topic; errors as `Session.publisher`."""
        known = self._publishers.pop(stream, None)
        publisher = known[0] if known is not None and not known[0].is_closed else None
        if publisher is None:
            while len(self._publishers) >= self._context.settings.limits.publishers:
                self._publishers.pop(next(iter(self._publishers)))[0].close()
            publisher = self.session.publisher(stream, exchange=topic)
        # Last used, last in order.
        self._publishers[stream] = (publisher, self._context.clock.now_ms())
        return publisher

    async def room_to_send(self) -> None:
        """Wait until the client may send another message; `read` must follow.

        It waits while too much that the client sent is unwritten, or too many of its messages are being received.
        """
        while self._reading >= MESSAGES_READ or self.session.backlog.is_full:
            room = asyncio.get_running_loop().create_future()
            self._waiting.append(room)
            try:
                await room
            except asyncio.CancelledError:
                if room.done() and not room.cancelled():
                    self._let_in()
                raise
        self._reading += 1

    def read(self) -> None:
        """A message was received, or its client gave up."""
        self._reading -= 1
        self._let_in()

    def _let_in(self) -> None:
        if self.session.backlog.is_full:
            return
        while self._waiting:
            room = self._waiting.popleft()
            if not room.done():
                room.set_result(None)
                return

    def _told_full(self) -> None:
        self.record.is_read = False

    def _told_room(self) -> None:
        self.record.is_read = True
        for _ in range(min(len(self._waiting), MESSAGES_READ)):
            self._let_in()

    def tick(self, now_ms: int) -> None:
        """Close idle publishers; renew the invisible times of the client's messages."""
        for stream, (publisher, used_ms) in list(self._publishers.items()):
            if now_ms - used_ms < PUBLISHER_IDLE_MS:
                break
            publisher.close()
            del self._publishers[stream]
        self.renewals.tick(now_ms)


class Clients:
    """The clients of one server."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._clients: dict[tuple[str, Identity], GrpcClient] = {}

    def __iter__(self) -> Iterator[GrpcClient]:
        return iter(tuple(self._clients.values()))

    def get(self, client_id: str, identity: Identity) -> GrpcClient | None:
        """The client with this id and identity; None if there is none."""
        return self._clients.get((client_id, identity))

    def begin(self, client_id: str, identity: Identity, peer: Peer, headers: Mapping[str, str]) -> GrpcClient:
        """A client that calls for the first time. Raises LimitExceededError if there are too many clients."""
        most = self._context.settings.rocketmq.clients
        if len(self._clients) >= most:
            self._context.connections.totals.refused += 1
            raise LimitExceededError(f"there are {most} clients already (rocketmq.clients)", subject=client_id)
        client = self._clients[client_id, identity] = GrpcClient(self._context, client_id, identity, peer)
        client.begin(headers)
        self._context.connections.totals.logins += 1
        return client

    def end(self, client: GrpcClient) -> None:
        """A client ends."""
        if self._clients.pop((client.id, client.identity), None) is not None:
            client.end()

    def tick(self) -> None:
        """Time passes: end silent clients, tick the others."""
        now_ms, now_s = self._context.clock.now_ms(), self._context.clock.monotonic_s()
        limit_s = self._context.settings.rocketmq.client_silence_s
        for client in self:
            if not client.calls and now_s - client.seen_s > limit_s:
                logger.info("%s: client %s is silent, and taken as gone", client.record.name, client.id)
                self._context.connections.totals.timed_out += 1
                self.end(client)
            else:
                client.tick(now_ms)

    def close(self) -> None:
        """The server ends."""
        for client in self:
            self.end(client)
