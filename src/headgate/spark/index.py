"""Building match indexes: one task per segment, and only descriptors of the results cross into the JVM.

A task reads the chunks that are new to its segment's sidecar, evaluates the registered filters and replaces the sidecar
by rename; a task that runs twice does the same twice. The work itself is `headgate.derived.match_index.build`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headgate import clock
from headgate.derived.match_index import BuildCounters, Registration, build_segment, prepare_build
from headgate.log import Segment, Stream
from headgate.spark.schema import arrow_schema
from headgate.spark.worker_errors import told_briefly

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "headgate_index"
_STREAMS = "index_streams"
_FULL = "index_full"
_NOW = "index_now_ms"

_DONE = StructType(
    [StructField("stream", StringType(), nullable=False)]
    + [StructField(counter.name, LongType(), nullable=False) for counter in fields(BuildCounters)]
)


def build_match_index(
    spark: SparkSession, streams: Sequence[Stream], *, full: bool = False
) -> dict[Path, BuildCounters]:
    """Bring the match indexes of some streams up to date; gives the counters per folder of a stream.

    `full` computes everything anew. Raises the errors of `prepare_build` before Spark runs; errors of tasks come as
    Spark's.
    """
    now_ms = clock.now_ms()
    done = {stream.path.absolute(): BuildCounters() for stream in streams}
    for stream in streams:
        prepare_build(stream, now_ms=now_ms)
    if not done:
        return done
    options = {_STREAMS: json.dumps([str(path) for path in done]), _FULL: str(full), _NOW: str(now_ms)}
    for row in spark.read.format(NAME).options(**options).load().collect():
        found = row.asDict()
        done[Path(found.pop("stream"))].add(BuildCounters(**found))
    return done


@told_briefly
class HeadgateIndex(DataSource):
    """The data source of `build_match_index`: each row is the report of a segment."""

    @classmethod
    def name(cls) -> str:
        """Registered beside the source itself; not for use by name."""
        return NAME

    def schema(self) -> StructType:
        """One row per segment."""
        return _DONE

    def reader(self, schema: StructType) -> DataSourceReader:
        """One build."""
        return IndexReader(self.options)


@dataclass
class IndexPartition(InputPartition):
    """One segment and the registered filters of its stream."""

    value: int
    stream: Path
    segment: Segment
    registration: Registration


@told_briefly
class IndexReader(DataSourceReader):
    """Tasks that build instead of giving rows of data."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._streams = [Path(path) for path in json.loads(options[_STREAMS])]
        self._full = options[_FULL] == "True"
        self._now_ms = int(options[_NOW])

    def partitions(self) -> Sequence[InputPartition]:
        """The segments of all streams as they are now; called once, while the query is planned."""
        found: list[InputPartition] = []
        for path in self._streams:
            stream = Stream.open(path)
            registration = prepare_build(stream, now_ms=self._now_ms)
            for segment in stream.segments():
                found.append(IndexPartition(len(found), path, segment, registration))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Build one sidecar; called once per attempt of a task. Spark makes a partition of nothing of an empty plan."""
        import pyarrow as pa

        if isinstance(partition, IndexPartition):
            done = build_segment(partition.segment, partition.registration, full=self._full)
            row = {"stream": str(partition.stream), **asdict(done)}
            yield pa.RecordBatch.from_pylist([row], schema=arrow_schema(_DONE))
