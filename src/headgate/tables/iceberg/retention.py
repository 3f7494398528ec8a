"""Retention of a table: it loses rows of segments that the log no longer has, old snapshots, and then their files."""

from __future__ import annotations

from pyiceberg.expressions.parser import parse
from pyiceberg.table import Table, TableProperties

from headgate.log import PublishStep, reached
from headgate.tables.iceberg.catalog import REMOVED_PROPERTY, STREAM_PROPERTY
from headgate.tables.iceberg.files import data_files, last_offset
from headgate.tables.iceberg.waste import Waste, reached_by


def remove_below(table: Table, offset: int, *, identity: str) -> int:
    """Commit a snapshot without the data files that lie wholly below this offset; gives their number.

    Other programs may have joined files: a joined file goes when all of its rows do. Raises CommitFailedException.
    """
    gone = [last for file in data_files(table) if (last := last_offset(file)) is not None and last < offset]
    if gone:
        properties = {STREAM_PROPERTY: identity, REMOVED_PROPERTY: str(offset)}
        with (
            table.transaction() as transaction,
            transaction.update_snapshot(snapshot_properties=properties).delete() as delete,
        ):
            delete.delete_by_predicate(parse(f"offset < {offset}"))
        reached(PublishStep.REMOVED)
    return len(gone)


def expire(table: Table, waste: Waste, *, older_than_ms: int) -> int:
    """Have snapshots expire that are older and that no branch or tag needs; `Waste.clear` deletes their files.

    Gives how many. Raises CommitFailedException.
    """
    heads = {reference.snapshot_id for reference in table.metadata.refs.values()}
    old = [each for each in table.metadata.snapshots if each.timestamp_ms < older_than_ms]
    old = [each for each in old if each.snapshot_id not in heads]
    if not old:
        return 0
    rest = [each for each in table.metadata.snapshots if each not in old]
    waste.add(reached_by(table, old) - reached_by(table, rest))
    reached(PublishStep.EXPIRING)
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in old]).commit()
    table.refresh()
    reached(PublishStep.EXPIRED)
    return len(old)


def age_of_old_ms(table: Table) -> int:
    """How old a snapshot may become, as the table says it for all programs; five days by default."""
    found = table.properties.get(TableProperties.MAX_SNAPSHOT_AGE_MS)
    return int(found) if found else TableProperties.MAX_SNAPSHOT_AGE_MS_DEFAULT
