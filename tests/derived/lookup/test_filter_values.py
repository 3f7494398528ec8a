"""Filter values from a lookup field: lookup files rule out chunks that Bloom filters let through, and none with one."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from headgate.derived import sources_of
from headgate.derived.lookup import LOOKUP_FILES, declare_lookup, table
from headgate.log import Stream, StreamArguments, Writer, unflushed
from headgate.message import Message
from headgate.scan import OffsetRange, ScanCounters, ScanRequest
from match_indexes import followed, planned

FIELD = "application_properties.region"
IN_BODY = 'body."region"'
VALUES = tuple(f"value {number}" for number in range(400))
Chunk = tuple[str | None, ...]


@pytest.fixture(autouse=True)
def _small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "BLOCK_MESSAGES", 4)
        yield


def append(stream: Stream, chunks: list[Chunk], *, source: str | None = FIELD, sent: str | None = None) -> None:
    """One chunk each; `sent` is a filter value that publishers choose for themselves."""
    with Writer.open(stream, now_ms=0) as writer:
        for regions in chunks:
            properties: list[dict[str, object]] = [{} if region is None else {"region": region} for region in regions]
            bodies = [Message(json.dumps(each).encode(), application_properties=each).encode() for each in properties]
            values = [sent or region for region in regions]
            writer.append(
                [(body, None if value is None else value.encode()) for body, value in zip(bodies, values, strict=True)],
                now_ms=0,
                filter_source=source,
            )


def create(folder: Path, chunks: list[Chunk], field: str = FIELD) -> Stream:
    """A stream of several segments whose filter values come from a lookup field, with files of the sealed ones."""
    arguments = StreamArguments(max_segment_size_bytes=2000)
    stream = Stream.create(folder, name="s", now_ms=0, arguments=arguments, filter_source=field)
    append(stream, chunks, source=field)
    declare_lookup(stream, [field])
    list(LOOKUP_FILES.build(stream, now_ms=0))
    return Stream.open(folder)


def delivered(
    stream: Stream, value: str, *, lookup: bool = True, match_unfiltered: bool = False
) -> tuple[list[int], ScanCounters]:
    """The offsets that a subscription to a value is given, following and planned alike."""
    request = ScanRequest(
        filter_values=(value.encode(),), match_unfiltered=match_unfiltered, sources=sources_of(lookup=lookup)
    )
    rows, counters = followed(stream, request)
    offsets, _ = planned(stream, request, OffsetRange(0, stream.next_offset()))
    assert offsets == [row[0] for row in rows]
    return offsets, counters


chunks = st.lists(st.lists(st.sampled_from((*VALUES[:6], None)), min_size=1, max_size=7).map(tuple), min_size=1)


@examples(0.3)
@given(chunks, st.sampled_from(VALUES[:8]))
def test_whole_chunks_with_a_value_are_delivered_and_no_chunk_that_bloom_filters_leave_out(
    written: list[Chunk], value: str
) -> None:
    with tempfile.TemporaryDirectory() as folder, unflushed(Path(folder)):
        stream = create(Path(folder) / "s", written)
        found, _ = delivered(stream, value)
        without, _ = delivered(stream, value, lookup=False)
        wanted, offset = [], 0
        for regions in written:
            if value in regions:
                wanted += range(offset, offset + len(regions))
            offset += len(regions)
        assert set(wanted) <= set(found) <= set(without)


@pytest.mark.parametrize("field", [FIELD, IN_BODY])
def test_what_a_full_bloom_filter_lets_through_is_left_out(tmp_path: Path, field: str) -> None:
    stream = create(tmp_path / "s", [VALUES[first : first + 60] for first in range(0, 240, 60)] * 4, field)
    sealed = stream.segments()[-1].first_chunk_id
    without, _ = delivered(stream, VALUES[300], lookup=False)
    assert any(offset < sealed for offset in without)
    found, counters = delivered(stream, VALUES[300])
    assert all(offset >= sealed for offset in found)
    assert counters.chunks_skipped_by_lookup > 0
    some, _ = delivered(stream, VALUES[61])
    assert {offset for offset in some if offset < sealed} == {
        offset for offset in range(sealed) if offset % 240 // 60 == 1
    }
    unfiltered, counters = delivered(stream, VALUES[300], match_unfiltered=True)
    assert unfiltered == without and not counters.chunks_skipped_by_lookup


def test_values_that_publishers_chose_are_left_to_bloom_filters(tmp_path: Path) -> None:
    stream = create(tmp_path / "s", [VALUES[:20]] * 3)
    append(stream, [VALUES[20:40]] * 3, source=None, sent="chosen")
    append(stream, [VALUES[:40]] * 3)
    list(LOOKUP_FILES.build(stream, now_ms=0))
    assert delivered(Stream.open(stream.path), "chosen")[0] == list(range(60, 120))
