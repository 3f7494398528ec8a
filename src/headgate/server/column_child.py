"""The process that builds column files for a server: `python -m headgate.server.column_child ROOT`.

Looks every few seconds for sealed segments without a file, oldest first, and ends when its standard input does.
"""

from __future__ import annotations

import logging
import os
import select
import sys
from collections.abc import Callable
from pathlib import Path

from headgate.clock import now_ms
from headgate.errors import HeadgateError
from headgate.log import streams_with_derived
from headgate.scan.columns import build_segment, declaration_of, missing_segments, sweep_columns

_NICENESS = 15
_LOOK_EVERY_S = 5.0
_SWEEP_EVERY_MS = 60_000

logger = logging.getLogger("headgate.server")


def main(root: Path) -> None:
    """Build until the standard input ends."""
    logging.basicConfig(format="%(levelname)s %(message)s")
    os.nice(_NICENESS)
    builder = Builder(root)
    while not _has_ended(0.0):
        if not builder.step(now_ms(), is_over=lambda: _has_ended(0.0)) and _has_ended(_LOOK_EVERY_S):
            return


class Builder:
    """What to build of the streams under a root; says each trouble once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._troubles: dict[Path, str] = {}
        self._swept_ms: int | None = None

    def step(self, now_ms: int, *, is_over: Callable[[], bool]) -> int:
        """Build what is missing now, until `is_over`; gives how many files."""
        built = 0
        is_due = self._swept_ms is None or now_ms - self._swept_ms >= _SWEEP_EVERY_MS
        for stream in streams_with_derived(self._root):
            if is_over():
                return built
            trouble = ""
            try:
                declaration = declaration_of(stream)
                for segment in [] if declaration is None else missing_segments(stream, declaration):
                    if is_over():
                        break
                    try:
                        assert declaration is not None
                        built += build_segment(stream, segment, declaration).is_new
                    except HeadgateError as error:
                        # A damaged segment keeps no other from its file.
                        trouble = trouble or str(error)
                if is_due:
                    sweep_columns(stream, now_ms=now_ms)
            except (HeadgateError, OSError) as error:
                trouble = trouble or str(error)
            if trouble and self._troubles.get(stream.path) != trouble:
                logger.warning("column files of stream %r are not built: %s", stream.name, trouble)
            self._troubles[stream.path] = trouble
        if is_due:
            self._swept_ms = now_ms
        return built


def _has_ended(within_s: float) -> bool:
    """Whether the standard input ends within some seconds; nothing is ever written to it."""
    return bool(select.select([sys.stdin], [], [], within_s)[0])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
