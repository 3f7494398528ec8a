"""A server inside the test process: its loop runs in a thread, its ports are free ones."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from headgate.log import unflushed
from headgate.server.context import HandlerFactory, ServerContext
from headgate.server.listening_sockets import ENCRYPTED, PLAIN, protocol_of
from headgate.server.server import HANDLERS, OVER_GRPC, Server
from headgate.server.settings import ServerSettings
from headgate.testing import ServerInThread, served
from waiting import LIMIT_S, eventually

T = TypeVar("T")


@dataclass
class RunningServer:
    """A server that accepts; `ports` by listener: `amqp`, `stream`, `stomp`, `http` and those with TLS."""

    started: ServerInThread
    host: str = "127.0.0.1"

    @property
    def server(self) -> Server:
        return self.started.server

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self.started.loop

    @property
    def ports(self) -> dict[str, int]:
        return self.server.ports

    @property
    def context(self) -> ServerContext:
        return self.server.context

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Calls a function in the loop's thread, where broker and handlers live, and gives its result."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(function(*arguments))
            except BaseException as error:
                done.set_exception(error)

        self.loop.call_soon_threadsafe(run)
        return done.result(LIMIT_S)

    def stop(self) -> Future[None]:
        """Begins to stop; clients may answer while it does. The result is there when it has stopped."""
        return self.started.stop()

    def until(self, holds: Callable[[], object]) -> None:
        """Waits for something that holds in the loop's thread."""
        eventually(lambda: self.call(holds))


@contextlib.contextmanager
def running_server(
    tmp_path: Path, *, handlers: Mapping[str, HandlerFactory] | None = None, **settings: Any
) -> Iterator[RunningServer]:
    """A server over `tmp_path / "data"`; tables of its configuration as keywords, such as `limits={"connections": 5}`.

    All listeners are open; with `handlers`, those of the protocols in it, and HTTP.
    """
    with unflushed(tmp_path), served(_settings(tmp_path, handlers, settings), handlers=handlers) as started:
        yield RunningServer(started)


def _settings(
    tmp_path: Path, handlers: Mapping[str, HandlerFactory] | None, given: Mapping[str, Any]
) -> ServerSettings:
    served = {"http", *({*HANDLERS, OVER_GRPC} if handlers is None else handlers)}
    listeners: dict[str, Any] = {"host": "127.0.0.1"}
    listeners |= {name: 0 if protocol_of(name) in served else "off" for name in (*PLAIN, *ENCRYPTED)}
    tables: dict[str, Any] = {
        "root": given.get("root", str(tmp_path / "data")),
        "timeouts": {"login_failure_s": 0.05, "linger_s": 1.0, "shutdown_s": 3.0} | given.get("timeouts", {}),
        "listeners": listeners | given.get("listeners", {}),
    }
    return msgspec.convert({**given, **tables}, ServerSettings)
