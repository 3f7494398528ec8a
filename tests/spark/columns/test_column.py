"""A filter as a Column in Spark: the verdicts of the reference, and what Catalyst decides beforehand."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from examples import examples
from headgate.errors import ConfigError, FilterError
from headgate.evaluate.filter import Filter
from headgate.language.tree import Compare, CompareOperator, Constant, Field, OwnRules
from headgate.message.fields import FieldReference, Section
from headgate.spark import column

from ..conftest import order, write_stream
from .languages import LANGUAGES
from .rows import NOW_MS, Rows, expected, typed_rows

pytestmark = pytest.mark.spark


def applicable(texts: list[str], dialect: str, rows: Rows) -> list[Filter]:
    """Those that the language accepts and the columns can carry."""
    found = []
    for text in texts:
        try:
            filter = Filter.parse(text, dialect)
            column(filter, rows.schema)
        except (FilterError, ConfigError):
            continue
        found.append(filter)
    return found


@pytest.mark.parametrize("dialect", sorted(LANGUAGES))
@pytest.mark.parametrize("shape", ["columns", "struct", "map", "variant"])
@settings(
    examples(0.04),
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
        HealthCheck.differing_executors,
    ],
)
@given(st.data())
def test_a_column_has_the_verdicts_of_the_reference(
    spark: SparkSession, shape: str, dialect: str, data: st.DataObject
) -> None:
    rows = data.draw(typed_rows(shape))
    filters = applicable(data.draw(st.lists(LANGUAGES[dialect], min_size=20, max_size=30)), dialect, rows)
    if not filters:
        return
    frame = spark.createDataFrame(pa.Table.from_batches([rows.columns]))
    columns = [column(filter, rows.schema, as_of_ms=NOW_MS).alias(f"c{n}") for n, filter in enumerate(filters)]
    found = frame.select(*columns).collect()
    for number, filter in enumerate(filters):
        assert [row[number] for row in found] == expected(filter, rows), filter


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """A small table of orders in Parquet."""
    rows = spark.range(1000).selectExpr(
        "id AS number",
        "element_at(array('AMER', 'EMEA', 'APJ'), cast(id % 3 AS int) + 1) AS region",
        "if(id % 7 = 0, NULL, id / 4) AS price",
        "named_struct('creation_time', timestamp_millis(1750000000000 + id)) AS properties",
    )
    rows.write.parquet(str(tmp_path / "orders"))
    return spark.read.parquet(str(tmp_path / "orders"))


def plan(frame: DataFrame, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    frame.explain()
    return capsys.readouterr().out


def test_plain_comparisons_reach_the_files_and_the_function_sees_what_is_left(
    shop: DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    found = shop.where(column("region = 'AMER' AND price > 200 AND price + 1 < 220", shop.schema))
    assert sorted(row.number for row in found.collect()) == [
        n for n in range(801, 876) if n % 3 == 0 and n % 7 and n / 4 + 1 < 220
    ]
    shown = plan(found, capsys)
    assert "EqualNullSafe(region,AMER)" in shown and "GreaterThan(price,200.0)" in shown
    assert shown.count("headgate_filter(") == 1


def test_what_is_not_plain_is_left_to_the_function(shop: DataFrame, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("NOT (region = 'AMER')", "region LIKE 'A%'", "region = 'AMER' OR price + 1 > 5", "region <> 'AMER'"):
        assert "PushedFilters: []" in plan(shop.where(column(text, shop.schema)), capsys), text


def test_a_language_from_outside_is_left_to_the_function(shop: DataFrame, capsys: pytest.CaptureFixture[str]) -> None:
    rules = OwnRules("headgate.evaluate.semantics.rabbitmq")
    field = Field(FieldReference(Section.APPLICATION_PROPERTIES, key=b"number"), rules)
    filter = Filter(Compare(CompareOperator.EQUAL, field, Constant(5), rules), "number = 5", "outside")
    found = shop.where(column(filter, shop.schema))
    assert [row.number for row in found.collect()] == [5]
    assert "PushedFilters: []" in plan(found, capsys)


def test_bounds_of_whole_numbers_and_times_are_exact_beforehand(
    shop: DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    found = shop.where(column("number > 3.5 AND p.creation_time <= 1750000000005", shop.schema))
    assert sorted(row.number for row in found.collect()) == [4, 5]
    shown = plan(found, capsys)
    assert "GreaterThan(number,3)" in shown and ".creation_time < 2025-06-15 15:06:40.006)" in shown


def test_a_column_is_never_null(shop: DataFrame) -> None:
    chosen = column("price > 5", shop.schema)
    assert shop.where(chosen.isNull()).count() == 0
    assert shop.where(chosen).count() + shop.where(~chosen).count() == 1000


def test_the_time_of_a_column_is_that_of_the_query_unless_it_is_given(shop: DataFrame) -> None:
    assert shop.where(column("p.creation_time < UTC()", shop.schema)).count() == 1000
    assert shop.where(column("p.creation_time < UTC()", shop.schema, as_of_ms=1_750_000_000_010)).count() == 10
    assert shop.where(column("UTC() = UTC()", shop.schema)).count() == 1000


def test_a_parsed_filter_takes_named_columns(shop: DataFrame) -> None:
    filter = Filter.parse("sys.Label = 'x' OR REGION = 'EMEA'", "servicebus")
    named = {"properties.subject": "region"}
    assert shop.where(column(filter, shop.schema, columns=named)).count() == 333


def test_a_parsed_filter_has_its_dialect_already(shop: DataFrame) -> None:
    with pytest.raises(ConfigError, match="the filter is parsed already, as rabbitmq"):
        column(Filter.parse("region = 'x'", "rabbitmq"), shop.schema, dialect="servicebus")


def test_names_of_columns_may_hold_dots_and_backquotes(spark: SparkSession) -> None:
    frame = spark.createDataFrame(pa.table({"a.b": [1, 2], "c`d": [1, 2], "": [1, 2]}))
    assert frame.where(column("[a.b] = 1 AND [c`d] = 1", frame.schema, dialect="rabbitmq")).count() == 1


def test_a_column_keeps_of_a_stream_what_the_source_option_keeps(spark: SparkSession, root: Path) -> None:
    write_stream(root, "in", [order(n) for n in range(300)])
    text = "region = 'AMER' AND h.priority > 4 AND price < 50 AND p.subject LIKE 'order.%'"
    options = {"root": str(root), "stream": "in"}
    everything = spark.read.format("headgate").options(**options).load()
    filtered = spark.read.format("headgate").options(**options, filter=text).load()
    kept = [row.offset for row in everything.where(column(text, everything.schema)).collect()]
    assert kept == [row.offset for row in filtered.collect()]
    assert kept


def test_a_streaming_query_takes_a_column(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    write_stream(root, "in", [order(n) for n in range(90)])
    frame = spark.readStream.format("headgate").options(root=str(root), stream="in").load()
    kept = frame.where(column("region = 'AMER' AND p.creation_time < UTC()", frame.schema)).select("offset")
    query = (
        kept.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination()
    assert spark.read.parquet(str(tmp_path / "out")).count() == 30
