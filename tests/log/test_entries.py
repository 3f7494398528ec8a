from __future__ import annotations

import gzip
import struct
import tracemalloc

import lz4.frame
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from chunks import encode_chunk
from headgate.errors import ConfigError, CorruptChunkError
from headgate.log import ChunkHeader
from headgate.log.compression import compress, decompress, parse_compression
from headgate.log.entries import SimpleEntry, SubBatch, entries_of, unpack_chunk
from headgate.log.format import CHUNK_HEADER_BYTES, Compression

MESSAGES = st.lists(st.binary(max_size=40), min_size=1, max_size=12)
PATH = "folder/00000000000000000000.segment"


def data_of(chunk: bytes) -> tuple[ChunkHeader, bytes]:
    header = ChunkHeader.decode(chunk, path=PATH, position=0)
    start = CHUNK_HEADER_BYTES + header.bloom_length
    return header, chunk[start : start + header.data_length]


def unpack(header: ChunkHeader, data: bytes, limit_bytes: int = 1 << 20) -> list[bytes]:
    unpacked = unpack_chunk(header, data, limit_bytes=limit_bytes, path=PATH, position=56)
    assert int((unpacked.starts + unpacked.lengths).max(initial=0)) + 8 <= len(unpacked.data)
    return [
        unpacked.data[at : at + length].tobytes() for at, length in zip(unpacked.starts, unpacked.lengths, strict=True)
    ]


@given(st.lists(st.tuples(MESSAGES, st.sampled_from([None, *Compression])), min_size=1, max_size=5))
def test_messages_and_sub_batches_of_every_codec_come_back_in_order(
    parts: list[tuple[list[bytes], Compression | None]],
) -> None:
    entries: list[bytes | SubBatch] = []
    expected: list[bytes] = []
    for messages, compression in parts:
        expected.extend(messages)
        entries.extend(messages if compression is None else [SubBatch.of(messages, compression)])
    header, data = data_of(encode_chunk(entries, [], filter_size_bytes=16))
    assert unpack(header, data) == expected
    assert header.num_records == len(expected)
    assert header.num_entries == len(entries)


@pytest.mark.parametrize("compression", list(Compression))
def test_content_of_any_length_comes_back_from_every_codec(compression: Compression) -> None:
    for content in (b"", b"a", b"abc" * 1000, bytes(range(256)) * 300, bytes(70_000)):
        assert decompress(compress(content, compression), compression, len(content)) == content


def test_snappy_and_lz4_are_in_their_framed_formats() -> None:
    assert compress(b"abc", Compression.SNAPPY).startswith(b"\xff\x06\x00\x00sNaPpY")
    assert compress(b"abc", Compression.LZ4).startswith(b"\x04\x22\x4d\x18")
    # The flag of independent blocks: LZ4FrameInputStream of lz4-java, in RabbitMQ's Java client, reads no others.
    assert compress(bytes(range(256)) * 1000, Compression.LZ4)[4] & 0x20


def test_codecs_go_by_their_names_and_others_are_refused_with_the_list() -> None:
    assert [parse_compression(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")] == list(Compression)
    for wrong in ("brotli", "ZSTD", ""):
        with pytest.raises(ConfigError, match=r"expected one of none, gzip, snappy, lz4, zstd"):
            parse_compression(wrong)


def test_a_gzip_body_of_several_members_is_one_content() -> None:
    body = gzip.compress(b"abc") + gzip.compress(b"") + gzip.compress(b"def")
    assert decompress(body, Compression.GZIP, 6) == b"abcdef"


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("difference", [-1, 1, 1000])
def test_an_uncompressed_length_that_is_not_true_is_refused(compression: Compression, difference: int) -> None:
    content = b"0123456789" * 50
    with pytest.raises(ValueError, match=r"the head says|does not decode"):
        decompress(compress(content, compression), compression, len(content) + difference)


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_a_cut_body_is_refused_at_every_length(compression: Compression) -> None:
    content = b"0123456789" * 50
    body = compress(content, compression)
    for length in range(len(body)):
        try:
            found = decompress(body[:length], compression, len(content))
        except ValueError:
            continue
        # A checksum behind the content may be missing without the content being wrong.
        assert found == content


def bomb(compression: Compression, size: int) -> bytes:
    if compression is Compression.GZIP:
        return gzip.compress(bytes(size))
    if compression is Compression.LZ4:
        return bytes(lz4.frame.compress(bytes(size)))
    return zstandard.ZstdCompressor().compress(bytes(size))


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_a_bomb_is_refused_without_being_expanded(compression: Compression) -> None:
    body = bomb(compression, 100 << 20)
    sub_batch = SubBatch(compression, 1, 1000, body)
    tracemalloc.start()
    with pytest.raises(CorruptChunkError, match="more than 1000"):
        sub_batch.expand(limit_bytes=1 << 20, path=PATH, position=77)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 << 20


def test_a_snappy_bomb_is_refused_without_being_expanded() -> None:
    body = compress(bytes(100 << 20), Compression.SNAPPY)
    with pytest.raises(CorruptChunkError, match="snappy content does not decode into 1000 bytes"):
        SubBatch(Compression.SNAPPY, 1, 1000, body).expand(limit_bytes=1 << 20, path=PATH, position=77)


def test_an_uncompressed_length_above_the_limit_is_refused_with_the_place() -> None:
    with pytest.raises(CorruptChunkError, match="the limit is 1000") as caught:
        SubBatch(0, 1, 4_000_000_000, b"").expand(limit_bytes=1000, path=PATH, position=77)
    assert (str(caught.value.path), caught.value.position) == (PATH, 77)


def test_the_limit_counts_all_sub_batches_of_a_chunk_together() -> None:
    entries = [SubBatch.of([bytes(400)], Compression.GZIP) for _ in range(3)]
    header, data = data_of(encode_chunk(entries, [], filter_size_bytes=16))
    assert len(unpack(header, data, limit_bytes=1212)) == 3
    with pytest.raises(CorruptChunkError, match="the limit is 403"):
        unpack(header, data, limit_bytes=1211)


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(CorruptChunkError, match="unknown compression 5"):
        SubBatch(5, 1, 3, b"abc").expand(limit_bytes=1000, path=PATH, position=0)


@pytest.mark.parametrize(("records", "reason"), [(1, "behind its 1 messages"), (3, "its content ends before")])
def test_a_sub_batch_with_another_number_of_messages_is_refused(records: int, reason: str) -> None:
    sub_batch = SubBatch.of([b"a", b"b"], Compression.NONE)
    sub_batch.num_records = records
    with pytest.raises(CorruptChunkError, match=reason):
        list(sub_batch.messages(limit_bytes=1000, path=PATH, position=0))


@pytest.mark.parametrize(
    ("entries", "data", "reason"),
    [
        (2, b"\x00\x00\x00\x01a", "ends before entry 1"),
        (1, b"\x00\x00\x00\x01ab", "1 bytes behind the last"),
        (1, b"\x00\x00\x00\x02a", "entry 0 has 2 bytes, 1 are left"),
        (1, b"\x00\x00\x01", "ends before entry 0"),
        (1, b"\x80\x00\x01\x00\x00\x00\x01", "inside a sub-batch's head"),
        (1, struct.pack(">BHII", 0x80, 1, 5, 99) + b"hello", "entry 0 has 99 bytes, 5 are left"),
    ],
)
def test_malformed_entries_are_an_error_with_the_place(entries: int, data: bytes, reason: str) -> None:
    with pytest.raises(CorruptChunkError, match=reason) as caught:
        list(entries_of(data, entries, path=PATH, position=1000))
    assert caught.value.position is not None
    assert 1000 <= caught.value.position <= 1000 + len(data)


def test_a_chunk_with_another_number_of_records_is_refused() -> None:
    header, data = data_of(encode_chunk([b"a", b"b"], [None], filter_size_bytes=16))
    header.num_records = 3
    with pytest.raises(CorruptChunkError, match="says 3 records, its entries hold 2"):
        unpack(header, data)


@given(st.binary(max_size=80), st.integers(0, 5), st.integers(0, 10))
@example(b"\xff" * 40, 1, 1)
def test_any_bytes_unpack_or_raise_the_named_error(data: bytes, num_entries: int, num_records: int) -> None:
    header = ChunkHeader(0, num_entries, num_records, 0, 1, 0, 0, len(data), 0, 0)
    place = ""
    try:
        assert len(unpack(header, data)) == num_records
    except CorruptChunkError as error:
        place = str(error.path)
    assert place in ("", PATH)


def test_positions_of_entries_point_at_their_bodies() -> None:
    _, data = data_of(encode_chunk([b"abc", SubBatch.of([b"x"], Compression.NONE)], [None], filter_size_bytes=16))
    for entry in entries_of(data, 2, path=PATH, position=0):
        assert data[entry.position : entry.position + len(entry.body)] == entry.body
        assert isinstance(entry, (SimpleEntry, SubBatch))


def test_sub_batches_without_or_with_too_many_messages_are_refused() -> None:
    with pytest.raises(ConfigError, match="0 messages"):
        SubBatch.of([], Compression.NONE)


def test_what_is_wrong_in_a_sub_batch_is_named_among_others() -> None:
    good, short = SubBatch.of([b"a", b"b"], Compression.GZIP), SubBatch.of([b"c"], Compression.NONE)
    short.num_records = 2
    header, data = data_of(encode_chunk([good, short, b"d"], [None], filter_size_bytes=16))
    with pytest.raises(CorruptChunkError, match="says 2 messages, its content ends before"):
        unpack(header, data)
    short.num_records = 1
    short.body += b"\0\0\0\0"
    short.uncompressed_length += 4
    header, data = data_of(encode_chunk([good, short, b"d"], [None], filter_size_bytes=16))
    with pytest.raises(CorruptChunkError, match="4 bytes behind its 1 messages"):
        unpack(header, data)
