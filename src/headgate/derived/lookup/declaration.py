"""The declared lookup fields of a stream.

<derived folder>/lookup.json     replaced by rename
<derived folder>/lookup.lock     held while it is changed
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from headgate.errors import ConfigError, LogError, did_you_mean
from headgate.log import Stream, changing, derived_folder, make_derived_folder, replace_file
from headgate.message import HEADER_FIELDS, PROPERTIES_FIELDS, FieldReference, Section, parse_field

DECLARATION_NAME = "lookup.json"
_LOCK_NAME = "lookup.lock"
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
    path = folder / DECLARATION_NAME
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise LogError(f"cannot be read: {error.strerror}", path=path) from error
    try:
        found = msgspec.json.decode(raw, type=_Declaration)
        if found.format != _FORMAT:
            raise ConfigError(f"format {found.format}, expected {_FORMAT}")
        if list(found.fields) != list(dict.fromkeys(map(spelled, found.fields))):
            raise ConfigError("fields that are there twice, or spelled in another way")
    except (msgspec.DecodeError, UnicodeDecodeError, ConfigError) as error:
        raise LogError(f"not a declaration of lookup fields: {error}", path=path) from error
    return found.fields


def declare_lookup(stream: Stream, fields: Iterable[str]) -> tuple[str, ...]:
    """Declare lookup fields, as `parse_field` reads them; they are added to the declared fields.

    Gives all declared fields. Raises ConfigError that names the field, LogError.
    """
    wanted = [spelled(field) for field in fields]
    folder = make_derived_folder(stream)
    with changing(folder, _LOCK_NAME):
        before = fields_in(folder)
        after = tuple(dict.fromkeys([*before, *wanted]))
        if len(after) > MOST_FIELDS:
            raise ConfigError(
                f"lookup: {after[MOST_FIELDS]!r} would be field {MOST_FIELDS + 1}; a stream has at most {MOST_FIELDS}"
            )
        if after != before:
            _write(folder, after)
        return after


def drop_lookup(stream: Stream, fields: Iterable[str] | None = None) -> tuple[str, ...]:
    """Remove fields from the declaration, by default all; gives the fields that are left.

    Raises ConfigError that names a field that is not declared, LogError.
    """
    wanted = None if fields is None else [spelled(field) for field in fields]
    if not lookup_fields(stream) and not wanted:
        return ()
    folder = make_derived_folder(stream)
    with changing(folder, _LOCK_NAME):
        before = fields_in(folder)
        for field in wanted or ():
            if field not in before:
                raise ConfigError(f"lookup: {field!r} is not declared{did_you_mean(field, before)}")
        left = tuple(field for field in before if wanted is not None and field not in wanted)
        _write(folder, left)
        return left


def spelled(field: str) -> str:
    """A field in the one spelling that declarations have. Raises ConfigError for text that names no field."""
    reference = parse_field(field)
    return field if reference.position is None else field.replace("-", "_")


def field_text(reference: FieldReference) -> str:
    """The field of a reference by position or key, as declarations spell it."""
    section = reference.section.name.lower()
    if reference.key is not None:
        return f"{section}.{reference.key.decode()}"
    names = HEADER_FIELDS if reference.section is Section.HEADER else PROPERTIES_FIELDS
    return f"{section}.{names[reference.position or 0].replace('-', '_')}"


def _write(folder: Path, fields: tuple[str, ...]) -> None:
    encoded = msgspec.json.format(msgspec.json.encode(_Declaration(fields)), indent=1)
    replace_file(folder / DECLARATION_NAME, encoded + b"\n")
