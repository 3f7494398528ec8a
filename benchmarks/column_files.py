"""Column files of ten columns of the events that all benchmarks use: building them, and filters that they decide.

The baseline of building decodes the same ten columns of the same messages in memory and keeps nothing. Each filter is
read by columns and by bytes in turn, planning and reading what matches; nothing that was decided is remembered from
round to round. Processor time of one core.
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from harness import Measurement, report
from messages import event_batch
from streams import event_stream

from headgate.derived import sources_of
from headgate.derived.columns import COLUMN_FILES, declare_columns, source
from headgate.evaluate import Filter
from headgate.log import Stream
from headgate.message.arrow import DeclaredColumn, declared_columns, fields_of
from headgate.scan import OffsetRange, ScanCounters, ScanRequest, count_matches, plan, read_range

MESSAGES = 2_000_000
DECODED = 200_000
ROUNDS = 5
COLUMNS = (
    "region string, price double, quantity int, customer_id bigint, channel string, premium_customer boolean, "
    "p.subject, p.creation_time, p.message_id, h.priority"
)

FILTERS = ("price > 100000", "customer_id = 4711", "price >= 270", "price >= 130", "region = 'AMER'")


def read(stream: Stream, text: str, *, by_columns: bool) -> int:
    """Read what a filter keeps of the sealed segments; gives how many messages that is."""
    request, within = _request(text, by_columns=by_columns), _sealed(stream)
    counters = ScanCounters()
    planned = plan(stream, request, within)
    return sum(len(batch) for chunks in planned.ranges for batch in read_range(chunks, request, counters))


def count(stream: Stream, text: str, *, by_columns: bool) -> int:
    """Count them."""
    return count_matches(stream, _request(text, by_columns=by_columns), _sealed(stream)).matches


def _request(text: str, *, by_columns: bool) -> ScanRequest:
    source._CACHE.clear()
    return ScanRequest(filter=Filter.parse(text, "rabbitmq"), sources=sources_of(columns=by_columns))


def _sealed(stream: Stream) -> OffsetRange:
    return OffsetRange(0, max(segment.stop_offset or 0 for segment in stream.segments()))


def decided(stream: Stream) -> None:
    """Filters by bytes and by columns, in turn."""
    messages = _sealed(stream).stop
    sizes = sum(segment.size_bytes() for segment in stream.segments() if segment.is_sealed)
    found: list[Measurement] = []
    for text in FILTERS:
        ways: dict[str, Callable[[], int]] = {
            "by bytes": functools.partial(read, stream, text, by_columns=False),
            "by columns": functools.partial(read, stream, text, by_columns=True),
            "counted by columns": functools.partial(count, stream, text, by_columns=True),
        }
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        kept = 0
        for _ in range(ROUNDS + 1):
            for name, way in ways.items():
                start = time.process_time()
                kept = way()
                seconds[name].append(time.process_time() - start)
        share = f"{kept / messages:.2%}".replace("%", " %")
        for name, rounds in seconds.items():
            size = sizes if name == "by bytes" else None
            found.append(Measurement(f"`{text}` ({share}), {name}", messages, rounds[1:], work_bytes=size))
    report(
        "column_filters",
        f"Filters over {messages / 1e6:.1f} million events of sealed segments; one core",
        found,
        baseline=found[0].name,
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
            COLUMN_FILES.drop_files(stream)
            start = time.process_time()
            done = list(COLUMN_FILES.build(stream, now_ms=0))
            building.append(time.process_time() - start)
            messages = sum(each.messages for each in done)
            files = sum(each.size_bytes for each in done)
            segments = sum(each.size_bytes() for each in stream.segments() if each.is_sealed)
            inexact = sum(each.inexact for each in done)
        decided(stream)
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
