"""Customer events of a made-up shop, any number, the same for the same seed: the input of the demo and of benchmarks.

Hides how events are drawn (`events`, whole columns at a time) and written (`files`). Importing `files` imports pyarrow;
this package itself does not.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["DEFAULT_RUN_LENGTH", "FORMATS", "write_events"]

FORMATS = ("parquet", "jsonl")
"""Formats of `write_events`: Parquet in row groups, or one JSON object per line."""

DEFAULT_RUN_LENGTH = 20_000
"""Browsing events between two runs of orders, on average."""


def write_events(
    path: str | Path, *, events: int, seed: int, format: str = "parquet", run_length: int = DEFAULT_RUN_LENGTH
) -> None:
    """Write that many events to a file, replacing it when all are written; memory does not grow with their number.

    The first n events of a seed are the same whatever the number asked for. `run_length` is the average number of
    browsing events between two runs of orders. Raises ConfigError for a number below 1, an unknown format, or a place
    that cannot be written.
    """
    from headgate.generate.files import write_file

    write_file(Path(path), events=events, seed=seed, format=format, run_length=run_length)
