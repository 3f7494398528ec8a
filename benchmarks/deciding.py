"""Deciding a topic behind its writer: from chunks on disk to written postings, one core; and what postings answer.

A million events in a stream, 2 000 subscriptions. The rules are those of `rules.py`: an SQL filter for each
subscription, the same in Service Bus's language with errors asked for, or 50 correlation filters for each. Baseline of
each is asking its rules about the same messages in memory, with nothing read and nothing written. Rounds in turn.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness import Measurement, report
from messages import event_batch
from rules import CORRELATION_FILTERS, SQL_FILTERS, correlation_demands, sql_filters

from headgate.evaluate.rules import RuleSet
from headgate.log import Stream, Writer, stream_folder
from headgate.log.chunk_builder import ChunkLimits, FilterValues, build_chunks
from headgate.message.batch import EncodedMessages
from headgate.topic import Rule, Subscription, Topic, TopicEditor, create_topic
from headgate.topic.decisions import Decider, Postings
from headgate.topic.decisions.block import BLOCK_OFFSETS

MESSAGES = 1_000_000
SUBSCRIPTIONS = 2_000
ROUNDS = 5
STEP = 1 << 17


@dataclass(slots=True)
class Case:
    """A topic whose messages are decided again and again."""

    name: str
    decider: Decider
    rules: RuleSet
    alone: Measurement
    decided: Measurement


def topics() -> dict[str, Topic]:
    """The topics by what is measured of them."""
    texts = [each.text for each in sql_filters(SQL_FILTERS)]
    sql = [Rule("r", text, dialect="rabbitmq") for text in texts]
    bus = [Rule("r", text.replace("p.subject", "sys.Label")) for text in texts]
    shared = CORRELATION_FILTERS // SUBSCRIPTIONS
    demands = correlation_demands(CORRELATION_FILTERS)
    correlation = [
        Rule(f"r{number}", properties=fields or None, application_properties=demanded)
        for number, (fields, demanded) in enumerate(demands)
    ]
    return {
        f"{SQL_FILTERS:,} SQL rules": _topic([(each,) for each in sql]),
        f"{SQL_FILTERS:,} SQL rules of Service Bus, errors asked for": _topic(
            [(each,) for each in bus], dead_letter_on_errors=True
        ),
        f"{CORRELATION_FILTERS:,} correlation rules": _topic(
            [tuple(correlation[first : first + shared]) for first in range(0, CORRELATION_FILTERS, shared)]
        ),
        f"{SUBSCRIPTIONS:,} subscriptions that take all": _topic([(Rule("r", "1=1"),)] * SUBSCRIPTIONS),
    }


def _topic(rules: list[tuple[Rule, ...]], *, dead_letter_on_errors: bool = False) -> Topic:
    subscriptions = (
        Subscription(f"s{number}", each, dead_letter_on_errors=dead_letter_on_errors)
        for number, each in enumerate(rules)
    )
    return Topic("t", tuple(subscriptions))


def topic_stream(root: Path, number: int, topic: Topic, batch: EncodedMessages) -> Stream:
    """A stream with the messages, and the rules in force from its first one on."""
    name = f"t{number}"
    stream = create_topic(root, name, now_ms=0)
    with TopicEditor.open(stream, now_ms=0) as editor:
        editor.declare(Topic(name, topic.subscriptions), now_ms=0)
    built = build_chunks(
        batch.data, batch.starts, batch.lengths, FilterValues.of([None] * len(batch)), ChunkLimits(filter_size_bytes=16)
    )
    with Writer.open(stream, now_ms=0) as writer:
        writer.append_chunks(built.data, built.positions, now_ms=0)
    return stream


@contextmanager
def timed(measurement: Measurement, *, counts: bool = True) -> Iterator[None]:
    """Add a round to a measurement."""
    gc.collect()
    start = time.perf_counter()
    yield
    if counts:
        measurement.seconds.append(time.perf_counter() - start)


def decide(decider: Decider) -> None:
    """Decide all, and compare what was written with the stream."""
    while not decider.step(STEP, now_ms=0).is_done:
        pass


def one_round(case: Case, batch: EncodedMessages, *, counts: bool) -> None:
    """The rules alone, then deciding from the first message on, by a decider that runs for a while already."""
    with timed(case.alone, counts=counts):
        case.rules.match(batch, now_ms=0)
    postings = case.decider.postings
    postings.open_block = None
    for base in range(0, MESSAGES, BLOCK_OFFSETS):
        postings.drop(base)
    with timed(case.decided, counts=counts):
        decide(case.decider)


def answers(stream: Stream) -> list[Measurement]:
    """How long postings take to be opened and asked."""
    opened = Measurement("open the postings of a million messages", SUBSCRIPTIONS, [], "subscriptions")
    counted = Measurement(f"counts of {SUBSCRIPTIONS:,} subscriptions", SUBSCRIPTIONS, [], "subscriptions")
    first = Measurement("first copy of a subscription, cold", 1, [], "subscriptions")
    for number in range(ROUNDS):
        with timed(opened):
            postings = Postings.open(stream)
        with timed(counted):
            counts = [postings.count(subscription) for subscription in range(1, SUBSCRIPTIONS + 1)]
        assert sum(counts)
        with timed(first):
            postings.first_at_or_after(1 + number * 7, MESSAGES // 2)
        postings.close()
    return [opened, counted, first]


def main() -> None:
    batch = event_batch(MESSAGES)
    size = int(batch.lengths.sum())
    cases = []
    with tempfile.TemporaryDirectory(prefix="headgate-benchmark-") as folder:
        for number, (name, topic) in enumerate(topics().items()):
            stream = topic_stream(Path(folder), number, topic, batch)
            rules = [rule for subscription in topic.subscriptions for rule in subscription.rules]
            errors = range(len(rules)) if topic.subscriptions[0].dead_letter_on_errors else ()
            if "take all" in name:
                rules = rules[:1]
            alone = Measurement(f"{name}: rules alone, in memory", MESSAGES, [], work_bytes=size)
            decided = Measurement(f"{name}: decided, postings written", MESSAGES, [], work_bytes=size)
            rule_set = RuleSet([rule.filter for rule in rules], exact_errors=errors)
            cases.append(Case(name, Decider.open(stream, now_ms=0), rule_set, alone, decided))
        for number in range(ROUNDS + 1):
            for case in cases:
                one_round(case, batch, counts=number > 0)
        measurements = [measurement for case in cases for measurement in (case.alone, case.decided)]
        measurements += answers(Stream.open(stream_folder(folder, "t0")))
        for case in cases:
            case.decider.close()
    report("deciding", f"{MESSAGES:,} messages decided, one core", measurements, baseline=cases[0].alone.name)


if __name__ == "__main__":
    main()
