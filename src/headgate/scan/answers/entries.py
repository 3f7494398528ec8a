"""Reading the messages that an answer names, and no others.

The checksum of a chunk covers all of it, so it says nothing about one message; sources know a checksum per entry.
After a checksum that does not agree, the messages are read again in full, chunk by chunk, where every error has its
name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate import kernels
from headgate.evaluate import Verdict, layout
from headgate.log import SegmentReader, first_mismatch
from headgate.log.format import CHUNK_HEADER_BYTES, ENTRY_HEAD_BYTES, windows
from headgate.message import EncodedMessages
from headgate.scan.answers.answer import Answer
from headgate.scan.request import ScanRequest

Int64Array = NDArray[np.int64]

_GAP_BYTES = 16 << 10
"""Wanted entries closer together than this are read at once, with the bytes between them."""

_HEAD_DTYPE = np.dtype(f"V{ENTRY_HEAD_BYTES}")


@dataclass(slots=True)
class WantedEntries:
    """Entries of a segment, ascending: `positions … stops` in the file, head included, CRC-32, offset, and chunk.

    All are `(entries,)` int64, `certain` bool; `chunks` are numbers in the `rows` of the answer they come from, and
    `certain` says which ones do match.
    """

    positions: Int64Array
    stops: Int64Array
    crcs: Int64Array
    offsets: Int64Array
    chunks: Int64Array
    certain: NDArray[np.bool_]

    def part(self, start: int, stop: int) -> WantedEntries:
        """Some of them, in a row."""
        part = slice(start, stop)
        return WantedEntries(
            self.positions[part],
            self.stops[part],
            self.crcs[part],
            self.offsets[part],
            self.chunks[part],
            self.certain[part],
        )


def wanted_entries(
    reader: SegmentReader, answer: Answer, wanted: NDArray[np.bool_]
) -> tuple[WantedEntries, NDArray[np.bool_]]:
    """The entries of messages that may match in `wanted` chunks, and which of these chunks they cover, `(rows,)`.

    Not covered are chunks that the answer does not speak for, and chunks with sub-batches.
    """
    table = reader.chunks()
    next_ids = reader.next_chunk_ids()[answer.rows]
    wanted = wanted & answer.trusted & (answer.counts > 0)
    none = np.empty(0, dtype=np.int64)
    nothing = WantedEntries(none, none, none, none, none, none.astype(np.bool_))
    if not wanted.any():
        return nothing, wanted
    chunk_ids = table.chunk_id[answer.rows]
    start, stop = int(chunk_ids[wanted][0]), int(next_ids[wanted][-1])
    entries = answer.source.entries(reader, answer, start, stop)
    if entries is None:
        return nothing, np.zeros(len(wanted), dtype=np.bool_)
    positions = entries["position"]
    if not positions.all():
        without = np.append(0, np.cumsum(positions == 0))
        wanted[wanted] = without[next_ids[wanted] - start] == without[chunk_ids[wanted] - start]
    headers = answer.headers
    data_starts = table.position[answer.rows] + CHUNK_HEADER_BYTES + headers["bloom_length"].astype(np.int64)
    data_stops = data_starts + headers["data_length"].astype(np.int64)
    offsets, chunks, certain = answer.offsets, answer.chunks, answer.certain
    if not wanted.all():
        kept = wanted[chunks]
        offsets, chunks, certain = offsets[kept], chunks[kept], certain[kept]
    places = offsets - start
    behind = np.minimum(places + 1, len(positions) - 1)
    last = offsets + 1 == next_ids[chunks]
    found = WantedEntries(
        positions[places].astype(np.int64),
        np.where(last, data_stops[chunks], positions[behind].astype(np.int64)),
        entries["crc"][places].astype(np.int64),
        offsets,
        chunks,
        certain,
    )
    sound = (found.positions >= data_starts[chunks]) & (found.stops <= data_stops[chunks])
    sound &= found.positions + ENTRY_HEAD_BYTES <= found.stops
    if not sound.all():
        answer.source.distrust(answer, f"the entry of offset {offsets[np.argmin(sound)]} does not lie in its chunk")
        return nothing, np.zeros(len(wanted), dtype=np.bool_)
    return found, wanted


def cut(entries: WantedEntries, limit_bytes: int, *, count_gaps: bool) -> Iterator[WantedEntries]:
    """Entries in parts of about `limit_bytes`, each at least one chunk, none of which lies in two parts.

    With `count_gaps` the bytes that are read between them count as well.
    """
    sizes = entries.stops - entries.positions
    if count_gaps:
        gaps = entries.positions[1:] - entries.stops[:-1]
        sizes[1:] += np.where(gaps > _GAP_BYTES, 0, gaps)
    total = np.cumsum(sizes)
    first = 0
    while first < len(total):
        before = int(total[first - 1]) if first else 0
        last = max(first, int(np.searchsorted(total, before + limit_bytes, side="right")) - 1)
        stop = int(np.searchsorted(entries.chunks, entries.chunks[last], side="right"))
        yield entries.part(first, stop)
        first = stop


def read_entries(
    reader: SegmentReader, entries: WantedEntries, request: ScanRequest, *, evaluate: bool
) -> tuple[EncodedMessages, NDArray[np.bool_]] | None:
    """The messages of some entries, and which of them the request keeps: all, or with `evaluate` the filter's matches.

    None if an entry is not the one that was indexed. The bytes lie in the mapping of the segment, or in a buffer that
    the next read overwrites. Errors: those of `SegmentReader.gather`.
    """
    positions, stops = entries.positions, entries.stops
    begins = np.flatnonzero(np.append(True, positions[1:] - stops[:-1] > _GAP_BYTES))
    ends = np.append(begins[1:], len(positions)) - 1
    data, targets = reader.gather(positions[begins], stops[ends])
    starts = positions + np.repeat(targets - positions[begins], ends - begins + 1)
    sizes = stops - positions
    messages = EncodedMessages(data, starts + ENTRY_HEAD_BYTES, sizes - ENTRY_HEAD_BYTES)
    kernel, checksum = kernels.load("headgate.scan.answers.kernel"), kernels.load("headgate.kernels.checksum")
    program = request.filter.program if evaluate and request.filter is not None else None
    can_check = checksum is not None and (checksum.HAS_CARRYLESS_MULTIPLY or not request.verify_checksums)
    can_decide = not evaluate or (program is not None and program.takes(request.now_ms))
    if kernel is None or checksum is None or not can_check or not can_decide:
        return _in_python(messages, starts, sizes, entries.crcs, request, evaluate=evaluate)
    address = kernels.address_of
    columns = [np.ascontiguousarray(column, dtype=np.int64) for column in (starts, sizes, entries.crcs)]
    registers = None if program is None else program.registers_at(request.now_ms)
    verdicts = np.empty(len(starts), dtype=np.uint8)
    wrong = kernel.decide_entries(
        address(data),
        *(address(column) for column in columns),
        len(starts),
        address(kernels.byte_table()) if request.verify_checksums else 0,
        0 if program is None else program.words_address,
        layout.CODE_SELECT,
        0 if program is None else program.pool_address,
        0 if registers is None else address(registers),
        address(verdicts),
    )
    if wrong < len(starts):
        return None
    if evaluate and request.filter is not None:
        request.filter.settle(verdicts, messages, request.now_ms)
    return messages, np.equal(verdicts, Verdict.TRUE)


def _in_python(
    messages: EncodedMessages,
    starts: Int64Array,
    sizes: Int64Array,
    crcs: Int64Array,
    request: ScanRequest,
    *,
    evaluate: bool,
) -> tuple[EncodedMessages, NDArray[np.bool_]] | None:
    heads = windows(messages.data, _HEAD_DTYPE)[starts].view(">u4").astype(np.int64)
    if not np.array_equal(heads + ENTRY_HEAD_BYTES, sizes):
        return None
    if request.verify_checksums and first_mismatch(messages.data, starts, sizes, crcs) is not None:
        return None
    if not evaluate or request.filter is None:
        return messages, np.ones(len(messages), dtype=np.bool_)
    return messages, request.filter.mask(messages, now_ms=request.now_ms)
