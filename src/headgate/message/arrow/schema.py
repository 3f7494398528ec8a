"""The columns of a message as Spark sees them: names, Arrow types, and declared application properties.

    header                  struct, null = the message has no header section
        durable boolean, priority smallint, ttl bigint (ms), first_acquirer boolean, delivery_count bigint
    properties              struct, null = no properties section
        message_id string, user_id binary, to string, subject string, reply_to string, correlation_id string,
        content_type string, content_encoding string, absolute_expiry_time timestamp, creation_time timestamp,
        group_id string, group_sequence bigint, reply_to_group_id string
    application_properties  VARIANT, or a struct of declared properties; null = no such section
    message_annotations     VARIANT, null = no such section
    body                    binary
    message                 binary, the encoded message

Spark has no unsigned integers: ubyte becomes smallint, uint bigint. A field is null when the message does not state it;
the default priority is not filled in. Nothing here imports pyarrow before a type is asked for.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.errors import ConfigError
from headgate.message import fields
from headgate.message.constructors import AmqpType
from headgate.message.fields import Section, body_path_text, parse_field

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

COLUMNS: tuple[str, ...] = (
    "header",
    "properties",
    "application_properties",
    "message_annotations",
    "body",
    "message",
)
"""Every column a message has, in the order in which they are shown."""

_VARIANTS = ("application_properties", "message_annotations")


class SparkType(enum.Enum):
    """Spark's scalar types that a column of a message can have; the value is the name in Spark's DDL."""

    BOOLEAN = "boolean"
    TINYINT = "tinyint"
    SMALLINT = "smallint"
    INT = "int"
    BIGINT = "bigint"
    DECIMAL = "decimal"
    FLOAT = "float"
    DOUBLE = "double"
    TIMESTAMP = "timestamp"
    STRING = "string"
    BINARY = "binary"


_SYNONYMS = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}

INTEGER_RANGES: dict[SparkType, tuple[int, int]] = {
    SparkType.TINYINT: (-(2**7), 2**7 - 1),
    SparkType.SMALLINT: (-(2**15), 2**15 - 1),
    SparkType.INT: (-(2**31), 2**31 - 1),
    SparkType.BIGINT: (-(2**63), 2**63 - 1),
}
"""Inclusive ranges of the integer kinds."""

_SPARK_TYPES = {
    AmqpType.BOOLEAN: SparkType.BOOLEAN,
    AmqpType.UBYTE: SparkType.SMALLINT,
    AmqpType.UINT: SparkType.BIGINT,
    AmqpType.BINARY: SparkType.BINARY,
    AmqpType.TIMESTAMP: SparkType.TIMESTAMP,
}


def _spark_types(fields: Mapping[str, AmqpType | None]) -> dict[str, SparkType]:
    return {
        name.replace("-", "_"): SparkType.STRING if kind is None else _SPARK_TYPES.get(kind, SparkType.STRING)
        for name, kind in fields.items()
    }


HEADER_TYPES = _spark_types(fields.HEADER_TYPES)
"""Fields of the `header` column, in the order of the section's list."""

PROPERTIES_TYPES = _spark_types(fields.PROPERTIES_TYPES)
"""Fields of the `properties` column, in the order of the section's list."""


@dataclass(frozen=True, slots=True)
class DeclaredProperty:
    """One application property with the type of its column; `precision` counts for decimals only (scale is 0)."""

    name: str
    kind: SparkType
    precision: int = 0

    @property
    def ddl(self) -> str:
        """The type in Spark's DDL."""
        return f"decimal({self.precision},0)" if self.kind is SparkType.DECIMAL else self.kind.value


@dataclass(slots=True)
class Mismatches:
    """How many values of declared properties are null because they do not fit, and the first row that has one."""

    count: int = 0
    first_row: int | None = None

    def add(self, row: int, count: int = 1) -> None:
        """Count some, the first of them in `row`; rows may come in any order."""
        if count:
            self.count += count
            self.first_row = row if self.first_row is None else min(row, self.first_row)

    def add_all(self, others: Mismatches, rows: Sequence[int] | NDArray[np.int64]) -> None:
        """Add the mismatches of another table, whose row i is `rows[i]` here; `rows` are ascending."""
        if others.first_row is not None:
            self.add(int(rows[others.first_row]), others.count)


@dataclass(frozen=True, slots=True)
class DeclaredColumn:
    """A column that holds one field of the messages: `field` is its standard name with underscores, or its key.

    In the section `DATA` it is a path into a JSON body, as `body_path_text` writes it. `precision` and `scale` count
    for decimals; only those of a path have a scale.
    """

    name: str
    section: Section
    field: str
    kind: SparkType
    precision: int = 0
    scale: int = 0

    @property
    def type(self) -> pa.DataType:
        """The Arrow type."""
        return arrow_kind(self.kind, self.precision, self.scale)

    @property
    def path(self) -> tuple[bytes | int, ...]:
        """The path into the body; empty for other fields."""
        return parse_field(self.field).path if self.section is Section.DATA else ()

    @property
    def place(self) -> tuple[object, ...]:
        """All but the name: equal for columns with the same values."""
        return self.section, self.field, self.kind, self.precision, self.scale


_DECLARATION = re.compile(
    r"\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>[^\s,`:]+))\s*(?::\s*|\s+|(?<=`))"
    r"(?P<type>[A-Za-z]+)\s*(?:\(\s*(?P<precision>\d+)\s*(?:,\s*(?P<scale>\d+)\s*)?\))?\s*(?:,|$)"
)


def declared_properties(text: str) -> tuple[DeclaredProperty, ...]:
    """The application properties of `"region string, price double"`; names with special characters in backquotes.

    Raises ConfigError naming the property and the types there are.
    """
    found: list[DeclaredProperty] = []
    position = 0
    while position < len(text) or not found:
        match = _DECLARATION.match(text, position)
        if match is None:
            raise ConfigError(
                f"properties: cannot read {text[position:].strip()!r}; expected `name type, name type, …` "
                "as in 'region string, price double'"
            )
        position = match.end()
        quoted = match["quoted"]
        name = quoted.replace("``", "`") if quoted is not None else match["plain"]
        if any(other.name.lower() == name.lower() for other in found):
            raise ConfigError(f"properties: {name!r} is declared twice (Spark's column names ignore case)")
        found.append(_declared(name, match["type"].lower(), match["precision"], match["scale"]))
    return tuple(found)


def _declared(name: str, type_name: str, precision: str | None, scale: str | None) -> DeclaredProperty:
    try:
        kind = SparkType(_SYNONYMS.get(type_name, type_name))
    except ValueError:
        known = ", ".join("decimal(p,0)" if kind is SparkType.DECIMAL else kind.value for kind in SparkType)
        raise ConfigError(f"properties: {name!r} is declared {type_name!r}; expected one of {known}") from None
    if kind is not SparkType.DECIMAL:
        if precision is not None:
            raise ConfigError(f"properties: {name!r}: the type {type_name} takes no precision")
        return DeclaredProperty(name, kind)
    if int(scale or 0) != 0 or not 1 <= int(precision or 10) <= 38:
        raise ConfigError(
            f"properties: {name!r} is declared decimal({precision},{scale or 0}); expected decimal(p,0) with p 1 … 38: "
            "AMQP 1.0 integers have no fraction, and its decimals are not converted"
        )
    return DeclaredProperty(name, kind, int(precision or 10))


_SECTIONS_OF_COLUMNS = {
    "a": Section.APPLICATION_PROPERTIES,
    "application_properties": Section.APPLICATION_PROPERTIES,
    "p": Section.PROPERTIES,
    "properties": Section.PROPERTIES,
    "h": Section.HEADER,
    "header": Section.HEADER,
    "m": Section.MESSAGE_ANNOTATIONS,
    "message_annotations": Section.MESSAGE_ANNOTATIONS,
}
_OF_JSON = tuple(kind for kind in SparkType if kind not in (SparkType.TIMESTAMP, SparkType.BINARY))
_COLUMN = re.compile(
    r"""\s*(?:b(?:ody)?(?P<path>\.(?:"(?:[^"]|"")*"|'(?:[^']|'')*'|[^\s,`:"'])+)"""
    r"|(?:(?P<section>[a-z_]+)\.)?(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>[^\s,`:.]+)))"
    r"(?:(?:\s*:\s*|\s+)(?!(?i:as)\s)(?P<type>[A-Za-z]+)\s*(?:\(\s*(?P<precision>\d+)\s*(?:,\s*(?P<scale>\d+)\s*)?\))?)?"
    r"(?:\s+(?i:as)\s+(?:`(?P<quoted_name>(?:[^`]|``)+)`|(?P<plain_name>[^\s,`:]+)))?\s*(?:,|$)"
)


def declared_columns(text: str) -> tuple[DeclaredColumn | str, ...]:
    """The columns of `"region string, price double, p.subject, m.x-opt-tag string as tag"`, in this order.

    A name alone is an application property; `a.`, `p.`, `h.` and `m.`, or the names of the sections, say which section
    a field is of. Fields of header and properties have the types of the standard. `b.` or `body.` and a path, as in
    filters of `amqp`, is a value in a JSON body: `body.order.total decimal(10,2)`, `b.lines[0].sku string`. A name with
    neither section nor type stays a string: a whole column, such as `body`. A column has the name of its field, or of
    the last step of its path, unless `as` gives another.

    Raises ConfigError naming the column.
    """
    found: list[DeclaredColumn | str] = []
    position = 0
    while position < len(text) or not found:
        match = _COLUMN.match(text, position)
        if match is None:
            raise ConfigError(
                f"columns: cannot read {text[position:].strip()!r}; expected `name type, p.field, column, …` as in "
                "'offset, region string, price double, p.subject'"
            )
        position = match.end()
        found.append(_column(match))
    names = [each if isinstance(each, str) else each.name for each in found]
    for number, name in enumerate(names):
        if name.lower() in (other.lower() for other in names[:number]):
            raise ConfigError(f"columns: there are two columns {name!r}; rename one with `as`")
    return tuple(found)


def check_bodies(columns: Iterable[DeclaredColumn | str], body_schema: str | None) -> None:
    """Raise ConfigError for a path into the bodies of a stream that declares a schema of them: columns hold JSON."""
    for each in columns:
        if body_schema is not None and isinstance(each, DeclaredColumn) and each.section is Section.DATA:
            raise ConfigError(
                f"columns: {each.field}: the stream declares a schema of its bodies; columns hold values of JSON only, "
                "so leave it out (filters look into such bodies)"
            )


def _column(match: re.Match[str]) -> DeclaredColumn | str:
    if match["path"] is not None:
        return _path_column(match)
    quoted, given = match["quoted"], match["section"]
    field = quoted.replace("``", "`") if quoted is not None else match["plain"]
    renamed = _renamed(match)
    if given is None and quoted is None and match["type"] is None and renamed is None:
        return field
    section = _SECTIONS_OF_COLUMNS.get(given or "a")
    if given in ("b", "body"):
        raise ConfigError(
            f'columns: {given}.`{field}`: names in a path stand in double quotes, as in {given}."{field}"'
        )
    if section is None:
        known = ", ".join((*_SECTIONS_OF_COLUMNS, "b", "body"))
        raise ConfigError(f"columns: {given}.{field}: there is no section {given!r}; expected one of {known}")
    name = renamed or field
    standard = {Section.HEADER: HEADER_TYPES, Section.PROPERTIES: PROPERTIES_TYPES}.get(section)
    if standard is None:
        if match["type"] is None:
            raise ConfigError(f"columns: {field!r} has no type; give one, as in '{field} string'")
        declared = _declared(field, match["type"].lower(), match["precision"], match["scale"])
        return DeclaredColumn(name, section, field, declared.kind, declared.precision)
    field = field.replace("-", "_")
    kind = standard.get(field)
    if kind is None:
        raise ConfigError(f"columns: {given}.{field}: expected one of {', '.join(standard)}")
    if match["type"] is not None and _SYNONYMS.get(match["type"].lower(), match["type"].lower()) != kind.value:
        raise ConfigError(f"columns: {given}.{field} is {kind.value}, and declared {match['type']}; leave the type out")
    return DeclaredColumn(name, section, field, kind)


def _renamed(match: re.Match[str]) -> str | None:
    quoted = match["quoted_name"]
    return quoted.replace("``", "`") if quoted is not None else match["plain_name"]


def _path_column(match: re.Match[str]) -> DeclaredColumn:
    """The column of a value in a JSON body."""
    given = f"body{match['path']}"
    try:
        path = parse_field(given).path
        field = body_path_text(path)
    except ConfigError as error:
        raise ConfigError(f"columns: {error}") from None
    except UnicodeError:
        raise ConfigError(f"columns: {given!r}: half of a surrogate pair is no text that a key may have") from None
    name = _renamed(match) or (path[-1].decode() if isinstance(path[-1], bytes) else "")
    if not name:
        raise ConfigError(f"columns: {field} ends with no name; give the column one, as in '{field} string as name'")
    type_name = (match["type"] or "").lower()
    kind = next((kind for kind in _OF_JSON if kind.value == _SYNONYMS.get(type_name, type_name)), None)
    if kind is None:
        known = ", ".join("decimal(p,s)" if each is SparkType.DECIMAL else each.value for each in _OF_JSON)
        declared = f"is declared {type_name!r}" if type_name else "has no type"
        raise ConfigError(f"columns: {field} {declared}; expected one of {known}, which values of JSON can have")
    precision, scale = (int(match[part] or default) for part, default in (("precision", 10), ("scale", 0)))
    if kind is SparkType.DECIMAL and (not 1 <= precision <= 38 or scale > precision):
        raise ConfigError(f"columns: {field} is declared decimal({precision},{scale}); expected p 1 … 38 and s 0 … p")
    if kind is not SparkType.DECIMAL:
        if match["precision"] is not None:
            raise ConfigError(f"columns: {field}: the type {type_name} takes no precision")
        precision = scale = 0
    return DeclaredColumn(name, Section.DATA, field, kind, precision, scale)


@functools.cache
def arrow_kind(kind: SparkType, precision: int = 0, scale: int = 0) -> pa.DataType:
    """The Arrow type that Spark uses for a scalar kind."""
    import pyarrow as pa

    if kind is SparkType.DECIMAL:
        return pa.decimal128(precision, scale)
    return {
        SparkType.BOOLEAN: pa.bool_(),
        SparkType.TINYINT: pa.int8(),
        SparkType.SMALLINT: pa.int16(),
        SparkType.INT: pa.int32(),
        SparkType.BIGINT: pa.int64(),
        SparkType.FLOAT: pa.float32(),
        SparkType.DOUBLE: pa.float64(),
        SparkType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
        SparkType.STRING: pa.string(),
        SparkType.BINARY: pa.binary(),
    }[kind]


@functools.cache
def variant_type() -> pa.DataType:
    """Spark's VARIANT in Arrow: two non-null binary fields, the second marked in its field metadata."""
    import pyarrow as pa

    return pa.struct(
        [
            pa.field("value", pa.binary(), nullable=False),
            pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
        ]
    )


def _struct_fields(column: str, properties: tuple[DeclaredProperty, ...] | None) -> tuple[DeclaredProperty, ...] | None:
    """The fields of a column that is a struct, else None. Raises ConfigError for a name that is not a column."""
    if column not in COLUMNS:
        raise unknown_column(column)
    if column == "application_properties":
        return properties
    kinds = {"header": HEADER_TYPES, "properties": PROPERTIES_TYPES}.get(column)
    return None if kinds is None else tuple(DeclaredProperty(name, kind) for name, kind in kinds.items())


def column_type(column: str, properties: tuple[DeclaredProperty, ...] | None = None) -> pa.DataType:
    """The Arrow type of one of `COLUMNS`; `properties` makes `application_properties` a struct.

    Raises ConfigError for a name that is not a column.
    """
    import pyarrow as pa

    members = _struct_fields(column, properties)
    if members is not None:
        return pa.struct([(member.name, arrow_kind(member.kind, member.precision)) for member in members])
    return variant_type() if column in _VARIANTS else pa.binary()


def column_ddl(column: str, properties: tuple[DeclaredProperty, ...] | None = None) -> str:
    """The type of a column in Spark's DDL, for a schema such as `f"{column} {column_ddl(column)}"`.

    Raises ConfigError for a name that is not a column.
    """
    members = _struct_fields(column, properties)
    if members is None:
        return "variant" if column in _VARIANTS else "binary"
    quoted = (f"`{member.name.replace('`', '``')}`: {member.ddl}" for member in members)
    return f"struct<{', '.join(quoted)}>"


def unknown_column(column: str) -> ConfigError:
    """The error for a column that a message does not have."""
    return ConfigError(f"columns: a message has no column {column!r}; expected some of {', '.join(COLUMNS)}")
