"""`scan`: a source of polars that reads only the parts that a query needs.

columns that it uses        are decoded, no other
its predicate               is applied to each batch; what it needs of a row (`predicates`) narrows what is read
head                        ends reading
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars
from polars.io.plugins import register_io_source

from headgate.client import ServerAddress
from headgate.derived.columns import column_filter, ddl_of, declaration_of
from headgate.errors import FilterError
from headgate.evaluate import Filter
from headgate.language import DEFAULT_DIALECT
from headgate.log import Stream, resolve_stream
from headgate.message.arrow import DeclaredColumn, declared_columns
from headgate.polars.predicates import Between, Needed, needed_by
from headgate.tables import OffsetLike, StreamTable, WholeColumnFile, default_root, read, rows_of_files


def scan(
    stream: str | Path,
    *,
    columns: str | Iterable[str] | None = None,
    filter: str | Filter | None = None,
    dialect: str = DEFAULT_DIALECT,
    filter_values: Iterable[str] = (),
    match_unfiltered: bool = False,
    start: OffsetLike = "first",
    stop: OffsetLike | None = None,
    root: str | Path | None = None,
    server: str | ServerAddress | None = None,
    dictionaries: Iterable[str] = (),
    threads: int | None = None,
) -> polars.LazyFrame:
    """A range of a stream as a LazyFrame; arguments and errors as for `headgate.read`.

    The offsets are fixed now, so every collection gives the same rows. `filter` and `filter_values` select the rows;
    further filters of the query are applied by polars, with the values of columns, which are null where a message has
    another type. Column files go to polars' own reader, a whole segment at once, where they decide `filter` and have no
    inexact row. Comparisons, `is_in` and `is_between` of single columns, joined by and and or, let reading skip:
    offsets and times whole ranges, fields chunks, and messages before they are decoded.
    """
    options: dict[str, Any] = {
        "dialect": dialect,
        "match_unfiltered": match_unfiltered,
        "root": root,
        "server": server,
        "dictionaries": tuple(dictionaries),
        "threads": threads,
    }
    if columns is not None and not isinstance(columns, str):
        columns = ", ".join(columns)
    values = tuple(filter_values)
    table = read(stream, columns=columns, filter=filter, filter_values=values, start=start, stop=stop, **options)
    source = _Scan(stream, table, columns, filter, values, options)
    return register_io_source(source.frames, schema=source.schema, is_pure=True)


@dataclass(frozen=True, slots=True)
class _Scan:
    """The arguments of a scan, and the table with its fixed offsets."""

    stream: str | Path
    table: StreamTable
    columns: str | None
    filter: str | Filter | None
    filter_values: tuple[str, ...]
    options: dict[str, Any]

    @property
    def schema(self) -> polars.Schema:
        return _frame(self.table.schema.empty_table()).schema

    @property
    def declared(self) -> dict[str, DeclaredColumn | str]:
        """The columns by name."""
        asked = self.table.schema.names if self.columns is None else declared_columns(self.columns)
        return {each if isinstance(each, str) else each.name: each for each in asked}

    def frames(
        self,
        with_columns: list[str] | None,
        predicate: polars.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[polars.DataFrame]:
        """The frames for polars: of the first `n_rows` rows the ones for which the predicate is true."""
        names = self.table.schema.names if with_columns is None else with_columns
        # A bound on rows counts rows before the predicate.
        needed = Needed() if predicate is None or n_rows is not None else needed_by(predicate, self.declared)
        used = set(names) | set([] if predicate is None else predicate.meta.root_names())
        left = n_rows
        yield _frame(self.table.schema.empty_table()).select(names)
        for frame in self._parts([name for name in self.table.schema.names if name in used], needed):
            if left == 0:
                return
            taken = frame if left is None else frame.head(left).collect().lazy()
            left = None if left is None else left - taken.select(polars.len()).collect().item()
            yield (taken if predicate is None else taken.filter(predicate)).select(names).collect()

    def _parts(self, names: list[str], needed: Needed) -> Iterator[polars.LazyFrame]:
        """The needed rows, in stream order: column files, and batches of messages without one."""
        whole = self.narrowed(names, replace(needed, condition=None))
        if whole is None:
            return
        for part in whole.column_files_and_tail(filtered=True):
            if isinstance(part, WholeColumnFile):
                yield self._of_file(part)
                continue
            start, stop = part.offsets
            rows = self.narrowed(names, replace(needed, offsets=Between(start, stop - 1), times_us=Between()))
            for batch in () if rows is None else rows.batches():
                yield _frame(batch).lazy()

    def _of_file(self, part: WholeColumnFile) -> polars.LazyFrame:
        repeating = [name for name in self.options["dictionaries"] if name in part.columns]
        (rows,) = rows_of_files([part])
        return rows.with_columns(polars.col(name).cast(self.schema[name]) for name in repeating)

    def narrowed(self, names: list[str], needed: Needed) -> StreamTable | None:
        """The table of some columns, without rows that are not needed; None where there are none."""
        declared = self.declared
        asked = [declared[name] for name in names] or ["offset"]
        start, stop = self._offsets(needed)
        if start >= stop:
            return None
        return read(
            self.stream,
            columns=", ".join(each if isinstance(each, str) else ddl_of(each) for each in asked),
            filter=self._filter(needed.condition),
            filter_values=self.filter_values,
            start=start,
            stop=stop,
            **self.options | {"dictionaries": [name for name in self.options["dictionaries"] if name in names]},
        )

    def _filter(self, condition: str | None) -> str | Filter | None:
        """The filter, with a condition where both can be said at once."""
        given = self.filter
        if condition is None or isinstance(given, Filter) or (given and self.options["dialect"] != DEFAULT_DIALECT):
            return given
        try:
            added = Filter.parse(condition, DEFAULT_DIALECT)
            joined = added if given is None else Filter.parse(f"({given}) AND ({condition})", DEFAULT_DIALECT)
        except FilterError:
            # Longer or deeper than a filter may be, or a name that it cannot spell.
            return given
        return joined if self._is_decided_by_columns(added) else given

    def _is_decided_by_columns(self, condition: Filter) -> bool:
        """Whether files of columns, if the stream has some, decide it: reading messages for it would cost more."""
        if self.options["server"] is not None or (self.filter is None and not self.filter_values):
            # polars reads the files; this is about messages without one.
            return True
        declared = declaration_of(self._found())
        if declared is None:
            return True
        decided = column_filter(condition, declared.declared)
        return decided is not None and decided.is_whole

    def _found(self) -> Stream:
        root = self.options["root"]
        return resolve_stream(str(self.stream), default_root() if root is None else Path(root))

    def _offsets(self, needed: Needed) -> tuple[int, int]:
        start, stop = self.table.offsets
        if needed.offsets.lowest is not None:
            start = max(start, needed.offsets.lowest)
        if needed.offsets.highest is not None:
            stop = min(stop, needed.offsets.highest + 1)
        lowest, highest = needed.times_us.lowest, needed.times_us.highest
        if self.options["server"] is not None or start >= stop or (lowest is None and highest is None):
            return start, stop
        first, behind = _offsets_between(self._found(), start, lowest, highest)
        return max(start, first), min(stop, behind)


def _offsets_between(stream: Stream, start: int, lowest_us: int | None, highest_us: int | None) -> tuple[int, int]:
    """The first offset of a chunk of these times, and the one behind the last; times may go back. Reads index files.

    Offsets between `start` and the log, which only column files have, all count as possibly of these times.
    """
    segments = stream.segments()
    in_log = segments[0].first_chunk_id
    first, behind = (start, in_log) if start < in_log else (stream.next_offset(), 0)
    for segment in segments:
        with segment.open() as reader:
            chunks = reader.chunks()
            times_us = chunks.timestamp_ms * 1000
            is_one = np.ones(len(times_us), dtype=np.bool_)
            is_one &= True if lowest_us is None else times_us >= lowest_us
            is_one &= True if highest_us is None else times_us <= highest_us
            rows = np.flatnonzero(is_one)
            if len(rows):
                first = min(first, int(chunks.chunk_id[rows[0]]))
                last = int(rows[-1]) + 1
                behind = int(chunks.chunk_id[last]) if last < len(chunks) else reader.next_chunk_id
    return first, behind


def _frame(table: Any) -> polars.DataFrame:
    found = polars.from_arrow(table)
    assert isinstance(found, polars.DataFrame)
    return found
