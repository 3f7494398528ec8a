"""`headgate lookup`: lookup files of sealed segments, which find the messages with one value of a field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from headgate.cli.derived import build_here, declared_streams, rows_of_streams, tell_reports
from headgate.cli.options import DEFAULT_ROOT, AsJson, Root, StreamText
from headgate.cli.output import write_line, write_note, write_rows
from headgate.cli.units import counted, shown_count, shown_size
from headgate.errors import ConfigError, LogError

if TYPE_CHECKING:
    from headgate.log import Stream

commands = App(name="lookup", help="Lookup files: find the messages with one value of a field, among any number.")

_LISTED = ("stream", "field", "segments", "files")


@commands.command
def declare(
    stream: StreamText,
    /,
    *fields: Annotated[str, Parameter(help="Fields, as in application_properties.customer_id or body.order.customer.")],
    root: Root = DEFAULT_ROOT,
) -> int:
    """Declare lookup fields; they are added to the declared ones. `headgate lookup build` makes their files."""
    from headgate.derived.lookup import declare_lookup
    from headgate.log import resolve_stream

    if not fields:
        raise ConfigError("no field is given; expected some, as in application_properties.customer_id")
    for field in declare_lookup(resolve_stream(stream, root), fields):
        write_line(field)
    return 0


@commands.command
def build(
    *streams: Annotated[str, Parameter(help="Names or folders of streams; by default all with lookup fields.")],
    check: Annotated[
        bool, Parameter(negative=(), help="Read files that are there in full, make damaged ones again.")
    ] = False,
    as_json: AsJson = False,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Make the missing lookup files, and remove files whose segment is gone."""
    from headgate.derived import LOOKUP_FILES

    declared = declared_streams(
        LOOKUP_FILES,
        streams,
        root,
        undeclared="it has no lookup fields; `headgate lookup declare {} FIELD` makes some",
        nothing="no stream has lookup fields; `headgate lookup declare` makes some",
    )
    done = build_here(LOOKUP_FILES, declared, distrust=check)

    def text_of(built: int, segments: int, messages: str) -> str:
        return f"{counted(built, 'file')} built for {counted(segments, 'sealed segment')}, {messages} read"

    return tell_reports(declared, done, text_of, facts=("built", "messages"), as_json=as_json)


@commands.command
def ls(
    stream: Annotated[str | None, Parameter(help="Name or folder of a stream; by default all under --root.")] = None,
    /,
    *,
    as_json: AsJson = False,
    root: Root = DEFAULT_ROOT,
) -> int:
    """The lookup fields, and how many sealed segments have a file of each."""
    rows = rows_of_streams(stream, root, lambda each: _rows(each, as_json=as_json))
    nothing = "no fields are looked up; declare some with: headgate lookup declare STREAM FIELD …"
    write_rows(rows, _LISTED, as_json=as_json, nothing=nothing)
    return 0


@commands.command
def drop(
    stream: StreamText,
    /,
    *fields: Annotated[str, Parameter(help="Fields; without any: all, and all files.")],
    root: Root = DEFAULT_ROOT,
) -> int:
    """Withdraw the declaration of lookup fields. A field's files go with the next build; with all fields, at once."""
    from headgate.derived import LOOKUP_FILES
    from headgate.derived.lookup import drop_lookup
    from headgate.log import resolve_stream

    chosen = resolve_stream(stream, root)
    left = drop_lookup(chosen, fields or None)
    for field in left:
        write_line(field)
    if not left:
        write_line(f"{chosen.name}: no lookup fields; {counted(LOOKUP_FILES.drop_files(chosen), 'file')} deleted")
    return 0


def _rows(stream: Stream, *, as_json: bool) -> list[dict[str, object]]:
    from headgate.derived.lookup import lookup_fields, lookup_file_of

    sealed = [segment for segment in stream.segments() if segment.is_sealed]
    rows: list[dict[str, object]] = []
    for field in lookup_fields(stream):
        sizes = []
        for segment in sealed:
            try:
                file = lookup_file_of(segment, field)
            except LogError as error:
                write_note(f"headgate: {error}")
            else:
                sizes += [] if file is None else [file.size_bytes]
        rows.append(
            {
                "stream": stream.name,
                "field": field,
                "segments": len(sizes) if as_json else f"{shown_count(len(sizes))} of {shown_count(len(sealed))}",
                "files": sum(sizes) if as_json else shown_size(sum(sizes)),
            }
        )
    return rows
