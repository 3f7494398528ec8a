"""Archives of streams that RabbitMQ writes: everything that was ever in them, unchanged."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.errors import (
    ConfigError,
    CorruptChunkError,
    LogError,
    OffsetOutOfRangeError,
    RemoteStorageError,
    StreamExistsError,
    StreamNotFoundError,
    StreamReadOnlyError,
)
from headgate.log import Archiver, Stream, StreamArguments, Writer, archive, given_up_offsets, resolve_stream
from headgate.log.crash_points import VARIABLE, MoveStep
from headgate.log.inspection import Damage, verify_stream
from headgate.log.pairs import SETTINGS_NAME, delete_pair
from headgate.log.remote import cache, mover
from headgate.log.remote.mover import MoveReport
from log_streams import chunk_ids, read_messages
from waiting import eventually

LATER_MS = 2 * 10**12


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HEADGATE_REMOTE_CACHE", str(tmp_path / "cache"))
    cache.cache_folder.cache_clear()
    yield
    cache.cache_folder.cache_clear()


class Source:
    """A stream as RabbitMQ writes it: no `stream.json`, publishers, stored offsets, snapshots."""

    def __init__(self, folder: Path, *, filling: bytes = b"x") -> None:
        limits = StreamArguments(max_segment_size_bytes=4096)
        self._writer = Writer.open(Stream.create(folder, name="orders", now_ms=0, arguments=limits), now_ms=0)
        (folder / SETTINGS_NAME).unlink()
        self.folder = folder
        self._part = 0
        self._filling = filling

    def write(self, parts: int) -> None:
        for part in range(self._part, self._part + parts):
            messages = [(f"{part}/{number}".encode().ljust(200, self._filling), b"v%d" % part) for number in range(10)]
            self._writer.store_offset("reader", self._writer.next_offset)
            sequences = range(10 * part, 10 * part + 10)
            self._writer.append(messages, now_ms=1000 * part, publisher="p", sequences=sequences)
            if part % 3 == 0:
                self._writer.store_offset("other", part)
                self._writer.flush_offsets(now_ms=1000 * part)
        self._part += parts

    @property
    def stream(self) -> Stream:
        return Stream.open(self.folder)

    def delete_oldest(self, count: int) -> None:
        for segment in self.stream.segments()[:count]:
            delete_pair(self.folder, segment.first_chunk_id)

    def close(self) -> None:
        self._writer.close()


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    made = Source(tmp_path / "rabbitmq" / "__orders_1234567890")
    yield made
    made.close()


@pytest.fixture
def location(tmp_path: Path) -> str:
    return f"file://{tmp_path}/remote"


def opened(source: Stream, tmp_path: Path, location: str, *, allow_gap: bool = False) -> Archiver:
    return Archiver.open(
        source, tmp_path / "archive", name="kept", remote=location, allow_gap=allow_gap, now_ms=LATER_MS
    )


def copy_all(archiver: Archiver) -> None:
    archiver.look()
    while archiver.copy():
        archiver.look()


def archived(source: Stream, tmp_path: Path, location: str, *, allow_gap: bool = False) -> Stream:
    with opened(source, tmp_path, location, allow_gap=allow_gap) as archiver:
        copy_all(archiver)
        archiver.finish(now_ms=LATER_MS)
    return Stream.open(tmp_path / "archive")


def segment_bytes(stream: Stream) -> dict[int, bytes]:
    """The bytes of each segment, by its first offset."""
    found = {}
    for segment in stream.segments():
        segment.fetch(whole=True)
        found[segment.first_chunk_id] = segment.segment_path.read_bytes()
    return found


def test_segments_of_rabbitmq_are_archived_byte_by_byte(rabbitmq_streams: Path, tmp_path: Path) -> None:
    for number, folder in enumerate(sorted(rabbitmq_streams.iterdir())):
        source = Stream.open(folder)
        kept = archived(source, tmp_path / str(number), f"file://{tmp_path}/remote/{number}")
        assert segment_bytes(kept) == segment_bytes(source)
        assert kept.segments().num_remote == len(source.segments()) - 1
        assert not [each for each in verify_stream(kept) if isinstance(each, Damage)]


def test_what_retention_deletes_stays_with_its_offsets(source: Source, tmp_path: Path, location: str) -> None:
    source.write(10)
    everything: dict[int, bytes] = {}
    for _ in range(4):
        everything |= segment_bytes(source.stream)
        kept = archived(source.stream, tmp_path, location)
        assert segment_bytes(kept) == everything
        source.delete_oldest(2)
        source.write(10)
    assert source.stream.first_offset() > kept.first_offset() == 0
    elsewhere = resolve_stream("kept", location)
    sealed = elsewhere.next_offset()
    assert read_messages(elsewhere) == [each for each in read_messages(kept) if each[0] < sealed] != []
    assert chunk_ids(kept)[: len(chunk_ids(elsewhere))] == chunk_ids(elsewhere)


def test_segments_that_are_deleted_before_they_are_copied_are_not_lost(
    source: Source, tmp_path: Path, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "_COPY_BYTES", 3000)
    source.write(10)
    everything = segment_bytes(source.stream)
    with opened(source.stream, tmp_path, location) as archiver:
        archiver.look()
        assert archiver.copy() > 0
        count = len(source.stream.segments())
        source.delete_oldest(count - 1)
        source.write(10)
        archiver.look()
        everything |= segment_bytes(source.stream)
        source.delete_oldest(len(source.stream.segments()) - 1)
        copy_all(archiver)
    assert segment_bytes(Stream.open(tmp_path / "archive")) == everything


@pytest.mark.parametrize("step", [MoveStep.UPLOADED, MoveStep.CATALOGUED, MoveStep.RELEASED])
def test_an_archiver_that_died_goes_on(source: Source, tmp_path: Path, location: str, step: MoveStep) -> None:
    source.write(12)
    command = [sys.executable, "-m", "headgate.cli", "stream", "archive", str(source.folder), "--to", location]
    command += ["--root", str(tmp_path / "root"), "--name", "kept"]
    died = subprocess.run(command, env={**os.environ, VARIABLE: f"{step}:2"}, check=False)
    assert died.returncode == -9
    everything = segment_bytes(source.stream)
    source.write(8)
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    everything |= segment_bytes(source.stream)
    assert f"next offset {source.stream.next_offset()}" in ended.stdout
    kept = resolve_stream("kept", tmp_path / "root")
    assert segment_bytes(kept) == everything and kept.segments().num_remote == len(everything) - 1


def test_messages_that_are_missing_are_named_and_passed_over_only_where_that_is_allowed(
    source: Source, tmp_path: Path, location: str
) -> None:
    source.write(10)
    kept = archived(source.stream, tmp_path, location)
    behind = kept.next_offset()
    source.write(10)
    before = read_messages(source.stream)
    source.delete_oldest(len(source.stream.segments()) - 1)
    first = source.stream.first_offset()
    with pytest.raises(OffsetOutOfRangeError, match=f"offsets {behind} to {first - 1} .*--allow-gap"):
        archived(source.stream, tmp_path, location)
    assert kept.next_offset() == behind
    archived(source.stream, tmp_path, location, allow_gap=True)
    assert read_messages(kept) == [each for each in before if not behind <= each[0] < first]
    assert kept.next_offset() == source.stream.next_offset()
    assert not [each for each in verify_stream(kept) if isinstance(each, Damage)]
    assert given_up_offsets(kept.path) == [(behind, first)]
    source.write(10)
    assert read_messages(archived(source.stream, tmp_path, location))[-10:] == read_messages(source.stream)[-10:]


def test_a_source_that_was_changed_is_noticed(source: Source, tmp_path: Path, location: str) -> None:
    source.write(11)
    kept = archived(source.stream, tmp_path, location)
    behind = kept.next_offset()
    source.close()
    shutil.rmtree(source.folder)
    other = Source(source.folder, filling=b"y")
    try:
        for parts in (10, 1, 10):
            other.write(parts)
            with pytest.raises(LogError, match="begin a new archive"):
                archived(other.stream, tmp_path, location)
        shutil.rmtree(source.folder)
        with (
            pytest.raises(StreamNotFoundError),
            opened(Stream(source.folder, None), tmp_path, location) as archiver,
        ):
            archiver.look()
    finally:
        other.close()
    assert kept.next_offset() == behind


def test_damage_in_the_source_is_not_archived(source: Source, tmp_path: Path, location: str) -> None:
    source.write(10)
    segment = source.stream.segments()[1]
    with segment.segment_path.open("r+b") as file:
        file.seek(1000)
        file.write(b"damage")
    with (
        opened(source.stream, tmp_path, location) as archiver,
        pytest.raises(CorruptChunkError, match="to archive fails its CRC"),
    ):
        copy_all(archiver)


def test_an_archive_takes_only_the_chunks_of_its_source(source: Source, tmp_path: Path, location: str) -> None:
    source.write(5)
    kept = archived(source.stream, tmp_path, location)
    with Writer.open(kept, now_ms=LATER_MS) as writer:
        with pytest.raises(StreamReadOnlyError, match="is the archive of __orders_1234567890"):
            writer.append([(b"a", None)], now_ms=LATER_MS)
        writer.store_offset("reader", 3)
        with pytest.raises(StreamReadOnlyError):
            writer.flush_offsets(now_ms=LATER_MS)
    with pytest.raises(ConfigError, match="another name"):
        archived(source.stream, tmp_path, f"{location}/other")
    other = Source(tmp_path / "rabbitmq" / "__orders_999")
    try:
        other.write(1)
        with pytest.raises(StreamExistsError, match="archive of __orders_1234567890"):
            archived(other.stream, tmp_path, location)
    finally:
        other.close()
    with pytest.raises(ConfigError, match="not RabbitMQ's"):
        archived(kept, tmp_path / "twice", location)


@pytest.mark.parametrize("follows", [True, False])
def test_storage_that_fails_does_not_end_a_follower_and_is_told_once(
    source: Source,
    tmp_path: Path,
    location: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    *,
    follows: bool,
) -> None:
    source.write(10)
    (tmp_path / "remote").touch()
    tries: list[int] = []
    times = itertools.count(LATER_MS, 10_000)

    def move_segments(stream: Stream, *, now_ms: int) -> MoveReport | None:
        tries.append(now_ms)
        return mover.move_segments(stream, now_ms=now_ms)

    monkeypatch.setattr(archive, "move_segments", move_segments)
    with opened(source.stream, tmp_path, location) as archiver:
        copy_all(archiver)

        def has_failed() -> bool:
            archiver.move(now_ms=next(times), warns=follows)
            return len(tries) > 3

        eventually(has_failed)
        assert caplog.text.count("segments stay here") == follows
        with pytest.raises(RemoteStorageError):
            archiver.finish(now_ms=LATER_MS)
        (tmp_path / "remote").unlink()
        source.write(10)
        copy_all(archiver)
        archiver.finish(now_ms=LATER_MS)
        assert archiver.report.moved == len(source.stream.segments()) - 1
    assert segment_bytes(Stream.open(tmp_path / "archive")) == segment_bytes(source.stream)
