"""The tasks of a read from a server: chunks over the stream protocol, then the same columns as from files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from headgate.client import Client, ServedFilter, Subscription, SubscriptionOptions
from headgate.errors import ConnectionLostError
from headgate.evaluate import Filter
from headgate.log import OffsetSpecification
from headgate.scan import ScanBatch, ScanCounters
from headgate.spark.planning import begins_anew, gone
from headgate.spark.reader import Rows
from headgate.spark.server_planning import ServerPartition, ServerRange, ServerStream

_PATIENCE_S = 120.0
"""A read fails after this time without a word from the server."""


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
    request = partition.request
    served = _served(client, request.filter) if request.match_index else None
    subscription = client.subscription(
        SubscriptionOptions(
            part.stream,
            OffsetSpecification.offset(part.within.start),
            stop=part.within.stop,
            filter_values=request.filter_values,
            match_unfiltered=request.match_unfiltered,
            served=served,
            request=replace(
                request,
                filter=request.filter if served is None else None,
                filter_values=(),
                match_unfiltered=False,
            ),
        )
    )
    try:
        while not subscription.is_finished:
            batch = subscription.read(_PATIENCE_S)
            if batch is not None:
                yield batch
            elif not subscription.is_finished:
                raise ConnectionLostError(
                    f"stream {part.stream!r}: nothing came for {_PATIENCE_S} s", server=client.address.place
                )
        # Given back first, the one connection serves the question, too.
        subscription.close()
        if not skip_lost:
            _check_whole(client, part, subscription)
    finally:
        counted.add(subscription.counters)
        subscription.abandon()


def _served(client: Client, given: Filter | None) -> ServedFilter | None:
    """The filter as the server can evaluate it; None where this side has to.

    A filter that asks for the time has to be told the time of planning, which a server does not know.
    """
    if given is None or given.dialect is None or not client.is_headgate or given.uses_time or given.uses_chance:
        return None
    return ServedFilter(given.text, given.dialect)


def _check_whole(client: Client, part: ServerRange, subscription: Subscription) -> None:
    """OffsetOutOfRangeError if something in the range was deleted, or may have been, before it was delivered.

    StreamReplacedError where another stream than the planned one was read.

    That offsets are missing tells nothing: a filter may have left them out, or they are those of chunks with stored
    offsets and publishers. That the beginning is still there afterwards tells that all of it was.
    """
    if part.identity is not None:
        there = client.statistics(part.stream).identity
        begins_anew(part.stream, part.identity, there, path=f"{client.address.place}/{part.stream}", fails=True)
    missing = part.within.stop - part.within.start - subscription.counters.messages_evaluated
    if not missing:
        return
    first = client.statistics(part.stream).first_chunk_id
    if first is None or first > part.within.start:
        raise gone(ServerStream(client, part.stream), part.within.start, part.within.stop if first is None else first)
