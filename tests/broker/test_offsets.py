"""Stored offsets: visible at once, in the next chunk or on disk within a second, kept over restarts."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from brokers import START_MS, SetClock, open_broker, open_session, publish, stored
from headgate.broker.settings import BrokerSettings
from headgate.errors import PreconditionFailedError
from headgate.log import Stream, Writer, stream_folder
from headgate.log.tracking import read_tracking
from log_streams import FailingFiles


def on_disk(root: Path, name: str) -> dict[bytes, int]:
    return read_tracking(Stream.open(stream_folder(root, name))).offsets


def test_a_stored_offset_is_visible_to_every_session_at_once(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    one, two = open_session(broker), open_session(broker)
    one.declare_stream("orders", {})
    one.store_offset("orders", "reader", 5)
    assert two.stored_offset("orders", "reader") == 5 and two.stored_offset("orders", "other") is None
    one.publisher("orders")
    one.store_offset("orders", "reader", 2**64 - 1)
    assert two.stored_offset("orders", "reader") == 2**64 - 1
    broker.close()


def test_stored_offsets_ride_in_the_next_chunk_and_take_no_offset_of_their_own(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {})
    publisher, named = session.publisher("orders"), session.publisher("orders", reference="p")
    session.store_offset("orders", "one", 5)
    session.store_offset("orders", "two", 6)
    publish(broker, publisher, [b"1"])
    assert on_disk(tmp_path, "orders") == {b"one": 5, b"two": 6}
    session.store_offset("orders", "one", 7)
    publish(broker, named, [b"2"], sequences=[1])
    broker.tick(START_MS + 10_000)
    assert on_disk(tmp_path, "orders") == {b"one": 7, b"two": 6}
    assert session.stream_info("orders").next_offset == 2
    assert session.last_sequence("orders", "p") == 1
    broker.close()


def test_without_messages_stored_offsets_are_on_disk_within_a_second_and_the_writer_is_given_back(
    tmp_path: Path,
) -> None:
    clock = SetClock()
    broker = open_broker(tmp_path, clock=clock)
    session = open_session(broker)
    session.declare_stream("orders", {})
    session.store_offset("orders", "reader", 5)
    broker.tick(clock.now + 900)
    assert on_disk(tmp_path, "orders") == {}
    broker.tick(clock.now + 1_000)
    assert on_disk(tmp_path, "orders") == {b"reader": 5}
    broker.tick(clock.now + 11_000)
    assert broker.catalogue.get("orders").writer is None
    assert session.stored_offset("orders", "reader") == 5
    broker.close()


def test_stored_offsets_are_there_after_a_restart(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {})
    session.store_offset("orders", "reader", 5)
    broker.close()
    session = open_session(open_broker(tmp_path))
    assert session.stored_offset("orders", "reader") == 5


def test_an_offset_waits_while_another_process_writes_the_stream(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {})
    with Writer.open(Stream.open(stream_folder(tmp_path, "orders")), now_ms=START_MS) as writer:
        session.store_offset("orders", "reader", 5)
        broker.tick(START_MS + 1_000)
        writer.store_offset("other", 3)
        writer.flush_offsets(now_ms=START_MS)
        assert session.stored_offset("orders", "reader") == 5 and session.stored_offset("orders", "other") == 3
    broker.tick(START_MS + 2_000)
    assert on_disk(tmp_path, "orders") == {b"reader": 5, b"other": 3}
    broker.close()


def test_a_full_disk_keeps_offsets_in_memory_until_there_is_room(tmp_path: Path) -> None:
    files = FailingFiles(OSError(errno.ENOSPC, "No space left on device"))
    broker = open_broker(tmp_path, settings=BrokerSettings(open_file=files))
    session = open_session(broker)
    session.declare_stream("orders", {})
    publish(broker, session.publisher("orders"), [b"1"])
    session.store_offset("orders", "reader", 5)
    for fail_truncate in (False, True):
        files.budget, files.fail_truncate = files.written, fail_truncate
        broker.tick(START_MS + 1_000 * (1 + fail_truncate))
        assert session.stored_offset("orders", "reader") == 5 and on_disk(tmp_path, "orders") == {}
    files.budget, files.fail_truncate = None, False
    broker.tick(START_MS + 3_000)
    assert on_disk(tmp_path, "orders") == {b"reader": 5} and stored(tmp_path, "orders") == [b"1"]
    broker.close()


@pytest.mark.parametrize(("reference", "offset"), [("", 1), ("r" * 256, 1), ("r", -1), ("r", 2**64)])
def test_wrong_offsets_are_refused(tmp_path: Path, reference: str, offset: int) -> None:
    session = open_session(open_broker(tmp_path))
    session.declare_stream("orders", {})
    with pytest.raises(PreconditionFailedError):
        session.store_offset("orders", reference, offset)
    assert session.stored_offset("orders", "r") is None


@pytest.mark.parametrize("reference", ["", "p" * 256])
def test_wrong_references_of_publishers_are_refused(tmp_path: Path, reference: str) -> None:
    session = open_session(open_broker(tmp_path))
    session.declare_stream("orders", {})
    with pytest.raises(PreconditionFailedError):
        session.publisher("orders", reference=reference)
    with pytest.raises(PreconditionFailedError):
        session.last_sequence("orders", reference)


def test_a_reference_publishes_once_per_connection_and_stream(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    for name in ("orders", "returns"):
        session.declare_stream(name, {})
    publisher = session.publisher("orders", reference="p")
    with pytest.raises(PreconditionFailedError, match="already"):
        session.publisher("orders", reference="p")
    session.publisher("returns", reference="p")
    open_session(broker).publisher("orders", reference="p")
    publisher.close()
    session.publisher("orders", reference="p")
    broker.close()
