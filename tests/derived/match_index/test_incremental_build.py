"""The index of a stream that is being written, step by step: reads are the same at every moment, whatever happens."""

from __future__ import annotations

import errno
import os
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.derived.match_index import incremental_build
from headgate.derived.match_index.identity import key_of
from headgate.derived.match_index.incremental_build import GrowingIndex
from headgate.derived.match_index.registry import REGISTRY_NAME, FilterRegistry
from headgate.derived.match_index.settings import IndexSettings
from headgate.derived.match_index.source import MatchIndex, SegmentIndex
from headgate.errors import StorageFullError
from headgate.evaluate import Filter
from headgate.log import Stream
from headgate.log.pairs import delete_pair
from headgate.log.sidecar import Sidecar, sidecar_path
from headgate.scan import OffsetRange
from match_indexes import DIALECT, TEXTS, WRITES, Write, append, assert_same, build_index, create, register, requests

MANY = [Write((("AMER", number % 7), ("EMEA", number % 5), (None, 2)), packed=False) for number in range(20)]
LARGE = 10**6
"""One segment holds all."""


def index_all(index: GrowingIndex, stream: Stream) -> None:
    """All that was committed, and all that was missing."""
    for _ in range(1000):
        if not index.step(stream.next_offset()):
            return
    raise AssertionError("it never ends")


def decided(stream: Stream, text: str = TEXTS[0]) -> int:
    """How many messages a reader of a filter believes the index about; what it gives is the same."""
    assert_same(stream, text, stream.first_offset())
    return believed(stream, text)


def believed(stream: Stream, text: str = TEXTS[0]) -> int:
    """The number alone."""
    index, found = MatchIndex(Filter.parse(text, DIALECT)), 0
    for segment in stream.segments():
        with segment.open() as reader:
            rows = np.arange(len(reader.chunks()))
            for answer in index.answers(reader, rows, OffsetRange(0, stream.next_offset())):
                found += int(answer.records[answer.trusted].sum())
    return found


def only_sidecar(stream: Stream) -> Path:
    (segment,) = stream.segments()
    return sidecar_path(segment)


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """A stream of one segment, with filters that its broker calculates."""
    made = create(tmp_path / "s", MANY, segment_bytes=LARGE)
    register(made, by_the_broker=True)
    return made


@given(
    parts=st.lists(st.tuples(WRITES, st.integers(0, 3)), min_size=1, max_size=5),
    known=st.integers(0, len(TEXTS)),
    step_bytes=st.sampled_from([1, 500, 1 << 20]),
    most_blocks=st.sampled_from([1, 3, 100]),
    text=st.sampled_from((*TEXTS, "price = 2")),
    is_built=st.booleans(),
)
def test_reads_are_the_same_while_the_index_grows(
    parts: list[tuple[list[Write], int]],
    known: int,
    step_bytes: int,
    most_blocks: int,
    text: str,
    is_built: bool,
) -> None:
    """Chunks come, the index lags behind by some steps; filters come later, and a build replaces files meanwhile."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("error")
        patch.setattr(incremental_build, "STEP_BYTES", step_bytes)
        patch.setattr(incremental_build, "MOST_BLOCKS", most_blocks)
        patch.setattr(incremental_build, "_MOST_UNFINISHED", 1000)
        stream = create(Path(folder) / "s", parts[0][0])
        register(stream, TEXTS[:known], by_the_broker=True)
        index = GrowingIndex(stream, 0)
        for number, (writes, steps) in enumerate(parts):
            append(stream, writes, now_ms=number)
            for _ in range(steps):
                index.step(stream.next_offset())
            assert_same(stream, text)
            if number == 1:
                register(stream, by_the_broker=True)
            if number == 2 and is_built:
                build_index(stream, now_ms=5)
        register(stream, by_the_broker=True)
        index_all(index, stream)
        counters = assert_same(stream, text)
        if text in TEXTS[:known]:
            assert counters.messages_evaluated == 0
        assert not index.step(stream.next_offset())
        index.close()


def test_a_crash_at_every_byte_of_an_append_loses_nothing_that_was_there(tmp_path: Path) -> None:
    stream = create(tmp_path / "s", MANY[:2], segment_bytes=LARGE)
    register(stream, TEXTS[:2], by_the_broker=True)
    index_all(GrowingIndex(stream, 0), stream)
    path = only_sidecar(stream)
    before = path.read_bytes()
    append(stream, MANY[2:4])
    index_all(GrowingIndex(stream, 6), stream)
    after = path.read_bytes()
    assert after.startswith(before) and len(Sidecar.open(stream.segments()[0]).blocks) == 2  # type: ignore[union-attr]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for torn in range(len(before), len(after)):
            path.write_bytes(after[:torn])
            assert believed(stream) == 6
            if torn % 32 == 0:
                assert decided(stream) == 6
                # The next append begins where the last whole block ends.
                index_all(GrowingIndex(stream, 6), stream)
                assert path.read_bytes() == after


def test_a_bit_that_flips_anywhere_in_a_block_changes_no_result(tmp_path: Path) -> None:
    stream = create(tmp_path / "s", MANY[:2], segment_bytes=LARGE)
    register(stream, TEXTS[:2], by_the_broker=True)
    index = GrowingIndex(stream, 0)
    index_all(index, stream)
    append(stream, MANY[2:4])
    index_all(index, stream)
    path = only_sidecar(stream)
    sound = path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for place in range(0, len(sound), 19):
            path.write_bytes(sound[:place] + bytes([sound[place] ^ 0x10]) + sound[place + 1 :])
            assert decided(stream) in (0, 6, 12)


def test_who_has_it_open_sees_whole_blocks_only(stream: Stream) -> None:
    index = GrowingIndex(stream, 0)
    index_all(index, stream)
    path = only_sidecar(stream)
    before = path.read_bytes()
    append(stream, MANY[:3])
    index_all(index, stream)
    after = path.read_bytes()
    # The file becomes shorter, and grows again byte by byte.
    os.truncate(path, len(before))
    key = key_of(requests(TEXTS[0])[0].filter)  # type: ignore[arg-type]
    assert key is not None
    with stream.segments()[0].open() as reader, path.open("r+b") as file:
        shared = SegmentIndex(reader)
        for size in range(len(before), len(after) + 1):
            file.seek(len(before))
            file.write(after[len(before) : size])
            file.flush()
            assert shared.look() and shared.error is None
            cover = shared.cover(key)
            assert cover is not None
            assert np.count_nonzero(cover.owners >= 0) == (23 if size == len(after) else 20)


def test_what_a_late_filter_lacks_is_filled_in_behind_new_chunks(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = "price = 2"
    index = GrowingIndex(stream, stream.next_offset())
    append(stream, MANY[:2])
    assert index.step(stream.next_offset())
    assert decided(stream) == 6, "what is new comes first"
    index_all(index, stream)
    assert decided(stream) == 66
    FilterRegistry(stream).register("late", late, DIALECT, now_ms=9)
    append(stream, MANY[:3])
    assert index.step(stream.next_offset())
    assert (decided(stream, late), decided(stream)) == (9, 75)
    monkeypatch.setattr(incremental_build, "STEP_BYTES", 1)
    index.step(stream.next_offset())
    assert 9 < decided(stream, late) < 75
    index_all(index, stream)
    assert (decided(stream, late), decided(stream)) == (75, 75)


def test_what_was_there_before_is_filled_in_though_nothing_comes(stream: Stream) -> None:
    index = GrowingIndex(stream, stream.next_offset())
    assert index.has_news
    index_all(index, stream)
    assert decided(stream) == 60 and not index.has_news
    late = "price = 2"
    FilterRegistry(stream).register("late", late, DIALECT, now_ms=9)
    assert index.has_news
    index.close()
    index_all(index, stream)
    assert decided(stream, late) == 60 and not index.has_news
    (stream.path / REGISTRY_NAME).unlink()
    assert index.has_news
    assert index.step(stream.next_offset()) is False and not index.is_wanted and not index.has_news


def test_a_filter_that_is_dead_is_kept_up_and_one_that_is_gone_is_not(stream: Stream) -> None:
    index = GrowingIndex(stream, 0)
    registry = FilterRegistry(stream)
    registry.remove("group1#topic")
    index_all(index, stream)
    assert (decided(stream), decided(stream, TEXTS[1])) == (60, 0)
    registry.configure(IndexSettings())
    append(stream, MANY[:1])
    assert index.step(stream.next_offset()) is False and not index.is_wanted
    assert decided(stream) == 60
    registry.configure(IndexSettings(calculate_filter_bitmap=True))
    append(stream, MANY[:1])
    index_all(index, stream)
    assert decided(stream) == 66, "what came while it was switched off is filled in"


def test_a_file_that_is_removed_or_of_another_stream_is_made_again(tmp_path: Path, stream: Stream) -> None:
    index = GrowingIndex(stream, 0)
    index_all(index, stream)
    only_sidecar(stream).unlink()
    append(stream, MANY[:1])
    index_all(index, stream)
    assert decided(stream) == 63
    again = create(tmp_path / "again", MANY[:5], segment_bytes=LARGE)
    register(again, by_the_broker=True)
    only_sidecar(again).write_bytes(only_sidecar(stream).read_bytes())
    append(again, MANY[:1])
    index_all(GrowingIndex(again, again.next_offset() - 3), again)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decided(again) == 18


def test_retention_takes_segments_before_they_are_indexed(tmp_path: Path) -> None:
    stream = create(tmp_path / "s", [*MANY, *MANY, *MANY])
    register(stream, by_the_broker=True)
    index = GrowingIndex(stream, 0)
    index.step(1)
    gone = stream.segments()[:3]
    for segment in gone:
        delete_pair(stream.path, segment.first_chunk_id)
    index_all(index, stream)
    assert not any(sidecar_path(segment).exists() for segment in gone)
    assert decided(stream) == stream.next_offset() - stream.first_offset()


def test_full_segments_have_one_block(tmp_path: Path) -> None:
    stream = create(tmp_path / "s", MANY[:1])
    register(stream, by_the_broker=True)
    index = GrowingIndex(stream, 0)
    for write in [*MANY, *MANY]:
        append(stream, [write])
        index.step(stream.next_offset())
    index_all(index, stream)
    *full, newest = [Sidecar.open(segment) for segment in stream.segments()]
    assert len(full) > 1 and {len(each.blocks) for each in full if each is not None} == {1}
    assert newest is not None and len(newest.blocks) > 1
    assert decided(stream) == 123


def test_a_disk_that_is_full_leaves_what_was_there_and_is_tried_again(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = GrowingIndex(stream, 0)
    index_all(index, stream)
    before = only_sidecar(stream).read_bytes()
    append(stream, MANY[:2])
    original = os.pwrite

    def half(descriptor: int, data: memoryview, position: int) -> int:
        original(descriptor, data[: len(data) // 2], position)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("headgate.log.sidecar.os.pwrite", half)
        with pytest.raises(StorageFullError):
            index.step(stream.next_offset())
    assert only_sidecar(stream).read_bytes() == before
    index_all(index, stream)
    assert decided(stream) == 66
