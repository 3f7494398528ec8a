"""Streams whose files are damaged, inside of the broker: when they are recovered, who is told, and what is logged."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest

from brokers import START_MS, open_broker, open_session, publish, scan
from headgate.broker.broker import Broker
from headgate.broker.consumers import ConsumerOptions
from headgate.broker.damage import is_damage
from headgate.errors import CorruptChunkError, LogError, OffsetOutOfRangeError, StreamReadOnlyError
from headgate.log import OffsetSpecification, Stream, Writer, stream_folder
from headgate.log.lock import StreamLock
from log_streams import read_messages

FROM_THE_BEGINNING = ConsumerOptions(start=OffsetSpecification.first())


def written(root: Path, name: str = "s", count: int = 5) -> Stream:
    stream = Stream.create(stream_folder(root, name), name=name, now_ms=START_MS)
    with Writer.open(stream, now_ms=START_MS) as writer:
        for number in range(count):
            writer.append([(b"m%d" % number, None)], now_ms=START_MS)
    return stream


def cut(stream: Stream) -> None:
    """Cuts the last chunk in its middle."""
    segment = stream.segments()[-1].segment_path
    os.truncate(segment, segment.stat().st_size - 3)


def damage_last_header(stream: Stream) -> None:
    segment = stream.segments()[-1]
    with segment.open() as reader:
        position = int(reader.chunks().position[-1])
    content = bytearray(segment.segment_path.read_bytes())
    content[position] ^= 0x40
    segment.segment_path.write_bytes(content)


def ends_of(root: Path, name: str = "s") -> tuple[int, int]:
    info = open_session(open_broker(root)).stream_info(name)
    return info.first_offset, info.next_offset


def test_the_first_question_about_a_stream_recovers_it_and_the_next_ones_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = written(tmp_path)
    cut(stream)
    session = open_session(open_broker(tmp_path))
    assert session.stream_info("s").next_offset == 4
    assert [offset for offset, _ in read_messages(stream)] == [0, 1, 2, 3]
    monkeypatch.setattr("headgate.broker.stream.recover", lambda _folder: pytest.fail("recovered again"))
    session.message_consumer("s", FROM_THE_BEGINNING)
    assert session.stored_offset("s", "reader") is None
    # The lock is free for others.
    Writer.open(stream, now_ms=START_MS).close()


def test_a_stream_that_another_process_writes_is_left_to_it(tmp_path: Path) -> None:
    stream = written(tmp_path)
    with StreamLock.acquire(stream.path, now_ms=START_MS):
        cut(stream)
        size = stream.segments()[-1].segment_path.stat().st_size
        assert ends_of(tmp_path) == (0, 4)
    assert stream.segments()[-1].segment_path.stat().st_size == size


def test_a_folder_that_is_protected_is_read_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path)

    def refuse(folder: Path, **_more: object) -> StreamLock:
        raise StreamReadOnlyError("cannot be written", path=folder)

    monkeypatch.setattr(StreamLock, "acquire", refuse)
    assert ends_of(tmp_path) == (0, 5)


def test_a_foreign_stream_is_not_touched(tmp_path: Path) -> None:
    stream = written(tmp_path)
    (stream.path / "stream.json").unlink()
    foreign = stream.path.rename(stream.path.with_name("__foreign_1"))
    (foreign / "writer.lock").unlink()
    index = next(foreign.glob("*.index"))
    content = index.read_bytes() + b"\0" * 7
    index.write_bytes(content)
    assert ends_of(tmp_path, "foreign") == (0, 5)
    assert index.read_bytes() == content and not (foreign / "writer.lock").exists()


def test_who_waits_at_the_end_is_told_when_what_follows_cannot_be_seen(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    stream = written(broker.root)
    session = open_session(broker)
    consumer = session.message_consumer("s", FROM_THE_BEGINNING)
    consumer.want(100)
    scan(consumer)
    taken = consumer.take(100, 1 << 20)
    assert taken is not None and len(taken) == 5 and not consumer.scan_due()
    ready: list[bool] = []
    consumer.listen(lambda: ready.append(True))
    with Writer.open(stream, now_ms=START_MS) as writer:
        writer.append([(b"more", None)], now_ms=START_MS)
    damage_last_header(stream)
    broker.tick(START_MS)
    assert not ready
    broker.tick(START_MS)
    assert ready and consumer.scan_due()
    with pytest.raises(CorruptChunkError, match=r"\.segment, byte \d+: no chunk here"):
        scan(consumer)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR and record.exc_info is None


def test_a_reader_of_a_stream_that_another_process_removes_hears_no_damage(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    stream = written(broker.root)
    consumer = open_session(broker).message_consumer("s", FROM_THE_BEGINNING)
    consumer.want(100)
    shutil.rmtree(stream.path)
    assert consumer.scan_due()
    scan(consumer)
    assert consumer.take(100, 1 << 20) is None and not consumer.scan_due()
    broker.tick(START_MS)
    assert consumer.is_closed and not caplog.records


def test_messages_before_a_damaged_end_are_delivered_and_the_size_of_a_scan_raises_nothing(broker: Broker) -> None:
    session = open_session(broker)
    session.declare_stream("s", {"stream-max-segment-size-bytes": 1})
    publisher = session.publisher("s")
    for number in range(3):
        assert publish(broker, publisher, [b"m%d" % number]) is None
    damage_last_header(Stream.open(stream_folder(broker.root, "s")))
    consumer = session.message_consumer("s", FROM_THE_BEGINNING)
    consumer.want(100)
    found: list[int] = []
    while len(found) < 2:
        due = consumer.scan_due()
        assert due is not None and not consumer.is_small(due)
        scan(consumer)
        taken = consumer.take(100, 1 << 20)
        found += [] if taken is None else taken.offsets.tolist()
    due = consumer.scan_due()
    assert found == [0, 1] and due is not None and not consumer.is_small(due)
    with pytest.raises(CorruptChunkError):
        scan(consumer)


def test_a_message_for_a_damaged_stream_and_others_reaches_the_others(broker: Broker) -> None:
    session = open_session(broker)
    session.declare_exchange("e")
    for name in ("bad", "good"):
        session.declare_stream(name, {})
        session.bind("e", name, "key")
    other = open_session(open_broker(broker.root))
    (stream_folder(broker.root, "bad") / "stream.json").write_bytes(b"{")
    assert sorted(other.route("e", "key")) == ["bad", "good"]
    with pytest.raises(LogError):
        other.publisher("bad", exchange="e")


def test_each_reason_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stream = written(tmp_path)
    (stream.path / "stream.json").write_bytes(b"{")
    session = open_session(open_broker(tmp_path))
    for _ in range(3):
        with pytest.raises(LogError):
            session.stream_info("s")
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    (stream.path / "stream.json").write_bytes(b"")
    with pytest.raises(LogError):
        session.stream_info("s")
    assert len(caplog.records) == 2


def test_what_retention_deleted_is_no_damage() -> None:
    assert not is_damage(OffsetOutOfRangeError("retention deleted it", path="s"))
    assert is_damage(LogError("wrong", path="s"))


def test_an_error_of_the_file_system_is_one_of_the_stream(broker: Broker) -> None:
    stream = written(broker.root)
    session = open_session(broker)
    consumer = session.message_consumer("s", FROM_THE_BEGINNING)
    consumer.want(100)
    index = stream.segments()[0].index_path
    index.unlink()
    index.mkdir()
    with pytest.raises(LogError, match="reading failed"):
        scan(consumer)
    with pytest.raises(LogError, match="reading failed"):
        session.resolution("s", OffsetSpecification.last())()
    index.rmdir()
