"""AMQP 1.0 clients for Java, JavaScript and Go, as their users use them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from interop.programs import GO_AMQP10, JAVA_AMQP10, NODE_AMQP10, Client, ClientError, Program, bodies, messages, start
from interop.servers import Served

CLIENTS = (JAVA_AMQP10, NODE_AMQP10, GO_AMQP10)
WITH_MANAGEMENT = (JAVA_AMQP10, GO_AMQP10)

ORDERS = (
    "p.subject = 'order.created' AND p.creation_time > UTC() - 3600000 AND region IN ('AMER', 'EMEA', 'APJ')"
    " AND (h.priority > 4 OR price >= 99.99 OR premium_customer = TRUE)"
)


@pytest.fixture(params=CLIENTS, ids=str)
def client(request: pytest.FixtureRequest, programs: Callable[..., Program]) -> Program:
    return programs(request.param, "amqp")


@pytest.fixture(params=WITH_MANAGEMENT, ids=str)
def manager(request: pytest.FixtureRequest, programs: Callable[..., Program]) -> Program:
    return programs(request.param, "amqp")


@pytest.fixture
def bound(served: Served, stream: str) -> Iterator[str]:
    """An exchange that takes the key `orders` to the stream."""
    exchange = f"{stream}-exchange"
    with served.channel() as channel:
        channel.exchange_declare(exchange, "direct", durable=True)
        channel.queue_bind(stream, exchange, "orders")
    yield exchange
    with served.channel() as channel:
        channel.exchange_delete(exchange)


def publish(client: Program, stream: str, given: list[dict[str, Any]]) -> None:
    assert client.ask("publish", stream=stream, messages=given)["outcomes"] == ["accepted"] * len(given)


def test_messages_come_back_in_order_with_their_offsets_and_properties(client: Program, stream: str) -> None:
    given = [{"body": f"m{n}", "subject": "Order", "properties": {"region": "emea", "n": n}} for n in range(200)]
    publish(client, stream, given)
    received = client.consume(stream=stream, until=["m199"])
    assert [message["offset"] for message in received] == list(range(200))
    assert bodies(received) == [f"m{n}" for n in range(200)]
    assert received[7]["properties"] == {"region": "emea", "n": 7}
    assert received[7]["subject"] == "Order"


def test_a_consumer_starts_at_an_offset_exactly(client: Program, stream: str) -> None:
    publish(client, stream, messages(*(f"m{n}" for n in range(10))))
    assert bodies(client.consume(stream=stream, offset=7, until=["m9"])) == ["m7", "m8", "m9"]


def test_credit_of_one_delivers_everything_message_by_message(client: Program, stream: str) -> None:
    publish(client, stream, messages(*(f"m{n}" for n in range(20))))
    assert bodies(client.consume(stream=stream, credit=1, until=["m19"])) == [f"m{n}" for n in range(20)]


def test_new_messages_are_pushed_to_a_consumer_at_the_end(client: Program, stream: str) -> None:
    publish(client, stream, messages("before"))
    client.ask("subscribe", id="tail", stream=stream, offset="next")
    for n in range(5):
        publish(client, stream, messages(f"m{n}"))
        assert bodies(client.ask("take", id="tail", until=[f"m{n}"])) == [f"m{n}"]
    client.ask("unsubscribe", id="tail")


def test_a_filter_value_skips_the_chunks_of_others(client: Program, stream: str) -> None:
    for value in ("invoices", "orders", "letters"):
        publish(client, stream, messages(f"{value}-1", filter_value=value))
    publish(client, stream, messages("plain"))
    publish(client, stream, messages("orders-2", filter_value="orders"))
    received = client.consume(stream=stream, filter_values=["invoices", "orders"], until=["orders-2"])
    assert bodies(received) == ["invoices-1", "orders-1", "orders-2"]
    assert [message["filter_value"] for message in received] == ["invoices", "orders", "orders"]
    also_plain = client.consume(
        stream=stream, filter_values=["invoices", "orders"], match_unfiltered=True, until=["orders-2"]
    )
    assert bodies(also_plain) == ["invoices-1", "orders-1", "plain", "orders-2"]


FOR_PROPERTIES = [
    {"body": "other-subject", "subject": "Invoice", "user_id": "guest", "properties": {"region": "emea"}},
    {"body": "other-region", "subject": "Order 2", "user_id": "guest", "properties": {"region": "amer"}},
    {"body": "nobody", "subject": "Order 3", "properties": {"region": "emea"}},
    {"body": "wanted", "subject": "Order 1", "user_id": "guest", "properties": {"region": "emea"}},
]


def test_a_property_filter_is_evaluated_by_the_server(client: Program, stream: str) -> None:
    publish(client, stream, FOR_PROPERTIES)
    received = client.consume(
        stream=stream,
        properties={"user_id": "guest", "subject": "&p:Order"},
        application_properties={"region": "emea"},
        until=["wanted"],
    )
    assert bodies(received) == ["wanted"]


def test_an_sql_filter_is_evaluated_by_the_server(client: Program, stream: str) -> None:
    publish(client, stream, FOR_PROPERTIES)
    sql = "properties.user_id = 'guest' AND properties.subject LIKE 'Order%' AND region = 'emea'"
    assert bodies(client.consume(stream=stream, sql=sql, until=["wanted"])) == ["wanted"]


def test_filter_values_and_sql_are_combined(client: Program, stream: str) -> None:
    now = int(time.time() * 1000)
    order = {"filter_value": "order.created", "subject": "order.created", "creation_time": now}
    publish(client, stream, [{**order, "body": "cheap", "properties": {"region": "EMEA", "price": 10.5}}])
    publish(client, stream, [{"body": "login", "filter_value": "user.login", "subject": "user.login"}])
    publish(
        client,
        stream,
        [
            {
                **order,
                "body": "old",
                "creation_time": now - 7_200_000,
                "properties": {"region": "EMEA", "price": 500.5},
            },
            {**order, "body": "elsewhere", "properties": {"region": "LATAM", "price": 500.5}},
            {**order, "body": "urgent", "priority": 5, "properties": {"region": "APJ", "price": 1.5}},
            {**order, "body": "premium", "properties": {"region": "AMER", "price": 1.5, "premium_customer": True}},
            {**order, "body": "dear", "properties": {"region": "EMEA", "price": 99.99}},
        ],
    )
    received = client.consume(stream=stream, filter_values=["order.created"], sql=ORDERS, until=["dear"])
    assert bodies(received) == ["urgent", "premium", "dear"]


def test_the_java_client_fails_with_a_filter_that_is_not_in_force(
    programs: Callable[..., Program], stream: str
) -> None:
    client = programs(JAVA_AMQP10, "amqp")
    with pytest.raises(ClientError, match=r"(?i)filter"):
        client.ask("subscribe", id="bad", stream=stream, offset="first", sql="region = 'emea' AND")


def test_a_filter_that_is_refused_is_not_among_those_echoed(programs: Callable[..., Program], stream: str) -> None:
    client = programs(NODE_AMQP10, "amqp")
    offset = "rabbitmq:stream-offset-spec"
    good = client.ask("subscribe", id="good", stream=stream, offset="first", sql="region = 'emea'")
    bad = client.ask("subscribe", id="bad", stream=stream, offset="first", sql="region = 'emea' AND")
    assert good["in_force"] == [offset, "sql-filter"]
    assert bad["in_force"] == [offset]
    both = client.ask("subscribe", id="both", stream=stream, sql="a = 1", application_properties={"a": 1})
    assert both["in_force"] == ["sql-filter"]
    for consumer in ("good", "bad", "both"):
        client.ask("unsubscribe", id=consumer)


def test_an_unknown_stream_is_not_attached_to(client: Program, name: str) -> None:
    with pytest.raises(ClientError, match=r"(?i)not.found|no queue"):
        client.ask("subscribe", id="none", stream=name, offset="first")


def test_credit_for_a_link_that_was_just_refused_ends_nothing(
    programs: Callable[..., Program], served: Served, stream: str
) -> None:
    if served.is_original:
        pytest.skip("the original ends the session")
    client = programs(NODE_AMQP10, "amqp")
    client.ask("subscribe", id="tail", stream=stream, offset="first")
    with pytest.raises(ClientError, match="not-found"):
        client.ask("subscribe", id="none", stream=f"{stream}-none", eager=True)
    publish(client, stream, messages("m0"))
    assert bodies(client.ask("take", id="tail", until=["m0"])) == ["m0"]
    client.ask("unsubscribe", id="tail")


@pytest.mark.parametrize("library", WITH_MANAGEMENT, ids=str)
def test_messages_go_through_an_exchange_or_come_back(
    programs: Callable[..., Program], stream: str, bound: str, library: Client
) -> None:
    client = programs(library, "amqp")
    to = {"exchange": bound}
    assert client.ask("publish", **to, key="orders", messages=messages("m0"))["outcomes"] == ["accepted"]
    assert client.ask("publish", **to, key="letters", messages=messages("lost"))["outcomes"] == ["released"]
    assert bodies(client.consume(stream=stream, until=["m0"])) == ["m0"]


def test_a_sender_without_a_target_takes_the_address_of_each_message(
    programs: Callable[..., Program], stream: str
) -> None:
    client = programs(NODE_AMQP10, "amqp")
    given = [{"body": "m0", "to": f"/queues/{stream}"}, {"body": "lost", "to": "/queues/nobody"}]
    assert client.ask("publish", target=None, messages=given)["outcomes"] == ["accepted", "released"]
    assert bodies(client.consume(stream=stream, until=["m0"])) == ["m0"]


def test_streams_are_managed_over_the_pair_of_links(manager: Program, name: str) -> None:
    declared = manager.ask("create", stream=name, arguments={"x-max-length-bytes": 1_000_000})
    assert (declared["name"], declared["type"].lower(), declared["durable"]) == (name, "stream", True)
    assert declared["arguments"]["x-max-length-bytes"] == 1_000_000
    again = manager.ask("create", stream=name, arguments={"x-max-length-bytes": 1_000_000})
    assert again["arguments"] == declared["arguments"]
    with pytest.raises(ClientError, match=r"(?i)409|inequivalent|other arguments|precondition"):
        manager.ask("create", stream=name, arguments={"x-max-length-bytes": 2_000_000})
    assert manager.ask("info", stream=name)["name"] == name
    manager.ask("bind", exchange=f"{name}-exchange", stream=name, key="orders")
    outcomes = manager.ask("publish", exchange=f"{name}-exchange", key="orders", messages=messages("m0"))["outcomes"]
    assert outcomes == ["accepted"]
    manager.ask("delete", stream=name)
    with pytest.raises(ClientError, match=r"(?i)404|not.?found|no queue|no such|not.?exist"):
        manager.ask("info", stream=name)


@pytest.mark.parametrize("library", [NODE_AMQP10, JAVA_AMQP10], ids=str)
def test_a_deleted_stream_ends_its_links(
    programs: Callable[..., Program], served: Served, name: str, library: Client
) -> None:
    client = programs(library, "amqp")
    served.declare(name)
    client.ask("subscribe", id="ended", stream=name, offset="first")
    served.delete(name)
    assert "deleted" in client.ask("end", id="ended").lower()


@pytest.mark.parametrize("library", CLIENTS, ids=str)
def test_a_wrong_password_does_not_connect(served: Served, library: Client) -> None:
    program = start(library)
    try:
        with pytest.raises(ClientError, match=r"(?i)auth|sasl"):
            program.ask("connect", host=served.host, port=served.amqp, password="wrong")
    finally:
        program.stop()


def test_each_client_reads_what_the_others_published(programs: Callable[..., Program], stream: str) -> None:
    running = [programs(client, "amqp") for client in CLIENTS]
    for program in running:
        publish(program, stream, messages(str(program.client), subject="s", properties={"number": 7, "region": "é"}))
    expected = [str(client) for client in CLIENTS]
    for program in running:
        # Each library encodes 7 in an integer type of its own.
        received = program.consume(stream=stream, sql="number = 7 AND region = 'é' AND p.subject = 's'", until=expected)
        assert bodies(received) == expected
        assert all(message["properties"]["region"] == "é" for message in received)
