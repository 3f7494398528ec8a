"""Streams that are read from object storage without their folder."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from headgate.derived.match_index import FilterRegistry
from headgate.errors import (
    ConfigError,
    LogError,
    OffsetOutOfRangeError,
    StreamNotFoundError,
    StreamReadOnlyError,
    StreamReplacedError,
)
from headgate.log import (
    OffsetSpecification,
    SegmentList,
    Stream,
    StreamArguments,
    Writer,
    list_streams,
    lock_root,
    make_derived_folder,
    repair_stream,
    resolve_stream,
    stream_folder,
    stream_info,
)
from headgate.log.pairs import SETTINGS_NAME
from headgate.log.remote import cache, shadow, storage_at
from headgate.log.remote.catalogue import CATALOGUE_NAME, CATALOGUE_OBJECT, ROW_DTYPE, Catalogue
from headgate.log.remote.mover import delete_remote, move_segments
from headgate.log.remote.storage import ObjectStorage
from headgate.scan import Cursor, OffsetRange, ScanCounters, ScanRequest, plan, read_range
from log_streams import read_messages

LATER_MS = 10**12
LONG = "é" * 100
"""A name that is shortened."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HEADGATE_REMOTE_CACHE", str(tmp_path / "cache"))
    cache.cache_folder.cache_clear()
    yield
    cache.cache_folder.cache_clear()


@pytest.fixture
def location(tmp_path: Path) -> str:
    return f"file://{tmp_path}/remote"


def new_writer(folder: Path, location: str, name: str = "orders", *, initial_offset: int = 0) -> Writer:
    chosen = StreamArguments(max_segment_size_bytes=4096, remote=location, initial_offset=initial_offset)
    return Writer.open(Stream.create(folder, name=name, now_ms=0, arguments=chosen), now_ms=0)


def append(writer: Writer, parts: int) -> None:
    """Chunks of ten messages, one a second."""
    for part in range(writer.next_offset // 10, writer.next_offset // 10 + parts):
        messages = [(f"{part}/{number}".encode().ljust(200, b"x"), None) for number in range(10)]
        writer.append(messages, now_ms=1000 * part)


def move(writer: Writer) -> None:
    assert move_segments(writer.stream, now_ms=LATER_MS) is not None


@pytest.mark.parametrize("as_path", [False, True])
def test_streams_are_found_by_name_and_read_without_their_folder(
    tmp_path: Path, location: str, *, as_path: bool
) -> None:
    root = Path(location) if as_path else location
    for name in ("orders/eu é", LONG):
        with new_writer(tmp_path / "s" / str(len(name)), location, name) as writer:
            append(writer, 20)
            move(writer)
            sealed = writer.stream.segments()[-1].first_chunk_id
            expected = [each for each in read_messages(writer.stream) if each[0] < sealed]
        found = resolve_stream(name, root)
        assert found.name == name and read_messages(found) == expected
        assert (found.first_offset(), found.next_offset()) == (0, sealed)
        place = OffsetSpecification.timestamp(2000)
        assert found.offset_of(place, now_ms=0) == writer.stream.offset_of(place, now_ms=0)
    assert [each.name for each in list_streams(root)] == sorted(["orders/eu é", LONG])
    wrong = rf"^{location}/orders%2Feu: no stream 'orders/eu'; .*--root {location} .*did you mean 'orders/eu é'\?$"
    with pytest.raises(StreamNotFoundError, match=wrong):
        resolve_stream("orders/eu", root)
    (tmp_path / "remote" / "orders%2Feu").mkdir()
    with pytest.raises(StreamNotFoundError, match="written when the first segment was moved"):
        resolve_stream("orders/eu", root)


def test_whoever_takes_the_folder_of_a_place_for_a_root_or_a_stream_is_told_what_it_is(
    tmp_path: Path, location: str
) -> None:
    with new_writer(tmp_path / "s", location) as writer:
        append(writer, 20)
        move(writer)
    place = tmp_path / "remote"
    with pytest.raises(StreamNotFoundError, match=f"--root {location} reads them"):
        resolve_stream("orders", place)
    for root in (tmp_path, location):
        with pytest.raises(StreamNotFoundError, match=f"^{location}/orders: .* --root {location} and 'orders'$"):
            resolve_stream(f"{location}/orders", root)
    with pytest.raises(LogError, match=f"objects of the stream 'orders' lie here.* --root {location}$"):
        resolve_stream(str(place / "orders"), tmp_path)


def test_a_stream_that_limits_emptied_there_goes_on_where_it_ended(tmp_path: Path, location: str) -> None:
    with new_writer(tmp_path / "s", location) as writer:
        append(writer, 20)
        move(writer)
        limits = msgspec.structs.replace(writer.settings.arguments, max_length_bytes=1)
        writer.change(now_ms=LATER_MS, arguments=limits)
        move(writer)
        end = writer.stream.segments()[-1].first_chunk_id
        assert 0 < end == writer.first_offset
        found = resolve_stream("orders", location)
        assert (found.first_offset(), found.next_offset(), len(found.segments())) == (end, end, 0)
        info = stream_info(found)
        assert (info.first_offset, info.next_offset, info.num_messages, info.size_bytes) == (end, end, 0, 0)
        with pytest.raises(StreamNotFoundError, match=f"^{location}/orders: nothing .* from offset {end} or later"):
            found.offset_of(OffsetSpecification.first(), now_ms=0)
        writer.change(now_ms=LATER_MS, arguments=msgspec.structs.replace(limits, max_length_bytes=None))
        append(writer, 5)
        move(writer)
        again = resolve_stream("orders", location)
        assert (again.first_offset(), again.next_offset()) == (end, writer.stream.segments()[-1].first_chunk_id)


@pytest.mark.parametrize("name", [SETTINGS_NAME, CATALOGUE_NAME])
@pytest.mark.parametrize("left", [0, 100])
def test_a_shadow_that_a_power_loss_damaged_is_made_again(tmp_path: Path, location: str, name: str, left: int) -> None:
    with new_writer(tmp_path / "s", location) as writer:
        append(writer, 20)
        move(writer)
    found = resolve_stream("orders", location)
    before = read_messages(found)
    os.truncate(found.path / name, left)
    assert read_messages(resolve_stream("orders", location)) == before


def test_a_follower_sees_what_was_moved_meanwhile(
    tmp_path: Path, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadow, "_LOOK_AGAIN_S", 0.0)
    with new_writer(tmp_path / "s", location) as writer:
        append(writer, 10)
        move(writer)
        with Cursor(
            resolve_stream("orders", location), ScanRequest(), start=OffsetSpecification.first(), now_ms=0
        ) as cursor:
            found: list[int] = []
            for _ in range(3):
                while (batch := cursor.read(0)) is not None:
                    found += batch.offsets.tolist()
                assert found == list(range(writer.stream.segments()[-1].first_chunk_id))
                append(writer, 10)
                move(writer)


def test_the_storage_is_asked_once_a_second_and_the_catalogue_read_when_it_changed(
    tmp_path: Path, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    for name in ("state_of", "read"):
        done = getattr(ObjectStorage, name)
        monkeypatch.setattr(
            ObjectStorage, name, lambda self, object_, name=name, done=done: asked.append(name) or done(self, object_)
        )
    monkeypatch.setattr(shadow, "_LOOK_AGAIN_S", 3600.0)
    with new_writer(tmp_path / "s", location) as writer:
        append(writer, 10)
        move(writer)
        asked.clear()
        found = resolve_stream("orders", location)
        # The state of the catalogue; catalogue, settings, and the list of derived files.
        assert asked == ["state_of", "read", "read", "read"]
        count = len(found.segments())
        append(writer, 10)
        move(writer)
        asked.clear()
        assert len(found.segments()) == count and not asked
        assert len(resolve_stream("orders", location).segments()) > count
        asked.clear()
        assert resolve_stream("orders", location).settings == found.settings and asked == ["state_of"]


def test_it_is_only_read(tmp_path: Path, location: str) -> None:
    with new_writer(tmp_path / "s", location) as writer:
        append(writer, 10)
        move(writer)
    found = resolve_stream("orders", location)
    for stream in (found, Stream.open(found.path)):
        with pytest.raises(StreamReadOnlyError, match="without its folder"):
            Writer.open(stream, now_ms=0)
    for changing in (
        lambda: list(repair_stream(stream, now_ms=0)),
        lambda: Stream.adopt(stream.path, now_ms=0),
        lambda: make_derived_folder(stream),
        lambda: FilterRegistry(stream).register("red", "a = 1", "rabbitmq", now_ms=0),
    ):
        with pytest.raises(StreamReadOnlyError, match=f"^{location}.*without its folder"):
            changing()
    for refused in (lambda: stream_folder(location, "new"), lambda: lock_root(Path(location), now_ms=0)):
        with pytest.raises(StreamReadOnlyError, match="object storage is only read") as raised:
            refused()
        assert location in str(raised.value)


@pytest.mark.parametrize("root", ["s3://key:a-secret@bucket/p", "s3://bucket/p?secret_key=a-secret"])
def test_a_root_with_a_secret_in_it_is_refused_without_showing_it(root: str) -> None:
    for asking in (
        lambda: resolve_stream("orders", root),
        lambda: list_streams(root),
        lambda: stream_folder(root, "x"),
    ):
        with pytest.raises(ConfigError, match="the root has a secret in it") as refused:
            asking()
        assert "a-secret" not in str(refused.value)


def test_a_stream_that_was_deleted_or_made_again_is_noticed(
    tmp_path: Path, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadow, "_LOOK_AGAIN_S", 0.0)
    with new_writer(tmp_path / "s", location) as writer:
        append(writer, 10)
        move(writer)
        found = resolve_stream("orders", location)
        found.check_is_there()
        delete_remote(writer.stream)
    with pytest.raises(StreamNotFoundError, match="catalogue is missing"):
        found.segments()
    with pytest.raises(StreamNotFoundError, match="was deleted"):
        found.check_is_there()
    with new_writer(tmp_path / "t", location) as writer:
        append(writer, 10)
        move(writer)
    found.segments()
    with pytest.raises(StreamReplacedError):
        found.check_is_there()


def test_tasks_on_other_machines_need_nothing_of_the_planning_one(
    tmp_path: Path, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_writer(tmp_path / "s", location) as writer:
        append(writer, 20)
        move(writer)
    found = resolve_stream("orders", location)
    within = OffsetRange(3, found.next_offset() - 5)
    ranges = pickle.dumps(plan(found, ScanRequest(), within, range_bytes=5000).ranges)
    shutil.rmtree(tmp_path / "cache")
    shutil.rmtree(tmp_path / "s")
    monkeypatch.setenv("HEADGATE_REMOTE_CACHE", str(tmp_path / "other"))
    cache.cache_folder.cache_clear()
    batches = [batch for each in pickle.loads(ranges) for batch in read_range(each, ScanRequest(), ScanCounters())]
    assert np.concatenate([batch.offsets for batch in batches]).tolist() == list(range(within.start, within.stop))
    shutil.rmtree(tmp_path / "other")
    shutil.rmtree(tmp_path / "remote")
    with pytest.raises(OffsetOutOfRangeError):
        list(read_range(pickle.loads(ranges)[0], ScanRequest(), ScanCounters()))


def test_nothing_on_the_way_looks_at_all_segments(
    tmp_path: Path, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 20 000 of them before: opening, planning, following, attaching by offset and by time."""
    before, size = 20_000, 100
    with new_writer(tmp_path / "s", location, initial_offset=before * size) as writer:
        append(writer, 10)
        move(writer)
        assert writer.stream.remote is not None
        storage = storage_at(writer.stream.remote)
    raw = storage.read(CATALOGUE_OBJECT)
    assert raw is not None
    known = Catalogue.decode(raw, path="catalogue")
    rows = np.zeros(before, dtype=ROW_DTYPE)
    rows["first"] = np.arange(before) * size
    rows["stop"] = rows["first"] + size
    rows["last_ms"] = rows["first_ms"] = np.arange(before)
    storage.write(CATALOGUE_OBJECT, Catalogue(known.identity, np.concatenate([rows, known.rows])).encode())
    made: list[int] = []
    make = SegmentList._segment
    monkeypatch.setattr(SegmentList, "_segment", lambda self, row: made.append(row) or make(self, row))
    found = resolve_stream("orders", location)
    assert len(found.segments()) > before and found.first_offset() == 0
    end, first = found.next_offset(), before * size
    for place in (OffsetSpecification.offset(first + 12), OffsetSpecification.timestamp(1000 * (first // 10 + 1))):
        assert found.offset_of(place, now_ms=0) >= first
        with Cursor(found, ScanRequest(), start=place, now_ms=0) as cursor:
            assert cursor.read(0) is not None
    assert plan(found, ScanRequest(), OffsetRange(first, end)).ranges
    assert len(made) < 1000
