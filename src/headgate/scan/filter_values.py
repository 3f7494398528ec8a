"""The filter values of stored messages: by the declaration that they were written under, or by their annotation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headgate.evaluate import locate_values
from headgate.log import ChunkHeader, DeclaredValues, StreamSettings
from headgate.message import EncodedMessages, FieldReference, Message, Section, parse_field
from headgate.message.lookup import field_bytes

_ANNOTATION = FieldReference(Section.MESSAGE_ANNOTATIONS, key=b"x-stream-filter-value")


def written_filter_value(
    settings: StreamSettings | None, message: Message, chunk_id: int, next_chunk_id: int
) -> bytes | None:
    """The filter value that a message of a chunk was written with, as far as files tell: Bloom filters hold no values.

    `settings` are those of its stream, None of a foreign one.
    """
    field = _ANNOTATION
    for declared in () if settings is None else settings.declared:
        if declared.start <= chunk_id and next_chunk_id <= declared.stop:
            field = parse_field(declared.field)
    return field_bytes(message.encode(), field)


def declared_values(settings: StreamSettings) -> DeclaredValues:
    """The function by which `verify_stream` computes the Bloom filters of a stream again."""
    fields = {declared.field: parse_field(declared.field) for declared in settings.declared}

    def values(header: ChunkHeader, messages: Sequence[bytes]) -> list[bytes | None] | None:
        ids, next_ids = np.array([header.chunk_id]), np.array([header.next_chunk_id])
        for name, field in fields.items():
            if settings.declared_mask(name, ids, next_ids)[0]:
                encoded = EncodedMessages.of(list(messages))
                found = zip(*(column.tolist() for column in locate_values(encoded, field)), strict=True)
                data = encoded.data
                return [data[at : at + length].tobytes() if length >= 0 else None for at, length in found]
        return None

    return values
