"""Messages of a range of a stream on a server; the filter goes along where the server can evaluate it."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from headgate.client import Client, ServedFilter, SubscriptionOptions
from headgate.derived import MATCH_INDEX
from headgate.errors import ConnectionLostError
from headgate.evaluate import Filter
from headgate.log import OffsetSpecification
from headgate.scan import OffsetRange, ScanBatch, ScanCounters, ScanRequest

_PATIENCE_S = 120.0
"""A read fails after this time without a word from the server."""


def read_served(
    client: Client, stream: str, within: OffsetRange, request: ScanRequest, counters: ScanCounters
) -> Generator[ScanBatch, None, None]:
    """The messages of a range that pass the request, in stream order, and no others.

    Messages that were deleted before delivery are missing: compare `counters.messages_evaluated`. Raises
    ConnectionLostError, ResourceNotFoundError and other errors of the client.
    """
    served = _served(client, request.filter) if MATCH_INDEX in request.sources else None
    subscription = client.subscription(
        SubscriptionOptions(
            stream,
            OffsetSpecification.offset(within.start),
            stop=within.stop,
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
                    f"stream {stream!r}: nothing came for {_PATIENCE_S} s", server=client.address.place
                )
        # Given back at the end, the one connection serves the caller's questions, too.
        subscription.close()
    finally:
        counters.add(subscription.counters)
        subscription.abandon()


def _served(client: Client, given: Filter | None) -> ServedFilter | None:
    """The filter as the server can evaluate it; None where this side has to.

    A filter that asks for the time has to be told the time of planning, which a server does not know.
    """
    if given is None or given.dialect is None or not client.is_headgate or given.uses_time or given.uses_chance:
        return None
    return ServedFilter(given.text, given.dialect)
