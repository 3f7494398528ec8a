"""Finding, creating and deleting the pairs of files in a stream folder, so that a reader never sees half a pair.

A segment counts for readers when both files exist. Therefore the segment file is created first, and the index, which
already has its head, is renamed into place. Deleting begins with the index (osiris_log.md section 1), which is first
renamed away: so a deletion that a crash ended is distinguished from a lost index.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from headgate.errors import CorruptChunkError
from headgate.log.files import NEW_SUFFIX, DiskFile, OpenFile, file_size
from headgate.log.format import FILE_HEAD_BYTES, INDEX_HEAD, SEGMENT_HEAD, index_name, segment_name

MATCH_SUFFIX = ".match"
"""Sidecar of a segment with the results of registered filters: derived data, deleted with its segment."""

SETTINGS_NAME = "stream.json"
"""The settings of one of our stream folders (`settings.py`)."""

SEAL_SUFFIX = ".seal"
"""Sidecar of a sealed segment with checksums (`seal.py`), deleted with its segment."""

_DELETED_SUFFIX = ".deleted"
"""Suffix of an index that readers do not see any more, while its pair is being deleted."""

DAMAGED_FOLDER = "damaged"
"""The folder in a stream folder with damaged bytes that were given up (`salvage.py`)."""

DERIVED_FOLDER = "derived"
"""The folder in a stream folder with files that are derived of its segments (`derived.py`)."""

_FILE = re.compile(r"([0-9]{20})\.(index|segment)")
_GIVEN_UP = re.compile(r"([0-9]{20})-([0-9]{20})\.bytes")


def ids_among(names: Iterable[str]) -> tuple[set[int], set[int]]:
    """First chunk ids of the index files and of the segment files among names; other files are ignored."""
    indexes: set[int] = set()
    segments: set[int] = set()
    for name in names:
        match = _FILE.fullmatch(name)
        if match is not None:
            (indexes if match[2] == "index" else segments).add(int(match[1]))
    return indexes, segments


def given_up_offsets(folder: Path) -> list[tuple[int, int]]:
    """The ranges of offsets of a stream that were given up, each first and next, by the names of their kept files."""
    try:
        names = os.listdir(folder / DAMAGED_FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted((int(match[1]), int(match[2])) for name in names if (match := _GIVEN_UP.fullmatch(name)))


def create_pair(folder: Path, first_chunk_id: int, open_file: OpenFile) -> tuple[DiskFile, DiskFile]:
    """Create and open a new, empty pair: segment and index. After an OSError no reader has seen any of it."""
    segment_path, index_path = folder / segment_name(first_chunk_id), folder / index_name(first_chunk_id)
    new_index_path = index_path.with_name(f".{index_path.name}{NEW_SUFFIX}")
    opened: list[DiskFile] = []
    try:
        for path, head in ((segment_path, SEGMENT_HEAD), (new_index_path, INDEX_HEAD)):
            file = open_file(path)
            opened.append(file)
            # Even for a new file some file systems would then write later data to the device when it is closed.
            if file.size():
                file.truncate(0)
            file.write(head, 0)
        os.replace(new_index_path, index_path)
    except OSError:
        for file in opened:
            file.close()
        new_index_path.unlink(missing_ok=True)
        raise
    return opened[0], opened[1]


def delete_pair(folder: Path, first_chunk_id: int) -> None:
    """Delete one pair of files and its sidecars, the index first."""
    segment = folder / segment_name(first_chunk_id)
    index, mark = folder / index_name(first_chunk_id), folder / _mark_of(first_chunk_id)
    try:
        os.replace(index, mark)
    except OSError:
        # The index is gone, or a folder of a full disk takes no new name.
        index.unlink(missing_ok=True)
    segment.unlink(missing_ok=True)
    segment.with_name(segment.name + MATCH_SUFFIX).unlink(missing_ok=True)
    seal_path(segment).unlink(missing_ok=True)
    mark.unlink(missing_ok=True)


def finish_deletions(folder: Path, names: Iterable[str]) -> None:
    """Finish deletions of pairs that a crash interrupted; `names` are the names in the folder."""
    for name in names:
        if name.endswith(_DELETED_SUFFIX) and (match := _FILE.fullmatch(name[1 : -len(_DELETED_SUFFIX)])):
            delete_pair(folder, int(match[1]))


def _mark_of(first_chunk_id: int) -> str:
    return f".{index_name(first_chunk_id)}{_DELETED_SUFFIX}"


def seal_path(segment_path: Path) -> Path:
    """The seal of a segment file."""
    return segment_path.with_name(segment_path.name + SEAL_SUFFIX)


def find_missing(folder: Path, names: Iterable[str]) -> CorruptChunkError | None:
    """The error for a missing file with messages in a folder with these names; None if none is known to be missing.

    A segment without an index is allowed if its deletion is under way, or if a new pair is being created (it has no
    chunk). In a foreign folder it is also allowed if it is older than every pair: RabbitMQ's retention leaves it so
    when it stops halfway. An index without a segment is allowed if it has no record. A sealed segment always has a
    successor.
    """
    names = set(names)
    indexes, segments = ids_among(names)
    pairs = indexes & segments
    first = -1 if SETTINGS_NAME in names else min(pairs, default=-1)
    for chunk_id in sorted(segments - indexes):
        is_deleted = chunk_id < first or _mark_of(chunk_id) in names
        if not is_deleted and file_size(folder / segment_name(chunk_id)) > FILE_HEAD_BYTES:
            return CorruptChunkError(
                "the index file is missing, its segment is there; headgate stream repair FOLDER makes it again",
                path=folder / index_name(chunk_id),
            )
    for chunk_id in sorted(indexes - segments):
        if file_size(folder / index_name(chunk_id)) > FILE_HEAD_BYTES:
            return CorruptChunkError(
                "the segment file is missing, its index is there; restore the file, or remove the index to go on "
                "without its messages",
                path=folder / segment_name(chunk_id),
            )
    if not pairs and SETTINGS_NAME in names:
        return CorruptChunkError(
            "the log files are gone; restore them, or remove the stream and create it again", path=folder
        )
    if pairs and segment_name(max(pairs)) + SEAL_SUFFIX in names:
        path = folder / segment_name(max(pairs))
        return CorruptChunkError(
            f"the files behind this segment are gone; restore them, or remove {seal_path(path).name} to go on without "
            "their messages",
            path=path,
        )
    return None
