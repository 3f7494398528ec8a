"""Spark, two cores: a topic with a thousand subscriptions, each with an SQL rule, two copies of a message on average.

Stream to streams, committed exactly once. The baseline is the same with a handful of the same subscriptions, whose
rules are evaluated one by one; its ratio says what the number of rules costs. HEADGATE_BENCH_MESSAGES sets the number
of messages.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from harness import measure, report
from messages import REGIONS, SHARES
from streams import event_stream

from headgate.log import Stream, stream_folder
from headgate.spark import session
from headgate.spark.route import declare_topic, output_of_copies, route_topic
from headgate.topic import Rule, Subscription, Topic

MESSAGES = int(os.environ.get("HEADGATE_BENCH_MESSAGES", "20000000"))
SUBSCRIPTIONS = 1000
FEW = 3
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


def topic_of(subscriptions: int) -> Topic:
    made = [Subscription(f"s{n}", (Rule("r", rule(n), dialect="amqp"),)) for n in range(subscriptions)]
    return Topic("events", tuple(made))


def main() -> None:
    spark = session("benchmark", master="local[2]", config={"spark.driver.memory": "4g"})
    with tempfile.TemporaryDirectory(prefix="headgate-benchmark-") as folder:
        place = Path(folder)
        made = event_stream(place / "events", messages=MESSAGES)
        size = sum(segment.segment_path.stat().st_size for segment in made.segments())
        results = []
        for subscriptions, name in ((FEW, "3 subscriptions"), (SUBSCRIPTIONS, "1 000 subscriptions")):
            root = place / f"root-{subscriptions}"
            events = stream_folder(root, "events")
            events.parent.mkdir(parents=True)
            shutil.copytree(made.path, events)
            declare_topic(root, topic_of(subscriptions))
            copies: list[int] = []

            def clear(root: Path = root, events: Path = events) -> None:
                for other in root.joinpath("streams").iterdir():
                    if other != events:
                        shutil.rmtree(other)
                shutil.rmtree(root / ".headgate", ignore_errors=True)

            def run(root: Path = root, count: int = subscriptions, copies: list[int] = copies) -> None:
                outputs = {output_of_copies(f"s{n}"): {"root": str(root), "stream": f"s{n}"} for n in range(count)}
                copies.append(route_topic(spark, root, "events", outputs).copies)

            measured = measure(name, run, MESSAGES, rounds=3, prepare=clear, work_bytes=size)
            measured.name = f"{name}, {copies[-1] / MESSAGES:.2f} copies a message"
            results.append(measured)
            assert Stream.open(events).next_offset() >= MESSAGES
        title = f"Spark, local[2]: a topic of {MESSAGES:,} messages ({size / 1e9:.1f} GB), routed and committed"
        report("spark_route", title, results, baseline=results[0].name)
    spark.stop()


if __name__ == "__main__":
    main()
