"""Readers beside a writer in another process, which is killed and started again: never a torn chunk, nothing lost."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

import pytest

from headgate.log import BloomMatcher, OffsetSpecification, SegmentReader, Stream, StreamArguments, Writer
from headgate.log.entries import unpack_chunk
from headgate.log.format import CHUNK_HEADER_BYTES, FILE_HEAD_BYTES
from log_streams import read_messages

WRITER = """
import sys
from headgate.clock import patient
from headgate.log import Stream, Writer

stream = Stream.open(sys.argv[1])
with Writer.open(stream, now_ms=0, wait=patient(10.0)) as writer:
    last = writer.last_sequence("p")
    number = 0 if last is None else last + 1
    while True:
        size = 1 + number * 7 % 40
        batch = [(b"%08d" % (number + at) + bytes((number + at) % 200), b"v%d" % (at % 3)) for at in range(size)]
        writer.append(batch, now_ms=number, publisher="p", sequences=range(number, number + size))
        number += size
        sys.stdout.write("%d\\n" % number)
        sys.stdout.flush()
"""


class Follower:
    """Reads a growing stream chunk by chunk, as a scan does, and checks every byte it is given."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        place = stream.attach(OffsetSpecification.first(), now_ms=0)
        self.segment, self.row = place.segment, place.row
        self.reader: SegmentReader = place.segment.open()
        self.expected = 0
        self.chunks = 0

    def step(self) -> int:
        """Read what is there; 0 if there was neither a chunk to read nor another segment to go on with."""
        table = self.reader.chunks(refresh=True)
        before = self.chunks
        if self.row < len(table):
            headers = self.reader.headers(self.row, len(table))
            matcher = BloomMatcher(["v0"], match_unfiltered=True)
            passed = matcher.match_many(headers.data, headers.bloom_positions, headers.bloom_length)
            assert passed.all()
        while self.row < len(table):
            self._read(self.row)
            self.row += 1
            self.chunks += 1
        is_followed = self.stream.segments()[-1].first_chunk_id > self.segment.first_chunk_id
        if is_followed and len(self.reader.chunks(refresh=True)) == self.row:
            following = next(
                each for each in self.stream.segments() if each.first_chunk_id > self.segment.first_chunk_id
            )
            assert following.first_chunk_id == self.reader.next_chunk_id
            self.reader.close()
            self.segment, self.row = following, 0
            self.reader = following.open()
            return self.chunks - before + 1
        return self.chunks - before

    def _read(self, row: int) -> None:
        header = self.reader.header(row)
        start = int(self.reader.chunks().position[row]) + CHUNK_HEADER_BYTES + header.bloom_length
        data = self.reader.read(start, start + header.data_length)[: header.data_length].tobytes()
        assert zlib.crc32(data) == header.crc
        if header.chunk_type:
            return
        chunk = unpack_chunk(header, data, limit_bytes=0, path="segment", position=start)
        for at, length in zip(chunk.starts, chunk.lengths, strict=True):
            body = chunk.data[at : at + length].tobytes()
            assert int(body[:8]) == self.expected
            assert length == 8 + self.expected % 200
            self.expected += 1


def test_a_reader_that_waits_in_an_empty_segment_follows_when_recovery_makes_it_anew(tmp_path: Path) -> None:
    """Its writer is killed before the first chunk of a new segment: recovery deletes that pair, it is made again."""
    arguments = StreamArguments(max_segment_size_bytes=1 << 20)
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0, arguments=arguments)
    with Writer.open(stream, now_ms=0) as writer:
        while len(stream.segments()) == 1:
            writer.append([(bytes(100_000), None)], now_ms=0)
        made = writer.next_offset - 1
    newest = stream.segments()[-1]
    assert newest.first_chunk_id == made
    for path in (newest.segment_path, newest.index_path):
        os.truncate(path, FILE_HEAD_BYTES)
    with newest.open() as reader:
        assert len(reader.chunks()) == 0
        with Writer.open(stream, now_ms=0) as writer:
            while len(stream.segments()) < 4:
                writer.append([(bytes(100_000), None)], now_ms=0)
        rows = len(reader.chunks(refresh=True))
        assert rows > 1
        assert reader.next_chunk_id == stream.segments()[2].first_chunk_id
        assert [reader.header(row).chunk_id for row in (0, rows - 1)] == [made, reader.next_chunk_id - 1]


@pytest.mark.faults
def test_a_reader_follows_writers_that_are_killed_again_and_again(tmp_path: Path) -> None:
    arguments = StreamArguments(max_segment_size_bytes=200_000)
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0, arguments=arguments)
    follower = Follower(stream)
    confirmed = 0
    for _ in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(stream.path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            lines: list[str] = []
            drain = threading.Thread(target=lines.extend, args=(writer.stdout,))
            drain.start()
            target = follower.chunks + 150
            give_up = time.monotonic() + 60
            # An earlier writer may have left more than that: this one must have written, too.
            while follower.chunks < target or not lines:
                assert writer.poll() is None
                assert time.monotonic() < give_up
                follower.step()
            writer.kill()
            writer.wait()
            drain.join()
            confirmed = max(confirmed, *(int(line) for line in lines if line.endswith("\n")))
    # A chunk that its writer was killed behind, before the index had it, is there for readers after the recovery.
    with Writer.open(stream, now_ms=0) as last:
        while follower.step():
            pass
        assert last.last_sequence("p") == follower.expected - 1
    assert follower.expected >= confirmed
    assert len(stream.segments()) > 2
    assert [int(body[:8]) for _, body in read_messages(stream)] == list(range(follower.expected))
