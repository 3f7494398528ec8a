"""Publishing over the stream protocol: confirms, errors, deduplication, sub-batches, limits."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.log.entries import SubBatch
from headgate.protocols.stream import frames as f
from headgate.protocols.stream.codes import ResponseCode
from headgate.protocols.stream.publish_frames import PublishConfirm
from headgate.server.stream import StreamHandler
from server.running import RunningServer, running_server
from stream_frames import publish, sub_batch
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
def stream(peer: StreamPeer, request: pytest.FixtureRequest) -> str:
    assert peer.code(f.Create(request.node.name)) == ResponseCode.OK
    return str(request.node.name)


def test_messages_of_several_publishers_are_confirmed_to_each(peer: StreamPeer, stream: str) -> None:
    assert peer.code(f.DeclarePublisher(1, None, stream)) == ResponseCode.OK
    assert peer.code(f.DeclarePublisher(255, "", stream)) == ResponseCode.OK
    peer.flush(b"".join(publish([(n, b"%d" % n)], publisher_id=1 if n % 2 else 255) for n in range(20)))
    confirms: dict[int, list[int]] = {1: [], 255: []}
    while sum(map(len, confirms.values())) < 20:
        confirm = peer.wait(PublishConfirm)
        confirms[confirm.publisher_id] += confirm.publishing_ids.tolist()
    assert confirms == {1: list(range(1, 20, 2)), 255: list(range(0, 20, 2))}
    assert peer.subscribe(stream) == ResponseCode.OK
    bodies = [body for _, body in peer.messages(20)]
    assert sorted(bodies, key=int) == [b"%d" % n for n in range(20)]
    assert [body for body in bodies if int(body) % 2] == [b"%d" % n for n in range(1, 20, 2)]


def test_ids_of_publishers_without_a_name_are_echoed_whatever_they_are(peer: StreamPeer, stream: str) -> None:
    assert peer.code(f.DeclarePublisher(0, None, stream)) == ResponseCode.OK
    peer.publish([(7, b"a"), (7, b"b"), (3, b"c"), (2**64 - 1, b"d")])
    assert peer.confirmed(4) == [7, 7, 3, 2**64 - 1]
    peer.subscribe(stream)
    assert [body for _, body in peer.messages(4)] == [b"a", b"b", b"c", b"d"]


def test_what_a_named_publisher_sends_again_is_confirmed_and_left_out(
    server: RunningServer, peer: StreamPeer, stream: str
) -> None:
    assert peer.ask(f.QueryPublisherSequence("anna", stream)).sequence == 0
    assert peer.code(f.DeclarePublisher(0, "anna", stream)) == ResponseCode.OK
    peer.publish([(1, b"a"), (5, b"b")])
    assert peer.confirmed(2) == [1, 5]
    with opened_peer(server.ports["stream"]) as again:
        assert again.ask(f.QueryPublisherSequence("anna", stream)).sequence == 5
        assert again.code(f.DeclarePublisher(9, "anna", stream)) == ResponseCode.OK
        again.publish([(4, b"old"), (5, b"b"), (6, b"c"), (6, b"c again")], publisher_id=9)
        assert again.confirmed(4) == [4, 5, 6, 6]
        again.subscribe(stream)
        assert [body for _, body in again.messages(3)] == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("number", "reference"), [(1, None), (2, "anna"), (3, "x" * 256)], ids=["id in use", "name in use", "long name"]
)
def test_a_publisher_that_cannot_be_declared_is_refused(
    peer: StreamPeer, stream: str, number: int, reference: str | None
) -> None:
    assert peer.code(f.DeclarePublisher(1, "anna", stream)) == ResponseCode.OK
    assert peer.code(f.DeclarePublisher(number, reference, stream)) == ResponseCode.PRECONDITION_FAILED
    assert peer.code(f.DeletePublisher(1)) == ResponseCode.OK
    assert peer.code(f.DeletePublisher(1)) == ResponseCode.PUBLISHER_DOES_NOT_EXIST
    assert peer.code(f.DeclarePublisher(4, "anna", stream)) == ResponseCode.OK


def test_messages_for_an_unknown_publisher_are_refused_one_by_one(peer: StreamPeer) -> None:
    peer.publish([(1, b"a"), (2, b"b")], publisher_id=77)
    assert peer.refused(2) == [(1, 0x12), (2, 0x12)]


def test_messages_behind_the_deletion_of_their_stream_are_refused(peer: StreamPeer, stream: str) -> None:
    assert peer.code(f.DeclarePublisher(0, None, stream)) == ResponseCode.OK
    peer.connection.request(f.Delete(stream))
    peer.publish([(1, b"a")])
    assert peer.refused(1) == [(1, ResponseCode.PUBLISHER_DOES_NOT_EXIST)]


def test_sub_batches_are_stored_untouched_and_a_wrong_one_is_refused_with_what_follows(
    peer: StreamPeer, stream: str
) -> None:
    assert peer.code(f.DeclarePublisher(0, None, stream)) == ResponseCode.OK
    plain = b"".join(len(body).to_bytes(4, "big") + body for body in (b"one", b"two"))
    good = sub_batch(2, gzip.compress(plain), compression=1, expanded=len(plain))
    peer.publish([(1, good), (2, sub_batch(0, b"")), (3, good)], has_heads=True)
    assert peer.refused(2) == [(2, ResponseCode.PRECONDITION_FAILED), (3, ResponseCode.PRECONDITION_FAILED)]
    assert peer.confirmed(1) == [1]
    peer.publish([(4, b"single")])
    assert peer.confirmed(1) == [4]
    peer.subscribe(stream)
    header, (entry,) = peer.chunk()
    assert (header.num_entries, header.num_records, header.chunk_id) == (1, 2, 0)
    assert isinstance(entry, SubBatch) and entry.encode() == good
    assert list(entry.messages(limit_bytes=100, path="", position=0)) == [b"one", b"two"]
    assert peer.chunk()[0].chunk_id == 2


def test_a_malformed_publish_ends_the_connection_without_a_word(peer: StreamPeer, stream: str) -> None:
    assert peer.code(f.DeclarePublisher(0, None, stream)) == ResponseCode.OK
    broken = bytearray(publish([(1, b"a")]))
    broken[12] = 9
    peer.flush(bytes(broken))
    peer.wait_for_end()
    assert peer.events == []


def test_messages_above_the_limit_are_refused_and_others_published(tmp_path: Path) -> None:
    with (
        running_server(tmp_path, handlers={"stream": StreamHandler}, limits={"message_size_bytes": 10}) as server,
        opened_peer(server.ports["stream"]) as peer,
    ):
        assert peer.code(f.Create("s")) == peer.code(f.DeclarePublisher(0, None, "s")) == ResponseCode.OK
        peer.publish([(1, b"small"), (2, b"x" * 11), (3, b"x" * 10)])
        assert peer.refused(1) == [(2, ResponseCode.PRECONDITION_FAILED)]
        assert peer.confirmed(2) == [1, 3]


def test_a_message_that_is_refused_at_once_holds_back_what_a_named_publisher_sends_behind_it(tmp_path: Path) -> None:
    limits = {"message_size_bytes": 10}
    with (
        running_server(tmp_path, handlers={"stream": StreamHandler}, limits=limits) as server,
        opened_peer(server.ports["stream"]) as peer,
    ):
        assert peer.code(f.Create("s")) == peer.code(f.DeclarePublisher(0, "anna", "s")) == ResponseCode.OK
        peer.publish([(1, b"a"), (2, b"x" * 11), (3, b"c")])
        assert sorted(peer.refused(2)) == [(2, ResponseCode.PRECONDITION_FAILED), (3, ResponseCode.PRECONDITION_FAILED)]
        peer.publish([(4, b"d"), (2, b"b"), (5, b"e"), (3, b"c"), (1, b"a"), (4, b"d")])
        assert peer.refused(2) == [(4, ResponseCode.PRECONDITION_FAILED), (5, ResponseCode.PRECONDITION_FAILED)]
        assert sorted(peer.confirmed(5)) == [1, 1, 2, 3, 4]
        assert peer.code(f.DeletePublisher(0)) == peer.code(f.DeclarePublisher(0, "anna", "s")) == ResponseCode.OK
        assert peer.ask(f.QueryPublisherSequence("anna", "s")).sequence == 4
        peer.publish([(6, b"f")])
        assert peer.confirmed(1) == [6]
        peer.subscribe("s")
        assert [body for _, body in peer.messages(5)] == [b"a", b"b", b"c", b"d", b"f"]


def test_numbers_of_publishers_and_consumers_are_limited(tmp_path: Path) -> None:
    limits = {"publishers": 1, "consumers": 1}
    with (
        running_server(tmp_path, handlers={"stream": StreamHandler}, limits=limits) as server,
        opened_peer(server.ports["stream"]) as peer,
    ):
        assert peer.code(f.Create("s")) == peer.code(f.DeclarePublisher(0, None, "s")) == ResponseCode.OK
        assert peer.code(f.DeclarePublisher(1, None, "s")) == ResponseCode.PRECONDITION_FAILED
        assert peer.subscribe("s") == ResponseCode.OK
        assert peer.subscribe("s", number=1) == ResponseCode.PRECONDITION_FAILED


def test_everything_is_confirmed_though_far_more_comes_than_may_be_unconfirmed(tmp_path: Path) -> None:
    with (
        running_server(tmp_path, handlers={"stream": StreamHandler}, limits={"unconfirmed_messages": 10}) as server,
        opened_peer(server.ports["stream"]) as peer,
    ):
        assert peer.code(f.Create("s")) == peer.code(f.DeclarePublisher(0, None, "s")) == ResponseCode.OK
        peer.publish([(n, b"x" * 100) for n in range(5000)], frame_entries=50)
        assert sorted(peer.confirmed(5000)) == list(range(5000))


def test_with_durability_on_disk_everything_is_confirmed_too(tmp_path: Path) -> None:
    settings = {"storage": {"durability": "disk"}, "limits": {"unconfirmed_messages": 10}}
    with (
        running_server(tmp_path, handlers={"stream": StreamHandler}, **settings) as server,
        opened_peer(server.ports["stream"]) as peer,
    ):
        assert peer.code(f.Create("s")) == peer.code(f.DeclarePublisher(0, None, "s")) == ResponseCode.OK
        peer.publish([(n, b"x" * 100) for n in range(300)], frame_entries=30)
        assert sorted(peer.confirmed(300)) == list(range(300))
