"""Events of an AMQP 0.9.1 connection: the requests and faults of a client."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from headgate.errors import RemoteProtocolError
from headgate.protocols.amqp091.methods import BasicPublish, Method


class Authenticate(msgspec.Struct, frozen=True):
    """The client sent its credentials; answered with `authenticated` or `refuse`. Nothing is read before the answer."""

    mechanism: str
    response: bytes


class ConnectionClosed(msgspec.Struct, frozen=True):
    """The client closed the connection; answered already."""


class ConnectionFailed(msgspec.Struct, frozen=True):
    """A fault of the client ended the connection; the client has been told."""

    error: RemoteProtocolError


class ChannelOpened(msgspec.Struct, frozen=True):
    """A channel is open."""

    channel: int


class ChannelClosed(msgspec.Struct, frozen=True):
    """The client closed a channel; answered already."""

    channel: int


class ChannelFailed(msgspec.Struct, frozen=True):
    """A fault of the client ended a channel; the client has been told."""

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
