"""The unmodified JMS client of Apache Qpid on queues and subscriptions: browsers, selectors, no body."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from interop.entities import declare_queue, declare_topic
from interop.programs import JAVA_JMS, ClientError, Program, bodies, start
from interop.servers import Served


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[Program]:
    if served.is_original:
        pytest.skip("RabbitMQ has no queues of Service Bus")
    program = start(JAVA_JMS)
    program.ask("connect", host=served.host, port=served.amqp)
    yield program
    program.ask("close")
    program.stop()


def _numbered(count: int) -> list[dict[str, object]]:
    return [{"body": f"m{number}", "properties": {"n": number}} for number in range(count)]


def test_a_browser_takes_nothing_away(client: Program, served: Served, name: str) -> None:
    declare_topic(served, name, s=[{"name": "odd", "sql": "n % 2 = 1"}])
    client.ask("send", address=name, messages=_numbered(600))
    address = f"{name}/Subscriptions/s"
    wanted = [f"m{number}" for number in range(1, 600, 2)]
    for shown in (address, f"/queues/{address.replace('/', '%2F')}"):
        assert bodies(client.ask("browse", address=shown)) == wanted
    assert bodies(client.ask("receive", address=address, count=300)) == wanted
    assert client.ask("browse", address=address) == []


def test_a_selector_is_refused(client: Program, served: Served, name: str) -> None:
    declare_queue(served, name)
    client.ask("send", address=name, messages=_numbered(2))
    for command in ("receive", "browse"):
        with pytest.raises(ClientError, match="selectors are not served; the rules of a subscription select messages"):
            client.ask(command, address=name, selector="n = 1")
    assert bodies(client.ask("receive", address=name, count=2)) == ["m0", "m1"]


def test_messages_without_a_body(client: Program, served: Served, name: str) -> None:
    declare_queue(served, name)
    client.ask("send", address=name, messages=[{"properties": {"n": 1}}, {"body": "m", "properties": {"n": 2}}])
    first, second = client.ask("receive", address=name, count=2)
    assert (first["body"], first["properties"]["n"]) == (None, 1) and second["body"] == "m"
