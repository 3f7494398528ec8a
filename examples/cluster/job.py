"""Events of a Parquet file become a stream, and a filtered copy of it another: the job of docs/howto/cluster.md.

    headgate generate /shared/events.parquet --events 100000
    spark-submit --master … job.py /shared

Running it again adds nothing: the write has an id, and the copy goes on where its checkpoint ends.
"""

from __future__ import annotations

import sys

from headgate.spark import copy_stream, session


def main(shared: str) -> None:
    """Run the job; inputs, streams and checkpoints lie in the folder `shared`."""
    spark = session("cluster-example")
    root = f"{shared}/streams"
    messages = spark.read.parquet(f"{shared}/events.parquet").selectExpr(
        "named_struct('subject', event_type) AS properties",
        "named_struct('region', region, 'price', price) AS application_properties",
        "body",
    )
    written = {"root": root, "stream": "customer-events", "filter_source": "properties.subject"}
    messages.write.format("headgate").options(**written, write_id="events").mode("append").save()

    source = {"root": root, "stream": "customer-events", "filter": "region = 'AMER' AND price > 100"}
    copied = copy_stream(spark, source, {"root": root, "stream": "amer"}, checkpoint=f"{shared}/checkpoints/amer")
    print("messages copied:", copied.messages_written)


if __name__ == "__main__":
    main(sys.argv[1])
