"""What each kind of derived knowledge would spare a read, alone: for those who ask why a read costs what it costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.log import ChunkType, Stream
from headgate.scan.answers import Answers
from headgate.scan.plan import rows_within
from headgate.scan.request import OffsetRange, ScanCounters, ScanRequest
from headgate.scan.stage_one import ChunkSelector


@dataclass(slots=True)
class Saving:
    """Of a read of `chunks` chunks and `messages` messages, what one source alone spares.

    `chunks_skipped` are not read at all, `bytes_skipped` long; `messages_decided` are not evaluated, those of skipped
    chunks among them.
    """

    source: str
    chunks: int = 0
    messages: int = 0
    chunks_skipped: int = 0
    bytes_skipped: int = 0
    messages_decided: int = 0


def savings(stream: Stream, request: ScanRequest, within: OffsetRange) -> list[Saving]:
    """What Bloom filters, and each source of answers that is asked, would spare a read, in the order of asking.

    Cost: chunk headers, and what the sources read of their files. Errors: those of `ChunkSelector.select`.
    """
    bloom = Saving("Bloom filters")
    selector, answers = ChunkSelector(stream, request), Answers(request)
    found = [bloom, *(Saving(source.name) for source in answers.sources)]
    for segment in stream.segments():
        if segment.first_chunk_id >= within.stop or (segment.stop_offset or within.stop) <= within.start:
            continue
        with segment.open() as reader:
            table = reader.chunks()
            first, stop = rows_within(table, within)
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
