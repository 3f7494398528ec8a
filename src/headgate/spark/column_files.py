"""Building column files: one task per segment, and only descriptors of the results cross into the JVM.

A task makes the file of its segment by rename, under the lock of that segment; one that runs twice, or beside another
builder, finds the file. The work itself is `headgate.derived.columns.build`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from headgate import clock
from headgate.derived.columns import BuildReport, ColumnDeclaration, build_segment, declaration_of, sweep_columns
from headgate.errors import CorruptChunkError
from headgate.log import Segment, Stream
from headgate.spark.schema import arrow_schema
from headgate.spark.worker_errors import told_briefly

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "headgate_column_files"
_STREAMS = "column_streams"

_DONE = StructType(
    [
        StructField("stream", StringType(), nullable=False),
        StructField("segment", LongType(), nullable=False),
        StructField("is_new", BooleanType(), nullable=False),
        StructField("messages", LongType(), nullable=False),
        StructField("inexact", LongType(), nullable=False),
        StructField("size_bytes", LongType(), nullable=False),
        StructField("trouble", StringType(), nullable=False),
    ]
)


def build_column_files(spark: SparkSession, streams: Sequence[Stream]) -> dict[Path, list[BuildReport]]:
    """Bring the column files of some streams up to date; gives, per folder of a stream, a report per sealed segment.

    As `build_columns`, on all cores of the cluster; the reports have no `file`. Streams without declared columns are
    skipped. Raises LogError for a wrong declaration; other errors of tasks come as Spark's.
    """
    done: dict[Path, list[BuildReport]] = {stream.path.absolute(): [] for stream in streams}
    declared = [stream.path.absolute() for stream in streams if declaration_of(stream) is not None]
    if declared:
        options = {_STREAMS: json.dumps([str(path) for path in declared])}
        for row in spark.read.format(NAME).options(**options).load().collect():
            found = row.asDict()
            path = Path(found.pop("stream"))
            done[path].append(BuildReport(file=None, **found))
    for stream in streams:
        done[stream.path.absolute()].sort(key=lambda report: report.segment)
        sweep_columns(stream, now_ms=clock.now_ms())
    return done


@told_briefly
class HeadgateColumnFiles(DataSource):
    """The data source of `build_column_files`: each row is the report of a segment."""

    @classmethod
    def name(cls) -> str:
        """Registered beside the source itself; not for use by name."""
        return NAME

    def schema(self) -> StructType:
        """One row per segment."""
        return _DONE

    def reader(self, schema: StructType) -> DataSourceReader:
        """One build."""
        return ColumnFilesReader(self.options)


@dataclass
class ColumnFilesPartition(InputPartition):
    """One sealed segment and the declared columns of its stream."""

    value: int
    path: Path
    stream: Stream
    segment: Segment
    declaration: ColumnDeclaration


@told_briefly
class ColumnFilesReader(DataSourceReader):
    """Tasks that build instead of giving rows of data."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._streams = [Path(path) for path in json.loads(options[_STREAMS])]

    def partitions(self) -> Sequence[InputPartition]:
        """The sealed segments of all streams as they are now; called once, while the query is planned."""
        found: list[InputPartition] = []
        for path in self._streams:
            stream = Stream.open(path)
            declaration = declaration_of(stream)
            for segment in [] if declaration is None else stream.segments():
                if segment.is_sealed:
                    assert declaration is not None
                    found.append(ColumnFilesPartition(len(found), path, stream, segment, declaration))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Build one file; called once per attempt of a task. Spark makes a partition of nothing of an empty plan."""
        import pyarrow as pa

        if isinstance(partition, ColumnFilesPartition):
            try:
                done = build_segment(partition.stream, partition.segment, partition.declaration)
            except CorruptChunkError as error:
                done = BuildReport(partition.segment.first_chunk_id, None, is_new=False, trouble=str(error))
            row = {
                "stream": str(partition.path),
                "segment": done.segment,
                "is_new": done.is_new,
                "messages": done.messages,
                "inexact": done.inexact,
                "size_bytes": done.size_bytes,
                "trouble": done.trouble,
            }
            yield pa.RecordBatch.from_pylist([row], schema=arrow_schema(_DONE))
