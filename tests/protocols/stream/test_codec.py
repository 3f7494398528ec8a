"""Frames to bytes and back."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from headgate.errors import LocalProtocolError, RemoteProtocolError
from headgate.log.offsets import OffsetSpecification
from headgate.protocols.stream import frames as f
from headgate.protocols.stream.codec import decode_from_client, decode_from_server, encode
from headgate.protocols.stream.codes import ResponseCode
from stream_frames import frames_of, publish

VECTORS = [
    (f.Heartbeat(), "0017 0001"),
    (f.Tune(1048576, 60), "0014 0001 00100000 0000003c"),
    (f.Credit(3, 1), "0009 0001 03 0001"),
    (f.CreditReply(ResponseCode.SUBSCRIPTION_ID_UNKNOWN, 3), "8009 0001 0004 03"),
    (
        f.Subscribe(0, "s", OffsetSpecification.offset(5), 10, {"filter.0": "a"}, correlation_id=7),
        "0007 0001 00000007 00 0001 73 0004 0000000000000005 000a 00000001 0008 66696c7465722e30 0001 61",
    ),
    (
        f.MetadataReply(((0, "h", 5552),), (("s", 2, 0xFFFF, ()),), correlation_id=1),
        "800f 0001 00000001 00000001 0000 0001 68 000015b0 00000001 0001 73 0002 ffff 00000000",
    ),
]
PUBLISH_VECTORS = [
    ([(1, b"X", b"a")], "0002 0002 00 00000001 0000000000000001 0001 61 00000001 58"),
    ([(1, b"X", None)], "0002 0002 00 00000001 0000000000000001 ffff 00000001 58"),
]
"""stream_protocol.md section 9."""


def hexadecimal(frame: bytes) -> str:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4:].hex()


@pytest.mark.parametrize(("frame", "expected"), VECTORS)
def test_frames_of_the_specification_have_their_bytes(frame: f.Frame, expected: str) -> None:
    assert hexadecimal(encode(frame)) == expected.replace(" ", "")
    decode = decode_from_client if isinstance(frame, f.Subscribe | f.Credit) else decode_from_server
    assert decode(bytes.fromhex(expected)) == frame


@pytest.mark.parametrize(("entries", "expected"), PUBLISH_VECTORS)
def test_publish_frames_of_the_specification_have_their_bytes(
    entries: list[tuple[int, bytes, bytes | None]], expected: str
) -> None:
    assert hexadecimal(publish(entries)) == expected.replace(" ", "")


@examples(0.5)
@pytest.mark.parametrize("kind", f.FROM_CLIENT)
@given(data=st.data())
def test_what_a_client_says_is_read_as_it_was_written(kind: type[f.Frame], data: st.DataObject) -> None:
    frame = data.draw(frames_of(kind))
    assert decode_from_client(encode(frame)[4:]) == frame


@examples(0.5)
@pytest.mark.parametrize("kind", f.FROM_SERVER)
@given(data=st.data())
def test_what_a_server_says_is_read_as_it_was_written(kind: type[f.Frame], data: st.DataObject) -> None:
    frame = data.draw(frames_of(kind))
    assert decode_from_server(encode(frame)[4:]) == frame


@given(st.integers(0, 40), st.integers(0, 1), st.binary(max_size=60), st.sampled_from([1, 2, 0xFFFF]))
def test_any_body_is_read_or_refused(key: int, reply: int, body: bytes, version: int) -> None:
    frame = (key | reply << 15).to_bytes(2, "big") + version.to_bytes(2, "big") + body
    for decode in (decode_from_client, decode_from_server):
        with contextlib.suppress(RemoteProtocolError):
            assert isinstance(decode(frame), f.Frame)


@given(st.data())
def test_a_cut_frame_is_refused_or_misses_only_what_may_be_absent(data: st.DataObject) -> None:
    frame = data.draw(st.sampled_from(f.FROM_CLIENT).flatmap(frames_of))
    body = encode(frame)[4:]
    cut = data.draw(st.integers(0, len(body)))
    with contextlib.suppress(RemoteProtocolError):
        read = decode_from_client(body[:cut])
        assert type(read) is type(frame)
        assert encode(read)[4:].startswith(body[:cut])


def test_replies_that_say_no_have_no_fields_on_the_wire() -> None:
    refused = f.OpenReply({"advertised_host": "h"}, correlation_id=1, code=ResponseCode.VIRTUAL_HOST_ACCESS_FAILURE)
    assert hexadecimal(encode(refused)) == "8015000100000001000c"
    assert decode_from_server(encode(refused)[4:]) == f.OpenReply(correlation_id=1, code=12)
    nothing_stored = f.QueryOffsetReply(correlation_id=1, code=ResponseCode.NO_OFFSET)
    assert hexadecimal(encode(nothing_stored)) == "800b00010000000100130000000000000000"


def test_some_replies_have_their_fields_whatever_they_say_because_clients_read_them_first() -> None:
    for refused, expected in (
        (f.RouteReply(correlation_id=1, code=2), "80180001000000010002 00000000"),
        (f.PartitionsReply(correlation_id=1, code=2), "80190001000000010002 00000000"),
        (f.StreamStatsReply(correlation_id=1, code=2), "801c0001000000010002 00000000"),
        (f.ResolveOffsetSpecificationReply(correlation_id=1, code=2), "801f0001000000010002 0004 0000000000000000"),
    ):
        assert hexadecimal(encode(refused)) == expected.replace(" ", "")
        assert decode_from_server(bytes.fromhex(expected)) == refused
        assert decode_from_server(bytes.fromhex(expected.split()[0])) == refused


def test_a_publisher_without_a_name_has_an_empty_one_on_the_wire() -> None:
    frame = f.DeclarePublisher(1, None, "s", correlation_id=1)
    assert hexadecimal(encode(frame)) == "00010001000000010100000001" + b"s".hex()
    assert decode_from_client(bytes.fromhex("0001 0001 00000001 01 ffff 0001 73")) == frame


def test_properties_of_a_subscribe_may_be_absent_altogether() -> None:
    frame = f.Subscribe(1, "s", OffsetSpecification.first(), 10, {}, correlation_id=7)
    assert decode_from_client(encode(frame)[4:-4]) == frame


def test_bytes_behind_a_frame_are_refused_but_behind_the_answer_to_a_consumer_update_ignored() -> None:
    with pytest.raises(RemoteProtocolError, match="2 bytes behind the fields of Delete"):
        decode_from_client(encode(f.Delete("s", correlation_id=1))[4:] + b"\0\0")
    answer = f.ConsumerUpdateReply(OffsetSpecification.next(), correlation_id=5)
    assert decode_from_client(encode(answer)[4:] + bytes(8)) == answer


def test_offsets_beyond_all_streams_are_the_last_possible_one() -> None:
    body = bytes.fromhex("0007 0001 00000007 00 0001 73 0004 ffffffffffffffff 000a")
    frame = decode_from_client(body)
    assert isinstance(frame, f.Subscribe) and frame.offset == OffsetSpecification.offset(2**63 - 1)


def test_filter_values_that_are_no_text_survive() -> None:
    frame = f.Subscribe(
        0, "s", OffsetSpecification.first(), 1, {"filter.0": b"\xff\xc3".decode(errors="surrogateescape")}
    )
    read = decode_from_client(encode(frame)[4:])
    assert isinstance(read, f.Subscribe)
    assert read.properties["filter.0"].encode(errors="surrogateescape") == b"\xff\xc3"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "0 bytes"),
        ("0063 0001", "unknown frame: key 0x0063, version 1"),
        ("000e 0002 00000001 0001 73", "unknown frame: key 0x000e, version 2"),
        ("000e 0001 00000001 ffff", "a text is null"),
        ("000e 0001 00000001 fffe", "-2 bytes announced"),
        ("000e 0001 00000001 0001 ff", "not UTF-8"),
        ("000e 0001 00000001 0005 73", "5 bytes announced, 1 are left"),
        ("000f 0001 00000001 ffffffff 0001 73", "it ends inside a number"),
        ("0007 0001 00000007 00 0001 73 0009 000a", "offset specification of type 9"),
        ("0007 0001 00000007 00 0001 73 0000 000a", "offset specification of type 0"),
    ],
)
def test_what_is_wrong_in_a_frame_is_named(body: str, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason) as caught:
        decode_from_client(bytes.fromhex(body))
    assert caught.value.code == ResponseCode.UNKNOWN_FRAME


@pytest.mark.parametrize(
    "frame",
    [
        f.Credit(300, 1),
        f.Delete("x" * 40_000),
        f.Subscribe(0, "s", OffsetSpecification.parse("10m"), 1),
        f.Frame(),
    ],
)
def test_what_has_no_room_on_the_wire_is_our_own_error(frame: f.Frame) -> None:
    with pytest.raises(LocalProtocolError):
        encode(frame)
