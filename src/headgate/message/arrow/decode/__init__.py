"""From encoded messages to Arrow columns: the kernels where they can be used, the reference for what they leave.

The kernels fill the buffers of the Arrow arrays directly. Rows that they leave undecided are read by
`reference.column_values` and put in their places, so both ways give equal arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.errors import ConfigError
from headgate.kernels import address_of, load
from headgate.message.arrow.decode.conversions import converted
from headgate.message.arrow.decode.reference import column_values
from headgate.message.arrow.schema import (
    HEADER_TYPES,
    PROPERTIES_TYPES,
    DeclaredProperty,
    Mismatches,
    SparkType,
    column_type,
)
from headgate.message.batch import EncodedMessages
from headgate.message.codec import decode_value
from headgate.message.framing import skip_value

BEYOND_RANGE = 1
"""In place of an address: an integer that no conversion makes fit."""

_WORDS = {"header": 0, "message_annotations": 1, "properties": 2, "application_properties": 3}


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
    reader = _Reader(kernel, variants, batch, properties, cast=cast, mismatches=mismatches)
    return {column: reader.column(column, kind) for column, kind in types.items()}


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
    """Runs the kernels over one batch; the table of sections is made once for all columns."""

    def __init__(
        self,
        kernel: ModuleType,
        variants: ModuleType,
        batch: EncodedMessages,
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

    def column(self, column: str, kind: pa.DataType) -> pa.Array:
        if self._rows == 0:
            return pa.array([], type=kind)
        if column == "message":
            return self._messages()
        undecided = np.zeros(self._rows, dtype=np.uint8)
        if column == "body":
            array = self._bodies(undecided)
        elif column == "application_properties" and self._properties is not None:
            array = self._declared(self._properties, kind, undecided)
        elif column in ("header", "properties"):
            array = self._list(column, kind, undecided)
        else:
            array = self._variants(column, kind, undecided)
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
            self._sections = np.empty(self._rows * self._kernel.SECTION_WORDS, dtype=np.int64)
            self._kernel.walk(
                address_of(self._batch.data),
                address_of(self._starts),
                address_of(self._lengths),
                self._rows,
                address_of(self._sections),
            )
        return address_of(self._sections)

    def _messages(self) -> pa.Array:
        offsets = np.zeros(self._rows + 1, dtype=np.int64)
        np.cumsum(self._lengths, out=offsets[1:])
        _check_size("message", int(offsets[-1]))
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
        _check_size("body", size)
        data = np.empty(max(size, 1), dtype=np.uint8)
        self._kernel.bodies(*arguments, address_of(data))
        return _variable(pa.binary(), offsets, data[:size], valid)

    def _list(self, column: str, kind: pa.DataType, undecided: NDArray[np.uint8]) -> pa.Array:
        kinds = HEADER_TYPES if column == "header" else PROPERTIES_TYPES
        fields = _Fields(self._kernel, self._rows, [self._list_target(name, kind) for name, kind in kinds.items()])
        valid = np.empty(self._rows, dtype=np.uint8)

        self._kernel.list_columns(
            self._table(),
            self._rows,
            _WORDS[column],
            fields.address,
            fields.count,
            address_of(valid),
            address_of(undecided),
        )
        return pa.Array.from_buffers(kind, self._rows, [_bitmap(valid)], children=fields.children(column, kind))

    def _list_target(self, name: str, kind: SparkType) -> int:
        kernel = self._kernel
        if name in ("message_id", "correlation_id"):
            return int(kernel.T_ID)
        if name in ("content_type", "content_encoding"):
            return int(kernel.T_SYMBOL)
        targets = {
            SparkType.BOOLEAN: kernel.T_BOOLEAN,
            SparkType.SMALLINT: kernel.T_UBYTE,
            SparkType.BIGINT: kernel.T_UINT,
            SparkType.TIMESTAMP: kernel.T_TIMESTAMP,
            SparkType.BINARY: kernel.T_BINARY,
            SparkType.STRING: kernel.T_STRING,
        }
        return int(targets[kind])

    def _declared(
        self, properties: tuple[DeclaredProperty, ...], kind: pa.DataType, undecided: NDArray[np.uint8]
    ) -> pa.Array:
        kernel = self._kernel
        targets = {
            SparkType.BOOLEAN: kernel.T_BOOLEAN,
            SparkType.FLOAT: kernel.T_FLOAT,
            SparkType.DOUBLE: kernel.T_DOUBLE,
            SparkType.DECIMAL: kernel.T_UNSIGNED,
            SparkType.TIMESTAMP: kernel.T_TIMESTAMP,
            SparkType.STRING: kernel.T_TEXT,
            SparkType.BINARY: kernel.T_BINARY,
        }
        fields = _Fields(
            kernel,
            self._rows,
            [targets.get(declared.kind, kernel.T_INTEGER) for declared in properties],
            [declared.name.encode() for declared in properties],
        )
        valid = np.empty(self._rows, dtype=np.uint8)
        seen = np.empty(len(properties), dtype=np.uint8)

        kernel.map_columns(
            self._table(),
            self._rows,
            fields.address,
            fields.count,
            address_of(valid),
            address_of(undecided),
            address_of(seen),
        )
        children = fields.children("application_properties", kind)
        mismatched = fields.mismatched
        mismatched[:, undecided != 0] = 0
        for field, declared in enumerate(properties):
            rows = np.flatnonzero(mismatched[field])
            if self._cast and len(rows):
                children[field] = self._converted(children[field], declared, rows, mismatched[field])
                rows = np.flatnonzero(mismatched[field])
            if len(rows):
                self._mismatches.add(int(rows[0]), len(rows))
        return pa.Array.from_buffers(kind, self._rows, [_bitmap(valid)], children=children)

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
        scratch = np.empty(kernel.MAX_ENTRIES * (kernel.ENTRY_WORDS + 1), dtype=np.int64)
        output = np.zeros(10, dtype=np.int64)
        output[6:] = [address_of(value_offsets), address_of(metadata_offsets), address_of(valid), address_of(undecided)]
        row = 0
        while True:
            output[0:2] = [address_of(value), len(value)]
            output[3:5] = [address_of(metadata), len(metadata)]
            row = kernel.variants(
                self._table(), row, self._rows, _WORDS[column], address_of(output), address_of(scratch)
            )
            value_used, metadata_used = int(output[2]), int(output[5])
            _check_size(column, max(value_used, metadata_used))
            if row == self._rows:
                break
            share = (self._rows - row + row / 8) / max(row, 1)
            value = _grown(value, value_used, share)
            metadata = _grown(metadata, metadata_used, share)
        children = [
            _variable(pa.binary(), value_offsets, value[:value_used], None),
            _variable(pa.binary(), metadata_offsets, metadata[:metadata_used], None),
        ]
        return pa.Array.from_buffers(kind, self._rows, [_bitmap(valid)], children=children)


class _Fields:
    """Field descriptors of a struct column and the buffers they point to (layout: the head of `kernel.py`)."""

    def __init__(self, kernel: ModuleType, rows: int, targets: Sequence[int], keys: Sequence[bytes] = ()) -> None:
        self._rows = rows
        self._targets = targets
        self._kernel = kernel
        self._keys = [np.frombuffer(key + bytes(8), dtype=np.uint8) for key in keys]
        self._valid = np.zeros((len(targets), rows), dtype=np.uint8)
        self._values = np.zeros((len(targets), rows), dtype=np.int64)
        self._words = np.zeros((len(targets), kernel.FIELD_WORDS), dtype=np.int64)
        self.mismatched = np.zeros((len(targets), rows if keys else 0), dtype=np.int64)
        """Per field of a map and row the address of the value that the column does not take, or BEYOND_RANGE; 0 = none.
        Whole after `children`."""
        for field, target in enumerate(targets):
            self._words[field, :3] = target, address_of(self._values[field]), address_of(self._valid[field])
        for field, key in enumerate(keys):
            prefix = int.from_bytes(key[:8].ljust(8, b"\0"), "little", signed=True)
            self._words[field, 4:7] = address_of(self._keys[field]), len(key), prefix
            self._words[field, 7] = address_of(self.mismatched[field])
        self.address = address_of(self._words)
        self.count = len(targets)
        self._float = {kernel.T_FLOAT, kernel.T_DOUBLE}

    def children(self, column: str, kind: pa.DataType) -> list[pa.Array]:
        """The fields of the struct that the kernel stored; texts are copied now."""
        return [
            self._child(f"{column}.{kind.field(field).name}", field, kind.field(field).type)
            for field in range(self.count)
        ]

    def _texts(self, path: str, field: int, kind: pa.DataType) -> pa.Array:
        offsets = np.zeros(self._rows + 1, dtype=np.int32)
        data = np.empty(max(int(self._words[field, 3]), 1), dtype=np.uint8)
        size = self._kernel.texts(address_of(self._words[field]), self._rows, address_of(offsets), address_of(data))
        _check_size(path, size)
        return _variable(kind, offsets, data[:size], self._valid[field])

    def _child(self, path: str, field: int, kind: pa.DataType) -> pa.Array:
        if self._kernel.T_ID <= self._targets[field] <= self._kernel.T_TEXT:
            return self._texts(path, field, kind)
        values, valid = self._values[field], self._valid[field]
        if pa.types.is_decimal(kind):
            return _decimals(kind, values, valid, self.mismatched[field])
        if pa.types.is_boolean(kind):
            return pa.Array.from_buffers(kind, self._rows, [_bitmap(valid), _bits(values)])
        if pa.types.is_timestamp(kind) or pa.types.is_int64(kind):
            return pa.Array.from_buffers(kind, self._rows, [_bitmap(valid), pa.py_buffer(values)])
        narrow: NDArray[Any]
        if self._targets[field] in self._float:
            doubles = values.view(np.float64)
            if pa.types.is_float64(kind):
                return pa.Array.from_buffers(kind, self._rows, [_bitmap(valid), pa.py_buffer(doubles)])
            narrow = doubles.astype(np.float32)
        else:
            narrow = values.astype(kind.to_pandas_dtype())
            beyond = narrow != values
            valid[beyond] = 0
            if len(self._keys):
                self.mismatched[field, beyond] = BEYOND_RANGE
        return pa.Array.from_buffers(kind, self._rows, [_bitmap(valid), pa.py_buffer(narrow)])


def _replaced(column: pa.Array, rows: NDArray[np.intp], values: pa.Array) -> pa.Array:
    positions = np.arange(len(column))
    positions[rows] = len(column) + np.arange(len(rows))
    return pa.concat_arrays([column, values]).take(pa.array(positions))


def _decimals(
    kind: pa.DataType, values: NDArray[np.int64], valid: NDArray[np.uint8], mismatched: NDArray[np.int64]
) -> pa.Array:
    pairs = np.empty((len(values), 2), dtype=np.int64)
    pairs[:, 0] = values
    pairs[:, 1] = np.where((values < 0) & (valid != 2), -1, 0)
    if kind.precision < 20:
        limit = 10**kind.precision
        if kind.precision < 19:
            beyond = (valid == 2) | (values >= limit) | (values <= -limit)
        else:
            beyond = (valid == 2) & (values.view(np.uint64) >= np.uint64(limit))
        valid[beyond] = 0
        mismatched[beyond] = BEYOND_RANGE
    return pa.Array.from_buffers(kind, len(values), [_bitmap(valid), pa.py_buffer(pairs)])


def _variable(
    kind: pa.DataType, offsets: NDArray[np.int32], data: NDArray[np.uint8], valid: NDArray[np.uint8] | None
) -> pa.Array:
    bitmap = None if valid is None else _bitmap(valid)
    return pa.Array.from_buffers(kind, len(offsets) - 1, [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)])


def _bitmap(valid: NDArray[np.uint8]) -> pa.Buffer | None:
    return None if valid.all() else _bits(valid)


def _bits(flags: NDArray[Any]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags != 0, bitorder="little"))


def _grown(buffer: NDArray[np.uint8], used: int, share: float) -> NDArray[np.uint8]:
    """A copy with room for `share` times what was used so far, at least twice the size."""
    larger = np.empty(max(2 * len(buffer), int(used * (1 + share))), dtype=np.uint8)
    larger[:used] = buffer[:used]
    return larger


def _check_size(column: str, size_bytes: int) -> None:
    if size_bytes > 0x7FFFFFFF:
        raise ConfigError(f"{column}: more than 2 GiB in one batch; read smaller batches")
