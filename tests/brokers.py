"""Brokers over folders of tests: a clock that is set, batches made of lists, and what a stream then holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from headgate.broker.batches import PublishBatch
from headgate.broker.broker import Broker
from headgate.broker.consumers import ChunkConsumer, MessageConsumer
from headgate.broker.environment import RunInWorker
from headgate.broker.publishers import Publisher
from headgate.broker.session import Session
from headgate.broker.settings import BrokerSettings
from headgate.errors import HeadgateError
from headgate.log import Stream, stream_folder
from headgate.log.chunk_builder import FilterValues
from headgate.log.runs import Entries
from headgate.scan.engine import Scan
from log_streams import read_messages

START_MS = 1_760_000_000_000


@dataclass(slots=True)
class SetClock:
    """A clock that stands still until it is moved."""

    now: int = START_MS

    def __call__(self) -> int:
        return self.now


@dataclass(slots=True)
class Answers:
    """What publishers were told, in order: (label, error)."""

    given: list[tuple[object, HeadgateError | None]] = field(default_factory=list)

    def to(self, label: object) -> Callable[[HeadgateError | None], None]:
        return lambda error: self.given.append((label, error))

    @property
    def confirmed(self) -> list[object]:
        return [label for label, error in self.given if error is None]

    @property
    def refused(self) -> list[HeadgateError]:
        return [error for _, error in self.given if error is not None]


class Background:
    """A worker whose work is done when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []

    def __call__(self, work: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
        self.jobs.append((work, then))

    def run_one(self) -> None:
        work, then = self.jobs.pop(0)
        work()
        then(None)


def open_broker(
    root: Path,
    *,
    clock: Callable[[], int] | None = None,
    settings: BrokerSettings | None = None,
    wake: Callable[[], None] = lambda: None,
    run_in_worker: RunInWorker | None = None,
    run_transfer: RunInWorker | None = None,
) -> Broker:
    return Broker(
        root,
        now_ms=clock or SetClock(),
        settings=settings,
        wake=wake,
        run_in_worker=run_in_worker,
        run_transfer=run_transfer,
    )


def open_session(broker: Broker, user: str = "guest") -> Session:
    return broker.open_session(user, protocol="test", connection="test")


def batch(
    messages: Sequence[bytes],
    written: Callable[[HeadgateError | None], None],
    *,
    sequences: Iterable[int] | None = None,
    values: Sequence[bytes | None] | None = None,
    records: Sequence[int] | None = None,
) -> PublishBatch:
    lengths = np.array([len(message) for message in messages], dtype=np.int64)
    entries = Entries(
        np.frombuffer(b"".join(messages), dtype=np.uint8),
        np.cumsum(lengths) - lengths,
        lengths,
        None if values is None else FilterValues.of(values),
        None if records is None else np.array(records, dtype=np.int64),
    )
    return PublishBatch(entries, written, None if sequences is None else np.array(list(sequences), dtype=np.uint64))


def publish(broker: Broker, publisher: Publisher, messages: Sequence[bytes], **more: object) -> HeadgateError | None:
    """Publish and write at once; what the publisher was told."""
    answers = Answers()
    publisher.publish(batch(messages, answers.to("batch"), **more))  # type: ignore[arg-type]
    broker.write_queued()
    ((_, error),) = answers.given
    return error


def stored(root: Path, name: str) -> list[bytes]:
    """The messages of a stream, in order, as any reader finds them."""
    return [body for _offset, body in read_messages(Stream.open(stream_folder(root, name)))]


_begun: dict[MessageConsumer | ChunkConsumer, Scan] = {}


def may_scan(consumer: MessageConsumer | ChunkConsumer) -> bool:
    """Whether a scan that is due may begin; if it may, `scan` makes it."""
    due = consumer.scan_due()
    if consumer not in _begun and due is not None and consumer.begin_scan(due, may_wait=True):
        _begun[consumer] = due
    return consumer in _begun


def scan(consumer: MessageConsumer | ChunkConsumer) -> None:
    """Make the scan that is due, without waiting for others. Raises its error."""
    due = _begun.pop(consumer, None)
    if due is None:
        due = consumer.scan_due()
        assert due is not None
        assert consumer.begin_scan(due, may_wait=False)
    consumer.run(due)
    error = consumer.end_scan(due)
    if error is not None:
        raise error
