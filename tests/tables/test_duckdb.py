"""Streams in DuckDB: relations over `headgate.read`, by Arrow's PyCapsule interface."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import headgate
from headgate import StreamTable
from headgate.log import Stream, Writer
from headgate.message import Message
from headgate.tables import write_table
from log_streams import quick_folder

REGIONS = ("AMER", "EMEA", None)


@pytest.fixture(scope="module")
def orders() -> Iterator[StreamTable]:
    with quick_folder() as folder:
        stream = Stream.create(Path(folder) / "orders", name="orders", now_ms=0)
        rows = [
            Message(b"x", application_properties={"region": REGIONS[number % 3], "n": number}).encode()
            for number in range(300)
        ]
        with Writer.open(stream, now_ms=0) as writer:
            for second in range(3):
                part = rows[second * 100 : second * 100 + 100]
                writer.append([(each, None) for each in part], now_ms=second * 1000)
        yield headgate.read(stream.path, columns="offset, timestamp, region string, n bigint")


def test_a_table_is_queried_by_the_name_of_its_variable_as_often_as_wanted(orders: StreamTable) -> None:
    query = "SELECT region, count(*), sum(n)::BIGINT FROM orders GROUP BY region ORDER BY region NULLS LAST"
    expected = [(region, 100, sum(range(first, 300, 3))) for first, region in enumerate(REGIONS)]
    assert duckdb.sql(query).fetchall() == expected
    assert duckdb.sql(query).fetchall() == expected


def test_a_relation_is_filtered_joined_and_has_times_with_a_zone(orders: StreamTable, tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        relation = connection.from_arrow(orders)
        assert relation.filter("n >= 290").aggregate('count(*), min("offset")').fetchall() == [(10, 290)]
        connection.register("events", orders)
        path = tmp_path / "regions.parquet"
        write_table(orders, path)
        joined = (
            f"SELECT count(*) FROM events JOIN '{path}' other USING (\"offset\") WHERE events.region = other.region"
        )
        assert connection.sql(joined).fetchall() == [(200,)]
        moment = datetime.datetime(1970, 1, 1, 0, 0, 2, tzinfo=datetime.UTC)
        late = "SELECT count(*), min(epoch_ms(timestamp)) FROM events WHERE timestamp >= $moment"
        assert connection.execute(late, {"moment": moment}).fetchall() == [(100, 2000)]
