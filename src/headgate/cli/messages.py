"""A message as commands show it: as JSON, or in three cells of a line; copies of it and dead letters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from cyclopts import Parameter, validators

from headgate.cli.output import write_json, write_table
from headgate.clock import shown_time
from headgate.errors import ConfigError, MessageError

if TYPE_CHECKING:
    from headgate.client import ReadCopy, ReceivedCopy

Start: TypeAlias = Annotated[
    int, Parameter(name="--from", help="Offset to begin at.", validator=validators.Number(gte=0))
]
Count: TypeAlias = Annotated[
    int, Parameter(name=("-n", "--count"), help="At most so many.", validator=validators.Number(gte=1))
]
Typed: TypeAlias = Annotated[bool, Parameter(negative=(), help="With --json: values with their AMQP types.")]

_SHOWN_BODY_CHARACTERS = 80


def message_json(encoded: bytes, *, typed: bool) -> dict[str, Any]:
    """The sections of a message by name. Of bytes that are not a message: the reason, and the bytes."""
    from headgate.message import Message

    try:
        return Message.decode(encoded).describe(typed=typed)
    except MessageError as error:
        return {"malformed": str(error), "encoded_hex": encoded.hex()}


def message_cells(encoded: bytes) -> tuple[str, str, str]:
    """Subject, application properties and the beginning of the body, each on one line."""
    from headgate.message import Message

    try:
        shown = Message.decode(encoded).describe(typed=False)
    except MessageError as error:
        shown = {"body": str(error)}
    properties = shown.get("properties") or {}
    return (
        _one_line(properties.get("subject", "") if isinstance(properties, dict) else ""),
        _one_line(shown.get("application_properties", "")),
        _one_line(shown.get("body", ""))[:_SHOWN_BODY_CHARACTERS],
    )


def write_copies(copies: Iterable[ReadCopy | ReceivedCopy], *, as_json: bool, typed: bool) -> None:
    """Copies as lines of JSON or as a table; nothing without any."""
    if typed and not as_json:
        raise ConfigError("--typed has a meaning with --json only")
    rows = [(copy, _head(copy)) for copy in copies]
    if as_json:
        for copy, head in rows:
            write_json(head | message_json(copy.encoded, typed=typed))
    elif rows:
        columns = (*rows[0][1], "subject", "application_properties", "body")
        write_table(columns, [(*head.values(), *message_cells(copy.encoded)) for copy, head in rows])


def _head(copy: ReadCopy | ReceivedCopy) -> dict[str, Any]:
    """The facts about a copy, without its message."""
    head: dict[str, Any] = {"offset": copy.offset, "rule": copy.rule, "timestamp": shown_time(copy.timestamp_ms)}
    token = getattr(copy, "token", None)
    if token is None:
        return head
    attempt, until_ms = getattr(copy, "attempt", 0), getattr(copy, "locked_until_ms", 0)
    return {"token": token, **head, "attempt": attempt, "locked_until": shown_time(until_ms)}


def _one_line(value: object) -> str:
    """Text on one line without control characters; anything else as JSON."""
    if isinstance(value, dict) and list(value) == ["data"]:
        value = value["data"]
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return "".join(character if character.isprintable() else "·" for character in text)
