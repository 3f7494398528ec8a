"""Stage 1: which chunks have to be read at all, from index records, headers and Bloom bytes only.

Two tests, both without false negatives. The first is for the filter values that the request wants: by Bloom filter,
chunk by chunk, as RabbitMQ does it, and also by derived files, which rule out chunks that a Bloom filter lets
through. The second is for the values that the filter itself implies, where the stream declares
the field that its filter values come from and the chunk was written under that declaration; it always keeps chunks with
messages that have no filter value.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headgate.errors import CorruptChunkError
from headgate.evaluate import wanted_values
from headgate.log import BloomMatcher, ChunkHeaders, ChunkTable, ChunkType, Segment, Stream
from headgate.message import parse_field
from headgate.scan.answers import ChunkTest
from headgate.scan.counters import ScanCounters
from headgate.scan.request import OnCorrupt, ScanRequest

_ROWS_AT_ONCE = 4096


class HeaderSource(Protocol):
    """A source of chunk headers: a `SegmentReader`, or an open segment that several readers share."""

    @property
    def segment(self) -> Segment:
        """The segment of the headers."""

    def chunks(self) -> ChunkTable:
        """The table of the segment's chunks."""

    def stop_positions(self, start_row: int, stop_row: int) -> NDArray[np.int64]:
        """For each row of a part of the table the byte behind its chunk."""

    def headers(self, start_row: int, stop_row: int) -> ChunkHeaders:
        """Headers and Bloom bytes of rows of the table."""


class ChunkSelector:
    """Stage 1 of one request over one stream. Cheap to make; holds no file."""

    def __init__(self, stream: Stream, request: ScanRequest) -> None:
        self._settings = stream.settings
        self._on_corrupt = request.on_corrupt
        self._wanted = (
            BloomMatcher(request.filter_values, match_unfiltered=request.match_unfiltered)
            if request.filter_values
            else None
        )
        self._implied = self._implied_matchers(request)
        self._tests = self._tests_of(request)

    def _tests_of(self, request: ScanRequest) -> Sequence[ChunkTest]:
        values, settings = request.filter_values, self._settings
        if not values or request.match_unfiltered or b"" in values or settings is None or request.exact:
            return ()
        tests = (kind.chunk_test(settings, values) for kind in request.sources)
        return [test for test in tests if test is not None]

    def _implied_matchers(self, request: ScanRequest) -> dict[str, BloomMatcher]:
        """Declared field → matcher of the values that the filter or the caller implies for it."""
        matchers: dict[str, BloomMatcher] = {}
        if self._settings is None:
            return matchers
        for field in {declared.field for declared in self._settings.declared}:
            source = parse_field(field)
            named = (source, None) if field == self._settings.filter_source else (source,)
            sets = [values for known, values in request.known_values if known in named]
            implied = None if request.filter is None else wanted_values(request.filter.tree, source)
            if implied is not None:
                sets.append(implied)
            if sets:
                matchers[field] = BloomMatcher(frozenset.intersection(*sets) | {b""}, match_unfiltered=True)
        return matchers

    @property
    def tests_headers(self) -> bool:
        """Whether any chunk can be ruled out by its header."""
        return self._wanted is not None or bool(self._implied)

    @functools.cached_property
    def key(self) -> Hashable:
        """A key: selectors of one stream with equal keys keep the same chunks."""
        matchers = {"": self._wanted, **self._implied}
        asked = [(name, each.values, each.match_unfiltered) for name, each in matchers.items() if each is not None]
        return tuple(asked), self._settings.declared if self._implied and self._settings is not None else ()

    def select(self, reader: HeaderSource, start_row: int, stop_row: int, counters: ScanCounters) -> NDArray[np.int64]:
        """The rows of the reader's table, from `start_row` to `stop_row` exclusive, that have to be read.

        Rows of tracking chunks are left out and not counted. Raises CorruptChunkError for a damaged header, unless the
        request skips damaged chunks.
        """
        table = reader.chunks()
        user = table.type[start_row:stop_row] == ChunkType.USER
        rows = np.flatnonzero(user) + start_row
        counters.chunks_examined += len(rows)
        if not self.tests_headers or not len(rows):
            return rows
        keep = np.zeros(stop_row - start_row, dtype=np.bool_)
        for first in range(start_row, stop_row, _ROWS_AT_ONCE):
            stop = min(first + _ROWS_AT_ONCE, stop_row)
            keep[first - start_row : stop - start_row] = self._test(reader, first, stop)
        sizes = reader.stop_positions(start_row, stop_row) - table.position[start_row:stop_row]
        skipped = user & ~keep
        counters.chunks_skipped += int(skipped.sum())
        counters.bytes_skipped += int(sizes[skipped].sum())
        rows = np.flatnonzero(user & keep)
        behind = reader.segment.stop_offset
        for test in self._tests:
            if behind is None or not len(rows):
                break
            next_ids = np.append(table.chunk_id[start_row + 1 :], behind)
            has_one = test.keep(reader.segment, table.chunk_id[start_row + rows], next_ids[rows])
            test.count(counters, int((~has_one).sum()))
            counters.bytes_skipped += int(sizes[rows[~has_one]].sum())
            rows = rows[has_one]
        return rows + start_row

    def _test(self, reader: HeaderSource, start_row: int, stop_row: int) -> NDArray[np.bool_]:
        try:
            headers = reader.headers(start_row, stop_row)
        except CorruptChunkError:
            if self._on_corrupt is OnCorrupt.FAIL:
                raise
            # The reader of these chunks finds the damaged one, passes over it and counts it.
            return np.ones(stop_row - start_row, dtype=np.bool_)
        return self.keep(headers)

    def keep(self, headers: ChunkHeaders) -> NDArray[np.bool_]:
        """`(chunks,)`: which chunks have to be read; all hold messages."""
        keep = np.ones(len(headers), dtype=np.bool_)
        if self._wanted is not None:
            keep &= self._match(self._wanted, headers)
        for field, matcher in self._implied.items():
            assert self._settings is not None
            chunk_ids = headers.chunk_id
            next_ids = chunk_ids + headers.num_records
            derived = self._settings.declared_mask(field, chunk_ids, next_ids)
            keep &= ~derived | self._match(matcher, headers)
        return keep

    @staticmethod
    def _match(matcher: BloomMatcher, headers: ChunkHeaders) -> NDArray[np.bool_]:
        return matcher.match_many(headers.data, headers.bloom_positions, headers.bloom_length)
