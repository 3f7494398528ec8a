"""Readers that share one log give what a cursor gives that is alone."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.evaluate.filter import Filter
from headgate.log import OffsetSpecification, Stream
from headgate.scan import Cursor, ScanBatch, ScanCounters, ScanRequest
from headgate.scan.shared import SharedLog, SharedReader, SharedReads
from log_streams import quick_folder
from shared_streams import FILTER_VALUES, FILTERS, PIECES, STARTS, write_stream

NOW_MS = 1_700_000_000_000


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


@settings(deadline=None)
@given(
    pieces=st.lists(PIECES, min_size=1, max_size=12),
    wishes=st.lists(st.tuples(_requests(), STARTS), min_size=1, max_size=7),
    order=st.lists(st.integers(0, 6), max_size=60),
    windows_bytes=st.sampled_from([0, 3000, 1 << 20]),
)
def test_each_reader_gets_what_a_cursor_alone_gets(
    pieces: list, wishes: list, order: list[int], windows_bytes: int
) -> None:
    with quick_folder() as folder:
        stream = write_stream(Path(folder), pieces)
        end = stream.next_offset()
        log = SharedLog(stream, SharedReads(windows_bytes=windows_bytes, most_open_segments=2))
        readers = [SharedReader(log, request) for request, _ in wishes]
        offsets = [log.attach(start, end=end, now_ms=NOW_MS) for _, start in wishes]
        found: list[list[tuple[int, int, bytes]]] = [[] for _ in wishes]
        counters = [ScanCounters() for _ in wishes]
        for reader, offset in zip(readers, offsets, strict=True):
            reader.is_waiting, reader.offset = True, offset

        def read(number: int) -> bool:
            portion = readers[number].read(offsets[number], NOW_MS)
            if portion is None:
                return False
            assert portion.next_offset > offsets[number]
            offsets[number] = portion.next_offset
            counters[number].add(portion.counters)
            for batch in portion.batches:
                found[number] += _rows(batch)
            return True

        for number in order:
            read(number % len(readers))
        for number in range(len(readers)):
            while read(number):
                pass
        for number, (request, start) in enumerate(wishes):
            expected, counted = _by_cursor(stream, request, start)
            assert found[number] == expected
            assert counters[number] == counted
            assert offsets[number] == max(end, offsets[number])
            readers[number].close()
        log.close()
