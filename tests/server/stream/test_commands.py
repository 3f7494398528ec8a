"""Stream clients against a running server: logins, streams, offsets, super streams, and the codes of refusals."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headgate.broker import arguments_declared
from headgate.log import Stream, stream_folder
from headgate.log.offsets import OffsetSpecification
from headgate.protocols.stream import frames as f
from headgate.protocols.stream.codes import SERVER_VERSIONS, ResponseCode
from headgate.protocols.stream.framing import ProtocolViolation
from headgate.server.stream import StreamHandler
from server.running import RunningServer, running_server
from stream_peer import StreamPeer, opened_peer

LIMITED = {
    "name": "reader",
    "password": "secret",
    "permissions": {"configure": "^own-", "write": "^own-", "read": ".*"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    path = tmp_path_factory.mktemp("server")
    with running_server(path, handlers={"stream": StreamHandler}, user=[LIMITED]) as running:
        yield running


@pytest.fixture
def peer(server: RunningServer) -> Iterator[StreamPeer]:
    with opened_peer(server.ports["stream"]) as opened:
        yield opened


@pytest.fixture
def stream(peer: StreamPeer, request: pytest.FixtureRequest) -> str:
    """A new stream with the test's name."""
    name = request.node.name
    assert peer.code(f.Create(name)) == ResponseCode.OK
    return str(name)


def test_the_server_says_who_it_is_where_it_is_and_what_it_takes(server: RunningServer, peer: StreamPeer) -> None:
    said = peer.connection.server
    assert said.properties["product"] == "RabbitMQ"
    assert [int(part) for part in said.properties["version"].split(".")] >= [3, 13, 0]
    assert said.headgate_version is not None
    assert said.mechanisms[:2] == ("PLAIN", "AMQPLAIN")
    assert said.advertised == {"advertised_host": "localhost", "advertised_port": str(server.ports["stream"])}
    assert said.versions == {key: highest for key, _, highest in SERVER_VERSIONS}


def test_a_wrong_password_is_answered_and_ends_the_connection(server: RunningServer) -> None:
    with closing(StreamPeer(server.ports["stream"], password="wrong")) as peer:
        assert peer.wait(ProtocolViolation).error.code == ResponseCode.AUTHENTICATION_FAILURE
        peer.wait_for_end()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"virtual_host": "other"}, ResponseCode.VIRTUAL_HOST_ACCESS_FAILURE),
        ({"mechanism": "SCRAM-SHA-256"}, ResponseCode.SASL_MECHANISM_UNSUPPORTED),
        ({"mechanism": "AMQPLAIN"}, ResponseCode.SASL_ERROR),
    ],
)
def test_a_handshake_that_cannot_be_is_refused_with_its_code(
    server: RunningServer, options: dict[str, str], code: ResponseCode
) -> None:
    with closing(StreamPeer(server.ports["stream"], **options)) as peer:
        assert peer.wait(ProtocolViolation).error.code == code
        peer.wait_for_end()


def test_an_anonymous_client_on_this_machine_is_the_default_user(server: RunningServer) -> None:
    with opened_peer(server.ports["stream"], mechanism="ANONYMOUS") as peer:
        assert peer.code(f.Create("of-anonymous")) == ResponseCode.OK


def test_credentials_are_renewed_for_the_same_user_by_the_same_mechanism(peer: StreamPeer) -> None:
    assert peer.code(f.SaslAuthenticate("PLAIN", b"\0guest\0guest")) == ResponseCode.OK
    assert peer.code(f.SaslAuthenticate("AMQPLAIN", b"")) == ResponseCode.SASL_MECHANISM_MAY_NOT_CHANGE
    assert peer.wait(f.Close).closing_code == ResponseCode.SASL_MECHANISM_MAY_NOT_CHANGE
    peer.wait_for_end()


def test_credentials_of_another_user_end_the_connection(peer: StreamPeer) -> None:
    assert peer.code(f.SaslAuthenticate("PLAIN", b"\0reader\0secret")) == ResponseCode.SASL_USER_MAY_NOT_CHANGE
    assert peer.wait(f.Close).closing_code == ResponseCode.SASL_USER_MAY_NOT_CHANGE
    peer.wait_for_end()


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("created", {"max-age": "1h"}, ResponseCode.STREAM_EXISTS),
        ("created", {"max-age": "1h", "unknown": "ignored"}, ResponseCode.STREAM_EXISTS),
        ("other", {"headgate-body-schema": "{}"}, ResponseCode.PRECONDITION_FAILED),
        ("other", {"headgate-remote": "s3://bucket/x"}, ResponseCode.PRECONDITION_FAILED),
        ("created\r\n", {"max-age": "1h"}, ResponseCode.STREAM_EXISTS),
        ("created", {}, ResponseCode.PRECONDITION_FAILED),
        ("", {}, ResponseCode.PRECONDITION_FAILED),
        ("amq.stream", {}, ResponseCode.PRECONDITION_FAILED),
        ("new", {"stream-filter-size-bytes": "15"}, ResponseCode.PRECONDITION_FAILED),
        ("new", {"stream-filter-size-bytes": "256"}, ResponseCode.PRECONDITION_FAILED),
        ("new", {"max-length-bytes": "many"}, ResponseCode.PRECONDITION_FAILED),
        ("new", {"stream-initial-offset": "-1"}, ResponseCode.PRECONDITION_FAILED),
        ("new", {"stream-initial-offset": "first"}, ResponseCode.PRECONDITION_FAILED),
        ("new", {"stream-initial-offset": str(2**62 + 1)}, ResponseCode.PRECONDITION_FAILED),
        ("created", {"max-age": "1h", "stream-initial-offset": "1"}, ResponseCode.PRECONDITION_FAILED),
        ("new", {"initial-cluster-size": "0"}, ResponseCode.PRECONDITION_FAILED),
        ("new", {"queue-leader-locator": "nowhere"}, ResponseCode.PRECONDITION_FAILED),
        (
            "full",
            {"stream-filter-size-bytes": "255", "initial-cluster-size": "3", "queue-leader-locator": "balanced"},
            1,
        ),
    ],
)
def test_streams_are_created_with_arguments_that_are_checked(
    peer: StreamPeer, name: str, arguments: dict[str, str], code: int
) -> None:
    peer.code(f.Create("created", {"max-age": "1h"}))
    assert peer.code(f.Create(name, arguments)) == code


def test_no_argument_of_a_stream_is_ignored(server: RunningServer, peer: StreamPeer) -> None:
    own = {
        "headgate-columns": "subject string",
        "headgate-max-segment-age": "1h",
        "headgate-filter-source": "properties.subject",
    }
    given = own | {"stream-initial-offset": "1000", "headgate-drop-settled": "true", "max-age": "1h"}
    assert peer.code(f.Create("late", given)) == ResponseCode.OK
    assert peer.code(f.Create("late", given)) == ResponseCode.STREAM_EXISTS
    found = server.call(lambda: server.context.broker.catalogue.get("late"))
    assert found.next_offset == 1000
    assert arguments_declared(found).keys() == given.keys()
    for name in given:
        fewer = {other: value for other, value in given.items() if other != name}
        assert peer.code(f.Create("late", fewer)) == ResponseCode.PRECONDITION_FAILED, name


def test_metadata_says_where_a_stream_is_and_which_are_not_there(
    server: RunningServer, peer: StreamPeer, stream: str
) -> None:
    reply = peer.ask(f.Metadata((stream, "nowhere")))
    assert reply.brokers == ((0, "localhost", server.ports["stream"]),)
    assert reply.streams == ((stream, 1, 0, ()), ("nowhere", 2, 0xFFFF, ()))


def test_metadata_of_all_streams_says_which_cannot_be_opened(
    server: RunningServer, peer: StreamPeer, stream: str
) -> None:
    folder = stream_folder(server.server.context.settings.root, "damaged")
    folder.mkdir()
    folder.joinpath("stream.json").write_bytes(b"{")
    codes = {name: code for name, code, _, _ in peer.ask(f.Metadata(())).streams}
    shutil.rmtree(folder)
    assert codes[stream] == ResponseCode.OK
    assert codes["damaged"] == ResponseCode.STREAM_NOT_AVAILABLE


def test_a_deleted_stream_is_told_to_everyone_who_uses_it_behind_the_reply(
    server: RunningServer, peer: StreamPeer, stream: str
) -> None:
    with opened_peer(server.ports["stream"]) as reader, opened_peer(server.ports["stream"]) as bystander:
        assert reader.subscribe(stream) == ResponseCode.OK
        assert peer.code(f.DeclarePublisher(1, None, stream)) == ResponseCode.OK
        number = peer.connection.request(f.Delete(stream))
        peer.flush()
        while len(peer.events) < 2:
            peer.receive()
        assert peer.events[:2] == [
            f.DeleteReply(correlation_id=number),
            f.MetadataUpdate(ResponseCode.STREAM_NOT_AVAILABLE, stream),
        ]
        assert reader.wait(f.MetadataUpdate) == f.MetadataUpdate(6, stream)
        peer.publish([(5, b"late")], publisher_id=1)
        del peer.events[:2]
        assert peer.refused(1) == [(5, ResponseCode.PUBLISHER_DOES_NOT_EXIST)]
        assert reader.code(f.Unsubscribe(0)) == ResponseCode.SUBSCRIPTION_ID_UNKNOWN
        assert bystander.code(f.Delete(stream)) == ResponseCode.STREAM_DOES_NOT_EXIST
        assert bystander.events == []


def test_what_is_made_on_a_stream_of_the_same_name_outlives_the_deleted_one(peer: StreamPeer, stream: str) -> None:
    assert peer.code(f.DeclarePublisher(0, None, stream)) == ResponseCode.OK
    requests = (
        f.Delete(stream),
        f.Create(stream),
        f.DeclarePublisher(1, None, stream),
        f.Subscribe(1, stream, OffsetSpecification.first(), 10),
    )
    numbers = [peer.connection.request(request) for request in requests]
    peer.flush()
    replies = [peer.wait(f.Reply, lambda reply, number=number: reply.correlation_id == number) for number in numbers]
    assert [reply.code for reply in replies] == [ResponseCode.OK] * len(requests)
    assert peer.wait(f.MetadataUpdate) == f.MetadataUpdate(6, stream)
    peer.publish([(5, b"new")], publisher_id=1)
    assert peer.confirmed(1) == [5]
    peer.publish([(6, b"old")], publisher_id=0)
    assert peer.refused(1) == [(6, ResponseCode.PUBLISHER_DOES_NOT_EXIST)]
    assert peer.code(f.Unsubscribe(1)) == ResponseCode.OK


@pytest.mark.parametrize(
    "request_",
    [
        f.Delete("nowhere"),
        f.DeclarePublisher(1, None, "nowhere"),
        f.QueryPublisherSequence("reference", "nowhere"),
        f.QueryOffset("reference", "nowhere"),
        f.Subscribe(1, "nowhere", OffsetSpecification.first(), 1),
        f.StreamStats("nowhere"),
        f.Route("key", "nowhere"),
        f.Partitions("nowhere"),
        f.DeleteSuperStream("nowhere"),
        f.ResolveOffsetSpecification("nowhere", OffsetSpecification.first()),
    ],
)
def test_what_is_not_there_is_said_with_its_code(peer: StreamPeer, request_: f.Request) -> None:
    assert peer.code(request_) == ResponseCode.STREAM_DOES_NOT_EXIST


def test_a_stored_offset_is_seen_by_the_query_behind_it_and_by_other_connections(
    server: RunningServer, peer: StreamPeer, stream: str
) -> None:
    assert peer.ask(f.QueryOffset("reader", stream)) == f.QueryOffsetReply(
        correlation_id=7, code=ResponseCode.NO_OFFSET
    )
    peer.connection.send(f.StoreOffset("reader", stream, 41))
    assert peer.ask(f.QueryOffset("reader", stream)).offset == 41
    assert peer.code(f.QueryPublisherSequence("", stream)) == ResponseCode.OK
    assert peer.code(f.QueryOffset("", stream)) == ResponseCode.NO_OFFSET
    assert peer.code(f.QueryOffset("x" * 256, stream)) == ResponseCode.NO_OFFSET
    assert peer.code(f.QueryOffset("", "nowhere")) == ResponseCode.STREAM_DOES_NOT_EXIST
    peer.connection.send(f.StoreOffset("x" * 300, stream, 1))
    peer.connection.send(f.StoreOffset("reader", "nowhere", 1))
    with opened_peer(server.ports["stream"]) as other:
        assert other.ask(f.QueryOffset("reader", stream)).offset == 41


def test_statistics_are_minus_one_while_a_stream_is_empty(peer: StreamPeer, stream: str, server: RunningServer) -> None:
    told = f"headgate_identity:{Stream.open(stream_folder(server.context.settings.root, stream)).identity}"
    assert dict(peer.ask(f.StreamStats(stream)).statistics) == {
        "first_chunk_id": -1,
        "last_chunk_id": -1,
        "committed_chunk_id": -1,
        "committed_offset": -1,
        told: 0,
    }
    for _ in range(2):
        peer.put(stream, [b"a", b"b"])
    assert dict(peer.ask(f.StreamStats(stream)).statistics) == {
        "first_chunk_id": 0,
        "last_chunk_id": 2,
        "committed_chunk_id": 2,
        "committed_offset": 3,
        told: 0,
    }


@pytest.mark.parametrize(
    ("place", "offset"),
    [
        (OffsetSpecification.first(), 0),
        (OffsetSpecification.last(), 2),
        (OffsetSpecification.next(), 4),
        (OffsetSpecification.offset(1), 0),
        (OffsetSpecification.offset(3), 2),
        (OffsetSpecification.offset(100), 4),
        (OffsetSpecification.timestamp(1), 0),
        (OffsetSpecification.timestamp(2**62), 4),
    ],
)
def test_places_are_resolved_to_the_chunks_that_a_reader_begins_with(
    peer: StreamPeer, stream: str, place: OffsetSpecification, offset: int
) -> None:
    for _ in range(2):
        peer.put(stream, [b"a", b"b"])
    reply = peer.ask(f.ResolveOffsetSpecification(stream, place))
    assert reply.offset == OffsetSpecification.offset(offset)


def test_super_streams_have_partitions_in_order_and_routes_by_key(peer: StreamPeer) -> None:
    names = ("orders-emea", "orders-amer", "orders-apac")
    keys = ("emea", "amer", "apac")
    assert peer.code(f.CreateSuperStream("orders", names, keys, {"max-age": "1h"})) == ResponseCode.OK
    assert peer.code(f.CreateSuperStream("orders", names, keys)) == ResponseCode.STREAM_EXISTS
    assert peer.code(f.CreateSuperStream("others", names, keys)) == ResponseCode.STREAM_EXISTS
    assert peer.code(f.CreateSuperStream("others", ("a", "b"), ("a",))) == ResponseCode.PRECONDITION_FAILED
    assert peer.code(f.CreateSuperStream("others", ("a", "a"), ("a", "b"))) == ResponseCode.PRECONDITION_FAILED
    assert peer.ask(f.Partitions("orders")).streams == names
    assert peer.ask(f.Route("amer", "orders")).streams == ("orders-amer",)
    assert peer.ask(f.Route("nowhere", "orders")) == f.RouteReply((), correlation_id=peer.connection._last_correlation)
    assert peer.code(f.DeclarePublisher(1, None, "orders-amer")) == ResponseCode.OK
    assert peer.code(f.DeleteSuperStream("orders")) == ResponseCode.OK
    assert peer.wait(f.MetadataUpdate).stream == "orders-amer"
    assert [code for _, code, _, _ in peer.ask(f.Metadata(names)).streams] == [2, 2, 2]


@pytest.mark.parametrize(
    "request_",
    [
        f.Create("others"),
        f.Delete("guarded"),
        f.DeclarePublisher(1, None, "guarded"),
        f.QueryPublisherSequence("reference", "guarded"),
        f.CreateSuperStream("others", ("own-a",), ("a",)),
    ],
)
def test_what_a_user_may_not_do_is_refused(server: RunningServer, peer: StreamPeer, request_: f.Request) -> None:
    peer.code(f.Create("guarded"))
    with opened_peer(server.ports["stream"], user="reader", password="secret") as limited:
        assert limited.code(request_) == ResponseCode.ACCESS_REFUSED
        assert limited.code(f.Subscribe(1, "guarded", OffsetSpecification.first(), 1)) == ResponseCode.OK


def test_a_user_without_permission_reads_nothing(tmp_path: Path) -> None:
    writer = {"name": "writer", "password": "secret", "permissions": {"configure": ".*", "write": ".*"}}
    with (
        running_server(tmp_path, handlers={"stream": StreamHandler}, user=[writer]) as server,
        opened_peer(server.ports["stream"], user="writer", password="secret") as peer,
    ):
        assert peer.code(f.Create("s")) == ResponseCode.OK
        for request_ in (
            f.Subscribe(1, "s", OffsetSpecification.first(), 1),
            f.QueryOffset("reader", "s"),
            f.StreamStats("s"),
            f.ResolveOffsetSpecification("s", OffsetSpecification.first()),
        ):
            assert peer.code(request_) == ResponseCode.ACCESS_REFUSED
