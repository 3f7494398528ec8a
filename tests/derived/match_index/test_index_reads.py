"""A read with the match index gives what a full read gives, whatever state the index is in."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import tempfile
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunks import append_chunk
from headgate import kernels
from headgate.derived import MATCH_INDEX, sources_of
from headgate.derived.match_index import build
from headgate.derived.match_index.registry import FilterRegistry
from headgate.derived.match_index.source import MatchIndex, MatchIndexWarning
from headgate.errors import CorruptChunkError, StorageFullError
from headgate.evaluate.filter import Filter
from headgate.log import OffsetSpecification, Segment, Stream, StreamArguments
from headgate.log.entries import SubBatch
from headgate.log.format import CHUNK_HEADER_BYTES, Compression
from headgate.log.pairs import delete_pair
from headgate.log.sidecar import sidecar_path
from headgate.log.writer import Writer
from headgate.message import Message
from headgate.scan import Cursor, OffsetRange, OnCorrupt, ScanCounters, ScanRequest, rows
from headgate.scan.answers import answer
from headgate.scan.answers.entries import WantedEntries, cut
from headgate.scan.count import count_matches
from match_indexes import (
    DIALECT,
    TEXTS,
    WRITES,
    Write,
    append,
    assert_same,
    build_index,
    create,
    followed,
    message,
    planned,
    register,
    requests,
)

ONE_BY_ONE, WHOLE = 0, 10**9
"""Shares from which on a chunk is read whole: never, always."""


@given(
    writes=WRITES,
    later=WRITES,
    start=st.integers(0, 40),
    text=st.sampled_from((*TEXTS, "price = 2")),
    in_python=st.booleans(),
    dense_share=st.sampled_from([ONE_BY_ONE, 4, WHOLE]),
)
def test_an_indexed_read_gives_the_messages_of_a_full_read(
    writes: list[Write],
    later: list[Write],
    start: int,
    text: str,
    in_python: bool,
    dense_share: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "_DENSE_SHARE", dense_share)
        if in_python:
            patch.setattr(kernels, "load", lambda _module: None)
        stream = create(Path(folder) / "s", writes)
        register(stream)
        build_index(stream, now_ms=2)
        assert_same(stream, text, min(start, stream.next_offset() - 1))
        append(stream, later, now_ms=3)
        assert_same(stream, text)
        build_index(stream, now_ms=4)
        counters = assert_same(stream, text)
        if text in TEXTS:
            assert counters.messages_evaluated == 0


def test_paths_into_bodies_are_decided_by_the_index_alone_and_inside_sub_batches(tmp_path: Path) -> None:
    bodies = [b'{"n": %d, "tags": ["a", %d]}' % (n, n % 3) if n % 7 else b'{"n": %d' % n for n in range(40)]
    messages = [Message(body).encode() for body in bodies]
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0)
    with Writer.open(stream, now_ms=0) as writer:
        append_chunk(writer, [(messages[0], None), SubBatch.of(messages[1:20], Compression.GZIP)], now_ms=0)
        append_chunk(writer, [(each, None) for each in messages[20:]], now_ms=0)
    for number, text in enumerate(texts := ("body.n > 30", "body.tags[*] = 2", "NOT body.n >= 30")):
        FilterRegistry(stream).register(f"{number}", text, "amqp", now_ms=1)
    build_index(stream, now_ms=2)
    for text in texts:
        own = Filter.parse(text)
        found, counters = followed(stream, ScanRequest(filter=own, sources=sources_of()))
        assert [row[0] for row in found] == [row for row, each in enumerate(messages) if own.matches(each)]
        assert (counters.messages_decided_by_index, counters.messages_evaluated) == (40, 0)


def damaged(content: bytes, cut: int, flips: list[tuple[int, int]]) -> bytes:
    changed = bytearray(content[: len(content) - cut] if cut else content)
    for place, mask in flips:
        if changed:
            changed[place % len(changed)] ^= mask
    return bytes(changed)


@given(
    writes=WRITES,
    cut=st.one_of(st.just(0), st.integers(1, 400)),
    flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), max_size=4),
    text=st.sampled_from(TEXTS),
    dense_share=st.sampled_from([ONE_BY_ONE, WHOLE]),
)
def test_a_damaged_sidecar_changes_no_result(
    writes: list[Write], cut: int, flips: list[tuple[int, int]], text: str, dense_share: int
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(),
    ):
        patch.setattr(rows, "_DENSE_SHARE", dense_share)
        warnings.simplefilter("ignore", MatchIndexWarning)
        stream = create(Path(folder) / "s", writes)
        register(stream)
        build_index(stream, now_ms=2)
        for segment in stream.segments():
            path = sidecar_path(segment)
            path.write_bytes(damaged(path.read_bytes(), cut, flips))
        assert_same(stream, text)
        build_index(stream, now_ms=3)
        warnings.simplefilter("error")
        assert_same(stream, text)


def sidecars(stream: Stream) -> list[Path]:
    return [sidecar_path(segment) for segment in stream.segments()]


def first_sidecar(stream: Stream) -> Path:
    return sidecars(stream)[0]


MANY = [Write((("AMER", number % 7), ("EMEA", number % 5), (None, 2)), packed=False) for number in range(60)]


def test_by_an_index_much_is_read_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0)
    FilterRegistry(stream).register("rare", "price = 7", DIALECT, now_ms=0)
    append(stream, [Write((("AMER", 7 if number % 50 == 0 else 1),) * 5, False) for number in range(200)])
    build_index(stream, now_ms=1)
    asked: list[int] = []
    original = rows.read_rows

    def counted(*arguments: Any) -> Any:
        asked.append(len(arguments[1]))
        return original(*arguments)

    monkeypatch.setattr("headgate.scan.fetch.fetcher.read_rows", counted)
    monkeypatch.setattr("headgate.scan.cursor.WINDOW_BYTES", 1000)
    monkeypatch.setattr("headgate.scan.fetch.fetcher.LARGEST_WINDOW_BYTES", 1000)
    found = []
    for request in requests("price = 7"):
        asked.clear()
        found.append(followed(stream, request)[0])
        assert sum(asked) == 200
        assert (len(asked) < 8) == (MATCH_INDEX in request.sources)
    assert found[0] == found[1]


@pytest.fixture
def _one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that an index names are read one by one, however many they are."""
    monkeypatch.setattr(rows, "_DENSE_SHARE", ONE_BY_ONE)


@pytest.fixture
def stream(tmp_path: Path, _one_by_one: None) -> Stream:
    """A stream of several segments, with its index."""
    made = create(tmp_path / "s", MANY)
    register(made)
    build_index(made, now_ms=2)
    assert len(made.segments()) > 3
    return made


def with_warning(stream: Stream, text: str, words: str) -> ScanCounters:
    """The read is right, and says once why the index was not used."""
    indexed, full = requests(text)
    expected, _ = followed(stream, full)
    with pytest.warns(MatchIndexWarning, match=words) as found:
        got, counters = followed(stream, indexed)
    assert got == expected
    assert len(found) == 1
    return counters


def test_chunks_without_a_match_are_not_read_and_matches_are_not_evaluated(stream: Stream) -> None:
    counters = assert_same(stream, "region = 'NONE'")
    assert counters.chunks_skipped_by_index == counters.chunks_examined == 60
    assert (counters.bytes_read, counters.messages_evaluated) == (0, 0)
    counters = assert_same(stream, "region = 'AMER'")
    assert (counters.messages_evaluated, counters.messages_matched) == (0, 60)
    assert counters.messages_decided_by_index == 180


def test_a_chunk_with_many_matches_is_read_whole_and_not_evaluated(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one = assert_same(stream, "price > 3")
    monkeypatch.setattr(rows, "_DENSE_SHARE", 4)
    counters = assert_same(stream, "price > 3")
    assert counters.messages_evaluated == 0
    assert counters.bytes_read > one_by_one.bytes_read
    change_message(stream.segments()[0], at=10)
    with pytest.raises(CorruptChunkError):
        followed(stream, requests("TRUE")[0])
    indexed, full = requests("TRUE", on_corrupt=OnCorrupt.SKIP)
    got, counters = followed(stream, indexed)
    expected, plain = followed(stream, full)
    assert got == expected
    assert (counters.chunks_corrupt, counters.bytes_read) == (1, plain.bytes_read)


def test_a_filter_that_is_not_registered_is_read_in_full_without_a_warning(stream: Stream) -> None:
    counters = assert_same(stream, "price = 2")
    assert counters.messages_decided_by_index == 0


def test_exact_counting_of_verdicts_takes_no_results_from_the_index(stream: Stream) -> None:
    _, counters = followed(stream, requests("region = 'AMER'", exact=True)[0])
    assert (counters.messages_evaluated, counters.messages_unknown) == (180, 60)


def test_the_same_text_in_another_language_is_another_filter(stream: Stream) -> None:
    expression = Filter.parse("region = 'AMER'", "amqp")
    assert followed(stream, ScanRequest(filter=expression, sources=sources_of()))[1].messages_decided_by_index == 0


def test_chunks_written_since_the_build_are_read_in_full(stream: Stream) -> None:
    append(stream, MANY[:3], now_ms=5)
    counters = assert_same(stream, "region = 'AMER'")
    assert (counters.messages_decided_by_index, counters.messages_evaluated) == (180, 9)


def test_a_cursor_takes_up_an_index_that_grows_while_it_reads(stream: Stream) -> None:
    indexed, _ = requests("region = 'AMER'")
    with Cursor(stream, indexed, start=OffsetSpecification.first(), now_ms=0) as cursor:
        while cursor.read(0) is not None:
            pass
        append(stream, MANY[:2], now_ms=5)
        build_index(stream, now_ms=6)
        kept = 0
        while (batch := cursor.read(0)) is not None:
            kept += len(batch)
        assert kept == 2
        assert (cursor.counters.messages_evaluated, cursor.counters.messages_decided_by_index) == (0, 186)


def test_a_deleted_sidecar_costs_speed_only(stream: Stream) -> None:
    first_sidecar(stream).unlink()
    counters = assert_same(stream, "region = 'AMER'")
    assert 0 < counters.messages_evaluated < 180


def test_a_truncated_sidecar_is_passed_over_with_one_warning(stream: Stream) -> None:
    for path in sidecars(stream):
        path.write_bytes(path.read_bytes()[:-1])
    counters = with_warning(stream, "region = 'AMER'", "match index not used: .*match")
    assert counters.messages_evaluated > 0


def test_a_sidecar_of_another_stream_with_the_same_layout_is_stale(tmp_path: Path, stream: Stream) -> None:
    others = [Write((("EMEA", number % 7), ("AMER", number % 5), (None, 2)), packed=False) for number in range(60)]
    other = create(tmp_path / "other", others)
    register(other)
    build_index(other, now_ms=2)
    for mine, foreign in zip(sidecars(stream), sidecars(other), strict=True):
        shutil.copyfile(foreign, mine)
    counters = with_warning(
        stream, "region = 'AMER'", f"of the stream with the identity {other.identity}, this one has {stream.identity}"
    )
    assert counters.messages_decided_by_index == 0


def test_a_sidecar_of_another_segment_is_refused(stream: Stream) -> None:
    paths = sidecars(stream)
    shutil.copyfile(paths[1], paths[0])
    with_warning(stream, "region = 'AMER'", "of a segment that begins at offset")


def test_a_sidecar_of_an_earlier_state_of_the_stream_is_stale(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    made = create(folder, MANY)
    register(made)
    build_index(made, now_ms=2)
    kept = [(path.name, path.read_bytes()) for path in sidecars(made)]
    shutil.rmtree(folder)
    turned = [Write(tuple(reversed(write.messages)), packed=False) for write in MANY]
    made = create(folder, turned, identity=made.identity)
    for name, content in kept:
        (folder / name).write_bytes(content)
    with_warning(made, "price > 3", "stale")
    register(made)
    assert build_index(made, now_ms=3).chunks_decided == 60
    assert assert_same(made, "price > 3").messages_evaluated == 0


def test_results_of_another_version_of_the_program_are_stale(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    from headgate.derived.match_index import identity

    original = identity.FilterKey
    monkeypatch.setattr(identity, "FilterKey", lambda dialect, digest, _: original(dialect, digest, "9.9/9"))
    counters = with_warning(stream, "region = 'AMER'", "computed by another version of Headgate")
    assert counters.messages_decided_by_index == 0


def test_a_message_that_changed_on_disk_is_found_by_its_own_checksum(stream: Stream) -> None:
    segment = stream.segments()[0]
    change_message(segment, at=10)
    indexed, full = requests("region = 'AMER'", on_corrupt=OnCorrupt.SKIP)
    expected, plain = followed(stream, full)
    with pytest.warns(MatchIndexWarning, match="an entry is not the one that was indexed"):
        got, counters = followed(stream, indexed)
    assert got == expected
    assert plain.chunks_corrupt == counters.chunks_corrupt == 1


def change_message(segment: Segment, *, at: int) -> None:
    """Flip a bit in the first message of the first chunk."""
    with segment.open() as reader:
        header = reader.header(0)
        place = int(reader.chunks().position[0]) + CHUNK_HEADER_BYTES + header.bloom_length + 4 + at
    content = bytearray(segment.segment_path.read_bytes())
    content[place] ^= 1
    segment.segment_path.write_bytes(bytes(content))


def test_without_checksums_an_index_reads_as_a_full_read_does(stream: Stream) -> None:
    change_message(stream.segments()[0], at=10)
    indexed, full = requests("price > 3", verify_checksums=False)
    assert followed(stream, indexed)[0] == followed(stream, full)[0]


def test_corrupt_chunks_are_left_to_the_full_read(stream: Stream) -> None:
    for path in sidecars(stream):
        path.unlink()
    change_message(stream.segments()[1], at=10)
    report = build_index(stream, now_ms=3)
    assert (report.chunks_decided, report.chunks_corrupt) == (60, 1)
    indexed, full = requests("TRUE", on_corrupt=OnCorrupt.SKIP)
    got, counters = followed(stream, indexed)
    expected, plain = followed(stream, full)
    assert got == expected
    assert counters.chunks_corrupt == plain.chunks_corrupt == 1


@pytest.mark.usefixtures("_one_by_one")
def test_only_new_chunks_and_new_filters_are_decided_again(tmp_path: Path) -> None:
    made = create(tmp_path / "s", MANY)
    register(made, TEXTS[:1])
    first = build_index(made, now_ms=2)
    assert (first.chunks_decided, first.messages_decided) == (60, 180)
    nothing = build_index(made, now_ms=3)
    assert (nothing.chunks_decided, nothing.segments_written) == (0, 0)
    append(made, MANY[:2], now_ms=4)
    grown = build_index(made, now_ms=4)
    assert (grown.chunks_decided, grown.segments_written) == (2, 1)
    FilterRegistry(made).register("new#topic", "price > 3", DIALECT, now_ms=5)
    assert build_index(made, now_ms=5).chunks_decided == 62
    assert assert_same(made, "region = 'AMER'").messages_decided_by_index > 0
    assert assert_same(made, "price > 3").messages_decided_by_index > 0
    assert build_index(made, now_ms=6, full=True).chunks_decided == 62


def test_a_new_version_of_a_filter_replaces_the_results_of_the_old(stream: Stream) -> None:
    FilterRegistry(stream).register("group0#topic", "price = 5", DIALECT, now_ms=9)
    assert assert_same(stream, "region = 'AMER'").messages_evaluated == 0
    build_index(stream, now_ms=9)
    assert assert_same(stream, "price = 5").messages_evaluated == 0
    assert assert_same(stream, "region = 'AMER'").messages_decided_by_index == 0


def test_retention_deletes_a_sidecar_with_its_segment(stream: Stream) -> None:
    gone = first_sidecar(stream)
    assert gone.exists()
    with Writer.open(stream, now_ms=9) as writer:
        writer.change(now_ms=9, arguments=StreamArguments(max_segment_size_bytes=2000, max_length_bytes=3000))
        writer.append([(message("AMER", n), None) for n in range(40)], now_ms=9)
        writer.append([(message("AMER", n), None) for n in range(40)], now_ms=9)
    assert not gone.exists()
    assert sorted(Path(stream.path).glob("*.match")) == [path for path in sidecars(stream) if path.exists()]
    assert_same(stream, "region = 'AMER'", stream.first_offset())


def test_a_build_removes_sidecars_without_a_segment_and_all_without_a_filter(stream: Stream) -> None:
    orphan = stream.path / "00000000000000999999.segment.match"
    orphan.write_bytes(b"HGMX")
    build_index(stream, now_ms=3)
    assert not orphan.exists()
    for number in range(len(TEXTS)):
        FilterRegistry(stream).remove(f"group{number}#topic")
    build_index(stream, now_ms=4)
    assert not any(path.exists() for path in sidecars(stream))


def test_an_answer_is_cut_into_pieces_of_bounded_size(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "MOST_OFFSETS", 10)
    monkeypatch.setattr(answer, "MOST_ROWS", 2)
    assert assert_same(stream, "region = 'AMER'").messages_evaluated == 0
    indexed, _ = requests("region = 'AMER'")
    with stream.segments()[0].open() as reader:
        chosen = np.flatnonzero(reader.chunks().type == 0)[::2]
        assert indexed.filter is not None
        found = list(MatchIndex(indexed.filter).answers(reader, chosen, OffsetRange(2, 20)))
        assert np.concatenate([each.rows for each in found]).tolist() == chosen.tolist()
        assert all(len(each.rows) <= 2 for each in found)
        offsets = np.concatenate([each.offsets for each in found]).tolist()
        ids = reader.chunks().chunk_id[chosen].tolist()
    assert offsets == [offset for offset in ids if 2 <= offset < 20]


def at_work(mangle: Callable[[bytes], bytes], path: Path) -> None:
    path.write_bytes(mangle(path.read_bytes()))


def with_bit_arrays(content: bytes) -> bytes:
    """A file as an earlier version wrote it in the layout `bloom`: another kind of area in the directory."""
    size = int.from_bytes(content[8:12], "big")
    directory = content[16 : 16 + size].replace(b'"bits":', b'"array_bytes":14,"arrays":')
    head = struct.pack(">II", len(directory), zlib.crc32(directory))
    return content[:8] + head + directory + content[16 + size :]


@pytest.mark.parametrize(
    ("mangle", "words"),
    [
        (lambda content: b"", "no whole block"),
        (lambda content: b"XXXX" + content[4:], "expected format 3"),
        (lambda content: content[:8] + b"\xff\xff\xff\xff" + content[12:], "a directory of 4294967295 bytes"),
        (with_bit_arrays, "no directory of this version"),
        (lambda content: content[:20] + b"#" + content[21:], "checksum of the directory"),
        (lambda content: content[:-1] + bytes([content[-1] ^ 1]), "checksum does not match"),
    ],
)
def test_each_kind_of_damage_has_its_name(stream: Stream, mangle: Callable[[bytes], bytes], words: str) -> None:
    at_work(mangle, first_sidecar(stream))
    with_warning(stream, "TRUE", words)
    assert build_index(stream, now_ms=9).segments_written == 1
    assert assert_same(stream, "TRUE").messages_evaluated == 0


def test_a_folder_in_the_place_of_a_sidecar_is_passed_over(stream: Stream) -> None:
    first_sidecar(stream).unlink()
    first_sidecar(stream).mkdir()
    with_warning(stream, "TRUE", "cannot be read")


@pytest.mark.parametrize("text", [*TEXTS, "price = 2"])
def test_a_count_is_the_number_of_messages_that_a_read_gives(tmp_path: Path, text: str) -> None:
    packed = [Write(write.messages, packed=number % 7 == 0) for number, write in enumerate(MANY)]
    made = create(tmp_path / "s", packed)
    register(made)
    build_index(made, now_ms=2)
    append(made, MANY[:2], now_ms=3)
    indexed, full = requests(text)
    for within in (OffsetRange(0, 186), OffsetRange(5, 100), OffsetRange(181, 183), OffsetRange(7, 7)):
        found = count_matches(made, indexed, within)
        assert found.matches == len(planned(made, full, within)[0])
        counters = found.counters
        assert counters.messages_matched == found.matches
        assert counters.messages_decided == within.stop - within.start
        if text in TEXTS:
            assert counters.messages_evaluated == max(0, within.stop - max(within.start, 180))


def test_a_segment_that_retention_deletes_during_a_build_keeps_no_sidecar(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    registration = FilterRegistry(stream).read()
    segment = stream.segments()[0]
    write = build.write_sidecar

    def deleted_meanwhile(*arguments: Any, **options: Any) -> int:
        delete_pair(stream.path, segment.first_chunk_id)
        return write(*arguments, **options)

    monkeypatch.setattr(build, "write_sidecar", deleted_meanwhile)
    build.bring_up_to_date(segment, registration, full=True)
    assert not sidecar_path(segment).exists()
    assert build.bring_up_to_date(segment, registration) == build.BuildCounters(segments=1)


def test_a_writer_that_starts_during_a_build_does_not_fail_it(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = os.replace
    lost = []

    def replace_after_a_recovery(source: Path, target: Path) -> None:
        if not lost:
            lost.append(source)
            os.unlink(source)
        replace(source, target)

    monkeypatch.setattr("headgate.log.files.os.replace", replace_after_a_recovery)
    report = build_index(stream, now_ms=3, full=True)
    assert lost and report.segments_written == report.segments
    assert assert_same(stream, "region = 'AMER'").messages_evaluated == 0


def test_a_build_that_cannot_write_leaves_what_was_there(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(_source: Path, _target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("headgate.log.files.os.replace", full_disk)
    with pytest.raises(StorageFullError):
        build_index(stream, now_ms=3, full=True)
    assert assert_same(stream, "region = 'AMER'").messages_evaluated == 0
    assert not [name for name in os.listdir(stream.path) if name.endswith(".new")]


def test_what_lies_between_wanted_entries_counts_where_it_is_read_with_them() -> None:
    positions = np.arange(1000, dtype=np.int64) * 10_000
    entries = WantedEntries(
        positions, positions + 100, positions, np.arange(1000), np.arange(1000) // 2, positions >= 0
    )
    for count_gaps, most in ((True, 1_000_000), (False, 100_000_000)):
        parts = list(cut(entries, 1_000_000, count_gaps=count_gaps))
        assert np.concatenate([part.offsets for part in parts]).tolist() == list(range(1000))
        assert max(int(part.stops[-1] - part.positions[0]) for part in parts) <= most + 20_000
        assert all(len(part.chunks) % 2 == 0 for part in parts)
    assert len(parts) == 1
