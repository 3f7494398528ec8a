"""Copying a root while it is written, so that the copy has all messages confirmed before the copying began.

Three rules of order ensure that, with any writes meanwhile:

- ledgers, and all files of the root itself, are copied before any message. A message that a ledger notes as moved is
  in its new place by then; a message settled meanwhile is at worst given out again;
- of a folder, the files beside segments first, then pairs from the newest to the oldest: retention, which deletes from
  the oldest on, leaves no gap;
- of a pair, the index first: it names no chunk that the segment, which only grows, does not have.

Recovery may cut bytes off a copy, but none that were confirmed before. Files that can be rebuilt are left out.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import LogError
from headgate.log import PRIVATE_FOLDER, STREAMS_FOLDER, private_folder, storage_error, sync_file, sync_folder

_LEDGER = "ledger"
_LEFT_OUT = (f"{PRIVATE_FOLDER}/server", f"{PRIVATE_FOLDER}/deleted")
_POSTINGS = "postings"
_UNFINISHED = ".unfinished"


@dataclass(slots=True)
class BackupReport:
    """The number and size of the copied files."""

    files: int = 0
    size_bytes: int = 0


def back_up(root: Path, target: Path) -> BackupReport:
    """Copy a root, served or not, into a new folder, which has another name until all of it is on disk.

    Raises StreamReadOnlyError for a root in object storage, LogError for an existing target, StorageFullError and
    LogError for files that cannot be read or written.
    """
    # Refused in object storage.
    private_folder(root)
    if target.exists():
        raise LogError("it is there already; name a folder that does not exist", path=target)
    if target.resolve().is_relative_to(root.resolve()):
        raise LogError(f"it lies in the root {root} itself; name a folder outside", path=target)
    if not root.is_dir():
        raise LogError("no root is here, a folder with streams", path=root)
    unfinished = target.with_name(target.name + _UNFINISHED)
    report = BackupReport()
    try:
        if unfinished.exists():
            shutil.rmtree(unfinished)
        unfinished.mkdir(parents=True)
        for is_first in (True, False):
            for folder in _folders(root):
                _copy_folder(root, folder, unfinished, report, is_first=is_first)
        for path, _, _ in os.walk(unfinished):
            sync_folder(Path(path))
        unfinished.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        raise storage_error(error, error.filename or target) from error
    return report


def _folders(root: Path) -> Iterator[Path]:
    """The folders under a root that are copied, relative to it."""
    for path, names, _ in os.walk(root):
        folder = Path(path).relative_to(root)
        names[:] = [name for name in names if not _is_left_out(folder / name)]
        yield folder


def _is_left_out(folder: Path) -> bool:
    is_postings = len(folder.parts) == 3 and folder.parts[0] == STREAMS_FOLDER and folder.name == _POSTINGS
    return is_postings or folder.as_posix() in _LEFT_OUT


def _is_first(folder: Path) -> bool:
    """Whether a folder is copied before all messages: a ledger, or no part of a stream."""
    if folder.parts[:1] != (STREAMS_FOLDER,):
        return True
    return _LEDGER in folder.parts[2:]


def _copy_folder(root: Path, folder: Path, target: Path, report: BackupReport, *, is_first: bool) -> None:
    if _is_first(folder) is not is_first:
        return
    made = target / folder
    made.mkdir(parents=True, exist_ok=True)
    try:
        names = [entry.name for entry in os.scandir(root / folder) if entry.is_file(follow_symlinks=False)]
    except FileNotFoundError:
        return
    pairs = {Path(name).stem for name in names if name.endswith(".index")}
    beside = [name for name in names if Path(name).suffix not in (".index", ".segment") and not name.endswith(".lock")]
    for name in beside:
        _copy(root / folder / name, made / name, report)
    for stem in sorted(pairs, reverse=True):
        for suffix in (".index", ".segment"):
            if not _copy(root / folder / f"{stem}{suffix}", made / f"{stem}{suffix}", report):
                # Retention was faster, and will be for all older pairs.
                (made / f"{stem}.index").unlink(missing_ok=True)
                break


def _copy(source: Path, target: Path, report: BackupReport) -> bool:
    """Copy a file as it is now; whether it is still there."""
    try:
        shutil.copyfile(source, target)
        shutil.copymode(source, target)
    except FileNotFoundError:
        target.unlink(missing_ok=True)
        return False
    sync_file(target)
    report.files += 1
    report.size_bytes += target.stat().st_size
    return True
