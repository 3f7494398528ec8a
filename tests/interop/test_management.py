"""rabbit-hole, RabbitMQ's management client for Go: what monitoring asks for, as the library decodes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from interop.programs import GO_MANAGEMENT, GO_STREAM, ClientError, Program, messages
from interop.servers import Served
from waiting import eventually

LISTS = ("overview", "cluster", "whoami", "nodes", "vhosts", "connections", "exchanges", "bindings", "users", "queues")


@pytest.fixture
def client(programs: Callable[..., Program]) -> Program:
    return programs(GO_MANAGEMENT, "http")


@pytest.fixture
def watched(programs: Callable[..., Program], client: Program, stream: str) -> str:
    """A stream with three messages, counted, while a client is connected."""
    programs(GO_STREAM, "stream").ask("publish", stream=stream, messages=messages("a", "b", "c"))
    eventually(lambda: client.ask("queue", name=stream).get("messages") == 3)
    eventually(lambda: client.ask("connections"))
    return stream


def test_every_list_is_decoded(client: Program, watched: str) -> None:
    found = {name: client.ask(name) for name in LISTS}
    assert [name for name, answer in found.items() if not answer] == []
    overview = found["overview"]
    assert (overview["rabbitmq_version"], overview["node"]) == ("4.3.6", found["nodes"][0]["name"])
    assert overview["queue_totals"]["messages"] >= 3 and overview["object_totals"]["queues"] == len(found["queues"])
    assert {"amqp", "stream", "stomp", "http"} <= {each["protocol"] for each in overview["listeners"]}
    assert overview["contexts"][0]["port"] > 0
    assert found["whoami"]["name"] == "guest" and found["vhosts"][0]["name"] == "/"
    connection = found["connections"][0]
    assert (connection["user"], connection["peer_host"]) == ("guest", "127.0.0.1")
    assert client.ask("node", name=overview["node"])["running"] is True
    assert client.ask("exchange", name="amq.topic")["type"] == "topic"


def test_queues_have_their_counts(client: Program, watched: str) -> None:
    queue = client.ask("queue", name=watched)
    told = {name: queue[name] for name in ("name", "vhost", "type", "durable", "messages", "messages_ready")}
    assert told == {
        "name": watched,
        "vhost": "/",
        "type": "stream",
        "durable": True,
        "messages": 3,
        "messages_ready": 3,
    }
    assert queue["arguments"]["x-queue-type"] == "stream"
    page: dict[str, Any] = client.ask("page", name=f"^{watched}$")
    assert [one["name"] for one in page["items"]] == [watched] and page["page_count"] == 1
    assert page["total_count"] >= page["filtered_count"] == 1
    with pytest.raises(ClientError, match="404"):
        client.ask("queue", name=f"{watched}-not-there")


def test_health_is_checked(served: Served, client: Program) -> None:
    checks = [client.ask(check) for check in ("alarms", "virtual_hosts", "critical")]
    checks += [client.ask("port", port=served.stream)]
    checks += [client.ask("protocol", name=name) for name in ("amqp", "amqp091", "amqp10", "stomp", "http")]
    assert {check["status"] for check in checks} == {"ok"}
    assert client.ask("port", port=1)["reason"] == "No active listener"
