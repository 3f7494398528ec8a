"""@stomp/stompjs over a TCP socket, as its users use it with streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from interop.programs import NODE_STOMP, ClientError, Program, bodies, start
from interop.servers import Served

DECLARING = {"x-queue-type": "stream", "durable": "true", "auto-delete": "false"}


@pytest.fixture
def client(programs: Callable[..., Program]) -> Program:
    return programs(NODE_STOMP, "stomp")


@pytest.fixture
def own_connection(served: Served) -> Any:
    """A program of the test's own: the server closes its connection."""
    program = start(NODE_STOMP)
    program.ask("connect", host=served.host, port=served.stomp)
    yield program
    program.stop()


def test_messages_come_back_in_order_with_their_offsets_and_headers(client: Program, stream: str) -> None:
    given = [{"body": f"m{n}", "properties": {"region": "emea", "n": str(n)}} for n in range(20)]
    client.ask("publish", stream=stream, messages=given)
    received = client.consume(stream=stream, until=["m19"])
    assert [message["offset"] for message in received] == list(range(20))
    assert bodies(received) == [f"m{n}" for n in range(20)]
    assert received[7]["properties"]["region"] == "emea"
    assert received[7]["properties"]["n"] == "7"


def test_a_consumer_starts_at_an_offset_exactly(client: Program, stream: str) -> None:
    client.ask("publish", stream=stream, messages=[{"body": f"m{n}"} for n in range(10)])
    assert bodies(client.consume(stream=stream, offset=7, prefetch=1, until=["m9"])) == ["m7", "m8", "m9"]


def test_a_queue_destination_declares_the_stream(client: Program, served: Served, name: str) -> None:
    target = f"/queue/{name}"
    client.ask("publish", target=target, headers=DECLARING, messages=[{"body": "m0"}])
    assert bodies(client.consume(target=target, headers=DECLARING, until=["m0"])) == ["m0"]
    served.delete(name)


def test_a_filter_value_skips_the_chunks_of_others(client: Program, stream: str) -> None:
    for value, body in (("emea", "emea-1"), ("amer", "amer-1"), (None, "plain"), ("emea", "emea-2")):
        given = {"body": body} | ({} if value is None else {"filter_value": value})
        client.ask("publish", stream=stream, messages=[given])
    assert bodies(client.consume(stream=stream, filter_values=["emea"], until=["emea-2"])) == ["emea-1", "emea-2"]
    also_plain = client.consume(stream=stream, filter_values=["emea"], match_unfiltered=True, until=["emea-2"])
    assert bodies(also_plain) == ["emea-1", "plain", "emea-2"]


def test_an_sql_filter_of_ours_is_evaluated_by_the_server(client: Program, served: Served, stream: str) -> None:
    if served.is_original:
        pytest.skip("x-headgate-sql is an extension")
    given = [{"body": f"m{n}", "properties": {"region": region}} for n, region in enumerate(("emea", "amer", "emea"))]
    client.ask("publish", stream=stream, messages=given)
    assert bodies(client.consume(stream=stream, sql="region = 'emea'", until=["m2"])) == ["m0", "m2"]


@pytest.mark.parametrize("headers", [{"ack": "auto"}, {"prefetch-count": "0"}])
def test_a_subscription_without_flow_control_is_an_error(
    own_connection: Program, stream: str, headers: dict[str, str]
) -> None:
    with pytest.raises(ClientError):
        own_connection.ask("subscribe", id="bad", stream=stream, headers=headers)


def test_a_wrong_password_does_not_connect(served: Served) -> None:
    program = start(NODE_STOMP)
    try:
        with pytest.raises(ClientError):
            program.ask("connect", host=served.host, port=served.stomp, password="wrong")
    finally:
        program.stop()
