"""One connection of gRPC, byte by byte: calls, windows, and what a peer may not do."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator

import hpack
import pytest

from headgate.protocols.grpc import (
    CallBegan,
    CallEnded,
    CallReadable,
    CallWritable,
    GrpcConnection,
    GrpcLimits,
    StatusCode,
    ViolationError,
    timeout_s,
)
from headgate.protocols.grpc import frames as f
from headgate.protocols.grpc.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    PREFACE,
    WINDOW_BYTES,
    ErrorCode,
    Frame,
    Setting,
)
from headgate.protocols.grpc.framing import prefixed

MOST_BYTES = 200_000


class Peer:
    """A client of one connection: its fields are written and read by hpack."""

    def __init__(self, calls: int = 3) -> None:
        self.connection = GrpcConnection(GrpcLimits(calls=calls, message_bytes=MOST_BYTES))
        self.encoder, self.decoder = hpack.Encoder(), hpack.Decoder()
        assert self.connection.receive(PREFACE + f.settings({})) == []
        assert [kind for kind, *_ in self.said()] == [Frame.SETTINGS, Frame.WINDOW_UPDATE, Frame.SETTINGS]

    def block(self, **more: str) -> bytes:
        fields = {":method": "POST", ":scheme": "http", ":path": "/s/M", "content-type": "application/grpc", **more}
        return bytes(self.encoder.encode([(name.replace("_", "-"), text) for name, text in fields.items()]))

    def begin(self, call: int, *, ends: bool = False, **more: str) -> None:
        frame = f.frame(Frame.HEADERS, END_HEADERS | (END_STREAM if ends else 0), call, self.block(**more))
        [began] = self.connection.receive(frame)
        assert isinstance(began, CallBegan) and (began.call, began.path) == (call, "/s/M")

    def data(self, call: int, data: bytes, *, ends: bool = False) -> list[object]:
        """Sends in frames as large as they may be."""
        pieces = [data[at : at + 16_384] for at in range(0, len(data), 16_384)] or [b""]
        events: list[object] = []
        for number, piece in enumerate(pieces, 1):
            flags = END_STREAM if ends and number == len(pieces) else 0
            events += self.connection.receive(f.frame(Frame.DATA, flags, call, piece))
        return events

    def said(self) -> list[tuple[int, int, int, bytes]]:
        """The frames of the server: type, flags, stream, content."""
        return list(_frames(b"".join(self.connection.take_output())))

    def ended(self, call: int) -> tuple[bytes, dict[str, str]]:
        """The messages of an answer, as they lie on the wire, and the fields that it ends with."""
        data, fields = b"", dict[str, str]()
        for kind, _flags, stream, content in self.said():
            if kind == Frame.HEADERS and stream == call:
                fields |= dict(self.decoder.decode(content))
            elif kind == Frame.DATA and stream == call:
                data += content
        return data, fields


def _frames(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    while data:
        size = int.from_bytes(data[:3], "big")
        yield data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + size]
        data = data[9 + size :]


@pytest.fixture
def peer() -> Peer:
    return Peer()


def test_a_call_with_one_message_and_its_answer(peer: Peer) -> None:
    connection = peer.connection
    peer.begin(1, x_id="me")
    assert connection.take_message(1) is None
    assert peer.data(1, prefixed(b"ask"), ends=True) == [CallReadable(1)]
    assert connection.take_message(1) == b"ask" and connection.has_said_all(1)
    connection.answer(1, b"told")
    data, fields = peer.ended(1)
    assert data == prefixed(b"told") and connection.calls == 0
    assert fields == {":status": "200", "content-type": "application/grpc", "grpc-status": "0"}


def test_bytes_come_as_they_like(peer: Peer) -> None:
    head = f.frame(Frame.HEADERS, 0, 1, peer.block()[:5])
    rest = f.frame(Frame.CONTINUATION, END_HEADERS, 1, Peer().block()[5:])
    padded = f.frame(Frame.DATA, 0x08 | END_STREAM, 1, b"\x03" + prefixed(b"ask") + bytes(3))
    events = [event for octet in head + rest + padded for event in peer.connection.receive(bytes((octet,)))]
    assert [type(event) for event in events] == [CallBegan]
    assert peer.connection.take_message(1) == b"ask"


def test_a_message_larger_than_the_windows(peer: Peer) -> None:
    connection, message = peer.connection, bytes(range(256)) * 700
    peer.begin(1)
    whole = prefixed(message)
    # What nobody wants yet is not let in.
    peer.data(1, whole[:WINDOW_BYTES])
    assert not peer.said()
    assert connection.take_message(1) is None
    [(kind, _, call, more)] = peer.said()
    assert (kind, call, struct.unpack(">I", more)[0]) == (Frame.WINDOW_UPDATE, 1, len(whole) - WINDOW_BYTES)
    assert peer.data(1, whole[WINDOW_BYTES:], ends=True) == [CallReadable(1)]
    assert connection.take_message(1) == message
    peer.said()
    # Its answer leaves as the client's windows let it.
    assert not connection.send(1, message)
    connection.finish(1)
    sent, _ = peer.ended(1)
    assert len(sent) == WINDOW_BYTES
    assert connection.receive(f.window_update(1, len(whole))) == []
    assert not peer.said()
    connection.receive(f.window_update(0, 10))
    assert len(peer.ended(1)[0]) == 10
    connection.receive(f.window_update(0, len(whole)))
    rest, fields = peer.ended(1)
    assert len(rest) == len(whole) - WINDOW_BYTES - 10 and fields["grpc-status"] == "0"


def test_a_changed_window_and_who_waits_for_it(peer: Peer) -> None:
    connection = peer.connection
    connection.receive(f.settings({Setting.INITIAL_WINDOW_SIZE: 10}))
    peer.begin(1, ends=True)
    assert not connection.send(1, b"x" * 15)
    assert connection.receive(f.settings({Setting.INITIAL_WINDOW_SIZE: 20})) == [CallWritable(1)]
    assert connection.send(1, b"") is False
    connection.cancel(1)
    assert peer.said()[-1][0] == Frame.RST_STREAM and connection.calls == 0


def test_a_message_that_is_too_large_ends_its_call_only(peer: Peer) -> None:
    connection = peer.connection
    for number, wanted_first in ((1, True), (3, False)):
        peer.begin(number)
        if wanted_first:
            assert connection.take_message(number) is None
        events = peer.data(number, b"\x00" + struct.pack(">I", MOST_BYTES + 1) + bytes(40_000))
        assert events == ([CallReadable(number)] if wanted_first else [])
        assert connection.take_message(number) is None and connection.has_said_all(number)
        assert peer.ended(number)[1]["grpc-status"] == str(int(StatusCode.RESOURCE_EXHAUSTED))
        # What is still on its way is no error.
        assert peer.data(number, bytes(20_000), ends=True) == []


@pytest.mark.parametrize(
    ("encoding", "data", "status"),
    [
        ("gzip", gzip.compress(b"ask", mtime=0), None),
        ("gzip", gzip.compress(bytes(MOST_BYTES + 1), mtime=0), StatusCode.RESOURCE_EXHAUSTED),
        ("gzip", b"no gzip", StatusCode.RESOURCE_EXHAUSTED),
        ("zstd", b"", StatusCode.UNIMPLEMENTED),
        ("identity", b"ask", StatusCode.UNIMPLEMENTED),
    ],
)
def test_compressed_messages(peer: Peer, encoding: str, data: bytes, status: StatusCode | None) -> None:
    peer.begin(1, grpc_encoding=encoding)
    peer.data(1, b"\x01" + prefixed(data)[1:], ends=True)
    assert peer.connection.take_message(1) == (b"ask" if status is None else None)
    if status is not None:
        assert peer.ended(1)[1]["grpc-status"] == str(int(status))


def test_more_calls_than_allowed_are_refused(peer: Peer) -> None:
    for number in (1, 3, 5):
        peer.begin(number)
    assert peer.connection.receive(f.frame(Frame.HEADERS, END_HEADERS, 7, peer.block())) == []
    assert peer.said() == [(Frame.RST_STREAM, 0, 7, struct.pack(">I", ErrorCode.REFUSED_STREAM))]
    assert peer.connection.receive(f.reset(3, ErrorCode.CANCEL)) == [CallEnded(3)]
    peer.begin(9)
    peer.connection.leave()
    assert peer.said() == [(Frame.GOAWAY, 0, 0, struct.pack(">II", 9, 0))]
    assert peer.connection.receive(f.reset(1, ErrorCode.CANCEL)) == [CallEnded(1)]
    peer.connection.receive(f.frame(Frame.HEADERS, END_HEADERS, 11, peer.block()))
    assert peer.said()[0][:3] == (Frame.RST_STREAM, 0, 11)


def test_what_is_wrong_with_one_call_ends_that_call(peer: Peer) -> None:
    connection = peer.connection
    for number, wrong in ((1, {":method": "GET"}), (3, {":path": "s"})):
        connection.receive(f.frame(Frame.HEADERS, END_HEADERS, number, peer.block(**wrong)))
        assert peer.said()[0][:3] == (Frame.RST_STREAM, 0, number)
    connection.receive(f.frame(Frame.HEADERS, END_HEADERS | END_STREAM, 5, peer.block(content_type="text/html")))
    assert peer.ended(5)[1][":status"] == "415"
    peer.begin(7)
    assert peer.data(7, bytes(WINDOW_BYTES + 1)) == [CallEnded(7)]
    peer.begin(9, ends=True)
    assert peer.data(9, b"x") == [CallEnded(9)]
    peer.begin(11)
    assert connection.receive(f.window_update(11, f.LARGEST_WINDOW)) == [CallEnded(11)]
    peer.begin(13)


@pytest.mark.parametrize(
    "wrong",
    [
        f.frame(Frame.DATA, 0, 1, b"x"),
        f.frame(Frame.DATA, 0, 0, b"x"),
        f.frame(Frame.HEADERS, END_HEADERS, 2, b""),
        f.frame(Frame.HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"),
        f.frame(Frame.HEADERS, 0x08, 1, b"\x09"),
        f.frame(Frame.HEADERS, 0x20, 1, b"\x09"),
        f.frame(Frame.HEADERS, 0, 1) + f.frame(Frame.PING, 0, 0, bytes(8)),
        f.frame(Frame.HEADERS, 0, 1) + f.frame(Frame.CONTINUATION, 0, 1, bytes(10_000)) * 4,
        f.frame(Frame.HEADERS, 0, 1) + f.frame(Frame.CONTINUATION, 0, 1) * 9,
        f.frame(Frame.CONTINUATION, END_HEADERS, 1),
        f.frame(Frame.SETTINGS, 0, 0, b"x"),
        f.frame(Frame.SETTINGS, ACK, 0, bytes(6)),
        f.frame(Frame.SETTINGS, 0, 1),
        f.settings({Setting.INITIAL_WINDOW_SIZE: 1 << 31}),
        f.settings({Setting.MAX_FRAME_SIZE: 5}),
        f.settings({Setting.ENABLE_PUSH: 5}),
        f.frame(Frame.PING, 0, 0, bytes(7)),
        f.frame(Frame.PING, 0, 1, bytes(8)),
        f.frame(Frame.PING, 0, 0, bytes(8)) * 20_000,
        f.frame(Frame.PRIORITY, 0, 0, bytes(5)),
        f.frame(Frame.PUSH_PROMISE, 0, 1),
        f.frame(Frame.GOAWAY, 0, 1),
        f.reset(1, ErrorCode.CANCEL),
        f.window_update(1, 1),
        f.window_update(0, 0),
        f.window_update(0, f.LARGEST_WINDOW),
        b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",
    ],
)
def test_what_is_no_http_2_ends_the_connection(peer: Peer, wrong: bytes) -> None:
    with pytest.raises(ViolationError):
        peer.connection.receive(wrong)
    assert peer.said()[-1][0] == Frame.GOAWAY


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\n", PREFACE + f.frame(Frame.PING, 0, 0, bytes(8))])
def test_a_connection_begins_with_preface_and_settings(start: bytes) -> None:
    with pytest.raises(ViolationError):
        GrpcConnection(GrpcLimits(calls=1, message_bytes=1)).receive(start)


def test_what_http_2_allows_beside_calls(peer: Peer) -> None:
    peer.connection.receive(f.frame(Frame.PING, 0, 0, b"12345678") + f.frame(Frame.PRIORITY, 0, 3, bytes(5)))
    peer.connection.receive(b"\x00\x00\x01\xfa\x00\x00\x00\x00\x05x")
    assert peer.said() == [(Frame.PING, ACK, 0, b"12345678")]
    assert not peer.connection.has_part
    peer.connection.receive(b"\x00\x00")
    assert peer.connection.has_part


def test_texts_of_statuses_are_shown_in_ascii(peer: Peer) -> None:
    peer.begin(1, ends=True)
    peer.connection.finish(1, StatusCode.INTERNAL, "50 % für\n" + "x" * 500)
    assert peer.ended(1)[1]["grpc-message"] == "50 %25 f%C3%BCr%0A" + "x" * 500


def test_the_time_of_a_call() -> None:
    given = {"2S": 2.0, "150m": 0.15, "1H": 3600.0, "7u": 7e-6, "": None, "-1S": None, "1": None, "123456789S": None}
    assert {text: timeout_s({"grpc-timeout": text}) for text in given} == pytest.approx(given)
