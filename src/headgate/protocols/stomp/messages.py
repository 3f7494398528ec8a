"""Headers of SEND as properties of AMQP 0.9.1, and the way back, as headers of MESSAGE.

The headers in `PROPERTY_HEADERS` become properties; all others, except the destination, become headers of the message,
as long strings. On the way back, headers that are long strings or integers become text. Other headers are left out,
and so is a content length that was stored as a header: the frame has its own.

Source: RabbitMQ 4.3 (`rabbit_stomp_util`).
"""

from __future__ import annotations

from collections.abc import Mapping

from headgate.errors import RemoteProtocolError
from headgate.protocols.amqp091 import BasicProperties, FieldType, Table, long_string
from headgate.protocols.stomp.frames import CONTENT_LENGTH

PROPERTY_HEADERS: dict[str, str] = {
    "content-type": "content_type",
    "content-encoding": "content_encoding",
    "priority": "priority",
    "correlation-id": "correlation_id",
    "reply-to": "reply_to",
    "expiration": "expiration",
    "amqp-message-id": "message_id",
    "timestamp": "timestamp",
    "type": "type",
    "user-id": "user_id",
    "app-id": "app_id",
}
"""The property of each header; `persistent` is the delivery mode."""

_NUMBERS = {"priority": 255, "timestamp": 2**63 // 1000 - 1}
_SHOWN_NUMBERS = frozenset({FieldType.INT, FieldType.LONG})
_DESTINATIONS = ("/exchange", "/topic", "/queue", "/amq/queue", "/reply-queue/")
_SHORT_STRING_BYTES = 255


def properties_of(headers: Mapping[str, str]) -> BasicProperties:
    """The properties of a SEND frame. Raises RemoteProtocolError for values that cannot be."""
    properties = BasicProperties()
    own = {}
    for name, value in headers.items():
        if name == "destination":
            continue
        if name == "persistent":
            properties.delivery_mode = 2 if value in ("true", "True") else None
        elif name in _NUMBERS:
            setattr(properties, PROPERTY_HEADERS[name], _number(name, value))
        elif name in PROPERTY_HEADERS:
            _check_short(name, value)
            setattr(properties, PROPERTY_HEADERS[name], value)
        else:
            _check_short("header name", name)
            own[name] = long_string(value)
    properties.headers = own or None
    return properties


def _number(name: str, value: str) -> int:
    digits = value.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18 and int(digits) <= _NUMBERS[name]):
        raise RemoteProtocolError(f"'{name}' is {value[:40]!r}; expected 0 to {_NUMBERS[name]}", code="Invalid header")
    return int(digits)


def _check_short(name: str, value: str) -> None:
    if len(value.encode("utf-8", "surrogateescape")) > _SHORT_STRING_BYTES:
        raise RemoteProtocolError(f"{name} is longer than {_SHORT_STRING_BYTES} bytes", code="Invalid header")


def property_headers(properties: BasicProperties) -> dict[str, str]:
    """The headers of a MESSAGE frame that come of the message's properties."""
    headers: dict[str, str] = {}
    if properties.delivery_mode is not None:
        headers["persistent"] = "true" if properties.delivery_mode == 2 else "1"
    for name, field_name in PROPERTY_HEADERS.items():
        value = getattr(properties, field_name)
        if value is not None:
            headers[name] = str(value)
    reply_to = headers.get("reply-to")
    if reply_to is not None and not reply_to.startswith(_DESTINATIONS):
        headers["reply-to"] = f"/reply-queue/{reply_to}"
    return headers


def text_headers(table: Table, taken: frozenset[str]) -> list[tuple[str, str]]:
    """The headers of a MESSAGE frame that come of the message's headers, without names that are taken."""
    headers: list[tuple[str, str]] = []
    for name, field in table.items():
        if name in taken or name == CONTENT_LENGTH:
            continue
        if field.type is FieldType.LONG_STRING:
            headers.append((name, field.value.decode("utf-8", "surrogateescape")))
        elif field.type in _SHOWN_NUMBERS:
            headers.append((name, str(field.value)))
    return headers
