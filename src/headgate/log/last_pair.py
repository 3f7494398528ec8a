"""The pair of files that a writer appends to: written chunks become visible, or are taken back.

First the bytes of chunks are written to the segment, then their index records; once its record is there, readers see a
chunk. A write that fails halfway is taken back as far as no reader can have seen it.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from pathlib import Path

from headgate.errors import LogError
from headgate.log.crash_points import AdoptionStep, reached
from headgate.log.files import DiskFile, OpenFile, storage_error, sync_folder
from headgate.log.format import FILE_HEAD_BYTES, INDEX_HEAD, INDEX_RECORD_BYTES, index_name, segment_name
from headgate.log.pairs import create_pair, delete_pair
from headgate.log.recovery import Tail


class LastPair:
    """The newest segment of a stream and its index, opened by one writer.

    `segment_size` bytes and `num_chunks` chunks of it are visible. If `is_durable`, chunks are on the device before
    they are visible, and their index records when `put` returns. All calls raise StorageFullError, StreamReadOnlyError
    or LogError if the system fails.
    """

    __slots__ = (
        "_files",
        "_folder",
        "_is_durable",
        "_open_file",
        "_sync_failed",
        "first_chunk_id",
        "is_broken",
        "is_open",
        "num_chunks",
        "segment_size",
    )

    def __init__(self, folder: Path, tail: Tail, open_file: OpenFile, *, is_durable: bool) -> None:
        self._folder = folder
        self._open_file = open_file
        self._is_durable = is_durable
        self._files: tuple[DiskFile, DiskFile] | None = None
        self._sync_failed = False
        self.first_chunk_id = tail.first_chunk_id
        self.segment_size = tail.segment_size
        self.num_chunks = tail.num_chunks
        self.is_open = False
        """Whether the pair may be written."""
        self.is_broken = False
        """A write failed and could not be taken back: only recovery may continue."""

    def open(self) -> None:
        """Open the existing files."""
        path = self._folder / segment_name(self.first_chunk_id)
        opened: list[DiskFile] = []
        try:
            for each in (path, self._folder / index_name(self.first_chunk_id)):
                opened.append(self._open_file(each))
        except OSError as error:
            for file in opened:
                file.close()
            raise storage_error(error, path) from error
        self._files = opened[0], opened[1]
        self.is_open = True

    def close(self) -> None:
        """Close the files; closing twice is harmless."""
        for file in self._files or ():
            file.close()
        self._files = None
        self.is_open = False

    def begin(self, first_chunk_id: int) -> None:
        """Continue with a new, empty pair. After an error the old pair stays the last one."""
        try:
            pair = create_pair(self._folder, first_chunk_id, self._open_file)
            if self._is_durable:
                for file in pair:
                    file.sync()
                sync_folder(self._folder)
        except OSError as error:
            # If the new pair cannot be removed, only recovery may continue.
            self.is_broken = True
            with contextlib.suppress(OSError):
                delete_pair(self._folder, first_chunk_id)
                self.is_broken = False
            raise storage_error(error, self._folder / segment_name(first_chunk_id)) from error
        self.close()
        self._files = pair
        self.is_open = True
        self.first_chunk_id = first_chunk_id
        self.segment_size, self.num_chunks = FILE_HEAD_BYTES, 0

    def adopt(self, path: Path, first_chunk_id: int, records: bytes, size_bytes: int) -> bool:
        """Continue with a complete segment of `size_bytes`, now at `path`; False if that is another file system.

        `records` are those of all its chunks. Readers see the chunks when the call returns. A crash before that leaves
        an index without records, which recovery deletes, or a segment whose chunks recovery gives their records.
        """
        index_path = self._folder / index_name(first_chunk_id)
        segment_path = self._folder / segment_name(first_chunk_id)
        index: DiskFile | None = None
        try:
            index = self._open_file(index_path)
            index.write(INDEX_HEAD, 0)
            reached(AdoptionStep.INDEXED)
            path.rename(segment_path)
        except OSError as error:
            if index is not None:
                index.close()
            with contextlib.suppress(OSError):
                index_path.unlink(missing_ok=True)
            if error.errno == errno.EXDEV:
                return False
            raise storage_error(error, segment_path) from error
        reached(AdoptionStep.RENAMED)
        self.close()
        # Nothing is taken back from here on, because the chunks lie nowhere else: recovery gives them their records.
        self.is_broken = True
        self.first_chunk_id = first_chunk_id
        try:
            segment = self._open_file(segment_path)
            self._files = segment, index
            if self._is_durable:
                sync_folder(self._folder)
            index.write(records, FILE_HEAD_BYTES)
            if self._is_durable:
                index.sync()
        except OSError as error:
            if self._files is None:
                index.close()
            raise storage_error(error, segment_path) from error
        self.is_open, self.is_broken = True, False
        self.segment_size, self.num_chunks = size_bytes, len(records) // INDEX_RECORD_BYTES
        return True

    def put(self, data: memoryview, records: bytes, accept: Callable[[int], int]) -> None:
        """Write the bytes of chunks, then their index records.

        `accept` is called with the number of chunks that are now visible, also before an error is raised; it gives
        their bytes. Raises LogError.
        """
        if self._files is None:
            raise LogError("the writer is closed", path=self._folder)
        segment, index = self._files
        index_size = FILE_HEAD_BYTES + self.num_chunks * INDEX_RECORD_BYTES
        count = len(records) // INDEX_RECORD_BYTES
        try:
            segment.write(data, self.segment_size)
            if self._is_durable:
                self._sync(segment)
            index.write(records, index_size)
            if self._is_durable:
                self._sync(index)
        except OSError as error:
            self.is_broken = True
            with contextlib.suppress(OSError):
                visible = max(0, index.size() - index_size) // INDEX_RECORD_BYTES
                self._grow(min(visible, count), accept)
                index.truncate(FILE_HEAD_BYTES + self.num_chunks * INDEX_RECORD_BYTES)
                segment.truncate(self.segment_size)
                # After a failed flush the state of the device is unknown: only recovery may continue.
                self.is_broken = self._sync_failed
            raise storage_error(error, self._folder / segment_name(self.first_chunk_id)) from error
        except BaseException:
            self.is_broken = True
            raise
        self._grow(count, accept)

    def _grow(self, num_chunks: int, accept: Callable[[int], int]) -> None:
        """Move the visible end behind the first `num_chunks` of the written chunks."""
        self.segment_size += accept(num_chunks)
        self.num_chunks += num_chunks

    def sync(self) -> None:
        """Flush both files and their names to the device."""
        try:
            for file in self._files or ():
                file.sync()
            sync_folder(self._folder)
        except OSError as error:
            self.is_broken = True
            raise storage_error(error, self._folder) from error

    def _sync(self, file: DiskFile) -> None:
        self._sync_failed = True
        file.sync()
        self._sync_failed = False
