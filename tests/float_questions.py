"""What readers are asked about columns of floats, and whether a file has them answer as they do without it.

Each reader is its own oracle: it is asked over a file, and over the same rows in memory, where nothing is pruned.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa

NAN = float("nan")
PRICES: list[list[float | None]] = [
    [1.0, NAN, -0.0],
    [1.0, 2.0, 1.0, 2.0],
    [-0.0, -3.0, -0.0],
    [7.0, None, NAN],
    [None, 0.0, float("inf")],
]
"""Of the rows of each chunk; the first is that of the report."""

SQL = (
    "isnan({x})",
    "{x} > 5",
    "{x} < 0.5",
    "{x} = 0.0",
    "{x} = cast('-0.0' as double)",
    "{x} <> 1.0",
    "NOT ({x} <= 1)",
    "{x} IN (0.0, 7.0)",
    "{x} NOT IN (1.0, 2.0)",
    "{x} >= cast('nan' as double)",
    "{x} BETWEEN -1 AND 0.0",
    "{x} IS NULL",
)


def of_polars(name: str) -> list[pl.Expr]:
    """The same questions."""
    x = pl.col(name)
    return [
        x.is_nan(),
        x > 5,
        x < 0.5,
        x == 0.0,
        x == -0.0,
        x != 1.0,
        ~(x <= 1),
        x.is_in([0.0, 7.0]),
        ~x.is_in([1.0, 2.0]),
        x >= NAN,
        x.is_between(-1, 0.0),
        x.is_null(),
    ]


def different_in_duckdb(paths: Sequence[Path], rows: pa.Table, column: str) -> list[str]:
    """The questions that DuckDB answers otherwise over the files."""
    with duckdb.connect() as connection:
        connection.register("in_memory", rows)
        over_files = f"read_parquet({[str(path) for path in paths]})"
        wrong = []
        for question in (each.format(x=column) for each in SQL):
            found, expected = (
                connection.sql(f"SELECT count(*) FROM {source} WHERE {question}").fetchall()
                for source in (over_files, "in_memory")
            )
            wrong += [] if found == expected else [f"duckdb: {question}: {found}, in memory {expected}"]
        return wrong


def different_in_polars(scanned: pl.LazyFrame, rows: pa.Table, column: str) -> list[str]:
    """The questions that polars answers otherwise over the files."""
    frame = pl.DataFrame(pl.from_arrow(rows))
    wrong = []
    for question in of_polars(column):
        found, expected = scanned.filter(question).collect().height, frame.filter(question).height
        wrong += [] if found == expected else [f"polars: {question}: {found}, in memory {expected}"]
    return wrong
