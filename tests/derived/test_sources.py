"""Several kinds of derived files for one request: together they skip what each of them would, and lose nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from headgate.derived import COLUMN_FILES, LOOKUP_FILES, MATCH_INDEX
from headgate.derived.columns import build as column_build
from headgate.derived.columns import declare_columns
from headgate.derived.columns import source as column_answers
from headgate.derived.lookup import declare_lookup, table
from headgate.derived.match_index import FilterRegistry
from headgate.evaluate import Filter
from headgate.log import OffsetSpecification, Stream, StreamArguments, Writer, unflushed
from headgate.message import Message
from headgate.scan import Cursor, OffsetRange, ScanRequest, plan
from headgate.scan.answers import Answers, SourceKind, sources

KINDS = (MATCH_INDEX, LOOKUP_FILES, COLUMN_FILES)
TEXT = "k = 'x' AND a = 1 AND b = 1"
EXPRESSION = Filter.parse(TEXT, "rabbitmq")
CHUNK = 4

Row = tuple[str, int, int]
chunks = st.lists(st.lists(st.tuples(st.sampled_from("xabcdefg"), st.integers(0, 2), st.integers(0, 2)),
                           min_size=CHUNK, max_size=CHUNK), min_size=4, max_size=24)  # fmt: skip


@pytest.fixture(autouse=True)
def _each_source_is_always_asked() -> Iterator[None]:
    """Blocks of a chunk, row groups of two; and no source is too expensive."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "BLOCK_MESSAGES", CHUNK)
        patch.setattr(column_build, "GROUP_ROWS", 2 * CHUNK)
        patch.setattr(column_build, "_WINDOW_BYTES", 1)
        for name in ("_COLUMN_NS", "_ENTRY_NS", "_EXACT_SHARE", "_DENSE_SHARE"):
            patch.setattr(column_answers, name, 0)
        patch.setattr(column_answers, "_SPAN_SHARE", 1 << 20)
        patch.setattr(sources, "_LITTLE_SHARE", 1 << 20)
        yield


def create(folder: Path, written: list[list[Row]]) -> Stream:
    """A sealed segment of these chunks with all derived files, and an open one."""
    arguments = StreamArguments(max_segment_size_bytes=1 << 20)
    stream = Stream.create(folder, name=folder.name, now_ms=0, arguments=arguments)
    with Writer.open(stream, now_ms=0) as writer:
        for rows in written:
            messages = [Message(b"", application_properties={"k": k, "a": a, "b": b}) for k, a, b in rows]
            writer.append([(message.encode(), None) for message in messages], now_ms=0)
        writer.append([(Message(b"x" * (1 << 20)).encode(), None)], now_ms=1)
        writer.append([(Message(b"").encode(), None)], now_ms=2)
    stream = Stream.open(folder)
    assert stream.segments()[0].is_sealed
    declare_columns(stream, "a bigint, b bigint")
    declare_lookup(stream, ["application_properties.k"])
    registry = FilterRegistry(stream)
    registry.register("f", TEXT, "rabbitmq", now_ms=0)
    for kind in KINDS:
        assert not any(getattr(report, "trouble", "") for report in kind.build(stream, now_ms=1))
    return stream


def known(stream: Stream, *kinds: SourceKind) -> tuple[set[int], set[int], set[int]]:
    """The rows of the sealed segment that are ruled out, and the offsets that may match and that do."""
    column_answers._CACHE.clear()
    ruled_out: set[int] = set()
    may: set[int] = set()
    certain: set[int] = set()
    asked = Answers(ScanRequest(filter=EXPRESSION, sources=kinds))
    with stream.segments()[0].open() as reader:
        next_ids = reader.next_chunk_ids()
        for found in asked.answers(reader, np.arange(len(reader.chunks())), OffsetRange(0, 1 << 40)):
            assert found.counts.tolist() == np.bincount(found.chunks, minlength=len(found.rows)).tolist()
            ruled_out |= set(found.rows[found.ruled_out].tolist())
            may |= set(found.offsets.tolist())
            certain |= set(found.offsets[found.certain].tolist())
            for row in found.rows[~found.trusted].tolist():
                may |= set(range(int(reader.chunks().chunk_id[row]), int(next_ids[row])))
    asked.close()
    return ruled_out, may, certain


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
