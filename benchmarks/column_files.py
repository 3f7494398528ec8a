"""Building column files: ten columns of the events that all benchmarks use, and their size beside the segments'.

The baseline decodes the same ten columns of the same messages in memory and keeps nothing. Processor time of one core.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pyarrow as pa
from harness import Measurement, report
from messages import event_batch
from streams import event_stream

from headgate.message.arrow import DeclaredColumn, declared_columns, fields_of
from headgate.scan.columns import build_columns, declare_columns, drop_column_files

MESSAGES = 2_000_000
DECODED = 200_000
ROUNDS = 5
COLUMNS = (
    "region string, price double, quantity int, customer_id bigint, channel string, premium_customer boolean, "
    "p.subject, p.creation_time, p.message_id, h.priority"
)


def main() -> None:
    pa.set_cpu_count(1)
    columns = [each for each in declared_columns(COLUMNS) if isinstance(each, DeclaredColumn)]
    batch = event_batch(DECODED)
    decoding: list[float] = []
    building: list[float] = []
    with tempfile.TemporaryDirectory(prefix="headgate-benchmark-") as folder:
        stream = event_stream(Path(folder) / "events", messages=MESSAGES, segment_bytes=150_000_000)
        declare_columns(stream, COLUMNS)
        messages = files = segments = 0
        for _ in range(ROUNDS + 1):
            start = time.process_time()
            fields_of(batch, columns)
            decoding.append(time.process_time() - start)
            drop_column_files(stream)
            start = time.process_time()
            done = list(build_columns(stream, now_ms=0))
            building.append(time.process_time() - start)
            messages = sum(each.messages for each in done)
            files = sum(each.size_bytes for each in done)
            segments = sum(each.size_bytes() for each in stream.segments() if each.is_sealed)
            inexact = sum(each.inexact for each in done)
    baseline = "decoding the ten columns"
    report(
        "column_files",
        f"Column files of ten columns, {messages / 1e6:.1f} million events; one core",
        [
            Measurement(baseline, DECODED, decoding[1:]),
            Measurement("building column files", messages, building[1:], work_bytes=segments),
        ],
        baseline=baseline,
    )
    print(f"segments {segments:,} bytes, column files {files:,}: {files / segments:.3f}; {inexact:,} inexact rows")


if __name__ == "__main__":
    main()
