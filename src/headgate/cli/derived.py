"""The common part of the commands for derived files: the streams that they list, and notes about damage."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.cli.output import write_note
from headgate.errors import LogError

if TYPE_CHECKING:
    from headgate.log import Stream


def rows_of_streams(
    stream: str | None, root: Path, rows_of: Callable[[Stream], list[dict[str, object]]]
) -> list[dict[str, object]]:
    """The rows of one stream, or of all below a root; a stream that cannot be read is noted and left out."""
    from headgate.log import list_streams, resolve_stream

    rows: list[dict[str, object]] = []
    for each in list_streams(root) if stream is None else [resolve_stream(stream, root)]:
        try:
            rows += rows_of(each)
        except LogError as error:
            write_note(f"headgate: {error}")
    return rows


def note_troubles(troubles: Iterable[str]) -> int:
    """Write a note for each segment without a file, with the reason; empty texts are skipped. Gives the exit code."""
    found = [trouble for trouble in troubles if trouble]
    for trouble in found:
        write_note(f"headgate: no file of a damaged segment: {trouble}")
    return 1 if found else 0
