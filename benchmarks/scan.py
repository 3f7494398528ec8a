"""A filtered read of a stream without Spark: both stages, checksums included, one core; and the memory it takes.

The baseline is the read of everything without a filter. Memory is the peak of a process of its own, for a stream and
for one ten times as long.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import Measurement, measure, report
from streams import ORDER_FILTER, event_stream

from headgate.evaluate.filter import Filter
from headgate.log import OffsetSpecification, Stream
from headgate.scan import Cursor, ScanRequest

MESSAGES = 2_000_000


def read(stream: Stream, request: ScanRequest) -> int:
    kept = 0
    with Cursor(stream, request, start=OffsetSpecification.first(), now_ms=0) as cursor:
        while (batch := cursor.read(0)) is not None:
            kept += len(batch)
    return kept


def peak_memory_mib(stream: Stream) -> int:
    """Peak resident memory of a process that reads the stream with the order filter."""
    done = subprocess.run(
        [sys.executable, __file__, str(stream.path)], check=True, capture_output=True, text=True, timeout=600
    )
    return int(done.stdout)


def main() -> None:
    order = Filter.parse(ORDER_FILTER, "rabbitmq")
    region = Filter.parse("region = 'AMER'", "rabbitmq")
    with tempfile.TemporaryDirectory(prefix="headgate-benchmark-") as folder:
        mixed = event_stream(Path(folder) / "mixed", messages=MESSAGES, segment_bytes=100_000_000)
        small = event_stream(Path(folder) / "small", messages=MESSAGES, per_chunk=20, segment_bytes=100_000_000)
        runs = event_stream(Path(folder) / "runs", messages=MESSAGES, in_runs=True, segment_bytes=100_000_000)
        size = sum(segment.segment_path.stat().st_size for segment in mixed.segments())
        baseline = "everything, no filter"

        def row(name: str, stream: Stream, request: ScanRequest) -> Measurement:
            return measure(name, lambda: read(stream, request), MESSAGES, work_bytes=size, rounds=5)

        report(
            "scan",
            f"Filtered reads of {MESSAGES:,} messages, one core, chunks of 4 096 unless said",
            [
                row(baseline, mixed, ScanRequest()),
                row("order filter", mixed, ScanRequest(filter=order)),
                row("order filter, checksums off", mixed, ScanRequest(filter=order, verify_checksums=False)),
                row("region = 'AMER'", mixed, ScanRequest(filter=region)),
                row("order filter, all verdicts counted", mixed, ScanRequest(filter=order, exact=True)),
                row("order filter, chunks of 20", small, ScanRequest(filter=order)),
                row("order filter, values in runs", runs, ScanRequest(filter=order)),
            ],
            baseline=baseline,
        )
        long = event_stream(Path(folder) / "long", messages=10 * MESSAGES, segment_bytes=100_000_000)
        print(f"peak memory of a reader: {peak_memory_mib(mixed)} MiB")
        print(f"peak memory, stream ten times as long: {peak_memory_mib(long)} MiB")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        read(Stream.open(sys.argv[1]), ScanRequest(filter=Filter.parse(ORDER_FILTER, "rabbitmq")))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
    else:
        main()
