"""Readers that share one log give what a cursor gives that is alone."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

import match_indexes
from headgate.evaluate.filter import Filter
from headgate.log import OffsetSpecification, Stream
from headgate.scan import Cursor, ScanBatch, ScanCounters, ScanRequest
from headgate.scan.fetch import Fetcher, Portion, SharedLog, SharedReads, Takes, results, window
from log_streams import quick_folder
from shared_streams import FILTER_VALUES, FILTERS, PIECES, STARTS, Piece, write_stream

NOW_MS = 1_700_000_000_000
MANY = [
    match_indexes.Write((("AMER", number % 7), ("EMEA", number % 5), (None, 2)), packed=False) for number in range(20)
]


def _requests() -> st.SearchStrategy[ScanRequest]:
    def request(chosen: Filter | None, values: tuple[bytes, ...], unfiltered: bool) -> ScanRequest:
        return ScanRequest(filter=chosen, filter_values=values, match_unfiltered=unfiltered and bool(values))

    return st.builds(request, st.one_of(st.none(), st.sampled_from(FILTERS)), FILTER_VALUES, st.booleans())


def _rows(batch: ScanBatch) -> list[tuple[int, int, bytes]]:
    return [
        (offset, time_ms, batch.messages.message(row))
        for row, (offset, time_ms) in enumerate(zip(batch.offsets.tolist(), batch.timestamps_ms.tolist(), strict=True))
    ]


def _by_cursor(
    stream: Stream, request: ScanRequest, start: OffsetSpecification
) -> tuple[list[tuple[int, int, bytes]], ScanCounters]:
    with Cursor(stream, request, start=start, now_ms=NOW_MS) as cursor:
        found: list[tuple[int, int, bytes]] = []
        while (batch := cursor.read(NOW_MS)) is not None:
            found += _rows(batch)
        return found, cursor.counters


class Following:
    """A reader that waits for more, and what it got until now."""

    is_waiting, is_delivering = True, False

    def __init__(self, log: SharedLog, request: ScanRequest, offset: int) -> None:
        self.offset = offset
        self.fetcher = Fetcher(log, self, request, Takes.MESSAGES)
        self.found: list[tuple[int, int, bytes]] = []
        self.counters = ScanCounters()

    def read(self) -> bool:
        """Read once; False at the end."""
        portion = self.fetcher.fetch(self.offset, NOW_MS, self.fetcher.decided(self.offset))
        if portion is None:
            return False
        assert isinstance(portion, Portion) and portion.next_offset > self.offset
        self.offset = portion.next_offset
        self.counters.add(portion.counters)
        for batch in portion.batches:
            self.found += _rows(batch)
        return True


@given(
    pieces=st.lists(PIECES, min_size=1, max_size=12),
    wishes=st.lists(st.tuples(_requests(), STARTS), min_size=1, max_size=7),
    order=st.lists(st.integers(0, 6), max_size=60),
    windows_bytes=st.sampled_from([0, 3000, 1 << 20]),
    step_bytes=st.sampled_from([150, 4 << 20]),
    kept_bytes=st.sampled_from([0, 400, 4 << 20]),
)
def test_each_reader_gets_what_a_cursor_alone_gets(
    pieces: list[Piece],
    wishes: list[tuple[ScanRequest, OffsetSpecification]],
    order: list[int],
    windows_bytes: int,
    step_bytes: int,
    kept_bytes: int,
) -> None:
    limits = mock.patch.multiple(results, _STEP_BYTES=step_bytes, _KEPT_BYTES=kept_bytes)
    with quick_folder() as folder, limits:
        stream = write_stream(Path(folder), pieces)
        end = stream.next_offset()
        log = SharedLog(stream, SharedReads(windows_bytes=windows_bytes, most_open_segments=2))
        group = [Following(log, request, log.attach(start, end=end, now_ms=NOW_MS)) for request, start in wishes]
        for number in order:
            group[number % len(group)].read()
        for each in group:
            while each.read():
                pass
            assert each.offset >= end
        for each, (request, start) in zip(group, wishes, strict=True):
            expected, counted = _by_cursor(stream, request, start)
            assert each.found == expected
            assert each.counters == counted
            each.fetcher.close()
        log.close()


SPARSE = [
    Filter.parse(text)
    for text in (
        "n % 31 = 3",
        "n = 7",
        "n > 20 AND n < 24",
        "region = 'AMER' AND n % 17 = 0",
        "n % 41 = 1",
        "n IN (9, 55)",
    )
]


@given(
    pieces=st.lists(PIECES, min_size=4, max_size=14),
    start=st.integers(0, 30),
    values=FILTER_VALUES,
    order=st.lists(st.integers(0, 5), max_size=40),
)
def test_many_filters_that_keep_little_are_decided_together_with_the_same_result(
    pieces: list[Piece], start: int, values: tuple[bytes, ...], order: list[int]
) -> None:
    with quick_folder() as folder:
        stream = write_stream(Path(folder), pieces, segment_bytes=1 << 20)
        end = stream.next_offset()
        reads = SharedReads()
        log = SharedLog(stream, reads)
        wishes = [(ScanRequest(filter=each), OffsetSpecification.first()) for each in SPARSE]
        wishes[0] = (wishes[0][0], OffsetSpecification.offset(start))
        wishes[1] = (ScanRequest(filter=SPARSE[1], filter_values=values), OffsetSpecification.first())
        group = [Following(log, request, log.attach(place, end=end, now_ms=0)) for request, place in wishes]
        for number in [*order, *range(len(group))]:
            group[number].read()
        for each in group:
            while each.read():
                pass
        decided = [each for each in log._results if each.numbers]
        assert decided
        for each, (request, place) in zip(group, wishes, strict=True):
            expected, counted = _by_cursor(stream, request, place)
            assert each.found == expected
            assert each.counters == counted
        log.close()
        assert reads.bytes_held == 0


def test_a_reader_that_keeps_all_looks_at_a_little_at_a_time(tmp_path: Path) -> None:
    stream = write_stream(tmp_path, [Piece(100, "plain")] * 20, segment_bytes=1 << 30)

    def portions(smallest_window_bytes: int) -> int:
        log = SharedLog(stream, SharedReads(smallest_window_bytes=smallest_window_bytes))
        reader = Following(log, ScanRequest(), 0)
        count = 0
        while reader.read():
            count += 1
        assert len(reader.found) == 2000
        log.close()
        return count

    assert portions(1) == 20
    assert portions(1 << 20) == 1


def test_of_a_window_that_was_decided_for_all_only_what_is_kept_stays_in_memory(tmp_path: Path) -> None:
    stream = write_stream(tmp_path, [Piece(500, "plain")] * 40, segment_bytes=1 << 30)
    reads = SharedReads()
    log = SharedLog(stream, reads)
    group = [Following(log, ScanRequest(filter=each), 0) for each in SPARSE]
    assert group[0].read()
    size = stream.segments()[0].segment_path.stat().st_size
    assert 0 < reads.bytes_held < size // 8
    group.append(Following(log, ScanRequest(), 0))
    for each in group:
        while each.read():
            pass
    assert len(group[-1].found) == 20_000
    for each, wanted in zip(group, SPARSE, strict=False):
        expected, _ = _by_cursor(stream, ScanRequest(filter=wanted), OffsetSpecification.first())
        assert each.found == expected
    assert reads.bytes_held > size // 2, "whoever takes everything keeps the whole window"
    log.close()


def test_where_a_match_index_ends_readers_decide_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = match_indexes.create(tmp_path / "s", MANY, segment_bytes=10**6)
    match_indexes.register(stream)
    match_indexes.build_index(stream, now_ms=0)
    match_indexes.append(stream, MANY)
    decided = []
    original = window.decide_window
    monkeypatch.setattr(window, "decide_window", lambda *given: decided.append(1) or original(*given))
    log = SharedLog(stream, SharedReads())
    wanted = match_indexes.requests(match_indexes.TEXTS[0])[0]
    group = [Following(log, wanted, 0) for _ in range(3)]
    for each in group:
        while each.read():
            pass
        assert (each.counters.messages_decided_by_index, each.counters.messages_evaluated) == (60, 60)
        assert each.counters.chunks_examined == 40
        assert each.found == group[0].found
    assert len(decided) == 1
