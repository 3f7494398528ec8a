"""A server with its gRPC listener open, and clients of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headgate.broker import MessageKind
from server.rocketmq.grpc_peer import GrpcPeer
from server.running import RunningServer, running_server


@dataclass
class GrpcSite:
    """A running server, and the clients that a test made."""

    running: RunningServer
    peers: list[GrpcPeer] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.running.ports['rocketmq']}"

    def peer(self, **options: Any) -> GrpcPeer:
        self.peers.append(GrpcPeer(self.address, **options))
        return self.peers[-1]

    def topic(self, name: str, queues: int = 1, *kinds: MessageKind) -> None:
        topics = self.running.context.broker.message_topics
        self.running.call(lambda: topics.create(name, queues, *([kinds] if kinds else [])))


@contextlib.contextmanager
def grpc_site(folder: Path, **settings: Any) -> Iterator[GrpcSite]:
    """A server with these tables of its configuration."""
    settings["listeners"] = {"rocketmq": 0} | settings.get("listeners", {})
    with running_server(folder, handlers={}, **settings) as running:
        site = GrpcSite(running)
        yield site
        for peer in site.peers:
            peer.close()


@pytest.fixture
def open_site(tmp_path: Path) -> Iterator[Callable[..., GrpcSite]]:
    """Starts servers that end with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda **settings: stack.enter_context(grpc_site(tmp_path, **settings))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcSite]:
    """One server for the tests of a module: each has topics and groups of its own."""
    with grpc_site(tmp_path_factory.mktemp("grpc")) as running:
        yield running
