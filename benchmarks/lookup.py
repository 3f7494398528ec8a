"""One key among a million: reading it by lookup files and without, building them, their size, blocks read in vain.

    python benchmarks/lookup.py [--messages 20000000] [--per-chunk 20 4096]

Sessions of the events that all benchmarks use, drawn anew for each message. The files are in the page cache, the
process has read once. 100 000 000 messages take 20 GB of disk for each size of chunks.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from harness import Measurement, measure, report
from messages import event_batch

import headgate
from headgate.derived import sources_of
from headgate.derived.lookup import LOOKUP_FILES, declare_lookup
from headgate.derived.lookup.table import BLOCK_MESSAGES
from headgate.evaluate import Filter
from headgate.language import tree
from headgate.log import OffsetSpecification, Stream, StreamArguments, Writer, build_chunks
from headgate.log.chunk_builder import ChunkLimits
from headgate.message import parse_field
from headgate.message.lookup import locate_bytes
from headgate.scan import Cursor, OffsetRange, ScanCounters, ScanRequest, plan, read_range

FIELD = "application_properties.session"
KEYS = 16**5
ONCE = b"-----"
"""The session of one message alone, in the middle of the stream."""
MANY_KEYS = 1000
ROUNDS = 5
BUILD_ROUNDS = 3
_BATCH = 1_000_000
_DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


def session_stream(folder: Path, *, messages: int, per_chunk: int) -> Stream:
    """A new stream of that many events; each has a session out of a million by chance."""
    arguments = StreamArguments(max_segment_size_bytes=500_000_000, max_segment_age_ms=1_000_000)
    stream = Stream.create(folder, name=folder.name, now_ms=0, arguments=arguments)
    batch = event_batch(min(messages, _BATCH))
    places, lengths = locate_bytes(batch, parse_field(FIELD))
    assert (lengths == 5).all()
    generator = np.random.default_rng(1)
    with Writer.open(stream, now_ms=0) as writer:
        starts = range(0, messages, _BATCH)
        for time_ms, first in enumerate(starts):
            keys = generator.integers(0, KEYS, len(batch))
            for digit in range(5):
                batch.data[places + digit] = _DIGITS[keys >> (16 - 4 * digit) & 15]
            if time_ms == len(starts) // 2:
                row = min(_BATCH, messages - first) // 2
                batch.data[places[row] : places[row] + len(ONCE)] = np.frombuffer(ONCE, dtype=np.uint8)
            part = slice(0, min(_BATCH, messages - first))
            built = build_chunks(
                batch.data, batch.starts[part], batch.lengths[part], None, ChunkLimits(max_messages=per_chunk)
            )
            writer.append_chunks(built.data, built.positions, now_ms=time_ms)
        # The last segment is sealed when the next message comes.
        writer.append([(batch.message(0), None)], now_ms=2_000_000)
    return Stream.open(folder)


def among(keys: list[int]) -> Filter:
    """A filter for any number of keys: a text would be too long."""
    one = Filter.parse("session IN ('')", "rabbitmq").tree
    assert isinstance(one, tree.In)
    members = tuple(tree.Constant(f"{key:05x}".encode()) for key in keys)
    return Filter(replace(one, members=members), f"session IN ({len(keys)} keys)", None)


def matches(stream: Stream, wanted: Filter, *, lookup: bool = True) -> ScanCounters:
    """Read all matches, as a planned read does; what was counted."""
    request = ScanRequest(filter=wanted, sources=sources_of(lookup=lookup))
    found = plan(stream, request, OffsetRange(0, stream.next_offset()))
    for chunks in found.ranges:
        for _ in read_range(chunks, request, found.counters):
            pass
    return found.counters


def followed(stream: Stream, wanted: Filter) -> None:
    """Read all matches as `tail` and the broker do."""
    request = ScanRequest(filter=wanted, sources=sources_of())
    with Cursor(stream, request, start=OffsetSpecification.first(), now_ms=0) as cursor:
        while cursor.read(0) is not None:
            pass


def asked_why(stream: Stream) -> None:
    """Ask for one message what became of it, as `headgate why STREAM --where` does."""
    answer = headgate.why(stream.path, where=f"session = '{ONCE.decode()}'", filter="TRUE")
    assert answer.message is not None and answer.search.using == ("lookup",)


def one_size(folder: Path, messages: int, per_chunk: int) -> None:
    stream = session_stream(folder / f"by-{per_chunk}", messages=messages, per_chunk=per_chunk)
    declare_lookup(stream, [FIELD])
    building = []
    for _ in range(BUILD_ROUNDS + 1):
        LOOKUP_FILES.drop_files(stream)
        start = time.process_time()
        done = list(LOOKUP_FILES.build(stream, now_ms=0))
        building.append(time.process_time() - start)
    size, built = sum(each.size_bytes for each in done), sum(each.messages for each in done)
    keys = iter(np.random.default_rng(2).integers(0, KEYS, 100_000).tolist())

    def some(count: int) -> Filter:
        return among([next(keys) for _ in range(count)])

    baseline = "one key without lookup"
    measurements = [
        measure(baseline, lambda: matches(stream, some(1), lookup=False), messages, rounds=ROUNDS),
        measure("one key", lambda: matches(stream, some(1)), messages, rounds=4 * ROUNDS),
        measure("one key, followed", lambda: followed(stream, some(1)), messages, rounds=ROUNDS),
        measure("why, one message", lambda: asked_why(stream), messages, rounds=ROUNDS),
        measure("10 keys", lambda: matches(stream, some(10)), messages, rounds=ROUNDS),
        measure(
            f"{MANY_KEYS} keys without lookup",
            lambda: matches(stream, some(MANY_KEYS), lookup=False),
            messages,
            rounds=1,
        ),
        measure(f"{MANY_KEYS} keys", lambda: matches(stream, some(MANY_KEYS)), messages, rounds=ROUNDS),
        Measurement("building, one core", built, building[1:]),
    ]
    report(
        f"lookup_{per_chunk}",
        f"One key of {KEYS:,} in {messages / 1e6:.0f} million messages, chunks of {per_chunk}",
        measurements,
        baseline=baseline,
    )
    blocks = -(-messages // BLOCK_MESSAGES)
    counts = [matches(stream, some(1)) for _ in range(50)]
    wanted = np.mean([each.messages_matched for each in counts])
    read = np.mean([each.messages_evaluated for each in counts]) / max(per_chunk, BLOCK_MESSAGES)
    print(
        f"{size / built:.3f} bytes a message; {wanted:.1f} matches a key, {read:.1f} of {blocks} blocks read, "
        f"{max(0.0, read - wanted) / blocks:.4%} in vain at most"
    )
    shutil.rmtree(folder / f"by-{per_chunk}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=20_000_000)
    parser.add_argument("--per-chunk", type=int, nargs="*", default=[20, 4096])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headgate-benchmark-") as folder:
        for per_chunk in asked.per_chunk:
            one_size(Path(folder), asked.messages, per_chunk)


if __name__ == "__main__":
    main()
