"""The sources of answers of a request as one: which are asked, in which order, and which answer counts."""

from __future__ import annotations

import threading
from collections.abc import Container, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from headgate.log import SegmentReader
from headgate.scan.answers.answer import Answer, AnswerSource, Purpose, SegmentFiles, SourceKind
from headgate.scan.offset_range import OffsetRange
from headgate.scan.request import ScanRequest

Int64Array = NDArray[np.int64]

_LITTLE_SHARE = 8
"""Where sources leave at most one message in this many open, these are read: other sources only leave out chunks of
which they know it without a look at messages (`AnswerSource.left`)."""


class FilesOfSegment:
    """The derived files of an open segment, shared by all its readers. Safe for several threads."""

    __slots__ = ("_files", "_lock", "_reader")

    def __init__(self, reader: SegmentReader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self._files: dict[SourceKind, SegmentFiles] = {}

    def of(self, kind: SourceKind) -> SegmentFiles:
        """The files of one kind."""
        files = self._files.get(kind)
        if files is None:
            with self._lock:
                files = self._files.setdefault(kind, kind.segment_files(self._reader))
        return files

    def look(self, kinds: Sequence[SourceKind]) -> bool:
        """Look whether the segment has files of some kinds; false if none of them knows anything of it."""
        return any(self.of(kind).look() for kind in kinds)


class Answers:
    """Answers about chunks for one request, before a message is read.

    Each source is asked, in order of preference, about the chunks that those before it left undecided, and narrows what
    they left. Not for several threads at once.
    """

    def __init__(self, request: ScanRequest, purpose: Purpose = Purpose.READING) -> None:
        self._sources: list[AnswerSource] = []
        self._kinds: list[SourceKind] = []
        if request.filter is None or request.exact:
            return
        for kind in request.sources:
            source = kind.source(request.filter, request.now_ms, purpose)
            if source is not None:
                self._kinds.append(kind)
                self._sources.append(source)

    @property
    def is_asked(self) -> bool:
        """Whether any source can say something for this request."""
        return bool(self._sources)

    @property
    def sources(self) -> Sequence[AnswerSource]:
        """The sources that are asked, in order of preference."""
        return self._sources

    def use(self, files: FilesOfSegment) -> None:
        """Use these files of their segment from now on; other readers share them."""
        for kind, source in zip(self._kinds, self._sources, strict=True):
            source.use(files.of(kind))

    def close(self) -> None:
        """Give the open files back; the next question opens them again."""
        for source in self._sources:
            source.close()

    def reach(self, reader: SegmentReader, row: int) -> tuple[int, int]:
        """Begin and end of the next rows without a gap, from `row` on, that a source may say something of."""
        begin = stop = row
        for source in self._sources:
            first, behind = source.reach(reader, row)
            if behind > first and (stop == begin or first < begin):
                begin, stop = first, behind
        return begin, stop

    def answers(
        self,
        reader: SegmentReader,
        rows: Int64Array,
        within: OffsetRange,
        sources: Sequence[AnswerSource] | None = None,
    ) -> Iterator[Answer]:
        """Answers for chunks, in pieces of bounded size: together all `rows`, in their order.

        `sources` are asked, by default those that know something.
        """
        asked = self.knowing(reader, rows) if sources is None else sources
        yield from self._answers(asked or self._sources[-1:], reader, rows, within)

    def knowing(
        self, reader: SegmentReader, rows: Int64Array, *, but: Container[AnswerSource] = ()
    ) -> list[AnswerSource]:
        """The sources that may answer for chunks, except the ones in `but`."""
        if not len(rows):
            return []
        first, last = int(rows[0]), int(rows[-1])
        return [
            source for source in self._sources if source not in but and _says_something(source, reader, first, last)
        ]

    def _answers(
        self, sources: Sequence[AnswerSource], reader: SegmentReader, rows: Int64Array, within: OffsetRange
    ) -> Iterator[Answer]:
        if not len(rows):
            return
        for answer in sources[0].answers(reader, rows, within):
            decided = answer.decided
            few = answer.trusted.all() and are_few(_open_messages(answer), int(answer.records.sum()))
            if len(sources) == 1 or decided.all() or few:
                yield answer
                continue
            borders = np.flatnonzero(np.diff(decided)) + 1
            for start, stop in zip([0, *borders.tolist()], [*borders.tolist(), len(answer.rows)], strict=True):
                part = answer.part(start, stop)
                if decided[start]:
                    yield part
                    continue
                first = 0
                for other in self._answers(sources[1:], reader, part.rows, within):
                    here = part.part(first, first + len(other.rows))
                    first += len(other.rows)
                    finer, coarser = (other, here) if _open_messages(other) < _open_messages(here) else (here, other)
                    yield finer.narrowed(coarser)


def are_few(left: int, messages: int) -> bool:
    """Whether so few of some messages are left that reading them costs less than asking another source."""
    return left * _LITTLE_SHARE <= messages


def _says_something(source: AnswerSource, reader: SegmentReader, first: int, last: int) -> bool:
    """Whether a source may say something of rows from the first to the last one."""
    begin, stop = source.reach(reader, first)
    return begin < stop and begin <= last


def _open_messages(answer: Answer) -> int:
    """How many messages have to be evaluated."""
    return int(answer.records[~answer.trusted].sum() + (~answer.certain).sum())
