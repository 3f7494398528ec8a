"""Addresses of links and messages, version 2 of RabbitMQ: amqp10_rabbit, section 2.

    /queues/<queue>                       publish to a stream, consume from it
    /exchanges/<exchange>/<routing key>   publish through an exchange
    /exchanges/<exchange>                 the same with an empty key
    /management                           requests and responses
    null                                  publish: each message says its address in `to`

Names are percent-encoded UTF-8.
"""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import dataclass

from headgate.broker import is_reply_queue
from headgate.errors import ConfigError

MANAGEMENT = "/management"

_DEFAULT_EXCHANGE = "amq.default"
"""Another name of the default exchange, whose name is empty; neither name can be addressed."""

_ENCODED = re.compile(r"(?:[^%]|%[0-9A-Fa-f]{2})*")


@dataclass(frozen=True, slots=True)
class RoutingAddress:
    """The route of messages: an exchange and a routing key; with an empty exchange the key names a queue."""

    exchange: str
    key: str

    @property
    def is_queue(self) -> bool:
        """Whether the address names a queue."""
        return self.exchange == ""

    @property
    def is_reply(self) -> bool:
        """Whether the address names the queue of a requester that waits for replies."""
        return self.is_queue and is_reply_queue(self.key)


def decoded(name: str) -> str:
    """A percent-encoded name. Raises ConfigError for an invalid one."""
    if not _ENCODED.fullmatch(name):
        raise ConfigError(f"{name!r} is not percent-encoded: a percent sign is followed by two hexadecimal digits")
    try:
        return urllib.parse.unquote(name, errors="strict")
    except UnicodeDecodeError:
        raise ConfigError(f"{name!r} is not percent-encoded UTF-8") from None


def encoded(name: str) -> str:
    """A percent-encoded name for an address: unreserved characters of RFC 3986 stay."""
    return urllib.parse.quote(name, safe="", errors="surrogateescape")


def queue_address(name: str) -> str:
    """The address of a queue."""
    return f"/queues/{encoded(name)}"


def parse_route(address: str) -> RoutingAddress:
    """The route of an address. Raises ConfigError for an invalid address."""
    match address.split("/"):
        case ["", "queues", name] if name:
            return RoutingAddress("", decoded(name))
        case ["", "exchanges", exchange, *key] if exchange and exchange != _DEFAULT_EXCHANGE and len(key) <= 1:
            return RoutingAddress(decoded(exchange), decoded(*key) if key else "")
    raise ConfigError(f"bad address {address!r}; expected /queues/<queue>, /exchanges/<exchange>/<routing key> or null")


def parse_queue(address: str) -> str:
    """The queue in the address of a source. Raises ConfigError for any other address."""
    match address.split("/"):
        case ["", "queues", name] if name:
            return decoded(name)
    raise ConfigError(f"bad address {address!r} of a source; expected /queues/<queue>")
