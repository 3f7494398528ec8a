"""Rows of a table from column files: where a file has all requested columns, and the columns that decide the filter.

    row group ──► offsets that stage 1 left ──► filter by its columns; inexact rows by their messages ──► asked columns

Decoding the messages gives the same values, so a table is the same with files and without.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headgate.derived.columns import ColumnFile, ColumnFilter, GroupReader, column_filter, decide_rows, group_outcome
from headgate.errors import CorruptSidecarError
from headgate.message import EncodedMessages
from headgate.message.arrow import DeclaredColumn
from headgate.scan import OffsetRange, ScanCounters, ScanRequest
from headgate.tables.rows import Columns, pieces


@dataclass(frozen=True, slots=True)
class FileRows:
    """How one file answers a read: `names` are its columns, in the order asked; `filter` decides by its columns."""

    file: ColumnFile
    columns: Columns
    request: ScanRequest
    names: tuple[str, ...]
    filter: ColumnFilter | None
    readers: threading.local = field(default_factory=threading.local)
    """`reader`: the one of the thread."""

    @staticmethod
    def of(file: ColumnFile, columns: Columns, request: ScanRequest, filter_source: str | None) -> FileRows | str:
        """The rows from a file, or the missing column as text. `filter_source` is the field of filter values now."""
        there = {column.place: column.name for _, column in file.columns}
        own = ["offset", "timestamp"] + (["body"] if file.declaration.body else [])
        if filter_source is not None and file.origin.filter_source == filter_source:
            own.append("filter_value")
        names = []
        for each in columns.asked:
            name = there.get(each.place) if isinstance(each, DeclaredColumn) else each if each in own else None
            if name is None:
                called = each if isinstance(each, str) else each.name
                return f"column {called!r} is not among {', '.join([*own, *there.values()])}"
            names.append(name)
        if request.filter is None:
            return FileRows(file, columns, request, tuple(names), None)
        decided = column_filter(request.filter, file.declaration.declared, now_ms=request.now_ms)
        if decided is None or not decided.is_whole:
            return f"the columns {', '.join(there.values())} do not decide the filter {request.filter.text!r}"
        return FileRows(file, columns, request, tuple(names), decided)

    def of_group(self, group: int, spans: NDArray[np.int64], counters: ScanCounters) -> Iterator[pa.RecordBatch]:
        """The rows of some offsets of a row group: `spans` is `(spans, 2)`, each within the group.

        Raises CorruptSidecarError before the first row, where a byte does not check.
        """
        wanted = self._wanted(group, spans)
        looked_at = self.file.row_groups[group].rows if wanted is None else wanted.true_count
        counters.messages_decided_by_columns += looked_at
        there: dict[str, pa.Array] = {}
        if self.filter is not None and group_outcome(self.file, group, self.filter).true is False:
            return
        if self.filter is not None:
            there, wanted = self._filtered(group, wanted, counters)
            if not wanted.true_count:
                return
        missing = [name for name in dict.fromkeys(self.names) if name not in there]
        if missing:
            there |= self._read(missing, group, counters)
        arrays = [there[name] for name in self.names]
        if wanted is not None and wanted.true_count < len(wanted):
            kept = pa.array(np.flatnonzero(wanted.to_numpy(zero_copy_only=False)))
            arrays = [array.take(kept) for array in arrays]
        counters.messages_matched += len(arrays[0])
        yield from pieces(self.columns.batch_of(arrays))

    def _read(self, names: list[str], group: int, counters: ScanCounters) -> dict[str, pa.Array]:
        counters.column_bytes_read += sum(self.file.group_bytes(name, group) for name in names)
        reader: GroupReader | None = getattr(self.readers, "reader", None)
        if reader is None:
            reader = self.readers.reader = GroupReader(self.file)
        return reader.read(group, names)

    def _wanted(self, group: int, spans: NDArray[np.int64]) -> pa.BooleanArray | None:
        """`(rows,)`: the rows in the spans; None for all."""
        place = self.file.row_groups[group]
        if len(spans) == 1 and spans[0, 0] <= place.first_offset and spans[0, 1] >= place.stop_offset:
            return None
        if place.stop_offset - place.first_offset == place.rows:
            offsets = np.arange(place.first_offset, place.stop_offset)
        else:
            offsets = self.file.read(["offset"], [group])["offset"].to_numpy()
        wanted = np.zeros(len(offsets) + 1, dtype=np.int8)
        np.add.at(wanted, np.searchsorted(offsets, spans[:, 0]), 1)
        np.add.at(wanted, np.searchsorted(offsets, spans[:, 1]), -1)
        return pa.array(np.cumsum(wanted[:-1]) > 0)

    def _filtered(
        self, group: int, wanted: pa.BooleanArray | None, counters: ScanCounters
    ) -> tuple[dict[str, pa.Array], pa.BooleanArray]:
        """The columns of the filter, and the rows among the wanted ones for which it is true."""
        assert self.filter is not None and self.request.filter is not None
        is_exact = self.file.inexact_rows(group) == 0
        arrays = self._read([*self.filter.columns, *([] if is_exact else ["inexact"])], group, counters)
        bits = {column.name: number for number, (_, column) in enumerate(self.file.columns)}
        may, certain = decide_rows(self.filter, arrays, bits, arrays.pop("inexact", None))
        if wanted is not None:
            may, certain = pc.and_(may, wanted), pc.and_(certain, wanted)
        unclear = pc.and_not(may, certain)
        count = unclear.true_count
        if count:
            messages = self._read(["message"], group, counters)["message"].filter(unclear)
            if messages.null_count:
                raise CorruptSidecarError("a row that is not exact has no message", path=self.file.path)
            kept = self.request.filter.mask(EncodedMessages.of(messages.to_pylist()), now_ms=self.request.now_ms)
            certain = pc.replace_with_mask(certain, unclear, pa.array(kept))
            counters.messages_evaluated += count
            counters.messages_decided_by_columns -= count
        return arrays, certain

    def groups(self, spans: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """The row groups that have some of these offsets, each with its offsets, as `of_group` takes them."""
        for number, group in enumerate(self.file.row_groups):
            clipped = np.clip(spans, group.first_offset, group.stop_offset)
            clipped = clipped[clipped[:, 0] < clipped[:, 1]]
            if len(clipped):
                yield number, clipped


def whole(within: OffsetRange) -> NDArray[np.int64]:
    """A range as spans."""
    return np.array([[within.start, within.stop]], dtype=np.int64)
