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
import math
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.kernels import address_of, load
from headgate.message.arrow.schema import INTEGER_RANGES, DeclaredColumn, SparkType
from headgate.message.batch import EncodedMessages
from headgate.message.body_values import FieldValues, FoundKind
from headgate.message.json_body import MAX_DIGITS, JsonScalar

_EXACT = decimal.Context(prec=2 * MAX_DIGITS)


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
    stays, unescaped = values.kinds == FoundKind.STRING, values.kinds == FoundKind.UNESCAPED
    there = stays | unescaped
    kernel = load("headgate.message.arrow.decode.kernel")
    if kernel is None or not there.any():
        return pa.nulls(len(there), pa.string())
    # By their addresses; of other kinds nothing is read.
    starts = values.payloads + np.where(unescaped, address_of(values.texts), address_of(batch.data))
    lengths = np.where(there, values.lengths, 0)
    # Without the quotes they are shorter than their messages, which fit a batch.
    offsets = np.zeros(len(there) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = np.empty(int(offsets[-1]), dtype=np.uint8)
    kernel.gather(0, address_of(starts), address_of(lengths), len(there), address_of(data))
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
