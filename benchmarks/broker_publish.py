"""Publishing inside the broker: queue, deduplicate, build chunks, append, confirm. No network, one core.

The baseline is the same messages built into chunks and written by the log's writer alone, in appends as large as those
of the broker's largest batches. The stream is in memory where there is such a file system: the disk is not measured.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from harness import Measurement, measure, report

from headgate.broker.batches import PublishBatch
from headgate.broker.broker import Broker
from headgate.errors import HeadgateError
from headgate.log import Durability, Stream, Writer
from headgate.log.chunk_builder import ChunkLimits, FilterValues, build_chunks
from headgate.log.runs import Entries

MESSAGES = 200_000
SINGLES = 2_000
MESSAGE_BYTES = 200
BATCHES_A_TURN = 4
VALUES = (b"AMER", b"EMEA", b"APAC", b"LATAM")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def batches(size: int, count: int, written: Callable[[HeadgateError | None], None], values: bool) -> list[PublishBatch]:
    data = np.zeros(size * MESSAGE_BYTES, dtype=np.uint8)
    lengths = np.full(size, MESSAGE_BYTES, dtype=np.int64)
    joined = FilterValues.of(VALUES)
    picked = np.arange(size) % len(VALUES)
    given = FilterValues(joined.data, joined.starts[picked], joined.lengths[picked]) if values else None
    entries = Entries(data, np.cumsum(lengths) - lengths, lengths, given)
    return [PublishBatch(entries, written) for _ in range(count)]


def main() -> None:
    memory = "/dev/shm"
    folder = memory if os.access(memory, os.W_OK | os.X_OK) else None
    with tempfile.TemporaryDirectory(dir=folder) as path:
        root = Path(path)
        broker = Broker(root, now_ms=now_ms)
        session = broker.open_session("guest", protocol="benchmark", connection="benchmark")
        limits = {"max-length-bytes": 100_000_000, "stream-max-segment-size-bytes": 50_000_000}
        session.declare_stream("s", limits)
        publisher, named = session.publisher("s"), session.publisher("s", reference="p")
        answers: list[HeadgateError | None] = []
        sequence = 0

        def publish(made: list[PublishBatch]) -> None:
            for first in range(0, len(made), BATCHES_A_TURN):
                for batch in made[first : first + BATCHES_A_TURN]:
                    publisher.publish(batch)
                broker.write_queued()

        def publish_named(made: list[PublishBatch]) -> None:
            nonlocal sequence
            for first in range(0, len(made), BATCHES_A_TURN):
                for batch in made[first : first + BATCHES_A_TURN]:
                    batch.sequences = np.arange(sequence, sequence + len(batch.entries), dtype=np.uint64)
                    sequence += len(batch.entries)
                    named.publish(batch)
                broker.write_queued()

        def alone() -> None:
            for batch in singles:
                publisher.publish(batch)
                broker.write_queued()

        def case(name: str, size: int, *, values: bool = False, with_name: bool = False) -> Measurement:
            made = batches(size, MESSAGES // size, answers.append, values)
            run = publish_named if with_name else publish
            return measure(name, lambda: run(made), MESSAGES, work_bytes=MESSAGES * MESSAGE_BYTES)

        singles = batches(1, SINGLES, answers.append, False)
        baseline = "the log's writer alone"
        results = [
            log_alone(baseline, root),
            case("batches of 5 000", 5_000),
            case("batches of 5 000, a filter value each", 5_000, values=True),
            case("batches of 5 000, publisher with a name", 5_000, with_name=True),
            case("batches of 100", 100),
            measure("one message at a time, each confirmed", alone, SINGLES),
        ]
        assert not any(answers)
        broker.close()
    report("broker_publish", f"Publishing: messages of {MESSAGE_BYTES} bytes, one core", results, baseline=baseline)


def log_alone(name: str, root: Path) -> Measurement:
    stream = Stream.create(root / "alone", name="alone", now_ms=now_ms())
    size = BATCHES_A_TURN * 5_000
    made = batches(size, MESSAGES // size, lambda _error: None, False)
    with Writer.open(stream, now_ms=now_ms(), durability=Durability.PROCESS) as writer:

        def write() -> None:
            for batch in made:
                entries = batch.entries
                built = build_chunks(entries.data, entries.starts, entries.lengths, None, ChunkLimits())
                writer.append_chunks(built.data, built.positions, now_ms=now_ms())

        return measure(name, write, MESSAGES, work_bytes=MESSAGES * MESSAGE_BYTES)


if __name__ == "__main__":
    main()
