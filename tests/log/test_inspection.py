"""What `stream info`, `dump` and `verify` show of whole and of damaged folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chunks import append_chunk, encode_chunk
from headgate.errors import OffsetOutOfRangeError
from headgate.log import ChunkType, Stream, StreamArguments, Writer
from headgate.log.entries import SubBatch
from headgate.log.format import CHUNK_HEADER_BYTES, Compression, index_name, segment_name
from headgate.log.inspection import ChunkDump, CrcState, Damage, dump_chunks, stream_info, verify_stream
from headgate.log.pairs import delete_pair


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """Segments of three chunks, the first of a segment a snapshot; filter values, a sub-batch, a stored offset."""
    made = Stream.create(
        tmp_path / "s", name="s", now_ms=0, arguments=StreamArguments(max_segment_chunks=3), filter_source="p.subject"
    )
    with Writer.open(made, now_ms=0) as writer:
        writer.store_offset("group", 0)
        for number in range(6):
            messages = [(b"m%d" % number, b"AMER"), (b"n", None)]
            writer.append(
                messages,
                now_ms=number,
                publisher="p",
                sequences=range(2 * number, 2 * number + 2),
            )
        append_chunk(writer, [SubBatch.of([b"a", b"b", b"c"], Compression.GZIP)], now_ms=9)
    return made


def damages(stream: Stream) -> list[Damage]:
    return [found for found in verify_stream(stream) if isinstance(found, Damage)]


def chunks(stream: Stream) -> list[ChunkDump]:
    return [found for found in dump_chunks(stream, check_crc=True) if isinstance(found, ChunkDump)]


def positions(stream: Stream, segment: int) -> list[int]:
    with stream.segments()[segment].open() as reader:
        return reader.chunks().position.tolist()


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def test_the_numbers_of_a_stream(stream: Stream) -> None:
    info = stream_info(stream)
    assert (info.name, info.is_foreign, info.filter_size_bytes, info.filter_source) == ("s", False, 16, "p.subject")
    assert (info.first_offset, info.next_offset) == (0, stream.next_offset())
    assert info.num_messages == 15
    assert info.num_user_chunks == 7 < len(chunks(stream))
    assert info.facts()["chunks"] == 7
    assert info.facts()["messages_per_chunk"] == 2.1
    assert info.size_bytes == sum(
        path.stat().st_size for path in stream.path.iterdir() if path.suffix in (".segment", ".index")
    )
    assert sum(segment.data_bytes for segment in info.segments) == sum(
        chunk.header.data_length for chunk in chunks(stream) if chunk.header.chunk_type == ChunkType.USER
    )
    assert info.segments[0].first_timestamp_ms == 0
    assert info.segments[-1].last_timestamp_ms == 9
    assert info.tracking.offsets == {b"group": 0}


def test_the_numbers_of_an_empty_stream(tmp_path: Path) -> None:
    info = stream_info(Stream.create(tmp_path / "s", name="s", now_ms=0))
    assert (info.num_messages, info.num_user_chunks, info.next_offset, info.size_bytes) == (0, 0, 0, 16)
    assert info.segments[0].first_timestamp_ms is None


def test_every_chunk_is_shown_with_bloom_fill_and_checksum(stream: Stream) -> None:
    found = chunks(stream)
    assert all(chunk.crc is CrcState.GOOD and chunk.in_index and not chunk.is_torn for chunk in found)
    user = [chunk for chunk in found if chunk.header.chunk_type == ChunkType.USER]
    assert {chunk.bloom_fill for chunk in user[:-1]} == {3 / 128}
    assert user[-1].bloom_fill == 0
    unchecked = list(dump_chunks(stream, check_crc=False))
    assert {chunk.crc for chunk in unchecked if isinstance(chunk, ChunkDump)} == {CrcState.UNCHECKED}


def test_a_whole_stream_has_no_damage_and_all_of_it_was_looked_at(stream: Stream) -> None:
    found = list(verify_stream(stream))
    assert damages(stream) == []
    assert len(found) == len(chunks(stream))


def test_a_flipped_bit_in_the_data_is_damage_of_that_chunk(stream: Stream) -> None:
    position = positions(stream, 1)[1]
    path = stream.segments()[1].segment_path
    at = position + CHUNK_HEADER_BYTES + 16 + 5
    overwrite(path, at, bytes([path.read_bytes()[at] ^ 4]))
    [damage] = damages(stream)
    assert (damage.path, damage.position) == (path, position)
    assert "fails its CRC" in damage.reason
    assert str(damage).startswith(f"{path}, byte {position}: data of chunk")
    assert [chunk.crc for chunk in chunks(stream)].count(CrcState.BAD) == 1


def test_bytes_that_are_no_chunk_are_damage_and_the_walk_goes_on_behind_them(stream: Stream) -> None:
    whole = len(chunks(stream))
    position = positions(stream, 0)[1]
    path = stream.segments()[0].segment_path
    overwrite(path, position, b"\x00")
    assert "no chunk here" in damages(stream)[0].reason
    assert damages(stream)[0].position == position
    assert len(chunks(stream)) == whole - 1


def test_a_header_that_contradicts_the_index_is_damage(stream: Stream) -> None:
    position = positions(stream, 0)[2]
    path = stream.segments()[0].segment_path
    overwrite(path, position + 8, (999).to_bytes(8, "big"))
    at = f"at byte {position} of {path.name}"
    assert damages(stream) == [Damage(path, position, f"time is 999 in the header, 2 in the index, {at}")]
    overwrite(path, position + 8, (2).to_bytes(8, "big"))
    overwrite(path, position + 24, (77).to_bytes(8, "big"))
    assert damages(stream) == [Damage(path, position, f"chunk id is 77 in the header, 4 in the index, {at}")]


def test_a_wrong_index_record_is_damage_of_the_index(stream: Stream) -> None:
    position, index = positions(stream, 0)[2], stream.path / index_name(0)
    record = 8 + 2 * 29
    whole = index.read_bytes()

    def said() -> list[str]:
        found = [f"{damage.path.name}:{damage.position}: {damage.reason}" for damage in damages(stream)]
        index.write_bytes(whole)
        return found

    place = f"{index.name}:{record}"
    at = f"at byte {position} of {segment_name(0)}"
    overwrite(index, record + 8, (999).to_bytes(8, "big"))
    assert said() == [f"{place}: time is 2 in the header, 999 in the index, {at}"]
    overwrite(index, record, (77).to_bytes(8, "big"))
    assert said() == [f"{place}: chunk id is 4 in the header, 77 in the index, {at}"]
    overwrite(index, record + 24, (1 << 20).to_bytes(4, "big"))
    [damage] = said()
    assert damage.startswith(f"{index.name}:{record}: 29 bytes behind the last record that names a chunk")
    record = 8 + 29
    overwrite(index, record + 24, (1 << 20).to_bytes(4, "big"))
    [damage] = said()
    assert damage.startswith(f"{index.name}:{record}: no index record for chunk 2 at byte")


def test_in_a_segment_without_a_seal_the_chunk_ids_say_which_file_is_wrong(stream: Stream) -> None:
    newest, position = stream.segments()[-1], positions(stream, -1)[1]
    chunk_id = newest.first_chunk_id + 1
    overwrite(newest.segment_path, position + 24, (999).to_bytes(8, "big"))
    assert [damage.path for damage in damages(stream)] == [newest.segment_path]
    overwrite(newest.segment_path, position + 24, chunk_id.to_bytes(8, "big"))
    assert damages(stream) == []
    overwrite(newest.index_path, 8 + 29 + 7, b"\xff")
    assert [(damage.path, damage.position) for damage in damages(stream)] == [(newest.index_path, 8 + 29)]


def test_segments_that_retention_deletes_meanwhile_are_passed_over(stream: Stream) -> None:
    ids = [segment.first_chunk_id for segment in stream.segments()]
    found = verify_stream(stream)
    seen = [next(found)]
    for chunk_id in ids[:2]:
        delete_pair(stream.path, chunk_id)
    seen += list(found)
    assert [each for each in seen if isinstance(each, Damage)] == []
    shown = {each.path for each in seen if isinstance(each, ChunkDump)}
    assert shown == {stream.path / segment_name(chunk_id) for chunk_id in (ids[0], *ids[2:])}


def test_a_segment_that_retention_is_about_to_delete_is_no_damage(stream: Stream) -> None:
    (stream.path / "stream.json").unlink()
    stream = Stream.open(stream.path)
    first = stream.segments()[0]
    first.index_path.unlink()
    assert ["no index: retention stopped halfway" in damage.reason for damage in damages(stream)] == [True]
    found = verify_stream(stream)
    seen = [next(found)]
    first.segment_path.unlink()
    assert [each for each in (*seen, *found) if isinstance(each, Damage)] == []


def test_a_segment_that_somebody_else_deletes_is_damage(stream: Stream) -> None:
    second = stream.segments()[1]
    found = dump_chunks(stream, check_crc=False)
    next(found)
    delete_pair(stream.path, second.first_chunk_id)
    [damage] = [each for each in found if isinstance(each, Damage)]
    assert str(damage) == f"{second.segment_path}: the segment was deleted while it was looked at"


def test_the_numbers_beside_retention_are_those_of_what_is_left(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = stream.segments()
    monkeypatch.setattr(Stream, "segments", lambda _: listed)
    delete_pair(stream.path, listed[0].first_chunk_id)
    info = stream_info(stream)
    assert [each.first_chunk_id for each in info.segments] == [each.first_chunk_id for each in listed[1:]]
    assert info.first_offset == listed[1].first_chunk_id
    delete_pair(stream.path, listed[2].first_chunk_id)
    with pytest.raises(OffsetOutOfRangeError):
        stream_info(stream)


def test_a_gap_between_chunks_is_damage_though_index_and_header_agree(stream: Stream) -> None:
    position = positions(stream, 0)[2]
    overwrite(stream.path / segment_name(0), position + 24, (5).to_bytes(8, "big"))
    overwrite(stream.path / index_name(0), 8 + 2 * 29, (5).to_bytes(8, "big"))
    reasons = [damage.reason for damage in damages(stream)]
    assert reasons == ["chunk id 5, expected 4", "segment begins at offset 6, expected 7"]


def test_a_length_that_skips_a_chunk_is_damage(stream: Stream) -> None:
    position = positions(stream, 0)[0]
    path = stream.segments()[0].segment_path
    overwrite(path, position + 36, (40).to_bytes(4, "big"))
    assert any("no index record for this place" in damage.reason for damage in damages(stream))


def test_a_segment_that_ends_inside_a_chunk_is_damage(stream: Stream) -> None:
    path = stream.segments()[0].segment_path
    os.truncate(path, path.stat().st_size - 1)
    [damage] = damages(stream)
    assert damage.reason == "the file ends inside the chunk"
    assert [chunk.is_torn for chunk in chunks(stream)].count(True) == 1


def test_what_a_crash_left_behind_the_index_is_shown_but_no_damage(stream: Stream) -> None:
    newest = stream.segments()[-1]
    whole = encode_chunk([b"m"], [None], filter_size_bytes=16)
    with newest.segment_path.open("ab") as file:
        file.write(whole + whole[:30])
    assert damages(stream) == []
    last = chunks(stream)[-1]
    assert (last.in_index, last.crc) == (False, CrcState.GOOD)


def test_missing_files_and_gaps_between_segments_are_damage(stream: Stream) -> None:
    second = stream.segments()[1].first_chunk_id
    (stream.path / index_name(second)).unlink()
    reasons = [damage.reason for damage in damages(stream)]
    assert "index file is missing" in reasons[0]
    assert "the next segment begins at offset" in reasons[1]
    (stream.path / segment_name(second)).unlink()
    assert len(damages(stream)) == 1


@pytest.mark.parametrize("name", [segment_name(0), index_name(0)])
def test_a_file_without_its_head_is_damage_of_that_file(stream: Stream, name: str) -> None:
    os.truncate(stream.path / name, 4)
    assert damages(stream)[0].path == stream.path / name
    assert len(chunks(stream)) > 3


def test_records_behind_the_last_chunk_of_a_sealed_segment_are_damage(stream: Stream) -> None:
    with (stream.path / index_name(0)).open("ab") as file:
        file.write(bytes(58))
    assert [damage.reason for damage in damages(stream)] == ["58 bytes behind the last record that names a chunk"]


@pytest.mark.parametrize(
    ("entries", "num_records", "reason"),
    [
        ([b"a", b"b"], 3, "header says 3 records, found 2"),
        ([SubBatch(1, 2, 10, b"no gzip")], 2, "gzip content does not decode"),
        ([SubBatch(0, 2, 5, b"\x00\x00\x00\x01a")], 2, "its content ends before"),
        ([SubBatch(4, 1, 2**31, b"")], 1, "the limit is"),
    ],
)
def test_entries_that_do_not_agree_with_the_header_are_damage(
    tmp_path: Path, entries: list[bytes | SubBatch], num_records: int, reason: str
) -> None:
    made = Stream.create(tmp_path / "s", name="s", now_ms=0)
    with Writer.open(made, now_ms=0) as writer:
        append_chunk(writer, [entry if isinstance(entry, SubBatch) else (entry, None) for entry in entries], now_ms=0)
    overwrite(made.path / segment_name(0), 8 + 4, num_records.to_bytes(4, "big"))
    [damage] = damages(made)
    assert reason in damage.reason


def test_a_trailer_that_is_no_tracking_is_damage(stream: Stream) -> None:
    first = chunks(stream)[0]
    at = first.position + first.header.size_bytes - first.header.trailer_length
    overwrite(first.path, at, b"\x09")
    [damage] = damages(stream)
    assert damage.position == at
    assert "no tracking record" in damage.reason
