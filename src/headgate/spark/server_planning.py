"""From options to partitions of streams on a server: ranges of offsets, shared out among tasks by their number.

A server does not say how many bytes lie between two offsets, so tasks are cut by messages; a chunk that two tasks share
is delivered to both, and each keeps its own messages.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from headgate.client import Client, ServerAddress
from headgate.errors import ConfigError, ResourceNotFoundError
from headgate.log import OffsetSpecification
from headgate.scan import OffsetRange
from headgate.spark.options import SourceOptions
from headgate.spark.planning import NO_SCAN, NOTHING_PUSHED, Location, ReadPartition, scan_request
from headgate.spark.pushdown import Pushed
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


@dataclass
class ServerPartition(ReadPartition):
    """Ranges of offsets, in the order of streams and offsets.

    The filter of `request` is evaluated by the server where it can, `filter_values` are always the server's.
    """

    address: ServerAddress
    ranges: tuple[ServerRange, ...]


@dataclass(frozen=True)
class ServerStream:
    """A stream of a server; each fact is requested once, when it is first needed."""

    client: Client
    name: str

    @property
    def place(self) -> str:
        """The server's address and the name."""
        return f"{self.client.address.place}/{self.name}"

    @cached_property
    def identity(self) -> str | None:
        """The identity that differs for another stream of the same name; only Headgate servers give it."""
        return self.client.statistics(self.name).identity if self.client.is_headgate else None

    @cached_property
    def _ends(self) -> tuple[int, int]:
        places = (OffsetSpecification.first(), OffsetSpecification.next())
        first, behind = (self.client.resolve_offset(self.name, place) for place in places)
        return first, behind

    def first_offset(self) -> int:
        """The first offset kept."""
        return self._ends[0]

    def next_offset(self) -> int:
        """The offset behind everything written."""
        return self._ends[1]

    def offset_of(self, specification: OffsetSpecification, *, now_ms: int) -> int:
        """The offset that a place is now, between the two."""
        first, behind = self._ends
        return min(max(self.client.resolve_offset(self.name, specification.resolve(now_ms)), first), behind)


class ServerLocation(Location[ServerStream]):
    """Streams of a server: tasks read ranges of offsets."""

    takes_only_offsets = True

    @property
    def _address(self) -> ServerAddress:
        assert self.options.server is not None
        return self.options.server

    @contextlib.contextmanager
    def streams(self) -> Iterator[Mapping[str, ServerStream]]:
        """See `find_server_streams`; the client is connected until the block ends."""
        with Client.connect(self._address, keep=True) as client:
            yield {name: ServerStream(client, name) for name in find_server_streams(client, self.options)}

    def batch_end(
        self, stream: ServerStream, within: OffsetRange, *, max_messages: int | None, max_bytes: int | None
    ) -> int:
        """A server does not say where chunks end, nor how many bytes they have."""
        return within.stop if max_messages is None else min(within.stop, within.start + max_messages)

    def partitions(
        self,
        streams: Mapping[str, ServerStream],
        ranges: Mapping[str, OffsetRange],
        *,
        now_ms: int,
        label: str,
        scan: Scan = NO_SCAN,
        pushed: Pushed = NOTHING_PUSHED,
        identities: Mapping[str, str | None] = MappingProxyType({}),
    ) -> list[ServerPartition]:
        """Ranges of offsets; already deleted offsets are left out."""
        kept = {}
        for name, within in ranges.items():
            start = max(within.start, streams[name].first_offset())
            kept[name] = OffsetRange(start, max(start, within.stop))
        total = sum(within.stop - within.start for within in kept.values())
        bundles = _shared_out(kept, identities, _messages_per_partition(total, self.options.partitions))
        scan.record(f"{label}-planning", {}, partitions=len(bundles))
        request = scan_request(self.options, now_ms=now_ms)
        return [
            ServerPartition(label, number, request, self.counting, scan, self._address, tuple(bundle))
            for number, bundle in enumerate(bundles)
        ]


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
