"""Batches into a Delta table: once each, by the run that took over last, with what does not fit named."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headgate.errors import SinkError
from headgate.log.crash_points import CommitStep
from headgate.spark.pipeline import delta, run
from headgate.spark.pipeline.configuration import check
from headgate.spark.pipeline.delta import DeltaSink
from headgate.spark.pipeline.sinks import Guarantee

from ..conftest import order, write_stream

pytestmark = pytest.mark.spark


def sink(path: Path, query: str = "one", partition_by: list[str] | None = None) -> DeltaSink:
    return DeltaSink(path, lambda: query, partition_by)


def frame(spark: SparkSession, *rows: tuple[int | None, str | None]) -> DataFrame:
    return spark.createDataFrame(list(rows), "id long, name string").coalesce(1)


def ids(path: Path) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table()["id"].to_pylist())


def data_files(path: Path) -> set[Path]:
    return set((path / "headgate").rglob("*.parquet"))


def named_files(path: Path) -> set[Path]:
    return {Path(uri.removeprefix("file://")) for uri in DeltaTable(path).file_uris()}


def attempts(path: Path) -> list[str]:
    return [each.name for each in (path / "_headgate").rglob("*") if each.is_file()]


def test_a_batch_that_is_recorded_is_not_written_again_and_queries_count_for_themselves(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    first = sink(path)
    first.write(frame(spark, (1, "a"), (2, None)), 0)
    first.write(frame(spark, (3, "c")), 1)
    again = sink(path)
    again.write(frame(spark, (3, "c")), 1)
    again.write(frame(spark), 2)
    again.write(frame(spark, (4, "d")), 3)
    sink(path, query="other").write(frame(spark, (5, "e")), 0)
    assert ids(path) == [1, 2, 3, 4, 5]
    table = DeltaTable(path)
    assert (table.transaction_version("one"), table.transaction_version("other")) == (3, 0)
    assert table.version() == 4
    assert data_files(path) == named_files(path)
    assert sorted(each.name[:2] for each in path.glob("headgate/one/*")) == ["0-", "1-", "3-"]
    assert attempts(path) == []


def test_of_two_runs_that_write_a_batch_at_once_one_does_and_nothing_is_left_of_the_other(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table"
    slow, quick = sink(path), sink(path)
    for each in (slow, quick):
        each._table(delta.stored_schema(frame(spark).schema))
    behind_staging(monkeypatch, lambda: quick.write(frame(spark, (1, "a")), 0))
    slow.write(frame(spark, (1, "a")), 0)
    assert ids(path) == [1]
    slow.write(frame(spark, (2, "b")), 1)
    assert ids(path) == [1, 2]
    assert data_files(path) == named_files(path)
    assert attempts(path) == []


VALUES = """
SELECT * FROM VALUES
  (1L, 'x', TIMESTAMP '2026-01-02 03:04:05.678901', TIMESTAMP_NTZ '2026-01-02 03:04:05.678901', 1Y, 2S, 3,
   CAST(1.5 AS FLOAT), 2.5D, 12.340BD, true, X'00ff', DATE '2026-01-02',
   NAMED_STRUCT('list', ARRAY(1, NULL), 'map', MAP('k', TIMESTAMP '2026-01-02 03:04:05Z'))),
  (2L, '', TIMESTAMP '0001-01-01 00:00:00Z', TIMESTAMP_NTZ '9999-12-31 23:59:59.999999', NULL, NULL, NULL, NULL,
   NULL, NULL, NULL, NULL, NULL, NULL)
AS t(id, text, at, local, tiny, small, number, f, d, price, flag, bytes, day, nested)
"""


def test_every_type_comes_back_as_it_was_with_times_in_utc_and_nulls(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "table"
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        sink(path).write(spark.sql(VALUES), 0)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    one, two = sorted(DeltaTable(path).to_pyarrow_table().to_pylist(), key=lambda row: int(row["id"]))
    local = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)
    utc = datetime.UTC
    assert one == {
        "id": 1,
        "text": "x",
        "at": (local - datetime.timedelta(hours=9)).replace(tzinfo=utc),
        "local": local,
        "tiny": 1,
        "small": 2,
        "number": 3,
        "f": 1.5,
        "d": 2.5,
        "price": decimal.Decimal("12.340"),
        "flag": True,
        "bytes": b"\x00\xff",
        "day": datetime.date(2026, 1, 2),
        "nested": {"list": [1, None], "map": [("k", datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=utc))]},
    }
    assert two["at"] == datetime.datetime(1, 1, 1, tzinfo=utc)
    assert [name for name, value in two.items() if value is not None] == ["id", "text", "at", "local"]
    types = {column.name: column.type.type for column in DeltaTable(path).schema().fields[:5]}
    assert types == {"id": "long", "text": "string", "at": "timestamp", "local": "timestamp_ntz", "tiny": "byte"}


def test_partitions_have_the_values_of_their_rows_and_nulls(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "table"
    rows = spark.sql(
        "SELECT id, IF(id % 3 = 0, NULL, concat('a b/', id % 3)) AS `part.text`,"
        " DATE '2026-01-01' + int(id % 2) AS day, TIMESTAMP '2026-01-01 00:00:00.000001Z' AS at,"
        " id % 2 = 0 AS even, 1.50BD AS price FROM range(12)"
    ).repartition(2)
    columns = ["part.text", "day", "at", "even", "price"]
    written = sink(path, partition_by=columns)
    written.write(rows, 0)
    sink(path).write(rows, 1)
    table = DeltaTable(path)
    assert table.metadata().partition_columns == columns
    read = table.to_pyarrow_table()
    expected = spark.createDataFrame(rows.collect(), rows.schema).toArrow()
    expected = pa.concat_tables([expected, expected]).cast(read.select(expected.column_names).schema)
    assert read.select(expected.column_names).sort_by("id").equals(expected.sort_by("id"))
    odd = table.to_pyarrow_dataset().to_table(filter=ds.field("day") == datetime.date(2026, 1, 2))
    assert sorted(odd["id"].to_pylist()) == sorted([*range(1, 12, 2)] * 2)
    with pytest.raises(SinkError, match=r"partition_by is \['day'\]; table .* is partitioned by \['part.text', 'day'"):
        sink(path, partition_by=["day"]).write(rows, 2)


def test_statistics_let_readers_skip_files_and_never_a_row(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "table"
    sink(path).write(spark.sql(VALUES).coalesce(1), 0)
    log = [json.loads(line) for line in (path / "_delta_log" / f"{1:020}.json").read_text().splitlines()]
    statistics = [json.loads(entry["add"]["stats"]) for entry in log if "add" in entry]
    assert len(statistics) == 1
    assert statistics[0]["numRecords"] == 2
    smallest, largest, nulls = (statistics[0][name] for name in ("minValues", "maxValues", "nullCount"))
    assert set(smallest) == set(largest) == {"id", "text", "at", "tiny", "small", "number", "day"}
    assert (smallest["id"], largest["id"], smallest["text"], largest["text"]) == (1, 2, "", "x")
    assert smallest["at"] == "0001-01-01T00:00:00.000Z"
    assert largest["at"].endswith(":05.679Z")
    assert smallest["day"] == largest["day"] == "2026-01-02"
    assert nulls == {"id": 0, "text": 0, "at": 0, "local": 0, "tiny": 1, "small": 1, "number": 1, "day": 1}
    dataset = DeltaTable(path).to_pyarrow_dataset()
    instant = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC) - datetime.timedelta(days=1)
    assert dataset.to_table(filter=ds.field("at") > instant)["id"].to_pylist() == [1]
    assert dataset.to_table(filter=ds.field("text") == "x")["id"].to_pylist() == [1]
    assert dataset.to_table(filter=ds.field("id") == 3)["id"].to_pylist() == []


def between_check_and_commit(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    commit, happened = delta._commit_to, False

    def late(table: DeltaTable, actions: Sequence[Any], *rest: Any) -> None:
        nonlocal happened
        if actions and not happened:
            happened = True
            happens()
        commit(table, actions, *rest)

    monkeypatch.setattr(delta, "_commit_to", late)


def behind_staging(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    happened = False

    def reached(step: CommitStep) -> None:
        nonlocal happened
        if step is CommitStep.STAGED and not happened:
            happened = True
            happens()

    monkeypatch.setattr(delta, "reached", reached)


@pytest.mark.parametrize("when", [behind_staging, between_check_and_commit])
def test_a_run_that_another_took_over_from_writes_nothing_more_and_its_files_are_removed(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    when: Callable[[pytest.MonkeyPatch, Callable[[], None]], None],
) -> None:
    path = tmp_path / "table"
    orphan, successor = sink(path), sink(path)
    orphan.write(frame(spark, (1, "a")), 0)
    when(monkeypatch, lambda: successor._table(delta.stored_schema(frame(spark).schema)) and None)
    with pytest.raises(SinkError, match="another run writes this sink"):
        orphan.write(frame(spark, (2, "b")), 1)
    assert ids(path) == [1]
    assert data_files(path) == named_files(path)
    successor.write(frame(spark, (2, "b")), 1)
    with pytest.raises(SinkError, match="another run writes this sink"):
        orphan.write(frame(spark, (3, "c")), 2)
    assert ids(path) == [1, 2]
    sink(path)._table(delta.stored_schema(frame(spark).schema))
    assert data_files(path) == named_files(path)
    assert attempts(path) == []


def test_what_others_do_to_the_table_in_the_same_moment_is_kept_and_so_is_the_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table"
    written = sink(path)
    written.write(frame(spark, (1, "a")), 0)

    def others() -> None:
        write_deltalake(path, pa.table({"id": pa.array([7], pa.int64()), "name": ["z"]}), mode="append")
        DeltaTable(path).alter.add_columns([Field("more", PrimitiveType("double"))])

    between_check_and_commit(monkeypatch, others)
    written.write(frame(spark, (2, "b")), 1)
    assert ids(path) == [1, 2, 7]
    DeltaTable(path).optimize.compact()
    sink(path).write(frame(spark, (2, "b")), 1)
    assert ids(path) == [1, 2, 7]


def test_files_of_attempts_that_died_are_removed_by_the_next_run_but_none_of_a_recorded_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    sink(path).write(frame(spark, (1, "a")), 0)
    committed = next(path.glob("headgate/one/0-*"))
    died = path / "headgate" / "one" / f"1-{'ab' * 8}"
    others = path / "headgate" / "two" / f"1-{'ab' * 8}"
    for folder in (died, others):
        folder.mkdir(parents=True)
        (folder / "part-000000-7-0.parquet").write_bytes(b"PAR1")
        marker = path / "_headgate" / folder.relative_to(path / "headgate")
        marker.parent.mkdir(exist_ok=True)
        marker.touch()
    (path / "_headgate" / "one" / committed.name).touch()
    (path / "_headgate" / "one" / ".nfs0001").touch()
    sink(path).write(frame(spark, (1, "a")), 0)
    assert ids(path) == [1]
    assert not died.exists()
    assert others.exists()
    assert sorted(attempts(path)) == [".nfs0001", others.name]


def test_a_batch_whose_rows_cannot_be_written_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "table"
    columns = [Field("id", PrimitiveType("long"), nullable=False), Field("name", PrimitiveType("string"))]
    DeltaTable.create(path, Schema(columns))
    written = sink(path)
    with pytest.raises(PySparkException, match="column 'id' is null in a row; the table says NOT NULL"):
        written.write(frame(spark, (1, "a"), (None, "b")), 0)
    with pytest.raises(PySparkException, match="broken row"):
        written.write(spark.sql("SELECT id, CAST(raise_error('broken row') AS STRING) AS name FROM range(3)"), 0)
    assert (data_files(path), attempts(path), list(path.glob("headgate/one/*"))) == (set(), [], [])
    assert DeltaTable(path).version() == 0
    written.write(frame(spark, (1, "a")), 0)
    assert ids(path) == [1]


UNFIT = [
    ("SELECT 1L AS id, 'red' AS colour", r"has no column 'colour'; it has id, name"),
    ("SELECT 1 AS id", r"column 'id' is of type int; in table .* it is bigint"),
    ("SELECT 'a' AS name", r"the rows have no column 'id', which is NOT NULL"),
    ("SELECT 1L AS id, NULL AS name", r"column 'name' is of type void, which Delta has not"),
    ("SELECT 1L AS id, NAMED_STRUCT('a', INTERVAL 1 DAY) AS name", r"column 'name\.a' is of type interval"),
    ("SELECT 1L AS id, parse_json('1') AS name", r"column 'name' is of type variant, which Delta has not"),
    ("SELECT 1L AS id, 'a' COLLATE UTF8_LCASE AS name", r"Delta keeps no collation"),
    ("SELECT 1L AS id, 1L AS ID", r"column 'ID' is there twice"),
    ("SELECT 1L AS id, 'a' AS `my name`", r"column 'my name': a name in a Delta table has none of"),
]


def test_rows_that_do_not_fit_a_table_are_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "table"
    columns = [Field("id", PrimitiveType("long"), nullable=False), Field("name", PrimitiveType("string"))]
    DeltaTable.create(path, Schema(columns))
    for query, reason in UNFIT:
        with pytest.raises(SinkError, match=reason):
            sink(path).write(spark.sql(query), 0)
    for names, reason in (
        (["nowhere"], "no column 'nowhere'"),
        (["id"], "names every"),
        (["d"], "'d' is of type double"),
    ):
        query = "SELECT 1L AS id" if names == ["id"] else "SELECT 1L AS id, 1D AS d"
        with pytest.raises(SinkError, match=f"partition_by: .*{reason}"):
            sink(tmp_path / "new", partition_by=names).write(spark.sql(query), 0)
    assert not (tmp_path / "new").exists()
    assert DeltaTable(path).version() == 0


def test_a_table_that_asks_its_writers_for_checks_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    checked, generated = tmp_path / "checked", tmp_path / "generated"
    DeltaTable.create(checked, Schema([Field("id", PrimitiveType("long")), Field("name", PrimitiveType("string"))]))
    DeltaTable(checked).alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(SinkError, match=r"asks its writers for delta\.constraints\.positive, which Headgate does not"):
        sink(checked).write(frame(spark, (1, "a")), 0)
    told = {"delta.generationExpression": "id + 1"}
    columns = [Field("id", PrimitiveType("long")), Field("name", PrimitiveType("string"), metadata=told)]
    DeltaTable.create(generated, Schema(columns))
    with pytest.raises(SinkError, match=r"delta\.generationExpression of column 'name'"):
        sink(generated).write(frame(spark, (1, "a")), 0)


def test_replacing_puts_new_rows_in_the_place_of_all_in_one_commit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table"
    assert sink(path, "p.s", ["name"]).replace(frame(spark, (1, "a"), (2, "b"))) == 2
    before = DeltaTable(path).version()
    assert sink(path, "p.s").replace(frame(spark, (3, "c"))) == 1
    assert ids(path) == [3]
    assert DeltaTable(path).version() == before + 1
    assert sink(path, "p.s").replace(frame(spark)) == 0
    assert ids(path) == []
    between_check_and_commit(monkeypatch, lambda: sink(path, "p.s").replace(frame(spark, (4, "d"))) and None)
    with pytest.raises(SinkError, match="another run writes this sink"):
        sink(path, "p.s").replace(frame(spark, (5, "e")))
    assert ids(path) == [4]


def test_a_pipeline_appends_to_one_table_and_replaces_another(spark: SparkSession, tmp_path: Path) -> None:
    write_stream(tmp_path / "root", "in", [order(number) for number in range(100)])
    lines, regions = tmp_path / "lines", tmp_path / "regions"
    content = {
        "name": "p",
        "root": str(tmp_path / "root"),
        "source": [{"name": "orders", "stream": "in", "properties": "number long, region string"}],
        "step": [
            {"name": "rows", "inputs": ["orders"], "sql": "SELECT offset AS id, application_properties.* FROM orders"},
            {"name": "sums", "inputs": ["rows"], "sql": "SELECT region, count(*) AS id FROM rows GROUP BY region"},
        ],
        "sink": [
            {"name": "l", "input": "rows", "format": "delta", "path": f"file://{lines}", "partition_by": ["region"]},
            {"name": "r", "input": "sums", "format": "Delta", "path": str(regions), "mode": "complete"},
        ],
    }
    first = run(check(content), spark=spark)
    assert {each.name: each.rows_written for each in first.sinks} == {"l": 100, "r": 3}
    assert {each.guarantee for each in first.sinks} == {Guarantee.EXACTLY_ONCE}
    write_stream(tmp_path / "root", "in", [order(number) for number in range(100, 130)])
    second = run(check(content), spark=spark)
    assert {each.name: each.rows_written for each in second.sinks} == {"l": 30, "r": 3}
    assert ids(lines) == list(range(130))
    assert ids(regions) == [43, 43, 44]
    assert DeltaTable(lines).metadata().partition_columns == ["region"]
