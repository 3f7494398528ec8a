"""Spark, two cores: a topic with a thousand subscriptions, each with an SQL rule, two copies of a message on average.

Stream to streams, committed exactly once, in a temporary folder and in a file system in memory. The baseline is the
same with a handful of the same subscriptions, whose rules are evaluated one by one; its ratio says what the number of
rules costs. With an action on every rule each copy is changed. HEADGATE_BENCH_MESSAGES sets the number of messages.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from harness import Measurement, measure, report
from messages import REGIONS, SHARES
from pyspark.sql import SparkSession
from streams import event_stream

from headgate.log import Stream, stream_folder
from headgate.spark import session
from headgate.spark.route import declare_topic, output_of_copies, route_topic
from headgate.topic import Rule, Subscription, Topic

MESSAGES = int(os.environ.get("HEADGATE_BENCH_MESSAGES", "8000000"))
SUBSCRIPTIONS = 1000
FEW = 3
ROUNDS = 5
ACTION = "SET quantity = quantity * 2 + 1; REMOVE channel"
MEMORY = Path("/dev/shm")
ROOM_SIZES = 6
"""A root holds the topic and four times its bytes in copies, staged and appended."""
KINDS = tuple(SHARES)
CHANNELS = ("web", "app", "store")


def rule(number: int) -> str:
    """An SQL rule that two of a thousand messages match: a slice of the customers, and what they do."""
    low = number * 5000
    region, kind, channel = REGIONS[number % 3], KINDS[number % len(KINDS)], CHANNELS[number // 3 % 3]
    return (
        f"customer_id >= {low} AND customer_id < {low + 10_000} "
        f"AND (region <> '{region}' OR premium_customer = TRUE OR price > {10 + number % 90} OR p.subject <> '{kind}' "
        f"OR channel = '{channel}' OR campaign IS NULL)"
    )


def topic_of(subscriptions: int, action: str | None) -> Topic:
    made = [Subscription(f"s{n}", (Rule("r", rule(n), action, dialect="amqp"),)) for n in range(subscriptions)]
    return Topic("events", tuple(made))


def routed(
    spark: SparkSession, made: Stream, root: Path, subscriptions: int, name: str, action: str | None = None
) -> Measurement:
    """Rounds of routing a copy of a stream below `root`, each to new streams."""
    events = stream_folder(root, "events")
    events.parent.mkdir(parents=True)
    shutil.copytree(made.path, events)
    declare_topic(root, topic_of(subscriptions, action))
    outputs = {output_of_copies(f"s{n}"): {"root": str(root), "stream": f"s{n}"} for n in range(subscriptions)}
    copies = 0

    def clear() -> None:
        for other in root.joinpath("streams").iterdir():
            if other != events:
                shutil.rmtree(other)
        shutil.rmtree(root / ".headgate", ignore_errors=True)

    def run() -> None:
        nonlocal copies
        copies = route_topic(spark, root, "events", outputs).copies

    measured = measure(name, run, MESSAGES, rounds=ROUNDS, prepare=clear, work_bytes=size_of(made))
    measured.name = f"{name}, {copies / MESSAGES:.2f} copies a message"
    assert Stream.open(events).next_offset() >= MESSAGES
    shutil.rmtree(root)
    return measured


def size_of(stream: Stream) -> int:
    return sum(segment.segment_path.stat().st_size for segment in stream.segments())


def main() -> None:
    spark = session("benchmark", master="local[2]", config={"spark.driver.memory": "4g"})
    with tempfile.TemporaryDirectory(prefix="headgate-benchmark-") as folder:
        place = Path(folder)
        made = event_stream(place / "events", messages=MESSAGES)
        size = size_of(made)
        results = [
            routed(spark, made, place / "few", FEW, f"{FEW} subscriptions"),
            routed(spark, made, place / "many", SUBSCRIPTIONS, f"{SUBSCRIPTIONS:,} subscriptions"),
            routed(spark, made, place / "acting", SUBSCRIPTIONS, f"{SUBSCRIPTIONS:,} subscriptions, {ACTION}", ACTION),
        ]
        if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM_SIZES * size:
            with tempfile.TemporaryDirectory(prefix="headgate-benchmark-", dir=MEMORY) as memory:
                name = f"{SUBSCRIPTIONS:,} subscriptions, files in memory"
                results.append(routed(spark, made, Path(memory) / "many", SUBSCRIPTIONS, name))
        title = f"Spark, local[2]: a topic of {MESSAGES:,} messages ({size / 1e9:.1f} GB), routed and committed"
        report("spark_route", title, results, baseline=results[0].name)
    spark.stop()


if __name__ == "__main__":
    main()
