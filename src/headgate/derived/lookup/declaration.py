"""The declared lookup fields of a stream.

<derived folder>/lookup.json     replaced by rename
<derived folder>/lookup.lock     held while it is changed
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from headgate.derived.declaration import DeclarationFile
from headgate.errors import ConfigError, did_you_mean
from headgate.log import Stream, derived_folder, make_derived_folder
from headgate.message import HEADER_FIELDS, PROPERTIES_FIELDS, FieldReference, Section, body_path_text, parse_field

_FORMAT = 1

MOST_FIELDS = 16


class _Declaration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fields: tuple[str, ...]
    format: int = _FORMAT


def lookup_fields(stream: Stream) -> tuple[str, ...]:
    """The lookup fields of a stream, in the order of declaration. Raises LogError for a file that is wrong."""
    return fields_in(derived_folder(stream))


def fields_in(folder: Path) -> tuple[str, ...]:
    """The lookup fields of the stream with this derived folder. Raises LogError for a file that is wrong."""
    found = _FILE.read(folder)
    return () if found is None else found.fields


def declare_lookup(stream: Stream, fields: Iterable[str]) -> tuple[str, ...]:
    """Declare lookup fields, as `parse_field` reads them; they are added to the declared fields.

    Gives all declared fields. Raises ConfigError that names the field, LogError.
    """
    wanted = [spelled(field) for field in fields]
    for field in wanted:
        if stream.body_schema is not None and parse_field(field).section is Section.DATA:
            raise ConfigError(
                f"lookup: {field!r}: a path leads into JSON bodies, and those of {stream.name!r} have a declared schema"
            )
    with _FILE.changing(make_derived_folder(stream), _Declaration(())) as change:
        after = tuple(dict.fromkeys([*change.now.fields, *wanted]))
        if len(after) > MOST_FIELDS:
            raise ConfigError(
                f"lookup: {after[MOST_FIELDS]!r} would be field {MOST_FIELDS + 1}; a stream has at most {MOST_FIELDS}"
            )
        change.now = _Declaration(after)
        return after


def drop_lookup(stream: Stream, fields: Iterable[str] | None = None) -> tuple[str, ...]:
    """Remove fields from the declaration, by default all; gives the fields that are left.

    Raises ConfigError that names a field that is not declared, LogError.
    """
    wanted = None if fields is None else [spelled(field) for field in fields]
    if not lookup_fields(stream) and not wanted:
        return ()
    with _FILE.changing(make_derived_folder(stream), _Declaration(())) as change:
        before = change.now.fields
        for field in wanted or ():
            if field not in before:
                raise ConfigError(f"lookup: {field!r} is not declared{did_you_mean(field, before)}")
        left = tuple(field for field in before if wanted is not None and field not in wanted)
        change.now = _Declaration(left)
        return left


def spelled(field: str) -> str:
    """A field in the one spelling that declarations have. Raises ConfigError for text that names no field."""
    return field_text(parse_field(field))


def field_text(reference: FieldReference) -> str:
    """The field of a reference by position, key, or path into the body, as declarations spell it."""
    if reference.section is Section.DATA:
        return body_path_text(reference.path)
    section = reference.section.name.lower()
    if reference.key is not None:
        return f"{section}.{reference.key.decode()}"
    names = HEADER_FIELDS if reference.section is Section.HEADER else PROPERTIES_FIELDS
    return f"{section}.{names[reference.position or 0].replace('-', '_')}"


def _check(declaration: _Declaration) -> None:
    if list(declaration.fields) != list(dict.fromkeys(map(spelled, declaration.fields))):
        raise ConfigError("fields that are there twice, or spelled in another way")


_FILE = DeclarationFile("lookup", _Declaration, what="declaration of lookup fields", format_=_FORMAT, check=_check)
