"""Finding the messages of many chunks at once (osiris_log.md section 3)."""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate import kernels
from headgate.log.layout import STOP, StopBlock

Int64Array = NDArray[np.int64]

_LENGTH = struct.Struct(">I")
_SUB_BATCH_BIT = 0x80000000


class StopReason(enum.IntEnum):
    """Why a walk ended before the last chunk; numbers as in `kernel.py`."""

    MALFORMED = 1
    """An entry reaches behind its chunk's data, or the entries end before it."""
    SUB_BATCH = 2
    """An entry is a sub-batch, which has to be expanded."""


@dataclass(frozen=True, slots=True)
class WalkStop:
    """The chunk at which a walk ended: its number, the reason, and the byte of the data where the reason lies."""

    reason: StopReason
    chunk: int
    position: int


@dataclass(slots=True)
class WalkedEntries:
    """Simple entries side by side: `starts` and `lengths` of their bodies in the data, `offsets` in the stream.

    All are `(entries,)` int64. `stop` is None when every chunk was walked; otherwise the entries are those of the
    chunks before `stop.chunk`, and the caller continues after it.
    """

    starts: Int64Array
    lengths: Int64Array
    offsets: Int64Array
    stop: WalkStop | None

    def __len__(self) -> int:
        return len(self.starts)


def walk_entries(
    data: NDArray[np.uint8],
    *,
    data_starts: Int64Array,
    data_lengths: Int64Array,
    entry_counts: Int64Array,
    chunk_ids: Int64Array,
    first_chunk: int = 0,
) -> WalkedEntries:
    """The simple entries of chunks from number `first_chunk` on, up to one that is malformed or has a sub-batch.

    The arrays are `(chunks,)`: where each chunk's data part starts in `data`, its bytes, its number of entries (by its
    header) and its chunk id. Ranges outside `data` raise ValueError: the reader of the chunks has to check that they
    are complete. Cost: a few nanoseconds an entry; memory is bounded by the bytes of the chunks.
    """
    columns = [np.ascontiguousarray(column, dtype=np.int64) for column in (data_starts, data_lengths, entry_counts)]
    begins, sizes, counts = columns
    identifiers = np.ascontiguousarray(chunk_ids, dtype=np.int64)
    if len(begins) and (int(begins.min()) < 0 or int(sizes.min()) < 0 or int((begins + sizes).max()) > len(data)):
        raise ValueError("a chunk's data lies outside the buffer")
    capacity = int(np.minimum(counts, sizes // 4)[first_chunk:].sum())
    kernel = kernels.load("headgate.log.kernel")
    if kernel is None:
        return _walk_in_python(data, begins, sizes, counts, identifiers, first_chunk)
    starts, lengths, offsets = (np.empty(capacity, dtype=np.int64) for _ in range(3))
    stop = np.zeros(len(STOP), dtype=np.int64)
    address = kernels.address_of
    total = kernel.walk_entries(
        address(data),
        *(address(column) for column in (begins, sizes, counts, identifiers)),
        first_chunk,
        len(begins),
        *(address(column) for column in (starts, lengths, offsets, stop)),
    )
    reason, chunk, position = StopBlock(*stop.tolist())
    stopped = WalkStop(StopReason(reason), chunk, position) if reason else None
    return WalkedEntries(starts[:total], lengths[:total], offsets[:total], stopped)


def _walk_in_python(
    data: NDArray[np.uint8],
    data_starts: Int64Array,
    data_lengths: Int64Array,
    entry_counts: Int64Array,
    chunk_ids: Int64Array,
    first_chunk: int,
) -> WalkedEntries:
    view = data.data
    rows: list[tuple[int, int, int]] = []
    stop: WalkStop | None = None
    for chunk in range(first_chunk, len(data_starts)):
        found = _walk_chunk(
            view,
            position=int(data_starts[chunk]),
            end=int(data_starts[chunk] + data_lengths[chunk]),
            entry_count=int(entry_counts[chunk]),
            offset=int(chunk_ids[chunk]),
        )
        if isinstance(found, tuple):
            stop = WalkStop(found[0], chunk, found[1])
            break
        rows.extend(found)
    table = np.array(rows, dtype=np.int64).reshape(len(rows), 3)
    starts, lengths, offsets = (np.ascontiguousarray(table[:, column]) for column in range(3))
    return WalkedEntries(starts, lengths, offsets, stop)


def _walk_chunk(
    view: memoryview, *, position: int, end: int, entry_count: int, offset: int
) -> list[tuple[int, int, int]] | tuple[StopReason, int]:
    rows = []
    for number in range(entry_count):
        if end - position < _LENGTH.size:
            return StopReason.MALFORMED, position
        (length,) = _LENGTH.unpack_from(view, position)
        if length & _SUB_BATCH_BIT:
            return StopReason.SUB_BATCH, position
        if length > end - position - _LENGTH.size:
            return StopReason.MALFORMED, position
        rows.append((position + _LENGTH.size, length, offset + number))
        position += _LENGTH.size + length
    return rows if position == end else (StopReason.MALFORMED, position)
