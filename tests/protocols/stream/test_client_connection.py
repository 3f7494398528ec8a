"""The client's side, mostly against our server's side."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunks import encode_chunk
from headgate.errors import LocalProtocolError
from headgate.log.offsets import OffsetSpecification
from headgate.protocols.stream import frames as f
from headgate.protocols.stream.client import ClientConnection, ClientState, Opened
from headgate.protocols.stream.codec import encode
from headgate.protocols.stream.codes import Command, ResponseCode
from headgate.protocols.stream.deliver_frames import Deliver
from headgate.protocols.stream.framing import ProtocolViolation
from headgate.protocols.stream.publish_frames import PublishConfirm, PublishError, encode_confirms
from headgate.protocols.stream.server import ServerState
from stream_frames import Served, connected, exchanged, flat, frames_of


def test_both_sides_agree_on_an_open_connection() -> None:
    client, served, events = connected(user="anna", password="secret", virtual_host="/", properties={"id": "7"})
    (opened,) = events
    assert isinstance(opened, Opened)
    assert opened.server.headgate_version == "0.1.0"
    assert opened.server.advertised == {"advertised_port": "1"}
    assert opened.server.versions[Command.PUBLISH] == 2
    assert client.state is ClientState.OPENED and served.connection.state is ServerState.OPENED
    assert served.connection.deliver_version == 2
    assert f.SaslAuthenticate("PLAIN", b"\0anna\0secret", correlation_id=3) in served.events
    assert f.PeerProperties({"id": "7"}, correlation_id=1) in served.events


def test_limits_are_the_smaller_ones() -> None:
    client, served, _ = connected(frame_max=10_000, heartbeat_s=0)
    assert client.frame_max == served.connection.frame_max == 10_000
    assert client.heartbeat_s == served.connection.heartbeat_s == 60


@pytest.mark.parametrize(("step", "code"), [("authentication_code", 8), ("open_code", 12)])
def test_a_refused_handshake_names_the_code(step: str, code: int) -> None:
    served = Served()
    setattr(served, step, code)
    client, _, events = connected(served)
    (violation,) = events
    assert isinstance(violation, ProtocolViolation)
    assert violation.error.code == code and "refuses the connection" in str(violation.error)
    assert client.state is ClientState.CLOSED


def test_replies_carry_the_correlation_id_of_their_request() -> None:
    client, served, _ = connected()
    first = client.request(f.Create("s", {"max-age": "1h"}))
    second = client.request(f.Metadata(("s",)))
    assert list(exchanged(client, served)) == [
        f.CreateReply(correlation_id=first),
        f.MetadataReply((), (), correlation_id=second),
    ]


def test_messages_are_published_confirmed_and_refused() -> None:
    client, served, _ = connected()
    ids = np.arange(1, 4, dtype=np.uint64)
    columns = (np.frombuffer(b"abc", dtype=np.uint8), np.arange(3), np.ones(3, dtype=np.int64))
    served.receive(client.publish(7, ids, *columns))
    assert flat(served.events[-1:]) == [("entry", 7, n, bytes([96 + n]), None, 0) for n in (1, 2, 3)]
    served.connection.confirm(7, ids[:2])
    served.connection.refuse(7, ids[2:], ResponseCode.ACCESS_REFUSED)
    confirm, error = client.receive(served.connection.take_output())
    assert isinstance(confirm, PublishConfirm) and confirm.publishing_ids.tolist() == [1, 2]
    assert error == PublishError(7, ((3, 0x10),))


def test_chunks_are_delivered_with_the_last_chunk_of_the_stream() -> None:
    client, served, _ = connected()
    chunk = encode_chunk([b"one"], [None], filter_size_bytes=16)
    frames = served.connection.deliver(
        5,
        np.frombuffer(chunk, dtype=np.uint8),
        header_starts=np.array([0]),
        data_starts=np.array([48]),
        data_lengths=np.array([len(chunk) - 48]),
        committed_chunk_id=99,
    )
    assert client.receive(b"".join(frames)) == [Deliver(5, 99, chunk)]


def test_a_consumer_update_is_answered_with_its_correlation_id() -> None:
    client, served, _ = connected()
    correlation = served.connection.ask_consumer(1, active=True)
    (update,) = client.receive(served.connection.take_output())
    assert update == f.ConsumerUpdate(1, 1, correlation_id=correlation)
    assert isinstance(update, f.ConsumerUpdate)
    client.send(f.ConsumerUpdateReply(OffsetSpecification.offset(8), correlation_id=update.correlation_id))
    list(exchanged(client, served))
    assert served.events[-1] == f.ConsumerUpdateReply(OffsetSpecification.offset(8), correlation_id=correlation)


def test_a_close_of_either_side_is_answered() -> None:
    client, served, _ = connected()
    client.close()
    (reply,) = exchanged(client, served)
    assert isinstance(reply, f.CloseReply)
    assert client.state is ClientState.CLOSED and served.connection.state is ServerState.CLOSED

    client, served, _ = connected()
    served.connection.close(ResponseCode.INTERNAL_ERROR, "the server stops")
    assert list(exchanged(client, served)) == [f.Close(0x0F, "the server stops", correlation_id=1)]
    assert client.state is ClientState.CLOSED and served.connection.state is ServerState.CLOSED


def test_nothing_is_said_out_of_its_place() -> None:
    client = ClientConnection()
    with pytest.raises(LocalProtocolError, match="waiting for the server's properties"):
        client.request(f.Delete("s"))
    with pytest.raises(LocalProtocolError):
        client.send(f.Heartbeat())
    client, _, _ = connected()
    with pytest.raises(LocalProtocolError, match="request"):
        client.send(f.Delete("s"))


@pytest.mark.parametrize(
    "data",
    [
        encode(f.DeleteReply(correlation_id=99)),
        encode_confirms(0, np.array([1], np.uint64))[:-1] + b"",
        bytes.fromhex("0000000400630001"),
        (1 << 29).to_bytes(4, "big"),
        b"\0\0\0\0",
    ],
)
def test_a_server_that_says_what_it_may_not_ends_the_connection(data: bytes) -> None:
    client, _, _ = connected()
    if data[4:6] == b"\0\3":
        data = (len(data) - 4).to_bytes(4, "big") + data[4:]
    (violation,) = client.receive(data + encode(f.Heartbeat()))
    assert isinstance(violation, ProtocolViolation)
    assert client.state is ClientState.CLOSED and client.receive(encode(f.Heartbeat())) == []


def test_a_delivery_during_the_handshake_ends_the_connection() -> None:
    client = ClientConnection()
    (violation,) = client.receive(encode_confirms(0, np.array([1], np.uint64)))
    assert isinstance(violation, ProtocolViolation)


@given(st.lists(st.sampled_from(f.FROM_SERVER).flatmap(frames_of).map(encode) | st.binary(max_size=9), max_size=6))
def test_however_the_bytes_of_a_server_are_cut_the_events_are_the_same(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    results = []
    for step in (len(data) or 1, 1, 7):
        client, _, _ = connected()
        client.request(f.Delete("s"))
        events = [event for at in range(0, len(data), step) for event in client.receive(data[at : at + step])]
        shown = [
            ("violation", event.error.code) if isinstance(event, ProtocolViolation) else repr(event) for event in events
        ]
        results.append((shown, client.take_output(), client.state))
    assert results[0] == results[1] == results[2]
