"""Tables of the keys of msgspec structures, for pages of `docs/reference`; shared by the tools of this folder."""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from headgate.server.configuration import table_of


def tables(table: type[msgspec.Struct], prefix: str = "") -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """A structure and those within it, each with its heading."""
    yield (prefix and f"`{prefix}`") or "At the top", table
    for key, kind in get_type_hints(table).items():
        inner = table_of(kind)
        if inner is not None:
            name = f"{prefix.strip('[]')}.{key}" if prefix else key
            yield from tables(inner, f"[[{name}]]" if get_origin(kind) is list else f"[{name}]")


def plain_keys(table: type[msgspec.Struct]) -> Iterator[tuple[msgspec.structs.FieldInfo, str]]:
    """The keys of a structure that are not tables, each with the kind of its values."""
    for field in msgspec.structs.fields(table):
        kind = get_type_hints(table, include_extras=True)[field.name]
        if table_of(kind) is None:
            yield field, _kind(kind)


def meanings(table: type[msgspec.Struct]) -> dict[str, str]:
    """The texts after the fields of a structure."""
    (body,) = (
        node.body
        for node in ast.parse(inspect.getsource(sys.modules[table.__module__])).body
        if isinstance(node, ast.ClassDef) and node.name == table.__name__
    )
    return {
        statement.target.id: " ".join(str(text.value.value).split())
        for statement, text in itertools.pairwise(body)
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


_KINDS = {int: "number", float: "number", str: "text", bool: "`true`, `false`"}


def _kind(kind: Any) -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _kind(arguments[0])
    if origin in (Union, UnionType):
        return ", ".join(dict.fromkeys(_kind(member) for member in arguments if member is not type(None)))
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (list, tuple):
        return f"list of {_kind(arguments[0])}"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{member.value}`" for member in kind)
    return _KINDS.get(kind, "table")


def default(field: msgspec.structs.FieldInfo) -> str:
    """The default of a key; `required` without one, empty if it is not a value."""
    if field.default_factory is not msgspec.NODEFAULT:
        return ""
    if field.default is msgspec.NODEFAULT:
        return "required"
    if field.default in (None, "", ()):
        return ""
    value = field.default.value if isinstance(field.default, Enum) else field.default
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def write_pages(folder: Path, writers: Mapping[str, Callable[[], str]], *, only_check: bool) -> int:
    """Write the pages of a folder that are not as their writers give them; `only_check` names them. The exit status."""
    stale = [
        name
        for name, write in writers.items()
        if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != write()
    ]
    if only_check:
        if stale:
            print("not up to date:", ", ".join(stale))
        return 1 if stale else 0
    for name in stale:
        (folder / name).write_text(writers[name](), encoding="utf-8")
    return 0
