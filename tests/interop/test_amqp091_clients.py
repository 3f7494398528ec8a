"""AMQP 0.9.1 clients for Java, JavaScript and Go, as their users use them with streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from interop.programs import GO_AMQP091, JAVA_AMQP091, NODE_AMQP091, ClientError, Program, bodies, messages, start
from interop.servers import Served

CLIENTS = (JAVA_AMQP091, NODE_AMQP091)


@pytest.fixture(params=CLIENTS, ids=str)
def client(request: pytest.FixtureRequest, programs: Callable[..., Program]) -> Program:
    return programs(request.param, "amqp")


@pytest.fixture(params=CLIENTS, ids=str)
def own_connection(request: pytest.FixtureRequest, served: Served) -> Any:
    """A program of the test's own: the server closes its connection."""
    program = start(request.param)
    program.ask("connect", host=served.host, port=served.amqp)
    yield program
    program.stop()


def test_messages_come_back_in_order_with_their_offsets_and_headers(client: Program, stream: str) -> None:
    given = [{"body": f"m{n}", "id": f"id-{n}", "properties": {"region": "emea", "n": n}} for n in range(250)]
    client.ask("publish", stream=stream, messages=given)
    received = client.consume(stream=stream, until=["m249"])
    assert [message["offset"] for message in received] == list(range(250))
    assert bodies(received) == [f"m{n}" for n in range(250)]
    assert received[7]["properties"] == {"region": "emea", "n": 7, "x-stream-offset": 7}
    assert (received[7]["exchange"], received[7]["routing_key"]) == ("", stream)
    assert received[7]["message_id"] == "id-7"


def test_a_prefetch_of_one_delivers_everything_message_by_message(client: Program, stream: str) -> None:
    client.ask("publish", stream=stream, messages=messages(*(f"m{n}" for n in range(20))))
    assert bodies(client.consume(stream=stream, prefetch=1, until=["m19"])) == [f"m{n}" for n in range(20)]


def test_a_consumer_starts_at_an_offset_exactly(client: Program, stream: str) -> None:
    client.ask("publish", stream=stream, messages=messages(*(f"m{n}" for n in range(10))))
    assert bodies(client.consume(stream=stream, offset=7, until=["m9"])) == ["m7", "m8", "m9"]


def test_a_filter_value_skips_the_chunks_of_others(client: Program, stream: str) -> None:
    for value in ("emea", "amer"):
        client.ask("publish", stream=stream, messages=messages(f"{value}-1", filter_value=value))
    client.ask("publish", stream=stream, messages=messages("plain"))
    client.ask("publish", stream=stream, messages=messages("emea-2", filter_value="emea"))
    received = client.consume(stream=stream, filter_values=["emea"], until=["emea-2"])
    assert bodies(received) == ["emea-1", "emea-2"]
    assert received[0]["filter_value"] == "emea"
    also_plain = client.consume(stream=stream, filter_values=["emea"], match_unfiltered=True, until=["emea-2"])
    assert bodies(also_plain) == ["emea-1", "plain", "emea-2"]


def test_an_sql_filter_of_ours_is_evaluated_by_the_server(client: Program, served: Served, stream: str) -> None:
    if served.is_original:
        pytest.skip("x-headgate-sql is an extension")
    for n, region in enumerate(("emea", "amer", "emea")):
        client.ask("publish", stream=stream, messages=messages(f"m{n}", properties={"region": region, "n": n}))
    assert bodies(client.consume(stream=stream, sql="region = 'emea' AND n > 0", until=["m2"])) == ["m2"]
    with pytest.raises(ClientError, match="406"):
        client.ask("subscribe", id="bad", stream=stream, sql="region = 'emea' AND")


def test_an_unroutable_mandatory_message_comes_back(client: Program, name: str) -> None:
    published = client.ask("publish", stream=name, mandatory=True, messages=messages("lost"))
    assert published["returned"] == ["lost"]


def test_a_direct_exchange_takes_messages_to_a_stream(client: Program, stream: str) -> None:
    client.ask("bind", exchange=f"{stream}-exchange", stream=stream, key="orders")
    client.ask("publish", exchange=f"{stream}-exchange", key="orders", messages=messages("m0"))
    received = client.consume(stream=stream, until=["m0"])
    assert (received[0]["exchange"], received[0]["routing_key"]) == (f"{stream}-exchange", "orders")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"do": "create", "arguments": {"x-max-age": "1h"}}, "406"),
        ({"do": "subscribe", "id": "bad", "prefetch": 0}, "406"),
        ({"do": "subscribe", "id": "bad", "offset": "yesterday"}, "406"),
    ],
)
def test_what_a_stream_does_not_take_closes_the_channel(
    client: Program, stream: str, command: dict[str, Any], code: str
) -> None:
    with pytest.raises(ClientError, match=code):
        client.ask(**command, stream=stream)


def test_an_unknown_stream_is_refused(client: Program, name: str) -> None:
    with pytest.raises(ClientError, match="404"):
        client.ask("exists", stream=name)
    with pytest.raises(ClientError, match="404"):
        client.ask("subscribe", id="none", stream=name)


@pytest.mark.parametrize("command", [{"do": "get"}, {"do": "subscribe", "id": "bad", "no_ack": True}])
def test_what_only_queues_serve_closes_the_connection(
    own_connection: Program, stream: str, command: dict[str, Any]
) -> None:
    with pytest.raises(ClientError):
        own_connection.ask(**command, stream=stream)
    with pytest.raises(ClientError, match=r"540|(?i:closed)"):
        own_connection.ask("exists", stream=stream)


def test_a_deleted_stream_cancels_its_consumer(client: Program, served: Served, name: str) -> None:
    served.declare(name)
    client.ask("subscribe", id="ended", stream=name, offset="first")
    served.delete(name)
    assert client.ask("end", id="ended") == "cancelled"


@pytest.mark.parametrize("library", CLIENTS, ids=str)
def test_a_wrong_password_does_not_connect(served: Served, library: Any) -> None:
    program = start(library)
    try:
        with pytest.raises(ClientError, match=r"403|(?i:auth)"):
            program.ask("connect", host=served.host, port=served.amqp, password="wrong")
    finally:
        program.stop()


def test_no_clean_close_is_taken_for_a_lost_connection(programs: Callable[..., Program]) -> None:
    assert programs(GO_AMQP091, "amqp").ask("closes", count=200) == []


def test_a_request_gets_its_reply(programs: Callable[..., Program], stream: str) -> None:
    asked = programs(GO_AMQP091, "amqp").ask("request", stream=f"{stream}-requests", name="1 + 1?", id="c1")
    assert asked == {"id": "c1", "body": "re: 1 + 1?"}
