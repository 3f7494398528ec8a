"""The sources of answers behind one face: who is asked, in which order, and which answer counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from headgate.log import SegmentReader
from headgate.scan.answers.answer import Answer, AnswerSource
from headgate.scan.match_index import MatchIndex, SegmentIndex
from headgate.scan.request import OffsetRange, ScanRequest

Int64Array = NDArray[np.int64]


class SegmentKnowledge:
    """What is known of an open segment, for all its readers, in any thread."""

    __slots__ = ("match_index",)

    def __init__(self, reader: SegmentReader) -> None:
        self.match_index = SegmentIndex(reader)

    def look(self) -> bool:
        """Look whether there is anything to ask of; false: nobody knows anything of this segment."""
        return self.match_index.look() is not None or self.match_index.is_there


class Answers:
    """What is known of chunks for one request, before a message is read.

    Each chunk is answered for by the first source that can be trusted about it, in order of preference. Not for several
    threads at once.
    """

    def __init__(self, request: ScanRequest) -> None:
        self._match_index = MatchIndex(request)
        sources: list[AnswerSource] = [self._match_index]
        self._sources = [source for source in sources if source.is_asked]

    @property
    def is_asked(self) -> bool:
        """Whether there is any use in asking."""
        return bool(self._sources)

    def use(self, known: SegmentKnowledge) -> None:
        """Ask this of its segment from now on: it is shared with other readers."""
        self._match_index.use(known.match_index)

    def close(self) -> None:
        """Give the open files back; the next question opens them again."""
        for source in self._sources:
            source.close()

    def reach(self, reader: SegmentReader, row: int) -> tuple[int, int]:
        """The next rows without a gap, from `row` on, that a source may say something of: begin and end."""
        begin = stop = row
        for source in self._sources:
            first, behind = source.reach(reader, row)
            if behind > first and (stop == begin or first < begin):
                begin, stop = first, behind
        return begin, stop

    def answers(self, reader: SegmentReader, rows: Int64Array, within: OffsetRange) -> Iterator[Answer]:
        """What is known of chunks, in pieces of bounded size, together all `rows`, in their order."""
        yield from self._answers(self._sources, reader, rows, within)

    def _answers(
        self, sources: Sequence[AnswerSource], reader: SegmentReader, rows: Int64Array, within: OffsetRange
    ) -> Iterator[Answer]:
        if not len(rows):
            return
        for answer in sources[0].answers(reader, rows, within):
            if len(sources) == 1 or answer.trusted.all():
                yield answer
                continue
            borders = np.flatnonzero(np.diff(answer.trusted)) + 1
            for start, stop in zip([0, *borders.tolist()], [*borders.tolist(), len(answer.rows)], strict=True):
                if answer.trusted[start]:
                    yield answer.part(start, stop)
                else:
                    yield from self._answers(sources[1:], reader, answer.rows[start:stop], within)
