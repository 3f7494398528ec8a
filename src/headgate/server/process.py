"""The server as a process: kernels in the background, one line when it is ready, signals, a graceful end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import resource
import signal
import sys
import threading
from collections.abc import Callable

from headgate import kernels
from headgate.server.listening_sockets import protocol_of
from headgate.server.logs import configure_logs
from headgate.server.server import Server
from headgate.server.settings import ServerSettings

KERNELS_WITHIN_S = 4.0
"""How long `ready` waits for kernels to be read from the cache. It never waits for the compiler."""

SWITCH_INTERVAL_S = 0.0005
"""After this time a scanning thread must release the interpreter lock; CPython's 5 ms are long for a message."""

logger = logging.getLogger("headgate.server")


def serve(settings: ServerSettings, *, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; `ready` gets one line when every listener accepts.

    Raises ConfigError, LogError if the server cannot be started. A second signal ends it without waiting for clients.
    """
    configure_logs(settings.log)
    _allow_descriptors()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    served = kernels.served_modules()
    kernels_within_s = 0.0 if kernels.missing(served) else KERNELS_WITHIN_S
    loading = kernels.load_in_background(served)
    loop = new_loop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(_serve(settings, loading, kernels_within_s, ready))
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def new_loop() -> asyncio.AbstractEventLoop:
    """A new loop: uvloop's if it is installed, about 1.5 times as fast at high rates, or else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _allow_descriptors() -> None:
    """Raise the limit of open files to its maximum: the systems' first limit (1 024) is below that of connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS names a limit that it does not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _serve(
    settings: ServerSettings, loading: threading.Thread, kernels_within_s: float, ready: Callable[[str], None]
) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    server = Server(settings)
    await server.start()
    try:
        signals = 0

        def stop(number: int) -> None:
            nonlocal signals
            signals += 1
            if signals == 1:
                logger.info("%s: stopping", signal.Signals(number).name)
                stopped.set()
            else:
                server.hurry()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop, number)
        await loop.run_in_executor(None, loading.join, kernels_within_s)
        if loading.is_alive():
            logger.info("ready before the kernels are: until then filters are slower, with the same results")
        # Modules and kernels live as long as the process: this spares the collector tens of ms for walking them.
        gc.collect()
        gc.freeze()
        ready(_ready_line(server))
        await stopped.wait()
    finally:
        await server.stop()
        logger.info("stopped")


def _ready_line(server: Server) -> str:
    host = server.context.settings.listeners.host
    ports = " ".join(f"{name}={port}" for name, port in sorted(server.ports.items(), key=_order))
    return f"ready: {server.context.settings.root} on {host}: {ports}"


def _order(item: tuple[str, int]) -> tuple[bool, str]:
    name = item[0]
    return protocol_of(name) != name, name
