"""From the columns of a file to messages: which column becomes which field, with its type.

A mapping is written like the columns of a read, so a file exported with a text is published with the same text: "region
string, price double, p.subject as title, body". A whole column may have another name, too: "body as payload". `offset`
and `timestamp` are the stream's own and left out.

The word `rounded` behind the type, or behind a whole section, takes values that the field does not hold exactly ("price
float rounded, p.creation_time rounded as sold_at"); `conversion` defines exact, and the types that a field takes.

A null makes no field, and a section without fields is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

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
from headgate.tables.conversion import converted
from headgate.tables.text_values import bytes_of_text
from headgate.tables.values import ANNOTATION, field_values

_OF_THE_STREAM = ("offset", "timestamp")
_VALUE = "filter_value"
_WHOLE = (*COLUMNS, _VALUE)
_SECTIONS = ("header", "properties", "application_properties", "message_annotations")
_NEVER_ROUNDED = (SparkType.STRING, SparkType.BINARY, SparkType.BOOLEAN)
_ITEM = re.compile(r"(?:`[^`]*`|\([^)]*\)|[^,`(])+")
_WORD = re.compile(r"(?:`[^`]*`|\([^)]*\)|[^\s`(])+")
_RENAMED = re.compile(rf"\s*({'|'.join(_WHOLE)})\s+(?i:as)\s+(?:`((?:[^`]|``)+)`|([^\s,`]+))\s*")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MappedRows:
    """Rows of a file as messages; `first_row` counts from 1, and each has its filter value or None."""

    first_row: int
    messages: list[bytes]
    filter_values: list[bytes | None]


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """`whole` gives the file's column for a column of a message, `single` names the columns that become one field."""

    whole: dict[str, str]
    single: tuple[DeclaredColumn, ...]
    rounded: frozenset[str] = frozenset()
    """The fields that take the nearest value, as `properties.creation_time`, or whole sections."""
    is_text: bool = False
    """Whether the format has bytes as text (`tables.texts`)."""

    @staticmethod
    def parse(text: str) -> ColumnMapping:
        """Raises ConfigError naming the column."""
        whole: dict[str, str] = {}
        single: list[DeclaredColumn] = []
        rounded: set[str] = set()
        for given in _ITEM.findall(text):
            item, is_rounded = _without_rounded(given)
            renamed = _RENAMED.fullmatch(item)
            if renamed is not None:
                field, quoted, plain = renamed.groups()
                _put_whole(whole, field, plain if quoted is None else quoted.replace("``", "`"))
                rounded |= _rounded_whole(field) if is_rounded else set()
                continue
            for each in declared_columns(item):
                if isinstance(each, DeclaredColumn) and each.section is Section.DATA:
                    raise ConfigError(
                        f"--map: {each.field} is inside of a body; a column becomes a body as a whole, by 'body'"
                    )
                if isinstance(each, DeclaredColumn):
                    single.append(each)
                    rounded |= _rounded_field(each) if is_rounded else set()
                elif each in _WHOLE:
                    _put_whole(whole, each, each)
                    rounded |= _rounded_whole(each) if is_rounded else set()
                elif each not in _OF_THE_STREAM:
                    raise ConfigError(
                        f"--map: a message has no column {each!r}; expected {', '.join(_WHOLE)}, or a property with "
                        f"its type, as in '{each} string'"
                    )
        return ColumnMapping(whole, tuple(single), frozenset(rounded)).checked()

    @staticmethod
    def of_names(names: Iterable[str]) -> ColumnMapping:
        """The mapping of a file whose columns all have names of message columns; ConfigError for others."""
        others = [name for name in names if name not in _WHOLE and name not in _OF_THE_STREAM]
        if others:
            raise ConfigError(
                f"what becomes of column {others[0]!r}? Say it with --map, as in 'region string, p.subject as title, "
                "body as payload'"
            )
        return ColumnMapping({name: name for name in names if name in _WHOLE}, ()).checked()

    def checked(self) -> ColumnMapping:
        """This mapping. Raises ConfigError for repeated fields, and for no field at all."""
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
    def columns(self) -> tuple[str, ...]:
        """The file's columns that become something."""
        return tuple(dict.fromkeys((*self.whole.values(), *(each.name for each in self.single))))

    def check(self, schema: pa.Schema) -> None:
        """Raise ConfigError for a column that the file lacks, or of a type that its field does not take."""
        for column in self.columns:
            if schema.names.count(column) != 1:
                count = "no" if column not in schema.names else "more than one"
                raise ConfigError(f"the file has {count} column {column!r}; it has {', '.join(schema.names) or 'none'}")
        rows = _no_rows(schema)
        self._given_values(rows)
        self.messages(rows)

    def messages(self, rows: pa.RecordBatch) -> EncodedMessages:
        """A message for each row. Raises ConfigError naming the column."""
        arrays = {
            field: self._whole(field, column, rows.column(column))
            for field, column in self.whole.items()
            if field != _VALUE
        }
        for section in {each.section: None for each in self.single}:
            arrays[section.name.lower()] = self._section(section, rows)
        return messages_of(pa.record_batch(arrays), exact=arrays.keys() - self.rounded)

    def _section(self, section: Section, rows: pa.RecordBatch) -> pa.Array:
        mine = [each for each in self.single if each.section is section]
        members = [self._field(each, rows.column(each.name), each.name, _path(each)) for each in mine]
        absent = pc.is_null(members[0])
        for member in members[1:]:
            absent = pc.and_(absent, pc.is_null(member))
        fields = [pa.field(each.field, member.type) for each, member in zip(mine, members, strict=True)]
        return pa.StructArray.from_arrays(members, fields=fields, mask=absent)

    def _whole(self, field: str, column: str, array: pa.Array) -> pa.Array:
        if field in ("body", "message"):
            return self._bytes(array, column)
        kind = array.type
        if field not in ("header", "properties"):
            return _variant(array, column)
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
            members.append(self._field(declared, values, f"{column}.{member.name}", field))
            fields.append(pa.field(member.name, members[-1].type))
        return pa.StructArray.from_arrays(members, fields=fields, mask=pc.is_null(array))

    def _field(self, declared: DeclaredColumn, array: pa.Array, column: str, path: str) -> pa.Array:
        if declared.kind is SparkType.BINARY:
            return self._bytes(array, column)
        values = converted(array, declared.type, declared.kind, column, rounded=path in self.rounded)
        return _in_range(declared, values, column)

    def _bytes(self, array: pa.Array, column: str) -> pa.Array:
        """A column as bytes; in text formats the bytes that a text stands for."""
        if not self.is_text:
            return converted(array, pa.binary(), SparkType.BINARY, column)
        texts = converted(array, pa.string(), SparkType.STRING, column).to_pylist()
        try:
            return pa.array([None if text is None else bytes_of_text(text) for text in texts], type=pa.binary())
        except ValueError as error:
            raise ConfigError(f"column {column!r}: no base64 behind 'base64:': {error}") from None

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
        given = self._given_values(rows)
        if given is None:
            return found
        column = self.whole[_VALUE]
        for row, (text, value) in enumerate(zip(given, found, strict=True)):
            if text is None:
                continue
            if (filter_source is not None or value is not None) and text.encode() != (value or b""):
                where = filter_source or "message_annotations.x-stream-filter-value"
                shown = "nothing" if value is None else repr(value.decode(errors="replace"))
                raise ConfigError(f"column {column!r}: found filter value {text!r}, but {where} holds {shown}")
            found[row] = text.encode()
        return found

    def _given_values(self, rows: pa.RecordBatch) -> list[str | None] | None:
        column = self.whole.get(_VALUE)
        if column is None:
            return None
        given: list[str | None] = converted(rows.column(column), pa.string(), SparkType.STRING, column).to_pylist()
        return given


def _without_rounded(item: str) -> tuple[str, bool]:
    """An item of the text without the word `rounded`, and whether it stood at its place: at the end or before `as`."""
    words = [*_WORD.finditer(item)]
    for number, word in enumerate(words[1:], 1):
        behind = words[number + 1].group().lower() if number + 1 < len(words) else "as"
        if word.group().lower() == "rounded" and words[number - 1].group().lower() != "as" == behind:
            return item[: word.start()] + item[word.end() :], True
    return item, False


def _rounded_whole(field: str) -> set[str]:
    if field not in _SECTIONS:
        raise ConfigError(f"--map: {field} is not rounded; expected that word behind a number, a time or a section")
    return {field}


def _rounded_field(declared: DeclaredColumn) -> set[str]:
    if declared.kind in _NEVER_ROUNDED:
        raise ConfigError(
            f"--map: {declared.name!r} is {declared.kind.value}, which is not rounded; expected that word behind a "
            "number, a time or a section"
        )
    return {_path(declared)}


def _path(declared: DeclaredColumn) -> str:
    return f"{declared.section.name.lower()}.{declared.field}"


def _put_whole(whole: dict[str, str], field: str, column: str) -> None:
    if field in whole:
        raise ConfigError(f"--map: {field} is there twice")
    whole[field] = column


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)


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


def _variant(array: pa.Array, column: str) -> pa.Array:
    """The same, marked as VARIANT where it is one: other writers of Parquet do not keep Arrow's mark."""
    kind = array.type
    names = {member.name for member in kind} if pa.types.is_struct(kind) else set()
    if names in ({"metadata", "typed_value"}, {"metadata", "value", "typed_value"}):
        raise ConfigError(f"column {column!r}: found a shredded VARIANT, expected one of value and metadata only")
    if names != {"value", "metadata"}:
        return array
    members = [pc.struct_field(array, name) for name in ("value", "metadata")]
    if not all(pa.types.is_binary(member.type) or pa.types.is_large_binary(member.type) for member in members):
        return array
    # The members of a null are empty, since VARIANT has none that are null.
    filled = [member.cast(pa.binary()).fill_null(b"") for member in members]
    return pa.StructArray.from_arrays(filled, fields=list(variant_type()), mask=pc.is_null(array))


def _in_range(declared: DeclaredColumn, array: pa.Array, column: str) -> pa.Array:
    """The values, if a field of header and properties holds them."""
    if declared.section not in (Section.HEADER, Section.PROPERTIES) or not pa.types.is_integer(array.type):
        return array
    highest = 255 if HEADER_TYPES.get(declared.field) is SparkType.SMALLINT else 2**32 - 1
    bounds = pc.min_max(array)
    for bound in (bounds["min"].as_py(), bounds["max"].as_py()):
        if bound is not None and not 0 <= bound <= highest:
            raise ConfigError(f"column {column!r}: found {bound}, expected 0 … {highest}")
    return array
