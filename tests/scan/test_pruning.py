"""A read that skips chunks gives what a read of everything gives: stage 1 never loses a match."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunks import append_chunk
from headgate.evaluate.filter import Filter
from headgate.evaluate.pruning import wanted_values
from headgate.log import OffsetSpecification, Stream, StreamArguments
from headgate.log.entries import SubBatch
from headgate.log.format import Compression
from headgate.log.writer import Writer
from headgate.message import AmqpType, AmqpValue, Message
from headgate.message.fields import parse_field
from headgate.scan import Cursor, ScanBatch, ScanCounters, ScanRequest, plan, read_range, resolve_range

REGION = parse_field("application_properties.region")

VALUES = st.sampled_from(
    [
        "AMER",
        "EMEA",
        "APJ",
        "",
        AmqpValue(AmqpType.SYMBOL, "AMER"),
        AmqpValue(AmqpType.BINARY, b"EMEA"),
        5,
        True,
        None,
    ]
)
LEAVES = st.sampled_from(
    [
        "region = 'AMER'",
        "'EMEA' = region",
        "region IN ('APJ', 'AMER')",
        "region IN ('APJ', 5)",
        "region <> 'AMER'",
        "region = 5",
        "region = ''",
        "region IS NULL",
        "region LIKE 'A%'",
        "price > 2",
        "region",
        "TRUE",
        "FALSE",
        "region = other",
    ]
)
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        inner.map(lambda text: f"NOT ({text})"),
    ),
    max_leaves=6,
)


@dataclass(frozen=True)
class Write:
    """One append: regions and prices of its messages, under a declaration or not, packed into one sub-batch or not: by
    the writer, or before, when nobody knows the values of its members.
    """

    messages: tuple[tuple[object, int], ...]
    sub_batch: bool
    declared: bool
    packed_before: bool = True


WRITES = st.lists(
    st.builds(
        Write,
        st.lists(st.tuples(VALUES, st.integers(0, 4)), min_size=1, max_size=4).map(tuple),
        st.booleans(),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


def _message(region: object, price: int) -> bytes:
    properties = {"price": price} if region is None else {"region": region, "price": price}
    return Message(application_properties=properties, body=b"x").encode()


def _filter_value(region: object) -> bytes | None:
    value = region.value if isinstance(region, AmqpValue) else region
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, bytes) else None


def _write(folder: Path, writes: list[Write]) -> Stream:
    stream = Stream.create(folder, name="s", now_ms=0, arguments=StreamArguments(max_segment_size_bytes=600))
    with Writer.open(stream, now_ms=0) as writer:
        for time_ms, write in enumerate(writes):
            source = "application_properties.region" if write.declared else None
            writer.change(now_ms=time_ms, filter_source=source)
            bodies = [_message(region, price) for region, price in write.messages]
            if write.sub_batch and write.packed_before:
                append_chunk(writer, [SubBatch.of(bodies, Compression.GZIP)], now_ms=time_ms)
            elif write.declared:
                values = [_filter_value(region) for region, _ in write.messages]
                codec = Compression.ZSTD if write.sub_batch else Compression.NONE
                pairs = list(zip(bodies, values, strict=True))
                writer.append(pairs, now_ms=time_ms, filter_source=source, compression=codec)
            else:
                # Without a declaration publishers may attach whatever they like.
                writer.append([(body, b"anything") for body in bodies], now_ms=time_ms)
    return Stream.open(folder)


def _planned(stream: Stream, request: ScanRequest) -> tuple[list[int], ScanCounters]:
    within = resolve_range(stream, start=OffsetSpecification.first(), end=None, now_ms=0)
    planned = plan(stream, request, within, range_bytes=300)
    offsets: list[int] = []
    for chunks in planned.ranges:
        for batch in read_range(chunks, request, planned.counters):
            offsets.extend(batch.offsets.tolist())
    return offsets, planned.counters


def _followed(stream: Stream, request: ScanRequest) -> list[int]:
    offsets: list[int] = []
    with Cursor(stream, request, start=OffsetSpecification.first(), now_ms=0) as cursor:
        while (batch := cursor.read(0)) is not None:
            offsets.extend(batch.offsets.tolist())
    return offsets


@given(writes=WRITES, text=EXPRESSIONS)
def test_a_pruned_read_gives_the_messages_of_a_full_read(writes: list[Write], text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stream = _write(Path(folder) / "s", writes)
        expression = Filter.parse(text, "rabbitmq")
        everything: dict[int, bytes] = {}
        with Cursor(stream, ScanRequest(), start=OffsetSpecification.first(), now_ms=0) as cursor:
            while (batch := cursor.read(0)) is not None:
                everything.update(_rows(batch))
        assert list(everything.values()) == [_message(*pair) for write in writes for pair in write.messages]
        expected = [offset for offset, body in everything.items() if expression.matches(body, now_ms=0)]
        request = ScanRequest(filter=expression)
        offsets, counters = _planned(stream, request)
        assert offsets == expected
        assert counters.messages_matched == len(expected)
        assert _followed(stream, request) == expected


def _rows(batch: ScanBatch) -> dict[int, bytes]:
    return {int(offset): batch.messages.message(row) for row, offset in enumerate(batch.offsets)}


@pytest.mark.parametrize("compressed", [False, True])
def test_chunks_written_under_a_declaration_are_skipped_without_naming_values(tmp_path: Path, compressed: bool) -> None:
    writes = [
        Write(((region, 1),), sub_batch=compressed, declared=True, packed_before=False)
        for region in ("AMER", "EMEA", "APJ", 5) * 5
    ]
    stream = _write(tmp_path / "s", writes)
    offsets, counters = _planned(stream, ScanRequest(filter=Filter.parse("region = 'AMER' AND price > 0", "rabbitmq")))
    assert len(offsets) == 5
    assert counters.chunks_examined == 20
    # Chunks with messages that have no filter value are always read: those of the region 5.
    assert counters.chunks_skipped == 10
    assert counters.chunks_without_match == 5


def test_values_known_to_the_caller_skip_chunks_together_with_those_of_the_filter(tmp_path: Path) -> None:
    writes = [Write(((region, 1),), sub_batch=False, declared=True) for region in ("AMER", "EMEA", "APJ", 5) * 5]
    stream = _write(tmp_path / "s", writes)
    known = ((REGION, frozenset({b"AMER", b"EMEA"})),)
    for text, skipped in ((None, 5), ("region IN ('EMEA', 'APJ')", 10)):
        expression = None if text is None else Filter.parse(text, "rabbitmq")
        _, counters = _planned(stream, ScanRequest(filter=expression, known_values=known))
        assert counters.chunks_skipped == skipped
    other = ((parse_field("properties.subject"), frozenset({b"x"})),)
    assert _planned(stream, ScanRequest(known_values=other))[1].chunks_skipped == 0


def test_an_earlier_declaration_of_another_field_does_not_prune(tmp_path: Path) -> None:
    stream = Stream.create(tmp_path / "s", name="s", now_ms=0, filter_source="properties.subject")
    with Writer.open(stream, now_ms=0) as writer:
        body = Message(properties={"subject": "x"}, application_properties={"region": "AMER"}).encode()
        writer.append([(body, b"x")], now_ms=1, filter_source="properties.subject")
        writer.change(now_ms=2, filter_source="application_properties.region")
    offsets, counters = _planned(
        Stream.open(stream.path), ScanRequest(filter=Filter.parse("region = 'AMER'", "rabbitmq"))
    )
    assert offsets == [0]
    assert counters.chunks_skipped == 0


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("region = 'AMER'", {b"AMER"}),
        ("'AMER' = region AND price > 5", {b"AMER"}),
        ("region IN ('AMER','EMEA') AND price > 5", {b"AMER", b"EMEA"}),
        ("region IN ('AMER','EMEA') AND region = 'EMEA'", {b"EMEA"}),
        ("region = 'AMER' OR region = 'EMEA'", {b"AMER", b"EMEA"}),
        ("NOT (region <> 'AMER' OR price > 5)", None),
        ("NOT (NOT (region = 'AMER') OR price > 5)", {b"AMER"}),
        ("NOT (NOT (region = 'AMER') AND NOT (region = 'APJ'))", {b"AMER", b"APJ"}),
        ("FALSE", set()),
        ("FALSE OR region = 'AMER'", {b"AMER"}),
        ("region = 'AMER' OR price > 5", None),
        ("region <> 'AMER'", None),
        ("region NOT IN ('AMER')", None),
        ("region = 5", None),
        ("region IN ('AMER', 5)", None),
        ("region LIKE 'AMER'", None),
        ("other = 'AMER'", None),
        ("p.subject = 'AMER'", None),
        ("(region = 'AMER') = TRUE", None),
    ],
)
def test_an_expression_names_the_filter_values_it_needs(text: str, values: set[bytes] | None) -> None:
    assert wanted_values(Filter.parse(text, "rabbitmq").tree, REGION) == values
