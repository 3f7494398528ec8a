"""Columns are read from SQL for certain: no statement that Spark accepts is refused."""

from __future__ import annotations

import contextlib
import re

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headgate.spark.pipeline.statements import columns_of_statement

COLUMNS = ("region", "price", "items", "at", "tags", "event")
SCHEMA = (
    "region string, price double, items array<struct<name: string, cost: double>>, at timestamp, "
    "tags map<string, string>, event struct<kind: string, size: int>"
)

ACCEPTED = """
SELECT region r, r || 'x' AS twice FROM s
SELECT price total, total * 2 FROM s ORDER BY total
SELECT DISTINCT -price FROM s
SELECT CASE -price WHEN -1 THEN -2 ELSE -3 END FROM s
SELECT CASE WHEN -price < 1 AND NOT -price > 2 THEN region END AS kind FROM s
SELECT current_date, current_timestamp, user, NULL, TRUE, localtimestamp() FROM s
SELECT CAST(tags AS map<string, binary>) AS m, price::int, CAST(price AS decimal(10, 2)) FROM s
SELECT CAST(array(price) AS ARRAY < INT >), CAST(event AS struct<kind: string, amount: int>) FROM s
SELECT timestampdiff(HOUR, at, current_timestamp) h, dateadd(DAY, 1, at), date_add(at, 1) FROM s
SELECT at + INTERVAL 1 DAY, at - INTERVAL '2' HOUR, at + INTERVAL -1 DAY, at - INTERVAL 2 days 3 hours FROM s
SELECT extract(DOW FROM at), extract(yr FROM at), trim(BOTH FROM region), trim(LEADING 'x' FROM region) FROM s
SELECT substring(region FROM 1 FOR 2), position('a' IN region), overlay(region PLACING 'x' FROM 1) FROM s
SELECT window.start, count(*) AS n FROM s GROUP BY window(at, '1 hour') HAVING n > 1
SELECT max(price) AS top FROM s GROUP BY ALL HAVING top > 1 ORDER BY ALL
SELECT transform(items, i -> i.cost + price), filter(items, (i, n) -> n > 0 AND i.cost > 1) FROM s
SELECT inline(items) FROM s ORDER BY cost
SELECT explode(tags) AS (k, v) FROM s
SELECT k, v FROM s LATERAL VIEW explode(tags) t AS k, v
SELECT event.*, kind AS k FROM s
SELECT name FROM (SELECT inline(items) FROM s)
SELECT a.region, b.number FROM s AS a JOIN (SELECT 1 AS number) AS b ON a.price > b.number
WITH x AS (SELECT region AS area FROM s) SELECT area FROM x
SELECT EMEA FROM (SELECT region, price FROM s) PIVOT (sum(price) FOR region IN ('EMEA'))
SELECT sum(price) OVER w AS running FROM s WINDOW w AS (PARTITION BY region ORDER BY at)
SELECT sum(price) OVER (ORDER BY at ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) FROM s
SELECT count(*) OVER (ROWS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING) FROM s
SELECT sum(price) FILTER (WHERE region = 'a'), count(DISTINCT region), first(region) IGNORE NULLS FROM s
SELECT grouping__id, region FROM s GROUP BY GROUPING SETS ((region), ())
SELECT region, grouping(region) FROM s GROUP BY CUBE (region, price)
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY price) AS middle FROM s
SELECT /*+ COALESCE(2) */ region FROM s
SELECT s.region, s.event.kind FROM s
SELECT `region`, tags['a'], items[0].name, event.kind FROM s -- what FROM comments say
SELECT region IS DISTINCT FROM 'a', region NOT LIKE 'a%' ESCAPE '!', region RLIKE r'\\d' FROM s
SELECT region FROM s WHERE price BETWEEN -1 AND 2 OR price IN (1, 2) AND at > DATE '2026-01-01' OR price <=> 1
SELECT 'it''s', "a FROM b", 1L, 1.5e3, X'1F', 2BD, region COLLATE UTF8_LCASE FROM s
SELECT region FROM s UNION ALL SELECT 'x' AS other
SELECT region AS area FROM s EXCEPT SELECT 'x' ORDER BY area
SELECT * EXCEPT (region) FROM s TABLESAMPLE (10 ROWS)
SELECT parse_json(region):kind.size::int, 1 div 2, price % 3, ~1, !true FROM s
SELECT filter(items, i -> i.cost > price) FROM s
SELECT region /* by , colour , or */ FROM s
SELECT region, price FROM s WHERE price > 1 |> JOIN (VALUES (1, 2)) AS v(one, two) ON one = price |> ORDER BY -two
SELECT region FROM s WHERE price IN (SELECT two + 1 FROM VALUES (1, 2) AS v(one, two))
SELECT mask(region, lowerChar => 'x') FROM s
SELECT region FROM s |> WHERE region = 'x' |> EXTEND 1 AS one |> SELECT one
SELECT EXISTS (SELECT one FROM VALUES (1) AS v(one)), (SELECT max(price) FROM s) AS top FROM s
FROM s SELECT region
""".strip().splitlines()


def refused(sql: str) -> list[str]:
    """What a check would miss in `s`."""
    source, columns = columns_of_statement(sql) or ("", [])
    return [each for each in columns if source == "s" and each.split(".")[0].lower() not in COLUMNS]


def test_the_columns_of_one_source_are_found() -> None:
    sql = "SELECT region, f(price) AS p, event.kind FROM orders o WHERE Region = 'a' AND p > 1 ORDER BY at DESC"
    assert columns_of_statement(sql) == ("orders", ["region", "price", "event.kind", "Region", "at"])


@pytest.mark.parametrize("sql", ["", "SELECT", "SELECT 1", "SELECT a FROM", "( FROM", "'", "a."])
def test_what_is_no_statement_of_the_one_form_names_nothing(sql: str) -> None:
    assert columns_of_statement(sql) is None


@pytest.mark.parametrize("sql", ACCEPTED)
def test_an_accepted_statement_is_not_refused(sql: str) -> None:
    assert refused(sql) == []


def test_names_for_what_a_function_makes_are_left_to_spark() -> None:
    assert refused("SELECT split_in_two(region) AS (left_part, right_part) FROM s") == []


@pytest.mark.spark
def test_spark_accepts_these_statements(spark: SparkSession) -> None:
    spark.createDataFrame([], SCHEMA).createOrReplaceTempView("s")
    wrong = {}
    try:
        for sql in ACCEPTED:
            try:
                spark.sql(sql)
            except PySparkException as error:
                wrong[sql] = str(error).splitlines()[0]
    finally:
        spark.catalog.dropTempView("s")
    assert not wrong, "\n".join(f"{sql}: {reason}" for sql, reason in wrong.items())


@pytest.mark.spark
def test_no_example_of_a_function_of_spark_is_refused(spark: SparkSession) -> None:
    functions = spark._jsparkSession.sessionState().functionRegistry()
    tried = 0
    known = functions.listFunction()
    for number in range(known.length()):
        found = functions.lookupFunction(known.apply(number))
        examples = "" if found.isEmpty() else found.get().getExamples()
        for example in re.findall(r"> SELECT (.*?);\s*$", examples, re.MULTILINE):
            tried += 1
            sql = f"SELECT {example}" if re.search(r"\bFROM\b", example) else f"SELECT {example} FROM s"
            assert refused(sql) == [], sql
    assert tried > 600


@pytest.mark.spark
@pytest.mark.long
def test_no_word_that_stands_for_a_value_of_its_own_is_refused(spark: SparkSession) -> None:
    words = {row[0].lower() for row in spark.sql("SELECT keyword FROM sql_keywords()").collect()}
    words |= {row[0].rpartition(".")[2] for row in spark.sql("SHOW FUNCTIONS").collect()}
    values = []
    for word in sorted(word for word in words if word.isidentifier()):
        with contextlib.suppress(PySparkException):
            spark.sql(f"SELECT {word}")
            values.append(word)
    assert {"current_user", "current_date", "null"} < set(values)
    for word in values:
        assert refused(f"SELECT {word} FROM s") == []
