"""`headgate stream`: the parts of a stream, in any folder, also one that RabbitMQ wrote."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import App, Parameter, validators

from headgate.cli.archive import archive
from headgate.cli.options import (
    DEFAULT_ROOT,
    AsJson,
    LockTimeout,
    Root,
    SegmentSize,
    StreamText,
    naming_option,
    naming_settings,
)
from headgate.cli.output import write_facts, write_json, write_line, write_note, write_rows, write_table
from headgate.cli.remote import (
    DEFAULT_LOCATION,
    Location,
    change_stream,
    create_stream,
    delete_at_server,
    delete_where_served,
    listed_streams,
    stream_details,
)
from headgate.cli.stream_chunks import dump, repair, verify
from headgate.cli.units import duration_ms, share, shown_share, shown_size, size_bytes
from headgate.clock import now_ms, shown_time
from headgate.errors import ConfigError, LogError

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.log import BloomSizing

Remote: TypeAlias = Annotated[
    str | None, Parameter(help="Place in object storage for sealed segments: s3://bucket/prefix, abfs://…, hdfs://….")
]
RemoteAfter: TypeAlias = Annotated[
    str | None, Parameter(help="With --remote: move a segment when its last chunk is so old, such as 1h; else at once.")
]
LocalBytes: TypeAlias = Annotated[
    str | None, Parameter(help="With --remote: keep about this much of the moved segments here, too, such as 10GB.")
]

commands = App(name="stream", help="Create streams and look into them.")
commands.command(dump)
commands.command(verify)
commands.command(repair)
commands.command(archive)


@commands.command
def create(
    name: Annotated[str, Parameter(help="Name of the new stream.")],
    /,
    *,
    filter_size: Annotated[int | None, Parameter(help="Bytes of the Bloom filter of a chunk, 16 to 255.")] = None,
    max_segment_size: SegmentSize = None,
    max_length: Annotated[
        str | None, Parameter(help="Keep about this much, such as 20GB; the rest is deleted.")
    ] = None,
    max_age: Annotated[str | None, Parameter(help="Keep messages this long, such as 7d.")] = None,
    max_segment_age: Annotated[
        str | None, Parameter(help="Seal a segment that began so long ago, such as 1h, when the next message comes.")
    ] = None,
    initial_offset: Annotated[
        int | None, Parameter(help="Offset of the first message, to go on where another stream ended.")
    ] = None,
    filter_source: Annotated[
        str | None, Parameter(help="Field that filter values come from, such as application_properties.region.")
    ] = None,
    body_schema: Annotated[
        str | None,
        Parameter(
            help="Schema of the bodies, for paths into them: FILE.avsc, FILE.desc#package.Message, or a folder of such "
            "files, each under the id of a registry. Kept with the stream for ever."
        ),
    ] = None,
    drop_settled: Annotated[
        bool, Parameter(negative=(), help="Delete segments that no subscription needs any more.")
    ] = False,
    remote: Remote = None,
    remote_after: RemoteAfter = None,
    local_bytes: LocalBytes = None,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Create an empty stream."""
    from headgate.log import (
        DEFAULT_FILTER_SIZE_BYTES,
        DEFAULT_MAX_SEGMENT_SIZE_BYTES,
        Stream,
        StreamArguments,
        stream_folder,
    )
    from headgate.message import parse_field

    if filter_source is not None:
        with naming_option("--filter-source"):
            parse_field(filter_source)
    declared, schema = None, None
    if body_schema is not None:
        # Imported here: the libraries of the formats are slow to import.
        from headgate.message.body_schema import check_filter_source, read_body_schema

        with naming_option("--body-schema"):
            declared = read_body_schema(body_schema)
            schema = declared.text
        with naming_option("--filter-source"):
            check_filter_source(filter_source, schema)
    segment_bytes = None if max_segment_size is None else size_bytes(max_segment_size, option="--max-segment-size")
    length_bytes = None if max_length is None else size_bytes(max_length, option="--max-length")
    age_ms = None if max_age is None else duration_ms(max_age, option="--max-age")
    segment_age_ms = None if max_segment_age is None else duration_ms(max_segment_age, option="--max-segment-age")
    arguments = StreamArguments(
        filter_size_bytes=DEFAULT_FILTER_SIZE_BYTES if filter_size is None else filter_size,
        max_segment_size_bytes=DEFAULT_MAX_SEGMENT_SIZE_BYTES if segment_bytes is None else segment_bytes,
        max_length_bytes=length_bytes,
        max_age_ms=age_ms,
        max_segment_age_ms=segment_age_ms,
        drops_settled=drop_settled,
        initial_offset=initial_offset or 0,
        remote=remote,
        remote_after_ms=0 if remote_after is None else duration_ms(remote_after, option="--remote-after"),
        local_bytes=0 if local_bytes is None else size_bytes(local_bytes, option="--local-bytes"),
        body_schema=schema,
    )
    with naming_settings(_OPTION_OF):
        arguments.check()
    if location.is_server:
        given = {
            "stream-filter-size-bytes": filter_size,
            "stream-max-segment-size-bytes": segment_bytes,
            "max-length-bytes": length_bytes,
            "max-age": None if age_ms is None else f"{max(1, age_ms // 1000)}s",
            "headgate-max-segment-age": None if segment_age_ms is None else f"{max(1, segment_age_ms // 1000)}s",
            "stream-initial-offset": initial_offset,
            "headgate-filter-source": filter_source,
            "headgate-drop-settled": "true" if drop_settled else None,
        }
        told: dict[str, object] = {key: value for key, value in given.items() if value is not None}
        if declared is not None:
            # Too long for the stream protocol, whose servers other than Headgate know none.
            location.management().create_stream(name, told, declared)
        else:
            with location.client() as client:
                create_stream(client, name, told, location)
        if remote is not None:
            # No client may say it, administrators may.
            location.management().change_stream(name, _remote_changes(remote, remote_after, local_bytes))
        write_line(name)
        return 0
    made = Stream.create(
        stream_folder(location.root, name), name=name, now_ms=now_ms(), arguments=arguments, filter_source=filter_source
    )
    write_line(str(made.path))
    return 0


_NONE = "none"


@commands.command
def change(
    stream: StreamText,
    /,
    *,
    max_length: Annotated[
        str | None, Parameter(help="Keep about this much, such as 20GB, or `none`: no limit.")
    ] = None,
    max_age: Annotated[str | None, Parameter(help="Keep messages this long, such as 7d, or `none`: for ever.")] = None,
    max_segment_size: SegmentSize = None,
    max_segment_age: Annotated[
        str | None, Parameter(help="Seal a segment that began so long ago, such as 1h, or `none`: never.")
    ] = None,
    drop_settled: Annotated[bool | None, Parameter(help="Delete segments that no subscription needs any more.")] = None,
    remote: Remote = None,
    remote_after: RemoteAfter = None,
    local_bytes: LocalBytes = None,
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Change the limits of a stream and where its segments lie; messages beyond the limits are deleted at once.

    Clients that declare the stream with arguments have to declare it with these from then on. While a server serves
    --root, it is asked to, as --user with --password.
    """
    given: dict[str, object] = {}
    if max_length is not None:
        given["max-length-bytes"] = _size(max_length, "--max-length")
    if max_age is not None:
        given["max-age"] = _age(max_age, "--max-age")
    if max_segment_size is not None:
        given["stream-max-segment-size-bytes"] = _size(max_segment_size, "--max-segment-size")
    if max_segment_age is not None:
        given["headgate-max-segment-age"] = _age(max_segment_age, "--max-segment-age")
    if drop_settled is not None:
        given["headgate-drop-settled"] = drop_settled
    given |= _remote_changes(remote, remote_after, local_bytes)
    if not given:
        raise ConfigError("found nothing to change: give --max-length, --max-age or another option")
    with naming_settings(_OPTION_OF):
        arguments = change_stream(location, stream, given, lock_timeout_s=lock_timeout)
    write_facts({name: arguments.get(name, "none") for name in given})
    return 0


def _age(text: str, option: str) -> str | None:
    return None if text == _NONE else f"{max(1, duration_ms(text, option=option) // 1000)}s"


def _size(text: str, option: str) -> int | None:
    return None if text == _NONE else size_bytes(text, option=option)


def _remote_changes(remote: str | None, remote_after: str | None, local_bytes: str | None) -> dict[str, object]:
    """The changed arguments of a stream; None as a value removes one."""
    changes: dict[str, object] = {}
    if remote is not None:
        changes["headgate-remote"] = None if remote == _NONE else remote
    if remote_after is not None:
        changes["headgate-remote-after"] = _age(remote_after, "--remote-after")
    if local_bytes is not None:
        changes["headgate-local-bytes"] = _size(local_bytes, "--local-bytes")
    return changes


_OPTION_OF = {
    "filter_size_bytes": "--filter-size",
    "max_segment_size_bytes": "--max-segment-size",
    "max_length_bytes": "--max-length",
    "max_age_ms": "--max-age",
    "max_segment_age_ms": "--max-segment-age",
    "initial_offset": "--initial-offset",
    "remote": "--remote",
    "remote_after_ms": "--remote-after",
    "local_bytes": "--local-bytes",
}
"""The options by the names of the arguments of a stream."""


@commands.command
def move(stream: StreamText, /, *, as_json: AsJson = False, location: Location = DEFAULT_LOCATION) -> int:
    """Move the sealed segments of a stream to object storage now, once, and apply its limits to what is there.

    A server does so by itself. Files that are there as well go from the folder, unless somebody writes the stream, who
    then does it.
    """
    if location.is_server:
        raise ConfigError("--server: a server moves segments by itself; this works in a folder, as of --root")
    from headgate.errors import StreamLockedError
    from headgate.log import Writer, move_segments, remote_state, resolve_stream

    found = resolve_stream(stream, location.root)
    report = move_segments(found, now_ms=now_ms())
    if report is None:
        write_note("headgate: another process moves the segments of this stream just now")
    released: int | None = None
    try:
        with Writer.open(found, now_ms=now_ms()) as writer:
            released = writer.release_local()
    except StreamLockedError as error:
        write_note(f"headgate: what was moved stays in the folder, too, until its writer removes it: {error}")
    state = remote_state(found)
    facts: dict[str, object] = {
        "moved_segments": 0 if report is None else report.moved,
        "moved_derived_files": 0 if report is None else report.derived,
        "moved_bytes": 0 if report is None else report.moved_bytes,
        "deleted_segments": 0 if report is None else report.deleted,
        "released_segments": released,
        **({} if state is None else state.facts()),
    }
    if as_json:
        write_json(facts)
    else:
        write_facts(facts)
    return 0 if report is not None else 1


@commands.command
def ls(*, as_json: AsJson = False, location: Location = DEFAULT_LOCATION) -> int:
    """List the streams under --root, or the streams of a Headgate server."""
    if not location.is_server:
        from headgate.log import check_root, storage_root

        check_root(location.root)
        place = storage_root(location.root)
        empty = _NO_STREAMS.format(f"under {location.root}", f"--root {location.root}")
        if place is not None:
            empty = f"no streams at {place}: a stream is there once its first segment was moved"
        errors: list[LogError] = []
        rows = _streams_of_folder(location.root, errors)
        write_rows(rows, as_json=as_json, nothing="" if errors else empty)
        for error in errors:
            write_note(f"headgate: {error}")
        return 1 if errors else 0
    with location.client() as client:
        rows, damaged = listed_streams(client, location)
        address = client.address.place
    write_rows(rows, as_json=as_json, nothing=_NO_STREAMS.format(f"on {address}", f"--server {address}"))
    for found in damaged:
        write_note(f"headgate: {found}")
    return 1 if damaged else 0


_NO_STREAMS = "no streams {}; make one with: headgate stream create NAME {}"


def _streams_of_folder(root: Path, errors: list[LogError]) -> list[dict[str, object]]:
    """The rows of all streams that can be opened; `errors` gets the errors of the others."""
    from headgate.log import list_streams

    rows: list[dict[str, object]] = []
    for stream in list_streams(root, damaged=lambda _, error: errors.append(error)):
        try:
            segments = stream.segments()
            rows.append(
                {
                    "name": stream.name,
                    "first_offset": stream.first_offset(),
                    "next_offset": stream.next_offset(),
                    "segments": len(segments),
                    "size_bytes": segments.size_bytes(),
                    "kind": "foreign" if stream.is_foreign else "own",
                }
            )
        except LogError as error:
            errors.append(error)
    return rows


@commands.command
def rm(
    stream: StreamText,
    /,
    *,
    force: Annotated[
        bool,
        Parameter(
            negative=(),
            help="Also while clients of a Headgate server, who are told, or topics use it; also if damaged.",
        ),
    ] = False,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Delete a stream and everything in it. One that RabbitMQ wrote is left alone, and one that somebody writes.

    While a server serves --root, it is asked to, as --user with --password; it refuses while a client uses the stream.
    A stream that a topic forwards to stays, too.
    """
    if location.is_server:
        delete_at_server(location, stream, force=force)
        return 0
    from headgate.errors import PreconditionFailedError, RemoteStorageError, StreamLockedError
    from headgate.log import StreamLock, deleted_folder, lock_root, remove_set_aside, root_of, set_aside
    from headgate.topic import topics_forwarding_to

    folder, name = _to_delete(stream, location.root, force=force)
    root = root_of(folder)
    try:
        held = lock_root(root, now_ms=now_ms())
    except StreamLockedError as error:
        delete_where_served(location, root, name, error, force=force)
        return 0
    with held, StreamLock.acquire(folder, now_ms=now_ms()):
        if not force and (used_by := topics_forwarding_to(root, name)):
            raise PreconditionFailedError(
                f"{', '.join(f'topic {each!r}' for each in used_by)} forwards to it; --force deletes it nevertheless",
                subject=name,
            )
        aside = set_aside(root, folder)
    if aside is not None:
        try:
            # It is among them, and what earlier deletions left.
            for folder in sorted(deleted_folder(root).iterdir()):
                remove_set_aside(folder)
        except RemoteStorageError as error:
            reason = (
                f"{error.reason}. The stream is deleted, but not all of its objects: the next headgate stream rm "
                "under this root deletes them, or a server of it"
            )
            raise RemoteStorageError(reason, path=error.path_text) from error
    return 0


def _to_delete(stream: str, root: Path, *, force: bool) -> tuple[Path, str]:
    """The folder of a stream, and its name. Raises StreamReadOnlyError for a foreign one, LogError.

    With `force` the settings of the stream may be damaged: the name is that which its folder stands for then.
    """
    from headgate.broker import is_damage
    from headgate.errors import StreamReadOnlyError
    from headgate.log import name_of_folder, resolve_stream

    try:
        found = resolve_stream(stream, root)
    except LogError as error:
        if not is_damage(error):
            raise
        if not force:
            reason = f"{error.reason}; headgate stream rm --force deletes it as it is"
            raise LogError(reason, path=error.path_text, position=error.position) from error
        folder = error.path.parent.resolve()
        return folder, name_of_folder(folder)
    if found.is_shadow:
        raise StreamReadOnlyError(
            "the stream is deleted where its folder is; it is only read here", path=found.remote or ""
        )
    if found.is_foreign:
        raise StreamReadOnlyError("the stream was written by another broker: it is only read here", path=found.path)
    return found.path.resolve(), found.name


@commands.command
def info(stream: StreamText, /, *, as_json: AsJson = False, location: Location = DEFAULT_LOCATION) -> int:
    """Show a stream: offsets, times, sizes, sizes of its chunks, publishers and stored offsets.

    Of a Headgate's stream the same and its arguments; of another server's, what the stream protocol says.
    """
    if location.is_server:
        with location.client() as client:
            _write_info(stream_details(client, stream, location), as_json=as_json)
        return 0
    from headgate.broker import arguments_of
    from headgate.log import resolve_stream, stream_info
    from headgate.message.body_schema import schema_facts

    source = resolve_stream(stream, location.root)
    found = stream_info(source)
    facts: dict[str, object] = {
        "name": found.name,
        "path": source.place,
        **found.facts(),
        "arguments": {} if source.settings is None else arguments_of(source.settings),
        **schema_facts(source.body_schema),
        "publishers": {_shown(name): sequence for name, (_, sequence) in found.tracking.sequences.items()},
        "stored_offsets": {_shown(name): offset for name, offset in found.tracking.offsets.items()},
    }
    _write_info(facts, as_json=as_json)
    return 0


_TIMES = {"first_timestamp_ms": "first_time", "last_timestamp_ms": "last_time"}
_BY_NAME = {"arguments": "argument {}", "publishers": "publisher {}", "stored_offsets": "consumer {}"}
_VALUES = {"arguments": "{}", "publishers": "sequence {}", "stored_offsets": "offset {}"}


def _write_info(facts: dict[str, object], *, as_json: bool) -> None:
    shown: dict[str, object] = {
        _TIMES.get(name, name): shown_time(value) if name in _TIMES and isinstance(value, int) else value
        for name, value in facts.items()
    }
    if as_json:
        write_json(shown)
        return
    lines = {name: value for name, value in shown.items() if name not in _BY_NAME}
    for several, line in _BY_NAME.items():
        values = shown.get(several, {})
        assert isinstance(values, dict)
        lines |= {line.format(name): _VALUES[several].format(value) for name, value in sorted(values.items())}
    write_facts(lines)


def _shown(reference: bytes) -> str:
    return reference.decode(errors="backslashreplace")


@commands.command
def adopt(
    stream: Annotated[str, Parameter(help="Folder of a stream that RabbitMQ wrote, and will never write to again.")],
    /,
    *,
    name: Annotated[str | None, Parameter(help="Name of the stream; by default that of the folder.")] = None,
    max_segment_size: SegmentSize = None,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Take over a folder that RabbitMQ wrote: from then on it can be written to, and no broker may use it any more.

    For a Headgate server run it on that server's host, for the folder streams/NAME in its root; the server may run.
    """
    if location.is_server:
        raise ConfigError(
            "--server: a folder is taken over where it lies; put it into the root of the server, as streams/NAME, and "
            "run `headgate stream adopt` there, without --server and HEADGATE_SERVER; a server that runs finds it"
        )
    from headgate.log import Stream, resolve_stream

    adopted = Stream.adopt(
        resolve_stream(stream, location.root).path,
        now_ms=now_ms(),
        name=name,
        max_segment_size_bytes=None
        if max_segment_size is None
        else size_bytes(max_segment_size, option="--max-segment-size"),
    )
    write_line(f"{adopted.path}: stream {adopted.name}, next offset {adopted.next_offset()}")
    return 0


_SIZES_SHOWN = (16, 32, 64, 128, 255)


@commands.command
def bloom(
    stream: Annotated[str | None, Parameter(help="A stream whose filters are looked at, in place of --values.")] = None,
    /,
    *,
    values: Annotated[
        int | None, Parameter(help="Distinct filter values in one chunk.", validator=validators.Number(gte=1))
    ] = None,
    error: Annotated[str | None, Parameter(help="Wanted share of false positives, such as 2%.")] = None,
    size: Annotated[int | None, Parameter(help="Bytes of the filter, 16 to 255.")] = None,
    chunk_bytes: Annotated[
        str | None, Parameter(help="Data in an average chunk (see `stream info`), such as 20kB.")
    ] = None,
    as_json: AsJson = False,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Size the Bloom filter of a stream: the error of a size, or the size for an error; or what a stream's achieve.

    A false positive is a chunk that is read although it holds no message with the wanted value. Without --error and
    --size all usual sizes are shown.
    """
    from headgate.log import MAX_FILTER_SIZE_BYTES, BloomSizing, check_filter_size, size_for

    if stream is not None:
        if (values, error, size, chunk_bytes) != (None, None, None, None):
            raise ConfigError("--values, --error, --size and --chunk-bytes: found with a stream, whose own are taken")
        return _write_statistics(stream, root, as_json=as_json)
    if values is None:
        raise ConfigError("expected a stream, or --values N")
    if error is not None and size is not None:
        raise ConfigError("--error and --size: found both, expected one of them")
    average = None if chunk_bytes is None else size_bytes(chunk_bytes, option="--chunk-bytes")
    if error is None and size is None:
        sizes: tuple[int, ...] = _SIZES_SHOWN
    elif size is not None:
        sizes = (check_filter_size(size, option="--size"),)
    else:
        wanted = share(str(error), option="--error")
        found = size_for(values, wanted)
        if found is None:
            largest = BloomSizing(values, MAX_FILTER_SIZE_BYTES)
            write_note(
                f"headgate: no filter reaches {shown_share(wanted)} with {values} values in a chunk: "
                f"the largest, {MAX_FILTER_SIZE_BYTES} bytes, has {shown_share(largest.rate)}. "
                "Fewer distinct values per chunk would: a coarser filter value, or publishing in runs."
            )
            return 1
        sizes = (found,)
    sizings = [BloomSizing(values, each, average) for each in sizes]
    if as_json:
        for sizing in sizings:
            write_json(
                {
                    "values": sizing.distinct_values,
                    "size_bytes": sizing.size_bytes,
                    "false_positive_rate": sizing.rate,
                    "share_of_data": sizing.weight,
                }
            )
    elif len(sizings) == 1:
        _write_sizing(sizings[0])
    else:
        write_table(
            ("size_bytes", "false_positives", "share_of_data"),
            [
                (
                    sizing.size_bytes,
                    shown_share(sizing.rate),
                    None if sizing.weight is None else shown_share(sizing.weight),
                )
                for sizing in sizings
            ],
        )
    for sizing in sizings:
        if sizing.outweighs_data:
            write_note(
                f"warning: a filter of {sizing.size_bytes} bytes outweighs the {shown_size(average or 0)} of data in a "
                "chunk: reading the filters costs more than they can save. Publish larger batches, or no filter value."
            )
    return 0


def _write_statistics(name: str, root: Path, *, as_json: bool) -> int:
    from headgate.log import filter_statistics, resolve_stream

    found = filter_statistics(resolve_stream(name, root))
    if as_json:
        write_json({**dataclasses.asdict(found), "advice": found.advice()})
        return 0
    values, fill, positives = found.values_per_chunk, found.fill, found.false_positives
    write_facts(
        {
            "chunks looked at": found.chunks,
            "filter size": f"{found.filter_size_bytes} bytes",
            "filter values per chunk": None if values is None else f"about {values:.0f}",
            "bits set": None if fill is None else shown_share(fill),
            "false positives": None if positives is None else shown_share(positives),
            "chunks with messages without a value": None if found.unfiltered is None else shown_share(found.unfiltered),
            "data of a chunk": None if found.chunk_bytes is None else shown_size(found.chunk_bytes),
        }
    )
    for sentence in found.advice():
        write_note(sentence)
    return 0


def _write_sizing(sizing: BloomSizing) -> None:
    write_facts(
        {
            "filter values per chunk": sizing.distinct_values,
            "filter size": f"{sizing.size_bytes} bytes",
            "false positives": shown_share(sizing.rate),
            "share of the data": None if sizing.weight is None else shown_share(sizing.weight),
        }
    )
