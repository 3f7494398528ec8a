"""The explanation of a filter or a rule for one message: finding the message, and showing the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.cli.options import json_of
from headgate.cli.output import write_line
from headgate.cli.publish import message_of_json, taken_filter_value
from headgate.cli.units import shown_count, shown_size
from headgate.errors import ConfigError, OffsetOutOfRangeError
from headgate.visible import visible

if TYPE_CHECKING:
    from headgate.evaluate import Clause, Explanation
    from headgate.log import Stream
    from headgate.scan import Saving


def given_message(text: str) -> tuple[bytes, bytes | None]:
    """The encoded message of `--message`, and the filter value that it says beside."""
    description = json_of(text, "--message")
    if not isinstance(description, dict):
        raise ConfigError("--message: expected an object")
    value = taken_filter_value(description)
    return message_of_json(description).encode(), None if value is None else value.encode()


def message_at(stream: Stream, offset: int) -> tuple[bytes, int]:
    """The message at an offset of a stream, and when it arrived. Raises OffsetOutOfRangeError, LogError."""
    from headgate.log import OffsetSpecification
    from headgate.scan import Cursor, ScanRequest

    everything = ScanRequest()
    start = OffsetSpecification.offset(offset)
    with Cursor(stream, everything, start=start, now_ms=0, stop_offset=offset + 1) as cursor:
        while (batch := cursor.read(0)) is not None:
            for row in range(len(batch)):
                if int(batch.offsets[row]) == offset:
                    return batch.messages.message(row), int(batch.timestamps_ms[row])
    raise OffsetOutOfRangeError(
        f"no message at offset {offset}; the stream has offsets {stream.first_offset()} to {stream.next_offset() - 1}, "
        "and some of them belong to its bookkeeping",
        path=stream.place,
    )


def explanation_row(explanation: Explanation, stage: str, spared: Sequence[Saving]) -> dict[str, object]:
    """An explanation as JSON."""

    def shown(clause: Clause) -> dict[str, object]:
        return {
            "text": clause.text,
            "span": clause.span,
            "verdict": clause.verdict.name.lower(),
            "note": clause.note,
            "operands": [shown(operand) for operand in clause.operands],
        }

    return {
        "verdict": explanation.verdict.name.lower(),
        "stage": stage,
        "clauses": None if explanation.clauses is None else shown(explanation.clauses),
        "reasons": explanation.reasons,
        "warnings": explanation.warnings,
        "stage_1": None
        if not spared
        else {
            "chunks_examined": spared[0].chunks,
            "chunks_skipped": spared[0].chunks_skipped,
            "bytes_skipped": spared[0].bytes_skipped,
        },
        "spared": [
            {
                "source": each.source,
                "chunks_skipped": each.chunks_skipped,
                "bytes_skipped": each.bytes_skipped,
                "messages_decided": each.messages_decided,
                "messages": each.messages,
            }
            for each in spared
        ],
    }


def write_explanation(explanation: Explanation, stage: str, spared: Sequence[Saving]) -> None:
    """Show an explanation to people."""
    verdict = explanation.verdict.name.lower()
    write_line(f"{verdict}: the message {'matches' if verdict == 'true' else 'does not match'}")
    if explanation.clauses is not None:
        _write_clause(explanation.clauses, depth=1)
    for reason in explanation.reasons:
        write_line(visible(f"because {reason}"))
    for warning in explanation.warnings:
        write_line(visible(f"warning: {warning}"))
    write_line(f"decided in {stage}")
    if spared:
        write_line(
            f"stage 1 over the stream: {shown_count(spared[0].chunks_skipped)} of {shown_count(spared[0].chunks)} "
            f"chunks are skipped unread ({shown_size(spared[0].bytes_skipped)})"
        )
    for each in (saving for saving in spared[1:] if saving.messages_decided):
        write_line(
            f"{each.source} alone: {shown_count(each.messages_decided)} of {shown_count(each.messages)} messages are "
            f"decided, {shown_count(each.chunks_skipped)} chunks skipped unread ({shown_size(each.bytes_skipped)})"
        )


def _write_clause(clause: Clause, *, depth: int) -> None:
    note = f"   -- {clause.note}" if clause.note else ""
    write_line(visible(f"{'  ' * depth}{clause.verdict.name.lower():<8}{' '.join(clause.text.split())}{note}"))
    for operand in clause.operands:
        _write_clause(operand, depth=depth + 1)
