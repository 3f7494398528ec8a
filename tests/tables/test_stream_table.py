"""`headgate.read`: the rows of a stream as Arrow, from files and from a server, the same as everywhere else."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headgate
from headgate.errors import ConfigError, CorruptChunkError, FilterError, OffsetOutOfRangeError, StreamNotFoundError
from headgate.log import Stream, StreamArguments, Writer
from headgate.message import Message
from headgate.server.stream import StreamHandler
from log_streams import quick_folder
from server.running import running_server

COLUMNS = "offset, region string, n bigint, p.subject"
REGIONS = ("AMER", "EMEA", "APJ")


def message(number: int) -> bytes:
    return Message(
        b"body %d" % number,
        properties={"subject": f"s{number % 7}"},
        application_properties={"region": REGIONS[number % 3], "n": number},
    ).encode()


def rows(first: int, stop: int) -> list[dict[str, object]]:
    return [
        {"offset": number, "region": REGIONS[number % 3], "n": number, "subject": f"s{number % 7}"}
        for number in range(first, stop)
    ]


def write(root: Path, counts: list[int], *, name: str = "orders", segment_bytes: int = 20_000) -> Stream:
    """A stream with a chunk of so many messages each, in several segments."""
    stream = Stream.create(
        root / "streams" / name,
        name=name,
        now_ms=0,
        arguments=StreamArguments(max_segment_size_bytes=segment_bytes),
        filter_source="application_properties.region",
    )
    number = 0
    with Writer.open(stream, now_ms=0) as writer:
        for time_ms, count in enumerate(counts):
            messages = [(message(each), REGIONS[each % 3].encode()) for each in range(number, number + count)]
            writer.append(messages, now_ms=time_ms * 1000, filter_source="application_properties.region")
            number += count
    return stream


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    with quick_folder() as folder:
        write(Path(folder), [100] * 30)
        yield Path(folder)


def test_rows_come_in_stream_order_from_all_segments(root: Path) -> None:
    table = headgate.read("orders", root=root, columns=COLUMNS)
    assert table.offsets == (0, 3000)
    assert table.to_arrow().to_pylist() == rows(0, 3000)
    assert table.counters.messages_evaluated == 3000
    assert len(Stream.open(root / "streams" / "orders").segments()) > 3


def test_a_table_is_read_again_from_the_beginning_and_ends_where_it_was_made(tmp_path: Path) -> None:
    stream = write(tmp_path, [10])
    table = headgate.read("orders", root=tmp_path, columns="n bigint")
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(message(10), b"EMEA")], now_ms=1)
    for _ in range(2):
        assert table.to_arrow()["n"].to_pylist() == list(range(10))
    assert headgate.read("orders", root=tmp_path, columns="n bigint").to_arrow()["n"].to_pylist() == list(range(11))


@given(start=st.integers(0, 3000), length=st.integers(0, 1500), threads=st.integers(1, 3), least=st.integers(0, 3000))
def test_any_range_and_filter_gives_the_messages_between_for_which_it_is_true(
    root: Path, start: int, length: int, threads: int, least: int
) -> None:
    stop = min(start + length, 3000)
    table = headgate.read(
        "orders",
        root=root,
        columns=COLUMNS,
        filter=f"n >= {least} AND region IN ('AMER', 'APJ')",
        start=start,
        stop=stop,
        threads=threads,
    )
    expected = [row for row in rows(start, stop) if row["offset"] >= least and row["region"] != "EMEA"]  # type: ignore[operator]
    assert table.to_arrow().to_pylist() == expected


def test_values_choose_chunks_and_languages_are_told(root: Path) -> None:
    one = headgate.read("orders", root=root, columns="n bigint", filter="n < 5", dialect="servicebus")
    assert one.to_arrow()["n"].to_pylist() == [0, 1, 2, 3, 4]
    nothing = headgate.read("orders", root=root, columns="n bigint", filter_values=["nowhere"])
    assert nothing.to_arrow().num_rows == 0
    assert nothing.counters.chunks_skipped > 20


def test_columns_are_those_that_were_asked_in_that_order(root: Path) -> None:
    table = headgate.read("orders", root=root, columns=["p.subject as title", "timestamp", "filter_value", "body"])
    first = table.to_arrow().slice(0, 1).to_pylist()[0]
    assert first == {
        "title": "s0",
        "timestamp": datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC),
        "filter_value": "AMER",
        "body": b"body 0",
    }
    assert headgate.read("orders", root=root).schema.names == ["offset", "timestamp", "properties", "body"]


def test_texts_that_repeat_come_as_dictionaries(root: Path) -> None:
    table = headgate.read("orders", root=root, columns=COLUMNS, dictionaries=["region"])
    assert table.schema.field("region").type == pa.dictionary(pa.int32(), pa.string())
    assert table.to_arrow()["region"].to_pylist() == [row["region"] for row in rows(0, 3000)]


def test_every_library_that_knows_arrow_takes_it(root: Path) -> None:
    table = headgate.read("orders", root=root, columns=COLUMNS)
    assert table.to_polars().to_dicts() == rows(0, 3000)
    assert polars.DataFrame(table).to_dicts() == rows(0, 3000)
    assert table.to_pandas()["n"].sum() == sum(range(3000))
    assert pa.table(table).num_rows == 3000
    connection = duckdb.connect()
    connection.register("found", table.reader())
    total = connection.sql("SELECT region, count(*) FROM found GROUP BY region ORDER BY region").fetchall()
    assert total == [("AMER", 1000), ("APJ", 1000), ("EMEA", 1000)]


def test_batches_are_bounded_and_may_be_left_unread(root: Path) -> None:
    batches = headgate.read("orders", root=root, columns=COLUMNS).batches()
    assert 0 < next(batches).num_rows < 3000
    batches.close()  # type: ignore[attr-defined]


def test_a_server_gives_the_same_rows(tmp_path: Path) -> None:
    write(tmp_path / "data", [50] * 4)
    with running_server(tmp_path, handlers={"stream": StreamHandler}) as running:
        table = headgate.read(
            "orders",
            server=f"127.0.0.1:{running.ports['stream']}",
            columns=COLUMNS,
            filter="region = 'EMEA'",
            start=20,
            stop=120,
        )
        expected = [row for row in rows(20, 120) if row["region"] == "EMEA"]
        assert table.to_arrow().to_pylist() == expected
        assert table.to_arrow().num_rows == len(expected)


def test_what_is_wrong_is_refused_before_anything_is_read(root: Path) -> None:
    with pytest.raises(FilterError, match=r"\^"):
        headgate.read("orders", root=root, filter="region = ")
    with pytest.raises(ConfigError, match="no column 'regoin'; expected offset"):
        headgate.read("orders", root=root, columns="regoin")
    with pytest.raises(ConfigError, match="'n' is no column of texts"):
        headgate.read("orders", root=root, columns=COLUMNS, dictionaries=["n"])
    with pytest.raises(StreamNotFoundError):
        headgate.read("nothing", root=root)
    with pytest.raises(ConfigError):
        headgate.read("orders", root=root, start="yesterday")


def test_damage_is_an_error_behind_the_rows_before_it(tmp_path: Path) -> None:
    stream = write(tmp_path, [100] * 4, segment_bytes=500_000)
    with stream.segments()[0].open() as reader:
        position = int(reader.chunks().position[2])
    path = stream.segments()[0].segment_path
    data = bytearray(path.read_bytes())
    data[position + 200] ^= 1
    path.write_bytes(data)
    table = headgate.read("orders", root=tmp_path, columns="n bigint")
    with pytest.raises(CorruptChunkError):
        table.to_arrow()


def test_a_start_that_retention_deleted_is_refused(tmp_path: Path) -> None:
    stream = write(tmp_path, [100] * 20)
    with Writer.open(stream, now_ms=0) as writer:
        assert writer.drop_first_below(10_000)
    first = stream.first_offset()
    assert first > 0
    with pytest.raises(OffsetOutOfRangeError, match="deleted by retention"):
        headgate.read("orders", root=tmp_path, start=0)
    assert headgate.read("orders", root=tmp_path, columns="n bigint").to_arrow()["n"][0].as_py() == first
