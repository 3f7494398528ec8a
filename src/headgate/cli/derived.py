"""Common parts of the commands for derived files: the choice of streams, reports, lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.cli.options import named_streams
from headgate.cli.output import write_json, write_line, write_note
from headgate.cli.units import counted, shown_size
from headgate.clock import now_ms
from headgate.errors import LogError, PreconditionFailedError

if TYPE_CHECKING:
    from headgate.derived import BuildReport, DerivedKind
    from headgate.log import Stream

Report = TypeVar("Report")


def declared_streams(
    kind: DerivedKind[Any, Any], texts: Sequence[str], root: Path, *, undeclared: str | None, nothing: str
) -> list[Stream]:
    """The streams to build: the named ones, else all under the root that declare the kind.

    `undeclared` refuses a named stream that declares nothing, `{}` being its name; None: it is built. `nothing` is
    noted where no stream is left.
    """
    chosen = named_streams(texts, root)
    found = chosen
    if not texts or undeclared is not None:
        found = [each for each in chosen if kind.declared(each) is not None]
    for each in chosen if texts else []:
        if undeclared is not None and each not in found:
            raise PreconditionFailedError(undeclared.format(each.name), subject=each.name)
    if not found:
        write_note(f"headgate: {nothing}")
    return found


def build_here(
    kind: DerivedKind[Any, Report], streams: Sequence[Stream], *, distrust: bool = False
) -> dict[Path, list[Report]]:
    """Build the files of some streams in this process; the reports of each folder's segments."""
    return {each.path.absolute(): list(kind.build(each, now_ms=now_ms(), distrust=distrust)) for each in streams}


def tell_reports(
    streams: Sequence[Stream],
    done: dict[Path, list[BuildReport]],
    text_of: Callable[[int, int, str], str],
    *,
    facts: Sequence[str],
    as_json: bool,
) -> int:
    """Write the report of each stream's build, and a note for each damaged segment. Gives the exit code.

    `text_of` says how many files were built, of how many segments, of which messages; `facts` are those of reports that
    JSON has, beside the bytes.
    """
    troubles: list[str] = []
    for each in streams:
        reports = done[each.path.absolute()]
        troubles += [report.trouble for report in reports if report.trouble]
        total = {fact: sum(getattr(report, fact) for report in reports) for fact in facts}
        size = sum(report.size_bytes for report in reports)
        if as_json:
            write_json({"stream": each.name, "segments": len(reports), **total, "bytes": size})
        else:
            text = text_of(total["built"], len(reports), counted(total["messages"], "message"))
            write_line(f"{each.name}: {text} ({shown_size(size)})")
    for trouble in troubles:
        write_note(f"headgate: no file of a damaged segment: {trouble}")
    return 1 if troubles else 0


def rows_of_streams(
    stream: str | None, root: Path, rows_of: Callable[[Stream], list[dict[str, object]]]
) -> list[dict[str, object]]:
    """The rows of one stream, or of all below a root; a stream that cannot be read is noted and left out."""
    rows: list[dict[str, object]] = []
    for each in named_streams(() if stream is None else (stream,), root):
        try:
            rows += rows_of(each)
        except LogError as error:
            write_note(f"headgate: {error}")
    return rows
