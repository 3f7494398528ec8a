"""Stream folders as readers see them: made, found, attached to; ours and foreign ones."""

from __future__ import annotations

import os
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import (
    ConfigError,
    CorruptChunkError,
    LogError,
    OffsetOutOfRangeError,
    StreamExistsError,
    StreamNotFoundError,
    StreamReadOnlyError,
)
from headgate.log import (
    OffsetSpecification,
    Stream,
    StreamArguments,
    Writer,
    derived,
    headers_digest,
    list_streams,
    read_tail,
    resolve_stream,
    segment,
    stream_folder,
    stream_names,
    verify_stream,
)
from headgate.log.files import DiskFile
from headgate.log.format import FILE_HEAD_BYTES, INDEX_RECORD_BYTES, index_name, segment_name
from headgate.log.root import name_of_folder
from headgate.log.settings import DeclaredRange, StreamSettings
from log_streams import chunk_ids, read_messages


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """Chunks of two messages at times 0, 10, 20 …, 3 chunks a segment; a stored offset makes snapshots and a delta."""
    arguments = StreamArguments(max_segment_chunks=3)
    made = Stream.create(tmp_path / "s", name="s", now_ms=0, arguments=arguments)
    with Writer.open(made, now_ms=0) as writer:
        for number in range(6):
            writer.append([(b"a%d" % number, b"v"), (b"b%d" % number, None)], now_ms=10 * number)
            if number == 1:
                writer.store_offset("group", 1)
                writer.flush_offsets(now_ms=15)
        writer.store_offset("group", 2)
        writer.flush_offsets(now_ms=60)
    return made


# chunk ids:  segment 0: 0 (0 ms), 2 (10 ms), 4 delta (15 ms);  segment 5: 5 snapshot (20 ms), 6 (20 ms), 8 (30 ms);
#             segment 10: 10 snapshot (40 ms), 11 (40 ms), 13 (50 ms);  segment 15: 15 snapshot (60 ms, with the offset)


def test_the_fixture_has_the_chunks_that_the_tests_expect(stream: Stream) -> None:
    assert chunk_ids(stream) == [0, 2, 4, 5, 6, 8, 10, 11, 13, 15]
    assert [segment.first_chunk_id for segment in stream.segments()] == [0, 5, 10, 15]


@pytest.mark.parametrize("is_foreign", [False, True])
def test_a_stream_with_an_initial_offset_begins_there(tmp_path: Path, *, is_foreign: bool) -> None:
    path = tmp_path / "__s_1"
    made = Stream.create(path, name="s", now_ms=0, arguments=StreamArguments(initial_offset=1000))
    if is_foreign:
        for name in ("stream.json", "writer.lock"):
            (path / name).unlink()
        made = Stream.open(path)
    for text in ("first", "last", "next", "0", "1000", "1001", "1h"):
        found = made.attach(OffsetSpecification.parse(text), now_ms=0)
        assert (found.row, found.chunk_id, found.offset) == (0, 1000, 1000)
    assert (made.first_offset(), made.next_offset()) == (1000, 1000)
    assert (read_tail(made).first_offset, read_tail(made).next_offset) == (1000, 1000)
    assert list(verify_stream(made)) == []
    if not is_foreign:
        with Writer.open(made, now_ms=0) as writer:
            writer.append([(b"a", None)], now_ms=0)
        assert read_messages(made) == [(1000, b"a")]


@pytest.mark.parametrize(
    ("text", "segment", "chunk_id", "offset"),
    [
        ("first", 0, 0, 0),
        ("next", 15, 16, 16),
        ("last", 10, 13, 13),
        ("0", 0, 0, 0),
        ("1", 0, 0, 1),
        ("3", 0, 2, 3),
        ("4", 0, 4, 4),
        ("7", 5, 6, 7),
        ("14", 10, 13, 14),
        ("15", 15, 15, 15),
        ("16", 15, 16, 16),
        ("999", 15, 16, 16),
    ],
)
def test_attaching_by_offset(stream: Stream, text: str, segment: int, chunk_id: int, offset: int) -> None:
    found = stream.attach(OffsetSpecification.parse(text), now_ms=1000)
    assert (found.segment.first_chunk_id, found.chunk_id, found.offset) == (segment, chunk_id, offset)
    with found.segment.open() as reader:
        table = reader.chunks()
        assert found.row == len(table) if found.chunk_id == 16 else table.chunk_id[found.row] == found.chunk_id


@pytest.mark.parametrize(
    ("timestamp_ms", "chunk_id"),
    [
        (-5, 0),
        (0, 0),
        (1, 2),
        (10, 2),
        (15, 4),
        (16, 5),
        (20, 5),
        (21, 8),
        (35, 10),
        (50, 13),
        (51, 15),
        (60, 15),
        (61, 16),
    ],
)
def test_attaching_by_time_finds_the_first_chunk_of_that_time_or_later(
    stream: Stream, timestamp_ms: int, chunk_id: int
) -> None:
    found = stream.attach(OffsetSpecification.timestamp(timestamp_ms), now_ms=1000)
    assert (found.chunk_id, found.offset) == (chunk_id, chunk_id)


def test_attaching_by_interval_counts_back_from_the_time_given(stream: Stream) -> None:
    assert stream.attach(OffsetSpecification.parse("1s"), now_ms=1030).chunk_id == 8


def test_attaching_to_an_empty_stream_waits_for_its_first_chunk(tmp_path: Path) -> None:
    empty = Stream.create(tmp_path / "s", name="s", now_ms=0)
    for text in ("first", "last", "next", "5", "10m", "2026-01-01"):
        found = empty.attach(OffsetSpecification.parse(text), now_ms=10**13)
        assert (found.row, found.chunk_id, found.offset) == (0, 0, 0)
    assert (empty.first_offset(), empty.next_offset()) == (0, 0)


def test_an_offset_before_the_first_one_kept_is_the_first(stream: Stream) -> None:
    for ending in (index_name(0), segment_name(0)):
        (stream.path / ending).unlink()
    assert stream.attach(OffsetSpecification.offset(2), now_ms=0).offset == 5
    assert stream.attach(OffsetSpecification.timestamp(0), now_ms=0).offset == 5
    assert (stream.first_offset(), stream.next_offset()) == (5, 16)


def test_last_is_next_where_no_chunk_holds_messages(tmp_path: Path) -> None:
    made = Stream.create(tmp_path / "s", name="s", now_ms=0)
    with Writer.open(made, now_ms=0) as writer:
        writer.store_offset("group", 0)
        writer.flush_offsets(now_ms=0)
    assert made.attach(OffsetSpecification.last(), now_ms=0).offset == 1


def test_opening_a_segment_that_retention_deleted_is_told(stream: Stream) -> None:
    oldest = stream.segments()[0]
    (stream.path / index_name(0)).unlink()
    with pytest.raises(OffsetOutOfRangeError, match="retention deleted it"):
        oldest.open()


def test_only_sealed_segments_of_our_own_folder_may_be_mapped(stream: Stream) -> None:
    assert [segment.mappable for segment in stream.segments()] == [True, True, True, False]
    assert [segment.mappable for segment in Stream(stream.path, None).segments()] == [False] * 4
    os.truncate(stream.path / index_name(15), FILE_HEAD_BYTES)
    assert [segment.mappable for segment in stream.segments()] == [True, True, False, False]


def test_mapped_and_copied_segments_read_the_same(stream: Stream) -> None:
    for own, foreign in zip(stream.segments(), Stream(stream.path, None).segments(), strict=True):
        with own.open() as one, foreign.open() as other:
            rows = len(one.chunks())
            mine, theirs = one.headers(0, rows), other.headers(0, rows)
            assert mine.records.tobytes() == theirs.records.tobytes()
            for row, size in enumerate(mine.bloom_length):
                at, there = mine.bloom_positions[row], theirs.bloom_positions[row]
                assert mine.data[at : at + size].tobytes() == theirs.data[there : there + size].tobytes()
            stop = one.stop_position
            assert one.read(8, stop)[:-8].tobytes() == other.read(8, stop)[:-8].tobytes()
            assert len(one.read(20, 30)) == len(other.read(20, 30)) == 18
            assert one.stop_positions().tolist() == other.stop_positions().tolist()
            assert one.next_chunk_ids().tolist()[-1] == one.next_chunk_id
    assert read_messages(stream) == read_messages(Stream(stream.path, None))


def test_the_newest_segment_is_mapped_on_demand_but_for_its_last_chunk(tmp_path: Path) -> None:
    """What a writer has begun behind the last chunk may be cut at any time, and with it the page that chunk ends in."""
    made = Stream.create(tmp_path / "s", name="s", now_ms=0)
    with Writer.open(made, now_ms=0) as writer:
        for number in range(20):
            writer.append([(bytes([number]) * 10_000, None)], now_ms=number)
        newest = made.segments()[0]
        with newest.open() as reader:
            stops = reader.stop_positions()
            copied = bytes(reader.read(8, int(stops[-1])))
            assert not reader.is_mapped(int(stops[0]))
            assert reader.map_to(int(stops[-1])) < stops[-1]
            assert reader.is_mapped(int(stops[-2])) and not reader.is_mapped(int(stops[-1]))
            with newest.segment_path.open("ab") as begun:
                begun.write(bytes(5000))
            assert reader.map_to(int(stops[-1])) < stops[-1], "nothing was committed"
            os.truncate(newest.segment_path, int(stops[-1]))
            assert bytes(reader.read(8, int(stops[-1])))[:-8] == copied[:-8]
            writer.append([(b"more", None)], now_ms=20)
            reader.chunks(refresh=True)
            assert reader.map_to(int(stops[-1])) >= stops[-1]


def test_a_newest_segment_that_a_recovery_would_cut_is_not_mapped(stream: Stream) -> None:
    newest = stream.segments()[-1]
    with newest.open() as reader:
        stop = reader.stop_position
        with newest.segment_path.open("r+b") as damaged:
            damaged.seek(stop - 1)
            byte = damaged.read(1)
            damaged.seek(stop - 1)
            damaged.write(bytes([byte[0] ^ 1]))
        assert reader.map_to(stop) == 0
    with Stream(stream.path, None).segments()[0].open() as foreign:
        assert foreign.map_to(foreign.stop_position) == 0


def test_headers_of_dense_and_of_sparse_chunks_are_the_same_read_by_window_or_one_by_one(tmp_path: Path) -> None:
    made = Stream.create(tmp_path / "s", name="s", now_ms=0, arguments=StreamArguments(filter_size_bytes=255))
    with Writer.open(made, now_ms=0) as writer:
        for number in range(300):
            writer.append([(bytes(200_000 if number % 100 == 99 else 300), b"v%d" % number)], now_ms=number)
    with made.segments()[0].open() as reader:
        headers = reader.headers(0, 300)
        assert headers.chunk_id.tolist() == list(range(300))
        for row in range(300):
            header = reader.header(row)
            assert header.bloom_length == 255
            at = int(headers.bloom_positions[row])
            start = int(reader.chunks().position[row]) + 48
            assert headers.data[at : at + 255].tobytes() == reader.read(start, start + 255)[:255].tobytes()
        assert reader.headers(290, 300).chunk_id.tolist() == list(range(290, 300))


def test_a_reader_sees_chunks_when_their_index_record_is_complete_and_not_before(tmp_path: Path) -> None:
    made = Stream.create(tmp_path / "s", name="s", now_ms=0)
    with Writer.open(made, now_ms=0) as writer:
        writer.append([(b"one", None)], now_ms=0)
        with made.segments()[0].open() as reader:
            assert len(reader.chunks()) == 1
            writer.append([(b"two", None)], now_ms=0)
            assert len(reader.chunks()) == 1
            index = made.path / index_name(0)
            whole = index.read_bytes()
            for size in range(FILE_HEAD_BYTES + INDEX_RECORD_BYTES, len(whole)):
                index.write_bytes(whole[:size])
                assert len(reader.chunks(refresh=True)) == 1
                assert reader.next_chunk_id == 1
            index.write_bytes(whole)
            assert len(reader.chunks(refresh=True)) == 2
            assert reader.next_chunk_id == 2


def test_a_reader_follows_when_recovery_took_records_away(tmp_path: Path) -> None:
    made = Stream.create(tmp_path / "s", name="s", now_ms=0)
    with Writer.open(made, now_ms=0) as writer:
        for number in range(3):
            writer.append([(b"m%d" % number, None)], now_ms=0)
    with made.segments()[0].open() as reader:
        assert len(reader.chunks()) == 3
        os.truncate(made.path / segment_name(0), int(reader.chunks().position[1]))
        os.truncate(made.path / index_name(0), FILE_HEAD_BYTES + INDEX_RECORD_BYTES)
        assert reader.chunks(refresh=True).chunk_id.tolist() == [0]


def replaced_by(stream: Stream, other: Stream) -> None:
    for path in other.path.glob("0*"):
        os.replace(path, stream.path / path.name)


def other_stream(stream: Stream, folder: Path) -> Stream:
    """Other messages in chunks of the same ids and sizes."""
    made = Stream.create(
        folder, name="s", now_ms=0, identity=stream.identity, arguments=StreamArguments(max_segment_chunks=3)
    )
    with Writer.open(made, now_ms=0) as writer:
        for number in range(6):
            writer.append([(b"x%d" % number, b"v"), (b"y%d" % number, None)], now_ms=10 * number)
    return made


def test_a_table_of_files_that_took_the_place_of_others_is_not_kept_as_theirs(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = other_stream(stream, tmp_path / "first")
    monkeypatch.setattr(segment, "_FEWEST_KEPT_ROWS", 1)
    monkeypatch.setattr(segment, "_KEPT", segment._KnownTables())
    other = other_stream(stream, tmp_path / "other")
    with stream.segments()[0].open() as reader:
        replaced_by(stream, other)
        before = reader._sealed_state()
        assert len(reader.chunks()) == 3
        assert segment._KEPT.get(before) is None
    for _ in range(2):
        with stream.segments()[0].open() as reader:
            assert len(reader.chunks()) == 3
            assert segment._KEPT.get(reader._sealed_state()) is not None


def test_a_digest_of_files_that_took_the_place_of_others_is_not_remembered_as_theirs(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = other_stream(stream, tmp_path / "other")
    first = stream.segments()[0]
    expected = headers_digest(first)
    derived._digests.clear()
    (tmp_path / "aside").mkdir()
    read_seal = derived.read_seal

    def replacing(path: Path) -> object:
        for each in sorted(stream.path.glob(f"{first.first_chunk_id:020d}.*")):
            os.link(each, tmp_path / "aside" / each.name)
            os.replace(other.path / each.name, each)
        return read_seal(path)

    monkeypatch.setattr(derived, "read_seal", replacing)
    assert headers_digest(first) != expected
    monkeypatch.undo()
    for each in (tmp_path / "aside").iterdir():
        os.replace(each, stream.path / each.name)
    assert headers_digest(first) == expected


def test_what_a_crash_leaves_at_the_end_of_an_index_is_passed_over(tmp_path: Path) -> None:
    made = Stream.create(tmp_path / "s", name="s", now_ms=0)
    with Writer.open(made, now_ms=0) as writer:
        writer.append([(b"m", None)], now_ms=0)
    with (made.path / index_name(0)).open("ab") as file:
        file.write(bytes(58))
    assert chunk_ids(made) == [0]


@pytest.mark.parametrize(
    ("position", "value"), [(0, 0xFF), (8 + 7, 1), (8 + 28, 7), (8 + 29 + 7, 0), (8 + 29 + 26, 0xFF)]
)
def test_a_damaged_index_is_an_error_with_the_place(stream: Stream, position: int, value: int) -> None:
    path = stream.path / index_name(0)
    raw = bytearray(path.read_bytes())
    raw[position] = value
    path.write_bytes(raw)
    with pytest.raises(CorruptChunkError) as caught:
        read_messages(stream)
    assert caught.value.path == path
    assert caught.value.position is not None


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(("at", "value"), [(0, 0x51), (1, 9), (31, 77), (38, 9), (42, 9), (16, 0x80)])
def test_a_damaged_header_is_an_error_with_the_place(stream: Stream, at: int, value: int, own: bool) -> None:
    with stream.segments()[1].open() as reader:
        position = int(reader.chunks().position[1])
    path = stream.path / segment_name(5)
    raw = bytearray(path.read_bytes())
    raw[position + at] = value
    path.write_bytes(raw)
    damaged = stream if own else Stream(stream.path, None)
    with damaged.segments()[1].open() as reader:
        with pytest.raises(CorruptChunkError) as caught:
            reader.headers(0, len(reader.chunks()))
        assert (caught.value.path, caught.value.position) == (path, position)
        with pytest.raises(CorruptChunkError) as caught:
            reader.header(1)
        assert (caught.value.path, caught.value.position) == (path, position)


@pytest.mark.parametrize("own", [True, False])
def test_a_segment_that_ends_inside_its_last_chunk_is_an_error_with_the_place(stream: Stream, own: bool) -> None:
    path = stream.path / segment_name(5)
    os.truncate(path, path.stat().st_size - 1)
    damaged = stream if own else Stream(stream.path, None)
    with damaged.segments()[1].open() as reader:
        with pytest.raises(CorruptChunkError, match="29 bytes that name no chunk"):
            reader.chunks()
        with pytest.raises(CorruptChunkError, match="the file ends at byte"):
            reader.read(8, path.stat().st_size + 1)


@pytest.mark.parametrize(("name", "size"), [(segment_name(0), 0), (segment_name(0), 7), (index_name(0), 3)])
def test_a_file_without_its_head_is_an_error_with_the_place(stream: Stream, name: str, size: int) -> None:
    os.truncate(stream.path / name, size)
    with pytest.raises(CorruptChunkError, match="file head is") as caught:
        read_messages(stream)
    assert caught.value.path == stream.path / name


def test_a_range_that_is_none_is_refused(stream: Stream) -> None:
    with stream.segments()[0].open() as reader, pytest.raises(ValueError, match="no byte range"):
        reader.read(9, 8)


def test_streams_and_segments_survive_pickling(stream: Stream) -> None:
    copy = pickle.loads(pickle.dumps(stream))
    assert copy == stream
    assert pickle.loads(pickle.dumps(stream.segments())) == stream.segments()


# making and finding


def test_a_segment_that_a_listing_missed_is_no_hole(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder is listed while a writer makes two segments: the later one is seen, the earlier one is not."""
    first, second, *_ = stream.segments()
    missed = (segment_name(second.first_chunk_id), index_name(second.first_chunk_id))
    complete = os.listdir(stream.path)
    listings = [[name for name in complete if name not in missed], complete]
    monkeypatch.setattr(os, "listdir", lambda _: listings.pop(0) if len(listings) > 1 else listings[0])
    assert stream.segments()[:2] == [first, second]


def test_a_stream_is_made_once(tmp_path: Path) -> None:
    Stream.create(tmp_path / "s", name="s", now_ms=0)
    with pytest.raises(StreamExistsError, match="is there already"):
        Stream.create(tmp_path / "s", name="s", now_ms=0)
    (tmp_path / "file").write_text("x")
    with pytest.raises(StreamExistsError, match="a file of that name"):
        Stream.create(tmp_path / "file", name="s", now_ms=0)


def test_a_stream_is_not_made_over_a_foreign_one(copy_of_stream: Path) -> None:
    with pytest.raises(StreamExistsError, match="adopt it"):
        Stream.create(copy_of_stream, name="s", now_ms=0)


def left_by_kills(folder: Path, copies: Path, monkeypatch: pytest.MonkeyPatch, *, initial_offset: int) -> list[Path]:
    """Create a stream; copies of its folder after each change of it that a kill may come behind, the last one whole."""
    left: list[Path] = []

    def followed(change: Callable[..., None]) -> Callable[..., None]:
        def changed(*arguments: object, **more: object) -> None:
            change(*arguments, **more)
            left.append(copies / str(len(left)))
            shutil.copytree(folder, left[-1])

        return changed

    with monkeypatch.context() as patch:
        for owner, name in ((os, "replace"), (os, "unlink"), (DiskFile, "write")):
            patch.setattr(owner, name, followed(getattr(owner, name)))
        Stream.create(folder, name="s", now_ms=0, arguments=StreamArguments(initial_offset=initial_offset))
    return left


def test_a_creation_that_a_kill_ended_left_no_stream_and_is_done_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    *first, whole = left_by_kills(tmp_path / "s", tmp_path / "first", monkeypatch, initial_offset=5)
    assert Stream.open(whole).first_offset() == 5
    for folder in first:
        with pytest.raises(StreamNotFoundError, match="no stream here"):
            Stream.open(folder)
        *again, _ = left_by_kills(folder, tmp_path / f"after {folder.name}", monkeypatch, initial_offset=9)
        for other in again:
            with pytest.raises(StreamNotFoundError, match="no stream here"):
                Stream.open(other)
        for other, expected in ((folder, 9), *((each, 0) for each in again)):
            made = Stream.open(other) if expected else Stream.create(other, name="s", now_ms=0)
            with Writer.open(made, now_ms=0) as writer:
                writer.append([(b"m", None)], now_ms=0)
            assert read_messages(Stream.open(other)) == [(expected, b"m")]


@pytest.mark.parametrize(
    "arguments",
    [
        StreamArguments(filter_size_bytes=15),
        StreamArguments(filter_size_bytes=256),
        StreamArguments(max_segment_size_bytes=0),
        StreamArguments(max_segment_size_bytes=2**32),
        StreamArguments(max_segment_chunks=0),
        StreamArguments(max_length_bytes=0),
        StreamArguments(max_age_ms=-1),
    ],
)
def test_a_wrong_argument_is_refused_by_name(arguments: StreamArguments, tmp_path: Path) -> None:
    [changed] = [
        name
        for name in StreamArguments.__struct_fields__
        if getattr(arguments, name) != getattr(StreamArguments(), name)
    ]
    with pytest.raises(ConfigError, match=changed):
        Stream.create(tmp_path / "s", name="s", now_ms=0, arguments=arguments)
    assert not (tmp_path / "s").exists()


def test_where_no_stream_is(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(StreamNotFoundError, match="no stream here"):
            Stream.open(path)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"name":"x"}', b'{"name":"x","created_ms":0,"arguments":{},"colour":1}', b"\xff"]
)
def test_settings_that_are_none_are_an_error_with_the_place(stream: Stream, content: bytes) -> None:
    (stream.path / "stream.json").write_bytes(content)
    with pytest.raises(LogError, match="not the settings of a stream") as caught:
        Stream.open(stream.path)
    assert caught.value.path == stream.path / "stream.json"


def test_settings_that_a_power_loss_took_say_what_to_do(tmp_path: Path) -> None:
    made = Stream.create(tmp_path / "s", name="s", now_ms=0, flushed=False)
    assert Stream.open(made.path) == made
    (made.path / "stream.json").write_bytes(b"")
    with pytest.raises(LogError, match=r"not the settings.*power loss.*remove the folder") as caught:
        Stream.open(made.path)
    assert caught.value.path == made.path / "stream.json"


def test_settings_of_another_format_are_refused(stream: Stream) -> None:
    path = stream.path / "stream.json"
    path.write_text(path.read_text().replace('"format": 2', '"format": 1'))
    with pytest.raises(LogError, match="settings of format 1, expected 2"):
        Stream.open(stream.path)


def test_no_flipped_bit_of_the_settings_goes_unnoticed(stream: Stream) -> None:
    path = stream.path / "stream.json"
    whole = path.read_bytes()
    missed, places = [], set()
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            found = Stream.open(stream.path).settings
        except LogError as error:
            places.add(error.path)
        else:
            # White space counts for nothing.
            missed += [bit] * (found != stream.settings)
    assert (missed, places) == ([], {path})


def test_settings_changed_by_hand_are_refused_with_what_to_do(stream: Stream) -> None:
    path = stream.path / "stream.json"
    path.write_text(path.read_text().replace('"max_age_ms": null', '"max_age_ms": 1'))
    with pytest.raises(LogError, match=r"checksum is \d+, the file says \d+.*by hand.*headgate stream adopt") as caught:
        Stream.open(stream.path)
    assert caught.value.path == path


def test_each_stream_has_an_identity_of_its_own_that_stays(tmp_path: Path) -> None:
    made = [Stream.create(tmp_path / name, name="s", now_ms=0) for name in ("a", "b")]
    assert made[0].identity != made[1].identity
    assert re.fullmatch(r"[0-9a-f]{32}", made[0].identity)
    with Writer.open(made[0], now_ms=0) as writer:
        writer.append([(b"m", None)], now_ms=0)
        writer.record_sequence("query", 1)
    assert Stream.open(made[0].path).identity == made[0].identity
    assert Stream.create(tmp_path / "c", name="s", now_ms=0, identity="given").identity == "given"


def test_folders_that_were_copied_to_one_name_are_not_one_stream(copy_of_stream: Path, tmp_path: Path) -> None:
    identities = set()
    for _ in range(2):
        plain = Path(shutil.copytree(copy_of_stream, tmp_path / "plain" / "orders"))
        identities.add(Stream.adopt(plain, now_ms=0).identity)
        shutil.rmtree(plain)
    assert len(identities) == 2


def test_an_adopted_stream_keeps_the_identity_that_its_folder_gave_it(copy_of_stream: Path) -> None:
    foreign = Stream.open(copy_of_stream)
    assert foreign.identity == copy_of_stream.name
    adopted = Stream.adopt(copy_of_stream, now_ms=5, name="events")
    moved = copy_of_stream.rename(copy_of_stream.with_name("events"))
    assert Stream.open(moved).identity == adopted.identity == foreign.identity


def test_settings_come_back_as_they_were_written(tmp_path: Path) -> None:
    arguments = StreamArguments(filter_size_bytes=32, max_length_bytes=10**9, max_age_ms=1)
    made = Stream.create(
        tmp_path / "s", name="événements", now_ms=7, arguments=arguments, filter_source="properties.subject"
    )
    found = Stream.open(tmp_path / "s")
    assert found == made
    assert found.settings is not None
    assert (found.name, found.settings.created_ms, found.filter_size_bytes) == ("événements", 7, 32)
    assert (found.settings.arguments, found.settings.filter_source) == (arguments, "properties.subject")


NAMES = st.text(min_size=1, max_size=20).filter(lambda name: max(name) < "\ud800" or max(name) > "\udfff")


@given(NAMES)
def test_every_name_has_a_folder_of_its_own_inside_the_root(name: str) -> None:
    folder = stream_folder("root", name)
    assert folder.parent == Path("root/streams")
    assert name_of_folder(folder) == name
    assert "/" not in folder.name
    assert not folder.name.startswith(".")


@pytest.mark.parametrize("name", ["", "x" * 261])
def test_a_name_without_a_folder_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="expected 1 to 260"):
        stream_folder("root", name)


def test_names_too_long_for_a_folder_have_shortened_ones(tmp_path: Path) -> None:
    names = ["x" * 255, "x" * 256, "x" * 259 + "y", "🦀" * 259 + "a", "🦀" * 259 + "b", "a,b"]
    folders = [stream_folder(tmp_path, name) for name in names]
    for name, folder in zip(names, folders, strict=True):
        Stream.create(folder, name=name, now_ms=0)
        assert len(folder.name) <= 255
    assert folders[0].name == "x" * 255
    assert folders[1].name == "x" * 222 + ",85e62acd750c4eb56b7b6a1d66dca5bf"
    assert [name_of_folder(folder) for folder in folders] == names
    assert sorted(stream_names(tmp_path)) == sorted(names)
    assert resolve_stream(names[3], tmp_path).name == names[3]
    with pytest.raises(StreamNotFoundError, match="no stream"):
        resolve_stream("z" * 260, tmp_path)
    (folders[1] / "stream.json").write_bytes(b"")
    assert name_of_folder(folders[1]) == folders[1].name


def test_streams_are_found_by_name_and_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    for name in ("b", "a/b", "..", "a"):
        Stream.create(stream_folder(root, name), name=name, now_ms=0)
    (root / "streams" / "no stream").mkdir()
    assert [stream.name for stream in list_streams(root)] == ["..", "a", "a/b", "b"]
    for name in ("b", "a/b", "..", "a"):
        assert resolve_stream(name, root).name == name
    assert resolve_stream(str(root / "streams" / "b"), tmp_path / "elsewhere").name == "b"
    monkeypatch.chdir(root / "streams")
    assert resolve_stream("a", tmp_path / "elsewhere").name == "a"


def test_a_damaged_stream_hides_the_others_only_from_who_does_not_ask_for_it(tmp_path: Path) -> None:
    for name in ("a", "b/c", "d"):
        Stream.create(stream_folder(tmp_path, name), name=name, now_ms=0)
    stream_folder(tmp_path, "b/c").joinpath("stream.json").write_bytes(b"")
    with pytest.raises(LogError, match="not the settings of a stream"):
        list_streams(tmp_path)
    damaged: list[str] = []
    found = list_streams(tmp_path, damaged=lambda folder, error: damaged.append(f"{name_of_folder(folder)}: {error}"))
    assert [stream.name for stream in found] == ["a", "d"]
    assert len(damaged) == 1 and damaged[0].startswith("b/c: ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zz", "ROOT/streams/zz: no stream 'zz', and there is no folder zz; headgate stream ls --root ROOT lists"),
        ("./folder", "folder: no stream './folder', and the folder folder has neither stream.json nor a pair of log"),
        ("./file", "file: no stream './file', and file is a file, and a stream is a folder; headgate stream ls"),
    ],
)
def test_what_is_no_stream_is_named_with_what_is_there_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for made in ("folder", "root"):
        (tmp_path / made).mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(StreamNotFoundError) as refused:
        resolve_stream(text, tmp_path / "root")
    assert str(refused.value).startswith(expected.replace("ROOT", str(tmp_path / "root")))


def test_a_root_without_streams_lists_none(tmp_path: Path) -> None:
    assert list_streams(tmp_path) == []


# foreign folders


def test_a_foreign_folder_says_its_name_and_filter_size(copy_of_stream: Path) -> None:
    foreign = Stream.open(copy_of_stream)
    assert foreign.is_foreign
    assert (foreign.name, foreign.filter_size_bytes) == ("regional-events", 32)
    renamed = copy_of_stream.rename(copy_of_stream.with_name("copied by hand"))
    assert Stream.open(renamed).name == "copied by hand"


def test_a_foreign_folder_without_filters_counts_as_size_16(tmp_path: Path) -> None:
    made = Stream.create(tmp_path / "__a_b_12", name="s", now_ms=0)
    with Writer.open(made, now_ms=0) as writer:
        writer.append([(b"m", None)], now_ms=0)
    (made.path / "stream.json").unlink()
    foreign = Stream.open(made.path)
    assert (foreign.name, foreign.filter_size_bytes) == ("a_b", 16)


def test_a_foreign_folder_is_read_only_until_it_is_adopted(copy_of_stream: Path) -> None:
    foreign = Stream.open(copy_of_stream)
    before = sorted(os.listdir(copy_of_stream))
    with pytest.raises(StreamReadOnlyError, match="adopt it"):
        Writer.open(foreign, now_ms=0)
    assert sorted(os.listdir(copy_of_stream)) == before
    adopted = Stream.adopt(copy_of_stream, now_ms=5)
    assert (adopted.name, adopted.filter_size_bytes, adopted.is_foreign) == ("regional-events", 32, False)
    with Writer.open(foreign, now_ms=6) as writer:
        assert writer.append([(b"ours", b"EMEA")], now_ms=6).offsets().tolist() == [6000]
    with pytest.raises(StreamExistsError, match=r"has a stream\.json already"):
        Stream.adopt(copy_of_stream, now_ms=5)


def test_a_folder_with_a_segment_without_its_index_is_not_adopted(stream: Stream) -> None:
    (stream.path / "stream.json").unlink()
    (stream.path / index_name(5)).unlink()
    with pytest.raises(CorruptChunkError, match="index file is missing") as caught:
        Stream.adopt(stream.path, now_ms=0)
    assert caught.value.path == stream.path / index_name(5)
    assert (stream.path / segment_name(5)).exists()


def test_chunks_count_as_declared_only_where_our_writer_wrote_them_whole() -> None:
    declared = (DeclaredRange("a", 10, 20), DeclaredRange("b", 20, 25), DeclaredRange("a", 25, 30))
    made = StreamSettings(name="s", created_ms=0, identity="i", arguments=StreamArguments(), declared=declared)
    starts, stops = np.array([8, 10, 15, 18, 25, 28]), np.array([10, 15, 20, 22, 30, 31])
    assert made.declared_mask("a", starts, stops).tolist() == [False, True, True, False, True, False]
    assert not made.declared_mask("c", starts, stops).any()


def test_a_name_that_is_no_stream_brings_up_those_like_it(tmp_path: Path) -> None:
    for name in ("orders", "orders/eu", "customers"):
        Stream.create(stream_folder(tmp_path, name), name=name, now_ms=0)
    with pytest.raises(StreamNotFoundError, match=r"lists what is there; did you mean 'orders'( or 'orders/eu')?\?$"):
        resolve_stream("Ordesr", tmp_path)
    with pytest.raises(StreamNotFoundError, match="lists what is there; did you mean 'orders/eu'"):
        resolve_stream("orders/ue", tmp_path)
    with pytest.raises(StreamNotFoundError, match=r"lists what is there$"):
        resolve_stream("zebra", tmp_path)
