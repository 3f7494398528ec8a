"""A message as commands show it: as JSON, or in three cells of a line."""

from __future__ import annotations

from typing import Any

import msgspec

from headgate.errors import MessageError

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


def _one_line(value: object) -> str:
    """Text on one line without control characters; anything else as JSON."""
    if isinstance(value, dict) and list(value) == ["data"]:
        value = value["data"]
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return "".join(character if character.isprintable() else "·" for character in text)
