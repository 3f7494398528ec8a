"""A message of RocketMQ, and the AMQP 1.0 message that it is stored as.

    TAGS, KEYS, other system properties    message annotations x-opt-rocketmq-…, strings
    UNIQ_KEY                               message-id, string
    born time                              creation-time
    flag, born host of the classic client  message annotations x-opt-rocketmq-flag (int, unless 0), …-born-host (string)
    message group (`__SHARDINGKEY`)        group-id, string, beside the application property of that name
    user properties                        application properties, strings
    body                                   one data section; compressed bodies are stored as what they hold

A message from any protocol can be read (`read_message`): ids and values of other types become texts, and bodies become
bytes, as `values` says. Application properties with a name of the system, and empty ones, are left out. A message
without id gets one made of the stream's identity and its offset. Bytes that are no AMQP message are a body. Where the
framing of a section breaks, its entries end.

Source: rocketmq_filters, section 13, which also says which parts filters see.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headgate import kernels
from headgate.errors import MessageError
from headgate.message import (
    SLACK_BYTES,
    SYSTEM_PROPERTIES,
    Message,
    Section,
    SectionSpan,
    ValueDecoder,
    is_usable,
    section_spans,
    skip_value,
)
from headgate.protocols.rocketmq.layout import TablesBlock
from headgate.protocols.rocketmq.names import system_names
from headgate.protocols.rocketmq.properties import MAX_PROPERTIES_BYTES, read_properties
from headgate.protocols.rocketmq.values import body_bytes, value_text

SHARDING_KEY = "__SHARDINGKEY"
"""The property that holds the message group; users' by its name, so that filters see it."""

KERNEL = "headgate.protocols.rocketmq.kernel"
_MOST_PROPERTIES = 320
_TEXT_BYTES = MAX_PROPERTIES_BYTES + SLACK_BYTES
_HEAD_BYTES = 2 * MAX_PROPERTIES_BYTES + 40 * _MOST_PROPERTIES + 512
"""Room for the sections before a body; the kernel takes no more properties than fit."""

_PREFIX = b"x-opt-rocketmq-"
_FLAG = _PREFIX + b"flag"
_BORN_HOST = _PREFIX + b"born-host"
_ID = b"UNIQ_KEY"
_ANNOTATIONS: dict[bytes, bytes] = {
    name.encode(): reference.key for name, reference in SYSTEM_PROPERTIES.items() if reference.key is not None
}
"""The key of each system property that is a message annotation."""

_NAMES = {key: name.decode() for name, key in _ANNOTATIONS.items()}
_SHARDING_OCTETS = np.frombuffer(SHARDING_KEY.encode(), dtype=np.uint8)
_SYSTEM = frozenset(name.encode() for name in SYSTEM_PROPERTIES)
_STRINGS = frozenset({0xA1, 0xB1})
_TEXTS = _STRINGS | {0xA3, 0xB3}
_SHORT_STRING, _WIDE, _NULL_CONSTRUCTOR = 0xA1, 0xB0, 0x40
_SHORT_TEXTS = frozenset({_SHORT_STRING, 0xA3})
_NULL = b"\x40"
_DATA = (b"\x00\x53\x75\xa0", b"\x00\x53\x75\xb0")
_CREATION_TIME, _GROUP_ID = 9, 10


@dataclass(slots=True)
class RocketMessage:
    """A message: `system` and `user` are the property map, system properties by their names (`TAGS`, `WAIT` …).

    `born_ms` is None if the message has no born time; `born_host` is `address:port`, or empty; `flag` is a number of
    32 bits that classic clients give.
    """

    body: bytes
    user: dict[str, str] = field(default_factory=dict)
    system: dict[str, str] = field(default_factory=dict)
    born_ms: int | None = None
    born_host: str = ""
    flag: int = 0
    message_group: str | None = None

    @property
    def tag(self) -> str | None:
        """The tag, if there is one."""
        return self.system.get("TAGS")

    @property
    def keys(self) -> list[str]:
        """The keys, apart."""
        return self.system.get("KEYS", "").split()

    @property
    def message_id(self) -> str:
        """The id that the client made; empty if none is known yet."""
        return self.system.get("UNIQ_KEY", "")


def to_amqp(message: RocketMessage) -> bytes:
    """The bytes that a message is stored as; empty names and values are left out. KeyError: no system property."""
    return _composed(
        [(name.encode(), _encoded(value)) for name, value in message.system.items() if value],
        [(_encoded(name), _encoded(value)) for name, value in message.user.items() if name and value],
        message.body,
        born_ms=message.born_ms,
        born_host=message.born_host.encode(),
        flag=message.flag,
        message_group=_encoded(message.message_group) if message.message_group else None,
    )


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def amqp_of_sent(
    properties: bytes, body: bytes, *, born_ms: int, born_host: str, flag: int, reconsume_times: int = 0
) -> bytes:
    """As `to_amqp`, of a property text as classic clients send it (`headgate.protocols.rocketmq.properties`).

    `body` is not compressed any more; `reconsume_times` are kept as the property RECONSUME_TIME, unless 0.
    """
    if not reconsume_times:
        head = _head(properties, len(body), born_ms, born_host, flag)
        if head is not None:
            return head + body
    held = dict(read_properties(properties))
    if reconsume_times:
        held[b"RECONSUME_TIME"] = b"%d" % reconsume_times
    system = [(name, value) for name, value in held.items() if name in _SYSTEM]
    user = [(name, value) for name, value in held.items() if name not in _SYSTEM] if len(system) < len(held) else []
    return _composed(
        system,
        user,
        body,
        born_ms=born_ms,
        born_host=born_host.encode(),
        flag=flag,
        message_group=held.get(SHARDING_KEY.encode()),
    )


def _head(properties: bytes, body_bytes: int, born_ms: int, born_host: str, flag: int) -> bytes | None:
    """The sections before the body, by the kernel; None without kernels, or where the kernel is not sure."""
    kernel = kernels.load(KERNEL)
    if kernel is None:
        return None
    buffers = getattr(_buffers, "buffers", None)
    if buffers is None:
        buffers = _buffers.buffers = _KernelBuffers(kernel.SCRATCH_BYTES)
    size = len(properties)
    if size > MAX_PROPERTIES_BYTES:
        return None
    buffers.text[:size] = properties
    _, host, host_bytes = _host(born_host)
    head_bytes = kernel.compose(
        *(buffers.text_address, size, body_bytes, born_ms, host, host_bytes, flag),
        *(_tables()[1], buffers.scratch_address, buffers.head_address),
    )
    return None if head_bytes < 0 else bytes(buffers.head[:head_bytes])


class _KernelBuffers:
    """The kernel's input and output buffers, for one thread."""

    def __init__(self, scratch_bytes: int) -> None:
        octets = np.empty(scratch_bytes + _TEXT_BYTES + _HEAD_BYTES, dtype=np.uint8)
        self.scratch_address = kernels.address_of(octets)
        self.text_address = self.scratch_address + scratch_bytes
        self.head_address = self.text_address + _TEXT_BYTES
        self.text = octets.data[scratch_bytes : scratch_bytes + _TEXT_BYTES]
        self.head = octets.data[scratch_bytes + _TEXT_BYTES :]


_buffers = threading.local()


@functools.lru_cache(maxsize=4096)
def _host(text: str) -> tuple[NDArray[np.uint8], int, int]:
    octets = np.frombuffer(text.encode() + bytes(SLACK_BYTES), dtype=np.uint8)
    return octets, kernels.address_of(octets), len(octets) - SLACK_BYTES


@functools.cache
def _tables() -> tuple[NDArray[np.int64], int]:
    block = TablesBlock(*system_names().addresses(), sharding=kernels.address_of(_SHARDING_OCTETS))
    tables = np.array(block, dtype=np.int64)
    return tables, kernels.address_of(tables)


def _composed(
    system: list[tuple[bytes, bytes]],
    user: list[tuple[bytes, bytes]],
    body: bytes,
    *,
    born_ms: int | None,
    born_host: bytes,
    flag: int,
    message_group: bytes | None,
) -> bytes:
    annotations: list[bytes] = []
    message_id = _NULL
    for name, value in system:
        if name == _ID:
            message_id = _string(value)
        else:
            annotations += (_symbol(_ANNOTATIONS[name]), _string(value))
    if born_host:
        annotations += (_symbol(_BORN_HOST), _string(born_host))
    if flag:
        annotations += (_symbol(_FLAG), b"\x71" + flag.to_bytes(4, "big", signed=True))
    fields = [message_id]
    if born_ms is not None or message_group is not None:
        fields += [_NULL] * (_CREATION_TIME - 1)
        fields.append(_NULL if born_ms is None else b"\x83" + born_ms.to_bytes(8, "big", signed=True))
    if message_group is not None:
        fields.append(_string(message_group))
    sections: list[bytes] = []
    if annotations:
        sections += (b"\x00\x53\x72", _compound(0xC1, annotations))
    if fields != [_NULL]:
        sections += (b"\x00\x53\x73", _compound(0xC0, fields))
    if user:
        entries = [encoded for name, value in user for encoded in (_string(name), _string(value))]
        sections += (b"\x00\x53\x74", _compound(0xC1, entries))
    size = len(body)
    data = b"\xa0%c" % size if size <= 0xFF else b"\xb0" + size.to_bytes(4, "big")
    return b"".join((*sections, b"\x00\x53\x75", data, body))


def _string(octets: bytes) -> bytes:
    size = len(octets)
    return b"\xa1%c%b" % (size, octets) if size <= 0xFF else b"\xb1%b%b" % (size.to_bytes(4, "big"), octets)


@functools.cache
def _symbol(octets: bytes) -> bytes:
    return b"\xa3%c%b" % (len(octets), octets)


def _compound(constructor: int, members: list[bytes]) -> bytes:
    content = b"".join(members)
    if len(content) < 0xFF and len(members) <= 0xFF:
        return b"%c%c%c%b" % (constructor, len(content) + 1, len(members), content)
    size, count = (len(content) + 4).to_bytes(4, "big"), len(members).to_bytes(4, "big")
    return b"%c%b%b%b" % (constructor + 0x10, size, count, content)


def from_amqp(data: bytes, *, identity: str, offset: int) -> RocketMessage:
    """A stored message as clients of RocketMQ see it: see the head of this module. Never raises.

    `identity` is that of the stream, and `offset` the message's place in it: they make the id of a message without one.
    """
    try:
        spans, body_position = section_spans(data)
    except MessageError:
        return RocketMessage(data, system={"UNIQ_KEY": stable_id(identity, offset)})
    message = RocketMessage(_body(data, body_position))
    decoder = ValueDecoder(data)
    if Section.MESSAGE_ANNOTATIONS in spans:
        _read_annotations(message, data, spans[Section.MESSAGE_ANNOTATIONS], decoder)
    if Section.PROPERTIES in spans:
        _read_fields(message, data, spans[Section.PROPERTIES], decoder)
    if Section.APPLICATION_PROPERTIES in spans:
        message.user = _user_properties(data, spans[Section.APPLICATION_PROPERTIES], decoder)
    message.system.setdefault("UNIQ_KEY", stable_id(identity, offset))
    return message


def stable_id(identity: str, offset: int) -> str:
    """The id of a message that has none: 32 hexadecimal digits, the same at every delivery, of no other message."""
    return f"{identity_digits(identity)}{offset:016X}"


@functools.lru_cache(maxsize=4096)
def identity_digits(identity: str) -> str:
    """The first half of the ids that messages of a stream have: 16 digits."""
    return hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:16].upper()


def _body(data: bytes, position: int) -> bytes:
    """The body whose sections begin at `position`; sections that do not decode are the body as they are."""
    if data.startswith(_DATA, position):
        width = 4 if data[position + 3] == 0xB0 else 1
        start = position + 4 + width
        if start + int.from_bytes(data[position + 4 : start], "big") == len(data):
            return data[start:]
    try:
        return body_bytes(Message.decode(data).body)
    except MessageError:
        return data[position:]


def _read_annotations(message: RocketMessage, data: bytes, span: SectionSpan, decoder: ValueDecoder) -> None:
    seen: set[bytes] = set()
    for key, position, behind in _pairs(data, span, _TEXTS):
        if key in seen or not key.startswith(_PREFIX):
            continue
        seen.add(key)
        if data[position] in _STRINGS:
            text = _text(decoder, data, position, behind)
            if key == _BORN_HOST:
                message.born_host = text or ""
            elif key in _NAMES and text:
                message.system[_NAMES[key]] = text
        elif key == _FLAG and data[position] == 0x71:
            message.flag = int.from_bytes(data[position + 1 : behind], "big", signed=True)


def _read_fields(message: RocketMessage, data: bytes, span: SectionSpan, decoder: ValueDecoder) -> None:
    position = span.elements
    for number in range(min(span.count, _GROUP_ID + 1)):
        try:
            behind = skip_value(data, position, span.stop)
        except MessageError:
            return
        if data[position] == _NULL_CONSTRUCTOR:
            pass
        elif number == 0:
            text = _text(decoder, data, position, behind)
            if text:
                message.system["UNIQ_KEY"] = text
        elif number == _CREATION_TIME and data[position] == 0x83:
            message.born_ms = int.from_bytes(data[position + 1 : behind], "big", signed=True)
        elif number == _GROUP_ID and data[position] in _STRINGS:
            message.message_group = _text(decoder, data, position, behind) or None
        position = behind


def _user_properties(data: bytes, span: SectionSpan, decoder: ValueDecoder) -> dict[str, str]:
    """User properties; of equal names, the first with a value that filters can use counts, else the first."""
    found: dict[bytes, tuple[int, int]] = {}
    for key, position, behind in _pairs(data, span, _STRINGS):
        if key not in found or (not is_usable(data, found[key][0]) and is_usable(data, position)):
            found[key] = position, behind
    texts: dict[str, str] = {}
    for key, (position, behind) in found.items():
        if key and key not in _SYSTEM:
            text = _text(decoder, data, position, behind)
            if text:
                texts.setdefault(key.decode("utf-8", "replace"), text)
    return texts


def _pairs(data: bytes, span: SectionSpan, keys: frozenset[int]) -> Iterator[tuple[bytes, int, int]]:
    """Keys of the types `keys`, and where their values begin and end; stops where the framing breaks."""
    position, stop = span.elements, span.stop
    for _ in range(span.count // 2):
        start = position
        try:
            value = _behind(data, start, stop)
            position = _behind(data, value, stop)
        except MessageError:
            return
        constructor = data[start]
        if constructor in keys:
            yield data[start + (2 if constructor < _WIDE else 5) : value], value, position


def _behind(data: bytes, position: int, stop: int) -> int:
    """As `skip_value`; at once behind short texts, which most values are."""
    if position + 1 < stop and data[position] in _SHORT_TEXTS:
        behind = position + 2 + data[position + 1]
        if behind <= stop:
            return behind
    return skip_value(data, position, stop)


def _text(decoder: ValueDecoder, data: bytes, position: int, behind: int) -> str | None:
    if data[position] == _SHORT_STRING:
        return data[position + 2 : behind].decode("utf-8", "replace")
    try:
        return value_text(decoder.value(position, behind)[0])
    except MessageError:
        return None
