"""From options to partitions of streams on a server: ranges of offsets, shared out among tasks by their number.

A server does not say how many bytes lie between two offsets, so tasks are cut by messages; a chunk that two tasks share
is delivered to both, and each keeps what is its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.sql.datasource import InputPartition

from headgate.client import Client, ServerAddress
from headgate.errors import ConfigError, OffsetOutOfRangeError, ResourceNotFoundError
from headgate.log import OffsetKind, OffsetSpecification
from headgate.scan import OffsetRange, ScanRequest
from headgate.spark.options import SourceOptions
from headgate.spark.planning import START, Counting, refuse_behind_all
from headgate.spark.scans import Scan

_FEWEST_MESSAGES = 100_000
_MOST_MESSAGES = 10_000_000
_PARTITIONS_PER_CORE = 2


@dataclass(frozen=True, slots=True)
class ServerRange:
    """Offsets of one stream for one task; `identity` says which stream was planned for, None where nothing does."""

    stream: str
    within: OffsetRange
    identity: str | None = None


class ServerPartition(InputPartition):
    """What one task reads from a server, in the order of streams and offsets.

    The filter of `request` is evaluated by the server where it can, `filter_values` are always the server's.
    """

    def __init__(
        self,
        label: str,
        number: int,
        address: ServerAddress,
        ranges: tuple[ServerRange, ...],
        request: ScanRequest,
        counting: Counting | None,
        scan: Scan,
    ) -> None:
        super().__init__(f"{label}-{number}")
        self.number = number
        self.address = address
        self.ranges = ranges
        self.request = request
        self.counting = counting
        self.scan = scan


def server_of(options: SourceOptions) -> ServerAddress:
    """The server of options that name one."""
    assert options.server is not None
    return options.server


def check_server_streams(options: SourceOptions) -> None:
    """Raise the errors of `find_server_streams`, and of connecting."""
    with Client.connect(server_of(options), keep=True) as client:
        find_server_streams(client, options)


def find_server_streams(client: Client, options: SourceOptions) -> list[str]:
    """The streams of the options in their order; a super stream stands for its partitions.

    Raises ResourceNotFoundError for a name that is neither, ConfigError for a pattern: servers list no streams.
    """
    found: dict[str, None] = {}
    for name in options.streams:
        if any(character in name for character in "*?["):
            raise ConfigError(
                f"headgate source option stream: found the pattern {name!r}, expected names: a server lists no streams"
            )
        if client.has_stream(name):
            found[name] = None
        else:
            found |= dict.fromkeys(_partitions(client, name))
    return list(found)


def _partitions(client: Client, name: str) -> list[str]:
    try:
        partitions = client.partitions(name)
    except ResourceNotFoundError:
        partitions = []
    if not partitions:
        near = client.near_streams(name)
        raise ResourceNotFoundError(f"no stream and no super stream of that name{near}", subject=name)
    return partitions


def server_ranges(
    client: Client, options: SourceOptions, streams: Iterable[str], *, now_ms: int
) -> dict[str, OffsetRange]:
    """Per stream the offsets that `start` and `end` mean now. Raises OffsetOutOfRangeError for deleted ones."""
    start = options.start.resolve(now_ms)
    ranges = {}
    for stream in streams:
        first = client.resolve_offset(stream, OffsetSpecification.first())
        behind = client.resolve_offset(stream, OffsetSpecification.next())
        if start.kind is OffsetKind.OFFSET and start.value < first and options.fail_on_data_loss:
            raise lost(stream, start.value, first, client.address)
        stop = behind if options.end is None else client.resolve_offset(stream, options.end.resolve(now_ms))
        stop = max(first, min(stop, behind))
        ranges[stream] = OffsetRange(min(max(client.resolve_offset(stream, start), first), stop), stop)
    return ranges


def check_server_start(
    client: Client, options: SourceOptions, streams: Iterable[str], *, now_ms: int, subject: str = START
) -> None:
    """Raise ConfigError where a read that does not wait would begin behind the end of every stream that it reads."""
    start = options.start
    if start is None:
        return

    def check(stream: str) -> None:
        first = client.resolve_offset(stream, OffsetSpecification.first())
        behind = client.resolve_offset(stream, OffsetSpecification.next())
        begin = client.resolve_offset(stream, start.resolve(now_ms))
        start.check_not_behind(first, behind, begin=begin, now_ms=now_ms)

    refuse_behind_all(((stream, partial(check, stream)) for stream in streams), subject=subject)


def lost(stream: str, wanted: int, first: int, address: ServerAddress) -> OffsetOutOfRangeError:
    """The error for offsets that retention deleted before they were read."""
    return OffsetOutOfRangeError(
        f"offsets {wanted} to {first - 1} of stream {stream!r} were deleted by retention before they were read; "
        "to go on with what is left, set the option fail_on_data_loss to false",
        path=f"{address.place}/{stream}",
    )


def plan_server_partitions(
    options: SourceOptions,
    ranges: Mapping[str, OffsetRange],
    *,
    request: ScanRequest,
    label: str,
    scan: Scan | None = None,
    identities: Mapping[str, str | None] | None = None,
) -> list[ServerPartition]:
    """Some offset ranges as partitions; planning them again gives partitions of the same names.

    Their number is recorded in `scan`; `identities` are those of the streams that have one.
    """
    scan = scan or Scan()
    counting = None if options.counters is None else Counting(options.counters_root, options.counters)
    total = sum(within.stop - within.start for within in ranges.values())
    bundles = _shared_out(ranges, identities or {}, _messages_per_partition(total, options.partitions))
    scan.record(f"{label}-planning", {}, partitions=len(bundles))
    return [
        ServerPartition(label, number, server_of(options), tuple(bundle), request, counting, scan)
        for number, bundle in enumerate(bundles)
    ]


def _messages_per_partition(total: int, partitions: int | None) -> int:
    if partitions is not None:
        return max(1, -(-total // partitions))
    wanted = total // (_PARTITIONS_PER_CORE * (os.cpu_count() or 1))
    return min(max(wanted, _FEWEST_MESSAGES), _MOST_MESSAGES)


def _shared_out(
    ranges: Mapping[str, OffsetRange], identities: Mapping[str, str | None], size: int
) -> list[list[ServerRange]]:
    """The ranges cut into bundles of `size` messages, the last one smaller."""
    bundles: list[list[ServerRange]] = []
    room = 0
    for stream, within in ranges.items():
        start = within.start
        while start < within.stop:
            if room == 0:
                bundles.append([])
                room = size
            stop = min(within.stop, start + room)
            bundles[-1].append(ServerRange(stream, OffsetRange(start, stop), identities.get(stream)))
            room -= stop - start
            start = stop
    return bundles
