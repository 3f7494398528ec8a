"""Building derived files: one task per segment, and only descriptors of the results cross into the JVM.

A task makes the files of its segment as any builder does (`headgate.derived`): one that runs twice, or beside another
builder, finds them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StringType, StructField, StructType

from headgate import clock
from headgate.derived import COLUMN_FILES, MATCH_INDEX, BuildReport, DerivedKind
from headgate.derived.match_index import BuildCounters
from headgate.log import Segment, Stream
from headgate.spark.schema import arrow_schema
from headgate.spark.worker_errors import told_briefly

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "headgate_derived"
_KIND = "derived_kind"
_STREAMS = "derived_streams"
_DISTRUST = "derived_distrust"
_NOW = "derived_now_ms"

_DONE = StructType([StructField(name, StringType(), nullable=False) for name in ("stream", "report")])

_KINDS: dict[str, DerivedKind[Any, Any]] = {kind.name: kind for kind in (COLUMN_FILES, MATCH_INDEX)}

Report = TypeVar("Report")


def build_column_files(spark: SparkSession, streams: Sequence[Stream]) -> dict[Path, list[BuildReport]]:
    """Bring the column files of some streams up to date; gives, per folder of a stream, a report per sealed segment.

    On all cores of the cluster. Streams without declared columns are skipped. Raises LogError for a wrong declaration;
    other errors of tasks come as Spark's.
    """
    done = _build(spark, COLUMN_FILES, streams)
    return {path: sorted(reports, key=lambda report: report.segment) for path, reports in done.items()}


def build_match_index(
    spark: SparkSession, streams: Sequence[Stream], *, full: bool = False
) -> dict[Path, BuildCounters]:
    """Bring the match indexes of some streams up to date; gives the counters per folder of a stream.

    `full` computes everything anew. Raises LogError for a registry that cannot be used before Spark runs; errors of
    tasks come as Spark's.
    """
    done = _build(spark, MATCH_INDEX, streams, distrust=full)
    return {path: BuildCounters.total(reports) for path, reports in done.items()}


def _build(
    spark: SparkSession, kind: DerivedKind[Any, Report], streams: Sequence[Stream], *, distrust: bool = False
) -> dict[Path, list[Report]]:
    now_ms = clock.now_ms()
    done: dict[Path, list[Report]] = {stream.path.absolute(): [] for stream in streams}
    wanted = [str(stream.path.absolute()) for stream in streams if kind.prepare(stream, now_ms=now_ms) is not None]
    if wanted:
        options = {_KIND: kind.name, _STREAMS: json.dumps(wanted), _DISTRUST: str(distrust), _NOW: str(now_ms)}
        for row in spark.read.format(NAME).options(**options).load().collect():
            done[Path(row["stream"])].append(msgspec.json.decode(row["report"], type=kind.report))
    for stream in streams:
        kind.sweep(stream, now_ms=now_ms)
    return done


@told_briefly
class HeadgateDerived(DataSource):
    """The data source of the builds: each row is the report of a segment."""

    @classmethod
    def name(cls) -> str:
        """Registered beside the source itself; not for use by name."""
        return NAME

    def schema(self) -> StructType:
        """One row per segment."""
        return _DONE

    def reader(self, schema: StructType) -> DataSourceReader:
        """One build."""
        return DerivedReader(self.options)


@dataclass
class DerivedPartition(InputPartition):
    """One segment, with the declaration of its stream."""

    value: int
    path: Path
    stream: Stream
    segment: Segment
    declared: Any


@told_briefly
class DerivedReader(DataSourceReader):
    """Tasks that build instead of giving rows of data."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._kind = _KINDS[options[_KIND]]
        self._streams = [Path(path) for path in json.loads(options[_STREAMS])]
        self._distrust = options[_DISTRUST] == "True"
        self._now_ms = int(options[_NOW])

    def partitions(self) -> Sequence[InputPartition]:
        """The segments of all streams as they are now; called once, while the query is planned."""
        found: list[InputPartition] = []
        for path in self._streams:
            stream = Stream.open(path)
            declared = self._kind.prepare(stream, now_ms=self._now_ms)
            for segment in [] if declared is None else self._kind.segments(stream):
                found.append(DerivedPartition(len(found), path, stream, segment, declared))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Build one segment; called once per attempt of a task. Spark makes a partition of nothing of an empty plan."""
        import pyarrow as pa

        if isinstance(partition, DerivedPartition):
            done = self._kind.build_segment(
                partition.stream, partition.segment, partition.declared, distrust=self._distrust
            )
            row = {"stream": str(partition.path), "report": msgspec.json.encode(done).decode()}
            yield pa.RecordBatch.from_pylist([row], schema=arrow_schema(_DONE))
