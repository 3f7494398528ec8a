"""Spans of the batches that a server writes and delivers: conventions, links, errors, and nothing while it is off."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes as conventions
from opentelemetry.semconv.attributes import error_attributes

from headgate.broker.consumer_groups import ReceiveRequest
from headgate.client import Client, Management
from headgate.errors import ConfigError, StorageFullError
from headgate.message import Message
from headgate.server import tracing
from headgate.telemetry import sampled_contexts

from .running import RunningServer, running_server

SAMPLED = "00-{:032x}-{:016x}-01"


@pytest.fixture
def traced(tmp_path: Path, spans: InMemorySpanExporter) -> Iterator[RunningServer]:
    settings = {"tracing": {"enabled": True, "links": 2}, "audit": {"enabled": False}}
    with running_server(tmp_path, stream=[{"name": "orders"}], **settings) as running:
        yield running


def carrying(context: str) -> Message:
    return Message(b"x", application_properties={"traceparent": context})


def publish(running: RunningServer, *messages: Message) -> None:
    with Client.connect(f"127.0.0.1:{running.ports['stream']}") as client, client.publisher("orders") as publisher:
        publisher.send_many(list(messages))


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def common(operation: str, kind: conventions.MessagingOperationTypeValues, count: int) -> dict[str, object]:
    return {
        conventions.MESSAGING_SYSTEM: "headgate",
        conventions.MESSAGING_OPERATION_NAME: operation,
        conventions.MESSAGING_OPERATION_TYPE: kind.value,
        conventions.MESSAGING_DESTINATION_NAME: "orders",
        conventions.MESSAGING_BATCH_MESSAGE_COUNT: count,
    }


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def test_a_batch_that_is_written_is_one_span_and_so_is_one_that_a_consumer_gets(
    traced: RunningServer, spans: InMemorySpanExporter
) -> None:
    contexts = [SAMPLED.format(7, 8), f"00-{2:032x}-{2:016x}-00", *(SAMPLED.format(9, number) for number in (8, 9, 10))]
    publish(traced, *map(carrying, contexts))
    with (
        Client.connect(f"127.0.0.1:{traced.ports['stream']}") as client,
        client.consumer("orders", start="first", name="billing") as consumer,
    ):
        assert consumer.next(10.0) is not None
    (published,), (delivered,) = named(spans, "publish orders"), named(spans, "deliver orders")
    types = conventions.MessagingOperationTypeValues
    assert published.attributes == common("publish", types.SEND, 5)
    assert delivered.attributes == {
        **common("deliver", types.RECEIVE, 5),
        conventions.MESSAGING_CONSUMER_GROUP_NAME: "billing",
    }
    for span in (published, delivered):
        # Of the sampled contexts the first two: the settings say so.
        assert linked(span) == [8, 8] and [link.context.trace_id for link in span.links] == [7, 9]
        assert span.kind is trace.SpanKind.SERVER and span.parent is None
        assert span.start_time is not None and span.end_time is not None and span.start_time <= span.end_time


def test_copies_of_a_subscription_and_messages_of_a_group_are_spans_that_name_it(
    traced: RunningServer, spans: InMemorySpanExporter
) -> None:
    topics = Management.of(f"http://127.0.0.1:{traced.ports['http']}", user="guest", password="guest").topics
    topics.create_topic("orders")
    topics.create_subscription("orders", "red", {})
    publish(traced, carrying(SAMPLED.format(1, 5)))
    assert len(topics.receiver("orders", "red").receive(wait_s=10.0)) == 1
    (delivered,) = named(spans, "deliver orders")
    assert delivered.attributes == {
        **common("deliver", conventions.MessagingOperationTypeValues.RECEIVE, 1),
        conventions.MESSAGING_DESTINATION_SUBSCRIPTION_NAME: "red",
    }
    assert linked(delivered) == [5]
    spans.clear()
    received: list[object] = []
    request = ReceiveRequest("packing", ["orders"], None, None, 5, 60_000, received.append)
    traced.call(traced.context.broker.consumer_groups.receive, request)
    traced.until(lambda: received)
    (delivered,) = named(spans, "deliver orders")
    assert (delivered.attributes or {})[conventions.MESSAGING_CONSUMER_GROUP_NAME] == "packing"
    assert linked(delivered) == [5]


def test_what_is_refused_is_a_span_with_its_error(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    observer = tracing.BatchTracing(links=2)
    observer.published("orders", 3, [], began_ms=1_000, error=StorageFullError("no space", path=tmp_path))
    (span,) = named(spans, "publish orders")
    assert (span.attributes or {})[error_attributes.ERROR_TYPE] == "StorageFullError"
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.start_time == 1_000_000_000


def test_contexts_are_found_where_amqp_may_carry_them() -> None:
    text = SAMPLED.format(1, 1)
    annotated = Message(b"x", message_annotations={"traceparent": text}).encode()
    long = b"\xa1\x0btraceparent\xb1\x00\x00\x00\x37" + SAMPLED.format(2, 2).encode()
    found = sampled_contexts(map(memoryview, [annotated, annotated, long, text.encode()]), 10)
    assert [(context.trace_id, context.span_id, context.is_remote) for context in found] == [(1, 1, True), (2, 2, True)]


def test_a_server_without_tracing_imports_no_opentelemetry(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from server.running import running_server\n"
        "with running_server(Path(sys.argv[1])) as running:\n"
        "    print('opentelemetry' in sys.modules, 'headgate.telemetry' in sys.modules)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.split() == ["False", "False"]


def test_without_opentelemetry_the_server_says_where_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("headgate.server.tracing", "headgate.telemetry"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with (
        pytest.raises(ConfigError, match=r"pip install 'headgate\[otel\]'"),
        running_server(tmp_path, tracing={"enabled": True}),
    ):
        pass
