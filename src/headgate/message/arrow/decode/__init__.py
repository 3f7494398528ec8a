"""From encoded messages to Arrow columns: by the kernels where they can be used, by the reference for other rows.

The kernels fill the buffers of the Arrow arrays directly. Rows that they leave undecided are read by
`reference.column_values` and put in their places, so both ways give equal arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.errors import ConfigError
from headgate.kernels import address_of, load
from headgate.message.arrow.decode.bodies import body_column
from headgate.message.arrow.decode.conversions import converted
from headgate.message.arrow.decode.fields import (
    BEYOND_RANGE,
    COLUMN_SECTIONS,
    AskedField,
    FieldColumns,
    bitmap,
    check_size,
)
from headgate.message.arrow.decode.layout import SectionsBlock
from headgate.message.arrow.decode.reference import column_values, field_value
from headgate.message.arrow.decode.variants.layout import EntryBlock, OutputBlock
from headgate.message.arrow.scalars.sizes import size_table
from headgate.message.arrow.schema import (
    HEADER_TYPES,
    PROPERTIES_TYPES,
    DeclaredColumn,
    DeclaredProperty,
    Mismatches,
    SparkType,
    column_type,
)
from headgate.message.batch import EncodedMessages
from headgate.message.body_values import BodyValues
from headgate.message.codec import decode_value
from headgate.message.fields import Section
from headgate.message.framing import skip_value


def decode_columns(
    batch: EncodedMessages,
    columns: Sequence[str],
    properties: tuple[DeclaredProperty, ...] | None,
    *,
    cast: bool,
    mismatches: Mismatches,
) -> dict[str, pa.Array]:
    """The asked columns, one row per message; arguments and errors as for `columns_of`."""
    types = {column: column_type(column, properties) for column in columns}
    kernel = load("headgate.message.arrow.decode.kernel")
    variants = load("headgate.message.arrow.decode.variants.kernel")
    if kernel is None or variants is None:
        return {
            column: _reference_column(batch, column, properties, kind, cast=cast, mismatches=mismatches)
            for column, kind in types.items()
        }
    reader = _Reader(kernel, variants, batch, types, properties, cast=cast, mismatches=mismatches)
    return {column: reader.column(column, kind) for column, kind in types.items()}


def decode_fields(
    batch: EncodedMessages, declared: Sequence[DeclaredColumn], bodies: BodyValues
) -> dict[str, pa.Array]:
    """One column for each field, one row per message; see `fields_of`."""
    kernel = load("headgate.message.arrow.decode.kernel")
    columns = {each.name: _of_body(batch, bodies, each) for each in declared if each.section is Section.DATA}
    others = [each for each in declared if each.section is not Section.DATA]
    if kernel is None or not len(batch):
        columns |= {each.name: _reference_field(batch, each) for each in others}
    else:
        for walk in _walks(others):
            columns |= _walked(kernel, batch, walk)
    return {each.name: columns[each.name] for each in declared}


def _of_body(batch: EncodedMessages, bodies: BodyValues, declared: DeclaredColumn) -> pa.Array:
    values = bodies.at_paths[declared.path]
    array, cells = body_column(batch, values, declared)
    return _replaced(array, values.rows, pa.array(cells, type=declared.type)) if cells else array


def _walked(kernel: ModuleType, batch: EncodedMessages, walk: Sequence[DeclaredColumn]) -> dict[str, pa.Array]:
    fields = FieldColumns(kernel, batch, [_asked(each) for each in walk])
    left = np.flatnonzero(fields.undecided)
    columns: dict[str, pa.Array] = {}
    for number, each in enumerate(walk):
        array = fields.column(number)
        if len(left):
            array = _replaced(array, left, _reference_field(batch.take(left), each))
        columns[each.name] = array
    return columns


def _walks(declared: Sequence[DeclaredColumn]) -> Iterator[list[DeclaredColumn]]:
    """Columns that are read together: a walk reads each field for one column."""
    left = list(declared)
    while left:
        walk = list({(each.section, each.field): each for each in reversed(left)}.values())
        yield walk
        left = [each for each in left if each not in walk]


def _asked(declared: DeclaredColumn) -> AskedField:
    return AskedField(declared.section, declared.field, declared.kind, declared.type)


def _reference_field(batch: EncodedMessages, declared: DeclaredColumn) -> pa.Array:
    cells = [field_value(batch.message(row), declared) for row in range(len(batch))]
    return pa.array(cells, type=declared.type)


def _reference_column(
    batch: EncodedMessages,
    column: str,
    properties: tuple[DeclaredProperty, ...] | None,
    kind: pa.DataType,
    *,
    cast: bool,
    mismatches: Mismatches,
) -> pa.Array:
    messages = (batch.message(row) for row in range(len(batch)))
    return pa.array(column_values(messages, column, properties, cast=cast, mismatches=mismatches), type=kind)


class _Reader:
    """Runs the kernels over one batch: one walk for all columns that are structs, one for all others."""

    def __init__(
        self,
        kernel: ModuleType,
        variants: ModuleType,
        batch: EncodedMessages,
        types: Mapping[str, pa.DataType],
        properties: tuple[DeclaredProperty, ...] | None,
        *,
        cast: bool,
        mismatches: Mismatches,
    ) -> None:
        self._kernel = kernel
        self._cast = cast
        self._mismatches = mismatches
        self._variants_kernel = variants
        self._batch = batch
        self._rows = len(batch)
        self._properties = properties
        self._starts = np.ascontiguousarray(batch.starts, dtype=np.int64)
        self._lengths = np.ascontiguousarray(batch.lengths, dtype=np.int64)
        self._sections: NDArray[np.int64] | None = None
        self._asked = [each for column in types for each in _members(column, types[column], properties)]
        self._field_columns: FieldColumns | None = None

    def column(self, column: str, kind: pa.DataType) -> pa.Array:
        if self._rows == 0:
            return pa.array([], type=kind)
        if column == "message":
            return self._messages()
        if any(each.section is COLUMN_SECTIONS.get(column) for each in self._asked):
            return self._struct(column, kind)
        undecided = np.zeros(self._rows, dtype=np.uint8)
        array = self._bodies(undecided) if column == "body" else self._variants(column, kind, undecided)
        return self._with_undecided(array, column, kind, undecided)

    def _with_undecided(
        self, array: pa.Array, column: str, kind: pa.DataType, undecided: NDArray[np.uint8]
    ) -> pa.Array:
        rows = np.flatnonzero(undecided)
        if not len(rows):
            return array
        left = Mismatches()
        decided = _reference_column(
            self._batch.take(rows), column, self._properties, kind, cast=self._cast, mismatches=left
        )
        self._mismatches.add_all(left, rows)
        return _replaced(array, rows, decided)

    def _table(self) -> int:
        if self._sections is None:
            self._sections = np.empty(self._rows * len(SectionsBlock._fields), dtype=np.int64)
            self._kernel.walk(
                address_of(self._batch.data),
                address_of(self._starts),
                address_of(self._lengths),
                self._rows,
                address_of(self._sections),
                address_of(size_table()),
            )
        return address_of(self._sections)

    def _messages(self) -> pa.Array:
        offsets = np.zeros(self._rows + 1, dtype=np.int64)
        np.cumsum(self._lengths, out=offsets[1:])
        check_size("message", int(offsets[-1]))
        data = np.empty(int(offsets[-1]), dtype=np.uint8)
        source = address_of(self._batch.data)
        self._kernel.gather(source, address_of(self._starts), address_of(self._lengths), self._rows, address_of(data))
        return pa.Array.from_buffers(
            pa.binary(), self._rows, [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
        )

    def _bodies(self, undecided: NDArray[np.uint8]) -> pa.Array:
        offsets = np.zeros(self._rows + 1, dtype=np.int32)
        valid = np.empty(self._rows, dtype=np.uint8)
        arguments = (self._table(), self._rows, address_of(offsets), address_of(valid), address_of(undecided))
        size = self._kernel.bodies(*arguments, 0)
        check_size("body", size)
        data = np.empty(max(size, 1), dtype=np.uint8)
        self._kernel.bodies(*arguments, address_of(data))
        return _variable(pa.binary(), offsets, data[:size], valid)

    def _struct(self, column: str, kind: pa.DataType) -> pa.Array:
        """A header or properties section, or declared application properties."""
        section = COLUMN_SECTIONS[column]
        fields = self._fields()
        numbers = [number for number, each in enumerate(self._asked) if each.section is section]
        children = [fields.column(number) for number in numbers]
        if section is Section.APPLICATION_PROPERTIES:
            self._note_mismatches(children, numbers, fields)
        buffers = [bitmap(fields.has(section))]
        return self._with_undecided(
            pa.Array.from_buffers(kind, self._rows, buffers, children=children), column, kind, fields.undecided
        )

    def _fields(self) -> FieldColumns:
        if self._field_columns is None:
            self._field_columns = FieldColumns(self._kernel, self._batch, self._asked)
        return self._field_columns

    def _note_mismatches(self, children: list[pa.Array], numbers: Sequence[int], fields: FieldColumns) -> None:
        """Count the values that declared properties do not take; with `cast` values are converted where possible."""
        assert self._properties is not None
        for place, (number, declared) in enumerate(zip(numbers, self._properties, strict=True)):
            mismatched = fields.mismatched(number)
            mismatched[fields.undecided != 0] = 0
            rows = np.flatnonzero(mismatched)
            if self._cast and len(rows):
                children[place] = self._converted(children[place], declared, rows, mismatched)
                rows = np.flatnonzero(mismatched)
            if len(rows):
                self._mismatches.add(int(rows[0]), len(rows))

    def _converted(
        self, column: pa.Array, declared: DeclaredProperty, rows: NDArray[np.int64], places: NDArray[np.int64]
    ) -> pa.Array:
        """The column with the values converted that lie at `places` of `rows`; places of the others stay."""
        data, base = self._batch.data.data, address_of(self._batch.data)
        cells: dict[bytes, object] = {}
        found = []
        for row, place in zip(rows.tolist(), places[rows].tolist(), strict=True):
            if place == BEYOND_RANGE:
                continue
            start = place - base
            encoded = bytes(data[start : skip_value(data, start, len(data))])
            if encoded not in cells:
                cells[encoded] = converted(decode_value(encoded), declared)
            if (cell := cells[encoded]) is not None:
                found.append((row, cell))
        if not found:
            return column
        taken = np.array([row for row, _ in found])
        places[taken] = 0
        return _replaced(column, taken, pa.array([cell for _, cell in found], type=column.type))

    def _variants(self, column: str, kind: pa.DataType, undecided: NDArray[np.uint8]) -> pa.Array:
        kernel = self._variants_kernel
        value = np.empty(1 << 16, dtype=np.uint8)
        metadata = np.empty(1 << 16, dtype=np.uint8)
        value_offsets = np.zeros(self._rows + 1, dtype=np.int32)
        metadata_offsets = np.zeros(self._rows + 1, dtype=np.int32)
        valid = np.empty(self._rows, dtype=np.uint8)
        scratch = np.empty(kernel.MAX_ENTRIES * (len(EntryBlock._fields) + 1), dtype=np.int64)
        row = value_used = metadata_used = 0
        while True:
            block = OutputBlock(
                value=address_of(value),
                value_capacity=len(value),
                value_used=value_used,
                metadata=address_of(metadata),
                metadata_capacity=len(metadata),
                metadata_used=metadata_used,
                value_offsets=address_of(value_offsets),
                metadata_offsets=address_of(metadata_offsets),
                validity=address_of(valid),
                undecided=address_of(undecided),
            )
            output = np.array(block, dtype=np.int64)
            row = kernel.variants(
                self._table(),
                row,
                self._rows,
                SectionsBlock._fields.index(column),
                address_of(output),
                address_of(scratch),
            )
            block = OutputBlock(*output.tolist())
            value_used, metadata_used = block.value_used, block.metadata_used
            check_size(column, max(value_used, metadata_used))
            if row == self._rows:
                break
            share = (self._rows - row + row / 8) / max(row, 1)
            value = _grown(value, value_used, share)
            metadata = _grown(metadata, metadata_used, share)
        children = [
            _variable(pa.binary(), value_offsets, value[:value_used], None),
            _variable(pa.binary(), metadata_offsets, metadata[:metadata_used], None),
        ]
        return pa.Array.from_buffers(kind, self._rows, [bitmap(valid)], children=children)


def _members(column: str, kind: pa.DataType, properties: tuple[DeclaredProperty, ...] | None) -> Iterator[AskedField]:
    """The fields of a column that is a struct of them."""
    kinds: Mapping[str, SparkType] = {}
    if column in ("header", "properties"):
        kinds = HEADER_TYPES if column == "header" else PROPERTIES_TYPES
    elif column == "application_properties" and properties is not None:
        kinds = {each.name: each.kind for each in properties}
    for name, of_field in kinds.items():
        yield AskedField(COLUMN_SECTIONS[column], name, of_field, kind.field(name).type)


def _replaced(column: pa.Array, rows: NDArray[np.intp], values: pa.Array) -> pa.Array:
    positions = np.arange(len(column))
    positions[rows] = len(column) + np.arange(len(rows))
    return pa.concat_arrays([column, values]).take(pa.array(positions))


def _variable(
    kind: pa.DataType, offsets: NDArray[np.int32], data: NDArray[np.uint8], valid: NDArray[np.uint8] | None
) -> pa.Array:
    present = None if valid is None else bitmap(valid)
    return pa.Array.from_buffers(kind, len(offsets) - 1, [present, pa.py_buffer(offsets), pa.py_buffer(data)])


def _grown(buffer: NDArray[np.uint8], used: int, share: float) -> NDArray[np.uint8]:
    """A copy with room for `share` times the used bytes in addition, at least twice the size."""
    larger = np.empty(max(2 * len(buffer), int(used * (1 + share))), dtype=np.uint8)
    larger[:used] = buffer[:used]
    return larger
