"""The jobs of the tests of faults; as a program, a Spark driver that runs one and is killed in the middle of it.

Arguments: the kind of job, the root, the checkpoint.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from headgate.log import Stream, stream_folder
from headgate.spark import copy_stream, session
from headgate.spark.route import output_of_copies, route_topic
from headgate.topic import Topic
from headgate.topic.history import RuleHistory

FILTER = "region = 'AMER' AND p.creation_time > UTC() - 3000000000000"


def names_of(topic: Topic) -> set[str]:
    return {subscription.name for subscription in topic.subscriptions}


def run_job(spark: SparkSession, kind: str, root: str, checkpoint: str) -> None:
    """Run one kind of job over the streams of a root to the end of what there is."""
    source = {"root": root, "stream": "in", "filter": FILTER, "max_messages_per_batch": "200"}
    if kind == "copy":
        targets = [{"root": root, "stream": "out"}, {"root": root, "stream": "high", "filter": "h.priority > 4"}]
        copy_stream(spark, source, targets, checkpoint=checkpoint)
        return
    if kind.startswith("route"):
        topic = RuleHistory.load(Stream.open(stream_folder(root, "in"))).current
        outputs = {output_of_copies(name): {"root": root, "stream": name} for name in sorted(names_of(topic))}
        if kind == "route once":
            route_topic(spark, root, "in", outputs)
            return
        options = {"max_messages_per_batch": "200"}
        route_topic(spark, root, "in", outputs, checkpoint=checkpoint, options=options)
        return
    frame = spark.readStream.format("headgate").options(**source, columns="message").load()
    (
        frame.writeStream.format("headgate")
        .options(root=root, stream="out")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    run_job(
        session("faults", master="local[2]", config={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}),
        *sys.argv[1:],
    )
