"""Compressed bodies, and digests."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import lz4.frame
import pytest
import zstandard

from headgate.errors import RemoteProtocolError
from headgate.protocols.rocketmq import (
    Compression,
    Digest,
    Status,
    body_crc,
    compression_of,
    decompressed,
    digest,
)

BODY = b"a body that repeats " * 1_000
COMPRESSORS: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.ZLIB: zlib.compress,
    Compression.LZ4: lz4.frame.compress,
    Compression.ZSTD: zstandard.ZstdCompressor(write_content_size=False).compress,
    Compression.GZIP: gzip.compress,
}


def test_how_a_body_is_compressed_is_said_by_flags() -> None:
    assert [compression_of(flag) for flag in (0, 0x300, 1, 0x101, 0x201, 0x301)] == [
        *(None, None, Compression.ZLIB, Compression.LZ4, Compression.ZSTD, Compression.ZLIB)
    ]
    with pytest.raises(RemoteProtocolError, match="unknown compression 4"):
        compression_of(0x401)


@pytest.mark.parametrize("compression", Compression)
def test_bodies_are_expanded_up_to_a_limit(compression: Compression) -> None:
    packed = COMPRESSORS[compression](BODY)
    assert decompressed(packed, compression, len(BODY)) == BODY
    for octets, limit, status in (
        (packed, len(BODY) - 1, Status.MESSAGE_BODY_TOO_LARGE),
        (packed[:-5], len(BODY), Status.MESSAGE_CORRUPTED),
        (b"no such thing", len(BODY), Status.MESSAGE_CORRUPTED),
        (b"", len(BODY), Status.MESSAGE_CORRUPTED),
    ):
        with pytest.raises(RemoteProtocolError) as refused:
            decompressed(octets, compression, limit)
        assert refused.value.code == status


def test_digests_are_hexadecimal_digits() -> None:
    assert [digest(b"123456789", kind) for kind in Digest] == [
        "CBF43926",
        "25F9E794323B453885F5181F1B624D0B",
        "F7C3BC1D808E04732ADF679965CCC34CA7AE3441",
    ]
    assert body_crc(b"123456789") == 0xCBF43926 & 0x7FFFFFFF
