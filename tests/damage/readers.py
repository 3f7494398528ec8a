"""Everything that reads a stream, behind one shape: a folder and a request in, messages out, or an error."""

from __future__ import annotations

import contextlib
import logging
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadMaxRows

from brokers import batch, scan
from headgate.broker.consumers import ConsumerOptions
from headgate.broker.session import Session
from headgate.client import Client, ServedFilter, SubscriptionOptions
from headgate.derived import sources_of
from headgate.errors import CorruptChunkError, HeadgateError
from headgate.evaluate.filter import Filter
from headgate.log import OffsetSpecification, Stream, Writer
from headgate.log.compression import EXPANSION_LIMIT_BYTES
from headgate.log.entries import unpack_chunk
from headgate.log.format import ChunkHeader
from headgate.log.inspection import Damage, stream_info, verify_stream
from headgate.log.tracking import read_tracking
from headgate.scan import Cursor, ScanBatch, ScanRequest, count_matches, resolve_range
from headgate.spark.schema import stream_schema
from headgate.spark.source import BatchReader, StreamReader
from headgate.topic.history import RuleHistory
from match_indexes import build_index
from topic_streams import shape
from waiting import LIMIT_S

from .originals import AMER_FILTER, NEW_BODY, START_MS
from .plain_log import AMER, Request, Row, Tracked

NOW_MS = START_MS + 1_000_000
_FILTER = Filter.parse(AMER_FILTER)
_COLUMNS = ("offset", "timestamp", "message")


def start_of(request: Request) -> OffsetSpecification:
    """Where a request begins, as readers are told."""
    match request.start:
        case "offset":
            return OffsetSpecification.offset(request.value)
        case "time":
            return OffsetSpecification.timestamp(request.value)
        case name:
            return OffsetSpecification.parse(name)


def scan_request(request: Request) -> ScanRequest:
    return ScanRequest(
        filter=_FILTER if request.only_amer else None,
        filter_values=(AMER,) if request.only_amer_chunks else (),
        now_ms=NOW_MS,
        sources=sources_of(),
    )


def rows_of(found: ScanBatch) -> list[Row]:
    bodies = [found.messages.message(row) for row in range(len(found))]
    return list(zip(found.offsets.tolist(), found.timestamps_ms.tolist(), bodies, strict=True))


# in a folder


def tail(folder: Path, request: Request, rows: list[Row]) -> None:
    """As `headgate tail` reads."""
    stream = Stream.open(folder)
    stop = stream.next_offset()
    with Cursor(stream, scan_request(request), start=start_of(request), now_ms=NOW_MS, stop_offset=stop) as cursor:
        while (found := cursor.read(NOW_MS)) is not None:
            rows += rows_of(found)


def _spark_options(folder: Path, request: Request) -> dict[str, str]:
    options = {"stream": str(folder), "partitions": "3"}
    if request.start in ("offset", "time"):
        time = datetime.fromtimestamp(request.value / 1000, UTC).isoformat() if request.start == "time" else ""
        options["start"] = time or str(request.value)
    elif request.start != "first":
        options["start"] = request.start
    if request.only_amer:
        options["filter"] = AMER_FILTER
    if request.only_amer_chunks:
        options["filter_values"] = AMER.decode()
    return options


def _rows_of_arrow(batch: pa.RecordBatch) -> list[Row]:
    times = batch.column("timestamp").cast(pa.int64()).to_numpy() // 1000
    offsets, messages = (batch.column(name).to_pylist() for name in ("offset", "message"))
    return list(zip(offsets, times.tolist(), messages, strict=True))


def spark(folder: Path, request: Request, rows: list[Row]) -> None:
    """Spark's batch source, planned and read without a JVM."""
    reader = BatchReader(stream_schema(_COLUMNS, ()), _spark_options(folder, request))
    for partition in reader.partitions():
        for found in reader.read(partition):
            rows += _rows_of_arrow(found)


def spark_streaming(folder: Path, request: Request, rows: list[Row]) -> None:
    """Spark's streaming source in small batches, without a JVM."""
    reader = StreamReader(stream_schema(_COLUMNS, ()), _spark_options(folder, request))
    begin = reader.initialOffset()
    while True:
        end = reader.latestOffset(begin, ReadMaxRows(6))
        if end == begin:
            return
        for partition in reader.partitions(begin, end):
            for found in reader.read(partition):
                rows += _rows_of_arrow(found)
        begin = end


def index_count(folder: Path) -> int:
    """As `headgate index count` with the filter `AMER`."""
    stream = Stream.open(folder)
    within = resolve_range(stream, start=OffsetSpecification.first(), end=None, now_ms=NOW_MS)
    return count_matches(stream, ScanRequest(filter=_FILTER, now_ms=NOW_MS, sources=sources_of()), within).matches


def index_build_and_count(folder: Path) -> int:
    """As `headgate index build`, then `index count`."""
    build_index(Stream.open(folder), now_ms=NOW_MS)
    return index_count(folder)


def info_count(folder: Path) -> int:
    """The number of messages that `headgate stream info` says."""
    return stream_info(Stream.open(folder)).num_messages


def tracked(folder: Path) -> Tracked:
    """What the log's reader of sequences and stored offsets says."""
    state = read_tracking(Stream.open(folder))
    sequences: Tracked = {(0, name): sequence for name, (_, sequence) in state.sequences.items()}
    return sequences | {(1, name): offset for name, offset in state.offsets.items()}


def verified(folder: Path) -> list[Damage]:
    """What `headgate stream verify` finds."""
    return [found for found in verify_stream(Stream.open(folder)) if isinstance(found, Damage)]


def rules_in_force(folder: Path) -> list[tuple[int, dict[str, dict[str, str]]]]:
    """The rules of a topic after each change."""
    history = RuleHistory.load(Stream.open(folder))
    whole = [each.start for each in history.ranges(0, history.last_change + 1)]
    return [(offset, shape(history.at(offset))) for offset in whole]


# the broker, without sockets


def broker_messages(session: Session, name: str, request: Request, rows: list[Row]) -> None:
    """A consumer that takes messages."""
    options = ConsumerOptions(
        start=start_of(request),
        filter=_FILTER if request.only_amer else None,
        filter_values=(AMER,) if request.only_amer_chunks else (),
    )
    _check_lost(consumed(session, name, options, rows), request, rows)


def _check_lost(lost: int, request: Request, rows: list[Row]) -> None:
    """What is passed over as deleted by retention lies before all messages: the oldest pair may be gone, no other."""
    if lost and (request.start != "offset" or any(offset < request.value + lost for offset, _, _ in rows)):
        raise AssertionError(f"{lost} offsets passed over as deleted by retention")


def consumed(session: Session, name: str, options: ConsumerOptions, rows: list[Row]) -> int:
    """Take all messages; how many offsets were passed over as deleted by retention."""
    consumer = session.message_consumer(name, options)
    try:
        consumer.want(1 << 20)
        while True:
            if consumer.scan_due():
                scan(consumer)
            found = consumer.take(1000, 1 << 20)
            if found is not None:
                rows += rows_of(found)
            elif not consumer.scan_due():
                return consumer.lost
    finally:
        consumer.close()


def broker_chunks(session: Session, name: str, request: Request, rows: list[Row]) -> None:
    """A consumer that takes chunks, unpacked as a client of the stream protocol does; only from the first chunk on."""
    options = ConsumerOptions(start=start_of(request), filter_values=(AMER,) if request.only_amer_chunks else ())
    consumer = session.chunk_consumer(name, options)
    try:
        consumer.want(1 << 20)
        while True:
            if consumer.scan_due():
                scan(consumer)
            found = consumer.take(1 << 20)
            if found is not None:
                for header_at, data_at, length in zip(
                    found.header_starts.tolist(), found.data_starts.tolist(), found.data_lengths.tolist(), strict=True
                ):
                    raw = found.data[header_at : header_at + 48].tobytes()
                    header = ChunkHeader.decode(raw, path=name, position=0)
                    rows += _rows_of_chunk(header, found.data[data_at : data_at + length].tobytes())
            elif not consumer.scan_due():
                break
        _check_lost(consumer.lost, request, rows)
    finally:
        consumer.close()


class DeliveredDamageError(HeadgateError):
    """A delivered chunk does not check: brokers hand chunks on as they are, clients look at their checksums."""


def _rows_of_chunk(header: ChunkHeader, data: bytes) -> list[Row]:
    if zlib.crc32(data) != header.crc:
        raise DeliveredDamageError("checksum")
    try:
        chunk = unpack_chunk(header, data, limit_bytes=EXPANSION_LIMIT_BYTES, path="delivered", position=0)
    except CorruptChunkError as error:
        raise DeliveredDamageError(str(error)) from error
    spans = zip(chunk.starts, chunk.lengths, strict=True)
    return [
        (header.chunk_id + number, header.timestamp_ms, chunk.data[at : at + length].tobytes())
        for number, (at, length) in enumerate(spans)
    ]


# the client, through a server


def client(client: Client, name: str, request: Request, rows: list[Row]) -> None:
    """A subscription of the stream protocol."""
    options = SubscriptionOptions(
        name,
        start_of(request),
        stop=client.resolve_offset(name, OffsetSpecification.next()),
        filter_values=(AMER,) if request.only_amer_chunks else (),
        served=ServedFilter(AMER_FILTER, "amqp") if request.only_amer else None,
    )
    subscription = client.subscription(options)
    try:
        while (found := subscription.read(LIMIT_S)) is not None:
            rows += rows_of(found)
        if not subscription.is_finished:
            raise AssertionError(f"nothing came for {LIMIT_S} s")
    finally:
        subscription.abandon()


# writers


@dataclass
class Logged(logging.Handler):
    """What was logged, warnings and worse."""

    texts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())

    __hash__ = object.__hash__


@contextlib.contextmanager
def logged() -> Iterator[list[str]]:
    """The messages that Headgate logs meanwhile."""
    handler = Logged()
    logger = logging.getLogger("headgate")
    logger.addHandler(handler)
    try:
        yield handler.texts
    finally:
        logger.removeHandler(handler)


def write(folder: Path) -> int:
    """Append the new message with a writer; its offset."""
    with Writer.open(Stream.open(folder), now_ms=NOW_MS) as writer:
        return int(writer.append([(NEW_BODY, AMER)], now_ms=NOW_MS).offsets()[0])


def publish(session: Session, name: str, write_queued: Callable[[], None]) -> None:
    """Publish the new message through the broker; raises what the publisher is told."""
    publisher = session.publisher(name)
    try:
        answers: list[HeadgateError | None] = []
        publisher.publish(batch([NEW_BODY], answers.append, values=[AMER]))
        write_queued()
        (error,) = answers
        if error is not None:
            raise error
    finally:
        publisher.close()
