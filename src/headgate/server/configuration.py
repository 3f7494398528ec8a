"""Settings from a TOML file and from environment variables, checked before anything starts.

A variable `HEADGATE_SERVER__TABLE__KEY` (upper case, two underscores between the parts) takes precedence over the file:
`HEADGATE_SERVER__LISTENERS__AMQP=5673`, `HEADGATE_SERVER__ROOT=/var/lib/headgate`. Arrays of tables (`[[user]]`,
`[[stream]]`, `[[super_stream]]`, `[[topic]]`, `[[queue]]`, `[[rocketmq.topic]]`, `[[rocketmq.group]]`) are in the file
only.
"""

from __future__ import annotations

import re
import tomllib
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from headgate.errors import ConfigError, HeadgateError
from headgate.server.settings import ServerSettings

ENVIRONMENT_PREFIX = "HEADGATE_SERVER__"

_AT = re.compile(r" - at `\$(?P<path>.*)`$")
_NO_MEMBER = re.compile(r"Invalid enum value (?P<found>.*)")
_INDEX = re.compile(r"\[.*?\]")
_UNKNOWN_KEY = re.compile(r"Object contains unknown field `(?P<key>.*)`")


def load_settings(path: Path | None, environment: Mapping[str, str], *, root: Path | None = None) -> ServerSettings:
    """The settings of a file, overridden by the environment; `root`, if given, overrides both.

    Raises ConfigError that names the file or the variable, the key, and what was found.
    """
    content: dict[str, Any] = {} if path is None else _read(path)
    for variable, text in environment.items():
        if variable.startswith(ENVIRONMENT_PREFIX):
            _overlay(content, variable, text)
    source = f"{ENVIRONMENT_PREFIX}…: " if path is None else f"{path}: "
    settings = _converted(content, source)
    if root is not None:
        settings = msgspec.structs.replace(settings, root=str(root))
    _check(settings, source)
    return settings


def settings_of(tables: Mapping[str, Any], *, source: str) -> ServerSettings:
    """The settings in tables, as in the file; raises ConfigError that begins with `source`."""
    settings = _converted(tables, source)
    _check(settings, source)
    return settings


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error


def _converted(content: Mapping[str, Any], source: str) -> ServerSettings:
    try:
        return msgspec.convert(content, ServerSettings)
    except msgspec.ValidationError as error:
        raise ConfigError(source + _reason(str(error))) from error


def _reason(text: str) -> str:
    """An error of msgspec with the key in front: ``limits.links: Expected `int` >= 1``."""
    at = _AT.search(text)
    keys = at["path"].lstrip(".") if at else ""
    what = text[: at.start()] if at else text
    if wrong := _NO_MEMBER.fullmatch(what):
        tables, _, key = _INDEX.sub("", keys).rpartition(".")
        return f"{keys}: found {wrong['found']}, expected {_expected(get_type_hints(_table_at(tables))[key])}"
    unknown = _UNKNOWN_KEY.fullmatch(what)
    if unknown is None:
        return f"{keys}: {what}"
    known = ", ".join(_table_at(keys).__struct_fields__)
    return f"unknown key {f'{keys}.' if keys else ''}{unknown['key']}; known are {known}"


def _table_at(keys: str) -> Any:
    """The table at a path such as `user[0].permissions` or `tls`; the whole file without keys."""
    table: Any = ServerSettings
    for key in _INDEX.sub("", keys).split(".") if keys else ():
        table = table_of(get_type_hints(table)[key])
    return table


def _expected(kind: Any) -> str:
    """The values that a type takes, for an error: `a number or off`."""
    if kind is int:
        return "a number"
    if get_origin(kind) is Annotated:
        return _expected(get_args(kind)[0])
    return " or ".join(member if isinstance(member, str) else _expected(member) for member in get_args(kind))


def table_of(kind: Any) -> type[msgspec.Struct] | None:
    """The table in a type: the type itself, or that of an optional or an array of tables; None for a plain value."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    if get_origin(kind) in (list, Union, types.UnionType):
        return next((table for member in get_args(kind) if (table := table_of(member)) is not None), None)
    return None


def _overlay(content: dict[str, Any], variable: str, text: str) -> None:
    """Set the value of a variable at the key in its name. Raises ConfigError for an unknown key."""
    keys = variable.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
    table: Any = ServerSettings
    at = content
    for depth, key in enumerate(keys):
        if key not in table.__struct_fields__:
            raise ConfigError(f"{variable}: unknown key {key}; known are {', '.join(table.__struct_fields__)}")
        kind = get_type_hints(table, include_extras=True)[key]
        inner = table_of(kind)
        is_last = depth == len(keys) - 1
        if inner is None and is_last:
            at[key] = _value(variable, text, kind)
        elif inner is None or is_last or get_origin(kind) is list:
            what = "is an array of tables, which stands in the file only" if get_origin(kind) is list else None
            what = what or ("is a value, not a table" if inner is None else "is a table; name one of its keys")
            raise ConfigError(f"{variable}: {key} {what}")
        else:
            at = at.setdefault(key, {})
            table = inner
            if not isinstance(at, dict):
                return  # the file has a value where a table belongs, and is refused for it


def _value(variable: str, text: str, kind: Any) -> object:
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError as error:
        what = f"expected {_expected(kind)}" if _NO_MEMBER.fullmatch(str(error)) else str(error)
        raise ConfigError(f"{variable}: found {text!r}, {what}") from error


def _check(settings: ServerSettings, source: str) -> None:
    """Check the constraints that types do not express."""
    from headgate.language import dialect_named
    from headgate.server.definitions import check_message_topics, declared_entities, placement_of

    try:
        dialect_named(settings.filters.dialect)
    except ConfigError as error:
        raise ConfigError(f"{source}filters.dialect: {error}") from error
    try:
        placement_of(settings.storage).check()
    except ConfigError as error:
        raise ConfigError(f"{source}storage: {error}") from error
    if settings.tls is not None and settings.tls.verify_client != "no" and settings.tls.ca is None:
        raise ConfigError(f"{source}tls.verify_client needs tls.ca, the authorities whose certificates are believed")
    for entry in settings.super_stream:
        if (entry.partitions is None) == (not entry.binding_keys):
            raise ConfigError(f"{source}super_stream {entry.name!r}: expected either `partitions` or `binding_keys`")
    try:
        declared_entities(settings)
        check_message_topics(settings.rocketmq)
    except HeadgateError as error:
        raise ConfigError(f"{source}{error}") from error
    for kind in ("user", "stream", "super_stream"):
        names = [entry.name for entry in getattr(settings, kind)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f"{source}{kind} {twice!r} is there twice")
