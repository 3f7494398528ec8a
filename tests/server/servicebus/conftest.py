"""A server with entities, for tests of Service Bus's service."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from server.entities import ServedEntities
from server.running import RunningServer, running_server

_numbers = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def entities(server: RunningServer) -> ServedEntities:
    return ServedEntities(server)


@pytest.fixture
def name() -> str:
    """The name of an entity that no other test has."""
    return f"e{next(_numbers)}"
