"""Topics in a broker, in process: from publishing to a settled copy, from a backlog to its first copies.

A subscription of 1 % reads a backlog of a million events beside a consumer of the topic with the same filter; copies
are claimed and completed in batches of 100 and one by one; lone messages go from `publish` to the receiver; topics of
2 000 subscriptions are opened, counted, published to and changed. No network, no other process.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from deciding import topics
from harness import Measurement, report
from messages import event_batch
from streams import RARE_FILTER

from headgate.broker import (
    Broker,
    ConsumerOptions,
    GivenCopies,
    MessageConsumer,
    PublishBatch,
    Receiver,
    ReceiverCalls,
    Session,
)
from headgate.errors import HeadgateError
from headgate.evaluate import Filter
from headgate.ledger import Ledger, copy_number
from headgate.log import Entries, OffsetSpecification, Stream, Writer, stream_folder
from headgate.log.chunk_builder import ChunkLimits, FilterValues, build_chunks
from headgate.message import EncodedMessages
from headgate.server.process import SWITCH_INTERVAL_S
from headgate.topic import (
    Rule,
    Subscription,
    SubscriptionName,
    Topic,
    TopicEditor,
    TopicLimits,
    create_topic,
    view_key,
)

MESSAGES = 1_000_000
ROUNDS = 5
LONE = 500
PUBLISHED = 1_000_000
PUBLISHED_A_TURN = 2_000
SUBSCRIPTIONS = 2_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Loop:
    """A broker and the turns of its loop: what workers finished is taken over in its thread."""

    def __init__(self, root: Path, *, with_workers: bool = False) -> None:
        self._pool = ThreadPoolExecutor(1) if with_workers else None
        self._ended: list[Callable[[], None]] = []
        run = None if self._pool is None else self._run
        self.broker = Broker(root, now_ms=now_ms, run_in_worker=run)
        self.session: Session = self.broker.open_session("guest", protocol="benchmark", connection="benchmark")

    def _run(self, work: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
        def run() -> None:
            error: BaseException | None = None
            try:
                work()
            except BaseException as raised:
                error = raised
            self._ended.append(lambda: then(error))

        assert self._pool is not None
        self._pool.submit(run)

    def turn(self) -> None:
        while self._ended:
            self._ended.pop(0)()
        self.broker.write_queued()
        self.broker.end_turn()

    def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self.broker.tick(now_ms())
            self.turn()

    def close(self) -> None:
        self.broker.close()
        if self._pool is not None:
            self._pool.shutdown()


@dataclass(slots=True)
class Peer:
    """A link that settles what it is given."""

    loop: Loop
    name: str
    settles: int
    receiver: Receiver = field(init=False)
    taken: int = 0
    waiting: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        name = SubscriptionName.parse(self.name)
        assert name is not None
        self.receiver = self.loop.session.receiver(name, ReceiverCalls(deliver=self._take, ended=_refuse))

    def _take(self, deliveries: GivenCopies) -> None:
        self.taken += len(deliveries)
        self.waiting += deliveries.packed_tokens()

    def settle(self) -> None:
        """Settle what was given, and want as much again."""
        for first in range(0, len(self.waiting), self.settles):
            self.receiver.settler.complete(self.waiting[first : first + self.settles])
        self.waiting.clear()
        self.receiver.want(self.settles)


def _refuse(error: HeadgateError) -> None:
    raise error


def topic_with(root: Path, name: str, subscriptions: Sequence[Subscription], batch: EncodedMessages | None) -> Stream:
    """A topic with its messages in chunks of a broker's size, all rules in force from the first one on."""
    stream = create_topic(root, name, now_ms=now_ms())
    with TopicEditor.open(stream, now_ms=now_ms()) as editor:
        # Nobody settles what is published here.
        limits = TopicLimits(unsettled_bytes=1 << 40)
        editor.declare(Topic(name, tuple(subscriptions), limits), now_ms=now_ms())
    if batch is not None:
        values = FilterValues.of([None] * len(batch))
        built = build_chunks(batch.data, batch.starts, batch.lengths, values, ChunkLimits(filter_size_bytes=16))
        with Writer.open(stream, now_ms=now_ms()) as writer:
            writer.append_chunks(built.data, built.positions, now_ms=now_ms())
    return stream


def timed(measurement: Measurement, run: Callable[[], object], *, counts: bool = True) -> None:
    gc.collect()
    start = time.perf_counter()
    run()
    if counts:
        measurement.seconds.append(time.perf_counter() - start)


def backlog(root: Path, batch: EncodedMessages) -> list[Measurement]:
    """A subscription of 1 % reads a backlog, beside a consumer of the topic with the same filter."""
    rare = [Subscription(f"rare{round}", (Rule("r", RARE_FILTER, dialect="rabbitmq"),)) for round in range(ROUNDS + 1)]
    topic_with(root, "backlog", [*rare, Subscription("all")], batch)
    loop = Loop(root)
    topic = loop.broker.topics.get("backlog")
    loop.until(lambda: topic.is_decided)
    count = topic.subscriptions.info("rare0").counts.active
    filtered = Measurement("backlog: a filtered consumer of the topic reads its 1 %", count, [])
    first = Measurement("backlog: first copy of the subscription after attach", 1, [])
    every = Measurement("backlog: all copies of the subscription", count, [])
    hundreds = Measurement("claimed and completed in batches of 100", 100_000, [])
    single = Measurement("claimed and completed one by one", 5_000, [])
    wanted = Filter.parse(RARE_FILTER, dialect="rabbitmq")

    def consume() -> None:
        options = ConsumerOptions(start=OffsetSpecification.first(), filter=wanted)
        consumer = loop.session.message_consumer("backlog", options)
        read(consumer, count)
        consumer.close()

    for number in range(ROUNDS + 1):
        timed(filtered, consume, counts=number > 0)
        peer = Peer(loop, f"backlog/Subscriptions/rare{number}", 1 << 20)

        def attach(peer: Peer = peer) -> None:
            peer.receiver.want(1)
            loop.until(lambda: peer.taken == 1)

        def rest(peer: Peer = peer) -> None:
            peer.receiver.want(count)
            loop.until(lambda: peer.taken == count)

        timed(first, attach, counts=number > 0)
        timed(every, rest, counts=number > 0)
        peer.receiver.close()
        loop.turn()
        for measurement, size in ((hundreds, 100), (single, 1)):
            peer = Peer(loop, "backlog/Subscriptions/all", size)

            def settle(peer: Peer = peer, items: int = measurement.work_items) -> None:
                while peer.taken < items:
                    peer.settle()
                    loop.turn()

            timed(measurement, settle, counts=number > 0)
            peer.settle()
            peer.receiver.close()
            loop.turn()
    loop.close()
    return [filtered, first, every, hundreds, single]


def read(consumer: MessageConsumer, count: int) -> None:
    """Take so many messages of a consumer."""
    consumer.want(count)
    taken = 0
    while taken < count:
        due = consumer.scan_due()
        if due is not None:
            consumer.begin_scan(due, may_wait=False)
            consumer.run(due)
            error = consumer.end_scan(due)
            if error is not None:
                raise error
        batch = consumer.take(count, 1 << 30)
        taken += 0 if batch is None else len(batch)


def lone(root: Path, batch: EncodedMessages) -> Measurement:
    """Lone messages from `publish` to a settled copy."""
    topic_with(root, "lone", [Subscription("s", (Rule("r", "region <> 'nowhere'", dialect="rabbitmq"),))], None)
    loop = Loop(root)
    publisher = loop.session.publisher("lone")
    peer = Peer(loop, "lone/Subscriptions/s", 1)
    peer.settle()
    bodies = [batch.message(row) for row in range(LONE)]
    measurement = Measurement("lone messages, published, decided, given out, completed", LONE, [])

    def run() -> None:
        for body in bodies:
            publisher.publish(PublishBatch(Entries.of([body]), _written))
            loop.turn()
            assert peer.waiting
            peer.settle()
            loop.turn()

    for number in range(ROUNDS + 1):
        timed(measurement, run, counts=number > 0)
    loop.close()
    return measurement


def _written(error: HeadgateError | None) -> None:
    assert error is None


def publishing(root: Path, batch: EncodedMessages) -> list[Measurement]:
    """Publishing to topics with many rules, which are decided meanwhile, and to one without; until all is decided."""
    part = batch.take(slice(PUBLISHED_A_TURN))
    entries = Entries(part.data, part.starts, part.lengths)
    made = {"without rules": None, **{name: topic for name, topic in topics().items() if "take all" not in name}}
    loop = Loop(root, with_workers=True)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    measurements = []
    decided = []
    publishers = []
    for number, (name, topic) in enumerate(made.items()):
        stream = f"published{number}"
        if topic is None:
            loop.session.declare_stream(stream, {})
        else:
            topic_with(root, stream, topic.subscriptions, None)
            loop.broker.topics.get(stream)
        publishers.append(loop.session.publisher(stream))
        measurements.append(Measurement(f"published: {name}", PUBLISHED, []))
        decided.append(Measurement(f"published and decided: {name}", PUBLISHED, []))

    def all_are_decided() -> bool:
        # A loop without messages sleeps, and leaves the interpreter to the worker.
        time.sleep(0.001)
        return all(topic.is_decided for topic in loop.broker.topics)

    for round_number in range(ROUNDS + 1):
        for publisher, measurement, until_decided in zip(publishers, measurements, decided, strict=True):

            def publish(publisher: object = publisher) -> None:
                for _ in range(PUBLISHED // PUBLISHED_A_TURN):
                    publisher.publish(PublishBatch(entries, _written))  # type: ignore[attr-defined]
                    loop.turn()

            begun = time.perf_counter()
            timed(measurement, publish, counts=round_number > 0)
            loop.until(all_are_decided)
            if round_number:
                until_decided.seconds.append(time.perf_counter() - begun)
    loop.close()
    return measurements + decided[1:]


def opening(root: Path, batch: EncodedMessages) -> list[Measurement]:
    """A topic of 2 000 subscriptions with ten correlation rules each, and a million copies that are not settled."""
    subscriptions = [
        Subscription(
            f"s{number}",
            tuple(Rule(f"r{rule}", application_properties={"customer": number * 10 + rule}) for rule in range(10)),
        )
        for number in range(SUBSCRIPTIONS)
    ]
    stream = topic_with(root, "large", subscriptions, batch)
    with Ledger.open(stream, now_ms=now_ms()) as ledger:
        each = MESSAGES // SUBSCRIPTIONS
        for number in range(1, SUBSCRIPTIONS + 1):
            view = ledger.view(view_key(number), 0)
            copies = np.array([copy_number(row * SUBSCRIPTIONS + number - 1) for row in range(each)], dtype=np.int64)
            view.claim(copies, now_ms() + 3_600_000, covered=[(0, int(copies[-1]) + 1)])
            ledger.commit(now_ms())
    loop = Loop(root)
    topic = loop.broker.topics.get("large")
    loop.until(lambda: topic.is_decided)
    loop.close()
    opened = Measurement("opened: 2 000 subscriptions, 20 000 rules, 1 M unsettled", 1, [], unit="topics")
    counted = Measurement("counts of 2 000 subscriptions", SUBSCRIPTIONS, [], unit="subscriptions")
    for _ in range(ROUNDS):
        loops: list[Loop] = []

        def open_it(loops: list[Loop] = loops) -> None:
            loop = Loop(root)
            loop.broker.topics.get("large")
            loops.append(loop)

        timed(opened, open_it)
        topic = loops[0].broker.topics.get("large")
        timed(counted, topic.subscriptions.infos)
        loops[0].close()
    assert stream_folder(root, "large") == stream.path
    return [opened, counted]


def main() -> None:
    batch = event_batch(MESSAGES)
    with tempfile.TemporaryDirectory(prefix="headgate-benchmark-") as folder:
        measurements = [
            *backlog(Path(folder) / "backlog", batch),
            lone(Path(folder) / "lone", batch),
            *publishing(Path(folder) / "publishing", batch),
            *opening(Path(folder) / "opening", batch),
        ]
    baseline = measurements[0].name
    report("broker_topics", "Topics in a broker, in process", measurements, baseline=baseline)


if __name__ == "__main__":
    main()
