"""Streams with a sealed segment that has derived files of all kinds, for tests, and what these know of a filter."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from headgate.derived import COLUMN_FILES, LOOKUP_FILES, MATCH_INDEX
from headgate.derived.columns import build as column_build
from headgate.derived.columns import declare_columns
from headgate.derived.columns import source as column_answers
from headgate.derived.lookup import declare_lookup, table
from headgate.derived.match_index import FilterRegistry
from headgate.evaluate import Filter
from headgate.log import Stream, StreamArguments, Writer
from headgate.message import Message
from headgate.scan import OffsetRange, ScanRequest
from headgate.scan.answers import Answers, SourceKind, sources

KINDS = (MATCH_INDEX, LOOKUP_FILES, COLUMN_FILES)
TEXT = "k = 'x' AND a = 1 AND b = 1"
EXPRESSION = Filter.parse(TEXT, "rabbitmq")
CHUNK = 4

Row = tuple[str, int, int]


@contextlib.contextmanager
def each_source_is_always_asked() -> Iterator[None]:
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


def create(folder: Path, written: list[list[Row]], *, remote: str | None = None) -> Stream:
    """A sealed segment of these chunks with all derived files, and an open one."""
    arguments = StreamArguments(max_segment_size_bytes=1 << 20, remote=remote)
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
