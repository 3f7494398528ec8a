"""The codecs of sub-batches (osiris_log.md section 3). Nothing expands beyond the length in the sub-batch's head."""

from __future__ import annotations

import gzip
import zlib

from headgate.errors import ConfigError
from headgate.log.format import Compression

EXPANSION_LIMIT_BYTES = 64 << 20
"""Default limit: uncompressed bytes of the sub-batches of one chunk. Clients write some hundred kilobytes."""

COMPRESSION_NAMES = tuple(codec.name.lower() for codec in Compression)
"""The names of the codecs in options and arguments; the first, `none`, means messages without a sub-batch."""

_ZSTD_MAX_WINDOW_BYTES = 1 << 27

_GZIP_LEVEL = 6
"""The usual level of other programs; 9, Python's default, takes 1.6 times as long to make events 3 % smaller."""


def parse_compression(name: str) -> Compression:
    """The codec with a name. Raises ConfigError that lists all codecs."""
    if name not in COMPRESSION_NAMES:
        raise ConfigError(f"compression: found {name!r}, expected one of {', '.join(COMPRESSION_NAMES)}")
    return Compression[name.upper()]


def compress(content: bytes, compression: Compression) -> bytes:
    """`content` in the codec's format: snappy and lz4 framed, gzip without a time."""
    if compression is Compression.NONE:
        return content
    if compression is Compression.GZIP:
        return gzip.compress(content, compresslevel=_GZIP_LEVEL, mtime=0)
    if compression is Compression.SNAPPY:
        import cramjam

        return bytes(cramjam.snappy.compress(content))
    if compression is Compression.LZ4:
        import lz4.frame

        # The decoder of Java clients refuses blocks that refer to earlier blocks.
        return bytes(lz4.frame.compress(content, block_linked=False))
    import zstandard

    return zstandard.ZstdCompressor().compress(content)


def decompress(body: bytes, compression: int, length: int) -> bytes:
    """The `length` bytes that `body` expands to. Allocates no more than these and the codec's window.

    Raises ValueError with the reason: an unknown codec, bytes that do not decode, more or fewer bytes than `length`.
    """
    try:
        codec = Compression(compression)
    except ValueError:
        raise ValueError(f"unknown compression {compression}") from None
    content = _DECODERS[codec](body, length)
    if len(content) != length:
        found = f"more than {length}" if len(content) > length else str(len(content))
        raise ValueError(f"{codec.name.lower()} content has {found} bytes, the head says {length}")
    return content


def _plain(body: bytes, length: int) -> bytes:
    return body


def _gzip(body: bytes, length: int) -> bytes:
    content = b""
    rest = body
    try:
        # A gzip stream may consist of several members; every pass either consumes input or ends.
        while rest and len(content) <= length:
            decoder = zlib.decompressobj(wbits=31)
            content += decoder.decompress(rest, length + 1 - len(content))
            if not decoder.eof:
                if len(content) <= length:
                    raise ValueError("gzip content is cut off")
                break
            rest = decoder.unused_data
    except zlib.error as error:
        raise ValueError(f"gzip content does not decode: {error}") from error
    return content


def _snappy(body: bytes, length: int) -> bytes:
    import cramjam

    target = bytearray(length + 1)
    try:
        count = cramjam.snappy.decompress_into(body, target)
    except cramjam.DecompressionError as error:
        raise ValueError(f"snappy content does not decode into {length} bytes: {error}") from error
    return bytes(target[:count])


def _lz4(body: bytes, length: int) -> bytes:
    import lz4.frame

    decoder = lz4.frame.LZ4FrameDecompressor()
    try:
        content = bytes(decoder.decompress(body, max_length=length + 1))
        # At exactly the promised length the end mark may still be unread.
        if not decoder.eof and len(content) <= length:
            content += bytes(decoder.decompress(b"", max_length=1))
    except RuntimeError as error:
        raise ValueError(f"lz4 content does not decode: {error}") from error
    if not decoder.eof and len(content) <= length:
        raise ValueError("lz4 content is cut off")
    return content


def _zstd(body: bytes, length: int) -> bytes:
    import zstandard

    decoder = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_BYTES)
    try:
        with decoder.stream_reader(body, read_across_frames=True) as reader:
            return reader.read(length + 1)
    except zstandard.ZstdError as error:
        raise ValueError(f"zstd content does not decode: {error}") from error


_DECODERS = {
    Compression.NONE: _plain,
    Compression.GZIP: _gzip,
    Compression.SNAPPY: _snappy,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
}
