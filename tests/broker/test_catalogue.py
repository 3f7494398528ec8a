"""Streams that are declared, found, deleted, and that other processes make and take away."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from brokers import START_MS, Answers, batch, open_broker, open_session, publish, scan, stored
from headgate.broker.arguments import OF_OTHER_QUEUES
from headgate.broker.catalogue import Declared
from headgate.broker.consumers import ConsumerOptions
from headgate.derived.columns import declaration_of
from headgate.errors import (
    LogError,
    PreconditionFailedError,
    ReservedNameError,
    ResourceExistsError,
    ResourceNotFoundError,
    StorageFullError,
    StreamLockedError,
    StreamReadOnlyError,
    UnsuitableArgumentError,
)
from headgate.log import (
    OffsetSpecification,
    Stream,
    StreamArguments,
    StreamSettings,
    Writer,
    derived_folder,
    stream_folder,
)
from headgate.log.files import replace_file

FROM_THE_BEGINNING = ConsumerOptions(OffsetSpecification.first())


def test_a_damaged_stream_keeps_nobody_from_the_others(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    for name in ("a", "b/c"):
        open_session(broker).declare_stream(name, {})
    broker.close()
    stream_folder(tmp_path, "b/c").joinpath("stream.json").write_bytes(b"")
    broker = open_broker(tmp_path)
    session = open_session(broker)
    assert session.declare_stream("new", {}) is Declared.CREATED
    assert publish(broker, session.publisher("a"), [b"m"]) is None
    assert session.streams() == ["a", "b/c", "new"]
    with pytest.raises(LogError, match="not the settings of a stream"):
        session.declare_stream("b/c", {})
    broker.close()


def test_a_declaration_creates_a_stream_and_the_same_one_finds_it_also_after_a_restart(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    arguments = {
        "queue-type": "stream",
        "max-length-bytes": 20_000_000,
        "max-age": "7D",
        "stream-filter-size-bytes": 32,
        "stream-max-segment-size-bytes": 1_000_000,
        "initial-cluster-size": 1,
        "queue-leader-locator": "client-local",
        "initial-group-size": 3,
    }
    assert session.declare_stream("orders", arguments) is Declared.CREATED
    assert session.declare_stream("orders", arguments) is Declared.EXISTS
    broker.close()
    broker = open_broker(tmp_path)
    session = open_session(broker)
    assert session.declare_stream("orders", arguments, numbers_as_text=False) is Declared.EXISTS
    assert session.declare_stream("orders", {}, passive=True) is Declared.EXISTS
    info = session.stream_info("orders")
    assert info.arguments == {name: value for name, value in arguments.items() if name != "queue-type"}
    settings = broker.catalogue.get("orders").stream.settings
    assert settings is not None and settings.arguments == StreamArguments(
        filter_size_bytes=32,
        max_segment_size_bytes=1_000_000,
        max_length_bytes=20_000_000,
        max_age_ms=7 * 86_400_000,
    )
    broker.close()


def test_numbers_are_equal_by_value_however_they_were_written(tmp_path: Path) -> None:
    session = open_session(open_broker(tmp_path))
    session.declare_stream("orders", {"max-length-bytes": "5000", "stream-filter-size-bytes": np.int64(17).item()})
    assert session.declare_stream("orders", {"max-length-bytes": 5000, "stream-filter-size-bytes": "17"}) is (
        Declared.EXISTS
    )


@pytest.mark.parametrize("given", [True, "true"])
def test_streams_that_drop_what_is_settled_are_declared_so(tmp_path: Path, given: object) -> None:
    session = open_session(open_broker(tmp_path))
    session.declare_stream("orders", {"headgate-drop-settled": given})
    assert session.stream_info("orders").arguments == {"headgate-drop-settled": True}
    assert session.declare_stream("orders", {"headgate-drop-settled": True}) is Declared.EXISTS
    with pytest.raises(ResourceExistsError, match="x-headgate-drop-settled"):
        session.declare_stream("orders", {})
    with pytest.raises(PreconditionFailedError, match="x-headgate-drop-settled"):
        session.declare_stream("others", {"headgate-drop-settled": "true"}, numbers_as_text=False)


@pytest.mark.parametrize("age", ["60m", "3600s", "01h"])
def test_ages_are_equal_where_they_last_as_long(tmp_path: Path, age: str) -> None:
    session = open_session(open_broker(tmp_path))
    session.declare_stream("orders", {"max-age": "1h"})
    assert session.declare_stream("orders", {"max-age": age}) is Declared.EXISTS
    assert session.stream_info("orders").arguments == {"max-age": "1h"}


@pytest.mark.parametrize("other", [{}, {"unknown": 2}, {"unknown": 1, "further": "a"}])
def test_arguments_that_nobody_knows_are_kept_and_not_compared(tmp_path: Path, other: dict[str, object]) -> None:
    session = open_session(open_broker(tmp_path))
    session.declare_stream("orders", {"max-age": "1h", "unknown": 1})
    assert session.declare_stream("orders", {"max-age": "1h", **other}) is Declared.EXISTS
    assert session.stream_info("orders").arguments == {"max-age": "1h", "unknown": 1}


@pytest.mark.parametrize("other", [{}, {"max-age": "2h"}, {"max-age": "1h", "stream-filter-size-bytes": 32}])
def test_other_arguments_are_refused(tmp_path: Path, other: dict[str, object]) -> None:
    session = open_session(open_broker(tmp_path))
    session.declare_stream("orders", {"max-age": "1h"})
    with pytest.raises(
        ResourceExistsError,
        match=r"orders: inequivalent arg 'x-(max-age|stream-filter-size-bytes)' .* received .* but current is",
    ):
        session.declare_stream("orders", other)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stream-filter-size-bytes", 15),
        ("stream-filter-size-bytes", 256),
        ("stream-filter-size-bytes", "0"),
        ("stream-filter-size-bytes", 16.0),
        ("stream-filter-size-bytes", True),
        ("stream-max-segment-size-bytes", 3_000_000_001),
        ("max-length-bytes", -1),
        ("max-length-bytes", "many"),
        ("max-length-bytes", "9" * 30),
        ("stream-initial-offset", -1),
        ("stream-initial-offset", 2**62 + 1),
        ("max-age", "5x"),
        ("max-age", "0D"),
        ("max-age", "-1D"),
        ("max-age", 60),
        ("max-age", "9" * 5000 + "Y"),
        ("headgate-max-segment-age", "soon"),
        ("initial-cluster-size", 0),
        ("queue-leader-locator", "nearest"),
        ("queue-leader-locator", 1),
        ("queue-type", "quorum"),
        ("own", b"bytes"),
        ("own", {1: 2}),
        ("headgate-filter-source", "nothing"),
        ("headgate-columns", "region text"),
        ("headgate-columns", 1),
        ("headgate-filter-source", 1),
        ("headgate-drop-settled", "yes"),
        ("headgate-drop-settled", 1),
    ],
)
def test_a_wrong_value_is_refused_and_named(tmp_path: Path, name: str, value: object) -> None:
    session = open_session(open_broker(tmp_path))
    with pytest.raises(PreconditionFailedError, match=f"x-{name}") as caught:
        session.declare_stream("orders", {name: value})
    assert not isinstance(caught.value, UnsuitableArgumentError | ReservedNameError)
    assert session.streams() == []


def test_a_stream_with_an_initial_offset_begins_there(tmp_path: Path) -> None:
    session = open_session(open_broker(tmp_path))
    assert session.declare_stream("orders", {"stream-initial-offset": 1000}) is Declared.CREATED
    assert Stream.open(stream_folder(tmp_path, "orders")).first_offset() == 1000
    with pytest.raises(ResourceExistsError, match="stream-initial-offset"):
        session.declare_stream("orders", {})


def test_columns_of_a_declaration_are_declared(tmp_path: Path) -> None:
    session = open_session(open_broker(tmp_path))
    arguments = {"headgate-columns": "region string, p.subject"}
    assert session.declare_stream("orders", arguments) is Declared.CREATED
    assert session.declare_stream("orders", arguments) is Declared.EXISTS
    stream = Stream.open(stream_folder(tmp_path, "orders"))
    declaration = declaration_of(stream)
    assert declaration is not None and [each.name for each in declaration.declared] == ["region", "subject"]
    # Killed before it came to the columns, and declared again.
    shutil.rmtree(derived_folder(stream))
    assert session.declare_stream("orders", arguments) is Declared.EXISTS
    assert declaration_of(stream) == declaration
    with pytest.raises(ResourceExistsError, match="headgate-columns"):
        session.declare_stream("orders", {"headgate-columns": "region string"})


@pytest.mark.parametrize("name", ["max-length-bytes", "stream-filter-size-bytes"])
def test_numbers_as_text_are_refused_where_the_protocol_has_numbers(tmp_path: Path, name: str) -> None:
    session = open_session(open_broker(tmp_path))
    with pytest.raises(PreconditionFailedError, match=name):
        session.declare_stream("orders", {name: "100"}, numbers_as_text=False)


@pytest.mark.parametrize("name", sorted(OF_OTHER_QUEUES))
def test_arguments_of_other_queues_are_refused_as_such(tmp_path: Path, name: str) -> None:
    session = open_session(open_broker(tmp_path))
    with pytest.raises(UnsuitableArgumentError, match=f"x-{name}"):
        session.declare_stream("orders", {name: 1})


def test_limits_of_nothing_keep_one_segment(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {"max-length-bytes": 0, "stream-max-segment-size-bytes": 0})
    publisher = session.publisher("orders")
    for number in range(4):
        publish(broker, publisher, [b"%d" % number])
    assert stored(tmp_path, "orders") == [b"3"]
    assert session.stream_info("orders").first_offset == 3
    broker.close()


@pytest.mark.parametrize("name", ["", "amq.mine", "\r\n"])
def test_names_of_the_broker_are_reserved(tmp_path: Path, name: str) -> None:
    with pytest.raises(ReservedNameError):
        open_session(open_broker(tmp_path)).declare_stream(name, {})


@pytest.mark.parametrize("name", ["x" * 256, "ü" * 128, "half a pair \ud800"])
def test_names_that_no_folder_can_have_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(PreconditionFailedError):
        open_session(open_broker(tmp_path)).declare_stream(name, {})


def test_line_ends_are_no_part_of_a_name(tmp_path: Path) -> None:
    session = open_session(open_broker(tmp_path))
    session.declare_stream("or\r\nders", {})
    assert session.streams() == ["orders"]
    assert session.delete_stream("orders\n") == 0


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    session = open_session(open_broker(tmp_path))
    for command in (
        lambda: session.declare_stream("orders", {}, passive=True),
        lambda: session.delete_stream("orders"),
        lambda: session.stream_info("orders"),
        lambda: session.publisher("orders"),
        lambda: session.message_consumer("orders", FROM_THE_BEGINNING),
        lambda: session.chunk_consumer("orders", FROM_THE_BEGINNING),
        lambda: session.store_offset("orders", "reader", 1),
        lambda: session.stored_offset("orders", "reader"),
        lambda: session.last_sequence("orders", "p"),
        lambda: session.stream_info("x" * 1000),
        lambda: session.stream_info("half a pair \ud800"),
    ):
        with pytest.raises(ResourceNotFoundError):
            command()


def test_an_empty_stream_has_no_chunk_ids(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {})
    info = session.stream_info("orders")
    assert (info.first_offset, info.next_offset, info.message_count) == (0, 0, 0)
    assert (info.first_chunk_id, info.last_chunk_id, info.committed_chunk_id) == (-1, -1, -1)
    publisher = session.publisher("orders")
    publish(broker, publisher, [b"1", b"2"])
    publish(broker, publisher, [b"3"])
    info = session.stream_info("orders")
    assert (info.first_chunk_id, info.last_chunk_id, info.committed_chunk_id, info.message_count) == (0, 2, 2, 3)
    assert (info.publisher_count, info.consumer_count) == (1, 0)
    broker.close()


def test_deleting_ends_publishers_and_consumers_and_tells_every_session_after_the_answer(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    one, two, idle = (open_session(broker) for _ in range(3))
    told: list[tuple[str, str]] = []
    for label, session in (("one", one), ("two", two), ("idle", idle)):
        session.on_stream_deleted = lambda name, label=label: told.append((label, name))
    one.declare_stream("orders", {})
    publisher = one.publisher("orders")
    publish(broker, publisher, [b"1", b"2"])
    consumer = two.message_consumer("orders", FROM_THE_BEGINNING)
    answers = Answers()
    publisher.publish(batch([b"3"], answers.to(3)))
    assert idle.delete_stream("orders") == 3
    assert publisher.is_closed and not consumer.scan_due() and not told
    assert answers.confirmed == [3] and not answers.refused
    broker.write_queued()
    assert sorted(told) == [("one", "orders"), ("two", "orders")]
    assert idle.streams() == [] and not stream_folder(tmp_path, "orders").exists()
    assert list((tmp_path / ".headgate" / "deleted").iterdir()) == []
    assert idle.declare_stream("orders", {}) is Declared.CREATED
    assert idle.stream_info("orders").next_offset == 0
    broker.close()


def test_what_an_interrupted_deletion_left_is_removed_at_the_next_start(tmp_path: Path) -> None:
    left = tmp_path / ".headgate" / "deleted" / "0123" / "file"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"x")
    open_broker(tmp_path)
    assert not left.exists()


def test_streams_of_other_processes_appear_with_what_is_in_them(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    arguments = StreamArguments(filter_size_bytes=64, max_age_ms=3_600_000)
    Stream.create(stream_folder(tmp_path, "orders"), name="orders", now_ms=START_MS, arguments=arguments)
    assert session.streams() == ["orders"]
    assert session.stream_info("orders").arguments == {"max-age": "3600s", "stream-filter-size-bytes": 64}
    assert session.declare_stream("orders", {"max-age": "3600s", "stream-filter-size-bytes": 64}) is Declared.EXISTS
    broker.close()


def test_readers_are_woken_when_another_process_appends_and_rolls_over(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {"stream-max-segment-size-bytes": 100})
    consumer = session.message_consumer("orders", FROM_THE_BEGINNING)
    consumer.want(100)
    ready: list[int] = []
    consumer.listen(lambda: ready.append(1))
    with Writer.open(Stream.open(stream_folder(tmp_path, "orders")), now_ms=START_MS) as writer:
        for number in range(3):
            writer.append([(b"m%d" % number * 50, None)], now_ms=START_MS)
            before = len(ready)
            broker.tick(START_MS)
            assert len(ready) > before
            assert session.stream_info("orders").next_offset == number + 1
            scan(consumer)
            taken = consumer.take(1, 1 << 20)
            assert taken is not None and taken.offsets.tolist() == [number]
        before = len(ready)
        broker.tick(START_MS)
        assert len(ready) == before
    broker.close()


def test_a_stream_that_another_process_deletes_ends_for_its_users(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {})
    told: list[str] = []
    session.on_stream_deleted = told.append
    session.message_consumer("orders", FROM_THE_BEGINNING)
    shutil.rmtree(stream_folder(tmp_path, "orders"))
    broker.tick(START_MS)
    broker.write_queued()
    assert told == ["orders"] and session.streams() == []
    broker.close()


def test_a_stream_that_is_deleted_under_the_broker_s_own_writer_ends_within_a_second(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {})
    publisher = session.publisher("orders")
    told: list[str] = []
    session.on_stream_deleted = told.append
    shutil.rmtree(stream_folder(tmp_path, "orders"))
    broker.tick(START_MS + 1_000)
    broker.write_queued()
    assert told == ["orders"] and publisher.is_closed and session.streams() == []
    broker.close()


def test_a_stream_that_another_process_deletes_and_makes_again_is_another_one(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {})
    told: list[str] = []
    session.on_stream_deleted = told.append
    publisher = session.publisher("orders")
    publish(broker, publisher, [b"1"])
    publisher.close()
    broker.catalogue.get("orders").close_writer()
    session.message_consumer("orders", FROM_THE_BEGINNING)
    shutil.rmtree(stream_folder(tmp_path, "orders"))
    Stream.create(stream_folder(tmp_path, "orders"), name="orders", now_ms=START_MS + 1)
    assert session.stream_info("orders").next_offset == 0
    broker.tick(START_MS)
    broker.write_queued()
    assert told == ["orders"]
    assert session.stream_info("orders").consumer_count == 0
    broker.close()


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_foreign_stream_is_found_by_its_name_and_read_only(tmp_path: Path, is_linked: bool) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("made", {})
    publish(broker, session.publisher("made"), [b"1"])
    broker.close()
    foreign = tmp_path / ("elsewhere" if is_linked else "streams") / "__orders_1700000000"
    foreign.parent.mkdir(exist_ok=True)
    shutil.move(stream_folder(tmp_path, "made"), foreign)
    (foreign / "stream.json").unlink()
    if is_linked:
        (tmp_path / "streams" / "link").symlink_to(foreign)
    broker = open_broker(tmp_path)
    session = open_session(broker)
    assert session.streams() == ["orders"] and session.stream_info("orders").next_offset == 1
    for command in (session.publisher, session.delete_stream):
        with pytest.raises(StreamReadOnlyError):
            command("orders")
    with pytest.raises(PreconditionFailedError, match="adopted"):
        session.store_offset("orders", "reader", 0)
    broker.close()


def test_age_is_looked_at_once_an_hour_while_nothing_is_written(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {"max-age": "1h", "stream-max-segment-size-bytes": 1})
    publisher = session.publisher("orders")
    for number in range(3):
        publish(broker, publisher, [b"%d" % number])
    session.close()
    broker.catalogue.get("orders").close_writer()
    assert len(stored(tmp_path, "orders")) == 3
    broker.now_ms.now = START_MS + 2 * 3_600_000  # type: ignore[attr-defined]
    broker.tick(broker.now_ms())
    assert stored(tmp_path, "orders") == [b"2"]
    broker.close()


def test_a_new_segment_is_noticed_whatever_the_time_of_its_folder_says(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {"stream-max-segment-size-bytes": 1})
    folder = stream_folder(tmp_path, "orders")
    with Writer.open(Stream.open(folder), now_ms=START_MS) as writer:
        for number in range(4):
            time_ns = folder.stat().st_mtime_ns
            writer.append([(b"%d" % number, None)], now_ms=START_MS)
            os.utime(folder, ns=(time_ns, time_ns))
            assert session.stream_info("orders").next_offset == number + 1
    broker.close()


def test_a_stream_that_lost_the_segment_that_was_the_newest_is_read_on(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {"stream-max-segment-size-bytes": 1, "max-length-bytes": 1})
    with Writer.open(Stream.open(stream_folder(tmp_path, "orders")), now_ms=START_MS) as writer:
        assert session.stream_info("orders").next_offset == 0
        for number in range(4):
            writer.append([(b"%d" % number, None)], now_ms=START_MS)
    info = session.stream_info("orders")
    assert (info.first_offset, info.next_offset) == (3, 4)
    broker.close()


def test_a_stream_that_another_process_writes_is_not_deleted(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("orders", {})
    consumer = session.message_consumer("orders", FROM_THE_BEGINNING)
    with (
        Writer.open(Stream.open(stream_folder(tmp_path, "orders")), now_ms=START_MS) as writer,
        pytest.raises(StreamLockedError, match=r"process \d+"),
    ):
        session.delete_stream("orders")
    writer.close()
    consumer.want(1)
    assert session.streams() == ["orders"] and session.stream_info("orders").consumer_count == 1
    session.delete_stream("orders")
    assert session.streams() == []
    broker.close()


def test_trouble_with_one_stream_is_logged_once_and_the_others_are_looked_after(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    ready: list[str] = []
    for name in ("bad", "good"):
        session.declare_stream(name, {})
        consumer = session.message_consumer(name, FROM_THE_BEGINNING)
        consumer.want(1)
        consumer.listen(lambda name=name: ready.append(name))
    good = Stream.open(stream_folder(tmp_path, "good"))
    settings = (stream_folder(tmp_path, "bad") / "stream.json").read_bytes()
    replace_file(stream_folder(tmp_path, "bad") / "stream.json", b"{")
    with Writer.open(good, now_ms=START_MS) as writer:
        writer.append([(b"m", None)], now_ms=START_MS)
        broker.tick(START_MS)
        broker.tick(START_MS)
    assert ready == ["good"]
    assert [record.message.startswith("stream 'bad' is damaged: ") for record in caplog.records] == [True]
    replace_file(stream_folder(tmp_path, "bad") / "stream.json", settings)
    broker.tick(START_MS)
    broker.close()


def test_a_declaration_that_found_the_disk_full_leaves_no_stream_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session(open_broker(tmp_path))

    def full(folder: Path, _settings: StreamSettings, *, flushed: bool) -> None:
        assert flushed
        raise StorageFullError("no room", path=folder)

    with monkeypatch.context() as patch:
        patch.setattr("headgate.log.stream.save_settings", full)
        with pytest.raises(StorageFullError):
            session.declare_stream("orders", {"max-age": "1D"})
    assert session.streams() == []
    assert os.listdir(tmp_path / "streams") == []
    with pytest.raises(ResourceNotFoundError):
        session.stream_info("orders")
    assert session.declare_stream("orders", {"max-age": "1D"}) is Declared.CREATED
    assert session.stream_info("orders").arguments == {"max-age": "1D"}


def test_the_size_of_a_stream_is_that_of_its_segments_and_index_files(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("s", {"stream-max-segment-size-bytes": 2000, "max-length-bytes": 6000})
    stream, folder = broker.catalogue.get("s"), stream_folder(tmp_path, "s")
    publisher = session.publisher("s")
    counts = []
    for turn in range(20):
        assert publish(broker, publisher, [bytes(700)]) is None
        if turn % 3:
            # As if files had come and gone some time ago: then only the newest is looked at.
            os.utime(folder, ns=(turn, turn))
        segments = list(folder.glob("*.segment"))
        counts.append(len(segments))
        files = [*segments, *folder.glob("*.index")]
        assert stream.size_bytes() == stream.size_bytes() == sum(path.stat().st_size for path in files)
    assert len(set(counts)) > 2 and counts[-1] < 6
    broker.close()
