"""Orders that deserve attention: two flows, each with a filter of its own, into one stream."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
root = spark.conf.get("shop.root")
premium_price = float(spark.conf.get("shop.premium_price"))

dp.create_sink("attention", "headgate", {"root": root, "stream": "attention", "filter_source": "properties.subject"})


def orders(condition: str) -> DataFrame:
    """Messages of the stream for which the condition holds; chunks without orders are not read."""
    return (
        spark.readStream.format("headgate")
        .options(root=root, stream="customer-events")
        .option("filter_values", "order.created")
        .option("filter", f"p.subject = 'order.created' AND {condition}")
        .load()
    )


@dp.append_flow(target="attention", name="urgent")
def urgent() -> DataFrame:
    """Orders of high priority."""
    return orders("h.priority > 7")


@dp.append_flow(target="attention", name="premium")
def premium() -> DataFrame:
    """Dear orders of premium customers that are not urgent; what comes behind the filter is any Spark SQL."""
    rows = orders(f"h.priority <= 7 AND premium_customer = TRUE AND price >= {premium_price!r}")
    return rows.where("variant_get(application_properties, '$.currency', 'string') = 'EUR'")
