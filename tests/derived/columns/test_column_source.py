"""A read that column files decide gives what a full read gives, whatever state the files are in."""

from __future__ import annotations

import random
import tempfile
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from headgate import kernels
from headgate.derived import sources_of
from headgate.derived.columns import (
    COLUMN_FILES,
    ColumnFile,
    ColumnFileWarning,
    build,
    column_files,
    declare_columns,
    files,
    source,
)
from headgate.evaluate import Filter
from headgate.log import Stream
from headgate.log.format import CHUNK_HEADER_BYTES
from headgate.log.writer import Writer
from headgate.message import AmqpType, AmqpValue, Message
from headgate.scan import (
    OffsetRange,
    OnCorrupt,
    ScanCounters,
    ScanRequest,
    count_matches,
    plan,
    read_range,
    rows,
    savings,
)
from match_indexes import WRITES, Write, append, build_index, create, followed, register

TEXTS = (
    "region = 'AMER'",
    "price > 3",
    "region = 'NONE'",
    "NOT (region = 'AMER')",
    "region = 'AMER' AND price >= 2",
    "region LIKE 'AM%' AND price < 4",
    "region IS NULL OR price IN (1, 5)",
    "other = 1 OR price = 2",
    "price >= 2 AND price <= 4 AND region <> 'EMEA'",
    "p.subject = 'x'",
    "price > 100",
)
MANY = [Write((("AMER", number % 7), ("EMEA", number % 5), (None, 2)), packed=False) for number in range(60)]
ONE_BY_ONE, WHOLE = 0, 10**9


@pytest.fixture(autouse=True)
def _always_cheaper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a few rows are larger than the messages."""
    for name in ("_COLUMN_NS", "_ENTRY_NS", "_EXACT_SHARE", "_DENSE_SHARE"):
        monkeypatch.setattr(source, name, 0)
    source._CACHE.clear()


def requests(text: str, **options: object) -> tuple[ScanRequest, ScanRequest]:
    """The same read with column files and without anything derived."""
    expression = Filter.parse(text, "rabbitmq")
    return (
        ScanRequest(filter=expression, sources=sources_of(), **options),  # type: ignore[arg-type]
        ScanRequest(filter=expression, **options),  # type: ignore[arg-type]
    )


def planned(stream: Stream, request: ScanRequest, within: OffsetRange) -> tuple[list[int], ScanCounters]:
    found = plan(stream, request, within, range_bytes=500)
    batches = [batch for chunks in found.ranges for batch in read_range(chunks, request, found.counters)]
    return [offset for batch in batches for offset in batch.offsets.tolist()], found.counters


def assert_same(stream: Stream, text: str, start: int = 0) -> ScanCounters:
    """By columns and without, following, planned and counted; what was counted by columns."""
    by_columns, full = requests(text)
    expected, plain = followed(stream, full, start)
    got, counters = followed(stream, by_columns, start)
    assert got == expected
    assert plain.messages_decided_by_columns == plain.column_bytes_read == plain.messages_decided_by_index == 0
    assert (counters.messages_decided, counters.messages_matched) == (plain.messages_evaluated, plain.messages_matched)
    assert counters.bytes_read + counters.bytes_skipped == plain.bytes_read
    within = OffsetRange(start, stream.next_offset())
    offsets, counted = planned(stream, by_columns, within)
    assert offsets == [row[0] for row in expected]
    assert counted.messages_decided == plain.messages_evaluated
    assert count_matches(stream, by_columns, within).matches == len(expected)
    return counters


@examples(0.25)
@given(
    writes=WRITES,
    later=WRITES,
    start=st.integers(0, 40),
    text=st.sampled_from(TEXTS),
    in_python=st.booleans(),
    dense_share=st.sampled_from([ONE_BY_ONE, 4, WHOLE]),
    group_rows=st.sampled_from([3, 7, 1000]),
    indexed=st.booleans(),
)
def test_a_read_by_columns_gives_the_messages_of_a_full_read(
    writes: list[Write],
    later: list[Write],
    start: int,
    text: str,
    in_python: bool,
    dense_share: int,
    group_rows: int,
    indexed: bool,
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "_DENSE_SHARE", dense_share)
        patch.setattr(build, "GROUP_ROWS", group_rows)
        if in_python:
            patch.setattr(kernels, "load", lambda _module: None)
        stream = create(Path(folder) / "s", writes, segment_bytes=600)
        declare_columns(stream, "region string, price bigint")
        list(COLUMN_FILES.build(stream, now_ms=2))
        assert_same(stream, text, min(start, stream.next_offset() - 1))
        append(stream, later, now_ms=3)
        if indexed:
            register(stream)
            build_index(stream, now_ms=4)
        assert_same(stream, text)


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    """A stream of several segments with column files."""
    monkeypatch.setattr(rows, "_DENSE_SHARE", ONE_BY_ONE)
    made = create(tmp_path / "s", MANY)
    declare_columns(made, "region string, price bigint")
    list(COLUMN_FILES.build(made, now_ms=2))
    assert len(column_files(made)) > 3
    return made


def sealed_messages(stream: Stream) -> int:
    return sum(file.rows for file in column_files(stream))


def test_no_message_of_a_sealed_segment_is_evaluated(stream: Stream) -> None:
    counters = assert_same(stream, "region = 'AMER' AND price >= 2")
    assert counters.messages_decided_by_columns == sealed_messages(stream)
    assert counters.messages_evaluated == 180 - sealed_messages(stream)
    assert counters.column_bytes_read > 0


def test_what_only_the_bytes_tell_is_evaluated_for_rows_that_the_columns_leave(stream: Stream) -> None:
    expected, _ = followed(stream, requests("price < 4")[1])
    counters = assert_same(stream, "region LIKE 'AM%' AND price < 4")
    sealed = sealed_messages(stream)
    assert counters.messages_evaluated == sum(offset < sealed for offset, _, _ in expected) + 180 - sealed


def test_row_groups_are_ruled_out_by_their_statistics_when_a_read_is_planned(stream: Stream) -> None:
    by_columns, full = requests("price > 100")
    within = OffsetRange(0, stream.next_offset())
    found, plain = plan(stream, by_columns, within), plan(stream, full, within)
    assert sum(len(each.rows) for each in found.ranges) < sum(len(each.rows) for each in plain.ranges) / 5
    assert found.counters.messages_decided_by_columns == sealed_messages(stream)
    assert found.counters.column_bytes_read == 0


def test_a_filter_of_other_fields_reads_no_file(stream: Stream) -> None:
    assert assert_same(stream, "other = 1 OR price = 2").column_bytes_read == 0
    assert assert_same(stream, "p.subject = 'x'").messages_decided_by_columns == 0


def test_exact_counting_of_verdicts_takes_no_columns(stream: Stream) -> None:
    _, counters = followed(stream, requests("region = 'AMER'", exact=True)[0])
    assert (counters.messages_evaluated, counters.messages_unknown) == (180, 60)


def test_where_columns_are_larger_than_messages_they_are_not_read(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_COLUMN_NS", 1000)
    assert assert_same(stream, "region = 'AMER'").column_bytes_read == 0


def test_inexact_rows_are_decided_by_their_messages(tmp_path: Path) -> None:
    made = create(tmp_path / "s", MANY[:4])
    values = [AmqpValue(AmqpType.UINT, 5), AmqpValue(AmqpType.DOUBLE, 5.0), AmqpValue(AmqpType.STRING, "5"), 5, 4]
    with Writer.open(made, now_ms=0) as writer:
        for number in range(120):
            value = values[number % len(values)]
            message = Message(b"", application_properties={"price": value, "region": "AMER"}).encode()
            writer.append([(message if number % 11 else b"\xff", None)], now_ms=0)
    made = Stream.open(made.path)
    declare_columns(made, "region string, price bigint")
    list(COLUMN_FILES.build(made, now_ms=2))
    assert any(file.inexact_rows(0) for file in column_files(made))
    counters = assert_same(made, "price = 5 AND region = 'AMER'")
    assert counters.messages_evaluated == made.next_offset() - sealed_messages(made)
    assert counters.messages_matched > 50


def test_offsets_that_bookkeeping_takes_leave_gaps_between_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = create(tmp_path / "s", MANY[:4])
    with Writer.open(made, now_ms=0) as writer:
        for number in range(30):
            bodies = [Message(b"", application_properties={"price": each}).encode() for each in (number % 7, 9)]
            writer.append([(body, None) for body in bodies], now_ms=0)
            writer.store_offset("reader", number)
            writer.flush_offsets(now_ms=0)
    made = Stream.open(made.path)
    declare_columns(made, "price bigint")
    list(COLUMN_FILES.build(made, now_ms=2))
    assert all(file.rows < file.next_offset - file.first_offset for file in column_files(made)[1:])
    for dense_share in (ONE_BY_ONE, WHOLE):
        monkeypatch.setattr(rows, "_DENSE_SHARE", dense_share)
        source._CACHE.clear()
        assert assert_same(made, "price < 4").messages_decided_by_columns == sealed_messages(made)


def test_a_column_whose_bytes_changed_is_passed_over_with_one_warning(stream: Stream) -> None:
    file = column_files(stream)[0]
    expected, _ = followed(stream, requests("price > 3")[1])
    change(file, "price")
    with pytest.warns(ColumnFileWarning, match="'price' does not have its checksum") as found:
        got, counters = followed(stream, requests("price > 3")[0])
    assert got == expected
    assert len(found) == 1
    assert 0 < counters.messages_decided_by_columns < sealed_messages(stream)


def change(file: ColumnFile, name: str) -> None:
    """Flip a bit in a column of a file, for a process that has not read it yet."""
    start, size = files._place_of(file.metadata, 0, file.schema.names.index(name))
    content = bytearray(file.path.read_bytes())
    content[start + size // 2] ^= 4
    file.path.write_bytes(bytes(content))
    file._checked.clear()
    source._CACHE.clear()


@pytest.mark.parametrize("name", ["entry", "region"])
def test_every_column_that_decides_is_checked(stream: Stream, name: str) -> None:
    expected, _ = followed(stream, requests("region = 'AMER'")[1])
    change(column_files(stream)[1], name)
    with pytest.warns(ColumnFileWarning, match=f"'{name}' does not have its checksum"):
        assert followed(stream, requests("region = 'AMER'")[0])[0] == expected


def test_bits_that_flip_anywhere_change_no_result(stream: Stream) -> None:
    expected, _ = followed(stream, requests("region = 'AMER' AND price >= 2")[1])
    random.seed(5)
    paths = [file.path for file in column_files(stream)]
    for _ in range(30):
        path = random.choice(paths)
        content = path.read_bytes()
        place = random.randrange(len(content))
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << random.randrange(8)]) + content[place + 1 :])
        source._CACHE.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ColumnFileWarning)
            assert followed(stream, requests("region = 'AMER' AND price >= 2")[0])[0] == expected
        path.write_bytes(content)


def test_a_message_that_changed_on_disk_is_found_by_its_own_checksum(stream: Stream) -> None:
    segment = stream.segments()[1]
    with segment.open() as reader:
        place = int(reader.chunks().position[0]) + CHUNK_HEADER_BYTES + reader.header(0).bloom_length + 4 + 10
    content = bytearray(segment.segment_path.read_bytes())
    content[place] ^= 1
    segment.segment_path.write_bytes(bytes(content))
    by_columns, full = requests("region = 'AMER'", on_corrupt=OnCorrupt.SKIP)
    expected, plain = followed(stream, full)
    with pytest.warns(ColumnFileWarning, match="an entry is not the one that was indexed"):
        got, counters = followed(stream, by_columns)
    assert got == expected
    assert plain.chunks_corrupt == counters.chunks_corrupt == 1


def test_a_file_that_goes_while_a_reader_is_on_its_way_costs_speed_only(stream: Stream) -> None:
    for file in column_files(stream)[:2]:
        file.path.unlink()
    counters = assert_same(stream, "region = 'AMER'")
    assert counters.messages_decided_by_columns == sealed_messages(stream)


def test_what_was_decided_is_not_decided_again(stream: Stream) -> None:
    first = assert_same(stream, "price > 3")
    assert first.column_bytes_read > 0
    by_columns, _ = requests("price > 3")
    counters = followed(stream, by_columns)[1]
    assert counters.column_bytes_read == 0
    assert counters.messages_decided_by_columns == sealed_messages(stream)


def test_what_each_source_would_spare_is_told(stream: Stream) -> None:
    register(stream)
    build_index(stream, now_ms=4)
    within = OffsetRange(0, stream.next_offset())
    expected, _ = followed(stream, requests("price > 3")[1])
    bloom, index, columns = savings(stream, requests("price > 3")[0], within)
    assert (bloom.source, bloom.messages, bloom.messages_decided) == ("Bloom filters", 180, 0)
    assert (index.source, index.messages_decided) == ("match index", 180)
    assert (columns.source, columns.messages_decided) == ("column files", sealed_messages(stream))
    hit = {offset // 3 for offset, _, _ in expected}
    assert index.chunks_skipped == 60 - len(hit)
    assert columns.chunks_skipped == sum(number not in hit for number in range(sealed_messages(stream) // 3))
    assert 0 < columns.bytes_skipped < index.bytes_skipped
