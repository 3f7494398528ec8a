"""Bodies that clients compressed, and digests of bodies.

Streams store and deliver bodies uncompressed, so that every protocol and Spark can read them.
Source: `MessageSysFlag` and `compression` of RocketMQ 5.5; gRPC's `Encoding` GZIP.
"""

from __future__ import annotations

import enum
import hashlib
import zlib
from collections.abc import Callable

from headgate.errors import RemoteProtocolError
from headgate.protocols.rocketmq.codes import Status, refused

COMPRESSED_FLAG = 0x1
COMPRESSION_BITS = 0x7 << 8
"""The bits of `sysFlag` that say that a body is compressed, and how."""

_ZSTD_MAX_WINDOW_BYTES = 1 << 27
_GZIP_BITS = 16 + zlib.MAX_WBITS


class Compression(enum.IntEnum):
    """Compressions of a body, by their numbers in `sysFlag` (old clients send 0 for zlib); GZIP is only in gRPC."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3
    GZIP = 8


def compression_of(sys_flag: int) -> Compression | None:
    """How the body of a classic message is compressed; None if it is not. Raises RemoteProtocolError."""
    if not sys_flag & COMPRESSED_FLAG:
        return None
    number = (sys_flag & COMPRESSION_BITS) >> 8 or Compression.ZLIB
    if number > Compression.ZLIB:
        raise refused(Status.MESSAGE_CORRUPTED, f"unknown compression {number}")
    return Compression(number)


def decompressed(body: bytes, compression: Compression, limit: int) -> bytes:
    """The content of a compressed body, at most `limit` bytes. Raises RemoteProtocolError."""
    try:
        plain = _EXPANDERS[compression](body, limit)
    except (zlib.error, RuntimeError, ValueError) as error:
        raise refused(Status.MESSAGE_CORRUPTED, f"a body that is not {compression.name.lower()}: {error}") from None
    if len(plain) > limit:
        raise body_too_large(limit)
    return plain


def _zlib(body: bytes, limit: int) -> bytes:
    return _inflated(body, limit, zlib.MAX_WBITS)


def _gzip(body: bytes, limit: int) -> bytes:
    return _inflated(body, limit, _GZIP_BITS)


def _inflated(body: bytes, limit: int, window_bits: int) -> bytes:
    inflater = zlib.decompressobj(window_bits)
    plain = inflater.decompress(body, limit + 1)
    return _whole(plain, limit, inflater.eof and not inflater.unused_data)


def _lz4(body: bytes, limit: int) -> bytes:
    import lz4.frame

    reader = lz4.frame.LZ4FrameDecompressor()
    plain = reader.decompress(body, max_length=limit + 1)
    return _whole(plain, limit, reader.eof and not reader.unused_data)


def _zstd(body: bytes, limit: int) -> bytes:
    import zstandard

    decoder = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_BYTES)
    try:
        plain = decoder.stream_reader(body).read(limit + 1)
        if len(plain) > limit:
            return plain
        # The reader above is bounded, but does not say whether the frame ended; this one does.
        reader = decoder.decompressobj()
        reader.decompress(body)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None
    return _whole(plain, limit, reader.eof and not reader.unused_data)


def _whole(plain: bytes, limit: int, is_whole: bool) -> bytes:
    if len(plain) <= limit and not is_whole:
        raise ValueError("it is cut, or bytes are behind it")
    return plain


_EXPANDERS: dict[Compression, Callable[[bytes, int], bytes]] = {
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
    Compression.ZLIB: _zlib,
    Compression.GZIP: _gzip,
}
"""Expand at most one byte more than the limit; ValueError, or the codec's own error, for other bytes."""


def body_too_large(limit: int) -> RemoteProtocolError:
    """The refusal of a larger body."""
    return refused(Status.MESSAGE_BODY_TOO_LARGE, f"message body cannot exceed the max {limit}")


class Digest(enum.IntEnum):
    """Digests of bodies, by their numbers in gRPC's `DigestType`."""

    CRC32 = 1
    MD5 = 2
    SHA1 = 3


def digest(body: bytes, kind: Digest) -> str:
    """Upper-case hexadecimal digits: 8 of CRC32, 32 of MD5, 40 of SHA1, as clients of gRPC compare them."""
    if kind is Digest.CRC32:
        return f"{zlib.crc32(body):08X}"
    function = hashlib.md5 if kind is Digest.MD5 else hashlib.sha1
    return function(body, usedforsecurity=False).hexdigest().upper()


def body_crc(body: bytes) -> int:
    """The check sum in a stored message: CRC32 without its highest bit."""
    return zlib.crc32(body) & 0x7FFFFFFF
