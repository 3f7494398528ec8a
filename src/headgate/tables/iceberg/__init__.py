"""Streams as Iceberg tables: the column files of sealed segments become data files of snapshots, exactly once.

    CatalogPlace                        which catalog: pyiceberg's own, or the SQLite one beside a root
    publish_table, PublishReport        bring the table of a stream up to date
    list_tables, TableListing           the tables of streams in a catalog
    drop_table                          remove one, with its files

Hidden: how a table says which offsets it has (`offsets`, `publish`), how files come there and go (`files`, `waste`,
`retention`), and field ids (`schema`). Only this package imports pyiceberg, the extra `headgate[iceberg]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.tables.iceberg.catalog import CatalogLocation
    from headgate.tables.iceberg.listing import TableListing, drop_table, list_tables
    from headgate.tables.iceberg.publish import publish_table
    from headgate.tables.iceberg.report import PublishReport
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
