"""Damage of the last pair of files and what is left after a start: RabbitMQ's own table, and the cases beside it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import CorruptChunkError
from headgate.log import (
    Damage,
    Stream,
    StreamArguments,
    Writer,
    read_tail,
    repair_stream,
    stream_info,
    verify_stream,
)
from headgate.log.format import CHUNK_HEADER_BYTES, FILE_HEAD_BYTES, INDEX_RECORD_BYTES, index_name, segment_name
from headgate.log.pairs import delete_pair
from headgate.log.recovery import recover
from log_streams import Killed, chunk_ids, file_bytes, read_messages

TABLE = json.loads((Path(__file__).parent.parent / "vectors" / "osiris" / "recovery.json").read_text())


def cut(path: Path, size: int) -> None:
    os.truncate(path, size if size >= 0 else path.stat().st_size + size)


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def flip(path: Path, position: int, mask: int = 1) -> None:
    raw = bytearray(path.read_bytes())
    raw[position] ^= mask
    path.write_bytes(raw)


def damages(segment: Path, index: Path, positions: list[int]) -> dict[str, Callable[[], None]]:
    """The table's damages, for a stream whose chunks begin at `positions`; Bloom filters have 16 bytes."""
    last, middle = positions[-1], positions[2]
    return {
        "clean": lambda: None,
        "cut-10": lambda: cut(segment, -10),
        "flip-last-data": lambda: flip(segment, last + 48 + 16 + 5),
        "flip-middle-data": lambda: flip(segment, middle + 48 + 16 + 5),
        "flip-last-header-magic": lambda: flip(segment, last, 0x10),
        "idx-drop-last": lambda: cut(index, -INDEX_RECORD_BYTES),
        "idx-drop-2": lambda: cut(index, -2 * INDEX_RECORD_BYTES),
        "idx-zeros": lambda: append(index, bytes(58)),
        "idx-partial": lambda: append(index, b"abc"),
        "seg-garbage": lambda: append(segment, b"some text that is no chunk"),
        "seg-cut-into-header": lambda: cut(segment, last + 20),
        "flip-last-bloom": lambda: flip(segment, last + 48 + 3),
        "idx-empty": lambda: cut(index, FILE_HEAD_BYTES),
        "seg-head-only": lambda: cut(segment, FILE_HEAD_BYTES),
    }


KEPT_HERE = {"idx-drop-last", "idx-drop-2", "idx-empty"}
"""Damages of the index alone: the original cuts the segment to what is left of it, here the chunks are kept."""


def boundaries(case: dict[str, Any]) -> list[int]:
    """Chunk ids of a stream of 12 messages that the damage leaves as the table says."""
    return sorted({*case["chunks_readable"], *range(case["offset_of_next_write"], case["next_offset_before"], 2)})


@pytest.mark.parametrize("case", TABLE, ids=[case["damage"] for case in TABLE])
def test_a_damaged_stream_recovers_as_the_original_does(case: dict[str, Any], tmp_path: Path) -> None:
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0)
    first_ids = boundaries(case)
    readable, next_write = case["chunks_readable"], case["offset_of_next_write"]
    if case["damage"] in KEPT_HERE:
        readable, next_write = first_ids, case["next_offset_before"]
    with Writer.open(stream, now_ms=0) as writer:
        for first, stop in zip(first_ids, [*first_ids[1:], 12], strict=True):
            writer.append([(b"message %d" % number, b"value") for number in range(first, stop)], now_ms=first)
        assert writer.next_offset == 12
    segment, index = stream.path / segment_name(0), stream.path / index_name(0)
    with stream.segments()[0].open() as reader:
        positions = reader.chunks().position.tolist()
    damages(segment, index, positions)[case["damage"]]()
    with Writer.open(stream, now_ms=100) as writer:
        assert chunk_ids(stream) == readable
        assert writer.next_offset == next_write
        assert index.stat().st_size == FILE_HEAD_BYTES + INDEX_RECORD_BYTES * len(readable)
        with stream.segments()[0].open() as reader:
            assert segment.stat().st_size == reader.stop_position
        appended = writer.append([(b"after", None)], now_ms=100)
        assert appended.chunk_ids.tolist() == [next_write]
    assert chunk_ids(stream) == [*readable, next_write]


def test_the_table_has_every_damage() -> None:
    assert {case["damage"] for case in TABLE} == set(damages(Path(), Path(), [8] * 3))


@pytest.fixture
def rolled(tmp_path: Path) -> Stream:
    """Several segments of two chunks."""
    arguments = StreamArguments(max_segment_chunks=2)
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0, arguments=arguments)
    with Writer.open(stream, now_ms=0) as writer:
        for number in range(6):
            writer.append([(b"m%d" % number, None)], now_ms=number)
    assert [segment.first_chunk_id for segment in stream.segments()] == [0, 2, 4]
    return stream


def reopened(stream: Stream) -> list[bytes]:
    with Writer.open(stream, now_ms=9) as writer:
        writer.append([(b"after", None)], now_ms=9)
    return [body for _, body in read_messages(stream)]


def expected(*numbers: int) -> list[bytes]:
    return [*(b"m%d" % number for number in numbers), b"after"]


def test_a_last_segment_without_a_chunk_is_deleted(rolled: Stream) -> None:
    cut(rolled.path / segment_name(4), FILE_HEAD_BYTES)
    cut(rolled.path / index_name(4), FILE_HEAD_BYTES)
    assert reopened(rolled) == expected(0, 1, 2, 3)
    assert [offset for offset, _ in read_messages(rolled)] == [0, 1, 2, 3, 4]


def test_a_last_segment_of_up_to_a_header_is_deleted_though_its_index_has_records(rolled: Stream) -> None:
    cut(rolled.path / segment_name(4), 48)
    assert reopened(rolled) == expected(0, 1, 2, 3)


def test_the_segment_before_a_deleted_one_is_examined_too(rolled: Stream) -> None:
    cut(rolled.path / segment_name(4), FILE_HEAD_BYTES)
    cut(rolled.path / segment_name(2), -1)
    assert reopened(rolled) == expected(0, 1, 2)


def test_a_missing_file_of_the_last_pair_is_an_error(rolled: Stream) -> None:
    (rolled.path / segment_name(4)).rename(rolled.path / "kept")
    with pytest.raises(CorruptChunkError, match="segment file is missing") as caught:
        reopened(rolled)
    assert caught.value.path == rolled.path / segment_name(4)
    (rolled.path / "kept").rename(rolled.path / segment_name(4))
    (rolled.path / index_name(4)).unlink()
    with pytest.raises(CorruptChunkError, match="index file is missing") as caught:
        reopened(rolled)
    assert caught.value.path == rolled.path / index_name(4)
    (rolled.path / segment_name(4)).unlink()
    with pytest.raises(CorruptChunkError, match="files behind this segment are gone") as caught:
        reopened(rolled)
    assert caught.value.path == rolled.path / segment_name(2)


def test_what_is_cut_is_logged_with_its_size(rolled: Stream, caplog: pytest.LogCaptureFixture) -> None:
    Writer.open(rolled, now_ms=9).close()
    assert not caplog.messages
    cut(rolled.path / segment_name(4), -1)
    assert reopened(rolled) == expected(0, 1, 2, 3, 4)
    [message] = caplog.messages
    assert str(rolled.path / segment_name(4)) in message
    assert "and 1 index records; the stream goes on at offset 5" in message


def test_a_deletion_that_a_crash_ended_is_finished(rolled: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, contextlib.suppress(Killed):
        patch.setattr(Path, "unlink", killed)
        delete_pair(rolled.path, 0)
    assert [body for _, body in read_messages(rolled)] == [b"m%d" % number for number in range(2, 6)]
    assert reopened(rolled) == expected(2, 3, 4, 5)
    assert not any(f"{0:020d}" in path.name for path in rolled.path.iterdir())


def test_an_oldest_segment_that_lost_its_index_is_an_error(rolled: Stream) -> None:
    """No retention leaves it so: its messages are whole."""
    before = read_messages(rolled)
    (rolled.path / index_name(0)).unlink()
    for look in (read_messages, reopened):
        with pytest.raises(CorruptChunkError, match="index file is missing") as caught:
            look(rolled)
        assert caught.value.path == rolled.path / index_name(0)
    assert any(isinstance(found, Damage) for found in verify_stream(rolled))
    assert not any(isinstance(found, Damage) for found in repair_stream(rolled, now_ms=0))
    assert read_messages(rolled) == before


def test_a_last_pair_of_which_no_chunk_is_good_is_given_up(rolled: Stream) -> None:
    cut(rolled.path / index_name(4), FILE_HEAD_BYTES)
    cut(rolled.path / segment_name(4), FILE_HEAD_BYTES + CHUNK_HEADER_BYTES + 1)
    assert reopened(rolled) == expected(0, 1, 2, 3)


@pytest.fixture
def eight(tmp_path: Path) -> Stream:
    """Eight chunks of one message each, of a named publisher, with filter values."""
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0)
    with Writer.open(stream, now_ms=0) as writer:
        for number in range(8):
            writer.append([(b"m%d" % number, b"value")], now_ms=0, publisher="p", sequences=[number])
    return stream


TOO_LONG = (36, b"\0\0\x78\x78")
"""The bytes of the data, by the header."""

BAD_DATA = (CHUNK_HEADER_BYTES + 16 + 5, b"x")


@pytest.mark.parametrize(("first", "second"), [(BAD_DATA, TOO_LONG), (TOO_LONG, BAD_DATA), (TOO_LONG, TOO_LONG)])
def test_of_two_damaged_chunks_at_the_end_none_is_cut_off(
    eight: Stream, first: tuple[int, bytes], second: tuple[int, bytes]
) -> None:
    """One that reaches beyond the end looks like a crash; but a crash leaves all before it whole."""
    with eight.segments()[0].open() as reader:
        positions = reader.chunks().position[6:].tolist()
    raw = bytearray((eight.path / segment_name(0)).read_bytes())
    for position, (at, content) in zip(positions, (first, second), strict=True):
        assert raw[position + at : position + at + len(content)] != content
        raw[position + at : position + at + len(content)] = content
    (eight.path / segment_name(0)).write_bytes(raw)
    before = file_bytes(eight.path)
    with pytest.raises(CorruptChunkError) as caught:
        reopened(eight)
    assert caught.value.path == eight.path / segment_name(0)
    assert any(isinstance(found, Damage) for found in verify_stream(eight))
    after = file_bytes(eight.path)
    assert {name: after[name] for name in before if name != "writer.lock"} == {
        name: content for name, content in before.items() if name != "writer.lock"
    }
    named = [found for found in repair_stream(eight, now_ms=9) if isinstance(found, Damage)]
    assert any("the offsets from" in found.reason for found in named)
    list(repair_stream(eight, now_ms=9, cut=True))
    assert reopened(eight) == expected(*range(6))


@pytest.mark.parametrize("size", [0, 3, FILE_HEAD_BYTES, FILE_HEAD_BYTES + 2 * INDEX_RECORD_BYTES, -1])
def test_an_index_that_became_shorter_takes_no_message_away(eight: Stream, size: int) -> None:
    cut(eight.path / index_name(0), size)
    whole = [(number, b"m%d" % number) for number in range(8)]
    assert read_messages(eight) == whole
    with eight.segments()[0].open() as reader:
        for _ in range(2):
            assert len(reader.chunks(refresh=True)) == 8
    assert read_tail(eight).next_offset == stream_info(eight).next_offset == 8
    assert stream_info(eight).num_messages == 8
    assert any(isinstance(found, Damage) and found.path == eight.path / index_name(0) for found in verify_stream(eight))
    with Writer.open(eight, now_ms=9) as writer:
        # A publisher that asks, and one that sends all again, find them counted once.
        assert writer.last_sequence("p") == 7
        again = [(b"m%d" % number, None) for number in range(9)]
        assert writer.append(again, now_ms=9, publisher="p", sequences=range(9)).num_duplicates == 8
    assert read_messages(eight) == [*whole, (8, b"m8")]
    assert not [found for found in verify_stream(eight) if isinstance(found, Damage)]


def test_the_index_of_a_stream_that_nobody_writes_is_repaired(eight: Stream) -> None:
    cut(eight.path / index_name(0), FILE_HEAD_BYTES + 2 * INDEX_RECORD_BYTES)
    [repair] = repair_stream(eight, now_ms=0)
    assert "8 records" in str(repair)
    assert not [found for found in verify_stream(eight) if isinstance(found, Damage)]


def test_nobody_sees_what_a_writer_has_not_confirmed(eight: Stream) -> None:
    with Writer.open(eight, now_ms=0):
        cut(eight.path / index_name(0), FILE_HEAD_BYTES + 6 * INDEX_RECORD_BYTES)
        assert chunk_ids(eight) == list(range(6))
        assert not [found for found in verify_stream(eight) if isinstance(found, Damage)]


def test_a_foreign_folder_is_read_as_its_index_says_and_verify_reports_the_rest(eight: Stream) -> None:
    (eight.path / "stream.json").unlink()
    (eight.path / "writer.lock").unlink()
    stream = Stream.open(eight.path)
    cut(stream.path / index_name(0), FILE_HEAD_BYTES + 2 * INDEX_RECORD_BYTES)
    assert chunk_ids(stream) == [0, 1]
    [damage] = [found for found in verify_stream(stream) if isinstance(found, Damage)]
    assert "6 whole chunks" in damage.reason and damage.path == stream.path / index_name(0)


UNCOVERED = CHUNK_HEADER_BYTES + 16 + 6
"""Bytes of a chunk of `eight` before its trailer: header, Bloom filter, one entry."""

NOT_WHOLE: dict[str, tuple[int, bytes]] = {
    "data": (UNCOVERED - 1, b"x"),
    "filter of zeros": (CHUNK_HEADER_BYTES, bytes(16)),
    "trailer of zeros": (UNCOVERED, bytes(11)),
    "offset": (31, b"\x07"),
    "epoch": (16, bytes(8)),
    "no records": (4, bytes(4)),
    "magic": (0, b"\0"),
}


def break_chunk_5(stream: Stream, part: str) -> int:
    """Damage a part of it behind an index that is cut to two records; gives where the chunk begins."""
    at, content = NOT_WHOLE[part]
    with stream.segments()[0].open() as reader:
        position = int(reader.chunks().position[5])
    raw = bytearray((stream.path / segment_name(0)).read_bytes())
    assert raw[position + at : position + at + len(content)] != content
    raw[position + at : position + at + len(content)] = content
    (stream.path / segment_name(0)).write_bytes(raw)
    cut(stream.path / index_name(0), FILE_HEAD_BYTES + 2 * INDEX_RECORD_BYTES)
    return position


@pytest.mark.parametrize("part", NOT_WHOLE)
def test_only_whole_chunks_in_sequence_are_kept_behind_the_index(eight: Stream, part: str) -> None:
    with eight.segments()[0].open() as reader:
        stop = int(reader.chunks().position[6])
    break_chunk_5(eight, part)
    cut(eight.path / segment_name(0), stop)
    assert chunk_ids(eight) == list(range(5))
    assert reopened(eight) == expected(0, 1, 2, 3, 4)


@pytest.mark.parametrize("part", NOT_WHOLE)
def test_whole_chunks_behind_a_damaged_one_are_not_cut_off_with_it(eight: Stream, part: str) -> None:
    position = break_chunk_5(eight, part)
    before = file_bytes(eight.path)
    for look in (read_messages, reopened):
        with pytest.raises(CorruptChunkError, match=r"chunk 6 .* is whole; .*--skip-damaged") as caught:
            look(eight)
        assert (caught.value.path, caught.value.position) == (eight.path / segment_name(0), position)
    assert any(isinstance(found, Damage) and found.position == position for found in verify_stream(eight))
    after = file_bytes(eight.path)
    assert {name: after[name] for name in before if name != "writer.lock"} == {
        name: content for name, content in before.items() if name != "writer.lock"
    }
    list(repair_stream(eight, now_ms=9, skip_damaged=True))
    left = read_messages(eight)
    assert [number for number, _ in left if number != 5] == [0, 1, 2, 3, 4, 6, 7]
    assert reopened(eight) == [*(body for _, body in left), b"after"]


@pytest.mark.parametrize("size", [0, 3, 8])
def test_a_pair_cut_inside_its_heads_is_made_new(tmp_path: Path, size: int) -> None:
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0)
    before = file_bytes(stream.path)
    cut(stream.path / segment_name(0), size)
    cut(stream.path / index_name(0), size)
    Writer.open(stream, now_ms=0).close()
    assert file_bytes(stream.path) == before


@pytest.mark.parametrize("name", [segment_name(0), index_name(0)])
def test_a_file_head_that_no_crash_leaves_is_an_error(tmp_path: Path, name: str) -> None:
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0)
    (stream.path / name).write_bytes(b"\xff" * 100)
    with pytest.raises(CorruptChunkError, match="file head is ff") as caught:
        Writer.open(stream, now_ms=0)
    assert caught.value.path == stream.path / name


def test_an_empty_pair_that_is_whole_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0)
    changes = []
    for name in ("ftruncate", "pwrite"):
        monkeypatch.setattr(os, name, lambda *_, name=name: changes.append(name))
    assert recover(stream.path).num_chunks == 0
    assert not changes
    cut(stream.path / index_name(0), 3)
    recover(stream.path)
    assert changes == ["pwrite"]


def test_a_stream_that_lost_all_files_does_not_begin_again(tmp_path: Path) -> None:
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0)
    (stream.path / segment_name(0)).unlink()
    (stream.path / index_name(0)).unlink()
    with pytest.raises(CorruptChunkError, match="log files are gone"):
        reopened(stream)


def test_rubbish_of_renames_and_foreign_files_do_not_disturb(rolled: Stream) -> None:
    rubbish = [f".{index_name(6)}.new", ".stream.json.123.new"]
    # The last one is being written, by another thread of this process.
    others = ["notes.txt", "123.segment", "00000000000000000009.index.bak", f".match-filters.json.{os.getpid()}.new"]
    for name in rubbish + others:
        (rolled.path / name).write_bytes(b"x")
    assert reopened(rolled) == expected(0, 1, 2, 3, 4, 5)
    assert not any((rolled.path / name).exists() for name in rubbish)
    assert all((rolled.path / name).exists() for name in others)


def test_a_chunk_whose_trailer_is_cut_off_is_dropped(tmp_path: Path) -> None:
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0)
    with Writer.open(stream, now_ms=0) as writer:
        for number in range(2):
            writer.append([(b"m%d" % number, None)], now_ms=0, publisher="p", sequences=[number])
    cut(stream.path / segment_name(0), -1)
    with Writer.open(stream, now_ms=0) as writer:
        assert writer.last_sequence("p") == 0
    assert reopened(stream) == expected(0)


def test_an_index_record_that_points_anywhere_is_dropped(tmp_path: Path) -> None:
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0)
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(b"m0", None)], now_ms=0)
    append(stream.path / index_name(0), b"\xff" * INDEX_RECORD_BYTES)
    assert reopened(stream) == expected(0)
