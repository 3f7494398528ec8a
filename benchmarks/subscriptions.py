"""Reading copies by their postings, one core: a backlog beside a filtered read of the topic, and lone new messages.

A million events; a subscription of 1 %, one that changes its copies, one that takes all. Copies are read 4 096 at a
time, from the first one on, by a new reader each round. What a broker does with them is in `broker_topics.py`.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from harness import Measurement, report
from messages import event_batch
from streams import RARE_FILTER

from headgate.evaluate import Filter
from headgate.log import Stream, Writer
from headgate.log.chunk_builder import ChunkLimits, FilterValues, build_chunks
from headgate.scan import OffsetRange, ScanCounters, ScanRequest, plan, read_range
from headgate.topic import Rule, Subscription, Topic, TopicEditor, create_topic
from headgate.topic.decisions import CopyReader, Decider, Postings

MESSAGES = 1_000_000
LONE = 2_000
ROUNDS = 5
AT_ONCE = 4096
SUBSCRIPTIONS = (
    Subscription("rare", (Rule("r", RARE_FILTER, dialect="rabbitmq"),)),
    Subscription("changed", (Rule("r", RARE_FILTER, "SET price = price * 2; REMOVE region", dialect="rabbitmq"),)),
    Subscription("all"),
)


def topic_stream(root: Path) -> Stream:
    """A topic with a million events."""
    stream = create_topic(root, "t", now_ms=0)
    with TopicEditor.open(stream, now_ms=0) as editor:
        editor.declare(Topic("t", SUBSCRIPTIONS), now_ms=0)
    batch = event_batch(MESSAGES)
    values = FilterValues.same(None, len(batch))
    built = build_chunks(batch.data, batch.starts, batch.lengths, values, ChunkLimits(filter_size_bytes=16))
    with Writer.open(stream, now_ms=0) as writer:
        writer.append_chunks(built.data, built.positions, now_ms=0)
    return stream


def scan(stream: Stream, wanted: Filter | None) -> int:
    """Read the messages that a filter selects."""
    request = ScanRequest(filter=wanted)
    ranges = plan(stream, request, OffsetRange(0, MESSAGES)).ranges
    return sum(len(batch) for each in ranges for batch in read_range(each, request, ScanCounters()))


def copies(postings: Postings, subscription: int) -> int:
    """Read all copies of a subscription."""
    count = 0
    with CopyReader(postings) as reader:
        for runs in postings.runs(subscription, 0):
            offsets, rules = runs.columns()
            for first in range(0, len(offsets), AT_ONCE):
                part = slice(first, first + AT_ONCE)
                count += len(reader.read(subscription, offsets[part], rules[part]))
    return count


def lone(stream: Stream, decider: Decider) -> list[Measurement]:
    """New messages that come alone: the first subscription reads each from the file, another one after it."""
    body = event_batch(1).message(0)
    first, second = (Measurement(f"a lone new message, {which} reader", 1, []) for which in ("first", "second"))
    with Writer.open(stream, now_ms=0) as writer, CopyReader(decider.postings) as reader:
        for _ in range(LONE):
            writer.append([(body, None)], now_ms=0)
            decider.step(AT_ONCE, now_ms=0)
            offsets, rules = np.array([writer.next_offset - 1]), np.zeros(1, dtype=np.int64)
            for measurement in (first, second):
                start = time.perf_counter()
                reader.read(3, offsets, rules)
                measurement.seconds.append(time.perf_counter() - start)
    for measurement in (first, second):
        # The slowest of thousands says nothing of the reader.
        measurement.seconds = sorted(measurement.seconds[LONE // 10 :])[: -LONE // 100]
    return [first, second]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="headgate-benchmark-") as folder:
        stream = topic_stream(Path(folder))
        wanted = Filter.parse(RARE_FILTER, dialect="rabbitmq")
        with Decider.open(stream, now_ms=0) as decider:
            while not decider.step(1 << 17, now_ms=0).is_done:
                pass
            share = decider.postings.count(1) / MESSAGES
            runs: dict[str, Callable[[], int]] = {
                f"a filtered read of the topic ({share:.1%})": partial(scan, stream, wanted),
                "a read of the whole topic": partial(scan, stream, None),
                "the copies of a subscription with that filter": partial(copies, decider.postings, 1),
                "the same, changed by an action": partial(copies, decider.postings, 2),
                "the copies of a subscription that takes all": partial(copies, decider.postings, 3),
            }
            measured = [Measurement(name, MESSAGES, []) for name in runs]
            for number in range(ROUNDS + 1):
                for measurement, run in zip(measured, runs.values(), strict=True):
                    gc.collect()
                    start = time.perf_counter()
                    run()
                    if number:
                        measurement.seconds.append(time.perf_counter() - start)
            alone = lone(stream, decider)
    report("subscriptions", f"{MESSAGES:,} messages of backlog", [*measured, *alone], baseline=measured[0].name)


if __name__ == "__main__":
    main()
