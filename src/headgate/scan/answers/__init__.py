"""Answers of derived files about messages that are not read yet: one interface to all kinds.

    Answers, Purpose, are_few                   what is known for one request, best source first
    FilesOfSegment                              what all readers of an open segment share of it
    SourceKind, SegmentFiles, ChunkTest         one kind of derived files, as `headgate.derived` hands it to a reader
    Answer, AnswerSource, pieces, in_a_row      what one source says of some chunks; `asked_offsets`
    wanted_entries, read_entries, cut           read only the messages that an answer names
    WantedEntries

Nothing here knows which kinds there are.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.scan.answers.answer import (
        MOST_OFFSETS,
        Answer,
        AnswerSource,
        ChunkTest,
        Purpose,
        SegmentFiles,
        SourceKind,
        asked_offsets,
        in_a_row,
        pieces,
    )
    from headgate.scan.answers.entries import WantedEntries, cut, read_entries, wanted_entries
    from headgate.scan.answers.sources import Answers, FilesOfSegment, are_few
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
