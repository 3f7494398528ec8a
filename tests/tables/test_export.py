"""Rows of a stream as files that other programs read."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headgate
from headgate.errors import ConfigError, CorruptChunkError
from headgate.log import Stream, Writer
from headgate.message import AmqpType, AmqpValue, Message
from headgate.tables import write_table

COLUMNS = "offset, timestamp, region string, price double, body"


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    found = Stream.create(tmp_path / "streams" / "orders", name="orders", now_ms=0)
    messages = [
        Message(b'text, "quoted"\n', application_properties={"region": "EMEA", "price": 12.5}),
        Message(
            b"\xff\xfe", application_properties={"region": "grün", "price": AmqpValue(AmqpType.DOUBLE, float("nan"))}
        ),
        Message(b""),
    ]
    with Writer.open(found, now_ms=0) as writer:
        writer.append([(message.encode(), None) for message in messages], now_ms=1_500)
    return found


def read_parquet(path: Path) -> list[dict[str, object]]:
    return pq.read_table(path).to_pylist()


def read_arrow(path: Path) -> list[dict[str, object]]:
    with pa.ipc.open_file(path) as file:
        return file.read_all().to_pylist()


@pytest.mark.parametrize(("name", "reading"), [("x.parquet", read_parquet), ("x.arrow", read_arrow)])
def test_binary_formats_hold_the_rows_as_they_are(
    stream: Stream, tmp_path: Path, name: str, reading: Callable[[Path], list[dict[str, object]]]
) -> None:
    table = headgate.read(stream.path, columns=COLUMNS, dictionaries=["region"])
    progress: list[int] = []
    assert write_table(table, tmp_path / name, progress=progress.append) == 3
    assert repr(reading(tmp_path / name)) == repr(table.to_arrow().to_pylist())
    assert progress == [3]


def test_other_programs_read_what_was_exported(stream: Stream, tmp_path: Path) -> None:
    path = tmp_path / "orders.parquet"
    write_table(headgate.read(stream.path, columns="offset, region string"), path)
    assert polars.read_parquet(path)["region"].to_list() == ["EMEA", "grün", None]
    assert duckdb.sql(f"SELECT count(region) FROM '{path}'").fetchall() == [(2,)]


def test_json_lines_have_a_form_for_every_value(stream: Stream, tmp_path: Path) -> None:
    table = headgate.read(stream.path, columns=COLUMNS + ", properties")
    write_table(table, tmp_path / "orders.ndjson")
    lines = [json.loads(line) for line in (tmp_path / "orders.ndjson").read_text().splitlines()]
    assert [(line["region"], line["price"], line["body"]) for line in lines] == [
        ("EMEA", 12.5, 'text, "quoted"\n'),
        ("grün", "NaN", "base64://4="),
        (None, None, ""),
    ]
    assert lines[0]["timestamp"] == "1970-01-01T00:00:01.500000Z"
    assert lines[0]["properties"] is None


def test_csv_is_read_back_by_any_reader_of_it(stream: Stream, tmp_path: Path) -> None:
    write_table(headgate.read(stream.path, columns=COLUMNS, dictionaries=["region"]), tmp_path / "orders.csv")
    with (tmp_path / "orders.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["body"] for row in rows] == ['text, "quoted"\n', "base64://4=", ""]
    assert [row["region"] for row in rows] == ["EMEA", "grün", ""]
    with pytest.raises(ConfigError, match="CSV has no form for properties"):
        write_table(headgate.read(stream.path), tmp_path / "nested.csv")


def test_a_file_is_there_when_it_is_complete(stream: Stream, tmp_path: Path) -> None:
    path = tmp_path / "orders.ndjson"
    path.write_text("before")
    segment = stream.segments()[0].segment_path
    data = bytearray(segment.read_bytes())
    data[-3] ^= 1
    segment.write_bytes(data)
    with pytest.raises(CorruptChunkError):
        write_table(headgate.read(stream.path, columns=COLUMNS), path)
    assert path.read_text() == "before"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["orders.ndjson", "streams"]
