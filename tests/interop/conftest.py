"""One server for all interop tests, a stream of its own for each, and a running program per client library."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

import pytest

from interop.programs import Client, Program, start
from interop.rocketmq import RocketMq, Walks, of_server, wanted_walks
from interop.rocketmq import original as original_rocketmq
from interop.servers import JOHN, Served, ServerProcess, original

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`headgate serve` with a user John beside the default one; or the RabbitMQ that the environment names."""
    pytest.importorskip("pika", reason="the Python clients are not installed: `make clients`")
    running = original()
    if running is not None:
        yield running
        return
    process = ServerProcess(tmp_path_factory.mktemp("served"), {"user": [JOHN]})
    try:
        yield process.start()
    finally:
        process.close()


@pytest.fixture(scope="session")
def rocketmq(request: pytest.FixtureRequest) -> RocketMq:
    """Where clients of RocketMQ connect: to the same server; or to the RocketMQ that the environment names."""
    running = original_rocketmq()
    if running is None:
        served = request.getfixturevalue("served")
        if served.is_original:
            pytest.skip("RabbitMQ is no RocketMQ")
        running = of_server(served)
    return running


@pytest.fixture(scope="session")
def walks(request: pytest.FixtureRequest, rocketmq: RocketMq) -> Iterator[Walks]:
    """The walks of clients of RocketMQ, of both protocols, which run side by side."""
    with Walks(rocketmq, wanted_walks(request.session.items)).running() as running:
        yield running


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that nothing has yet, made from the test's."""
    words = re.sub(r"\W+", "-", request.node.originalname.removeprefix("test_"))
    return f"{words[:60]}-{next(_numbers)}"


@pytest.fixture
def stream(served: Served, name: str) -> Iterator[str]:
    """A new, empty stream."""
    served.delete(name)
    served.declare(name)
    yield name
    served.delete(name)


@pytest.fixture(scope="module")
def programs(served: Served) -> Iterator[Callable[..., Program]]:
    """Gives the running program of a client, connected as guest to a port by its name: one of each for all tests."""
    running: dict[Client, Program] = {}

    def program(client: Client, port: str) -> Program:
        if client not in running:
            running[client] = start(client)
            running[client].ask("connect", host=served.host, port=served.ports[port])
        return running[client]

    yield program
    for one in running.values():
        one.stop()
