"""Streams whose segments the broker moves to object storage: here a folder, beside the root."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokers import Background, SetClock, open_broker, open_session, publish, stored
from headgate.broker.broker import FLUSH_MS, Broker
from headgate.broker.environment import run_here
from headgate.broker.remote_moves import LONGEST_PAUSE_MS, RemoteProgress
from headgate.broker.settings import BrokerSettings
from headgate.errors import PreconditionFailedError
from headgate.log import Pin, Stream, StreamArguments, stream_folder
from headgate.log.crash_points import MoveStep
from headgate.log.remote import mover
from headgate.log.remote.catalogue import catalogue_of

MESSAGES = [b"\x00Su\xa0\x64" + bytes([65 + number]) * 100 for number in range(20)]
SMALL = {"stream-max-segment-size-bytes": 300}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from headgate.log.remote.cache import cache_folder

    monkeypatch.setenv("HEADGATE_REMOTE_CACHE", str(tmp_path / "cache"))
    cache_folder.cache_clear()
    yield
    cache_folder.cache_clear()


class Worker(Background):
    """A thread for transfers that does what it was given when the test says so."""

    def run_one(self) -> None:
        run_here(*self.jobs.pop(0))

    def run_all(self) -> None:
        while self.jobs:
            self.run_one()


def placed(tmp_path: Path, **more: int) -> BrokerSettings:
    return BrokerSettings(placement=StreamArguments(remote=f"file://{tmp_path}/remote", **more))


def opened(tmp_path: Path, clock: SetClock, worker: Worker, **more: int) -> Broker:
    return open_broker(tmp_path / "data", clock=clock, settings=placed(tmp_path, **more), run_transfer=worker)


def tick(broker: Broker, clock: SetClock, worker: Worker | None = None, delay_ms: int = FLUSH_MS) -> None:
    clock.now += delay_ms
    broker.tick(clock.now)
    if worker is not None:
        worker.run_all()


def fill(broker: Broker, messages: list[bytes] = MESSAGES) -> None:
    session = open_session(broker)
    session.declare_stream("orders", SMALL)
    publisher = session.publisher("orders")
    for message in messages:
        assert publish(broker, publisher, [message]) is None
    session.close()


def progress(broker: Broker) -> RemoteProgress:
    found = broker.remote_progress(broker.catalogue.get("orders"))
    assert found is not None
    return found


def pairs(tmp_path: Path) -> int:
    return len(list(stream_folder(tmp_path / "data", "orders").glob("*.segment")))


def objects(tmp_path: Path) -> int:
    return len([each for each in (tmp_path / "remote").glob("*/*") if each.name not in ("stream.json", "catalogue")])


def test_sealed_segments_move_in_the_background_and_go_from_the_folder(tmp_path: Path) -> None:
    clock, worker = SetClock(), Worker()
    broker = opened(tmp_path, clock, worker)
    fill(broker)
    here = pairs(tmp_path)
    assert here > 6, "more than one job releases"
    while not worker.jobs:
        tick(broker, clock)
    assert stored(tmp_path / "data", "orders") == MESSAGES, "nothing has moved yet"
    for _ in range(here):
        tick(broker, clock, worker)
    assert pairs(tmp_path) == 1
    state = progress(broker).state
    assert state is not None
    assert (state.segments, state.unmoved_bytes) == (here - 1, 0)
    assert stored(tmp_path / "data", "orders") == MESSAGES
    assert broker.catalogue.get("orders").first_offset == 0
    tick(broker, clock)
    assert not worker.jobs, "nothing is new"
    fill(broker, MESSAGES[:5])
    for _ in range(3):
        tick(broker, clock, worker)
    assert pairs(tmp_path) == 1
    broker.close()


def test_what_stays_here_and_for_how_long(tmp_path: Path) -> None:
    clock, worker = SetClock(), Worker()
    broker = opened(tmp_path, clock, worker, remote_after_ms=60_000, local_bytes=700)
    fill(broker)
    for _ in range(5):
        tick(broker, clock, worker)
    assert not objects(tmp_path), "too young"
    for _ in range(10):
        tick(broker, clock, worker, delay_ms=20_000)
    assert progress(broker).state is not None
    assert pairs(tmp_path) in (3, 4), "two segments of some 300 bytes, and the open one"
    broker.close()


def test_what_subscriptions_need_stays_in_the_folder(tmp_path: Path) -> None:
    clock, worker = SetClock(), Worker()
    broker = opened(tmp_path, clock, worker)
    fill(broker)
    stream = broker.catalogue.get("orders")
    here = pairs(tmp_path)
    stream.open_writer(now_ms=clock.now).pin(Pin(10, 1 << 30))
    for _ in range(here):
        tick(broker, clock, worker)
    segments = Stream.open(stream.stream.path).segments()
    assert segments[segments.num_remote].first_chunk_id <= 10 < segments[segments.num_remote + 1].first_chunk_id
    assert not worker.jobs, "it waits until the pin moves"
    stream.open_writer(now_ms=clock.now).pin(None)
    for _ in range(here):
        tick(broker, clock, worker)
    assert pairs(tmp_path) == 1
    broker.close()


def test_messages_are_counted_without_asking_object_storage(tmp_path: Path) -> None:
    clock, worker = SetClock(), Worker()
    broker = opened(tmp_path, clock, worker)
    fill(broker, MESSAGES[:10])
    broker.catalogue.get("orders").store_offset(b"reader", 3)
    broker.catalogue.get("orders").flush_offsets(now_ms=clock.now)
    fill(broker, MESSAGES[10:])
    for _ in range(10):
        tick(broker, clock, worker)
    broker.close()
    assert pairs(tmp_path) == 1
    broker = opened(tmp_path, clock, worker)
    stream = broker.catalogue.get("orders")
    assert stream.next_offset > len(MESSAGES), "there are chunks without messages"
    assert stream.messages_from(0) == len(MESSAGES)
    assert not list((tmp_path / "cache").glob("remote-*/*/*"))
    broker.close()


def test_a_stream_that_nobody_uses_is_found_after_a_restart(tmp_path: Path) -> None:
    clock, worker = SetClock(), Worker()
    broker = opened(tmp_path, clock, worker)
    fill(broker)
    broker.close()
    broker = opened(tmp_path, clock, worker)
    for _ in range(12):
        tick(broker, clock, worker)
    assert pairs(tmp_path) == 1
    broker.close()


def test_a_storage_that_fails_holds_up_nobody_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, worker = SetClock(), Worker()
    (tmp_path / "remote").write_bytes(b"no folder")
    broker = opened(tmp_path, clock, worker)
    with caplog.at_level(logging.WARNING):
        fill(broker)
        attempts = []
        for second in range(200):
            tick(broker, clock)
            if worker.jobs:
                attempts.append(second)
                worker.run_all()
        assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert 5 < len(attempts) < 15, "the pauses grow"
    failed = progress(broker)
    assert str(tmp_path / "remote") in failed.error
    assert failed.failed_ms is not None
    assert failed.state is not None
    before = failed.state.unmoved_bytes
    assert before > 300
    fill(broker, MESSAGES[:10])
    assert stored(tmp_path / "data", "orders") == [*MESSAGES, *MESSAGES[:10]]
    tick(broker, clock, worker, delay_ms=LONGEST_PAUSE_MS)
    assert failed.state.unmoved_bytes > before
    (tmp_path / "remote").unlink()
    tick(broker, clock, worker, delay_ms=LONGEST_PAUSE_MS)
    assert (failed.error, failed.state.unmoved_bytes) == ("", 0)
    broker.close()


def moved(tmp_path: Path, clock: SetClock, worker: Worker) -> Broker:
    broker = opened(tmp_path, clock, worker)
    fill(broker)
    for _ in range(10):
        tick(broker, clock, worker)
    assert objects(tmp_path) > 6
    return broker


def test_a_deleted_stream_goes_from_object_storage_and_its_name_is_free(tmp_path: Path) -> None:
    clock, worker = SetClock(), Worker()
    broker = moved(tmp_path, clock, worker)
    broker.streams.delete(broker.catalogue.get("orders"))
    fill(broker, MESSAGES[:10])
    tick(broker, clock)
    worker.run_all()
    for _ in range(10):
        tick(broker, clock, worker)
    assert stored(tmp_path / "data", "orders") == MESSAGES[:10]
    assert pairs(tmp_path) == 1
    broker.streams.delete(broker.catalogue.get("orders"))
    worker.run_all()
    assert objects(tmp_path) == 0
    assert not list((tmp_path / "data/.headgate/deleted").iterdir())
    broker.close()


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_deletion_that_fails_is_tried_again(tmp_path: Path, is_restarted: bool) -> None:
    clock, worker = SetClock(), Worker()
    broker = moved(tmp_path, clock, worker)
    shutil.move(tmp_path / "remote", tmp_path / "away")
    (tmp_path / "remote").write_bytes(b"no folder")
    broker.streams.delete(broker.catalogue.get("orders"))
    worker.run_all()
    assert list((tmp_path / "data/.headgate/deleted").iterdir())
    (tmp_path / "remote").unlink()
    shutil.move(tmp_path / "away", tmp_path / "remote")
    if is_restarted:
        broker.close()
        broker = opened(tmp_path, clock, worker)
    tick(broker, clock, worker, delay_ms=LONGEST_PAUSE_MS)
    assert objects(tmp_path) == 0
    assert not list((tmp_path / "data/.headgate/deleted").iterdir())
    broker.close()


def test_a_mover_of_a_deleted_stream_leaves_the_new_one_of_its_name_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, worker = SetClock(), Worker()
    broker = opened(tmp_path, clock, worker)
    fill(broker)
    while not worker.jobs:
        tick(broker, clock)

    def replaced(_step: MoveStep) -> None:
        monkeypatch.undo()
        broker.streams.delete(broker.catalogue.get("orders"))
        fill(broker, MESSAGES[:3])

    monkeypatch.setattr(mover, "reached", replaced)
    worker.run_one()
    new = Stream.open(stream_folder(tmp_path / "data", "orders"))
    assert catalogue_of(new.path).identity == new.identity
    worker.run_all()
    assert stored(tmp_path / "data", "orders") == MESSAGES[:3]
    for _ in range(10):
        tick(broker, clock, worker)
    assert stored(tmp_path / "data", "orders") == MESSAGES[:3]
    broker.close()


def test_who_says_where_a_stream_lies(tmp_path: Path) -> None:
    clock, worker = SetClock(), Worker()
    broker = opened(tmp_path, clock, worker)
    session = open_session(broker)
    with pytest.raises(PreconditionFailedError, match="not for clients"):
        session.declare_stream("orders", {"headgate-remote": f"file://{tmp_path}/elsewhere"})
    with pytest.raises(PreconditionFailedError, match="not for clients"):
        session.create_super_stream("s", ["s-0"], ["0"], {"headgate-local-bytes": "7"})
    fill(broker)
    session.declare_stream("orders", SMALL)
    arguments = session.stream_info("orders").arguments
    assert arguments == {**SMALL, "headgate-remote": f"file://{tmp_path}/remote"}
    broker.streams.change("orders", {"headgate-local-bytes": 500, "headgate-remote-after": "2m", "max-age": "9D"})
    session.declare_stream("orders", {**SMALL, "max-age": "9D"})
    settings = Stream.open(stream_folder(tmp_path / "data", "orders")).settings
    assert settings is not None
    assert (settings.arguments.local_bytes, settings.arguments.remote_after_ms) == (500, 120_000)
    with pytest.raises(PreconditionFailedError, match="has a secret"):
        broker.streams.change("orders", {"headgate-remote": "s3://key:secret@bucket/prefix"})
    for _ in range(3):
        tick(broker, clock, worker, delay_ms=60_000)
    with pytest.raises(PreconditionFailedError, match="where no reader would look"):
        broker.streams.change(
            "orders", {"headgate-remote": None, "headgate-local-bytes": None, "headgate-remote-after": None}
        )
    broker.close()
