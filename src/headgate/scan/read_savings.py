"""How much each kind of derived files alone would spare a read: explains the cost of a read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.log import ChunkType, Stream
from headgate.scan.answers import Answers
from headgate.scan.counters import ScanCounters
from headgate.scan.offset_range import OffsetRange
from headgate.scan.request import ScanRequest
from headgate.scan.segments import opened_within
from headgate.scan.stage_one import ChunkSelector


@dataclass(slots=True)
class Saving:
    """The saving by one source alone, in a read of `chunks` chunks and `messages` messages.

    `chunks_skipped` are not read at all, `bytes_skipped` long; `messages_decided` are not evaluated, including those of
    skipped chunks.
    """

    source: str
    chunks: int = 0
    messages: int = 0
    chunks_skipped: int = 0
    bytes_skipped: int = 0
    messages_decided: int = 0


def savings(stream: Stream, request: ScanRequest, within: OffsetRange) -> list[Saving]:
    """The savings of Bloom filters and of each source of answers, each alone, for a read, in the order of asking.

    Cost: reading chunk headers and parts of the sources' files. Errors: those of `ChunkSelector.select`.
    """
    bloom = Saving("Bloom filters")
    selector, answers = ChunkSelector(stream, request), Answers(request)
    found = [bloom, *(Saving(source.name) for source in answers.sources)]
    for reader, first, stop in opened_within(stream, within):
        table = reader.chunks()
        rows = np.flatnonzero(table.type[first:stop] == ChunkType.USER) + first
        sizes = reader.stop_positions() - table.position
        counts = reader.next_chunk_ids() - table.chunk_id
        for each in found:
            each.chunks += len(rows)
            each.messages += int(counts[rows].sum())
        left = selector.select(reader, first, stop, ScanCounters())
        skipped = np.setdiff1d(rows, left)
        bloom.chunks_skipped += len(skipped)
        bloom.bytes_skipped += int(sizes[skipped].sum())
        bloom.messages_decided += int(counts[skipped].sum())
        for saving, source in zip(found[1:], answers.sources, strict=True):
            for answer in source.answers(reader, rows, within):
                ruled_out = answer.ruled_out
                saving.chunks_skipped += int(ruled_out.sum())
                saving.bytes_skipped += int(sizes[answer.rows[ruled_out]].sum())
                saving.messages_decided += int(answer.records[answer.trusted].sum() - (~answer.certain).sum())
    answers.close()
    return found
