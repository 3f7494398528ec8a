"""Sealed segments in object storage, and their files in the cache of this machine.

    <entry>/<first offset>.segment          size and fronts of chunks as in the original, its data a hole that is filled
            <first offset>.index, .seal     whole, from the summary
            blocks

    <entry>/<name of a derived file>        a hole that is filled
            blocks, location

Readers use the files as any other pair, and ask for bytes before they read them (`partial_file.py`).
"""

from __future__ import annotations

import contextlib
import mmap
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from headgate.errors import CorruptChunkError, CorruptSidecarError, LogError, OffsetOutOfRangeError
from headgate.log import format as f
from headgate.log.pairs import seal_path
from headgate.log.remote.cache import cache_folder, new_entry, remove_entry
from headgate.log.remote.derived_list import DerivedObject
from headgate.log.remote.partial_file import ObjectSource, PartialFile, make_blocks
from headgate.log.remote.storage import GONE, object_url, storage_at
from headgate.log.remote.summary import Summary

_ATTEMPTS = 5
_LOCATION_NAME = "location"


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A sealed segment in object storage, by its row of the catalogue. Picklable, without a secret.

    `location` is that of its stream, `crc` the CRC-32 of the whole segment, `num_tracking` counts its chunks without
    messages. `derived` are the derived files that lie there with it.
    """

    location: str
    identity: str
    first_chunk_id: int
    segment_bytes: int
    summary_bytes: int
    crc: int
    num_tracking: int
    derived: tuple[DerivedObject, ...] = field(default=(), compare=False)

    @property
    def folder(self) -> Path:
        """The folder of its files on this machine, which may not exist."""
        return cache_folder() / self.identity / f"{self.first_chunk_id:020d}-{self.crc:08x}"

    def url_of(self, file_name: str) -> str:
        """The object that one of its files on this machine is made of, for messages."""
        own = segment_object(self.first_chunk_id)
        return object_url(self.location, own if file_name == own else summary_name(self.first_chunk_id))

    def open(self) -> PartialFile:
        """The segment's file on this machine, with its index beside it, made from its summary if they are not there.

        Raises OffsetOutOfRangeError if retention deleted it, RemoteStorageError, CorruptSidecarError, LogError.
        """
        for _ in range(_ATTEMPTS):
            try:
                return self._open()
            except FileNotFoundError:
                self._make()
        return self._open()

    def _open(self) -> PartialFile:
        name = segment_object(self.first_chunk_id)
        source = ObjectSource(self.location, name, self.segment_bytes)
        return PartialFile(self.folder, name, source, beside=[f.index_name(self.first_chunk_id)])

    def forget(self) -> None:
        """Remove its files on this machine; readers that have them open go on."""
        remove_entry(self.folder)

    def derived_file(self, name: str) -> Path | None:
        """A derived file on this machine, made as one hole if it is not there; None for one that is not listed.

        `make_derived_present` fills it. Cost: a `stat`; no request. Raises StorageFullError, LogError.
        """
        found = next((each for each in self.derived if each.name == name), None)
        if found is None:
            return None
        folder = cache_folder() / self.identity / f"{name}-{found.mtime_ns:x}-{found.size_bytes:x}"
        if not folder.is_dir():
            with new_entry(folder) as made:
                (made / _LOCATION_NAME).write_text(self.location, encoding="utf-8")
                make_blocks(made, found.size_bytes)
                with open(made / name, "xb") as file:
                    file.truncate(found.size_bytes)
        return folder / name

    def _make(self) -> None:
        storage = storage_at(self.location)
        name = summary_name(self.first_chunk_id)
        raw = storage.read(name)
        if raw is None:
            raise OffsetOutOfRangeError(GONE, path=storage.url(name))
        summary = Summary.decode(raw, url=storage.url(name))
        if summary.segment_bytes != self.segment_bytes:
            raise CorruptChunkError(
                f"the summary is of a segment of {summary.segment_bytes} bytes, the catalogue says "
                f"{self.segment_bytes}",
                path=storage.url(name),
            )
        with new_entry(self.folder) as made:
            self._fill(made, summary)

    def _fill(self, folder: Path, summary: Summary) -> None:
        segment = folder / f.segment_name(self.first_chunk_id)
        with open(segment, "xb+") as file:
            file.truncate(self.segment_bytes)
            with mmap.mmap(file.fileno(), self.segment_bytes) as mapped:
                # Without it the system makes pages around each front.
                mapped.madvise(mmap.MADV_RANDOM)
                summary.fill(np.frombuffer(mapped, dtype=np.uint8))
        (folder / f.index_name(self.first_chunk_id)).write_bytes(summary.index)
        if summary.seal:
            seal_path(segment).write_bytes(summary.seal)
        make_blocks(folder, self.segment_bytes)


def segment_object(first_chunk_id: int) -> str:
    """The name of the object with a segment."""
    return f.segment_name(first_chunk_id)


def summary_name(first_chunk_id: int) -> str:
    """The name of the object with the summary of a segment."""
    return f"{first_chunk_id:020d}.summary"


def is_cached_derived(path: Path) -> bool:
    """Whether a path is one that `derived_file` gave."""
    return path.parent.name.startswith(f"{path.name}-")


def make_derived_present(path: Path, start: int = 0, stop: int | None = None) -> None:
    """Fetch bytes of a file that `derived_file` gave, by default all; nothing to do for files in a stream's folder.

    Raises CorruptSidecarError if that fails: the stream can be read without the file.
    """
    if not is_cached_derived(path):
        return
    try:
        location = (path.parent / _LOCATION_NAME).read_text(encoding="utf-8")
        size_bytes = path.stat().st_size
        source = ObjectSource(location, path.name, size_bytes)
        with contextlib.closing(PartialFile(path.parent, path.name, source)) as file:
            file.make_present(max(0, start), size_bytes if stop is None else min(stop, size_bytes))
    except LogError as error:
        raise CorruptSidecarError(f"cannot be read: {error.reason}", path=error.path_text) from error
    except OSError as error:
        raise CorruptSidecarError(f"cannot be read from object storage: {error}", path=path) from error
