"""`headgate publish`: messages written as JSON lines, into a stream."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from headgate.cli.options import DEFAULT_ROOT, Root, StreamText
from headgate.cli.output import write_note
from headgate.cli.units import counted, now_ms, shown_count
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from headgate.message import Message
    from headgate.message.fields import FieldReference

_READ_BYTES = 1 << 20
_MAX_LINE_BYTES = 64 << 20
_WRITTEN_BY_TAIL = ("offset", "timestamp")


def publish(
    stream: StreamText,
    file: Annotated[str, Parameter(help="File of JSON lines, - for standard input.")] = "-",
    /,
    *,
    publisher: Annotated[
        str | None,
        Parameter(help="Name of the publisher: line n has sequence n, and lines already published are left out."),
    ] = None,
    lock_timeout: Annotated[float, Parameter(help="Seconds to wait for another writer.")] = 5.0,
    root: Root = DEFAULT_ROOT,
) -> int:
    """Publish messages, one JSON object per line.

    Keys, all optional: subject, header, properties, application_properties, message_annotations,
    delivery_annotations, footer, body, filter_value. Values are plain JSON, or typed as in {"t": "uint", "v": 5}. What
    `tail --json` writes is accepted as it is.
    """
    from headgate.log import resolve_stream
    from headgate.log.writer import Writer
    from headgate.message.fields import FieldReference, Section, parse_field

    target = resolve_stream(stream, root)
    published = duplicates = number = 0
    with Writer.open(target, now_ms=now_ms(), timeout_s=lock_timeout) as writer:
        declared = writer.settings.filter_source
        source = (
            FieldReference(Section.MESSAGE_ANNOTATIONS, key=b"x-stream-filter-value")
            if declared is None
            else parse_field(declared)
        )
        try:
            for lines in _lines_at_once(file):
                messages = []
                wrong = None
                for line in lines:
                    number += 1
                    try:
                        if line.strip():
                            messages.append((number, *_read_line(line, source, declared)))
                    except (msgspec.DecodeError, UnicodeDecodeError, ConfigError) as error:
                        wrong = ConfigError(f"line {number}: {error}; the lines before it are published")
                        break
                if messages:
                    appended = writer.append(
                        [(encoded, value) for _, encoded, value in messages],
                        now_ms=now_ms(),
                        publisher=publisher,
                        sequences=None if publisher is None else [sequence for sequence, _, _ in messages],
                        filter_source=declared,
                    )
                    duplicates += appended.num_duplicates
                    published += len(messages) - appended.num_duplicates
                if wrong is not None:
                    raise wrong
        finally:
            left_out = f", {shown_count(duplicates)} already there" if duplicates else ""
            write_note(f"{counted(published, 'message')} published{left_out}; next offset {writer.next_offset}")
    return 0


def _lines_at_once(file: str) -> Iterator[list[bytes]]:
    """The lines of the input in groups: what one read of the file gives, so that a slow input is not held back."""
    descriptor = sys.stdin.fileno() if file == "-" else os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    rest = b""
    try:
        while part := os.read(descriptor, _READ_BYTES):
            *lines, rest = (rest + part).split(b"\n")
            if len(rest) > _MAX_LINE_BYTES:
                raise ConfigError(f"a line of more than {_MAX_LINE_BYTES} bytes; is this a file of JSON lines?")
            yield lines
        yield [rest]
    finally:
        if file != "-":
            os.close(descriptor)


def _read_line(line: bytes, source: FieldReference, declared: str | None) -> tuple[bytes, bytes | None]:
    """Encoded message and filter value of one line."""
    description = msgspec.json.decode(line)
    if not isinstance(description, dict):
        raise ConfigError(f"found {type(description).__name__}, expected an object")
    given = description.pop("filter_value", None)
    if not (given is None or isinstance(given, str)):
        raise ConfigError(f"filter_value: found {given!r}, expected text or null")
    message = message_of_json(description)
    derived = _octets(message, source)
    value = derived if given is None else given.encode()
    if given is not None and (declared is not None or derived is not None) and value != (derived or b""):
        where = declared or "message_annotations.x-stream-filter-value"
        shown = "nothing" if derived is None else repr(derived.decode(errors="replace"))
        raise ConfigError(f"filter_value: found {given!r}, but {where} holds {shown}")
    return message.encode(), value


def message_of_json(description: dict[str, Any]) -> Message:
    """The message that an object describes: the form of `Message.describe`, with `subject` as a short way.

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
    return Message.of_description(description)


def _octets(message: Message, source: FieldReference) -> bytes | None:
    """The bytes that make a filter value, of those kinds that have bytes."""
    from headgate.message import AmqpType

    found = message.value(source)
    if found is None or found.type not in (AmqpType.STRING, AmqpType.SYMBOL, AmqpType.BINARY, AmqpType.UUID):
        return None
    return found.octets()
