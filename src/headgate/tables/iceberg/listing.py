"""The tables of streams in a catalog, and dropping one."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.errors import ResourceNotFoundError, did_you_mean
from headgate.log import Stream
from headgate.tables.iceberg.catalog import (
    NAME_PROPERTY,
    STREAM_PROPERTY,
    CatalogLocation,
    check_is_of,
    identifier_of,
    shown,
)

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class TableListing:
    """One table, with the name and the identity of its stream.

    `offsets` are the ones that it was given (`0-1000 2000-3000`); rows, data files and bytes are those of the current
    snapshot.
    """

    table: str
    stream: str
    identity: str
    offsets: str
    rows: int
    files: int
    size_bytes: int
    snapshots: int
    location: str
    metadata_location: str


def list_tables(place: CatalogLocation) -> list[TableListing]:
    """The tables of a catalog that streams are published to, by name. Cost: the metadata of each table.

    Raises ConfigError, SinkError.
    """
    with place.opened() as catalog:
        names = sorted(table for namespace in catalog.list_namespaces() for table in catalog.list_tables(namespace))
        return [_listing(table) for table in map(catalog.load_table, names) if STREAM_PROPERTY in table.properties]


def drop_table(stream: Stream, place: CatalogLocation, *, table: str | None = None) -> str:
    """Remove the table of a stream from its catalog, and its files; gives its name.

    The column files stay, and publishing makes the table again. Raises ConfigError for a missing table, or one of
    another stream; SinkError.
    """
    identifier = identifier_of(stream, table)
    with place.opened() as catalog:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        from headgate.tables.iceberg.waste import Waste, publishing, reached_by

        with publishing(stream):
            try:
                found = catalog.load_table(identifier)
            except NoSuchTableError:
                near = ""
                with contextlib.suppress(NoSuchNamespaceError):
                    near = did_you_mean(identifier[-1], (each[-1] for each in catalog.list_tables(identifier[:-1])))
                raise ResourceNotFoundError(
                    f"there is no such table in {place}{near}", subject=shown(identifier)
                ) from None
            check_is_of(found, stream, place)
            files = reached_by(found, found.metadata.snapshots)
            files |= {found.metadata_location, *(each.metadata_file for each in found.metadata.metadata_log)}
            # Not `purge_table`, which complains of each file that retention has deleted already.
            catalog.drop_table(identifier)
            for location in sorted(files):
                with contextlib.suppress(FileNotFoundError):
                    found.io.delete(location)
            Waste(stream, found).drop()
    return shown(identifier)


def _listing(table: Table) -> TableListing:
    from headgate.tables.iceberg.upkeep import published_offsets

    snapshot = table.current_snapshot()
    totals = snapshot.summary.additional_properties if snapshot is not None and snapshot.summary is not None else {}
    return TableListing(
        shown(table.name()),
        table.properties.get(NAME_PROPERTY, ""),
        table.properties[STREAM_PROPERTY],
        str(published_offsets(table)),
        int(totals.get("total-records", 0)),
        int(totals.get("total-data-files", 0)),
        int(totals.get("total-files-size", 0)),
        len(table.metadata.snapshots),
        table.location(),
        table.metadata_location,
    )
