"""`headgate table`: streams as Iceberg tables, from their column files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import App, Parameter

from headgate.cli.options import DEFAULT_ROOT, AsJson, Root, StreamText
from headgate.cli.output import write_json, write_line, write_rows
from headgate.cli.units import counted, duration_ms, shown_count, shown_size
from headgate.clock import now_ms
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from headgate.tables.iceberg import CatalogLocation, PublishReport

commands = App(name="table", help="Iceberg tables of streams, for other programs to read.")

CatalogName: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--catalog",
        help="Name of a catalog that pyiceberg is configured for; by default an SQLite catalog beside the streams.",
    ),
]
Properties: TypeAlias = Annotated[
    list[str] | None,
    Parameter(
        name="--property",
        negative=(),
        help="Property of the catalog as NAME=VALUE, as in warehouse=s3://bucket/path. Repeatable.",
    ),
]
TableName: TypeAlias = Annotated[
    str | None, Parameter(name="--table", help="The table as NAMESPACE.NAME; by default headgate.STREAM.")
]

_LISTED = ("table", "stream", "offsets", "rows", "files", "size", "snapshots", "location")


@commands.command
def publish(
    stream: StreamText,
    /,
    *,
    catalog: CatalogName = None,
    properties: Properties = None,
    table: TableName = None,
    retain: Annotated[
        Literal["log", "forever"],
        Parameter(help="Whether rows leave the table with their segment, or stay; kept column files keep them, too."),
    ] = "log",
    expire_after: Annotated[
        str | None,
        Parameter(help="Age at which old snapshots and their files go, such as 12h; by default as the table says, 5d."),
    ] = None,
    as_json: AsJson = False,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Add sealed segments to the table of a stream, exactly once; one pass, to be repeated. The first makes the table.

    The segments need column files: `headgate columns build`.
    """
    from headgate.log import resolve_stream, root_of
    from headgate.tables.iceberg import publish_table

    expire_after_ms = None if expire_after is None else duration_ms(expire_after, option="--expire-after")
    chosen = resolve_stream(stream, root)
    report = publish_table(
        chosen,
        _place(root_of(chosen.path), catalog, properties),
        table=table,
        retain=retain,
        expire_after_ms=expire_after_ms,
        now_ms=now_ms(),
    )
    if as_json:
        write_json({"stream": chosen.name, **dataclasses.asdict(report)})
    else:
        write_line(_shown(report))
    return 0


@commands.command
def ls(
    *,
    catalog: CatalogName = None,
    properties: Properties = None,
    as_json: AsJson = False,
    root: Root = DEFAULT_ROOT,
) -> int:
    """The tables of a catalog that streams are published to."""
    from headgate.log import check_root
    from headgate.tables.iceberg import list_tables

    if catalog is None:
        check_root(root)
    rows: list[dict[str, object]] = []
    for found in list_tables(_place(root, catalog, properties)):
        row = dataclasses.asdict(found)
        rows.append(row if as_json else {**row, "rows": shown_count(found.rows), "size": shown_size(found.size_bytes)})
    write_rows(rows, _LISTED, as_json=as_json, nothing="no table; make one with: headgate table publish STREAM")
    return 0


@commands.command
def drop(
    stream: StreamText,
    /,
    *,
    catalog: CatalogName = None,
    properties: Properties = None,
    table: TableName = None,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Remove the table of a stream and its files; the stream and its column files stay."""
    from headgate.log import resolve_stream, root_of
    from headgate.tables.iceberg import drop_table

    chosen = resolve_stream(stream, root)
    name = drop_table(chosen, _place(root_of(chosen.path), catalog, properties), table=table)
    write_line(f"{name}: dropped")
    return 0


def _place(root: Path, catalog: str | None, properties: list[str] | None) -> CatalogLocation:
    from headgate.tables.iceberg import CatalogLocation

    given: dict[str, str] = {}
    for text in properties or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise ConfigError(f"--property: found {text!r}, expected NAME=VALUE")
        if name in given:
            raise ConfigError(f"--property {name}: given twice")
        given[name] = value
    return CatalogLocation(root, catalog, given)


def _shown(report: PublishReport) -> str:
    facts = [f"{counted(report.segments, 'segment')} added ({counted(report.rows, 'row')})"]
    facts += [
        f"{counted(count, noun)} {done}"
        for count, noun, done in (
            (report.replaced, "segment", "replaced"),
            (report.removed, "file", "out of the table"),
            (report.expired, "snapshot", "expired"),
            (report.deleted_files, "file", "deleted"),
        )
        if count
    ]
    return f"{report.table}: {', '.join(facts)}; {report.location}"
