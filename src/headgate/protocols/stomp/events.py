"""What a client did, as the core of its connection tells it."""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

from headgate.errors import RemoteProtocolError


class AckMode(enum.StrEnum):
    """How a subscription is acknowledged: not at all, all up to a message, one by one."""

    AUTO = "auto"
    CLIENT = "client"
    CLIENT_INDIVIDUAL = "client-individual"


class Connect(msgspec.Struct, frozen=True):
    """The client wants in; answered with `connected` or `fail`. Nothing is read before that.

    `heart_beat_ms`: it can send so often, it wants to be sent so often; 0 = not.
    """

    login: str | None
    passcode: str | None
    host: str
    heart_beat_ms: tuple[int, int]


class Send(msgspec.Struct, frozen=True):
    """A message; `receipt` is what the client wants to be told when it is kept, None for nothing."""

    destination: str
    headers: dict[str, str]
    body: bytes
    receipt: str | None


class Subscribe(msgspec.Struct, frozen=True):
    """A subscription; `key` names it on the connection, `id` is what the client called it, if it did."""

    key: str
    id: str | None
    destination: str
    ack_mode: AckMode
    headers: dict[str, str]
    receipt: str | None


class Unsubscribe(msgspec.Struct, frozen=True):
    """The end of a subscription."""

    key: str
    receipt: str | None


class Acknowledge(msgspec.Struct, frozen=True):
    """A message is done with; refusing it is the same to a stream. `message` is what MESSAGE called it."""

    message: str
    receipt: str | None


class Disconnect(msgspec.Struct, frozen=True):
    """The client leaves; answered with `disconnected` once everything before it is done."""

    receipt: str | None


class Failed(msgspec.Struct, frozen=True):
    """The client did what ends the connection; it has been told so."""

    error: RemoteProtocolError


Event: TypeAlias = Connect | Send | Subscribe | Unsubscribe | Acknowledge | Disconnect | Failed
