"""Consumers: where they begin, what filters leave, what happens when the connection breaks."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

import pytest

from headgate import Message
from headgate.client import Client, Consumer
from headgate.errors import (
    ConfigError,
    ConnectionLostError,
    CorruptChunkError,
    FilterSyntaxError,
    MessageError,
    ResourceNotFoundError,
    UnsupportedError,
)
from headgate.log import OffsetSpecification
from headgate.log.entries import SubBatch
from headgate.log.format import Compression
from headgate.protocols.stream.codes import SERVER_VERSIONS, Command
from headgate.protocols.stream.frames import ConsumerUpdateReply, Credit, Subscribe
from waiting import LIMIT_S

from .conftest import SOON
from .fake_server import NOW_MS, FakeServer


def body(text: str) -> bytes:
    return Message(text.encode()).encode()


def fill(server: FakeServer, chunks: int, *, per_chunk: int = 3, stream: str = "orders") -> None:
    """Chunks of messages whose body is their offset, with the filter values EMEA, AMER, none in turn."""
    for number in range(chunks):
        value = (b"EMEA", b"AMER", None)[number % 3]
        first = number * per_chunk
        server.append(stream, [body(str(first + row)) for row in range(per_chunk)], [value] * per_chunk)


def taken(consumer: Consumer, count: int) -> list[int]:
    """The offsets of the next messages; their bodies have to be those that were written there."""
    offsets = []
    for _ in range(count):
        received = consumer.next(LIMIT_S)
        assert received is not None
        offset, message = received
        assert message.body is not None
        assert message.body.parts == (str(offset).encode(),)
        offsets.append(offset)
    return offsets


def subscribes(server: FakeServer) -> list[Subscribe]:
    return [frame for frame in server.seen if isinstance(frame, Subscribe)]


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("first", 0),
        ("last", 9),
        (4, 4),
        (OffsetSpecification.offset(11), 11),
        (OffsetSpecification.timestamp(NOW_MS + 4), 6),
    ],
)
def test_a_consumer_begins_where_it_is_told(
    client: Client, server: FakeServer, start: str | int | OffsetSpecification, first: int
) -> None:
    fill(server, 4)
    with client.consumer("orders", start=start) as consumer:
        assert taken(consumer, 12 - first) == list(range(first, 12))
        assert consumer.next(0.0) is None
        assert consumer.next_offset == 12


def test_next_waits_for_what_comes(client: Client, server: FakeServer) -> None:
    fill(server, 2)
    with client.consumer("orders") as consumer:
        assert consumer.next(0.05) is None
        writer = threading.Timer(0.05, fill, (server, 1))
        writer.start()
        received = consumer.next(LIMIT_S)
        writer.join()
        assert received is not None and received[0] == 6
        assert consumer.timestamp_ms == NOW_MS + 6


def test_a_consumer_of_many_chunks_gives_back_credit(client: Client, server: FakeServer) -> None:
    fill(server, 50)
    with client.consumer("orders", start="first", credit=2) as consumer:
        assert taken(consumer, 150) == list(range(150))
        assert consumer.counters.chunks_examined == 50
        assert consumer.counters.messages_evaluated == 150
    assert sum(frame.credit for frame in server.seen if isinstance(frame, Credit)) == 50


def test_filter_values_skip_chunks_and_post_filter_the_rest(client: Client, server: FakeServer) -> None:
    fill(server, 6)

    def is_even(message: Message) -> bool:
        assert message.body is not None
        return int(message.body.parts[0]) % 2 == 0

    with client.consumer("orders", start="first", filter_values=["AMER"], post_filter=is_even) as consumer:
        assert taken(consumer, 3) == [4, 12, 14]
        assert consumer.messages_left_out == 3
    with client.consumer("orders", start="first", filter_values=[b"AMER"], match_unfiltered=True) as consumer:
        assert taken(consumer, 12) == [*range(3, 9), *range(12, 18)]


@pytest.mark.parametrize("values", [[], "EMEA", b"EMEA"])
def test_filter_values_are_a_list_with_something_in_it(client: Client, values: object) -> None:
    with pytest.raises(ConfigError, match="filter_values"):
        client.consumer("orders", filter_values=values)  # type: ignore[arg-type]


def test_match_unfiltered_needs_values(client: Client) -> None:
    with pytest.raises(ConfigError, match="match_unfiltered"):
        client.consumer("orders", start="first", match_unfiltered=True)


def test_a_filter_goes_to_a_server_that_evaluates_it(headgate: FakeServer) -> None:
    fill(headgate, 1)
    with (
        Client.connect(headgate.address, retry=SOON) as client,
        client.consumer("orders", start="first", filter="price > 5", dialect="servicebus") as consumer,
    ):
        assert taken(consumer, 1) == [0]
    (asked,) = subscribes(headgate)
    assert asked.properties == {"x-headgate-sql": "price > 5", "x-headgate-dialect": "servicebus"}


def test_a_filter_that_would_not_be_in_force_is_an_error(client: Client, server: FakeServer) -> None:
    fill(server, 1)
    with pytest.raises(UnsupportedError, match=r"RabbitMQ 4\.3\.6 evaluates no filter expressions.*not be in force"):
        client.consumer("orders", filter="price > 5")
    assert not subscribes(server)


def test_filter_values_for_a_server_that_knows_none_are_an_error(server: FakeServer) -> None:
    server.versions = tuple((key, 1, 1) for key, _, _ in SERVER_VERSIONS)
    fill(server, 1)
    with (
        Client.connect(server.address, retry=SOON) as client,
        pytest.raises(UnsupportedError, match="not be in force"),
    ):
        client.consumer("orders", filter_values=["EMEA"])


def test_a_wrong_filter_is_refused_with_its_place(client: Client) -> None:
    with pytest.raises(FilterSyntaxError, match=r"\^"):
        client.consumer("orders", filter="price >")
    with pytest.raises(ConfigError, match="dialect without a filter"):
        client.consumer("orders", dialect="amqp")


@pytest.mark.parametrize("compression", list(Compression))
def test_sub_batches_are_unpacked(client: Client, server: FakeServer, compression: Compression) -> None:
    batch = SubBatch.of([body("0"), body("1"), body("2")], compression)
    server.append("orders", [batch, body("3"), SubBatch.of([body("4")], compression)], [None])
    with client.consumer("orders", start=1) as consumer:
        assert taken(consumer, 4) == [1, 2, 3, 4]


def test_a_chunk_with_a_wrong_checksum_is_an_error(client: Client, server: FakeServer) -> None:
    fill(server, 2)
    stream = server.streams["orders"]
    damaged = bytearray(stream.chunks[1])
    damaged[-len(b"trailer") - 1] ^= 1
    stream.chunks[1] = bytes(damaged)
    consumer = client.consumer("orders", start="first")
    with pytest.raises(CorruptChunkError, match="orders: checksum of chunk 3"):
        taken(consumer, 6)
    consumer.close()


def test_a_message_that_is_none_is_an_error_and_the_next_one_comes(client: Client, server: FakeServer) -> None:
    server.append("orders", [b"no message", body("1")], [None, None])
    with client.consumer("orders", start="first") as consumer:
        with pytest.raises(MessageError):
            consumer.next(LIMIT_S)
        assert taken(consumer, 1) == [1]


def test_a_bookmark_is_where_a_named_consumer_goes_on(client: Client, server: FakeServer) -> None:
    fill(server, 3)
    with client.consumer("orders", name="reader", start="first") as consumer:
        with pytest.raises(ConfigError, match="no message was read"):
            consumer.store_offset()
        assert taken(consumer, 4) == [0, 1, 2, 3]
        consumer.store_offset()
    assert client.query_offset("orders", "reader") == 3
    with client.consumer("orders", name="reader") as consumer:
        assert taken(consumer, 2) == [4, 5]
    with client.consumer("orders", start="first") as consumer, pytest.raises(ConfigError, match="without a name"):
        consumer.store_offset(1)


def test_a_consumer_goes_on_behind_the_last_chunk_when_the_connection_breaks(
    client: Client, server: FakeServer
) -> None:
    fill(server, 30)
    offsets: list[int] = []
    with client.consumer("orders", start=1, credit=3) as consumer:
        for count in (5, 7, 20, 57):
            offsets += taken(consumer, count)
            server.drop_connections()
    assert offsets == list(range(1, 90))
    assert len(subscribes(server)) > 1


@pytest.mark.parametrize("asks", [True, False], ids=["resolved", "as it is"])
def test_a_consumer_at_the_end_loses_nothing_while_it_is_not_connected(server: FakeServer, asks: bool) -> None:
    fill(server, 1)
    if not asks:
        server.versions = tuple(v for v in SERVER_VERSIONS if v[0] != Command.RESOLVE_OFFSET_SPECIFICATION)
    with Client.connect(server.address, retry=SOON) as client, client.consumer("orders", start="next") as consumer:
        assert consumer.next(0.0) is None
        if asks:
            server.drop_connections()
            fill(server, 1)
        else:
            fill(server, 1)
            server.drop_connections()
        received = consumer.next(LIMIT_S)
        assert received is not None and received[0] == 3


def test_a_deleted_stream_ends_its_consumer(client: Client, server: FakeServer) -> None:
    fill(server, 1)
    consumer = client.consumer("orders", start="first")
    assert taken(consumer, 3) == [0, 1, 2]
    client.delete_stream("orders")
    with pytest.raises(ResourceNotFoundError, match="orders"):
        consumer.next(LIMIT_S)
    consumer.close()


def test_a_server_that_stays_away_is_a_lost_connection(server: FakeServer) -> None:
    fill(server, 1)
    client = Client.connect(server.address, retry=replace(SOON, give_up_after_s=0.3))
    consumer = client.consumer("orders", start="first")
    assert taken(consumer, 3) == [0, 1, 2]
    server.close()
    with pytest.raises(ConnectionLostError):
        consumer.next(LIMIT_S)
    consumer.close()
    client.close()


def test_a_single_active_consumer_begins_behind_the_bookmark_of_its_group(client: Client, server: FakeServer) -> None:
    fill(server, 3)
    told: list[bool] = []
    client.store_offset("orders", "group", 4)
    with client.consumer(
        "orders", start="first", name="group", single_active=True, super_stream="all", on_active=told.append
    ) as consumer:
        assert not consumer.is_active
        assert consumer.next(0.05) is None
        assert consumer.is_active and told == [True]
        server.ask_consumers(active=False)
        assert consumer.next(0.05) is None
        assert told == [True, False]
    (asked,) = subscribes(server)
    assert asked.properties == {"name": "group", "single-active-consumer": "true", "super-stream": "all"}
    replies = [frame.offset for frame in server.seen if isinstance(frame, ConsumerUpdateReply)]
    assert replies == [OffsetSpecification.offset(5), None]


def test_a_single_active_consumer_needs_a_name(client: Client) -> None:
    with pytest.raises(ConfigError, match="needs a name"):
        client.consumer("orders", start="first", single_active=True)


def test_a_consumer_iterates(client: Client, server: FakeServer) -> None:
    fill(server, 2)

    def first_of(pairs: Iterable[tuple[int, Message]], count: int) -> list[int]:
        return [offset for (offset, _), _ in zip(pairs, range(count), strict=False)]

    with client.consumer("orders", start="first") as consumer:
        assert first_of(consumer, 5) == [0, 1, 2, 3, 4]
