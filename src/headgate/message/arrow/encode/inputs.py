"""The columns of a record batch, checked and brought to the few physical forms that the encoders take.

Checking types needs no rows (`check_types`); checking values is done here for whole columns, before a row is encoded.

Spark type → AMQP type in application properties and annotations:

| Spark                          | AMQP                                                                         |
| ------------------------------ | ---------------------------------------------------------------------------- |
| boolean                        | boolean                                                                      |
| tinyint, smallint, int, bigint | byte, short, int, long                                                       |
| decimal(p,0)                   | long; above 2^63 - 1 ulong; a value beyond either is refused                 |
| float, double                  | float, double                                                                |
| string, binary                 | string, binary                                                               |
| timestamp, timestamp_ntz       | timestamp, cut to milliseconds; without a zone it counts as UTC              |
| other decimals, date, array …  | refused: cast, or use a VARIANT (`headgate.message.variant`)                 |

Header and properties take the type of the field: boolean; any integer type, values within ubyte (priority) or uint;
timestamp; string (content_type and content_encoding become symbols); string or binary for user_id, message_id and
correlation_id.

A null in a struct of application properties leaves the key out; a null in a MAP or VARIANT is AMQP's null. A null
struct, MAP or VARIANT leaves the section out. Keys of application properties are strings, of annotations symbols.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.errors import ConfigError
from headgate.message.arrow.schema import COLUMNS, HEADER_TYPES, PROPERTIES_TYPES, SparkType
from headgate.message.codec import encode_value
from headgate.message.constructors import AmqpType
from headgate.message.fields import Section
from headgate.message.types import AmqpValue

STREAM_COLUMNS = ("offset", "timestamp", "filter_value")
"""Columns of a stream's rows that are not part of the message."""


class Form(enum.IntEnum):
    """The encoding of a value; forms up to TIMESTAMP are held as int64 (floats as bits), the rest as bytes."""

    BOOLEAN = 0
    UBYTE = 1
    UINT = 2
    BYTE = 3
    SHORT = 4
    INT = 5
    LONG = 6
    FLOAT = 7
    DOUBLE = 8
    TIMESTAMP = 9
    STRING = 10
    SYMBOL = 11
    BINARY = 12

    @property
    def amqp(self) -> AmqpType:
        """The AMQP type of that name."""
        return AmqpType(self.name.lower())

    @property
    def is_octets(self) -> bool:
        """Whether values are byte strings."""
        return self >= Form.STRING


@dataclass(slots=True)
class Values:
    """One column of scalars: int64 `numbers`, or `octets` between int32 `offsets`.

    `valid` has one byte per row, None = all valid; 2 in a LONG column = the number is a ulong above 2^63 - 1.
    """

    form: Form
    valid: NDArray[np.uint8] | None
    numbers: NDArray[np.int64] | None = None
    offsets: NDArray[np.int32] | None = None
    octets: NDArray[np.uint8] | None = None

    def amqp(self, row: int) -> AmqpValue | None:
        """The value of one row; None = null."""
        validity = 1 if self.valid is None else int(self.valid[row])
        if validity == 0:
            return None
        if self.form.is_octets:
            data = self.bytes(row)
            held: Any = data if self.form is Form.BINARY else data.decode("utf-8", "surrogateescape")
            return AmqpValue(self.form.amqp, held)
        assert self.numbers is not None
        number = int(self.numbers[row])
        if validity == 2:
            return AmqpValue(AmqpType.ULONG, number + 2**64)
        if self.form is Form.BOOLEAN:
            return AmqpValue(AmqpType.BOOLEAN, number != 0)
        if self.form is Form.FLOAT:
            return AmqpValue(AmqpType.FLOAT, float(np.uint32(number & 0xFFFFFFFF).view(np.float32)))
        if self.form is Form.DOUBLE:
            return AmqpValue(AmqpType.DOUBLE, float(np.int64(number).view(np.float64)))
        return AmqpValue(self.form.amqp, number)

    def bytes(self, row: int) -> bytes:
        """The byte string of one row that is not null."""
        assert self.offsets is not None and self.octets is not None
        return self.octets[self.offsets[row] : self.offsets[row + 1]].tobytes()

    def size_bytes(self) -> int:
        """Bytes of all byte strings; 0 for numbers."""
        return 0 if self.offsets is None else int(self.offsets[-1] - self.offsets[0])


@dataclass(slots=True)
class FieldsInput:
    """A list section: one entry per field of the standard, None where the column has no such field."""

    section: Section
    valid: NDArray[np.uint8] | None
    fields: list[Values | None]


@dataclass(slots=True)
class StructInput:
    """A map section from a struct of scalars; `keys` are the encoded keys."""

    section: Section
    valid: NDArray[np.uint8] | None
    names: list[str]
    fields: list[Values]
    keys: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class MapInput:
    """A map section from a MAP column: entries `offsets[row] … offsets[row + 1]` of `keys` and `items`."""

    section: Section
    valid: NDArray[np.uint8] | None
    offsets: NDArray[np.int32]
    keys: Values
    items: Values


@dataclass(slots=True)
class VariantInput:
    """A map section from a VARIANT column."""

    section: Section
    valid: NDArray[np.uint8] | None
    value: Values
    metadata: Values
    exact: bool


SectionInput = FieldsInput | StructInput | MapInput | VariantInput


@dataclass(slots=True)
class MessageInputs:
    """All that messages are made of, `rows` of them; sections in the standard's order."""

    rows: int
    sections: list[SectionInput]
    body: Values | None
    message: Values | None


def check_types(schema: pa.Schema) -> None:
    """Raise ConfigError naming column, found and expected type for a schema that no messages can be made from."""
    inputs_of(pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema))


def inputs_of(batch: pa.RecordBatch, exact: Collection[str] = ()) -> MessageInputs:
    """The columns of a batch in the forms of the encoders; columns in `exact` may have no value that is rounded.

    Raises ConfigError for an unknown column, a wrong type, a value outside the range of its field.
    """
    columns = _columns(batch)
    sections: list[SectionInput] = []
    if "header" in columns:
        sections.append(_fields_input("header", Section.HEADER, HEADER_TYPES, columns["header"]))
    if "message_annotations" in columns:
        column = columns["message_annotations"]
        is_exact = "message_annotations" in exact
        sections.append(_map_input("message_annotations", Section.MESSAGE_ANNOTATIONS, column, is_exact))
    if "properties" in columns:
        sections.append(_fields_input("properties", Section.PROPERTIES, PROPERTIES_TYPES, columns["properties"]))
    if "application_properties" in columns:
        column = columns["application_properties"]
        is_exact = "application_properties" in exact
        sections.append(_map_input("application_properties", Section.APPLICATION_PROPERTIES, column, is_exact))
    body = columns.get("body")
    message = columns.get("message")
    inputs = MessageInputs(
        batch.num_rows,
        sections,
        None if body is None else _octets("body", body, Form.BINARY),
        None if message is None else _raw_messages(message),
    )
    if columns.keys() == {"message"} and inputs.message is not None and inputs.message.valid is not None:
        row = int(np.flatnonzero(inputs.message.valid == 0)[0])
        raise ConfigError(f"message: row {row} is null and there is no other column to make a message from")
    return inputs


def _columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    columns: dict[str, pa.Array] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in STREAM_COLUMNS:
            continue
        if name not in COLUMNS:
            raise ConfigError(
                f"column {name!r} ({column.type}) is no part of a message; expected some of {', '.join(COLUMNS)} "
                "(put other values into application_properties, for example with struct(…))"
            )
        if name in columns:
            raise ConfigError(f"column {name!r} is there twice")
        columns[name] = _plain(column)
    if not columns:
        raise ConfigError(f"no column to make messages from; expected some of {', '.join(COLUMNS)}")
    return columns


def _plain(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return column.dictionary_decode()
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return column.cast(pa.binary())
    return column


def _wrong(name: str, found: pa.DataType, expected: str) -> ConfigError:
    return ConfigError(f"column {name}: found {found}, expected {expected}")


def _valid(column: pa.Array) -> NDArray[np.uint8] | None:
    if column.null_count == 0:
        return None
    valid: NDArray[np.uint8] = column.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8)
    return valid


def _fields_input(name: str, section: Section, kinds: dict[str, SparkType], column: pa.Array) -> FieldsInput:
    if not pa.types.is_struct(column.type) or _is_variant(column.type):
        raise _wrong(name, column.type, f"a struct of {', '.join(kinds)}")
    fields: list[Values | None] = [None] * len(kinds)
    positions = {known: position for position, known in enumerate(kinds)}
    for child, values in zip(column.type, column.flatten(), strict=True):
        if child.name not in positions:
            raise ConfigError(f"column {name}: no field {child.name!r}; expected some of {', '.join(kinds)}")
        position = positions[child.name]
        if fields[position] is not None:
            raise ConfigError(f"column {name}: the field {child.name!r} is there twice")
        fields[position] = _field(f"{name}.{child.name}", child.name, kinds[child.name], _plain(values))
    return FieldsInput(section, _valid(column), fields)


def _field(path: str, name: str, kind: SparkType, column: pa.Array) -> Values:
    found = column.type
    if pa.types.is_null(found):
        if kind in (SparkType.STRING, SparkType.BINARY):
            return _octets(path, column, Form.BINARY)
        return _ranged(path, column.cast(pa.int64()), Form.UINT, 2**32 - 1)
    if name in ("message_id", "correlation_id"):
        return _octets(path, column, Form.BINARY if pa.types.is_binary(found) else Form.STRING)
    if name in ("content_type", "content_encoding"):
        return _octets(path, column, Form.SYMBOL)
    if kind is SparkType.BINARY:
        return _octets(path, column, Form.BINARY)
    if kind is SparkType.STRING:
        return _octets(path, column, Form.STRING)
    if kind is SparkType.TIMESTAMP:
        if not pa.types.is_timestamp(found):
            raise _wrong(path, found, "timestamp")
        return _scalar(path, column)
    if kind is SparkType.BOOLEAN:
        if not pa.types.is_boolean(found):
            raise _wrong(path, found, "boolean")
        return _scalar(path, column)
    if not pa.types.is_integer(found):
        raise _wrong(path, found, "an integer type")
    if name == "priority":
        return _ranged(path, column, Form.UBYTE, 255)
    return _ranged(path, column, Form.UINT, 2**32 - 1)


def _octets(path: str, column: pa.Array, form: Form) -> Values:
    kind = column.type
    if pa.types.is_null(kind):
        column = column.cast(pa.binary())
    elif not (pa.types.is_string(kind) or (form is Form.BINARY and pa.types.is_binary(kind))):
        raise _wrong(path, kind, "binary or string" if form is Form.BINARY else "string")
    _, offsets_buffer, data_buffer = column.buffers()
    offsets = np.zeros(1, dtype=np.int32)
    if offsets_buffer is not None and len(column):
        offsets = np.frombuffer(offsets_buffer, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    octets = np.empty(0, dtype=np.uint8) if data_buffer is None else np.frombuffer(data_buffer, dtype=np.uint8)
    return Values(form, _valid(column), offsets=offsets, octets=octets)


def _raw_messages(column: pa.Array) -> Values:
    if not pa.types.is_binary(column.type):
        raise _wrong("message", column.type, "binary (an encoded AMQP 1.0 message)")
    return _octets("message", column, Form.BINARY)


def _ranged(path: str, column: pa.Array, form: Form, highest: int) -> Values:
    valid = _valid(column)
    numbers = _integers(column)
    wrong = (numbers < 0) | (numbers > highest)
    if valid is not None:
        wrong &= valid != 0
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise ConfigError(f"column {path}, row {row}: {numbers[row]} is outside 0 … {highest}")
    return Values(form, valid, numbers=numbers)


def _integers(column: pa.Array) -> NDArray[np.int64]:
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.zeros(len(column), dtype=np.int64)
    held = np.frombuffer(buffer, dtype=column.type.to_pandas_dtype())
    return held[column.offset : column.offset + len(column)].astype(np.int64)


_FORMS = {
    pa.int8(): Form.BYTE,
    pa.int16(): Form.SHORT,
    pa.int32(): Form.INT,
    pa.int64(): Form.LONG,
}


def _scalar(path: str, column: pa.Array, exact: bool = False) -> Values:
    """A column of an open section: its AMQP type follows from its own."""
    kind = column.type
    if pa.types.is_string(kind):
        return _octets(path, column, Form.STRING)
    if pa.types.is_binary(kind) or pa.types.is_null(kind):
        return _octets(path, column, Form.BINARY)
    valid = _valid(column)
    if kind in _FORMS:
        return Values(_FORMS[kind], valid, numbers=_integers(column))
    if pa.types.is_boolean(kind):
        flags = column.cast(pa.int8())
        return Values(Form.BOOLEAN, valid, numbers=_integers(flags))
    if pa.types.is_float32(kind):
        return Values(Form.FLOAT, valid, numbers=_integers(column.view(pa.int32())))
    if pa.types.is_float64(kind):
        return Values(Form.DOUBLE, valid, numbers=_integers(column.view(pa.int64())))
    if pa.types.is_timestamp(kind):
        return Values(Form.TIMESTAMP, valid, numbers=_milliseconds(path, column, exact))
    if pa.types.is_decimal128(kind) and kind.scale == 0:
        return _decimals(path, column)
    raise _wrong(
        path,
        kind,
        "boolean, tinyint, smallint, int, bigint, decimal(p,0), float, double, string, binary or timestamp "
        "(cast it, or make the column a VARIANT)",
    )


def _milliseconds(path: str, column: pa.Array, exact: bool) -> NDArray[np.int64]:
    held = _integers(column.view(pa.int64()))
    unit = column.type.unit
    if exact:
        rounded = held % {"s": 1, "ms": 1, "us": 1000, "ns": 1_000_000}[unit] != 0
        if column.null_count:
            rounded &= column.is_valid().to_numpy(zero_copy_only=False)
        if rounded.any():
            row = int(np.flatnonzero(rounded)[0])
            raise ConfigError(
                f"column {path}, row {row}: found {column[row]!s}, expected whole milliseconds, or 'rounded'"
            )
    if unit == "s":
        if len(held) and int(np.abs(held).max()) > 2**63 // 1000:
            raise ConfigError(f"column {path}: a timestamp outside 64 bits of milliseconds")
        return held * 1000
    return held // {"ms": 1, "us": 1000, "ns": 1_000_000}[unit]


def _decimals(path: str, column: pa.Array) -> Values:
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return Values(Form.LONG, np.zeros(len(column), dtype=np.uint8), numbers=np.zeros(len(column), dtype=np.int64))
    words = np.frombuffer(buffer, dtype=np.int64).reshape(-1, 2)[column.offset : column.offset + len(column)]
    low, high = np.ascontiguousarray(words[:, 0]), words[:, 1]
    held = _valid(column)
    valid = np.ones(len(column), dtype=np.uint8) if held is None else held
    is_long = high == low >> 63
    is_ulong = (high == 0) & (low < 0)
    wrong = (valid != 0) & ~is_long & ~is_ulong
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise ConfigError(f"column {path}, row {row}: {column[row]} is outside long and ulong")
    valid[(valid != 0) & is_ulong] = 2
    return Values(Form.LONG, valid, numbers=low)


def _is_variant(kind: pa.DataType) -> bool:
    if not pa.types.is_struct(kind) or {child.name for child in kind} != {"value", "metadata"}:
        return False
    metadata = kind.field("metadata").metadata or {}
    return bool(metadata.get(b"variant") == b"true")


def _map_input(name: str, section: Section, column: pa.Array, exact: bool) -> SectionInput:
    kind = column.type
    valid = _valid(column)
    key_form = Form.STRING if section is Section.APPLICATION_PROPERTIES else Form.SYMBOL
    if _is_variant(kind):
        value, metadata = (
            _octets(f"{name}.{part}", _plain(column.field(kind.get_field_index(part))), Form.BINARY)
            for part in ("value", "metadata")
        )
        return VariantInput(section, valid, value, metadata, exact)
    if pa.types.is_map(kind):
        offsets = _map_offsets(column)
        # Keys and items of a slice belong to the whole column.
        first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
        keys = _octets(f"{name} (keys)", _plain(column.keys.slice(first, count)), key_form)
        items = _scalar(f"{name} (values)", _plain(column.items.slice(first, count)), exact)
        return MapInput(section, valid, offsets - offsets[0], keys, items)
    if pa.types.is_struct(kind):
        names = [child.name for child in kind]
        if len(set(names)) != len(names):
            raise ConfigError(f"column {name}: a field is there twice in {', '.join(names)}")
        fields = [
            _scalar(f"{name}.{child}", _plain(values), exact)
            for child, values in zip(names, column.flatten(), strict=True)
        ]
        keys_encoded = [encode_value(AmqpValue(key_form.amqp, child)) for child in names]
        return StructInput(section, valid, names, fields, keys_encoded)
    raise _wrong(name, kind, "VARIANT, map<string, scalar> or a struct of scalars")


def _map_offsets(column: pa.Array) -> NDArray[np.int32]:
    if not len(column):
        return np.zeros(1, dtype=np.int32)
    offsets: NDArray[np.int32] = column.offsets.to_numpy(zero_copy_only=False).astype(np.int32)
    return offsets
