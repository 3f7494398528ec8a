"""Moving derived files to object storage, with the segments that they were made of.

    send what is new ──► list there ──► list here ──► delete there what the list lacks
                                                 ──► after a grace time the file here goes, if its segment has gone

A reader without the stream's folder finds the list when it looks for new segments (`shadow.py`). `remote.pending` names
the objects that a crash may leave over.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headgate.log.crash_points import MoveStep, reached
from headgate.log.derived_names import GRACE_MS, marked_in, segment_of_name, unmark
from headgate.log.format import segment_name
from headgate.log.pairs import DERIVED_FOLDER, MATCH_SUFFIX
from headgate.log.remote.catalogue import Catalogue
from headgate.log.remote.derived_list import (
    DECLARATIONS,
    DERIVED_NAME,
    DERIVED_OBJECT,
    DerivedList,
    DerivedObject,
    load_derived,
    may_be_listed,
    save_derived,
    stored_list,
)
from headgate.log.remote.pending import load_pending, note_pending
from headgate.log.remote.storage import ObjectStorage
from headgate.log.stream import Stream

_DECLARATION = re.compile(r"[a-z_]+\.json")
_SIDECAR = re.compile(rf"([0-9]{{20}})\.segment{re.escape(MATCH_SUFFIX)}")
_MOVED_SUFFIX = ".moved"
"""The suffix of a file with the time since when a derived file is not needed here any more, and the file's own time."""


@dataclass(frozen=True, slots=True)
class _Local:
    """A derived file in the stream's folder; `first` is the first offset of its segment, or DECLARATIONS."""

    path: Path
    first: int
    state: DerivedObject

    @property
    def name(self) -> str:
        return self.state.name


class DerivedMover:
    """Moves the derived files of one stream, whose other mover has the lock.

    `claimed` gives the storage, after a check that it is the stream's; `publish` writes a catalogue in both places.
    """

    def __init__(
        self,
        stream: Stream,
        catalogue: Catalogue,
        claimed: Callable[[], ObjectStorage],
        publish: Callable[[Catalogue], None],
        goes_on: Callable[[], bool],
    ) -> None:
        self._stream = stream
        self._catalogue = catalogue
        self._claimed = claimed
        self._publish = publish
        self._goes_on = goes_on

    def move(self, now_ms: int) -> int:
        """Send new files, delete those that are gone; gives how many were sent. Raises RemoteStorageError, LogError."""
        folder = self._stream.path
        local, marks = _local_files(folder), marked_in(folder / DERIVED_FOLDER)
        listed = self._listed(is_needed=bool(local))
        if listed is None:
            return 0
        here = {each.name for each in local}
        known = self._catalogue.rows["first"]
        gone = {each.name for each in listed.files_of(DECLARATIONS)} - here
        gone |= listed.names_without(known)
        gone |= {name for name, since_ms in marks.items() if name not in here and now_ms - since_ms >= GRACE_MS}
        may_go = {DECLARATIONS, *known[np.isin(known, [each.first for each in local])].tolist()}
        new = [
            each
            for each in local
            if each.first in may_go and each.name not in marks and each.state not in listed.files_of(each.first)
        ]
        pending = load_pending(folder).files | gone | {each.name for each in new}
        if pending:
            listed = self._change(listed, new, gone, pending)
            unmark(folder / DERIVED_FOLDER, marks.keys() & gone)
        self._release(local, listed, now_ms)
        return len(new)

    def _listed(self, *, is_needed: bool) -> DerivedList | None:
        """The list; fetched from object storage if it is gone here. None without any file."""
        folder = self._stream.path
        found = load_derived(folder)
        if found is None and (is_needed or load_pending(folder).files or (folder / DERIVED_NAME).exists()):
            storage = self._claimed()
            found = stored_list(storage, self._stream.identity)
            save_derived(folder, found)
        return found

    def _change(self, listed: DerivedList, new: list[_Local], gone: set[str], pending: frozenset[str]) -> DerivedList:
        """Send new files, list them and no longer those that are gone, delete what is not listed; gives the list."""
        folder, storage = self._stream.path, self._claimed()
        wanted = {
            each.name: (first, each)
            for first, found in listed.files().items()
            for each in found
            if each.name not in gone
        }
        note_pending(folder, files=pending)
        for each in new:
            if not self._goes_on():
                break
            # A sweep, or retention, may be faster.
            with contextlib.suppress(FileNotFoundError):
                storage.write_file(each.name, each.path, goes_on=self._goes_on)
                wanted[each.name] = each.first, each.state
                if _state_of(each.path) != each.state:
                    # A sidecar that grew meanwhile: the object may be neither the one nor the other.
                    del wanted[each.name]
        reached(MoveStep.DERIVED_SENT)
        files: dict[int, list[DerivedObject]] = {}
        for first, state in wanted.values():
            files.setdefault(first, []).append(state)
        made = DerivedList.of(self._stream.identity, files)
        storage.write(DERIVED_OBJECT, made.encode())
        # In the folder of a deleted stream another one may have been made.
        self._stream.check_is_there()
        save_derived(folder, made)
        # Readers without the folder look at the catalogue only.
        self._publish(self._catalogue)
        reached(MoveStep.DERIVED_LISTED)
        for name in sorted(pending - wanted.keys()):
            storage.delete(name)
        note_pending(folder, files=())
        return made

    def _release(self, local: list[_Local], listed: DerivedList, now_ms: int) -> None:
        """Delete files whose segment is not in the folder any more, some time after that was seen first."""
        for each in local:
            is_here = each.path.parent.name != DERIVED_FOLDER or (self._stream.path / segment_name(each.first)).exists()
            if is_here or each.first == DECLARATIONS or each.state not in listed.files_of(each.first):
                continue
            mark = each.path.with_name(f"{each.name}{_MOVED_SUFFIX}")
            with contextlib.suppress(OSError):
                since_ms = _moved_since(mark, each.state)
                if since_ms is None:
                    mark.write_text(f"{now_ms} {each.state.mtime_ns}")
                elif now_ms - since_ms >= GRACE_MS:
                    each.path.unlink(missing_ok=True)
        for mark in (self._stream.path / DERIVED_FOLDER).glob(f"*{_MOVED_SUFFIX}"):
            if not mark.with_suffix("").exists():
                mark.unlink(missing_ok=True)


def _moved_since(mark: Path, state: DerivedObject) -> int | None:
    """The time in the mark of a file; None without one, or if it is of an earlier file of that name."""
    try:
        since_ms, mtime_ns = map(int, mark.read_text().split())
    except (FileNotFoundError, ValueError):
        return None
    return since_ms if mtime_ns == state.mtime_ns else None


def _state_of(path: Path) -> DerivedObject:
    found = path.stat()
    return DerivedObject(path.name, found.st_size, found.st_mtime_ns)


def _local_files(folder: Path) -> list[_Local]:
    """The derived files in a stream's folder that may lie in object storage."""
    found = []
    for place in (folder, folder / DERIVED_FOLDER):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for entry in os.scandir(place):
                first = _first_of(entry.name, is_sidecar=place == folder)
                if first is not None and may_be_listed(first, entry.name):
                    with contextlib.suppress(FileNotFoundError):
                        state = _state_of(Path(entry.path))
                        if state.size_bytes:
                            found.append(_Local(Path(entry.path), first, state))
    return found


def _first_of(name: str, *, is_sidecar: bool) -> int | None:
    """The first offset of the segment of a file by its name, or DECLARATIONS; None for other files."""
    if is_sidecar:
        match = _SIDECAR.fullmatch(name)
        return None if match is None else int(match[1])
    if _DECLARATION.fullmatch(name):
        return DECLARATIONS
    return None if name.endswith(_MOVED_SUFFIX) else segment_of_name(name)
