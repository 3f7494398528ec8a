"""The cache of a machine: what its processes have of object storage.

    <cache>/remote-<boot of the machine>/<identity>/<entry>/     a file with holes, and what belongs to it

An entry appears by rename, and goes by rename. The crash of a machine could leave a wrong mark of what is there
(`partial_file.py`), therefore each boot has a folder of its own.

The cache has at most `HEADGATE_REMOTE_CACHE_BYTES` (8 GiB); beyond that the entries that were opened longest ago are
removed. A reader that has one open goes on.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from headgate.cache_folders import CACHE_VARIABLE, cache_folders
from headgate.errors import ConfigError
from headgate.log.files import storage_error

FOLDER_VARIABLE = "HEADGATE_REMOTE_CACHE"
"""Environment variable: the folder on this machine for what is read of object storage; without it Headgate's cache."""

SIZE_VARIABLE = "HEADGATE_REMOTE_CACHE_BYTES"
DEFAULT_CACHE_BYTES = 8 << 30

_FETCHED_BEFORE_SWEEP = 256 << 20
_DEAD_AFTER_S = 7 * 86_400
"""After this time without a use, the folder of another boot is removed."""


class _Fetched:
    """Bytes that were fetched since this process looked at the cache's size."""

    lock = threading.Lock()
    count = _FETCHED_BEFORE_SWEEP


def note_fetched(count: int) -> None:
    """Note bytes that came into the cache, which is kept within its size."""
    with _Fetched.lock:
        _Fetched.count += count
        if _Fetched.count < _FETCHED_BEFORE_SWEEP:
            return
        _Fetched.count = 0
    with contextlib.suppress(OSError):
        sweep_cache(cache_folder(), most_bytes=cache_bytes())


def sweep_cache(folder: Path, *, most_bytes: int) -> int:
    """Remove the entries that were opened longest ago, until the others have at most four fifths of `most_bytes`.

    Nothing is removed from a smaller cache. Gives the number of bytes that were removed.
    """
    found = []
    for entry in folder.glob("*/*"):
        with contextlib.suppress(OSError):
            size = sum(file.stat().st_blocks * 512 for file in os.scandir(entry))
            found.append((entry.stat().st_mtime_ns, size, entry))
    total, removed = sum(size for _, size, _ in found), 0
    if total <= most_bytes:
        return 0
    for _, size, entry in sorted(found):
        if total - removed <= most_bytes * 4 // 5:
            break
        removed += size if remove_entry(entry) else 0
    return removed


@contextlib.contextmanager
def new_entry(folder: Path) -> Iterator[Path]:
    """A folder to fill, which becomes the entry `folder`, unless another process makes it meanwhile.

    Raises StorageFullError, StreamReadOnlyError, LogError.
    """
    made = folder.with_name(f".{secrets.token_hex(8)}")
    try:
        made.mkdir(parents=True)
        try:
            yield made
            os.rename(made, folder)
        except OSError:
            if not folder.is_dir():
                raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        raise storage_error(error, made) from error


def remove_entry(folder: Path) -> bool:
    """Remove an entry at once for those who come later."""
    gone = folder.with_name(f".{secrets.token_hex(8)}")
    try:
        os.rename(folder, gone)
    except OSError:
        return False
    shutil.rmtree(gone, ignore_errors=True)
    return True


def cache_bytes() -> int:
    """Limit: bytes of the cache of this machine."""
    given = os.environ.get(SIZE_VARIABLE, "")
    return int(given) if given.isdecimal() else DEFAULT_CACHE_BYTES


@functools.cache
def cache_folder() -> Path:
    """The cache of remote segments of this machine, since it was started. Raises ConfigError if there can be none."""
    parent = next(cache_folders(FOLDER_VARIABLE, CACHE_VARIABLE), None)
    if parent is None:
        raise ConfigError(f"no folder can be written for segments from object storage; let {FOLDER_VARIABLE} name one")
    mine = parent / f"remote-{_boot()}"
    mine.mkdir(exist_ok=True)
    # Its time is now; no clock is asked.
    os.utime(mine)
    for other in parent.glob("remote-*"):
        # Other machines may have the same home folder.
        with contextlib.suppress(OSError):
            if other != mine and mine.stat().st_mtime - other.stat().st_mtime > _DEAD_AFTER_S:
                shutil.rmtree(other, ignore_errors=True)
    return mine


def _boot() -> str:
    """What distinguishes this run of the machine from those before."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        # Systems without it: a folder for each process, which only costs more requests.
        return f"{os.getpid()}-{secrets.token_hex(4)}"
