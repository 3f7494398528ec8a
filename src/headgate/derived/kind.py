"""A kind of derived files: declared for a stream, made of its segments one by one, checked, swept, reported.

    declared ──prepare──► each segment: lock, believe what is there or make it, rename ──► report
                          files without a segment, or replaced by newer ones: swept after a grace time

A builder may be killed at any time, or run beside others: a file has its name when it is complete, and the lock of its
segment is the system's.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

import msgspec

from headgate.errors import CorruptChunkError, LogError, OffsetOutOfRangeError
from headgate.evaluate import Filter
from headgate.log import (
    KEPT_FOLDER,
    NEW_SUFFIX,
    Segment,
    SegmentReader,
    Stream,
    StreamSettings,
    building,
    delete_derived,
    derived_folder,
    drop_remote_derived,
    finish_derived,
    make_derived_folder,
    remote_derived,
    remove_unfinished,
    segment_of_name,
    storage_error,
    sweep_derived,
)
from headgate.scan.answers import AnswerSource, ChunkTest, Purpose, SegmentFiles

COLUMN_SUFFIX, LOOKUP_SUFFIX = ".parquet", ".lookup"
"""The suffixes of the kinds' files, which lie in one folder: no two kinds may have the same."""

Declared = TypeVar("Declared")
Report = TypeVar("Report")

Names = dict[int, list[Path]]
"""The files of a kind by the segment in their names; their content is not looked at."""


class BuildReport(msgspec.Struct, frozen=True):
    """The result of building one sealed segment: `built` files of `messages` messages each, and their bytes.

    Nothing is built where the files were there, where retention was faster, where other files replaced the segment's
    meanwhile, and where the segment is damaged (`trouble` says how). `inexact` counts rows of new column files that
    have an inexact column.
    """

    segment: int
    built: int = 0
    messages: int = 0
    inexact: int = 0
    size_bytes: int = 0
    trouble: str = ""


class DerivedKind(ABC, Generic[Declared, Report]):
    """One kind, for streams that declare it. There is one object of each class; pickling keeps it one.

    A request names the kinds that it may ask (`headgate.scan.answers.SourceKind`).
    """

    name: ClassVar[str]
    """The name in settings and options."""
    files: ClassVar[str]
    """Its files, as messages name them."""
    report: type[Report]

    @abstractmethod
    def __reduce__(self) -> str:
        """The name of the one object in its module."""

    # what it is made of

    @abstractmethod
    def declared(self, stream: Stream) -> Declared | None:
        """The declaration of a stream; None without one. Raises LogError for an invalid one."""

    def prepare(self, stream: Stream, *, now_ms: int) -> Declared | None:
        """The declaration by which files are built now; None if there is nothing to build. Raises LogError."""
        return self.declared(stream)

    def segments(self, stream: Stream) -> Sequence[Segment]:
        """The segments that get files: the sealed ones."""
        return [segment for segment in stream.segments() if segment.is_sealed]

    @abstractmethod
    def build_segment(self, stream: Stream, segment: Segment, declared: Declared, *, distrust: bool = False) -> Report:
        """Make the missing files of a segment; with `distrust` existing files are read in full, or made anew.

        The damage of a segment is reported, not raised.
        """

    def build(self, stream: Stream, *, now_ms: int, distrust: bool = False) -> Iterator[Report]:
        """Make all missing files of a stream, oldest segment first, and remove files that are not needed any more.

        A damaged segment does not stop the others. Otherwise raises as `prepare` and `build_segment`.
        """
        declared = self.prepare(stream, now_ms=now_ms)
        for segment in [] if declared is None else self.segments(stream):
            assert declared is not None
            yield self.build_segment(stream, segment, declared, distrust=distrust)
        self.sweep(stream, now_ms=now_ms)

    @abstractmethod
    def sweep(self, stream: Stream, *, now_ms: int) -> int:
        """Remove files that are not needed any more; gives how many."""

    # what readers ask

    @abstractmethod
    def source(self, filter_: Filter, now_ms: int, purpose: Purpose) -> AnswerSource | None:
        """See `SourceKind`."""

    @abstractmethod
    def segment_files(self, reader: SegmentReader) -> SegmentFiles:
        """See `SourceKind`."""

    def chunk_test(self, settings: StreamSettings, values: Collection[bytes]) -> ChunkTest | None:
        """See `SourceKind`; by default there is none."""
        return None


class SealedKind(DerivedKind[Declared, BuildReport]):
    """A kind with files of sealed segments, in the derived folder of the stream (`headgate.log`).

    A builder holds a lock on one byte of `<name>-build.lock`, that of the segment; a second builder waits, and then
    finds the files. The system frees the lock when the builder dies; the next builder of the segment removes its
    unfinished files.
    """

    suffix: ClassVar[str]
    report = BuildReport

    def build_segment(
        self, stream: Stream, segment: Segment, declared: Declared, *, distrust: bool = False
    ) -> BuildReport:
        """See `DerivedKind`. Waits while another process builds the same segment.

        Of a damaged segment nothing is written. Raises StorageFullError, StreamReadOnlyError, LogError.
        """
        if not segment.is_sealed:
            raise LogError(f"this segment may still grow; only sealed ones get {self.files}", path=segment.segment_path)
        folder = make_derived_folder(stream)
        with building(folder, f"{self.name}-build.lock", segment.first_chunk_id):
            for each in (folder, folder / KEPT_FOLDER):
                remove_unfinished(each, segment.first_chunk_id, self.suffix + NEW_SUFFIX)
            try:
                return self.make(stream, segment, declared, folder, distrust=distrust)
            except CorruptChunkError as error:
                return BuildReport(segment.first_chunk_id, trouble=str(error))
            except (OffsetOutOfRangeError, FileNotFoundError):
                # Retention was faster.
                return BuildReport(segment.first_chunk_id)

    @abstractmethod
    def make(
        self, stream: Stream, segment: Segment, declared: Declared, folder: Path, *, distrust: bool
    ) -> BuildReport:
        """Make the missing files of a segment, under its lock; `folder` is the derived folder.

        Raises as `build_segment`, CorruptChunkError; for a segment that is gone OffsetOutOfRangeError,
        FileNotFoundError.
        """

    def missing(self, stream: Stream, declared: Declared) -> list[Segment]:
        """The sealed segments that lack a file; the content of files is not looked at."""
        names = self.names(stream)
        found = []
        for segment in self.segments(stream):
            there = {path.name for path in names.get(segment.first_chunk_id, ())}
            with contextlib.suppress(OffsetOutOfRangeError, FileNotFoundError):
                try:
                    is_missing = self.lacks(stream, segment, declared, there)
                except CorruptChunkError:
                    # The build finds the damage, and reports it.
                    is_missing = True
                if is_missing:
                    found.append(segment)
        return found

    @abstractmethod
    def lacks(self, stream: Stream, segment: Segment, declared: Declared, there: Collection[str]) -> bool:
        """Whether a sealed segment lacks a file, where it has files of these names.

        Raises CorruptChunkError, OffsetOutOfRangeError, FileNotFoundError.
        """

    def sweep(self, stream: Stream, *, now_ms: int) -> int:
        """Remove files of segments that are gone, and superseded files, each after its grace time."""
        superseded = self.superseded(stream, self.names(stream))
        return sweep_derived(stream, now_ms=now_ms, suffix=self.suffix, superseded=superseded)

    @abstractmethod
    def superseded(self, stream: Stream, names: Names) -> set[str]:
        """The names of files whose segment is there, but which newer ones replace, or which are not declared."""

    def names(self, stream: Stream) -> Names:
        """The files of a stream, by segment."""
        return names_of(stream, self.suffix)

    def drop_files(self, stream: Stream) -> int:
        """Delete all files of a stream, kept ones included; gives how many.

        Readers that have one open go on; others read messages. Raises StreamReadOnlyError, LogError.
        """
        folder = derived_folder(stream)
        paths = [path for found in self.names(stream).values() for path in found]
        doubled = [folder / path.name for path in paths if path.parent != folder]
        here = {path.name for path in [*paths, *doubled] if path.exists()}
        remote = drop_remote_derived(stream, self.suffix)
        return delete_derived([*paths, *doubled]) + len(remote - here)


def names_of(stream: Stream, suffix: str) -> Names:
    """The files of a stream with a suffix, by segment; of two with one name the one that is kept for ever.

    The path of one that is only in object storage is where it would be in the folder; `derived_path` says where it is.
    """
    folder = derived_folder(stream)
    found: Names = {}
    seen: set[str] = set()
    for each in (folder / KEPT_FOLDER, folder):
        try:
            names = os.listdir(each)
        except (FileNotFoundError, NotADirectoryError):
            continue
        for name in sorted(names):
            segment = segment_of_name(name)
            if segment is not None and name.endswith(suffix) and name not in seen:
                seen.add(name)
                found.setdefault(segment, []).append(each / name)
    for remote, name in remote_derived(stream, suffix):
        if name not in seen:
            found.setdefault(remote.first_chunk_id, []).append(folder / name)
    return found


def publish(segment: Segment, folder: Path, suffix: str, write: Callable[[Path], str | None]) -> Path | None:
    """Write a file of a segment under a temporary name, flush it and give it its own.

    In the folder `kept` it outlives the segment. `write` writes it and gives its name, or None where the segment's
    files were replaced meanwhile, for instance by a backup: they are for the next pass. Raises OffsetOutOfRangeError if
    retention deleted the segment, StorageFullError, StreamReadOnlyError, and as `write`.
    """
    temporary = folder / f".{segment.first_chunk_id:020d}-{secrets.token_hex(4)}{suffix}{NEW_SUFFIX}"
    try:
        try:
            name = write(temporary)
            if name is None:
                temporary.unlink(missing_ok=True)
                return None
            path = folder / name
            finish_derived(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except FileNotFoundError:
        raise
    except OSError as error:
        raise storage_error(error, folder) from error
    if segment.remote is None and not segment.index_path.exists() and folder.name != KEPT_FOLDER:
        path.unlink(missing_ok=True)
        raise OffsetOutOfRangeError("retention deleted the segment", path=segment.segment_path)
    return path
