"""Fingerprints of values: 32 bits, the same for all values that are equal in any language.

| value | fingerprint of |
| --- | --- |
| string, symbol, binary, uuid | its bytes |
| integers of every type, char, timestamp, double | the nearest double; both zeros are one |
| float | the same, below 2^24; from there on `ANY`, as languages round integers to it |
| boolean | the boolean |
| null, absent | `NONE`: equal to nothing |
| decimal, NaN, list, map, array, described | `ANY`: may equal anything |
| in a JSON body: string, boolean | as above: the string's bytes without escapes |
| in a JSON body: number | the nearest double |
| in a JSON body: everything else, nothing, and a body that is no JSON | `NONE`: filters take it as unknown |

A field is `ANY` as well where the message is malformed, where the list or map that holds it breaks, and where its key
stands in the map with different values; keys that differ only in 0x20 of a byte, or in string and symbol, count as one
key, because languages choose among them in different ways.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Iterable, Sequence
from decimal import Decimal
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from headgate import kernels
from headgate.errors import MessageError
from headgate.evaluate import KeyValue, Truth, body_values
from headgate.message import (
    CONSTRUCTOR_WIDTHS,
    INTEGER_RANGES,
    AmqpType,
    AmqpValue,
    EncodedMessages,
    FieldReference,
    JsonScalar,
    Message,
    Section,
)

KERNEL = "headgate.derived.lookup.fingerprints.kernel"

NONE = 0
ANY = 1

_FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93
_NUMBER, _BOOLEAN = 0x4E756D626572, 0x426F6F6C
_WORD = (1 << 64) - 1
_FLOAT_LIMIT = 1 << 24


def fingerprints(batch: EncodedMessages, fields: Sequence[FieldReference]) -> NDArray[np.uint32]:
    """`(fields, messages)`: the fingerprints of some fields of each, `NONE` or `ANY`.

    Messages of a rare form are `ANY` with kernels; without kernels they may have a fingerprint. Cost: some 30 ns for a
    message and field, and that of `evaluate.body_values`, if fields are in bodies.
    """
    kernel = kernels.load(KERNEL)
    if kernel is None:
        each = [fingerprints_of(data, fields) for data in batch.all_bytes()]
        return np.array(each, dtype=np.uint32).reshape(len(batch), len(fields)).T
    found = np.empty((len(fields), len(batch)), dtype=np.uint32)
    in_bodies = [place for place, field in enumerate(fields) if field.section is Section.DATA]
    if in_bodies:
        found[in_bodies] = _in_bodies(kernel, batch, [fields[place] for place in in_bodies])
    for place, field in enumerate(fields):
        if field.section is not Section.DATA:
            found[place] = _outside_bodies(kernel, batch, field)
    return found


def _in_bodies(kernel: ModuleType, batch: EncodedMessages, fields: Sequence[FieldReference]) -> NDArray[np.uint32]:
    """`(fields, messages)`."""
    bodies = body_values(batch, fields)
    found = np.empty((len(fields), len(batch)), dtype=np.uint32)
    for of_field, field in zip(found, fields, strict=True):
        values = bodies.at_paths[field.path]
        kernel.fingerprints_of_found(
            kernels.address_of(batch.data),
            kernels.address_of(values.texts),
            kernels.address_of(values.kinds),
            kernels.address_of(values.payloads),
            kernels.address_of(values.lengths),
            len(batch),
            kernels.address_of(of_field),
        )
        of_field[values.rows] = [_of_json(value) for value in values.others]
    found[:, bodies.malformed] = ANY
    return found


def _outside_bodies(kernel: ModuleType, batch: EncodedMessages, field: FieldReference) -> NDArray[np.uint32]:
    key = np.frombuffer((field.key or b"") + bytes(8), dtype=np.uint8)
    starts, lengths = (np.ascontiguousarray(each, dtype=np.int64) for each in (batch.starts, batch.lengths))
    values = np.empty(len(batch), dtype=np.uint32)
    kernel.fingerprints(
        kernels.address_of(batch.data),
        kernels.address_of(starts),
        kernels.address_of(lengths),
        len(batch),
        int(field.section),
        -1 if field.position is None else field.position,
        kernels.address_of(key),
        len(field.key or b""),
        kernels.address_of(_widths()),
        kernels.address_of(values),
    )
    return values


def fingerprints_of(data: bytes, fields: Sequence[FieldReference]) -> list[int]:
    """The fingerprints of some fields of one message, in Python."""
    try:
        message = Message.decode(data)
    except MessageError:
        return [ANY] * len(fields)
    return [
        _of_json(message.json_scalar(field.path)) if field.section is Section.DATA else _of_section(message, field)
        for field in fields
    ]


def _of_json(value: JsonScalar) -> int:
    if isinstance(value, bool):
        return fingerprint(Truth(value))
    if isinstance(value, (int, Decimal)):
        # An integer may be beyond the range of doubles, which a decimal's conversion makes infinite.
        return fingerprint(float(Decimal(value)))
    return NONE if value is None else fingerprint(value)


def _of_section(message: Message, field: FieldReference) -> int:
    try:
        section = message.section(field.section)
    except MessageError:
        return ANY
    if section is None:
        return NONE
    if field.position is not None:
        values = section.value[field.position : field.position + 1]
    else:
        wanted = _folded(field.key or b"")
        values = [
            value
            for key, value in section.value
            if key.type in (AmqpType.STRING, AmqpType.SYMBOL) and _folded(key.octets()) == wanted
        ]
    found = {_of_value(value) for value in values} - {NONE}
    return found.pop() if len(found) == 1 else ANY if found else NONE


def fingerprint(value: KeyValue) -> int:
    """The fingerprint of a value that a filter asks for."""
    if isinstance(value, Truth):
        return _finished(_mixed(_BOOLEAN, int(value.value)))
    if isinstance(value, bytes):
        state = len(value)
        for start in range(0, len(value), 8):
            state = _mixed(state, int.from_bytes(value[start : start + 8], "little"))
        return _finished(state)
    bits = 0 if value == 0 else struct.unpack(">Q", struct.pack(">d", value))[0]
    return ANY if math.isnan(value) else _finished(_mixed(_NUMBER, bits))


def fingerprints_of_values(values: Iterable[KeyValue]) -> NDArray[np.uint32]:
    """`(values,)`, in any order and each once: the fingerprints by which blocks are looked up."""
    return np.unique(np.array([fingerprint(value) for value in values], dtype=np.uint32))


@functools.cache
def _widths() -> NDArray[np.int64]:
    return np.array(CONSTRUCTOR_WIDTHS, dtype=np.int64)


def _of_value(value: AmqpValue) -> int:
    if value.type is AmqpType.NULL:
        return NONE
    if value.type is AmqpType.BOOLEAN:
        return fingerprint(Truth(bool(value.value)))
    if value.type in INTEGER_RANGES or value.type is AmqpType.DOUBLE:
        return fingerprint(float(value.value))
    if value.type is AmqpType.FLOAT:
        return fingerprint(value.value) if abs(value.value) < _FLOAT_LIMIT else ANY
    octets = value.octets()
    return ANY if octets is None else fingerprint(octets)


def _folded(key: bytes) -> bytes:
    return bytes(byte | 0x20 for byte in key)


def _mixed(state: int, word: int) -> int:
    state = (state ^ word) * _SECOND & _WORD
    return state ^ state >> 32


def _finished(state: int) -> int:
    state = state * _FIRST & _WORD
    found = (state ^ state >> 29) >> 32
    return found if found > ANY else found + 2
