"""Messages as the rows of column files, and what must hold of a filter that is decided by them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute as pc

from headgate.derived.columns.declaration import ColumnDeclaration, ColumnOfFile
from headgate.derived.columns.evaluation import Statistics, decide_group, decide_rows
from headgate.derived.columns.filter import column_filter
from headgate.derived.columns.rows import column_rows
from headgate.evaluate import Filter
from headgate.log import ENTRY_DTYPE
from headgate.message import EncodedMessages
from headgate.message.arrow import DeclaredColumn, declared_columns
from headgate.tables.polars_files import expression


def declared(text: str) -> list[DeclaredColumn]:
    return [each for each in declared_columns(text) if isinstance(each, DeclaredColumn)]


def declaration_of(columns: Sequence[DeclaredColumn]) -> ColumnDeclaration:
    return ColumnDeclaration(tuple(ColumnOfFile.of(number + 1, each) for number, each in enumerate(columns)))


def rows_of(messages: Sequence[bytes], declaration: ColumnDeclaration) -> pa.RecordBatch:
    numbers = np.arange(len(messages))
    return column_rows(
        EncodedMessages.of(list(messages)),
        offsets=numbers,
        timestamps_ms=numbers,
        chunk_ids=numbers * 0,
        entries=np.zeros(len(messages), dtype=ENTRY_DTYPE),
        declaration=declaration,
    )


def assert_same(
    wanted: Filter, rows: pa.RecordBatch, declaration: ColumnDeclaration, verdicts: Sequence[bool], now_ms: int
) -> bool:
    """By columns as by bytes, whose `verdicts` are known; gives whether the columns decide anything."""
    found = column_filter(wanted, declaration.declared, now_ms=now_ms)
    if found is None:
        return False
    names = [each.name for each in declaration.declared]
    columns = {name: rows[name] for name in found.columns}
    bits = {name: names.index(name) for name in found.columns}
    decided = decide_rows(found, columns, bits, rows["inexact"])
    may, certain = (each.to_numpy(zero_copy_only=False) for each in decided)
    used = sum(1 << bit for bit in bits.values())
    inexact = rows["inexact"].fill_null(0).to_pylist()
    for row, is_true in enumerate(verdicts):
        what = (wanted, declaration.declared, row)
        assert may[row] or not is_true, what
        assert is_true or not certain[row], what
        if found.is_whole and not inexact[row] & used:
            assert may[row] == certain[row], what
    if found.is_whole:
        kinds = {each.name: each.kind for each in declaration.declared}
        kept = polars.DataFrame(pa.table(columns)).select(expression(found.tree, kinds)).to_series()
        for row, is_kept in enumerate(kept):
            if not inexact[row] & used:
                assert bool(is_kept) == certain[row], (wanted, declaration.declared, row)
    group = decide_group(
        found, {name: statistics_of(column) for name, column in columns.items()}, is_exact=not any(inexact)
    )
    assert isinstance(group.true, bool)
    assert group.true or not may.any()
    if group.certainly_true is True:
        assert certain.all()
    return True


def statistics_of(column: pa.Array) -> Statistics:
    """What the footer of a file would say."""
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if pa.types.is_boolean(column.type) or pa.types.is_binary(column.type):
        values = sorted(value for value in column.to_pylist() if value is not None)
        least, greatest = (values[0], values[-1]) if values else (None, None)
    else:
        least, greatest = (each.as_py() for each in pc.min_max(column).values())
    return Statistics(least, greatest, column.null_count, len(column))
