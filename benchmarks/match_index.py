"""Reading with results precomputed: the case RocketMQ published for its own (bodies and properties of 1 KB each).

Five consumers want one fifth of the messages each, and every one reads the whole stream. Measured is the CPU time of
their readers, with the match index in both layouts and without; the baseline evaluates. The messages of a chunk belong
to all five, so no chunk is skipped: what is saved is reading and evaluating messages.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from pathlib import Path

from harness import Measurement, report

from headgate.evaluate.filter import Filter
from headgate.log import OffsetSpecification, Stream, StreamArguments
from headgate.log.build import ChunkLimits, FilterValues, build_chunks
from headgate.log.writer import Writer
from headgate.message import EncodedMessages, Message
from headgate.scan import Cursor, ScanRequest
from headgate.scan.match_index.build import build_index
from headgate.scan.match_index.registry import FilterRegistry
from headgate.scan.match_index.settings import IndexSettings, Layout

MESSAGES = 300_000
CONSUMERS = 5
PROPERTIES = 32
BYTES = 1024
DIALECT = "rocketmq"
ROUNDS = 7


def published_message(random_source: random.Random, number: int) -> bytes:
    """A body of 1 KB, and 1 KB of properties; the one that consumers ask for stands among the others."""
    size = BYTES // PROPERTIES - len("property00") - 4
    properties = {
        f"property{each:02d}": random_source.randbytes(size // 2 + 1).hex()[:size] for each in range(PROPERTIES)
    }
    properties["property16"] = f"consumer{number % CONSUMERS}"
    return Message(random_source.randbytes(BYTES), application_properties=properties).encode()


def published_stream(folder: Path, messages: int) -> Stream:
    """A stream of such messages, in chunks as writers make them under load, in sealed segments."""
    stream = Stream.create(
        folder, name=folder.name, now_ms=0, arguments=StreamArguments(max_segment_size_bytes=100_000_000)
    )
    source = random.Random(1)
    batch = EncodedMessages.of([published_message(source, number) for number in range(messages // 10)])
    values = FilterValues.of([None] * len(batch))
    built = build_chunks(batch.data, batch.starts, batch.lengths, values, ChunkLimits(filter_size_bytes=16))
    with Writer.open(stream, now_ms=0) as writer:
        for time_ms in range(10):
            writer.append_chunks(built.data, built.positions, now_ms=time_ms)
    return Stream.open(folder)


def read(stream: Stream, request: ScanRequest) -> int:
    kept = 0
    with Cursor(stream, request, start=OffsetSpecification.first(), now_ms=0) as cursor:
        while (batch := cursor.read(0)) is not None:
            kept += len(batch)
    return kept


def main() -> None:
    texts = [f"property16 = 'consumer{number}'" for number in range(CONSUMERS)]
    filters = [Filter.parse(text, DIALECT) for text in texts]
    with tempfile.TemporaryDirectory(prefix="headgate-benchmark-") as folder:
        stream = published_stream(Path(folder) / "published", MESSAGES)
        baseline = "evaluated by each reader"

        def cpu_seconds(wanted: list[ScanRequest]) -> float:
            start = time.process_time()
            kept = [read(stream, request) for request in wanted]
            seconds = time.process_time() - start
            assert kept == [MESSAGES // CONSUMERS] * CONSUMERS
            return seconds

        measured: list[Measurement] = []
        registry = FilterRegistry(stream)
        for number, text in enumerate(texts):
            registry.register(f"group{number}#published", text, DIALECT, now_ms=0)
        with_index = [ScanRequest(filter=each) for each in filters]
        without = [ScanRequest(filter=each, match_index=False) for each in filters]
        for layout in Layout:
            registry.configure(IndexSettings(layout=layout))
            build_index(stream, now_ms=0)
            seconds: tuple[list[float], list[float]] = ([], [])
            for _ in range(ROUNDS + 1):
                for wanted, found in zip((without, with_index), seconds, strict=True):
                    found.append(cpu_seconds(wanted))
            if not measured:
                measured.append(Measurement(baseline, MESSAGES * CONSUMERS, seconds[0][1:]))
            measured.append(Measurement(f"match index, {layout.value}", MESSAGES * CONSUMERS, seconds[1][1:]))
            share = statistics.median(seconds[1][1:]) / statistics.median(seconds[0][1:])
            print(f"{layout.value}: {share:.2f} of the CPU time without the index, in the same rounds")
        report(
            "match_index",
            f"{CONSUMERS} readers of {MESSAGES:,} messages of 2 KB, each wants a fifth; CPU time, all readers together",
            measured,
            baseline=baseline,
        )


if __name__ == "__main__":
    main()
