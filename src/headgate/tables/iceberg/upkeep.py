"""One pass over a table: missing segments are added, outdated ones replaced, deleted ones removed."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.snapshots import ancestors_of

from headgate.derived.columns import ColumnFile, ColumnFileWarning, column_files, declaration_of
from headgate.errors import ConfigError, CorruptSidecarError, SinkError
from headgate.log import PublishStep, Stream, reached
from headgate.tables.iceberg.catalog import (
    OFFSETS_PROPERTY,
    PUBLISHED_PROPERTY,
    REPLACED_PROPERTY,
    STREAM_PROPERTY,
    shown,
)
from headgate.tables.iceberg.files import data_file_of, data_files, last_offset, location_of, segment_and_content, store
from headgate.tables.iceberg.offsets import OffsetRanges
from headgate.tables.iceberg.report import PublishReport, Retain
from headgate.tables.iceberg.retention import age_of_old_ms, expire, remove_below
from headgate.tables.iceberg.schema import evolve
from headgate.tables.iceberg.waste import Waste

_FILES_PER_SNAPSHOT = 64
"""After this many files the work is committed, so that readers see it."""


def bring_up_to_date(
    table: Table,
    stream: Stream,
    report: PublishReport,
    *,
    retain: Retain,
    expire_after_ms: int | None,
    now_ms: int,
) -> None:
    """One pass; adds its commits to the report. The caller holds `publishing`, and has just loaded the table.

    Raises CommitFailedException or ValidationException if another program committed something meanwhile.
    """
    declaration = declaration_of(stream)
    if declaration is None:
        raise ConfigError(f"stream {stream.name!r} has no declared columns any more")
    evolve(table, declaration)
    waste = Waste(stream, table)
    # Listed after the table was read: so an older file than the table's is never taken for a newer one.
    files = column_files(stream)
    work = _Work(table, waste, stream.identity, report)
    _add(work, files)
    _replace(work, files)
    if retain == "log":
        there = stream.segments()
        if there:
            lowest = min([there[0].first_chunk_id, *(file.first_offset for file in files)])
            report.removed += remove_below(table, lowest, identity=stream.identity)
    age_ms = age_of_old_ms(table) if expire_after_ms is None else expire_after_ms
    report.expired += expire(table, waste, older_than_ms=now_ms - age_ms)
    report.deleted_files += waste.clear(table, {file.path.name for file in files})


def published_offsets(table: Table) -> OffsetRanges:
    """All offsets that were ever published to the table, also offsets that it no longer has.

    A table that was rolled back has an older snapshot, so snapshots count first; the property counts if other programs
    let all of ours expire.
    """
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        if snapshot.summary is not None and PUBLISHED_PROPERTY in snapshot.summary.additional_properties:
            return OffsetRanges.parse(snapshot.summary.additional_properties[PUBLISHED_PROPERTY])
    return OffsetRanges.parse(table.properties.get(PUBLISHED_PROPERTY, ""))


@dataclass(frozen=True, slots=True)
class _Work:
    table: Table
    waste: Waste
    identity: str
    report: PublishReport

    def store(self, files: Sequence[ColumnFile]) -> list[ColumnFile]:
        """Store files where the table expects them; gives the stored ones. Damaged files are left out."""
        self.waste.add(location_of(self.table, file) for file in files if file.rows)
        stored = []
        for file in files:
            try:
                if file.rows:
                    store(self.table, file)
                    reached(PublishStep.STORED)
                stored.append(file)
            except CorruptSidecarError as error:
                if file.path.exists():
                    warnings.warn(ColumnFileWarning(f"{error}; not published"), stacklevel=2)
            except FileNotFoundError:
                if file.path.exists():
                    raise
        return stored

    def committed(self, files: Sequence[ColumnFile]) -> None:
        """A snapshot has these files now."""
        reached(PublishStep.COMMITTED)
        self.waste.forget(location_of(self.table, file) for file in files)


def _add(work: _Work, files: Sequence[ColumnFile]) -> None:
    published = published_offsets(work.table)
    missing = [file for file in files if not published.has(file.first_offset, file.next_offset)]
    for file in missing:
        if published.meets(file.first_offset, file.next_offset):
            raise _other_borders(work.table, file)
    for start in range(0, len(missing), _FILES_PER_SNAPSHOT):
        stored = work.store(missing[start : start + _FILES_PER_SNAPSHOT])
        if not stored:
            continue
        added = OffsetRanges()
        for file in stored:
            added = added.joined(file.first_offset, file.next_offset)
            published = published.joined(file.first_offset, file.next_offset)
        properties = {
            STREAM_PROPERTY: work.identity,
            OFFSETS_PROPERTY: str(added),
            PUBLISHED_PROPERTY: str(published),
        }
        # Behind a commit of others an append is not tried again, as pyiceberg would: they may have added the same. This
        # changes the copy of the properties in this process only, not the table's.
        work.table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
        with work.table.transaction() as transaction:
            transaction.set_properties({PUBLISHED_PROPERTY: str(published)})
            with transaction.update_snapshot(snapshot_properties=properties).merge_append() as append:
                for file in stored:
                    if file.rows:
                        append.append_data_file(data_file_of(work.table, file))
        work.report.segments += len(stored)
        work.report.rows += sum(file.rows for file in stored)
        work.committed(stored)


def _replace(work: _Work, files: Sequence[ColumnFile]) -> None:
    """Replace data files whose segment has a file of another declaration now; files joined by other programs stay."""
    there: dict[int, tuple[str, DataFile]] = {}
    for data_file in data_files(work.table):
        named = segment_and_content(data_file.file_path)
        if named is not None:
            there[named[0]] = named[1], data_file
    newer = []
    for file in files:
        named = segment_and_content(file.path.name)
        if named is not None and named[0] in there and there[named[0]][0] != named[1]:
            newer.append(file)
    for start in range(0, len(newer), _FILES_PER_SNAPSHOT):
        stored = work.store(newer[start : start + _FILES_PER_SNAPSHOT])
        if not stored:
            continue
        replaced = OffsetRanges()
        for file in stored:
            replaced = replaced.joined(file.first_offset, file.next_offset)
        properties = {STREAM_PROPERTY: work.identity, REPLACED_PROPERTY: str(replaced)}
        with (
            work.table.transaction() as transaction,
            transaction.update_snapshot(snapshot_properties=properties).overwrite() as overwrite,
        ):
            for file in stored:
                old, new = there[file.segment][1], data_file_of(work.table, file)
                if last_offset(old) != last_offset(new):
                    raise _other_borders(work.table, file)
                overwrite.delete_data_file(old)
                overwrite.append_data_file(new)
        work.report.replaced += len(stored)
        work.committed(stored)


def _other_borders(table: Table, file: ColumnFile) -> SinkError:
    return SinkError(
        f"table {shown(table.name())} has some offsets of segment {file.first_offset}-{file.next_offset} from one with "
        "other borders: it was published from another copy of the stream, and can only be published from there"
    )
