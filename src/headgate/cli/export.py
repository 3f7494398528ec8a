"""`headgate export`: the messages of a stream as a file for other programs. Starts no JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headgate.cli.options import (
    Dialect,
    FilterValues,
    MatchUnfiltered,
    Start,
    StreamText,
    Until,
    chosen,
    places_of,
)
from headgate.cli.output import shown_progress, write_note
from headgate.cli.remote import DEFAULT_LOCATION, Location
from headgate.cli.units import counted
from headgate.clock import now_ms
from headgate.errors import ConfigError


def export(
    stream: StreamText,
    /,
    *,
    to: Annotated[
        Path, Parameter(help="The file; its name ends with .parquet, .arrow, .csv, .ndjson or .jsonl. It is replaced.")
    ],
    columns: Annotated[
        str | None,
        Parameter(
            help="Columns, as in 'offset, region string, price double, p.subject'; by default offset, timestamp, "
            "properties and body."
        ),
    ] = None,
    filter_text: Annotated[
        str | None, Parameter(name="--filter", help="Filter expression (stage 2).", allow_leading_hyphen=True)
    ] = None,
    dialect: Dialect = None,
    filter_values: FilterValues = None,
    match_unfiltered: MatchUnfiltered = False,
    start: Start = "first",
    until: Until = None,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Write the messages of a stream that pass the filters to a Parquet, Arrow, CSV or JSON file, in stream order."""
    from headgate.client import ServerAddress
    from headgate.tables import read, write_table

    if dialect is not None and filter_text is None:
        raise ConfigError("--dialect is the language of --filter, which is missing")
    begin, end = places_of(start, until, now_ms=now_ms())
    address = None
    if location.server is not None:
        address = ServerAddress.parse(location.server, user=location.user, password=location.password)
    table = read(
        stream,
        columns=columns,
        filter=filter_text,
        dialect=chosen(dialect),
        filter_values=filter_values or (),
        match_unfiltered=match_unfiltered,
        start=begin,
        stop=end,
        root=location.root,
        server=address,
    )
    with shown_progress("message", total=None) as progress:
        rows = write_table(table, to, progress=progress)
    write_note(f"{counted(rows, 'message')} in {to}")
    return 0
