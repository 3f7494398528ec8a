"""The process that builds derived files for a server: `python -m headgate.server.derived_child ROOT KIND…`.

It looks every few seconds for sealed segments without a file, oldest first, and ends when its standard input does.
"""

from __future__ import annotations

import logging
import os
import select
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headgate.clock import now_ms
from headgate.derived import COLUMN_FILES, LOOKUP_FILES, SealedKind
from headgate.errors import HeadgateError
from headgate.log import Stream, streams_with_derived

_NICENESS = 15
_LOOK_EVERY_S = 5.0
_SWEEP_EVERY_MS = 60_000

logger = logging.getLogger("headgate.server")

KINDS: dict[str, SealedKind[Any]] = {kind.name: kind for kind in (COLUMN_FILES, LOOKUP_FILES)}
"""The kinds that are built as segments seal."""


def main(root: Path, kinds: Sequence[str]) -> None:
    """Build until the standard input ends."""
    logging.basicConfig(format="%(levelname)s %(message)s")
    os.nice(_NICENESS)
    builder = Builder(root, kinds)
    while not _has_ended(0.0):
        if not builder.step(now_ms(), is_over=lambda: _has_ended(0.0)) and _has_ended(_LOOK_EVERY_S):
            return


class Builder:
    """Builds the files of the streams under a root; logs each trouble once. `kinds` are names of `KINDS`."""

    def __init__(self, root: Path, kinds: Sequence[str]) -> None:
        self._root = root
        self._kinds = [KINDS[kind] for kind in kinds]
        self._troubles: dict[tuple[Path, str], str] = {}
        self._swept_ms: int | None = None

    def step(self, now_ms: int, *, is_over: Callable[[], bool]) -> int:
        """Build the files that are missing now, until `is_over`; returns how many."""
        built = 0
        is_due = self._swept_ms is None or now_ms - self._swept_ms >= _SWEEP_EVERY_MS
        for stream in streams_with_derived(self._root):
            for kind in self._kinds:
                if is_over():
                    return built
                built += self._build(stream, kind, now_ms if is_due else None, is_over)
        if is_due:
            self._swept_ms = now_ms
        return built

    def _build(self, stream: Stream, kind: SealedKind[Any], sweep_ms: int | None, is_over: Callable[[], bool]) -> int:
        built, trouble = 0, ""
        try:
            declared = kind.declared(stream)
            for segment in [] if declared is None else kind.missing(stream, declared):
                if is_over():
                    break
                report = kind.build_segment(stream, segment, declared)
                built, trouble = built + report.built, trouble or report.trouble
            if sweep_ms is not None:
                kind.sweep(stream, now_ms=sweep_ms)
        except (HeadgateError, OSError) as error:
            trouble = trouble or str(error)
        if trouble and self._troubles.get((stream.path, kind.files)) != trouble:
            logger.warning("%s of stream %r are not built: %s", kind.files, stream.name, trouble)
        self._troubles[stream.path, kind.files] = trouble
        return built


def _has_ended(within_s: float) -> bool:
    """Whether the standard input ends within `within_s` seconds; nothing is ever written to it."""
    return bool(select.select([sys.stdin], [], [], within_s)[0])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
