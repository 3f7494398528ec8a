"""Building chunks from encoded messages (entries, CRC, Bloom bytes), and finding the messages of chunks again.

The baseline is the implementation without kernels, on a part of the messages.
"""

from __future__ import annotations

import numpy as np
from harness import Measurement, measure, report

from headgate import kernels
from headgate.log.chunk_builder import BuiltChunks, ChunkBuilder, ChunkLimits, FilterValues, build_chunks
from headgate.log.entry_positions import walk_entries
from headgate.log.format import CHUNK_HEADER_BYTES, decode_headers

MESSAGES = 1_000_000
FALLBACK_MESSAGES = 50_000
BATCH = 65_536
EVENT_TYPES = (
    b"user.login",
    b"product.view",
    b"cart.add",
    b"order.created",
    b"order.paid",
    b"order.shipped",
    b"search.query",
    b"invoice.sent",
)


def without_kernels(run):  # type: ignore[no-untyped-def]
    load = kernels.load
    kernels.load = lambda _module: None  # type: ignore[assignment]
    try:
        return run()
    finally:
        kernels.load = load


def main() -> None:
    random = np.random.default_rng(20_26)
    lengths = random.integers(150, 250, MESSAGES)
    starts = np.cumsum(lengths) - lengths
    data = random.integers(0, 256, int(lengths.sum()) + 8, dtype=np.uint8)
    size = int(lengths.sum())
    joined = FilterValues.of(EVENT_TYPES)
    in_order = np.arange(MESSAGES) * len(EVENT_TYPES) // MESSAGES
    mixed = random.integers(0, len(EVENT_TYPES), MESSAGES)
    distinct = FilterValues.of(f"customer-{number % 50_000}".encode() for number in range(MESSAGES))
    limits = ChunkLimits(publisher=b"11111111-2222-3333-4444-555555555555")

    def values(picked: np.ndarray) -> FilterValues:
        return FilterValues(joined.data, joined.starts[picked], joined.lengths[picked])

    def build(filter_values: FilterValues | None, count: int = MESSAGES) -> None:
        """As a task does: batch after batch into a builder, whose chunks go somewhere."""
        builder = ChunkBuilder(limits, lambda _built: None)
        for first in range(0, count, BATCH):
            end = min(first + BATCH, count)
            part = None if filter_values is None else filter_values.slice(first, end)
            builder.add(data, starts[first:end], lengths[first:end], part)
        builder.finish()

    few = int(lengths[:FALLBACK_MESSAGES].sum())
    baseline = "build, 8 event types mixed, without kernels"
    results: list[Measurement] = [
        measure(
            baseline,
            lambda: without_kernels(lambda: build(values(mixed), FALLBACK_MESSAGES)),
            FALLBACK_MESSAGES,
            rounds=3,
            work_bytes=few,
        ),
        measure("build, 8 event types mixed", lambda: build(values(mixed)), MESSAGES, work_bytes=size),
        measure("build, 8 event types in runs", lambda: build(values(in_order)), MESSAGES, work_bytes=size),
        measure("build, 50 000 filter values in turn", lambda: build(distinct), MESSAGES, work_bytes=size),
        measure("build, no filter values", lambda: build(None), MESSAGES, work_bytes=size),
    ]
    built = build_chunks(data, starts, lengths, values(mixed), limits)
    results.append(measure("walk entries", lambda: walk(built), MESSAGES, work_bytes=len(built.data)))
    part = build_chunks(data, starts[:FALLBACK_MESSAGES], lengths[:FALLBACK_MESSAGES], None, limits)
    results.append(
        measure(
            "walk entries, without kernels",
            lambda: without_kernels(lambda: walk(part)),
            FALLBACK_MESSAGES,
            rounds=3,
            work_bytes=len(part.data),
        )
    )
    report("chunk_building", "Chunks: messages of 150 to 250 bytes, one core", results, baseline=baseline)


def walk(built: BuiltChunks) -> None:
    headers = decode_headers(built.data, built.positions)
    found = walk_entries(
        built.data,
        data_starts=built.positions + CHUNK_HEADER_BYTES + headers.bloom_length,
        data_lengths=headers.data_length,
        entry_counts=headers.num_entries,
        chunk_ids=np.cumsum(built.num_records) - built.num_records,
    )
    assert found.stop is None and len(found) == built.message_count


if __name__ == "__main__":
    main()
