"""The credentials of a client, in the SASL mechanisms that all protocols share (RFC 4422, 4505, 4616).

    PLAIN       [acting as] NUL user NUL password                        (RFC 4616)
    AMQPLAIN    fields of an AMQP 0.9.1 table without its length: LOGIN and PASSWORD, long strings
    EXTERNAL    the name the client wants, may be empty; who it is says its TLS certificate
    ANONYMOUS   anything; it names no user
    MSSBCBS     anything; who it is, the client says later, by tokens (Service Bus)

Every mechanism is one answer of the client: there are no challenges. Whether the credentials are right is decided
elsewhere; here they are only read.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import StrEnum

from headgate.errors import RemoteProtocolError

MAX_CREDENTIAL_BYTES = 4096
"""Limit: bytes of an answer. Longer answers are refused unread."""

_U32 = struct.Struct(">I")
_LONG_STRING = ord("S")


class Mechanism(StrEnum):
    """The mechanisms that are understood, by their registered names."""

    PLAIN = "PLAIN"
    AMQPLAIN = "AMQPLAIN"
    EXTERNAL = "EXTERNAL"
    ANONYMOUS = "ANONYMOUS"
    MSSBCBS = "MSSBCBS"


@dataclass(frozen=True, slots=True)
class Plain:
    """A user name and a password; the password is not shown."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class External:
    """The name that the client asks for, empty for the one of its certificate."""

    name: str


@dataclass(frozen=True, slots=True)
class Anonymous:
    """No user is named."""


@dataclass(frozen=True, slots=True)
class ByToken:
    """Credentials without a user: the client's rights come later, from tokens."""


Credentials = Plain | External | Anonymous | ByToken


def parse_initial(mechanism: str, data: bytes) -> Credentials:
    """The credentials in a client's first (and only) answer; RemoteProtocolError for malformed data.

    A mechanism that is not in `Mechanism` raises RemoteProtocolError too: the caller asks `is_known` first, where the
    protocol has an answer of its own for that. The error has no wire code and repeats nothing of `data`.
    """
    if not is_known(mechanism):
        raise RemoteProtocolError(f"SASL mechanism {mechanism!r} is not known; known are {', '.join(Mechanism)}")
    if len(data) > MAX_CREDENTIAL_BYTES:
        raise RemoteProtocolError(f"SASL answer of {len(data)} bytes; the limit is {MAX_CREDENTIAL_BYTES}")
    match Mechanism(mechanism):
        case Mechanism.PLAIN:
            return _parse_plain(data)
        case Mechanism.AMQPLAIN:
            return _parse_amqplain(data)
        case Mechanism.EXTERNAL:
            return External(_text(data, Mechanism.EXTERNAL))
        case Mechanism.ANONYMOUS:
            return Anonymous()
        case Mechanism.MSSBCBS:
            return ByToken()


def is_known(mechanism: str) -> bool:
    """Whether `parse_initial` can read answers of that mechanism; names are upper case."""
    return mechanism in Mechanism.__members__


def plain_response(user: str, password: str) -> bytes:
    """The client's answer for PLAIN."""
    return f"\0{user}\0{password}".encode()


def _parse_plain(data: bytes) -> Plain:
    parts = data.split(b"\0")
    if len(parts) != 3:
        raise RemoteProtocolError(f"SASL PLAIN: {len(parts) - 1} NUL bytes, expected 2")
    return Plain(_text(parts[1], Mechanism.PLAIN), _text(parts[2], Mechanism.PLAIN))


def _parse_amqplain(data: bytes) -> Plain:
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(data):
        name_end = at + 1 + data[at]
        head_end = name_end + 5
        if head_end > len(data) or data[name_end] != _LONG_STRING:
            raise RemoteProtocolError("SASL AMQPLAIN: expected fields that are long strings")
        value_end = head_end + _U32.unpack_from(data, name_end + 1)[0]
        if value_end > len(data):
            raise RemoteProtocolError("SASL AMQPLAIN: a value ends behind the data")
        found[data[at + 1 : name_end]] = data[head_end:value_end]
        at = value_end
    if b"LOGIN" not in found or b"PASSWORD" not in found:
        raise RemoteProtocolError("SASL AMQPLAIN: expected the fields LOGIN and PASSWORD")
    return Plain(_text(found[b"LOGIN"], Mechanism.AMQPLAIN), _text(found[b"PASSWORD"], Mechanism.AMQPLAIN))


def _text(data: bytes, mechanism: Mechanism) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError(f"SASL {mechanism}: expected UTF-8") from None
