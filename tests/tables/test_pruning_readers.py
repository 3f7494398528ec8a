"""No reader loses rows with NaN or −0.0 of what is written for others: writer × reader × question."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import parser
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow

import headgate
from float_questions import NAN, PRICES, different_in_duckdb, different_in_polars
from headgate.derived.columns import COLUMN_FILES, build, column_files, declare_columns
from headgate.log import Stream, StreamArguments, Writer
from headgate.message import AmqpType, AmqpValue, Message
from headgate.tables import write_table
from headgate.tables.iceberg import CatalogLocation, publish_table

COLUMNS = ("price", "weight", "plain")
DECLARED = "price double, weight float, plain double"
OF_PYICEBERG = (
    "price IS NAN",
    "price IS NOT NAN",
    "price > 5",
    "price = 0.0",
    "price < 0.5",
    "price != 1.0",
    "price IN (0.0, 7.0)",
    "price NOT IN (1.0, 2.0)",
    "NOT (price <= 1)",
    "price IS NULL",
)


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    """Column files of many row groups, in several segments."""
    monkeypatch.setattr(build, "GROUP_ROWS", 1)
    arguments = StreamArguments(max_segment_size_bytes=700)
    made = Stream.create(tmp_path / "root" / "sales", name="sales", now_ms=0, arguments=arguments)
    with Writer.open(made, now_ms=0) as writer:
        for chunk in PRICES * 3:
            properties = [
                {"price": price, "weight": AmqpValue(AmqpType.FLOAT, price), "plain": 2.5}
                for price in chunk
                if price is not None
            ]
            properties += [{"plain": 3.5}] * chunk.count(None)
            messages = (Message(b"", application_properties=each).encode() for each in properties)
            writer.append([(message, None) for message in messages], now_ms=0)
    declare_columns(made, DECLARED)
    assert all(not report.trouble for report in COLUMN_FILES.build(made, now_ms=1))
    assert len(column_files(made)) > 2
    return made


def different(paths: list[Path]) -> list[str]:
    rows = pa.concat_tables([pq.read_table(path, columns=list(COLUMNS)) for path in paths])
    assert len(rows) > 20
    assert any(value != value for value in rows["price"].to_pylist())
    scanned = pl.scan_parquet(paths)
    return [
        wrong
        for column in COLUMNS
        for wrong in (*different_in_duckdb(paths, rows, column), *different_in_polars(scanned, rows, column))
    ]


def has_limits(path: Path) -> dict[str, bool]:
    group = pq.ParquetFile(path).metadata.row_group(0)
    found = {group.column(place).path_in_schema: group.column(place) for place in range(group.num_columns)}
    return {name: found[name].statistics is not None for name in COLUMNS}


def test_exported_files(stream: Stream, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    write_table(headgate.read(stream.path, columns=DECLARED), path)
    assert different([path]) == []
    assert has_limits(path) == {"price": False, "weight": False, "plain": True}


def test_column_files(stream: Stream) -> None:
    paths = [file.path for file in column_files(stream)]
    assert different(paths) == []
    assert all(has_limits(path)["plain"] for path in paths)
    # What Headgate makes of them is the same with and without.
    for text in ("price > 5", "price = 0.0", "price <> 1", "weight >= 0"):
        with_files = headgate.read(stream.path, columns="offset, price double", filter=text)
        from_messages = headgate.read(stream.path, columns="offset, price double, other string", filter=text)
        assert with_files.to_arrow()["offset"].equals(from_messages.to_arrow()["offset"])


def test_iceberg_tables(stream: Stream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    place = CatalogLocation(tmp_path / "root")
    publish_table(stream, place, now_ms=0)
    with place.opened() as catalog:
        table = catalog.load_table(("headgate", "sales"))
        rows = table.scan().to_arrow()
        assert different_in_polars(pl.scan_iceberg(table), rows, "price") == []
        for text in OF_PYICEBERG:
            bound = bind(table.schema(), parser.parse(text), case_sensitive=True)
            expected = rows.filter(expression_to_pyarrow(bound))
            assert len(table.scan(row_filter=text).to_arrow()) == len(expected), text
        files = [task.file for task in table.scan().plan_files()]
        bounds = {file.file_path: file.upper_bounds[1] for file in files if 1 in (file.upper_bounds or {})}
        odd = [file for file in column_files(stream) if _is_odd(file.read(["price"])["price"])]
        assert odd and not {path.rpartition("/")[2] for path in bounds} & {file.path.name for file in odd}


def _is_odd(prices: pa.ChunkedArray) -> bool:
    return any(str(price) in ("-0.0", str(NAN)) for price in prices.to_pylist())
