"""The filter values that the messages of a chunk have by the declaration that they were written under."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headgate.log import ChunkHeader, DeclaredValues, StreamSettings
from headgate.message import EncodedMessages, parse_field
from headgate.message.lookup import locate_bytes


def declared_values(settings: StreamSettings) -> DeclaredValues:
    """The function by which `verify_stream` computes the Bloom filters of a stream again."""
    fields = {declared.field: parse_field(declared.field) for declared in settings.declared}

    def values(header: ChunkHeader, messages: Sequence[bytes]) -> list[bytes | None] | None:
        ids, next_ids = np.array([header.chunk_id]), np.array([header.next_chunk_id])
        for name, field in fields.items():
            if settings.declared_mask(name, ids, next_ids)[0]:
                encoded = EncodedMessages.of(list(messages))
                found = zip(*(column.tolist() for column in locate_bytes(encoded, field)), strict=True)
                data = encoded.data
                return [data[at : at + length].tobytes() if length >= 0 else None for at, length in found]
        return None

    return values
