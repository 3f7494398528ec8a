"""The client and a real server of ours, in one process."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from body_schemas import order_body, order_schema
from headgate import Message
from headgate.client import Client, Retry, ServedFilter, SubscriptionOptions
from headgate.errors import AccessRefusedError, PreconditionFailedError, ResourceNotFoundError, UnsupportedError
from headgate.evaluate import Filter
from headgate.log import OffsetSpecification
from headgate.scan import ScanRequest
from headgate.server.stream import StreamHandler
from server.running import RunningServer, running_server
from waiting import LIMIT_S

REGIONS = ("AMER", "EMEA", None, "APJ")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("served"), handlers={"stream": StreamHandler}) as running:
        yield running


@pytest.fixture
def client(served: RunningServer) -> Iterator[Client]:
    retry = Retry(first_s=0.01, most_s=0.1, give_up_after_s=LIMIT_S)
    with Client.connect(f"127.0.0.1:{served.ports['stream']}", retry=retry) as made:
        yield made


@pytest.fixture
def stream(client: Client) -> str:
    """A stream of 400 orders: regions in runs of 25, the price is the offset."""
    name = f"orders-{secrets.token_hex(4)}"
    client.create_stream(name)
    with client.publisher(name, filter_value=region_of) as publisher:
        for run in range(16):
            region = REGIONS[run % 4]
            publisher.send_many(
                Message(
                    b"%d" % number,
                    application_properties={"price": number} | ({} if region is None else {"region": region}),
                )
                for number in range(25 * run, 25 * run + 25)
            )
            publisher.flush()
    return name


def region_of(message: Message) -> str | None:
    found = (message.application_properties or {}).get("region")
    return None if found is None else str(found.value)


def offsets_of(client: Client, options: SubscriptionOptions) -> list[int]:
    subscription = client.subscription(options)
    offsets: list[int] = []
    while (batch := subscription.read(LIMIT_S)) is not None:
        offsets += batch.offsets.tolist()
    assert subscription.is_finished
    subscription.close()
    return offsets


def test_the_server_is_known_for_what_it_is(client: Client, stream: str) -> None:
    assert client.is_headgate and client.can_resolve_offsets
    assert stream in client.streams()


def test_everything_comes_back_in_order(client: Client, stream: str) -> None:
    with client.consumer(stream, start="first") as consumer:
        received = [consumer.next(LIMIT_S) for _ in range(400)]
    assert [each[0] for each in received if each is not None] == list(range(400))
    assert [each[1].body.parts[0] for each in received if each is not None and each[1].body] == [
        b"%d" % number for number in range(400)
    ]


def test_an_expression_is_evaluated_on_the_server(client: Client, stream: str) -> None:
    with client.consumer(
        stream,
        start="first",
        filter_values=["EMEA"],
        filter="price > 120 AND region = 'EMEA'",
        post_filter=lambda message: message.application_properties["price"].value % 2 == 0,  # type: ignore[index]
    ) as consumer:
        received = [consumer.next(LIMIT_S) for _ in range(6)]
        assert [each[0] for each in received if each is not None] == [126, 128, 130, 132, 134, 136]
        assert consumer.counters.bytes_read < 20_000


@pytest.mark.parametrize("credit", [1, 2, 10])
@pytest.mark.parametrize(
    ("values", "text", "expected"),
    [
        ((), None, range(30, 330)),
        ((b"EMEA",), None, [n for n in range(30, 330) if n // 25 % 4 == 1]),
        ((b"NONE",), None, []),
        ((), "price >= 100 AND price < 110", range(100, 110)),
        ((), "price < 0", []),
        ((b"APJ",), "price >= 290", range(290, 300)),
    ],
)
def test_a_filtered_read_ends_where_it_has_to(
    client: Client,
    stream: str,
    credit: int,
    values: tuple[bytes, ...],
    text: str | None,
    expected: list[int] | range,
) -> None:
    options = SubscriptionOptions(
        stream,
        OffsetSpecification.offset(30),
        stop=330,
        filter_values=values,
        served=None if text is None else ServedFilter(text, "amqp"),
        credit=credit,
    )
    assert offsets_of(client, options) == list(expected)


def test_an_end_that_is_not_written_yet_is_told_when_it_is(client: Client, stream: str) -> None:
    options = SubscriptionOptions(
        stream,
        OffsetSpecification.offset(390),
        stop=410,
        stop_is_written=False,
        served=ServedFilter("price < 0", "amqp"),
    )
    subscription = client.subscription(options)
    assert subscription.read(0.1) is None
    assert not subscription.is_finished
    with client.publisher(stream) as publisher:
        publisher.send_many([b"more"] * 10)
    assert subscription.read(LIMIT_S) is None
    assert subscription.is_finished
    subscription.close()


def test_an_end_that_is_no_offset_is_refused(client: Client, stream: str) -> None:
    options = SubscriptionOptions(stream, OffsetSpecification.first(), properties=(("x-headgate-end", "soon"),))
    with pytest.raises(PreconditionFailedError):
        client.subscription(options)


def test_a_filter_that_the_server_refuses_ends_nothing_silently(client: Client, stream: str) -> None:
    options = SubscriptionOptions(stream, OffsetSpecification.first(), served=ServedFilter("price >", "amqp"))
    with pytest.raises(PreconditionFailedError, match="0x11"):
        client.subscription(options)


def test_places_are_offsets(client: Client, stream: str) -> None:
    places = (OffsetSpecification.first(), OffsetSpecification.last(), OffsetSpecification.next())
    assert [client.resolve_offset(stream, place) for place in places] == [0, 375, 400]
    assert client.resolve_offset(stream, OffsetSpecification.timestamp(0)) == 0
    assert client.resolve_offset(stream, OffsetSpecification.timestamp(2**50)) == 400


def test_publishing_again_under_a_name_adds_nothing(client: Client, stream: str) -> None:
    for _ in range(2):
        with client.publisher(stream, name="import") as publisher:
            ids = range(1, 11)
            for number in ids:
                if number > publisher.last_sequence:
                    publisher.send(b"%d" % number, publishing_id=number)
    assert client.resolve_offset(stream, OffsetSpecification.next()) == 410
    assert client.last_sequence(stream, "import") == 10


def test_a_declared_filter_source_is_made_and_filled(client: Client) -> None:
    name = f"declared-{secrets.token_hex(4)}"
    client.create_stream(name, {"headgate-filter-source": "application_properties.region"})
    with client.publisher(name) as publisher:
        publisher.send(Message(b"", application_properties={"region": "EMEA"}))
        publisher.flush()
        publisher.send(Message(b"", application_properties={"region": "AMER"}))
    options = SubscriptionOptions(name, OffsetSpecification.offset(0), stop=2, filter_values=(b"AMER",))
    assert offsets_of(client, options) == [1]


def test_one_member_of_a_group_reads_and_the_next_goes_on(client: Client, stream: str) -> None:
    told: list[tuple[str, bool]] = []
    first = client.consumer(
        stream, start="first", name="g", single_active=True, on_active=lambda active: told.append(("a", active))
    )
    assert [first.next(LIMIT_S) is not None for _ in range(10)] == [True] * 10
    second = client.consumer(
        stream, start="first", name="g", single_active=True, on_active=lambda active: told.append(("b", active))
    )
    assert second.next(0.1) is None
    first.store_offset()
    assert client.query_offset(stream, "g") == 9
    first.close()
    received = second.next(LIMIT_S)
    assert received is not None and received[0] == 10
    assert told == [("a", True), ("b", True)]
    second.close()


def test_a_deleted_stream_ends_consumers_and_publishers(client: Client, stream: str) -> None:
    consumer = client.consumer(stream, start="next")
    publisher = client.publisher(stream, name="p")
    client.delete_stream(stream)
    with pytest.raises(ResourceNotFoundError):
        consumer.next(LIMIT_S)
    with pytest.raises(ResourceNotFoundError):
        publisher.send_many([b"one"])
    consumer.close()
    publisher.abandon()


def test_a_user_without_permission_is_refused(client: Client, served: RunningServer, stream: str) -> None:
    users = served.context.broker.users
    served.call(lambda: users.add("reader", "secret"))
    reader = Client.connect(f"127.0.0.1:{served.ports['stream']}", user="reader", password="secret")
    with reader:
        with pytest.raises(AccessRefusedError, match="0x10"):
            reader.create_stream("mine")
        assert stream not in reader.streams()


def test_a_server_of_another_kind_is_not_asked_to_list(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "is_headgate", property(lambda self: False))
    with pytest.raises(UnsupportedError, match="lists no streams"):
        client.streams()


def test_the_server_folder_is_a_stream_folder(served: RunningServer, client: Client, stream: str) -> None:
    from headgate.log import resolve_stream

    found = resolve_stream(stream, Path(served.context.settings.root))
    assert found.next_offset() == 400


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_messages_have_the_filter_values_of_the_declared_field(client: Client, compression: str) -> None:
    name = f"compressed-{secrets.token_hex(4)}"
    client.create_stream(name, {"headgate-filter-source": "application_properties.region"})
    with client.publisher(name, name="import", compression=compression) as publisher:
        for run in range(4):
            region = REGIONS[run]
            publisher.send_many(
                Message(b"%d" % number, application_properties={} if region is None else {"region": region})
                for number in range(25 * run, 25 * run + 25)
            )
            publisher.flush()
    everything = SubscriptionOptions(name, OffsetSpecification.first(), stop=100)
    assert offsets_of(client, everything) == list(range(100))
    wanted = SubscriptionOptions(name, OffsetSpecification.first(), stop=100, filter_values=(b"EMEA",))
    assert offsets_of(client, wanted) == list(range(25, 50))
    filtered = SubscriptionOptions(
        name, OffsetSpecification.first(), stop=100, served=ServedFilter("region = 'APJ'", "amqp")
    )
    assert offsets_of(client, filtered) == list(range(75, 100))


def test_a_named_publisher_that_was_refused_something_sends_again_from_there(client: Client) -> None:
    name = f"regions-{secrets.token_hex(4)}"
    client.create_stream(name, {"headgate-filter-source": "application_properties.region"})
    amer = Message(b"m", application_properties={"region": "AMER"})
    with client.publisher(name, name="import") as publisher:
        publisher.send(amer)
        publisher.flush()
        publisher.send(amer, filter_value="EMEA")
        publisher.send(amer)
        with pytest.raises(PreconditionFailedError, match="publishing id 2") as raised:
            publisher.flush()
        assert "send again from publishing id 2 on" in raised.value.__notes__
        assert publisher.next_publishing_id == 2
        assert publisher.send_many([amer] * 4) == 4
    assert client.last_sequence(name, "import") == 5


def test_the_server_decodes_bodies_of_a_declared_schema_and_the_client_refuses_to(
    served: RunningServer, client: Client
) -> None:
    schema = order_schema().text
    served.call(lambda: served.context.broker.streams.declare("schema", {}, body_schema=schema))
    client.create_stream("json")
    for name, bodies in (("schema", [order_body(id=1), order_body(id=2)]), ("json", [b'{"id": 1}', b'{"id": 2}'])):
        with client.publisher(name) as publisher:
            publisher.send_many(map(Message, bodies))
    first = OffsetSpecification.first()
    by_server = SubscriptionOptions("schema", first, stop=2, served=ServedFilter("body.id = 2", "amqp"))
    assert offsets_of(client, by_server) == [1]
    for text in ("body.id = 2", "properties.creation_time < UTC() OR body.id = 2"):
        here = ScanRequest(filter=Filter.parse(text), now_ms=1)
        assert offsets_of(client, SubscriptionOptions("json", first, stop=2, request=here)) == [1]
        with pytest.raises(UnsupportedError, match="only the server knows"):
            client.subscription(SubscriptionOptions("schema", first, stop=2, request=here))
