"""The same topic in Spark: its queues are streams, its messages rows, its expression the filter of the read.

python examples/rocketmq/read.py ROOT
"""

from __future__ import annotations

import sys

from orders import LARGE, TOPIC

from headgate.spark import session


def main() -> int:
    """Count what the billing group was given, by region and queue, and show some of it."""
    spark = session(master="local[2]")
    orders = (
        spark.read.format("headgate")
        .option("root", sys.argv[1])
        .option("stream", f"{TOPIC}-*")
        .option("filter", LARGE.expression)
        .option("dialect", "rocketmq")
        .option("columns", "offset,body,application_properties")
        .option("properties", "region string, price string")
        .load()
    )
    orders.selectExpr(
        "offset", "cast(body as string) AS body", "application_properties.region", "application_properties.price"
    ).orderBy("body").show(truncate=False)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
