"""What a client did, as the core of its connection tells it."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from headgate.errors import RemoteProtocolError
from headgate.protocols.amqp091.methods import BasicPublish, Method


class Authenticate(msgspec.Struct, frozen=True):
    """The client says who it is; answered with `authenticated` or `refuse`. Nothing is read before that."""

    mechanism: str
    response: bytes


class ConnectionClosed(msgspec.Struct, frozen=True):
    """The client closed the connection; answered already."""


class ConnectionFailed(msgspec.Struct, frozen=True):
    """The client did what ends the connection; it has been told so."""

    error: RemoteProtocolError


class ChannelOpened(msgspec.Struct, frozen=True):
    """A channel is open."""

    channel: int


class ChannelClosed(msgspec.Struct, frozen=True):
    """The client closed a channel; answered already."""

    channel: int


class ChannelFailed(msgspec.Struct, frozen=True):
    """The client did what ends a channel; it has been told so."""

    channel: int
    error: RemoteProtocolError


class MethodReceived(msgspec.Struct, frozen=True):
    """A method without content, on an open channel or, with channel 0, on the connection."""

    channel: int
    method: Method


class Published(msgspec.Struct, frozen=True):
    """A message: the method, the payload of its content header, the body."""

    channel: int
    method: BasicPublish
    header: bytes
    body: bytes


Event: TypeAlias = (
    Authenticate
    | ConnectionClosed
    | ConnectionFailed
    | ChannelOpened
    | ChannelClosed
    | ChannelFailed
    | MethodReceived
    | Published
)
