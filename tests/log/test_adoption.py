"""Large staged files become segments of their stream without being copied."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commits import DIED, NOW, Victims, flat, leftovers, logs, messages_of, new_root
from headgate.errors import CorruptChunkError, StorageFullError, StreamFullError, StreamLockedError
from headgate.log import staging, tracking
from headgate.log.adoption import StagedSegment
from headgate.log.chunk_builder import FilterValues
from headgate.log.commit import Committed, commit_batch, output_of
from headgate.log.crash_points import AdoptionStep, CommitStep
from headgate.log.files import DiskFile
from headgate.log.format import FILE_HEAD_BYTES
from headgate.log.inspection import Damage, verify_stream
from headgate.log.manifest import Commits, Manifest
from headgate.log.pin import Pin
from headgate.log.repair import repair_stream
from headgate.log.retention import pinned_bytes
from headgate.log.root import stream_folder
from headgate.log.settings import StreamArguments, load_settings
from headgate.log.staging import StagedChunks, StagedFile
from headgate.log.stream import Stream
from headgate.log.tracking import read_tracking
from headgate.log.writer import Writer
from log_streams import chunk_ids, read_messages

HEAD_BYTES = 128
"""Files from 2 KiB on become segments of 8 KiB; a head takes a snapshot of some records."""
SEGMENT_BYTES = 8192


@pytest.fixture(autouse=True)
def small_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "HEAD_BYTES", HEAD_BYTES)


@pytest.fixture(scope="module")
def victims() -> Iterator[Victims]:
    started = Victims()
    yield started
    started.close()


def part(name: str, count: int, *, size_bytes: int = 300) -> list[str]:
    """Messages of a part, three to a chunk of a kilobyte."""
    return [f"{name}/{number}-".ljust(size_bytes, "x") for number in range(count)]


OUTPUTS = {
    "a": [part("small", 2), part("large", 9), part("last", 2), part("again", 12), part("end", 1)],
    "b": [part("only", 12)],
}
BEFORE = {"a": [part("before", 2)]}


def stage(
    root: Path, messages: Sequence[str], *, query: str = "q", max_file_bytes: int = SEGMENT_BYTES
) -> list[StagedChunks]:
    bodies = [message.encode() for message in messages]
    lengths = np.array([len(body) for body in bodies], dtype=np.int64)
    file = StagedFile(
        root,
        query=query,
        name="part",
        filter_size_bytes=16,
        max_messages=3,
        max_file_bytes=max_file_bytes,
    )
    data = np.frombuffer(b"".join(bodies), dtype=np.uint8)
    file.add(data, np.cumsum(lengths) - lengths, lengths, FilterValues.same(b"x", len(bodies)))
    return list(file.finish(durable=False))


def commit(
    root: Path,
    *parts: Sequence[str],
    batch: int = 0,
    max_file_bytes: int = SEGMENT_BYTES,
    filter_source: str | None = None,
    **more: Any,
) -> Committed:
    folder = stream_folder(root, "a")
    staged = [each for messages in parts for each in stage(root, messages, max_file_bytes=max_file_bytes)]
    output = output_of(root, folder, staged, identity=Stream.open(folder).identity, filter_source=filter_source)
    return commit_batch(root, query="q", batch=batch, outputs=[output], **{"now_ms": NOW, "durable": False, **more})


def opened(root: Path, name: str = "a") -> Stream:
    return Stream.open(stream_folder(root, name))


def adopted(root: Path, name: str = "a") -> list[int]:
    """The first ids of the segments that were staged files: a long trailer behind their snapshot."""
    found = []
    for segment in opened(root, name).segments():
        with segment.open() as reader:
            if len(reader.chunks()) and reader.header(0).chunk_type == 2 and reader.header(0).trailer_length:
                found.append(segment.first_chunk_id)
    return found


def assert_sound(root: Path, name: str = "a") -> None:
    assert [found for found in verify_stream(opened(root, name)) if isinstance(found, Damage)] == []


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, victims: Victims) -> dict[str, bytes]:
    root = new_root(tmp_path_factory.mktemp("undisturbed") / "root", max_segment_size_bytes=SEGMENT_BYTES)
    assert victims.commit(root, BEFORE, query="before", head_bytes=HEAD_BYTES) == 0
    assert victims.commit(root, OUTPUTS, head_bytes=HEAD_BYTES) == 0
    assert messages_of(root, "a") == [*flat(BEFORE["a"]), *flat(OUTPUTS["a"])]
    assert messages_of(root, "b") == flat(OUTPUTS["b"])
    assert (len(adopted(root, "a")), len(adopted(root, "b"))) == (2, 1)
    assert leftovers(root) == []
    for name in ("a", "b"):
        assert_sound(root, name)
        assert list(repair_stream(opened(root, name), now_ms=NOW)) == []
    return logs(root)


STEPS = [
    *((f"{step}:{number}", (0, 0), durable) for step in AdoptionStep for number in (1, 2) for durable in (True, False)),
    *((f"{step}:3", (0, 0), False) for step in (*AdoptionStep, CommitStep.APPENDING)),
    *(("", (write, kept), False) for write in range(1, 31) for kept in (9, 1000)),
]


@pytest.mark.faults
@pytest.mark.parametrize(("crash_at", "tear", "durable"), STEPS)
def test_an_adoption_killed_at_any_step_is_finished_as_if_undisturbed(
    tmp_path: Path,
    victims: Victims,
    undisturbed: dict[str, bytes],
    crash_at: str,
    tear: tuple[int, int],
    durable: bool,
) -> None:
    root = new_root(tmp_path / "root", max_segment_size_bytes=SEGMENT_BYTES)
    assert victims.commit(root, BEFORE, query="before", head_bytes=HEAD_BYTES) == 0
    how: dict[str, Any] = {"head_bytes": HEAD_BYTES, "durable": durable}
    assert victims.commit(root, OUTPUTS, crash_at=crash_at, tear=tear, **how) == DIED
    # Whoever reads meanwhile sees a beginning of the stream.
    found = [body.decode() for _, body in read_messages(opened(root))]
    assert found == [*flat(BEFORE["a"]), *flat(OUTPUTS["a"])][: len(found)]
    assert victims.open_writers(root, head_bytes=HEAD_BYTES) == 0
    assert logs(root) == undisturbed
    assert leftovers(root) == []
    assert victims.commit(root, OUTPUTS, **how) == 0
    assert logs(root) == undisturbed
    assert leftovers(root) == []


def test_a_staged_file_ends_where_a_segment_would(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root", max_segment_size_bytes=SEGMENT_BYTES)
    messages = part("m", 63)
    staged = stage(root, messages)
    assert sum(each.messages for each in staged) == 63
    sizes = [each.head_bytes + each.size_bytes for each in staged]
    assert all(SEGMENT_BYTES <= size < SEGMENT_BYTES + 1100 for size in sizes[:-1]) and len(sizes) > 2
    commit(root, messages)
    assert messages_of(root, "a") == messages
    assert len(adopted(root)) == len(staged)
    assert_sound(root)
    # Where segments are small, a file does not become one, and holds everything.
    file = StagedFile(root, query="q", name="part", filter_size_bytes=16, max_messages=1, max_file_bytes=300)
    file.add(np.zeros(4000, np.uint8), np.arange(0, 4000, 400), np.full(10, 400))
    (whole,) = file.finish(durable=False)
    assert (whole.chunks, whole.head_bytes) == (10, 0)


def test_small_files_are_appended_except_beside_large_ones(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root", max_segment_size_bytes=4 * SEGMENT_BYTES)
    large, small = part("large", 100), part("small", 9)
    commit(root, part("first", 1), small, small)
    assert adopted(root) == []
    commit(root, large, small, batch=1, max_file_bytes=4 * SEGMENT_BYTES)
    assert len(adopted(root)) == 2
    assert messages_of(root, "a") == [*part("first", 1), *small, *small, *large, *small]


def test_what_is_left_of_a_file_whose_first_chunk_was_copied_is_a_segment_only_if_it_is_large(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root", max_segment_size_bytes=SEGMENT_BYTES)
    commit(root, part("m", 8))
    assert adopted(root) == [] and messages_of(root, "a") == part("m", 8)


def test_a_file_larger_than_a_segment_may_be_is_appended(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root", max_segment_size_bytes=SEGMENT_BYTES)
    commit(root, part("m", 63), max_file_bytes=4 * SEGMENT_BYTES)
    assert adopted(root) == [] and messages_of(root, "a") == part("m", 63)
    sizes = [segment.segment_path.stat().st_size for segment in opened(root).segments()]
    assert len(sizes) > 2 and max(sizes) < SEGMENT_BYTES + 1100


def test_the_declaration_covers_an_adopted_segment(tmp_path: Path) -> None:
    root, field = tmp_path / "root", "application_properties.region"
    arguments = StreamArguments(max_segment_size_bytes=SEGMENT_BYTES)
    folder = stream_folder(root, "a")
    Stream.create(folder, name="a", now_ms=NOW, arguments=arguments, filter_source=field)
    commit(root, part("first", 1), filter_source=field)
    commit(root, part("m", 12), batch=1, filter_source=field)
    commit(root, part("undeclared", 12), batch=2)
    found = load_settings(folder)
    assert len(adopted(root)) == 2 and found is not None
    assert [(each.field, each.start, each.stop) for each in found.declared] == [(field, 0, adopted(root)[1])]


def test_an_adopted_segment_counts_against_the_quota_of_the_writer_that_adopted_it(tmp_path: Path) -> None:
    held_bytes = 0
    for name in ("measured", "full"):
        root = new_root(tmp_path / name, max_segment_size_bytes=SEGMENT_BYTES)
        commit(root, part("before", 5))
        with Writer.open(opened(root), now_ms=NOW) as writer:
            writer.pin(Pin(0, held_bytes or 1 << 30))
            with pytest.raises(StreamLockedError):
                commit(root, part("m", 12), batch=1)
        with Writer.open(opened(root), now_ms=NOW) as writer:
            assert len(adopted(root)) == 1
            if not held_bytes:
                held_bytes = pinned_bytes(writer.stream, Pin(0, 1))
                continue
            with pytest.raises(StreamFullError):
                writer.append([(b"more", None)], now_ms=NOW)


def test_a_reader_of_the_empty_newest_segment_sees_what_is_committed(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root", max_segment_size_bytes=SEGMENT_BYTES)
    stream = opened(root)
    messages = part("m", 12)
    with stream.segments()[-1].open() as reader:
        assert len(reader.chunks()) == 0
        commit(root, messages)
        # The first chunk is in the segment that it has open, the others in the next one.
        assert len(reader.chunks(refresh=True)) == 1
        assert reader.next_chunk_id == 3
    assert adopted(root) == [3]
    assert [body.decode() for _, body in read_messages(stream)] == messages


def test_a_reader_at_the_end_follows_into_an_adopted_segment_and_behind_it(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root", max_segment_size_bytes=SEGMENT_BYTES)
    commit(root, ["first"])
    stream = opened(root)
    before = [segment.open() for segment in stream.segments()]
    assert before[-1].next_chunk_id == 1
    commit(root, part("m", 12), ["behind"], batch=1)
    (newest,) = (segment.open() for segment in stream.segments() if segment.first_chunk_id == adopted(root)[0])
    assert len(newest.chunks()) == 6
    assert newest.map_to(newest.stop_position) > 0
    commit(root, ["last"], batch=2)
    assert len(newest.chunks(refresh=True)) == 7
    assert newest.next_chunk_id == stream.next_offset()
    for reader in (*before, newest):
        reader.close()


def test_a_snapshot_larger_than_the_room_lets_the_file_be_appended(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root", max_segment_size_bytes=SEGMENT_BYTES)
    with Writer.open(opened(root), now_ms=NOW) as writer:
        for number in range(4):
            writer.append([(b"m", None)], now_ms=NOW, publisher=f"publisher-{number}", sequences=[number])
        writer.store_offset("reader", 2)
        writer.flush_offsets(now_ms=NOW)
    commit(root, part("m", 12))
    assert adopted(root) == [] and leftovers(root) == []
    assert messages_of(root, "a") == ["m"] * 4 + part("m", 12)
    found = read_tracking(opened(root))
    assert {name.decode(): last for name, (_, last) in found.sequences.items()} == {
        **{f"publisher-{number}": number for number in range(4)},
        "q": 3,
    }


def test_an_adopted_segment_keeps_publishers_and_stored_offsets(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root", max_segment_size_bytes=SEGMENT_BYTES)
    with Writer.open(opened(root), now_ms=NOW) as writer:
        writer.append([(b"m", None)], now_ms=NOW, publisher="p", sequences=[7])
        writer.store_offset("reader", 0)
        writer.flush_offsets(now_ms=NOW)
    commit(root, part("m", 12))
    assert len(adopted(root)) == 1
    with Writer.open(opened(root), now_ms=NOW) as writer:
        assert (writer.last_sequence("p"), writer.stored_offset("reader"), writer.last_sequence("q")) == (7, 0, 3)
        assert writer.append([(b"n", None)], now_ms=NOW).next_offset == writer.next_offset
    assert read_messages(opened(root))[-1][0] == writer.next_offset - 1


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_writer_forgets_with_an_adopted_segment_what_its_snapshot_leaves_out_and_nothing_if_the_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    monkeypatch.setattr(tracking, "MAX_SNAPSHOT_PUBLISHERS", 2)
    root = new_root(tmp_path / "root", max_segment_size_bytes=SEGMENT_BYTES)
    with Writer.open(opened(root), now_ms=NOW) as writer:
        # Retention drops everything before the new segment, and with it the message of the stored offset.
        writer.change(now_ms=NOW, arguments=StreamArguments(max_segment_size_bytes=SEGMENT_BYTES, max_length_bytes=1))
        for number in range(3):
            writer.append([(b"m", None)], now_ms=NOW, publisher=f"p{number}", sequences=[number])
        writer.store_offset("r", 0)
        writer.flush_offsets(now_ms=NOW)
        (staged,) = stage(root, part("m", 12))

        def elsewhere(path: Path, _target: Path) -> Any:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(path))

        def known(writer: Writer) -> list[int | None]:
            return [*(writer.last_sequence(name) for name in ("p0", "p1", "p2", "q")), writer.stored_offset("r")]

        with monkeypatch.context() as patched:
            if is_refused:
                patched.setattr(Path, "rename", elsewhere)
            is_adopted = writer.adopt(
                StagedSegment.of(root, staged), first_chunk=0, first_sequence=7, now_ms=NOW, filter_source=None
            )
        assert is_adopted is not is_refused
        found = known(writer)
    assert found == ([0, 1, 2, None, 0] if is_refused else [None, 1, 2, 10, None])
    with Writer.open(opened(root), now_ms=NOW) as writer:
        assert known(writer) == found


@pytest.mark.parametrize("failure", [errno.EXDEV, errno.EACCES])
def test_a_file_that_cannot_be_renamed_or_written_is_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: int
) -> None:
    root = new_root(tmp_path / "root", max_segment_size_bytes=SEGMENT_BYTES)
    commit(root, ["first"])

    def refused(path: Path, *_: object) -> Any:
        raise OSError(failure, os.strerror(failure), str(path))

    if failure == errno.EXDEV:
        monkeypatch.setattr(Path, "rename", refused)
        commit(root, part("m", 12), batch=1)
    else:
        commit(
            root,
            part("m", 12),
            batch=1,
            open_file=lambda path: refused(path) if path.suffix == ".chunks" else DiskFile(path),
        )
    assert adopted(root) == [] and leftovers(root) == []
    assert messages_of(root, "a") == ["first", *part("m", 12)]
    assert len(list(opened(root).path.glob("*.index"))) == len(opened(root).segments())
    assert_sound(root)


def test_a_full_disk_in_the_middle_of_an_adoption_loses_nothing(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root", max_segment_size_bytes=SEGMENT_BYTES)
    commit(root, ["first"])

    class Full(DiskFile):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            self._is_new_index = path.name.endswith("1.index")

        def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
            if self._is_new_index and position:
                super().write(memoryview(data)[:40], position)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            super().write(data, position)

    with pytest.raises(StorageFullError):
        commit(root, part("m", 12), batch=1, open_file=Full)
    assert [body.decode() for _, body in read_messages(opened(root))] == ["first", *part("m", 12)]
    Writer.open(opened(root), now_ms=NOW).close()
    assert messages_of(root, "a") == ["first", *part("m", 12)]
    assert leftovers(root) == []
    assert_sound(root)


@pytest.mark.parametrize(
    ("unstamped", "has_index", "has_head"),
    [([3], True, True), ([4], True, True), ([1, 2, 3, 4], True, False), ([1, 2], False, True)],
)
def test_what_a_power_loss_left_unstamped_is_mended(
    tmp_path: Path, unstamped: list[int], has_index: bool, has_head: bool
) -> None:
    root = new_root(tmp_path / "root", max_segment_size_bytes=SEGMENT_BYTES)
    commit(root, part("m", 15))
    stream = opened(root)
    before, newest = read_messages(stream), stream.segments()[-1]
    with newest.open() as reader:
        positions = reader.chunks().position.tolist()
    with newest.segment_path.open("r+b") as file:
        for row in unstamped:
            file.seek(positions[row] + 8)
            file.write(bytes(24))
        if not has_head:
            file.seek(0)
            file.write(bytes(HEAD_BYTES))
    if not has_index:
        os.truncate(newest.index_path, FILE_HEAD_BYTES)
    with pytest.raises(CorruptChunkError):
        Writer.open(stream, now_ms=NOW)
    assert not [found for found in repair_stream(stream, now_ms=NOW, skip_damaged=True) if "lost" in str(found)]
    Writer.open(stream, now_ms=NOW).close()
    assert read_messages(stream) == before
    assert_sound(root)


def test_retention_counts_adopted_segments(tmp_path: Path) -> None:
    root = tmp_path / "root"
    arguments = StreamArguments(max_segment_size_bytes=SEGMENT_BYTES, max_length_bytes=3 * SEGMENT_BYTES)
    stream = Stream.create(stream_folder(root, "a"), name="a", now_ms=NOW, arguments=arguments)
    for batch in range(4):
        commit(root, part(f"batch {batch}", 50), batch=batch)
        sizes = [segment.segment_path.stat().st_size for segment in stream.segments()]
        assert sum(sizes[:-1]) <= 3 * SEGMENT_BYTES
    offsets = [offset for offset, _ in read_messages(stream)]
    assert stream.first_offset() > 0 and offsets[-1] == stream.next_offset() - 1
    kept = messages_of(root, "a")
    assert kept == [message for batch in range(4) for message in part(f"batch {batch}", 50)][-len(kept) :]
    assert_sound(root)


def test_a_stream_that_was_made_again_adopts_nothing_of_the_old_one(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root", max_segment_size_bytes=SEGMENT_BYTES)
    folder = stream_folder(root, "a")
    with Writer.open(opened(root), now_ms=NOW), pytest.raises(StreamLockedError):
        commit(root, part("m", 12))
    shutil.rmtree(folder)
    stream = Stream.create(folder, name="a", now_ms=NOW)
    Writer.open(stream, now_ms=NOW).close()
    assert chunk_ids(stream) == [] and leftovers(root) == []


def test_a_manifest_of_the_version_before_is_finished(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root", max_segment_size_bytes=SEGMENT_BYTES)
    folder = stream_folder(root, "a")
    (staged,) = stage(root, part("m", 12))
    path = root / staged.path
    path.write_bytes(path.read_bytes()[staged.head_bytes :])
    fields = {name: getattr(staged, name) for name in ("path", "chunks", "messages", "size_bytes")}
    output = {"stream": "streams/a", "identity": opened(root).identity, "staged": [fields], "filter_source": None}
    manifest = {"query": "q", "batch": 0, "timestamp_ms": NOW, "durable": False, "outputs": [output], "format": 2}
    commits = Commits(root)
    (commits.folder / "q").mkdir(parents=True)
    (commits.folder / "q" / "0.json").write_text(json.dumps(manifest))
    Writer.open(Stream.open(folder), now_ms=NOW).close()
    assert messages_of(root, "a") == part("m", 12)
    assert adopted(root) == [] and leftovers(root) == []
    assert commits.completed("q") == 0
    assert commit(root, part("next", 2), batch=1).chunks == 1


@pytest.mark.parametrize("damage", [b"\x51", b"\x50\x01"])
def test_a_large_staged_file_that_is_damaged_is_an_error_that_names_it(tmp_path: Path, damage: bytes) -> None:
    root = new_root(tmp_path / "root", max_segment_size_bytes=SEGMENT_BYTES)
    (staged,) = stage(root, part("m", 12))
    with (root / staged.path).open("r+b") as file:
        file.seek(HEAD_BYTES)
        file.write(damage)
    output = output_of(root, stream_folder(root, "a"), [staged], identity=opened(root).identity)
    Commits(root).publish(Manifest("q", 0, NOW, False, (output,)))
    with pytest.raises(CorruptChunkError) as raised:
        Writer.open(opened(root), now_ms=NOW)
    assert Path(raised.value.path).name == Path(staged.path).name
    assert chunk_ids(opened(root)) == []
