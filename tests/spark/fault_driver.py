"""A Spark driver for the tests of faults: runs one job over streams and ends; killed by them in the middle of it.

Arguments: the kind of job, the root, the checkpoint. Where a commit dies is told by `HEADGATE_CRASH_AT`; a commit runs
in a process of Spark's own, so when the job fails this process ends itself as `kill -9` would.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from headgate.spark import copy_stream, session

FILTER = "region = 'AMER' AND p.creation_time > UTC() - 3000000000000"


def main(kind: str, root: str, checkpoint: str) -> None:
    spark = session("faults", master="local[2]", config={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
    source = {"root": root, "stream": "in", "filter": FILTER, "max_messages_per_batch": "200"}
    if kind == "copy":
        targets = [{"root": root, "stream": "out"}, {"root": root, "stream": "high", "filter": "h.priority > 4"}]
        copy_stream(spark, source, targets, checkpoint=checkpoint)
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
