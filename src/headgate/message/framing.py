"""Where the sections of a message lie, and when bytes are not a message: the rule of docs/design/message-validity.md.

Nothing here decodes a value; positions count from the start of the message.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.errors import MessageError
from headgate.message.constructors import (
    CONSTRUCTOR_WIDTHS,
    WIDTH_DESCRIBED,
    WIDTH_INVALID,
    WIDTH_SIZE8,
)
from headgate.message.fields import Section

SECTION_SYMBOLS: dict[bytes, Section] = {
    b"amqp:header:list": Section.HEADER,
    b"amqp:delivery-annotations:map": Section.DELIVERY_ANNOTATIONS,
    b"amqp:message-annotations:map": Section.MESSAGE_ANNOTATIONS,
    b"amqp:properties:list": Section.PROPERTIES,
    b"amqp:application-properties:map": Section.APPLICATION_PROPERTIES,
    b"amqp:data:binary": Section.DATA,
    b"amqp:amqp-sequence:list": Section.AMQP_SEQUENCE,
    b"amqp:amqp-value:*": Section.AMQP_VALUE,
    b"amqp:footer:map": Section.FOOTER,
}
"""Symbolic descriptors of the sections (AMQP 1.0 part 3, section 3.2); writers use the codes."""

LIST_SECTIONS = frozenset({Section.HEADER, Section.PROPERTIES})
_LIST_CONSTRUCTORS = {0x45: 0, 0xC0: 1, 0xD0: 4}
_MAP_CONSTRUCTORS = {0xC1: 1, 0xD1: 4}
_FLOAT_EXPONENTS = {0x72: 0x7F80, 0x82: 0x7FF0}
_USELESS_CONSTRUCTORS = frozenset({0x00, 0x45, 0x74, 0x84, 0x94, 0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0})


@dataclass(slots=True)
class SectionSpan:
    """A list or map section before the body: its value begins at `position` (the constructor) and ends before `stop`.

    `count` elements (keys and values of a map) begin at `elements`.
    """

    section: Section
    position: int
    elements: int
    stop: int
    count: int


def check(data: bytes | memoryview) -> None:
    """Raise `MessageError` if the bytes are not an AMQP 1.0 message (docs/design/message-validity.md).

    The content of sections, the body and the footer are not examined.
    """
    section_spans(data)


def is_usable(data: bytes | memoryview, position: int) -> bool:
    """Whether filters can use the value that begins at `position`: null, boolean, number, or bytes.

    Decimals, lists, maps, arrays, described values, NaN and infinities have no value that a filter can use.
    """
    constructor = data[position]
    if constructor in _FLOAT_EXPONENTS:
        exponent = _FLOAT_EXPONENTS[constructor]
        return int.from_bytes(data[position + 1 : position + 3], "big") & exponent != exponent
    return constructor not in _USELESS_CONSTRUCTORS


def section_spans(data: bytes | memoryview) -> tuple[dict[Section, SectionSpan], int]:
    """The sections before the body, and the position where the first body section or the footer begins (or the end).

    Raises `MessageError` exactly when `check` does.
    """
    spans: dict[Section, SectionSpan] = {}
    position = 0
    previous = 0
    while position < len(data):
        section, value = read_descriptor(data, position)
        if section >= Section.DATA:
            break
        if section <= previous:
            raise MessageError(f"section {section:#x} behind section {previous:#x}: wrong order", position=position)
        span = _section_span(data, section, value)
        spans[section] = span
        previous = section
        position = span.stop
    return spans, position


def footer_span(data: bytes | memoryview, position: int) -> SectionSpan | None:
    """The footer after the body sections that begin at `position`; None if there is none or the framing breaks."""
    try:
        while position < len(data):
            section, value = read_descriptor(data, position)
            if section is Section.FOOTER:
                return _section_span(data, section, value)
            if section < Section.DATA:
                return None
            position = skip_value(data, value, len(data))
    except MessageError:
        return None
    return None


def read_descriptor(data: bytes | memoryview, position: int) -> tuple[Section, int]:
    """The section whose `0x00` is expected at `position`, and where its value begins. Raises MessageError."""
    start = position
    if data[position] != 0x00:
        raise MessageError(f"a section begins with 0x00, found {data[position]:#04x}", position=position)
    constructor = read_unsigned(data, position + 1, 1, len(data))
    position += 2
    code: int | None
    if constructor in (0x53, 0x80):
        width = 1 if constructor == 0x53 else 8
        code = read_unsigned(data, position, width, len(data))
        position += width
        if not Section.HEADER <= code <= Section.FOOTER:
            raise MessageError(f"no section has the descriptor {code:#x}", position=start)
        return Section(code), position
    if constructor in (0xA3, 0xB3):
        width = 1 if constructor == 0xA3 else 4
        length = read_unsigned(data, position, width, len(data))
        position += width
        stop = _within(position, length, len(data))
        symbol = bytes(data[position:stop])
        section = SECTION_SYMBOLS.get(symbol)
        if section is None:
            raise MessageError(f"no section has the descriptor {symbol[:40]!r}", position=start)
        return section, stop
    raise MessageError(f"a descriptor is a ulong or symbol, found constructor {constructor:#04x}", position=start)


def _section_span(data: bytes | memoryview, section: Section, position: int) -> SectionSpan:
    constructor = read_unsigned(data, position, 1, len(data))
    is_list = section in LIST_SECTIONS
    width = (_LIST_CONSTRUCTORS if is_list else _MAP_CONSTRUCTORS).get(constructor)
    if width is None:
        kind = "list" if is_list else "map"
        raise MessageError(f"section {section:#x} is a {kind}, found constructor {constructor:#04x}", position=position)
    if width == 0:
        return SectionSpan(section, position, position + 1, position + 1, 0)
    size = read_unsigned(data, position + 1, width, len(data))
    behind_size = position + 1 + width
    stop = _within(behind_size, size, len(data))
    count = read_unsigned(data, behind_size, width, stop)
    return SectionSpan(section, position, behind_size + width, stop, count)


def skip_value(data: bytes | memoryview, position: int, stop: int) -> int:
    """The position after the value at `position`, by constructor widths only; the value must end within `stop`.

    Raises MessageError.
    """
    pending = 1
    while pending:
        if position >= stop:
            raise MessageError("a value is missing", position=position)
        constructor = data[position]
        width = CONSTRUCTOR_WIDTHS[constructor]
        position += 1
        if width == WIDTH_DESCRIBED:
            pending += 1
            continue
        if width < 0:
            if width == WIDTH_INVALID:
                raise MessageError(f"unknown constructor {constructor:#04x}", position=position - 1)
            size_width = 1 if width == WIDTH_SIZE8 else 4
            width = read_unsigned(data, position, size_width, stop)
            position += size_width
        if width > stop - position:
            raise _missing(position, width, stop)
        position += width
        pending -= 1
    return position


def value_bounds(data: bytes | memoryview, position: int, stop: int, count: int) -> list[int]:
    """Where each of the `count` values from `position` on begins, and where the last ends; as `skip_value`."""
    bounds = [position]
    for _ in range(count):
        position = skip_value(data, position, stop)
        bounds.append(position)
    return bounds


def read_unsigned(data: bytes | memoryview, position: int, width: int, stop: int) -> int:
    """A big-endian unsigned integer of `width` bytes that must lie before `stop`."""
    if width > stop - position:
        raise _missing(position, width, stop)
    return int.from_bytes(data[position : position + width], "big")


def _within(position: int, length: int, stop: int) -> int:
    if length > stop - position:
        raise _missing(position, length, stop)
    return position + length


def _missing(position: int, length: int, stop: int) -> MessageError:
    return MessageError(f"{length} bytes expected, {max(stop - position, 0)} left", position=position)
