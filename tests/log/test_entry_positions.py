from __future__ import annotations

import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import kernels
from headgate.log.chunk_builder import ChunkLimits, build_chunks
from headgate.log.entry_positions import StopReason, WalkedEntries, WalkStop, walk_entries
from headgate.log.format import CHUNK_HEADER_BYTES, decode_headers


@pytest.fixture(params=["kernel", "fallback"])
def _engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "fallback":
        monkeypatch.setattr(kernels, "load", lambda _module: None)


def walk(parts: list[bytes], counts: list[int], *, first_chunk: int = 0) -> WalkedEntries:
    """Walk data parts that lie side by side in one buffer; chunk ids are multiples of 1000."""
    lengths = np.array([len(part) for part in parts], dtype=np.int64)
    return walk_entries(
        np.frombuffer(b"".join(parts), dtype=np.uint8),
        data_starts=np.cumsum(lengths) - lengths,
        data_lengths=lengths,
        entry_counts=np.array(counts),
        chunk_ids=np.arange(len(parts)) * 1000,
        first_chunk=first_chunk,
    )


def entry(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


SUB_BATCH = b"\x80" + bytes(10)


@pytest.mark.usefixtures("_engine")
def test_every_message_of_built_chunks_is_found_with_its_offset() -> None:
    messages = [b"m" * (number % 11) for number in range(100)]
    lengths = np.array([len(message) for message in messages])
    data = np.frombuffer(b"".join(messages), dtype=np.uint8)
    built = build_chunks(data, np.cumsum(lengths) - lengths, lengths, None, ChunkLimits(max_messages=30))
    headers = decode_headers(built.data, built.positions)
    found = walk_entries(
        built.data,
        data_starts=built.positions + CHUNK_HEADER_BYTES,
        data_lengths=headers.data_length,
        entry_counts=headers.num_entries,
        chunk_ids=500 + np.cumsum(built.num_records) - built.num_records,
    )
    assert found.stop is None and len(found) == 100
    assert found.offsets.tolist() == list(range(500, 600))
    bodies = [
        built.data[start : start + length].tobytes()
        for start, length in zip(found.starts.tolist(), found.lengths.tolist(), strict=True)
    ]
    assert bodies == messages


@pytest.mark.usefixtures("_engine")
@pytest.mark.parametrize(
    ("part", "count", "reason", "position"),
    [
        (entry(b"a") + SUB_BATCH, 2, StopReason.SUB_BATCH, 12),
        (entry(b"a")[:-1], 1, StopReason.MALFORMED, 7),
        (entry(b"a") + b"\x00\x00\x00", 2, StopReason.MALFORMED, 12),
        (entry(b"a"), 2, StopReason.MALFORMED, 12),
        (entry(b"a") + entry(b"b"), 1, StopReason.MALFORMED, 12),
        (b"\x7f\xff\xff\xff" + bytes(5), 1, StopReason.MALFORMED, 7),
        (b"", 1, StopReason.MALFORMED, 7),
        (b"x", 0, StopReason.MALFORMED, 7),
    ],
)
def test_a_walk_ends_before_a_chunk_it_cannot_take_and_goes_on_behind_it(
    part: bytes, count: int, reason: StopReason, position: int
) -> None:
    parts, counts = [entry(b"one"), part, entry(b""), entry(b"last")], [1, count, 1, 1]
    found = walk(parts, counts)
    assert found.stop == WalkStop(reason, 1, position)
    assert (found.starts.tolist(), found.lengths.tolist(), found.offsets.tolist()) == ([4], [3], [0])
    rest = walk(parts, counts, first_chunk=2)
    assert rest.stop is None
    assert (rest.lengths.tolist(), rest.offsets.tolist()) == ([0, 4], [2000, 3000])


@pytest.mark.usefixtures("_engine")
def test_no_chunks_give_no_entries() -> None:
    found = walk([], [])
    assert len(found) == 0 and found.stop is None


@pytest.mark.usefixtures("_engine")
def test_a_chunk_outside_the_buffer_is_refused() -> None:
    data = np.zeros(10, dtype=np.uint8)
    for start, length in ((4, 7), (-1, 4), (0, -1)):
        with pytest.raises(ValueError, match="outside"):
            walk_entries(
                data,
                data_starts=np.array([start]),
                data_lengths=np.array([length]),
                entry_counts=np.array([1]),
                chunk_ids=np.array([0]),
            )


@given(
    chunks=st.lists(
        st.tuples(st.lists(st.binary(max_size=20), max_size=4), st.binary(max_size=9), st.integers(0, 6)), max_size=4
    )
)
def test_kernel_and_fallback_find_the_same_in_any_bytes(chunks: list[tuple[list[bytes], bytes, int]]) -> None:
    parts = [b"".join(entry(body) for body in bodies) + rest for bodies, rest, _count in chunks]
    counts = [len(bodies) + (count if rest else 0) for bodies, rest, count in chunks]
    fast = walk(parts, counts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "load", lambda _module: None)
        slow = walk(parts, counts)
    assert fast.stop == slow.stop
    assert fast.starts.tolist() == slow.starts.tolist()
    assert fast.lengths.tolist() == slow.lengths.tolist()
    assert fast.offsets.tolist() == slow.offsets.tolist()


def test_a_walk_reads_nothing_behind_the_data() -> None:
    # The data ends where a page without access begins: one byte too far ends the process.
    page = mmap.PAGESIZE
    with mmap.mmap(-1, 2 * page) as area:
        buffer = np.frombuffer(area, dtype=np.uint8)
        if not _forbid(buffer[page:]):
            pytest.skip("this platform has no mprotect through ctypes")
        try:
            for part in (entry(b"abc"), entry(b"abc")[:-2], b"\x00\x00", b"\x80" + bytes(3), b"\x7f\xff\xff\xff"):
                buffer[page - len(part) : page] = np.frombuffer(part, dtype=np.uint8)
                found = walk_entries(
                    buffer[:page],
                    data_starts=np.array([page - len(part)]),
                    data_lengths=np.array([len(part)]),
                    entry_counts=np.array([3]),
                    chunk_ids=np.array([0]),
                )
                assert found.stop is not None and len(found) == 0
        finally:
            _allow(buffer[page:])
            del buffer


def _protect(pages: np.ndarray, protection: int) -> bool:
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "mprotect"):
        return False
    result = library.mprotect(
        ctypes.c_void_p(pages.__array_interface__["data"][0]), ctypes.c_size_t(len(pages)), ctypes.c_int(protection)
    )
    return bool(result == 0)


def _forbid(pages: np.ndarray) -> bool:
    return _protect(pages, 0)


def _allow(pages: np.ndarray) -> None:
    _protect(pages, mmap.PROT_READ | mmap.PROT_WRITE)
