from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate import kernels
from headgate.errors import ConfigError
from headgate.log import bloom, chunk_builder
from headgate.log.chunk_builder import (
    BuiltChunks,
    ChunkBuilder,
    ChunkLimits,
    FilterValues,
    build_chunks,
    chunk_boundaries,
    gather,
    stamp_sequences,
)
from headgate.log.entries import SubBatch, entries_of, unpack_chunk
from headgate.log.format import CHUNK_HEADER_BYTES, ChunkHeader, Compression, decode_headers
from log_streams import without_kernels

KERNEL, FALLBACK, HALF = "kernel", "fallback", "without checksums"


@pytest.fixture(params=[KERNEL, FALLBACK, HALF])
def _engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == FALLBACK:
        monkeypatch.setattr(kernels, "load", lambda _module: None)
    elif request.param == HALF:
        load = kernels.load
        monkeypatch.setattr(kernels, "load", lambda module: None if module.endswith(".checksum") else load(module))


def columns(messages: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    lengths = np.array([len(message) for message in messages], dtype=np.int64)
    # A gap before each message: starts are not where the one before ended.
    starts = np.cumsum(lengths + 3) - lengths
    data = np.frombuffer(b"".join(b"gap" + message for message in messages) + bytes(8), dtype=np.uint8)
    return data, starts, lengths


def parsed(built: BuiltChunks) -> list[tuple[ChunkHeader, bytes, list[bytes], bytes]]:
    """Chunks taken apart by hand: header, Bloom bytes, messages, trailer; checks that there is no gap and each CRC."""
    raw = built.data.tobytes()
    position = 0
    chunks = []
    for expected in built.positions.tolist():
        assert position == expected
        header = ChunkHeader.decode(raw[position : position + 48], path="built", position=position)
        position += CHUNK_HEADER_BYTES
        field = raw[position : position + header.bloom_length]
        position += header.bloom_length
        body = raw[position : position + header.data_length]
        assert zlib.crc32(body) == header.crc
        messages, at = [], 0
        while at < len(body):
            length = int.from_bytes(body[at : at + 4], "big")
            messages.append(body[at + 4 : at + 4 + length])
            at += 4 + length
        assert at == len(body) and len(messages) == header.num_entries == header.num_records
        position += header.data_length
        chunks.append((header, field, messages, raw[position : position + header.trailer_length]))
        position += header.trailer_length
    assert position == len(raw)
    return chunks


VALUES = st.one_of(st.none(), st.sampled_from([b"", b"AMER", b"order.created", b"user.login"]), st.binary(max_size=40))
MESSAGES = st.lists(st.tuples(st.binary(max_size=90), VALUES), max_size=40)
LIMITS = st.builds(
    ChunkLimits,
    filter_size_bytes=st.sampled_from([16, 17, 64, 255]),
    publisher=st.one_of(st.none(), st.binary(min_size=1, max_size=255)),
    max_messages=st.integers(1, 12),
    max_bytes=st.integers(1, 300),
)


@given(rows=MESSAGES, limits=LIMITS)
@example(rows=[(b"", None)], limits=ChunkLimits())
def test_kernel_and_fallback_give_the_same_bytes(rows: list[tuple[bytes, bytes | None]], limits: ChunkLimits) -> None:
    data, starts, lengths = columns([message for message, _value in rows])
    values = FilterValues.of(value for _message, value in rows)
    fast = build_chunks(data, starts, lengths, values, limits)
    slow = without_kernels(lambda: build_chunks(data, starts, lengths, values, limits))
    assert fast.data.tobytes() == slow.data.tobytes()
    assert fast.positions.tolist() == slow.positions.tolist()
    assert fast.num_records.tolist() == slow.num_records.tolist()


@given(rows=MESSAGES, limits=LIMITS)
def test_chunks_hold_the_messages_in_order_with_their_bloom_bytes_and_room_for_the_sequence(
    rows: list[tuple[bytes, bytes | None]], limits: ChunkLimits
) -> None:
    data, starts, lengths = columns([message for message, _value in rows])
    built = build_chunks(data, starts, lengths, FilterValues.of(value for _message, value in rows), limits)
    chunks = parsed(built)
    assert [message for chunk in chunks for message in chunk[2]] == [message for message, _value in rows]
    assert built.message_count == len(rows)
    row = 0
    for header, field, messages, trailer in chunks:
        assert len(messages) <= limits.max_messages
        assert header.data_length <= limits.max_bytes or len(messages) == 1
        assert (header.timestamp_ms, header.epoch, header.chunk_id, header.chunk_type) == (0, 0, 0, 0)
        assert field == bloom.bloom_bytes(
            [value for _message, value in rows[row : row + len(messages)]], limits.filter_size_bytes
        )
        row += len(messages)
        if limits.publisher is None:
            assert trailer == b""
        else:
            assert trailer == b"\x00" + bytes([len(limits.publisher)]) + limits.publisher + bytes(8)


@pytest.mark.usefixtures("_engine")
def test_many_distinct_filter_values_do_not_disturb_each_other_in_the_cache_of_hashes() -> None:
    values = [f"value-{number}".encode()[: 3 + number % 9] for number in range(3000)]
    data, starts, lengths = columns([b"m"] * 3000)
    (chunk,) = parsed(build_chunks(data, starts, lengths, FilterValues.of(values), ChunkLimits(255)))
    assert chunk[1] == bloom.bloom_bytes(values, 255)


@pytest.mark.usefixtures("_engine")
def test_chunks_are_cut_at_4096_messages_and_at_one_mebibyte() -> None:
    data, starts, lengths = columns([b"x"] * 10000)
    assert [len(c[2]) for c in parsed(build_chunks(data, starts, lengths, None, ChunkLimits()))] == [4096, 4096, 1808]
    data, starts, lengths = columns([bytes(1 << 19)] * 3)
    assert [len(c[2]) for c in parsed(build_chunks(data, starts, lengths, None, ChunkLimits()))] == [1, 1, 1]
    data, starts, lengths = columns([bytes((1 << 19) - 4)] * 3)
    assert [len(c[2]) for c in parsed(build_chunks(data, starts, lengths, None, ChunkLimits()))] == [2, 1]


@pytest.mark.usefixtures("_engine")
def test_a_message_larger_than_a_chunk_gets_a_chunk_of_its_own() -> None:
    data, starts, lengths = columns([b"small", bytes(3 << 20), b"small", b"small"])
    built = build_chunks(data, starts, lengths, FilterValues.same(b"AMER", 4), ChunkLimits())
    assert [len(chunk[2]) for chunk in parsed(built)] == [1, 1, 2]


@pytest.mark.usefixtures("_engine")
def test_no_messages_give_no_chunk() -> None:
    data, starts, lengths = columns([])
    built = build_chunks(data, starts, lengths, FilterValues.of([]), ChunkLimits())
    assert len(built) == 0 and len(built.data) == 0 and built.message_count == 0


@pytest.mark.usefixtures("_engine")
def test_messages_may_lie_in_any_order_and_their_columns_may_have_strides() -> None:
    data, starts, lengths = columns([b"one", b"three", b"two", b"skipped"])
    rows = np.array([[2, 0], [0, 0], [1, 0]])[:, 0]
    table = np.stack([starts, lengths], axis=1)[rows]
    built = build_chunks(data, table[:, 0], table[:, 1], None, ChunkLimits())
    assert [chunk[2] for chunk in parsed(built)] == [[b"two", b"one", b"three"]]


def test_a_message_beyond_31_bits_is_refused() -> None:
    with pytest.raises(ConfigError, match="2147483648 bytes"):
        chunk_boundaries(np.array([5, 1 << 31]), ChunkLimits())


@pytest.mark.usefixtures("_engine")
def test_columns_that_do_not_fit_each_other_or_the_buffer_are_refused() -> None:
    data, starts, lengths = columns([b"one", b"two"])
    with pytest.raises(ValueError, match="1 filter values for 2 messages"):
        build_chunks(data, starts, lengths, FilterValues.of([b"a"]), ChunkLimits())
    with pytest.raises(ValueError, match="outside the buffer"):
        build_chunks(data, starts + 100, lengths, None, ChunkLimits())
    with pytest.raises(ValueError, match="outside the buffer"):
        build_chunks(data, starts - 4, lengths, None, ChunkLimits())
    outside = FilterValues(data[:3], np.array([0, 1]), np.array([3, 3]))
    with pytest.raises(ValueError, match="outside the buffer"):
        build_chunks(data, starts, lengths, outside, ChunkLimits())
    with pytest.raises(ValueError, match="2 starts, 1 lengths"):
        build_chunks(data, starts, lengths[:1], None, ChunkLimits())


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"filter_size_bytes": 15}, "filter_size_bytes is 15"),
        ({"filter_size_bytes": 256}, "filter_size_bytes is 256"),
        ({"max_messages": 0}, "max_messages is 0"),
        ({"max_messages": 65536}, "max_messages is 65536"),
        ({"max_bytes": 0}, "max_bytes is 0"),
        ({"publisher": b""}, "publisher reference"),
        ({"publisher": bytes(256)}, "publisher reference"),
    ],
)
def test_limits_that_the_format_cannot_hold_are_refused(arguments: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        ChunkLimits(**arguments)  # type: ignore[arg-type]


def test_stamped_chunks_carry_their_sequence() -> None:
    data, starts, lengths = columns([b"m" * (number % 7) for number in range(25)])
    limits = ChunkLimits(publisher=b"query", max_messages=10)
    built = build_chunks(data, starts, lengths, None, limits)
    stamp_sequences(built.data, built.positions, np.arange(len(built), dtype=np.uint64) + (7 << 20) + 1)
    chunks = parsed(built)
    assert [chunk[3] for chunk in chunks] == [
        b"\x00\x05query" + ((7 << 20) + number).to_bytes(8, "big") for number in (1, 2, 3)
    ]


BATCHES = st.lists(MESSAGES, max_size=6)


@given(batches=BATCHES, limits=LIMITS, fallback=st.booleans())
def test_chunks_built_over_batches_are_those_of_one_big_batch(
    batches: list[list[tuple[bytes, bytes | None]]], limits: ChunkLimits, fallback: bool
) -> None:
    def run() -> tuple[list[bytes], list[bytes]]:
        taken: list[bytes] = []
        builder = ChunkBuilder(limits, lambda built: taken.extend(split(built)))
        for batch in batches:
            data, starts, lengths = columns([message for message, _value in batch])
            # The builder must not look at the buffer after `add`: it is overwritten.
            reused = data.copy()
            values = FilterValues.of(value for _message, value in batch)
            builder.add(reused, starts, lengths, values)
            reused[:] = 255
        builder.finish()
        rows = [row for batch in batches for row in batch]
        data, starts, lengths = columns([message for message, _value in rows])
        whole = build_chunks(data, starts, lengths, FilterValues.of(value for _message, value in rows), limits)
        return taken, split(whole)

    taken, expected = without_kernels(run) if fallback else run()
    assert taken == expected


def split(built: BuiltChunks) -> list[bytes]:
    sizes = decode_headers(built.data, built.positions).size_bytes
    pairs = zip(built.positions.tolist(), sizes.tolist(), strict=True)
    return [built.data[position : position + size].tobytes() for position, size in pairs]


@pytest.mark.usefixtures("_engine")
def test_a_builder_without_filter_values_gives_chunks_without_bloom_bytes() -> None:
    taken: list[BuiltChunks] = []
    builder = ChunkBuilder(ChunkLimits(max_messages=2), taken.append)
    for _ in range(3):
        builder.add(*columns([b"a"]))
    builder.finish()
    assert [[(chunk[1], chunk[2]) for chunk in parsed(built)] for built in taken] == [
        [(b"", [b"a", b"a"])],
        [(b"", [b"a"])],
    ]


@pytest.mark.usefixtures("_engine")
def test_gathered_ranges_lie_side_by_side() -> None:
    data = np.frombuffer(b"abcdefgh", dtype=np.uint8)
    assert gather(data, np.array([6, 0, 3, 1]), np.array([2, 1, -1, 3])).tobytes() == b"ghabcd"
    with pytest.raises(ValueError, match="outside"):
        gather(data, np.array([6]), np.array([3]))


CODECS = [codec for codec in Compression if codec is not Compression.NONE]


def unpacked(built: BuiltChunks) -> list[tuple[ChunkHeader, bytes, list[bytes], bytes]]:
    """As `parsed`, of chunks whose messages are in one sub-batch each."""
    chunks = []
    for raw in split(built):
        header = ChunkHeader.decode(raw, path="built", position=0)
        start = CHUNK_HEADER_BYTES + header.bloom_length
        data = raw[start : start + header.data_length]
        assert zlib.crc32(data) == header.crc
        found = unpack_chunk(header, data, limit_bytes=1 << 20, path="built", position=0)
        pairs = zip(found.starts.tolist(), found.lengths.tolist(), strict=True)
        messages = [found.data[at : at + length].tobytes() for at, length in pairs]
        chunks.append((header, raw[CHUNK_HEADER_BYTES:start], messages, raw[start + header.data_length :]))
    return chunks


@given(batches=BATCHES, limits=LIMITS, codec=st.sampled_from(CODECS), fallback=st.booleans())
def test_compressed_chunks_unpack_to_the_messages_with_bloom_bytes_and_trailers_of_plain_ones(
    batches: list[list[tuple[bytes, bytes | None]]], limits: ChunkLimits, codec: Compression, fallback: bool
) -> None:
    def run(limits: ChunkLimits) -> list[BuiltChunks]:
        taken: list[BuiltChunks] = []
        builder = ChunkBuilder(limits, taken.append)
        for batch in batches:
            builder.add(*columns([message for message, _ in batch]), FilterValues.of(value for _, value in batch))
        builder.finish()
        return taken

    packed_limits = replace(limits, compression=codec)
    packed = without_kernels(lambda: run(packed_limits)) if fallback else run(packed_limits)
    plain = [chunk for built in run(limits) for chunk in parsed(built)]
    found = [chunk for built in packed for chunk in unpacked(built)]
    assert [chunk[1:] for chunk in found] == [chunk[1:] for chunk in plain]
    assert [count for built in packed for count in built.num_records.tolist()] == [len(chunk[2]) for chunk in plain]
    for (header, *_), (expected, *_) in zip(found, plain, strict=True):
        assert (header.num_entries, header.num_records) == (1, expected.num_records)


@pytest.mark.usefixtures("_engine")
def test_a_compressed_chunk_has_one_sub_batch_within_the_limits_of_a_plain_one() -> None:
    data, starts, lengths = columns([b"x"] * 5000 + [bytes(1 << 19)] * 2)
    built = build_chunks(data, starts, lengths, None, ChunkLimits(compression=Compression.ZSTD))
    assert [len(messages) for _, _, messages, _ in unpacked(built)] == [4096, 905, 1]
    assert len(built.data) < 5000
    for raw in split(built):
        (entry,) = entries_of(raw[CHUNK_HEADER_BYTES:], 1, path="built", position=0)
        assert isinstance(entry, SubBatch) and entry.compression == Compression.ZSTD
        assert entry.uncompressed_length <= chunk_builder.MAX_BYTES


def test_a_message_that_readers_would_not_expand_is_not_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_builder, "EXPANSION_LIMIT_BYTES", 100)
    data, starts, lengths = columns([b"s" * 40, b"l" * 97, b"s" * 40])
    limits = ChunkLimits(max_bytes=60, publisher=b"query")
    packed = build_chunks(data, starts, lengths, None, replace(limits, compression=Compression.GZIP))
    plain = build_chunks(data, starts, lengths, None, limits)
    assert split(packed)[1] == split(plain)[1]
    assert [messages for _, _, messages, _ in unpacked(packed)] == [[b"s" * 40], [b"l" * 97], [b"s" * 40]]
