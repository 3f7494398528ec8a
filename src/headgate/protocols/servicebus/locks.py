"""Lock tokens: 16 bytes, which clients show as a guid.

A delivery tag carries the guid in .NET's order, with the first three groups turned round; requests carry it as an AMQP
uuid, in the order of the network. So that nothing is turned here, the tag is the token.
Source: servicebus_wire, sections 5 and 7.
"""

from __future__ import annotations

import uuid

TOKEN_BYTES = 16


def guid_of(token: bytes) -> uuid.UUID:
    """The guid that a client makes of a delivery tag."""
    return uuid.UUID(bytes_le=token)


def token_of(guid: uuid.UUID) -> bytes:
    """The delivery tag of a guid that a client gives back."""
    return guid.bytes_le
