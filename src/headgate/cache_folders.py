"""Folders for what Headgate can make again: compiled kernels, segments of object storage, the script before a Java."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

CACHE_VARIABLE = "HEADGATE_CACHE"
"""Environment variable: the folder for all of it; by default `headgate` in the user's cache folder."""


def cache_folders(*variables: str) -> Iterator[Path]:
    """The folders that exist or could be made, and may be written; best first.

    The first of the environment variables that is set names the only one. Else it is that of the user, or one among
    temporary files, unless others may have put something there.
    """
    named = next((os.environ[name] for name in variables if os.environ.get(name)), None)
    candidates = [Path(named)] if named else list(_default_folders())
    for candidate in candidates:
        try:
            candidate.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_usable = os.access(candidate, os.W_OK | os.X_OK) and (named is not None or _is_own(candidate))
        except OSError:
            continue
        if is_usable:
            yield candidate


def _default_folders() -> Iterator[Path]:
    # Unchanged for users without a home, such as those of a container with an arbitrary number.
    home = os.path.expanduser("~")
    cache = os.environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home != "~" else None)
    if cache is not None:
        yield Path(cache) / "headgate"
    yield Path(tempfile.gettempdir()) / f"headgate-cache-{os.getuid()}"


def _is_own(folder: Path) -> bool:
    """Whether only this user and root can have put files there: anybody may make folders among temporary files."""
    found = folder.stat()
    return found.st_uid in (os.getuid(), 0) and not found.st_mode & 0o002
