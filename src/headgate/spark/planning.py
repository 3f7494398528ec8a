"""From options to partitions: which streams, which offsets, stage 1, and how the rest is shared out among tasks.

Runs in short-lived Python processes beside the driver: no kernel is loaded here.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from pyspark.sql.datasource import InputPartition

from headgate import clock
from headgate.derived import sources_of
from headgate.errors import ConfigError, OffsetOutOfRangeError, StreamNotFoundError, StreamReplacedError
from headgate.log import (
    OffsetKind,
    OffsetSpecification,
    Stream,
    given_up_offsets,
    list_streams,
    resolve_stream,
    shown_root,
)
from headgate.message.arrow import check_bodies
from headgate.scan import (
    ChunkRange,
    OffsetRange,
    OnCorrupt,
    ScanCounters,
    ScanRequest,
    opened_within,
    plan,
    read_range,
    segments_within,
)
from headgate.spark.counters import record_counters
from headgate.spark.options import SourceOptions
from headgate.spark.pushdown import Pushed
from headgate.spark.scans import Scan

if TYPE_CHECKING:
    from headgate.spark.subscription import ReadChunks

_SMALLEST_PARTITION_BYTES = 32 << 20
_LARGEST_PARTITION_BYTES = 1 << 30
_RANGE_BYTES = 16 << 20
_PARTITIONS_PER_CORE = 2

NO_SCAN = Scan()
NOTHING_PUSHED = Pushed()

Piece: TypeAlias = tuple[ChunkRange, str | None]
"""Chunks, and the field from which the filter values of their stream come."""

START = "headgate source option start"
"""The subject of errors of `check_start`, unless the caller gives another."""


@dataclass(frozen=True, slots=True)
class Counting:
    """Where the tasks of a query leave their counters; see `counters`."""

    root: Path
    token: str

    def record(self, name: str, values: Mapping[str, int]) -> None:
        """Keep the counters of a task, a planning or a commit."""
        record_counters(self.root, self.token, name, values)


@dataclass
class ReadPartition(InputPartition):
    """The part of a read for one task, and its request, which carries the time of planning."""

    label: str
    number: int
    request: ScanRequest
    counting: Counting | None
    scan: Scan

    def __post_init__(self) -> None:
        super().__init__(f"{self.label}-{self.number}")


@dataclass
class ScanPartition(ReadPartition):
    """Ranges of chunks, in stream order, each with the field of its stream's filter values, or None.

    With a `subscription` the copies that their messages gave it are read.
    """

    pieces: tuple[Piece, ...]
    subscription: str | None = None

    def reading(self, counted: ScanCounters) -> AbstractContextManager[ReadChunks]:
        """The reader of the ranges; its counters are added to `counted`."""
        if self.subscription is None:
            return contextlib.nullcontext(lambda chunks: read_range(chunks, self.request, counted))
        from headgate.spark.subscription import SubscriptionRead

        return SubscriptionRead(self.subscription, self.request, counted)


def now_ms(options: SourceOptions) -> int:
    """The time of planning, or `as_of` of the options."""
    return clock.now_ms() if options.as_of_ms is None else options.as_of_ms


def scan_request(options: SourceOptions, *, now_ms: int) -> ScanRequest:
    """The request for each stream, from the options."""
    return ScanRequest(
        filter=options.filter,
        filter_values=options.filter_values,
        match_unfiltered=options.match_unfiltered,
        now_ms=now_ms,
        verify_checksums=options.verify_crc,
        on_corrupt=OnCorrupt.SKIP if options.skip_corrupt else OnCorrupt.FAIL,
        sources=sources_of(match_index=options.match_index, columns=options.column_files),
    )


class ReadableStream(Protocol):
    """A stream that is read: of a folder (`headgate.log.Stream`), or of a server."""

    @property
    def name(self) -> str:
        """The name in errors."""

    @property
    def place(self) -> str:
        """Where it is, for errors."""

    @property
    def identity(self) -> str | None:
        """The identity that differs for another stream of the same name; None where unknown."""

    def first_offset(self) -> int:
        """The first offset kept."""

    def next_offset(self) -> int:
        """The offset behind everything written."""

    def offset_of(self, specification: OffsetSpecification, *, now_ms: int) -> int:
        """The offset that a place in it is now, between the two."""


S = TypeVar("S", bound=ReadableStream)


class Location(ABC, Generic[S]):
    """Where the streams of a read are: folders, or a server."""

    takes_only_offsets: ClassVar[bool] = False
    """Whether only comparisons of offsets are used of the filters that Spark pushes down."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    @abstractmethod
    def streams(self) -> AbstractContextManager[Mapping[str, S]]:
        """The streams of the options in their order, by a key that stays the same; of use until the block ends."""

    @abstractmethod
    def batch_end(self, stream: S, within: OffsetRange, *, max_messages: int | None, max_bytes: int | None) -> int:
        """Where a batch that begins at `within.start` ends within the limits; they count before any filter."""

    @abstractmethod
    def partitions(
        self,
        streams: Mapping[str, S],
        ranges: Mapping[str, OffsetRange],
        *,
        now_ms: int,
        label: str,
        scan: Scan,
        pushed: Pushed,
        identities: Mapping[str, str | None],
    ) -> Sequence[ReadPartition]:
        """Offset ranges as partitions, in stream and offset order.

        `label` names this piece of work; planning it again gives partitions of the same names. Counters of planning are
        recorded in `scan`. `identities` names the streams that the offsets belong to, where that has to be watched.
        """

    @property
    def counting(self) -> Counting | None:
        """Where counters are left, if they are wanted."""
        options = self.options
        return None if options.counters is None else Counting(options.counters_root, options.counters)


class FolderLocation(Location[Stream]):
    """Streams in folders: tasks read the chunks that stage 1 leaves."""

    @contextlib.contextmanager
    def streams(self) -> Iterator[Mapping[str, Stream]]:
        """See `find_streams`."""
        yield find_streams(self.options)

    def batch_end(self, stream: Stream, within: OffsetRange, *, max_messages: int | None, max_bytes: int | None) -> int:
        """See `chunk_end`."""
        return chunk_end(stream, within, max_messages=max_messages, max_bytes=max_bytes)

    def partitions(
        self,
        streams: Mapping[str, Stream],
        ranges: Mapping[str, OffsetRange],
        *,
        now_ms: int,
        label: str,
        scan: Scan = NO_SCAN,
        pushed: Pushed = NOTHING_PUSHED,
        identities: Mapping[str, str | None] = MappingProxyType({}),
    ) -> list[ScanPartition]:
        """Ranges of chunks; segments know themselves which stream they are of."""
        options, counting = self.options, self.counting
        request = scan_request(options, now_ms=now_ms)
        # An action may have changed the fields that a filter of copies tests, so that filter does not choose chunks.
        choosing = replace(request, known_values=tuple(pushed.values))
        if options.subscription is not None:
            choosing = replace(request, filter=None)
        pieces: list[Piece] = []
        counted = ScanCounters()
        range_bytes = _range_bytes(((streams[key], within) for key, within in ranges.items()), options.partitions)
        for key, within in ranges.items():
            stream = streams[key]
            check_bodies(options.fields, stream.body_schema)
            planned = plan(stream, choosing, within, range_bytes=range_bytes)
            source = None if stream.settings is None else stream.settings.filter_source
            found = map(pushed.chunks_in_time, planned.ranges)
            pieces.extend((chunks, source) for chunks in found if len(chunks.rows))
            counted.add(planned.counters)
        if counting is not None:
            counting.record(f"{label}-planning", counted.as_dict())
        bundles = _bundled(pieces, options.partitions)
        scan.record(f"{label}-planning", counted.as_dict(), partitions=len(bundles))
        return [
            ScanPartition(label, number, request, counting, scan, tuple(bundle), options.subscription)
            for number, bundle in enumerate(bundles)
        ]


def find_streams(options: SourceOptions) -> dict[str, Stream]:
    """The streams of the options in their order, by a key that stays the same: the name, or the path as it was given.

    A pattern may match no stream if another entry finds one. Raises StreamNotFoundError otherwise, RuleNotFoundError
    for a missing topic or subscription.
    """
    if options.subscription is not None:
        return _topic_of(options.subscription, options)
    found: dict[str, Stream] = {}
    for text in options.streams:
        try:
            found.setdefault(text, resolve_stream(text, options.root))
        except StreamNotFoundError:
            if not any(character in text for character in "*?["):
                raise
            found |= {key: stream for key, stream in _matching(text, options.root) if key not in found}
    if not found:
        raise StreamNotFoundError(f"no stream matches {', '.join(options.streams)}", path=shown_root(options.root))
    return found


def _topic_of(subscription: str, options: SourceOptions) -> dict[str, Stream]:
    from headgate.topic import RoutersInForce, topic_stream

    (name,) = options.streams
    stream = topic_stream(options.root, name)
    RoutersInForce.of(stream.path, subscription).history.lives(subscription, 0, 0)
    return {name: stream}


def _matching(pattern: str, root: Path) -> Iterable[tuple[str, Stream]]:
    if os.sep not in pattern:
        for stream in list_streams(root):
            if fnmatchcase(stream.name, pattern):
                yield stream.name, stream
        return
    for path in sorted(glob.glob(pattern)):
        try:
            yield path, Stream.open(path)
        except StreamNotFoundError:
            continue


def batch_ranges(
    options: SourceOptions, streams: Mapping[str, ReadableStream], *, now_ms: int
) -> dict[str, OffsetRange]:
    """Per stream the offsets that `start` and `end` mean now. Raises OffsetOutOfRangeError for deleted ones."""
    start, end = options.start, options.end
    ranges = {}
    for key, stream in streams.items():
        stop = stream.next_offset() if end is None else stream.offset_of(end, now_ms=now_ms)
        ranges[key] = OffsetRange(min(stream.offset_of(start, now_ms=now_ms), stop), stop)
        if start.kind is OffsetKind.OFFSET and start.value < stream.first_offset() and options.fail_on_data_loss:
            raise gone(stream, start.value, stream.first_offset())
    return ranges


def ends_as_of(options: SourceOptions) -> SourceOptions:
    """The options of a batch read: a subscription's copies as of a time come from messages that had arrived by then."""
    if options.subscription is None or options.end is not None or options.as_of_ms is None:
        return options
    return replace(options, end=OffsetSpecification.timestamp(options.as_of_ms + 1))


def check_start(
    options: SourceOptions, streams: Iterable[ReadableStream], *, now_ms: int, subject: str = START
) -> None:
    """Raise ConfigError where a read that does not wait would begin behind the end of every stream that it reads."""
    start = options.start
    refused: list[ConfigError] = []
    for stream in streams:
        first, behind, begin = stream.first_offset(), stream.next_offset(), stream.offset_of(start, now_ms=now_ms)
        try:
            start.check_not_behind(first, behind, begin=begin, now_ms=now_ms)
        except ConfigError as error:
            refused.append(ConfigError(f"{subject}: stream {stream.name!r}: {error}"))
        else:
            return
    if refused:
        raise refused[0]


def check_not_given_up(stream: ReadableStream, begin: int, stop: int) -> None:
    """Raise OffsetOutOfRangeError if a repair gave up messages that a query has not read."""
    for first, behind in given_up_offsets(stream.path) if isinstance(stream, Stream) else ():
        if first < stop and behind > begin:
            raise OffsetOutOfRangeError(
                f"the offsets {first} to {behind - 1} of stream {stream.name!r} were damaged and given up before they "
                "were read; to go on without them, set the option fail_on_data_loss to false",
                path=stream.place,
            )


def gone(stream: ReadableStream, wanted: int, first: int) -> OffsetOutOfRangeError:
    """The error for offsets that retention deleted before they were read."""
    return OffsetOutOfRangeError(
        f"offsets {wanted} to {first - 1} of stream {stream.name!r} were deleted by retention before they were read; "
        "to go on with what is left, set the option fail_on_data_loss to false",
        path=stream.place,
    )


class StreamReplacedWarning(UserWarning):
    """A streaming read begins anew, because another stream has the name of the one it read."""


def begins_anew(stream: str, read: str | None, there: str | None, *, path: str | Path, fails: bool) -> bool:
    """Whether a query that read the stream with the identity `read` finds another one; None: not known.

    Raises StreamReplacedError for another one if `fails`, else gives a StreamReplacedWarning.
    """
    if read is None or there is None or read == there:
        return False
    found = (
        f"the query has read stream {stream!r} with the identity {read}, which was deleted and created again with the "
        f"identity {there}"
    )
    if fails:
        raise StreamReplacedError(
            f"{found}; to begin at the first message of the new one, set the option fail_on_data_loss to false, or "
            "start the query with a new checkpoint",
            path=path,
        )
    warnings.warn(f"{path}: {found}; it begins at the first message of that", StreamReplacedWarning, stacklevel=2)
    return True


def _bundled(pieces: list[Piece], partitions: int | None) -> list[list[Piece]]:
    """Neighbouring pieces together, so that there are `partitions` of about the same size, or fewer."""
    total = sum(chunks.size_bytes for chunks, _ in pieces)
    if partitions is None:
        cores = os.cpu_count() or 1
        wanted = total // (_PARTITIONS_PER_CORE * cores)
        size = min(max(wanted, _SMALLEST_PARTITION_BYTES), _LARGEST_PARTITION_BYTES)
        partitions = max(1, -(-total // size))
        if partitions > cores:
            # In the last round of tasks every core has one.
            partitions -= partitions % cores
    bundles: dict[int, list[Piece]] = {}
    before = 0
    for piece in pieces:
        middle = before + piece[0].size_bytes // 2
        bundles.setdefault(middle * partitions // total, []).append(piece)
        before += piece[0].size_bytes
    return list(bundles.values())


def _range_bytes(streams: Iterable[tuple[Stream, OffsetRange]], partitions: int | None) -> int:
    if partitions is None:
        return _RANGE_BYTES
    total = 0
    for stream, within in streams:
        total += sum(segment.segment_bytes() for segment in segments_within(stream.segments(), within))
    return min(_RANGE_BYTES, max(1, total // partitions))


def chunk_end(stream: Stream, within: OffsetRange, *, max_messages: int | None, max_bytes: int | None) -> int:
    """Where a batch that begins at `within.start` ends within the limits: at a chunk's end, behind one at least.

    Messages and bytes count as they lie in the stream, before any filter.
    """
    size_before = 0
    for reader, first, stop in opened_within(stream, within):
        if stop <= first or reader.next_chunk_id <= within.start:
            continue
        ends = reader.next_chunk_ids()[first:stop]
        sizes = (reader.stop_positions() - reader.chunks().position)[first:stop]
        sizes_up_to = size_before + np.cumsum(sizes)
        beyond = np.zeros(len(ends), dtype=np.bool_)
        if max_messages is not None:
            beyond |= ends - within.start > max_messages
        if max_bytes is not None:
            beyond |= sizes_up_to > max_bytes
        if beyond.any():
            row = int(beyond.argmax())
            begin = int(reader.chunks().chunk_id[first + row])
            return min(begin if begin > within.start else int(ends[row]), within.stop)
        size_before = int(sizes_up_to[-1])
    return within.stop


def refuse_streaming_options(options: SourceOptions) -> None:
    """ConfigError for options that only a streaming query can follow."""
    for name in ("max_messages_per_batch", "max_bytes_per_batch"):
        if getattr(options, name) is not None:
            raise ConfigError(f"headgate source option {name}: a batch read has no batches to limit; leave it out")


def range_digest(ranges: Mapping[str, OffsetRange]) -> str:
    """A short name for pieces of work: the same offsets of the same streams have the same."""
    text = json.dumps({key: [within.start, within.stop] for key, within in ranges.items()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
