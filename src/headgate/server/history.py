"""The last quarter of an hour of the server in numbers, for the charts of its console: a sample every five seconds.

Samples are kept as counted; rates are made when somebody asks. Only streams and topics that are open are counted: a
closed one changes no counter. A sample costs microseconds per open stream, subscription and consumer.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields

import msgspec

from headgate.broker import Broker, Consumer, ReadingCounters
from headgate.server.connections import Connections
from headgate.server.listings import consumer_counts, consumers, largest_lags
from headgate.server.topics import subscription_infos

INTERVAL_S = 5.0
SAMPLES = 180
"""A quarter of an hour."""

Series = list[float | None]


class HistoryAnswer(msgspec.Struct, frozen=True):
    """Series by name, each as long as `times_ms`. A value is null where it is not known, as a rate at first."""

    times_ms: list[int]
    series: dict[str, Series]
    interval_ms: int = int(INTERVAL_S * 1000)


@dataclass(slots=True)
class StreamSample:
    """Counters of one stream at one time; all of them only grow while it is open."""

    published: int = 0
    delivered: int = 0
    published_bytes: int = 0
    delivered_bytes: int = 0
    stage_1_spared_bytes: int = 0
    stage_2_removed: int = 0

    def add(self, other: StreamSample) -> None:
        """Add the counters of another stream."""
        for counter in _COUNTERS:
            setattr(self, counter, getattr(self, counter) + getattr(other, counter))


_COUNTERS = tuple(each.name for each in fields(StreamSample))


@dataclass(slots=True)
class Sample:
    """The whole server at one time. `worst_lag` is None while the messages of its streams are not counted."""

    counters: StreamSample = field(default_factory=StreamSample)
    rule_failures: int = 0
    worst_lag: int | None = None
    dead_letters: int = 0
    held_back_connections: int = 0
    connections: int = 0
    consumers: int = 0


class _Ring:
    """The samples of one stream: one row of counters each, without an object per number."""

    def __init__(self, first: int) -> None:
        self.first = first
        """The number of the first sample that is kept."""
        self._rows: deque[array[int]] = deque(maxlen=SAMPLES)

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, sample: StreamSample) -> None:
        if len(self._rows) == SAMPLES:
            self.first += 1
        self._rows.append(array("q", (getattr(sample, counter) for counter in _COUNTERS)))

    def column(self, name: str) -> list[int]:
        place = _COUNTERS.index(name)
        return [row[place] for row in self._rows]


class History:
    """Samples of one server; in the thread of its loop."""

    def __init__(
        self, broker: Broker, connections: Connections, now_ms: Callable[[], int], *, has_counted: Callable[[], bool]
    ) -> None:
        self._broker = broker
        self._connections = connections
        self._now_ms = now_ms
        self._has_counted = has_counted
        self._times_ms: deque[int] = deque(maxlen=SAMPLES)
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._streams: dict[str, _Ring] = {}
        self._taken = 0
        """Samples so far, the forgotten ones included."""

    def sample(self) -> None:
        """Take a sample, now."""
        whole = Sample(worst_lag=max(largest_lags(self._broker).values(), default=0) if self._has_counted() else None)
        found = dict(self._stream_samples())
        for name, sample in found.items():
            whole.counters.add(sample)
            ring = self._streams.get(name)
            if ring is None:
                ring = self._streams[name] = _Ring(self._taken)
            ring.append(sample)
        for name in self._streams.keys() - found.keys():
            del self._streams[name]
        for topic, infos in subscription_infos(self._broker):
            whole.rule_failures += topic.counters.rule_failures
            for info in infos:
                whole.dead_letters += info.dead_lettered or 0
        records = list(self._connections)
        whole.connections = len(records)
        whole.held_back_connections = sum(not record.is_read for record in records)
        whole.consumers = sum(consumer_counts(self._broker).values())
        self._times_ms.append(self._now_ms())
        self._samples.append(whole)
        self._taken += 1

    def series(self) -> HistoryAnswer:
        """Times and series of the whole server; a rate is None at the first sample."""
        gauges = ("worst_lag", "dead_letters", "held_back_connections", "connections", "consumers")
        counters = {name: [getattr(each.counters, name) for each in self._samples] for name in _COUNTERS}
        counters["rule_failures"] = [each.rule_failures for each in self._samples]
        found: dict[str, Series] = {name: [getattr(each, name) for each in self._samples] for name in gauges}
        times = list(self._times_ms)
        return HistoryAnswer(times, {**self._rates(times, counters), **found})

    def stream_series(self, name: str) -> HistoryAnswer:
        """The same of one stream, from when it was opened; empty for a stream that is not open."""
        ring = self._streams.get(name)
        times = [] if ring is None else list(self._times_ms)[-len(ring) :]
        counters = {} if ring is None else {counter: ring.column(counter) for counter in _COUNTERS}
        return HistoryAnswer(times, self._rates(times, counters))

    @staticmethod
    def _rates(times_ms: Sequence[int], counters: Mapping[str, Sequence[int]]) -> dict[str, Series]:
        return {f"{name}_per_s": list(_rate(times_ms, counted)) for name, counted in counters.items()}

    def _stream_samples(self) -> Iterator[tuple[str, StreamSample]]:
        members: dict[str, list[Consumer]] = {}
        for _session, consumer in consumers(self._broker):
            members.setdefault(consumer.stream, []).append(consumer)
        copies = dict(self._delivered_copies())
        for stream in self._broker.catalogue:
            read = ReadingCounters.of(members.get(stream.name, ()))
            read.include(stream.ended)
            delivered, delivered_bytes = copies.get(stream.name, (0, 0))
            yield (
                stream.name,
                StreamSample(
                    stream.counters.messages_published,
                    read.delivered_messages + delivered,
                    stream.counters.bytes_published,
                    read.delivered_bytes + delivered_bytes,
                    read.scan.bytes_skipped,
                    read.scan.messages_evaluated - read.scan.messages_matched,
                ),
            )

    def _delivered_copies(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Copies given out of each topic's subscriptions, and messages of each stream given to consumer groups."""
        for topic, infos in subscription_infos(self._broker):
            counted = [info.counters for info in infos]
            yield topic.stream.name, (_sum(counted, "delivered"), _sum(counted, "delivered_bytes"))
        groups: dict[str, tuple[int, int]] = {}
        for view in self._broker.consumer_groups.views.known():
            delivered, size_bytes = groups.get(view.stream.name, (0, 0))
            counters = view.counters
            groups[view.stream.name] = delivered + counters.delivered, size_bytes + counters.delivered_bytes
        yield from groups.items()


def _sum(counted: Iterable[object], name: str) -> int:
    return sum(getattr(each, name) for each in counted)


def _rate(times_ms: Sequence[int], counted: Sequence[int]) -> Iterator[float | None]:
    """Growth per second since the sample before; None at the first one, and where a counter fell: its stream left."""
    before: tuple[int, int] | None = None
    for at, count in zip(times_ms, counted, strict=True):
        if before is None or count < before[1] or at <= before[0]:
            yield None
        else:
            yield round((count - before[1]) * 1000 / (at - before[0]), 3)
        before = at, count
