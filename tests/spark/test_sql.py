"""Headgate from SQL: tables over streams in a session that knows nothing of Headgate, and `headgate_match`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from .conftest import order, write_stream
from .programs import run_program

pytestmark = pytest.mark.spark

PLAIN = """
import sys
from pyspark.sql import SparkSession
root = sys.argv[1]
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.sql.warehouse.dir", root + "/warehouse").getOrCreate()
)
spark.sql(f'''
    CREATE TABLE orders USING headgate OPTIONS (
        root '{root}', stream 'in', filter "region = 'AMER'",
        columns 'offset, application_properties', properties 'region string, number bigint'
    )
''')
assert "headgate" not in sys.modules
print("read", spark.sql("SELECT sum(application_properties.number) FROM orders WHERE offset < 10").first()[0])
spark.sql(f"CREATE TEMPORARY VIEW everything USING headgate OPTIONS (root '{root}', stream 'in')")
print("view", spark.sql("SELECT count(*) FROM everything").first()[0])
for statement in (
    f"CREATE TABLE wrong USING headgate OPTIONS (root '{root}', stream 'in', filter 'region = ')",
    "INSERT INTO orders SELECT * FROM orders",
):
    try:
        spark.sql(statement)
    except Exception as error:
        print("refused", str(error).replace(chr(10), " "))
spark.read.format("headgate").options(root=root, stream="in").load().write.format("headgate").options(
    root=root, stream="out"
).mode("append").save()
print("written", spark.read.format("headgate").options(root=root, stream="out").load().count())
from headgate.spark import register
register(spark)
matches = "headgate_match('region = ''EMEA''', struct(application_properties))"
print("registered", spark.sql(f"SELECT count(*) FROM everything WHERE {matches}").first()[0])
"""


def test_a_session_without_any_of_headgates_settings_has_tables_over_streams(root: Path) -> None:
    write_stream(root, "in", [order(n) for n in range(99)])
    said = [line for line in run_program(PLAIN, str(root), folder=root) if line]
    assert said[:2] == ["read 18", "view 99"]
    assert "refused" in said[2] and "expected a value or a name" in said[2]
    assert "refused" in said[3] and "a table is for reading" in said[3]
    assert said[4:] == ["written 99", "registered 33"]


@pytest.fixture
def shop(spark: SparkSession) -> Iterator[SparkSession]:
    """A session with the views `orders` (columns of their own) and `rules` (filters of several dialects)."""
    spark.sql(
        "SELECT * FROM VALUES (1, 'AMER', 5.0D), (2, 'EMEA', 7.0D), (3, 'AMER', 1.0D), (4, NULL, 9.0D)"
        " AS t(number, region, price)"
    ).createOrReplaceTempView("orders")
    spark.sql(
        "SELECT * FROM VALUES ('west', 'region = ''AMER''', 'rabbitmq'), ('dear', 'price >= 7', NULL),"
        " ('none', NULL, NULL) AS t(name, text, dialect)"
    ).createOrReplaceTempView("rules")
    yield spark
    spark.sql("DROP VIEW orders")
    spark.sql("DROP VIEW rules")


def numbers(spark: SparkSession, where: str) -> list[int]:
    return [row.number for row in spark.sql(f"SELECT number FROM orders WHERE {where} ORDER BY number").collect()]


def test_headgate_match_filters_the_columns_of_a_struct(shop: SparkSession) -> None:
    text = "'region = ''AMER'' AND price > 2'"
    assert numbers(shop, f"headgate_match({text}, struct(region, price))") == [1]
    assert numbers(shop, f"NOT headgate_match({text}, struct(*))") == [2, 3, 4]
    assert numbers(shop, f"headgate_match(filter => {text}, row => struct(*), dialect => 'rabbitmq')") == [1]


def test_headgate_match_takes_filters_from_a_column_each_in_its_dialect(shop: SparkSession) -> None:
    joined = shop.sql(
        "SELECT name, number, headgate_match(text, struct(region, price), dialect) AS matched FROM rules, orders"
    ).collect()
    found = {name: {row.number: row.matched for row in joined if row.name == name} for name in ("west", "dear", "none")}
    assert found == {
        "west": {1: True, 2: False, 3: True, 4: False},
        "dear": {1: False, 2: True, 3: False, 4: True},
        "none": dict.fromkeys((1, 2, 3, 4)),
    }


def test_headgate_match_is_null_for_a_row_that_is_null(shop: SparkSession) -> None:
    row = "if(number = 2, NULL, struct(region, price))"
    found = shop.sql(f"SELECT headgate_match('price > 0', {row}) AS matched FROM orders ORDER BY number").collect()
    assert [row.matched for row in found] == [True, None, True, True]


def test_headgate_match_takes_the_time_as_an_argument(shop: SparkSession) -> None:
    asks = "headgate_match('UTC() > 1700000000000', struct(price)"
    assert numbers(shop, f"{asks}, now => current_timestamp())") == [1, 2, 3, 4]
    assert numbers(shop, f"{asks}, now => timestamp'2020-01-01 00:00:00')") == []
    with pytest.raises(PythonException, match="give the time as now => current_timestamp"):
        numbers(shop, f"{asks})")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("'price > ', struct(price)", "expected a value or a name"),
        ("'price > 5', price", "row is double, expected a struct"),
        ("'price > 5', struct(region)", "there is not a column 'price'"),
        ("'price > 5', struct(cast(price AS decimal(10,2)) AS price)", r"column price is decimal\(10,2\)"),
        ("'price > 5', struct(make_interval(1, 2) AS price)", "column price is month_day_nano_interval"),
        ("'price > 5', struct(price), 'latin'", "latin"),
    ],
)
def test_headgate_match_ends_the_query_with_the_reason(shop: SparkSession, arguments: str, reason: str) -> None:
    with pytest.raises(PythonException, match=reason):
        numbers(shop, f"headgate_match({arguments})")


def test_headgate_match_reads_variants_and_maps_inside_the_row(shop: SparkSession) -> None:
    variant = 'parse_json(\'{"region": "AMER", "price": 5}\') AS application_properties'
    assert numbers(shop, f"headgate_match('region = ''AMER'' AND price = 5', struct({variant}))") == [1, 2, 3, 4]
    mapped = "map('region', region) AS application_properties"
    assert numbers(shop, f"headgate_match('region = ''AMER''', struct({mapped}))") == [1, 3]
