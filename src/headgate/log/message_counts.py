"""Counts the messages between two offsets without reading them.

A tracking chunk takes one offset and holds no message (osiris_log.md section 6); every other offset is that of a
message. The index files say which chunks are tracking chunks, 29 bytes a chunk; each record is read once.
"""

from __future__ import annotations

import bisect
import threading
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from headgate.errors import OffsetOutOfRangeError
from headgate.log.files import file_size
from headgate.log.format import CHUNK_HEADER_BYTES, FILE_HEAD_BYTES, INDEX_DTYPE, INDEX_RECORD_BYTES, ChunkType
from headgate.log.segment import Segment
from headgate.log.stream import Stream


@dataclass(slots=True)
class _Index:
    """The known part of the index of one segment; `tracking` are the ids of its tracking chunks, in order."""

    num_records: int
    last_record: bytes
    tracking: NDArray[np.int64]
    is_complete: bool
    """Whether a newer segment existed when its index was read."""


class MessageCounts:
    """Counts the messages of one stream, in any thread.

    Unless it `fetches`, it never waits for object storage: of a segment there it knows how many chunks without messages
    it has, not where, so a count that begins or ends inside of that segment may be wrong by their number.
    """

    def __init__(self, *, fetches: bool = True) -> None:
        self._fetches = fetches
        self._lock = threading.Lock()
        self._indexes: dict[int, _Index] = {}
        """Key: the first chunk id of the segment."""
        self._tracking = np.empty(0, dtype=np.int64)
        self._start: int | None = None
        self._stop = 0

    def between(self, stream: Stream, start: int, stop: int) -> int:
        """The number of messages at the offsets from `start` to `stop - 1`; `stop` is at most the end of the stream.

        Offsets that retention deleted count as messages. Cost: the first time the index files from `start` on, the
        new records if `stop` is higher than before, else some microseconds.
        """
        return 0 if stop <= start else stop - start - len(self._tracking_between(stream, start, stop))

    def messages(self, stream: Stream, start: int, stop: int) -> NDArray[np.int64]:
        """The offsets of the messages between two offsets, ascending; limits and cost as of `between`."""
        if stop <= start:
            return np.empty(0, dtype=np.int64)
        return np.delete(np.arange(start, stop), self._tracking_between(stream, start, stop) - start)

    def _tracking_between(self, stream: Stream, start: int, stop: int) -> NDArray[np.int64]:
        """The offsets of tracking chunks from `start` to `stop - 1`."""
        with self._lock:
            if self._start is None or start < self._start or stop > self._stop:
                self._start = start if self._start is None else min(start, self._start)
                self._look(stream, self._start)
                self._stop = max(stop, self._stop)
            first, behind = np.searchsorted(self._tracking, (start, stop)).tolist()
            return self._tracking[first:behind]

    def _look(self, stream: Stream, start: int) -> None:
        """Read new records in the index files of the segments that reach beyond `start`."""
        segments = stream.segments()
        first = bisect.bisect_right(segments, start, key=attrgetter("first_chunk_id")) - 1
        indexes = {}
        for segment in segments[max(0, first) :]:
            known = self._indexes.get(segment.first_chunk_id)
            # A recovery that deletes an empty newest pair cuts the one before it.
            if known is None or segment.is_newest or not known.is_complete:
                is_told = segment.remote is not None and not self._fetches
                known = _told(segment) if is_told else _read(segment, known)
            indexes[segment.first_chunk_id] = known
        self._indexes = indexes
        found = [index.tracking for index in indexes.values()]
        self._tracking = np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _told(segment: Segment) -> _Index:
    """The index of a segment in object storage, as far as its catalogue tells."""
    assert segment.remote is not None
    first, count = segment.first_chunk_id, segment.remote.num_tracking
    return _Index(0, b"", np.arange(first, first + count, dtype=np.int64), is_complete=True)


def _read(segment: Segment, known: _Index | None) -> _Index:
    """The index as it is now: reads only new records, or all of them if known records were cut or replaced."""
    known_records = 0 if known is None else known.num_records
    repeated = min(1, known_records)
    try:
        segment.fetch()
        with open(segment.index_path, "rb", buffering=0) as file:
            file.seek(FILE_HEAD_BYTES + (known_records - repeated) * INDEX_RECORD_BYTES)
            raw = file.read()
    except (FileNotFoundError, OffsetOutOfRangeError):
        # Retention removed it since the folder was listed, or a recovery, which makes the newest one again.
        return _Index(0, b"", np.empty(0, dtype=np.int64), is_complete=not segment.is_newest)
    if known is not None and raw[: repeated * INDEX_RECORD_BYTES] != known.last_record:
        return _read(segment, None)
    count = len(raw) // INDEX_RECORD_BYTES
    records = np.frombuffer(raw, dtype=INDEX_DTYPE, count=count)
    if segment.is_newest:
        # Readers pass over records at the end that name no place in the segment (`ending.py`).
        last_position = file_size(segment.segment_path) - CHUNK_HEADER_BYTES
        while count > repeated and not FILE_HEAD_BYTES <= records["position"][count - 1] <= last_position:
            count -= 1
    records = records[repeated:count]
    tracking = records["chunk_id"][records["type"] != ChunkType.USER].astype(np.int64)
    return _Index(
        num_records=known_records + len(records),
        last_record=raw[(count - 1) * INDEX_RECORD_BYTES : count * INDEX_RECORD_BYTES] if count else b"",
        tracking=tracking if known is None else np.concatenate((known.tracking, tracking)),
        is_complete=not segment.is_newest,
    )
