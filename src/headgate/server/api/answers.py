"""Types of answers, for the OpenAPI document. Rows of lists stay mappings: their keys are open, and described."""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec

Row = dict[str, Any]
"""An object whose keys are open."""


class Named(msgspec.Struct, frozen=True):
    """What was made, changed or deleted."""

    name: str


class StreamArguments(msgspec.Struct, frozen=True):
    """All arguments of a stream, by their names without `x-`."""

    name: str
    arguments: dict[str, Any]


class DeletedStream(msgspec.Struct, frozen=True):
    """The number of messages that a deleted stream had; null if it could not be opened."""

    messages: int | None


class UserRow(TypedDict):
    """A user, without a trace of the password; the patterns are those of RabbitMQ's permissions."""

    name: str
    tags: list[str]
    configure: str
    write: str
    read: str
    has_password: bool
