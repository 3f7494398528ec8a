"""From streams to streams without a message entering the JVM: only descriptors of staged chunks cross.

Tasks get ranges of chunks, read them, decide which messages go to which target and write them into staged chunks of
each target; they return one row each to Spark. The commit on the driver's side appends the chunks, all targets at once,
exactly once; for many targets of a batch transfer a second job appends them, a share in each task. A `Transfer` makes
the decision: `copy.py` and `route.py` have the two kinds.
"""
# ruff: noqa: N802 - Spark gives the methods their names

from __future__ import annotations

import json
import os
import secrets
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, StructField, StructType

from headgate import clock
from headgate.arrays import totals
from headgate.errors import OffsetOutOfRangeError, StreamNotFoundError
from headgate.log import (
    ONE_TIME_PREFIX,
    ChunkLimits,
    FilterValues,
    Helpers,
    PublishedBatch,
    StagedChunks,
    StagingFile,
    abort_batch,
    add_to_each,
    commit_batch,
)
from headgate.message import EncodedMessages, FieldReference, parse_field
from headgate.scan import ScanBatch, ScanCounters
from headgate.spark import queries
from headgate.spark.counters import OwnCounters, counters
from headgate.spark.options import SourceOptions
from headgate.spark.planning import Counting, FolderLocation, ScanPartition, find_streams
from headgate.spark.schema import batch_of_bytes, stream_schema
from headgate.spark.sink import stream_query_id
from headgate.spark.source import BatchReader, StreamReader
from headgate.spark.target import WAIT, Target
from headgate.spark.worker_errors import stream_reader, told_briefly

if TYPE_CHECKING:
    import pyarrow as pa

_TRANSFER = "transfer"
_QUERY = "transfer_query"

_DESCRIPTORS = StructType([StructField("parts", BinaryType(), nullable=False)])
_MANY_TARGETS = 64
"""From this many targets on, the cost per target and task determines the number of tasks."""

_SHARING_A_FILE = 32
"""Number of targets that share a staged file, if there are many targets."""

_MOST_BYTES_OF_A_TASK = 4 << 30
_APPENDED = "streams long"
_ANY_COLUMN = stream_schema(("offset",), ())

Int64Array = NDArray[np.int64]


class Transfer(Protocol):
    """The decision where the read messages go. Made on the driver's side; tasks get pickled copies."""

    @property
    def targets(self) -> Sequence[Target]:
        """The streams that are written to, all under one root."""

    def begin(self, outlets: Sequence[Outlet], partition: ScanPartition) -> Work:
        """The work of one task; there is one outlet per target, in the same order."""


class Work(Protocol):
    """One task at work."""

    def add(self, batch: ScanBatch, declared: FieldReference | None, body_schema: str | None) -> None:
        """Take messages, in stream order.

        `declared` is where the filter values of their stream come from, `body_schema` what it declares of bodies.
        """

    def finish(self) -> Mapping[str, int]:
        """Pass held-back messages to the outlets; gives counters by name, beside the counters of reading."""


@dataclass(frozen=True, slots=True)
class TransferResult:
    """Counts of a transfer: `messages_written` to all targets together, `written` per target's stream, counters."""

    messages_written: int
    written: dict[str, int] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)


class Outlet:
    """The output of one task to one target."""

    def __init__(
        self, number: int, target: Target, query: str, partition: ScanPartition, file: StagingFile | None
    ) -> None:
        self._number = number
        self._target = target
        self._query = query
        self._partition = partition
        self._without_value = 0
        self.file = target.staged_file(query=query, name=f"{partition.value}-{number}", file=file)

    def add(self, messages: EncodedMessages, values: FilterValues) -> None:
        """Write messages with their filter values, in this order; the buffers may be reused afterwards."""
        if len(messages):
            self._without_value += int((values.lengths <= 0).sum())
            self.file.add(messages.data, messages.starts, messages.lengths, values)

    @staticmethod
    def add_to_each(
        outlets: Sequence[Outlet], bounds: Int64Array, messages: EncodedMessages, values: FilterValues
    ) -> None:
        """Write the messages `bounds[i] … bounds[i + 1]` to outlet i; `bounds` is `(outlets + 1,)`.

        All outlets have the same `limits`. The same as an `add` of each, in a fraction of the time for many of them.
        """
        for outlet, count in zip(outlets, totals(values.lengths <= 0, bounds).tolist(), strict=True):
            outlet._without_value += count
        files = [outlet.file for outlet in outlets]
        add_to_each(files, bounds, messages.data, messages.starts, messages.lengths, values)

    @property
    def limits(self) -> ChunkLimits:
        """How the chunks are cut that it writes."""
        return self.file.limits

    def finish(self) -> _Part | None:
        """The descriptor of the staged chunks; None without any."""
        staged = self.file.finish(durable=self._target.durable)
        if not staged:
            return None
        return _Part(self._query, self._partition.number, self._number, staged, self._without_value)


class _SharedFiles:
    """The files that the outlets of a task share: one each for some neighbouring outlets, which are appended in a row;
    so the first file is free long before the last.
    """

    def __init__(self, targets: Sequence[Target], query: str, partition: ScanPartition) -> None:
        count = -(-len(targets) // _SHARING_A_FILE) if len(targets) >= _MANY_TARGETS else 0
        self._files = [
            StagingFile(targets[0].root, query=query, name=f"{partition.value}-shared-{number}")
            for number in range(count)
        ]
        self._durable = any(target.durable for target in targets)

    def of(self, number: int) -> StagingFile | None:
        """The file of an outlet; None where each has its own."""
        return self._files[number // _SHARING_A_FILE] if self._files else None

    def finish(self) -> None:
        """Close them, behind the outlets."""
        for file in self._files:
            file.finish(durable=self._durable)


def run_transfer(
    spark: SparkSession,
    source: Mapping[str, str],
    transfer: Transfer,
    *,
    format_name: str,
    content: object,
    checkpoint: str | Path | None,
    retries: bool,
) -> TransferResult:
    """Run a transfer to its end and give its counts.

    `source` are the options of the read, which the caller has checked. `format_name` is the `TransferSource` that makes
    the same transfer of `content`, plain JSON, in Spark's own processes. With a `checkpoint` it goes on where an
    earlier one stopped, to the present end of the source; without one it is a batch. With `retries` it is run once more
    if a Python worker did not connect in time: committed messages are not written again.
    """
    reading = SourceOptions.parse(source)
    token = reading.counters or f"{format_name.removeprefix('headgate_')}-{secrets.token_hex(8)}"
    place = transfer.targets[0].root if reading.counters is None else reading.counters_root
    options = {**source, "counters": token, "counters_root": str(place), _TRANSFER: json.dumps(content)}
    if reading.partitions is None and len(transfer.targets) >= _MANY_TARGETS:
        options["partitions"] = str(_few_partitions(reading, spark))
    before = counters(token, root=place)
    with OwnCounters(place) as own:
        if reading.counters is None:
            own.claim(token)
        if checkpoint is None:
            run = partial(_run_batch, spark, format_name, options, transfer, Counting(place, token))
        else:
            run = partial(_run_available, spark, format_name, options, checkpoint)
        if retries:
            queries.tried_again_when_late(run)
        else:
            run()
        counted = counters(token, root=place)
    done = {name: value - before.get(name, 0) for name, value in counted.items()}
    written = {target.path.name: done.pop(_written_to(number), 0) for number, target in enumerate(transfer.targets)}
    return TransferResult(sum(written.values()), written, done)


def _few_partitions(reading: SourceOptions, spark: SparkSession) -> int:
    """The number of tasks: one per core, more where the work of one would be too much to repeat."""
    segments = (segment for stream in find_streams(reading).values() for segment in stream.segments())
    total = sum(segment.segment_bytes() for segment in segments)
    return max(_cores(spark), -(-total // _MOST_BYTES_OF_A_TASK))


def _cores(spark: SparkSession) -> int:
    """The cores for tasks: of the cluster, or, through Connect, which does not say, of this machine."""
    try:
        return spark.sparkContext.defaultParallelism
    except PySparkException:
        return os.cpu_count() or 1


def _run_batch(
    spark: SparkSession, format_name: str, options: Mapping[str, str], transfer: Transfer, counting: Counting
) -> None:
    query = f"{ONE_TIME_PREFIX}{secrets.token_hex(12)}"
    rows = spark.read.format(format_name).options(**options).option(_QUERY, query).load().collect()
    parts = _decoded(row.parts for row in rows)
    helpers = Helpers(max(_cores(spark), len(rows)), partial(_append_in_tasks, spark))
    _commit(transfer.targets, parts, counting, query=query, batch=0, helpers=helpers)


def _append_in_tasks(spark: SparkSession, batch: PublishedBatch) -> int:
    """Append a batch with a job that has a task per share; gives the number of streams that it finished."""
    shares = spark.range(0, batch.shares, 1, batch.shares)
    try:
        return sum(row.streams for row in shares.mapInArrow(partial(_append_share, batch), _APPENDED).collect())
    except (PySparkException, Py4JError):
        # Spark has shown the errors of its tasks. The commit appends what is missing, or says why it cannot.
        return 0


def _append_share(batch: PublishedBatch, shares: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One task: append the shares with these numbers."""
    import pyarrow

    for numbers in shares:
        streams = [batch.append(share, wait=WAIT) for share in numbers.column(0).to_pylist()]
        yield pyarrow.RecordBatch.from_pydict({"streams": pyarrow.array(streams, pyarrow.int64())})


def _run_available(spark: SparkSession, format_name: str, options: Mapping[str, str], checkpoint: str | Path) -> None:
    writer = (
        spark.readStream.format(format_name)
        .options(**options)
        .load()
        .writeStream.format(format_name)
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
    )
    query = queries.start(writer.start)
    try:
        query.awaitTermination()
    except BaseException:
        query.stop()
        raise


@told_briefly
class TransferSource(DataSource):
    """A data source whose rows are descriptors of staged chunks; not for use by name."""

    @abstractmethod
    def transfer(self, content: object) -> Transfer:
        """The transfer that `content` of `run_transfer` describes."""

    def schema(self) -> StructType:
        """One row per task."""
        return _DESCRIPTORS

    def reader(self, schema: StructType) -> DataSourceReader:
        """A transfer in one batch."""
        return _BatchTransfer(self.options, self._transfer())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reading half of a streaming transfer."""
        return stream_reader(lambda: _StreamTransfer(self.options, self._transfer()))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """The committing half of a streaming transfer."""
        return _Committer(self.options, self._transfer())

    def _transfer(self) -> Transfer:
        return self.transfer(json.loads(self.options[_TRANSFER]))


@told_briefly
class _BatchTransfer(BatchReader):
    """Tasks that write to the targets instead of giving rows."""

    def __init__(self, options: Mapping[str, str], transfer: Transfer) -> None:
        super().__init__(_ANY_COLUMN, _source_options(options))
        self._location = FolderLocation(self._options)
        self._transfer = transfer
        self._query = options[_QUERY]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Transfer the chunks of a partition; called once per attempt of a task."""
        yield from _staged(partition, self._transfer, self._query, skip_lost=not self._options.fail_on_data_loss)


@told_briefly
class _StreamTransfer(StreamReader):
    """The same, batch by batch."""

    def __init__(self, options: Mapping[str, str], transfer: Transfer) -> None:
        super().__init__(_ANY_COLUMN, _source_options(options))
        self._location = FolderLocation(self._options)
        self._transfer = transfer

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Transfer the chunks of a partition; called once per attempt of a task."""
        skip_lost = not self._options.fail_on_data_loss
        yield from _staged(partition, self._transfer, stream_query_id(), skip_lost=skip_lost)


@told_briefly
class _Committer(DataSourceStreamArrowWriter):
    """Takes descriptors through Spark to the driver's side and commits the batch they make up."""

    def __init__(self, options: Mapping[str, str], transfer: Transfer) -> None:
        reading = SourceOptions.parse(_source_options(options))
        assert reading.counters is not None
        self._counting = Counting(reading.counters_root, reading.counters)
        self._targets = transfer.targets

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Parts:
        """Collect the descriptors of one partition; called once per attempt of a task."""
        return _Parts([content for batch in iterator for content in batch.column("parts").to_pylist()])

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Append the batch to all targets; called again with the same id after a restart that repeats it."""
        parts = _all_parts(messages)
        if parts:
            _commit(self._targets, parts, self._counting, query=parts[0].query, batch=batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Remove staged files that are not decided; also called after a commit that raised, even if it took effect."""
        parts = _all_parts(messages)
        for query in {part.query for part in parts}:
            staged = [each for part in parts if part.query == query for each in part.staged]
            abort_batch(self._targets[0].root, query=query, staged=staged)


class _Part(msgspec.Struct, frozen=True, array_like=True):
    """A descriptor of the chunks that one task has staged for one target."""

    query: str
    partition: int
    target: int
    staged: tuple[StagedChunks, ...]
    without_value: int


@dataclass(slots=True)
class _Parts(WriterCommitMessage):
    """The descriptors of some tasks, those of each in one piece: Spark keeps no list of outputs."""

    encoded: list[bytes]


def _all_parts(messages: Sequence[WriterCommitMessage | None]) -> list[_Part]:
    return _decoded(content for message in messages if isinstance(message, _Parts) for content in message.encoded)


def _decoded(contents: Iterable[bytes]) -> list[_Part]:
    decoder = msgspec.json.Decoder(list[_Part])
    return [part for content in contents for part in decoder.decode(content)]


def _source_options(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if name.lower() not in (_TRANSFER, _QUERY)}


def _written_to(number: int) -> str:
    return f"written_to_{number}"


def _staged(partition: InputPartition, transfer: Transfer, query: str, *, skip_lost: bool) -> Iterator[pa.RecordBatch]:
    """Transfer one partition, then give the descriptors. Spark makes a partition of nothing out of an empty plan."""
    if not isinstance(partition, ScanPartition):
        return
    files = _SharedFiles(transfer.targets, query, partition)
    outlets = [
        Outlet(number, target, query, partition, files.of(number)) for number, target in enumerate(transfer.targets)
    ]
    counted = ScanCounters()
    try:
        work = transfer.begin(outlets, partition)
        with partition.reading(counted) as read:
            for chunks, declared in partition.pieces:
                source = None if declared is None else parse_field(declared)
                try:
                    for batch in read(chunks):
                        work.add(batch, source, chunks.body_schema)
                except (OffsetOutOfRangeError, StreamNotFoundError):
                    if not skip_lost:
                        raise
        own = work.finish()
        parts = [part for outlet in outlets if (part := outlet.finish()) is not None]
        files.finish()
    except BaseException:
        for outlet in outlets:
            outlet.file.discard()
        raise
    if partition.counting is not None:
        partition.counting.record(str(partition.value), {**counted.as_dict(), **own})
    if parts:
        yield batch_of_bytes([msgspec.json.encode(parts)], _DESCRIPTORS)


def _commit(
    targets: Sequence[Target],
    parts: Sequence[_Part],
    counting: Counting,
    *,
    query: str,
    batch: int,
    helpers: Helpers | None = None,
) -> None:
    """Append the tasks' staged chunks to all targets, in the source's order, unless this batch was appended before."""
    by_target: dict[int, list[_Part]] = {}
    for part in sorted(parts, key=lambda part: (part.target, part.partition)):
        by_target.setdefault(part.target, []).append(part)
    staged = {number: [each for part in own for each in part.staged] for number, own in by_target.items()}
    outputs = [targets[number].output(files) for number, files in staged.items()]
    root, now_ms = targets[0].root, clock.now_ms()
    durable = any(target.durable for target in targets)
    commit_batch(
        root, query=query, batch=batch, outputs=outputs, now_ms=now_ms, durable=durable, wait=WAIT, helpers=helpers
    )
    written = {_written_to(number): sum(each.messages for each in files) for number, files in staged.items()}
    counting.record(f"write-{query}-{batch}", written)
    for number, own in by_target.items():
        without_value = sum(part.without_value for part in own)
        if without_value:
            targets[number].warn_without_value(query, without_value)
