"""Tables without Spark: decoding on one core, and `headgate.read` on two, with column files and without.

Beside it, in the same rounds, what others make of the column files' Parquet: polars' scan, DuckDB, pyarrow's dataset.
Each gives the two columns of the rows that match, as Arrow or as a DataFrame of polars. Files are checked before the
first round, which is done once in the life of a process. A filter on values in runs lets stage 1 and statistics skip;
one session is found by a lookup file, which only `headgate.read` knows.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import polars
import pyarrow.compute as pc
import pyarrow.dataset as ds
from harness import Measurement, milliseconds, report, report_table, short
from messages import event_batch
from streams import event_stream

import headgate
from headgate.derived.columns import COLUMN_FILES, column_files, declare_columns
from headgate.derived.lookup import LOOKUP_FILES, declare_lookup
from headgate.log import Stream
from headgate.message.arrow import DeclaredColumn, columns_of, declared_columns, fields_of

MESSAGES = 8_000_000
DECODED = 262_144
BATCH = 65_536
ROUNDS = 5
COLUMNS = (
    "region string, price double, quantity int, customer_id bigint, channel string, premium_customer boolean, "
    "p.subject, p.creation_time, p.message_id, h.priority, session string"
)
SESSION = "0a3f7"
TWO = "region string, price double"
SEVEN = f"{TWO}, quantity int, customer_id bigint, channel string, p.subject, p.creation_time"


@dataclass(frozen=True, slots=True)
class Asked:
    """One filter in the languages of all."""

    name: str
    text: str | None
    sql: str = "true"
    of_polars: polars.Expr | None = None
    of_arrow: pc.Expression | None = None
    in_runs: bool = False


ASKED = (
    Asked("all rows", None),
    Asked("one row in ten", "price > 130", "price > 130", polars.col("price") > 130, pc.field("price") > 130),
    Asked(
        "one row in three",
        "region = 'AMER'",
        "region = 'AMER'",
        polars.col("region") == "AMER",
        pc.field("region") == "AMER",
    ),
    Asked(
        "one subject of seven, in runs",
        "p.subject = 'order.paid' AND price > 20",
        "subject = 'order.paid' AND price > 20",
        (polars.col("subject") == "order.paid") & (polars.col("price") > 20),
        (pc.field("subject") == "order.paid") & (pc.field("price") > 20),
        in_runs=True,
    ),
    Asked(
        "one session of a million",
        f"session = '{SESSION}'",
        f"session = '{SESSION}'",
        polars.col("session") == SESSION,
        pc.field("session") == SESSION,
    ),
)


def decoding() -> None:
    """Fields of messages in memory, on one core."""
    batch = event_batch(DECODED)
    parts = [batch.take(slice(first, first + BATCH)) for first in range(0, DECODED, BATCH)]

    def of_fields(text: str) -> Callable[[], object]:
        declared = [each for each in declared_columns(text) if isinstance(each, DeclaredColumn)]
        return lambda: [fields_of(part, declared) for part in parts]

    runs: dict[str, Callable[[], object]] = {
        "copying the messages": lambda: [columns_of(part, ["message"]) for part in parts],
        "one field of the properties": of_fields("p.subject"),
        "two declared properties": of_fields(TWO),
        "seven columns": of_fields(SEVEN),
        "properties as a struct, and six declared": lambda: [
            columns_of(
                part,
                ["properties", "application_properties"],
                f"{TWO}, quantity int, customer_id bigint, channel string, premium_customer boolean",
            )
            for part in parts
        ],
    }
    seconds = in_turn(runs, time.process_time)
    baseline = "copying the messages"
    measured = [Measurement(name, DECODED, seconds[name]) for name in runs]
    report(
        "tables_decoding", f"Decoding fields of {DECODED:,} events of 200 bytes; one core", measured, baseline=baseline
    )


def in_turn(
    runs: dict[str, Callable[[], object]], clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """The seconds of each run in each round, the first round left out."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS + 1):
        for name, run in runs.items():
            start = clock()
            run()
            seconds[name].append(clock() - start)
    return {name: each[1:] for name, each in seconds.items()}


def reading(plain: Stream, filed: Stream, asked: Asked) -> tuple[list[list[str]], list[dict[str, object]]]:
    """The lines of one filter: rates of messages, and ratios to polars."""
    files = column_files(filed)
    messages = sum(file.rows for file in files)
    for file in files:
        file.check()
    paths = [str(file.path) for file in files]

    def ours(stream: Stream, columns: str = TWO, **options: object) -> Callable[[], int]:
        def run() -> int:
            table = headgate.read(
                stream.path, columns=columns, filter=asked.text, dialect="rabbitmq", stop=messages, **options
            )
            return sum(batch.num_rows for batch in table.batches())

        return run

    def in_polars() -> int:
        table = headgate.read(filed.path, columns=TWO, filter=asked.text, dialect="rabbitmq", stop=messages)
        return table.to_polars().height

    def frame() -> polars.DataFrame:
        rows = polars.scan_parquet(paths)
        if asked.of_polars is not None:
            rows = rows.filter(asked.of_polars)
        return rows.select("region", "price").collect()

    def of_arrow() -> int:
        return ds.dataset(paths).to_table(columns=["region", "price"], filter=asked.of_arrow).num_rows

    def of_duckdb() -> int:
        found = duckdb.sql(f"SELECT region, price FROM read_parquet({paths}) WHERE {asked.sql}")
        return sum(batch.num_rows for batch in found.to_arrow_reader(65_536))

    runs: dict[str, Callable[[], int]] = {
        "headgate.read, no column files": ours(plain),
        "the same, offsets only": ours(plain, "offset"),
        "headgate.read, column files": ours(filed),
        "the same, dictionary arrays": ours(filed, dictionaries=["region"]),
        "the same, to_polars": in_polars,
        "polars.scan_parquet, collect": lambda: frame().height,
        "polars.scan_parquet, to_arrow": lambda: frame().to_arrow().num_rows,
        "DuckDB": of_duckdb,
        "pyarrow.dataset": of_arrow,
    }
    kept = {run() for run in runs.values()}
    assert len(kept) == 1, kept
    seconds = in_turn(dict(runs))
    base = statistics.median(seconds["polars.scan_parquet, collect"])
    lines, measured = [], []
    for name, each in seconds.items():
        median = statistics.median(each)
        spread = (max(each) - min(each)) / median
        share = f"{asked.name} ({100 * next(iter(kept)) / messages:.0f} %)"
        lines.append(
            [
                share,
                name,
                milliseconds(median),
                f"{100 * spread:.0f} %",
                f"{short(messages / median)}/s",
                f"{base / median:.2f}",
            ]
        )
        measured.append({"filter": asked.name, "name": name, "messages": messages, "seconds": each})
    return lines, measured


def main() -> None:
    decoding()
    with tempfile.TemporaryDirectory(prefix="headgate-benchmark-") as folder:
        streams: dict[bool, tuple[Stream, Stream]] = {}
        for in_runs in (False, True):
            made = [
                event_stream(
                    Path(folder) / f"{name}-{in_runs}", messages=MESSAGES, in_runs=in_runs, segment_bytes=200_000_000
                )
                for name in ("plain", "filed")
            ]
            declare_columns(made[1], COLUMNS)
            list(COLUMN_FILES.build(made[1], now_ms=0))
            declare_lookup(made[1], ["application_properties.session"])
            list(LOOKUP_FILES.build(made[1], now_ms=0))
            streams[in_runs] = made[0], made[1]
        lines, measured = [], []
        for asked in ASKED:
            found = reading(*streams[asked.in_runs], asked)
            lines += found[0]
            measured += found[1]
    report_table(
        "tables",
        f"Two columns of up to {MESSAGES:,} events of sealed segments as Arrow; two cores",
        ["rows", "by", "median", "spread", "messages", "to polars"],
        lines,
        measured,
    )


if __name__ == "__main__":
    main()
