"""Columns for a stream, inferred from a sample of messages: their fields, the types, and how many values do not fit."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from headgate.derived.columns.exactness import inexact_bits
from headgate.errors import MessageError
from headgate.log import Stream
from headgate.message import EncodedMessages, Message, Section
from headgate.message.arrow import HEADER_TYPES, PROPERTIES_TYPES, DeclaredColumn, SparkType, fields_of
from headgate.message.constructors import AmqpType
from headgate.scan import ChunkRange, OffsetRange, OnCorrupt, ScanCounters, ScanRequest, plan, read_range

_KINDS = {
    AmqpType.STRING: SparkType.STRING,
    AmqpType.SYMBOL: SparkType.STRING,
    AmqpType.BINARY: SparkType.BINARY,
    AmqpType.BOOLEAN: SparkType.BOOLEAN,
    AmqpType.BYTE: SparkType.BIGINT,
    AmqpType.SHORT: SparkType.BIGINT,
    AmqpType.INT: SparkType.BIGINT,
    AmqpType.LONG: SparkType.BIGINT,
    AmqpType.UBYTE: SparkType.BIGINT,
    AmqpType.USHORT: SparkType.BIGINT,
    AmqpType.UINT: SparkType.BIGINT,
    AmqpType.ULONG: SparkType.DECIMAL,
    AmqpType.FLOAT: SparkType.FLOAT,
    AmqpType.DOUBLE: SparkType.DOUBLE,
    AmqpType.TIMESTAMP: SparkType.TIMESTAMP,
}
"""The column type for values of an AMQP type; the others get no column. Signed integers share one column."""

_RANGES = 32
"""The number of places of the stream at which the sample is taken."""


@dataclass(frozen=True, slots=True)
class InferredColumn:
    """A column that messages of the sample could have.

    `present` is the share of messages that have the field. `other` is the share of these that are inexact in the
    column, mostly because the value is of another type. `distinct` is the number of different values in the sample.
    """

    column: DeclaredColumn
    present: float
    other: float
    distinct: int


def infer_columns(stream: Stream, *, messages: int = 10_000) -> tuple[list[InferredColumn], int]:
    """Columns for a stream, the most frequent fields first, and how many messages were looked at.

    Messages are read at up to 32 places of the stream, from its beginning to its end. Cost: some 30 µs a message.
    Raises LogError; damaged chunks are passed over.
    """
    sample = _sample(stream, messages)
    types: dict[tuple[Section, str], Counter[AmqpType]] = {}
    for data in sample:
        for key, kind in _fields_in(data):
            types.setdefault(key, Counter())[kind] += 1
    columns = [
        column for (section, name), seen in types.items() if (column := _column(section, name, seen)) is not None
    ]
    names = Counter(column.name.lower() for column in columns)
    columns = [_renamed(each) if names[each.name.lower()] > 1 else each for each in columns]
    batch = EncodedMessages.of(sample)
    found = []
    for column in columns:
        (values,) = fields_of(batch, [column]).values()
        other = int(np.count_nonzero(inexact_bits(batch, [column], [values])))
        present = types[column.section, column.field].total()
        found.append(
            InferredColumn(
                column,
                present / len(sample),
                min(1.0, other / present),
                pc.count_distinct(values, mode="only_valid").as_py(),
            )
        )
    found.sort(key=lambda each: (-each.present, int(each.column.section), each.column.name))
    return found, len(sample)


def _sample(stream: Stream, count: int) -> list[bytes]:
    within = OffsetRange(stream.first_offset(), stream.next_offset())
    request = ScanRequest(on_corrupt=OnCorrupt.SKIP)
    rows = [(each, row) for each in plan(stream, request, within).ranges for row in each.rows.tolist()]
    chosen = {int(place) for place in np.linspace(0, len(rows) - 1, min(len(rows), _RANGES))} if rows else set()
    found: list[bytes] = []
    most = -(-count // max(1, len(chosen)))
    # Where the chunk of a place is too small, the chunks behind it give the rest.
    borders = [*sorted(chosen), len(rows)]
    for place, following in itertools.pairwise(borders):
        wanted = most
        for each, row in rows[place:following]:
            one = ChunkRange(each.segment, np.array([row]), each.within, each.size_bytes)
            for batch in read_range(one, request, ScanCounters()):
                found += batch.messages.take(slice(0, wanted)).all_bytes()
                wanted -= min(wanted, len(batch))
            if not wanted:
                break
    return found[:count]


def _fields_in(data: bytes) -> list[tuple[tuple[Section, str], AmqpType]]:
    """The fields of a message that have a value, with its type."""
    found: dict[tuple[Section, str], AmqpType] = {}
    try:
        message = Message.decode(data)
        for section, names in ((Section.HEADER, tuple(HEADER_TYPES)), (Section.PROPERTIES, tuple(PROPERTIES_TYPES))):
            fields = message.section(section)
            for name, value in zip(names, () if fields is None else fields.value, strict=False):
                found[section, name] = value.type
        for section in (Section.MESSAGE_ANNOTATIONS, Section.APPLICATION_PROPERTIES):
            entries = message.section(section)
            for key, value in () if entries is None else entries.value:
                if key.type in (AmqpType.STRING, AmqpType.SYMBOL):
                    found.setdefault((section, key.octets().decode(errors="replace")), value.type)
    except MessageError:
        pass
    return [(key, kind) for key, kind in found.items() if kind is not AmqpType.NULL]


def _column(section: Section, name: str, seen: Counter[AmqpType]) -> DeclaredColumn | None:
    if section is Section.HEADER:
        return DeclaredColumn(name, section, name, HEADER_TYPES[name])
    if section is Section.PROPERTIES:
        return DeclaredColumn(name, section, name, PROPERTIES_TYPES[name])
    kinds: Counter[SparkType] = Counter()
    for found, count in seen.items():
        if found in _KINDS:
            kinds[_KINDS[found]] += count
    if not kinds or not name or "\ufffd" in name or not name.isprintable():
        return None
    kind = kinds.most_common(1)[0][0]
    return DeclaredColumn(name, section, name, kind, 20 if kind is SparkType.DECIMAL else 0)


def _renamed(column: DeclaredColumn) -> DeclaredColumn:
    """The column with its section in its name, where two sections have a field of that name."""
    name = f"{column.section.name.lower()}_{column.name}"
    return DeclaredColumn(name, column.section, column.field, column.kind, column.precision)
