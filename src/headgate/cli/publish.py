"""`headgate publish`: messages written as JSON lines, or rows of a file, into a stream."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
from cyclopts import Parameter

from headgate.cli.options import LockTimeout, StreamText
from headgate.cli.output import shown_progress, write_note
from headgate.cli.remote import DEFAULT_LOCATION, Location
from headgate.cli.units import counted, shown_count
from headgate.clock import now_ms, patient
from headgate.errors import ConfigError, DataError, ResourceNotFoundError, StreamNotFoundError

if TYPE_CHECKING:
    from headgate.client import Client
    from headgate.log import Writer
    from headgate.message import FieldReference, Message
    from headgate.tables import RowFile

_READ_BYTES = 1 << 20
_MAX_LINE_BYTES = 64 << 20
_EXCERPT_BYTES = 40
_TABLES = (".parquet", ".arrow", ".csv")
"""`headgate.tables.open_rows` reads these; asking it would import pyarrow for JSON lines."""
_WRITTEN_BY_TAIL = ("offset", "timestamp")

_Compression: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]


def publish(
    stream: StreamText,
    /,
    file: Annotated[
        str,
        Parameter(
            name="--from",
            help="The file: JSON lines, - for standard input, or a table: its name ends with .parquet, .arrow or .csv.",
        ),
    ] = "-",
    *,
    mapping: Annotated[
        str | None,
        Parameter(
            name="--map",
            help="What its columns become, as --columns of `headgate export` has it: 'region string, price double, "
            "p.subject as title, m.x-opt-tag string, body as payload, filter_value'. Values that a field does not hold "
            "exactly are refused; 'price float rounded' takes the nearest. A table whose columns are called as a "
            "message's needs none.",
        ),
    ] = None,
    publisher: Annotated[
        str | None,
        Parameter(
            help="Name of the publisher: line or row n has sequence n, and what is already published is left out."
        ),
    ] = None,
    compression: Annotated[
        _Compression, Parameter(help="Codec of sub-batches. RabbitMQ's AMQP consumers do not see compressed messages.")
    ] = "none",
    lock_timeout: LockTimeout = 5.0,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Publish messages, one JSON object per line, or one row of a table.

    Keys, all optional: subject, header, properties, application_properties, message_annotations,
    delivery_annotations, footer, body, filter_value. Values are plain JSON, or typed as in {"t": "uint", "v": 5}. What
    `tail --json` writes is accepted as it is.

    Parquet, Arrow and CSV are read by columns, and so are JSON lines with --map. Row 1 is the first that holds data.
    """
    with contextlib.ExitStack() as opened:
        # Before the stream: a missing file has to be the only error, without a count of published messages.
        source = opened.enter_context(_source(file, mapping))
        target: _FolderTarget | _ServerTarget
        if not location.is_server:
            from headgate.log import Writer, resolve_stream, shown_root

            try:
                found = resolve_stream(stream, location.root)
            except StreamNotFoundError as error:
                made = f"headgate stream create --root {shown_root(location.root)} {stream} makes it"
                raise StreamNotFoundError(f"{error.reason}; {made}", path=error.path_text) from error
            writer = Writer.open(found, now_ms=now_ms(), wait=patient(lock_timeout))
            target = _FolderTarget(opened.enter_context(writer), publisher, compression)
        else:
            client = opened.enter_context(location.client())
            try:
                target = opened.enter_context(_ServerTarget(client, stream, publisher, compression))
            except ResourceNotFoundError as error:
                raise ResourceNotFoundError(
                    f"{error.reason}{client.near_streams(stream)}; headgate stream create --server "
                    f"{client.address.place} {stream} makes it",
                    subject=error.subject,
                ) from error
        _publish(source, target, publisher)
    return 0


_Numbered = tuple[int, bytes, bytes | None]
"""Number of the line or row, encoded message, filter value."""


def _publish(source: _Lines | RowFile, target: _FolderTarget | _ServerTarget, publisher: str | None) -> None:
    if isinstance(source, _Lines):
        parts, total, noun = source.messages(target), None, "lines"
    else:
        parts, total, noun = _rows_of(source, target), source.rows, "rows"
    published = duplicates = 0
    try:
        with shown_progress("message", total=total) as progress:
            for messages in parts:
                there = target.append(messages)
                duplicates += there
                published += len(messages) - there
                progress(published + duplicates)
    except _UnusableRowError as error:
        if not published + duplicates:
            raise DataError(f"{error}; nothing is published") from error
        raise DataError(f"{error}; the {noun} before it are published. {_how_to_go_on(publisher)}") from error
    finally:
        left_out = f", {shown_count(duplicates)} already there" if duplicates else ""
        write_note(f"{counted(published, 'message')} published{left_out}; next offset {target.next_offset()}")


def _how_to_go_on(publisher: str | None) -> str:
    if publisher is not None:
        return "When it is mended, run the same command again: it goes on from there"
    return "When it is mended, publish a file without those; with --publisher the same command would go on by itself"


class _UnusableRowError(DataError):
    """A line or row that cannot become a message; the ones before it were published."""


def _rows_of(file: RowFile, target: _FolderTarget | _ServerTarget) -> Iterator[list[_Numbered]]:
    if file.unmapped:
        write_note(f"columns that become nothing: {', '.join(file.unmapped)}")
    rows = file.mapped(target.declared)
    while True:
        try:
            part = next(rows, None)
        except (ConfigError, DataError) as error:
            raise _UnusableRowError(str(error)) from error
        if part is None:
            return
        numbers = range(part.first_row, part.first_row + len(part.messages))
        messages = list(zip(numbers, part.messages, part.filter_values, strict=True))
        yield from _with_room(messages, target, "row")


def _with_room(
    messages: list[_Numbered], target: _FolderTarget | _ServerTarget, noun: str
) -> Iterator[list[_Numbered]]:
    """The messages before the first one whose filter value cannot be stored; then an error for that one."""
    held = next((row for row, (_, _, value) in enumerate(messages) if value), None)
    if target.takes_values or held is None:
        yield messages
        return
    yield messages[:held]
    number, _, value = messages[held]
    assert value is not None
    raise _UnusableRowError(f"{noun} {number}: {_no_room_for(value)}")


@dataclass(frozen=True, slots=True)
class _Lines:
    """JSON lines in the form of `tail --json`."""

    descriptor: int

    def messages(self, target: _FolderTarget | _ServerTarget) -> Iterator[list[_Numbered]]:
        from headgate.message import FieldReference, Section, parse_field

        source = (
            FieldReference(Section.MESSAGE_ANNOTATIONS, key=b"x-stream-filter-value")
            if target.declared is None
            else parse_field(target.declared)
        )
        number = 0
        for lines in _lines_at_once(self.descriptor):
            messages: list[_Numbered] = []
            wrong = None
            for line in lines:
                number += 1
                try:
                    if line.strip():
                        messages.append((number, *_read_line(line, source, target.declared)))
                except ConfigError as error:
                    wrong = _UnusableRowError(f"line {number}: {error}")
                    break
            yield from _with_room(messages, target, "line")
            if wrong is not None:
                raise wrong


class _FolderTarget:
    """A stream under a root; `declared` is the field that it declares as the source of its filter values."""

    takes_values = True

    def __init__(self, writer: Writer, publisher: str | None, compression: str) -> None:
        from headgate.log import parse_compression

        self._writer = writer
        self._publisher = publisher
        self._codec = parse_compression(compression)
        self.declared = writer.settings.filter_source

    def append(self, messages: list[_Numbered]) -> int:
        """Publish messages; gives how many of them were there already."""
        appended = self._writer.append(
            [(encoded, value) for _, encoded, value in messages],
            now_ms=now_ms(),
            publisher=self._publisher,
            sequences=None if self._publisher is None else [number for number, _, _ in messages],
            filter_source=self.declared,
            compression=self._codec,
        )
        return appended.num_duplicates

    def next_offset(self) -> int:
        """The offset after everything published."""
        return self._writer.next_offset


class _ServerTarget:
    """A stream of a server, which knows and checks where its filter values come from.

    Without `takes_values` a message with a filter value cannot be published.
    """

    declared: str | None = None

    def __init__(self, client: Client, stream: str, publisher: str | None, compression: str) -> None:
        self.takes_values = compression == "none"
        self._client = client
        self._publisher = client.publisher(stream, name=publisher, compression=compression)

    def __enter__(self) -> _ServerTarget:
        return self

    def __exit__(self, *_: object) -> None:
        self._publisher.abandon()

    def append(self, messages: list[_Numbered]) -> int:
        import numpy as np

        from headgate.log import FilterValues
        from headgate.message import EncodedMessages

        new = [each for each in messages if self._publisher.name is None or each[0] > self._publisher.last_sequence]
        if new:
            self._publisher.send_encoded(
                EncodedMessages.of(encoded for _, encoded, _ in new),
                FilterValues.of(value for _, _, value in new),
                ids=np.array([number for number, _, _ in new], dtype=np.uint64),
            )
            self._publisher.flush()
        return len(messages) - len(new)

    def next_offset(self) -> int:
        from headgate.log import OffsetSpecification

        return self._client.resolve_offset(self._publisher.stream, OffsetSpecification.next())


def _no_room_for(value: bytes) -> ConfigError:
    return ConfigError(
        f"found filter value {value.decode(errors='replace')!r}; the stream protocol has no room for those of "
        "compressed messages: leave --compression out, or the value (a Headgate fills it in from the filter source "
        "that the stream declares)"
    )


@contextlib.contextmanager
def _source(file: str, mapping: str | None) -> Iterator[_Lines | RowFile]:
    """The file in the form that its name tells. Raises ConfigError, OSError."""
    suffix = Path(file).suffix
    if suffix not in _TABLES and mapping is None:
        with _opened(file) as descriptor:
            yield _Lines(descriptor)
        return
    from headgate.tables import ColumnMapping, json_rows, open_rows

    chosen = None if mapping is None else ColumnMapping.parse(mapping)
    if suffix in _TABLES:
        with open_rows(file, chosen) as rows:
            yield rows
        return
    assert chosen is not None
    with _opened(file) as descriptor:
        yield json_rows(_lines_at_once(descriptor), chosen)


@contextlib.contextmanager
def _opened(file: str) -> Iterator[int]:
    """A descriptor of the input. Raises ConfigError for a folder and for a standard input that is closed, OSError."""
    if file == "-":
        if sys.stdin is None:
            raise ConfigError("standard input is closed; name a file of JSON lines, or pipe them in")
        yield sys.stdin.fileno()
        return
    if Path(file).is_dir():
        raise ConfigError(f"{file}: found a folder, expected a file of JSON lines")
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _lines_at_once(descriptor: int) -> Iterator[list[bytes]]:
    """The lines of the input in groups, one per read of the file, so that a slow input is not held back."""
    rest = b""
    while part := os.read(descriptor, _READ_BYTES):
        *lines, rest = (rest + part).split(b"\n")
        if len(rest) > _MAX_LINE_BYTES:
            raise DataError(f"a line of more than {_MAX_LINE_BYTES} bytes; is this a file of JSON lines?")
        yield lines
    yield [rest]


def _read_line(line: bytes, source: FieldReference, declared: str | None) -> tuple[bytes, bytes | None]:
    """Encoded message and filter value of one line."""
    from headgate.message.lookup import field_bytes

    try:
        description = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        found = line[:_EXCERPT_BYTES].decode(errors="replace")
        raise ConfigError(f"found {found!r}, expected a JSON object: {error}") from error
    if not isinstance(description, dict):
        raise ConfigError(f"found {type(description).__name__}, expected an object")
    given = taken_filter_value(description)
    try:
        message = message_of_json(description)
    except ConfigError as error:
        raise ConfigError(f"{error}{_map_advice(description)}") from error
    derived = field_bytes(message.encode(), source)
    value = derived if given is None else given.encode()
    if given is not None and (declared is not None or derived is not None) and value != (derived or b""):
        where = declared or "message_annotations.x-stream-filter-value"
        shown = "nothing" if derived is None else repr(derived.decode(errors="replace"))
        raise ConfigError(f"filter_value: found {given!r}, but {where} holds {shown}")
    return message.encode(), value


def _map_advice(description: dict[str, Any]) -> str:
    """Advice on --map for publishing plain JSON; empty for an object with nothing but parts of a message."""
    from headgate.message import SECTION_NAMES

    own = [key for key in description if key not in (*SECTION_NAMES, "subject", *_WRITTEN_BY_TAIL)]
    if not own:
        return ""
    plain = [key for key in own if not isinstance(description[key], dict | list)]
    example = ", ".join(f"{key} {_MAP_KINDS.get(type(description[key]), 'string')}" for key in plain[:3]) or "id string"
    return f"; for rows of your own say what their keys become, such as --map '{example}'"


_MAP_KINDS = {bool: "boolean", int: "bigint", float: "double"}


def taken_filter_value(description: dict[str, Any]) -> str | None:
    """The filter value of a message as JSON, taken out of it. Raises ConfigError."""
    given = description.pop("filter_value", None)
    if not (given is None or isinstance(given, str)):
        raise ConfigError(f"filter_value: found {given!r}, expected text or null")
    return given


def message_of_json(description: dict[str, Any]) -> Message:
    """The message that an object describes: the form of `Message.describe`, with `subject` as a short way;
    as streams store it where it has no body.

    Raises ConfigError that names the key that is wrong.
    """
    from headgate.message import Message

    description = {key: value for key, value in description.items() if key not in _WRITTEN_BY_TAIL}
    if "subject" in description:
        properties = dict(description.get("properties") or {})
        if "subject" in properties:
            raise ConfigError("subject: found it twice, also in properties")
        properties["subject"] = description.pop("subject")
        description["properties"] = properties
    body = description.get("body")
    if isinstance(body, list) or (isinstance(body, dict) and body.keys() not in ({"data"}, {"sequence"}, {"value"})):
        description["body"] = msgspec.json.encode(body).decode()
    return Message.of_description(description).with_body()
