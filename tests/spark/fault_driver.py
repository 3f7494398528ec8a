"""A Spark driver for the tests of faults: runs one job over streams and ends; killed by them in the middle of it.

Arguments: the kind of job, the root, the checkpoint. Where a commit dies is told by `HEADGATE_CRASH_AT`; a commit runs
in a process of Spark's own, so when the job fails this process ends itself as `kill -9` would.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from headgate.log import Stream, stream_folder
from headgate.spark import copy_stream, session
from headgate.spark.route import output_of_copies, route_topic
from headgate.topic import Topic
from headgate.topic.history import RuleHistory

FILTER = "region = 'AMER' AND p.creation_time > UTC() - 3000000000000"


def names_of(topic: Topic) -> set[str]:
    return {subscription.name for subscription in topic.subscriptions}


def main(kind: str, root: str, checkpoint: str) -> None:
    spark = session("faults", master="local[2]", config={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
    source = {"root": root, "stream": "in", "filter": FILTER, "max_messages_per_batch": "200"}
    if kind == "copy":
        targets = [{"root": root, "stream": "out"}, {"root": root, "stream": "high", "filter": "h.priority > 4"}]
        copy_stream(spark, source, targets, checkpoint=checkpoint)
        return
    if kind == "route":
        topic = RuleHistory.load(Stream.open(stream_folder(root, "in"))).current
        outputs = {output_of_copies(name): {"root": root, "stream": name} for name in sorted(names_of(topic))}
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
    try:
        main(*sys.argv[1:])
    except BaseException as error:
        Path(sys.argv[2], "died-of").write_text(str(error)[:2000])
        os.kill(os.getpid(), signal.SIGKILL)
