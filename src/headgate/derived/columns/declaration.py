"""Which columns the column files of a stream have: declared, extended, dropped; ids that are never used again.

    <derived folder>/columns.json     replaced by rename
    <derived folder>/columns.lock     held while it is changed

A file says which columns it has, so files of an older declaration still serve their columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from headgate.derived.columns.exactness import MOST_COLUMNS
from headgate.derived.declaration import Change, DeclarationFile
from headgate.errors import ConfigError, did_you_mean
from headgate.log import Stream, derived_folder, make_derived_folder
from headgate.message import Section
from headgate.message.arrow import DeclaredColumn, SparkType, check_bodies, declared_columns

DECLARATION_FORMAT = 1

OWN_COLUMNS = frozenset(
    {"offset", "timestamp", "chunk", "filter_value", "other_properties", "body", "inexact", "message", "entry"}
)
"""The columns that a file has without a declaration; `other_properties` and `body` only on request."""

Keep: TypeAlias = Literal["segment", "forever"]


class ColumnOfFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One declared column: `id` is its field id, `section` the code of the section."""

    id: int
    name: str
    section: int
    field: str
    kind: str
    precision: int = 0
    scale: int | msgspec.UnsetType = msgspec.UNSET
    """Of a decimal that has one."""

    @property
    def declared(self) -> DeclaredColumn:
        """The column as other modules take it."""
        scale = 0 if self.scale is msgspec.UNSET else self.scale
        return DeclaredColumn(self.name, Section(self.section), self.field, SparkType(self.kind), self.precision, scale)

    @staticmethod
    def of(field_id: int, declared: DeclaredColumn) -> ColumnOfFile:
        """A declared column with its id."""
        return ColumnOfFile(
            field_id,
            declared.name,
            int(declared.section),
            declared.field,
            declared.kind.value,
            declared.precision,
            declared.scale or msgspec.UNSET,
        )


class ColumnDeclaration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The declared columns of a stream, in their order; bit b of `inexact` is about the b-th of them.

    `keep`: whether a file goes with its segment or stays for ever.
    """

    fields: tuple[ColumnOfFile, ...]
    next_id: int = 1
    other_properties: bool = False
    body: bool = False
    keep: Keep = "segment"
    revision: int = 0
    """How often it was changed."""
    format: int = DECLARATION_FORMAT

    @property
    def columns(self) -> tuple[tuple[int, DeclaredColumn], ...]:
        """The declared columns with their field ids."""
        return tuple((each.id, each.declared) for each in self.fields)

    @property
    def declared(self) -> tuple[DeclaredColumn, ...]:
        """The declared columns."""
        return tuple(each.declared for each in self.fields)

    def digest(self, filter_source: str | None) -> str:
        """16 hexadecimal digits for the content of a file of this declaration; `keep` and `revision` do not count."""
        content = (self.fields, self.other_properties, self.body, filter_source, self.format)
        return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:16]

    def check(self) -> None:
        """Raises ConfigError that names the column, for a declaration that no file can have."""
        names = [each.name.lower() for each in self.fields]
        for number, each in enumerate(self.fields):
            if each.name.lower() in OWN_COLUMNS:
                raise ConfigError(
                    f"columns: {each.name!r} is a column that every file may have; rename yours with `as`"
                )
            if names.index(each.name.lower()) != number:
                raise ConfigError(f"columns: there are two columns {each.name!r}; rename one with `as`")
        if len(self.fields) > MOST_COLUMNS:
            raise ConfigError(
                f"columns: {self.fields[MOST_COLUMNS].name!r} would be column {MOST_COLUMNS + 1}; "
                f"a stream has at most {MOST_COLUMNS}"
            )


def declaration_of(stream: Stream) -> ColumnDeclaration | None:
    """The declaration as it is now; None without columns. Raises LogError for a file that is wrong."""
    found = _FILE.read(derived_folder(stream))
    return found if found is not None and found.fields else None


def declare_columns(
    stream: Stream,
    text: str,
    *,
    other_properties: bool | None = None,
    body: bool | None = None,
    keep: Keep | None = None,
) -> ColumnDeclaration:
    """Declare columns, as `message.arrow.declared_columns` reads them; they are added to the declared columns.

    A column that is already declared in the same way stays. `body` and `other_properties` in the text ask for these
    columns; an argument None leaves its setting as it is. Raises ConfigError that names the column, LogError.
    """
    check_bodies(declared_columns(text), stream.body_schema)
    with _FILE.changing(make_derived_folder(stream), ColumnDeclaration(())) as change:
        wanted = extended(change.now, text, other_properties=other_properties, body=body, keep=keep)
        return _changed(change, wanted)


def complete_declaration(stream: Stream, text: str) -> ColumnDeclaration | None:
    """The declaration of a stream that is created with columns, made here while the stream is empty and has none.

    A crash may end a creation between the two. None for a stream with messages and without columns. Raises as
    `declare_columns`.
    """
    declaration = declaration_of(stream)
    if declaration is None and stream.next_offset() == stream.first_offset():
        return declare_columns(stream, text)
    return declaration


def extended(
    before: ColumnDeclaration | None,
    text: str,
    *,
    other_properties: bool | None = None,
    body: bool | None = None,
    keep: Keep | None = None,
) -> ColumnDeclaration:
    """The declaration that `declare_columns` would make of `before`. Raises ConfigError that names the column."""
    before = before or ColumnDeclaration(())
    wanted = declared_columns(text)
    for each in wanted:
        if isinstance(each, str):
            if each not in ("body", "other_properties"):
                there = each in OWN_COLUMNS
                reason = "is in every column file" if there else "has no type; give one, as in 'region string'"
                raise ConfigError(f"columns: {each!r} {reason}")
            body = True if each == "body" else body
            other_properties = True if each == "other_properties" else other_properties
    fields, next_id = list(before.fields), before.next_id
    for each in (column for column in wanted if isinstance(column, DeclaredColumn)):
        same = next((other for other in fields if other.name.lower() == each.name.lower()), None)
        if same is None:
            fields.append(ColumnOfFile.of(next_id, each))
            next_id += 1
        elif same != ColumnOfFile.of(same.id, each):
            raise ConfigError(
                f"columns: {each.name!r} is declared as {ddl_of(same.declared)}; drop it first, or give the "
                "other one another name with `as`"
            )
    if not fields:
        raise ConfigError("columns: no column is declared; give at least one, as in 'region string'")
    found = msgspec.structs.replace(
        before,
        fields=tuple(fields),
        next_id=next_id,
        other_properties=before.other_properties if other_properties is None else other_properties,
        body=before.body if body is None else body,
        keep=before.keep if keep is None else keep,
    )
    found.check()
    return found


def drop_columns(stream: Stream, names: Iterable[str] | None = None) -> ColumnDeclaration | None:
    """Remove columns from the declaration, by default all; their ids are never used again.

    Files keep their columns until they are built anew. Gives the new declaration, None without columns. Raises
    ConfigError that names a column that is not declared, LogError.
    """
    if _FILE.read(derived_folder(stream)) is None and not list(names or ()):
        return None
    with _FILE.changing(make_derived_folder(stream), ColumnDeclaration(())) as change:
        fields = list(change.now.fields)
        for name in [each.name for each in fields] if names is None else names:
            same = next((each for each in fields if each.name.lower() == name.lower()), None)
            if same is None:
                raise ConfigError(
                    f"columns: {name!r} is not declared{did_you_mean(name, [each.name for each in fields])}"
                )
            fields.remove(same)
        left = _changed(change, msgspec.structs.replace(change.now, fields=tuple(fields)))
        return left if fields else None


def ddl_of(column: DeclaredColumn) -> str:
    """A column as `declare_columns` takes it."""
    is_path = column.section is Section.DATA
    section = {
        Section.PROPERTIES: "p.",
        Section.HEADER: "h.",
        Section.MESSAGE_ANNOTATIONS: "m.",
    }.get(column.section, "")
    field = column.field if is_path else _quoted(column.field)
    decimal = f"decimal({column.precision},{column.scale})"
    kind = decimal if column.kind is SparkType.DECIMAL else column.kind.value
    typed = "" if column.section in (Section.PROPERTIES, Section.HEADER) else f" {kind}"
    last = column.path[-1] if is_path else column.field
    is_named = column.name == (last.decode() if isinstance(last, bytes) else last)
    return f"{section}{field}{typed}" + ("" if is_named else f" as {_quoted(column.name)}")


def _quoted(name: str) -> str:
    return name if name.replace("_", "").isalnum() else "`" + name.replace("`", "``") + "`"


def _check(declaration: ColumnDeclaration) -> None:
    """Raises ConfigError for an inconsistent declaration, which must not become part of a file."""
    declaration.check()
    ids = {each.id for each in declaration.fields}
    if len(ids) != len(declaration.fields) or any(not 1 <= each < declaration.next_id for each in ids):
        raise ConfigError("field ids that are used twice, or come later")


_FILE = DeclarationFile(
    "columns", ColumnDeclaration, what="declaration of columns", format_=DECLARATION_FORMAT, check=_check
)


def _changed(change: Change[ColumnDeclaration], wanted: ColumnDeclaration) -> ColumnDeclaration:
    if wanted != change.now:
        change.now = msgspec.structs.replace(wanted, revision=wanted.revision + 1)
    return change.now
