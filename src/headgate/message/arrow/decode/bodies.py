"""Columns of values at paths into JSON bodies, from what an evaluator found there.

A value that its column does not take is null:

| declared | takes |
| --- | --- |
| string | strings without half of a surrogate pair |
| boolean | booleans |
| tinyint … bigint | integers without fraction and exponent, in range |
| decimal(p,s) | numbers that it holds exactly |
| double, float | numbers, as the nearest one that it holds; beyond its range none |

A null of JSON, an array, an object, and what has no value for filters (`JsonValue.scalar`) is null, too.
"""

from __future__ import annotations

import decimal
import enum
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.errors import MessageError
from headgate.kernels import address_of, load
from headgate.message.arrow.schema import INTEGER_RANGES, DeclaredColumn, SparkType
from headgate.message.batch import EncodedMessages
from headgate.message.fields import Section
from headgate.message.json_body import MAX_DIGITS, JsonPaths, JsonScalar
from headgate.message.message import Message

_EXACT = decimal.Context(prec=2 * MAX_DIGITS)


class FoundKind(enum.IntEnum):
    """What was found at a path of a message."""

    NOTHING = 0
    """No value for filters."""
    INTEGER = 1
    """The payload."""
    DECIMAL = 2
    """The shortest text of the double whose bits the payload is; between -2^53 and 2^53."""
    STRING = 3
    """The payload is its place in the buffer of the messages."""
    BOOLEAN = 4
    OTHER = 5
    """A value that is in `others`."""


@dataclass(frozen=True, slots=True)
class FieldValues:
    """What filters compare at one path: `kinds` (of FoundKind), `payloads` and `lengths` (of strings), `(messages,)`.

    `others` are the values of the `rows` of kind OTHER, in their order.
    """

    kinds: NDArray[np.uint8]
    payloads: NDArray[np.int64]
    lengths: NDArray[np.int64]
    rows: NDArray[np.intp]
    others: list[JsonScalar]

    @property
    def doubles(self) -> NDArray[np.float64]:
        """The nearest double of each number of kind INTEGER and DECIMAL."""
        return np.where(self.kinds == FoundKind.DECIMAL, self.payloads.view(np.float64), self.payloads)


@dataclass(frozen=True, slots=True)
class BodyValues:
    """What filters compare in the bodies of a batch, by field; `malformed` `(messages,)` are no messages."""

    of_fields: dict[str, FieldValues]
    malformed: NDArray[np.bool_]


def paths_of(columns: Sequence[DeclaredColumn]) -> dict[str, tuple[bytes | int, ...]]:
    """The paths into bodies among some columns, each once, by their field."""
    return {column.field: column.path for column in columns if column.section is Section.DATA}


def reference_body_values(batch: EncodedMessages, columns: Sequence[DeclaredColumn]) -> BodyValues | None:
    """The values of the columns that are paths into bodies, message by message; None where none is.

    Cost: checking each body, and a walk over each object and array on the way of the paths.
    """
    fields = paths_of(columns)
    if not fields:
        return None
    paths = JsonPaths(list(fields.values()))
    found: list[list[JsonScalar]] = [[None] * len(batch) for _ in fields]
    malformed = np.zeros(len(batch), dtype=np.bool_)
    for row in range(len(batch)):
        try:
            document = Message.decode(batch.message(row)).json
        except MessageError:
            malformed[row] = True
            continue
        for values, value in zip(found, paths.values(document), strict=True):
            values[row] = None if value is None else value.scalar()
    kinds = np.full(len(batch), FoundKind.OTHER, dtype=np.uint8)
    nothing, rows = np.zeros(len(batch), dtype=np.int64), np.arange(len(batch))
    of_fields = {
        field: FieldValues(kinds, nothing, nothing, rows, values) for field, values in zip(fields, found, strict=True)
    }
    return BodyValues(of_fields, malformed)


def body_column(batch: EncodedMessages, values: FieldValues, declared: DeclaredColumn) -> tuple[pa.Array, list[Any]]:
    """The column of one field, and the cells for its `others`; the column is null there."""
    kinds, payloads = values.kinds, values.payloads
    cells = [body_cell(value, declared) for value in values.others]
    match declared.kind:
        case SparkType.STRING:
            return _texts(batch, values), cells
        case SparkType.BOOLEAN:
            return pa.array(payloads != 0, pa.bool_(), mask=kinds != FoundKind.BOOLEAN), cells
        case SparkType.DOUBLE | SparkType.FLOAT:
            is_number = (kinds == FoundKind.INTEGER) | (kinds == FoundKind.DECIMAL)
            # The zero of JSON has no sign.
            doubles = np.where(is_number, values.doubles, 0.0) + 0.0
            return pa.array(doubles, pa.float64(), mask=~is_number).cast(declared.type, safe=False), cells
        case SparkType.DECIMAL:
            numbers = (_number(kind, payload) for kind, payload in zip(kinds.tolist(), payloads.tolist(), strict=True))
            return pa.array([body_cell(number, declared) for number in numbers], declared.type), cells
        case kind:
            low, high = INTEGER_RANGES[kind]
            fits = (kinds == FoundKind.INTEGER) & (payloads >= low) & (payloads <= high)
            return pa.array(np.where(fits, payloads, 0), mask=~fits).cast(declared.type), cells


def _texts(batch: EncodedMessages, values: FieldValues) -> pa.Array:
    there = values.kinds == FoundKind.STRING
    kernel = load("headgate.message.arrow.decode.kernel")
    if kernel is None or not there.any():
        return pa.nulls(len(there), pa.string())
    starts, lengths = np.where(there, values.payloads, 0), np.where(there, values.lengths, 0)
    # Without the quotes they are shorter than their messages, which fit a batch.
    offsets = np.zeros(len(there) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = np.empty(int(offsets[-1]), dtype=np.uint8)
    gathered = address_of(batch.data), address_of(starts), address_of(lengths), len(there), address_of(data)
    kernel.gather(*gathered)
    valid = pa.py_buffer(np.packbits(there, bitorder="little"))
    return pa.Array.from_buffers(pa.string(), len(there), [valid, pa.py_buffer(offsets), pa.py_buffer(data)])


def _number(kind: int, payload: int) -> int | Decimal | None:
    if kind == FoundKind.INTEGER:
        return payload
    (double,) = struct.unpack("=d", struct.pack("=q", payload))
    return Decimal(repr(double)) if kind == FoundKind.DECIMAL else None


def body_cell(value: JsonScalar, declared: DeclaredColumn) -> Any:
    """The cell for a value, as `pyarrow.array` takes it."""
    kind = declared.kind
    if isinstance(value, bool) or value is None:
        return value if kind is SparkType.BOOLEAN else None
    if isinstance(value, bytes):
        return value.decode() if kind is SparkType.STRING else None
    if kind in (SparkType.DOUBLE, SparkType.FLOAT):
        return _nearest(value, is_double=kind is SparkType.DOUBLE)
    if kind is SparkType.DECIMAL:
        plain = _EXACT.normalize(Decimal(value))
        exponent = plain.as_tuple().exponent
        fits = isinstance(exponent, int) and exponent >= -declared.scale
        return plain if not plain or (fits and plain.adjusted() < declared.precision - declared.scale) else None
    if isinstance(value, Decimal) or kind not in INTEGER_RANGES:
        return None
    low, high = INTEGER_RANGES[kind]
    return value if low <= value <= high else None


def _nearest(number: int | Decimal, *, is_double: bool) -> float | None:
    try:
        found = float(number)
        if not is_double:
            (found,) = struct.unpack("f", struct.pack("f", found))
    except OverflowError:
        return None
    # The zero of JSON has no sign.
    return found + 0.0 if math.isfinite(found) else None
