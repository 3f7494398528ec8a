from __future__ import annotations

import pickle
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate import kernels
from headgate.errors import ConfigError, LogError
from headgate.log import staging
from headgate.log.bloom import bloom_bytes
from headgate.log.chunk_builder import ChunkLimits, FilterValues, build_chunks
from headgate.log.format import CHUNK_HEADER_BYTES, ChunkHeader
from headgate.log.staging import HEAD_BYTES, StagedChunks, StagedFile, StagingFile, add_to_each, staging_folder


def columns(messages: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    lengths = np.array([len(message) for message in messages], dtype=np.int64)
    return np.frombuffer(b"".join(messages), dtype=np.uint8), np.cumsum(lengths) - lengths, lengths


@pytest.mark.parametrize("durable", [False, True])
def test_a_staged_file_holds_the_chunks_of_all_its_batches_with_room_for_the_sequence(
    tmp_path: Path, durable: bool
) -> None:
    messages = [b"m%03d" % number for number in range(100)]
    values = FilterValues.of(b"even" if number % 2 else None for number in range(100))
    file = StagedFile(tmp_path, query="q-1", name="orders/0", filter_size_bytes=64, max_messages=30)
    for first in range(0, 100, 25):
        file.add(*columns(messages[first : first + 25]), values.slice(first, first + 25))
    (staged,) = file.finish(durable=durable)
    expected = build_chunks(*columns(messages), values, ChunkLimits(64, b"q-1", max_messages=30))
    staged.check(tmp_path)
    assert (tmp_path / staged.path).read_bytes() == bytes(HEAD_BYTES) + expected.data.tobytes()
    assert (staged.chunks, staged.messages, staged.size_bytes) == (4, 100, len(expected.data))
    assert (tmp_path / staged.path).parent == staging_folder(tmp_path, "q-1")


def test_what_is_staged_crosses_processes_and_json() -> None:
    staged = StagedChunks(".headgate/staging/q/x.chunks", 1, 2, 3)
    assert pickle.loads(pickle.dumps(staged)) == staged
    assert msgspec.json.decode(msgspec.json.encode(staged), type=StagedChunks) == staged


def test_a_task_without_messages_leaves_nothing(tmp_path: Path) -> None:
    file = StagedFile(tmp_path, query="q", name="empty", filter_size_bytes=16)
    file.add(*columns([]))
    assert file.finish(durable=True) == ()
    file.discard()
    assert list(tmp_path.iterdir()) == []


def test_two_attempts_of_a_task_write_two_files(tmp_path: Path) -> None:
    paths = set()
    for _ in range(2):
        file = StagedFile(tmp_path, query="q", name="part-0", filter_size_bytes=16)
        file.add(*columns([b"message"]))
        (staged,) = file.finish(durable=False)
        paths.add(staged.path)
    assert len(paths) == 2


def test_a_discarded_file_is_gone(tmp_path: Path) -> None:
    file = StagedFile(tmp_path, query="q", name="part-0", filter_size_bytes=16, max_messages=1)
    file.add(*columns([b"one", b"two", b"three"]))
    assert len(list(staging_folder(tmp_path, "q").iterdir())) == 1
    file.discard()
    assert list(staging_folder(tmp_path, "q").iterdir()) == []


def test_a_wrong_filter_size_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="filter_size_bytes is 8"):
        StagedFile(tmp_path, query="q", name="part-0", filter_size_bytes=8)
    assert list(tmp_path.iterdir()) == []


def chunks_of(path: Path, *, start: int = 0) -> list[tuple[list[bytes], bytes]]:
    """The messages and the Bloom bytes of every chunk of a staged file, from a byte on."""
    raw, position, found = path.read_bytes(), start, []
    while position < len(raw):
        header = ChunkHeader.decode(raw[position : position + CHUNK_HEADER_BYTES], path=path, position=position)
        at = position + CHUNK_HEADER_BYTES + header.bloom_length
        messages, end = [], at + header.data_length
        assert end <= len(raw)
        while at < end:
            length = int.from_bytes(raw[at : at + 4], "big")
            messages.append(raw[at + 4 : at + 4 + length])
            at += 4 + length
        assert len(messages) == header.num_records
        found.append((messages, raw[position + CHUNK_HEADER_BYTES :][: header.bloom_length]))
        position += header.size_bytes
    return found


MESSAGE = st.tuples(st.binary(min_size=1, max_size=12), st.sampled_from([None, b"", b"red", b"blue"]))


def read_whole(root: Path, staged: StagedChunks, *, at_once: int) -> Path:
    """What was staged, read so many bytes at a time, as a file."""
    copy = root / "read.chunks"
    content = np.zeros(staged.size_bytes, dtype=np.uint8)
    with staged.open(root) as descriptor:
        for position in range(0, staged.size_bytes, at_once):
            part = content[position : position + at_once]
            assert staged.read(descriptor, part, position) == len(part)
        assert staged.read(descriptor, np.zeros(9, dtype=np.uint8), staged.size_bytes) == 0
    copy.write_bytes(content.tobytes())
    return copy


@pytest.mark.parametrize("sharing", [1, 2, 4])
@pytest.mark.parametrize("with_kernels", [True, False])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.tuples(*(st.lists(MESSAGE, max_size=9) for _ in range(4))), max_size=4))
def test_what_is_added_to_many_files_at_once_is_in_each_in_order(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    with_kernels: bool,
    sharing: int,
    batches: list[tuple[list[tuple[bytes, bytes | None]], ...]],
) -> None:
    with monkeypatch.context() as patched:
        # Shares below, at and above what is worth a chunk, chunks of a few messages, calls of a few chunks.
        patched.setattr(staging, "_ENOUGH_BYTES", 30)
        patched.setattr(staging, "_BUILT_BYTES", 300)
        if not with_kernels:
            patched.setattr(kernels, "load", lambda _name: None)
        shared = [StagingFile(tmp_path, query="q", name=f"shared-{n}") for n in range(4 // sharing) if sharing > 1]
        files = [
            StagedFile(
                tmp_path,
                query="q",
                name=f"{number}",
                filter_size_bytes=16,
                max_messages=4,
                max_bytes=60,
                file=shared[number // sharing] if shared else None,
            )
            for number in range(4)
        ]
        for batch in batches:
            messages = [message for share in batch for message, _ in share]
            data, starts, lengths = columns(messages)
            bounds = np.cumsum([0, *(len(share) for share in batch)])
            # In a buffer that is overwritten afterwards, and not from its beginning.
            buffer = np.concatenate([np.zeros(5, dtype=np.uint8), data])
            values = FilterValues.of(value for share in batch for _, value in share)
            add_to_each(files, bounds, buffer, starts + 5, lengths, values)
            buffer[:] = 0
        finished = [file.finish(durable=False) for file in files]
        for file in shared:
            file.finish(durable=False)
        for number, files_of_one in enumerate(finished):
            expected = [row for batch in batches for row in batch[number]]
            if not expected:
                assert not files_of_one
                continue
            (staged,) = files_of_one
            staged.check(tmp_path)
            found = chunks_of(read_whole(tmp_path, staged, at_once=50))
            assert [message for messages, _ in found for message in messages] == [message for message, _ in expected]
            assert (staged.chunks, staged.messages) == (len(found), len(expected))
            first = 0
            for messages, bloom in found:
                values_of_chunk = {value or b"" for _, value in expected[first : first + len(messages)]}
                first += len(messages)
                assert len(messages) <= 4
                assert bloom == (bloom_bytes(values_of_chunk, 16) if values_of_chunk != {b""} else bloom)


def test_a_large_share_becomes_a_chunk_at_once_behind_what_waited(tmp_path: Path) -> None:
    file = StagedFile(tmp_path, query="q", name="part", filter_size_bytes=16)
    small, large = [b"first", b"second"], [bytes([letter]) * 50_000 for letter in b"abc"]
    for share in (small, large, small):
        data, starts, lengths = columns(share)
        add_to_each([file], np.array([0, len(share)]), data, starts, lengths, FilterValues.same(b"red", len(share)))
    (staged,) = file.finish(durable=False)
    found = chunks_of(tmp_path / staged.path, start=staged.head_bytes)
    assert [messages for messages, _ in found] == [small, large, small]


def test_a_shared_file_that_is_cut_is_noticed(tmp_path: Path) -> None:
    shared = StagingFile(tmp_path, query="q", name="shared")
    files = [StagedFile(tmp_path, query="q", name="part", filter_size_bytes=16, file=shared) for _ in range(2)]
    for file in files:
        file.add(*columns([b"message"]))
    first, last = (file.finish(durable=False)[0] for file in files)
    shared.finish(durable=True)
    assert first.path == last.path
    path = tmp_path / first.path
    path.write_bytes(path.read_bytes()[:-1])
    first.check(tmp_path)
    with pytest.raises(LogError, match="expected"):
        last.check(tmp_path)
    shared.discard()
    assert not path.exists()


def test_files_of_other_limits_are_not_filled_together(tmp_path: Path) -> None:
    files = [StagedFile(tmp_path, query="q", name="part", filter_size_bytes=size) for size in (16, 32)]
    with pytest.raises(ValueError, match="other limits"):
        add_to_each(files, np.array([0, 1, 2]), *columns([b"one", b"two"]), FilterValues.same(None, 2))
    add_to_each([], np.array([0]), *columns([]), FilterValues.same(None, 0))
    assert list(tmp_path.iterdir()) == []
