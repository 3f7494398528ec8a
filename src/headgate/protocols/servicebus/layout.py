"""The blocks of words that the kernels of Service Bus take: fields are addresses (columns: int64) and numbers."""

from __future__ import annotations

from typing import NamedTuple

from headgate.kernels import places


class IdsBlock(NamedTuple):
    """Arguments of `with_ids`: stored messages, and buffers for the same with an id each."""

    data: int
    starts: int
    lengths: int
    rows: int
    widths: int
    """Table of the widths of constructors."""
    ids: int
    """32 bytes a row."""
    target: int
    out_starts: int
    out_lengths: int
    status: int
    spans: int
    """Scratch: a `SpansBlock` of AMQP 1.0."""


class DeliveryBlock(NamedTuple):
    """Arguments of `deliver`: stored messages, and buffers for their form at receivers."""

    data: int
    starts: int
    lengths: int
    rows: int
    widths: int
    """Table of the widths of constructors."""
    names: int
    """Names of annotations by the kernel's numbers, then names that are left out; 32 bytes each, the length first."""
    name_count: int
    sequences: int
    arrivals: int
    delivery_counts: int
    locked_until_ms: int
    """0: not locked."""
    lifetime_ms: int
    """0: none."""
    latest_ms: int
    target: int
    out_starts: int
    out_lengths: int
    status: int
    spans: int
    """Scratch: a `SpansBlock` of AMQP 1.0."""
    identity: int
    """Scratch of 4 words for an id, and of one for a time to live."""


IDS = places(IdsBlock)
DELIVERY = places(DeliveryBlock)
