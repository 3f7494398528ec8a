"""`read`: a range of a stream as one DataFrame, from column files where they exist, else from the messages.

    sealed segments with a column file    spark.read.parquet: Spark prunes columns and pushes down
    the others, and the tail              format("headgate")

Spark gives a Python source no way to hand a part of its rows to Spark's own Parquet reader; so this is a function, and
its result is a union. The offsets are fixed when it is made: every run gives the same rows. Files that differ only in
their rows are one scan. Spark puts the files of a scan into partitions by size, and rows are to come in the order of
offsets within a partition; so a partition gets one piece of one file (`_Reader`).
"""

from __future__ import annotations

import functools
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType
from pyspark.sql.utils import is_remote

from headgate import clock
from headgate.derived.columns import (
    ColumnFile,
    ColumnFileWarning,
    ColumnFilter,
    column_files,
    column_filter,
    ddl_of,
    declaration_of,
)
from headgate.errors import ConfigError, CorruptSidecarError, OffsetOutOfRangeError
from headgate.evaluate import Filter
from headgate.language import DEFAULT_DIALECT
from headgate.log import OffsetSpecification, Stream, resolve_stream
from headgate.message.arrow import DeclaredColumn, SparkType
from headgate.scan import OffsetRange, check_start
from headgate.spark.columns import decided, matching
from headgate.spark.option_declarations import COLUMN_NAMES, DEFAULT_COLUMNS
from headgate.spark.schema import stream_schema
from headgate.tables import OffsetLike, default_root, offset_specification, table_range

_READING = {"datetimeRebaseMode": "CORRECTED"}
_ALL_ROW_GROUPS = {
    f"parquet.filter.{knowledge}.enabled": "false" for knowledge in ("stats", "dictionary", "bloom", "columnindex")
}
"""By these Spark leaves out row groups with NaN, which it takes for above all numbers, and −0.0, which is 0.0 to it."""

_FLOATS = (SparkType.DOUBLE, SparkType.FLOAT)

_GLOB = re.compile(r"([\\*?\[\]{},])")


def read(
    spark: SparkSession,
    stream: str | Path,
    *,
    columns: str | Iterable[str] | None = None,
    filter: str | None = None,
    dialect: str = DEFAULT_DIALECT,
    start: OffsetLike = "first",
    stop: OffsetLike | None = None,
    root: str | Path | None = None,
) -> DataFrame:
    """A range of a stream as a DataFrame: the messages for which `filter` is true, in offset order per partition.

    `stream` is a name under `root` (default: the environment's HEADGATE_ROOT), or the path of a folder. `columns` is as
    the source option of that name, for example "offset, region string, price double, p.subject"; without it offset,
    timestamp and the declared columns of the stream, or the columns of the source where none are declared. Rows, names
    and types are the same as with `format("headgate")` and these options; where files were kept for ever, rows that
    retention deleted from the log come in addition. Later messages are not read: make the DataFrame again.

    The session is one of `session`, or was given to `register`. Cost, beside planning: each column file is read once in
    the life of this process, to check it before Spark has its path. Raises ConfigError, FilterError,
    StreamNotFoundError; OffsetOutOfRangeError for a `start` that was deleted, or for a column or filter that kept files
    cannot serve; CorruptSidecarError for a damaged file without log.
    """
    found = resolve_stream(str(stream), default_root() if root is None else Path(root))
    now_ms = clock.now_ms()
    asked = _Asked(
        found,
        _columns(found, columns),
        None if filter is None else Filter.parse(filter, dialect),
        now_ms,
        offset_specification(start).resolve(now_ms),
        None if stop is None else offset_specification(stop).resolve(now_ms),
    )
    frames = list(asked.frames(spark))
    return _union(frames) if frames else spark.createDataFrame([], asked.schema)


def create_view(
    spark: SparkSession,
    name: str,
    stream: str | Path,
    *,
    columns: str | Iterable[str] | None = None,
    filter: str | None = None,
    dialect: str = DEFAULT_DIALECT,
    start: OffsetLike = "first",
    stop: OffsetLike | None = None,
    root: str | Path | None = None,
) -> None:
    """Make the result of `read` a view of the session for SQL, replacing one of that name; repeat to see newer data."""
    frame = read(spark, stream, columns=columns, filter=filter, dialect=dialect, start=start, stop=stop, root=root)
    frame.createOrReplaceTempView(name)


@dataclass(frozen=True)
class _Asked:
    """The request for a part of a stream. Intervals are times already."""

    stream: Stream
    columns: tuple[DeclaredColumn | str, ...]
    filter: Filter | None
    now_ms: int
    start: OffsetSpecification
    stop: OffsetSpecification | None

    @property
    def schema(self) -> StructType:
        """Names and types of the columns."""
        return stream_schema(self.columns, ())

    @cached_property
    def within(self) -> OffsetRange:
        """The offsets, including kept files. Raises ConfigError for a start behind the end."""
        check_start(self.stream, self.start, now_ms=self.now_ms)
        return table_range(self.stream, self.start, self.stop, now_ms=self.now_ms)

    def frames(self, spark: SparkSession) -> Iterator[DataFrame]:
        """The DataFrames of its pieces: one for files that can be one scan, one for each range of messages."""
        scans: dict[_Scan, list[ColumnFile]] = {}
        ranges: list[_Messages] = []
        for part in self.parts():
            if isinstance(part, _Messages):
                ranges.append(part)
            else:
                scans.setdefault(part.scan(self), []).append(part.file)
        reader = _Reader(spark, [file.size_bytes for files in scans.values() for file in files])
        for scan, files in scans.items():
            yield scan.frame(reader, files, self)
        for each in ranges:
            yield each.frame(spark, self)

    def parts(self) -> Iterator[_Messages | _File]:
        """The pieces in the order of offsets: files, and ranges to read from messages."""
        first, within = self.stream.first_offset(), self.within
        position = within.start
        for file in column_files(self.stream, within):
            part = OffsetRange(max(file.first_offset, position), min(file.next_offset, within.stop))
            if part.start >= part.stop:
                continue
            made = _File.of(self, file, part)
            if file.next_offset <= first:
                # It is all that is left of its offsets.
                if made is None:
                    raise self._not_kept(file)
                file.check()
            elif made is None or file.is_remote or not made.is_sound():
                # One in object storage is in the cache of this machine, which Spark's executors do not have.
                continue
            if position < part.start:
                yield self._messages(position, part.start, first)
            yield made
            position = part.stop
        if position < within.stop:
            yield self._messages(position, within.stop, first)

    def _messages(self, start: int, stop: int, first: int) -> _Messages:
        if start < first:
            raise self._gone(start, min(stop, first))
        return _Messages(OffsetRange(start, stop))

    def _gone(self, start: int, stop: int) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            f"offsets {start} to {stop - 1} of stream {self.stream.name!r} were deleted by retention",
            path=self.stream.path,
        )

    def _not_kept(self, file: ColumnFile) -> OffsetOutOfRangeError:
        names = [each if isinstance(each, str) else each.name for each in self.columns]
        missing = [name for name, each in zip(names, self.columns, strict=True) if _name_in(file, each, self) is None]
        what = f"column {missing[0]!r}" if missing else f"what the filter {self.filter and self.filter.text!r} asks for"
        return OffsetOutOfRangeError(
            f"{what} was not kept of the offsets {file.first_offset} to {file.next_offset - 1} of stream "
            f"{self.stream.name!r}, whose messages are deleted; leave it out, or start at {self.stream.first_offset()}",
            path=file.path,
        )


@dataclass(frozen=True, slots=True)
class _Messages:
    """Offsets that are read from the log."""

    within: OffsetRange

    def frame(self, spark: SparkSession, asked: _Asked) -> DataFrame:
        """Their rows by the source."""
        options = {
            "stream": json.dumps([str(asked.stream.path.absolute())]),
            "columns": ", ".join(each if isinstance(each, str) else ddl_of(each) for each in asked.columns),
            "start": str(self.within.start),
            "end": str(self.within.stop),
            "as_of": str(asked.now_ms),
        }
        if asked.filter is not None:
            assert asked.filter.dialect is not None
            options |= {"filter": asked.filter.text, "dialect": asked.filter.dialect}
        return spark.read.format("headgate").options(**options).load()


@dataclass(frozen=True, slots=True)
class _File:
    """Offsets that are read from a column file; `names` are the names of the requested columns in it.

    `filter` is the requested filter over its columns.
    """

    file: ColumnFile
    within: OffsetRange
    names: tuple[str, ...]
    filter: ColumnFilter | None = None

    @staticmethod
    def of(asked: _Asked, file: ColumnFile, within: OffsetRange) -> _File | None:
        """None where the file lacks a requested column."""
        names = tuple(name for each in asked.columns if (name := _name_in(file, each, asked)) is not None)
        if len(names) < len(asked.columns):
            return None
        if asked.filter is None:
            return _File(file, within, names)
        decided = column_filter(asked.filter, file.declaration.declared, now_ms=asked.now_ms)
        return None if decided is None or not decided.is_whole else _File(file, within, names, decided)

    def is_sound(self) -> bool:
        """Whether all bytes are intact; else a warning is given, and the messages are read instead."""
        try:
            self.file.check()
        except CorruptSidecarError as error:
            warnings.warn(ColumnFileWarning(f"{error}; read without it"), stacklevel=4)
            return False
        return True

    def scan(self, asked: _Asked) -> _Scan:
        """The scan that reads it, alone or with others."""
        start, stop = self.within.start, self.within.stop
        found = _inexact_bits(self.file)
        return _Scan(
            self.names,
            self.file.columns,
            tuple((each.name, each.type) for each in self.file.schema if each.name != "entry"),
            start if start > self.file.first_offset else None,
            stop if stop < self.file.next_offset else None,
            bool(found & self._bits_of_filter()),
            bool(found & self._bits_of_numbers(asked)),
            self.filter,
        )

    def _bits_of_filter(self) -> int:
        names = () if self.filter is None else self.filter.columns
        return sum(1 << bit for bit, (_, each) in enumerate(self.file.columns) if each.name in names)

    def _bits_of_numbers(self, asked: _Asked) -> int:
        """The bits of all float columns if one is requested: NaN or −0.0 may be in them, so their rows are inexact."""
        if not any(isinstance(each, DeclaredColumn) and each.kind in _FLOATS for each in asked.columns):
            return 0
        return sum(1 << bit for bit, (_, each) in enumerate(self.file.columns) if each.kind in _FLOATS)


@dataclass(frozen=True, slots=True)
class _Scan:
    """The facts about files that Spark needs beside their paths: equal for files that can be read in one scan."""

    names: tuple[str, ...]
    columns: tuple[tuple[int, DeclaredColumn], ...]
    fields: tuple[tuple[str, pa.DataType], ...]
    start: int | None
    """The first offset where it is not the file's."""

    stop: int | None
    has_inexact: bool
    """Rows that the filter has to decide by their message."""

    has_odd_numbers: bool
    """NaN or −0.0."""

    filter: ColumnFilter | None = field(compare=False)
    """Follows from the asked one and `columns`."""

    def frame(self, reader: _Reader, files: Sequence[ColumnFile], asked: _Asked) -> DataFrame:
        """The rows by Spark's Parquet reader; of all possible columns it reads only the used ones."""
        schema = StructType([StructField(name, from_arrow_type(kind)) for name, kind in self.fields])
        options = _READING | (_ALL_ROW_GROUPS if self.has_odd_numbers else {})
        rows = reader.read(files, schema, options)
        if self.start is not None:
            rows = rows.where(F.col("offset") >= self.start)
        if self.stop is not None:
            rows = rows.where(F.col("offset") < self.stop)
        return self._matching(rows, asked).select(
            *(
                F.col(_quoted(name)).alias(wanted.name)
                for name, wanted in zip(self.names, asked.schema.fields, strict=True)
            )
        )

    def _matching(self, rows: DataFrame, asked: _Asked) -> DataFrame:
        """The rows that match: exact ones by their columns, the others by their message, which is in the file."""
        if asked.filter is None or self.filter is None:
            return rows
        columns = tuple(each for _, each in self.columns)
        exact = decided(self.filter, columns)
        if not self.has_inexact:
            return rows.where(exact)
        bits = sum(1 << bit for bit, each in enumerate(columns) if each.name in self.filter.columns)
        is_inexact = F.coalesce(F.col("inexact").bitwiseAND(F.lit(bits)) != 0, F.lit(False))
        others = rows.where(F.col("inexact").isNotNull()).where(is_inexact)
        return (
            rows.where(~is_inexact)
            .where(exact)
            .union(others.where(matching(asked.filter, F.col("message"), now_ms=asked.now_ms)))
        )


class _Reader:
    """Reads Parquet files of these sizes with one piece of one file in each partition.

    Spark fills a partition with pieces, the largest first, until their bytes and what it counts for opening each reach
    a limit. Here opening alone reaches it; the limit is as Spark chooses it, so there are pieces for all cores. These
    are settings of sessions: a scan uses a copy of the user's session, its DataFrame belongs to the user's session.

    A client of Spark Connect has no such copy: there each file is a scan.
    """

    def __init__(self, spark: SparkSession, sizes_bytes: Sequence[int]) -> None:
        self._spark = spark
        self._copy: Any = None
        if is_remote():
            return
        self._copy = spark._jsparkSession.cloneSession()
        settings = self._copy.sessionState().conf()
        for_each_core = sum(sizes_bytes) // max(1, spark.sparkContext.defaultParallelism)
        piece = min(settings.filesMaxPartitionBytes(), max(settings.filesOpenCostInBytes(), for_each_core))
        for name in ("maxPartitionBytes", "openCostInBytes"):
            self._copy.conf().set(f"spark.sql.files.{name}", str(max(1, piece)))
        self._copy.conf().unset("spark.sql.files.maxPartitionNum")

    def read(self, files: Sequence[ColumnFile], schema: StructType, options: Mapping[str, str]) -> DataFrame:
        """The rows of the files."""
        paths = [_literal(file.path) for file in files]
        if self._copy is None:
            return _union([self._spark.read.schema(schema).options(**options).parquet(path) for path in paths])
        reader = DataFrameReader(self._spark)
        reader._jreader = self._copy.read()
        rows = reader.schema(schema).options(**options).parquet(*paths)
        jvm: Any = self._spark._jvm
        plan = rows._jdf.queryExecution().analyzed()
        return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(self._spark._jsparkSession, plan), self._spark)


@functools.lru_cache(4096)
def _inexact_bits(file: ColumnFile) -> int:
    """The bits of all rows of a file together. Raises CorruptSidecarError."""
    column = file.schema.names.index("inexact")
    groups = (file.metadata.row_group(group) for group in range(len(file.row_groups)))
    nulls = [group.column(column).statistics.null_count == group.num_rows for group in groups]
    if all(nulls):
        return 0
    found = file.read(["inexact"])["inexact"].drop_null()
    return int(np.bitwise_or.reduce(found.to_numpy())) if len(found) else 0


def _name_in(file: ColumnFile, column: DeclaredColumn | str, asked: _Asked) -> str | None:
    """The name of a requested column in a file; None where the file does not have it."""
    if isinstance(column, DeclaredColumn):
        return next((each.name for _, each in file.columns if each.place == column.place), None)
    if column == "filter_value":
        # Without a declared source a file has no values, but the data source has the annotation's.
        settings = asked.stream.settings
        source = None if settings is None else settings.filter_source
        return column if source is not None and file.origin.filter_source == source else None
    return column if column in ("offset", "timestamp") or (column == "body" and file.declaration.body) else None


def _columns(stream: Stream, columns: str | Iterable[str] | None) -> tuple[DeclaredColumn | str, ...]:
    if columns is not None:
        text = columns if isinstance(columns, str) else ", ".join(columns)
        try:
            return COLUMN_NAMES.values.parse(text)
        except ConfigError as error:
            raise ConfigError(f"columns: {str(error).removeprefix('columns: ')}") from error
    declaration = declaration_of(stream)
    if declaration is None:
        return DEFAULT_COLUMNS
    return ("offset", "timestamp", *declaration.declared, *(["body"] if declaration.body else []))


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    """A flat tree: Spark's analysis goes down into each union."""
    if len(frames) == 1:
        return frames[0]
    middle = len(frames) // 2
    return _union(frames[:middle]).union(_union(frames[middle:]))


def _literal(path: Path) -> str:
    """A path of this machine as Spark takes it, which reads patterns."""
    return "file://" + _GLOB.sub(r"\\\1", str(path.absolute()))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
