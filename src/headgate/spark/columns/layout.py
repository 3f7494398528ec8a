"""The columns that the fields of a filter are read from, and the check that their types can carry the filter's values.

| field of the filter                           | column                                                           |
| --------------------------------------------- | ---------------------------------------------------------------- |
| header or properties field                    | field of a struct column `header`, `properties`, with underscores |
| message annotation                            | column `message_annotations`: struct, MAP or VARIANT              |
| application property                          | column `application_properties`: struct, MAP or VARIANT; where    |
|                                               | there is none, the column of the same name                        |
| any of these named in `columns`               | the column (or field of a struct column) it names                 |

The sink takes the same types of cells (`headgate.message.arrow.encode.inputs`). Names are compared as the language
does: exactly, in Service Bus without case.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pyspark.sql import Column, types
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from headgate.errors import ConfigError
from headgate.evaluate import Filter
from headgate.language import field_text
from headgate.language.tree import Field, MessageSize, PropertyOf, ValueRules, walk
from headgate.message import FieldReference, Section, parse_field, without_case
from headgate.message.arrow import HEADER_TYPES, PROPERTIES_TYPES, SparkType
from headgate.spark.columns.kinds import ValueKind, compared_kinds

Path: TypeAlias = tuple[str, ...]
"""A column, or the field of a struct column."""

SECTION_COLUMNS: Mapping[Section, str] = {
    Section.HEADER: "header",
    Section.PROPERTIES: "properties",
    Section.MESSAGE_ANNOTATIONS: "message_annotations",
    Section.APPLICATION_PROPERTIES: "application_properties",
}
"""Sections that rows can have, by the name of their column."""

_FIELD_KINDS = {Section.HEADER: HEADER_TYPES, Section.PROPERTIES: PROPERTIES_TYPES}
_IDS = ("message_id", "correlation_id")


@dataclass(frozen=True, slots=True)
class Cell:
    """One field of the message from one column: `name` is its standard name with underscores, or its key."""

    section: Section
    name: str
    path: Path
    type: types.DataType


@dataclass(frozen=True, slots=True)
class Entries:
    """A whole section of the message from one MAP or VARIANT column."""

    section: Section
    path: Path
    type: types.DataType


Input: TypeAlias = Cell | Entries


def layout_of(filter: Filter, schema: types.StructType, columns: Mapping[str, str] | None = None) -> tuple[Input, ...]:
    """The columns to read of each row, every one once, in the order of the schema within a section.

    `columns` names columns by field (`{"properties.subject": "title", "application_properties.region": "geo.region"}`).
    Raises ConfigError, with field and column, for a missing column or one whose type cannot carry the values.
    """
    return _Layout(filter, schema, columns or {}).inputs()


class _Layout:
    def __init__(self, filter: Filter, schema: types.StructType, columns: Mapping[str, str]) -> None:
        for node in walk(filter.tree):
            if isinstance(node, MessageSize | PropertyOf):
                what = "the size of the message" if isinstance(node, MessageSize) else "a property of a computed name"
                text = filter.text[slice(*node.span)]
                raise ConfigError(f"the filter reads {what}, which rows do not have: {text}")
        self._filter = filter
        self._schema = schema
        self._given = {parse_field(text): self._found_path(text, column) for text, column in columns.items()}
        if any(field.section is Section.DATA for field in self._given):
            raise ConfigError("columns: rows have no body of JSON, so no column can be named for a path into one")
        self._kinds = compared_kinds(filter.tree)

    def inputs(self) -> tuple[Input, ...]:
        found: dict[Section, list[Input]] = {}
        for reference in sorted(self._filter.fields, key=repr):
            inputs = found.setdefault(reference.section, [])
            for each in self._inputs_for(reference):
                self._check(reference, each)
                if each not in inputs:
                    inputs.append(each)
        for section, inputs in found.items():
            entries = [each for each in inputs if isinstance(each, Entries)]
            if entries and len(inputs) > 1:
                others = ", ".join(sorted(_shown(each.path) for each in inputs if isinstance(each, Cell)))
                raise ConfigError(
                    f"columns: the fields of {SECTION_COLUMNS[section]} come from {_shown(entries[0].path)} and from "
                    f"{others}; name a column for each of them, or for none"
                )
        return tuple(each for section in sorted(found) for each in sorted(found[section], key=self._position))

    def _position(self, each: Input) -> tuple[int, ...]:
        """Where a column stands: of keys that differ in case only, the first in this order counts."""
        parent = self._type_of(each.path[:1])
        inside = (parent.names.index(each.path[1]),) if isinstance(parent, types.StructType) and each.path[1:] else ()
        return (self._schema.names.index(each.path[0]), *inside)

    def _inputs_for(self, reference: FieldReference) -> Iterable[Input]:
        given = [
            Cell(reference.section, _field_name(named), path, self._type_of(path))
            for named, path in self._given.items()
            if names_same(reference, named)
        ]
        if given:
            return given
        name = SECTION_COLUMNS.get(reference.section)
        if reference.section is Section.DATA:
            raise ConfigError(f"the filter reads {field_text(reference)}, and rows have no body of JSON")
        if name is None:
            section = reference.section.name.lower().replace("_", " ")
            raise ConfigError(
                f"the filter reads a field of the {section}, which rows have no column for; they have columns for "
                f"{', '.join(SECTION_COLUMNS.values())}"
            )
        known = {field.name: field for field in self._schema}
        if name in known:
            return self._from_section(reference, self._only(name))
        if reference.section is not Section.APPLICATION_PROPERTIES:
            raise ConfigError(
                f"the filter reads {_display(reference)}, but there is no column {name}; add it as a struct, or name "
                f"the column that holds the field: columns={{'{_display(reference)}': …}}"
            )
        return self._from_fields(reference, self._schema, ())

    def _from_section(self, reference: FieldReference, column: types.StructField) -> Iterable[Input]:
        if isinstance(column.dataType, types.StructType):
            return self._from_fields(reference, column.dataType, (column.name,))
        if reference.section not in _FIELD_KINDS and isinstance(column.dataType, types.MapType | types.VariantType):
            return (Entries(reference.section, (column.name,), column.dataType),)
        expected = "a struct" if reference.section in _FIELD_KINDS else "a struct of scalars, a MAP or a VARIANT"
        raise ConfigError(f"column {column.name} is {column.dataType.simpleString()}, expected {expected}")

    def _from_fields(self, reference: FieldReference, struct: types.StructType, parent: Path) -> Iterator[Input]:
        found = [field for field in struct if names_same(reference, _named(reference.section, field.name))]
        if not found:
            raise self._missing(reference, struct, parent)
        for field in found:
            if len([other for other in found if other.name == field.name]) > 1:
                raise ConfigError(f"column {_shown((*parent, field.name))} is there twice")
            yield Cell(reference.section, field.name, (*parent, field.name), field.dataType)

    def _missing(self, reference: FieldReference, struct: types.StructType, parent: Path) -> ConfigError:
        name = _field_name(reference)
        near = difflib.get_close_matches(name.lower(), [field.name.lower() for field in struct], n=1, cutoff=0.7)
        spelled = [field.name for field in struct if near and field.name.lower() == near[0]]
        hint = f"; did you mean {spelled[0]}? Names are compared with their case" if spelled else ""
        where = f"a field {name!r} in column {parent[0]}" if parent else f"a column {name!r}"
        return ConfigError(f"the filter reads {_display(reference)}, but there is not {where}{hint}")

    def _only(self, name: str) -> types.StructField:
        found = [field for field in self._schema if field.name == name]
        if len(found) != 1:
            raise ConfigError(f"column {name!r} is there {'twice' if found else 'not'}")
        return found[0]

    def _found_path(self, text: str, column: str) -> Path:
        """The path of a column as the user writes it: the name of a column, else `column.field`."""
        names = {field.name for field in self._schema}
        if column in names:
            return (self._only(column).name,)
        parent, dot, child = column.partition(".")
        if dot and parent in names:
            struct = self._only(parent).dataType
            if isinstance(struct, types.StructType) and child in struct.names:
                return (parent, child)
        raise ConfigError(f"columns: {text} is to come from {column!r}, but there is no such column")

    def _type_of(self, path: Path) -> types.DataType:
        found = self._only(path[0]).dataType
        for name in path[1:]:
            assert isinstance(found, types.StructType)
            found = found[name].dataType
        return found

    def _check(self, reference: FieldReference, each: Input) -> None:
        if isinstance(each.type, types.VariantType) and isinstance(each, Entries):
            return
        if reference.path:
            raise _cannot(each, f"the filter looks into {_display(reference)}, and only a VARIANT holds lists and maps")
        if isinstance(each, Cell):
            _check_cell(each)
            return
        assert isinstance(each.type, types.MapType)
        if not isinstance(each.type.keyType, types.StringType):
            raise _cannot(each, "the keys of a section are strings")
        carried = _carried(each.type.valueType)
        if carried is None:
            raise _cannot(each, f"values must be scalars: {_SCALARS}")
        wanted = self._kinds.get(reference, {}) if self._tells_kinds_apart else {}
        for kind, shown in wanted.items():
            if kind not in carried and not isinstance(each.type.valueType, types.NullType):
                raise _cannot(
                    each,
                    f"the filter compares {_display(reference)} with a {kind.value} ({shown}), and in this language a "
                    f"value of such a map is none; give a column of that type, or a VARIANT",
                )

    @property
    def _tells_kinds_apart(self) -> bool:
        """Whether text is not a number in the language: it is in RocketMQ's, and may be in one from outside."""
        fields = (node for node in walk(self._filter.tree) if isinstance(node, Field))
        return all(isinstance(field.rules, ValueRules) and field.rules is not ValueRules.ROCKETMQ for field in fields)


_SCALARS = "boolean, tinyint, smallint, int, bigint, decimal(p,0), float, double, string, binary or timestamp"


def _carried(kind: types.DataType) -> frozenset[ValueKind] | None:
    """The kinds of values that a column of scalars has; None for types that no cell can have."""
    if isinstance(kind, types.BooleanType):
        return frozenset({ValueKind.BOOLEAN})
    if isinstance(kind, types.IntegralType | types.FloatType | types.DoubleType) or (
        isinstance(kind, types.DecimalType) and kind.scale == 0
    ):
        return frozenset({ValueKind.NUMBER})
    if isinstance(kind, types.StringType | types.BinaryType):
        return frozenset({ValueKind.TEXT})
    if isinstance(kind, types.TimestampType | types.TimestampNTZType):
        return frozenset({ValueKind.NUMBER, ValueKind.TIME})
    return frozenset() if isinstance(kind, types.NullType) else None


_INTEGERS: tuple[tuple[type[types.DataType], ...], str] = (types.IntegralType,), "an integer type"
_TAKEN: Mapping[SparkType, tuple[tuple[type[types.DataType], ...], str]] = {
    SparkType.BINARY: ((types.StringType, types.BinaryType), "string or binary"),
    SparkType.STRING: ((types.StringType,), "string"),
    SparkType.TIMESTAMP: ((types.TimestampType, types.TimestampNTZType), "timestamp"),
    SparkType.BOOLEAN: ((types.BooleanType,), "boolean"),
}
"""The types of column that a field of header or properties takes; of other kinds `_INTEGERS`."""


def _check_cell(cell: Cell) -> None:
    if isinstance(cell.type, types.NullType):
        return
    fields = _FIELD_KINDS.get(cell.section)
    if fields is None:
        if _carried(cell.type) is None:
            raise _cannot(cell, f"a filter can read {_SCALARS}; cast it")
        return
    taken, expected = _TAKEN.get(SparkType.BINARY if cell.name in _IDS else fields[cell.name], _INTEGERS)
    if not isinstance(cell.type, taken):
        raise _cannot(cell, f"the field {cell.name} is {expected}; cast it")


def _cannot(each: Input, reason: str) -> ConfigError:
    return ConfigError(f"column {_shown(each.path)} is {each.type.simpleString()}: {reason}")


def _shown(path: Sequence[str]) -> str:
    return ".".join(path)


def _field_name(reference: FieldReference) -> str:
    if reference.key is not None:
        return reference.key.decode("utf-8", "surrogateescape")
    assert reference.position is not None
    return list(_FIELD_KINDS[reference.section])[reference.position]


def _display(reference: FieldReference) -> str:
    if reference.section not in SECTION_COLUMNS:
        return reference.section.name.lower()
    return f"{SECTION_COLUMNS[reference.section]}.{_field_name(reference)}"


def _named(section: Section, name: str) -> FieldReference:
    """The field in a column of this name; position −1 for a name that the standard does not have."""
    if section in _FIELD_KINDS:
        known = list(_FIELD_KINDS[section])
        return FieldReference(section, position=known.index(name) if name in known else -1)
    return FieldReference(section, key=name.encode("utf-8", "surrogateescape"))


def names_same(reference: FieldReference, named: FieldReference) -> bool:
    """Whether a field of a message that is `named` so is one that `reference` may mean."""
    if reference.section is not named.section or reference.position != named.position:
        return False
    if reference.key is None or named.key is None or not reference.ignore_case:
        return reference.key == named.key
    return without_case(reference.key) == without_case(named.key)


def reference_of(each: Input) -> FieldReference:
    """The field of the message that a cell becomes; of a whole section one that no reference means."""
    return _named(each.section, each.name) if isinstance(each, Cell) else FieldReference(each.section)


def reached(path: Path) -> Column:
    """The Column at a path."""
    column = F.col("`" + path[0].replace("`", "``") + "`")
    for name in path[1:]:
        column = column.getField(name)
    return column
