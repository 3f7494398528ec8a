"""Segments that moved to object storage: the same stream for readers, writers, retention and limits."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headgate.errors import ConfigError, CorruptChunkError, LogError, OffsetOutOfRangeError, RemoteStorageError
from headgate.log import OffsetSpecification, Pin, Segment, Stream, StreamArguments, Writer, pinned_bytes, stream_info
from headgate.log.format import SLACK_BYTES
from headgate.log.inspection import Damage, verify_stream
from headgate.log.remote import cache, partial_file, storage
from headgate.log.remote.cache import sweep_cache
from headgate.log.remote.catalogue import CATALOGUE_NAME, load_catalogue
from headgate.log.remote.mover import delete_remote, move_segments, unmoved_bytes
from headgate.log.seal import seal_of
from headgate.scan import Cursor, ScanRequest
from log_streams import read_messages

SEGMENT_BYTES = 8192
LATER_MS = 10**12


@pytest.fixture
def location(tmp_path: Path) -> str:
    return f"file://{tmp_path}/remote"


def new_writer(folder: Path, location: str | None, *, parts: int = 40, **arguments: Any) -> Writer:
    """A stream of some ten segments: ten messages of 100 bytes a chunk, one chunk a second."""
    chosen = StreamArguments(max_segment_size_bytes=SEGMENT_BYTES, remote=location, **arguments)
    writer = Writer.open(Stream.create(folder, name="orders/eu é", now_ms=0, arguments=chosen), now_ms=0)
    for part in range(parts):
        messages = [(f"{part}/{number}".encode().ljust(200, b"x"), b"v%d" % part) for number in range(10)]
        writer.append(messages, now_ms=1000 * part)
    return writer


def moved(writer: Writer, *, now_ms: int = LATER_MS) -> int:
    """Move what is due, and let the local files go; the number of segments that are only in object storage."""
    assert move_segments(writer.stream, now_ms=now_ms) is not None
    writer.release_local()
    return writer.stream.segments().num_remote


def files_of(folder: Path, suffix: str) -> list[str]:
    return sorted(path.name for path in folder.glob(f"*{suffix}"))


def test_messages_offsets_and_times_are_the_same_before_and_after_a_move(tmp_path: Path, location: str) -> None:
    with new_writer(tmp_path / "s", location) as writer:
        stream = writer.stream
        before, count = read_messages(stream), len(stream.segments())
        places = [OffsetSpecification.first(), OffsetSpecification.last(), OffsetSpecification.next()]
        places += [OffsetSpecification.offset(offset) for offset in range(0, 410, 7)]
        places += [OffsetSpecification.timestamp(time_ms) for time_ms in range(-500, 41_000, 700)]
        found = [stream.offset_of(place, now_ms=0) for place in places]
        assert count > 5 and moved(writer) == count - 1
        assert files_of(tmp_path / "s", ".segment") == [stream.segments()[-1].segment_path.name]
        assert read_messages(stream) == before
        assert [stream.offset_of(place, now_ms=0) for place in places] == found
        assert (stream.first_offset(), writer.first_offset) == (0, 0)
        assert not [each for each in verify_stream(stream) if isinstance(each, Damage)]
        assert stream_info(stream).num_messages == 400
        writer.append([(b"one more", None)], now_ms=99_000)
        assert read_messages(stream) == [*before, (writer.next_offset - 1, b"one more")]
    with Writer.open(stream, now_ms=0) as writer:
        assert (writer.first_offset, writer.next_offset) == (0, read_messages(stream)[-1][0] + 1)


def test_only_the_blocks_that_are_read_are_fetched(
    tmp_path: Path, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_writer(tmp_path / "s", location) as writer:
        moved(writer)
        segment = writer.stream.segments()[1]
        fetched: list[int] = []
        read = partial_file.PartialFile._fetch_run

        def noted(self: partial_file.PartialFile, first: int, stop: int) -> None:
            fetched.extend(range(first, stop))
            read(self, first, stop)

        monkeypatch.setattr(partial_file.PartialFile, "_fetch_run", noted)
        with segment.open() as reader:
            # Finding places and skipping chunks needs the summary only.
            assert reader.headers(0, len(reader.chunks())).num_records.sum() == reader.next_chunk_id - 40 * 1
            assert not fetched
            position, stop = int(reader.chunks().position[1]), int(reader.chunks().position[2])
            reader.read(position, stop)
            assert sorted(set(fetched)) == list(range(position // 1024, -(-stop // 1024)))
            fetched.clear()
            reader.read(position, stop)
            assert not fetched


def test_segments_that_are_young_stay_and_some_bytes_stay_here_as_well(tmp_path: Path, location: str) -> None:
    with new_writer(tmp_path / "s", location, remote_after_ms=20_000, local_bytes=2 * SEGMENT_BYTES + 4096) as writer:
        count = len(writer.stream.segments())
        assert moved(writer, now_ms=39_000) < count // 2
        waiting = unmoved_bytes(writer.stream)
        assert waiting > 2 * SEGMENT_BYTES
        assert moved(writer) == count - 3
        assert unmoved_bytes(writer.stream) == 0
        catalogue = load_catalogue(tmp_path / "s")
        assert catalogue is not None and len(catalogue) == count - 1
        assert len(read_messages(writer.stream)) == 400


def test_the_numbers_of_a_stream_come_from_its_catalogue(tmp_path: Path, location: str) -> None:
    with new_writer(tmp_path / "s", location) as writer:
        before = stream_info(writer.stream).facts()
        moved(writer)
        (tmp_path / "remote").rename(tmp_path / "away")
        info = stream_info(writer.stream)
        assert info.size_bytes == writer.stream.segments().size_bytes()
        assert info.size_bytes == sum(segment.size_bytes() for segment in writer.stream.segments())
        others = ("size_bytes", "chunks", "remote_segments", "remote_bytes", "unmoved_bytes")
        assert {name: value for name, value in info.facts().items() if name not in others} == {
            name: value for name, value in before.items() if name not in others
        }
        assert info.facts()["chunks"] is None


def test_limits_reach_into_object_storage_up_to_the_pin(tmp_path: Path, location: str) -> None:
    with new_writer(tmp_path / "s", location) as writer:
        moved(writer)
        writer.pin(Pin(150, 1 << 40))
        before = dict(read_messages(writer.stream))
        assert pinned_bytes(writer.stream, Pin(0, 1 << 40)) > 80_000
        limits = msgspec.structs.replace(writer.settings.arguments, max_length_bytes=3 * SEGMENT_BYTES)
        writer.change(now_ms=LATER_MS, arguments=limits)
        moved(writer)
        kept = read_messages(writer.stream)
        assert kept[0][0] <= 150 < kept[40][0] and writer.first_offset == kept[0][0]
        writer.pin(None)
        moved(writer)
        kept = read_messages(writer.stream)
        assert 40 < len(kept) < 120 and dict(kept).items() <= before.items()
        objects = files_of(tmp_path / "remote" / "orders%2Feu%20%C3%A9", ".segment")
        assert len(objects) == writer.stream.segments().num_remote


def test_times_of_messages_in_the_folder_are_found_without_the_storage(tmp_path: Path, location: str) -> None:
    times = range(0, 50_000, 500)
    with new_writer(tmp_path / "s", location) as writer:
        expected = [writer.stream.offset_of(OffsetSpecification.timestamp(each), now_ms=0) for each in times]
        moved(writer, now_ms=20_000)
        shutil.rmtree(tmp_path / "remote")
        here = writer.stream.segments().here()[0].first_chunk_id
        found = [writer.stream.offset_here_since(each) for each in times]
        assert found == [max(each, here) for each in expected]


def test_messages_that_age_are_deleted_in_object_storage(tmp_path: Path, location: str) -> None:
    with new_writer(tmp_path / "s", location, max_age_ms=10**11) as writer:
        moved(writer, now_ms=40_000)
        move_segments(writer.stream, now_ms=10**11 + 20_000)
        first = writer.first_offset
        assert 150 < first <= 210 and read_messages(writer.stream)[0][0] == first


def test_retention_in_the_folder_takes_what_is_older_in_object_storage_with_it(tmp_path: Path, location: str) -> None:
    with new_writer(tmp_path / "s", location, local_bytes=1 << 30) as writer:
        move_segments(writer.stream, now_ms=20_000)
        limits = msgspec.structs.replace(writer.settings.arguments, max_length_bytes=SEGMENT_BYTES)
        writer.change(now_ms=LATER_MS, arguments=limits)
        first = writer.first_offset
        assert first > 300 and read_messages(writer.stream)[0][0] == first
        move_segments(writer.stream, now_ms=LATER_MS)
        assert writer.stream.segments().num_remote == 0 and writer.first_offset == first


def test_offsets_of_consumers_in_remote_segments_are_remembered(tmp_path: Path, location: str) -> None:
    with new_writer(tmp_path / "s", location, parts=4) as writer:
        writer.store_offset("reader", 5)
        for part in range(40):
            writer.append([(b"x" * 2000, None)] * 3, now_ms=50_000 + part)
            moved(writer)
        assert writer.stream.segments().num_remote > 8
    with Writer.open(writer.stream, now_ms=0) as writer:
        assert writer.stored_offset("reader") == 5


def test_a_reader_that_is_open_goes_on_after_the_cache_was_emptied(
    tmp_path: Path, location: str, own_cache: Path
) -> None:
    with new_writer(tmp_path / "s", location) as writer:
        before = read_messages(writer.stream)
        moved(writer)
        segment = writer.stream.segments()[0]
        with segment.open() as reader:
            stop = int(reader.chunks().position[1])
            first, seal = reader.read(8, stop).tobytes(), seal_of(reader).encode()
            assert sweep_cache(own_cache, most_bytes=0) > 0 and not segment.segment_path.exists()
            assert seal_of(reader).encode() == seal
            assert reader.read(8, reader.stop_position)[: len(first) - 8].tobytes() == first[:-8]
        assert read_messages(writer.stream) == before


def test_a_reader_whose_files_others_make_anew_closes_only_its_own(tmp_path: Path, location: str) -> None:
    with new_writer(tmp_path / "s", location) as writer:
        assert moved(writer) > 0
        segment = writer.stream.segments()[0]
        assert segment.remote is not None
        with segment.open() as reader:
            segment.remote.forget()
            with segment.open() as other:
                assert len(other.chunks()) == len(reader.chunks())
            # A descriptor that was closed before is an error here, or the file of somebody else.


def test_the_cache_keeps_the_segments_that_were_opened_last(tmp_path: Path, location: str, own_cache: Path) -> None:
    with new_writer(tmp_path / "s", location) as writer:
        moved(writer)
        segments = writer.stream.segments()[:-1]
        for number, segment in enumerate(segments):
            with segment.open() as reader:
                reader.make_present(0, reader.stop_position)
            os.utime(segment.segment_path.parent, (number, number))
        size = sum(path.stat().st_blocks * 512 for path in own_cache.glob("*/*/*"))
        assert sweep_cache(own_cache, most_bytes=size) == 0
        sweep_cache(own_cache, most_bytes=size // 2)
        there = [segment.segment_path.exists() for segment in segments]
        assert there == sorted(there) and 0 < sum(there) < len(segments) // 2 + 1


def test_a_cache_that_others_may_write_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADGATE_REMOTE_CACHE", "HEADGATE_CACHE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cache.cache_folder.cache_clear()
    found = cache.cache_folder()
    assert found.parent.parent == tmp_path
    found.parent.chmod(0o777)
    cache.cache_folder.cache_clear()
    with pytest.raises(ConfigError, match="HEADGATE_REMOTE_CACHE"):
        cache.cache_folder()


def test_a_segment_travels_without_secrets_to_readers_without_its_folder(
    tmp_path: Path, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-of-somebody")
    with new_writer(tmp_path / "s", location) as writer:
        moved(writer)
        segment = writer.stream.segments()[2]
        with segment.open() as reader:
            content = reader.read(8, reader.stop_position)[:-SLACK_BYTES].tobytes()
        sent = pickle.dumps(segment)
        assert b"a-secret-of-somebody" not in sent
        shutil.rmtree(tmp_path / "s")
        monkeypatch.setenv("HEADGATE_REMOTE_CACHE", str(tmp_path / "other"))
        cache.cache_folder.cache_clear()
        received: Segment = pickle.loads(sent)
        with received.open() as reader:
            assert reader.read(8, reader.stop_position)[:-SLACK_BYTES].tobytes() == content


def test_a_damaged_segment_is_not_moved(tmp_path: Path, location: str) -> None:
    with new_writer(tmp_path / "s", location) as writer:
        path = writer.stream.segments()[1].segment_path
        raw = bytearray(path.read_bytes())
        raw[4000] ^= 1
        path.write_bytes(raw)
        with pytest.raises(CorruptChunkError, match="fails its CRC; the segment is not moved"):
            move_segments(writer.stream, now_ms=LATER_MS)
        assert writer.release_local() == 1 and path.exists()


def test_damage_in_object_storage_is_found_by_verify_and_by_readers(tmp_path: Path, location: str) -> None:
    with new_writer(tmp_path / "s", location) as writer:
        moved(writer)
        folder = tmp_path / "remote" / "orders%2Feu%20%C3%A9"
        path = folder / files_of(folder, ".segment")[1]
        raw = bytearray(path.read_bytes())
        raw[4000] ^= 1
        path.write_bytes(raw)
        found = [each for each in verify_stream(writer.stream) if isinstance(each, Damage)]
        assert [str(each) for each in found] == [f"file://{path}, byte 2112: data of chunk 50 fails its CRC"]
        writer.stream.segments()[1].remote.forget()  # type: ignore[union-attr]
        with Cursor(writer.stream, ScanRequest(), start=OffsetSpecification.offset(50), now_ms=0) as cursor:
            named = f"^file://{path}, byte 2112: checksum of chunk 50"
            with pytest.raises(CorruptChunkError, match=named):
                cursor.read(0)
        other = folder / files_of(folder, ".segment")[3]
        whole = other.read_bytes()
        other.write_bytes(whole[:3])
        path.unlink()
        found = [each for each in verify_stream(writer.stream) if isinstance(each, Damage)]
        assert [each.path_text for each in found] == [f"file://{path}", f"file://{other}"]
        assert "the object is gone" in found[0].reason and "3 bytes, the catalogue says" in found[1].reason
        other.write_bytes(whole)
        writer.stream.segments()[1].remote.forget()  # type: ignore[union-attr]
        with pytest.raises(OffsetOutOfRangeError, match="the object is gone"):
            read_messages(writer.stream)
        summary = folder / files_of(folder, ".summary")[2]
        summary.write_bytes(summary.read_bytes()[:-5])
        segment = writer.stream.segments()[2]
        segment.remote.forget()  # type: ignore[union-attr]
        with pytest.raises(LogError, match="ends inside an area"):
            segment.open()


def test_a_catalogue_that_is_gone_or_damaged_is_an_error_and_comes_back_from_its_copy(
    tmp_path: Path, location: str
) -> None:
    with new_writer(tmp_path / "s", location) as writer:
        moved(writer)
        before = read_messages(writer.stream)
        path = tmp_path / "s" / CATALOGUE_NAME
        raw = path.read_bytes()
        path.write_bytes(raw[:100] + b"?" + raw[101:])
        with pytest.raises(LogError, match=f"{CATALOGUE_NAME}: no catalogue"):
            writer.stream.segments()
        path.unlink()
        with pytest.raises(LogError, match="headgate stream move fetches its copy"):
            writer.stream.segments()
        move_segments(writer.stream, now_ms=LATER_MS)
        assert read_messages(writer.stream) == before


def test_the_place_of_another_stream_is_not_taken(tmp_path: Path, location: str) -> None:
    with new_writer(tmp_path / "s", location) as writer, new_writer(tmp_path / "t", location) as other:
        moved(writer)
        before = read_messages(writer.stream)
        with pytest.raises(LogError, match=f"another stream, with the identity {writer.settings.identity}"):
            move_segments(other.stream, now_ms=LATER_MS)
        delete_remote(other.stream)
        assert read_messages(writer.stream) == before
        delete_remote(writer.stream)
        assert not files_of(tmp_path / "remote" / "orders%2Feu%20%C3%A9", "")
        moved(other)
        assert len(read_messages(other.stream)) == 400


def test_the_folder_of_the_stream_is_no_place_for_its_objects(tmp_path: Path) -> None:
    """Segments that moved are deleted there."""
    own, folder = f"file://{tmp_path}/streams", tmp_path / "streams" / "orders%2Feu%20%C3%A9"
    with pytest.raises(ConfigError, match="in its own folder"):
        new_writer(folder, own)
    with new_writer(folder, f"file://{tmp_path}/link") as writer:
        with pytest.raises(ConfigError, match="in its own folder"):
            writer.change(now_ms=0, arguments=msgspec.structs.replace(writer.settings.arguments, remote=own))
        (tmp_path / "link").symlink_to("streams")
        with pytest.raises(ConfigError, match="in its own folder"):
            move_segments(writer.stream, now_ms=LATER_MS)
        assert len(read_messages(writer.stream)) == 400


def test_a_remote_with_segments_in_it_cannot_be_changed(tmp_path: Path, location: str) -> None:
    with new_writer(tmp_path / "s", None) as writer:
        with pytest.raises(ConfigError, match="has no remote"):
            move_segments(writer.stream, now_ms=LATER_MS)
        arguments = msgspec.structs.replace(writer.settings.arguments, remote=location)
        writer.change(now_ms=0, arguments=arguments)
        writer.change(now_ms=0, arguments=msgspec.structs.replace(arguments, remote=f"{location}2"))
        writer.change(now_ms=0, arguments=arguments)
        moved(writer)
        for other in (None, f"{location}2"):
            with pytest.raises(ConfigError, match="where no reader would look for them"):
                writer.change(now_ms=0, arguments=msgspec.structs.replace(arguments, remote=other))
        assert len(read_messages(writer.stream)) == 400


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"remote": "bucket/prefix"}, "expected a URI"),
        ({"remote": "s3://key:secret@bucket/prefix"}, "has a secret in it"),
        ({"remote": "s3://bucket/prefix?secret_key=x"}, "has a secret in it"),
        ({"remote": "gopher://bucket/prefix"}, "gopher"),
        ({"remote_after_ms": 5}, "without remote"),
        ({"local_bytes": 5}, "without remote"),
        ({"remote": "file:///remote", "local_bytes": -5}, "expected 0 or more"),
    ],
)
def test_a_place_that_cannot_be_is_refused(tmp_path: Path, arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Stream.create(tmp_path / "s", name="s", now_ms=0, arguments=StreamArguments(**arguments))


def test_a_place_on_hdfs_without_its_libraries_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_HOME", "HADOOP_HOME", "ARROW_LIBHDFS_DIR"):
        monkeypatch.setenv(name, "/nowhere")
    with pytest.raises(ConfigError) as caught:
        storage.check_location("hdfs://nowhere:8020/prefix")
    assert "hdfs://nowhere:8020/prefix: HDFS needs " in str(caught.value) and "\n" not in str(caught.value)


def test_azure_without_credentials_is_an_error_before_an_object_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening one then ends the process, in pyarrow 26."""
    asked: list[str] = []

    class Azure:
        """As pyarrow's file system, which raises no OSError."""

        def __getattr__(self, name: str) -> Callable[..., object]:
            def call(*_: object, **__: object) -> object:
                asked.append(name)
                raise pa.ArrowException("Unknown error: …AuthenticationExceptionE: Failed to get token")

            return call

    files = storage._AzureFiles(Azure())
    monkeypatch.setattr(storage, "_file_system", lambda *_: (files, "container/prefix"))
    there = storage.ObjectStorage("abfs://container@account.dfs.core.windows.net/prefix")
    (tmp_path / "file").touch()
    calls: list[Callable[[], object]] = [
        lambda: there.read("a"),
        lambda: there.open("a"),
        lambda: there.crc_of("a"),
        lambda: there.state_of("a"),
        lambda: there.write("a", b""),
        lambda: there.write_file("a", tmp_path / "file"),
        lambda: there.delete("a"),
        there.folders,
        lambda: storage.RemoteObject(there, "a", None).read(0, 1),
    ]
    for call in calls:
        with pytest.raises(RemoteStorageError, match=r"^abfs://.*: no valid credentials of Azure were found"):
            call()
    assert not [name for name in asked if name.startswith("open_input")]


def test_storage_that_cannot_be_written_leaves_everything_here(tmp_path: Path, location: str) -> None:
    (tmp_path / "remote").write_text("a file where the folder should be")
    with new_writer(tmp_path / "s", location) as writer:
        with pytest.raises(RemoteStorageError, match="file:///"):
            move_segments(writer.stream, now_ms=LATER_MS)
        assert writer.release_local() == 0 and len(read_messages(writer.stream)) == 400
