"""Writes that fail: full disks, read-only file systems, failing flushes, a second writer. The stream stays readable."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chunks import encode_chunk
from headgate.errors import LogError, StorageFullError, StreamLockedError, StreamNotFoundError, StreamReadOnlyError
from headgate.log import Durability, Stream, StreamArguments, Writer
from headgate.log.files import replace_file
from headgate.log.lock import StreamLock
from headgate.log.tracking import read_tracking
from headgate.log.tracking_records import TrackingKind, TrackingRecord, encode_records
from log_streams import FailingFiles, Killed, abandon, chunk_ids, file_bytes, quick_folder, read_messages

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_disk() -> FailingFiles:
    return FailingFiles(FULL)


def stream_of(tmp_path: Path, **arguments: int) -> Stream:
    return Stream.create(tmp_path / "s", name="s", now_ms=0, arguments=StreamArguments(**arguments))


def bodies(stream: Stream) -> list[bytes]:
    return [body for _, body in read_messages(stream)]


# a write may fail at every byte

NEW = [b"new-0", b"new-1", b"new-2"]


def steps(writer: Writer) -> None:
    """Three chunks with a sequence each, as far as they are not there yet; the first one opens a new segment."""
    writer.store_offset("group", 1)
    last = writer.last_sequence("p")
    assert last is not None
    chunks = [
        encode_chunk(
            [NEW[number]],
            [b"v"],
            filter_size_bytes=16,
            trailer=encode_records([TrackingRecord(TrackingKind.SEQUENCE, b"p", 10 + number)]),
        )
        for number in range(max(0, last - 9), 3)
    ]
    data = np.frombuffer(bytearray(b"".join(chunks)), dtype=np.uint8)
    sizes = np.array([len(chunk) for chunk in chunks], dtype=np.int64)
    writer.append_chunks(data, np.cumsum(sizes) - sizes, now_ms=5)


@pytest.fixture
def full_segment(tmp_path: Path) -> Stream:
    """A stream whose segment is full: the next append rolls and begins with a snapshot."""
    stream = Stream.create(tmp_path / "full", name="s", now_ms=0, arguments=StreamArguments(max_segment_size_bytes=250))
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(b"old-0", None)], now_ms=0, publisher="p", sequences=[1])
        writer.append([(b"old-1" + bytes(120), None)], now_ms=0, publisher="p", sequences=[2])
    return stream


def copies(stream: Stream) -> Iterator[tuple[int, Stream]]:
    """For each byte that `steps` writes, a copy of the stream to fail in."""
    with quick_folder() as folder:
        yield from _copies_in(Path(folder), stream)


def _copies_in(parent: Path, stream: Stream) -> Iterator[tuple[int, Stream]]:
    files = full_disk()
    measured = Stream.open(shutil.copytree(stream.path, parent / "measured"))
    with Writer.open(measured, now_ms=0, open_file=files) as writer:
        steps(writer)
    assert len(measured.segments()) == 3
    assert files.written > 500
    for budget in range(files.written):
        folder = shutil.copytree(stream.path, parent / "copy")
        yield budget, Stream.open(folder)
        shutil.rmtree(folder)


def words(stream: Stream) -> list[bytes]:
    return [body[:5] for body in bodies(stream)]


def test_a_disk_that_is_full_at_any_byte_leaves_what_was_confirmed_and_a_writer_that_goes_on(
    full_segment: Stream,
) -> None:
    for budget, stream in copies(full_segment):
        files = full_disk()
        with Writer.open(stream, now_ms=0, open_file=files) as writer:
            files.budget = budget
            seen: list[list[bytes]] = []
            files.on_failure = lambda seen=seen, stream=stream: seen.append(words(stream))  # type: ignore[misc]
            with pytest.raises(StorageFullError, match="no room for more bytes"):
                steps(writer)
            found = words(stream)
            assert found == [b"old-0", b"old-1", *NEW][: max(2, len(found))]
            # What a reader may have seen is not taken back, what it cannot have seen is.
            assert [found] == seen
            newest = stream.segments()[-1]
            with newest.open() as reader:
                assert newest.segment_path.stat().st_size == reader.stop_position
                assert newest.index_path.stat().st_size == 8 + 29 * len(reader.chunks())
            files.budget = None
            steps(writer)
            assert words(stream) == [b"old-0", b"old-1", *NEW]
            writer.flush_offsets(now_ms=6)
        state = read_tracking(stream)
        assert state.sequences[b"p"][1] == 12
        assert state.offsets == {b"group": 1}


def test_a_snapshot_that_did_not_fit_is_written_before_anything_else(full_segment: Stream) -> None:
    files = full_disk()
    with Writer.open(full_segment, now_ms=0, open_file=files) as writer:
        files.budget = files.written + 2 * 8 + 30
        with pytest.raises(StorageFullError):
            writer.append([(b"m", None)], now_ms=0)
        assert len(full_segment.segments()) == 2
        files.budget = None
        writer.append([(b"m", None)], now_ms=0)
    with Writer.open(full_segment, now_ms=0) as writer:
        assert writer.last_sequence("p") == 2


def test_a_process_that_dies_at_any_byte_loses_and_doubles_nothing(full_segment: Stream) -> None:
    for budget, stream in copies(full_segment):
        files = FailingFiles(Killed())
        writer = Writer.open(stream, now_ms=0, open_file=files)
        files.budget = budget
        with pytest.raises(Killed):
            steps(writer)
        abandon(writer)
        # A reader of the folder as the dead writer left it sees whole chunks only.
        seen = words(stream)
        assert seen == [b"old-0", b"old-1", *NEW][: max(2, len(seen))]
        with Writer.open(stream, now_ms=0) as writer:
            assert words(stream) == seen
            assert writer.last_sequence("p") == (2 if len(seen) == 2 else 7 + len(seen))
            steps(writer)
        assert words(stream) == [b"old-0", b"old-1", *NEW]
        offsets = [offset for offset, _ in read_messages(stream)]
        assert offsets == sorted(set(offsets))


def test_a_disk_too_full_for_a_declaration_or_a_setting_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0, filter_source="properties.subject")
    with Writer.open(stream, now_ms=0) as writer:
        before = (stream.path / "stream.json").read_bytes()
        fail_calls(monkeypatch, "fsync", FULL)
        with pytest.raises(StorageFullError):
            writer.record_sequence("query", 1)
        with pytest.raises(StorageFullError):
            writer.append([(b"m", b"v")], now_ms=0, filter_source="properties.subject")
        monkeypatch.undo()
        assert (stream.path / "stream.json").read_bytes() == before
        assert chunk_ids(stream) == []
        assert not [name for name in os.listdir(stream.path) if name.endswith(".new")]
        writer.append([(b"m", b"v")], now_ms=0, filter_source="properties.subject")
    assert bodies(stream) == [b"m"]


@pytest.mark.parametrize("failing", ["mkdir", "open", "write", "fsync", "replace", "second replace", *range(16)])
def test_a_stream_is_created_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str | int
) -> None:
    files, calls = full_disk(), 0
    rename = os.replace

    def second_fails(source: Path, target: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise FULL
        rename(source, target)

    if isinstance(failing, int):
        # The bytes of both heads.
        files.budget = failing
    elif failing == "second replace":
        monkeypatch.setattr(os, "replace", second_fails)
    else:
        fail_calls(monkeypatch, failing, FULL)
    with pytest.raises(StorageFullError):
        Stream.create(tmp_path / "s", name="s", now_ms=0, open_file=files)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []
    assert stream_of(tmp_path).next_offset() == 0


def test_who_waited_for_a_stream_that_was_deleted_writes_none(tmp_path: Path) -> None:
    stream = stream_of(tmp_path)
    first = Writer.open(stream, now_ms=0)

    def deleted_meanwhile(_tries: int) -> bool:
        shutil.rmtree(stream.path)
        first.close()
        return True

    with pytest.raises(StreamNotFoundError, match="its folder is gone"):
        Writer.open(stream, now_ms=0, wait=deleted_meanwhile)


def test_who_waited_for_a_stream_that_was_made_again_holds_the_lock_of_the_new_one(tmp_path: Path) -> None:
    stream = stream_of(tmp_path)
    first = Writer.open(stream, now_ms=0)

    def made_again_meanwhile(_tries: int) -> bool:
        shutil.rmtree(stream.path)
        first.close()
        stream_of(tmp_path)
        return True

    with (
        StreamLock.acquire(stream.path, now_ms=0, wait=made_again_meanwhile),
        pytest.raises(StreamLockedError),
    ):
        Writer.open(Stream.open(stream.path), now_ms=0)


def fail_calls(monkeypatch: pytest.MonkeyPatch, name: str, error: OSError) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(os, name, fail)


def test_a_failed_flush_ends_the_writer_and_recovery_goes_on(tmp_path: Path) -> None:
    stream = stream_of(tmp_path)
    files = FailingFiles(OSError(errno.EIO, os.strerror(errno.EIO)))
    with Writer.open(stream, now_ms=0, durability=Durability.DISK, open_file=files) as writer:
        writer.append([(b"one", None)], now_ms=0)
        files.fail_sync = True
        with pytest.raises(LogError, match="writing failed"):
            writer.append([(b"two", None)], now_ms=0)
        assert bodies(stream) == [b"one"]
        files.fail_sync = False
        with pytest.raises(LogError, match="open a new writer"):
            writer.append([(b"two", None)], now_ms=0)
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(b"three", None)], now_ms=0)
    assert bodies(stream) == [b"one", b"three"]


def test_a_write_that_cannot_be_taken_back_ends_the_writer_and_recovery_goes_on(tmp_path: Path) -> None:
    stream = stream_of(tmp_path)
    files = full_disk()
    with Writer.open(stream, now_ms=0, open_file=files) as writer:
        writer.append([(b"one", None)], now_ms=0)
        files.budget, files.fail_truncate = files.written + 20, True
        with pytest.raises(StorageFullError):
            writer.append([(b"two", None)], now_ms=0)
        files.budget, files.fail_truncate = None, False
        with pytest.raises(LogError, match="open a new writer"):
            writer.append([(b"two", None)], now_ms=0)
        assert bodies(stream) == [b"one"]
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(b"three", None)], now_ms=0)
    assert bodies(stream) == [b"one", b"three"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EFBIG, errno.EDQUOT])
def test_every_way_of_being_full_is_storage_full(tmp_path: Path, code: int) -> None:
    stream = stream_of(tmp_path)
    files = FailingFiles(OSError(code, os.strerror(code)))
    with Writer.open(stream, now_ms=0, open_file=files) as writer:
        files.budget = 0
        with pytest.raises(StorageFullError) as caught:
            writer.append([(b"m", None)], now_ms=0)
    assert caught.value.path == stream.segments()[0].segment_path


LIMITED_WRITER = """
import resource, signal, sys
from headgate.errors import StorageFullError
from headgate.log import Stream, Writer

stream = Stream.open(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with Writer.open(stream, now_ms=0) as writer:
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
    confirmed = 0
    try:
        while confirmed < 1000:
            writer.append([(b"m%d" % confirmed + bytes(1000), None)], now_ms=0)
            confirmed += 1
    except StorageFullError as error:
        print("full:", error.reason)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(confirmed, writer.append([(b"after", None)], now_ms=0).offsets().tolist())
"""


def test_a_file_size_limit_of_the_system_is_a_clear_error_and_appending_goes_on_behind_it(tmp_path: Path) -> None:
    stream = stream_of(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED_WRITER, str(stream.path)], capture_output=True, text=True, check=True
    )
    full, last = done.stdout.splitlines()
    assert full.startswith("full: no room for more bytes")
    found = read_messages(stream)
    assert last == f"{len(found) - 1} [{len(found) - 1}]"
    assert 20 < len(found) < 60
    assert found[-1] == (len(found) - 1, b"after")


# read-only places


def test_a_read_only_file_system_is_a_clear_error_and_reading_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stream_of(tmp_path)
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(b"m", None)], now_ms=0)
    before = file_bytes(stream.path)
    real_open = os.open

    def refuse_writing(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return real_open(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", refuse_writing)
    with pytest.raises(StreamReadOnlyError, match="cannot be written"):
        Writer.open(stream, now_ms=0)
    fail_calls(monkeypatch, "mkdir", OSError(errno.EROFS, os.strerror(errno.EROFS)))
    with pytest.raises(StreamReadOnlyError, match="cannot be written"):
        Stream.create(tmp_path / "other", name="other", now_ms=0)
    with pytest.raises(StreamReadOnlyError):
        replace_file(tmp_path / "file", b"x")
    assert bodies(Stream.open(stream.path)) == [b"m"]
    monkeypatch.undo()
    assert file_bytes(stream.path) == before


def test_a_file_system_that_turns_read_only_is_a_clear_error(tmp_path: Path) -> None:
    stream = stream_of(tmp_path)
    files = FailingFiles(OSError(errno.EROFS, os.strerror(errno.EROFS)))
    with Writer.open(stream, now_ms=0, open_file=files) as writer:
        writer.append([(b"m", None)], now_ms=0)
        files.budget = 0
        with pytest.raises(StreamReadOnlyError):
            writer.append([(b"n", None)], now_ms=0)
    assert bodies(stream) == [b"m"]


@pytest.mark.parametrize("call", ["ftruncate", "unlink"])
def test_recovery_that_may_not_write_is_a_clear_error(
    full_segment: Stream, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    stream = full_segment
    if call == "unlink":
        os.truncate(stream.path / f"{0:020d}.index", 0)
        (stream.path / ".x.new").write_bytes(b"")
    else:
        with open(stream.path / f"{0:020d}.index", "ab") as index:
            index.write(b"half a record")
    fail_calls(monkeypatch, call, OSError(errno.EROFS, os.strerror(errno.EROFS)))
    with pytest.raises(StreamReadOnlyError):
        Writer.open(stream, now_ms=0)
    monkeypatch.undo()
    Writer.open(stream, now_ms=0).close()


# the lock

HOLDER = """
import sys
from headgate.log import Stream, Writer

with Writer.open(Stream.open(sys.argv[1]), now_ms=1_700_000_000_123):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_writer_is_told_who_holds_the_stream_and_gets_it_when_the_holder_dies(tmp_path: Path) -> None:
    stream = stream_of(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(stream.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StreamLockedError, match=rf"process {holder.pid} on .*since 2023-11-14T22:13:20Z"):
            Writer.open(stream, now_ms=0)
        assert bodies(stream) == []
        tries = []

        def until_it_died(tried: int) -> bool:
            tries.append(tried)
            if tried == 3:
                holder.kill()
                holder.wait()
            return True

        with Writer.open(stream, now_ms=0, wait=until_it_died) as writer:
            writer.append([(b"mine", None)], now_ms=0)
    assert tries == [1, 2, 3]
    assert bodies(stream) == [b"mine"]


def test_a_writer_that_waits_gives_up_when_it_is_told_to(tmp_path: Path) -> None:
    stream = stream_of(tmp_path)
    tries = []
    with Writer.open(stream, now_ms=0), pytest.raises(StreamLockedError):
        Writer.open(stream, now_ms=0, wait=lambda tried: tries.append(tried) or tried < 4)
    assert tries == [1, 2, 3, 4]


def test_a_second_writer_in_the_same_process_is_refused_too(tmp_path: Path) -> None:
    stream = stream_of(tmp_path)
    with Writer.open(stream, now_ms=0):
        with pytest.raises(StreamLockedError, match=f"process {os.getpid()}"):
            Writer.open(stream, now_ms=0)
        (stream.path / "writer.lock").write_bytes(b"no json")
        with pytest.raises(StreamLockedError, match="an unknown process"):
            Writer.open(stream, now_ms=0)
    Writer.open(stream, now_ms=0).close()


def test_a_writer_that_cannot_start_gives_the_lock_back(tmp_path: Path) -> None:
    stream = stream_of(tmp_path)
    files = full_disk()

    def refuse(path: Path) -> Any:
        raise FULL

    with pytest.raises(StorageFullError):
        Writer.open(stream, now_ms=0, open_file=refuse)
    Writer.open(stream, now_ms=0, open_file=files).close()


def test_a_stream_that_was_deleted_since_it_was_opened_is_not_there(tmp_path: Path) -> None:
    stream = stream_of(tmp_path)
    shutil.rmtree(stream.path)
    with pytest.raises(StreamNotFoundError, match="folder is gone"):
        Writer.open(stream, now_ms=0)
    assert not stream.path.exists()
