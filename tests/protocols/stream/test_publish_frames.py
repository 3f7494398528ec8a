"""Publish frames in bulk, by the kernel and in Python, and what answers them."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import LocalProtocolError, RemoteProtocolError
from headgate.log.chunk_builder import FilterValues
from headgate.protocols.stream import publish_frames
from headgate.protocols.stream.publish_frames import (
    decode_confirm,
    decode_publish_error,
    encode_confirms,
    encode_publish,
    encode_publish_errors,
    parse_publish_run,
)
from stream_frames import flat, publish, sub_batch

IDS = st.integers(0, 2**64 - 1)
BODIES = st.binary(max_size=20)
MESSAGES = st.tuples(IDS, BODIES)
VALUED = st.tuples(IDS, BODIES, st.none() | st.binary(max_size=9))
SUB_BATCHES = st.builds(
    lambda records, data, compression, expanded: sub_batch(records, data, compression=compression, expanded=expanded),
    st.integers(0, 3),
    st.binary(max_size=12),
    st.integers(0, 7),
    st.integers(0, 100),
)
ENTRIES_WITH_HEADS = st.tuples(
    IDS, st.one_of(SUB_BATCHES, BODIES.map(lambda body: len(body).to_bytes(4, "big") + body))
)
FRAMES = st.one_of(
    st.builds(
        lambda entries, number: publish(entries, publisher_id=number),
        st.one_of(st.lists(MESSAGES, min_size=1, max_size=5), st.lists(VALUED, min_size=1, max_size=5)),
        st.integers(0, 2),
    ),
    st.builds(
        lambda entries, number: publish(entries, publisher_id=number, has_heads=True),
        st.lists(ENTRIES_WITH_HEADS, min_size=1, max_size=4),
        st.integers(0, 2),
    ),
)


@pytest.fixture(params=["kernel", "python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything by the kernel, or everything in Python, whatever the size."""
    monkeypatch.setattr(publish_frames, "_KERNEL_FROM_BYTES", 0 if request.param == "kernel" else 2**40)
    return str(request.param)


def parsed(data: bytes, *, position: int = 0, frame_max: int = 1 << 20, limit: int = 64) -> tuple[list[object], int]:
    events, end = parse_publish_run(memoryview(data), position, frame_max=frame_max, expansion_limit_bytes=limit)
    return flat(events), end


@given(st.lists(FRAMES, max_size=5), st.binary(max_size=40), st.integers(0, 3), st.integers(0, 2**16), st.data())
def test_the_kernel_reads_what_python_reads(
    frames: list[bytes], behind: bytes, before: int, damage: int, data: st.DataObject
) -> None:
    whole = bytearray(bytes(before) + b"".join(frames) + behind)
    if frames and data.draw(st.booleans(), label="damaged"):
        whole[before + damage % (len(whole) - before)] ^= data.draw(st.integers(1, 255))
    results = []
    for threshold in (0, 2**40):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(publish_frames, "_KERNEL_FROM_BYTES", threshold)
            results.append(parsed(bytes(whole), position=before, frame_max=200))
    assert results[0] == results[1]


@given(st.lists(VALUED, max_size=20), st.integers(1, 5), st.booleans(), st.integers(60, 200))
def test_what_is_written_by_either_way_is_the_same_and_is_read_as_it_was(
    entries: list[tuple[int, bytes, bytes | None]], frame_entries: int, valued: bool, limit: int
) -> None:
    rows = entries if valued else [row[:2] for row in entries]
    written = []
    for threshold in (0, 2**40):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(publish_frames, "_KERNEL_FROM_BYTES", threshold)
            written.append(publish(rows, publisher_id=3, frame_entries=frame_entries))
    assert written[0] == written[1]
    events, end = parsed(written[0])
    assert end == len(written[0])
    expected = [("entry", 3, number, body, (value if valued else None) or None, 0) for number, body, value in entries]
    assert [(*event[:4], event[4] or None, event[5]) for event in events] == expected  # type: ignore[index]


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=20), st.integers(81, 200))
def test_no_frame_is_larger_than_the_limit(bodies: list[bytes], limit: int) -> None:
    lengths = np.array([len(body) for body in bodies], dtype=np.int64)
    for threshold in (0, 2**40):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(publish_frames, "_KERNEL_FROM_BYTES", threshold)
            data = encode_publish(
                0,
                np.arange(len(bodies), dtype=np.uint64),
                np.frombuffer(b"".join(bodies), dtype=np.uint8),
                np.cumsum(lengths) - lengths,
                lengths,
                frame_bytes=limit,
            )
        events, end = parsed(data, frame_max=limit)
        assert end == len(data)
        assert [event[3] for event in events] == bodies  # type: ignore[index]


@pytest.mark.usefixtures("way")
def test_a_run_ends_before_another_frame_and_before_one_that_is_incomplete() -> None:
    first, second = publish([(1, b"a")]), publish([(2, b"b"), (3, b"c")])
    heartbeat = bytes.fromhex("0000000400170001")
    events, end = parsed(first + second + heartbeat + first)
    assert [event[2] for event in events] == [1, 2, 3]  # type: ignore[index]
    assert end == len(first + second)
    assert parsed(first + second[:-1]) == (parsed(first)[0], len(first))
    assert parsed(heartbeat) == ([], 0)


@pytest.mark.usefixtures("way")
def test_entries_of_several_publishers_are_grouped_and_keep_their_order() -> None:
    data = b"".join(publish([(n, b"x" * n)], publisher_id=n % 3) for n in range(12))
    events, _ = parse_publish_run(memoryview(data), 0, frame_max=1000)
    assert [(event.publisher_id, event.publishing_ids.tolist()) for event in events] == [
        (number, list(range(number, 12, 3))) for number in range(3)
    ]
    assert all(event.entries.lengths.tolist() == event.publishing_ids.tolist() for event in events)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    "wrong",
    [
        sub_batch(0, b"abcd"),
        sub_batch(2, b"abcd"),
        sub_batch(1, b"abcd", compression=5),
        sub_batch(1, b"", compression=1, expanded=4),
        sub_batch(1, b"abcd", expanded=65),
    ],
)
def test_a_wrong_sub_batch_refuses_itself_and_what_follows_it_in_its_frame(wrong: bytes) -> None:
    good = sub_batch(1, b"\0\0\0\0")
    frames = publish([(1, good), (2, wrong), (3, good)], has_heads=True) + publish([(4, good)], has_heads=True)
    events, end = parsed(frames)
    assert end == len(frames)
    assert events == [
        ("entry", 0, 1, good, None, 1),
        ("entry", 0, 4, good, None, 1),
        ("refused", 0, 2),
        ("refused", 0, 3),
    ]


def entry(
    number: int, body: bytes, *, version: int = 1, value: bytes = b"", publisher: int = 0, count: int = 1
) -> bytes:
    rows = struct.pack(">Q", number) + value + struct.pack(">I", len(body)) + body
    return struct.pack(">IHHBI", 9 + len(rows), 2, version, 0, count) + rows


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    "frame",
    [
        entry(1, b"body", count=2),
        entry(1, b"body" * 5, count=2),
        entry(1, b"body", count=0),
        entry(1, b"body", version=3),
        entry(1, b"body", version=2, value=b"\xff\xfe"),
        entry(1, b"body", version=2, value=b"\x00\x09a"),
        struct.pack(">IHHBIQI", 21, 2, 1, 0, 1, 1, 5),
        struct.pack(">IHHBIQI", 21, 2, 1, 0, 1, 1, 0x80000000),
        struct.pack(">IHHBIQhI", 23, 2, 2, 0, 1, 1, -1, 0x80000000),
        struct.pack(">IHHBIQ", 17, 2, 1, 0, 1, 1) + sub_batch(1, b"abcd")[:-1],
    ],
)
def test_a_malformed_frame_ends_the_run_before_it(frame: bytes) -> None:
    frame = (len(frame) - 4).to_bytes(4, "big") + frame[4:]
    good = publish([(7, b"good")])
    assert parsed(good + frame + good) == ([("entry", 0, 7, b"good", None, 0)], len(good))
    assert parsed(frame) == ([], 0)


@pytest.mark.usefixtures("way")
def test_a_frame_above_the_limit_is_not_taken() -> None:
    frame = publish([(1, b"x" * 100)])
    assert parsed(frame, frame_max=len(frame) - 4)[1] == len(frame)
    assert parsed(frame, frame_max=len(frame) - 5)[1] == 0


def test_what_is_published_does_not_share_the_buffer_that_was_read() -> None:
    buffer = bytearray(publish([(n, b"a" * 50) for n in range(200)]))
    (event,), _ = parse_publish_run(memoryview(buffer), 0, frame_max=1 << 20)
    before = flat([event])
    buffer[:] = bytes(len(buffer))
    assert flat([event]) == before


def test_columns_that_nobody_needs_are_absent() -> None:
    (plain,), _ = parse_publish_run(memoryview(publish([(1, b"a")])), 0, frame_max=100)
    assert plain.entries.filter_values is None and plain.entries.records is None
    (empty,), _ = parse_publish_run(memoryview(publish([(1, b"a", b""), (2, b"b", None)])), 0, frame_max=100)
    assert empty.entries.filter_values is None


def test_sub_batches_have_no_filter_values_and_entries_must_fit_a_frame() -> None:
    columns = (
        np.array([1], np.uint64), np.zeros(100, np.uint8), np.array([0], np.int64), np.array([100], np.int64)
    )  # fmt: skip
    with pytest.raises(LocalProtocolError, match="no filter value"):
        encode_publish(0, *columns, filter_values=FilterValues.of([b"a"]), entries_have_heads=True)
    with pytest.raises(LocalProtocolError, match="an entry needs a frame of 121 bytes; the server takes 120"):
        encode_publish(0, *columns, frame_bytes=120)
    assert len(encode_publish(0, *columns, frame_bytes=121)) == 125
    with pytest.raises(LocalProtocolError, match="32767"):
        encode_publish(0, *columns, filter_values=FilterValues.of([b"a" * 32768]))
    assert encode_publish(0, *(column[:0] for column in columns)) == b""


@given(st.integers(0, 255), st.lists(IDS, min_size=1, max_size=9), st.sampled_from([0, 1, 17, 30, 1000]))
def test_answers_are_read_as_they_were_written_in_frames_within_the_limit(
    number: int, ids: list[int], limit: int
) -> None:
    column = np.array(ids, dtype=np.uint64)
    confirms, errors = [], []
    for body in cut(encode_confirms(number, column, frame_max=limit)):
        assert len(body) <= max(17, limit or 10**6)
        confirms += decode_confirm(body).publishing_ids.tolist()
    for body in cut(encode_publish_errors(number, column, 0x12, frame_max=limit)):
        assert len(body) <= max(19, limit or 10**6)
        assert decode_publish_error(body).publisher_id == number
        errors += decode_publish_error(body).errors
    assert confirms == ids
    assert errors == [(publishing_id, 0x12) for publishing_id in ids]


def cut(data: bytes) -> Iterator[bytes]:
    while data:
        size = int.from_bytes(data[:4], "big")
        yield data[4 : 4 + size]
        data = data[4 + size :]


@pytest.mark.parametrize("body", ["00030001", "0003000100", "000300010000000002", "00030001000000000100"])
def test_a_malformed_answer_is_refused(body: str) -> None:
    for decode in (decode_confirm, decode_publish_error):
        with pytest.raises(RemoteProtocolError):
            decode(bytes.fromhex(body))
