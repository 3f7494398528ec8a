"""Options of a consumer in the arguments of basic.consume, or in the headers of SUBSCRIBE.

    x-stream-offset             first, last, next, an interval such as 1h, an integer, a timestamp (s); default next
    x-stream-filter             filter values: a long string or an array of them
    x-stream-match-unfiltered   boolean; with filter values only
    x-headgate-sql              a filter expression: stage 2 for protocols that have none
    x-headgate-dialect          its language; default as configured

Source: RabbitMQ 4.3 (`rabbit_stream_queue`); the last two are Headgate's own.
"""

from __future__ import annotations

import re

from headgate.broker import ConsumerOptions
from headgate.errors import ConfigError, FilterError, PreconditionFailedError
from headgate.evaluate import Filter
from headgate.log import OffsetSpecification
from headgate.protocols.amqp091 import INTEGERS, Field, FieldType, Table
from headgate.server.settings import ServerSettings

SQL = "x-headgate-sql"
DIALECT = "x-headgate-dialect"
STREAM_OFFSET = "x-stream-offset"
STREAM_FILTER = "x-stream-filter"
MATCH_UNFILTERED = "x-stream-match-unfiltered"
PRIORITY = "x-priority"

_INTERVAL = re.compile(r"[0-9]{1,18}[YMDhms]")
_MAX_TIMESTAMP_S = 2**63 // 1000 - 1
_SHOWN_CHARACTERS = 50


def consumer_options(arguments: Table, *, tag: str, settings: ServerSettings) -> ConsumerOptions:
    """The options of a consumer. Raises PreconditionFailedError for an unsupported combination."""
    if PRIORITY in arguments:
        raise PreconditionFailedError(f"{PRIORITY} is an argument of other queues' consumers, not of streams'")
    values = _filter_values(arguments.get(STREAM_FILTER))
    unfiltered = arguments.get(MATCH_UNFILTERED)
    return ConsumerOptions(
        start=_offset(arguments.get(STREAM_OFFSET)),
        filter_values=values,
        match_unfiltered=bool(values) and unfiltered is not None and unfiltered == Field(FieldType.BOOLEAN, True),
        filter=_filter(arguments, settings),
        tag=tag,
    )


def _offset(field: Field | None) -> OffsetSpecification:
    if field is None:
        return OffsetSpecification.next()
    value = field.value
    if field.type is FieldType.TIMESTAMP and 0 <= value <= _MAX_TIMESTAMP_S:
        return OffsetSpecification.timestamp(value * 1000)
    if field.type in INTEGERS and value >= 0:
        return OffsetSpecification.offset(value)
    if field.type is FieldType.LONG_STRING:
        text = value.decode("utf-8", "replace")
        if text in ("first", "last", "next") or _INTERVAL.fullmatch(text):
            try:
                return OffsetSpecification.parse(text)
            except ConfigError:
                value = text
    raise PreconditionFailedError(
        f"{STREAM_OFFSET} is {value!r}; expected first, last, next, an interval such as 1h, an offset or a timestamp"
    )


def _filter_values(field: Field | None) -> tuple[bytes, ...]:
    if field is None:
        return ()
    if field.type is FieldType.LONG_STRING:
        return (field.value,)
    if field.type is FieldType.ARRAY:
        return tuple(value.value for value in field.value if value.type is FieldType.LONG_STRING)
    return ()


def _filter(arguments: Table, settings: ServerSettings) -> Filter | None:
    text = _text(arguments, SQL)
    dialect = _text(arguments, DIALECT)
    if text is None:
        if dialect is not None:
            raise PreconditionFailedError(f"{DIALECT} has no effect without {SQL}")
        return None
    limit = settings.limits.filter_bytes
    if len(text.encode()) > limit:
        raise PreconditionFailedError(f"{SQL} has {len(text.encode())} bytes, expected at most {limit}")
    try:
        return Filter.parse(text, dialect or settings.filters.dialect)
    except ConfigError as error:
        raise PreconditionFailedError(str(error)) from error


def _text(arguments: Table, name: str) -> str | None:
    field = arguments.get(name)
    if field is None:
        return None
    if field.type is not FieldType.LONG_STRING:
        raise PreconditionFailedError(f"{name} is a long string, found {field.type.name.lower()}")
    try:
        text: str = field.value.decode()
    except UnicodeDecodeError:
        raise PreconditionFailedError(f"{name} is no UTF-8") from None
    return text


def shown_refusal(error: FilterError) -> str:
    """A refused filter within the few bytes of a reply text: the reason, the place in the text, a caret under it."""
    start = error.span[0]
    line_start = error.text.rfind("\n", 0, start) + 1
    first = max(line_start, start - _SHOWN_CHARACTERS // 2)
    line = error.text[first : first + _SHOWN_CHARACTERS].split("\n")[0]
    shown = "".join(character if character.isprintable() else "·" for character in line)
    reason = error.reason if len(error.reason) <= 90 else error.reason[:89] + "…"
    return f"{error.dialect} filter refused: {reason}\n{shown}\n{' ' * (start - first)}^"
