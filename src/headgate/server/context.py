"""The context that every handler gets besides its transport."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headgate.clock import Clock
from headgate.server.connections import Connections
from headgate.server.listener_watch import Listeners
from headgate.server.pipelines import Pipelines
from headgate.server.settings import ServerSettings
from headgate.server.transport import Buffer, Handler, Peer, Transport

if TYPE_CHECKING:
    from headgate.broker import Broker
    from headgate.server.authenticator import Authenticator
    from headgate.server.history import History


GiveReply = Callable[[dict[str, str], Buffer, Callable[[bool], None]], None]
"""Gives a client a reply, by fields and body; the callback then gets whether the client took it."""


@dataclass(slots=True)
class ServerContext:
    """The parts of the server that a handler may use."""

    broker: Broker
    settings: ServerSettings
    clock: Clock
    authenticator: Authenticator
    connections: Connections = field(default_factory=Connections)
    ports: dict[str, int] = field(default_factory=dict)
    """The port of each open listener by its key in the configuration, such as `stream_tls`."""
    requesters: dict[str, GiveReply] = field(default_factory=dict)
    """Clients of RocketMQ's classic protocol that may wait for replies, by the ids that they give themselves."""
    listeners: Listeners = field(default_factory=Listeners)
    pipelines: Pipelines = field(default_factory=Pipelines)
    """Jobs of Spark that report to the server."""
    history: History | None = None
    """Kept where HTTP is served."""
    has_counted: bool = False
    """Whether the files that messages are counted from were read once."""
    is_started: bool = False
    """Whether the server has started and is not stopping."""

    @property
    def is_ready(self) -> bool:
        """Whether the server has started, is not stopping, and every listener accepts."""
        return self.is_started and not self.listeners.ended()

    def advertised_address(self, peer: Peer) -> tuple[str, int]:
        """The host and port that a stream client is to connect to."""
        advertised, host = self.settings.advertised, self._advertised_host(peer)
        if peer.is_encrypted:
            return host, advertised.tls_port or self.ports.get("stream_tls", 5551)
        return host, advertised.port or self.ports.get("stream", 5552)

    def advertised_classic_address(self, peer: Peer) -> tuple[str, int]:
        """The host and port that a client of RocketMQ's classic protocol is to connect to.

        The Java client compares them with the address of its connection, which is numeric: if they are equal it sends
        a heartbeat at once, and so learns the version of the broker.
        """
        port = self.settings.advertised.rocketmq_port or self.ports.get("rocketmq_classic", 10911)
        # A certificate for this machine contains its name; the Java client writes IPv6 addresses in other ways.
        if self.settings.advertised.host is None and not peer.is_encrypted and "." in peer.local_host:
            return peer.local_host, port
        return self._advertised_host(peer), port

    def _advertised_host(self, peer: Peer) -> str:
        host = self.settings.advertised.host or ("localhost" if peer.is_loopback else peer.local_host)
        return host or "localhost"

    def http_listener(self, peer: Peer) -> str | None:
        """The listener of lists and users, as `http:15672`, for a client that knows the host; None without one."""
        kinds = ("https", "http") if peer.is_encrypted else ("http", "https")
        return next((f"{kind}:{self.ports[kind]}" for kind in kinds if kind in self.ports), None)


HandlerFactory = Callable[[Transport, ServerContext], Handler]
"""Makes the handler of an accepted connection."""
