"""Processes that publish and are killed in the middle of it: at a named step, or behind so many calls of functions."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pyiceberg.io.pyarrow
import pyiceberg.table.maintenance  # noqa: F401
from pyiceberg.catalog.sql import SqlCatalog

from headgate import kernels
from headgate.log import Stream, crash_points
from headgate.tables.iceberg import CatalogLocation, publish_table, upkeep  # noqa: F401
from nursery import say

_COUNTED = (os.sep + os.path.join("tables", "iceberg") + os.sep, os.sep + "pyiceberg" + os.sep)


def _kill_behind(calls: int) -> None:
    """The process dies at this call of a function of ours or of pyiceberg's; 0: it says how many there were."""
    seen = 0

    def count(frame: Any, event: str, _: object) -> None:
        nonlocal seen
        if event == "call" and any(part in frame.f_code.co_filename for part in _COUNTED):
            seen += 1
            if seen == calls:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)
    _kill_behind.seen = lambda: seen  # type: ignore[attr-defined]


def live(life: dict[str, Any]) -> None:
    os.environ[crash_points.VARIABLE] = life["crash_at"]
    stream = Stream.open(Path(life["stream"]))
    place = CatalogLocation(Path(life["root"]))
    _kill_behind(life["calls"])
    publish_table(stream, place, now_ms=life["now_ms"])
    sys.setprofile(None)
    say("calls", _kill_behind.seen())  # type: ignore[attr-defined]


if __name__ == "__main__":
    # What each life would otherwise spend most of its time on.
    kernels.load("headgate.kernels.checksum")
    SqlCatalog("none", uri="sqlite:///:memory:").close()
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            live(json.loads(line))
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        say("ended", status)
