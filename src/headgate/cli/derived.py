"""What the commands for derived files share: which streams are built, where, and what is told; the streams listed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.cli.output import write_json, write_line, write_note
from headgate.clock import now_ms
from headgate.errors import ConfigError, LogError, PreconditionFailedError

if TYPE_CHECKING:
    from headgate.derived import BuildReport, DerivedKind
    from headgate.log import Stream

Report = TypeVar("Report")


def declared_streams(
    kind: DerivedKind[Any, Any], texts: Sequence[str], root: Path, *, undeclared: str | None, nothing: str
) -> list[Stream]:
    """The streams to build: those that are named, else all under the root that declare the kind.

    `undeclared` refuses a named stream that declares nothing, `{}` being its name; None: it is built. `nothing` is
    noted where no stream is left.
    """
    from headgate.log import list_streams, resolve_stream

    chosen = [resolve_stream(text, root) for text in texts] if texts else list_streams(root)
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


def check_place(option: str, *, is_here: bool, master: str | None) -> None:
    """Refuse `--master` beside the option that builds in this process."""
    if is_here and master is not None:
        raise ConfigError(f"{option} and --master: found both, expected one of them")


def tell_reports(
    streams: Sequence[Stream],
    done: dict[Path, list[BuildReport]],
    facts_of: Callable[[list[BuildReport]], dict[str, object]],
    text_of: Callable[[list[BuildReport]], str],
    *,
    as_json: bool,
) -> int:
    """Write what was built of each stream, and a note for each damaged segment. Gives the exit code."""
    for each in streams:
        reports = done[each.path.absolute()]
        if as_json:
            write_json({"stream": each.name, "segments": len(reports), **facts_of(reports)})
        else:
            write_line(f"{each.name}: {text_of(reports)}")
    return note_troubles(report.trouble for each in streams for report in done[each.path.absolute()])


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
