"""The data source for reading from a server: batch and streaming reads with the options and columns of files."""
# ruff: noqa: N802 - Spark gives the methods their names

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headgate.client import Client
from headgate.errors import ConfigError, OffsetOutOfRangeError
from headgate.log import OffsetSpecification
from headgate.message.arrow import DeclaredProperty
from headgate.scan import OffsetRange
from headgate.spark.counters import fold_counters
from headgate.spark.options import SourceOptions
from headgate.spark.planning import begins_anew, now_ms, range_digest, refuse_streaming_options, scan_request
from headgate.spark.pushdown import Pushed
from headgate.spark.scans import Scan
from headgate.spark.schema import check_schema
from headgate.spark.server_planning import (
    ServerPartition,
    check_server_start,
    find_server_streams,
    lost,
    plan_server_partitions,
    server_of,
    server_ranges,
)

if TYPE_CHECKING:
    import pyarrow as pa


class ServerBatchReader(DataSourceReader):
    """One batch read, planned once. The time of planning is that at which the reader was made."""

    def __init__(self, schema: StructType, options: Mapping[str, str], scan: Scan | None = None) -> None:
        self._options = SourceOptions.parse(options)
        self._scan = scan or Scan()
        refuse_streaming_options(self._options)
        self._schema = schema
        self._properties = check_schema(schema, self._options.properties)
        self._now_ms = now_ms(self._options)
        self._pushed = Pushed()

    def partitions(self) -> list[InputPartition]:
        """Ranges of offsets; called once, while the query is planned."""
        with Client.connect(server_of(self._options), keep=True) as client:
            streams = find_server_streams(client, self._options)
            check_server_start(client, self._options, streams, now_ms=self._now_ms)
            identities = {stream: _identity(client, stream) for stream in streams}
            found = server_ranges(client, self._options, streams, now_ms=self._now_ms)
        ranges = {stream: self._pushed.narrowed(within) for stream, within in found.items()}
        request = scan_request(self._options, now_ms=self._now_ms)
        self._scan.plan(ranges, self._pushed.descriptions)
        label = f"batch-{range_digest(ranges)}"
        partitions = plan_server_partitions(
            self._options, ranges, request=request, label=label, scan=self._scan, identities=identities
        )
        return list(partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition; called once per attempt of a task."""
        return _rows_of(partition, self._schema, self._properties, self._options)


class ServerPushdownReader(ServerBatchReader):
    """A batch read that narrows its offsets by what Spark pushes down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Use comparisons of offsets; give back what is left to Spark, which is times and values, too."""
        for pushed in filters:
            if getattr(pushed, "attribute", None) == ("offset",):
                yield from self._pushed.take([pushed])
            else:
                yield pushed


class ServerStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One streaming read; its offsets are those of a read from files. Only a Headgate says identities of streams."""

    def __init__(self, schema: StructType, options: Mapping[str, str], scan: Scan | None = None) -> None:
        self._options = SourceOptions.parse(options)
        self._scan = scan or Scan()
        if self._options.end is not None:
            raise ConfigError("headgate source option end: a streaming read has no end; use a trigger, or a batch read")
        self._schema = schema
        self._properties = check_schema(schema, self._options.properties)
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins: the option `start`, by default the first message kept."""
        time_ms = now_ms(self._options)
        with self._connected() as client:
            streams = find_server_streams(client, self._options)
            ranges = server_ranges(client, self._options, streams, now_ms=time_ms)
            found = {stream: _Found(within.start, _identity(client, stream)) for stream, within in ranges.items()}
        return _offsets(time_ms, found)

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of the options, if there is one."""
        limit = self._options.max_messages_per_batch
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix what is available: the ends of the streams that are there now."""
        self._target = {stream: found.offset for stream, found in self._ends().items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; `start` itself when there is nothing new.

        A limit counts what lies in the stream, before any filter, and is shared evenly by the streams.
        """
        begins: dict[str, int] = dict(start["next"])
        ends: dict[str, _Found] = {}
        for stream, there in self._ends().items():
            begin = begins.get(stream, 0)
            stop = there.offset if self._target is None else min(there.offset, self._target.get(stream, 0))
            if self._begins_anew(stream, start["identity"].get(stream), there.identity):
                begins[stream] = 0
                ends[stream] = _Found(stop, there.identity)
                continue
            if begin > stop and self._options.fail_on_data_loss:
                raise self._cut_back(stream, begin, stop)
            if stop != begin:
                ends[stream] = _Found(stop, there.identity)
        if not ends:
            return start
        if isinstance(limit, ReadMaxRows):
            share = max(1, limit.max_rows // len(ends))
            with self._connected() as client:
                ends = {
                    stream: _Found(min(end.offset, self._from(client, begins, stream) + share), end.identity)
                    for stream, end in ends.items()
                }
        offsets = _offsets(now_ms(self._options), ends)
        return {**offsets, **{part: {**start[part], **offsets[part]} for part in ("next", "identity")}}

    def reportLatestOffset(self) -> dict[str, Any]:
        """The ends of the streams, for the query's progress."""
        return _offsets(now_ms(self._options), self._ends())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The offsets between two ends; also of an earlier run, then with that run's time."""
        ranges = {}
        identities: dict[str, str | None] = {}
        with self._connected() as client:
            for stream, stop in end["next"].items():
                begin = start["next"].get(stream, 0)
                read, planned = start["identity"].get(stream), end["identity"].get(stream)
                is_new = stream not in start["next"] or (planned is not None and read is not None and planned != read)
                if is_new:
                    begin = 0
                if begin == stop or self._begins_anew(stream, planned, _identity(client, stream)):
                    continue
                identities[stream] = planned
                first = client.resolve_offset(stream, OffsetSpecification.first())
                if begin > stop:
                    begin = first
                elif begin < first and not is_new and self._options.fail_on_data_loss:
                    raise lost(stream, begin, first, server_of(self._options))
                begin = max(begin, first)
                ranges[stream] = OffsetRange(begin, max(begin, stop))
        request = scan_request(self._options, now_ms=int(end["now_ms"]))
        self._scan.plan(ranges, ())
        label = f"stream-{range_digest(ranges)}"
        return list(
            plan_server_partitions(
                self._options, ranges, request=request, label=label, scan=self._scan, identities=identities
            )
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition; called once per attempt of a task."""
        return _rows_of(partition, self._schema, self._properties, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Batches up to `end` are done: their counters can be summed up."""
        if self._options.counters is not None:
            fold_counters(self._options.counters_root, self._options.counters)
        self._scan.fold()

    def _connected(self) -> Client:
        return Client.connect(server_of(self._options), keep=True)

    def _ends(self) -> dict[str, _Found]:
        with self._connected() as client:
            return {
                stream: _Found(client.resolve_offset(stream, OffsetSpecification.next()), _identity(client, stream))
                for stream in find_server_streams(client, self._options)
            }

    def _begins_anew(self, stream: str, read: str | None, there: str | None) -> bool:
        path = f"{server_of(self._options).place}/{stream}"
        return begins_anew(stream, read, there, path=path, fails=self._options.fail_on_data_loss)

    @staticmethod
    def _from(client: Client, begins: Mapping[str, int], stream: str) -> int:
        """Where the next batch of a stream really begins: not before its first message."""
        return max(begins.get(stream, 0), client.resolve_offset(stream, OffsetSpecification.first()))

    def _cut_back(self, stream: str, begin: int, stop: int) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            f"the query has read stream {stream!r} up to offset {begin}, but it ends at {stop} now: it was deleted "
            "and made again, or cut back; to begin again at its first message, set the option fail_on_data_loss to "
            "false",
            path=f"{server_of(self._options).place}/{stream}",
        )


@dataclass(frozen=True, slots=True)
class _Found:
    """A place in a stream, and which stream it is, None where the server does not say."""

    offset: int
    identity: str | None


def _identity(client: Client, stream: str) -> str | None:
    return client.statistics(stream).identity if client.is_headgate else None


def _offsets(time_ms: int, places: Mapping[str, _Found]) -> dict[str, Any]:
    return {
        "now_ms": time_ms,
        "next": {stream: found.offset for stream, found in places.items()},
        "identity": {stream: found.identity for stream, found in places.items() if found.identity is not None},
    }


def _rows_of(
    partition: InputPartition,
    schema: StructType,
    properties: tuple[DeclaredProperty, ...],
    options: SourceOptions,
) -> Iterator[pa.RecordBatch]:
    from headgate.spark.server_reader import server_record_batches

    # Spark makes a partition of nothing out of an empty plan.
    if isinstance(partition, ServerPartition):
        yield from server_record_batches(
            partition,
            schema,
            properties,
            skip_lost=not options.fail_on_data_loss,
            on_mismatch=options.on_mismatch,
        )
