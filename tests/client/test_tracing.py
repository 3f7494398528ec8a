"""Spans of batches: names and attributes of the conventions, links to what messages carry, nothing when it is off."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes as conventions
from opentelemetry.semconv.attributes import error_attributes, server_attributes

from headgate import Message
from headgate.client import Client, Consumer, tracing
from headgate.errors import ConfigError, HeadgateError
from headgate.message import EncodedMessages

from .conftest import SOON
from .fake_server import FakeServer

SAMPLED = "00-{:032x}-{:016x}-01"


@pytest.fixture
def traced(headgate: FakeServer, spans: InMemorySpanExporter) -> Iterator[Client]:
    with Client.connect(headgate.address, retry=SOON, tracing=True) as client:
        client.create_stream("orders")
        yield client


def carrying(context: str) -> Message:
    return Message(b"x", application_properties={"traceparent": context})


def read(consumer: Consumer, count: int) -> None:
    for _, _message in zip(range(count), consumer, strict=False):
        pass


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def test_a_batch_that_is_sent_is_one_span_and_so_is_a_batch_that_is_received(
    traced: Client, headgate: FakeServer, spans: InMemorySpanExporter
) -> None:
    with traced.publisher("orders") as publisher:
        publisher.send_many([Message(b"one"), carrying(SAMPLED.format(7, 8)), Message(b"three")])
    with traced.consumer("orders", start="first", name="billing") as consumer:
        read(consumer, 3)
        assert consumer.next(0.01) is None
    sent, received = spans.get_finished_spans()
    common = {
        conventions.MESSAGING_SYSTEM: "headgate",
        conventions.MESSAGING_DESTINATION_NAME: "orders",
        conventions.MESSAGING_BATCH_MESSAGE_COUNT: 3,
        server_attributes.SERVER_ADDRESS: headgate.address.rpartition(":")[0],
        server_attributes.SERVER_PORT: int(headgate.address.rpartition(":")[2]),
    }
    types = conventions.MessagingOperationTypeValues
    for span, operation in ((sent, types.SEND.value), (received, types.RECEIVE.value)):
        own = {conventions.MESSAGING_CONSUMER_GROUP_NAME: "billing"} if span is received else {}
        assert span.attributes == common | own | {
            conventions.MESSAGING_OPERATION_NAME: operation,
            conventions.MESSAGING_OPERATION_TYPE: operation,
        }
        assert (span.name, span.kind) == (f"{operation} orders", trace.SpanKind.CLIENT)
        assert linked(span) == [8] and span.links[0].context.trace_id == 7
        assert span.start_time is not None and span.end_time is not None and span.start_time <= span.end_time


def test_only_sampled_contexts_in_application_properties_are_linked() -> None:
    messages = [
        carrying(SAMPLED.format(1, 1)),
        carrying(f"00-{2:032x}-{2:016x}-00"),
        carrying("nonsense"),
        carrying(SAMPLED.format(0, 4)),
        Message(SAMPLED.format(5, 5).encode(), application_properties={"other": "traceparent"}),
        carrying(SAMPLED.format(6, 6)),
    ]
    encoded = EncodedMessages.of([*(message.encode() for message in messages), b"\x00traceparent"])
    assert [link.context.span_id for link in tracing._links(encoded)] == [1, 6]
    # A reader's batch is some of the messages in its buffer.
    assert [link.context.span_id for link in tracing._links(encoded.take(slice(1, None)))] == [6]


def test_a_span_has_no_more_links_than_opentelemetry_keeps() -> None:
    encoded = EncodedMessages.of([carrying(SAMPLED.format(9, number)).encode() for number in range(1, 200)])
    assert [link.context.span_id for link in tracing._links(encoded)] == list(range(1, tracing.MOST_LINKS + 1))


def test_what_fails_is_told_and_raised(traced: Client, headgate: FakeServer, spans: InMemorySpanExporter) -> None:
    publisher = traced.publisher("orders")
    with pytest.raises(ConfigError, match="publishing ids have to rise"):
        publisher.send(Message(b"x"), publishing_id=0)
    consumer = traced.consumer("orders", start="first")
    traced.delete_stream("orders")
    with pytest.raises(HeadgateError) as raised:
        consumer.next()
    sent, received = spans.get_finished_spans()
    assert (sent.attributes or {})[error_attributes.ERROR_TYPE] == "ConfigError"
    assert (received.attributes or {})[error_attributes.ERROR_TYPE] == type(raised.value).__name__
    assert [span.status.status_code for span in (sent, received)] == [trace.StatusCode.ERROR] * 2
    publisher.abandon()


def test_a_client_without_tracing_imports_no_opentelemetry(server: FakeServer) -> None:
    code = (
        "import sys\n"
        "from headgate.client import Client\n"
        "with Client.connect(sys.argv[1]) as client:\n"
        "    client.create_stream('orders')\n"
        "    with client.publisher('orders') as publisher:\n"
        "        publisher.send(b'one')\n"
        "    print(type(publisher).__name__, 'opentelemetry' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, server.address], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Publisher", "False"]


def test_without_opentelemetry_tracing_says_where_it_comes_from(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("headgate.client.tracing", "headgate.telemetry"):
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r"pip install 'headgate\[otel\]'"):
        Client.connect(server.address, tracing=True)
