"""Pages of mapped files are given back while they are read."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from headgate.log import SegmentReader, Stream, StreamArguments, Writer, mappings

MOST = 64 << 10


class Counted(mmap.mmap):
    """A mapping that notes what is given back of it."""

    given_back: ClassVar[list[tuple[int, int]]] = []

    def madvise(self, option: int, start: int = 0, length: int = 0) -> None:
        assert option == mmap.MADV_DONTNEED
        super().madvise(option, start, length)
        Counted.given_back.append((start, start + length))


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    """Two segments of half a mebibyte, the first of them sealed, and a limit of an eighth of that."""
    arguments = StreamArguments(max_segment_size_bytes=1 << 19)
    made = Stream.create(tmp_path / "s", name="s", now_ms=0, arguments=arguments)
    with Writer.open(made, now_ms=0) as writer:
        for _ in range(280):
            writer.append([(b"x" * 4000, b"v")], now_ms=0)
    assert len(made.segments()) == 3
    monkeypatch.setattr(mappings, "MOST_USED_BYTES", MOST)
    monkeypatch.setattr(mappings.MAPPINGS, "_used_bytes", 0)
    monkeypatch.setattr(mmap, "mmap", Counted)
    Counted.given_back.clear()
    return made


def by_windows(reader: SegmentReader) -> bytes:
    stops = range(1 << 14, reader.stop_position, 1 << 14)
    return b"".join(reader.read(stop - (1 << 14), stop)[: 1 << 14].tobytes() for stop in stops)


def by_chunks(reader: SegmentReader) -> bytes:
    found = []
    for row, position in enumerate(reader.chunks().position.tolist()):
        stops = reader.stops_of(np.array([row]))
        data, (start,) = reader.gather(np.array([position]), stops)
        found.append(data[start : start + int(stops[0]) - position].tobytes())
    return b"".join(found)


def by_headers(reader: SegmentReader) -> bytes:
    count = len(reader.chunks())
    for row in range(0, count, 4):
        assert (reader.headers(row, min(row + 4, count)).num_records == 1).all()
    return b""


@pytest.mark.parametrize("look", [by_windows, by_chunks, by_headers])
def test_no_more_is_kept_than_the_limit_and_what_is_read_now(
    stream: Stream, look: Callable[[SegmentReader], bytes]
) -> None:
    first = stream.segments()[0]
    with first.open() as reader:
        size = int(reader.chunks().position[-1])
        looked = look(reader)
        assert looked in first.segment_path.read_bytes()
    kept = set(range(0, size, mmap.PAGESIZE))
    for start, stop in Counted.given_back:
        # What was used last is kept, which is at most half of the limit, and as much is used before more is given back.
        kept -= set(range(start, stop, mmap.PAGESIZE))
    assert len(kept) * mmap.PAGESIZE <= MOST + MOST // 4


def test_what_is_read_here_and_there_is_given_back_and_views_stay_what_they_were(stream: Stream) -> None:
    segments = stream.segments()[:2]
    readers = [segment.open() for segment in segments]
    views = [reader.read(8, 4008) for reader in readers]
    before = [view.tobytes() for view in views]
    for start in (300_000, 100_000, 400_000, 20_000) * 8:
        readers[0].read(start, start + 8_000)
    assert (0, 4096) not in Counted.given_back and len(Counted.given_back) >= 3
    assert min(start for start, _ in Counted.given_back) == 0
    assert max(stop for _, stop in Counted.given_back) >= 400_000
    assert [view.tobytes() for view in views] == before
    for reader in readers:
        reader.close()
