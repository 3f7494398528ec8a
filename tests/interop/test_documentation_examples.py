"""Every example of the page "Stream Filtering" of RabbitMQ's documentation, with the Java clients.

All of them are given in Java there: Bloom filters by AMQP 1.0, AMQP 0.9.1 and the stream protocol, each with a filter
in the client behind it; property filter, SQL filter, both stages combined, and what becomes of an invalid filter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from interop.programs import JAVA_EXAMPLES, ClientError, Program, bodies, start
from interop.servers import JOHN, Served


@pytest.fixture(scope="module")
def connected(served: Served) -> Iterator[Program]:
    program = start(JAVA_EXAMPLES)
    user, password = str(JOHN["name"]), str(JOHN["password"])
    program.ask(
        "connect", host=served.host, amqp_port=served.amqp, stream_port=served.stream, user=user, password=password
    )
    yield program
    program.stop()


@pytest.fixture
def examples(connected: Program, stream: str) -> Iterator[Program]:
    """The program; its consumers end before their stream does, which its library would try to find again."""
    yield connected
    connected.ask("stop")


def chunks(examples: Program, publish: str, stream: str, given: list[dict[str, Any]]) -> None:
    """Publish each message in a chunk of its own."""
    for message in given:
        examples.ask(publish, stream=stream, messages=[message])


@pytest.mark.parametrize("from_first", [True, False], ids=["from the first message", "from now on"])
def test_bloom_filter_amqp_10(examples: Program, stream: str, from_first: bool) -> None:
    given = [
        {"body": "an invoice", "filter_value": "invoices"},
        {"body": "a letter", "filter_value": "letters"},
        {"body": "an order", "filter_value": "orders"},
        {"body": "without a value"},
        {"body": "another invoice", "filter_value": "invoices"},
    ]
    if not from_first:
        examples.ask("bloom_amqp10", stream=stream, from_first=False)
    chunks(examples, "publish_amqp10", stream, given)
    if from_first:
        examples.ask("bloom_amqp10", stream=stream, from_first=True)
    processed = examples.ask("take", until=["another invoice"])
    assert bodies(processed) == ["an invoice", "an order", "another invoice"]


@pytest.mark.parametrize("from_first", [True, False], ids=["from the first message", "from now on"])
def test_bloom_filter_amqp_091(examples: Program, stream: str, from_first: bool) -> None:
    given = [
        {"body": "from emea", "filter_value": "emea"},
        {"body": "from amer", "filter_value": "amer"},
        {"body": "without a value"},
        {"body": "also from emea", "filter_value": "emea"},
    ]
    if not from_first:
        examples.ask("bloom_amqp091", stream=stream, from_first=False)
    chunks(examples, "publish_amqp091", stream, given)
    if from_first:
        examples.ask("bloom_amqp091", stream=stream, from_first=True)
    assert bodies(examples.ask("take", until=["also from emea"])) == ["from emea", "also from emea"]


@pytest.mark.parametrize("from_first", [True, False], ids=["from the first message", "from now on"])
def test_bloom_filter_stream_protocol(examples: Program, stream: str, from_first: bool) -> None:
    given = [
        {"body": "from emea", "region": "emea"},
        {"body": "from amer", "region": "amer"},
        {"body": "also from emea", "region": "emea"},
    ]
    if not from_first:
        examples.ask("bloom_stream", stream=stream, from_first=False)
    examples.ask("publish_stream", stream=stream, messages=given)
    if from_first:
        examples.ask("bloom_stream", stream=stream, from_first=True)
    assert bodies(examples.ask("take", until=["also from emea"])) == ["from emea", "also from emea"]


ABOUT_JOHN = [
    {"body": "nobody's", "subject": "Order 1", "region": "emea"},
    {"body": "an invoice", "subject": "Invoice 1", "region": "emea", "user_id": "John"},
    {"body": "elsewhere", "subject": "Order 2", "region": "amer", "user_id": "John"},
    {"body": "wanted", "subject": "Order 3", "region": "emea", "user_id": "John"},
]


@pytest.mark.parametrize("example", ["property_filter", "sql_filter"])
def test_filter_expressions(examples: Program, stream: str, example: str) -> None:
    examples.ask("publish_amqp10", stream=stream, messages=ABOUT_JOHN)
    examples.ask(example, stream=stream, from_first=True)
    assert bodies(examples.ask("take", until=["wanted"])) == ["wanted"]


def test_bloom_filter_and_sql_filter_combined(examples: Program, stream: str) -> None:
    order = {"filter_value": "order.created", "subject": "order.created", "age_ms": 60_000, "region": "EMEA"}
    given = [
        {"body": "login", "filter_value": "user.login", "subject": "user.login", "age_ms": 0, "region": "EMEA"},
        {**order, "body": "cheap", "price": 10.5},
        {**order, "body": "too old", "age_ms": 3_700_000, "price": 500.5},
        {**order, "body": "another region", "region": "LATAM", "price": 500.5},
        {**order, "body": "premium", "price": 10.5, "premium_customer": True},
        {**order, "body": "of high priority", "price": 10.5, "priority": 5, "region": "APJ"},
        {**order, "body": "of high price", "price": 99.99, "region": "AMER"},
    ]
    chunks(examples, "publish_amqp10", stream, given)
    examples.ask("bloom_and_sql", stream=stream, from_first=True)
    processed = examples.ask("take", until=["of high price"])
    assert bodies(processed) == ["premium", "of high priority", "of high price"]


def test_an_invalid_filter_is_an_error_of_the_application(examples: Program, stream: str) -> None:
    with pytest.raises(ClientError, match=r"(?i)filter"):
        examples.ask("invalid_filter", stream=stream, from_first=True)
