"""The forms of a message: from the publisher's to the stored one, and from the stored one to the consumer's.

Stored: a header, the publisher's message annotations with `x-exchange` and `x-routing-key`, then properties,
application properties, body and footer byte for byte; delivery annotations are dropped. Delivered: the same, with the
annotation `x-stream-offset` (long), or with a delivery count and annotations of this delivery. Bytes in a stream that
are not a message are delivered as the data of one.
Source: amqp10_rabbit, sections 4 and 5; OASIS AMQP 1.0 part 3 (messaging), section 3.2.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate import kernels
from headgate.arrays import largest, rows_of, total
from headgate.errors import AccessRefusedError, HeadgateError, MessageError, PreconditionFailedError
from headgate.log import FilterValues
from headgate.message import (
    CONSTRUCTOR_WIDTHS,
    EMPTY_BODY,
    NULL,
    SLACK_BYTES,
    AmqpType,
    AmqpValue,
    EncodedMessages,
    Message,
    Section,
    SectionSpan,
    decode_value,
    encode_value,
    read_descriptor,
    section_spans,
    skip_value,
    value_bounds,
)
from headgate.protocols.amqp10.layout import SPANS, StoreBlock

KERNEL = "headgate.protocols.amqp10.kernel"

FILTER_VALUE = "x-stream-filter-value"
OFFSET = "x-stream-offset"
EXCHANGE = "x-exchange"
ROUTING_KEY = "x-routing-key"
BROKER_ANNOTATIONS = (EXCHANGE, ROUTING_KEY, OFFSET, FILTER_VALUE)
"""Annotations of RabbitMQ: exchange, routing key and offset of a message, and its filter value."""

_NULL = b"\x40"
_TRUE = b"\x41"
_FALSE = b"\x42"

_DEFAULT_HEADER = (_TRUE, _NULL, _NULL)
_HEADER_TAIL = b"\x41\x43"
"""First acquirer true, delivery count 0."""

_LONG = struct.Struct(">Bq")
_DATA_CONSTRUCTORS = frozenset({0xA0, 0xB0})
_SEQUENCE_CONSTRUCTORS = frozenset({0x45, 0xC0, 0xD0})
_MAP_CONSTRUCTORS = frozenset({0xC1, 0xD1})
_BODY_CONSTRUCTORS: dict[Section, frozenset[int]] = {
    Section.DATA: _DATA_CONSTRUCTORS,
    Section.AMQP_SEQUENCE: _SEQUENCE_CONSTRUCTORS,
    Section.FOOTER: _MAP_CONSTRUCTORS,
}
_USER_ID_POSITION = 1
_ANY_USER = -1

_BLOCK_WORDS = len(StoreBlock._fields)
_BLOCK = struct.Struct(f"={_BLOCK_WORDS}q")

Int64Array = NDArray[np.int64]


def symbol(text: str) -> bytes:
    """The bytes of a symbol."""
    return encode_value(AmqpValue(AmqpType.SYMBOL, text))


@functools.lru_cache(maxsize=1024)
def routing_annotations(exchange: str, routing_key: str) -> bytes:
    """The annotations with a message's exchange and routing key, encoded."""
    values = ((EXCHANGE, exchange), (ROUTING_KEY, routing_key))
    return b"".join(symbol(name) + encode_value(AmqpValue(AmqpType.STRING, value)) for name, value in values)


_OFFSET_KEY = symbol(OFFSET)
_ROUTING_ELEMENTS = 4
_FILTER_VALUE_KEY = symbol(FILTER_VALUE)


class StoredMessages(msgspec.Struct, eq=False):
    """Messages in their stored form, in the order of arrival.

    `refused` holds the rows that cannot be stored, with the reason; their lengths are 0. `filter_values` is None where
    no message has one.
    """

    messages: EncodedMessages
    filter_values: FilterValues | None
    refused: Mapping[int, HeadgateError]


def stored_message(
    data: bytes,
    *,
    routing: tuple[str, str] | None,
    user: str | None,
    left_out: Sequence[str] = (),
    no_body: str | None = None,
) -> tuple[bytes, bytes | None]:
    """The stored form of one message, and its filter value; arguments as `store_messages`.

    Raises MessageError for bytes that are not a message, and for one without a body unless `no_body` says how that is
    noted; AccessRefusedError for another user's id; PreconditionFailedError for a filter value that is not a string.
    """
    data = in_standard_order(data)
    spans, body = section_spans(data)
    has_body = _has_body(data, body)
    if not has_body and no_body is None:
        raise MessageError("a message without a body", position=body)
    if user is not None and Section.PROPERTIES in spans:
        _check_user(data, spans[Section.PROPERTIES], user)
    pairs = _pairs(data, spans.get(Section.MESSAGE_ANNOTATIONS))
    filter_value = None
    for key, value in pairs:
        if key == _FILTER_VALUE_KEY:
            found = decode_value(value)
            if found.type is not AmqpType.STRING:
                raise PreconditionFailedError(f"{FILTER_VALUE} is a string, found {found.type.value}")
            filter_value = found.octets() if filter_value is None else filter_value
    dropped = _dropped_keys(tuple(left_out))
    kept = [key + value for key, value in pairs if key not in dropped]
    added = b"" if routing is None else routing_annotations(*routing)
    if not has_body and no_body is not None:
        kept.append(symbol(no_body) + _TRUE)
        data = data[:body] + EMPTY_BODY + data[body:]
    content = b"".join(kept) + added
    durable, priority, ttl = _header_fields(data, spans.get(Section.HEADER))
    header = _header(_TRUE if durable == _NULL else durable, priority, ttl)
    count = 2 * len(kept) + (_ROUTING_ELEMENTS if added else 0)
    return header + _annotations(content, count) + data[_bare_position(spans) :], filter_value


@functools.lru_cache(maxsize=64)
def _dropped_keys(left_out: tuple[str, ...]) -> frozenset[bytes]:
    return frozenset(symbol(name) for name in (EXCHANGE, ROUTING_KEY, OFFSET, *left_out))


def in_standard_order(data: bytes) -> bytes:
    """The sections of a message in the order of the standard; qpid-proton sends a null body before the properties.

    Raises MessageError for bytes that are no sections.
    """
    sections: list[tuple[Section, bytes]] = []
    position = 0
    while position < len(data):
        section, value = read_descriptor(data, position)
        behind = skip_value(data, value, len(data))
        sections.append((section, data[position:behind]))
        position = behind
    ordered = sorted(sections, key=lambda found: found[0])
    return data if ordered == sections else b"".join(octets for _, octets in ordered)


def routing_headers(stored: bytes) -> Mapping[str, object]:
    """The annotations and application properties of a stored message as headers exchanges compare them.

    Strings, symbols, binaries and UUIDs are texts, times are milliseconds; lists, maps and decimals are left out, and
    so are annotations that are null. An annotation goes before an application property of its name. Raises MessageError
    where they do not decode.
    """
    spans, _ = section_spans(stored)
    sections = b"".join(
        bytes([0x00, 0x53, section]) + stored[spans[section].position : spans[section].stop]
        for section in (Section.MESSAGE_ANNOTATIONS, Section.APPLICATION_PROPERTIES)
        if section in spans
    )
    # Messages with ids and times of their own have few different headers.
    return (_cached_headers if len(sections) <= _CACHED_BYTES else _headers)(sections)


def _headers(sections: bytes) -> Mapping[str, object]:
    message = Message.decode(sections)
    annotations = message.message_annotations or {}
    typed = {
        **(message.application_properties or {}),
        **{name: value for name, value in annotations.items() if name not in _OF_THE_BROKER and value != NULL},
    }
    plain = {name: _plain(value) for name, value in typed.items()}
    return {name: value for name, value in plain.items() if value is None or isinstance(value, (str, int, float))}


_cached_headers = functools.lru_cache(maxsize=1024)(_headers)
_CACHED_BYTES = 512
_OF_THE_BROKER = (EXCHANGE, ROUTING_KEY)


def _plain(value: AmqpValue) -> object:
    octets = value.octets()
    return value.value if octets is None else octets.decode("utf-8", "surrogateescape")


def delivered_message(data: bytes, offset: int) -> bytes:
    """A stored message, or any stored bytes, as a consumer of a stream receives it."""
    return _delivered(data, {_OFFSET_KEY: _LONG.pack(0x81, offset)}, _HEADER_TAIL)


def annotated_message(
    data: bytes, annotations: Mapping[str, AmqpValue], *, delivery_count: int, left_out: Sequence[str] = ()
) -> bytes:
    """A message, or any bytes, as a consumer receives it, with annotations and a count of this delivery alone.

    `annotations` replace annotations of the message with the same names; `delivery_count` is the number of failed
    deliveries before. Annotations that are `left_out` are not delivered.
    """
    encoded = {symbol(name): encode_value(value) for name, value in annotations.items()}
    is_first = _FALSE if delivery_count else _TRUE
    dropped = _dropped_keys(tuple(left_out)) if left_out else frozenset()
    return _delivered(data, encoded, is_first + encode_value(AmqpValue(AmqpType.UINT, delivery_count)), dropped)


def _delivered(
    data: bytes, annotations: Mapping[bytes, bytes], header_tail: bytes, dropped: Collection[bytes] = ()
) -> bytes:
    """A message with encoded annotations, and the last two fields of its header."""
    try:
        spans, body = section_spans(data)
        if body == len(data) and not spans:
            raise MessageError("a message without any section", position=0)
        if not annotations and _is_as_stored(data, spans, header_tail):
            return data
        pairs = _pairs(data, spans.get(Section.MESSAGE_ANNOTATIONS))
        fields = _header_fields(data, spans.get(Section.HEADER))
        bare = data[_bare_position(spans) :]
    except MessageError:
        pairs = []
        fields = _DEFAULT_HEADER
        bare = bytes([0x00, 0x53, Section.DATA]) + encode_value(AmqpValue(AmqpType.BINARY, data))
    kept = [key + value for key, value in pairs if key not in annotations and key not in dropped]
    kept += [key + value for key, value in annotations.items()]
    return _header(*fields, header_tail) + _annotations(b"".join(kept), 2 * len(kept)) + bare


def _is_as_stored(data: bytes, spans: Mapping[Section, SectionSpan], header_tail: bytes) -> bool:
    """Whether a message is delivered as it is: its header ends with `header_tail`, as in messages stored by AMQP."""
    header = spans.get(Section.HEADER)
    if header is None or header.count != 5 or Section.DELIVERY_ANNOTATIONS in spans:
        return False
    return b"".join(_elements(data, header)[3:]) == header_tail


def _bare_position(spans: Mapping[Section, SectionSpan]) -> int:
    """Where the properties, or the next section if they are missing, begin."""
    before = (Section.HEADER, Section.DELIVERY_ANNOTATIONS, Section.MESSAGE_ANNOTATIONS)
    return max((spans[section].stop for section in before if section in spans), default=0)


def _elements(data: bytes, span: SectionSpan) -> list[bytes]:
    bounds = value_bounds(data, span.elements, span.stop, span.count)
    if bounds[-1] != span.stop:
        reason = f"{span.stop - bounds[-1]} bytes behind the elements of a section"
        raise MessageError(reason, position=bounds[-1])
    return [data[begin:end] for begin, end in itertools.pairwise(bounds)]


def _pairs(data: bytes, span: SectionSpan | None) -> list[tuple[bytes, bytes]]:
    if span is None:
        return []
    elements = _elements(data, span)
    if len(elements) % 2:
        raise MessageError(f"a map of {len(elements)} keys and values", position=span.position)
    # Keys are compared as bytes, so a symbol in the wide form is brought to the small one.
    keys = [symbol(decode_value(key).value) if key[0] == 0xB3 else key for key in elements[::2]]
    return list(zip(keys, elements[1::2], strict=True))


def _header_fields(data: bytes, span: SectionSpan | None) -> tuple[bytes, bytes, bytes]:
    if span is None:
        return _DEFAULT_HEADER
    elements = _elements(data, span)
    if len(elements) > 5 or any(len(element) > 5 for element in elements[:3]):
        raise MessageError("a header of other fields than the standard's", position=span.position)
    durable, priority, ttl = [*elements[:3], _NULL, _NULL, _NULL][:3]
    return durable, priority, ttl


def _header(durable: bytes, priority: bytes, ttl: bytes, tail: bytes = _HEADER_TAIL) -> bytes:
    content = durable + priority + ttl + tail
    return bytes([0x00, 0x53, Section.HEADER, 0xC0, len(content) + 1, 5]) + content


def _annotations(content: bytes, count: int) -> bytes:
    head = bytes([0x00, 0x53, Section.MESSAGE_ANNOTATIONS])
    if len(content) + 1 <= 0xFF and count <= 0xFF:
        return head + bytes([0xC1, len(content) + 1, count]) + content
    return head + b"\xd1" + (len(content) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + content


def _check_user(data: bytes, span: SectionSpan, user: str) -> None:
    elements = _elements(data, span)
    if len(elements) <= _USER_ID_POSITION:
        return
    found = decode_value(elements[_USER_ID_POSITION])
    if found.type is not AmqpType.NULL and (found.type is not AmqpType.BINARY or found.value != user.encode()):
        raise AccessRefusedError(f"user-id {found.value!r} of a message is not the authenticated user {user!r}")


def _has_body(data: bytes, position: int) -> bool:
    """Whether there are data sections, sequences or one value, before an optional footer.

    Raises MessageError for anything else there.
    """
    previous: Section | None = None
    has_body = False
    while position < len(data):
        section, value = read_descriptor(data, position)
        is_footer = section is Section.FOOTER
        if section < Section.DATA or previous is Section.FOOTER:
            raise MessageError(f"section {section:#x} in the body", position=position)
        has_body = has_body or not is_footer
        if previous is not None and not is_footer and (section is not previous or section is Section.AMQP_VALUE):
            raise MessageError(f"section {section:#x} behind section {previous:#x}", position=position)
        behind = skip_value(data, value, len(data))
        if data[value] not in _BODY_CONSTRUCTORS.get(section, (data[value],)):
            raise MessageError(f"section {section:#x} with constructor {data[value]:#04x}", position=value)
        position = behind
        previous = section
    return has_body


@functools.cache
def widths() -> Int64Array:
    """The table of constructor widths, for kernels."""
    return np.array(CONSTRUCTOR_WIDTHS, dtype=np.int64)


@functools.cache
def names(*listed: str) -> NDArray[np.uint8]:
    """Names as kernels compare them: rows of 32 bytes, the length in front."""
    rows = np.zeros((len(listed), 32), dtype=np.uint8)
    for row, name in zip(rows, listed, strict=True):
        row[0] = len(name)
        row[1 : 1 + len(name)] = np.frombuffer(name.encode(), dtype=np.uint8)
    return rows


@dataclass(frozen=True, slots=True)
class _Destination:
    """The kernel's inputs that depend on the destination of messages: arrays, and words that point at them."""

    arrays: tuple[NDArray[np.uint8], ...]
    routing_bytes: int
    words: tuple[int, int, int, int, int, int, int, int]


@functools.lru_cache(maxsize=1024)
def _destination(routing: tuple[str, str] | None, user: str | None, left_out: tuple[str, ...]) -> _Destination:
    added = b"" if routing is None else routing_annotations(*routing)
    added_octets = np.frombuffer(added or b"\0", dtype=np.uint8)
    user_octets = np.frombuffer((user or "").encode() or b"\0", dtype=np.uint8)
    user_bytes = _ANY_USER if user is None else len(user.encode())
    known = names(FILTER_VALUE, EXCHANGE, ROUTING_KEY, OFFSET, *left_out)
    address = kernels.address_of
    elements = _ROUTING_ELEMENTS if added else 0
    return _Destination(
        (added_octets, user_octets, known),
        len(added),
        (
            *(address(added_octets), len(added), elements, address(user_octets), user_bytes),
            *(address(widths()), address(known), len(known)),
        ),
    )


def store_messages(
    messages: EncodedMessages,
    *,
    routing: tuple[str, str] | None,
    user: str | None,
    left_out: Sequence[str] = (),
    no_body: str | None = None,
) -> StoredMessages:
    """The stored form of many messages, in a separate buffer: one kernel call, and Python for rows that it leaves open.

    `routing`: exchange and routing key to note on the messages, None for nothing. `user`: the only user id that they
    may carry, None for any. Annotations that are `left_out` are dropped. A message without a body is stored with an
    empty body and the annotation `no_body`, which is true; if `no_body` is None, it is refused. RabbitMQ refuses it,
    too, and ends the connection of a consumer that reads one from a stream.
    """
    count = len(messages.starts)
    destination = _destination(routing, user, tuple(left_out))
    capacity = total(messages.lengths) + count * (64 + destination.routing_bytes) + SLACK_BYTES
    # One array for the rows, for what the kernel is told and for the messages: each array costs as much as a message.
    rows_at = _BLOCK_WORDS + len(SPANS)
    target_at = rows_at + 7 * count
    words = np.empty(target_at + (capacity + 7) // 8, dtype=np.int64)
    words[rows_at : rows_at + count], words[rows_at + count : rows_at + 2 * count] = messages.starts, messages.lengths
    at = rows_at + 2 * count
    starts, lengths = words[at : at + count], words[at + count : at + 2 * count]
    at += 2 * count
    value_starts, value_lengths = words[at : at + count], words[at + count : at + 2 * count]
    status = words[at + 2 * count : target_at]
    target = words[target_at:].view(np.uint8)
    written = 0
    kernel = kernels.load(KERNEL)
    if kernel is None:
        starts[:] = lengths[:] = value_starts[:] = 0
        value_lengths[:] = -1
        status[:] = 1
    else:
        block, step = kernels.address_of(words), 8 * count
        row = block + 8 * rows_at
        told = StoreBlock(
            *(kernels.address_of(messages.data), row, row + step, count),
            *destination.words,
            block + 8 * target_at,
            *(row + 2 * step, row + 3 * step, row + 4 * step, row + 5 * step, row + 6 * step),
            block + 8 * _BLOCK_WORDS,
        )
        _BLOCK.pack_into(words.data, 0, *told)
        written = kernel.store_messages(block)
    refused: dict[int, HeadgateError] = {}
    parts: list[bytes] = []
    for row in rows_of(status):
        try:
            stored, value = stored_message(
                messages.message(row), routing=routing, user=user, left_out=left_out, no_body=no_body
            )
        except (MessageError, AccessRefusedError, PreconditionFailedError) as error:
            refused[row] = error
            continue
        starts[row], lengths[row] = written, len(stored)
        parts.append(stored)
        written += len(stored)
        if value is not None:
            value_starts[row], value_lengths[row] = written, len(value)
            parts.append(value)
            written += len(value)
    if parts:
        joined = b"".join(parts)
        target = np.concatenate((target[: written - len(joined)], np.frombuffer(joined + bytes(SLACK_BYTES), np.uint8)))
    has_values = count > 0 and largest(value_lengths) >= 0
    return StoredMessages(
        EncodedMessages(target, starts, lengths),
        FilterValues(target, value_starts, value_lengths) if has_values else None,
        refused,
    )
