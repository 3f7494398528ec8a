"""The data source `headgate` for writing: `df.write` and `df.writeStream`, exactly once.

Tasks build whole chunks into staged files; the commit on the driver's side publishes a manifest and appends them in the
order of the partitions (`headgate.log.commit`). A batch of a streaming query is known by (query id, batch id), a batch
write by its options `write_id` and `batch_id`, so that the same one again adds nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headgate import clock
from headgate.errors import ConfigError, HeadgateError
from headgate.log import ONE_TIME_PREFIX, StagedChunks, abort_batch, commit_batch
from headgate.spark.counters import record_counters
from headgate.spark.interpreter import keep_imports
from headgate.spark.option_declarations import COLUMNS
from headgate.spark.options import SinkOptions
from headgate.spark.target import WAIT, StagedRows, Target, open_target
from headgate.spark.values import ValueSource, value_source
from headgate.spark.worker_errors import told_briefly

if TYPE_CHECKING:
    import pyarrow as pa

_IGNORED_COLUMNS = ("offset", "timestamp", "filter_value")
"""Columns of a stream that a message does not hold: a row read from one stream may be written to another."""


class Sink(Protocol):
    """A write as its tasks know it. Picklable."""

    @property
    def options(self) -> SinkOptions:
        """The options of the write."""

    def stage(self, rows: Iterator[pa.RecordBatch], *, query: str, partition: int) -> StagedRows:
        """Put the rows of one task aside; on any error nothing is left."""

    def commit(self, parts: Sequence[StagedRows], *, query: str, batch: int) -> None:
        """Bring the staged rows of the tasks into the stream, in the order of the partitions, once."""

    def abort(self, parts: Sequence[StagedRows]) -> None:
        """Remove staged files that are not decided."""


@dataclass(frozen=True, slots=True)
class FolderSink:
    """A write to a stream in a folder."""

    target: Target
    values: ValueSource
    message_columns: tuple[str, ...]
    options: SinkOptions

    def stage(self, rows: Iterator[pa.RecordBatch], *, query: str, partition: int) -> StagedRows:
        """Build the chunks of one task; on any error its files are removed."""
        from headgate.message.arrow import messages_of

        keep_imports()
        without_value = 0
        staged = self.target.staged_file(query=query, name=f"part-{partition:06d}")
        try:
            for batch in rows:
                messages = messages_of(batch.select(self.message_columns))
                values = self.values.values(batch, messages)
                without_value += int((values.lengths <= 0).sum())
                staged.add(messages.data, messages.starts, messages.lengths, values)
            return StagedRows(partition, query, staged.finish(durable=self.target.durable), without_value)
        except BaseException:
            staged.discard()
            raise

    def commit(self, parts: Sequence[StagedRows], *, query: str, batch: int) -> None:
        """Append the tasks' staged chunks, in the order of the partitions, unless this batch was appended before."""
        ordered = sorted(parts, key=lambda part: part.partition)
        staged = [each for part in ordered for each in _staged_chunks(part)]
        now_ms = clock.now_ms()
        committed = commit_batch(
            self.target.root,
            query=query,
            batch=batch,
            outputs=[self.target.output(staged)],
            now_ms=now_ms,
            durable=self.target.durable,
            wait=WAIT,
        )
        without_value = sum(part.without_value for part in ordered)
        if self.options.counters is not None:
            written = {"messages_written": committed.messages, "messages_without_filter_value": without_value}
            record_counters(self.options.root, self.options.counters, f"write-{query}-{batch}", written)
        if without_value:
            self.target.warn_without_value(query, without_value)

    def abort(self, parts: Sequence[StagedRows]) -> None:
        """Remove staged files that are not decided."""
        for query in {part.query for part in parts}:
            staged = [each for part in parts if part.query == query for each in _staged_chunks(part)]
            abort_batch(self.target.root, query=query, staged=staged)


def _staged_chunks(part: StagedRows) -> tuple[StagedChunks, ...]:
    return part.staged if isinstance(part.staged, tuple) else ()


def sink_for(schema: StructType, options: Mapping[str, str], *, overwrite: bool) -> Sink:
    """Check options and columns, and create the stream if it is missing. Raises ConfigError that names the error."""
    checked = SinkOptions.parse(options)
    if overwrite:
        raise ConfigError("headgate sink: a stream is only appended to; use mode append (output mode append)")
    names = schema.fieldNames()
    option = checked.filter_value
    for name in names:
        if name not in COLUMNS and name != option:
            raise ConfigError(
                f"headgate sink: a message has no column {name!r}; there are {', '.join(COLUMNS)} (put values of your "
                "own into the struct application_properties)"
            )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"headgate sink: column {twice!r} is there twice; select it once")
    message_columns = tuple(name for name in names if name in COLUMNS and name not in _IGNORED_COLUMNS)
    if not message_columns:
        raise ConfigError(f"headgate sink: no column to make messages of; there are {', '.join(COLUMNS[3:])}")
    check_column_types(schema, message_columns, option)
    # Before the stream is made, so that a wrong option leaves nothing behind.
    value_source(option=option, declared=checked.filter_source, columns=frozenset(names))
    if checked.server is not None:
        from headgate.spark.server_sink import server_sink

        return server_sink(checked, message_columns, columns=frozenset(names))
    target = open_target(checked)
    values = value_source(option=option, declared=target.filter_source, columns=frozenset(names))
    return FolderSink(target, values, message_columns, checked)


def check_column_types(schema: StructType, message_columns: tuple[str, ...], option: str | None) -> None:
    """ConfigError for a column of a type that no message field takes, before any row arrives."""
    import pyarrow as pa

    from headgate.message.arrow import messages_of
    from headgate.spark.schema import arrow_schema

    empty = pa.RecordBatch.from_pylist([], schema=arrow_schema(schema))
    messages_of(empty.select(message_columns))
    for name in schema.fieldNames():
        if name not in ("filter_value", option):
            continue
        kind = empty.schema.field(name).type
        if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            raise ConfigError(
                f"headgate sink: column {name!r} holds filter values and is {schema[name].dataType.simpleString()}; "
                "expected string or binary"
            )


@told_briefly
class BatchSink(DataSourceArrowWriter):
    """One batch write. Made once on the driver's side; tasks and commit get copies of it."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        write_id, batch_id = sink.options.write_id, sink.options.batch_id
        self._query = f"{ONE_TIME_PREFIX}{secrets.token_hex(12)}" if write_id is None else f"write-{write_id}"
        self._batch = batch_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage the rows of one partition; called once per attempt of a task."""
        return self._sink.stage(iterator, query=self._query, partition=_partition())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append all of it; called once, when every task has succeeded."""
        self._sink.commit(_parts(messages), query=self._query, batch=self._batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove staged files that are not decided; called when a task failed, and after a commit that raised."""
        self._sink.abort(_parts(messages))


@told_briefly
class StreamSink(DataSourceStreamArrowWriter):
    """The write of a streaming query, batch by batch."""

    def __init__(self, sink: Sink) -> None:
        if sink.options.write_id is not None:
            raise ConfigError(
                "headgate sink option write_id: a streaming query is known by the id in its checkpoint; leave it out"
            )
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage the rows of one partition; called once per attempt of a task."""
        return self._sink.stage(iterator, query=stream_query_id(), partition=_partition())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Append the batch; called again with the same id after a restart that repeats it."""
        parts = _parts(messages)
        if parts:
            self._sink.commit(parts, query=parts[0].query, batch=batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Remove staged files that are not decided; also called after a commit that raised, even if it took effect."""
        self._sink.abort(_parts(messages))


def stream_query_id() -> str:
    """The id of the streaming query that this task belongs to: the one kept in its checkpoint. Raises HeadgateError."""
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    if query is None:
        raise HeadgateError(
            "Spark did not tell the task which streaming query it belongs to; without it no batch is known"
        )
    return str(query)


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[StagedRows]:
    return [message for message in messages if isinstance(message, StagedRows)]
