"""What the files of a stream say: segments on a time line, sizes of chunks, and what its Bloom filters achieve."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec

from headgate.broker import Broker, BrokerStream, ReadingCounters, arguments_declared
from headgate.log import FilterStatistics, StreamInfo, filter_statistics, stream_info
from headgate.server import listings as lists
from headgate.server.api.answers import Row
from headgate.server.api.rights import readable_stream
from headgate.server.context import ServerContext
from headgate.server.http import Answer, Call, Endpoint, Group

_MOST_SEGMENTS = 2000
"""Limit: the newest ones are listed, with the first as the beginning."""


class SegmentRow(msgspec.Struct, frozen=True):
    """One segment. `chunks` is null in object storage; times are null for a segment without chunks."""

    first_offset: int
    next_offset: int
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    size_bytes: int
    chunks: int | None
    messages: int
    place: str
    is_open: bool


class PinRow(msgspec.Struct, frozen=True):
    """What keeps messages from `offset` on, whatever the limits of the stream: a subscription, a group."""

    kind: str
    name: str
    offset: int


class SegmentsAnswer(msgspec.Struct, frozen=True):
    """The newest 2 000 segments, oldest first, of `num_segments`; `retention` are the limits in force."""

    segments: list[SegmentRow]
    num_segments: int
    retention: Row
    pinned_by: list[PinRow]


class ChunkSize(msgspec.Struct, frozen=True):
    """Chunks with at most so many bytes of data, and more than the size before."""

    up_to_bytes: int
    chunks: int


class BloomAnswer(msgspec.Struct, frozen=True):
    """The Bloom filters of the newest `chunks`.

    `theoretical_false_positives` is the share of chunks that these filters let be read in vain, by their bits;
    `measured_false_positives` is what connected consumers met that skip chunks and have a filter expression: the share
    of chunks without a match that they read. Chunks that have the value, but nothing that the expression keeps, are
    among these. It is null without such consumers. Values are null where no chunk has a filter.
    """

    filter_size_bytes: int
    filter_source: str | None
    chunks: int
    chunk_sizes: list[ChunkSize]
    values_per_chunk: float | None
    fill_ratio: float | None
    theoretical_false_positives: float | None
    measured_false_positives: float | None
    unfiltered_ratio: float | None
    advice: list[str]


def stream_files_group(context: ServerContext) -> Group:
    """The endpoints of a stream's files."""
    requests = _FileRequests(context)
    return Group(
        "Files of a stream",
        "What the files of one stream say; they are read for it, in a thread.",
        (
            Endpoint(
                "GET",
                "streams/{stream}/segments",
                "The segments of a stream with times and sizes, its limits, and what keeps messages in spite of them.",
                requests.segments,
                permission="read the stream",
                answer=SegmentsAnswer,
            ),
            Endpoint(
                "GET",
                "streams/{stream}/bloom",
                "What the Bloom filters of the newest chunks achieve, the sizes of these chunks, and advice.",
                requests.bloom,
                permission="read the stream",
                answer=BloomAnswer,
            ),
        ),
    )


class _FileRequests:
    def __init__(self, context: ServerContext) -> None:
        self._broker = context.broker

    async def segments(self, call: Call) -> Answer:
        stream = readable_stream(self._broker, call.user, call.names["stream"])
        with stream.guarded():
            info = await asyncio.to_thread(stream_info, stream.stream)
        rows = list(_segment_rows(info))
        answer = SegmentsAnswer(
            rows[-_MOST_SEGMENTS:], len(rows), arguments_declared(stream), list(_pins(self._broker, stream, info))
        )
        return Answer(answer)

    async def bloom(self, call: Call) -> Answer:
        stream = readable_stream(self._broker, call.user, call.names["stream"])
        with stream.guarded():
            found = await asyncio.to_thread(filter_statistics, stream.stream)
        return Answer(_bloom_answer(self._broker, stream, found))


def _segment_rows(info: StreamInfo) -> Iterator[SegmentRow]:
    for row in info.remote_rows.tolist():
        first, stop, segment_bytes, summary_bytes, first_ms, last_ms, _crc, num_tracking = row
        yield SegmentRow(
            first,
            stop,
            first_ms,
            last_ms,
            segment_bytes + summary_bytes,
            None,
            stop - first - num_tracking,
            "remote",
            False,
        )
    for number, each in enumerate(info.segments):
        yield SegmentRow(
            each.first_chunk_id,
            each.next_offset,
            each.first_timestamp_ms,
            each.last_timestamp_ms,
            each.size_bytes,
            each.num_user_chunks,
            each.num_messages,
            "local",
            number == len(info.segments) - 1,
        )


def _pins(broker: Broker, stream: BrokerStream, info: StreamInfo) -> Iterator[PinRow]:
    pinning = [
        PinRow("subscription", each.name, each.pins)
        for topic in broker.topics
        if topic.stream is stream
        for each in topic.subscriptions.known_infos()
        if each.pins is not None
    ]
    yield from pinning
    if info.pin is not None and not pinning:
        # Of a topic that is not open, or of another program.
        yield PinRow("pin", stream.name, info.pin.offset)


def _bloom_answer(broker: Broker, stream: BrokerStream, found: FilterStatistics) -> BloomAnswer:
    settings = stream.stream.settings
    return BloomAnswer(
        found.filter_size_bytes,
        None if settings is None else settings.filter_source,
        found.chunks,
        [ChunkSize(up_to_bytes, chunks) for up_to_bytes, chunks in found.chunk_sizes],
        found.values_per_chunk,
        found.fill,
        found.false_positives,
        _measured_false_positives(broker, stream),
        found.unfiltered,
        found.advice(),
    )


def _measured_false_positives(broker: Broker, stream: BrokerStream) -> float | None:
    """Of chunks without a match the share that was read, by consumers that test Bloom filters and look at messages.

    A consumer that skips nothing reads every chunk, and one without an expression does not see that a chunk has no
    match: what these count says nothing of the filters.
    """
    read = ReadingCounters.of(
        consumer
        for _, consumer in lists.consumers(broker)
        if consumer.stream == stream.name and consumer.options.filter is not None and consumer.counters.chunks_skipped
    ).scan
    without = read.chunks_skipped + read.chunks_without_match
    return read.chunks_without_match / without if without else None
