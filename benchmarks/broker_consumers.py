"""Consumers of the broker in process, without sockets: one alone, many with different filters, whole chunks.

Times are CPU seconds of the process. The baseline is the scan alone, `scan.Cursor` with the order filter.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from harness import Measurement, report
from rules import sql_filters
from streams import ORDER_FILTER, RARE_FILTER, event_stream

from headgate.broker.broker import Broker
from headgate.broker.consumers import ChunkConsumer, Consumer, ConsumerOptions, MessageConsumer
from headgate.broker.session import Session
from headgate.evaluate.filter import Filter
from headgate.log import OffsetSpecification, Stream
from headgate.scan import Cursor, ScanRequest

MESSAGES = 1_000_000
ROUNDS = 3
FIRST = OffsetSpecification.first()
NO_LIMIT = 1 << 30
TURN_MS = 3
"""Between consumers that come one after another: those that are ahead wait by the clock, and a machine that is busy
would otherwise decide how many come in time."""


def cursor(stream: Stream, wanted: Filter | None) -> int:
    kept = 0
    with Cursor(stream, ScanRequest(filter=wanted), start=FIRST, now_ms=0) as reading:
        while (batch := reading.read(0)) is not None:
            kept += len(batch)
    return kept


def options(wanted: Filter | None) -> ConsumerOptions:
    return ConsumerOptions(start=FIRST, filter=wanted)


def step(consumer: Consumer) -> bool:
    """One turn of a consumer, as the server gives it; False at the end."""
    due = consumer.scan_due()
    if due is not None and consumer.begin_scan(due, may_wait=not consumer.is_small(due)):
        consumer.run(due)
        error = consumer.end_scan(due)
        if error is not None:
            raise error
    if isinstance(consumer, ChunkConsumer):
        consumer.take(256 << 10)
    elif isinstance(consumer, MessageConsumer):
        consumer.take(4096, 256 << 10)
    return not consumer.at_end


def messages(
    broker: Broker, session: Session, filters: Sequence[Filter | None], *, credits: Sequence[int] = (NO_LIMIT,)
) -> None:
    """All consumers read to the end, in turns; one that has used its credit gets it anew when its turn comes again."""
    read_all(broker, [session.message_consumer("events", options(wanted)) for wanted in filters], credits)


def read_all(broker: Broker, consumers: Sequence[Consumer], credits: Sequence[int]) -> None:
    reading = list(consumers)
    while reading:
        for number, consumer in enumerate(reading):
            consumer.want(credits[number % len(credits)])
        reading = [consumer for consumer in reading if step(consumer)]
        broker.tick(now_ms())
    for consumer in consumers:
        consumer.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def staggered(broker: Broker, session: Session, filters: Sequence[Filter]) -> None:
    """A consumer more at every turn of `TURN_MS`, from the beginning."""
    time_ms = now_ms()
    consumers: list[Consumer] = []
    waiting = list(filters)
    reading: list[Consumer] = []
    while waiting or reading:
        if waiting:
            fresh = session.message_consumer("events", options(waiting.pop()))
            fresh.want(NO_LIMIT)
            consumers.append(fresh)
            reading.append(fresh)
        reading = [consumer for consumer in reading if step(consumer)]
        time_ms += TURN_MS
        broker.tick(time_ms)
    for consumer in consumers:
        consumer.close()


def chunks(broker: Broker, session: Session, wanted: Filter | None = None) -> None:
    read_all(broker, [session.chunk_consumer("events", options(wanted))], (NO_LIMIT,))


def cpu(name: str, run: Callable[[], object], size: int, *, rounds: int = ROUNDS) -> Measurement:
    seconds = []
    for number in range(rounds + 1):
        start = time.process_time()
        run()
        if number:
            seconds.append(time.process_time() - start)
    return Measurement(name, MESSAGES, seconds, work_bytes=size)


def main() -> None:
    order = Filter.parse(ORDER_FILTER, "rabbitmq")
    rare = Filter.parse(RARE_FILTER, "rabbitmq")
    many = sql_filters(100)
    chance = random.Random(5)
    with tempfile.TemporaryDirectory(prefix="headgate-benchmark-") as folder:
        root = Path(folder)
        stream = event_stream(root / "streams" / "events", messages=MESSAGES, per_chunk=100)
        size = sum(segment.segment_path.stat().st_size for segment in stream.segments())
        broker = Broker(root, now_ms=now_ms)
        session = broker.open_session("guest", protocol="benchmark", connection="benchmark")
        baseline = "scan alone, order filter"
        credits = [chance.choice((10, 100, 1000)) for _ in range(97)]
        report(
            "broker_consumers",
            f"Consumers over {MESSAGES:,} messages in chunks of 100, CPU time of the process",
            [
                cpu(baseline, lambda: cursor(stream, order), size),
                cpu("one consumer, order filter", lambda: messages(broker, session, [order]), size),
                cpu("one consumer, 1 % match", lambda: messages(broker, session, [rare]), size),
                cpu("one consumer, no filter", lambda: messages(broker, session, [None]), size),
                cpu("100 consumers, the same filter", lambda: messages(broker, session, [order] * 100), size),
                cpu("10 consumers, different filters", lambda: messages(broker, session, many[:10]), size),
                cpu("100 consumers, different filters", lambda: messages(broker, session, many), size),
                cpu(
                    "100 consumers, different filters and credits",
                    lambda: messages(broker, session, many, credits=credits),
                    size,
                    rounds=1,
                ),
                cpu(
                    "100 consumers, different filters, one more at every turn",
                    lambda: staggered(broker, session, many),
                    size,
                    rounds=1,
                ),
                cpu("whole chunks", lambda: chunks(broker, session), size),
                cpu("whole chunks of what matches, 1 %", lambda: chunks(broker, session, rare), size),
            ],
            baseline=baseline,
        )
        session.close()
        broker.close()


if __name__ == "__main__":
    main()
