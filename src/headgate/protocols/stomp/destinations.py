"""Destinations of STOMP as RabbitMQ has them.

    /queue/<name>              a stream, declared at first use with the arguments of the frame; also <name> alone
    /amq/queue/<name>          a stream that is there
    /reply-queue/<name>        the same; the name may hold slashes
    /exchange/<exchange>/<key> an exchange, to send to

`%2F` in a part is a slash. `/topic/…` and `/temp-queue/…` exist in RabbitMQ and are refused here.
"""

from __future__ import annotations

import enum
import functools

import msgspec

from headgate.errors import RemoteProtocolError


class DestinationKind(enum.Enum):
    """The kinds of destinations."""

    QUEUE = "queue"
    EXISTING_QUEUE = "amq/queue"
    EXCHANGE = "exchange"


class Destination(msgspec.Struct, frozen=True):
    """Where a message goes, or comes from: the name of a stream, or an exchange and a key."""

    kind: DestinationKind
    name: str
    key: str = ""


def parse_destination(text: str) -> Destination:
    """The destination of a header. Raises RemoteProtocolError for an invalid or unsupported one."""
    parts = text.split("/")
    match parts:
        case [name] if name:
            return Destination(DestinationKind.QUEUE, _unescaped(name))
        case ["", "queue", name] if name:
            return Destination(DestinationKind.QUEUE, _unescaped(name))
        case ["", "amq", "queue", name] if name:
            return Destination(DestinationKind.EXISTING_QUEUE, _unescaped(name))
        case ["", "reply-queue", first, *rest] if first or rest:
            return Destination(DestinationKind.EXISTING_QUEUE, "/".join((first, *rest)))
        case ["", "exchange", name] if name:
            return Destination(DestinationKind.EXCHANGE, _unescaped(name))
        case ["", "exchange", name, key] if name:
            return Destination(DestinationKind.EXCHANGE, _unescaped(name), _unescaped(key))
        case ["", "topic" | "temp-queue", *_]:
            raise RemoteProtocolError(
                f"'{text[:200]}' is not served; only streams and exchanges are", code="not_implemented"
            )
        case ["", "queue" | "exchange", *_] | ["", "amq", "queue", *_]:
            raise RemoteProtocolError(f"'{text[:200]}' is not a valid destination", code="Invalid destination")
        case _:
            raise RemoteProtocolError(
                f"'{text[:200]}' is not a valid destination. Valid destination types are: "
                "/exchange, /queue, /amq/queue, /reply-queue/.",
                code="Unknown destination",
            )


@functools.lru_cache(maxsize=1024)
def format_destination(exchange: str, key: str) -> str:
    """The destination of a message that was published there."""
    if not exchange:
        return f"/queue/{_escaped(key)}"
    return f"/exchange/{_escaped(exchange)}/{_escaped(key)}" if key else f"/exchange/{_escaped(exchange)}"


def _unescaped(part: str) -> str:
    return part.replace("%2F", "/")


def _escaped(part: str) -> str:
    octets = part.encode("utf-8", "surrogateescape")
    return "".join(chr(octet) if 32 <= octet < 128 and octet not in b"/%" else f"%{octet:02X}" for octet in octets)
