"""Results precomputed: the case that RocketMQ published for its own (bodies and properties of 1 KB each).

Five consumer groups want one fifth of the messages each, and every one reads the whole stream. Measured is the CPU time
of reading and deciding, with the match index and without; the baseline evaluates. The messages of a
chunk belong to all five, so no chunk is skipped: what is saved is reading and evaluating messages. Another table says
what a broker pays for the index while it writes: a step after each second of 80 000 messages.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from pathlib import Path

from harness import Measurement, report

from headgate.derived import MATCH_INDEX, sources_of
from headgate.derived.match_index import GrowingIndex
from headgate.derived.match_index.registry import FilterRegistry
from headgate.derived.match_index.settings import IndexSettings
from headgate.evaluate.filter import Filter
from headgate.log import OffsetSpecification, Stream, StreamArguments
from headgate.log.chunk_builder import BuiltChunks, ChunkLimits, FilterValues, build_chunks
from headgate.log.writer import Writer
from headgate.message import EncodedMessages, Message
from headgate.scan import Cursor, ScanRequest

MESSAGES = 80_000
GROUPS = 5
PROPERTIES = 32
BYTES = 1024
DIALECT = "rocketmq"
ROUNDS = 7
PIECES = 10
SECONDS = 5


def text_of(group: int) -> str:
    """The published expression, for one fifth of the buckets."""
    low = 20 * group
    return f"bucket BETWEEN {low} AND {low + 19} AND kind = 'order'"


def published_message(random_source: random.Random, number: int) -> bytes:
    """A body of 1 KB, and 1 KB of properties; those that are asked for stand among the others."""
    size = BYTES // PROPERTIES - len("property00") - 4
    properties: dict[str, object] = {}
    for each in range(PROPERTIES):
        if each == PROPERTIES // 2:
            properties |= {"bucket": str(number % 100), "kind": "order"}
        properties[f"property{each:02d}"] = random_source.randbytes(size // 2 + 1).hex()[:size]
    return Message(random_source.randbytes(BYTES), application_properties=properties).encode()


def built_messages(messages: int) -> BuiltChunks:
    """Such messages, in chunks as writers make them under load."""
    source = random.Random(1)
    batch = EncodedMessages.of([published_message(source, number) for number in range(messages)])
    values = FilterValues.of([None] * len(batch))
    return build_chunks(batch.data, batch.starts, batch.lengths, values, ChunkLimits(filter_size_bytes=16))


def created(folder: Path) -> Stream:
    arguments = StreamArguments(max_segment_size_bytes=500_000_000)
    return Stream.create(folder, name=folder.name, now_ms=0, arguments=arguments)


def published_stream(folder: Path, built: BuiltChunks) -> Stream:
    """A stream of such messages."""
    stream = created(folder)
    with Writer.open(stream, now_ms=0) as writer:
        for time_ms in range(PIECES):
            writer.append_chunks(built.data, built.positions, now_ms=time_ms)
    return Stream.open(folder)


def register(stream: Stream) -> None:
    registry = FilterRegistry(stream)
    registry.configure(IndexSettings(calculate_filter_bitmap=True))
    for group in range(GROUPS):
        registry.register(f"group{group}#published", text_of(group), DIALECT, now_ms=0)


def read(stream: Stream, request: ScanRequest) -> int:
    kept = 0
    with Cursor(stream, request, start=OffsetSpecification.first(), now_ms=0) as cursor:
        while (batch := cursor.read(0)) is not None:
            kept += len(batch)
    return kept


def measure_reading(root: Path, built: BuiltChunks) -> None:
    stream = published_stream(root / "published", built)
    filters = [Filter.parse(text_of(group), DIALECT) for group in range(GROUPS)]
    baseline = "evaluated by each group"

    def cpu_seconds(wanted: list[ScanRequest]) -> float:
        start = time.process_time()
        kept = [read(stream, request) for request in wanted]
        seconds = time.process_time() - start
        assert kept == [MESSAGES // GROUPS] * GROUPS
        return seconds

    with_index = [ScanRequest(filter=each, sources=sources_of()) for each in filters]
    without = [ScanRequest(filter=each, sources=sources_of(match_index=False)) for each in filters]
    register(stream)
    list(MATCH_INDEX.build(stream, now_ms=0))
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS + 1):
        for wanted, found in zip((without, with_index), seconds, strict=True):
            found.append(cpu_seconds(wanted))
    share = statistics.median(seconds[1][1:]) / statistics.median(seconds[0][1:])
    print(f"{share:.2f} of the CPU time without the index, in the same rounds")
    report(
        "match_index",
        f"{GROUPS} groups read {MESSAGES:,} messages of 2 KB, each wants a fifth; CPU time of all together",
        [
            Measurement(baseline, MESSAGES * GROUPS, seconds[0][1:]),
            Measurement("match index", MESSAGES * GROUPS, seconds[1][1:]),
        ],
        baseline=baseline,
    )


def measure_growing(root: Path, built: BuiltChunks) -> None:
    """A second of the stream is appended, then indexed; only the second is measured."""
    written: list[float] = []
    indexed: list[float] = []
    stream = created(root / "growing")
    register(stream)
    index = GrowingIndex(stream, 0)
    with Writer.open(stream, now_ms=0) as writer:
        for second in range(SECONDS + 1):
            start = time.process_time()
            for _ in range(PIECES):
                writer.append_chunks(built.data, built.positions, now_ms=second)
            written.append(time.process_time() - start)
            start = time.process_time()
            while index.step(writer.next_offset):
                pass
            indexed.append(time.process_time() - start)
    index.close()
    print(f"{statistics.median(indexed[1:]):.2f} of a core at {MESSAGES:,} messages/s")
    baseline = "appended, without building chunks"
    report(
        "match_index_growing",
        f"Each second {MESSAGES:,} messages of 2 KB are appended; CPU time of what the broker does with them",
        [
            Measurement(baseline, MESSAGES, written[1:]),
            Measurement(f"match index of {GROUPS} filters", MESSAGES, indexed[1:]),
        ],
        baseline=baseline,
    )


def main() -> None:
    built = built_messages(MESSAGES // PIECES)
    with tempfile.TemporaryDirectory(prefix="headgate-benchmark-") as folder:
        measure_reading(Path(folder), built)
        measure_growing(Path(folder), built)


if __name__ == "__main__":
    main()
