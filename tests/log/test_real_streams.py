"""The folders of a real broker: opened, read, filtered by stage 1, adopted and continued."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headgate.log import BloomMatcher, ChunkType, OffsetSpecification, Stream, Writer
from headgate.log.inspection import ChunkDump, CrcState, stream_info, verify_stream
from headgate.log.tracking import read_tracking
from log_streams import read_messages

DATA = Path(__file__).parent.parent / "data"
CONTENTS = {entry["stream"]: entry for entry in json.loads((DATA / "contents.json").read_text())}
BY_VALUE = [case for case in json.loads((DATA / "delivered.json").read_text()) if case["sql"] is None]


def opened(folder: Path, name: str) -> Stream:
    return Stream.open(next(folder.glob(f"__{name}_*")))


def offsets_through_stage_1(stream: Stream, matcher: BloomMatcher | None) -> np.ndarray:
    parts = []
    for segment in stream.segments():
        with segment.open() as reader:
            headers = reader.headers(0, len(reader.chunks()))
            keep = headers.chunk_type == ChunkType.USER
            if matcher is not None:
                keep &= matcher.match_many(headers.data, headers.bloom_positions, headers.bloom_length)
            ids, counts = headers.chunk_id[keep], headers.num_records[keep]
            parts.append(np.repeat(ids - np.cumsum(counts) + counts, counts) + np.arange(counts.sum()))
    return np.concatenate(parts)


@pytest.mark.parametrize("case", BY_VALUE, ids=lambda case: f"{case['stream']}-{case['filter_values']}")
def test_filter_values_pass_exactly_the_chunks_that_the_broker_delivered(
    case: dict[str, Any], rabbitmq_streams: Path
) -> None:
    values = case["filter_values"]
    matcher = None if values is None else BloomMatcher(values, match_unfiltered=False)
    offsets = offsets_through_stage_1(opened(rabbitmq_streams, case["stream"]), matcher)
    assert len(offsets) == case["delivered"]
    assert offsets[:5].tolist() == case["first"]
    assert offsets[-3:].tolist() == case["last"]
    joined = ",".join(map(str, offsets.tolist()))
    assert hashlib.sha256(joined.encode()).hexdigest() == case["sha256_of_offsets"]


@pytest.mark.parametrize("name", list(CONTENTS))
def test_a_real_folder_opens_and_says_what_is_in_it(name: str, rabbitmq_streams: Path) -> None:
    stream = opened(rabbitmq_streams, name)
    info = stream_info(stream)
    assert (info.name, info.is_foreign) == (name, True)
    assert info.num_messages == CONTENTS[name]["messages"]
    assert info.filter_size_bytes == CONTENTS[name]["arguments"]["stream-filter-size-bytes"]
    assert info.tracking.sequences[b"shop-1"][1] == CONTENTS[name]["messages"] - 1
    assert len(read_messages(stream)) == CONTENTS[name]["messages"]


@pytest.mark.parametrize("name", list(CONTENTS))
def test_a_real_folder_verifies_without_damage(name: str, rabbitmq_streams: Path) -> None:
    for found in verify_stream(opened(rabbitmq_streams, name)):
        assert isinstance(found, ChunkDump)
        assert found.crc is CrcState.GOOD


@pytest.mark.parametrize("name", list(CONTENTS))
def test_an_adopted_folder_continues_with_its_offsets_and_publishers(
    name: str, rabbitmq_streams: Path, tmp_path: Path
) -> None:
    source = opened(rabbitmq_streams, name)
    before = stream_info(source)
    folder = Path(shutil.copytree(source.path, tmp_path / source.path.name))
    stream = Stream.adopt(folder, now_ms=1)
    assert stream.name == name
    last = CONTENTS[name]["messages"] - 1
    with Writer.open(stream, now_ms=2) as writer:
        assert writer.next_offset == before.next_offset
        assert writer.last_sequence("shop-1") == last
        appended = writer.append(
            [(b"again", b"EMEA"), (b"new", b"EMEA")], now_ms=3, publisher="shop-1", sequences=[last, last + 1]
        )
    assert appended.num_duplicates == 1
    assert appended.offsets().tolist() == [before.next_offset]
    assert stream.attach(OffsetSpecification.last(), now_ms=4).offset == before.next_offset
    assert read_messages(stream)[-1] == (before.next_offset, b"new")
    assert read_tracking(stream).sequences[b"shop-1"] == (before.next_offset, last + 1)
    for old, new in zip(source.segments(), stream.segments(), strict=True):
        whole = old.segment_path.read_bytes()
        assert new.segment_path.read_bytes()[: len(whole)] == whole


@pytest.mark.slow
def test_mapped_segments_of_an_adopted_folder_read_like_the_foreign_ones(
    rabbitmq_streams: Path, tmp_path: Path
) -> None:
    source = opened(rabbitmq_streams, "customer-events")
    folder = Path(shutil.copytree(source.path, tmp_path / source.path.name))
    stream = Stream.adopt(folder, now_ms=1)
    assert [segment.mappable for segment in stream.segments()] == [True] * 4 + [False]
    matcher = BloomMatcher(["order.created"], match_unfiltered=False)
    assert offsets_through_stage_1(stream, matcher).tolist() == offsets_through_stage_1(source, matcher).tolist()
    assert read_messages(stream) == read_messages(source)
