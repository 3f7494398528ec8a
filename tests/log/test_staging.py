from __future__ import annotations

import pickle
from pathlib import Path

import msgspec
import numpy as np
import pytest

from headgate.errors import ConfigError
from headgate.log.build import ChunkLimits, FilterValues, build_chunks
from headgate.log.staging import StagedChunks, StagedFile, staging_folder


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
    staged = file.finish(durable=durable)
    assert staged is not None
    expected = build_chunks(*columns(messages), values, ChunkLimits(64, b"q-1", max_messages=30))
    assert staged.check(tmp_path.resolve()).read_bytes() == expected.data.tobytes()
    assert (staged.chunks, staged.messages, staged.size_bytes) == (4, 100, len(expected.data))
    assert (tmp_path / staged.path).parent == staging_folder(tmp_path, "q-1")


def test_what_is_staged_crosses_processes_and_json() -> None:
    staged = StagedChunks(".headgate/staging/q/x.chunks", 1, 2, 3)
    assert pickle.loads(pickle.dumps(staged)) == staged
    assert msgspec.json.decode(msgspec.json.encode(staged), type=StagedChunks) == staged


def test_a_task_without_messages_leaves_nothing(tmp_path: Path) -> None:
    file = StagedFile(tmp_path, query="q", name="empty", filter_size_bytes=16)
    file.add(*columns([]))
    assert file.finish(durable=True) is None
    file.discard()
    assert list(tmp_path.iterdir()) == []


def test_two_attempts_of_a_task_write_two_files(tmp_path: Path) -> None:
    paths = set()
    for _ in range(2):
        file = StagedFile(tmp_path, query="q", name="part-0", filter_size_bytes=16)
        file.add(*columns([b"message"]))
        staged = file.finish(durable=False)
        assert staged is not None
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
