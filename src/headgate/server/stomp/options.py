"""Headers of SEND and SUBSCRIBE, read as the arguments of a declaration and the options of a consumer.

    x-stream-offset             first, last, next, offset=<n>, timestamp=<s>; anything else counts as next
    x-stream-filter             filter values, separated by commas, taken as they are
    x-stream-match-unfiltered   true or false
    x-headgate-sql, -dialect    as in AMQP 0.9.1
    prefetch-count              how many messages may be unacknowledged

Source: RabbitMQ 4.3 (`rabbit_stomp_frame`, `rabbit_stomp_util`).
"""

from __future__ import annotations

from collections.abc import Mapping

from headgate.errors import PreconditionFailedError, RemoteProtocolError
from headgate.protocols.amqp091 import Field, FieldType, Table, boolean, long, long_string
from headgate.server.amqp091 import DIALECT, MATCH_UNFILTERED, PRIORITY, SQL, STREAM_FILTER, STREAM_OFFSET

PREFETCH_COUNT = "prefetch-count"
MAX_PREFETCH = 65_535

_TEXT_ARGUMENTS = ("x-queue-type", "x-max-age", "x-dead-letter-exchange", "x-dead-letter-routing-key")
_NUMBER_ARGUMENTS = (
    "x-max-length-bytes",
    "x-stream-max-segment-size-bytes",
    "x-stream-filter-size-bytes",
    "x-stream-initial-offset",
    "x-expires",
    "x-max-length",
    "x-max-priority",
    "x-message-ttl",
)
_BOOLEANS = {"true": True, "True": True, "false": False, "False": False}


def declaration(headers: Mapping[str, str]) -> dict[str, object]:
    """The arguments of a declaration, without `x-`; other headers are not examined.

    Raises PreconditionFailedError for a queue that is not a stream, RemoteProtocolError for an invalid number.
    """
    arguments: dict[str, object] = {
        name.removeprefix("x-"): headers[name].strip() for name in _TEXT_ARGUMENTS if name in headers
    }
    for name in _NUMBER_ARGUMENTS:
        if name in headers:
            arguments[name.removeprefix("x-")] = number_of(headers, name)
    for name, wanted in (("durable", True), ("auto-delete", False), ("exclusive", False)):
        if name in headers and _BOOLEANS.get(headers[name], wanted) is not wanted:
            raise PreconditionFailedError(f"a stream is declared with {name}:{str(wanted).lower()}")
    return arguments


def number_of(headers: Mapping[str, str], name: str) -> int:
    """A header that is a number, not negative. Raises RemoteProtocolError."""
    digits = headers[name].strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise RemoteProtocolError(f"'{name}' is {headers[name][:40]!r}; expected a number", code="Invalid header")
    return int(digits)


def consumer_arguments(headers: Mapping[str, str]) -> Table:
    """The headers of SUBSCRIBE that have a meaning, as arguments of basic.consume."""
    arguments: Table = {}
    offset = _offset(headers.get(STREAM_OFFSET, ""))
    if offset is not None:
        arguments[STREAM_OFFSET] = offset
    if STREAM_FILTER in headers:
        values = tuple(long_string(value) for value in headers[STREAM_FILTER].split(","))
        arguments[STREAM_FILTER] = Field(FieldType.ARRAY, values)
    if headers.get(MATCH_UNFILTERED) in _BOOLEANS:
        arguments[MATCH_UNFILTERED] = boolean(_BOOLEANS[headers[MATCH_UNFILTERED]])
    for name in (SQL, DIALECT, PRIORITY):
        if name in headers:
            arguments[name] = long_string(headers[name])
    return arguments


def _offset(text: str) -> Field | None:
    if text in ("first", "last", "next"):
        return long_string(text)
    kind, equals, digits = text.partition("=")
    if equals and digits.isascii() and digits.isdigit() and len(digits) <= 18:
        if kind == "offset":
            return long(int(digits))
        if kind == "timestamp":
            return Field(FieldType.TIMESTAMP, int(digits))
    return None
