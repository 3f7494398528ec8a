"""Streams for the tests of the log: read back in the plainest way, and written through files that fail."""

from __future__ import annotations

import contextlib
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from headgate import kernels
from headgate.log import ChunkType, Stream, StreamArguments, Writer
from headgate.log.compression import EXPANSION_LIMIT_BYTES
from headgate.log.entries import unpack_chunk
from headgate.log.files import DiskFile
from headgate.log.format import CHUNK_HEADER_BYTES

Result = TypeVar("Result")

PART = 4
"""Messages of one step of `write_with_a_pair_given_up`."""


def read_messages(stream: Stream) -> list[tuple[int, bytes]]:
    """Every message a reader gets from `first` on: (offset, body). Fails on a wrong checksum."""
    found = []
    for segment in stream.segments():
        with segment.open() as reader:
            for row, position in enumerate(reader.chunks().position.tolist()):
                header = reader.header(row)
                start = position + CHUNK_HEADER_BYTES + header.bloom_length
                data = reader.read(start, start + header.data_length)[: header.data_length].tobytes()
                assert zlib.crc32(data) == header.crc
                if header.chunk_type == ChunkType.USER:
                    path = segment.segment_path
                    chunk = unpack_chunk(header, data, limit_bytes=EXPANSION_LIMIT_BYTES, path=path, position=start)
                    for number, (at, length) in enumerate(zip(chunk.starts, chunk.lengths, strict=True)):
                        found.append((header.chunk_id + number, chunk.data[at : at + length].tobytes()))
    return found


def chunk_ids(stream: Stream) -> list[int]:
    """The ids of all chunks that exist for readers."""
    found: list[int] = []
    for segment in stream.segments():
        with segment.open() as reader:
            found.extend(reader.chunks().chunk_id.tolist())
    return found


def without_kernels(action: Callable[[], Result]) -> Result:
    """What `action` gives where there are no kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "load", lambda _module: None)
        patch.setattr(kernels, "loaded", lambda _module: None)
        return action()


def quick_folder() -> tempfile.TemporaryDirectory[str]:
    """A temporary folder in memory where there is one: deleting thousands of files on a disk can take minutes."""
    memory = "/dev/shm"
    return tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK | os.X_OK) else None)


class Killed(BaseException):
    """Stands for the death of the process in the middle of a write."""


@contextlib.contextmanager
def killed_process() -> Iterator[None]:
    """What is done inside is done by a process that `Killed` may end; the kernel closes the files it had open."""
    before = _descriptors()
    with contextlib.suppress(Killed):
        yield
    for descriptor in _descriptors() - before:
        os.close(descriptor)


def _descriptors() -> set[int]:
    # That of the list itself is closed already.
    return {int(name) for name in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{name}")}


@dataclass
class FailingFiles:
    """Opens files that write `budget` bytes, all together, and then fail with `error`; None never fails."""

    error: BaseException
    budget: int | None = None
    written: int = 0
    fail_sync: bool = False
    fail_truncate: bool = False
    on_failure: Callable[[], None] = lambda: None

    def __call__(self, path: Path) -> _FailingFile:
        return _FailingFile(path, self)


class _FailingFile(DiskFile):
    def __init__(self, path: Path, owner: FailingFiles) -> None:
        super().__init__(path)
        self._owner = owner

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        owner = self._owner
        room = len(data) if owner.budget is None else owner.budget - owner.written
        part = memoryview(data)[: max(0, room)]
        super().write(part, position)
        owner.written += len(part)
        if len(part) < len(data):
            owner.on_failure()
            raise owner.error

    def truncate(self, size: int) -> None:
        if self._owner.fail_truncate:
            raise self._owner.error
        super().truncate(size)

    def sync(self) -> None:
        if self._owner.fail_sync:
            raise self._owner.error
        super().sync()


def write_with_a_pair_given_up(stream: Stream, bodies: Sequence[bytes]) -> Iterator[int]:
    """A writer dies where it has begun a new pair; the next one gives that up, appends before it, and rolls over.

    Gives after each step how many messages there are.
    """
    parts = iter([bodies[start : start + PART] for start in range(0, PART * 5, PART)])

    def append(writer: Writer) -> int:
        writer.append([(each, None) for each in next(parts)], now_ms=0)
        return writer.next_offset

    first = Writer.open(stream, now_ms=0)
    yield append(first)
    first._pair.begin(first.next_offset)
    abandon(first)
    yield first.next_offset
    with Writer.open(stream, now_ms=0) as writer:
        assert len(stream.segments()) == 1
        yield writer.next_offset
        yield append(writer)
        yield append(writer)
        writer.change(now_ms=0, arguments=StreamArguments(max_segment_chunks=1))
        for _ in range(2):
            yield append(writer)
        assert len(stream.segments()) == 3


def abandon(writer: Writer) -> None:
    """What the kernel does for a writer whose process died: files closed, lock given back, nothing else."""
    writer._pair.close()
    writer._lock.release()


def file_bytes(folder: Path) -> dict[str, bytes]:
    """The log files of a folder by name."""
    return {
        name: (folder / name).read_bytes()
        for name in sorted(os.listdir(folder))
        if name.endswith((".segment", ".index"))
    }


def damage_chunk(stream: Stream, chunk: int, at: int, *, segment_number: int = 0) -> None:
    """Change one bit: of byte `at` of the chunk of that number, in a segment of a stream that is not open."""
    segment = stream.segments()[segment_number]
    with segment.open() as reader:
        position = int(reader.chunks().position[chunk])
    with open(segment.segment_path, "r+b") as file:
        file.seek(position + at)
        changed = file.read(1)[0] ^ 1
        file.seek(position + at)
        file.write(bytes([changed]))
