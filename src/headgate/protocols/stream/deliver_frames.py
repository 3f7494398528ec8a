"""Deliver frames in bulk (stream_protocol.md section 6): a chunk's header of 48 bytes and its data, nothing between.

    version 1    u8 subscription id, chunk
    version 2    u8 subscription id, u64 id of the stream's last chunk, chunk

The Bloom filter and the trailer of a chunk are not sent, although the header still has their lengths.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from headgate import kernels
from headgate.arrays import total
from headgate.kernels import address_of
from headgate.log.format import CHUNK_HEADER_BYTES
from headgate.protocols.stream.codes import Command
from headgate.protocols.stream.wire import malformed

Int64Array = NDArray[np.int64]

DELIVER_HEAD_BYTES = (0, 9, 17)
"""Bytes of a frame before the chunk, the size included, by version."""

Buffer: TypeAlias = bytes | bytearray | memoryview

_KERNEL = "headgate.protocols.stream.kernel"
_KERNEL_FROM_CHUNKS = 4
_VIEWS_FROM_BYTES = 16 << 10
"""Chunks of this many bytes on average are not copied: two pieces more for the system cost less."""

_HEAD = struct.Struct(">IHHB")
_BODY_HEAD = struct.Struct(">HHB")
_U64 = struct.Struct(">Q")
_DATA_LENGTH = struct.Struct(">I")
_DATA_LENGTH_AT = 36


@dataclass(frozen=True, slots=True)
class Deliver:
    """A chunk for a subscription: header and data; `committed_chunk_id` is None in version 1."""

    subscription_id: int
    committed_chunk_id: int | None
    chunk: bytes


def encode_deliver(
    subscription_id: int,
    data: NDArray[np.uint8],
    *,
    header_starts: Int64Array,
    data_starts: Int64Array,
    data_lengths: Int64Array,
    committed_chunk_id: int,
    version: int,
) -> list[Buffer]:
    """A Deliver frame for each of some chunks over `data`, in pieces that follow one another.

    All arrays are `(chunks,)`: where the header and the data of each chunk start, and the bytes of its data. Small
    chunks are copied into one piece; large ones are views of `data`, which must not change while a piece is referenced.
    """
    count = len(header_starts)
    is_copied = total(data_lengths) < count * _VIEWS_FROM_BYTES
    kernel = kernels.load(_KERNEL) if is_copied and count >= _KERNEL_FROM_CHUNKS else None
    if kernel is None:
        view, pieces = data.data, list[Buffer]()
        chunks = zip(header_starts.tolist(), data_starts.tolist(), data_lengths.tolist(), strict=True)
        for header, start, length in chunks:
            size = DELIVER_HEAD_BYTES[version] - 4 + CHUNK_HEADER_BYTES + length
            head = _HEAD.pack(size, Command.DELIVER, version, subscription_id)
            if version == 2:
                head += _U64.pack(committed_chunk_id)
            pieces.append(head + view[header : header + CHUNK_HEADER_BYTES])
            pieces.append(view[start : start + length])
        return [b"".join(pieces)] if is_copied else pieces
    head_bytes = DELIVER_HEAD_BYTES[version] + CHUNK_HEADER_BYTES
    target = np.empty(int(data_lengths.sum()) + count * head_bytes, dtype=np.uint8)
    kernel.encode_deliver(
        address_of(data),
        address_of(np.ascontiguousarray(header_starts)),
        address_of(np.ascontiguousarray(data_starts)),
        address_of(np.ascontiguousarray(data_lengths)),
        count,
        subscription_id,
        version,
        committed_chunk_id,
        address_of(target),
    )
    return [target.data]


def decode_deliver(body: bytes | memoryview) -> Deliver:
    """A Deliver frame, without its size; the chunk must be exactly as long as its header says, and is copied."""
    if len(body) < _BODY_HEAD.size:
        malformed("a Deliver without subscription id")
    _, version, subscription = _BODY_HEAD.unpack_from(body)
    if version not in (1, 2):
        malformed(f"a Deliver of version {version}")
    at = DELIVER_HEAD_BYTES[version] - 4
    if len(body) < at + CHUNK_HEADER_BYTES:
        malformed("a Deliver without the header of a chunk")
    length = _DATA_LENGTH.unpack_from(body, at + _DATA_LENGTH_AT)[0]
    if len(body) != at + CHUNK_HEADER_BYTES + length:
        malformed(f"a chunk of {length} bytes of data, {len(body) - at - CHUNK_HEADER_BYTES} are there")
    committed = _U64.unpack_from(body, _BODY_HEAD.size)[0] if version == 2 else None
    return Deliver(subscription, committed, bytes(body[at:]))
