"""Batches: one delivery of message format 0x80013700 whose data sections are messages.

What stands before the sections (properties, annotations of the first message) is an envelope without a meaning.
Source: servicebus_wire, section 6.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from headgate import kernels
from headgate.errors import MessageError
from headgate.message import (
    CONSTRUCTOR_WIDTHS,
    SLACK_BYTES,
    AmqpType,
    EncodedMessages,
    Section,
    decode_value,
    read_descriptor,
    section_spans,
    skip_value,
)

KERNEL = "headgate.protocols.servicebus.kernel"

ID_BYTES = 32
"""A message id that is made here: hexadecimal digits."""

BATCH_FORMAT = 0x80013700

MAX_BATCH_MESSAGES = 65_535
"""A batch becomes one chunk, whose head counts entries with 16 bits."""

_SMALLEST_SECTION_BYTES = 5


def unbatched(data: bytes) -> EncodedMessages:
    """The messages of a batch, in order, copied. Raises MessageError for bytes that are no batch, or an empty one."""
    _, first = section_spans(data)
    kernel = kernels.load(KERNEL)
    if kernel is not None:
        octets = np.frombuffer(bytearray(data) + bytes(SLACK_BYTES), dtype=np.uint8)
        room = min((len(data) - first) // _SMALLEST_SECTION_BYTES, MAX_BATCH_MESSAGES + 1)
        columns = np.empty((2, room), dtype=np.int64)
        starts, lengths = kernels.address_of(columns), kernels.address_of(columns) + 8 * room
        count = kernel.unbatch(
            kernels.address_of(octets), first, len(data), kernels.address_of(widths()), starts, lengths, room
        )
        if count > 0:
            return EncodedMessages(octets, columns[0, :count], columns[1, :count])
    return EncodedMessages.of(_sections(data, first))


@functools.cache
def widths() -> NDArray[np.int64]:
    """The table of constructor widths, for kernels."""
    return np.array(CONSTRUCTOR_WIDTHS, dtype=np.int64)


def _sections(data: bytes, position: int) -> list[bytes]:
    messages: list[bytes] = []
    while position < len(data):
        section, value = read_descriptor(data, position)
        behind = skip_value(data, value, len(data))
        if section is Section.FOOTER:
            break
        part = decode_value(data[value:behind])
        if section is not Section.DATA or part.type is not AmqpType.BINARY:
            raise MessageError("a batch has data sections only", position=position)
        messages.append(part.value)
        position = behind
    if not messages:
        raise MessageError("a batch without messages", position=position)
    return messages
