"""Publishers: what is confirmed, refused, repeated."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from headgate import Message
from headgate.client import Client
from headgate.errors import (
    ConfigError,
    ConnectionLostError,
    PreconditionFailedError,
    RemoteProtocolError,
    ResourceNotFoundError,
    UnsupportedError,
)
from headgate.log import BloomMatcher
from headgate.log.entries import SubBatch, entries_of
from headgate.log.format import Compression
from headgate.message import EncodedMessages
from headgate.protocols.stream.codes import SERVER_VERSIONS, ResponseCode
from headgate.protocols.stream.frames import DeletePublisher
from headgate.protocols.stream.publish_frames import Publish

from .conftest import SOON
from .fake_server import FakeServer


def published(server: FakeServer, stream: str = "orders") -> list[tuple[int, bytes, bytes | None]]:
    """Every entry that reached the server, repeated ones too."""
    return [
        (number, entry, value)
        for event in server.seen
        if isinstance(event, Publish)
        for number, entry, value, _ in event.rows()
    ]


def region(message: Message) -> str | None:
    found = (message.application_properties or {}).get("region")
    return None if found is None else str(found.value)


def test_what_was_sent_is_confirmed_when_the_publisher_is_closed(client: Client, server: FakeServer) -> None:
    client.create_stream("orders")
    with client.publisher("orders") as publisher:
        assert [publisher.send(b"one"), publisher.send(Message(b"two"))] == [1, 2]
        publisher.flush()
        assert (publisher.confirmed, publisher.unconfirmed) == (2, 0)
    assert published(server) == [(1, b"one", None), (2, Message(b"two").encode(), None)]
    assert any(isinstance(event, DeletePublisher) for event in server.seen)


def test_many_messages_leave_in_few_frames(client: Client, server: FakeServer) -> None:
    client.create_stream("orders")
    with client.publisher("orders", most_unconfirmed=10_000) as publisher:
        assert publisher.send_many(b"%d" % number for number in range(25_000)) == 25_000
    assert server.streams["orders"].next_offset == 25_000
    assert [entry for _, entry, _ in published(server)] == [b"%d" % number for number in range(25_000)]
    assert sum(isinstance(event, Publish) for event in server.seen) < 20


def test_a_function_gives_the_filter_values(client: Client, server: FakeServer) -> None:
    client.create_stream("orders")
    with client.publisher("orders", filter_value=region) as publisher:
        publisher.send(Message(b"", application_properties={"region": "EMEA"}))
        publisher.send_many([Message(b"x"), Message(b"", application_properties={"region": "Île"}).encode()])
        publisher.send(Message(b""), filter_value="given")
    assert [value for _, _, value in published(server)] == [b"EMEA", None, "Île".encode(), b"given"]
    first = server.streams["orders"].chunks[0]
    assert BloomMatcher(["EMEA"], match_unfiltered=False).matches(first[48:64])


def test_filter_values_for_a_server_that_knows_none_are_refused(server: FakeServer) -> None:
    server.versions = tuple((key, 1, 1) for key, _, _ in SERVER_VERSIONS)
    with Client.connect(server.address, retry=SOON) as client:
        client.create_stream("orders")
        publisher = client.publisher("orders")
        with pytest.raises(UnsupportedError, match="filter values"):
            publisher.send(b"one", filter_value="EMEA")
        publisher.send(b"two")
        publisher.close()
    assert published(server) == [(2, b"two", None)]


def test_a_refused_message_is_raised_with_its_code(client: Client, server: FakeServer) -> None:
    client.create_stream("orders")
    server.refused_ids = {2: ResponseCode.PRECONDITION_FAILED, 3: ResponseCode.ACCESS_REFUSED}
    publisher = client.publisher("orders")
    publisher.send_many([b"one", b"two", b"three", b"four"])
    with pytest.raises(PreconditionFailedError, match=r"publishing id 2.*0x11") as raised:
        publisher.flush()
    assert "2 messages were refused" in str(raised.value.__notes__)
    assert (publisher.confirmed, publisher.unconfirmed) == (2, 0)
    publisher.send(b"five")
    publisher.close()
    assert server.streams["orders"].next_offset == 3


def test_a_named_publisher_goes_on_behind_its_last_sequence(client: Client, server: FakeServer) -> None:
    client.create_stream("orders")
    with client.publisher("orders", name="import") as publisher:
        publisher.send_many([b"one", b"two"])
    assert client.last_sequence("orders", "import") == 2
    with client.publisher("orders", name="import") as publisher:
        assert publisher.last_sequence == 2
        assert publisher.send(b"three") == 3
        assert publisher.send(b"ten", publishing_id=10) == 10
        with pytest.raises(ConfigError, match="next one is 11"):
            publisher.send(b"ten", publishing_id=10)
    assert server.streams["orders"].sequences == {"import": 10}


def test_a_named_publisher_repeats_what_was_not_confirmed(client: Client, server: FakeServer) -> None:
    client.create_stream("orders")
    server.confirms = False
    publisher = client.publisher("orders", name="import")
    publisher.send_many([b"one", b"two"])
    publisher.send(b"three")
    while len(published(server)) < 3:
        client.has_stream("orders")
    server.drop_connections()
    server.confirms = True
    publisher.send(b"four")
    publisher.close()
    assert (publisher.confirmed, server.streams["orders"].next_offset) == (4, 4)
    assert [number for number, _, _ in published(server)] == [1, 2, 3, 1, 2, 3, 4]


def test_a_publisher_without_a_name_says_how_many_messages_are_in_doubt(client: Client, server: FakeServer) -> None:
    client.create_stream("orders")
    server.confirms = False
    publisher = client.publisher("orders")
    publisher.send_many([b"one", b"two"])
    server.drop_connections()
    with pytest.raises(ConnectionLostError, match="2 messages to stream 'orders' were not confirmed"):
        publisher.flush()


def test_a_connection_that_broke_while_nothing_was_on_its_way_is_made_again(client: Client, server: FakeServer) -> None:
    client.create_stream("orders")
    with client.publisher("orders") as publisher:
        publisher.send(b"one")
        publisher.flush()
        server.drop_connections()
        publisher.send(b"two")
    assert [entry for _, entry, _ in published(server)] == [b"one", b"two"]


def test_messages_on_their_way_are_bounded(client: Client, server: FakeServer) -> None:
    client.create_stream("orders")
    with Client.connect(server.address, timeout_s=0.3, retry=SOON) as hasty:
        publisher = hasty.publisher("orders", most_unconfirmed=2)
        server.confirms = False
        publisher.send(b"one")
        publisher.send(b"two")
        with pytest.raises(ConnectionLostError, match=r"2 messages are not confirmed after 0\.3 s"):
            publisher.send(b"three")
        publisher.abandon()


def test_a_deleted_stream_ends_its_publisher(client: Client, server: FakeServer) -> None:
    client.create_stream("orders")
    publisher = client.publisher("orders")
    publisher.send(b"one")
    publisher.flush()
    client.delete_stream("orders")
    with pytest.raises(ResourceNotFoundError, match="orders"):
        publisher.send(b"two")
    publisher.abandon()


def test_a_confirm_of_what_was_not_sent_is_an_error(client: Client, server: FakeServer) -> None:
    client.create_stream("orders")
    server.confirms = False
    publisher = client.publisher("orders")
    publisher.send_many([b"one", b"two"])
    while not published(server):
        client.has_stream("orders")
    with server.lock:
        (connection,) = (each for each in server.live if each.publishers)
        connection.core.confirm(0, np.array([2, 7], dtype=np.uint64))
        connection.write()
    with pytest.raises(RemoteProtocolError, match="7, which is not on its way"):
        publisher.flush()
    publisher.abandon()


def test_encoded_messages_take_ids_that_rise(client: Client, server: FakeServer) -> None:
    client.create_stream("orders")
    messages = EncodedMessages.of([b"a", b"b", b"c"])
    with client.publisher("orders", name="bulk") as publisher:
        publisher.send_encoded(messages, ids=np.array([5, 7, 9], dtype=np.uint64))
        for wrong in ([9, 10, 11], [20, 20, 21]):
            with pytest.raises(ConfigError, match="have to rise"):
                publisher.send_encoded(messages, ids=np.array(wrong, dtype=np.uint64))
    assert [number for number, _, _ in published(server)] == [5, 7, 9]


def test_an_error_in_the_block_leaves_without_waiting(client: Client, server: FakeServer) -> None:
    client.create_stream("orders")
    server.confirms = False
    with contextlib.suppress(ZeroDivisionError), client.publisher("orders") as publisher:
        publisher.send(b"one")
        raise ZeroDivisionError
    with pytest.raises(ConfigError, match="closed"):
        publisher.send(b"two")


def sub_batches(server: FakeServer) -> list[tuple[int, int, list[bytes]]]:
    """Publishing id, codec and messages of every sub-batch that reached the server, repeated ones too."""
    found = []
    for number, stored, _ in published(server):
        (entry,) = entries_of(stored, 1, path="entry", position=0)
        assert isinstance(entry, SubBatch)
        messages = list(entry.messages(limit_bytes=1 << 20, path="entry", position=0))
        found.append((number, entry.compression, messages))
    return found


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec is not Compression.NONE])
def test_compressed_messages_leave_in_sub_batches_with_the_id_of_their_last(
    client: Client, server: FakeServer, codec: Compression
) -> None:
    client.create_stream("orders")
    bodies = [b"%d" % number for number in range(5000)]
    with client.publisher("orders", name="import", compression=codec.name.lower()) as publisher:
        publisher.send_many(bodies)
        publisher.flush()
        assert (publisher.confirmed, publisher.unconfirmed, publisher.next_publishing_id) == (5000, 0, 5001)
        publisher.send(b"alone")
    assert [(number, used) for number, used, _ in sub_batches(server)] == [(n, codec) for n in (4096, 5000, 5001)]
    assert [body for _, _, messages in sub_batches(server) for body in messages] == [*bodies, b"alone"]
    stream = server.streams["orders"]
    assert (stream.next_offset, stream.sequences) == (5001, {"import": 5001})


def test_what_does_not_become_smaller_fits_the_frames_of_the_server(client: Client, server: FakeServer) -> None:
    client.create_stream("orders")
    noise = np.random.default_rng(7)
    bodies = [noise.bytes(1_020) for _ in range(3_000)]
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        with client.publisher("orders", compression=codec) as publisher:
            publisher.send_many(bodies)
    received = [messages for _, _, messages in sub_batches(server)]
    assert [body for messages in received for body in messages] == bodies * 4
    assert max(map(len, received)) > 900


def test_a_named_publisher_repeats_sub_batches_as_they_were(client: Client, server: FakeServer) -> None:
    client.create_stream("orders")
    server.confirms = False
    publisher = client.publisher("orders", name="import", compression="gzip")
    publisher.send_many([b"one", b"two"])
    publisher.send_many([b"three", b"four", b"five"])
    while len(published(server)) < 2:
        client.has_stream("orders")
    server.drop_connections()
    server.confirms = True
    publisher.send(b"six")
    publisher.close()
    assert (publisher.confirmed, server.streams["orders"].next_offset) == (6, 6)
    assert [number for number, _, _ in published(server)] == [2, 5, 2, 5, 6]


def test_a_refused_sub_batch_counts_its_messages(client: Client, server: FakeServer) -> None:
    client.create_stream("orders")
    server.refused_ids = {4: ResponseCode.PRECONDITION_FAILED}
    publisher = client.publisher("orders", compression="zstd")
    publisher.send_many([b"one", b"two", b"three", b"four"])
    with pytest.raises(PreconditionFailedError, match=r"publishing id 4.*0x11") as raised:
        publisher.flush()
    assert "4 messages were refused" in str(raised.value.__notes__)
    assert (publisher.confirmed, publisher.unconfirmed) == (0, 0)
    publisher.abandon()


def test_filter_values_cannot_be_compressed_and_other_codecs_are_refused(client: Client, server: FakeServer) -> None:
    client.create_stream("orders")
    with pytest.raises(UnsupportedError, match="no room for the filter values of compressed"):
        client.publisher("orders", filter_value=region, compression="gzip")
    with client.publisher("orders", compression="gzip") as publisher:
        with pytest.raises(UnsupportedError, match="no room"):
            publisher.send(b"one", filter_value="EMEA")
        publisher.send(b"two", filter_value="")
    assert [messages for _, _, messages in sub_batches(server)] == [[b"two"]]
    with pytest.raises(ConfigError, match="'brotli', expected one of none, gzip, snappy, lz4, zstd"):
        client.publisher("orders", compression="brotli")


def test_a_message_without_a_body_is_sent_with_an_empty_one_that_is_noted(client: Client, server: FakeServer) -> None:
    client.create_stream("orders")
    stored = Message(message_annotations={"x-headgate-no-body": True}, subject="ping").encode()
    with client.publisher("orders") as publisher:
        publisher.send(Message(None, subject="ping"))
    with client.publisher("orders", filter_value=lambda message: "a") as publisher:
        publisher.send_many([Message(None, subject="ping")])
    assert [message for _, message, _ in published(server)] == [stored, stored]
