"""What a stream remembers of publishers and consumers, as its files say."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import CorruptChunkError
from headgate.log import Stream, StreamArguments, Writer
from headgate.log.pairs import delete_pair
from headgate.log.tracking import read_tracking
from headgate.log.tracking_records import TrackingKind, TrackingRecord, decode_records, encode_records

NAMES = st.sampled_from(("a", "b", "longer name"))
STEPS = st.one_of(
    st.tuples(st.just("publish"), NAMES, st.sampled_from((1, 1, 100)), st.sampled_from((5, 40_000))),
    st.tuples(st.just("store"), NAMES, st.integers(0, 2**64 - 1)),
    st.tuples(st.just("flush")),
    st.tuples(st.just("nameless"), st.sampled_from((1, 70))),
)


@given(st.lists(STEPS, max_size=8))
def test_the_newest_of_each_name_is_remembered(steps: list[tuple]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stream = Stream.create(Path(folder) / "s", name="s", now_ms=1)
        sequences: dict[bytes, tuple[int, int]] = {}
        offsets: dict[bytes, int] = {}
        with Writer.open(stream, now_ms=1) as writer:
            for step in steps:
                match step:
                    case "publish", name, count, size:
                        for _ in range(count):
                            following = sequences.get(name.encode(), (0, 0))[1] + 1
                            chunk_id = writer.next_offset
                            writer.append([(bytes(size), b"value")], now_ms=1, publisher=name, sequences=[following])
                            sequences[name.encode()] = (chunk_id, following)
                    case "nameless", count:
                        for _ in range(count):
                            writer.append([(b"m", None)], now_ms=1)
                    case "store", name, offset:
                        writer.store_offset(name.encode(), offset)
                        offsets[name.encode()] = offset
                    case _:
                        writer.flush_offsets(now_ms=1)
            writer.flush_offsets(now_ms=1)
        found = read_tracking(Stream.open(stream.path))
        assert found.sequences == sequences
        assert found.offsets == offsets


def test_trailers_and_chunks_of_offsets_count_in_order(tmp_path: Path) -> None:
    stream = Stream.create(tmp_path / "s", name="s", now_ms=1)
    with Writer.open(stream, now_ms=1) as writer:
        for sequence in range(1, 90):
            writer.append([(b"m", None)], now_ms=1, publisher="p", sequences=[sequence])
            if sequence % 40 == 0:
                writer.store_offset(b"c", sequence)
                writer.flush_offsets(now_ms=1)
    found = read_tracking(Stream.open(stream.path))
    assert found.sequences[b"p"][1] == 89
    assert found.offsets == {b"c": 80}


def test_the_state_is_read_again_when_retention_deleted_what_was_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream.create(tmp_path / "s", name="s", now_ms=1, arguments=StreamArguments(max_segment_chunks=2))
    with Writer.open(stream, now_ms=1) as writer:
        writer.store_offset(b"c", 7)
        for _ in range(5):
            writer.append([(b"m", None)], now_ms=1)
    now = stream.segments()
    # As it was listed while it was the newest.
    before = [replace(now[0], is_newest=True, stop_offset=None)]
    listings = [before, now]
    delete_pair(stream.path, now[0].first_chunk_id)
    monkeypatch.setattr(Stream, "segments", lambda _: listings.pop(0))
    assert read_tracking(stream).offsets == {b"c": 7}
    listings = [before, now]
    assert stream.next_offset() == now[-1].first_chunk_id + 2


@pytest.mark.parametrize("damage", [b"\x03", b"\x00\xff"], ids=["no kind", "cut off"])
def test_a_trailer_that_is_none_is_named_with_its_place(tmp_path: Path, damage: bytes) -> None:
    stream = Stream.create(tmp_path / "s", name="s", now_ms=1)
    with Writer.open(stream, now_ms=1) as writer:
        for sequence in range(70):
            writer.append([(b"m", None)], now_ms=1, publisher="p", sequences=[sequence])
    path = stream.segments()[0].segment_path
    octets = bytearray(path.read_bytes())
    trailer = len(octets) - len(TrackingRecord(TrackingKind.SEQUENCE, b"p", 69).encode())
    octets[trailer : trailer + len(damage)] = damage
    path.write_bytes(octets)
    with pytest.raises(CorruptChunkError) as caught:
        read_tracking(Stream.open(stream.path))
    assert caught.value.position == trailer


def test_records_are_read_as_they_were_written() -> None:
    plain = [TrackingRecord(kind, b"name", 7) for kind in TrackingKind]
    data = encode_records(plain)
    assert list(decode_records(data, in_snapshot=False, path="p", position=0)) == plain
    whole = [TrackingRecord(TrackingKind.SEQUENCE, b"p", 9, 4), TrackingRecord(TrackingKind.OFFSET, b"", 2**64 - 1)]
    assert list(decode_records(encode_records(whole), in_snapshot=True, path="p", position=0)) == whole
