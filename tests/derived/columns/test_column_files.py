"""Column files have the messages' rows, are made exactly once, and are never believed when something is wrong."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from examples import examples
from headgate.derived import BuildReport
from headgate.derived.columns import (
    COLUMN_FILES,
    ColumnFile,
    ColumnFileWarning,
    build,
    column_files,
    column_rows,
    declaration_of,
    declare_columns,
    drop_columns,
    files,
)
from headgate.derived.kind import COLUMN_SUFFIX
from headgate.errors import ConfigError, CorruptSidecarError
from headgate.log import (
    ENTRY_DTYPE,
    BuildStep,
    Stream,
    derived_bytes,
    derived_folder,
    pairs,
    sweep_derived,
)
from headgate.log.derived import GRACE_MS
from headgate.message import EncodedMessages, parse_field
from headgate.message.arrow import DeclaredColumn, declared_columns, fields_of
from headgate.scan import OffsetRange, ScanRequest
from match_indexes import WRITES, Write, append, create, followed
from strategies import compound, section, string, symbol

TEXT = "region string, price bigint"
MANY = [Write((("AMER", number % 7), ("EMEA", number % 5), (None, 2)), packed=number % 9 == 0) for number in range(60)]


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """A stream of several segments with declared columns; no file is built."""
    made = create(tmp_path / "s", MANY)
    declare_columns(made, TEXT)
    assert len(made.segments()) > 3
    return made


def built(stream: Stream) -> list[ColumnFile]:
    list(COLUMN_FILES.build(stream, now_ms=2))
    return column_files(stream)


def assert_holds(stream: Stream, found: list[ColumnFile], text: str = TEXT) -> None:
    """All rows of sealed segments, in order, as `fields_of` gives them."""
    messages, _ = followed(stream, ScanRequest())
    stop = max((file.next_offset for file in found), default=0)
    expected = [each for each in messages if each[0] < stop]
    batch = EncodedMessages.of([data for _, _, data in expected])
    columns = [each for each in declared_columns(text) if isinstance(each, DeclaredColumn)]
    table = pa.concat_tables([file.read() for file in found])
    assert table["offset"].to_pylist() == [offset for offset, _, _ in expected]
    for name, values in fields_of(batch, columns).items():
        assert table[name].combine_chunks().equals(pa.chunked_array([values]).combine_chunks())
    entries = table["entry"].to_numpy().astype(">u8").view(ENTRY_DTYPE)
    by_offset = {segment.first_chunk_id: segment.segment_path.read_bytes() for segment in stream.segments()}
    starts = sorted(by_offset)
    for (offset, _, data), entry in zip(expected, entries, strict=True):
        if entry["position"]:
            segment = by_offset[starts[np.searchsorted(starts, offset, side="right") - 1]]
            place = int(entry["position"])
            assert segment[place + 4 : place + 4 + len(data)] == data
            assert zlib.crc32(segment[place : place + 4 + len(data)]) == entry["crc"]


@examples(0.5)
@given(writes=WRITES)
def test_files_hold_all_messages_of_sealed_segments(writes: list[Write]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stream = create(Path(folder) / "s", writes, segment_bytes=400)
        declare_columns(stream, TEXT)
        found = built(stream)
        assert [file.segment for file in found] == [each.first_chunk_id for each in stream.segments() if each.is_sealed]
        if found:
            assert_holds(stream, found)


def test_row_groups_end_at_chunk_borders(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "GROUP_ROWS", 7)
    monkeypatch.setattr(build, "_WINDOW_BYTES", 100)
    found = built(stream)
    assert_holds(stream, found)
    for file in found:
        groups = file.row_groups
        assert len(groups) > 2
        assert [groups[0].first_offset, *(group.stop_offset for group in groups)] == [
            *(group.first_offset for group in groups),
            file.next_offset,
        ]
        for number, group in enumerate(groups):
            table = file.read(["chunk", "offset"], [number])
            assert table.num_rows == group.rows == pq.ParquetFile(file.path).metadata.row_group(number).num_rows
            assert min(table["chunk"].to_pylist()) == group.first_offset
            assert max(table["offset"].to_pylist()) < group.stop_offset
    assert len(column_files(stream, OffsetRange(0, 1))) == 1


def test_inexact_rows_keep_their_message(stream: Stream) -> None:
    message = section(0x74, compound(0xC1, [string(b"region"), symbol(b"AMER")]))
    declaration = declaration_of(stream)
    assert declaration is not None
    ones = np.arange(3)
    rows = column_rows(
        EncodedMessages.of([b"no message", message, b""]),
        offsets=ones,
        timestamps_ms=ones,
        chunk_ids=ones,
        entries=np.zeros(3, dtype=ENTRY_DTYPE),
        declaration=declaration,
    )
    assert rows["inexact"].to_pylist() == [3, 1, None]
    assert rows["message"].to_pylist() == [b"no message", message, None]
    assert rows["region"].to_pylist() == [None, "AMER", None]


def test_what_is_there_is_not_built_again(stream: Stream) -> None:
    declaration = declaration_of(stream)
    assert declaration is not None
    assert len(COLUMN_FILES.missing(stream, declaration)) == len(stream.segments()) - 1
    assert all(report.built for report in COLUMN_FILES.build(stream, now_ms=2))
    assert not any(report.built for report in COLUMN_FILES.build(stream, now_ms=2, distrust=True))
    assert COLUMN_FILES.missing(stream, declaration) == []
    append(stream, MANY)
    new = COLUMN_FILES.missing(stream, declaration)
    assert [report.segment for report in COLUMN_FILES.build(stream, now_ms=2) if report.built] == [
        segment.first_chunk_id for segment in new
    ]
    assert_holds(stream, column_files(stream))


def run_build(stream: Stream, crash_at: str = "", *, count: int = 1) -> list[subprocess.Popen[bytes]]:
    program = (
        "import sys; from headgate.log import Stream; from headgate.derived.columns import COLUMN_FILES\n"
        "print(sum(each.built for each in COLUMN_FILES.build(Stream.open(sys.argv[1]), now_ms=2)))"
    )
    environment = dict(os.environ, HEADGATE_CRASH_AT=crash_at, HEADGATE_KERNELS="off")
    command = [sys.executable, "-c", program, str(stream.path)]
    return [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) for _ in range(count)]


@pytest.mark.parametrize("step", BuildStep)
def test_a_builder_that_is_killed_leaves_no_wrong_file(stream: Stream, step: BuildStep) -> None:
    (child,) = run_build(stream, f"{step}:2")
    child.communicate()
    assert child.returncode == -9
    before = column_files(stream)
    assert len(before) == (2 if step is BuildStep.RENAMED else 1)
    assert_holds(stream, before)
    found = built(stream)
    assert_holds(stream, found)
    assert len(found) == len(stream.segments()) - 1
    assert not [name for name in os.listdir(derived_folder(stream)) if name.startswith(".")]


def test_on_a_full_disk_nothing_is_left_and_the_stream_is_unharmed(tmp_path: Path) -> None:
    stream = create(tmp_path / "s", [Write((("AMER", number % 7),) * 5, False) for number in range(300)])
    declare_columns(stream, TEXT)
    program = (
        "import resource, signal, sys; from headgate.errors import StorageFullError; from headgate.log import Stream\n"
        "from headgate.derived.columns import COLUMN_FILES\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))\n"
        "try: list(COLUMN_FILES.build(Stream.open(sys.argv[1]), now_ms=2))\n"
        "except StorageFullError: sys.exit(7)"
    )
    command = [sys.executable, "-c", program, str(stream.path)]
    assert subprocess.run(command, env=dict(os.environ, HEADGATE_KERNELS="off"), check=False).returncode == 7
    assert not [name for name in os.listdir(derived_folder(stream)) if "parquet" in name]
    assert_holds(stream, built(stream))


def test_two_builders_at_once_make_each_file_once(stream: Stream) -> None:
    children = run_build(stream, count=2)
    new = [int(child.communicate()[0]) for child in children]
    assert sum(new) == len(stream.segments()) - 1
    assert len(list(derived_folder(stream).glob("*.parquet"))) == len(stream.segments()) - 1
    assert_holds(stream, column_files(stream))


def test_columns_come_and_go_and_ids_are_never_used_again(stream: Stream) -> None:
    built(stream)
    declared = declare_columns(stream, "region string, body, p.subject, tier string as class", keep="forever")
    assert [(each.id, each.name) for each in declared.fields] == [
        (1, "region"),
        (2, "price"),
        (3, "subject"),
        (4, "class"),
    ]
    assert declared.body
    old = column_files(stream)
    assert {name for _, name in ((0, each.name) for file in old for _, each in file.columns)} == {"region", "price"}
    left = drop_columns(stream, ["PRICE"])
    assert left is not None
    again = declare_columns(stream, "price double")
    assert [(each.id, each.name) for each in again.fields] == [
        (1, "region"),
        (3, "subject"),
        (4, "class"),
        (5, "price"),
    ]
    found = built(stream)
    assert {file.path.parent.name for file in found} == {"kept"}
    assert [field_id for field_id, _ in found[0].columns] == [1, 3, 4, 5]
    schema = pq.ParquetFile(found[0].path).schema_arrow
    assert schema.field("price").metadata[b"PARQUET:field_id"] == b"5"
    assert "body" in schema.names
    assert drop_columns(stream) is None
    assert declaration_of(stream) is None
    assert [each.id for each in declare_columns(stream, "x string").fields] == [6]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("region", "'region' has no type"),
        ("offset", "'offset' is in every column file"),
        ("a string, Offset string", "'Offset' is a column that every file may have"),
        ("price double", "'price' is declared as price bigint; drop it first"),
        ("a text", "'a' is declared 'text'; expected one of"),
        (", ".join(f"c{number} string" for number in range(62)), "'c61' would be column 64"),
    ],
)
def test_what_cannot_be_declared_names_the_column(stream: Stream, text: str, words: str) -> None:
    before = declaration_of(stream)
    with pytest.raises(ConfigError, match=words):
        declare_columns(stream, text)
    with pytest.raises(ConfigError, match="'regio' is not declared; did you mean 'region'"):
        drop_columns(stream, ["regio"])
    assert declaration_of(stream) == before


def test_files_of_other_streams_and_earlier_states_are_left_out(stream: Stream, tmp_path: Path) -> None:
    other = create(tmp_path / "other", MANY)
    declare_columns(other, TEXT)
    for file in built(other):
        derived_folder(stream).mkdir(exist_ok=True)
        shutil.copy(file.path, derived_folder(stream) / file.path.name)
    with pytest.warns(ColumnFileWarning, match="a column file of another stream; read without it; and 3 more"):
        assert column_files(stream) == []
    assert all(report.built for report in COLUMN_FILES.build(stream, now_ms=2))
    for file in column_files(other):
        (derived_folder(stream) / file.path.name).unlink()
    (derived_folder(stream) / "notes.txt").write_text("not ours")
    first = stream.segments()[0]
    pairs.seal_path(first.segment_path).unlink()
    raw = bytearray(first.segment_path.read_bytes())
    # The time of the first chunk, 16 bytes into its header behind the head of the file.
    raw[8 + 16] ^= 1
    first.segment_path.write_bytes(raw)
    with pytest.warns(ColumnFileWarning):
        assert [file.segment for file in column_files(stream)] == [
            each.first_chunk_id for each in stream.segments()[1:] if each.is_sealed
        ]


def test_files_go_after_their_segment_and_a_grace_time_unless_they_are_kept(stream: Stream) -> None:
    found = built(stream)
    first = found[0]
    pairs.delete_pair(stream.path, stream.segments()[0].first_chunk_id)
    assert [file.segment for file in column_files(stream)] == [file.segment for file in found[1:]]
    for now_ms in (10, 10 + GRACE_MS - 1):
        assert sweep_derived(stream, now_ms=now_ms) == 0
        assert first.path.exists()
        assert first.read().num_rows == first.rows
    assert sweep_derived(stream, now_ms=10 + GRACE_MS) == 1
    assert not first.path.exists()
    assert not list(derived_folder(stream).glob("*.gone"))

    declare_columns(stream, TEXT, keep="forever")
    found = built(stream)
    pairs.delete_pair(stream.path, stream.segments()[0].first_chunk_id)
    for now_ms in (20, 20 + GRACE_MS):
        COLUMN_FILES.sweep(stream, now_ms=now_ms)
    assert [file.segment for file in column_files(stream)] == [file.segment for file in found]
    assert derived_bytes(stream) > sum(file.size_bytes for file in found)
    assert COLUMN_FILES.drop_files(stream) >= len(found)
    assert column_files(stream) == []


def test_a_file_that_a_newer_one_stands_for_goes_after_a_grace_time(stream: Stream) -> None:
    built(stream)
    declare_columns(stream, "p.subject")
    newer = built(stream)
    assert len(list(derived_folder(stream).glob("*.parquet"))) == 2 * len(newer)
    assert {len(file.columns) for file in newer} == {3}
    COLUMN_FILES.sweep(stream, now_ms=2 + GRACE_MS)
    assert {path.name for path in derived_folder(stream).glob("*.parquet")} == {file.path.name for file in newer}


def test_of_two_declarations_the_newer_one_counts_also_with_fewer_columns(stream: Stream) -> None:
    declare_columns(stream, "body, other_properties, p.subject", keep="forever")
    assert all(file.declaration.body for file in built(stream))
    declare_columns(stream, "region string", body=False)
    drop_columns(stream, ["subject"])
    newer = built(stream)
    assert {(len(file.columns), file.declaration.body) for file in newer} == {(2, False)}
    # A writer's sweep knows nothing of columns, and leaves the marks of files that newer ones stand for.
    sweep_derived(stream, now_ms=3)
    COLUMN_FILES.sweep(stream, now_ms=2 + GRACE_MS)
    kept = derived_folder(stream) / "kept"
    assert {path.name for path in kept.glob("*.parquet")} == {file.path.name for file in newer}
    assert not list(kept.glob("*.gone"))


def test_row_groups_end_by_their_rows_and_by_their_bytes(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [len(file.row_groups) for file in built(stream)]
    for limit, value in (("GROUP_ROWS", 4), ("GROUP_BYTES", 200)):
        COLUMN_FILES.drop_files(stream)
        with monkeypatch.context() as patched:
            patched.setattr(build, limit, value)
            found = built(stream)
        assert all(len(file.row_groups) > before for file, before in zip(found, whole, strict=True))
        assert_holds(stream, found)


def test_filter_values_and_other_properties_are_there_to_look_at(tmp_path: Path) -> None:
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0, filter_source="application_properties.region")
    append(stream, MANY[:1])
    declaration = declare_columns(stream, "a string, other_properties")
    messages, _ = followed(stream, ScanRequest())
    odd = section(0x74, compound(0xC1, [string(b"region"), string(b"\xff")]))
    found = [data for _, _, data in messages]
    for batch, first in ((found, "AMER"), ([odd, *found], "\ufffd")):
        ones = np.arange(len(batch))
        rows = column_rows(
            EncodedMessages.of(batch),
            offsets=ones,
            timestamps_ms=ones,
            chunk_ids=ones,
            entries=np.zeros(len(batch), dtype=ENTRY_DTYPE),
            declaration=declaration,
            source=parse_field("application_properties.region"),
        )
        assert rows["filter_value"].to_pylist()[0] == first
        assert rows["filter_value"].to_pylist()[-3:] == ["AMER", "EMEA", None]
        assert rows["other_properties"].to_pylist()[-1] == '{"price": 2}'


def test_many_different_values_get_a_bloom_filter(tmp_path: Path) -> None:
    writes = [Write((("AMER", number), ("EMEA", 1000 + number)), packed=False) for number in range(100)]
    stream = create(tmp_path / "s", writes, segment_bytes=10_000)
    declare_columns(stream, TEXT)
    group = built(stream)[0].metadata.row_group(0)
    has = {group.column(n).path_in_schema: group.column(n).bloom_filter_offset for n in range(group.num_columns)}
    assert has["price"] is not None
    assert has["region"] is None


def test_nothing_is_written_into_a_foreign_folder(stream: Stream, tmp_path: Path) -> None:
    folder = tmp_path / "root" / "__orders_1700000000000000000"
    shutil.copytree(stream.path, folder, ignore=shutil.ignore_patterns("*.json", "*.seal", "*.lock", "derived"))
    foreign = Stream.open(folder)
    before = sorted(os.listdir(folder))
    declare_columns(foreign, TEXT)
    found = built(foreign)
    assert_holds(foreign, found)
    assert {file.path.parent for file in found} == {tmp_path / "root" / ".headgate" / "derived" / folder.name}
    assert sorted(os.listdir(folder)) == before


def test_a_damaged_segment_gets_no_file(stream: Stream) -> None:
    segment = stream.segments()[0]
    raw = bytearray(segment.segment_path.read_bytes())
    raw[-1] ^= 1
    segment.segment_path.write_bytes(raw)
    declaration = declaration_of(stream)
    assert declaration is not None
    assert "checksum" in COLUMN_FILES.build_segment(stream, segment, declaration).trouble
    reports = list(COLUMN_FILES.build(stream, now_ms=1))
    assert [(bool(report.trouble), report.built) for report in reports] == [(True, False)] + [(False, True)] * (
        len(stream.segments()) - 2
    )
    assert [file.segment for file in column_files(stream)] == [report.segment for report in reports[1:]]


@pytest.mark.parametrize("keep", ["segment", "forever"])
def test_a_segment_that_is_another_one_when_it_was_read_gets_no_file_in_this_pass(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: Literal["segment", "forever"]
) -> None:
    other = create(tmp_path / "other", [Write((("APJ", 9),), packed=False)] * 60, identity=stream.identity)
    declaration = declaration_of(stream)
    assert declaration is not None
    rows_of = build._rows_of

    def restoring(*arguments: Any) -> Iterator[Any]:
        yield from rows_of(*arguments)
        for path in other.path.glob(f"{0:020d}.*"):
            shutil.copy(path, tmp_path / "new")
            os.replace(tmp_path / "new", stream.path / path.name)

    monkeypatch.setattr(build, "_rows_of", restoring)
    report = COLUMN_FILES.build_segment(stream, stream.segments()[0], msgspec.structs.replace(declaration, keep=keep))
    assert report == BuildReport(0)
    assert not [path for path in derived_folder(stream).rglob("*") if COLUMN_SUFFIX in path.name]


def flip(raw: bytes, chance: random.Random) -> bytes:
    """The bytes with one bit flipped, anywhere; sometimes cut."""
    damaged = bytearray(raw)
    place = chance.randrange(len(damaged))
    damaged[place] ^= 1 << chance.randrange(8)
    return bytes(damaged[:place]) if chance.randrange(20) == 0 else bytes(damaged)


@pytest.mark.parametrize("count", [60, pytest.param(3000, marks=pytest.mark.long)])
def test_flipped_bits_are_detected(stream: Stream, count: int, seed: int) -> None:
    chance = random.Random(seed)
    declare_columns(stream, "p.subject, p.message_id, x double")
    found = built(stream)
    original = found[0].path.read_bytes()
    for _ in range(count):
        damaged = flip(original, chance)
        found[0].path.write_bytes(damaged)
        files._opened.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ColumnFileWarning)
            believed = [file for file in column_files(stream) if file.segment == found[0].segment]
        if believed:
            with pytest.raises(CorruptSidecarError):
                believed[0].check()
    found[0].path.write_bytes(flip(original, chance))
    # What is in place of a file within one tick of the clock looks the same; only a test writes into one.
    files._opened.clear()
    assert sum(report.built for report in COLUMN_FILES.build(stream, now_ms=3, distrust=True)) == 1
    assert_holds(stream, column_files(stream), "region string, price bigint, p.subject, p.message_id, x double")
