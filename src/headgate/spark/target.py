"""The stream that a write goes to, in the form that tasks are given, and the reports of tasks."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import WriterCommitMessage

from headgate import clock
from headgate.derived.columns import complete_declaration, ddl_of, declare_columns, extended
from headgate.errors import ConfigError, StreamExistsError, StreamReadOnlyError
from headgate.log import (
    PRIVATE_FOLDER,
    Output,
    StagedChunks,
    StagedFile,
    StagingFile,
    Stream,
    StreamArguments,
    find_stream,
    output_of,
    parse_compression,
    root_of,
    stream_folder,
)
from headgate.log.format import Compression
from headgate.message.body_schema import check_body_fields
from headgate.spark.options import SinkOptions

if TYPE_CHECKING:
    from headgate.spark.server_staging import StagedMessages

WAIT = clock.patient(30.0)
"""Seconds to wait for other writers of a stream: a server releases it ten seconds after the last publish."""


@dataclass(slots=True)
class StagedRows(WriterCommitMessage):
    """The staged rows of one task for `query`; `without_value` counts messages without filter value."""

    partition: int
    query: str
    staged: tuple[StagedChunks, ...] | StagedMessages | None
    without_value: int


@dataclass(frozen=True, slots=True)
class Target:
    """An existing stream to write to. Picklable; `root` is the folder of its commits. Real paths."""

    root: Path
    path: Path
    identity: str
    filter_size_bytes: int
    filter_source: str | None
    compression: Compression
    durable: bool
    max_segment_size_bytes: int
    max_segment_chunks: int

    def staged_file(self, *, query: str, name: str, file: StagingFile | None = None) -> StagedFile:
        """The writer of one task's chunks: into new files, or into `file`."""
        return StagedFile(
            self.root,
            query=query,
            name=name,
            filter_size_bytes=self.filter_size_bytes,
            max_file_bytes=self.max_segment_size_bytes,
            max_file_chunks=self.max_segment_chunks,
            compression=self.compression,
            file=file,
        )

    def output(self, staged: Sequence[StagedChunks]) -> Output:
        """The output of a batch for this stream."""
        return output_of(self.root, self.path, staged, identity=self.identity, filter_source=self.filter_source)

    def warn_without_value(self, query: str, count: int) -> None:
        """One line per query; see `warn_without_value`."""
        warn_without_value(self.root, self.path.name, query=query, count=count)


def warn_without_value(root: Path, stream: str, *, query: str, count: int) -> None:
    """One line per query on the standard error of Spark; that a query was warned is kept as an empty file."""
    marker = root / PRIVATE_FOLDER / "warned" / query
    try:
        marker.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return
    # Spark replaces sys.stderr while it calls a sink, and shows its content only with an error.
    print(
        f"headgate: {count} messages written to stream {stream} have no filter value, so stage 1 cannot skip their "
        "chunks; name its source with the option filter_value, or filter_source when the stream is made",
        file=sys.__stderr__,
        flush=True,
    )


def open_target(options: SinkOptions, *, body_schema: str | None = None) -> Target:
    """The stream of the options, created if it is missing.

    `body_schema` is that of the messages that are copied into it: a new stream has it unless the options give another.
    Raises ConfigError if an option contradicts the existing stream, StreamReadOnlyError for a foreign one.
    """
    # Not `resolve_stream`, whose error compares the name with all others: with a thousand new streams, a second or two.
    stream = find_stream(options.stream, options.root)
    if stream is None:
        stream = _create(options, options.body_schema or body_schema)
    else:
        _check_same(stream, options)
    if stream.settings is None:
        raise StreamReadOnlyError(
            "the stream was written by another broker and is only read; `headgate stream adopt` makes it ours",
            path=stream.path,
        )
    path = stream.path.resolve()
    return Target(
        root=root_of(path),
        path=path,
        identity=stream.identity,
        filter_size_bytes=stream.filter_size_bytes,
        filter_source=stream.settings.filter_source,
        compression=parse_compression(options.compression),
        durable=options.durability == "disk",
        max_segment_size_bytes=stream.settings.arguments.max_segment_size_bytes,
        max_segment_chunks=stream.settings.arguments.max_segment_chunks,
    )


def check_fields_of_bodies(options: SinkOptions, body_schema: str | None) -> None:
    """Raise ConfigError if the options of a new stream look into bodies that its schema decodes, as if they were JSON.

    Before a stream is made.
    """
    try:
        check_body_fields(body_schema, filter_source=options.filter_source, columns=options.columns)
    except ConfigError as error:
        raise ConfigError(f"headgate sink: {error}") from error


def _create(options: SinkOptions, body_schema: str | None) -> Stream:
    check_fields_of_bodies(options, body_schema)
    name = options.stream
    folder = Path(name) if os.sep in name else stream_folder(options.root, name)
    given: dict[str, Any] = {
        "filter_size_bytes": options.filter_size_bytes,
        "max_segment_size_bytes": options.max_segment_size_bytes,
        "max_length_bytes": options.max_length_bytes,
        "max_age_ms": options.max_age_ms,
        "body_schema": body_schema,
    }
    try:
        made = Stream.create(
            folder,
            name=folder.name if os.sep in name else name,
            now_ms=clock.now_ms(),
            arguments=StreamArguments(**{option: value for option, value in given.items() if value is not None}),
            filter_source=options.filter_source,
            # A flush would be most of the cost of making it, and messages written into it are not flushed either.
            flushed=options.durability == "disk",
            wait=WAIT,
        )
        if options.columns is not None:
            declare_columns(made, options.columns)
        return made
    except StreamExistsError:
        # Another query made it in the meantime.
        stream = Stream.open(folder)
        _check_same(stream, options)
        return stream


def _check_same(stream: Stream, options: SinkOptions) -> None:
    if stream.settings is None:
        return
    arguments = stream.settings.arguments
    for option, wanted, found in (
        ("filter_size_bytes", options.filter_size_bytes, arguments.filter_size_bytes),
        ("max_segment_size_bytes", options.max_segment_size_bytes, arguments.max_segment_size_bytes),
        ("max_length_bytes", options.max_length_bytes, arguments.max_length_bytes),
        ("max_age", options.max_age_ms, arguments.max_age_ms),
        ("filter_source", options.filter_source, stream.settings.filter_source),
    ):
        if wanted is not None and wanted != found:
            raise ConfigError(
                f"headgate sink option {option}: found {wanted!r}, but stream {stream.name!r} is there already with "
                f"{found!r}; leave the option out, or write to another stream"
            )
    if options.body_schema is not None and options.body_schema != stream.body_schema:
        raise ConfigError(
            f"headgate sink option body_schema: stream {stream.name!r} is there already, "
            f"{'with another schema' if stream.body_schema else 'without a schema'}; leave the option out, or write to "
            "another stream"
        )
    if options.columns is not None:
        _check_columns(stream, options.columns)


def _check_columns(stream: Stream, wanted: str) -> None:
    declaration = complete_declaration(stream, wanted)
    try:
        is_same = extended(declaration, wanted) == declaration
    except ConfigError as error:
        raise ConfigError(f"headgate sink option columns: stream {stream.name!r} is there already: {error}") from error
    if not is_same:
        found = "none" if declaration is None else ", ".join(map(ddl_of, declaration.declared))
        raise ConfigError(
            f"headgate sink option columns: found {wanted!r}, but stream {stream.name!r} is there already with "
            f"{found}; leave the option out, or add the columns with `headgate columns declare`"
        )
