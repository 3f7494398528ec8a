"""Appending: grouping, deduplication, stored offsets, rolling, prebuilt chunks, declarations."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from chunks import append_chunk, encode_chunk
from headgate.arrays import side_by_side
from headgate.errors import ConfigError, CorruptChunkError, LogError
from headgate.log import BloomMatcher, ChunkType, Durability, Stream, StreamArguments, Writer
from headgate.log.chunk_builder import FilterValues
from headgate.log.derived import GRACE_MS
from headgate.log.entries import SubBatch
from headgate.log.format import ChunkHeader, Compression, decode_headers
from headgate.log.runs import Entries, Run
from headgate.log.settings import DeclaredRange
from headgate.log.tracking import MAX_SNAPSHOT_PUBLISHERS, TrackingState, read_tracking
from headgate.log.tracking_records import TrackingKind, TrackingRecord, decode_records, encode_records
from log_streams import chunk_ids, file_bytes, read_messages


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream.create(tmp_path / "s", name="s", now_ms=0)


def small(tmp_path: Path, **arguments: int) -> Stream:
    return Stream.create(tmp_path / "small", name="small", now_ms=0, arguments=StreamArguments(**arguments))


def prebuilt(count: int, *, size: int = 10, trailer: bytes = b"") -> tuple[np.ndarray, np.ndarray]:
    chunks = [
        encode_chunk(
            [b"%d-%d" % (number, part) + bytes(size) for part in range(2)], [], filter_size_bytes=16, trailer=trailer
        )
        for number in range(count)
    ]
    sizes = np.array([len(chunk) for chunk in chunks], dtype=np.int64)
    return np.frombuffer(bytearray(b"".join(chunks)), dtype=np.uint8), np.cumsum(sizes) - sizes


def test_what_was_appended_is_read_in_order_with_its_offsets(stream: Stream) -> None:
    with Writer.open(stream, now_ms=0) as writer:
        first = writer.append([(b"a", None), (b"b", b"v")], now_ms=1)
        second = writer.append([(b"c", None)], now_ms=2)
    assert (first.offsets().tolist(), first.next_offset) == ([0, 1], 2)
    assert second.offsets().tolist() == [2]
    assert read_messages(stream) == [(0, b"a"), (1, b"b"), (2, b"c")]


@pytest.mark.parametrize("value", [None, b"v"])
def test_what_publishers_brought_gives_the_same_files_as_messages_in_a_list(
    tmp_path: Path, value: bytes | None
) -> None:
    """One message, which has a short way, and several."""
    contents = []
    source = "properties.subject"
    for way in ("runs", "list"):
        arguments = StreamArguments(max_segment_chunks=2)
        stream = Stream.create(tmp_path / way, name="s", now_ms=0, arguments=arguments, filter_source=source)
        with Writer.open(stream, now_ms=0) as writer:
            for number, count in enumerate((1, 1, 1, 2, 1, 3)):
                bodies = [b"%d" % number] * count
                writer.store_offset("group", number)
                if way == "list":
                    writer.append([(body, value) for body in bodies], now_ms=number, filter_source=source)
                else:
                    data, (header,) = writer.append_runs(
                        [Run([entries(bodies, value)])],
                        max_messages=4096,
                        max_bytes=1 << 20,
                        now_ms=number,
                        filter_source=source,
                    )
                    assert header.num_records == count
                    assert header.next_chunk_id == writer.next_offset
                    assert header == ChunkHeader.decode(data.data, path="", position=0)
                    assert header.size_bytes == len(data)
                assert not writer.pending_offsets
        contents.append({name: content for name, content in file_bytes(stream.path).items() if "lock" not in name})
    assert contents[0] == contents[1]


def entries(bodies: list[bytes], value: bytes | None) -> Entries:
    """Messages that have one filter value."""
    starts, lengths = side_by_side(bodies)
    values = None if value is None else FilterValues.same(value, len(bodies))
    return Entries(np.frombuffer(b"".join(bodies), dtype=np.uint8), starts, lengths, values)


def test_messages_are_grouped_into_chunks_of_at_most_4096_or_a_mebibyte(stream: Stream) -> None:
    with Writer.open(stream, now_ms=0) as writer:
        many = writer.append([(b"x", None)] * 10_000, now_ms=0)
        big = writer.append([(bytes(400_000), None)] * 5, now_ms=0)
        huge = writer.append([(b"a", None), (bytes(3 << 20), None), (b"b", None)], now_ms=0)
        nothing = writer.append([], now_ms=0)
    assert many.num_records.tolist() == [4096, 4096, 1808]
    assert big.num_records.tolist() == [2, 2, 1]
    assert huge.num_records.tolist() == [1, 1, 1]
    assert nothing.num_records.tolist() == []
    assert len(read_messages(stream)) == 10_008


def test_sub_batches_use_one_offset_per_message(stream: Stream) -> None:
    with Writer.open(stream, now_ms=0) as writer:
        entries = [SubBatch.of([b"a", b"b"], Compression.ZSTD), (b"c", b"v"), SubBatch.of([b"d"], Compression.LZ4)]
        appended = append_chunk(writer, entries, now_ms=0)
    assert (appended.chunk_ids.tolist(), appended.num_records.tolist()) == ([0], [4])
    assert [body for _, body in read_messages(stream)] == [b"a", b"b", b"c", b"d"]


def test_messages_a_publisher_sent_before_are_left_out(stream: Stream) -> None:
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(b"1", None), (b"2", None)], now_ms=0, publisher="p", sequences=[1, 2])
        again = writer.append(
            [(b"2", None), (b"3", None), (b"3", None), (b"5", None)], now_ms=0, publisher="p", sequences=[2, 3, 3, 5]
        )
        other = writer.append([(b"q", None)], now_ms=0, publisher="q", sequences=[1])
        none = writer.append([(b"2", None)], now_ms=0, publisher=b"p", sequences=[2])
        assert writer.last_sequence("p") == 5
        assert writer.last_sequence("nobody") is None
    assert (again.num_duplicates, again.num_records.tolist()) == (2, [2])
    assert other.num_duplicates == 0
    assert (none.num_duplicates, none.offsets().tolist(), none.next_offset) == (1, [], 5)
    assert [body for _, body in read_messages(stream)] == [b"1", b"2", b"3", b"5", b"q"]


def test_deduplication_goes_on_after_reopening_and_over_segments(tmp_path: Path) -> None:
    stream = small(tmp_path, max_segment_chunks=2)
    for number in range(7):
        with Writer.open(stream, now_ms=0) as writer:
            for sequence in (number - 1, number):
                if sequence >= 0:
                    body = b"%d" % sequence
                    writer.append([(body, None)], now_ms=0, publisher="p", sequences=[sequence])
    assert [body for _, body in read_messages(stream)] == [b"%d" % number for number in range(7)]
    assert len(stream.segments()) > 2


def test_a_segment_that_is_old_is_sealed_when_the_next_message_comes(tmp_path: Path) -> None:
    stream = small(tmp_path, max_segment_age_ms=100)
    with Writer.open(stream, now_ms=0) as writer:
        for now_ms in (10, 109, 110, 150):
            writer.append([(b"%d" % now_ms, None)], now_ms=now_ms)
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(b"209", None)], now_ms=209)
        writer.append([(b"210", None)], now_ms=210)
    assert [segment.first_chunk_id for segment in stream.segments()] == [0, 2, 5]
    assert [segment.is_sealed for segment in stream.segments()] == [True, True, False]
    assert [body for _, body in read_messages(stream)] == [b"10", b"109", b"110", b"150", b"209", b"210"]


def test_retention_takes_derived_files_along_after_a_grace_time(tmp_path: Path) -> None:
    stream = small(tmp_path, max_segment_chunks=1, max_length_bytes=1)
    (stream.path / "derived").mkdir()
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(b"a", None)], now_ms=0)
        names = [f"{first:020d}-x.parquet" for first in (0, 1)]
        for name in names:
            (stream.path / "derived" / name).write_bytes(b"derived")
        writer.append([(b"b", None)], now_ms=5)
        assert (stream.path / "derived" / names[0]).exists()
        writer.apply_retention(now_ms=5 + GRACE_MS - 1)
        assert (stream.path / "derived" / names[0]).exists()
        writer.apply_retention(now_ms=5 + GRACE_MS)
        assert os.listdir(stream.path / "derived") == [names[1]]


def test_every_chunk_of_a_long_append_carries_its_own_highest_sequence(stream: Stream) -> None:
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(b"x", None)] * 5000, now_ms=0, publisher="p", sequences=range(10, 5010))
        assert writer.last_sequence("p") == 5009
    with stream.segments()[0].open() as reader:
        values = []
        for row, stop in enumerate(reader.stop_positions().tolist()):
            trailer = reader.read(stop - reader.header(row).trailer_length, stop)[:-8].tobytes()
            values += [
                record.value for record in decode_records(trailer, in_snapshot=False, path="segment", position=0)
            ]
    assert values == [4105, 5009]


@pytest.mark.parametrize(
    ("publisher", "sequences", "reason"),
    [
        ("p", None, "one sequence per message"),
        ("p", [1, 2], "one sequence per message"),
        (None, [1], "without a publisher"),
        ("", [1], "expected 1 to 255"),
        ("x" * 256, [1], "expected 1 to 255"),
        ("p", [-1], "publisher sequence -1"),
        ("p", [2**64], "expected 0 to"),
    ],
)
def test_wrong_publishing_arguments_are_refused(
    stream: Stream, publisher: str | None, sequences: list[int] | None, reason: str
) -> None:
    with Writer.open(stream, now_ms=0) as writer:
        with pytest.raises(ConfigError, match=reason):
            writer.append([(b"m", None)], now_ms=0, publisher=publisher, sequences=sequences)
        assert writer.next_offset == 0


def test_stored_offsets_ride_in_the_next_chunk_or_in_one_of_their_own(stream: Stream) -> None:
    with Writer.open(stream, now_ms=0) as writer:
        writer.store_offset("group", 5)
        writer.append([(b"m", None)], now_ms=0)
        assert read_tracking(stream).offsets == {b"group": 5}
        writer.flush_offsets(now_ms=0)
        assert chunk_ids(stream) == [0]
        writer.store_offset("group", 6)
        writer.store_offset("other", 1)
        writer.flush_offsets(now_ms=0)
        assert chunk_ids(stream) == [0, 1]
        assert writer.stored_offset("group") == 6
    with Writer.open(stream, now_ms=0) as writer:
        assert (writer.stored_offset("group"), writer.stored_offset("other")) == (6, 1)
        assert writer.stored_offset("nobody") is None
        with pytest.raises(ConfigError, match="stored offset -1"):
            writer.store_offset("group", -1)


def test_a_new_segment_begins_with_a_snapshot_and_recovery_reads_only_it(tmp_path: Path) -> None:
    stream = small(tmp_path, max_segment_size_bytes=300)
    with Writer.open(stream, now_ms=0) as writer:
        writer.store_offset("group", 3)
        for number in range(10):
            writer.append([(bytes(100), None)], now_ms=number, publisher="p", sequences=[number])
    segments = stream.segments()
    assert len(segments) > 2
    for segment in segments[1:]:
        with segment.open() as reader:
            assert reader.chunks().type.tolist()[0] == ChunkType.TRACKING_SNAPSHOT
            assert set(reader.chunks().type.tolist()[1:]) == {ChunkType.USER}
    for segment in segments[:-1]:
        segment.segment_path.unlink()
        segment.index_path.unlink()
    with Writer.open(stream, now_ms=0) as writer:
        assert (writer.last_sequence("p"), writer.stored_offset("group")) == (9, 3)


def test_a_stream_without_tracking_rolls_without_snapshots(tmp_path: Path) -> None:
    stream = small(tmp_path, max_segment_chunks=1)
    with Writer.open(stream, now_ms=0) as writer:
        for number in range(4):
            writer.append([(b"%d" % number, None)], now_ms=0)
    assert [segment.first_chunk_id for segment in stream.segments()] == [0, 1, 2, 3]
    assert chunk_ids(stream) == [0, 1, 2, 3]


def test_a_segment_holds_a_message_even_where_its_snapshot_fills_it(tmp_path: Path) -> None:
    stream = small(tmp_path, max_segment_chunks=1)
    with Writer.open(stream, now_ms=0) as writer:
        for number in range(4):
            writer.append([(b"%d" % number, None)], now_ms=0, publisher="p", sequences=[number])
    assert [body for _, body in read_messages(stream)] == [b"0", b"1", b"2", b"3"]


# 254 bytes are exactly a head and three of the first chunks.
@pytest.mark.parametrize(
    "limit", [{"max_segment_size_bytes": 1000}, {"max_segment_size_bytes": 254}, {"max_segment_chunks": 5}]
)
def test_rolling_does_not_depend_on_how_many_chunks_are_appended_at_once(tmp_path: Path, limit: dict[str, int]) -> None:
    data, positions = prebuilt(40)
    ends = np.append(positions[1:], len(data))
    contents = []
    for step in (1, 7, 40):
        stream = Stream.create(tmp_path / f"{step}", name="s", now_ms=0, arguments=StreamArguments(**limit))
        with Writer.open(stream, now_ms=0) as writer:
            for row in range(0, 40, step):
                stop = min(row + step, 40)
                part = data[positions[row] : ends[stop - 1]].copy()
                appended = writer.append_chunks(part, positions[row:stop] - positions[row], now_ms=5)
                assert appended.chunk_ids.tolist() == list(range(2 * row, 2 * stop, 2))
        contents.append(file_bytes(stream.path))
    assert contents[0] == contents[1] == contents[2]
    assert len(contents[0]) >= 8


def test_prebuilt_chunks_get_id_time_and_epoch_and_their_sequences_are_known(stream: Stream) -> None:
    trailer = encode_records([TrackingRecord(TrackingKind.SEQUENCE, b"query", 41)])
    data, positions = prebuilt(3, trailer=trailer)
    with Writer.open(stream, now_ms=0) as writer:
        appended = writer.append_chunks(data, positions, now_ms=77)
        assert writer.last_sequence("query") == 41
    assert appended.offsets().tolist() == [0, 1, 2, 3, 4, 5]
    headers = decode_headers(data, positions)
    assert headers.chunk_id.tolist() == [0, 2, 4]
    assert headers.timestamp_ms.tolist() == [77] * 3
    assert headers.epoch.tolist() == [1] * 3
    assert [body[:3] for _, body in read_messages(stream)] == [b"0-0", b"0-1", b"1-0", b"1-1", b"2-0", b"2-1"]


def test_bytes_that_are_no_chunks_one_behind_the_other_are_refused_before_anything_is_written(stream: Stream) -> None:
    data, positions = prebuilt(3)
    wrong: list[tuple[np.ndarray, np.ndarray]] = [
        (data, positions + 1),
        (data, positions[[0, 2]]),
        (data[:-1], positions),
        (data[:20], positions[:1]),
        (data, np.array([-5])),
    ]
    tracking = data.copy()
    tracking[1] = ChunkType.TRACKING_DELTA
    empty = data.copy()
    empty[4:8] = 0
    wrong += [(tracking, positions), (empty, positions)]
    with Writer.open(stream, now_ms=0) as writer:
        for bytes_given, places in wrong:
            with pytest.raises(CorruptChunkError):
                writer.append_chunks(bytes_given, places, now_ms=0)
        assert writer.append_chunks(data, positions[:0], now_ms=0).num_records.tolist() == []
    assert chunk_ids(stream) == []


def test_the_epoch_of_an_adopted_stream_is_kept(stream: Stream) -> None:
    data, positions = prebuilt(1)
    with Writer.open(stream, now_ms=0) as writer:
        writer._epoch = 7
        writer.append_chunks(data, positions, now_ms=0)
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(b"m", None)], now_ms=0)
    with stream.segments()[0].open() as reader:
        assert reader.chunks().epoch.tolist() == [7, 7]


def test_a_snapshot_keeps_the_publishers_seen_last_and_offsets_still_in_the_stream() -> None:
    state = TrackingState()
    for number in range(MAX_SNAPSHOT_PUBLISHERS + 5):
        record = TrackingRecord(TrackingKind.SEQUENCE, b"p%d" % number, number)
        state.apply(record, chunk_id=1000 - number)
    state.apply(TrackingRecord(TrackingKind.OFFSET, b"old", 9), chunk_id=0)
    state.apply(TrackingRecord(TrackingKind.OFFSET, b"new", 10), chunk_id=0)
    state.apply(TrackingRecord(TrackingKind.TIMESTAMP, b"t", 5), chunk_id=0)
    records = state.snapshot(first_offset=10)
    kept = {record.reference for record in records if record.kind is TrackingKind.SEQUENCE}
    assert kept == {b"p%d" % number for number in range(MAX_SNAPSHOT_PUBLISHERS)}
    assert [record.reference for record in records if record.kind is not TrackingKind.SEQUENCE] == [b"new", b"t"]
    again = TrackingState()
    for record in decode_records(encode_records(records), in_snapshot=True, path="p", position=0):
        again.apply(record, chunk_id=99)
    assert again == state


@pytest.mark.parametrize("data", [b"\x03\x01a" + bytes(8), b"\x00", b"\x00\x05ab", b"\x01\x01a" + bytes(7)])
def test_wrong_tracking_bytes_are_an_error_with_the_place(data: bytes) -> None:
    with pytest.raises(CorruptChunkError) as caught:
        list(decode_records(data, in_snapshot=False, path="p", position=500))
    assert caught.value.position == 500


def test_a_closed_writer_refuses_and_closing_again_is_harmless(stream: Stream) -> None:
    writer = Writer.open(stream, now_ms=0)
    writer.close()
    writer.close()
    with pytest.raises(LogError, match="closed"):
        writer.append([(b"m", None)], now_ms=0)
    Writer.open(stream, now_ms=0).close()


def test_disk_durability_writes_the_same_bytes(tmp_path: Path) -> None:
    contents = []
    for durability in Durability:
        arguments = StreamArguments(max_segment_chunks=2)
        stream = Stream.create(tmp_path / durability.value, name="s", now_ms=0, arguments=arguments)
        with Writer.open(stream, now_ms=0, durability=durability) as writer:
            for number in range(5):
                writer.append([(b"m", b"v")], now_ms=0, publisher="p", sequences=[number])
        contents.append(file_bytes(stream.path))
    assert contents[0] == contents[1]


def test_the_last_sequence_of_a_query_survives_snapshots_that_forget_it(stream: Stream) -> None:
    with Writer.open(stream, now_ms=0) as writer:
        writer.record_sequence("query", 5)
        assert writer.last_sequence("query") == 5
        writer.append([(b"m", None)], now_ms=0, publisher="query", sequences=[7])
        assert writer.last_sequence("query") == 7
    with Writer.open(stream, now_ms=0) as writer:
        assert writer.last_sequence("query") == 7
        assert writer.settings.sequences == {"query": 5}


# the declared source of filter values

FIELD = "application_properties.region"


def declared(stream: Stream) -> list[tuple[str, int, int]]:
    settings = Stream.open(stream.path).settings
    assert settings is not None
    return [(entry.field, entry.start, entry.stop) for entry in settings.declared]


def test_a_declaration_covers_what_was_written_under_it_and_nothing_else(tmp_path: Path) -> None:
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0, filter_source=FIELD)
    message = [(b"m", b"EMEA")]
    with Writer.open(stream, now_ms=0) as writer:
        writer.append(message, now_ms=0, filter_source=FIELD)
        [(field, start, stop)] = declared(stream)
        assert (field, start) == (FIELD, 0)
        assert stop >= 1
        writer.append(message, now_ms=0, filter_source=FIELD)
        writer.append(message, now_ms=0)
        assert declared(stream) == [(FIELD, 0, 2)]
        writer.append(message, now_ms=0, filter_source="properties.subject")
        writer.append(message, now_ms=0, filter_source=FIELD)
        writer.append(message, now_ms=0, filter_source=FIELD)
    assert declared(stream) == [(FIELD, 0, 2), (FIELD, 4, 6)]
    with Writer.open(stream, now_ms=0) as writer:
        writer.append(message, now_ms=0, filter_source=FIELD)
    assert declared(stream) == [(FIELD, 0, 2), (FIELD, 4, 7)]


def test_a_changed_declaration_begins_a_range_of_its_own(tmp_path: Path) -> None:
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0, filter_source=FIELD)
    message = [(b"m", b"EMEA")]
    with Writer.open(stream, now_ms=0) as writer:
        writer.append(message, now_ms=0, filter_source=FIELD)
        writer.change(now_ms=0, filter_source="properties.subject")
        writer.append(message, now_ms=0, filter_source="properties.subject")
        writer.change(now_ms=0, filter_source=None)
        writer.append(message, now_ms=0, filter_source="properties.subject")
        assert writer.settings.filter_source is None
    assert declared(stream) == [(FIELD, 0, 1), ("properties.subject", 1, 2)]


def test_after_a_crash_the_declaration_does_not_cover_what_others_write_next(tmp_path: Path) -> None:
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0, filter_source=FIELD)
    writer = Writer.open(stream, now_ms=0)
    writer.append([(b"m", b"EMEA")], now_ms=0, filter_source=FIELD)
    writer._pair.close()
    writer._lock.release()
    with Writer.open(stream, now_ms=0) as writer:
        assert writer.settings.declared == (DeclaredRange(FIELD, 0, 1),)
        writer.append([(b"m", b"EMEA")], now_ms=0)
    assert declared(stream) == [(FIELD, 0, 1)]


# retention


def fill(writer: Writer, count: int, *, start: int = 0) -> None:
    for number in range(start, start + count):
        writer.append([(bytes(100), None)], now_ms=number)


def test_segments_go_by_bytes_oldest_first_and_the_newest_stays(tmp_path: Path) -> None:
    stream = small(tmp_path, max_segment_chunks=2, max_length_bytes=700)
    sizes = []
    with Writer.open(stream, now_ms=0) as writer:
        for number in range(20):
            fill(writer, 1, start=number)
            sizes.append(sum(segment.segment_path.stat().st_size for segment in stream.segments()))
    # A full segment has 8 + 2 · 152 bytes: two of them and a new one fit 700, and the new one fills up.
    assert max(sizes) == 3 * 312
    assert [segment.first_chunk_id for segment in stream.segments()] == [14, 16, 18]
    assert [offset for offset, _ in read_messages(stream)] == list(range(14, 20))


def test_segments_go_by_the_age_of_their_last_chunk(tmp_path: Path) -> None:
    stream = small(tmp_path, max_segment_chunks=2, max_age_ms=10)
    with Writer.open(stream, now_ms=0) as writer:
        fill(writer, 6)
        writer.apply_retention(now_ms=11)
        assert stream.first_offset() == 0
        writer.apply_retention(now_ms=12)
        assert stream.first_offset() == 2
        writer.apply_retention(now_ms=10**9)
        assert [segment.first_chunk_id for segment in stream.segments()] == [4]
        assert writer.append([(b"m", None)], now_ms=10**9).offsets().tolist() == [6]


def test_retention_runs_when_a_segment_opens_when_limits_change_and_at_start(tmp_path: Path) -> None:
    stream = small(tmp_path, max_segment_chunks=2)
    with Writer.open(stream, now_ms=0) as writer:
        fill(writer, 8)
        arguments = StreamArguments(max_segment_chunks=2, max_age_ms=3)
        writer.change(now_ms=7, arguments=arguments)
        assert stream.first_offset() == 4
        with pytest.raises(ConfigError, match="max_age_ms"):
            writer.change(now_ms=7, arguments=StreamArguments(max_age_ms=0))
        fill(writer, 1, start=10)
        assert stream.first_offset() == 6
    with Writer.open(stream, now_ms=1000):
        assert stream.first_offset() == 8


def test_a_sidecar_goes_with_its_segment(tmp_path: Path) -> None:
    stream = small(tmp_path, max_segment_chunks=2, max_age_ms=5)
    with Writer.open(stream, now_ms=0) as writer:
        fill(writer, 4)
        sidecar = stream.segments()[0].segment_path.with_suffix(".segment.match")
        sidecar.write_bytes(b"x")
        writer.apply_retention(now_ms=100)
    assert not sidecar.exists()


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec is not Compression.NONE])
def test_compressed_messages_keep_values_sequences_and_their_declaration(tmp_path: Path, codec: Compression) -> None:
    source = "properties.subject"
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0, filter_source=source)
    with Writer.open(stream, now_ms=0) as writer:
        given = [(b"%d" % number, b"red" if number % 3 else None) for number in range(5000)]
        appended = writer.append(
            given, now_ms=1, publisher="p", sequences=range(5000), filter_source=source, compression=codec
        )
        again = writer.append(
            [(b"late", b"blue")] * 2, now_ms=2, publisher="p", sequences=[4999, 5000], compression=codec
        )
        assert (appended.num_records.tolist(), again.num_duplicates) == ([4096, 904], 1)
        assert writer.last_sequence("p") == 5000
    with Writer.open(stream, now_ms=0) as writer:
        assert writer.last_sequence("p") == 5000
    assert [body for _, body in read_messages(stream)] == [*(body for body, _ in given), b"late"]
    settings = Stream.open(stream.path).settings
    assert settings is not None and settings.declared == (DeclaredRange(source, 0, 5000),)
    with stream.segments()[0].open() as reader:
        headers = reader.headers(0, 3)
    assert headers.num_entries.tolist() == [1, 1, 1]
    for value, unfiltered, expected in (
        (b"red", False, [True, True, False]),
        (b"blue", False, [False, False, True]),
        (b"green", True, [True, True, False]),
    ):
        matcher = BloomMatcher([value], match_unfiltered=unfiltered)
        found = matcher.match_many(headers.data, headers.bloom_positions, headers.bloom_length)
        assert found.tolist() == expected


def test_a_declaration_does_not_cover_sub_batches_that_were_given(tmp_path: Path) -> None:
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0, filter_source="properties.subject")
    with Writer.open(stream, now_ms=0) as writer:
        writer.append([(b"a", b"v")], now_ms=0, filter_source="properties.subject")
        append_chunk(writer, [SubBatch.of([b"b"], Compression.NONE)], now_ms=0)
    settings = Stream.open(stream.path).settings
    assert settings is not None and settings.declared == (DeclaredRange("properties.subject", 0, 1),)


def test_segments_below_an_offset_are_dropped_one_at_a_time_and_never_the_last(tmp_path: Path) -> None:
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0, arguments=StreamArguments(max_segment_chunks=1))
    with Writer.open(stream, now_ms=0) as writer:
        for number in range(4):
            writer.append([(b"%d" % number, None), (b"m", None)], now_ms=0)
        assert not writer.drop_first_below(1)
        assert writer.first_offset == 0
        assert writer.drop_first_below(4)
        assert writer.first_offset == 2
        assert writer.drop_first_below(100)
        assert writer.drop_first_below(100)
        assert not writer.drop_first_below(100)
        assert [offset for offset, _ in read_messages(stream)] == [6, 7]
        writer.append([(b"more", None)], now_ms=0)
    assert stream.first_offset() == 6
