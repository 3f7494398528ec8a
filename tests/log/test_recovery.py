"""Damage of the last pair of files and what is left after a start: RabbitMQ's own table, and the cases beside it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import CorruptChunkError
from headgate.log import Stream, StreamArguments, Writer
from headgate.log.format import FILE_HEAD_BYTES, INDEX_RECORD_BYTES, index_name, segment_name
from headgate.log.recovery import recover
from log_streams import chunk_ids, file_bytes, read_messages

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


def boundaries(case: dict[str, Any]) -> list[int]:
    """Chunk ids of a stream of 12 messages that the damage leaves as the table says."""
    return sorted({*case["chunks_readable"], *range(case["offset_of_next_write"], case["next_offset_before"], 2)})


@pytest.mark.parametrize("case", TABLE, ids=[case["damage"] for case in TABLE])
def test_a_damaged_stream_recovers_as_the_original_does(case: dict[str, Any], tmp_path: Path) -> None:
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0)
    first_ids = boundaries(case)
    with Writer.open(stream, now_ms=0) as writer:
        for first, stop in zip(first_ids, [*first_ids[1:], 12], strict=True):
            writer.append([(b"message %d" % number, b"value") for number in range(first, stop)], now_ms=first)
        assert writer.next_offset == 12
    segment, index = stream.path / segment_name(0), stream.path / index_name(0)
    with stream.segments()[0].open() as reader:
        positions = reader.chunks().position.tolist()
    damages(segment, index, positions)[case["damage"]]()
    with Writer.open(stream, now_ms=100) as writer:
        assert chunk_ids(stream) == case["chunks_readable"]
        assert writer.next_offset == case["offset_of_next_write"]
        assert index.stat().st_size == FILE_HEAD_BYTES + INDEX_RECORD_BYTES * len(case["chunks_readable"])
        with stream.segments()[0].open() as reader:
            assert segment.stat().st_size == reader.stop_position
        appended = writer.append([(b"after", None)], now_ms=100)
        assert appended.chunk_ids.tolist() == [case["offset_of_next_write"]]
    assert chunk_ids(stream) == [*case["chunks_readable"], case["offset_of_next_write"]]


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


def test_an_oldest_segment_without_an_index_is_what_retention_left(rolled: Stream) -> None:
    (rolled.path / index_name(0)).unlink()
    assert reopened(rolled) == expected(2, 3, 4, 5)
    assert not (rolled.path / segment_name(0)).exists()


def test_a_last_pair_of_which_no_chunk_is_good_is_given_up(rolled: Stream) -> None:
    cut(rolled.path / index_name(4), FILE_HEAD_BYTES)
    assert reopened(rolled) == expected(0, 1, 2, 3)


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
