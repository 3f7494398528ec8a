"""Back-tests: the messages that rules would have selected in a range of a stream, and the effect of a change of rules.

Tasks read ranges of chunks, try the rules on the encoded messages (`headgate.topic.trial`) and give back counts and a
few samples; no message enters the JVM, nothing is written.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType

from headgate import clock
from headgate.log import Stream
from headgate.scan import MessageBuffer, OffsetRange, ScanCounters, read_range
from headgate.spark.options import SourceOptions
from headgate.spark.planning import FolderLocation, ScanPartition, batch_ranges, find_streams
from headgate.spark.schema import batch_of_bytes
from headgate.spark.worker_errors import told_briefly
from headgate.topic.trial import Findings, Trial, TrialReport, TrialRequest

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "headgate_backtest"
_REQUEST = "backtest_request"
_READING = "backtest_reading"
_MOST_BYTES = 32 << 20

_FOUND = StructType([StructField("findings", BinaryType(), nullable=False)])


def back_test(
    spark: SparkSession,
    stream: Stream,
    request: TrialRequest,
    *,
    start: str = "first",
    end: str | None = None,
    partitions: int | None = None,
) -> TrialReport:
    """Try the rules of a request on the messages from `start` to `end` (excluded; None: the present end of the stream).

    `start` and `end` are offset specifications: `first`, an offset, an interval such as `10m`, an ISO time. Raises
    RuleError for a rule that cannot be compiled, ConfigError, OffsetOutOfRangeError before Spark runs; errors of tasks
    come as Spark's. Cost: one pass over the messages; an exact trial evaluates every rule alone.
    """
    now_ms = clock.now_ms()
    reading = {"root": str(stream.path.parent), "path": json.dumps([str(stream.path.absolute())]), "start": start}
    reading |= {} if end is None else {"end": end}
    within = _range(SourceOptions.parse(reading), now_ms=now_ms)
    # The range of the tasks is fixed now, so that the report can name it.
    reading |= {"start": str(within.start), "end": str(within.stop)}
    reading |= {} if partitions is None else {"partitions": str(partitions)}
    findings = Trial(request).take()
    if within.start < within.stop:
        options = {_REQUEST: request.encode(), _READING: json.dumps(reading)}
        for row in spark.read.format(NAME).options(**options).load().toLocalIterator():
            findings.add(msgspec.json.decode(row.findings, type=Findings), samples=request.samples)
    return TrialReport(request, findings, within.start, within.stop)


def _range(options: SourceOptions, *, now_ms: int) -> OffsetRange:
    (found,) = batch_ranges(options, find_streams(options), now_ms=now_ms).values()
    return found


@told_briefly
class HeadgateBackTest(DataSource):
    """The data source of `back_test`: its rows are findings, at least one of each task that read something."""

    @classmethod
    def name(cls) -> str:
        """Registered beside the source itself; not for use by name."""
        return NAME

    def schema(self) -> StructType:
        """Findings as JSON."""
        return _FOUND

    def reader(self, schema: StructType) -> DataSourceReader:
        """One back-test."""
        return BackTestReader(self.options)


@told_briefly
class BackTestReader(DataSourceReader):
    """Tasks that try rules instead of giving rows of data."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._request = options[_REQUEST]
        self._reading: dict[str, str] = json.loads(options[_READING])

    def partitions(self) -> Sequence[InputPartition]:
        """The chunks of the range, shared out; called once, while the query is planned."""
        now_ms = clock.now_ms()
        options = SourceOptions.parse(self._reading)
        streams = find_streams(options)
        ranges = batch_ranges(options, streams, now_ms=now_ms)
        return FolderLocation(options).partitions(streams, ranges, now_ms=now_ms, label=NAME)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Try one partition; called once per attempt of a task. Spark makes a partition of nothing of an empty plan."""
        if isinstance(partition, ScanPartition):
            findings = _tried(_trial(self._request), partition)
            yield batch_of_bytes([msgspec.json.encode(findings)], _FOUND)


@functools.lru_cache(maxsize=2)
def _trial(request: str) -> Trial:
    """The trial of a request, its rules compiled once for all tasks of a worker."""
    return Trial(TrialRequest.decode(request))


def _tried(trial: Trial, partition: ScanPartition) -> Findings:
    """The findings of a partition. Memory: one window of chunks and one batch, for any number of rules."""
    # An attempt that failed half-way in this worker may have left something.
    trial.take()
    kept = MessageBuffer()

    def add() -> None:
        messages, offsets, timestamps_ms = kept.take()
        for first in range(0, len(messages), trial.most_messages):
            part = slice(first, first + trial.most_messages)
            trial.add(messages.take(part), offsets[part], timestamps_ms[part])

    for chunks, _ in partition.pieces:
        for batch in read_range(chunks, partition.request, ScanCounters()):
            kept.add(batch)
            if kept.reaches(trial.most_messages, _MOST_BYTES):
                add()
    if len(kept):
        add()
    return trial.take()
