"""Match indexes that the broker keeps up while it writes: where that is switched on, in the background, and no more."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from brokers import SetClock, open_broker, open_session, publish
from headgate.broker import IndexLag, match_indexes
from headgate.broker.broker import FLUSH_MS, Broker
from headgate.broker.session import Session
from headgate.derived.match_index import incremental_build
from headgate.derived.match_index.index_coverage import coverage
from headgate.derived.match_index.registry import REGISTRY_NAME, FilterRegistry
from headgate.derived.match_index.settings import IndexSettings
from headgate.log import Stream, stream_folder
from headgate.message import Message

Work = Callable[[], None]
Ended = Callable[[BaseException | None], None]


class Worker:
    """A worker that does what it was given when the test says so."""

    def __init__(self) -> None:
        self.given: list[tuple[Work, Ended]] = []

    def __call__(self, work: Work, ended: Ended) -> None:
        self.given.append((work, ended))

    def run(self) -> None:
        match_indexes.run_here(*self.given.pop(0))


def register(root: Path, *, switched_on: bool = True) -> None:
    registry = FilterRegistry(Stream.open(stream_folder(root, "orders")))
    registry.configure(IndexSettings(calculate_filter_bitmap=switched_on))
    registry.register("emea", "region = 'EMEA'", "amqp", now_ms=1)


def indexed_messages(root: Path) -> int:
    """How many messages the sidecars have the filter's result for."""
    return sum(coverage(Stream.open(stream_folder(root, "orders"))).messages.values())


def orders(count: int) -> list[bytes]:
    return [Message(application_properties={"region": "EMEA"}).encode()] * count


def opened(root: Path, clock: SetClock, worker: Worker | None = None) -> tuple[Broker, Session]:
    """A broker with the stream `orders`."""
    broker = open_broker(root, clock=clock, run_in_worker=worker)
    # What a broker does once after its start is done, and gave the worker nothing.
    tick(broker, clock)
    session = open_session(broker)
    session.declare_stream("orders", {})
    return broker, session


def tick(broker: Broker, clock: SetClock, delay_ms: int = FLUSH_MS) -> None:
    clock.now += delay_ms
    broker.tick(clock.now)


def test_what_is_published_is_in_the_index_some_seconds_later(tmp_path: Path) -> None:
    clock = SetClock()
    broker, session = opened(tmp_path, clock)
    register(tmp_path)
    publisher = session.publisher("orders")
    publish(broker, publisher, orders(3))
    tick(broker, clock)
    assert indexed_messages(tmp_path) == 3
    publish(broker, publisher, orders(2))
    tick(broker, clock)
    assert indexed_messages(tmp_path) == 5
    broker.close()


@pytest.mark.parametrize("is_registered", [False, True])
def test_without_the_switch_nothing_is_indexed(tmp_path: Path, is_registered: bool) -> None:
    clock = SetClock()
    broker, session = opened(tmp_path, clock)
    if is_registered:
        register(tmp_path, switched_on=False)
    publish(broker, session.publisher("orders"), orders(3))
    tick(broker, clock)
    assert indexed_messages(tmp_path) == 0
    register(tmp_path)
    publish(broker, session.publisher("orders"), orders(1))
    tick(broker, clock)
    assert indexed_messages(tmp_path) == 4, "the segment that grows is indexed as a whole"
    broker.close()


def test_one_build_at_a_time_goes_on_in_the_worker_while_messages_come(tmp_path: Path) -> None:
    clock, worker = SetClock(), Worker()
    broker, session = opened(tmp_path, clock, worker)
    register(tmp_path)
    publisher = session.publisher("orders")
    publish(broker, publisher, orders(3))
    tick(broker, clock)
    publish(broker, publisher, orders(2))
    tick(broker, clock)
    assert len(worker.given) == 1
    worker.run()
    tick(broker, clock, 20_000)
    assert len(worker.given) == 1, "what came meanwhile is due as well"
    worker.run()
    assert indexed_messages(tmp_path) == 5
    tick(broker, clock)
    assert not worker.given, "nothing is new"
    broker.close()


def test_filters_that_come_late_are_filled_in_where_nothing_is_written(tmp_path: Path) -> None:
    clock, worker = SetClock(), Worker()
    broker, session = opened(tmp_path, clock, worker)
    publisher = session.publisher("orders")
    publish(broker, publisher, orders(3))
    tick(broker, clock)
    assert not worker.given
    register(tmp_path)
    tick(broker, clock)
    worker.run()
    assert indexed_messages(tmp_path) == 3
    publisher.close()
    tick(broker, clock, 200_000)
    FilterRegistry(Stream.open(stream_folder(tmp_path, "orders"))).register("apac", "region = 'APAC'", "amqp", now_ms=1)
    worker.given.clear()
    tick(broker, clock)
    worker.run()
    assert indexed_messages(tmp_path) == 6, "three of each filter"
    tick(broker, clock)
    assert not worker.given, "nothing is new"
    broker.close()


def test_registries_of_many_streams_are_looked_at_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_indexes, "_LOOKED_AT", 1)
    clock, worker = SetClock(), Worker()
    broker, session = opened(tmp_path, clock, worker)
    for name in ("orders", "other", "third"):
        session.declare_stream(name, {})
        publish(broker, session.publisher(name), orders(1))
    tick(broker, clock)
    register(tmp_path)
    for _ in range(3):
        tick(broker, clock)
    assert len(worker.given) == 1
    broker.close()


def test_how_far_it_is_behind_is_known_and_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, worker = SetClock(), Worker()
    broker, session = opened(tmp_path, clock, worker)
    publisher = session.publisher("orders")
    stream = broker.catalogue.get("orders")
    publish(broker, publisher, orders(1))
    tick(broker, clock)
    assert broker.index_lag(stream) is None, "nothing is calculated"
    register(tmp_path)
    tick(broker, clock)
    worker.run()
    assert broker.index_lag(stream) == IndexLag(0, 0)
    with caplog.at_level(logging.WARNING, logger="headgate.broker"):
        publish(broker, publisher, orders(3))
        tick(broker, clock)
        assert broker.index_lag(stream) == IndexLag(3, 0)
        publish(broker, publisher, orders(2))
        tick(broker, clock)
        assert broker.index_lag(stream) == IndexLag(5, FLUSH_MS) and not caplog.records
        tick(broker, clock)
        tick(broker, clock)
        assert broker.index_lag(stream) == IndexLag(5, 3 * FLUSH_MS)
        worker.run()
        assert broker.index_lag(stream) == IndexLag(2, 2 * FLUSH_MS)
        tick(broker, clock)
        worker.run()
        tick(broker, clock)
        assert broker.index_lag(stream) == IndexLag(0, 0)
    (record,) = caplog.records
    assert "5 messages and 2.0 s behind" in record.getMessage()
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="headgate.broker"):
        publish(broker, publisher, orders(1))
        for _ in range(4):
            tick(broker, clock)
    assert len(caplog.records) == 1, "it had caught up"
    broker.close()


def test_what_is_left_of_much_follows_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental_build, "STEP_BYTES", 1)
    clock, worker = SetClock(), Worker()
    broker, session = opened(tmp_path, clock, worker)
    register(tmp_path)
    publisher = session.publisher("orders")
    for _ in range(3):
        publish(broker, publisher, orders(1))
    tick(broker, clock)
    for indexed in (1, 2, 3):
        worker.run()
        assert indexed_messages(tmp_path) == indexed
    assert not worker.given
    broker.close()


def test_a_writer_that_is_given_back_leaves_nothing_unindexed(tmp_path: Path) -> None:
    clock, worker = SetClock(), Worker()
    broker, session = opened(tmp_path, clock, worker)
    register(tmp_path)
    publisher = session.publisher("orders")
    publish(broker, publisher, orders(1))
    tick(broker, clock)
    publish(broker, publisher, orders(1))
    publisher.close()
    tick(broker, clock)
    tick(broker, clock, 20_000)
    worker.run()
    tick(broker, clock, 200_000)
    worker.run()
    assert indexed_messages(tmp_path) == 2
    tick(broker, clock)
    assert not worker.given
    broker.close()


def test_a_registry_that_is_damaged_is_told_once_and_keeps_nobody_from_publishing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = SetClock()
    broker, session = opened(tmp_path, clock)
    registry = stream_folder(tmp_path, "orders") / REGISTRY_NAME
    registry.write_text("{")
    publisher = session.publisher("orders")
    with caplog.at_level(logging.WARNING, logger="headgate.broker"):
        for _ in range(3):
            assert publish(broker, publisher, orders(1)) is None
            tick(broker, clock)
    assert [record.getMessage().count("match index of stream 'orders'") for record in caplog.records] == [1]
    registry.unlink()
    register(tmp_path)
    publish(broker, publisher, orders(1))
    tick(broker, clock, match_indexes.RETRY_MS)
    assert indexed_messages(tmp_path) == 4
    broker.close()


def test_a_stream_that_is_deleted_while_it_is_indexed_is_forgotten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, worker = SetClock(), Worker()
    broker, session = opened(tmp_path, clock, worker)
    register(tmp_path)
    publish(broker, session.publisher("orders"), orders(1))
    tick(broker, clock)
    session.delete_stream("orders")
    with caplog.at_level(logging.WARNING, logger="headgate.broker"):
        worker.run()
    worker.given.clear()
    tick(broker, clock)
    assert not worker.given and not caplog.records
    broker.close()


def test_an_index_that_is_behind_for_long_is_told_to_be_behind_for_long(tmp_path: Path) -> None:
    clock, worker = SetClock(), Worker()
    broker, session = opened(tmp_path, clock, worker)
    register(tmp_path)
    publisher = session.publisher("orders")
    stream = broker.catalogue.get("orders")
    publish(broker, publisher, orders(1))
    tick(broker, clock)
    worker.run()
    for _ in range(match_indexes._MARKS):
        publish(broker, publisher, orders(1))
        tick(broker, clock)
    worker.given.pop()
    state = broker._indexing._indexed[stream]
    state.growing.offset = stream.next_offset
    for _ in range(3):
        publish(broker, publisher, orders(1))
        tick(broker, clock)
    lag = broker.index_lag(stream)
    assert lag is not None and lag.messages == 3 and lag.behind_ms >= 2 * FLUSH_MS
    broker.close()
