"""Rows of files as messages: what export writes, its types, and what is wrong with which row."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from headgate.errors import ConfigError, DataError
from headgate.message import AmqpType, AmqpValue, EncodedMessages, Message
from headgate.tables import ANNOTATION, ColumnMapping, MappedRows, json_rows, open_rows, write_table
from headgate.tables.rows import Columns
from strategies import encoded_messages

SINGLE = (
    "offset, timestamp, n bigint, s string, t boolean as truth, m binary, region smallint, price double, f float, "
    "schlüssel decimal(20,0), `a b,c` string, p.subject, properties.creation_time, p.message-id, p.user_id, "
    "h.priority, h.ttl, m.n int as annotated, m.s string as tag, body"
)
WHOLE = "properties, header, application_properties, message_annotations, body"
SUFFIXES = ("parquet", "arrow", "csv", "ndjson")


@dataclass
class Rows:
    """Messages as a table that can be written."""

    columns: Columns
    messages: list[bytes]

    @property
    def schema(self) -> pa.Schema:
        return self.columns.schema

    @property
    def batch(self) -> pa.RecordBatch:
        numbers = np.arange(len(self.messages), dtype=np.int64)
        return self.columns.batch(EncodedMessages.of(self.messages), numbers, numbers * 1000, ANNOTATION)

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield self.batch


def exported(columns: str, messages: list[bytes], path: Path) -> Rows:
    rows = Rows(Columns.parse(columns), messages)
    write_table(rows, path)  # type: ignore[arg-type]
    return rows


def parts_of(path: Path, mapping: str | None, filter_source: str | None = None) -> Iterator[MappedRows]:
    if path.suffix == ".ndjson":
        assert mapping is not None
        yield from json_rows(iter([path.read_bytes().split(b"\n")]), ColumnMapping.parse(mapping)).mapped(filter_source)
        return
    with open_rows(path, None if mapping is None else ColumnMapping.parse(mapping)) as rows:
        yield from rows.mapped(filter_source)


def read_back(path: Path, mapping: str | None) -> list[bytes]:
    parts = list(parts_of(path, mapping))
    assert [part.first_row for part in parts[:1]] in ([], [1])
    return [message for part in parts for message in part.messages]


def table(tmp_path: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def shown(batch: pa.RecordBatch) -> str:
    """All values as text, times as numbers: Python has none before the year 1, and NaN is not equal to itself."""

    def timeless(of: pa.DataType) -> pa.DataType:
        if pa.types.is_struct(of):
            return pa.struct([field.with_type(timeless(field.type)) for field in of])
        return pa.int64() if pa.types.is_timestamp(of) else of

    return str([column.cast(timeless(column.type)).to_pylist() for column in batch.columns])


def only(path: Path, mapping: str | None = None) -> Message:
    (message,) = read_back(path, mapping)
    return Message.decode(message)


@pytest.mark.parametrize("suffix", SUFFIXES)
@examples(0.2)
@given(messages=st.lists(encoded_messages(), min_size=1, max_size=4))
def test_what_was_exported_is_published_with_the_same_columns(suffix: str, messages: list[bytes]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"rows.{suffix}"
        rows = exported(SINGLE, messages, path)
        again = Rows(rows.columns, read_back(path, SINGLE))
        assert shown(again.batch) == shown(rows.batch)


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@examples(0.2)
@given(messages=st.lists(encoded_messages(), min_size=1, max_size=4))
def test_whole_sections_and_messages_are_the_same_again(suffix: str, messages: list[bytes]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"rows.{suffix}"
        rows = exported(WHOLE, messages, path)
        again = Rows(rows.columns, read_back(path, None))
        assert shown(again.batch) == shown(rows.batch)
        exported("offset, message", messages, path)
        assert read_back(path, None) == messages


def test_sections_of_json_lines_are_objects(tmp_path: Path) -> None:
    given = Message(
        b"\xff",
        properties={"subject": "a", "creation-time": AmqpValue(AmqpType.TIMESTAMP, 10**15)},
        application_properties={"region": "EMEA", "n": 5, "price": 1.5, "list": [1, "x"], "bytes": b"\xff"},
    )
    path = tmp_path / "rows.ndjson"
    exported("properties, application_properties, body", [given.encode()], path)
    line = json.loads(path.read_text())
    assert line["application_properties"]["price"] == 1.5
    assert line["properties"]["creation_time"] == "33658-09-27T01:46:40.000000Z"
    again = only(path, "properties, application_properties, body")
    assert again.describe(typed=True) == given.describe(typed=True)


@pytest.mark.parametrize("suffix", ["csv", "ndjson"])
@examples(0.5)
@given(bodies=st.lists(st.none() | st.binary(max_size=20) | st.text().map(lambda text: b"base64:" + text.encode())))
def test_text_formats_hold_any_bytes(suffix: str, bodies: list[bytes | None]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"rows.{suffix}"
        messages = [Message(body).encode() for body in bodies]
        rows = exported("body", messages, path)
        assert Rows(rows.columns, read_back(path, "body")).batch.equals(rows.batch)


def test_columns_become_fields_of_the_types_that_the_mapping_says(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        region=pa.array(["EMEA"]).dictionary_encode(),
        price=pa.array(["12.5"]),
        count=pa.array([7], pa.uint8()),
        day=pa.array([datetime.date(2026, 1, 2)]),
        payload=pa.array([{"a": 1}]).field("a").cast(pa.string()),
        priority=pa.array([4]),
        extra=pa.array([1]),
    )
    mapping = (
        "region string, price double, count int, p.creation_time as day, h.priority, m.count string as extra, "
        "body as payload, filter_value as region"
    )
    (part,) = parts_of(path, mapping)
    found = Message.decode(part.messages[0]).describe(typed=True)
    assert found["application_properties"] == {
        "region": {"t": "string", "v": "EMEA"},
        "price": {"t": "double", "v": 12.5},
        "count": {"t": "int", "v": 7},
    }
    assert found["properties"]["creation-time"] == {"t": "timestamp", "v": 1767312000000}
    assert found["header"]["priority"] == {"t": "ubyte", "v": 4}
    assert found["message_annotations"] == {"count": {"t": "string", "v": "1"}}
    assert found["body"] == {"data": "1"}
    assert part.filter_values == [b"EMEA"]
    with open_rows(path, ColumnMapping.parse("count int")) as rows:
        assert (rows.rows, rows.unmapped) == (1, ("region", "price", "day", "payload", "priority", "extra"))


def test_times_are_read_as_people_write_them(tmp_path: Path) -> None:
    texts = ["2026-01-02T00:00:00Z", "2026-01-02 00:00:00", "2026-01-02T02:00:00+02:00", "1767312000000", "2026-01-02"]
    for some in (texts[:1], texts[1:2], texts):
        path = tmp_path / "rows.csv"
        path.write_text("at\n" + "\n".join(some) + "\n")
        for message in read_back(path, "p.creation_time as at"):
            assert Message.decode(message).describe()["properties"]["creation-time"] == 1767312000000


def test_fields_without_values_make_no_section(tmp_path: Path) -> None:
    path = table(tmp_path, region=pa.array([None, "x"]), subject=pa.array(["s", None]))
    first, second = (Message.decode(each).describe() for each in read_back(path, "region string, p.subject"))
    assert "application_properties" not in first and "properties" in first
    assert "application_properties" in second and "properties" not in second


@pytest.mark.parametrize("suffix", ["parquet", "csv", "ndjson"])
def test_the_first_wrong_row_is_named_behind_those_before_it(tmp_path: Path, suffix: str) -> None:
    prices = [str(number) for number in range(9_000)]
    prices[5_000] = "much"
    path = tmp_path / f"rows.{suffix}"
    if suffix == "parquet":
        table(tmp_path, price=prices)
    elif suffix == "csv":
        path.write_text("price\n" + "\n".join(prices) + "\n")
    else:
        path.write_text("\n".join(json.dumps({"price": price}) for price in prices))
    rows: list[int] = []
    said = r"^row 5001: column 'price': found 'much', expected double$"
    with pytest.raises(ConfigError, match=said):
        rows.extend(
            part.first_row + row for part in parts_of(path, "price double") for row in range(len(part.messages))
        )
    assert rows == list(range(1, 5_001))


@pytest.mark.parametrize(
    ("mapping", "column", "said"),
    [
        ("h.priority as x", pa.array([5, 256]), "row 2: column 'x': found 256, expected 0 … 255"),
        ("h.ttl as x", pa.array([-1]), "row 1: column 'x': found -1, expected 0 … 4294967295"),
        ("x int", pa.array([2**31]), "row 1: column 'x': found 2147483648, expected int32"),
        ("x double", pa.array([2**53 + 1]), "row 1: column 'x': found 9007199254740993, expected double"),
        ("x decimal(38,0)", pa.array([str(2**64)]), f"row 1: column application_properties.x: {2**64} is outside long"),
        ("x timestamp", pa.array([2**62]), "row 1: column 'x': found 4611686018427387904, expected timestamp"),
        ("x boolean", pa.array([1]), "column 'x': found int64, expected bool"),
        ("x double", pa.array([[1]]), "column 'x': found list<.*, expected double"),
        ("body as x", pa.array([1]), "column 'x': found int64, expected binary"),
        ("properties as x", pa.array([1]), "column 'x': found int64, expected a struct of fields of properties"),
        ("properties as x", pa.array([{"sub": 1}]), "column 'x': properties has no field 'sub'"),
        ("application_properties as x", pa.array([1]), "column application_properties: found int64, expected VARIANT"),
        ("y int", pa.array([1]), "the file has no column 'y'; it has x"),
    ],
)
def test_what_a_field_does_not_take_is_refused(tmp_path: Path, mapping: str, column: pa.Array, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_back(table(tmp_path, x=column), mapping)


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        ("offset", "no column becomes a part of a message"),
        ("region", "a message has no column 'region'; .* as in 'region string'"),
        ("message, body", "message is all of a message"),
        ("x int, x int as y", "two columns become application_properties.x"),
        ("p.subject, properties", "found properties as a whole, and its field 'subject'"),
        ("body, body as payload", "body is there twice"),
        ("x nothing", "'x' is declared 'nothing'"),
    ],
)
def test_a_mapping_that_says_nothing_clear_is_refused(mapping: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ColumnMapping.parse(mapping)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    for suffix in ("parquet", "arrow", "csv"):
        path = tmp_path / f"rows.{suffix}"
        path.write_bytes(b"")
        with pytest.raises(DataError, match=f"cannot be read as {suffix}"):
            read_back(path, "x int")
    with pytest.raises(ConfigError, match="the name tells the format"):
        read_back(tmp_path / "rows.xlsx", "x int")
    with pytest.raises(ConfigError, match="what becomes of column 'x'"):
        read_back(table(tmp_path, x=[1]), None)
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(DataError, match=r"rows\.csv: cannot be read as csv: .*Expected 2 columns, got 1"):
        read_back(tmp_path / "rows.csv", "a int")
    (tmp_path / "rows.ndjson").write_text('{"a": 1}\n[1]\n')
    with pytest.raises(ConfigError, match="row 2: found list, expected a JSON object"):
        read_back(tmp_path / "rows.ndjson", "a int")


def test_a_filter_value_that_its_field_contradicts_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path, region=pa.array(["EMEA", "AMER"]), value=pa.array(["EMEA", "EMEA"]))
    mapping = "region string, filter_value as value"
    with pytest.raises(ConfigError, match=r"row 2: column 'value': found filter value 'EMEA', but .* holds 'AMER'"):
        list(parts_of(path, mapping, "application_properties.region"))
    (part,) = parts_of(path, "region string", "application_properties.region")
    assert part.filter_values == [b"EMEA", b"AMER"]


def test_other_writers_of_parquet_and_arrow_streams_are_read(tmp_path: Path) -> None:
    frame = polars.DataFrame({"region": ["EMEA"], "body": [b"x"], "at": [datetime.datetime(2026, 1, 2)]})
    frame.write_parquet(tmp_path / "rows.parquet")
    frame.write_ipc_stream(tmp_path / "rows.arrow")
    mapping = "region string, body, p.creation_time as at"
    first, second = (only(tmp_path / name, mapping).encode() for name in ("rows.parquet", "rows.arrow"))
    assert (
        first
        == second
        == Message(
            b"x",
            properties={"creation_time": AmqpValue(AmqpType.TIMESTAMP, 1767312000000)},
            application_properties={"region": "EMEA"},
        ).encode()
    )
