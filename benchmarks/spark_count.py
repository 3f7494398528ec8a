"""Spark, two cores: filter a stream and count, beside Parquet in the shapes that people use, same messages and filter.

Parquet is converted from the stream by Spark beforehand: typed struct columns, map<string,string> and VARIANT in order
of arrival, and typed columns sorted by subject with Bloom filters. The conversion is not in the times.
HEADGATE_BENCH_MESSAGES sets the number of messages; the files with map and VARIANT hold a quarter of it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from harness import Measurement, measure, report
from pyspark.sql import DataFrame, SparkSession
from streams import RARE_FILTER, event_stream

from headgate.log import Stream
from headgate.spark import session

MESSAGES = int(os.environ.get("HEADGATE_BENCH_MESSAGES", "20000000"))
PROPERTIES = "region string, price double, premium_customer boolean, channel string, customer_id bigint, quantity int"
TYPED = """
subject = 'order.created' AND creation_time > timestamp_millis(1700000000000) AND region IN ('AMER','EMEA','APJ')
AND (coalesce(priority, 4) > 8 OR price >= 299.99 OR (premium_customer AND channel = 'store' AND quantity > 4))
"""
IN_MAP = """
subject = 'order.created' AND creation_time > timestamp_millis(1700000000000)
AND keys['region'] IN ('AMER','EMEA','APJ')
AND (coalesce(priority, 4) > 8 OR try_cast(keys['price'] AS DOUBLE) >= 299.99
     OR (keys['premium_customer'] = 'true' AND keys['channel'] = 'store' AND try_cast(keys['quantity'] AS INT) > 4))
"""
IN_VARIANT = """
subject = 'order.created' AND creation_time > timestamp_millis(1700000000000)
AND try_variant_get(keys, '$.region', 'string') IN ('AMER','EMEA','APJ')
AND (coalesce(priority, 4) > 8 OR try_variant_get(keys, '$.price', 'double') >= 299.99
     OR (try_variant_get(keys, '$.premium_customer', 'boolean')
         AND try_variant_get(keys, '$.channel', 'string') = 'store'
         AND try_variant_get(keys, '$.quantity', 'int') > 4))
"""


def source(spark: SparkSession, stream: Stream, **options: str) -> DataFrame:
    return spark.read.format("headgate").options(**options).load(str(stream.path))


def typed_rows(spark: SparkSession, stream: Stream) -> DataFrame:
    rows = source(spark, stream, columns="header,properties,application_properties,body", properties=PROPERTIES)
    return rows.selectExpr(
        "properties.subject", "properties.creation_time", "header.priority", "application_properties.*", "body"
    )


def open_rows(spark: SparkSession, stream: Stream) -> DataFrame:
    rows = source(spark, stream, columns="header,properties,application_properties,body")
    return rows.selectExpr(
        "properties.subject", "properties.creation_time", "header.priority", "application_properties AS keys", "body"
    )


def main() -> None:
    spark = session("benchmark", master="local[2]", config={"spark.driver.memory": "6g"})
    with tempfile.TemporaryDirectory(prefix="headgate-benchmark-") as folder:
        place = Path(folder)
        mixed = event_stream(place / "mixed", messages=MESSAGES)
        runs = event_stream(place / "runs", messages=MESSAGES, in_runs=True)
        quarter = event_stream(place / "quarter", messages=MESSAGES // 4)
        typed_rows(spark, mixed).write.parquet(str(place / "typed"))
        sorted_rows = typed_rows(spark, mixed).repartitionByRange(8, "subject").sortWithinPartitions("subject")
        sorted_rows.write.option("parquet.bloom.filter.enabled#subject", "true").parquet(str(place / "sorted"))
        open_rows(spark, quarter).write.parquet(str(place / "variant"))
        mapped = "cast(keys AS map<string,string>) AS keys"
        open_rows(spark, quarter).selectExpr("subject", "creation_time", "priority", mapped, "body").write.parquet(
            str(place / "map")
        )
        baseline = "Parquet, typed columns, arrival order"

        def parquet(name: str, condition: str) -> int:
            return spark.read.parquet(str(place / name)).where(condition).count()

        def row(name: str, file: str, condition: str, stream: Stream, messages: int) -> Measurement:
            found = parquet(file, condition)
            expected = source(spark, stream, columns="offset", filter=RARE_FILTER).count()
            assert found == expected, (name, found, expected)
            return measure(name, lambda: parquet(file, condition), messages, rounds=3)

        def ours(name: str, stream: Stream, **options: str) -> Measurement:
            query = source(spark, stream, columns="offset", filter=RARE_FILTER, **options)
            return measure(name, query.count, MESSAGES, rounds=5)

        matches = source(spark, mixed, columns="offset", filter=RARE_FILTER).count()
        report(
            "spark_count",
            f"Spark, local[2]: filter {MESSAGES:,} messages ({100 * matches / MESSAGES:.1f} % match) and count",
            [
                row(baseline, "typed", TYPED, mixed, MESSAGES),
                row("Parquet, typed columns, sorted by subject, Bloom filters", "sorted", TYPED, mixed, MESSAGES),
                row("Parquet, map<string,string>, arrival order", "map", IN_MAP, quarter, MESSAGES // 4),
                row("Parquet, VARIANT, arrival order", "variant", IN_VARIANT, quarter, MESSAGES // 4),
                ours("Headgate, arrival order", mixed),
                ours("Headgate, filter values in runs", runs, filter_values="order.created"),
                ours("Headgate, in runs, values derived from the filter", runs),
            ],
            baseline=baseline,
        )
    spark.stop()


if __name__ == "__main__":
    main()
