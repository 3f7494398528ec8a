"""Consuming over the stream protocol: credit, places, filters, single active consumers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cesql_events import binary_event, structured_event
from headgate import Message
from headgate.log import Stream, Writer
from headgate.log.entries import SimpleEntry
from headgate.log.offsets import OffsetSpecification
from headgate.protocols.stream import frames as f
from headgate.protocols.stream.codes import ResponseCode
from headgate.protocols.stream.deliver_frames import Deliver
from headgate.server.stream import StreamHandler
from server.running import RunningServer, running_server
from stream_peer import StreamPeer, opened_peer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("server"), handlers={"stream": StreamHandler}) as running:
        yield running


@pytest.fixture
def peer(server: RunningServer) -> Iterator[StreamPeer]:
    with opened_peer(server.ports["stream"]) as opened:
        yield opened


@pytest.fixture
def other(server: RunningServer) -> Iterator[StreamPeer]:
    with opened_peer(server.ports["stream"]) as opened:
        yield opened


@pytest.fixture
def stream(peer: StreamPeer, request: pytest.FixtureRequest) -> str:
    assert peer.code(f.Create(request.node.name)) == ResponseCode.OK
    return str(request.node.name)


def chunk_ids(peer: StreamPeer, count: int, number: int = 0) -> list[int]:
    return [peer.chunk(number)[0].chunk_id for _ in range(count)]


def test_one_credit_is_one_chunk(peer: StreamPeer, stream: str) -> None:
    for _ in range(5):
        peer.put(stream, [b"a", b"b"])
    assert peer.subscribe(stream, credit=2) == ResponseCode.OK
    assert chunk_ids(peer, 2) == [0, 2]
    assert peer.code(f.QueryOffset("r", stream)) == ResponseCode.NO_OFFSET
    assert not [event for event in peer.events if isinstance(event, Deliver)]
    peer.say(f.Credit(0, 1))
    assert chunk_ids(peer, 1) == [4]
    peer.say(f.Credit(0, 2))
    assert chunk_ids(peer, 2) == [6, 8]


def test_new_messages_are_pushed_and_say_which_chunk_is_the_last(
    peer: StreamPeer, other: StreamPeer, stream: str
) -> None:
    peer.subscribe(stream, start=OffsetSpecification.next())
    other.put(stream, [b"new"])
    deliver = peer.wait(Deliver)
    assert deliver.committed_chunk_id == 0
    other.put(stream, [b"newer"])
    assert peer.wait(Deliver).committed_chunk_id == 1


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (OffsetSpecification.first(), [0, 2, 4]),
        (OffsetSpecification.last(), [4]),
        (OffsetSpecification.next(), []),
        (OffsetSpecification.offset(3), [2, 4]),
        (OffsetSpecification.offset(99), []),
        (OffsetSpecification.timestamp(0), [0, 2, 4]),
        (OffsetSpecification.timestamp(2**50), []),
    ],
)
def test_whole_chunks_are_delivered_from_the_place_on(
    peer: StreamPeer, stream: str, start: OffsetSpecification, expected: list[int]
) -> None:
    for _ in range(3):
        peer.put(stream, [b"a", b"b"])
    peer.subscribe(stream, start=start)
    peer.put(stream, [b"behind"])
    assert chunk_ids(peer, len(expected) + 1) == [*expected, 6]


def test_filter_values_skip_chunks_at_no_credit(peer: StreamPeer, stream: str) -> None:
    for value in (b"AMER", b"EMEA", None, b"AMER", b"APAC"):
        peer.put(stream, [value or b"none"], values=[value])
    peer.subscribe(stream, credit=2, **{"filter.0": "AMER"})
    assert chunk_ids(peer, 2) == [0, 3]
    peer.subscribe(stream, number=1, **{"filter.a": "EMEA", "filter.b": "APAC", "match-unfiltered": "true"})
    assert chunk_ids(peer, 3, 1) == [1, 2, 4]
    peer.subscribe(stream, number=2, **{"filter.0": "APAC", "match-unfiltered": "TRUE", "filter": "AMER"})
    assert chunk_ids(peer, 1, 2) == [4]
    peer.subscribe(stream, number=3, **{"match-unfiltered": "true"})
    assert chunk_ids(peer, 5, 3) == [0, 1, 2, 3, 4]


def encoded(number: int) -> bytes:
    region = "emea" if number % 3 == 0 else "amer"
    return Message(application_properties={"region": region, "n": number}, body=b"%d" % number).encode()


def test_an_sql_filter_of_ours_leaves_only_messages_that_match(peer: StreamPeer, stream: str) -> None:
    messages = [encoded(number) for number in range(12)]
    peer.put(stream, messages)
    peer.put(stream, [encoded(1)])
    assert peer.subscribe(stream, **{"x-headgate-sql": "region = 'emea' AND n > 2"}) == ResponseCode.OK
    assert peer.messages(3) == [(number, messages[number]) for number in (3, 6, 9)]


def test_an_sql_filter_may_be_of_another_language(peer: StreamPeer, stream: str) -> None:
    messages = [encoded(number) for number in range(6)]
    peer.put(stream, messages)
    properties = {"x-headgate-sql": "user.region = 'emea'", "x-headgate-dialect": "servicebus"}
    assert peer.subscribe(stream, **properties) == ResponseCode.OK
    assert [offset for offset, _ in peer.messages(2)] == [0, 3]


def test_events_may_be_filtered_in_cloudevents_sql(peer: StreamPeer, stream: str) -> None:
    given = [{"type": "paid"}, {"type": "bill"}, {"type": "paid", "n": 9}]
    events = [mode(attributes).encode() for attributes in given for mode in (binary_event, structured_event)]
    peer.put(stream, [*events, encoded(0)])
    properties = {"x-headgate-sql": "type = 'paid' AND NOT EXISTS n", "x-headgate-dialect": "cesql"}
    assert peer.subscribe(stream, **properties) == ResponseCode.OK
    assert [offset for offset, _ in peer.messages(2)] == [0, 1]


@pytest.mark.parametrize(
    "properties",
    [
        {"x-headgate-sql": "region = "},
        {"x-headgate-sql": ""},
        {"x-headgate-sql": "region = 'a'", "x-headgate-dialect": "klingon"},
        {"x-headgate-dialect": "amqp"},
        {"x-headgate-sql": "n = 1 OR " * 1000 + "n = 1"},
        {"chunk_selector": "all"},
        {"single-active-consumer": "true"},
        {"name": "x" * 256},
    ],
)
def test_a_filter_or_a_property_that_is_wrong_refuses_the_subscription(
    peer: StreamPeer, properties: dict[str, str]
) -> None:
    peer.code(f.Create("refused"))
    assert peer.subscribe("refused", **properties) == ResponseCode.PRECONDITION_FAILED
    assert peer.subscribe("refused") == ResponseCode.OK


def test_ids_of_subscriptions_are_used_once_and_free_after_their_end(peer: StreamPeer, stream: str) -> None:
    assert peer.subscribe(stream, number=9) == ResponseCode.OK
    assert peer.subscribe(stream, number=9) == ResponseCode.SUBSCRIPTION_ID_EXISTS
    assert peer.code(f.Unsubscribe(9)) == ResponseCode.OK
    assert peer.code(f.Unsubscribe(9)) == ResponseCode.SUBSCRIPTION_ID_UNKNOWN
    assert peer.subscribe(stream, number=9) == ResponseCode.OK


def test_credit_for_nobody_is_answered(peer: StreamPeer) -> None:
    peer.say(f.Credit(5, 1))
    assert peer.wait(f.CreditReply) == f.CreditReply(ResponseCode.SUBSCRIPTION_ID_UNKNOWN, 5)


def test_a_client_that_does_not_know_version_two_gets_version_one(
    server: RunningServer, stream: str, peer: StreamPeer
) -> None:
    peer.put(stream, [b"a"])
    peer.ask(f.ExchangeCommandVersions(((2, 1, 2),)))
    peer.subscribe(stream)
    assert peer.wait(Deliver).committed_chunk_id is None


def became(peer: StreamPeer, active: int, *, answer: OffsetSpecification | None = None) -> int:
    """Waits for a consumer update, answers it; gives the subscription."""
    update = peer.wait(f.ConsumerUpdate)
    assert update.active == active
    peer.connection.send(f.ConsumerUpdateReply(answer, correlation_id=update.correlation_id))
    peer.flush()
    return update.subscription_id


def test_of_consumers_with_one_name_one_reads_and_the_next_takes_over_from_where_it_says(
    peer: StreamPeer, other: StreamPeer, stream: str
) -> None:
    for _ in range(3):
        peer.put(stream, [b"a"])
    group = {"name": "group", "single-active-consumer": "true"}
    assert peer.subscribe(stream, **group) == other.subscribe(stream, number=4, **group) == ResponseCode.OK
    update = peer.wait(f.ConsumerUpdate)
    assert (update.subscription_id, update.active) == (0, 1)
    assert peer.code(f.QueryOffset("none", stream)) == ResponseCode.NO_OFFSET
    assert not [event for event in peer.events if isinstance(event, Deliver)]
    peer.connection.send(f.ConsumerUpdateReply(OffsetSpecification.offset(1), correlation_id=update.correlation_id))
    assert chunk_ids(peer, 2) == [1, 2]
    other.say(f.Credit(4, 1))
    assert other.wait(f.CreditReply).code == ResponseCode.PRECONDITION_FAILED
    assert peer.code(f.Unsubscribe(0)) == ResponseCode.OK
    assert became(other, 1) == 4
    assert chunk_ids(other, 3, 4) == [0, 1, 2]


def test_the_end_of_a_subscription_is_answered_before_another_one_takes_over(peer: StreamPeer, stream: str) -> None:
    group = {"name": "group", "single-active-consumer": "true"}
    assert peer.subscribe(stream, number=0, **group) == peer.subscribe(stream, number=1, **group) == ResponseCode.OK
    assert became(peer, 1) == 0
    number = peer.connection.request(f.Unsubscribe(0))
    while not any(isinstance(event, f.ConsumerUpdate) for event in peer.events):
        peer.receive()
    reply, update = peer.events
    assert reply == f.UnsubscribeReply(correlation_id=number)
    assert isinstance(update, f.ConsumerUpdate) and (update.subscription_id, update.active) == (1, 1)


def test_partitions_of_a_super_stream_are_shared_by_the_members_of_a_group(
    peer: StreamPeer, server: RunningServer
) -> None:
    names = tuple(f"shared-{number}" for number in range(3))
    assert peer.code(f.CreateSuperStream("shared", names, ("0", "1", "2"))) == ResponseCode.OK
    group = {"name": "group", "single-active-consumer": "true", "super-stream": "shared"}
    for number, name in enumerate(names):
        assert peer.subscribe(name, number=number, **group) == ResponseCode.OK
        assert became(peer, 1) == number
    with opened_peer(server.ports["stream"]) as other:
        for number, name in enumerate(names):
            assert other.subscribe(name, number=number, **group) == ResponseCode.OK
        asked = peer.wait(f.ConsumerUpdate)
        assert (asked.subscription_id, asked.active) == (1, 0)
        peer.put("shared-1", [b"for the other"])
        assert not [event for event in peer.events if isinstance(event, Deliver)], "it was asked to stop"
        peer.connection.send(f.ConsumerUpdateReply(None, correlation_id=asked.correlation_id))
        peer.flush()
        assert became(other, 1) == 1
        assert other.messages(1, number=1) == [(0, b"for the other")]
    assert became(peer, 1, answer=OffsetSpecification.next()) == 1
    assert not [event for event in peer.events if isinstance(event, f.ConsumerUpdate | Deliver)]


def test_a_stream_that_another_process_writes_is_followed(tmp_path: Path) -> None:
    with (
        running_server(tmp_path, handlers={"stream": StreamHandler}) as server,
        opened_peer(server.ports["stream"]) as peer,
    ):
        assert peer.code(f.Create("s")) == ResponseCode.OK
        assert peer.subscribe("s") == ResponseCode.OK
        with Writer.open(Stream.open(tmp_path / "data" / "streams" / "s"), now_ms=1) as writer:
            writer.append([(b"from elsewhere", None)], now_ms=1)
        _, (entry,) = peer.chunk()
        assert isinstance(entry, SimpleEntry) and entry.body == b"from elsewhere"
