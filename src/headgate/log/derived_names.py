"""Names of the files that are derived of segments, and the marks of those that are about to be deleted.

<segment, 20 digits>-….<kind>          a file
<segment, 20 digits>-….<kind>.gone     its mark: the time (ms) since when nobody needs it
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

GRACE_MS = 10 * 60_000
"""How long a file stays after its segment is gone, or after a newer file replaced it."""

DROPPED_MS = 0
"""The time in the mark of a file that is not to come back."""

GONE_SUFFIX = ".gone"

_OF_SEGMENT = re.compile(r"\.?([0-9]{20})-.+")


def segment_of_name(name: str, *, unfinished: bool = False) -> int | None:
    """The segment of a derived file, by its name; None for other files, marks, and unless `unfinished` new files."""
    match = _OF_SEGMENT.fullmatch(name)
    is_other = match is None or name.endswith(GONE_SUFFIX) or (name.startswith(".") and not unfinished)
    return None if is_other or match is None else int(match[1])


def mark_of(path: Path) -> Path:
    """The mark of a derived file."""
    return path.with_name(f"{path.name}{GONE_SUFFIX}")


def mark_gone(path: Path, now_ms: int) -> None:
    """Mark a derived file. Raises OSError."""
    mark_of(path).write_text(str(now_ms))


def marked_ms(path: Path) -> int:
    """The time in the mark of a derived file."""
    mark = mark_of(path)
    try:
        return int(mark.read_text())
    except (OSError, ValueError):
        # A mark that a power loss left empty: without it the next sweep begins the time anew.
        mark.unlink(missing_ok=True)
        return 1 << 62


def marked_in(folder: Path) -> dict[str, int]:
    """The names of the marked files of a derived folder, each with the time."""
    try:
        names = [name.removesuffix(GONE_SUFFIX) for name in os.listdir(folder) if name.endswith(GONE_SUFFIX)]
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return {name: marked_ms(folder / name) for name in names}


def unmark(folder: Path, names: Iterable[str]) -> None:
    """Remove marks of files of a derived folder."""
    for name in names:
        mark_of(folder / name).unlink(missing_ok=True)
