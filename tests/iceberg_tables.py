"""Streams with column files, and what their tables must have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from headgate.derived.columns import COLUMN_FILES, column_files, declare_columns
from headgate.log import Stream, stream_folder
from headgate.tables.iceberg import CatalogLocation, PublishReport, publish_table
from match_indexes import Write, create

COLUMNS = "region string, price bigint"
WRITES = [
    Write((("AMER", number % 7), ("EMEA", number % 5), (None, 2)), packed=number % 9 == 0) for number in range(60)
]
NAME = ("headgate", "sales")


def stream_with_files(root: Path, *, identity: str | None = None) -> Stream:
    """A stream `sales` of several sealed segments, all with column files."""
    stream = create(stream_folder(root, "sales"), WRITES, identity=identity)
    declare_columns(stream, COLUMNS)
    build(stream)
    assert len(column_files(stream)) > 3
    return stream


def build(stream: Stream) -> None:
    """The files that are missing."""
    for report in COLUMN_FILES.build(stream, now_ms=1):
        assert not report.trouble


def publish(stream: Stream, place: CatalogLocation, *, now_ms: int = 0, **more: Any) -> PublishReport:
    """One pass, at a time when no snapshot is old."""
    return publish_table(stream, place, now_ms=now_ms, **more)


def rows(place: CatalogLocation) -> pa.Table:
    """The table's rows in the order of offsets."""
    with place.opened() as catalog:
        return catalog.load_table(NAME).scan().to_arrow().sort_by("offset")


def summaries(place: CatalogLocation) -> list[dict[str, str]]:
    """What the snapshots say, oldest first."""
    with place.opened() as catalog:
        found = catalog.load_table(NAME).metadata.snapshots
        return [{"operation": each.summary.operation.value, **each.summary.additional_properties} for each in found]


def assert_has(place: CatalogLocation, stream: Stream) -> None:
    """Each row of the column files once, and each offset in one snapshot."""
    expected = pa.concat_tables(
        [file.read([name for name in file.schema.names if name != "entry"]) for file in column_files(stream)]
    )
    found = rows(place)
    assert found.column_names == expected.column_names
    assert found["offset"].to_pylist() == expected["offset"].to_pylist()
    assert found.to_pylist() == expected.to_pylist()
    ranges = [each["headgate.offsets"] for each in summaries(place) if "headgate.offsets" in each]
    starts_and_stops = [tuple(map(int, part.split("-"))) for text in ranges for part in text.split()]
    for (_, stop), (start, _) in zip(sorted(starts_and_stops), sorted(starts_and_stops)[1:], strict=False):
        assert stop <= start
