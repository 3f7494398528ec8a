"""`headgate columns`: column files of sealed segments, for queries at column speed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from headgate.cli.derived import build_here, declared_streams, rows_of_streams, tell_reports
from headgate.cli.options import DEFAULT_ROOT, AsJson, Master, Root, StreamText
from headgate.cli.output import write_line, write_note, write_rows
from headgate.cli.units import counted, shown_count, shown_share, shown_size
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from headgate.derived.columns import ColumnDeclaration
    from headgate.log import Stream

commands = App(name="columns", help="Column files: declared columns of sealed segments, as Parquet.")

_INFERRED = ("column", "present", "other", "distinct")
_LISTED = ("stream", "id", "column", "segments", "files")


@commands.command
def declare(
    stream: StreamText,
    columns: Annotated[
        str, Parameter(help="Columns, as in 'region string, price double, p.subject, body.order.total double'.")
    ],
    /,
    *,
    body: Annotated[bool | None, Parameter(help="Keep the body of each message.")] = None,
    other_properties: Annotated[
        bool | None, Parameter(help="Keep application properties without a column, as JSON, to look at.")
    ] = None,
    keep: Annotated[
        Literal["segment", "forever"] | None,
        Parameter(help="Whether a file goes with its segment (the default), or stays."),
    ] = None,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Declare columns; they are added to the declared ones. `headgate columns build` makes their files."""
    from headgate.derived.columns import declare_columns
    from headgate.log import resolve_stream

    declared = declare_columns(
        resolve_stream(stream, root), columns, body=body, other_properties=other_properties, keep=keep
    )
    _write_declaration(declared)
    return 0


@commands.command
def infer(
    stream: StreamText,
    /,
    *,
    messages: Annotated[int, Parameter(help="How many messages to look at, at 32 places of the stream.")] = 10_000,
    as_json: AsJson = False,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Show which columns the messages could have: type, how many have it, how many say more, different values."""
    from headgate.derived.columns import ddl_of, infer_columns
    from headgate.log import resolve_stream

    if messages < 1:
        raise ConfigError(f"--messages: found {messages}, expected 1 or more")
    found, looked_at = infer_columns(resolve_stream(stream, root), messages=messages)
    rows: list[dict[str, object]] = [
        {"column": ddl_of(each.column), "present": each.present, "other": each.other, "distinct": each.distinct}
        for each in found
    ]
    if not as_json:
        for row, each in zip(rows, found, strict=True):
            row |= {"present": shown_share(each.present), "other": shown_share(each.other)}
    write_rows(rows, _INFERRED, as_json=as_json, nothing="no message has a field that a column could hold")
    if not as_json:
        write_note(
            f"{counted(looked_at, 'message')} looked at; `other` is the share whose value is of another type or "
            "unclear, which filters read from the message"
        )
    return 0


@commands.command
def build(
    *streams: Annotated[str, Parameter(help="Names or folders of streams; by default all with declared columns.")],
    local: Annotated[bool, Parameter(negative=(), help="In this process, on one core, without Spark.")] = False,
    check: Annotated[
        bool,
        Parameter(negative=(), help="Read files that are there in full, make damaged ones again; --local only."),
    ] = False,
    master: Master = None,
    as_json: AsJson = False,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Make the missing column files, and remove files whose segment is gone."""
    from headgate.derived import COLUMN_FILES

    if local and master is not None:
        raise ConfigError("--local and --master: found both, expected one of them")
    if check and not local:
        raise ConfigError("--check reads files in this process; give --local, too")
    declared = declared_streams(
        COLUMN_FILES,
        streams,
        root,
        undeclared="it has no declared columns; `headgate columns infer {}` shows what it could have",
        nothing="no stream has declared columns; `headgate columns declare` makes some",
    )
    if local or not declared:
        done = build_here(COLUMN_FILES, declared, distrust=check)
    else:
        from headgate.spark import build_column_files, session

        done = build_column_files(session("headgate columns", master=master), declared)
    return tell_reports(
        declared,
        done,
        lambda built, segments, messages: f"{shown_count(built)} of {counted(segments, 'file')} built, {messages}",
        facts=("built", "messages", "inexact"),
        as_json=as_json,
    )


@commands.command
def ls(
    stream: Annotated[str | None, Parameter(help="Name or folder of a stream; by default all under --root.")] = None,
    /,
    *,
    as_json: AsJson = False,
    root: Root = DEFAULT_ROOT,
) -> int:
    """The declared columns, and how many sealed segments have a file with them."""
    rows = rows_of_streams(stream, root, lambda each: _rows(each, as_json=as_json))
    nothing = "no columns are declared; declare some with: headgate columns declare STREAM 'NAME TYPE, …'"
    write_rows(rows, _LISTED, as_json=as_json, nothing=nothing)
    return 0


@commands.command
def drop(
    stream: StreamText,
    /,
    *names: Annotated[str, Parameter(help="Columns; without any: all, and all files, kept ones, too.")],
    root: Root = DEFAULT_ROOT,
) -> int:
    """Declare columns no more. Files have them until they are built anew; without columns the files are deleted."""
    from headgate.derived import COLUMN_FILES
    from headgate.derived.columns import drop_columns
    from headgate.log import resolve_stream

    chosen = resolve_stream(stream, root)
    left = drop_columns(chosen, names or None)
    if left is not None:
        _write_declaration(left)
        return 0
    write_line(f"{chosen.name}: no columns; {counted(COLUMN_FILES.drop_files(chosen), 'file')} deleted")
    return 0


def _write_declaration(declared: ColumnDeclaration) -> None:
    from headgate.derived.columns import ddl_of

    for field_id, column in declared.columns:
        write_line(f"{field_id}: {ddl_of(column)}")
    for name, is_kept in (("other_properties", declared.other_properties), ("body", declared.body)):
        if is_kept:
            write_line(name)
    if declared.keep == "forever":
        write_note("files are kept for ever: they stay when retention deletes their segment")


def _rows(stream: Stream, *, as_json: bool) -> list[dict[str, object]]:
    from headgate.derived.columns import column_files, ddl_of, declaration_of

    declared = declaration_of(stream)
    if declared is None:
        return []
    files = column_files(stream)
    there = {file.segment for file in files}
    sealed = len({segment.first_chunk_id for segment in stream.segments() if segment.is_sealed} | there)
    rows: list[dict[str, object]] = []
    for field_id, column in declared.columns:
        having = [file for file in files if field_id in (each for each, _ in file.columns)]
        size = sum(file.column_bytes(column.name) for file in having)
        rows.append(
            {
                "stream": stream.name,
                "id": field_id,
                "column": ddl_of(column),
                "segments": f"{len(having)} of {sealed}" if not as_json else len(having),
                "files": shown_size(size) if not as_json else size,
            }
        )
    return rows
