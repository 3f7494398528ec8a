"""Lookup files lose no match, are made exactly once, and are never believed when something is wrong."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from headgate.derived import BuildReport, sources_of
from headgate.derived.kind import LOOKUP_SUFFIX
from headgate.derived.lookup import (
    LOOKUP_FILES,
    LookupWarning,
    build,
    declare_lookup,
    drop_lookup,
    lookup_fields,
    lookup_file_of,
    source,
    table,
    tail,
)
from headgate.derived.lookup.fingerprints import fingerprint
from headgate.derived.lookup.table import blocks_of, make_table
from headgate.errors import ConfigError, LogError
from headgate.evaluate import Filter
from headgate.log import (
    GRACE_MS,
    BuildStep,
    SegmentReader,
    Stream,
    StreamArguments,
    Writer,
    derived_bytes,
    derived_folder,
    pairs,
    unflushed,
)
from headgate.log.format import FILE_HEAD_BYTES, INDEX_RECORD_BYTES
from headgate.message import Message
from headgate.scan import OffsetRange, ScanCounters, ScanRequest
from match_indexes import WRITES, Write, append, create, followed, planned

REGIONS = {"AMER": "EMEA", "EMEA": "AMER"}
REGION, PRICE = "application_properties.region", "application_properties.price"
MANY = [Write((("AMER", number % 7), ("EMEA", number % 5), (None, 2)), packed=number % 9 == 0) for number in range(60)]
TEXTS = st.sampled_from(
    (
        "region = 'AMER'",
        "region = 'NONE'",
        "price = 3 AND region IN ('EMEA', 'APJ')",
        "price = 3 OR region = 'EMEA'",
        "NOT (price <> 5) AND price IN (5, 6)",
        "region = 'AMER' AND FALSE",
        "price > 3",
    )
)


@pytest.fixture(autouse=True)
def _small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "BLOCK_MESSAGES", 4)
        yield


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """A stream of several segments with lookup fields; no file is built."""
    made = create(tmp_path / "s", MANY)
    declare_lookup(made, [REGION, PRICE])
    assert len(made.segments()) > 3
    return made


def built(stream: Stream) -> int:
    return sum(report.built for report in LOOKUP_FILES.build(stream, now_ms=2))


def files_of(stream: Stream) -> list[Path]:
    return sorted(derived_folder(stream).glob(f"*{LOOKUP_SUFFIX}"))


def sealed(stream: Stream) -> int:
    return sum(segment.is_sealed for segment in stream.segments())


def assert_same(stream: Stream, text: str, start: int = 0, language: str = "rabbitmq") -> ScanCounters:
    """With lookup and without, following and planned, the same messages; what was counted with it."""
    expression = Filter.parse(text, language)
    expected, plain = followed(stream, ScanRequest(filter=expression, sources=sources_of(lookup=False)), start)
    found, counters = followed(stream, ScanRequest(filter=expression, sources=sources_of()), start)
    assert found == expected
    within = OffsetRange(start, stream.next_offset())
    offsets, counted = planned(stream, ScanRequest(filter=expression, sources=sources_of()), within)
    assert offsets == [row[0] for row in expected]
    for each in (counters, counted):
        assert each.messages_evaluated + each.messages_decided_by_lookup == plain.messages_evaluated
        assert each.bytes_read + each.bytes_skipped == plain.bytes_read
    return counters


@examples(0.5)
@given(writes=WRITES, text=TEXTS, fields=st.sampled_from(((REGION,), (PRICE,), (REGION, PRICE))), data=st.data())
def test_a_read_by_lookup_gives_what_a_full_read_gives(
    writes: list[Write], text: str, fields: tuple[str, ...], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder, unflushed(Path(folder)):
        stream = create(Path(folder) / "s", writes, segment_bytes=400)
        declare_lookup(stream, fields)
        built(stream)
        append(stream, writes[:2])
        assert_same(stream, text, data.draw(st.integers(0, stream.next_offset() - 1)))


def test_only_blocks_that_may_match_are_read(stream: Stream) -> None:
    assert built(stream) == 2 * sealed(stream)
    plain = assert_same(stream, "price > 3")
    assert plain.messages_decided_by_lookup == 0
    rare = assert_same(stream, "price = 6 AND region = 'AMER'")
    assert 0 < rare.messages_matched < rare.messages_evaluated < plain.messages_evaluated // 2
    open_messages = stream.next_offset() - stream.segments()[-1].first_chunk_id
    assert assert_same(stream, "region = 'NONE'").messages_evaluated <= open_messages
    assert assert_same(stream, "region IN ('NONE', 'AMER') AND price = 77").messages_evaluated <= open_messages


def test_a_value_in_json_bodies_is_found_and_only_blocks_that_may_have_it_are_read(tmp_path: Path) -> None:
    stream = create(tmp_path / "s", [])
    bodies = [f'{{"order":{{"customer":"c{number % 50}","n":{number}.0}}}}' for number in range(400)]
    bodies[7], bodies[8], bodies[9] = r'{"order":{"customer":"\u00637"}}', '{"order":', '{"order":{"customer":null}}'
    with Writer.open(stream, now_ms=0) as writer:
        for start in range(0, len(bodies), 4):
            encoded = [Message(body.encode()).encode() for body in bodies[start : start + 4]]
            writer.append([(each, None) for each in encoded], now_ms=0)
    declare_lookup(stream, ['body.order["customer"]', "body.order.n"])
    assert lookup_fields(stream) == ("body.order.customer", "body.order.n")
    assert built(stream) == 2 * sealed(stream) > 4
    newest = stream.next_offset() - stream.segments()[-1].first_chunk_id
    for text, most in (
        ("body.order.customer = 'c7'", 4 * 8),
        ("body.order.customer IN ('c7', 'c9') AND body.order.n = 207", 4),
        ("body.order.n = 12 OR body.order.customer = 'none'", 4),
    ):
        counters = assert_same(stream, text, language="amqp")
        assert 0 < counters.messages_matched < counters.messages_evaluated <= most + newest
    assert assert_same(stream, "body.order.customer LIKE 'c7%'", language="amqp").messages_decided_by_lookup == 0


def test_a_path_is_refused_where_bodies_have_a_schema(tmp_path: Path) -> None:
    arguments = StreamArguments(body_schema="{}")
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0, arguments=arguments)
    with pytest.raises(ConfigError, match=r"'body\.x': a path leads into JSON bodies, and those of 's' have"):
        declare_lookup(stream, [REGION, "body.x"])
    assert lookup_fields(stream) == ()


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 9)), max_size=60), st.integers(1, 64))
def test_a_table_names_every_block_of_a_value(pairs_of: list[tuple[int, int]], spread: int) -> None:
    values = np.array([value * spread * 65_537 % 2**32 if value > 1 else 1 for value, _ in pairs_of], dtype=np.uint32)
    blocks = np.array([block for _, block in pairs_of], dtype=np.int64)
    made = make_table(values, blocks, count=10, block_messages=4)
    asked = np.unique(values[values > 1])
    for some in (*(asked[[row]] for row in range(len(asked))), asked):
        found = blocks_of(made, some)
        assert found[blocks[np.isin(values, some) | (values == 1)]].all()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(table, "_KEYS_ONE_BY_ONE", -1)
            assert np.array_equal(blocks_of(made, some), found)


def test_few_blocks_are_named_by_chance_and_a_message_costs_little_more_than_two_bytes() -> None:
    generator = np.random.default_rng(1)
    values = generator.integers(2, 2**32, 200_000, dtype=np.uint32)
    blocks = np.arange(len(values)) // 4096
    made = make_table(values, blocks, count=int(blocks[-1]) + 1, block_messages=4096)
    assert (made.all_starts.nbytes + made.all_entries.nbytes) / len(values) < 2.3
    others = generator.integers(2, 2**32, 500, dtype=np.uint32)
    named = np.mean([blocks_of(made, others[[row]]).mean() for row in range(len(others))])
    assert named < 0.001


@pytest.mark.parametrize("fields", [(REGION, PRICE), (PRICE, "body.x")])
def test_a_process_that_asks_again_keeps_the_open_segment_in_memory(
    tmp_path: Path, fields: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "BLOCK_MESSAGES", 4)
    monkeypatch.setattr(tail, "BLOCK_MESSAGES", 4)
    stream = create(tmp_path / "s", MANY, segment_bytes=1 << 20)
    declare_lookup(stream, fields)
    text = "price = 6 AND region = 'AMER'"
    first = assert_same(stream, text)
    assert first.messages_decided_by_lookup == 0
    for _ in range(4):
        counters = assert_same(stream, text)
    assert counters.messages_decided_by_lookup > 40
    append(stream, MANY)
    assert assert_same(stream, text).messages_decided_by_lookup > counters.messages_decided_by_lookup
    # Another stream of that name.
    shutil.rmtree(stream.path)
    other = create(tmp_path / "s", [Write((("AMER", 6),) * 3, packed=False)] * 100, segment_bytes=1 << 20)
    declare_lookup(other, fields)
    for _ in range(4):
        assert assert_same(other, text).messages_matched == 300


def test_a_tail_whose_last_chunk_is_another_one_now_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "BLOCK_MESSAGES", 4)
    monkeypatch.setattr(tail, "_FIRST_LOOKS", 0)
    newest = create(tmp_path / "s", MANY, segment_bytes=1 << 20).segments()[-1]
    made = tail.Tail(newest.first_chunk_id)
    wanted = np.array([fingerprint(6.0)], dtype=np.uint32)
    with newest.open() as reader:
        count, mark = made.grow(reader, [PRICE])
        assert mark is not None
        assert count == 2 * tail.RUN_BLOCKS
        before = made.blocks(PRICE, wanted, count)
        assert before is not None
        assert 0 < before.sum() < count
        made._mark, made._runs = tail.Mark(mark.chunk_id, b"another header"), made._runs[:1] * 2
        assert made.grow(reader, [PRICE]) == (count, mark)
        assert np.array_equal(made.blocks(PRICE, wanted, count), before)
        assert made.blocks(PRICE, wanted, count + tail.RUN_BLOCKS) is None
        assert made.blocks(REGION, wanted, count) is None


@pytest.fixture
def tails_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look at an open segment makes its tables, of blocks as small as those of files."""
    monkeypatch.setattr(source, "BLOCK_MESSAGES", 4)
    monkeypatch.setattr(tail, "BLOCK_MESSAGES", 4)
    monkeypatch.setattr(tail, "_FIRST_LOOKS", 0)


def cut(reader: SegmentReader, row: int) -> None:
    """Cut a segment before a chunk, as a recovery or another leader does."""
    os.truncate(reader.segment.segment_path, int(reader.chunks().position[row]))
    os.truncate(reader.segment.index_path, FILE_HEAD_BYTES + row * INDEX_RECORD_BYTES)


@pytest.mark.usefixtures("tails_at_once")
@pytest.mark.parametrize("asks_between", [False, True])
def test_what_was_cut_and_grew_back_as_long_is_not_ruled_out(tmp_path: Path, asks_between: bool) -> None:
    one = Write((("EMEA", 1),), packed=False)
    stream = create(tmp_path / "s", [one] * 130, segment_bytes=1 << 20)
    declare_lookup(stream, [REGION])
    asked = source.LookupSource(Filter.parse("region = 'AMER'", "rabbitmq"))

    def ruled_out(reader: SegmentReader) -> int:
        rows = np.arange(len(reader.chunks(refresh=True)))
        found = list(asked.answers(reader, rows, OffsetRange(0, 1 << 40)))
        return sum(int((each.trusted & (each.counts == 0)).sum()) for each in found)

    with stream.segments()[-1].open() as reader:
        assert ruled_out(reader) == 128
        cut(reader, 100)
        if asks_between:
            assert ruled_out(reader) == 64
        append(stream, [Write((("AMER", 1),), packed=False)] * 60)
        assert ruled_out(reader) == 100


@pytest.mark.usefixtures("tails_at_once")
def test_a_segment_that_is_cut_and_grows_while_its_tail_is_made_gets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = create(tmp_path / "s", [Write((("EMEA", 1),), packed=False)] * 130, segment_bytes=1 << 20)
    newest = stream.segments()[-1]
    made = tail.Tail(newest.first_chunk_id)
    reads = 0

    def values_of(*arguments: Any) -> Iterator[Any]:
        nonlocal reads
        reads += 1
        if reads == 2:
            cut(reader, 50)
            append(stream, [Write((("AMER", 1),), packed=False)] * 80)
        return build.values_of(*arguments)

    monkeypatch.setattr(tail, "values_of", values_of)
    wanted = np.array([fingerprint(b"AMER")], dtype=np.uint32)
    with newest.open() as reader:
        assert made.grow(reader, [REGION]) == (0, None)
        assert made.grow(reader, [REGION])[0] == 2 * tail.RUN_BLOCKS
        blocks = made.blocks(REGION, wanted, 2 * tail.RUN_BLOCKS)
        assert blocks is not None
        assert blocks.sum() == 32 - 50 // 4


def test_a_segment_that_is_another_one_when_it_was_read_gets_no_file_in_this_pass(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swapped = [
        Write(tuple((REGIONS.get(region), price) for region, price in each.messages), each.packed) for each in MANY
    ]
    restored = create(tmp_path / "restored", swapped, identity=stream.identity)
    tables_of = build._tables_of

    def restoring(*arguments: Any) -> Any:
        found = tables_of(*arguments)
        for path in restored.path.glob("0*"):
            shutil.copy(path, tmp_path / "new")
            os.replace(tmp_path / "new", stream.path / path.name)
        return found

    monkeypatch.setattr(build, "_tables_of", restoring)
    assert next(LOOKUP_FILES.build(stream, now_ms=2)) == BuildReport(0)
    assert files_of(stream) == []
    monkeypatch.undo()
    assert built(stream) > 0
    assert_same(stream, "region = 'EMEA' AND price = 2")


def run_build(stream: Stream, crash_at: str = "", *, count: int = 1) -> list[subprocess.Popen[bytes]]:
    program = (
        "import sys; from headgate.log import Stream; from headgate.derived.lookup import LOOKUP_FILES, table\n"
        "table.BLOCK_MESSAGES = 4\n"
        "print(sum(each.built for each in LOOKUP_FILES.build(Stream.open(sys.argv[1]), now_ms=2)))"
    )
    environment = dict(os.environ, HEADGATE_CRASH_AT=crash_at, HEADGATE_KERNELS="off")
    command = [sys.executable, "-c", program, str(stream.path)]
    return [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) for _ in range(count)]


@pytest.mark.parametrize("step", [BuildStep.WRITTEN, BuildStep.CHECKED, BuildStep.RENAMED])
def test_a_builder_that_is_killed_leaves_no_wrong_file(stream: Stream, step: BuildStep) -> None:
    (child,) = run_build(stream, f"{step}:2")
    child.communicate()
    assert child.returncode == -9
    there = len(files_of(stream))
    assert there == (2 if step is BuildStep.RENAMED else 1)
    assert_same(stream, "price = 3 AND region = 'EMEA'")
    assert built(stream) == 2 * sealed(stream) - there
    assert len(files_of(stream)) == 2 * sealed(stream)
    assert not [name for name in os.listdir(derived_folder(stream)) if name.startswith(".")]


def test_two_builders_at_once_make_each_file_once(stream: Stream) -> None:
    children = run_build(stream, count=2)
    assert sum(int(child.communicate()[0]) for child in children) == 2 * sealed(stream)
    assert len(files_of(stream)) == 2 * sealed(stream)
    assert built(stream) == 0


def test_with_kernels_and_without_the_files_are_the_same(stream: Stream) -> None:
    (child,) = run_build(stream)
    child.communicate()
    before = {path: path.read_bytes() for path in files_of(stream)}
    LOOKUP_FILES.drop_files(stream)
    built(stream)
    assert {path: path.read_bytes() for path in files_of(stream)} == before


def damages(path: Path, count: int) -> Iterator[str]:
    """A file damaged in one way after the other: flipped bits, cut, longer; then as it was."""
    raw = path.read_bytes()
    generator = random.Random(path.name)
    for _ in range(count):
        flipped = bytearray(raw)
        bit = generator.randrange(8 * len(raw))
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        yield f"bit {bit}"
    for size in (0, 10, 100, len(raw) - 1):
        path.write_bytes(raw[:size])
        yield f"{size} bytes"
    path.write_bytes(raw)


def assert_harmless(path: Path, segment_read: Stream, count: int) -> int:
    """No damage changes what is read; gives how many were told."""
    expression = Filter.parse("price = 3 AND region IN ('EMEA', 'X')", "rabbitmq")
    request = ScanRequest(filter=expression, sources=sources_of())
    within = OffsetRange(0, segment_read.next_offset())
    expected = planned(segment_read, ScanRequest(filter=expression), within)[0]
    told = 0
    for damage in damages(path, count):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert planned(segment_read, request, within)[0] == expected, damage
        told += any(each.category is LookupWarning for each in caught)
    return told


def test_flipped_bits_and_torn_files_are_told_or_harmless(stream: Stream) -> None:
    built(stream)
    told = sum(assert_harmless(path, stream, 6) for path in files_of(stream)[:4])
    assert told > 25
    victim = files_of(stream)[0]
    whole = victim.read_bytes()
    victim.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert sum(report.built for report in LOOKUP_FILES.build(stream, now_ms=2, distrust=True)) == 1
    assert victim.read_bytes() == whole


@pytest.mark.long
def test_three_thousand_flipped_bits_are_told_or_harmless(stream: Stream) -> None:
    built(stream)
    paths = files_of(stream)
    assert sum(assert_harmless(path, stream, 3000 // len(paths) + 1) for path in paths) > 2500


def test_files_of_other_streams_fields_and_earlier_states_are_not_believed(stream: Stream, tmp_path: Path) -> None:
    other = create(tmp_path / "other", [Write((("APJ", 9),), packed=False)] * 60)
    declare_lookup(other, [REGION])
    built(other)
    built(stream)
    first = stream.segments()[0]
    mine = lookup_file_of(first, REGION)
    price = lookup_file_of(first, PRICE)
    assert mine is not None
    assert price is not None
    for foreign in (files_of(other)[0], price.path):
        shutil.copy(foreign, mine.path)
        with pytest.warns(LookupWarning, match="of another stream, segment or field"):
            assert_same(stream, "region = 'EMEA' AND price = 2")
        assert built(stream) == 1
    # The same stream with other messages: what a restored backup may be.
    swapped = [
        Write(tuple((REGIONS.get(region), price) for region, price in each.messages), each.packed) for each in MANY
    ]
    restored = create(tmp_path / "restored", swapped, identity=stream.identity)
    shutil.copytree(derived_folder(stream), derived_folder(restored))
    assert len(LOOKUP_FILES.missing(restored, lookup_fields(restored))) == sealed(restored)
    assert_same(restored, "region = 'AMER' AND price = 2")
    assert built(restored) == 2 * sealed(restored)
    assert assert_same(restored, "region = 'EMEA' AND price = 6").messages_decided_by_lookup > 0
    file = lookup_file_of(restored.segments()[0], REGION)
    assert file is not None
    shutil.copy(mine.path, file.path)
    with pytest.warns(LookupWarning, match="of another stream, segment or field"):
        assert_same(restored, "region = 'AMER' AND price = 2")


def test_a_damaged_segment_gets_no_file_and_keeps_no_other_from_its_file(stream: Stream) -> None:
    damaged = stream.segments()[0].segment_path
    raw = damaged.read_bytes()
    damaged.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    reports = list(LOOKUP_FILES.build(stream, now_ms=2))
    assert [bool(report.trouble) for report in reports] == [True, *([False] * (len(reports) - 1))]
    assert sum(report.built for report in reports) == 2 * (sealed(stream) - 1)
    damaged.write_bytes(raw)
    assert built(stream) == 2
    with pytest.raises(LogError, match="only sealed ones"):
        LOOKUP_FILES.build_segment(stream, stream.segments()[-1], [REGION])


def test_files_go_after_their_segment_their_field_and_a_grace_time(stream: Stream) -> None:
    built(stream)
    count = len(files_of(stream))
    before = derived_bytes(stream)
    assert before > sum(path.stat().st_size for path in files_of(stream))
    assert LOOKUP_FILES.sweep(stream, now_ms=3) == 0
    pairs.delete_pair(stream.path, 0)
    assert drop_lookup(stream, [PRICE]) == (REGION,)
    for now_ms in (10, 9 + GRACE_MS):
        assert LOOKUP_FILES.sweep(stream, now_ms=now_ms) == 0
        assert len(files_of(stream)) == count
    assert LOOKUP_FILES.sweep(stream, now_ms=10 + GRACE_MS) == count // 2 + 1
    assert len(files_of(stream)) == sealed(stream)
    assert_same(stream, "region = 'EMEA' AND price = 2", stream.segments()[0].first_chunk_id)
    assert drop_lookup(stream) == ()
    assert LOOKUP_FILES.drop_files(stream) == sealed(stream)
    assert files_of(stream) == []


def test_fields_come_and_go_and_what_is_wrong_is_named(stream: Stream) -> None:
    assert lookup_fields(stream) == (REGION, PRICE)
    assert declare_lookup(stream, ["properties.correlation-id", REGION])[2:] == ("properties.correlation_id",)
    assert drop_lookup(stream, ["properties.correlation-id"]) == (REGION, PRICE)
    with pytest.raises(ConfigError, match=r"'application_properties\.\\ud800': half of a surrogate pair"):
        declare_lookup(stream, ["application_properties.\ud800"])
    with pytest.raises(ConfigError, match=r"'body\.\"\\ud800\"': half of a surrogate pair"):
        declare_lookup(stream, ['body."\ud800"'])
    with pytest.raises(ConfigError, match="section properties has no field 'colour'"):
        declare_lookup(stream, ["properties.colour"])
    with pytest.raises(ConfigError, match=r"'properties\.subject' is not declared"):
        drop_lookup(stream, ["properties.subject"])
    with pytest.raises(ConfigError, match=r"'application_properties\.k14' would be field 17"):
        declare_lookup(stream, [f"application_properties.k{number}" for number in range(20)])
    assert lookup_fields(stream) == (REGION, PRICE)
    built(stream)
    for wrong in (b"{", b'{"fields": ["x"], "format": 1}', b'{"fields": [], "format": 2}'):
        (derived_folder(stream) / "lookup.json").write_bytes(wrong)
        with pytest.raises(LogError, match="not a declaration of lookup fields"):
            lookup_fields(stream)
        with pytest.warns(LookupWarning, match="not a declaration of lookup fields"):
            assert_same(stream, "region = 'EMEA' AND price = 2")
