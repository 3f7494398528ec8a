"""Any bytes may be wrong anywhere: what reads or recovers a folder raises a named error with the place, or goes on."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunks import append_chunk
from headgate.errors import LogError
from headgate.log import BloomMatcher, ChunkType, OffsetSpecification, Stream, StreamArguments, Writer
from headgate.log.entries import SubBatch, unpack_chunk
from headgate.log.format import CHUNK_HEADER_BYTES, Compression
from headgate.log.inspection import Damage, dump_chunks, stream_info, verify_stream
from headgate.log.tracking import read_tracking
from log_streams import quick_folder

FILES = [f"{chunk_id:020d}.{kind}" for chunk_id in (0, 6) for kind in ("segment", "index")]


@pytest.fixture(scope="module")
def whole() -> Iterator[Path]:
    """Two segments: user chunks with and without filter values, sub-batches, a snapshot and a delta."""
    with quick_folder() as folder:
        arguments = StreamArguments(max_segment_chunks=4)
        stream = Stream.create(Path(folder) / "s", name="s", now_ms=0, arguments=arguments)
        with Writer.open(stream, now_ms=0) as writer:
            for number in range(6):
                entries = [(b"m%d" % number, b"v"), SubBatch.of([b"x" * 30], Compression(number % 5))]
                messages = entries[:1] if number % 2 else entries
                append_chunk(writer, messages, now_ms=number, publisher="p", sequence=2 * number + len(messages) - 1)
                if number == 2:
                    writer.store_offset("group", 1)
                    writer.flush_offsets(now_ms=2)
        yield stream.path


def read_everything(stream: Stream) -> None:
    matcher = BloomMatcher(["v"], match_unfiltered=True)
    for segment in stream.segments():
        with segment.open() as reader:
            table = reader.chunks(refresh=True)
            headers = reader.headers(0, len(table))
            matcher.match_many(headers.data, headers.bloom_positions, headers.bloom_length)
            for row in range(len(table)):
                header = reader.header(row)
                start = int(table.position[row]) + CHUNK_HEADER_BYTES + header.bloom_length
                data = reader.read(start, start + header.data_length)[: header.data_length].tobytes()
                if header.chunk_type == ChunkType.USER:
                    unpack_chunk(header, data, limit_bytes=10_000, path=segment.segment_path, position=start)


def attach_everywhere(stream: Stream) -> None:
    for text in ("first", "last", "next", "3", "8", "99", "1970-01-01", "10m"):
        stream.attach(OffsetSpecification.parse(text), now_ms=10**6)


def recover_and_append(stream: Stream) -> None:
    with Writer.open(stream, now_ms=0) as writer:
        appended = writer.append([(b"after", None)], now_ms=0)
        assert appended.next_offset == writer.next_offset


READERS: list[Callable[[Stream], object]] = [
    read_everything,
    attach_everywhere,
    stream_info,
    read_tracking,
    lambda stream: stream.next_offset(),
    lambda stream: Stream(stream.path, None).filter_size_bytes,
]

CHANGES = st.lists(
    st.tuples(
        st.sampled_from(FILES),
        st.integers(0, 900),
        st.binary(min_size=1, max_size=8) | st.just(b"\xff" * 8) | st.just(bytes(40)),
    ),
    min_size=1,
    max_size=3,
)


def check(stream: Stream) -> None:
    for reader in READERS:
        for view in (stream, Stream(stream.path, None)):
            with contextlib.suppress(LogError):
                reader(view)
    for found in [*verify_stream(stream), *dump_chunks(stream, check_crc=True)]:
        assert not isinstance(found, Damage) or found.path.parent == stream.path
    with contextlib.suppress(LogError):
        recover_and_append(stream)
    recovered = list(verify_stream(stream))
    assert all(not isinstance(found, Damage) or str(found) for found in recovered)


@given(CHANGES)
def test_overwritten_bytes_are_a_named_error_or_no_error(whole: Path, changes: list[tuple[str, int, bytes]]) -> None:
    with quick_folder() as folder:
        copy = Path(shutil.copytree(whole, Path(folder) / "s"))
        for name, position, data in changes:
            path = copy / name
            raw = bytearray(path.read_bytes())
            at = position % len(raw)
            raw[at : at + len(data)] = data
            path.write_bytes(raw)
        check(Stream.open(copy))


@given(st.sampled_from(FILES), st.integers(0, 900))
def test_a_file_cut_anywhere_is_a_named_error_or_no_error(whole: Path, name: str, size: int) -> None:
    with quick_folder() as folder:
        copy = Path(shutil.copytree(whole, Path(folder) / "s"))
        raw = (copy / name).read_bytes()
        (copy / name).write_bytes(raw[: size % len(raw)])
        check(Stream.open(copy))


def test_the_whole_folder_has_the_files_that_are_damaged(whole: Path) -> None:
    assert sorted(path.name for path in whole.iterdir() if path.suffix in (".segment", ".index")) == sorted(FILES)
    assert not any(isinstance(found, Damage) for found in verify_stream(Stream.open(whole)))
