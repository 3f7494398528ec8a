"""Writes docs/reference/configuration.md and docs/reference/metrics.md: what the code says of keys and metrics.

python tools/server_pages.py            write the pages
python tools/server_pages.py --check    exit status 1 if one is not what would be written
"""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from headgate.server import settings
from headgate.server.configuration import table_of
from headgate.server.metrics import CONNECTION, CONSUMER, READ, SERVER, STREAM, Family
from headgate.server.settings import ServerSettings

PAGES = Path(__file__).parent.parent / "docs" / "reference"

_CONFIGURATION = """# Configuration of the server

`headgate serve --config FILE` reads TOML. Every key has a default, so a file holds what is to be different; an
unknown key, or a value of the wrong kind, is refused by name.
A variable `HEADGATE_SERVER__TABLE__KEY` stands before the file: `HEADGATE_SERVER__LISTENERS__AMQP=5673`,
`HEADGATE_SERVER__ROOT=/var/lib/headgate`. Arrays of tables are in the file only.
`--root` and `HEADGATE_ROOT` stand before both.

```toml
root = "/var/lib/headgate"

[listeners]
host = "127.0.0.1"
stomp = "off"

[advertised]
host = "broker.example.com"

[[user]]
name = "orders-app"
password = "…"
permissions = { configure = "^orders", write = "^orders", read = ".*" }

[[stream]]
name = "orders"
arguments = { max-age = "7D", stream-filter-size-bytes = 32 }

[[super_stream]]
name = "events"
partitions = 3
```

Passwords in the file or in variables are given to the users file, hashed, when the server starts; who may read them
there may log in. `headgate user` keeps them out of both.
"""

_METRICS = """# Metrics

`GET /metrics` on the HTTP listener gives Prometheus' text format: the server, and each stream. `GET
/metrics/per-object` adds each consumer and each connection. Neither needs a login.

Families that mean the same as in RabbitMQ have its names; `rabbitmq_stream_read_bytes_total` and
`rabbitmq_stream_written_bytes_total` are those of its Stream PerfTest, counted here by the server for all clients of
the stream protocol.
Counters of streams hold what consumers took that are gone, too, since the server started. With `_total` left out the
names are those of `headgate tail --counters`, of the [console](http.md#the-console) and of Spark's progress.
"""


def configuration_page() -> str:
    """The page of all keys."""
    parts = [_CONFIGURATION]
    for title, table in _tables(ServerSettings, ""):
        parts.append(f"## {title}\n")
        parts.append(f"{inspect.getdoc(table)}\n")
        parts.append("| key | value | default | |\n| --- | --- | --- | --- |")
        parts.append("\n".join(_rows(table)) + "\n")
    return "\n".join(parts)


def _tables(table: type[msgspec.Struct], prefix: str) -> Iterator[tuple[str, type[msgspec.Struct]]]:
    yield (prefix and f"`{prefix}`") or "At the top", table
    for key, kind in get_type_hints(table).items():
        inner = table_of(kind)
        if inner is not None:
            name = f"{prefix.strip('[]')}.{key}" if prefix else key
            yield from _tables(inner, f"[[{name}]]" if get_origin(kind) is list else f"[{name}]")


def _rows(table: type[msgspec.Struct]) -> Iterator[str]:
    meanings = _meanings(table)
    for field in msgspec.structs.fields(table):
        kind = get_type_hints(table, include_extras=True)[field.name]
        if table_of(kind) is None:
            yield f"| `{field.name}` | {_kind(kind)} | {_default(field)} | {meanings.get(field.name, '')} |"


def _meanings(table: type[msgspec.Struct]) -> dict[str, str]:
    """The texts behind the fields of a structure."""
    (body,) = (
        node.body
        for node in ast.parse(inspect.getsource(settings)).body
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
    if origin is list:
        return f"list of {_kind(arguments[0])}"
    return _KINDS.get(kind, "table")


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return ""
    if field.default is msgspec.NODEFAULT:
        return "required"
    if field.default is None or field.default == "":
        return ""
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


def metrics_page() -> str:
    """The page of all metrics."""
    consumer_read = [(family.name.replace("headgate_", "headgate_consumer_", 1), family) for family in READ]
    return "\n".join(
        (
            _METRICS,
            *_section("The server", _named(SERVER)),
            *_section("Per stream, written (labels `stream`, or `queue` and `vhost`)", _named(STREAM)),
            *_section("Per stream, read (label `stream`)", _named(READ)),
            *_section(
                "Per consumer (labels `stream`, `consumer`, `tag`, `connection`)", [*_named(CONSUMER), *consumer_read]
            ),
            *_section("Per connection (label `connection`)", _named(CONNECTION)),
        )
    )


def _named(families: Iterable[Family[Any]]) -> list[tuple[str, Family[Any]]]:
    return [(family.name, family) for family in families]


def _section(title: str, families: Iterable[tuple[str, Family[Any]]]) -> Iterator[str]:
    yield f"## {title}\n\n| name | kind | |\n| --- | --- | --- |"
    yield from (f"| `{name}` | {family.kind} | {family.meaning} |" for name, family in families)
    yield ""


WRITERS: dict[str, Callable[[], str]] = {"configuration.md": configuration_page, "metrics.md": metrics_page}


def main() -> int:
    """Write the pages, or check them."""
    stale = [
        name
        for name, write in WRITERS.items()
        if not (PAGES / name).exists() or (PAGES / name).read_text(encoding="utf-8") != write()
    ]
    if "--check" in sys.argv[1:]:
        if stale:
            print("not up to date:", ", ".join(stale))
        return 1 if stale else 0
    for name in stale:
        (PAGES / name).write_text(WRITERS[name](), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
