"""What the Bloom filters of a stream achieve, against what readers of it would meet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headgate.log import BloomMatcher, Stream, StreamArguments, Writer, filter_statistics


def written(
    folder: Path, chunks: list[list[bytes | None]], *, filter_size: int = 16, body: bytes = b"x" * 100
) -> Stream:
    arguments = StreamArguments(filter_size_bytes=filter_size)
    stream = Stream.create(folder / "orders", name="orders", now_ms=0, arguments=arguments)
    with Writer.open(stream, now_ms=0) as writer:
        for values in chunks:
            writer.append([(body, value) for value in values], now_ms=1)
    return stream


@pytest.mark.parametrize("distinct", [1, 20, 60])
def test_estimates_are_near_what_was_written_and_what_a_reader_meets(tmp_path: Path, distinct: int) -> None:
    chunks = [[b"%d/%d" % (chunk, number) for number in range(distinct)] for chunk in range(200)]
    stream = written(tmp_path, chunks)
    found = filter_statistics(stream)
    assert found.chunks == 200
    assert found.values_per_chunk == pytest.approx(distinct, rel=0.1)
    with stream.segments()[0].open() as reader:
        rows = reader.headers(0, len(reader.chunks()))
        matchers = [BloomMatcher([b"absent %d" % each], match_unfiltered=False) for each in range(300)]
        passed = [np.mean(each.match_many(rows.data, rows.bloom_positions, rows.bloom_length)) for each in matchers]
    assert found.false_positives == pytest.approx(float(np.mean(passed)), rel=0.25, abs=0.002)


def test_filters_that_are_too_small_are_told_with_the_size_that_serves(tmp_path: Path) -> None:
    stream = written(tmp_path, [[b"%d/%d" % (chunk, number) for number in range(30)] for chunk in range(100)])
    (sentence,) = filter_statistics(stream).advice()
    size_bytes = int(sentence.split("filters of ")[1].split()[0])
    better = written(
        tmp_path / "better",
        [[b"%d/%d" % (chunk, number) for number in range(30)] for chunk in range(100)],
        filter_size=size_bytes,
    )
    assert filter_statistics(better).advice() == []


def test_streams_without_filter_values_and_small_chunks_are_told(tmp_path: Path) -> None:
    without = filter_statistics(written(tmp_path / "none", [[None] * 5] * 20))
    assert without.fill is None
    assert ["No chunk has filter values" in sentence for sentence in without.advice()] == [True]
    small = filter_statistics(written(tmp_path / "small", [[b"a"]] * 20, body=b"x"))
    assert ["outweighs" in sentence for sentence in small.advice()] == [True]
    mixed = filter_statistics(written(tmp_path / "mixed", [[b"a", None]] * 20))
    assert mixed.unfiltered == 1
    assert ["without a filter value" in sentence for sentence in mixed.advice()] == [True]
    empty = filter_statistics(written(tmp_path / "empty", []))
    assert (empty.chunks, empty.chunk_bytes, empty.advice()) == (0, None, [])


def test_chunk_sizes_count_every_chunk_once(tmp_path: Path) -> None:
    found = filter_statistics(written(tmp_path, [[b"a"]] * 3 + [[b"a"] * 9] * 5))
    assert [(size, count) for size, count in found.chunk_sizes if count] == [(256, 3), (1024, 5)]
