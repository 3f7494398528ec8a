"""The rows of a column file: one for each message, from its bytes, place and time."""

from __future__ import annotations

import functools
import json

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.derived.columns.declaration import ColumnDeclaration
from headgate.derived.columns.exactness import inexact_bits
from headgate.errors import MessageError
from headgate.evaluate import body_values, locate_values
from headgate.message import EncodedMessages, FieldReference, Message, plain_json
from headgate.message.arrow import columns_of, fields_of

Int64Array = NDArray[np.int64]

FIELD_IDS = {
    "offset": 10001,
    "timestamp": 10002,
    "chunk": 10003,
    "filter_value": 10004,
    "other_properties": 10005,
    "body": 10006,
    "inexact": 10007,
    "message": 10008,
    "entry": 10009,
}
"""Field ids of the columns that are not declared; ids of declared columns are below these."""

_TIME = pa.timestamp("us", tz="UTC")


@functools.lru_cache(256)
def column_schema(declaration: ColumnDeclaration) -> pa.Schema:
    """The columns of a file, with their field ids."""
    fields = [
        _own("offset", pa.int64(), nullable=False),
        _own("timestamp", _TIME, nullable=False),
        _own("chunk", pa.int64(), nullable=False),
        _own("filter_value", pa.string()),
    ]
    fields += [_field(column.name, column.type, field_id) for field_id, column in declaration.columns]
    if declaration.other_properties:
        fields.append(_own("other_properties", pa.string()))
    if declaration.body:
        fields.append(_own("body", pa.binary()))
    fields += [
        _own("inexact", pa.int64()),
        _own("message", pa.binary()),
        _own("entry", pa.uint64(), nullable=False),
    ]
    return pa.schema(fields)


def column_rows(
    messages: EncodedMessages,
    *,
    offsets: Int64Array,
    timestamps_ms: Int64Array,
    chunk_ids: Int64Array,
    entries: NDArray[np.void],
    declaration: ColumnDeclaration,
    source: FieldReference | None = None,
) -> pa.RecordBatch:
    """The rows of some messages, as in a file: their schema is `column_schema(declaration)`.

    All arrays are `(messages,)`, `entries` of `headgate.log.ENTRY_DTYPE` (zeros: in a sub-batch). `source` is the field
    that filter values are declared to come from. Raises ConfigError for more than 2 GiB of text in one column.
    """
    declared = declaration.declared
    bodies = body_values(messages, declared)
    values = list(fields_of(messages, declared, bodies).values())
    bits = inexact_bits(messages, declared, values, bodies)
    inexact = np.flatnonzero(bits)
    arrays: list[pa.Array] = [
        pa.array(offsets, pa.int64()),
        pa.array(timestamps_ms * 1000, pa.int64()).cast(_TIME),
        pa.array(chunk_ids, pa.int64()),
        _filter_values(messages, source),
        *values,
    ]
    if declaration.other_properties:
        arrays.append(_other_properties(messages, declaration))
    if declaration.body:
        arrays.append(columns_of(messages, ["body"])["body"])
    arrays += [
        pa.array(bits, pa.int64(), mask=bits == 0) if len(inexact) else pa.nulls(len(bits), pa.int64()),
        _inexact_messages(messages, inexact),
        pa.array(np.ascontiguousarray(entries).view(">u8").astype(np.uint64), pa.uint64()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=column_schema(declaration))


def _own(name: str, kind: pa.DataType, *, nullable: bool = True) -> pa.Field:
    return _field(name, kind, FIELD_IDS[name], nullable=nullable)


def _field(name: str, kind: pa.DataType, field_id: int, *, nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={b"PARQUET:field_id": str(field_id).encode()})


def _filter_values(messages: EncodedMessages, source: FieldReference | None) -> pa.Array:
    """The value of the declared field, as `headgate.tables` shows it; null where it is missing or empty."""
    if source is None or not len(messages):
        return pa.nulls(len(messages), pa.string())
    starts, lengths = locate_values(messages, source)
    there = lengths > 0
    found = EncodedMessages(messages.data, np.where(there, starts, 0), np.where(there, lengths, 0))
    _, *content = columns_of(found, ["message"])["message"].buffers()
    valid = pa.py_buffer(np.packbits(there, bitorder="little"))
    binary = pa.Array.from_buffers(pa.binary(), len(messages), [valid, *content])
    try:
        return binary.cast(pa.string())
    except pa.ArrowInvalid:
        values = (value.as_py() for value in binary)
        return pa.array([None if value is None else value.decode("utf-8", "replace") for value in values], pa.string())


def _inexact_messages(messages: EncodedMessages, rows: NDArray[np.intp]) -> pa.Array:
    """The bytes of the messages of these rows, null in the others."""
    if not len(rows):
        return pa.nulls(len(messages), pa.binary())
    kept = columns_of(messages.take(rows), ["message"])["message"]
    places = np.full(len(messages), -1, dtype=np.int64)
    places[rows] = np.arange(len(rows))
    return kept.take(pa.array(places, mask=places < 0))


def _other_properties(messages: EncodedMessages, declaration: ColumnDeclaration) -> pa.Array:
    """Application properties without a column, as plain JSON: for people to read; no decision uses it."""
    declared = {column.field for column in declaration.declared if column.section.name == "APPLICATION_PROPERTIES"}

    def text(data: bytes) -> str | None:
        try:
            found = Message.decode(data).application_properties
        except MessageError:
            return None
        others = {key: plain_json(value) for key, value in (found or {}).items() if key not in declared}
        others = {key: value for key, value in others.items() if value is not None}
        return json.dumps(others, ensure_ascii=False) if others else None

    return pa.array([text(data) for data in messages.all_bytes()], pa.string())
