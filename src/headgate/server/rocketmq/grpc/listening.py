"""The listeners of gRPC. grpc binds its ports itself, and has threads of its own for sockets; calls come to the loop.

The ports were bound before, as those of all listeners, by sockets that are given up here a moment before grpc takes
them: what cannot be had is told in the same words, before grpc is imported.
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import grpc
import grpc.aio

from headgate.errors import ConfigError
from headgate.server.context import ServerContext
from headgate.server.driver import Driver
from headgate.server.listeners import ENCRYPTED
from headgate.server.rocketmq.grpc.servicer import Servicer
from headgate.server.settings import ServerSettings, Tls

TICK_S = 1.0
_REQUEST_ROOM = 4
"""A request may be so many times as large as the largest body: what is a little too large is refused with a reason."""

_METADATA_BYTES = 16_384
_PING_MS, _PING_LIMIT_MS = 30_000, 20_000
_LEAST_PING_MS = 5_000


class GrpcServer:
    """The listeners of one server, from `bind` to `stop`; made in the running loop."""

    def __init__(self, settings: ServerSettings) -> None:
        limits = settings.rocketmq
        self._settings = settings
        self._server = grpc.aio.server(
            options=(
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", _REQUEST_ROOM * limits.message_size_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_concurrent_streams", limits.connection_calls),
                ("grpc.max_metadata_size", _METADATA_BYTES),
                # A client that is not there any more is noticed, and may ask the same of the server.
                ("grpc.keepalive_time_ms", _PING_MS),
                ("grpc.keepalive_timeout_ms", _PING_LIMIT_MS),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_ping_interval_without_data_ms", _LEAST_PING_MS),
            )
        )
        self._servicer: Servicer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._hurrying: asyncio.Future[None] | None = None

    def bind(self, name: str, listening: socket.socket) -> None:
        """Take over a listener from a bound socket, which is closed. Raises ConfigError."""
        host, port = listening.getsockname()[:2]
        listening.close()
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if name in ENCRYPTED:
                assert self._settings.tls is not None
                self._server.add_secure_port(address, _credentials(self._settings.tls))
            else:
                self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise ConfigError(f"listeners.{name}: cannot listen on {address}: the port was taken meanwhile") from error

    async def start(self, context: ServerContext, driver: Driver) -> None:
        """Accept."""
        self._servicer = Servicer(context, driver)
        self._server.add_generic_rpc_handlers((self._servicer.handler(),))
        await self._server.start()
        self._tick(driver)

    async def stop(self, limit_s: float) -> None:
        """Accept no more, answer what waits, and end what has not ended by then."""
        if self._servicer is not None:
            self._servicer.stop()
        await self._server.stop(limit_s)
        if self._servicer is not None:
            self._servicer.clients.close()
        if self._timer is not None:
            self._timer.cancel()

    def hurry(self) -> None:
        """End all calls at once."""
        self._hurrying = asyncio.ensure_future(self._server.stop(0))

    def _tick(self, driver: Driver) -> None:
        assert self._servicer is not None
        self._timer = driver.loop.call_later(TICK_S, self._tick, driver)
        self._servicer.clients.tick()


def _credentials(tls: Tls) -> grpc.ServerCredentials:
    """What `[tls]` says; its files were checked before. A client's certificate is asked for only where it is needed."""
    is_required = tls.verify_client == "required"
    return grpc.ssl_server_credentials(
        [(Path(tls.key).read_bytes(), Path(tls.certificate).read_bytes())],
        root_certificates=Path(tls.ca).read_bytes() if is_required and tls.ca is not None else None,
        require_client_auth=is_required,
    )
