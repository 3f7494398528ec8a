"""Batches: one delivery of message format 0x80013700 whose data sections are messages.

What stands before the sections (properties, annotations of the first message) is an envelope without a meaning.
Source: servicebus_wire, section 6.
"""

from __future__ import annotations

from headgate.errors import MessageError
from headgate.message import AmqpType, Section, decode_value, read_descriptor, section_spans, skip_value

BATCH_FORMAT = 0x80013700

MAX_BATCH_MESSAGES = 65_535
"""A batch becomes one chunk, whose head counts entries with 16 bits."""


def unbatched(data: bytes) -> list[bytes]:
    """The messages of a batch, in order. Raises MessageError for bytes that are no batch, and for an empty one."""
    messages: list[bytes] = []
    _, position = section_spans(data)
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
