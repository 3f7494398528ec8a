"""pika with streams: the synchronous Python client of AMQP 0.9.1, unmodified."""

from __future__ import annotations

import datetime
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from interop.servers import Served
from waiting import LIMIT_S

pika = pytest.importorskip("pika", reason="the Python clients are not installed: `make clients`")

STREAM = {"x-queue-type": "stream"}


@contextmanager
def connect(served: Served, **given: Any) -> Iterator[Any]:
    connection = pika.BlockingConnection(pika.ConnectionParameters(served.host, served.amqp, **given))
    try:
        yield connection
    finally:
        if connection.is_open:
            connection.close()


@pytest.fixture
def channel(served: Served) -> Iterator[Any]:
    with connect(served) as connection:
        yield connection.channel()


def publish(channel: Any, stream: str, *bodies: str, **properties: Any) -> None:
    """Publishes, each message confirmed."""
    channel.confirm_delivery()
    for body in bodies:
        channel.basic_publish("", stream, body.encode(), pika.BasicProperties(**properties), mandatory=True)


def consume(channel: Any, stream: str, count: int, *, prefetch: int = 100, **arguments: Any) -> list[Any]:
    """So many messages, each acknowledged: method, properties, body."""
    channel.basic_qos(prefetch_count=prefetch)
    given = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    received: list[Any] = []
    for message in channel.consume(stream, arguments=given, inactivity_timeout=LIMIT_S):
        assert message[0] is not None, f"only {len(received)} of {count} messages came"
        received.append(message)
        channel.basic_ack(message[0].delivery_tag)
        if len(received) == count:
            channel.cancel()
            return received
    raise AssertionError("the consumer was cancelled")


def bodies(received: list[Any]) -> list[str]:
    return [body.decode() for _, _, body in received]


def refused(served: Served, code: int, call: Any, kind: Any = None) -> Any:
    """The error that a call on a channel of its own ends with."""
    with connect(served) as connection, pytest.raises(kind or pika.exceptions.ChannelClosedByBroker) as caught:
        call(connection.channel())
    assert caught.value.reply_code == code
    return caught.value


def test_pika_publishes_with_confirms_and_reads_everything_back(channel, stream):
    headers = {
        "region": "emea",
        "n": 5,
        "large": 2**40,
        "flag": True,
        "ratio": None,
        "at": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    }
    publish(
        channel,
        stream,
        "body",
        headers=headers,
        content_type="text/plain",
        content_encoding="utf-8",
        delivery_mode=2,
        priority=4,
        correlation_id="c1",
        reply_to="answers",
        expiration="60000",
        message_id="urn:uuid:58b867b0-8151-1f56-1bd4-73229807fd60",
        timestamp=1700000000,
        type="order",
        user_id="guest",
        app_id="shop",
    )
    [(method, properties, body)] = consume(channel, stream, 1, stream_offset="first")
    assert (method.exchange, method.routing_key, method.redelivered, body) == ("", stream, False, b"body")
    assert properties.headers == {**headers, "x-stream-offset": 0}
    assert (properties.content_type, properties.content_encoding) == ("text/plain", "utf-8")
    assert (properties.delivery_mode, properties.priority, properties.expiration) == (2, 4, "60000")
    assert (properties.correlation_id, properties.reply_to) == ("c1", "answers")
    assert properties.message_id == "urn:uuid:58b867b0-8151-1f56-1bd4-73229807fd60"
    assert (properties.timestamp, properties.type) == (1700000000, "order")
    assert (properties.user_id, properties.app_id) == ("guest", "shop")


def test_pika_starts_at_offsets(channel, stream):
    publish(channel, stream, *(f"m{number}" for number in range(10)))
    assert bodies(consume(channel, stream, 10, stream_offset="first")) == [f"m{number}" for number in range(10)]
    assert bodies(consume(channel, stream, 3, stream_offset=7)) == ["m7", "m8", "m9"]
    assert len(consume(channel, stream, 10, stream_offset="1h")) == 10
    yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    assert len(consume(channel, stream, 10, stream_offset=yesterday)) == 10


def test_pika_filters_by_filter_values(channel, stream):
    for value in ("AMER", "EMEA", "AMER", "APAC"):
        publish(channel, stream, value, headers={"x-stream-filter-value": value})
    publish(channel, stream, "none")
    assert bodies(consume(channel, stream, 1, stream_offset="first", stream_filter="EMEA")) == ["EMEA"]
    several = consume(channel, stream, 3, stream_offset="first", stream_filter=["AMER", "APAC"])
    assert bodies(several) == ["AMER", "AMER", "APAC"]
    unfiltered = consume(channel, stream, 2, stream_offset="first", stream_filter="EMEA", stream_match_unfiltered=True)
    assert bodies(unfiltered) == ["EMEA", "none"]


def test_pika_keeps_to_its_prefetch(channel, stream):
    publish(channel, stream, *(f"m{number}" for number in range(6)))
    channel.basic_qos(prefetch_count=2)
    got: list[Any] = []
    channel.basic_consume(stream, lambda *message: got.append(message), arguments={"x-stream-offset": "first"})
    while len(got) < 2:
        channel.connection.process_data_events(time_limit=1)
    # An answer to something else comes behind all that was sent before.
    channel.queue_declare(stream, passive=True)
    channel.connection.process_data_events(time_limit=0)
    assert len(got) == 2
    channel.basic_nack(got[1][1].delivery_tag, multiple=True, requeue=True)
    while len(got) < 4:
        channel.connection.process_data_events(time_limit=1)
    assert [body for *_, body in got] == [b"m0", b"m1", b"m2", b"m3"]
    assert not any(method.redelivered for _, method, _, _ in got)


def test_pika_is_told_of_messages_that_nobody_gets(channel):
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError) as caught:
        channel.basic_publish("", "nowhere", b"back", mandatory=True)
    [message] = caught.value.messages
    assert (message.method.reply_code, message.body) == (312, b"back")


def test_pika_is_cancelled_when_its_stream_is_deleted(served, channel, stream):
    channel.basic_qos(prefetch_count=1)
    cancelled: list[Any] = []
    channel.add_on_cancel_callback(cancelled.append)
    channel.basic_consume(stream, lambda *message: None, consumer_tag="mine")
    with connect(served) as other:
        other.channel().queue_delete(stream)
    while not cancelled:
        channel.connection.process_data_events(time_limit=1)
    assert cancelled[0].method.consumer_tag == "mine"


def test_pika_gets_the_codes_of_the_original(served, stream):
    not_found = refused(served, 404, lambda channel: channel.queue_declare("nowhere", passive=True))
    assert "NOT_FOUND" in not_found.reply_text
    for queue, arguments in (
        (stream, {"x-max-age": "1h"}),
        ("refused", {"x-stream-filter-size-bytes": 15}),
        ("refused", {"x-max-length": 5}),
    ):
        refused(served, 406, partial(declare, queue, arguments))
    refused(served, 406, lambda channel: channel.queue_declare("soft", durable=False, arguments=STREAM))
    refused(served, 406, lambda channel: consume_without_prefetch(channel, stream))
    refused(served, 406, lambda channel: consume(channel, stream, 1, stream_offset="middle"))
    refused(served, 404, lambda channel: publish_to_exchange(channel, "nowhere"))
    closed = pika.exceptions.ConnectionClosedByBroker
    refused(served, 540, lambda channel: channel.basic_get(stream), closed)
    refused(served, 540, lambda channel: channel.queue_purge(stream), closed)
    refused(served, 540, lambda channel: consume_without_ack(channel, stream), closed)


def declare(queue: str, arguments: dict[str, Any], channel: Any) -> None:
    channel.queue_declare(queue, durable=True, arguments={**STREAM, **arguments})


def consume_without_prefetch(channel: Any, stream: str) -> None:
    channel.basic_consume(stream, lambda *message: None)


def consume_without_ack(channel: Any, stream: str) -> None:
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(stream, lambda *message: None, auto_ack=True)


def publish_to_exchange(channel: Any, exchange: str) -> None:
    channel.confirm_delivery()
    channel.basic_publish(exchange, "key", b"")


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"credentials": pika.PlainCredentials("guest", "wrong")}, "ProbableAuthenticationError", "ACCESS_REFUSED"),
        ({"virtual_host": "elsewhere"}, "ProbableAccessDeniedError", "530"),
    ],
)
def test_pika_with_a_wrong_password_or_virtual_host_is_refused(served, given, error, text):
    with pytest.raises(getattr(pika.exceptions, error), match=text), connect(served, **given):
        pass


def test_pika_routes_through_a_direct_exchange_as_super_streams_do(channel, name):
    partitions = [f"{name}-{number}" for number in range(3)]
    channel.exchange_declare(name, "direct", durable=True, arguments={"x-super-stream": True})
    for number, partition in enumerate(partitions):
        channel.queue_declare(partition, durable=True, arguments=STREAM)
        channel.queue_bind(partition, name, str(number), {"x-stream-partition-order": number})
    channel.confirm_delivery()
    for number in range(9):
        channel.basic_publish(name, str(number % 3), f"m{number}".encode(), mandatory=True)
    received = consume(channel, partitions[1], 3, stream_offset="first")
    assert bodies(received) == ["m1", "m4", "m7"]
    assert {(method.exchange, method.routing_key) for method, _, _ in received} == {(name, "1")}
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish(name, "7", b"", mandatory=True)
    channel.exchange_delete(name)
    for partition in partitions:
        channel.queue_delete(partition)


@pytest.mark.parametrize(
    ("kind", "bindings", "expected"),
    [
        ("fanout", ({}, {}), (["m0", "m1", "m2", "m3"], ["m0", "m1", "m2", "m3"])),
        ("topic", ({"routing_key": "orders.*"}, {"routing_key": "#.emea"}), (["m0", "m1"], ["m1", "m2"])),
        (
            "headers",
            (
                {"arguments": {"x-match": "any", "region": "emea", "n": 0}},
                {"arguments": {"region": "emea", "n": 2}},
            ),
            (["m0", "m1", "m2"], ["m2"]),
        ),
    ],
)
def test_pika_publishes_to_exchanges_of_all_types(channel, name, kind, bindings, expected):
    streams = [f"{name}-{number}" for number in range(2)]
    channel.exchange_declare(name, kind, durable=True)
    channel.exchange_declare(f"{name}-first", "fanout", durable=True)
    channel.exchange_bind(name, f"{name}-first")
    for stream, binding in zip(streams, bindings, strict=True):
        channel.queue_declare(stream, durable=True, arguments=STREAM)
        channel.queue_bind(stream, name, **binding)
    channel.confirm_delivery()
    for number, key in enumerate(("orders.apac", "orders.emea", "letters.new.emea", "lost")):
        properties = pika.BasicProperties(headers={"region": key.split(".")[-1], "n": number})
        is_routed = any(f"m{number}" in bodies for bodies in expected)
        try:
            channel.basic_publish(f"{name}-first", key, f"m{number}".encode(), properties, mandatory=True)
        except pika.exceptions.UnroutableError:
            assert not is_routed
        else:
            assert is_routed
    for stream, found in zip(streams, expected, strict=True):
        assert bodies(consume(channel, stream, len(found), stream_offset="first")) == found
        channel.queue_delete(stream)
    channel.exchange_unbind(name, f"{name}-first")
    for exchange in (name, f"{name}-first"):
        channel.exchange_delete(exchange, if_unused=True)


def test_pika_publishes_large_messages_in_many_frames(channel, stream):
    large = "".join(chr(33 + number % 90) for number in range(400_000))
    publish(channel, stream, large, "small")
    assert bodies(consume(channel, stream, 2, stream_offset="first")) == [large, "small"]


def test_pika_filters_with_an_expression(served, channel, stream):
    if served.is_original:
        pytest.skip("expressions in AMQP 0.9.1 are an extension of Headgate")
    for number in range(200):
        publish(channel, stream, f"m{number}", headers={"n": number, "region": "emea" if number % 2 else "amer"})
    wanted = "region = 'emea' AND n >= 190"
    received = consume(channel, stream, 5, prefetch=2, stream_offset="first", headgate_sql=wanted)
    assert bodies(received) == ["m191", "m193", "m195", "m197", "m199"]
    by_property = "p.message_id = 'last' AND p.content_type = 'text/plain'"
    publish(channel, stream, "last", message_id="last", content_type="text/plain")
    assert bodies(consume(channel, stream, 1, stream_offset="first", headgate_sql=by_property)) == ["last"]
    error = refused(served, 406, lambda other: consume(other, stream, 1, headgate_sql="region = AND n"))
    assert "filter refused" in error.reply_text
    assert "^" in error.reply_text


def test_every_method_is_laid_out_as_pika_lays_it_out():
    from headgate.protocols.amqp091 import methods as m
    from headgate.protocols.amqp091.codec import encode_method

    compared = 0
    for kind in m.METHODS.values():
        theirs = pika.spec.methods.get(kind.CODE[0] << 16 | kind.CODE[1])
        given = theirs and inspect.signature(theirs.__init__).parameters.values()
        # Methods that pika cannot make without values.
        if theirs is None or any(value.default is value.empty for value in list(given)[1:]):
            continue
        decoded = theirs().decode(encode_method(kind()), 4)
        assert b"".join(decoded.encode()) == encode_method(kind())[4:], kind
        compared += 1
    assert compared > 50


def test_the_bloom_filter_example_of_the_documentation(channel, stream):
    """Stream filtering: publish with a filter value, consume with it, filter again in the client."""
    channel.confirm_delivery()
    for region in ("AMER", "EMEA", "APAC"):
        for number in range(20):
            properties = pika.BasicProperties(headers={"x-stream-filter-value": region, "region": region})
            channel.basic_publish("", stream, f"{region}-{number}".encode(), properties)
    channel.basic_qos(prefetch_count=100)
    matching = []
    arguments = {"x-stream-offset": "first", "x-stream-filter": "AMER"}
    for method, properties, body in channel.consume(stream, arguments=arguments, inactivity_timeout=LIMIT_S):
        assert method is not None
        if properties.headers["region"] == "AMER":
            matching.append(body.decode())
        channel.basic_ack(method.delivery_tag)
        if len(matching) == 20:
            break
    channel.cancel()
    assert matching == [f"AMER-{number}" for number in range(20)]
