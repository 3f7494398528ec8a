"""The files that RabbitMQ's log library wrote: read as it describes them, and written again to the same bytes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chunks import append_chunk, encode_chunk
from headgate.log import BloomMatcher, ChunkHeader, Stream, StreamArguments, Writer, bloom_bytes
from headgate.log.bloom import bit_positions, phash2, phash2_of_list
from headgate.log.entries import SimpleEntry, SubBatch, entries_of, unpack_chunk
from headgate.log.format import (
    CHUNK_HEADER_BYTES,
    ENTRY_HEAD_BYTES,
    INDEX_HEAD,
    SEGMENT_HEAD,
    ChunkType,
    encode_index_record,
)
from headgate.log.tracking import read_tracking
from headgate.log.tracking_records import TrackingKind, TrackingRecord, decode_records, encode_records
from log_streams import file_bytes

VECTORS = Path(__file__).parent.parent / "vectors" / "osiris"
FILES = ["default", "64", "255"]
KINDS = {
    "sequence": TrackingKind.SEQUENCE,
    "offset": TrackingKind.OFFSET,
    "timestamp": TrackingKind.TIMESTAMP,
}


def description(name: str) -> dict[str, Any]:
    return json.loads((VECTORS / name).read_text())


@pytest.fixture(params=FILES)
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Stream, dict[str, Any]]:
    folder = tmp_path / f"__osiris-{request.param}_1"
    folder.mkdir()
    for ending in ("segment", "index"):
        shutil.copyfile(VECTORS / f"osiris-{request.param}.{ending}", folder / f"{0:020d}.{ending}")
    return Stream.open(folder), description(f"osiris-{request.param}.json")


def records_of(listed: list[dict[str, Any]]) -> list[TrackingRecord]:
    return [
        TrackingRecord(
            KINDS[record["type"]],
            record["id"].encode(),
            record["sequence"] if "chunk_id" in record else record["value"],
            record.get("chunk_id"),
        )
        for record in listed
    ]


def entry_of(listed: dict[str, Any]) -> bytes | SubBatch:
    body = bytes.fromhex(listed["body_hex"])
    if listed["kind"] == "simple":
        return body
    return SubBatch(listed["compression"], listed["num_records"], listed["uncompressed_length"], body)


def header_of(listed: dict[str, Any]) -> ChunkHeader:
    return ChunkHeader(
        chunk_type=listed["type"],
        num_entries=listed["num_entries"],
        num_records=listed["num_records"],
        timestamp_ms=listed["timestamp"],
        epoch=listed["epoch"],
        chunk_id=listed["chunk_id"],
        crc=listed["crc"],
        data_length=listed["data_length"],
        trailer_length=listed["trailer_length"],
        bloom_length=listed["bloom_size"],
    )


def test_the_index_of_a_recorded_stream_is_read_as_described(recorded: tuple[Stream, dict[str, Any]]) -> None:
    stream, described = recorded
    with stream.segments()[0].open() as reader:
        table = reader.chunks()
        rows = zip(table.chunk_id, table.timestamp_ms, table.epoch, table.position, table.type, strict=True)
        keys = ("chunk_id", "timestamp", "epoch", "position", "type")
        assert [dict(zip(keys, map(int, row), strict=True)) for row in rows] == described["index_records"]
        assert reader.stop_position == described["segment_bytes"]


def test_headers_bloom_bytes_entries_and_trailers_are_read_as_described(
    recorded: tuple[Stream, dict[str, Any]],
) -> None:
    stream, described = recorded
    with stream.segments()[0].open() as reader:
        headers = reader.headers(0, len(described["chunks"]))
        for row, chunk in enumerate(described["chunks"]):
            header = reader.header(row)
            assert header == header_of(chunk["header"])
            assert header.encode().hex() == chunk["header_hex"]
            bloom_at = int(headers.bloom_positions[row])
            assert headers.data[bloom_at : bloom_at + header.bloom_length].tobytes().hex() == chunk["bloom_hex"]
            start = chunk["position"] + CHUNK_HEADER_BYTES + header.bloom_length
            stop = start + header.data_length
            data = reader.read(start, stop)[: header.data_length].tobytes()
            found = list(entries_of(data, header.num_entries, path="segment", position=start))
            assert [entry.body if isinstance(entry, SimpleEntry) else entry.encode() for entry in found] == [
                entry if isinstance(entry, bytes) else entry.encode() for entry in map(entry_of, chunk["entries"])
            ]
            trailer = reader.read(stop, stop + header.trailer_length)[: header.trailer_length].tobytes()
            assert list(decode_records(trailer, in_snapshot=False, path="segment", position=stop)) == records_of(
                chunk.get("trailer", [])
            )
            if "tracking" in chunk:
                body = data[ENTRY_HEAD_BYTES:]
                decoded = decode_records(body, in_snapshot=False, path="segment", position=start)
                assert list(decoded) == records_of(chunk["tracking"])


def test_columns_of_headers_agree_with_headers_read_one_by_one(recorded: tuple[Stream, dict[str, Any]]) -> None:
    stream, described = recorded
    with stream.segments()[0].open() as reader:
        headers = reader.headers(0, len(described["chunks"]))
        for name in ChunkHeader.__slots__:
            assert getattr(headers, name).tolist() == [
                getattr(header_of(chunk["header"]), name) for chunk in described["chunks"]
            ]


def test_the_filter_values_published_give_the_recorded_bloom_bytes(recorded: tuple[Stream, dict[str, Any]]) -> None:
    _, described = recorded
    size = described["stream_filter_size"]
    checked = 0
    for chunk in described["chunks"]:
        if "published" in chunk and all(entry["kind"] == "simple" for entry in chunk["entries"]):
            values = [None if value is None else value.encode() for value in chunk["published"]["filter_values"]]
            assert bloom_bytes(values, size).hex() == chunk["bloom_hex"]
            checked += 1
    assert checked == 47


def test_a_stream_written_again_has_the_recorded_bytes(recorded: tuple[Stream, dict[str, Any]], tmp_path: Path) -> None:
    original, described = recorded
    arguments = StreamArguments(filter_size_bytes=described["stream_filter_size"])
    written = Stream.create(tmp_path / "again", name="again", now_ms=0, arguments=arguments)
    with Writer.open(written, now_ms=0) as writer:
        for chunk in described["chunks"]:
            now_ms = chunk["header"]["timestamp"]
            if chunk["header"]["type"] == ChunkType.TRACKING_DELTA:
                for record in chunk["tracking"]:
                    writer.store_offset(record["id"], record["value"])
                writer.flush_offsets(now_ms=now_ms)
                continue
            values = [None if value is None else value.encode() for value in chunk["published"]["filter_values"]]
            messages = [
                (entry, value) if isinstance(entry, bytes) else entry
                for entry, value in zip(map(entry_of, chunk["entries"]), values, strict=False)
            ]
            trailer = chunk.get("trailer")
            if trailer:
                [record] = trailer
                count = len(messages)
                sequences = range(record["value"] - count + 1, record["value"] + 1)
                writer.append(messages, now_ms=now_ms, publisher=record["id"], sequences=sequences)
            elif any(isinstance(message, SubBatch) for message in messages):
                append_chunk(writer, messages, now_ms=now_ms)
            else:
                writer.append(messages, now_ms=now_ms)
    assert file_bytes(written.path) == file_bytes(original.path)


def test_sub_batches_of_the_recording_expand_to_their_messages(recorded: tuple[Stream, dict[str, Any]]) -> None:
    stream, described = recorded
    expanded = 0
    with stream.segments()[0].open() as reader:
        for row, chunk in enumerate(described["chunks"]):
            if chunk["entries"][0]["kind"] != "sub-batch":
                continue
            header = reader.header(row)
            start = chunk["position"] + CHUNK_HEADER_BYTES
            data = reader.read(start, start + header.data_length)[: header.data_length].tobytes()
            unpacked = unpack_chunk(header, data, limit_bytes=1000, path="segment", position=start)
            assert unpacked.lengths.tolist() == [7, 7, 7, 7]
            bodies = [unpacked.data[at : at + 7].tobytes() for at in unpacked.starts]
            assert all(body.startswith(b"\x00Su\xa0\x02") for body in bodies)
            assert len(set(bodies)) == 4
            expanded += 1
    assert expanded == 2


def test_term_hashes_and_bit_positions_are_the_recorded_ones() -> None:
    lines = (VECTORS / "phash2.jsonl").read_text().splitlines()
    for line in lines:
        case = json.loads(line)
        value = bytes.fromhex(case["hex"])
        assert (phash2(value), phash2_of_list(value)) == (case["h"], case["h_list"])
        for size in (16, 64, 255):
            assert list(bit_positions(value, size)) == case[f"bits{size}"]
    assert len(lines) > 50


@pytest.mark.parametrize(
    ("value", "hash_of_binary", "hash_of_list"),
    [
        (b"AMER", 2353170298, 3721954965),
        (b"invoices", 2647366799, 2941845946),
        (b"order.created", 1384171827, 158037201),
        (b"", 147926629, 440873397),
    ],
)
def test_the_check_values_of_the_specification(value: bytes, hash_of_binary: int, hash_of_list: int) -> None:
    assert (phash2(value), phash2_of_list(value)) == (hash_of_binary, hash_of_list)


@pytest.fixture
def rolled(tmp_path: Path) -> tuple[Stream, dict[str, Any]]:
    """The four segments of rollover.json, put together from their parts."""
    described = description("rollover.json")
    folder = tmp_path / "__rollover_1"
    folder.mkdir()
    for segment in described["segments"]:
        parts = [SEGMENT_HEAD]
        for chunk in segment["chunks"]:
            entries = [entry_of(entry) for entry in chunk["entries"]]
            header = header_of(chunk["header"])
            encoded = encode_chunk(
                entries,
                [None],
                filter_size_bytes=16,
                trailer=bytes.fromhex(chunk.get("trailer_hex", "")),
                chunk_type=ChunkType(header.chunk_type),
            )
            assert ChunkHeader.decode(encoded, path="", position=0).crc == header.crc
            parts.append(header.encode() + encoded[CHUNK_HEADER_BYTES:])
        (folder / segment["file"]).write_bytes(b"".join(parts))
        assert len(b"".join(parts)) == segment["segment_bytes"]
        records = b"".join(
            encode_index_record(row["chunk_id"], row["timestamp"], row["epoch"], row["position"], row["type"])
            for row in segment["index_records"]
        )
        (folder / segment["file"]).with_suffix(".index").write_bytes(INDEX_HEAD + records)
    return Stream.open(folder), described


def test_tracking_of_the_rolled_stream_is_that_of_its_last_segment(rolled: tuple[Stream, dict[str, Any]]) -> None:
    stream, _ = rolled
    state = read_tracking(stream)
    assert state.sequences == {b"ref-a": (43, 38), b"ref-b": (44, 39)}
    assert state.offsets == {b"grp": 20}
    assert stream.next_offset() == 45


def test_snapshots_of_the_rolled_stream_encode_to_their_recorded_bytes(rolled: tuple[Stream, dict[str, Any]]) -> None:
    _, described = rolled
    snapshots = [chunk for segment in described["segments"] for chunk in segment["chunks"] if "snapshot" in chunk]
    assert len(snapshots) == 3
    for chunk in snapshots:
        assert encode_records(records_of(chunk["snapshot"])).hex() == chunk["entries"][0]["body_hex"]


def test_writing_the_rolled_stream_again_rolls_at_the_same_chunks(
    rolled: tuple[Stream, dict[str, Any]], tmp_path: Path
) -> None:
    """One difference is on purpose: our snapshot knows nothing of the chunk behind it, which keeps its own trailer."""
    original, described = rolled
    arguments = StreamArguments(max_segment_size_bytes=described["stream_max_segment_size_bytes"])
    written = Stream.create(tmp_path / "again", name="again", now_ms=0, arguments=arguments)
    sequences = {b"ref-a": iter(range(0, 100, 2)), b"ref-b": iter(range(1, 100, 2))}
    publishers = [b"ref-a", b"ref-b"]
    chunks = [chunk for segment in described["segments"] for chunk in segment["chunks"]]
    with Writer.open(written, now_ms=0) as writer:
        for chunk in chunks:
            now_ms = chunk["header"]["timestamp"]
            if "tracking" in chunk:
                for record in chunk["tracking"]:
                    writer.store_offset(record["id"], record["value"])
                writer.flush_offsets(now_ms=now_ms)
            elif "snapshot" not in chunk:
                body = entry_of(chunk["entries"][0])
                assert isinstance(body, bytes)
                publisher = publishers[0]
                if "trailer" in chunk:
                    assert chunk["trailer"][0]["id"].encode() == publisher
                publishers.reverse()
                writer.append(
                    [(body, None)], now_ms=now_ms, publisher=publisher, sequences=[next(sequences[publisher])]
                )
    ours, theirs = file_bytes(written.path), file_bytes(original.path)
    assert list(ours) == list(theirs)
    assert ours["00000000000000000000.segment"] == theirs["00000000000000000000.segment"]
    assert ours["00000000000000000000.index"] == theirs["00000000000000000000.index"]
    for our_segment, their_segment in zip(written.segments(), original.segments(), strict=True):
        with our_segment.open() as our_reader, their_segment.open() as their_reader:
            count = len(their_reader.chunks())
            mine, other = our_reader.headers(0, count), their_reader.headers(0, count)
            for name in ("chunk_type", "num_records", "chunk_id", "epoch", "data_length"):
                assert getattr(mine, name).tolist() == getattr(other, name).tolist()
            longer = np.flatnonzero(mine.trailer_length != other.trailer_length).tolist()
            assert longer == ([] if their_segment.first_chunk_id == 0 else [1])
    assert read_tracking(written) == read_tracking(original)


@pytest.mark.parametrize("name", FILES)
def test_a_chunk_passes_for_every_value_that_was_published_into_it(name: str) -> None:
    described = description(f"osiris-{name}.json")
    for chunk in described["chunks"]:
        bloom = bytes.fromhex(chunk["bloom_hex"])
        for value in chunk.get("published", {}).get("filter_values", []):
            if chunk["entries"][0]["kind"] == "simple":
                assert BloomMatcher([value or ""], match_unfiltered=False).matches(bloom)
