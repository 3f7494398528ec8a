"""The blocks of words that the kernels of AMQP 1.0 take: fields are addresses (columns: int64) and numbers."""

from __future__ import annotations

from typing import NamedTuple

from headgate.kernels import places


class StoreBlock(NamedTuple):
    """Arguments of `store_messages`: the messages received, and buffers for their stored form."""

    data: int
    starts: int
    lengths: int
    rows: int
    routing: int
    """Routing annotations: address, bytes, elements."""
    routing_bytes: int
    routing_elements: int
    user: int
    user_bytes: int
    """-1: any user."""
    widths: int
    """Table of the widths of constructors."""
    names: int
    """`x-stream-filter-value`, then the names that Python handles."""
    name_count: int
    target: int
    out_starts: int
    out_lengths: int
    value_starts: int
    value_lengths: int
    """Of filter values; -1 where there is none."""
    status: int
    spans: int
    """Scratch: a `SpansBlock`."""


class TaggedBlock(NamedTuple):
    """Arguments of `frame_tagged`: stored messages, and buffers for transfers of one frame each."""

    data: int
    starts: int
    lengths: int
    first: int
    rows: int
    channel: int
    handle: int
    delivery_id: int
    """Of the first row that is written."""
    tags: int
    tag_bytes: int
    settled: int
    max_frame_size: int
    target: int
    written: int = 0
    """The kernel puts the bytes that it wrote here."""


class TransferBlock(NamedTuple):
    """Arguments of `frame_messages`: messages of a stream, and buffers for transfers of one frame each."""

    data: int
    starts: int
    lengths: int
    offsets: int
    first: int
    rows: int
    channel: int
    handle: int
    delivery_id: int
    """Of the first row that is written, as the tag."""
    tag: int
    settled: int
    max_frame_size: int
    widths: int
    name: int
    """The name of the offset annotation, as in `StoreBlock.names`."""
    key: int
    """The same in encoded form, 17 bytes."""
    target: int
    spans: int
    """Scratch: a `SpansBlock`."""
    written: int = 0
    """The kernel puts the bytes that it wrote here."""


class SpansBlock(NamedTuple):
    """Where parts of a message lie, as `before_bare` finds them: addresses and lengths."""

    durable: int
    priority: int
    ttl: int
    durable_bytes: int
    """0: the header has none; so of the next two."""
    priority_bytes: int
    ttl_bytes: int
    value: int
    """Filter value: a `ValueBlock`."""
    value_bytes: int
    has_header: int
    annotations: int
    """Content of the message annotations."""
    annotations_bytes: int
    annotations_elements: int


class ValueBlock(NamedTuple):
    """Where a filter value lies."""

    address: int
    length: int
    """-1: there is none."""


class RunBlock(NamedTuple):
    """Results of `parse_transfers`, beside its rows."""

    stop: int
    """The byte behind the last frame read."""
    handle: int


STORE = places(StoreBlock)
TAGGED = places(TaggedBlock)
TRANSFER = places(TransferBlock)
SPANS = places(SpansBlock)
FILTER_VALUE = places(ValueBlock)
RUN = places(RunBlock)
