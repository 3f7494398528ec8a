"""Clients that speak another protocol than their port: recognising it by the first bytes, and answering.

The answer is in the client's own protocol: an alert of TLS, an answer of HTTP, a header of AMQP. The log explains it in
words.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Mapping
from typing import cast

from headgate.server.listening_sockets import ENCRYPTED, protocol_of

logger = logging.getLogger("headgate.server")


class Spoken(enum.Enum):
    """Protocols that the first bytes reveal."""

    TLS = "TLS"
    HTTP = "HTTP"
    AMQP = "AMQP"


_METHODS = (b"GET ", b"PUT ", b"POST ", b"HEAD ", b"DELETE ", b"OPTIONS ", b"PATCH ")
"""Without CONNECT: STOMP begins with it."""

_TLS_ALERT = bytes.fromhex("15030300020228")
"""A fatal alert: the handshake failed."""

_AMQP_NEEDS_TLS = b"AMQP\x02\x01\x00\x00"
_WITH_TLS = {plain: encrypted for encrypted, plain in ENCRYPTED.items()}


def spoken_by(first: bytes) -> Spoken | None:
    """The protocol of a client that begins with these bytes; None if they do not reveal it."""
    if first[:2] == b"\x16\x03":
        return Spoken.TLS
    if first[:4] == b"AMQP":
        return Spoken.AMQP
    return Spoken.HTTP if first.startswith(_METHODS) else None


def refused(first: bytes, listener: str, ports: Mapping[str, int], *served: Spoken) -> bytes | None:
    """The answer to a client whose first bytes belong to a protocol that is not `served`; then it is closed.

    None for a client that may go on. A refusal is logged.
    """
    spoken = spoken_by(first)
    if spoken is None or spoken in served:
        return None
    answer, reason = refusal(listener, spoken, ports)
    logger.info("%s", reason)
    return answer


def refusal(listener: str, spoken: Spoken, ports: Mapping[str, int]) -> tuple[bytes, str]:
    """The answer to a misdirected client of a listener before it is closed, and the log message.

    At a listener with TLS the client is one without TLS.
    """
    needs_tls = listener in ENCRYPTED
    found = f"{spoken.value} without TLS" if needs_tls else spoken.value
    own = f"{protocol_of(listener)} with TLS" if needs_tls else protocol_of(listener)
    reason = f"port {ports.get(listener, 0)} speaks {own}, found {found}; {_where(listener, spoken, ports)}"
    match spoken:
        case Spoken.TLS:
            return _TLS_ALERT, reason
        case Spoken.AMQP:
            return (_AMQP_NEEDS_TLS if needs_tls else b""), reason
        case Spoken.HTTP:
            body = reason.encode() + b"\n"
            head = (
                "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            )
            return head.encode() + body, reason


def _where(listener: str, spoken: Spoken, ports: Mapping[str, int]) -> str:
    """The port where a misdirected client belongs, in words."""
    if listener in ENCRYPTED and protocol_of(listener) in ports:
        return f"without TLS it is port {ports[protocol_of(listener)]}"
    match spoken:
        case Spoken.TLS if _WITH_TLS.get(listener) in ports:
            return f"with TLS it is port {ports[_WITH_TLS[listener]]}"
        case Spoken.TLS:
            return "a certificate in [tls] opens the ports with TLS"
        case Spoken.AMQP if "amqp" in ports:
            return f"AMQP is at port {ports['amqp']}"
        case Spoken.HTTP:
            named = {"http": "the console", "servicebus": "the administration of Service Bus"}
            there = [f"{what} is at port {ports[name]}" for name, what in named.items() if name in ports]
            return ", ".join(there) or "no port speaks it"
        case _:
            return "no port speaks it"


class WrongProtocolClient(asyncio.Protocol):
    """A client without TLS at a listener with TLS: answered after its first bytes, and closed."""

    def __init__(self, listener: str, ports: Mapping[str, int]) -> None:
        self._listener = listener
        self._ports = ports

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accepted: its first byte has arrived."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Answer the client's first bytes, and close."""
        spoken = spoken_by(data)
        if spoken is None:
            logger.info("port %d speaks TLS, found something else", self._ports.get(self._listener, 0))
        else:
            answer, reason = refusal(self._listener, spoken, self._ports)
            logger.info("%s", reason)
            self._transport.write(answer)
        self._transport.close()
