"""A task's work for a Delta table: it writes its rows as Parquet files, and describes each for the commit.

Files hold the columns of the table except its partition columns. A file has rows of one partition, so rows should come
sorted by the partition columns; unsorted rows only make more files.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from headgate.errors import SinkError
from headgate.parquet import ParquetWriter

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_ROW_GROUP_SIZE_BYTES = 32 << 20
_FILE_SIZE_BYTES = 256 << 20
_LONGEST_TEXT = 64
"""Longer texts give no minimum and maximum: they would fill the table's log and skip little."""
_YEAR_1_US = -62_135_596_800_000_000
_YEAR_10000_US = 253_402_300_800_000_000


class AddedFile(msgspec.Struct, frozen=True):
    """A file as a commit names it: `path` below the table's folder, `statistics` as Delta's JSON."""

    path: str
    size_bytes: int
    rows: int
    partition_values: dict[str, str | None]
    statistics: str


@dataclass(frozen=True, slots=True)
class FilePlan:
    """The folder and the columns of the files of one attempt at a batch. Picklable.

    `schema` has all columns of the rows, in their order, with timestamps in UTC; `required` are the columns without
    nulls.
    """

    table: Path
    folder: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    required: tuple[str, ...]


DESCRIBED = "added binary"
"""The rows of `write_files`, as Spark's DDL: an AddedFile each, as JSON."""


def described(rows: Sequence[bytes | bytearray]) -> list[AddedFile]:
    """The files that the rows of `write_files` speak of."""
    return [msgspec.json.decode(row, type=AddedFile) for row in rows]


def write_files(plan: FilePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task; for `mapInArrow`. Holds about 32 MiB of them; gives a row per file.

    Each attempt of a task has file names of its own. Raises SinkError for a null where the table takes none.
    """
    context = TaskContext.get()
    if context is None:
        raise SinkError("files of a Delta table are written by tasks of Spark")
    name = f"part-{context.partitionId():06d}-{context.taskAttemptId()}"
    numbers = itertools.count()
    current: _File | None = None
    try:
        for batch in batches:
            rows = batch.rename_columns(plan.schema.names).cast(plan.schema)
            _refuse_nulls(rows, plan.required)
            for values, run in partition_runs(rows, plan.partition_by):
                if current is not None and (current.values != values or current.size_bytes >= _FILE_SIZE_BYTES):
                    yield _row(current.finish(plan))
                    current = None
                if current is None:
                    path = f"{plan.folder}/{name}-{next(numbers)}.parquet"
                    current = _File(plan.table / path, path, values, run.schema)
                current.add(run)
        if current is not None:
            yield _row(current.finish(plan))
    finally:
        if current is not None:
            current.writer.close()


def _row(file: AddedFile) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"added": [msgspec.json.encode(file)]})


def _refuse_nulls(rows: pa.RecordBatch, required: Sequence[str]) -> None:
    for name in required:
        if rows.column(name).null_count:
            raise SinkError(f"column {name!r} is null in a row; the table says NOT NULL")


@dataclass(slots=True)
class _File:
    """A file that is being written; rows are collected into row groups."""

    place: Path
    path: str
    values: tuple[str | None, ...]
    schema: pa.Schema
    writer: ParquetWriter = field(init=False)
    size_bytes: int = field(default=0, init=False)
    _metadata: list[pq.FileMetaData] = field(default_factory=list, init=False)
    _waiting: list[pa.RecordBatch] = field(default_factory=list, init=False)
    _waiting_size_bytes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.writer = ParquetWriter(self.place, self.schema, metadata_collector=self._metadata)

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows; `size_bytes` counts them in memory."""
        self._waiting.append(rows)
        self._waiting_size_bytes += rows.nbytes
        self.size_bytes += rows.nbytes
        if self._waiting_size_bytes >= _ROW_GROUP_SIZE_BYTES:
            self._write_row_group()

    def _write_row_group(self) -> None:
        self.writer.write(pa.Table.from_batches(self._waiting, self.schema))
        self._waiting.clear()
        self._waiting_size_bytes = 0

    def finish(self, plan: FilePlan) -> AddedFile:
        if self._waiting:
            self._write_row_group()
        self.writer.close()
        metadata = self._metadata[-1]
        return AddedFile(
            self.path,
            self.place.stat().st_size,
            metadata.num_rows,
            dict(zip(plan.partition_by, self.values, strict=True)),
            statistics(metadata, self.schema),
        )


def partition_runs(
    rows: pa.RecordBatch, partition_by: Sequence[str]
) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    """The values of a partition, and the rows that follow each other in it, without its columns."""
    import pyarrow.compute as pc

    if not partition_by:
        if rows.num_rows:
            yield (), rows
        return
    texts = [partition_texts(rows.column(name)) for name in partition_by]
    ends = sorted({end for text in texts for end in pc.run_end_encode(text).run_ends.to_pylist()})
    others = rows.drop_columns(list(partition_by))
    start = 0
    for end in ends:
        yield tuple(text[start].as_py() for text in texts), others.slice(start, end - start)
        start = end


def partition_texts(column: pa.Array) -> pa.Array:
    """A column as Delta writes partition values (protocol, "Partition Value Serialization"): an empty text is null."""
    import pyarrow.compute as pc

    if pa.types.is_timestamp(column.type):
        plain = column.cast(pa.timestamp("us"))
        if column.type.tz is None:
            return plain.cast(pa.string())
        # The form with a zone means the same in every time zone of a reader.
        return pc.binary_join_element_wise(pc.replace_substring(plain.cast(pa.string()), " ", "T"), "Z", "")
    text = column.cast(pa.string())
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)


def statistics(metadata: pq.FileMetaData, schema: pa.Schema) -> str:
    """A file's statistics (protocol, "Per-file Statistics"), as JSON.

    The number of rows; for columns of integers, dates, timestamps and short texts the smallest and largest value and
    the number of nulls.
    """
    ranges: dict[str, tuple[int | str, int | str]] = {}
    nulls: dict[str, int] = {}
    places = {metadata.schema.column(place).path: place for place in range(metadata.num_columns)}
    for column in schema:
        # With a dot in its name, the path of a column may be that of a field of another one.
        if not _has_order(column.type) or "." in column.name:
            continue
        groups = [metadata.row_group(group).column(places[column.name]) for group in range(metadata.num_row_groups)]
        found = [group.statistics for group in groups]
        if not all(each is not None and each.has_null_count for each in found):
            continue
        nulls[column.name] = sum(each.null_count for each in found)
        filled = [each for each, group in zip(found, groups, strict=True) if each.null_count < group.num_values]
        if filled and all(each.has_min_max for each in filled):
            texts = pa.types.is_string(column.type)
            low = min(each.min if texts else each.min_raw for each in filled)
            high = max(each.max if texts else each.max_raw for each in filled)
            if (known := _range(low, high, column.type)) is not None:
                ranges[column.name] = known
    content = {
        "numRecords": metadata.num_rows,
        "minValues": {name: low for name, (low, _) in ranges.items()},
        "maxValues": {name: high for name, (_, high) in ranges.items()},
        "nullCount": nulls,
    }
    return msgspec.json.encode(content).decode()


def _has_order(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_string(kind)
    )


def _range(low: int | str, high: int | str, kind: pa.DataType) -> tuple[int | str, int | str] | None:
    """Smallest and largest value as statistics have them: times in milliseconds, rounded outwards."""
    if isinstance(low, str) or isinstance(high, str):
        return (low, high) if max(len(low), len(high)) <= _LONGEST_TEXT else None  # type: ignore[arg-type]
    if pa.types.is_date(kind):
        dates = str(np.datetime64(low, "D")), str(np.datetime64(high, "D"))
        return dates if all(len(date) == len("2026-01-01") for date in dates) else None
    if pa.types.is_timestamp(kind):
        if low < _YEAR_1_US or high >= _YEAR_10000_US - 1000:
            return None
        zone = "" if kind.tz is None else "Z"
        return f"{np.datetime64(low // 1000, 'ms')}{zone}", f"{np.datetime64(-(-high // 1000), 'ms')}{zone}"
    return low, high
