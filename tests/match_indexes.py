"""Streams with registered filters, and reads of them with the match index and without, which must be the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from chunks import append_chunk
from headgate.derived import MATCH_INDEX, sources_of
from headgate.derived.match_index import BuildCounters
from headgate.derived.match_index.registry import FilterRegistry
from headgate.derived.match_index.settings import IndexSettings
from headgate.evaluate.filter import Filter
from headgate.log import OffsetSpecification, Stream, StreamArguments
from headgate.log.entries import SubBatch
from headgate.log.format import Compression
from headgate.log.writer import Writer
from headgate.message import Message
from headgate.scan import Cursor, OffsetRange, ScanCounters, ScanRequest, plan, read_range

TEXTS = ("region = 'AMER'", "price > 3", "region = 'NONE'", "NOT (region = 'AMER')", "TRUE")
DIALECT = "rabbitmq"
REGIONS = ("AMER", "EMEA", None)
SEGMENT_BYTES = 2000


def message(region: str | None, price: int) -> bytes:
    properties: dict[str, object] = {"price": price}
    if region is not None:
        properties["region"] = region
    return Message(b"x" * (price % 3), application_properties=properties).encode()


@dataclass(frozen=True)
class Write:
    """One append: its messages, alone or packed into a sub-batch behind the first."""

    messages: tuple[tuple[str | None, int], ...]
    packed: bool


WRITES = st.lists(
    st.builds(
        Write,
        st.lists(st.tuples(st.sampled_from(REGIONS), st.integers(0, 6)), min_size=1, max_size=5).map(tuple),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


def append(stream: Stream, writes: list[Write], *, now_ms: int = 0) -> None:
    with Writer.open(stream, now_ms=now_ms) as writer:
        for write in writes:
            bodies = [message(region, price) for region, price in write.messages]
            if write.packed and len(bodies) > 1:
                append_chunk(writer, [(bodies[0], None), SubBatch.of(bodies[1:], Compression.GZIP)], now_ms=now_ms)
            else:
                writer.append([(body, None) for body in bodies], now_ms=now_ms)


def create(
    folder: Path, writes: list[Write], *, segment_bytes: int = SEGMENT_BYTES, identity: str | None = None
) -> Stream:
    arguments = StreamArguments(max_segment_size_bytes=segment_bytes)
    Stream.create(folder, name=folder.name, now_ms=0, arguments=arguments, identity=identity)
    append(Stream.open(folder), writes)
    return Stream.open(folder)


def register(stream: Stream, texts: tuple[str, ...] = TEXTS, *, by_the_broker: bool = False) -> None:
    registry = FilterRegistry(stream)
    registry.configure(IndexSettings(calculate_filter_bitmap=by_the_broker))
    for number, text in enumerate(texts):
        registry.register(f"group{number}#topic", text, DIALECT, now_ms=1)


def followed(stream: Stream, request: ScanRequest, start: int = 0) -> tuple[list[tuple[int, int, bytes]], ScanCounters]:
    found: list[tuple[int, int, bytes]] = []
    with Cursor(stream, request, start=OffsetSpecification.offset(start), now_ms=0) as cursor:
        while (batch := cursor.read(0)) is not None:
            found += list(
                zip(
                    batch.offsets.tolist(),
                    batch.timestamps_ms.tolist(),
                    map(batch.messages.message, range(len(batch))),
                    strict=True,
                )
            )
        return found, cursor.counters


def build_index(stream: Stream, *, now_ms: int, full: bool = False) -> BuildCounters:
    """Bring the index of a stream up to date; what was counted for all segments."""
    return BuildCounters.total(MATCH_INDEX.build(stream, now_ms=now_ms, distrust=full))


def planned(stream: Stream, request: ScanRequest, within: OffsetRange) -> tuple[list[int], ScanCounters]:
    found = plan(stream, request, within, range_bytes=500)
    offsets: list[int] = []
    for chunks in found.ranges:
        for batch in read_range(chunks, request, found.counters):
            offsets += batch.offsets.tolist()
    return offsets, found.counters


def requests(text: str, **options: object) -> tuple[ScanRequest, ScanRequest]:
    """The same read with and without the index."""
    expression = Filter.parse(text, DIALECT)
    return (
        ScanRequest(filter=expression, sources=sources_of(), **options),  # type: ignore[arg-type]
        ScanRequest(filter=expression, sources=sources_of(match_index=False), **options),  # type: ignore[arg-type]
    )


def assert_same(stream: Stream, text: str, start: int = 0) -> ScanCounters:
    """With the index and without, following and planned, the same messages; what was counted with the index."""
    indexed, full = requests(text)
    expected, plain = followed(stream, full, start)
    got, counters = followed(stream, indexed, start)
    assert got == expected
    assert plain.messages_decided_by_index == plain.chunks_skipped_by_index == 0
    seen = counters.messages_evaluated + counters.messages_decided_by_index
    assert (seen, counters.messages_matched) == (plain.messages_evaluated, plain.messages_matched)
    assert counters.bytes_read + counters.bytes_skipped == plain.bytes_read
    within = OffsetRange(start, stream.next_offset())
    offsets, counted = planned(stream, indexed, within)
    assert offsets == [row[0] for row in expected]
    assert counted.messages_evaluated + counted.messages_decided_by_index == plain.messages_evaluated
    return counters
