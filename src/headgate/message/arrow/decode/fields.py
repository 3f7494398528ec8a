"""Single fields of messages as Arrow arrays, all in one walk of the kernel (blocks of words: `layout.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.errors import ConfigError
from headgate.kernels import address_of
from headgate.message.arrow.decode.layout import AskedBlock, FieldBlock
from headgate.message.arrow.scalars.sizes import size_table
from headgate.message.arrow.schema import HEADER_TYPES, PROPERTIES_TYPES, SparkType
from headgate.message.batch import EncodedMessages
from headgate.message.fields import Section

BEYOND_RANGE = 1
"""In place of an address: an integer that no conversion makes fit."""

COLUMN_SECTIONS = {
    "header": Section.HEADER,
    "message_annotations": Section.MESSAGE_ANNOTATIONS,
    "properties": Section.PROPERTIES,
    "application_properties": Section.APPLICATION_PROPERTIES,
}
"""The section of each column that is one."""

_FIELD = FieldBlock(*range(len(FieldBlock._fields)))
"""The position of each word of a descriptor."""

_SECTIONS = Section.APPLICATION_PROPERTIES - Section.HEADER + 1
"""How many sections a message has before its body."""

_LISTS = {Section.HEADER: HEADER_TYPES, Section.PROPERTIES: PROPERTIES_TYPES}
_IDS = ("message_id", "correlation_id")
_SYMBOLS = ("content_type", "content_encoding")
_TEXT_BYTES_AT_FIRST = 16


@dataclass(frozen=True, slots=True)
class AskedField:
    """One field: `name` is its standard name with underscores, or its key; `kind` and `type` are its column's.

    No field is requested twice.
    """

    section: Section
    name: str
    kind: SparkType
    type: pa.DataType


class FieldColumns:
    """The columns of some fields of the messages of a batch; made by one walk."""

    def __init__(self, kernel: ModuleType, batch: EncodedMessages, asked: Sequence[AskedField]) -> None:
        self._kernel = kernel
        self._asked = asked
        self._rows = rows = len(batch)
        self.undecided = np.zeros(rows, dtype=np.uint8)
        """`(rows,)`: which ones the reference decides."""
        self._buffers = [_FieldBuffers(kernel, each, rows) for each in asked]
        self._sections = {
            section: _OfSection(kernel, section, self._of(section), rows) for section in COLUMN_SECTIONS.values()
        }
        self._walk(batch)

    def _of(self, section: Section) -> list[_FieldBuffers]:
        return [place for place in self._buffers if place.asked.section is section]

    def _walk(self, batch: EncodedMessages) -> None:
        kernel, rows = self._kernel, self._rows
        starts = np.ascontiguousarray(batch.starts, dtype=np.int64)
        lengths = np.ascontiguousarray(batch.lengths, dtype=np.int64)
        table = np.zeros((_SECTIONS, len(AskedBlock._fields)), dtype=np.int64)
        for section, of_section in self._sections.items():
            table[section - Section.HEADER] = of_section.words()
        texts = [place for place in self._buffers if place.is_text]
        addresses = np.array([place.address for place in texts], dtype=np.int64)
        row = 0
        while row < rows:
            needed = kernel.ROOM_BYTES + 2 * int(lengths[row])
            for place in texts:
                place.make_room(needed, row)
            row = kernel.fields(
                address_of(batch.data),
                address_of(starts),
                address_of(lengths),
                row,
                rows,
                address_of(table),
                address_of(addresses),
                len(texts),
                address_of(self.undecided),
                address_of(size_table()),
            )

    def has(self, section: Section) -> NDArray[np.uint8]:
        """`(rows,)`: which messages have this section, of which fields are requested."""
        return self._sections[section].there

    def column(self, number: int) -> pa.Array:
        """The field of that number; null in undecided rows or not. Raises ConfigError for more than 2 GiB of text."""
        return self._buffers[number].column()

    def mismatched(self, number: int) -> NDArray[np.int64]:
        """`(rows,)` of a field of a map: the address of the value that its column does not take, BEYOND_RANGE, or 0.

        Whole after `column`.
        """
        return self._buffers[number].mismatched


class _FieldBuffers:
    """One descriptor, and the buffers that it points to."""

    def __init__(self, kernel: ModuleType, asked: AskedField, rows: int) -> None:
        self.asked = asked
        self._rows = rows
        self._target = _target(kernel, asked)
        self.is_text = kernel.T_ID <= self._target <= kernel.T_TEXT
        self._is_float = self._target in (kernel.T_FLOAT, kernel.T_DOUBLE)
        self._valid = np.zeros(rows, dtype=np.uint8)
        self.mismatched = np.zeros(0 if asked.section in _LISTS else rows, dtype=np.int64)
        self._values = np.zeros(0 if self.is_text else rows, dtype=np.int64)
        self._offsets = np.zeros(rows + 1 if self.is_text else 0, dtype=np.int32)
        self._data = np.empty(0, dtype=np.uint8)
        self.words: NDArray[np.int64]
        self._key = np.frombuffer(asked.name.encode() + bytes(8), dtype=np.uint8)

    def take_descriptor(self, words: NDArray[np.int64]) -> None:
        """It is that row of the table of its section."""
        self.words = words
        values = address_of(self._offsets if self.is_text else self._values)
        block = FieldBlock(self._target, values, address_of(self._valid))
        if self.asked.section not in _LISTS:
            key = self.asked.name.encode()
            prefix, mask = (
                int.from_bytes(octets.ljust(8, b"\0"), "little", signed=True)
                for octets in (key[:8], b"\xff" * min(len(key), 8))
            )
            block = block._replace(
                key=address_of(self._key),
                key_length=len(key),
                key_prefix=prefix,
                key_mask=mask,
                last_row=-1,
                mismatched=address_of(self.mismatched),
            )
        words[:] = block

    @property
    def address(self) -> int:
        """Where the descriptor is."""
        return address_of(self.words)

    def make_room(self, needed: int, row: int) -> None:
        """Make room for the texts of the next rows: at least `needed` bytes."""
        used = int(self.words[_FIELD.used])
        if used > 0x7FFFFFFF - needed:
            raise _too_large(self.asked.name)
        if len(self._data) - used < needed:
            each = used // row + 1 if row else _TEXT_BYTES_AT_FIRST
            larger = np.empty(used + (self._rows - row) * each * 5 // 4 + 2 * needed, dtype=np.uint8)
            larger[:used] = self._data[:used]
            self._data = larger
            self.words[_FIELD.text] = address_of(larger)
            self.words[_FIELD.text_capacity] = len(larger)

    def column(self) -> pa.Array:
        kind, values, valid = self.asked.type, self._values, self._valid
        if self.is_text:
            data = pa.py_buffer(self._data[: int(self.words[_FIELD.used])])
            return pa.Array.from_buffers(kind, self._rows, [bitmap(valid), pa.py_buffer(self._offsets), data])
        if pa.types.is_decimal(kind):
            return _decimals(kind, values, valid, self.mismatched)
        if pa.types.is_boolean(kind):
            return pa.Array.from_buffers(kind, self._rows, [bitmap(valid), bits(values)])
        if pa.types.is_timestamp(kind) or pa.types.is_int64(kind):
            return pa.Array.from_buffers(kind, self._rows, [bitmap(valid), pa.py_buffer(values)])
        narrow: NDArray[Any]
        if self._is_float:
            doubles = values.view(np.float64)
            narrow = doubles if pa.types.is_float64(kind) else doubles.astype(np.float32)
        else:
            narrow = values.astype(kind.to_pandas_dtype())
            beyond = narrow != values
            valid[beyond] = 0
            if len(self.mismatched):
                self.mismatched[beyond] = BEYOND_RANGE
        return pa.Array.from_buffers(kind, self._rows, [bitmap(valid), pa.py_buffer(narrow)])


class _OfSection:
    """The table of descriptors of one section, and which messages have it."""

    def __init__(self, kernel: ModuleType, section: Section, places: Sequence[_FieldBuffers], rows: int) -> None:
        self._count = 0
        self.there = np.zeros(rows if places else 0, dtype=np.uint8)
        if not places:
            return
        names = list(_LISTS.get(section, {}))
        self._count = len(names) or len(places)
        self._descriptors = np.zeros((self._count, len(FieldBlock._fields)), dtype=np.int64)
        self._descriptors[:, _FIELD.target] = kernel.T_NOT_ASKED
        self._by_length = np.zeros(256, dtype=np.int32)
        for number, place in enumerate(places):
            descriptor = self._descriptors[names.index(place.asked.name) if names else number]
            place.take_descriptor(descriptor)
            if not names:
                length = min(len(place.asked.name.encode()), 255)
                descriptor[_FIELD.next], self._by_length[length] = self._by_length[length], number + 1

    def words(self) -> AskedBlock:
        """The section's words for the kernel."""
        if not self._count:
            return AskedBlock(0, 0, 0, 0)
        return AskedBlock(
            address_of(self._descriptors), self._count, address_of(self.there), address_of(self._by_length)
        )


def _target(kernel: ModuleType, asked: AskedField) -> int:
    if asked.section not in _LISTS:
        targets = {
            SparkType.BOOLEAN: kernel.T_BOOLEAN,
            SparkType.FLOAT: kernel.T_FLOAT,
            SparkType.DOUBLE: kernel.T_DOUBLE,
            SparkType.DECIMAL: kernel.T_UNSIGNED,
            SparkType.TIMESTAMP: kernel.T_TIMESTAMP,
            SparkType.STRING: kernel.T_TEXT,
            SparkType.BINARY: kernel.T_BINARY,
        }
        return int(targets.get(asked.kind, kernel.T_INTEGER))
    if asked.name in _IDS:
        return int(kernel.T_ID)
    if asked.name in _SYMBOLS:
        return int(kernel.T_SYMBOL)
    targets = {
        SparkType.BOOLEAN: kernel.T_BOOLEAN,
        SparkType.SMALLINT: kernel.T_UBYTE,
        SparkType.BIGINT: kernel.T_UINT,
        SparkType.TIMESTAMP: kernel.T_TIMESTAMP,
        SparkType.BINARY: kernel.T_BINARY,
        SparkType.STRING: kernel.T_STRING,
    }
    return int(targets[asked.kind])


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
    return pa.Array.from_buffers(kind, len(values), [bitmap(valid), pa.py_buffer(pairs)])


def bitmap(valid: NDArray[np.uint8]) -> pa.Buffer | None:
    """Validity as Arrow has it: None where all are."""
    return None if valid.all() else bits(valid)


def bits(flags: NDArray[Any]) -> pa.Buffer:
    """One bit for each flag that is not 0."""
    return pa.py_buffer(np.packbits(flags != 0, bitorder="little"))


def _too_large(what: str) -> ConfigError:
    return ConfigError(f"{what}: more than 2 GiB in one batch; read smaller batches")


def check_size(column: str, size_bytes: int) -> None:
    """Raise ConfigError for a column whose offsets do not fit 32 bits."""
    if size_bytes > 0x7FFFFFFF:
        raise _too_large(column)
