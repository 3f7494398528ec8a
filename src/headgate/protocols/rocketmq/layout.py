"""The blocks of words that the kernels of RocketMQ take: fields are addresses (columns: int64) and numbers."""

from __future__ import annotations

from typing import NamedTuple

from headgate.kernels import places


class StoredBlock(NamedTuple):
    """Arguments of `encode_stored`: messages of a stream, and buffers for answers to pulls."""

    data: int
    starts: int
    lengths: int
    rows: int
    widths: int
    """Table of the widths of constructors."""
    names: int
    """Names of the system, their hash table, and the prefix of their annotations (`SystemNames.addresses`)."""
    slots: int
    prefix: int
    retries: int
    """How often a row was consumed before; 0: the message says it."""
    queue: int
    topic: int
    topic_length: int
    host: int
    host_length: int
    added: int
    """Properties that every message gets."""
    added_length: int
    added_names: int
    """Bits of the names of the system among them."""
    identity: int
    """The digits of the stream, for messages without an id."""
    crc_table: int
    offsets: int
    timestamps_ms: int
    target: int
    end: int
    """Of the target."""
    out_starts: int
    out_lengths: int
    status: int
    scratch: int
    first_place: int
    """The place of offset 0."""


class TablesBlock(NamedTuple):
    """Tables that `compose` takes."""

    names: int
    """Names of the system, their hash table, and the prefix of their annotations (`SystemNames.addresses`)."""
    slots: int
    prefix: int
    sharding: int
    """The name `__SHARDINGKEY`."""


class MessageBlock(NamedTuple):
    """A message that was read, at the beginning of scratch."""

    body: int
    body_length: int
    born: int
    """Milliseconds since the epoch, if `has_born` is 1."""
    has_born: int
    flag: int
    host: int
    host_length: int
    id: int
    id_length: int
    system: int
    """How many entries of the system there are."""
    users: int
    free: int
    """Where digits go next."""


class EntryBlock(NamedTuple):
    """A property in scratch; a value of length 0 is none."""

    name: int
    """In a message that was sent, for a property of the system: its row in the table of names."""
    name_length: int
    value: int
    value_length: int


STORED = places(StoredBlock)
TABLES = places(TablesBlock)
MESSAGE = places(MessageBlock)
ENTRY = places(EntryBlock)
