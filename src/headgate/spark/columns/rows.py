"""Rows to messages to verdicts, in the Python workers: the asked cells are encoded in bulk, the one kernel decides.

A cell that the filter reads and no message can hold (a priority of 300, a VARIANT that is not an object) makes its row
malformed: the filter is not true for it, as for bytes that are not a message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql.types import IntegralType, VariantType

from headgate.errors import ConfigError
from headgate.evaluate import Filter
from headgate.message import EncodedMessages, Section
from headgate.message.arrow import messages_of
from headgate.spark.columns.layout import SECTION_COLUMNS, Cell, Entries, Input

_HIGHEST: Mapping[str, int] = {"priority": 0xFF}
_OBJECT = 2


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A filter with the columns it reads. Picklable; the same in any process."""

    filter: Filter
    inputs: tuple[Input, ...]

    def matches(self, columns: Sequence[pa.Array], rows: int, *, now_ms: int) -> NDArray[np.bool_]:
        """For which rows the filter is true: `(rows,)` bool; `columns` are the columns of `inputs`, in their order.

        The content of cells never raises.
        """
        matched = np.zeros(rows, dtype=np.bool_)
        if not rows:
            return matched
        batch, sound = self._sections(columns, rows)
        if sound is not None:
            batch = batch.filter(pa.array(sound))
        kept = np.arange(rows) if sound is None else np.flatnonzero(sound)
        for first, messages in _encoded(batch, 0):
            found = self.filter.mask(messages, now_ms=now_ms)
            matched[kept[first : first + len(messages)]] = found
        return matched

    def _sections(self, columns: Sequence[pa.Array], rows: int) -> tuple[pa.RecordBatch, NDArray[np.bool_] | None]:
        """One column per section, and which rows a message can be made from (None = all)."""
        sections: dict[str, pa.Array] = {}
        cells: dict[Section, list[tuple[str, pa.Array]]] = {}
        sound: NDArray[np.bool_] | None = None
        for each, column in zip(self.inputs, columns, strict=True):
            column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            if isinstance(each, Entries):
                sections[SECTION_COLUMNS[each.section]] = column
            else:
                cells.setdefault(each.section, []).append((each.name, column))
            possible = _possible(each, column)
            if possible is not None:
                sound = possible if sound is None else sound & possible
        for section, named in cells.items():
            names, arrays = zip(*named, strict=True)
            sections[SECTION_COLUMNS[section]] = pa.StructArray.from_arrays(list(arrays), list(names))
        if not sections:
            sections["body"] = pa.nulls(rows, pa.binary())
        return pa.RecordBatch.from_pydict(sections), sound


def _possible(each: Input, column: pa.Array) -> NDArray[np.bool_] | None:
    """The rows whose cell a message can hold, as far as the column shows it; None = all."""
    if isinstance(each, Cell) and each.section in (Section.HEADER, Section.PROPERTIES):
        if not isinstance(each.type, IntegralType):
            return None
        highest = _HIGHEST.get(each.name, 0xFFFF_FFFF)
        wide = column.cast(pa.int64())
        fits = pc.and_(pc.greater_equal(wide, 0), pc.less_equal(wide, highest)).fill_null(True)
        return _unless_all(fits.to_numpy(zero_copy_only=False))
    if isinstance(each, Entries) and isinstance(each.type, VariantType):
        first = pc.binary_slice(pc.struct_field(column, "value"), 0, 1).to_numpy(zero_copy_only=False)
        is_object = np.fromiter((not head or head[0] & 3 == _OBJECT for head in first), np.bool_, len(first))
        return _unless_all(is_object)
    return None


def _unless_all(possible: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    return None if possible.all() else possible


def _encoded(batch: pa.RecordBatch, first: int) -> list[tuple[int, EncodedMessages]]:
    """Messages with the row at which they begin; rows that none can be made from are left out, halving the batch."""
    if not batch.num_rows:
        return []
    try:
        return [(first, messages_of(batch))]
    except ConfigError:
        if batch.num_rows == 1:
            return []
        half = batch.num_rows // 2
        return [*_encoded(batch.slice(0, half), first), *_encoded(batch.slice(half), first + half)]
