"""Exactness: in which rows a column holds all that a filter would see of the message; else it is *inexact*.

A bit is set for a declared column of a row where

- the message is malformed, or has a section descriptor of a rare form;
- the list or map that holds the field breaks, or holds a described value;
- the value is not null and of another AMQP type than the column is for (the table), or −0.0, NaN, infinite;
- the key stands in the map twice, or in another spelling: as a symbol where keys are strings or the other way round,
  or with letters of another case. Bytes that differ only in 0x20 count as equal, which includes a few other pairs; and
  beside a key that is not ASCII any other key that is not ASCII counts;
- the column's value is null and the message has one, or the other way round: text that is no UTF-8, a timestamp outside
  of microseconds, an integer beyond the range, a section whose values `fields_of` cannot read.

| column | holds all of |
| --- | --- |
| string | string (content_type and content_encoding: symbol; ids: string only) |
| binary | binary |
| boolean | boolean |
| tinyint … bigint | byte, short, int, long, within the range |
| decimal | ulong |
| float, double | float; double |
| timestamp | timestamp |
| fields of header and properties | the type of the standard |

A column of a value in the body is inexact where the message is malformed, or comparisons see another value there than
the column has: `is_exact_in_body`.

A bit too many costs time, a bit too few gives a wrong answer: so every unclear case sets the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate import kernels
from headgate.derived.columns.exactness.layout import ColumnBlock, FoundBlock, SectionBlock
from headgate.evaluate import body_values
from headgate.message import BodyValues, EncodedMessages, FieldValues, FoundKind, JsonScalar, Section
from headgate.message.arrow import (
    HEADER_TYPES,
    PROPERTIES_TYPES,
    DeclaredColumn,
    SparkType,
    size_table,
)
from headgate.message.constructors import CONSTRUCTOR_WIDTHS, WIDTH_DESCRIBED, WIDTH_SIZE8, WIDTH_SIZE32

KERNEL = "headgate.derived.columns.exactness.kernel"

MOST_COLUMNS = 63

_SECTIONS = (Section.HEADER, Section.MESSAGE_ANNOTATIONS, Section.PROPERTIES, Section.APPLICATION_PROPERTIES)
_NAMES = {Section.HEADER: tuple(HEADER_TYPES), Section.PROPERTIES: tuple(PROPERTIES_TYPES)}
_SYMBOLS = ("content_type", "content_encoding")

_KINDS: dict[int, frozenset[int]] = {
    0: frozenset({0xA1, 0xB1}),
    1: frozenset({0xA3, 0xB3}),
    2: frozenset({0xA0, 0xB0}),
    3: frozenset({0x41, 0x42, 0x56}),
    4: frozenset({0x51, 0x54, 0x55, 0x61, 0x71, 0x81}),
    5: frozenset({0x50}),
    6: frozenset({0x43, 0x52, 0x70}),
    7: frozenset({0x44, 0x53, 0x80}),
    8: frozenset({0x72}),
    9: frozenset({0x82}),
    10: frozenset({0x83}),
}
"""Constructors of the values that a column of each kind holds; numbered as in `kernel.py`."""

_OF_MAPS = {
    SparkType.STRING: 0,
    SparkType.BINARY: 2,
    SparkType.BOOLEAN: 3,
    SparkType.DECIMAL: 7,
    SparkType.FLOAT: 8,
    SparkType.DOUBLE: 9,
    SparkType.TIMESTAMP: 10,
}
_OF_LISTS = {
    SparkType.STRING: 0,
    SparkType.BINARY: 2,
    SparkType.BOOLEAN: 3,
    SparkType.SMALLINT: 5,
    SparkType.BIGINT: 6,
    SparkType.TIMESTAMP: 10,
}
_SIGNED = 4
_SYMBOL = 1


def inexact_bits(
    batch: EncodedMessages,
    columns: Sequence[DeclaredColumn],
    values: Sequence[pa.Array],
    bodies: BodyValues | None = None,
) -> NDArray[np.int64]:
    """`(messages,)`: bit b is set where column b is inexact; `values` come from `fields_of`. Cost: 50 ns a message.

    `bodies` are `evaluate.body_values` of the same messages and columns, for callers that have them. At most 63
    columns.
    """
    found = _bits_of_fields(batch, columns, values)
    bodies = body_values(batch, columns) if bodies is None else bodies
    for bit, (column, array) in enumerate(zip(columns, values, strict=True)):
        if column.section is Section.DATA:
            is_inexact = bodies.malformed | _inexact_in_bodies(bodies.at_paths[column.path], array)
            found |= is_inexact.astype(np.int64) << bit
    return found


def _inexact_in_bodies(values: FieldValues, array: pa.Array) -> NDArray[np.bool_]:
    """`is_exact_in_body` for the values of a column, negated; most of them without Python's numbers."""
    inexact: NDArray[np.bool_] = (values.kinds != FoundKind.NOTHING) != array.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_floating(array.type):
        held = array.to_numpy(zero_copy_only=False).astype(np.float64)
        inexact |= (values.kinds == FoundKind.DECIMAL) & (held != values.doubles)
        # An integer of 64 bits that is no double has a double beside it that is another integer, or 2^63.
        whole = np.flatnonzero(values.kinds == FoundKind.INTEGER)
        inexact[whole] = held[whole] == 2.0**63
        smaller = whole[~inexact[whole]]
        inexact[smaller] = held[smaller].astype(np.int64) != values.payloads[smaller]
    others = array.take(pa.array(values.rows)).to_pylist()
    inexact[values.rows] = [not is_exact_in_body(*pair) for pair in zip(values.others, others, strict=True)]
    return inexact


def is_exact_in_body(seen: JsonScalar, value: bool | int | float | Decimal | str | None) -> bool:
    """Whether comparisons see in the value of a column what they see at the path, of which `seen` is the value.

    Both are nothing for null, arrays, objects and what has no value; EXISTS, which tells them from a path that leads
    nowhere, is never decided by columns. Beside an integer a decimal counts by its exact value, beside a double as the
    shortest text of one: so a double stands for it if it has that text, and where integers lie closer than doubles, if
    it is the same number, too.
    """
    if seen is None or value is None:
        return seen is value
    if isinstance(seen, bytes):
        return value == seen.decode()
    if isinstance(value, float) and isinstance(seen, Decimal):
        return Decimal(repr(value)) == seen and (abs(value) <= 2**53 or value == seen)
    return value == seen


def _bits_of_fields(
    batch: EncodedMessages, columns: Sequence[DeclaredColumn], values: Sequence[pa.Array]
) -> NDArray[np.int64]:
    kernel = kernels.load(KERNEL)
    if kernel is None:
        messages = batch.all_bytes()
        valid = np.array([value.is_valid().to_numpy(zero_copy_only=False) for value in values], dtype=np.bool_)
        found = (inexact_of(data, columns, valid[:, row].tolist()) for row, data in enumerate(messages))
        return np.fromiter(found, dtype=np.int64, count=len(messages))
    held: list[object] = []
    asked = np.zeros((len(_SECTIONS), len(SectionBlock._fields)), dtype=np.int64)
    for number, section in enumerate(_SECTIONS):
        bits = [bit for bit, column in enumerate(columns) if column.section is section]
        if bits:
            table = np.zeros((len(bits), len(ColumnBlock._fields)), dtype=np.int64)
            others = 0
            for row, bit in zip(table, bits, strict=True):
                column, valid_bits = columns[bit], _validity(values[bit])
                position = key_address = key_length = prefix = validity = 0
                if section in _NAMES:
                    position = _NAMES[section].index(column.field)
                else:
                    key = column.field.encode()
                    encoded = np.frombuffer(key + bytes(8), dtype=np.uint8)
                    prefix = int.from_bytes(_folded(key[:8]).ljust(8, b"\0"), "little", signed=True)
                    key_address, key_length = kernels.address_of(encoded), len(key)
                    others |= 0 if key.isascii() else 1 << bit
                    held.append(encoded)
                if valid_bits is not None:
                    validity = kernels.address_of(valid_bits)
                    held.append(valid_bits)
                row[:] = ColumnBlock(_kind(column), 1 << bit, position, key_address, key_length, prefix, validity)
            of_keys = {_folded(columns[bit].field.encode()) for bit in bits}
            all_bits, is_unique = sum(1 << bit for bit in bits), len(of_keys) == len(bits)
            asked[number] = SectionBlock(kernels.address_of(table), len(bits), all_bits, others, is_unique)
            held.append(table)
    starts, lengths = (np.ascontiguousarray(each, dtype=np.int64) for each in (batch.starts, batch.lengths))
    bits_found = np.empty(len(batch), dtype=np.int64)
    words = np.empty(len(FoundBlock._fields), dtype=np.int64)
    addresses = (kernels.address_of(array) for array in (asked, words, bits_found, size_table()))
    data, begins, sizes = (kernels.address_of(array) for array in (batch.data, starts, lengths))
    kernel.inexact_bits(data, begins, sizes, len(batch), *addresses)
    return bits_found


def inexact_of(message: bytes, columns: Sequence[DeclaredColumn], valid: Sequence[bool]) -> int:
    """The bits of one message but for columns of its body, in Python: `valid` says which columns have a value."""
    everything = (1 << len(columns)) - 1
    sections = _sections(message)
    if sections is None:
        return everything
    inexact = present = 0
    for section in _SECTIONS:
        bits = [bit for bit, column in enumerate(columns) if column.section is section]
        if not bits or section not in sections:
            continue
        elements = _elements(message, *sections[section], is_map=section not in _NAMES)
        if elements is None:
            inexact |= sum(1 << bit for bit in bits)
            # Values before the break do not matter: all columns of the section are inexact.
            continue
        for bit in bits:
            column = columns[bit]
            if section in _NAMES:
                place = _NAMES[section].index(column.field)
                found = elements[place : place + 1]
            else:
                found, is_doubtful = _values_of(message, elements, column)
                inexact |= is_doubtful << bit
            for start, _ in found:
                if message[start] != 0x40:
                    present |= 1 << bit
                    inexact |= (not _is_exact(message, start, _kind(column))) << bit
    for bit, is_valid in enumerate(valid):
        if columns[bit].section is not Section.DATA:
            inexact |= (bool(present >> bit & 1) != is_valid) << bit
    return inexact


def _kind(column: DeclaredColumn) -> int:
    if column.section in _NAMES:
        return _SYMBOL if column.field in _SYMBOLS else _OF_LISTS[column.kind]
    return _OF_MAPS.get(column.kind, _SIGNED)


def _folded(key: bytes) -> bytes:
    return bytes(byte | 0x20 for byte in key)


def _validity(values: pa.Array) -> NDArray[np.uint8] | None:
    """The validity bits of an array, from its first value on."""
    if not values.null_count:
        return None
    if values.offset:
        return np.packbits(values.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
    return np.frombuffer(values.buffers()[0], dtype=np.uint8)


def _sections(message: bytes) -> dict[int, tuple[int, int]] | None:
    """Begin (behind the descriptor) and end of each section before the body; None for a message that sets all bits."""
    found: dict[int, tuple[int, int]] = {}
    position = previous = 0
    while position < len(message):
        head = message[position : position + 3]
        if len(head) < 3 or head[:2] != b"\0\x53" or not 0x70 <= head[2] <= 0x78:
            return None
        if head[2] >= 0x75:
            return found
        position += 3
        wanted = b"\x45\xc0\xd0" if head[2] in (0x70, 0x73) else b"\xc1\xd1"
        constructor = message[position : position + 1]
        if head[2] <= previous or not constructor or constructor not in wanted:
            return None
        previous, end = head[2], position + 1
        if constructor != b"\x45":
            width = 1 if constructor[0] < 0xD0 else 4
            size = message[position + 1 : position + 1 + width]
            end = position + 1 + width + int.from_bytes(size, "big")
            if len(size) < width or end > len(message) or int.from_bytes(size, "big") < width:
                return None
        found[previous] = position, end
        position = end
    return found


def _elements(message: bytes, position: int, end: int, *, is_map: bool) -> list[tuple[int, int]] | None:
    """Begin and end of each element of a list or map; None when it breaks."""
    constructor = message[position]
    if constructor == 0x45:
        return []
    width = 1 if constructor < 0xD0 else 4
    position += 1 + 2 * width
    count = int.from_bytes(message[position - width : position], "big")
    if is_map and count & 1:
        return None
    found: list[tuple[int, int]] = []
    for _ in range(count):
        stop = _element_end(message, position, end)
        if stop is None:
            return None
        found.append((position, stop))
        position = stop
    return found if position == end else None


def _element_end(message: bytes, position: int, end: int) -> int | None:
    width = CONSTRUCTOR_WIDTHS[message[position]] if position < end else WIDTH_DESCRIBED
    position += 1
    if width in (WIDTH_SIZE8, WIDTH_SIZE32):
        length = 1 if width == WIDTH_SIZE8 else 4
        if position + length > end:
            return None
        width = length + int.from_bytes(message[position : position + length], "big")
    return position + width if 0 <= width <= end - position else None


def _values_of(
    message: bytes, elements: list[tuple[int, int]], column: DeclaredColumn
) -> tuple[list[tuple[int, int]], bool]:
    """The value of a key of a map, if it is there, and whether another key makes it doubtful."""
    wanted = column.field.encode()
    kind = 0xA3 if column.section is Section.MESSAGE_ANNOTATIONS else 0xA1
    found: list[tuple[int, int]] = []
    is_doubtful = False
    for (start, stop), value in zip(elements[::2], elements[1::2], strict=True):
        if message[start] & 0xEF not in (0xA1, 0xA3):
            continue
        key = message[start + (2 if message[start] < 0xB0 else 5) : stop]
        if _folded(key) == _folded(wanted):
            if message[start] & 0xEF == kind and key == wanted and not found:
                found.append(value)
            else:
                is_doubtful = True
        is_doubtful |= not wanted.isascii() and not key.isascii() and key != wanted
    return found, is_doubtful


def _is_exact(message: bytes, position: int, kind: int) -> bool:
    if message[position] not in _KINDS[kind]:
        return False
    if message[position] in (0x72, 0x82):
        size = 4 if message[position] == 0x72 else 8
        raw = message[position + 1 : position + 1 + size]
        infinity = (0x7F80 if size == 4 else 0x7FF0) << 8 * (size - 2)
        value = int.from_bytes(raw, "big")
        return value & ((1 << (8 * size - 1)) - 1) < infinity and value != 1 << (8 * size - 1)
    return True
