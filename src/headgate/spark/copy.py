"""From stream to filtered streams without a message entering the JVM: only descriptors of staged chunks cross.

Tasks are given ranges of chunks, read them, evaluate the filter on the encoded bytes and write the messages that match
into staged chunks of each target; what they return to Spark is one row per staged file. The commit on the driver
appends them, all targets at once, exactly once. The bytes of a message are copied as they are.
"""
# ruff: noqa: N802 - Spark gives the methods their names

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headgate.errors import ConfigError, OffsetOutOfRangeError
from headgate.evaluate.filter import Filter
from headgate.log.commit import abort_batch, commit_batch
from headgate.log.manifest import ONE_TIME_PREFIX
from headgate.log.staging import StagedChunks
from headgate.message.fields import FieldReference, parse_field
from headgate.scan import ScanBatch, ScanCounters, read_range
from headgate.spark.counters import counters, forget_counters, record_counters
from headgate.spark.options import FILTER_OPTIONS, SinkOptions, SourceOptions, parse_filter
from headgate.spark.planning import ScanPartition, find_streams, refuse_streaming_options
from headgate.spark.schema import arrow_schema, stream_schema
from headgate.spark.sink import stream_query_id
from headgate.spark.source import BatchReader, StreamReader
from headgate.spark.target import Target, open_target
from headgate.spark.values import ANNOTATION, field_values, value_source

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "headgate_copy"
_TARGETS = "copy_targets"
_QUERY = "copy_query"

_DESCRIPTOR = StructType(
    [
        StructField("query", StringType(), nullable=False),
        StructField("partition", LongType(), nullable=False),
        StructField("target", LongType(), nullable=False),
        StructField("staged", StringType(), nullable=False),
        StructField("without_value", LongType(), nullable=False),
    ]
)
_ANY_COLUMN = stream_schema(("offset",), ())


@dataclass(frozen=True, slots=True)
class CopyResult:
    """What a copy did: `messages_written` to all targets together, `written` per target's stream, counters by name."""

    messages_written: int
    written: dict[str, int] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CopyTarget:
    """One stream that is copied to: of the source's messages those for which its own filter, if any, is true.

    `values` is None where neither option nor declaration says what filter values are made from: then it is what the
    source declares, else the annotation.
    """

    target: Target
    values: FieldReference | None
    filter: Filter | None


def copy_stream(
    spark: SparkSession,
    source: Mapping[str, str],
    target: Mapping[str, str] | Sequence[Mapping[str, str]],
    *,
    checkpoint: str | Path | None = None,
) -> CopyResult:
    """Copy what `source` selects into one or more streams, exactly once.

    `source` has the options of a read; each `target` those of a write, and `filter` + `dialect` or `property_filter` of
    its own. With a `checkpoint` the copy goes on where an earlier one with the same checkpoint stopped, to the end of
    what there is now; without one it is a batch. Blocks until all is committed. Raises ConfigError and FilterError
    before Spark is asked; errors of tasks come as Spark's.
    """
    targets = [dict(target)] if isinstance(target, Mapping) else [dict(each) for each in target]
    reading = SourceOptions.parse(source)
    if checkpoint is None:
        refuse_streaming_options(reading)
    find_streams(reading)
    prepared = _prepare(targets)
    token = reading.counters or f"copy-{secrets.token_hex(8)}"
    place = prepared[0].target.root if reading.counters is None else reading.counters_root
    options = {**source, "counters": token, "counters_root": str(place), _TARGETS: json.dumps(targets)}
    before = counters(token, root=place)
    try:
        if checkpoint is None:
            _copy_batch(spark, options, prepared, _Counting(place, token))
        else:
            _copy_available(spark, options, checkpoint)
        counted = counters(token, root=place)
    finally:
        if reading.counters is None:
            forget_counters(token, root=place)
    done = {name: value - before.get(name, 0) for name, value in counted.items()}
    written = {each.target.path.name: done.pop(_written_to(number), 0) for number, each in enumerate(prepared)}
    return CopyResult(sum(written.values()), written, done)


def _copy_batch(
    spark: SparkSession, options: Mapping[str, str], targets: list[CopyTarget], counting: _Counting
) -> None:
    query = f"{ONE_TIME_PREFIX}{secrets.token_hex(12)}"
    rows = spark.read.format(NAME).options(**options).option(_QUERY, query).load().collect()
    parts = [_Part(query, row.partition, row.target, row.staged, row.without_value) for row in rows]
    _commit(targets, parts, counting, query=query, batch=0)


def _copy_available(spark: SparkSession, options: Mapping[str, str], checkpoint: str | Path) -> None:
    query = (
        spark.readStream.format(NAME)
        .options(**options)
        .load()
        .writeStream.format(NAME)
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except BaseException:
        query.stop()
        raise


def _prepare(targets: Sequence[Mapping[str, str]]) -> list[CopyTarget]:
    """The targets, made where they are not there; nothing is made if any of the options is wrong."""
    checked = [_checked(options) for options in targets]
    if not checked:
        raise ConfigError("headgate copy: no target is given")
    if len({(options.root, options.stream) for options, _ in checked}) < len(checked):
        raise ConfigError("headgate copy: two targets are the same stream; give one, with a filter that joins theirs")
    if len({options.root for options, _ in checked}) > 1:
        raise ConfigError("headgate copy: all targets of one copy must lie under the same root")
    prepared = []
    for options, kept in checked:
        target = open_target(options)
        prepared.append(CopyTarget(target, _value_field(options.filter_value, target.filter_source), kept))
    if len({each.target.root for each in prepared}) > 1:
        raise ConfigError("headgate copy: all targets of one copy must lie under the same root")
    return prepared


def _checked(options: Mapping[str, str]) -> tuple[SinkOptions, Filter | None]:
    own = {name: value for name, value in options.items() if name.lower() in FILTER_OPTIONS}
    checked = SinkOptions.parse({name: value for name, value in options.items() if name not in own})
    if checked.write_id is not None:
        raise ConfigError("headgate sink option write_id: a copy is known by its checkpoint; leave it out")
    _value_field(checked.filter_value, checked.filter_source)
    return checked, parse_filter(own, subject="headgate sink")


def _value_field(option: str | None, declared: str | None) -> FieldReference | None:
    if option is None and declared is None:
        return None
    return value_source(option=option, declared=declared, columns=frozenset()).field


class HeadgateCopy(DataSource):
    """The data source behind `copy_stream`: its rows are descriptors of what the tasks have staged."""

    @classmethod
    def name(cls) -> str:
        """Registered beside the source itself; not for use by name."""
        return NAME

    def schema(self) -> StructType:
        """One row per staged file."""
        return _DESCRIPTOR

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch copy."""
        return CopyBatchReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reading half of a streaming copy."""
        return CopyStreamReader(self.options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """The committing half of a streaming copy."""
        return CopyCommitter(self.options)


class CopyBatchReader(BatchReader):
    """Tasks that copy instead of giving rows."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(_ANY_COLUMN, _source_options(options))
        self._targets = _targets(options)
        self._query = options[_QUERY]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Copy the chunks of a partition; called once per attempt of a task."""
        yield from _copied(partition, self._targets, self._query, skip_lost=not self._options.fail_on_data_loss)


class CopyStreamReader(StreamReader):
    """The same, batch by batch."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(_ANY_COLUMN, _source_options(options))
        self._targets = _targets(options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Copy the chunks of a partition; called once per attempt of a task."""
        skip_lost = not self._options.fail_on_data_loss
        yield from _copied(partition, self._targets, stream_query_id(), skip_lost=skip_lost)


class CopyCommitter(DataSourceStreamArrowWriter):
    """Takes descriptors through Spark to the driver's side and commits the batch they make up."""

    def __init__(self, options: Mapping[str, str]) -> None:
        reading = SourceOptions.parse(_source_options(options))
        assert reading.counters is not None
        self._counting = _Counting(reading.counters_root, reading.counters)
        self._targets = _targets(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Parts:
        """Collect the descriptors of one partition; called once per attempt of a task."""
        return _Parts([_Part(**row) for batch in iterator for row in batch.to_pylist()])

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Append the batch to all targets; called again with the same id after a restart that repeats it."""
        parts = _all_parts(messages)
        if parts:
            _commit(self._targets, parts, self._counting, query=parts[0].query, batch=batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Drop what is staged and not decided; also called after a commit that raised, even if it took effect."""
        parts = _all_parts(messages)
        for query in {part.query for part in parts}:
            staged = [part.chunks for part in parts if part.query == query]
            abort_batch(self._targets[0].target.root, query=query, staged=staged)


@dataclass(frozen=True, slots=True)
class _Counting:
    root: Path
    token: str

    def record(self, name: str, values: Mapping[str, int]) -> None:
        record_counters(self.root, self.token, name, values)


@dataclass(frozen=True, slots=True)
class _Part:
    """A descriptor: what one task has staged for one target."""

    query: str
    partition: int
    target: int
    staged: str
    without_value: int

    @property
    def chunks(self) -> StagedChunks:
        return msgspec.json.decode(self.staged, type=StagedChunks)


@dataclass(slots=True)
class _Parts(WriterCommitMessage):
    parts: list[_Part]


def _all_parts(messages: Sequence[WriterCommitMessage | None]) -> list[_Part]:
    return [part for message in messages if isinstance(message, _Parts) for part in message.parts]


def _source_options(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if name.lower() not in (_TARGETS, _QUERY)}


def _targets(options: Mapping[str, str]) -> list[CopyTarget]:
    return _prepare(json.loads(options[_TARGETS]))


def _written_to(number: int) -> str:
    return f"written_to_{number}"


def _copied(
    partition: InputPartition, targets: Sequence[CopyTarget], query: str, *, skip_lost: bool
) -> Iterator[pa.RecordBatch]:
    """Copy one partition, then give the descriptors. Spark makes a partition of nothing out of an empty plan."""
    import pyarrow as pa

    if not isinstance(partition, ScanPartition):
        return
    outlets = [_Outlet(number, each, query, partition) for number, each in enumerate(targets)]
    counted = ScanCounters()
    try:
        for chunks, declared in zip(partition.ranges, partition.filter_sources, strict=True):
            fallback = ANNOTATION if declared is None else parse_field(declared)
            try:
                for batch in read_range(chunks, partition.request, counted):
                    for outlet in outlets:
                        outlet.add(batch, fallback)
            except OffsetOutOfRangeError:
                if not skip_lost:
                    raise
        rows = [row for outlet in outlets for row in outlet.finish()]
    except BaseException:
        for outlet in outlets:
            outlet.file.discard()
        raise
    if partition.counting is not None:
        partition.counting.record(str(partition.value), counted)
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=arrow_schema(_DESCRIPTOR))


class _Outlet:
    """What one task writes to one target."""

    def __init__(self, number: int, to: CopyTarget, query: str, partition: ScanPartition) -> None:
        self.file = to.target.staged_file(query=query, name=f"{partition.value}-{number}")
        self._number = number
        self._to = to
        self._query = query
        self._partition = partition
        self._without_value = 0

    def add(self, batch: ScanBatch, fallback: FieldReference) -> None:
        messages = batch.messages
        if self._to.filter is not None:
            kept = self._to.filter.select(messages, now_ms=self._partition.request.now_ms)
            messages = messages.take(np.flatnonzero(kept))
        if not len(messages):
            return
        values = field_values(messages, self._to.values or fallback)
        self._without_value += int((values.lengths <= 0).sum())
        self.file.add(messages.data, messages.starts, messages.lengths, values)

    def finish(self) -> Iterator[dict[str, object]]:
        staged = self.file.finish(durable=self._to.target.durable)
        if staged is not None:
            yield {
                "query": self._query,
                "partition": self._partition.number,
                "target": self._number,
                "staged": msgspec.json.encode(staged).decode(),
                "without_value": self._without_value,
            }


def _commit(
    targets: Sequence[CopyTarget], parts: Sequence[_Part], counting: _Counting, *, query: str, batch: int
) -> None:
    """Append what the tasks staged to all targets, in the source's order, unless this batch was appended before."""
    ordered = sorted(parts, key=lambda part: part.partition)
    outputs, written = [], {}
    for number, each in enumerate(targets):
        own = [part for part in ordered if part.target == number]
        outputs.append(each.target.output([part.chunks for part in own]))
        written[_written_to(number)] = sum(part.chunks.messages for part in own)
    root, now_ms = targets[0].target.root, time.time_ns() // 1_000_000
    durable = any(each.target.durable for each in targets)
    commit_batch(root, query=query, batch=batch, outputs=outputs, now_ms=now_ms, durable=durable)
    counting.record(f"write-{query}-{batch}", written)
    for number, each in enumerate(targets):
        without_value = sum(part.without_value for part in ordered if part.target == number)
        if without_value:
            each.target.warn_without_value(query, without_value)
