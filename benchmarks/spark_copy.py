"""Spark, two cores: from stream to filtered stream, committed exactly once, and rows into a stream through the sink.

The baseline is the same copy as rows through the JVM: source to sink. HEADGATE_BENCH_MESSAGES sets the number of
messages of the copy, by default twice that of `spark_count.py`; the row paths take a twentieth of it. The copy of every
message says how many of the copied bytes the driver's Python process read and wrote itself.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from harness import measure, report
from streams import RARE_FILTER, event_stream

from headgate.spark import copy_stream, session

MESSAGES = int(os.environ.get("HEADGATE_BENCH_MESSAGES", "40000000"))
ROWS = MESSAGES // 20


def bytes_moved() -> tuple[int, int]:
    """The bytes that this process, the driver, has read and written by system calls."""
    counted = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counted["rchar"]), int(counted["wchar"])


def main() -> None:
    spark = session("benchmark", master="local[2]", config={"spark.driver.memory": "4g"})
    with tempfile.TemporaryDirectory(prefix="headgate-benchmark-") as folder:
        place = Path(folder)
        large = event_stream(place / "large", messages=MESSAGES)
        small = event_stream(place / "small", messages=ROWS)
        size = sum(segment.segment_path.stat().st_size for segment in large.segments())
        filtered = {"stream": str(large.path), "filter": RARE_FILTER}
        target = {"root": str(place / "root"), "stream": "out", "filter_source": "properties.subject"}

        def clear() -> None:
            shutil.rmtree(place / "root", ignore_errors=True)

        def through_rows(columns: str) -> None:
            rows = spark.read.format("headgate").options(columns=columns).load(str(small.path))
            rows.write.format("headgate").options(**target).mode("append").save()

        moved: list[tuple[int, int]] = []

        def copy_all() -> None:
            before = bytes_moved()
            copied = copy_stream(spark, {"stream": str(small.path)}, target)
            assert copied.messages_written == ROWS
            moved.append((bytes_moved()[0] - before[0], bytes_moved()[1] - before[1]))

        baseline = "every message as a row: source to sink, encoded message"
        wide = "header,properties,application_properties,body"
        results = [
            measure(baseline, lambda: through_rows("message"), ROWS, rounds=3, prepare=clear),
            measure(
                "every message as a row: columns decoded and encoded again",
                lambda: through_rows(wide),
                ROWS,
                rounds=3,
                prepare=clear,
            ),
            measure(
                "copy of the filtered messages, descriptors only",
                lambda: copy_stream(spark, filtered, target),
                MESSAGES,
                rounds=3,
                prepare=clear,
                work_bytes=size,
            ),
            measure(
                "copy of every message, descriptors only",
                copy_all,
                ROWS,
                rounds=3,
                prepare=clear,
            ),
        ]
        copied = len(moved) * sum(segment.segment_path.stat().st_size for segment in small.segments()) / 100
        read, written = (sum(each) / copied for each in zip(*moved, strict=True))
        results[-1].name += f"; the driver read {read:.2f} % of the bytes and wrote {written:.2f} %"
        title = f"Spark, local[2]: stream to stream, {MESSAGES:,} messages ({size / 1e9:.1f} GB), committed"
        report("spark_copy", title, results, baseline=baseline)
    spark.stop()


if __name__ == "__main__":
    main()
