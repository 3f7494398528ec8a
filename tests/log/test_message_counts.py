"""Messages counted from index files: as many as reading finds, and no index record looked at twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headgate.errors import LogError
from headgate.log import Segment, Stream, StreamArguments, Writer, message_counts
from headgate.log.files import DiskFile
from headgate.log.format import FILE_HEAD_BYTES, ChunkType
from headgate.log.inspection import ChunkDump, dump_chunks
from headgate.log.message_counts import MessageCounts
from headgate.log.pairs import create_pair, delete_pair
from log_streams import read_messages


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """Segments of three chunks, so that snapshots are written, too."""
    return Stream.create(tmp_path / "s", name="s", now_ms=0, arguments=StreamArguments(max_segment_chunks=3))


def write(stream: Stream, rounds: int) -> None:
    """Messages, each batch with an offset that is stored in a chunk of its own."""
    with Writer.open(stream, now_ms=1) as writer:
        for number in range(rounds):
            writer.append([(b"m", None)] * (number % 4 + 1), now_ms=1)
            writer.store_offset(b"app", number)
            writer.flush_offsets(now_ms=1)


def user_offsets(stream: Stream) -> list[int]:
    """The offsets of all messages, from the headers of all chunks."""
    headers = [found.header for found in dump_chunks(stream, check_crc=False) if isinstance(found, ChunkDump)]
    return [
        offset
        for header in headers
        if header.chunk_type == ChunkType.USER
        for offset in range(header.chunk_id, header.next_chunk_id)
    ]


def assert_right(counts: MessageCounts, stream: Stream, step: int = 1) -> None:
    offsets, end = user_offsets(stream), stream.next_offset()
    for start in range(end, stream.first_offset() - 1, -step):
        assert counts.between(stream, start, end) == sum(offset >= start for offset in offsets), start


def test_messages_are_counted_and_tracking_chunks_are_not(stream: Stream) -> None:
    counts = MessageCounts()
    assert counts.between(stream, 0, 0) == 0
    write(stream, 10)
    offsets, end = user_offsets(stream), stream.next_offset()
    assert end - len(offsets) > 10, "ten stored offsets, and snapshots"
    assert_right(counts, stream)
    assert counts.between(stream, 3, 9) == sum(3 <= offset < 9 for offset in offsets)
    write(stream, 5)
    assert_right(counts, stream)
    assert MessageCounts().between(stream, 0, stream.next_offset()) == len(user_offsets(stream))


def test_index_files_are_read_once_and_only_from_the_offset_that_is_asked_for(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    original = message_counts._read

    def noted(segment: Segment, known: message_counts._Index | None) -> message_counts._Index:
        read.append(segment.first_chunk_id)
        return original(segment, known)

    monkeypatch.setattr(message_counts, "_read", noted)
    write(stream, 10)
    counts, ids = MessageCounts(), [segment.first_chunk_id for segment in stream.segments()]
    end = stream.next_offset()
    counts.between(stream, ids[-2], end)
    assert read == ids[-2:]
    read.clear()
    counts.between(stream, 0, end)
    assert read == [*ids[:-2], ids[-1]]
    read.clear()
    for start in (0, 5, end - 1):
        counts.between(stream, start, end)
    assert read == []
    write(stream, 1)
    counts.between(stream, 0, stream.next_offset())
    assert read == [segment.first_chunk_id for segment in stream.segments() if segment.first_chunk_id >= ids[-1]]


@pytest.mark.parametrize("has_begun_another", [False, True])
def test_records_that_a_recovery_cut_are_forgotten(stream: Stream, has_begun_another: bool) -> None:
    counts = MessageCounts()
    with Writer.open(stream, now_ms=1) as writer:
        writer.append([(b"m", None)], now_ms=1)
        writer.append([(b"m", None)], now_ms=1)
        writer.store_offset(b"app", 0)
        writer.flush_offsets(now_ms=1)
    if has_begun_another:
        # Its first chunk was never written: recovery deletes it, and cuts the one before, which was complete.
        for file in create_pair(stream.path, 3, DiskFile):
            file.close()
    assert counts.between(stream, 0, 3) == 2
    if has_begun_another:
        delete_pair(stream.path, 3)
    (segment,) = stream.segments()
    os.truncate(segment.segment_path, segment.segment_path.stat().st_size - 1)
    with Writer.open(stream, now_ms=2) as writer:
        writer.append([(b"m", None)] * 2, now_ms=2)
    assert_right(counts, stream)
    assert counts.between(stream, 0, 4) == 4


def test_records_that_readers_pass_over_count_nothing(stream: Stream) -> None:
    with Writer.open(stream, now_ms=1) as writer:
        for number in range(2):
            writer.append([(b"m%d" % number, None)], now_ms=1)
    index = stream.segments()[-1].index_path
    whole = index.read_bytes()
    for start in range(FILE_HEAD_BYTES, len(whole)):
        index.write_bytes(whole + whole[start:])
        try:
            offsets = [offset for offset, _ in read_messages(stream)]
        except LogError:
            continue
        assert MessageCounts().messages(stream, 0, stream.next_offset()).tolist() == offsets, start


def test_a_newest_pair_that_is_made_again_is_read_again(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = MessageCounts()
    write(stream, 1)
    for file in create_pair(stream.path, 3, DiskFile):
        file.close()
    listed = stream.segments()
    delete_pair(stream.path, 3)
    with monkeypatch.context() as patch:
        patch.setattr(Stream, "segments", lambda _: listed)
        assert counts.between(stream, 0, 2) == 1
    write(stream, 6)
    assert_right(counts, stream)


def test_what_retention_deleted_needs_no_file(stream: Stream) -> None:
    counts = MessageCounts()
    write(stream, 10)
    assert counts.between(stream, 0, stream.next_offset()) == len(user_offsets(stream))
    with Writer.open(stream, now_ms=1) as writer:
        writer.change(now_ms=1, arguments=StreamArguments(max_segment_chunks=3, max_length_bytes=1))
    write(stream, 2)
    assert stream.first_offset() > 0
    assert_right(counts, stream)
    assert_right(MessageCounts(), stream)
