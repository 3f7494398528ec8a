"""The data source `headgate` for reading: `spark.read` and `spark.readStream`.

Planning runs stage 1 on index files and chunk headers; tasks run stage 2. `UTC()` is the time of planning; it travels
with the partitions of a batch read, with the offsets of a streaming query: a repeated task or batch gives the same
rows.
"""
# ruff: noqa: N802 - Spark gives the methods their names

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headgate.errors import ConfigError, OffsetOutOfRangeError
from headgate.log import shown_root
from headgate.scan import OffsetRange
from headgate.spark.counters import fold_counters
from headgate.spark.interpreter import keep_imports
from headgate.spark.options import SourceOptions
from headgate.spark.planning import (
    NOTHING_PUSHED,
    FolderLocation,
    Location,
    ReadableStream,
    ReadPartition,
    batch_ranges,
    begins_anew,
    check_not_given_up,
    check_start,
    ends_as_of,
    gone,
    now_ms,
    range_digest,
    refuse_streaming_options,
)
from headgate.spark.pushdown import Pushed
from headgate.spark.scans import Scan
from headgate.spark.schema import check_schema, options_in, stream_schema, with_options
from headgate.spark.sink import BatchSink, StreamSink, sink_for
from headgate.spark.worker_errors import stream_reader, told_briefly

if TYPE_CHECKING:
    import pyarrow as pa


@told_briefly
class HeadgateSource(DataSource):
    """Streams as DataFrames; options and columns: `docs/reference/spark-source.md`."""

    scans: str | None = None
    """The folder of the session's reads, in the class that is registered with a session."""

    @classmethod
    def recording(cls, scans: str) -> type[HeadgateSource]:
        """This source for one session. Spark pickles a class that is in no module by value, with its folder."""
        return type(cls.__name__, (cls,), {"scans": scans, "__module__": __name__})

    @classmethod
    def name(cls) -> str:
        """`format("headgate")`."""
        return "headgate"

    def schema(self) -> StructType:
        """The asked columns; called once when a DataFrame is made, so wrong options are refused then."""
        options = SourceOptions.parse(self.options)
        with _location_of(options).streams():
            pass
        schema = stream_schema(options.columns, options.properties)
        return with_options(schema, self.options) if "provider" in self.options else schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        return BatchReader(schema, self.options or options_in(schema), Scan(self.scans))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming read."""
        return stream_reader(lambda: StreamReader(schema, self.options or options_in(schema), Scan(self.scans)))

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        """A batch write. Raises ConfigError."""
        if not self.options:
            # Spark does not give the options of a table to its writer.
            raise ConfigError("a table is for reading; write with df.write.format('headgate'), which takes options")
        return BatchSink(sink_for(schema, self.options, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        """A streaming write."""
        return StreamSink(sink_for(schema, self.options, overwrite=overwrite))


@told_briefly
class HeadgateSourceWithPushdown(HeadgateSource):
    """The same where Spark pushes filters down; Spark refuses this one where it does not."""

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read that takes comparisons of `offset`."""
        return PushdownReader(schema, self.options or options_in(schema), Scan(self.scans))


def _location_of(options: SourceOptions) -> Location[Any]:
    """Where the streams of some options are."""
    if options.server is None:
        return FolderLocation(options)
    from headgate.spark.server_planning import ServerLocation

    return ServerLocation(options)


@told_briefly
class _Reader:
    """The common part of batch and streaming reads. Raises ConfigError, FilterError."""

    def __init__(self, schema: StructType, options: Mapping[str, str], scan: Scan | None = None) -> None:
        self._options = SourceOptions.parse(options)
        self._scan = scan or Scan()
        self._location = _location_of(self._options)
        self._refuse_options()
        self._schema = schema
        self._properties = check_schema(schema, self._options.properties, self._options.columns)

    def _refuse_options(self) -> None:
        raise NotImplementedError

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition; called once per attempt of a task."""
        from headgate.spark.reader import record_batches

        keep_imports()
        # Spark makes a partition of nothing out of an empty plan.
        if isinstance(partition, ReadPartition):
            yield from record_batches(
                partition,
                self._schema,
                self._properties,
                fields=self._options.fields,
                skip_lost=not self._options.fail_on_data_loss,
                on_mismatch=self._options.on_mismatch,
            )


@told_briefly
class BatchReader(_Reader, DataSourceReader):
    """One batch read, planned once. The time of planning is that at which the reader was made."""

    def __init__(self, schema: StructType, options: Mapping[str, str], scan: Scan | None = None) -> None:
        super().__init__(schema, options, scan)
        self._options = ends_as_of(self._options)
        self._now_ms = now_ms(self._options)
        self._pushed = Pushed.of(self._options.fields)

    def _refuse_options(self) -> None:
        refuse_streaming_options(self._options)

    def partitions(self) -> Sequence[InputPartition]:
        """The partitions for the tasks; called once, while the query is planned."""
        keep_imports()
        with self._location.streams() as streams:
            check_start(self._options, streams.values(), now_ms=self._now_ms)
            # Before the ranges: they are of these streams, or of others that were made since.
            identities = {key: stream.identity for key, stream in streams.items()}
            found = batch_ranges(self._options, streams, now_ms=self._now_ms)
            ranges = {key: self._pushed.narrowed(within) for key, within in found.items()}
            self._scan.plan(ranges, self._pushed.descriptions)
            label = f"batch-{range_digest(ranges)}"
            return self._location.partitions(
                streams,
                ranges,
                now_ms=self._now_ms,
                label=label,
                scan=self._scan,
                pushed=self._pushed,
                identities=identities,
            )


@told_briefly
class PushdownReader(BatchReader):
    """A batch read that narrows its offsets and times by the filters that Spark pushes down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Use comparisons of offset, timestamp, filter value and text fields; give back the rest for Spark.

        A read from a server uses comparisons of the offset only.
        """
        for pushed in filters:
            if self._location.takes_only_offsets and getattr(pushed, "attribute", None) != ("offset",):
                yield pushed
            else:
                yield from self._pushed.take([pushed])


@told_briefly
class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One streaming read. Offsets of a query are `{"now_ms": time of planning, "next": {stream: next offset}}`.

    And `"identity": {stream: identity}`: which stream it was that was read so far, as far as that is known.
    """

    def __init__(self, schema: StructType, options: Mapping[str, str], scan: Scan | None = None) -> None:
        super().__init__(schema, options, scan)
        self._target: dict[str, int] | None = None

    def _refuse_options(self) -> None:
        if self._options.end is not None:
            raise ConfigError("headgate source option end: a streaming read has no end; use a trigger, or a batch read")

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins: the option `start`, by default the first message kept."""
        time_ms = now_ms(self._options)
        with self._location.streams() as streams:
            ranges = batch_ranges(self._options, streams, now_ms=time_ms)
            return _offsets(time_ms, {key: within.start for key, within in ranges.items()}, streams)

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of the options, if there is one; both apply if there are two."""
        if self._options.max_messages_per_batch is not None:
            return ReadMaxRows(self._options.max_messages_per_batch)
        if self._options.max_bytes_per_batch is not None:
            return ReadMaxBytes(self._options.max_bytes_per_batch)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the read: the present ends of the existing streams."""
        with self._location.streams() as streams:
            self._target = {key: stream.next_offset() for key, stream in streams.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch, at the end of a chunk where chunks are known; `start` when there is nothing new.

        A limit counts messages or bytes of the stream before any filter, is shared evenly by the streams, and allows
        each at least one chunk.
        """
        begins: dict[str, int] = dict(start["next"])
        ends: dict[str, int] = {}
        with self._location.streams() as streams:
            for key, stream in streams.items():
                begin, read = begins.get(key, 0), start["identity"].get(key)
                stop = stream.next_offset()
                if self._target is not None:
                    stop = min(stop, self._target.get(key, 0))
                if self._begins_anew(key, stream, read):
                    begins[key] = 0
                    ends[key] = stop
                elif stop != begin:
                    ends[key] = stop
                    if begin > stop and self._options.fail_on_data_loss:
                        raise _cut_back(key, stream, begin, stop, is_known=read is not None)
            if not ends:
                return start
            if not isinstance(limit, ReadAllAvailable):
                share = len(ends)
                ends = {key: self._limited(streams[key], begins.get(key, 0), stop, share) for key, stop in ends.items()}
            offsets = _offsets(now_ms(self._options), ends, streams)
        return {**offsets, **{part: {**start[part], **offsets[part]} for part in ("next", "identity")}}

    def _begins_anew(self, key: str, stream: ReadableStream, read: str | None) -> bool:
        fails = self._options.fail_on_data_loss
        return begins_anew(key, read, stream.identity, path=stream.place, fails=fails)

    def _limited(self, stream: ReadableStream, begin: int, stop: int, share: int) -> int:
        messages, size = self._options.max_messages_per_batch, self._options.max_bytes_per_batch
        first = stream.first_offset()
        return self._location.batch_end(
            stream,
            OffsetRange(first if begin > stop else max(begin, first), stop),
            max_messages=None if messages is None else max(1, messages // share),
            max_bytes=None if size is None else max(1, size // share),
        )

    def reportLatestOffset(self) -> dict[str, Any]:
        """The ends of the streams, for the query's progress."""
        with self._location.streams() as streams:
            return _offsets(now_ms(self._options), {key: each.next_offset() for key, each in streams.items()}, streams)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The partitions between two offsets; also of an earlier run, then with that run's time."""
        ranges: dict[str, OffsetRange] = {}
        with self._location.streams() as streams:
            for key, stop in end["next"].items():
                read, planned = start["identity"].get(key), end["identity"].get(key)
                is_new = key not in start["next"] or (None not in (read, planned) and read != planned)
                begin = 0 if is_new else start["next"][key]
                if begin == stop:
                    continue
                if key not in streams:
                    raise OffsetOutOfRangeError(
                        f"stream {key!r} is gone, but its offsets {begin} to {stop} are not read yet",
                        path=shown_root(self._options.root),
                    )
                if self._begins_anew(key, streams[key], planned):
                    continue
                first = streams[key].first_offset()
                if begin > stop:
                    begin = first
                elif begin < first and not is_new and self._options.fail_on_data_loss:
                    raise gone(streams[key], begin, first)
                elif not is_new and self._options.fail_on_data_loss:
                    check_not_given_up(streams[key], begin, stop)
                ranges[key] = OffsetRange(begin, max(begin, stop))
            self._scan.plan(ranges, ())
            return self._location.partitions(
                streams,
                ranges,
                now_ms=int(end["now_ms"]),
                label=f"stream-{range_digest(ranges)}",
                scan=self._scan,
                pushed=NOTHING_PUSHED,
                identities=end["identity"],
            )

    def commit(self, end: dict[str, Any]) -> None:
        """Batches up to `end` are done: their counters can be summed up."""
        if self._options.counters is not None:
            fold_counters(self._options.counters_root, self._options.counters)
        self._scan.fold()


def _offsets(time_ms: int, ends: Mapping[str, int], streams: Mapping[str, ReadableStream]) -> dict[str, Any]:
    identities = {key: streams[key].identity for key in ends}
    known = {key: identity for key, identity in identities.items() if identity is not None}
    return {"now_ms": time_ms, "next": dict(ends), "identity": known}


def _cut_back(key: str, stream: ReadableStream, begin: int, stop: int, *, is_known: bool) -> OffsetOutOfRangeError:
    what = "cut back" if is_known else "deleted and made again, or cut back"
    return OffsetOutOfRangeError(
        f"the query has read stream {key!r} up to offset {begin}, but it ends at {stop} now: it was {what}; to begin "
        "again at its first message, set the option fail_on_data_loss to false",
        path=stream.place,
    )
