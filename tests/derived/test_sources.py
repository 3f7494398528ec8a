"""Several kinds of derived files for one request: together they skip what each of them would, and lose nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from derived_streams import CHUNK, EXPRESSION, KINDS, Row, create, each_source_is_always_asked, known
from examples import examples
from headgate.derived import COLUMN_FILES, LOOKUP_FILES
from headgate.derived.columns import source as column_answers
from headgate.log import OffsetSpecification, Stream, unflushed
from headgate.scan import Cursor, OffsetRange, ScanRequest, plan
from headgate.scan.answers import SourceKind

chunks = st.lists(st.lists(st.tuples(st.sampled_from("xabcdefg"), st.integers(0, 2), st.integers(0, 2)),
                           min_size=CHUNK, max_size=CHUNK), min_size=4, max_size=24)  # fmt: skip


@pytest.fixture(autouse=True)
def _each_source_is_always_asked() -> Iterator[None]:
    with each_source_is_always_asked():
        yield


def matches_of(written: list[list[Row]]) -> set[int]:
    rows = [row for chunk in written for row in chunk]
    return {offset for offset, row in enumerate(rows) if row == ("x", 1, 1)}


def followed(stream: Stream, request: ScanRequest) -> list[int]:
    with Cursor(stream, request, start=OffsetSpecification.first(), now_ms=0) as cursor:
        return [offset for batch in iter(lambda: cursor.read(0), None) for offset in batch.offsets.tolist()]


@examples(0.3)
@given(chunks)
def test_all_sources_together_leave_no_more_than_each_alone(written: list[list[Row]]) -> None:
    with tempfile.TemporaryDirectory() as folder, unflushed(Path(folder)):
        stream = create(Path(folder) / "s", written)
        matches = matches_of(written)
        alone = [known(stream, kind) for kind in KINDS]
        for kinds in (KINDS, KINDS[1:], (COLUMN_FILES, LOOKUP_FILES)):
            ruled_out, may, certain = known(stream, *kinds)
            for kind, (ruled_out_alone, may_alone, _) in zip(KINDS, alone, strict=True):
                if kind in kinds:
                    assert ruled_out >= ruled_out_alone and may <= may_alone
            assert certain <= matches <= may
            assert followed(stream, ScanRequest(filter=EXPRESSION, sources=kinds)) == sorted(matches)


def test_a_plan_skips_what_blocks_and_footers_rule_out(tmp_path: Path) -> None:
    no_key, no_a, no_b, match = ("y", 1, 1), ("x", 0, 1), ("x", 1, 0), ("x", 1, 1)
    written = [[row] * CHUNK for row in (no_a, no_a, no_key, no_key, no_b, no_b, match, no_key, no_key, no_key)]
    stream = create(tmp_path / "s", written)

    def planned(*kinds: SourceKind) -> list[int]:
        column_answers._CACHE.clear()
        request = ScanRequest(filter=EXPRESSION, sources=kinds)
        found = plan(stream, request, OffsetRange(0, CHUNK * len(written)))
        return [row for part in found.ranges for row in part.rows.tolist()]

    assert planned() == list(range(10))
    assert planned(LOOKUP_FILES) == [0, 1, 4, 5, 6]
    assert planned(COLUMN_FILES) == [2, 3, 6, 7, 8, 9]
    assert planned(LOOKUP_FILES, COLUMN_FILES) == planned(COLUMN_FILES, LOOKUP_FILES) == [6]
