"""What is decided for all filters at once: how far it reaches, what stays of it, and what damage does."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from headgate.errors import CorruptChunkError
from headgate.evaluate.filter import Filter
from headgate.log import ChunkTable, Stream, memory_of
from headgate.log.format import CHUNK_HEADER_BYTES
from headgate.scan import ScanCounters, ScanRequest
from headgate.scan.fetch import ChunkPortion, Fetcher, Portion, SharedLog, SharedReads, Takes, results
from headgate.scan.fetch import window as window_module
from headgate.scan.fetch.segments import OpenSegment, SegmentView
from headgate.scan.fetch.tiles import Tile, Tiles
from headgate.scan.fetch.window import Int64Array, SharedChunks
from headgate.scan.reading import Window
from headgate.scan.stage_two import Decider
from shared_streams import Piece, write_stream

CHUNKS, PER_CHUNK = 40, 50
FILTERS = [Filter.parse(f"n % 10 = {number}") for number in range(6)]
EVEN_AND_LARGE = [Filter.parse(f"n >= 1900 AND n % 10 = {number}") for number in range(6)]


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return write_stream(tmp_path, [Piece(PER_CHUNK, "plain")] * CHUNKS, segment_bytes=1 << 30)


@pytest.fixture
def log(stream: Stream) -> SharedLog:
    return SharedLog(stream, SharedReads())


def _table(stream: Stream) -> ChunkTable:
    with stream.segments()[0].open() as reader:
        return reader.chunks()


class Waiting:
    """A reader at the beginning that waits for more."""

    offset, is_waiting, is_delivering = 0, True, False

    def __init__(self, log: SharedLog, wanted: Filter, takes: Takes = Takes.MESSAGES) -> None:
        self.fetcher = Fetcher(log, self, ScanRequest(filter=wanted), takes)

    def read(self, offset: int) -> Portion | None:
        portion = self.fetcher.fetch(offset, 0, self.fetcher.decided(offset))
        assert portion is None or isinstance(portion, Portion)
        return portion

    def is_decided(self, offset: int) -> bool:
        return self.fetcher.decided(offset) is not None


def _readers(log: SharedLog, filters: list[Filter]) -> list[Waiting]:
    return [Waiting(log, each) for each in filters]


def _read_all(reader: Waiting, found: list[int] | None = None) -> list[int]:
    found = [] if found is None else found
    offset = 0
    while (portion := reader.read(offset)) is not None:
        found += [each for batch in portion.batches for each in batch.offsets.tolist()]
        offset = portion.next_offset
    return found


def test_results_end_where_enough_was_kept_and_the_next_begin_there(
    log: SharedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "_STEP_BYTES", 20_000)
    monkeypatch.setattr(results, "_KEPT_BYTES", 30_000)
    readers = _readers(log, FILTERS)
    for number, reader in enumerate(readers):
        assert _read_all(reader) == list(range(number, CHUNKS * PER_CHUNK, 10))
    ends = [(tile.first_offset, tile.next_offset) for tile in log._results]
    assert len(ends) > 2
    assert [first for first, _ in ends] == [0, *(stop for _, stop in ends[:-1])]
    assert ends[-1][1] == CHUNKS * PER_CHUNK
    assert log.reads.bytes_held < 400_000


def test_results_of_filters_that_keep_little_reach_far(log: SharedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_STEP_BYTES", 20_000)
    monkeypatch.setattr(results, "_KEPT_BYTES", 30_000)
    for number, reader in enumerate(_readers(log, EVEN_AND_LARGE)):
        assert _read_all(reader) == list(range(1900 + number, CHUNKS * PER_CHUNK, 10))
    assert [(tile.first_offset, tile.next_offset) for tile in log._results] == [(0, CHUNKS * PER_CHUNK)]
    assert log.reads.bytes_held < 40_000


def test_of_a_long_file_results_and_windows_are_views_in_several_steps_and_with_what_was_copied(
    log: SharedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [list(range(number, CHUNKS * PER_CHUNK, 10)) for number in range(6)]
    monkeypatch.setattr(results, "_STEP_BYTES", 20_000)
    # From the second step on: what the first one kept is a copy, and is joined with views.
    views = iter([False])
    load = results.load_rows

    def load_rows(opened: OpenSegment, view: SegmentView, rows: Int64Array) -> Window:
        monkeypatch.setattr(window_module, "_MAPPED_BYTES", 1 if next(views, True) else 1 << 30)
        return load(opened, view, rows)

    monkeypatch.setattr(results, "load_rows", load_rows)
    assert [_read_all(reader) for reader in _readers(log, FILTERS)] == kept
    # The last chunk of a file that grows is never a view, so results that end before it are looked at.
    monkeypatch.setattr(results, "_KEPT_BYTES", 30_000)
    with closing(SharedLog(log.stream, SharedReads())) as again:
        first, *others = _readers(again, FILTERS)
        portion = first.read(0)
        assert portion is not None and memory_of(portion.batches[0].messages.data) is None
        assert [_read_all(reader) for reader in (first, *others)] == kept
        assert next(iter(again._results)).charged_bytes < results._KEPT_BYTES, "less than what it keeps"


def test_what_is_decided_is_given_without_a_look_at_a_file(log: SharedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = _readers(log, FILTERS)
    assert not any(reader.is_decided(0) for reader in (first, *others))
    assert first.read(0) is not None
    monkeypatch.setattr(SharedLog, "place", lambda log, offset: pytest.fail(f"looked for {offset}"))
    for number, reader in enumerate(others, 1):
        assert reader.is_decided(0) and reader.is_decided(17) and not reader.is_decided(CHUNKS * PER_CHUNK)
        portion = reader.read(17)
        assert portion is not None
        assert portion.batches[0].offsets.tolist()[:2] == [20 + number, 30 + number]
        assert portion.counters.messages_evaluated == CHUNKS * PER_CHUNK - 17
    late = Waiting(log, Filter.parse("n = 7"))
    assert not late.is_decided(0)


def test_what_is_decided_is_given_as_chunks_without_deciding_again(
    log: SharedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = _readers(log, FILTERS)
    chunks = Waiting(log, FILTERS[1], Takes.MATCHING_CHUNKS).fetcher
    assert first.read(0) is not None
    for reader in others:
        reader.fetcher.close()
    monkeypatch.setattr(SharedChunks, "portion", lambda *arguments: pytest.fail("decided alone"))
    monkeypatch.setattr(results.SharedResults, "decide", lambda *arguments: pytest.fail("decided again"))
    portion = chunks.fetch(0, 0, chunks.decided(0))
    assert isinstance(portion, ChunkPortion)
    assert portion.chunks.chunk_ids.tolist() == list(range(1, CHUNKS * PER_CHUNK, 10))


def test_results_that_are_given_up_between_question_and_read_are_given_all_the_same(log: SharedLog) -> None:
    first, second, *_ = _readers(log, FILTERS)
    assert first.read(0) is not None
    decided = second.fetcher.decided(0)
    assert decided is not None
    for _ in range(2):
        log.reads.trim()
    assert log.reads.bytes_held == 0
    portion = second.fetcher.fetch(0, 0, decided)
    assert isinstance(portion, Portion) and portion.batches[0].offsets.tolist()[:2] == [1, 11]
    assert log.reads.bytes_held == 0
    assert not second.is_decided(0)


@pytest.mark.parametrize(("demand", "asked"), [("n >= 1900", [True] * 8), ("n >= 0", [True] + [False] * 7)])
def test_what_all_filters_demand_is_asked_first_as_long_as_it_leaves_little(
    log: SharedLog, monkeypatch: pytest.MonkeyPatch, demand: str, asked: list[bool]
) -> None:
    monkeypatch.setattr(results, "_STEP_BYTES", 20_000)
    found: list[bool] = []
    original = results.decide_window

    def decide_window(window: Window, decider: Decider, counters: ScanCounters) -> object:
        found.append(decider.request.filter is not None)
        return original(window, decider, counters)

    monkeypatch.setattr(results, "decide_window", decide_window)
    filters = [Filter.parse(f"{demand} AND n % 10 = {number}") for number in range(6)]
    first, *_ = _readers(log, filters)
    assert _read_all(first) == [number for number in range(0, CHUNKS * PER_CHUNK, 10) if number >= int(demand[5:])]
    assert found == asked


def test_results_are_decided_again_for_filters_that_come_later(log: SharedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_STEP_BYTES", 20_000)
    early = _readers(log, EVEN_AND_LARGE)
    assert [len(_read_all(reader)) for reader in early] == [10] * 6
    assert log.reads.bytes_held < 40_000
    late = _readers(log, FILTERS)
    for number, reader in enumerate(late):
        assert _read_all(reader) == list(range(number, CHUNKS * PER_CHUNK, 10))
    assert [(tile.first_offset, tile.next_offset) for tile in log._results] == [(0, CHUNKS * PER_CHUNK)]
    assert all(reader.is_decided(0) for reader in (*early, *late))
    assert log.reads.bytes_held > 100_000, "what more filters keep"


def test_results_become_shorter_when_filters_that_come_later_keep_much(
    log: SharedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "_STEP_BYTES", 20_000)
    monkeypatch.setattr(results, "_KEPT_BYTES", 30_000)
    early = _readers(log, EVEN_AND_LARGE)
    assert [len(_read_all(reader)) for reader in early] == [10] * 6
    for number, reader in enumerate(_readers(log, FILTERS)):
        assert _read_all(reader) == list(range(number, CHUNKS * PER_CHUNK, 10))
    assert len(list(log._results)) > 2
    assert [len(_read_all(reader)) for reader in early] == [10] * 6


@pytest.mark.parametrize("damaged", [0, 1, 23])
def test_each_reader_gets_what_lies_before_a_damaged_chunk_and_then_the_error(
    stream: Stream, damaged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "_STEP_BYTES", 20_000)
    path = stream.segments()[0].segment_path
    with path.open("r+b") as file:
        file.seek(int(_table(stream).position[damaged]) + CHUNK_HEADER_BYTES + 30)
        file.write(b"\xff\xff")
    log = SharedLog(stream, SharedReads())
    for number, reader in enumerate(_readers(log, FILTERS)):
        found: list[int] = []
        with pytest.raises(CorruptChunkError) as error:
            _read_all(reader, found)
        assert found == list(range(number, damaged * PER_CHUNK, 10))
        assert f"chunk {damaged * PER_CHUNK} " in str(error.value)


def test_a_tile_is_found_by_any_offset_in_it_and_ends_before_the_next(stream: Stream) -> None:
    table = _table(stream)
    view = SegmentView(table, 0, CHUNKS * PER_CHUNK)
    tiles: Tiles[Tile] = Tiles()
    early, late = Tile(0, 2, 4, view), Tile(0, 6, 9, view)
    tiles.add(late)
    tiles.add(early)
    assert list(tiles) == [early, late]
    assert [tiles.at(offset) for offset in (99, 100, 199, 200, 300, 450)] == [None, early, early, None, late, None]
    assert tiles.stop_row(0, 200, 20) == 6
    assert tiles.stop_row(0, 200, 5) == 5
    assert tiles.stop_row(7, 200, 20) == 20, "rows of another segment"
    tiles.remove(early)
    assert tiles.at(100) is None
