"""The tasks of a read: stage 2 on the encoded bytes, then only the asked columns of only the messages that are kept."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import StructType

from headgate.errors import OffsetOutOfRangeError, StreamNotFoundError
from headgate.message import parse_field
from headgate.message.arrow import DeclaredColumn, DeclaredProperty
from headgate.scan import ScanCounters
from headgate.spark.mismatches import PropertyReader
from headgate.spark.options import OnMismatch
from headgate.spark.planning import ReadPartition, ScanPartition
from headgate.spark.rows import Rows
from headgate.tables import ANNOTATION


def record_batches(
    partition: ReadPartition,
    schema: StructType,
    properties: tuple[DeclaredProperty, ...],
    *,
    fields: tuple[DeclaredColumn, ...] = (),
    skip_lost: bool,
    on_mismatch: OnMismatch = OnMismatch.NULL,
) -> Iterator[pa.RecordBatch]:
    """The rows of one partition, in stream order. Memory: one batch, and one window of chunks or the chunks in transit.

    `fields`: the columns of the schema that are fields of messages.
    `skip_lost`: messages that retention deleted since the planning, and deleted streams, are skipped; else
    OffsetOutOfRangeError, StreamNotFoundError.
    `on_mismatch`: see `headgate.spark.mismatches`.
    """
    counted = ScanCounters()
    rows = Rows(schema, PropertyReader(properties, on_mismatch, partition.scan), fields)
    try:
        if isinstance(partition, ScanPartition):
            yield from _batches_of_chunks(partition, rows, counted, skip_lost=skip_lost)
        else:
            # Imports the client.
            from headgate.spark.server_planning import ServerPartition
            from headgate.spark.server_reader import batches_of_server

            assert isinstance(partition, ServerPartition)
            yield from batches_of_server(partition, rows, counted, skip_lost=skip_lost)
        if len(rows):
            yield rows.take()
    finally:
        done = {**counted.as_dict(), **rows.counters}
        name = str(partition.value)
        if partition.counting is not None:
            partition.counting.record(name, done)
        partition.scan.record(name, done, partitions_read=1)


def _batches_of_chunks(
    partition: ScanPartition, rows: Rows, counted: ScanCounters, *, skip_lost: bool
) -> Iterator[pa.RecordBatch]:
    """Read the ranges of a partition from files; see `record_batches`."""
    with partition.reading(counted) as read:
        for chunks, filter_source in partition.pieces:
            yield from rows.of_field(ANNOTATION if filter_source is None else parse_field(filter_source))
            rows.of_stream(chunks.segment.folder.name)
            try:
                for batch in read(chunks):
                    yield from rows.add(batch)
            except (OffsetOutOfRangeError, StreamNotFoundError):
                if not skip_lost:
                    raise
