"""Publishing a stream to its table: one pass, exactly once for each sealed segment, even if killed at any point.

1. The table is read, then the column files are listed. The newest snapshot that added something names the offsets
   published so far; so does a property of the table, which the same commit sets.
2. Missing files are stored under names that identify their content, and committed by an append that is refused if
   anything else was committed since 1. Then all of this begins again.
3. A segment that was published with another declaration is replaced by its newer file, in one snapshot.
4. Segments that the log has lost leave the table, old snapshots expire, and unused files are deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.derived.columns import declaration_of
from headgate.errors import PreconditionFailedError, SinkError
from headgate.log import Stream
from headgate.tables.iceberg.catalog import (
    NAME_PROPERTY,
    STREAM_PROPERTY,
    CatalogLocation,
    Identifier,
    check_is_of,
    identifier_of,
    shown,
)
from headgate.tables.iceberg.report import PublishReport, Retain

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_TRIES = 10
"""How often all is found out again because another program changed the table meanwhile."""


def publish_table(
    stream: Stream,
    place: CatalogLocation,
    *,
    table: str | None = None,
    retain: Retain = "log",
    expire_after_ms: int | None = None,
    now_ms: int,
) -> PublishReport:
    """Bring the table of a stream up to date; the first call creates it. Build column files before.

    `table` is `namespace.name`, by default `headgate.<stream>`. Snapshots that are older than `expire_after_ms` expire;
    by default after the table's property `history.expire.max-snapshot-age-ms`, or five days without that property.

    Waits while another process publishes the stream. Memory: a column file, and the manifests of the table. Raises
    ConfigError for a stream without declared columns, an unknown catalog, a table of another stream; SinkError for
    errors of catalog and storage; LogError. After a kill at any point, the next pass continues.
    """
    if declaration_of(stream) is None:
        raise PreconditionFailedError(
            "it has no declared columns; `headgate columns declare` makes some", subject=stream.name
        )
    identifier = identifier_of(stream, table)
    with place.opened() as catalog:
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        from headgate.tables.iceberg.upkeep import bring_up_to_date
        from headgate.tables.iceberg.waste import publishing

        with publishing(stream):
            found = _load_or_create(catalog, identifier, stream)
            report = PublishReport(shown(identifier), found.location())
            for _ in range(_TRIES):
                check_is_of(found, stream, place)
                try:
                    bring_up_to_date(
                        found, stream, report, retain=retain, expire_after_ms=expire_after_ms, now_ms=now_ms
                    )
                except (CommitFailedException, ValidationException) as error:
                    # Nothing of it was committed. What is left to do may be something else now.
                    conflict = error
                    found = catalog.load_table(identifier)
                else:
                    return report
    raise SinkError(
        f"{place}: other programs changed table {report.table} {_TRIES} times while it was published: {conflict}"
    )


def _load_or_create(catalog: Catalog, identifier: Identifier, stream: Stream) -> Table:
    from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
    from pyiceberg.schema import Schema

    try:
        return catalog.load_table(identifier)
    except NoSuchTableError:
        pass
    catalog.create_namespace_if_not_exists(identifier[:-1])
    properties = {
        STREAM_PROPERTY: stream.identity,
        NAME_PROPERTY: stream.name,
        # Each pass may be a commit: without these, files of some kilobytes would become ever more.
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "10",
        "commit.manifest-merge.enabled": "true",
    }
    try:
        # Without columns: catalogs give the columns of a new table ids of their own.
        return catalog.create_table(identifier, Schema(), properties=properties)
    except TableAlreadyExistsError:
        return catalog.load_table(identifier)
