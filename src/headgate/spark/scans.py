"""Counters of a session's reads, without any option: `last_scan(spark)`.

    <folder>/<read>.json                               the ranges and filters of a read; its time is that of planning
    <folder>/.headgate/counters/<read>/                what planning and tasks counted (see `counters`)
    <folder>/<read>.warned                             the one warning of the read was given

`register` makes a folder for the session, keeps its name in the setting `spark.headgate.scans`, and gives it to the
data source that it registers: planning and tasks see neither session nor settings. An existing setting is kept. A
process that cannot see the folder (an executor on another machine, a server of Spark Connect) records nothing there: a
read never fails because of it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from headgate.errors import ConfigError, LogError
from headgate.log import replace_file
from headgate.scan import OffsetRange
from headgate.spark.counters import counters, fold_counters, forget_counters, record_counters
from headgate.temporary import Purpose, TemporaryFolder

SCANS = "spark.headgate.scans"
"""The setting with the folder of the session's reads."""

_MOST_READS = 32
"""At most this many reads are kept per session."""

_PARTITIONS = "partitions"
_PARTITIONS_READ = "partitions_read"
_warned: set[str] = set()


@dataclass(frozen=True, slots=True)
class LastScan:
    """Counts of one read: a batch read, or the run of a streaming query up to now.

    `counters` have the names of `headgate.scan.ScanCounters` (`chunks_skipped`, `bytes_skipped`,
    `messages_evaluated`, `messages_matched`, …), and `properties_mismatched` where properties are declared: values
    that are null because they do not fit.
    """

    ranges: dict[str, tuple[int, int]]
    """Per stream the requested offsets: the first, and the one after the last."""
    filters: tuple[str, ...]
    """Comparisons that Spark pushed down and the read used to leave out offsets, chunks or times."""
    partitions: int
    """Pieces that planning made; 0 where nothing is left to be read."""
    partitions_read: int
    """How many of them tasks have read; fewer where a LIMIT was reached, or tasks do not see the folder."""
    counters: dict[str, int]


@dataclass(frozen=True, slots=True)
class Scan:
    """One read on its way; travels to planning and tasks. Without a `folder` nothing is recorded."""

    folder: str | None = None
    name: str = field(default_factory=lambda: secrets.token_hex(8))

    def plan(self, ranges: Mapping[str, OffsetRange], filters: Iterable[str]) -> None:
        """Keep the ranges to be read. A streaming query calls this for each batch: then the ranges are joined."""
        with self._recording() as folder:
            if folder is None:
                return
            path = folder / f"{self.name}.json"
            found = {key: (within.start, within.stop) for key, within in ranges.items()}
            if path.exists():
                before = _described(path).ranges
                joined = {key: (before.get(key, found[key])[0], found[key][1]) for key in found}
                found = {**before, **joined}
            replace_file(path, json.dumps({"ranges": found, "filters": list(filters)}).encode(), flushed=False)
            _forget_older(folder)

    def record(self, name: str, values: Mapping[str, int], *, partitions: int = 0, partitions_read: int = 0) -> None:
        """Keep the counters of a planning or a task; the same `name` again replaces them."""
        with self._recording() as folder:
            if folder is not None:
                counted = {**values, _PARTITIONS: partitions, _PARTITIONS_READ: partitions_read}
                record_counters(folder, self.name, name, counted)

    def fold(self) -> None:
        """Sum up the counter files of finished batches; when no task is running."""
        with self._recording() as folder:
            if folder is not None:
                fold_counters(folder, self.name)

    def warn(self, text: str) -> None:
        """One line on the standard error of Spark, the first time only: per read, or per process without a folder."""
        with self._recording() as folder:
            if folder is not None:
                try:
                    os.close(os.open(folder / f"{self.name}.warned", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                except FileExistsError:
                    return
        if self.name not in _warned:
            _warned.add(self.name)
            print(f"headgate: {text}", file=sys.__stderr__, flush=True)

    @contextlib.contextmanager
    def _recording(self) -> Iterator[Path | None]:
        """The folder, or None. Errors of recording are dropped: a read must not fail because of them."""
        folder = None if self.folder is None else Path(self.folder)
        with contextlib.suppress(OSError, LogError):
            yield folder if folder is not None and folder.is_dir() else None


def last_scan(spark: SparkSession) -> LastScan | None:
    """The counts of the read of Headgate streams that was planned last in this session; None before the first.

    Neither a SparkContext nor a JVM is asked, so it is the same over Spark Connect. The counters lie in a temporary
    folder of the driver's machine: where executors run on other machines, or the server of Spark Connect does, set
    `spark.headgate.scans` to a folder that all of them share, before `session` or `register`. Raises ConfigError for a
    session without Headgate registered.
    """
    folder = spark.conf.get(SCANS, None)
    if folder is None:
        raise ConfigError(
            "last_scan: the session knows no Headgate; call headgate.spark.register(spark) before reading"
        )
    reads = sorted(_reads(Path(folder)), key=_planned_at)
    if not reads:
        return None
    described = _described(reads[-1])
    sums = counters(reads[-1].stem, root=folder)
    return LastScan(
        described.ranges,
        described.filters,
        sums.pop(_PARTITIONS, 0),
        sums.pop(_PARTITIONS_READ, 0),
        sums,
    )


def scans_folder(spark: SparkSession) -> str:
    """Where the reads of a session are recorded; made the first time, and removed when this process ends."""
    folder = spark.conf.get(SCANS, None)
    if folder is None:
        made = TemporaryFolder(Purpose.SCANS)
        atexit.register(made.remove)
        folder = str(made.path)
        spark.conf.set(SCANS, folder)
    return folder


@dataclass(frozen=True, slots=True)
class _Description:
    ranges: dict[str, tuple[int, int]]
    filters: tuple[str, ...]


def _described(path: Path) -> _Description:
    content = json.loads(path.read_bytes())
    ranges = {key: (start, stop) for key, (start, stop) in content["ranges"].items()}
    return _Description(ranges, tuple(content["filters"]))


def _reads(folder: Path) -> list[Path]:
    return list(folder.glob("*.json"))


def _planned_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _forget_older(folder: Path) -> None:
    for path in sorted(_reads(folder), key=_planned_at)[:-_MOST_READS]:
        path.unlink(missing_ok=True)
        path.with_suffix(".warned").unlink(missing_ok=True)
        forget_counters(path.stem, root=folder)
