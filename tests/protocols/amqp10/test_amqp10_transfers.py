"""Runs of transfers: what a kernel frames or parses equals what the records give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_strategies import amqp_messages
from headgate import kernels
from headgate.message import EncodedMessages, Message
from headgate.protocols.amqp10.composites import decode_composite
from headgate.protocols.amqp10.frames import encode_frame, read_frame
from headgate.protocols.amqp10.messages import delivered_message
from headgate.protocols.amqp10.performatives import RECEIVER, SENDER, Disposition, Transfer
from headgate.protocols.amqp10.terminus import Accepted
from headgate.protocols.amqp10.transfers import (
    TAG,
    TransferRoom,
    encode_accepted,
    frame_messages,
    frame_tagged,
    parse_run,
    skip_frames,
    split_message,
)


def _room(**changes: object) -> TransferRoom:
    fields = {"channel": 3, "handle": 5, "delivery_id": 7, "tag": 9, "settled": True, "max_frame_size": 4096}
    return TransferRoom(**{**fields, **changes})


def _read(data: bytes | memoryview) -> list[tuple[Transfer, bytes]]:
    view = memoryview(bytes(data))
    found = []
    position = 0
    while position < len(view):
        frame = read_frame(view, position, 1 << 20)
        assert frame is not None and frame.channel == 3
        body = bytes(view[frame.body : frame.stop])
        transfer, behind = decode_composite(body, 0, len(body))
        found.append((transfer, body[behind:]))
        position = frame.stop
    return found


@given(
    st.lists(st.one_of(amqp_messages(), st.binary(max_size=40)), max_size=6),
    st.sampled_from((512, 600, 65_536)),
    st.integers(0, 2**32 - 1),
)
def test_framed_messages_are_the_delivered_ones_in_order(messages: list[bytes], max_frame: int, first: int) -> None:
    offsets = np.arange(len(messages)) + 100
    room = _room(max_frame_size=max_frame, delivery_id=first, tag=first)
    data, frames = frame_messages(EncodedMessages.of(messages), offsets, room)
    transfers = _read(data)
    assert len(transfers) == frames
    joined: dict[int, bytes] = {}
    for transfer, payload in transfers:
        joined[transfer.delivery_id] = joined.get(transfer.delivery_id, b"") + payload
        assert transfer.handle == 5 and transfer.settled is True
        assert transfer.delivery_tag == TAG.pack(transfer.delivery_id)
    ids = [(first + row) % 2**32 for row in range(len(messages))]
    expected = [delivered_message(message, 100 + row) for row, message in enumerate(messages)]
    assert joined == dict(zip(ids, expected, strict=True))
    position = 0
    for transfer, payload in transfers:
        size = skip_frames(bytes(data)[position:], 1)
        assert size <= max_frame
        position += size
        is_last = joined[transfer.delivery_id].endswith(payload) and not transfer.more
        assert is_last or transfer.more


def test_without_kernels_framing_gives_the_same_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = EncodedMessages.of(
        [Message(b"a", header={"priority": 3}).encode(), b"bad", Message(b"b" * 900).encode()]
    )
    fast = _read(frame_messages(messages, np.arange(3), _room(max_frame_size=512))[0])
    monkeypatch.setattr(kernels, "load", lambda module: None)
    assert _read(frame_messages(messages, np.arange(3), _room(max_frame_size=512))[0]) == fast


@given(st.lists(st.binary(max_size=900), max_size=6), st.sampled_from((512, 65_536)), st.sampled_from((5, 300)))
def test_messages_with_tags_are_framed_as_they_are(messages: list[bytes], max_frame: int, handle: int) -> None:
    tags = np.arange(16 * len(messages), dtype=np.uint8).reshape(-1, 16)
    room = _room(max_frame_size=max_frame, handle=handle, delivery_id=2**32 - 2)
    data, frames = frame_tagged(EncodedMessages.of(messages), tags, room)
    expected = [
        frame
        for row, message in enumerate(messages)
        for frame in split_message(
            3,
            Transfer(handle, (2**32 - 2 + row) % 2**32, tags[row].tobytes(), 0, True),
            message,
            max_frame,
        )
    ]
    assert _read(data) == _read(b"".join(expected)) and frames == len(expected)


_transfers = st.builds(
    Transfer,
    st.integers(0, 300),
    st.none() | st.integers(0, 2**32 - 1),
    st.none() | st.binary(max_size=40),
    st.none() | st.sampled_from((0, 1)),
    st.none() | st.booleans(),
    st.booleans(),
    st.none() | st.sampled_from((0, 1)),
    st.none() | st.builds(Accepted),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


def _is_plain(transfer: Transfer) -> bool:
    return not (
        transfer.delivery_id is None
        or transfer.delivery_tag is None
        or len(transfer.delivery_tag) > 32
        or transfer.message_format
        or transfer.more
        or transfer.rcv_settle_mode
        or transfer.state
        or transfer.resume
        or transfer.aborted
    )


@given(st.lists(st.tuples(_transfers, st.binary(max_size=30)), max_size=5), st.integers(0, 20))
def test_a_run_is_what_the_frames_say_up_to_the_first_that_is_not_plain(
    transfers: list[tuple[Transfer, bytes]], cut: int
) -> None:
    data = b"".join(encode_frame(3, transfer.encode() + payload) for transfer, payload in transfers)
    data = data[: max(0, len(data) - cut)]
    run, position = parse_run(np.frombuffer(data, dtype=np.uint8), 0, 4096, 3, skip_settled=False)
    found = 0 if run is None else len(run.starts)
    assert position == skip_frames(data, found)
    for row in range(found):
        transfer, payload = transfers[row]
        assert _is_plain(transfer)
        start = int(run.starts[row])
        assert data[start : start + int(run.lengths[row])] == payload
        assert (run.handle, int(run.ids[row])) == (transfer.handle, transfer.delivery_id)
        assert bool(run.settled[row]) is bool(transfer.settled)
    whole = (
        position < len(data) and len(data) - position >= 4 and skip_frames(data[position:], 1) <= len(data) - position
    )
    if whole and run is not None:
        following = transfers[found][0]
        assert not _is_plain(following) or following.handle != run.handle
    elif whole:
        assert not _is_plain(transfers[found][0])


_plain_transfers = st.builds(
    Transfer,
    st.integers(0, 255),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=32),
    st.sampled_from((None, 0)),
    st.none() | st.booleans(),
    batchable=st.booleans(),
)


@given(_plain_transfers, st.binary(min_size=8, max_size=30), st.data())
def test_a_changed_byte_makes_no_other_transfer_of_a_plain_one(
    transfer: Transfer, payload: bytes, data: st.DataObject
) -> None:
    octets = bytearray(encode_frame(3, transfer.encode() + payload))
    octets[data.draw(st.integers(0, len(octets) - 1 - len(payload)))] = data.draw(st.integers(0, 255))
    run, behind = parse_run(np.frombuffer(octets, dtype=np.uint8), 0, 4096, 3, skip_settled=False)
    if run is not None:
        frame = read_frame(memoryview(octets), 0, 4096)
        assert frame is not None and frame.stop == behind and frame.channel == 3
        body = bytes(octets[frame.body : frame.stop])
        said, start = decode_composite(body, 0, len(body))
        assert isinstance(said, Transfer) and _is_plain(said)
        assert (run.handle, run.ids.tolist(), run.settled.tolist()) == (
            said.handle,
            [said.delivery_id],
            [bool(said.settled)],
        )
        assert octets[int(run.starts[0]) : behind] == body[start:]


@given(st.integers(0, 0xFFFF), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_accepting_is_said_as_a_disposition(channel: int, first: int, last: int) -> None:
    data = encode_accepted(channel, first, last)
    frame = read_frame(memoryview(data), 0, 512)
    assert frame is not None and (frame.channel, frame.stop) == (channel, len(data))
    said = decode_composite(data, frame.body, frame.stop)
    assert said == (Disposition(RECEIVER, first, last, True, Accepted()), frame.stop)


def test_settled_dispositions_of_a_receiver_are_passed_over_only_when_asked() -> None:
    settled = encode_frame(3, Disposition(RECEIVER, 1, 9, True, Accepted()).encode())
    data = np.frombuffer(settled * 3, dtype=np.uint8)
    assert parse_run(data, 0, 4096, 3, skip_settled=True) == (None, 3 * len(settled))
    assert parse_run(data, 0, 4096, 3, skip_settled=False) == (None, 0)
    assert parse_run(data, 0, 4096, 4, skip_settled=True) == (None, 0)


@pytest.mark.parametrize(
    "disposition",
    [
        Disposition(SENDER, 1, 9, True),
        Disposition(RECEIVER, 1, 9, False, Accepted()),
        Disposition(RECEIVER, 9, 1, True),
    ],
    ids=["of a sender", "unsettled", "backwards"],
)
def test_other_dispositions_are_looked_at(disposition: Disposition) -> None:
    data = np.frombuffer(encode_frame(3, disposition.encode()), dtype=np.uint8)
    assert parse_run(data, 0, 4096, 3, skip_settled=True) == (None, 0)


def test_frames_above_the_limit_end_a_run() -> None:
    data = np.frombuffer(encode_frame(3, Transfer(1, 2, b"t", 0, True).encode() + bytes(600)), dtype=np.uint8)
    assert parse_run(data, 0, 512, 3, skip_settled=True) == (None, 0)


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_without_reading_beyond_them(data: bytes) -> None:
    run, position = parse_run(np.frombuffer(data + b"\0", dtype=np.uint8)[:-1], 0, 4096, 0, skip_settled=True)
    assert 0 <= position <= len(data) and (run is None or len(run.starts) > 0)


def test_a_message_is_split_into_as_few_frames_as_the_limit_allows() -> None:
    transfer = Transfer(1, 2, b"tag", 0, False)
    frames = split_message(0, transfer, bytes(5000), 1024)
    assert [len(frame) for frame in frames[:-1]] == [1024] * (len(frames) - 1)
    assert len(frames) == 6 and len(frames[-1]) < 100
    assert len(split_message(0, transfer, b"short", 1024)) == 1
