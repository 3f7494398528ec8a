"""Links that consume: where they start, which filters are in force, credit, drain, the end of a stream."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from body_schemas import order_body, order_schema
from headgate.log import Stream, StreamArguments, stream_folder
from headgate.message import AmqpType, AmqpValue, Described, Message, amqp_value, encode_value
from headgate.protocols.amqp10 import ConnectionSettings
from headgate.protocols.amqp10.events import StateChanged
from headgate.protocols.amqp10.performatives import RECEIVER, SETTLED, Disposition, Flow
from headgate.protocols.amqp10.terminus import Accepted, RawEntry, Released, Source, Target
from server.amqp10_client import Client, Management, client_of, rabbitmq_handler
from server.running import RunningServer, running_server

REGIONS = ("AMER", "EMEA", "APAC")


def _offset(value: object) -> RawEntry:
    return RawEntry.of("offset", "rabbitmq:stream-offset-spec", amqp_value(value))


FIRST = _offset("first")


def _sql(text: str, name: str = "sql-filter") -> RawEntry:
    return RawEntry.of(name, "amqp:sql-filter", amqp_value(text))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("server"), handlers={"amqp": rabbitmq_handler}) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with client_of(server.ports["amqp"]) as client:
        yield client


@pytest.fixture(scope="module")
def stream(server: RunningServer) -> str:
    """Ninety messages in three chunks at least; message n has the region n % 3 and the number n."""
    with client_of(server.ports["amqp"]) as client:
        Management(client).declare("events")
        link = client.sender("/queues/events")
        for region in REGIONS:
            client.send(
                link,
                *[
                    Message(
                        b"body %d" % number,
                        message_annotations={"x-stream-filter-value": region},
                        properties={"subject": f"order.{number}"},
                        application_properties={"number": number, "region": region},
                    )
                    for number in range(30)
                ],
            )
    return "/queues/events"


def _numbers(received: list) -> list[int]:
    return [one.message.application_properties["number"].value for one in received]


def test_a_consumer_gets_every_message_with_its_offset(client: Client, stream: str) -> None:
    link = client.receiver(stream, filters=(FIRST,), credit=90)
    received = client.receive(link, 90)
    assert [one.offset for one in received] == list(range(90))
    first = received[0].message
    assert {name: value.value for name, value in first.header.items()} == {
        "durable": True,
        "first-acquirer": True,
        "delivery-count": 0,
    }
    assert {name: value.value for name, value in first.message_annotations.items()} == {
        "x-stream-filter-value": "AMER",
        "x-exchange": "",
        "x-routing-key": "events",
        "x-stream-offset": 0,
    }
    assert [one.id for one in received] == list(range(90))


def test_the_answer_to_an_attach_says_what_is_in_force(client: Client, stream: str) -> None:
    filters = (FIRST, _sql("number > 5"), _sql("number > 6", "other"), RawEntry.of("x", "unknown", amqp_value(1)))
    link = client.receiver(stream, filters=filters, name="mine")
    peer = link.peer
    assert peer.source.filter == filters[:2]
    assert peer.source.address == amqp_value(stream)
    assert peer.source.distribution_mode == "copy"
    assert peer.source.default_outcome == Released()
    assert peer.source.outcomes[0] == "amqp:accepted:list"
    assert peer.offered_capabilities == ("AMQP_FILTEX_PROP_V1_0", "AMQP_FILTEX_SQL_V1_0")
    assert (peer.initial_delivery_count, peer.rcv_settle_mode, peer.snd_settle_mode) == (0, 0, 0)
    assert peer.target == Target(amqp_value("here"))


def test_a_receiver_that_knows_few_outcomes_is_told_these(client: Client, stream: str) -> None:
    known = ("amqp:accepted:list", "amqp:released:list")
    link = client.attach(RECEIVER, source=Source(amqp_value(stream), outcomes=known), target=Target())
    assert link.peer.source.outcomes == known


def test_a_receiver_gets_no_message_that_is_larger_than_it_takes(client: Client, stream: str) -> None:
    whole = client.drain(client.receiver(stream, filters=(FIRST,)))
    sizes = [len(message.data) for message in whole]
    assert max(sizes) > sizes[0]
    fitting = sizes.index(max(sizes))
    link = client.receiver(stream, filters=(FIRST,), max_message_size=max(sizes) - 1)
    assert link.peer.max_message_size == max(sizes) - 1
    link.max_message_size = max(sizes)
    link.grant(1000)
    assert client.detached(link)[0] == "amqp:link:message-size-exceeded"
    assert [message.data for message in client.receive(link, 0)] == [message.data for message in whole[:fitting]]
    assert len(client.drain(client.receiver(stream, filters=(FIRST,), max_message_size=max(sizes)))) == len(whole)


def test_the_echo_is_byte_for_byte(client: Client, stream: str) -> None:
    text = AmqpValue(AmqpType.STRING, "number = 1")
    wide = RawEntry(
        bytes.fromhex("b30000000a") + b"sql-filter",
        b"\x00\x80" + (0x120).to_bytes(8, "big") + b"\xb1" + (10).to_bytes(4, "big") + text.octets(),
    )
    link = client.receiver(stream, filters=(wide, FIRST))
    assert link.peer.source.filter == (wide, FIRST)
    assert _numbers(client.drain(link)) == [1, 1, 1]


def test_without_filters_none_are_echoed(client: Client, stream: str) -> None:
    assert client.receiver(stream).peer.source.filter is None
    assert client.receiver(stream, filters=(_sql("bad ="),)).peer.source.filter == ()


@pytest.mark.parametrize(
    ("filters", "numbers"),
    [
        ((_sql("number IN (3, 7) AND region = 'EMEA'"),), [3, 7]),
        ((_sql("p.subject LIKE 'order.1_' AND number > 17"),), [18, 19] * 3),
        (
            (
                RawEntry.of(
                    "props",
                    "amqp:properties-filter",
                    AmqpValue(AmqpType.MAP, ((AmqpValue(AmqpType.SYMBOL, "subject"), amqp_value("&s:.12")),)),
                ),
                RawEntry.of("app", "amqp:application-properties-filter", amqp_value({"region": "APAC"})),
            ),
            [12],
        ),
        ((RawEntry.of("bloom", "rabbitmq:stream-filter", amqp_value(["EMEA"])), _sql("number < 2")), [0, 1]),
    ],
)
def test_filters_select_and_unmatched_messages_cost_no_credit(
    client: Client, stream: str, filters: tuple[RawEntry, ...], numbers: list[int]
) -> None:
    link = client.receiver(stream, filters=(FIRST, *filters), credit=len(numbers))
    assert link.peer.source.filter == (FIRST, *filters)
    assert _numbers(client.receive(link, len(numbers))) == numbers


def test_a_filter_looks_into_bodies(client: Client) -> None:
    Management(client).declare("bodies")
    bodies = [b'{"n": %d, "tags": ["a", %d]}' % (number, number) for number in range(5)]
    client.send(client.sender("/queues/bodies"), *map(Message, (*bodies, b'{"n": 9', b"")))
    link = client.receiver("/queues/bodies", filters=(FIRST, _sql("body.n > 2 OR body.tags[*] = 1")))
    assert [one.message.encoded_body for one in client.drain(link)] == [
        Message(bodies[number]).encoded_body for number in (1, 3, 4)
    ]


def test_a_filter_decodes_bodies_of_a_declared_schema(tmp_path: Path) -> None:
    schema = StreamArguments(body_schema=order_schema().text)
    Stream.create(stream_folder(tmp_path / "data", "orders"), name="orders", now_ms=0, arguments=schema)
    bodies = [order_body(total=number) for number in range(5)]
    with (
        running_server(tmp_path, handlers={"amqp": rabbitmq_handler}) as running,
        client_of(running.ports["amqp"]) as client,
    ):
        client.send(client.sender("/queues/orders"), *map(Message, (*bodies, b'{"total": 4}')))
        received = client.drain(client.receiver("/queues/orders", filters=(FIRST, _sql("body.total > 2"))))
    assert [one.message.body.octets() for one in received] == bodies[3:]


def test_a_bloom_filter_skips_chunks(client: Client, stream: str) -> None:
    bloom = RawEntry.of("b", "rabbitmq:stream-filter", amqp_value("APAC"))
    received = client.drain(client.receiver(stream, filters=(FIRST, bloom)))
    assert 30 <= len(received) < 90
    assert _numbers(received[-30:]) == list(range(30))


@pytest.mark.parametrize(
    ("offset", "first"),
    [
        ("first", 0),
        (0, 0),
        (42, 42),
        (AmqpValue(AmqpType.UINT, 42), 42),
        (AmqpValue(AmqpType.SYMBOL, "first"), 0),
        (AmqpValue(AmqpType.TIMESTAMP, 0), 0),
        ("1h", 0),
    ],
    ids=str,
)
def test_a_consumer_starts_where_it_asks_to(client: Client, stream: str, offset: object, first: int) -> None:
    received = client.drain(client.receiver(stream, filters=(_offset(offset),)))
    assert [one.offset for one in received] == list(range(first, 90))


@pytest.mark.parametrize("offset", ["next", 10_000, None, -5], ids=str)
def test_a_consumer_that_starts_at_the_end_gets_what_is_new(
    server: RunningServer, client: Client, offset: object
) -> None:
    name = f"s-{uuid.uuid4()}"
    Management(client).declare(name)
    publisher = client.sender(f"/queues/{name}")
    client.send(publisher, Message(b"old"))
    filters = None if offset is None else (_offset(offset),)
    link = client.receiver(f"/queues/{name}", filters=filters, credit=10)
    client.drain(link, 10)
    link.grant(10)
    client.flush()
    client.send(publisher, Message(b"new"))
    assert [one.message.body.octets() for one in client.receive(link, 1)] == [b"new"]


@pytest.mark.parametrize("offset", ["middle", "5", "0s", ""])
def test_a_text_that_is_no_offset_refuses_the_link(client: Client, stream: str, offset: str) -> None:
    link = client.receiver(stream, filters=(_offset(offset),))
    assert client.detached(link)[0] == "amqp:precondition-failed"
    assert link.peer.source is None


@pytest.mark.parametrize(
    ("address", "condition"),
    [
        ("/queues/nowhere", "amqp:not-found"),
        ("/exchanges/amq.direct/k", "amqp:invalid-field"),
        ("/queues/", "amqp:invalid-field"),
        ("events", "amqp:invalid-field"),
    ],
)
def test_a_source_that_is_no_stream_is_refused(client: Client, address: str, condition: str) -> None:
    assert client.detached(client.receiver(address))[0] == condition


def test_a_source_without_an_address_is_refused(client: Client) -> None:
    assert client.detached(client.attach(RECEIVER, source=Source(), target=Target()))[0] == "amqp:invalid-field"
    dynamic = Source(dynamic=True)
    assert client.detached(client.attach(RECEIVER, source=dynamic, target=Target()))[0] == "amqp:not-implemented"


def test_credit_limits_what_is_sent(client: Client, stream: str) -> None:
    link = client.receiver(stream, filters=(FIRST,), credit=3)
    assert len(client.receive(link, 3)) == 3
    link.grant(4)
    assert [one.offset for one in client.receive(link, 4)] == [3, 4, 5, 6]
    other = client.receiver(stream, filters=(FIRST,), credit=1)
    assert len(client.receive(other, 1)) == 1
    assert client.receive(link, 0) == []


def test_a_drain_ends_at_the_end_of_the_stream_or_of_the_credit(client: Client, stream: str) -> None:
    link = client.receiver(stream, filters=(FIRST, _sql("number = 29")))
    assert _numbers(client.drain(link, 100)) == [29, 29, 29]
    assert link.credit == 0 and link.delivery_count == 100
    assert client.drain(link, 100) == []
    full = client.receiver(stream, filters=(FIRST,))
    assert len(client.drain(full, 7)) == 7
    assert [one.offset for one in client.drain(full, 3)] == [7, 8, 9]


def test_a_drain_ends_where_the_window_is_closed_and_nothing_is_there(client: Client, stream: str) -> None:
    link = client.receiver(stream, filters=(FIRST, _sql("number = 1000")))
    link.session.send(Flow(0, 0, 0, 100, handle=link.handle, delivery_count=0, link_credit=5, drain=True))
    client.pump(lambda: link.delivery_count == 5)
    assert client.receive(link, 0) == []


def test_an_echo_is_answered_with_the_state_of_the_link(client: Client, stream: str) -> None:
    link = client.receiver(stream, filters=(FIRST,), credit=2)
    client.receive(link, 2)
    heard = client.connection.sessions[0]
    before = link.delivery_count
    link.session.send(Flow(0, 100, 0, 100, handle=link.handle, delivery_count=before, link_credit=0, echo=True))
    events = len(client.events)
    client.pump(lambda: len(client.events) > events)
    assert heard.is_mapped


def test_a_settled_link_gets_settled_transfers(client: Client, stream: str) -> None:
    link = client.receiver(stream, filters=(FIRST,), snd_settle_mode=SETTLED, credit=5)
    assert link.peer.snd_settle_mode == SETTLED
    assert len(client.receive(link, 5)) == 5


def test_whatever_a_receiver_says_of_deliveries_changes_nothing(client: Client, stream: str) -> None:
    link = client.receiver(stream, filters=(FIRST,), credit=5)
    client.receive(link, 5)
    link.session.settle(0, 2, Released())
    link.session.send(Disposition(RECEIVER, 3, 4, False, Accepted()))
    client.pump(lambda: bool(client.of(StateChanged)))
    told = client.of(StateChanged)[0]
    assert (told.received, told.first, told.last, told.settled, told.state) == (False, 3, 4, True, Accepted())
    link.grant(3)
    assert [one.offset for one in client.receive(link, 3)] == [5, 6, 7]


def test_large_messages_are_split_for_clients_with_small_frames(server: RunningServer, stream: str) -> None:
    with client_of(server.ports["amqp"], settings=ConnectionSettings(max_frame_size=512, incoming_window=3)) as client:
        name = f"s-{uuid.uuid4()}"
        Management(client).declare(name)
        bodies = [bytes([number]) * size for number, size in enumerate((5, 9_000, 100, 600))]
        client.send(client.sender(f"/queues/{name}"), *map(Message, bodies))
        link = client.receiver(f"/queues/{name}", filters=(FIRST,), credit=4)
        assert [one.message.body.octets() for one in client.receive(link, 4)] == bodies


def test_a_deleted_stream_detaches_its_consumers(client: Client) -> None:
    name = f"s-{uuid.uuid4()}"
    management = Management(client)
    management.declare(name)
    link = client.receiver(f"/queues/{name}", credit=5)
    management.request("DELETE", f"/queues/{name}")
    assert client.detached(link)[0] == "amqp:resource-deleted"


def test_consumers_of_one_connection_share_it(client: Client, stream: str) -> None:
    links = [client.receiver(stream, filters=(FIRST, _sql(f"number = {number}")), credit=3) for number in range(10)]
    for number, link in enumerate(links):
        assert _numbers(client.receive(link, 3)) == [number] * 3


def test_a_consumer_that_detaches_is_gone(server: RunningServer, client: Client, stream: str) -> None:
    before = server.call(lambda: server.context.broker.counters.consumers_closed)
    link = client.receiver(stream, credit=5)
    link.detach()
    client.pump(lambda: link.state.name == "DETACHED")
    assert server.call(lambda: server.context.broker.counters.consumers_closed) == before + 1


def test_a_filter_that_is_refused_is_logged_with_its_reason(
    client: Client, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING", logger="headgate.server.amqp10"):
        client.receiver(stream, filters=(_sql("number >"),), name="bad-one")
    assert "bad-one" in caplog.text and "number >" in caplog.text and "left out" in caplog.text


def test_an_sql_filter_above_the_limit_is_left_out_and_logged(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    with running_server(
        tmp_path_factory.mktemp("short"), handlers={"amqp": rabbitmq_handler}, limits={"filter_bytes": 10}
    ) as server, client_of(server.ports["amqp"]) as client:  # fmt: skip
        Management(client).declare("s")
        bloom = RawEntry.of("b", "rabbitmq:stream-filter", amqp_value("a value of its own length"))
        with caplog.at_level("WARNING", logger="headgate.server.amqp10"):
            link = client.receiver("/queues/s", filters=(FIRST, bloom, _sql("number = 12")), name="long-one")
        assert link.peer.source.filter == (FIRST, bloom)
        assert "long-one" in caplog.text and "a filter of more than 10 bytes" in caplog.text
        assert client.receiver("/queues/s", filters=(FIRST, _sql("number = 1"))).peer.source.filter[1:]


def test_bad_filters_detach_where_the_server_is_told_to(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running_server(
        tmp_path_factory.mktemp("strict"), handlers={"amqp": rabbitmq_handler}, filters={"on_bad_filter": "detach"}
    ) as server, client_of(server.ports["amqp"]) as client:  # fmt: skip
        Management(client).declare("s")
        link = client.receiver("/queues/s", filters=(FIRST, _sql("a >")))
        condition, description = client.detached(link)
        assert condition == "amqp:precondition-failed" and "a >" in description
        assert client.receiver("/queues/s", filters=(FIRST, _sql("a > 1"))).is_attached


@pytest.mark.parametrize(
    "entry",
    [
        RawEntry(encode_value(amqp_value("sql-filter")), _sql("number = 1").value),
        RawEntry(_sql("").name, encode_value(amqp_value("number = 1"))),
        RawEntry.of("sql-filter", "amqp:sql-filter", AmqpValue(AmqpType.SYMBOL, "number = 1")),
        RawEntry.of("sql-filter", "amqp:sql-filter", amqp_value(None)),
        RawEntry.of("f", "rabbitmq:stream-filter", amqp_value([])),
        RawEntry.of("f", "rabbitmq:stream-filter", amqp_value([1, 2])),
        _sql("number > 1.0E400"),
        RawEntry(encode_value(AmqpValue(AmqpType.SYMBOL, "f")), bytes.fromhex("c1020141")),
        RawEntry(
            encode_value(AmqpValue(AmqpType.SYMBOL, "f")),
            encode_value(AmqpValue(AmqpType.DESCRIBED, Described(amqp_value("text"), amqp_value(1)))),
        ),
    ],
)
def test_what_makes_the_original_fail_is_left_out(client: Client, stream: str, entry: RawEntry) -> None:
    link = client.receiver(stream, filters=(FIRST, entry))
    assert link.peer.source.filter == (FIRST,)
    assert len(client.drain(link)) == 90
