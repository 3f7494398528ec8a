"""Column files as data files of a table: their location, how they are stored there, their entry in a manifest."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
import secrets
import shutil
from pathlib import Path

from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    PyArrowFileIO,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.types import LongType

from headgate.derived.columns import FIELD_IDS, ColumnFile
from headgate.log import sync_folder
from headgate.tables.iceberg.schema import LEFT_OUT, file_schema

_OWN_NAME = re.compile(r"([0-9]{20})-([0-9a-f]{16})-[0-9a-f]{8}\.parquet")
_LOCAL = ("file", "")


def location_of(table: Table, file: ColumnFile) -> str:
    """The location of a column file as a data file: the same for every publisher, and different for other content."""
    return table.location_provider().new_data_location(file.path.name)


def segment_and_content(location: str) -> tuple[int, str] | None:
    """Segment and digest (stream, segment, declaration) in the name of a column file; None for other data files."""
    match = _OWN_NAME.search(location.rpartition("/")[2])
    return None if match is None else (int(match[1]), match[2])


def store(table: Table, file: ColumnFile) -> None:
    """Store a column file at its location: a second name (hard link) in a local folder, otherwise a copy.

    The whole file is checked first. Raises CorruptSidecarError, FileNotFoundError where retention was faster, and the
    errors of the storage.
    """
    # The cache of this machine may lose a file of object storage at any time.
    content = file.content() if file.is_remote else None
    file.check()
    location = location_of(table, file)
    scheme, _, path = PyArrowFileIO.parse_location(location)
    if scheme in _LOCAL and content is None:
        _link(file.path, Path(path), size_bytes=file.size_bytes)
        return
    # A store that keeps the beginning of an interrupted write has another size there.
    with contextlib.suppress(FileNotFoundError):
        if len(table.io.new_input(location)) == file.size_bytes:
            return
    opened = file.path.open("rb") if content is None else io.BytesIO(content.tobytes())
    with opened as source, table.io.new_output(location).create(overwrite=True) as target:
        shutil.copyfileobj(source, target, 8 << 20)


def data_file_of(table: Table, file: ColumnFile) -> DataFile:
    """The manifest entry of a column file: its location, its size, and the statistics of each column."""
    statistics = data_file_statistics_from_parquet_metadata(
        file.metadata,
        stats_columns=_wanted_statistics(table, file),
        parquet_column_mapping={name: _field_id(file, name) for name in file.schema.names},
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location_of(table, file),
        file_format=FileFormat.PARQUET,
        partition=statistics.partition(table.spec(), table.schema()),
        file_size_in_bytes=file.size_bytes,
        sort_order_id=None,
        spec_id=table.metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def data_files(table: Table) -> list[DataFile]:
    """The data files of the current snapshot, of whichever program. Cost: reading its manifests."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return []
    return [
        entry.data_file
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        if entry.data_file.content is DataFileContent.DATA
    ]


def last_offset(file: DataFile) -> int | None:
    """The highest offset in a data file, as its manifest says; None where that does not say it."""
    found = (file.upper_bounds or {}).get(FIELD_IDS["offset"])
    return None if found is None else int(from_bytes(LongType(), found))


def _field_id(file: ColumnFile, name: str) -> int:
    return int(file.schema.field(name).metadata[b"PARQUET:field_id"])


def _wanted_statistics(table: Table, file: ColumnFile) -> dict[int, StatisticsCollector]:
    """Statistics by the table's properties; none for columns without any in Parquet, where pyiceberg would complain."""
    none = MetricsMode(MetricModeTypes.NONE)
    wanted = compute_statistics_plan(file_schema(file.schema), table.properties)
    group = file.metadata.row_group(0)
    for number, name in enumerate(file.schema.names):
        field_id = _field_id(file, name)
        if name == LEFT_OUT:
            wanted[field_id] = StatisticsCollector(field_id, LongType(), none, name)
        elif not group.column(number).is_stats_set:
            wanted[field_id] = dataclasses.replace(wanted[field_id], mode=none)
    return wanted


def _link(source: Path, target: Path, *, size_bytes: int) -> None:
    """Make a hard link, which stays when retention removes the source; a copy where the file system has no links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileExistsError:
        if target.stat().st_size == size_bytes:
            return
        target.unlink()
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        unfinished = target.with_name(f".{target.name}-{secrets.token_hex(4)}")
        try:
            shutil.copyfile(source, unfinished)
            os.replace(unfinished, target)
        finally:
            unfinished.unlink(missing_ok=True)
    sync_folder(target.parent)
