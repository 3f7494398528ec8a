"""A server in memory for each test that asks for one, and a client that tries again soon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate.client import Client, Retry
from waiting import LIMIT_S

from .fake_server import HEADGATE, FakeServer, fake_server

SOON = Retry(first_s=0.01, most_s=0.05, give_up_after_s=LIMIT_S)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """A server that says it is RabbitMQ."""
    with fake_server() as made:
        yield made


@pytest.fixture
def headgate() -> Iterator[FakeServer]:
    """A server that says it is Headgate."""
    with fake_server(HEADGATE) as made:
        yield made


@pytest.fixture
def client(server: FakeServer) -> Iterator[Client]:
    """A client of `server`."""
    with Client.connect(server.address, retry=SOON) as made:
        yield made
