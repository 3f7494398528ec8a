"""The pairs of files in a stream folder: found, made, deleted, so that a reader beside it never sees half a pair.

A reader takes a segment for one when both files are there. The segment file is therefore made first and the index, with
its head already in it, comes by rename; deleting begins with the index.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from headgate.log.files import NEW_SUFFIX, OpenFile, WritableFile
from headgate.log.format import FILE_HEAD_BYTES, INDEX_HEAD, SEGMENT_HEAD, index_name, segment_name

MATCH_SUFFIX = ".match"
"""Sidecar of a segment with the results of registered filters: derived data, goes with its segment."""

_FILE = re.compile(r"([0-9]{20})\.(index|segment)")


def ids_on_disk(folder: Path) -> tuple[set[int], set[int]]:
    """First chunk ids of the index files and of the segment files in a folder; other files are passed over."""
    return ids_among(os.listdir(folder))


def ids_among(names: Iterable[str]) -> tuple[set[int], set[int]]:
    """The same for the names of a folder that was listed."""
    indexes: set[int] = set()
    segments: set[int] = set()
    for name in names:
        match = _FILE.fullmatch(name)
        if match is not None:
            (indexes if match[2] == "index" else segments).add(int(match[1]))
    return indexes, segments


def create_pair(folder: Path, first_chunk_id: int, open_file: OpenFile) -> tuple[WritableFile, WritableFile]:
    """A new, empty pair: segment and index, open. After an OSError no reader has seen anything of it."""
    segment_path, index_path = folder / segment_name(first_chunk_id), folder / index_name(first_chunk_id)
    new_index_path = index_path.with_name(f".{index_path.name}{NEW_SUFFIX}")
    opened: list[WritableFile] = []
    try:
        for path, head in ((segment_path, SEGMENT_HEAD), (new_index_path, INDEX_HEAD)):
            file = open_file(path)
            opened.append(file)
            # Of a new file, too, some file systems would write what follows to the device when it is closed.
            if file.size():
                file.truncate(0)
            file.write(head, 0)
        os.replace(new_index_path, index_path)
    except OSError:
        for file in opened:
            file.close()
        raise
    return opened[0], opened[1]


def delete_pair(folder: Path, first_chunk_id: int) -> None:
    """Delete one pair of files and its sidecar, the index first."""
    segment = folder / segment_name(first_chunk_id)
    (folder / index_name(first_chunk_id)).unlink(missing_ok=True)
    segment.unlink(missing_ok=True)
    segment.with_name(segment.name + MATCH_SUFFIX).unlink(missing_ok=True)


def orphaned_segments(folder: Path) -> list[int]:
    """First chunk ids of segments with chunks but without an index: recovery deletes them."""
    indexes, segments = ids_on_disk(folder)
    return [
        chunk_id
        for chunk_id in sorted(segments - indexes)
        if (folder / segment_name(chunk_id)).stat().st_size > FILE_HEAD_BYTES
    ]
