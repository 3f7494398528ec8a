"""Damage is an error that names file and byte, in every look at a stream; what repair makes again; seals."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.errors import CorruptChunkError, CorruptSidecarError, StorageFullError, StreamReadOnlyError
from headgate.log import OffsetSpecification, Stream, StreamArguments, Writer
from headgate.log.format import FILE_HEAD_BYTES, INDEX_RECORD_BYTES, index_name, segment_name
from headgate.log.inspection import Damage, stream_info, verify_stream
from headgate.log.last_pair import LastPair
from headgate.log.pairs import seal_path
from headgate.log.repair import Offer, Repair, repair_stream
from headgate.log.seal import load_seal
from headgate.log.tail import read_tail
from headgate.log.tracking import read_tracking
from log_streams import chunk_ids, read_messages

Look = Callable[[Stream], object]

LOOKS: dict[str, Look] = {
    "messages": read_messages,
    "next offset": lambda stream: stream.next_offset(),
    "tail": read_tail,
    "tracking": read_tracking,
    "info": stream_info,
    "last": lambda stream: stream.attach(OffsetSpecification.parse("last"), now_ms=0),
    "writer": lambda stream: Writer.open(stream, now_ms=0).close(),
}


def stream_of(folder: Path, messages: int, *, chunks: int = 256_000) -> Stream:
    """A stream of single messages `m0 …`, message n at time 1000 n, with so many chunks in a segment."""
    arguments = StreamArguments(max_segment_chunks=chunks)
    stream = Stream.create(folder, name="s", now_ms=0, arguments=arguments)
    with Writer.open(stream, now_ms=0) as writer:
        for number in range(messages):
            writer.append([(b"m%d" % number, b"v%d" % number)], now_ms=1000 * number)
    return stream


def flip(path: Path, byte: int, bit: int = 0) -> None:
    raw = bytearray(path.read_bytes())
    raw[byte] ^= 1 << bit
    path.write_bytes(raw)


def record_byte(record: int, field: int) -> int:
    return FILE_HEAD_BYTES + record * INDEX_RECORD_BYTES + field


@pytest.mark.parametrize("look", [look for name, look in LOOKS.items() if name not in ("tracking", "writer")])
def test_a_last_chunk_that_says_no_records_is_an_error(tmp_path: Path, look: Look) -> None:
    stream = stream_of(tmp_path / "s", 3)
    path = stream.path / segment_name(0)
    raw = bytearray(path.read_bytes())
    with stream.segments()[0].open() as reader:
        last = int(reader.chunks().position[-1])
    raw[last + 4 : last + 8] = bytes(4)
    path.write_bytes(raw)
    with pytest.raises(CorruptChunkError, match="says no records in 1 entries") as caught:
        look(stream)
    assert caught.value.path == path


@pytest.mark.parametrize("look", [look for name, look in LOOKS.items() if name != "writer"])
@pytest.mark.parametrize("field", [39, 44], ids=["data", "Bloom filter"])
def test_a_last_chunk_that_says_too_few_bytes_is_an_error(tmp_path: Path, look: Look, field: int) -> None:
    stream = stream_of(tmp_path / "s", 3)
    path = stream.path / segment_name(0)
    with stream.segments()[0].open() as reader:
        last = int(reader.chunks().position[-1])
        stop = last + reader.header(2).size_bytes
    raw = bytearray(path.read_bytes())
    missing, raw[last + field] = raw[last + field], 0
    path.write_bytes(raw)
    with pytest.raises(CorruptChunkError, match="the last chunk ends here by its header") as caught:
        look(stream)
    assert (caught.value.path, caught.value.position) == (path, stop - missing)


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
@pytest.mark.parametrize("field", [0, 7, 11, 23, 24, 27, 28])
def test_a_flipped_bit_in_the_last_record_is_an_error_for_all(tmp_path: Path, look: Look, field: int) -> None:
    stream = stream_of(tmp_path / "s", 9)
    path = stream.path / index_name(0)
    flip(path, record_byte(8, field))
    with pytest.raises(CorruptChunkError) as caught:
        look(stream)
    assert (caught.value.path, caught.value.position) == (path, record_byte(8, 0))


@pytest.mark.parametrize("look", [look for name, look in LOOKS.items() if name != "tail"])
@pytest.mark.parametrize("field", [0, 24, 28])
def test_a_record_that_hides_those_behind_it_is_an_error_for_all(tmp_path: Path, look: Look, field: int) -> None:
    stream = stream_of(tmp_path / "s", 9)
    path = stream.path / index_name(0)
    flip(path, record_byte(4, field))
    with pytest.raises(CorruptChunkError) as caught:
        look(stream)
    assert caught.value.path == path
    assert caught.value.position in (record_byte(4, 0), record_byte(5, 0))


@pytest.mark.parametrize("field", [11, 15, 23, 27])
def test_a_record_that_contradicts_its_chunk_is_an_error_for_who_reads_it(tmp_path: Path, field: int) -> None:
    stream = stream_of(tmp_path / "s", 9)
    flip(stream.path / index_name(0), record_byte(4, field))
    assert any(isinstance(found, Damage) for found in verify_stream(stream))
    with stream.segments()[0].open() as reader, pytest.raises(CorruptChunkError) as caught:
        reader.headers(0, 9)
    assert caught.value.path == stream.path / segment_name(0)


def test_nothing_is_confirmed_behind_a_damaged_index_until_it_is_repaired(tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "s", 9)
    flip(stream.path / index_name(0), 148, 7)
    with pytest.raises(CorruptChunkError, match="stream repair"):
        Writer.open(stream, now_ms=0)
    [repaired] = repair_stream(stream, now_ms=0)
    assert isinstance(repaired, Repair) and repaired.path == stream.path / index_name(0)
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(b"m9", None)], now_ms=9)
    assert [body for _, body in read_messages(stream)] == [b"m%d" % number for number in range(10)]
    assert list(repair_stream(stream, now_ms=0)) == []


@pytest.mark.parametrize("field", [0, 7, 11, 15, 23, 24, 27, 28])
@pytest.mark.parametrize("start", ["first", "4", "9", "1970-01-01T00:00:04"])
def test_a_flipped_bit_in_an_older_index_is_an_error_from_every_start(tmp_path: Path, field: int, start: str) -> None:
    stream = stream_of(tmp_path / "s", 12, chunks=4)
    path = stream.path / index_name(4)
    flip(path, record_byte(1, field))
    with pytest.raises(CorruptChunkError) as caught:
        read_from(stream, start)
    assert caught.value.path == path


def read_from(stream: Stream, start: str) -> list[int]:
    """The ids of the chunks from a start on, headers checked; the second segment is on the way."""
    place = stream.attach(OffsetSpecification.parse("4" if start == "9" else start), now_ms=0)
    found: list[int] = []
    for segment in stream.segments():
        if segment.first_chunk_id >= place.segment.first_chunk_id:
            with segment.open() as reader:
                found += reader.headers(0, len(reader.chunks())).chunk_id.tolist()
    return found


def test_a_segment_that_is_gone_from_the_middle_is_an_error(tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "s", 12, chunks=4)
    for name in (segment_name(4), index_name(4)):
        (stream.path / name).unlink()
    for start in ("first", "2", "6"):
        with pytest.raises(CorruptChunkError, match="the next segment begins at offset 8") as caught:
            read_from(stream, start)
        assert caught.value.path == stream.path / index_name(0)


@pytest.mark.parametrize("is_own", [True, False])
def test_a_chunk_that_the_index_hides_is_an_error(tmp_path: Path, is_own: bool) -> None:
    stream = stream_of(tmp_path / "s", 12, chunks=4)
    for first in (0, 8):
        copy = stream if is_own else Stream(stream.path, None)
        flip(stream.path / index_name(first), record_byte(1, 28), 1)
        with pytest.raises(CorruptChunkError) as caught:
            chunk_ids(copy)
        assert caught.value.path == stream.path / index_name(first)
        flip(stream.path / index_name(first), record_byte(1, 28), 1)


def test_a_sealed_segment_shows_any_change_of_headers_filters_and_index(tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "s", 8, chunks=4)
    path = stream.path / segment_name(0)
    seal = load_seal(path)
    assert seal is not None and len(seal.header_crcs) == 4
    assert load_seal(stream.path / segment_name(4)) is None
    with stream.segments()[0].open() as reader:
        position = int(reader.chunks().position[2])
    for byte in range(position, position + 48 + 16):
        if not position + 45 <= byte < position + 48:
            flip(path, byte)
            with stream.segments()[0].open() as reader, pytest.raises(CorruptChunkError) as caught:
                reader.headers(0, 4)
            assert (caught.value.path, caught.value.position) == (path, position)
            assert any(isinstance(found, Damage) for found in verify_stream(stream))
            flip(path, byte)
    for byte in range(FILE_HEAD_BYTES, record_byte(4, 0)):
        flip(stream.path / index_name(0), byte)
        with stream.segments()[0].open() as reader, pytest.raises(CorruptChunkError) as caught:
            reader.chunks()
        flip(stream.path / index_name(0), byte)
    assert not any(isinstance(found, Damage) for found in verify_stream(stream))


def test_a_damaged_seal_takes_no_message_away_and_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stream = stream_of(tmp_path / "s", 8, chunks=4)
    seal = seal_path(stream.path / segment_name(0))
    whole = seal.read_bytes()
    for damaged in (b"", whole[:-1], whole[:10] + b"x" + whole[11:]):
        seal.write_bytes(damaged)
        assert len(read_messages(stream)) == 8
        assert str(seal) in caplog.text
        caplog.clear()
        with pytest.raises(CorruptSidecarError):
            load_seal(stream.path / segment_name(0))
        assert [found.path for found in verify_stream(stream) if isinstance(found, Damage)] == [seal]
        [found] = repair_stream(stream, now_ms=0)
        assert isinstance(found, Repair) and found.path == seal
        assert seal.read_bytes() == whole


def test_a_segment_is_sealed_by_the_next_writer_where_one_died_before(tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "s", 8, chunks=4)
    seal = seal_path(stream.path / segment_name(0))
    whole = seal.read_bytes()
    seal.unlink()
    Writer.open(stream, now_ms=0).close()
    assert seal.read_bytes() == whole


def test_seals_go_with_their_segments(tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "s", 12, chunks=4)
    with Writer.open(stream, now_ms=0) as writer:
        writer.change(now_ms=0, arguments=StreamArguments(max_length_bytes=1, max_segment_chunks=4))
    assert sorted(path.name for path in stream.path.glob("*.*")) == [
        index_name(8),
        segment_name(8),
        "stream.json",
        "writer.lock",
    ]


def test_a_missing_index_is_made_again(tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "s", 12, chunks=4)
    before = read_messages(stream)
    for first in (0, 4, 8):
        path = stream.path / index_name(first)
        whole = path.read_bytes()
        path.unlink()
        assert [str(found) for found in repair_stream(stream, now_ms=0)] == [
            f"{path}: the index was missing, made again with 4 records"
        ]
        assert path.read_bytes() == whole
    assert read_messages(stream) == before


def test_what_cannot_be_repaired_is_said_and_left_as_it_is(tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "s", 12, chunks=4)
    path = stream.path / segment_name(4)
    with stream.segments()[1].open() as reader:
        position = int(reader.chunks().position[2])
    flip(path, position)
    flip(stream.path / index_name(4), record_byte(1, 0))
    damaged = (stream.path / index_name(4)).read_bytes()
    [found] = repair_stream(stream, now_ms=0)
    assert isinstance(found, Damage) and (found.path, found.position) == (path, position)
    assert (stream.path / index_name(4)).read_bytes() == damaged
    (stream.path / "stream.json").unlink()
    with pytest.raises(StreamReadOnlyError, match="adopt"):
        list(repair_stream(Stream.open(stream.path), now_ms=0))


def test_damage_of_more_than_the_last_chunk_is_given_up_only_on_request(tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "s", 6)
    path = stream.path / segment_name(0)
    with stream.segments()[0].open() as reader:
        positions = reader.chunks().position.tolist()
    for position in positions[3:]:
        flip(path, position + 48 + 16 + 5)
    with pytest.raises(CorruptChunkError, match="--cut") as caught:
        Writer.open(stream, now_ms=0)
    assert caught.value.path == path
    *found, offer = repair_stream(stream, now_ms=0)
    assert all(isinstance(each, Damage) and each.path == path for each in found) and found
    assert isinstance(offer, Offer) and (offer.given_up.first_offset, offer.given_up.next_offset) == (3, 6)
    assert [str(each) for each in repair_stream(stream, now_ms=0, cut=True)] == [
        f"{path}: cut at byte {positions[3]}, offsets from 3 on given up",
        f"{stream.path / index_name(0)}: the index was damaged, made again with 3 records",
    ]
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(b"new", None)], now_ms=0)
    assert [body for _, body in read_messages(stream)] == [b"m0", b"m1", b"m2", b"new"]


@pytest.mark.parametrize("cut", [-1, 0, 1, 48, 69])
def test_what_the_end_of_a_stream_lost_is_named_before_anything_is_repaired(tmp_path: Path, cut: int) -> None:
    stream = stream_of(tmp_path / "s", 6)
    path, index = stream.path / segment_name(0), stream.path / index_name(0)
    with stream.segments()[0].open() as reader:
        position = int(reader.chunks().position[3])
    os.truncate(path, position + cut)
    before = path.read_bytes(), index.read_bytes()
    first = 2 if cut < 0 else 3
    damage, offer = repair_stream(stream, now_ms=0)
    assert isinstance(damage, Damage) and f"--cut gives up the offsets from {first} on" in damage.reason
    assert isinstance(offer, Offer) and (offer.given_up.first_offset, offer.given_up.next_offset) == (first, 6)
    assert (path.read_bytes(), index.read_bytes()) == before
    given_up, _ = repair_stream(stream, now_ms=0, skip_damaged=True)
    assert given_up == offer.given_up
    assert read_messages(stream) == [(number, b"m%d" % number) for number in range(first)]
    assert stream.next_offset() == 6


@pytest.mark.parametrize("left", [48, 100])
def test_no_offset_of_a_last_chunk_that_was_cut_is_given_out_again(tmp_path: Path, left: int) -> None:
    stream = stream_of(tmp_path / "s", 1)
    size = stream.path.joinpath(segment_name(0)).stat().st_size
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(b"m%d" % number, None) for number in range(300)], now_ms=1)
    os.truncate(stream.path / segment_name(0), size + left)
    list(repair_stream(stream, now_ms=0, skip_damaged=True))
    assert stream.next_offset() == 301


def test_whole_chunks_behind_damage_and_behind_the_index_are_named(tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "s", 6)
    with stream.segments()[0].open() as reader:
        position = int(reader.chunks().position[3])
    flip(stream.path / segment_name(0), position)
    os.truncate(stream.path / index_name(0), record_byte(2, 0))
    damage, offer = repair_stream(stream, now_ms=0)
    assert isinstance(damage, Damage) and damage.position == position
    assert isinstance(offer, Offer) and (offer.given_up.first_offset, offer.given_up.next_offset) == (3, 4)


@pytest.mark.parametrize("lost", [0, 30])
def test_zeros_that_a_power_loss_left_behind_an_index_name_no_chunk(tmp_path: Path, lost: int) -> None:
    stream = stream_of(tmp_path / "s", 6)
    path, index = stream.path / segment_name(0), stream.path / index_name(0)
    for file, size in (path, path.stat().st_size - lost), (index, record_byte(6 if not lost else 5, 0)):
        os.truncate(file, size)
    whole = index.read_bytes()
    for skip_damaged in (False, True):
        index.write_bytes(whole + bytes(3 * INDEX_RECORD_BYTES))
        [repaired] = repair_stream(stream, now_ms=0, skip_damaged=skip_damaged)
        assert isinstance(repaired, Repair) and repaired.path == index and index.read_bytes() == whole


@pytest.mark.parametrize("field", [0, 24])
@pytest.mark.parametrize("record", [2, 5])
def test_a_damaged_record_of_a_whole_segment_gives_up_no_offset(tmp_path: Path, field: int, record: int) -> None:
    stream = stream_of(tmp_path / "s", 6)
    index = stream.path / index_name(0)
    whole = index.read_bytes()
    flip(index, record_byte(record, field))
    [repaired] = repair_stream(stream, now_ms=0, skip_damaged=True)
    assert isinstance(repaired, Repair) and index.read_bytes() == whole


def test_missing_files_are_named_by_a_repair(tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "s", 12, chunks=4)
    (stream.path / segment_name(8)).unlink()
    [found] = repair_stream(stream, now_ms=0)
    assert isinstance(found, Damage) and found.path == stream.path / segment_name(8)


def test_who_has_mapped_a_segment_that_is_cut_keeps_it_and_follows_the_new_one(tmp_path: Path) -> None:
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0)
    with Writer.open(stream, now_ms=0) as writer:
        for number in range(6):
            writer.append([(bytes([number]) * 9_000, None)], now_ms=0)
    path = stream.path / segment_name(0)
    with stream.segments()[0].open() as reader:
        positions = reader.chunks().position.tolist()
        assert reader.map_to(positions[5]) >= positions[5]
        view = reader.read(positions[4], positions[5])
        whole = view.tobytes()
        flip(path, positions[3] + 48 + 16 + 5)
        assert [each for each in repair_stream(stream, now_ms=0, cut=True) if isinstance(each, Damage)] == []
        with Writer.open(stream, now_ms=0) as writer:
            # Where the mapped file was truncated, this would end the process.
            assert view.tobytes() == whole
            writer.append([(b"new", None)], now_ms=0)
            assert reader.chunks(refresh=True).chunk_id.tolist() == [0, 1, 2, 3]
            header = reader.header(3)
            assert b"new" in reader.read(positions[3], positions[3] + header.size_bytes).tobytes()


def test_a_cut_that_was_interrupted_is_what_a_crash_leaves(tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "s", 6)
    path = stream.path / segment_name(0)
    with stream.segments()[0].open() as reader:
        positions = reader.chunks().position.tolist()
    flip(path, positions[3] + 48 + 16 + 5)
    repairs = repair_stream(stream, now_ms=0, cut=True)
    assert next(repairs).path == path
    repairs.close()
    assert [body for _, body in read_messages(stream)] == [b"m0", b"m1", b"m2"]
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(b"new", None)], now_ms=0)
    assert [body for _, body in read_messages(stream)] == [b"m0", b"m1", b"m2", b"new"]


def test_index_records_that_changed_places_are_an_error_for_who_looks_at_the_end_only(tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "s", 6)
    path = stream.path / index_name(0)
    raw = path.read_bytes()
    second, last = (raw[record_byte(row, 0) : record_byte(row + 1, 0)] for row in (1, 5))
    path.write_bytes(raw[: record_byte(1, 0)] + last + raw[record_byte(2, 0) : record_byte(5, 0)] + second)
    for copy in (stream, Stream(stream.path, None)):
        with pytest.raises(CorruptChunkError, match="index record 5 is out of order"):
            read_tail(copy)


def test_the_filters_of_a_declared_source_are_computed_again(tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "s", 3)
    assert not damages(stream, {0: b"v0", 1: b"v1", 2: b"v2"})
    [damage] = damages(stream, {0: b"v0", 1: b"other", 2: b"v2"})
    assert damage.path == stream.path / segment_name(0)
    assert "Bloom filter of chunk 1" in damage.reason


def damages(stream: Stream, values: dict[int, bytes]) -> list[Damage]:
    found = verify_stream(stream, filter_values=lambda header, _: [values[header.chunk_id]])
    return [each for each in found if isinstance(each, Damage)]


def test_a_reader_goes_on_with_an_index_that_was_made_again(tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "s", 3)
    index = stream.path / index_name(0)
    with stream.segments()[0].open() as reader:
        assert len(reader.chunks()) == 3
        index.with_suffix(".new").write_bytes(index.read_bytes())
        index.with_suffix(".new").replace(index)
        with Writer.open(stream, now_ms=0) as writer:
            writer.append([(b"m3", None)], now_ms=0)
        assert reader.chunks(refresh=True).chunk_id.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("is_own", [True, False])
def test_a_pair_whose_heads_are_being_written_has_no_chunk_yet(tmp_path: Path, is_own: bool) -> None:
    stream = stream_of(tmp_path / "s", 0)
    copy = stream if is_own else Stream(stream.path, None)
    heads = {path: path.read_bytes() for path in (stream.path / index_name(0), stream.path / segment_name(0))}
    for size in range(FILE_HEAD_BYTES):
        for path, head in heads.items():
            path.write_bytes(head[:size])
        with copy.segments()[0].open() as reader:
            assert len(reader.chunks()) == 0
            for path, head in heads.items():
                path.write_bytes(head)
            assert len(reader.chunks(refresh=True)) == 0
    (stream.path / index_name(0)).write_bytes(b"O")
    (stream.path / segment_name(0)).write_bytes(b"X")
    with pytest.raises(CorruptChunkError, match="file head is 58"):
        chunk_ids(copy)


def test_many_records_without_a_chunk_are_passed_over_in_one_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stream_of(tmp_path / "s", 400)
    path = stream.path / segment_name(0)
    with stream.segments()[0].open() as reader:
        start = int(reader.chunks().position[10])
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(start)
        file.truncate(size)
    read = 0
    pread = os.pread

    def counted(descriptor: int, count: int, position: int) -> bytes:
        nonlocal read
        found = pread(descriptor, count, position)
        read += len(found)
        return found

    monkeypatch.setattr(os, "pread", counted)
    assert chunk_ids(stream) == list(range(10))
    assert read < 4 * size


def test_what_the_retention_of_a_broker_left_without_its_index_is_reported(tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "s", 8, chunks=4)
    (stream.path / "stream.json").unlink()
    stream = Stream.open(stream.path)
    (stream.path / index_name(0)).unlink()
    assert chunk_ids(stream) == [4, 5, 6, 7]
    [damage] = [found for found in verify_stream(stream) if isinstance(found, Damage)]
    assert damage.path == stream.path / segment_name(0) and "no index" in damage.reason


def test_what_is_tracked_outlives_the_segment_that_retention_takes(tmp_path: Path) -> None:
    """A writer that cannot write the snapshot, or dies before, has not deleted the only place where it stands."""
    arguments = StreamArguments(max_segment_chunks=2, max_length_bytes=1)
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0, arguments=arguments)
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(b"m", None)], now_ms=0, publisher="p", sequences=[41])
        writer.append([(b"m", None)], now_ms=0)
        put = LastPair.put

        def fail(*_: object) -> None:
            raise StorageFullError("no room", path=stream.path)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LastPair, "put", fail)
            with pytest.raises(StorageFullError):
                writer.append([(b"lost", None)], now_ms=0)
            writer.apply_retention(now_ms=0)
        assert LastPair.put is put
        assert [segment.first_chunk_id for segment in stream.segments()] == [0, 2]
    with Writer.open(stream, now_ms=0) as writer:
        assert writer.last_sequence("p") == 41
        for number in range(3):
            writer.append([(b"m%d" % number, None)], now_ms=0)
        assert writer.last_sequence("p") == 41
    with Writer.open(stream, now_ms=0) as writer:
        assert writer.last_sequence("p") == 41
        assert writer.first_offset > 0


def test_a_segment_that_could_not_be_sealed_is_sealed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    arguments = StreamArguments(max_segment_chunks=2)
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0, arguments=arguments)

    def fail(*_: object, **__: object) -> None:
        raise OSError(24, "too many open files")

    with Writer.open(stream, now_ms=0) as writer:
        with monkeypatch.context() as patch:
            patch.setattr("headgate.log.seal.write_seal", fail)
            for _ in range(5):
                writer.append([(b"m", None)], now_ms=0)
        assert "not sealed" in caplog.text
        assert load_seal(stream.path / segment_name(0)) is None
        for _ in range(2):
            writer.append([(b"m", None)], now_ms=0)
    assert all(load_seal(segment.segment_path) is not None for segment in stream.segments()[:-1])


def test_a_pair_that_somebody_removed_does_not_end_retention(tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "s", 8, chunks=2)
    with Writer.open(stream, now_ms=0) as writer:
        for path in (stream.path / index_name(0), stream.path / segment_name(0)):
            path.unlink()
        writer.change(now_ms=0, arguments=StreamArguments(max_length_bytes=1, max_age_ms=1, max_segment_chunks=2))
        assert writer.first_offset == 6


def test_a_stream_that_is_dropped_and_grows_while_it_is_listed_has_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stream_of(tmp_path / "s", 4, chunks=2)
    listings = [[name for name in os.listdir(stream.path) if not name.startswith(f"{2:020d}")]]
    listings.append([name for name in os.listdir(stream.path) if not name.startswith(f"{0:020d}")])
    monkeypatch.setattr(os, "listdir", lambda _: listings.pop(0) if len(listings) > 1 else listings[0])
    assert [segment.first_chunk_id for segment in stream.segments()] == [2]
