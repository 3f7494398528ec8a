"""Chunks out of what several publishers brought: the kernel and plain Python, messages and sub-batches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from headgate.log import runs
from headgate.log.bloom import BloomMatcher, bloom_bytes
from headgate.log.chunk_builder import BuiltChunks, FilterValues
from headgate.log.entries import SimpleEntry, SubBatch, entries_of
from headgate.log.format import CHUNK_HEADER_BYTES, ChunkHeader, Compression
from headgate.log.runs import Entries, Run, build_runs
from headgate.log.tracking_records import TrackingKind, decode_records, encode_offsets
from log_streams import without_kernels

FILTER_SIZE = 32


@dataclass(frozen=True)
class Item:
    """One entry to be: a message with its filter value, or a sub-batch."""

    messages: tuple[bytes, ...]
    value: bytes | None
    is_sub_batch: bool
    members: tuple[bytes | None, ...] = ()

    def stored(self) -> bytes:
        return SubBatch.of(self.messages, Compression.NONE).encode() if self.is_sub_batch else self.messages[0]


MESSAGES = st.binary(max_size=30)
ITEMS = st.one_of(
    st.builds(
        lambda message, value: Item((message,), value, False),
        MESSAGES,
        st.sampled_from([None, b"", b"AMER", b"a value of more than eight bytes"]),
    ),
    st.lists(st.tuples(MESSAGES, st.sampled_from([None, b"", b"AMER", b"EMEA"])), min_size=1, max_size=4).map(
        lambda pairs: Item(tuple(body for body, _ in pairs), None, True, tuple(value for _, value in pairs))
    ),
)
PARTS = st.lists(st.lists(ITEMS, min_size=1, max_size=12), min_size=1, max_size=4)


def entries(items: list[Item], *, knows_members: bool = False, in_pieces: bool = False) -> Entries:
    bodies = [item.stored() for item in items]
    lengths = np.array([len(body) for body in bodies], dtype=np.int64)
    # A few bytes in front: entries need not begin where their buffer does.
    data = np.frombuffer(b"xyz" + b"".join(bodies), dtype=np.uint8)
    records = np.array([len(item.messages) if item.is_sub_batch else 0 for item in items], dtype=np.int64)
    values = FilterValues.of([item.value for item in items]) if any(item.value is not None for item in items) else None
    packed = records if records.any() else None
    starts = np.cumsum(lengths) - lengths + 3
    made = Entries.of(bodies, values, packed) if in_pieces else Entries(data, starts, lengths, values, packed)
    if knows_members:
        made.member_values = FilterValues.of([value for item in items for value in item.members])
    return made


def parsed(built: BuiltChunks) -> list[tuple[ChunkHeader, bytes, bytes, bytes]]:
    """Header, Bloom bytes, data and trailer of each chunk."""
    raw = built.data.tobytes()
    found = []
    for position in built.positions.tolist():
        header = ChunkHeader.decode(raw[position : position + CHUNK_HEADER_BYTES], path="built", position=position)
        at = position + CHUNK_HEADER_BYTES
        parts = []
        for size in (header.bloom_length, header.data_length, header.trailer_length):
            parts.append(raw[at : at + size])
            at += size
        found.append((header, *parts))
    assert at == len(raw)
    return found  # type: ignore[return-value]


def records_of(trailer: bytes) -> list[tuple[TrackingKind, bytes, int]]:
    return [
        (record.kind, record.reference, record.value)
        for record in decode_records(trailer, in_snapshot=False, path="trailer", position=0)
    ]


@given(
    unnamed=PARTS,
    named=PARTS,
    max_messages=st.integers(1, 10),
    with_offsets=st.booleans(),
    knows_members=st.booleans(),
    in_pieces=st.booleans(),
)
def test_chunks_of_runs_are_the_same_with_and_without_kernels_and_hold_every_entry_once_in_order(
    unnamed: list[list[Item]],
    named: list[list[Item]],
    max_messages: int,
    with_offsets: bool,
    knows_members: bool,
    in_pieces: bool,
) -> None:
    first = 2**63  # beyond what a signed number holds
    sequences, counted = [], first
    for part in named:
        sequences.append(np.arange(counted, counted + len(part), dtype=np.uint64))
        counted += len(part)
    both = [
        Run([entries(part, in_pieces=in_pieces) for part in unnamed]),
        Run([entries(part, knows_members=knows_members) for part in named], b"p", sequences),
    ]
    for run in both:
        for part in run.parts:
            assert part.check() == part.size_bytes == sum(map(len, part.pieces))
    trailer = encode_offsets({b"reader": 7}) if with_offsets else b""

    def build() -> BuiltChunks:
        return build_runs(
            both, filter_size_bytes=FILTER_SIZE, max_messages=max_messages, max_bytes=100, last_trailer=trailer
        )

    fast, slow = build(), without_kernels(build)
    assert fast.data.tobytes() == slow.data.tobytes()
    assert fast.positions.tolist() == slow.positions.tolist()
    assert fast.num_records.tolist() == slow.num_records.tolist()
    items = [item for parts in (unnamed, named) for part in parts for item in part]
    at = 0
    for number, (header, bloom, data, tail) in enumerate(parsed(fast)):
        found = list(entries_of(data, header.num_entries, path="chunk", position=0))
        expected = items[at : at + len(found)]
        at += len(found)
        assert len({type(entry) for entry in found}) == 1
        assert header.num_records == sum(len(item.messages) for item in expected) == fast.num_records[number]
        for entry, item in zip(found, expected, strict=True):
            stored = entry.encode() if isinstance(entry, SubBatch) else entry.body
            assert stored == item.stored() and isinstance(entry, SubBatch) == item.is_sub_batch
        values = [item.value for item in expected if not item.is_sub_batch]
        if knows_members and at > sum(map(len, unnamed)):
            values += [value for item in expected for value in item.members]
        assert bloom == bloom_bytes(values, FILTER_SIZE)
        records = records_of(tail)
        offsets = [record for record in records if record[0] is TrackingKind.OFFSET]
        assert offsets == ([(TrackingKind.OFFSET, b"reader", 7)] if with_offsets and number == len(fast) - 1 else [])
        rest = [record for record in records if record[0] is not TrackingKind.OFFSET]
        behind = at - sum(map(len, unnamed))
        assert rest == ([(TrackingKind.SEQUENCE, b"p", first + behind - 1)] if behind > 0 else [])
    assert at == len(items)


@pytest.mark.parametrize("count", [1, 3, runs._FEW_ENTRIES, runs._FEW_ENTRIES + 1, 500])
def test_few_and_many_entries_give_chunks_of_the_same_form(count: int) -> None:
    built = build_runs(
        [Run([entries([Item((b"m%d" % number,), b"AMER", False) for number in range(count)])])],
        filter_size_bytes=FILTER_SIZE,
        max_messages=4096,
        max_bytes=1 << 20,
    )
    ((header, bloom, data, trailer),) = parsed(built)
    found = [entry.body for entry in entries_of(data, count, path=Path(), position=0) if isinstance(entry, SimpleEntry)]
    assert found == [b"m%d" % number for number in range(count)]
    assert (header.num_entries, header.num_records, trailer) == (count, count, b"")
    assert BloomMatcher([b"AMER"], match_unfiltered=False).matches(bloom)


@pytest.mark.parametrize(
    ("starts", "lengths", "records"),
    [([0], [99], None), ([-1], [1], None), ([0], [-5], None), ([0, 1], [1], None), ([0], [1], [0, 0])],
)
def test_columns_that_do_not_fit_are_refused(starts: list[int], lengths: list[int], records: list[int] | None) -> None:
    made = Entries(
        np.zeros(10, np.uint8),
        np.array(starts, np.int64),
        np.array(lengths, np.int64),
        None,
        None if records is None else np.array(records, np.int64),
    )
    with pytest.raises(ValueError, match=r"bytes|starts|values"):
        made.check()


@pytest.mark.parametrize("data", [np.zeros(10, np.int8), np.zeros(20, np.uint8)[::2]])
def test_bytes_that_do_not_lie_side_by_side_are_refused(data: np.ndarray) -> None:
    column = np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="side by side"):
        Entries(data, column, column).check()
    with pytest.raises(ValueError, match="side by side"):
        Entries(np.zeros(1, np.uint8), column, column, FilterValues(data, column, column)).check()


def in_runs(sizes: list[int], values: list[bytes]) -> list[Item]:
    """Messages whose filter values come in runs of these sizes."""
    labels = [values[number % len(values)] for number, size in enumerate(sizes) for _ in range(size)]
    return [Item((b"m",), label, False) for label in labels]


@given(
    sizes=st.lists(st.integers(600, 900), min_size=1, max_size=6),
    cut=st.integers(1, 599),
)
@examples(0.5)
def test_a_chunk_ends_where_another_long_run_of_a_filter_value_begins(sizes: list[int], cut: int) -> None:
    items = in_runs(sizes, [b"AMER", b"EMEA", b"APAC"])
    # The parts of a run are what several frames brought: values go on over their ends.
    run = Run([entries(items[:cut]), entries(items[cut:])])
    built = build_runs([run], filter_size_bytes=FILTER_SIZE, max_messages=4096, max_bytes=1 << 20)
    assert built.num_records.tolist() == sizes


def test_values_that_change_often_do_not_cut_chunks() -> None:
    items = in_runs([1] * 1000, [b"AMER", b"EMEA", b"APAC"])
    built = build_runs([Run([entries(items)])], filter_size_bytes=FILTER_SIZE, max_messages=4096, max_bytes=1 << 20)
    assert built.num_records.tolist() == [1000]


def test_a_long_run_of_sub_batches_and_values_is_cut_at_both() -> None:
    batch = Item((b"a", b"b"), None, True)
    items = [*in_runs([700, 700], [b"AMER", b"EMEA"]), batch, *in_runs([700], [b"EMEA"])]
    built = build_runs([Run([entries(items)])], filter_size_bytes=FILTER_SIZE, max_messages=4096, max_bytes=1 << 20)
    assert built.num_records.tolist() == [700, 700, 2, 700]


@pytest.mark.parametrize("count", [6, runs._FEW_ENTRIES + 1])
def test_a_chunk_ends_before_its_sub_batches_expand_to_more_than_readers_take(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(runs, "EXPANSION_LIMIT_BYTES", 250)
    batches = [SubBatch.of([bytes(96)], Compression.GZIP), SubBatch.of([bytes(996)], Compression.GZIP)]
    stored = [batches[number == 2].encode() for number in range(count)]
    lengths = np.array([len(each) for each in stored], dtype=np.int64)
    data = np.frombuffer(b"".join(stored), dtype=np.uint8)
    part = Entries(data, np.cumsum(lengths) - lengths, lengths, None, np.ones(count, dtype=np.int64))
    built = build_runs([Run([part])], filter_size_bytes=FILTER_SIZE, max_messages=4096, max_bytes=1 << 20)
    rest = count - 3
    # The third expands to more than is allowed: it is alone.
    assert built.num_records.tolist() == [2, 1, *([2] * (rest // 2)), *([1] * (rest % 2))]


@pytest.mark.parametrize(
    ("records", "members", "reason"), [([2], 3, "3 values for 2 messages"), ([1], 1, "fewer bytes")]
)
def test_sub_batches_that_do_not_fit_their_columns_are_refused(records: list[int], members: int, reason: str) -> None:
    size = 11 if reason != "fewer bytes" else 10
    made = Entries(
        np.zeros(size, np.uint8),
        np.zeros(1, np.int64),
        np.array([size], np.int64),
        None,
        np.array(records, np.int64),
        FilterValues.of([b"v"] * members),
    )
    with pytest.raises(ValueError, match=reason):
        made.check()
