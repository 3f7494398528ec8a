"""The ends of a stream in a few reads are those that its whole index gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import CorruptChunkError
from headgate.log import Stream, StreamArguments, Writer
from headgate.log.format import FILE_HEAD_BYTES, INDEX_RECORD_BYTES
from headgate.log.lock import StreamLock
from headgate.log.tail import NO_CHUNK, read_tail
from log_streams import chunk_ids


def test_the_ends_follow_what_is_written_past_rollovers_and_retention(tmp_path: Path) -> None:
    arguments = StreamArguments(max_segment_size_bytes=300, max_length_bytes=700)
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0, arguments=arguments)
    tail = read_tail(stream)
    assert (tail.first_offset, tail.next_offset, tail.last_chunk_id) == (0, 0, NO_CHUNK)
    with Writer.open(stream, now_ms=0) as writer:
        for number in range(20):
            writer.append([(b"m" * 40, None)] * 2, now_ms=number)
            tail = read_tail(stream)
            assert (tail.first_offset, tail.next_offset) == (stream.first_offset(), stream.next_offset())
            assert tail.last_chunk_id == chunk_ids(stream)[-1] == 2 * number
            assert tail.index_size_bytes == tail.newest_index.stat().st_size
    assert tail.first_offset > 0


def test_records_that_a_crash_left_behind_the_last_chunk_are_passed_over(tmp_path: Path) -> None:
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0)
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(b"m", None)] * 3, now_ms=0)
    index = stream.segments()[-1].index_path
    whole = index.read_bytes()
    beyond = bytes(24) + (1 << 20).to_bytes(4, "big") + b"\0"
    for leftover in (bytes(INDEX_RECORD_BYTES), beyond, b"\xff" * 5, bytes(2 * INDEX_RECORD_BYTES) + b"\1"):
        index.write_bytes(whole + leftover)
        assert (read_tail(stream).next_offset, read_tail(stream).last_chunk_id) == (3, 0)
    index.write_bytes(whole[:FILE_HEAD_BYTES])
    with StreamLock.acquire(stream.path, now_ms=0):
        assert (read_tail(stream).next_offset, read_tail(stream).last_chunk_id) == (0, NO_CHUNK)
    assert (read_tail(stream).next_offset, read_tail(stream).last_chunk_id) == (3, 0)


def test_a_folder_without_log_files_has_no_ends(tmp_path: Path) -> None:
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0)
    for segment in stream.segments():
        segment.index_path.unlink()
    with pytest.raises(CorruptChunkError, match="log files are gone"):
        read_tail(stream)
