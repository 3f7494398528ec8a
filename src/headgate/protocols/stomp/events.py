"""Events of a STOMP connection: the requests and faults of a client."""

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
    """The client wants to connect; answered with `connected` or `fail`. Nothing is read before the answer.

    `heart_beat_ms`: how often it can send, and how often it wants to receive, heart-beats; 0 = not.
    """

    login: str | None
    passcode: str | None
    host: str
    heart_beat_ms: tuple[int, int]


class Send(msgspec.Struct, frozen=True):
    """A message; `receipt` is the receipt id to send once it is kept, None for no receipt."""

    destination: str
    headers: dict[str, str]
    body: bytes
    receipt: str | None


class Subscribe(msgspec.Struct, frozen=True):
    """A subscription; `key` names it on the connection, `id` is the client's own name for it, if any."""

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
    """A message is acknowledged, or refused: the same to a stream. `message` is its name in the MESSAGE frame."""

    message: str
    receipt: str | None


class Disconnect(msgspec.Struct, frozen=True):
    """The client leaves; answered with `disconnected` once everything before it is done."""

    receipt: str | None


class Failed(msgspec.Struct, frozen=True):
    """A fault of the client ended the connection; the client has been told."""

    error: RemoteProtocolError


Event: TypeAlias = Connect | Send | Subscribe | Unsubscribe | Acknowledge | Disconnect | Failed
