"""Columns of values at paths into JSON bodies: message by message in Python, all paths of a message in one walk.

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
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.errors import MessageError
from headgate.message.arrow.schema import INTEGER_RANGES, DeclaredColumn, SparkType
from headgate.message.batch import EncodedMessages
from headgate.message.fields import Section
from headgate.message.json_body import MAX_DIGITS, JsonPaths, JsonScalar
from headgate.message.message import Message

_EXACT = decimal.Context(prec=2 * MAX_DIGITS)


@dataclass(frozen=True, slots=True)
class BodyValues:
    """What filters compare in the bodies of a batch: of each field one value a message; `malformed` `(messages,)`."""

    of_fields: dict[str, list[JsonScalar]]
    malformed: NDArray[np.bool_]


def body_values(batch: EncodedMessages, columns: Sequence[DeclaredColumn]) -> BodyValues | None:
    """The values of the columns that are paths into bodies; None where none is.

    Cost: checking each body and a walk over each object and array on the way, as for filters in Python.
    """
    fields = {column.field: column.path for column in columns if column.section is Section.DATA}
    if not fields:
        return None
    paths = JsonPaths(list(fields.values()))
    of_fields: dict[str, list[JsonScalar]] = {field: [None] * len(batch) for field in fields}
    malformed = np.zeros(len(batch), dtype=np.bool_)
    for row in range(len(batch)):
        try:
            document = Message.decode(batch.message(row)).json
        except MessageError:
            malformed[row] = True
            continue
        for values, found in zip(of_fields.values(), paths.values(document), strict=True):
            values[row] = None if found is None else found.scalar()
    return BodyValues(of_fields, malformed)


def body_column(values: BodyValues, declared: DeclaredColumn) -> pa.Array:
    """The column of one field."""
    return pa.array([body_cell(value, declared) for value in values.of_fields[declared.field]], type=declared.type)


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
