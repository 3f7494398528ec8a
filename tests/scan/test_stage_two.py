"""Chunks are decided the same by the kernel and by its Python counterpart, whatever they hold."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunks import append_chunk
from headgate import kernels
from headgate.errors import CorruptChunkError
from headgate.evaluate.filter import Filter
from headgate.log import Stream
from headgate.log.entries import SubBatch
from headgate.log.format import CHUNK_HEADER_BYTES, Compression
from headgate.log.writer import Writer
from headgate.scan import OffsetRange, OnCorrupt, ScanCounters, ScanRequest
from headgate.scan.rows import read_rows
from strategies import damaged_messages, encoded_messages, expressions

needs_kernels = pytest.mark.skipif(
    kernels.load("headgate.scan.kernel") is None, reason="kernels cannot be compiled here"
)

APPENDS = st.lists(
    st.tuples(st.lists(encoded_messages() | damaged_messages(), min_size=1, max_size=5), st.booleans()),
    min_size=1,
    max_size=5,
)
Found = tuple[list[tuple[int, int, bytes]], ScanCounters]


def _write(folder: Path, appends: list[tuple[list[bytes], bool]]) -> Stream:
    stream = Stream.create(folder / "s", name="s", now_ms=0)
    with Writer.open(stream, now_ms=0) as writer:
        for time_ms, (bodies, packed) in enumerate(appends):
            if packed:
                append_chunk(writer, [SubBatch.of(bodies, Compression.NONE)], now_ms=time_ms)
            else:
                writer.append([(body, None) for body in bodies], now_ms=time_ms)
    return stream


def _read(stream: Stream, request: ScanRequest, within: OffsetRange, *, compiled: bool) -> Found | str:
    counters = ScanCounters()
    found = []
    load = kernels.load if compiled else lambda _module: None
    try:
        with mock.patch.object(kernels, "load", load), stream.segments()[0].open() as reader:
            rows = np.arange(len(reader.chunks()), dtype=np.int64)
            for batch in read_rows(reader, rows, request, within, counters, None):
                times = batch.timestamps_ms.tolist()
                for row, offset in enumerate(batch.offsets.tolist()):
                    found.append((offset, times[row], batch.messages.message(row)))
    except CorruptChunkError as error:
        return str(error)
    return found, counters


@needs_kernels
@given(
    appends=APPENDS,
    text=st.none() | expressions,
    exact=st.booleans(),
    start=st.integers(0, 6),
    stop=st.integers(3, 30),
    damage=st.none() | st.integers(0, 10_000),
    skip=st.booleans(),
)
def test_kernel_and_python_keep_the_same_messages_and_count_the_same(
    appends: list[tuple[list[bytes], bool]],
    text: str | None,
    exact: bool,
    start: int,
    stop: int,
    damage: int | None,
    skip: bool,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stream = _write(Path(folder), appends)
        if damage is not None:
            path = stream.segments()[0].segment_path
            content = bytearray(path.read_bytes())
            position = 8 + CHUNK_HEADER_BYTES + damage % max(1, len(content) - 8 - CHUNK_HEADER_BYTES)
            content[min(position, len(content) - 1)] ^= 0x55
            path.write_bytes(content)
        request = ScanRequest(
            filter=None if text is None else Filter.parse(text, "rabbitmq"),
            exact=exact,
            now_ms=1_767_225_600_000,
            on_corrupt=OnCorrupt.SKIP if skip else OnCorrupt.FAIL,
        )
        within = OffsetRange(start, stop)
        assert _read(stream, request, within, compiled=True) == _read(stream, request, within, compiled=False)


@needs_kernels
def test_a_chunk_whose_header_counts_other_records_than_entries_is_corrupt(tmp_path: Path) -> None:
    stream = _write(tmp_path, [([b"\x00\x53\x75\xa0\x00"] * 3, False), ([b"\x00\x53\x75\xa0\x00"], False)])
    path = stream.segments()[0].segment_path
    content = bytearray(path.read_bytes())
    content[8 + 7] = 2
    path.write_bytes(content)
    for compiled in (True, False):
        found = _read(stream, ScanRequest(), OffsetRange(0, 9), compiled=compiled)
        assert isinstance(found, str)
        assert "chunk 0" in found
        skipped = _read(stream, ScanRequest(on_corrupt=OnCorrupt.SKIP), OffsetRange(0, 9), compiled=compiled)
        assert not isinstance(skipped, str)
        assert skipped[0] == [(3, 1, b"\x00\x53\x75\xa0\x00")]
        assert skipped[1].chunks_corrupt == 1


@needs_kernels
def test_reading_without_a_filter_does_not_compile_how_filters_are_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = _write(tmp_path, [([b"\x00\x53\x75\xa0\x00"] * 3, False)])
    asked: list[str] = []
    load = kernels.load
    expected = _read(stream, ScanRequest(), OffsetRange(0, 9), compiled=True)

    def recorded(module: str) -> object:
        asked.append(module)
        return load(module)

    monkeypatch.setattr(kernels, "load", recorded)
    monkeypatch.setattr(kernels, "is_compiled", lambda _module: False)
    assert _read(stream, ScanRequest(), OffsetRange(0, 9), compiled=True) == expected
    assert "headgate.log.kernel" in asked and "headgate.scan.kernel" not in asked
    _read(stream, ScanRequest(Filter.parse("n = 5")), OffsetRange(0, 9), compiled=True)
    assert "headgate.scan.kernel" in asked


def test_a_cache_that_lacks_the_kernel_of_checksums_changes_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = _write(tmp_path, [([b"\x00\x53\x75\xa0\x00"] * 3, False)])
    expected = _read(stream, ScanRequest(), OffsetRange(0, 9), compiled=True)
    load = kernels.load
    monkeypatch.setattr(kernels, "load", lambda module: None if module.endswith(".checksum") else load(module))
    assert _read(stream, ScanRequest(), OffsetRange(0, 9), compiled=True) == expected
