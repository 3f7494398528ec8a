"""Which offset a place in a stream is, on servers that have no command for it: their chunks say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.client.subscription import SubscriptionOptions
from headgate.errors import ConnectionLostError
from headgate.log import OffsetKind, OffsetSpecification
from headgate.scan import ScanBatch

if TYPE_CHECKING:
    from headgate.client.client import Client

_PATIENCE_S = 30.0


def resolve_by_reading(client: Client, stream: str, place: OffsetSpecification) -> int:
    """The offset that `place` (first, last, next or a time) is now; reads one chunk or two."""
    first = client.statistics(stream).first_chunk_id
    if first is None:
        return 0
    if place.kind is OffsetKind.FIRST:
        return first
    last, behind = _chunk_at(client, stream, OffsetSpecification.last())
    if place.kind is OffsetKind.LAST:
        return int(last.offsets[0])
    if place.kind is OffsetKind.NEXT or place.value > int(last.timestamps_ms[0]):
        return behind
    return int(_chunk_at(client, stream, place)[0].offsets[0])


def _chunk_at(client: Client, stream: str, place: OffsetSpecification) -> tuple[ScanBatch, int]:
    """The messages of the first chunk from a place on, and the offset after them."""
    subscription = client.subscription(SubscriptionOptions(stream, place, credit=1))
    try:
        batch = subscription.read(_PATIENCE_S)
        if batch is None or not len(batch):
            raise ConnectionLostError(
                f"stream {stream!r}: no chunk came within {_PATIENCE_S} s", server=client.address.place
            )
        subscription.close()
        return batch, int(batch.offsets[-1]) + 1
    finally:
        subscription.abandon()
