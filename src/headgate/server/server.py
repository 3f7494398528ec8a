"""A whole server: lock, listeners, broker, event loop and HTTP put together, started and stopped."""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.broker import (
    AuditSettings,
    BatchObserver,
    Broker,
    BrokerSettings,
    EntityDeclaration,
    GroupStart,
    TopicCreation,
)
from headgate.clock import Clock, SystemClock
from headgate.derived.match_index import IndexSettings
from headgate.errors import ConfigError, StreamLockedError
from headgate.log import HTTP_NOTE, PRIVATE_FOLDER, Durability, StreamLock, lock_root
from headgate.server.acceptor import Acceptor
from headgate.server.api import api_groups
from headgate.server.authenticator import Authenticator
from headgate.server.certificates import own_certificate, server_context
from headgate.server.connection import Connection
from headgate.server.connections import Connections
from headgate.server.context import HandlerFactory, ServerContext
from headgate.server.definitions import apply_definitions, declare_entities, declared_entities, placement_of
from headgate.server.derived_builder import DerivedBuilder
from headgate.server.event_loop import EventLoop
from headgate.server.history import INTERVAL_S, History
from headgate.server.http import Access, Group, HttpListener, application
from headgate.server.listener_watch import Listener
from headgate.server.listening_sockets import ENCRYPTED, MIXED, grpc_context, open_listeners, protocol_of, tls_context
from headgate.server.rocketmq.message_ids import message_ids
from headgate.server.servicebus import administration_site
from headgate.server.settings import ServerSettings
from headgate.server.spark_jobs import SparkWork
from headgate.server.wrong_protocol import Spoken, WrongProtocolClient, refused, spoken_by

if TYPE_CHECKING:
    from headgate.server.rocketmq.grpc import Servicer

HANDLERS = {
    "amqp": "headgate.server.amqp:AmqpHandler",
    "stream": "headgate.server.stream:StreamHandler",
    "stomp": "headgate.server.stomp:StompHandler",
    "rocketmq_names": "headgate.server.rocketmq.remoting:RemotingHandler",
    "rocketmq_classic": "headgate.server.rocketmq.remoting:RemotingHandler",
}
"""Protocol → its handler, which is imported when the server starts."""

OVER_HTTP = frozenset({"http", "servicebus"})
"""Protocols over HTTP, without a handler of the event loop."""

OVER_GRPC = "rocketmq"
"""The protocol over gRPC: the handlers of all its connections share one servicer."""

WEB_SOCKET = "/$servicebus/websocket"
"""The path where Service Bus clients go on with AMQP over a WebSocket; in lower case."""

_WRITTEN_WITHIN_S = 5.0
_POLL_S = 0.01

logger = logging.getLogger("headgate.server")


class Server:
    """One broker over one root folder, served to clients; made and used in the thread of a running loop."""

    def __init__(
        self,
        settings: ServerSettings,
        *,
        clock: Clock | None = None,
        handlers: Mapping[str, HandlerFactory] | None = None,
        entities: Sequence[EntityDeclaration] = (),
    ) -> None:
        self._settings = settings
        self._entities = entities
        """Entities in addition to the settings' ones."""
        self._clock = clock or SystemClock()
        self._handlers = handlers
        self._event_loop = EventLoop(asyncio.get_running_loop())
        self._acceptor = Acceptor(self._event_loop)
        self._lock: StreamLock | None = None
        self._http: list[HttpListener] = []
        self._grpc: Servicer | None = None
        self._derived_builder: DerivedBuilder | None = None
        self.context: ServerContext
        self._access: Access
        self.api_groups: tuple[Group, ...]
        """The endpoints of its HTTP listeners, from its start on."""

    @property
    def ports(self) -> dict[str, int]:
        """The port of each open listener by its key in the configuration."""
        return self.context.ports

    async def start(self) -> None:
        """Listen, recover, apply the definitions of the configuration, accept; the last step makes `is_ready` true.

        The ports are taken first, then the root: a second server fails before it touches a file. Raises ConfigError
        if the configuration asks for something unavailable, LogError for files.
        """
        tls = None if self._settings.tls is None else tls_context(self._settings.tls)
        sockets = open_listeners(self._settings.listeners, encrypted=tls is not None)
        ports = {name: listening.getsockname()[1] for name, listening in sockets.items()}
        broker: Broker | None = None
        try:
            self._lock = _lock_root(Path(self._settings.root), self._clock, _reached_at(sockets))
            broker = self._make_broker()
            apply_definitions(broker, self._settings)
            protocols = {protocol_of(name) for name in sockets}
            if "servicebus" in protocols:
                protocols.add("amqp")
            handlers = {protocol: self._handler(protocol) for protocol in protocols - OVER_HTTP - {OVER_GRPC}}
            certificate = self._certificate(needs_one="servicebus" in protocols)
        except BaseException:
            for listening in sockets.values():
                listening.close()
            if broker is not None:
                broker.close()
            self._event_loop.close()
            if self._lock is not None:
                self._lock.release()
            raise
        self.context = self._make_context(broker)
        self.context.ports.update(ports)
        self._access = Access(self.context, self._event_loop)
        self.api_groups = api_groups(self.context, self._access)
        self._event_loop.start(self.context)
        self._acceptor.start()
        try:
            await declare_entities(broker, [*declared_entities(self._settings), *self._entities])
        except BaseException:
            for listening in sockets.values():
                listening.close()
            await self.stop()
            raise
        if OVER_GRPC in protocols:
            # Imports protobuf.
            from headgate.server.rocketmq.grpc import Servicer

            self._grpc = Servicer(self.context, self._event_loop)
            handlers[OVER_GRPC] = self._grpc.connection
        for name, listening in sockets.items():
            if protocol_of(name) in OVER_HTTP:
                start = functools.partial(self._start_http, name, certificate, handlers)
            else:
                start = functools.partial(self._listen, name, handlers[protocol_of(name)], tls)
            await self.context.listeners.open(name, listening, start, host=self._settings.listeners.host)
        kinds = [kind for kind in ("columns", "lookup") if getattr(self._settings, kind).build]
        if kinds:
            self._derived_builder = DerivedBuilder(Path(self._settings.root), kinds)
            self._derived_builder.start()
        if "http" in protocols:
            self._keep_history()
        self.context.is_started = True

    async def stop(self) -> None:
        """Accept no more, write and confirm queued messages, say good-bye, release locks. Takes a bounded time."""
        self.context.is_started = False
        self.context.listeners.close()
        self._acceptor.stop()
        for job in self.context.broker.jobs.running:
            self.context.broker.jobs.cancel(job.id)
        if self._derived_builder is not None:
            await self._derived_builder.stop()
        if self._grpc is not None:
            self._grpc.stop()
        await self._until_written()
        await self._acceptor.end_connections()
        await asyncio.gather(*(job.work.gone() for job in self.context.broker.jobs if isinstance(job.work, SparkWork)))
        await asyncio.gather(*(http.stop() for http in self._http))
        if self._grpc is not None:
            self._grpc.close()
        try:
            self.context.broker.close()
        finally:
            self._event_loop.close()
            if self._lock is not None:
                self._lock.release()

    def hurry(self) -> None:
        """Stop without waiting for clients any longer."""
        self._acceptor.abort_connections()

    async def _listen(
        self, name: str, factory: HandlerFactory, tls: ssl.SSLContext | None, listening: socket.socket
    ) -> Listener:
        takes_both = name in MIXED
        if name in ENCRYPTED and protocol_of(name) == OVER_GRPC:
            assert self._settings.tls is not None
            tls = grpc_context(self._settings.tls)
        encrypted = tls if name in ENCRYPTED or takes_both else None
        return await self._acceptor.listen(name, listening, factory, encrypted, takes_plain=takes_both)

    def _certificate(self, *, needs_one: bool) -> ssl.SSLContext | None:
        """The TLS context of HTTP: the configured certificate, or else the server's own if it needs one."""
        tls = self._settings.tls
        if tls is not None:
            return server_context(tls.certificate, tls.key)
        if not needs_one:
            return None
        own = own_certificate(Path(self._settings.root) / PRIVATE_FOLDER / "tls", now_ms=self._clock.now_ms())
        logger.info("TLS on the port of servicebus is for localhost; clients that check it trust %s", own.authority)
        return own.context()

    def _keep_history(self) -> None:
        context = self.context
        history = History(
            context.broker, context.connections, self._clock.now_ms, has_counted=lambda: context.has_counted
        )
        context.history = history
        self._event_loop.repeat(INTERVAL_S, history.sample)

    async def _start_http(
        self,
        name: str,
        certificate: ssl.SSLContext | None,
        handlers: Mapping[str, HandlerFactory],
        listening: socket.socket,
    ) -> Listener:
        is_servicebus = protocol_of(name) == "servicebus"
        is_encrypted = name in ENCRYPTED

        def amqp() -> Connection:
            return self._acceptor.connection(name, handlers["amqp"])

        def first(data: bytes) -> Connection | bytes | None:
            if is_servicebus and spoken_by(data) is Spoken.AMQP:
                return amqp()
            return refused(data, name, self.ports, Spoken.HTTP)

        http = HttpListener(
            administration_site(self.context)
            if is_servicebus
            else application(self.context, self._access, self.api_groups),
            listening,
            limit_s=self._settings.timeouts.handshake_s,
            encryption=certificate if is_servicebus or is_encrypted else None,
            web_sockets={WEB_SOCKET: amqp} if is_servicebus else None,
            first=first,
            make_plain=(lambda: WrongProtocolClient(name, self.ports)) if is_encrypted else None,
        )
        self._http.append(http)
        if is_servicebus:
            self._acceptor.administration = http.connection
        await http.start()
        return http

    def _make_broker(self) -> Broker:
        users_file = self._settings.authentication.users_file
        audit = self._settings.audit
        settings = BrokerSettings(
            durability=Durability(self._settings.storage.durability),
            users_file=None if users_file is None else Path(users_file),
            default_user=self._settings.authentication.default_user,
            filter_values=self._settings.limits.filter_values,
            entities=self._settings.limits.entities,
            match_index=IndexSettings(self._settings.rocketmq.calculate_filter_bitmap),
            create_topics=TopicCreation(self._settings.rocketmq.create_topics),
            topic_queues=self._settings.rocketmq.topic_queues,
            create_groups=self._settings.rocketmq.create_groups,
            consumer_groups=self._settings.limits.consumer_groups,
            group_start=GroupStart(self._settings.rocketmq.group_start),
            message_ids=lambda *stored: message_ids(self.context, *stored),
            placement=placement_of(self._settings.storage),
            audit=AuditSettings(audit.max_age, audit.max_bytes) if audit.enabled else None,
        )
        return Broker(
            Path(self._settings.root),
            now_ms=self._clock.now_ms,
            cpu_ns=time.thread_time_ns,
            settings=settings,
            wake=self._event_loop.wake,
            run_in_worker=self._event_loop.run_in_worker,
            run_in_background=self._event_loop.run_in_background,
            run_in_storage=self._event_loop.run_in_storage,
            run_transfer=self._event_loop.run_transfer,
            observer=self._observer(),
        )

    def _observer(self) -> BatchObserver | None:
        """What makes spans of batches. Raises ConfigError if it is asked for without OpenTelemetry."""
        if not self._settings.tracing.enabled:
            return None
        from headgate.server.tracing import BatchTracing

        return BatchTracing(links=self._settings.tracing.links)

    def _make_context(self, broker: Broker) -> ServerContext:
        connections = Connections()
        authenticator = Authenticator(
            broker.users,
            self._settings,
            self._clock,
            connections=connections,
            run_in_thread=self._event_loop.run_in_login_thread,
        )
        return ServerContext(broker, self._settings, self._clock, authenticator, connections)

    def _handler(self, protocol: str) -> HandlerFactory:
        if self._handlers is not None:
            return self._handlers[protocol]
        module, _, name = HANDLERS[protocol].partition(":")
        factory: HandlerFactory = getattr(importlib.import_module(module), name)
        return factory

    async def _until_written(self) -> None:
        """Wait for appends in threads to end, so that publishers get their confirms."""
        broker = self.context.broker
        for _ in range(int(_WRITTEN_WITHIN_S / _POLL_S)):
            if not broker.has_unwritten:
                break
            await asyncio.sleep(_POLL_S)


def _reached_at(sockets: Mapping[str, socket.socket]) -> dict[str, str]:
    """The note in the lock of the root, for other processes on this machine: the address of HTTP."""
    for scheme in ("http", "https"):
        if scheme in sockets:
            host, port = sockets[scheme].getsockname()[:2]
            host = {"::": "localhost", "0.0.0.0": "127.0.0.1"}.get(host, f"[{host}]" if ":" in host else host)
            return {HTTP_NOTE: f"{scheme}://{host}:{port}"}
    return {}


def _lock_root(root: Path, clock: Clock, note: Mapping[str, str]) -> StreamLock:
    """Lock a root for this server. Raises ConfigError that names the process which holds the lock."""
    try:
        return lock_root(root, now_ms=clock.now_ms(), note=note)
    except StreamLockedError as error:
        holder = error.reason.partition(": ")[2].partition(";")[0]
        raise ConfigError(f"{root} is in use, by {holder}: another server, or a command that has not ended") from error
