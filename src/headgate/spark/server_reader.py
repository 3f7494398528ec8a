"""The tasks of a read from a server: chunks over the stream protocol, then the same columns as from files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa

from headgate.client import Client
from headgate.scan import ScanBatch, ScanCounters
from headgate.spark.planning import begins_anew, gone
from headgate.spark.rows import Rows
from headgate.spark.server_planning import ServerPartition, ServerRange, ServerStream
from headgate.tables import read_served


def batches_of_server(
    partition: ServerPartition, rows: Rows, counted: ScanCounters, *, skip_lost: bool
) -> Iterator[pa.RecordBatch]:
    """Read the ranges of a partition from its server; see `headgate.spark.reader.record_batches`."""
    with Client.connect(partition.address, keep=True) as client:
        for part in partition.ranges:
            rows.of_stream(part.stream)
            for batch in _read(client, partition, part, counted, skip_lost=skip_lost):
                yield from rows.add(batch)


def _read(
    client: Client, partition: ServerPartition, part: ServerRange, counted: ScanCounters, *, skip_lost: bool
) -> Iterator[ScanBatch]:
    counted_here = ScanCounters()
    with closing(read_served(client, part.stream, part.within, partition.request, counted_here)) as scanned:
        try:
            yield from scanned
            if not skip_lost:
                _check_whole(client, part, counted_here.messages_evaluated)
        finally:
            counted.add(counted_here)


def _check_whole(client: Client, part: ServerRange, evaluated: int) -> None:
    """OffsetOutOfRangeError if something in the range was deleted, or may have been, before it was delivered.

    StreamReplacedError if another stream than the planned one was read.

    Missing offsets prove nothing: a filter may have left them out, or they belong to chunks with stored offsets and
    publishers. If the beginning still exists afterwards, the whole range existed.
    """
    if part.identity is not None:
        there = client.statistics(part.stream).identity
        begins_anew(part.stream, part.identity, there, path=f"{client.address.place}/{part.stream}", fails=True)
    missing = part.within.stop - part.within.start - evaluated
    if not missing:
        return
    first = client.statistics(part.stream).first_chunk_id
    if first is None or first > part.within.start:
        raise gone(ServerStream(client, part.stream), part.within.start, part.within.stop if first is None else first)
