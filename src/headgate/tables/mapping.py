"""From the columns of a file to messages: which column becomes which field, with its type.

The text of a mapping is that of the columns of a read, so what was exported with one is published with the same one:
"region string, price double, p.subject as title, body". A whole column may have another name, too: "body as payload".
`offset` and `timestamp` are the stream's own and left out.

| type of the field | takes                                                                                  |
| ----------------- | -------------------------------------------------------------------------------------- |
| string            | text; numbers, booleans and times as text                                              |
| binary            | bytes; text as UTF-8                                                                   |
| boolean           | booleans; `true` and `false`                                                           |
| integers, decimal | numbers that the type holds exactly; text of one                                       |
| float, double     | numbers; integers up to ±2^24, ±2^53; text of one, `NaN`, `inf`                        |
| timestamp         | times, without a zone in UTC; whole numbers as ms since 1970; text of one, or ISO 8601 |

A null makes no field, and a section without fields is left out.
"""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import ConfigError
from headgate.message import EncodedMessages, Section, parse_field
from headgate.message.arrow import (
    COLUMNS,
    HEADER_TYPES,
    DeclaredColumn,
    SparkType,
    column_type,
    declared_columns,
    messages_of,
    variant_type,
)
from headgate.tables.texts import bytes_of_text
from headgate.tables.values import ANNOTATION, field_values

_OF_THE_STREAM = ("offset", "timestamp")
_VALUE = "filter_value"
_WHOLE = (*COLUMNS, _VALUE)
_ITEM = re.compile(r"(?:`[^`]*`|\([^)]*\)|[^,`(])+")
_RENAMED = re.compile(rf"\s*({'|'.join(_WHOLE)})\s+(?i:as)\s+(?:`((?:[^`]|``)+)`|([^\s,`]+))\s*")
_UTC_TIME = pa.timestamp("us", tz="UTC")
_ANY_YEAR = re.compile(r"-?\d{4,6}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", re.ASCII)
_NUMBER = re.compile(r"-?\d+", re.ASCII)
_SHOWN = 60
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MappedRows:
    """Rows of a file as messages; `first_row` counts from 1, and each has its filter value or None."""

    first_row: int
    messages: list[bytes]
    filter_values: list[bytes | None]


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """`whole` gives the file's column for a column of a message, `single` names those that become one field."""

    whole: dict[str, str]
    single: tuple[DeclaredColumn, ...]
    is_text: bool = False
    """Whether the format has bytes as text (`tables.texts`)."""

    @staticmethod
    def parse(text: str) -> ColumnMapping:
        """Raises ConfigError naming the column."""
        whole: dict[str, str] = {}
        single: list[DeclaredColumn] = []
        for item in _ITEM.findall(text):
            renamed = _RENAMED.fullmatch(item)
            if renamed is not None:
                field, quoted, plain = renamed.groups()
                _put_whole(whole, field, plain if quoted is None else quoted.replace("``", "`"))
                continue
            for each in declared_columns(item):
                if isinstance(each, DeclaredColumn):
                    single.append(each)
                elif each in _WHOLE:
                    _put_whole(whole, each, each)
                elif each not in _OF_THE_STREAM:
                    raise ConfigError(
                        f"--map: a message has no column {each!r}; expected {', '.join(_WHOLE)}, or a property with "
                        f"its type, as in '{each} string'"
                    )
        return ColumnMapping(whole, tuple(single)).checked()

    @staticmethod
    def of_names(names: Iterable[str]) -> ColumnMapping:
        """The mapping of a file whose columns are all called as those of a message; ConfigError for others."""
        others = [name for name in names if name not in _WHOLE and name not in _OF_THE_STREAM]
        if others:
            raise ConfigError(
                f"what becomes of column {others[0]!r}? Say it with --map, as in 'region string, p.subject as title, "
                "body as payload'"
            )
        return ColumnMapping({name: name for name in names if name in _WHOLE}, ()).checked()

    def checked(self) -> ColumnMapping:
        """This mapping. Raises ConfigError for fields that are there twice, and for no field at all."""
        if not self.single and not self.whole.keys() - {_VALUE}:
            raise ConfigError(f"--map: no column becomes a part of a message; expected some of {', '.join(_WHOLE)}")
        if "message" in self.whole and (self.single or self.whole.keys() - {"message", _VALUE}):
            raise ConfigError("--map: message is all of a message; found other columns beside it")
        fields: set[tuple[Section, str]] = set()
        for each in self.single:
            section = each.section.name.lower()
            if section in self.whole:
                raise ConfigError(f"--map: found {section} as a whole, and its field {each.field!r}; expected one way")
            if (each.section, each.field) in fields:
                raise ConfigError(f"--map: two columns become {section}.{each.field}")
            fields.add((each.section, each.field))
        return self

    @property
    def kinds(self) -> dict[str, pa.DataType]:
        """What is made of each of the file's columns: the type of its field. Two fields of a column: the last one's."""
        kinds = {column: pa.string() if field == _VALUE else column_type(field) for field, column in self.whole.items()}
        return kinds | {each.name: each.type for each in self.single}

    def check(self, schema: pa.Schema) -> None:
        """Raise ConfigError for a column that the file does not have, or whose type its field does not take."""
        for column in self.kinds:
            if schema.names.count(column) != 1:
                count = "no" if column not in schema.names else "more than one"
                raise ConfigError(f"the file has {count} column {column!r}; it has {', '.join(schema.names) or 'none'}")
        self.messages(_no_rows(schema))

    def messages(self, rows: pa.RecordBatch) -> EncodedMessages:
        """A message for each row. Raises ConfigError naming the column."""
        arrays = {
            field: self._whole(field, column, rows.column(column))
            for field, column in self.whole.items()
            if field != _VALUE
        }
        for section in {each.section: None for each in self.single}:
            arrays[section.name.lower()] = self._section(section, rows)
        return messages_of(pa.record_batch(arrays))

    def _section(self, section: Section, rows: pa.RecordBatch) -> pa.Array:
        mine = [each for each in self.single if each.section is section]
        members = [_of_field(each, self._cast(rows.column(each.name), each.type, each.name)) for each in mine]
        absent = pc.is_null(members[0])
        for member in members[1:]:
            absent = pc.and_(absent, pc.is_null(member))
        fields = [pa.field(each.field, member.type) for each, member in zip(mine, members, strict=True)]
        return pa.StructArray.from_arrays(members, fields=fields, mask=absent)

    def _whole(self, field: str, column: str, array: pa.Array) -> pa.Array:
        if field in ("body", "message"):
            return self._cast(array, pa.binary(), column)
        kind = array.type
        if field not in ("header", "properties"):
            return _variant(array)
        if not pa.types.is_struct(kind):
            raise ConfigError(f"column {column!r}: found {kind}, expected a struct of fields of {field}")
        types = column_type(field)
        members, fields = [], []
        for member, values in zip(kind, array.flatten(), strict=True):
            position = types.get_field_index(member.name)
            if position < 0:
                raise ConfigError(f"column {column!r}: {field} has no field {member.name!r}")
            declared = declared_columns(f"{field}.{member.name}")[0]
            assert isinstance(declared, DeclaredColumn)
            path = f"{column}.{member.name}"
            members.append(_of_field(declared, self._cast(values, declared.type, path), path))
            fields.append(pa.field(member.name, members[-1].type))
        return pa.StructArray.from_arrays(members, fields=fields, mask=pc.is_null(array))

    def _cast(self, array: pa.Array, kind: pa.DataType, column: str) -> pa.Array:
        return _bytes(array, column) if self.is_text and pa.types.is_binary(kind) else cast(array, kind, column)

    def mapped(self, rows: pa.RecordBatch, first_row: int, filter_source: str | None) -> Iterator[MappedRows]:
        """The messages with their filter values, as given, or of the field that the stream declares.

        Raises ConfigError naming row and column, after the rows before that one.
        """

        def convert(part: pa.RecordBatch) -> MappedRows:
            messages = self.messages(part)
            return MappedRows(first_row, messages.all_bytes(), self._values(part, messages, filter_source))

        try:
            yield convert(rows)
        except ConfigError:
            good = _first_wrong(rows, convert)
            if good:
                yield convert(rows.slice(0, good))
            try:
                convert(rows.slice(good, 1))
            except ConfigError as error:
                # It was converted alone.
                raise ConfigError(f"row {first_row + good}: {str(error).replace(', row 0:', ':')}") from None
            raise

    def _values(self, rows: pa.RecordBatch, messages: EncodedMessages, filter_source: str | None) -> list[bytes | None]:
        source = ANNOTATION if filter_source is None else parse_field(filter_source)
        derived = field_values(messages, source)
        found = [derived.value(row) for row in range(len(derived))]
        column = self.whole.get(_VALUE)
        if column is None:
            return found
        given = cast(rows.column(column), pa.string(), column).to_pylist()
        for row, (text, value) in enumerate(zip(given, found, strict=True)):
            if text is None:
                continue
            if (filter_source is not None or value is not None) and text.encode() != (value or b""):
                where = filter_source or "message_annotations.x-stream-filter-value"
                shown = "nothing" if value is None else repr(value.decode(errors="replace"))
                raise ConfigError(f"column {column!r}: found filter value {text!r}, but {where} holds {shown}")
            found[row] = text.encode()
        return found


def _put_whole(whole: dict[str, str], field: str, column: str) -> None:
    if field in whole:
        raise ConfigError(f"--map: {field} is there twice")
    whole[field] = column


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], type=kind) for kind in schema.types], schema=schema)


def _first_wrong(rows: pa.RecordBatch, convert: Callable[[pa.RecordBatch], T]) -> int:
    """How many rows before the first that cannot be converted."""
    good, behind = 0, rows.num_rows
    while good + 1 < behind:
        middle = (good + behind) // 2
        try:
            convert(rows.slice(good, middle - good))
            good = middle
        except ConfigError:
            behind = middle
    return good


def _variant(array: pa.Array) -> pa.Array:
    """The same, marked as VARIANT where it is one: other writers of Parquet do not keep Arrow's mark."""
    kind = array.type
    if not pa.types.is_struct(kind) or {member.name for member in kind} != {"value", "metadata"}:
        return array
    members = [pc.struct_field(array, name) for name in ("value", "metadata")]
    if not all(pa.types.is_binary(member.type) or pa.types.is_large_binary(member.type) for member in members):
        return array
    # The members of a null are empty, since VARIANT has none that are null.
    filled = [member.cast(pa.binary()).fill_null(b"") for member in members]
    return pa.StructArray.from_arrays(filled, fields=list(variant_type()), mask=pc.is_null(array))


def _of_field(declared: DeclaredColumn, array: pa.Array, path: str | None = None) -> pa.Array:
    """The values, if a field of header and properties holds them."""
    if declared.section not in (Section.HEADER, Section.PROPERTIES) or not pa.types.is_integer(array.type):
        return array
    highest = 255 if HEADER_TYPES.get(declared.field) is SparkType.SMALLINT else 2**32 - 1
    bounds = pc.min_max(array)
    for bound in (bounds["min"].as_py(), bounds["max"].as_py()):
        if bound is not None and not 0 <= bound <= highest:
            raise ConfigError(f"column {path or declared.name!r}: found {bound}, expected 0 … {highest}")
    return array


def cast(array: pa.Array, kind: pa.DataType, column: str) -> pa.Array:
    """The values in the type of their field, as the head of this module says; ConfigError for one that it lacks."""
    try:
        return _cast(array, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, OverflowError):
        raise ConfigError(f"column {column!r}: found {_found(array)}, expected {_spoken(kind)}") from None


def _found(array: pa.Array) -> str:
    """The value, where there is one row."""
    if len(array) != 1:
        return str(array.type)
    value = array[0].as_py()
    with contextlib.suppress(UnicodeDecodeError):
        value = value.decode() if isinstance(value, bytes) else value
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _bytes(array: pa.Array, column: str) -> pa.Array:
    """Those that text stands for."""
    texts = cast(array, pa.string(), column).to_pylist()
    try:
        return pa.array([None if text is None else bytes_of_text(text) for text in texts], type=pa.binary())
    except ValueError as error:
        raise ConfigError(f"column {column!r}: no base64 behind 'base64:': {error}") from None


def _spoken(kind: pa.DataType) -> str:
    return "timestamp" if pa.types.is_timestamp(kind) else str(kind)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    found = array.type
    if found == kind:
        return array
    if pa.types.is_dictionary(found):
        return _cast(array.dictionary_decode(), kind)
    if pa.types.is_null(found):
        return pa.nulls(len(array), kind)
    if _is_octets(found) and not pa.types.is_binary(kind):
        # In text as in bytes: what a number or a time is written as.
        array, found = array.cast(pa.string()), pa.string()
    if pa.types.is_nested(found) or (pa.types.is_boolean(found) and not pa.types.is_string(kind)):
        raise pa.ArrowNotImplementedError
    if pa.types.is_binary(kind) and not (_is_octets(found) or _is_text(found)):
        raise pa.ArrowNotImplementedError
    if pa.types.is_boolean(kind) and not pa.types.is_string(found):
        raise pa.ArrowNotImplementedError
    if pa.types.is_timestamp(kind):
        return _times(array)
    if pa.types.is_temporal(found) and not pa.types.is_string(kind):
        raise pa.ArrowNotImplementedError
    if pa.types.is_decimal(kind) and pa.types.is_integer(found):
        # Arrow asks for as many digits as the widest integer has, whatever the values.
        array = array.cast(pa.string())
    return array.cast(kind)


def _is_octets(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _times(array: pa.Array) -> pa.Array:
    found = array.type
    if pa.types.is_integer(found):
        return array.cast(pa.int64()).cast(pa.timestamp("ms", tz="UTC")).cast(_UTC_TIME)
    if pa.types.is_timestamp(found):
        # AMQP counts milliseconds; what is finer is cut there, so it may be here.
        in_utc = array if found.tz is not None else array.cast(pa.timestamp(found.unit, tz="UTC"))
        return in_utc.cast(pa.timestamp(found.unit, tz="UTC")).cast(_UTC_TIME, safe=found.unit != "ns")
    if pa.types.is_date(found):
        return array.cast(pa.timestamp("us")).cast(_UTC_TIME)
    if not _is_text(found):
        raise pa.ArrowNotImplementedError
    texts = array.cast(pa.string())
    for kind in (_UTC_TIME, pa.timestamp("us")):
        try:
            return texts.cast(kind).cast(_UTC_TIME)
        except pa.ArrowInvalid:
            continue
    # Numbers, years of more than four digits, and some with a zone among others without.
    moments = [None if text is None else _microseconds(text) for text in texts.to_pylist()]
    return pa.array(moments, type=pa.int64()).cast(pa.timestamp("us")).cast(_UTC_TIME)


def _microseconds(text: str) -> int:
    if _NUMBER.fullmatch(text):
        return int(text) * 1000
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        if not _ANY_YEAR.fullmatch(text):
            raise
        return int(np.datetime64(text[:-1], "us").astype(np.int64))
    in_utc = moment.replace(tzinfo=datetime.UTC) if moment.tzinfo is None else moment
    return (in_utc - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1)
