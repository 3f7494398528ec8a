"""Cursors and planned reads over streams as writers and damage leave them."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from chunks import append_chunk
from headgate.errors import (
    ConfigError,
    CorruptChunkError,
    CorruptSidecarError,
    OffsetOutOfRangeError,
    StreamNotFoundError,
    StreamReplacedError,
)
from headgate.evaluate.body.sample import MOST_SAMPLED_BYTES
from headgate.evaluate.filter import Filter
from headgate.log import OffsetSpecification, Stream, StreamArguments
from headgate.log.entries import SubBatch
from headgate.log.format import CHUNK_HEADER_BYTES, Compression
from headgate.log.writer import Writer
from headgate.message import Message
from headgate.scan import Cursor, OnCorrupt, ScanCounters, ScanRequest, plan, read_range, resolve_range
from log_streams import PART, abandon, write_with_a_pair_given_up
from remote_streams import move, new_stream

FIRST = OffsetSpecification.first()


def _body(number: int) -> bytes:
    return Message(application_properties={"n": number}, body=b"x" * 50).encode()


def _stream(folder: Path, *, segment_bytes: int = 500_000) -> Stream:
    arguments = StreamArguments(max_segment_size_bytes=segment_bytes)
    return Stream.create(folder / "s", name="s", now_ms=0, arguments=arguments)


def _append(writer: Writer, numbers: range, *, now_ms: int, per_chunk: int = 10) -> None:
    for start in range(numbers.start, numbers.stop, per_chunk):
        part = range(start, min(start + per_chunk, numbers.stop))
        writer.append([(_body(number), None) for number in part], now_ms=now_ms)


def _drain(cursor: Cursor) -> list[int]:
    offsets: list[int] = []
    while (batch := cursor.read(0)) is not None:
        offsets.extend(batch.offsets.tolist())
    return offsets


def _read(
    stream: Stream, request: ScanRequest, start: OffsetSpecification, end: OffsetSpecification | None
) -> list[int]:
    within = resolve_range(stream, start=start, end=end, now_ms=0)
    counters = ScanCounters()
    return [
        offset
        for chunks in plan(stream, request, within, range_bytes=1000).ranges
        for batch in read_range(chunks, request, counters)
        for offset in batch.offsets.tolist()
    ]


def test_a_cursor_follows_a_writer_across_segments(tmp_path: Path) -> None:
    stream = _stream(tmp_path, segment_bytes=2000)
    with Writer.open(stream, now_ms=0) as writer, Cursor(stream, ScanRequest(), start=FIRST, now_ms=0) as cursor:
        seen: list[int] = []
        for number in range(0, 200, 7):
            _append(writer, range(number, min(number + 7, 200)), now_ms=number)
            seen += _drain(cursor)
        assert seen == list(range(200))
        assert cursor.next_offset == 200
        assert len(stream.segments()) > 5
        assert cursor.read(0) is None


def test_a_cursor_with_an_end_stops_inside_a_chunk_and_says_so(tmp_path: Path) -> None:
    stream = _stream(tmp_path)
    with Writer.open(stream, now_ms=0) as writer:
        _append(writer, range(100), now_ms=1)
    start = OffsetSpecification.offset(13)
    with Cursor(stream, ScanRequest(), start=start, now_ms=0, stop_offset=47) as cursor:
        assert not cursor.is_finished
        assert _drain(cursor) == list(range(13, 47))
        assert cursor.is_finished


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("first", None, range(100)),
        ("13", "47", range(13, 47)),
        ("47", "13", range(0)),
        ("last", None, range(90, 100)),
        ("next", None, range(0)),
        ("first", "last", range(90)),
        ("1970-01-01T00:00:00.003Z", "1970-01-01T00:00:00.005Z", range(30, 50)),
        ("1000", None, range(0)),
    ],
)
def test_a_planned_read_covers_the_offsets_between_two_specifications(
    tmp_path: Path, start: str, end: str | None, expected: range
) -> None:
    stream = _stream(tmp_path, segment_bytes=3000)
    with Writer.open(stream, now_ms=0) as writer:
        for time_ms in range(10):
            _append(writer, range(time_ms * 10, time_ms * 10 + 10), now_ms=time_ms)
    stop = None if end is None else OffsetSpecification.parse(end)
    assert _read(stream, ScanRequest(), OffsetSpecification.parse(start), stop) == list(expected)


def test_every_message_carries_the_time_of_its_chunk(tmp_path: Path) -> None:
    stream = _stream(tmp_path)
    with Writer.open(stream, now_ms=0) as writer:
        _append(writer, range(3), now_ms=7)
        _append(writer, range(3, 5), now_ms=9)
    with Cursor(stream, ScanRequest(), start=FIRST, now_ms=0) as cursor:
        batch = cursor.read(0)
    assert batch is not None
    assert batch.timestamps_ms.tolist() == [7, 7, 7, 9, 9]
    assert [batch.messages.message(row) for row in range(5)] == [_body(number) for number in range(5)]


def test_retention_that_overtakes_a_cursor_is_an_error_that_names_the_offsets(tmp_path: Path) -> None:
    stream = _stream(tmp_path, segment_bytes=2000)
    with Writer.open(stream, now_ms=0) as writer, Cursor(stream, ScanRequest(), start=FIRST, now_ms=0) as cursor:
        _append(writer, range(200), now_ms=1)
        writer.change(now_ms=2, arguments=StreamArguments(max_segment_size_bytes=2000, max_length_bytes=4000))
        with pytest.raises(OffsetOutOfRangeError, match=r"offsets \d+ to \d+ were deleted"):
            _drain(cursor)


@pytest.mark.parametrize("looks", list(itertools.product([False, True], repeat=5)))
def test_a_cursor_that_waits_in_a_pair_that_is_given_up_reads_on(tmp_path: Path, looks: tuple[bool, ...]) -> None:
    stream = _stream(tmp_path)
    steps = write_with_a_pair_given_up(stream, [_body(number) for number in range(5 * PART)])
    next(steps)
    with Cursor(stream, ScanRequest(), start=FIRST, now_ms=0) as cursor:
        found = _drain(cursor)
        for count, is_looked_at in zip(steps, [*looks, True], strict=True):
            if is_looked_at:
                found += _drain(cursor)
                assert found == list(range(count))


@pytest.mark.parametrize("looks_between", [False, True])
def test_a_cursor_that_waits_in_a_pair_that_is_made_again_reads_on(tmp_path: Path, looks_between: bool) -> None:
    stream = _stream(tmp_path, segment_bytes=1)
    first = Writer.open(stream, now_ms=0)
    _append(first, range(10), now_ms=0)
    first._pair.begin(first.next_offset)
    with Cursor(stream, ScanRequest(), start=FIRST, now_ms=0) as cursor:
        assert _drain(cursor) == list(range(10))
        abandon(first)
        with Writer.open(stream, now_ms=0) as writer:
            if looks_between:
                assert _drain(cursor) == []
            _append(writer, range(10, 20), now_ms=0)
        assert _drain(cursor) == list(range(10, 20))


def _deleted(stream: Stream, *, again: bool) -> str:
    shutil.rmtree(stream.path)
    if not again:
        return f"stream 's' with the identity {stream.identity} was deleted$"
    made = _stream(stream.path.parent)
    with Writer.open(made, now_ms=0) as writer:
        _append(writer, range(500), now_ms=0)
    return f"{stream.identity} was deleted, and created again with the identity {made.identity}$"


@pytest.mark.parametrize("again", [False, True])
def test_a_deleted_stream_is_an_error_of_its_readers_that_names_its_identity(tmp_path: Path, again: bool) -> None:
    stream = _stream(tmp_path / "s")
    with Writer.open(stream, now_ms=0) as writer:
        _append(writer, range(30), now_ms=0)
    (planned,) = plan(stream, ScanRequest(), resolve_range(stream, start=FIRST, end=None, now_ms=0)).ranges
    kind = StreamReplacedError if again else StreamNotFoundError
    with Cursor(stream, ScanRequest(), start=FIRST, now_ms=0) as cursor:
        assert _drain(cursor) == list(range(30))
        expected = _deleted(stream, again=again)
        with pytest.raises(kind, match=expected):
            cursor.read(0)
    with pytest.raises(kind, match=stream.identity):
        list(read_range(planned, ScanRequest(), ScanCounters()))
    with pytest.raises(StreamNotFoundError):
        Cursor(stream, ScanRequest(), start=FIRST, now_ms=0)


def test_no_segment_of_a_stream_that_was_made_again_follows_one_of_the_old(tmp_path: Path) -> None:
    """The new stream begins a segment where the old one ends: nothing but the identity tells them apart."""
    stream = _stream(tmp_path / "s", segment_bytes=200)
    with Writer.open(stream, now_ms=0) as writer:
        _append(writer, range(10), now_ms=0)
    with Cursor(stream, ScanRequest(), start=FIRST, now_ms=0) as cursor:
        assert _drain(cursor) == list(range(10))
        shutil.rmtree(stream.path)
        again = _stream(stream.path.parent, segment_bytes=200)
        with Writer.open(again, now_ms=0) as writer:
            _append(writer, range(30), now_ms=0)
        assert again.segments()[1].first_chunk_id == 10
        with pytest.raises(StreamReplacedError):
            cursor.read(0)


def _damaged(tmp_path: Path) -> tuple[Stream, int]:
    """Ten chunks of ten messages; a data bit of the fifth is flipped. Gives the stream and that chunk's position."""
    stream = _stream(tmp_path)
    with Writer.open(stream, now_ms=0) as writer:
        _append(writer, range(100), now_ms=1)
    [segment] = stream.segments()
    with segment.open() as reader:
        position = int(reader.chunks().position[4])
    content = bytearray(segment.segment_path.read_bytes())
    content[position + CHUNK_HEADER_BYTES + 200] ^= 1
    segment.segment_path.write_bytes(content)
    return stream, position


def test_a_corrupt_chunk_is_an_error_with_file_and_position(tmp_path: Path) -> None:
    stream, position = _damaged(tmp_path)
    with pytest.raises(CorruptChunkError, match="checksum of chunk 40") as caught:
        _read(stream, ScanRequest(), FIRST, None)
    assert caught.value.path == stream.segments()[0].segment_path
    assert caught.value.position == position


def test_skipping_corrupt_chunks_loses_only_those_and_counts_them(tmp_path: Path) -> None:
    stream, _ = _damaged(tmp_path)
    request = ScanRequest(on_corrupt=OnCorrupt.SKIP)
    expected = [*range(40), *range(50, 100)]
    assert _read(stream, request, FIRST, None) == expected
    with Cursor(stream, request, start=FIRST, now_ms=0) as cursor:
        assert _drain(cursor) == expected
        assert cursor.counters.chunks_corrupt == 1
        assert cursor.counters.messages_evaluated == 90


def test_a_broken_header_is_skipped_too_when_stage_one_looks_at_headers(tmp_path: Path) -> None:
    stream = _stream(tmp_path)
    with Writer.open(stream, now_ms=0) as writer:
        for number in range(10):
            writer.append([(_body(number), b"even" if number % 2 == 0 else b"odd")], now_ms=1)
    [segment] = stream.segments()
    with segment.open() as reader:
        position = int(reader.chunks().position[4])
    content = bytearray(segment.segment_path.read_bytes())
    content[position] ^= 0xFF
    segment.segment_path.write_bytes(content)
    with pytest.raises(CorruptChunkError, match="no chunk here"):
        _read(stream, ScanRequest(filter_values=(b"even",)), FIRST, None)
    request = ScanRequest(filter_values=(b"even",), on_corrupt=OnCorrupt.SKIP)
    found = _read(stream, request, FIRST, None)
    assert {0, 2, 6, 8} <= set(found)
    assert 4 not in found


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize("damage", [_cut, Path.unlink])
@pytest.mark.parametrize("part", ["segment", "summary"])
@pytest.mark.parametrize("number", [0, 3])
def test_a_segment_in_object_storage_that_cannot_be_read_is_an_error_or_passed_over(
    tmp_path: Path,
    remote_cache: Path,
    caplog: pytest.LogCaptureFixture,
    number: int,
    part: str,
    damage: Callable[[Path], None],
) -> None:
    with new_stream(tmp_path / "s", f"file://{tmp_path}/remote") as writer:
        move(writer)
    before = _read(writer.stream, ScanRequest(), FIRST, None)
    lost = writer.stream.segments()[number]
    assert lost.remote is not None and lost.stop_offset is not None
    path = tmp_path / "remote" / "orders" / f"{lost.first_chunk_id:020d}.{part}"
    lost.remote.forget()
    damage(path)
    unreadable = (CorruptChunkError, CorruptSidecarError, OffsetOutOfRangeError)
    with pytest.raises(unreadable, match=f"file://{path}"):
        _read(writer.stream, ScanRequest(), FIRST, None)
    with (
        pytest.raises(unreadable, match=f"file://{path}"),
        Cursor(writer.stream, ScanRequest(), start=FIRST, now_ms=0) as cursor,
    ):
        _drain(cursor)
    request = ScanRequest(on_corrupt=OnCorrupt.SKIP)
    expected = [offset for offset in before if not lost.first_chunk_id <= offset < lost.stop_offset]
    with Cursor(writer.stream, request, start=FIRST, now_ms=0) as cursor:
        assert _drain(cursor) == expected
        assert cursor.counters.chunks_corrupt == (2 if part == "segment" else 1)
    assert _read(writer.stream, request, FIRST, None) == expected
    inside = OffsetSpecification.offset(lost.first_chunk_id + 2)
    assert _read(writer.stream, request, inside, None) == [each for each in expected if each > lost.first_chunk_id]
    [warned] = [record.getMessage() for record in caplog.records if record.name == "headgate.scan"]
    offsets = f"offsets {lost.first_chunk_id} to {lost.stop_offset - 1} is passed over"
    assert warned.startswith(f"file://{path}") and warned.endswith(offsets)


@pytest.mark.parametrize("name", ["index_path", "segment_path"])
def test_a_sealed_segment_that_is_damaged_as_a_whole_is_an_error_or_passed_over(tmp_path: Path, name: str) -> None:
    with new_stream(tmp_path / "s", None) as writer:
        stream = writer.stream
    before = _read(stream, ScanRequest(), FIRST, None)
    lost = stream.segments()[3]
    _cut(getattr(lost, name))
    with pytest.raises(CorruptChunkError, match=f"{lost.first_chunk_id}.index"):
        _read(stream, ScanRequest(), FIRST, None)
    request = ScanRequest(on_corrupt=OnCorrupt.SKIP)
    assert lost.stop_offset is not None
    expected = [offset for offset in before if not lost.first_chunk_id <= offset < lost.stop_offset]
    assert _read(stream, request, FIRST, None) == expected
    with Cursor(stream, request, start=FIRST, now_ms=0) as cursor:
        assert _drain(cursor) == expected


def test_exact_reading_counts_every_verdict(tmp_path: Path) -> None:
    stream = _stream(tmp_path)
    with Writer.open(stream, now_ms=0) as writer:
        bodies = [_body(1), _body(2), Message(body=b"none").encode(), b"\x00no message"]
        writer.append([(body, None) for body in bodies], now_ms=1)
    request = ScanRequest(filter=Filter.parse("n = 1", "rabbitmq"), exact=True)
    with Cursor(stream, request, start=FIRST, now_ms=0) as cursor:
        assert _drain(cursor) == [0]
        counters = cursor.counters
    assert (counters.messages_evaluated, counters.messages_matched) == (4, 1)
    assert (counters.messages_unknown, counters.messages_error, counters.messages_malformed) == (1, 1, 1)


_NO_JSON = Message(b"\0 no JSON").encode()


@pytest.mark.parametrize(
    ("entries", "text", "sampled", "unreadable"),
    [
        pytest.param([Message(b"{}").encode(), _NO_JSON], "body.a = 1", 1, 0, id="JSON"),
        pytest.param([_NO_JSON, Message(b"{}").encode()], "body.a = 1", 1, 1, id="no JSON"),
        pytest.param([SubBatch.of([_NO_JSON], Compression.GZIP)], "body.a = 1", 1, 1, id="no JSON in a sub-batch"),
        pytest.param([_NO_JSON], "a = 1", 0, 0, id="no path"),
        pytest.param([b"\0no message"], "body.a = 1", 0, 0, id="no message"),
        pytest.param([Message(b"[" * MOST_SAMPLED_BYTES).encode()], "body.a = 1", 0, 0, id="too long"),
    ],
)
def test_one_body_of_each_read_says_whether_paths_find_json(
    tmp_path: Path, entries: list[bytes | SubBatch], text: str, sampled: int, unreadable: int
) -> None:
    stream = _stream(tmp_path)
    with Writer.open(stream, now_ms=0) as writer:
        append_chunk(writer, [(each, None) if isinstance(each, bytes) else each for each in entries], now_ms=1)
    with Cursor(stream, ScanRequest(filter=Filter.parse(text, "amqp")), start=FIRST, now_ms=0) as cursor:
        _drain(cursor)
        assert (cursor.counters.bodies_sampled, cursor.counters.bodies_unreadable) == (sampled, unreadable)


@pytest.mark.parametrize("exact", [True, False])
def test_what_is_no_message_is_told_from_what_a_language_calls_an_error(tmp_path: Path, exact: bool) -> None:
    stream = _stream(tmp_path)
    with Writer.open(stream, now_ms=0) as writer:
        text = Message(application_properties={"n": "text"}).encode()
        entries = [(_body(1), None), (text, None), (b"\0no message", None)]
        append_chunk(writer, [*entries, SubBatch.of([b"\0no message", text], Compression.NONE)], now_ms=1)
    request = ScanRequest(filter=Filter.parse("n + 1 > 0", "servicebus"), exact=exact)
    with Cursor(stream, request, start=FIRST, now_ms=0) as cursor:
        assert _drain(cursor) == [0]
        assert cursor.counters.messages_malformed == 2
        assert cursor.counters.messages_error == (4 if exact else 0)
    with Cursor(stream, ScanRequest(), start=FIRST, now_ms=0) as cursor:
        assert _drain(cursor) == [0, 1, 2, 3, 4]
        assert cursor.counters.messages_malformed == 0


def test_messages_that_are_no_amqp_are_delivered_without_a_filter(tmp_path: Path) -> None:
    stream = _stream(tmp_path)
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(b"\x00no message", None)], now_ms=1)
    assert _read(stream, ScanRequest(), FIRST, None) == [0]


def test_now_is_what_the_reader_was_given(tmp_path: Path) -> None:
    stream = _stream(tmp_path)
    with Writer.open(stream, now_ms=0) as writer:
        _append(writer, range(3), now_ms=1)
    request = ScanRequest(filter=Filter.parse("UTC() = 5", "rabbitmq"))
    for now_ms, expected in ((5, [0, 1, 2]), (6, [])):
        with Cursor(stream, request, start=FIRST, now_ms=0) as cursor:
            batch = cursor.read(now_ms)
        assert ([] if batch is None else batch.offsets.tolist()) == expected


def test_match_unfiltered_alone_is_refused() -> None:
    with pytest.raises(ConfigError, match="match_unfiltered has no effect without filter_values"):
        ScanRequest(match_unfiltered=True)
