"""The last quarter of an hour of the server in numbers, for the charts of its console: a sample every five seconds.

Samples are kept as counted; rates are made when somebody asks. Only streams and topics that are open are counted: a
closed one changes no counter. A sample costs microseconds per open stream, subscription and consumer.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from headgate.broker import Broker
from headgate.server.connections import Connections
from headgate.server.listings import consumer_counts, consumers_by_stream, largest_lags
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


_COUNTERS = (
    "published",
    "delivered",
    "published_bytes",
    "delivered_bytes",
    "stage_1_spared_bytes",
    "stage_2_removed",
)
"""Counters of one stream, in the order of its samples; all of them only grow while it is open."""


@dataclass(slots=True)
class Sample:
    """The whole server at one time. `worst_lag` is None while the messages of its streams are not counted."""

    counters: array[int]
    """The sums of those of streams."""
    rule_failures: int = 0
    worst_lag: int | None = None
    dead_letters: int = 0
    held_back_connections: int = 0
    connections: int = 0
    consumers: int = 0


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
        self._streams: dict[str, deque[array[int]]] = {}
        """The samples of each open stream, since it was opened: one row of counters each, not an object per number."""

    def sample(self) -> None:
        """Take a sample, now."""
        found = dict(self._stream_samples())
        for name, sample in found.items():
            self._streams.setdefault(name, deque(maxlen=SAMPLES)).append(sample)
        for name in self._streams.keys() - found.keys():
            del self._streams[name]
        whole = Sample(array("q", (sum(each) for each in zip(*found.values(), strict=True))) or _nothing())
        if self._has_counted():
            whole.worst_lag = max(largest_lags(self._broker).values(), default=0)
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

    def series(self) -> HistoryAnswer:
        """Times and series of the whole server; a rate is None at the first sample."""
        gauges = ("worst_lag", "dead_letters", "held_back_connections", "connections", "consumers")
        counters = _columns([each.counters for each in self._samples])
        counters["rule_failures"] = [each.rule_failures for each in self._samples]
        found: dict[str, Series] = {name: [getattr(each, name) for each in self._samples] for name in gauges}
        times = list(self._times_ms)
        return HistoryAnswer(times, {**self._rates(times, counters), **found})

    def stream_series(self, name: str) -> HistoryAnswer:
        """The same of one stream, from when it was opened; empty for a stream that is not open."""
        rows = self._streams.get(name, ())
        times = list(self._times_ms)[len(self._times_ms) - len(rows) :]
        return HistoryAnswer(times, self._rates(times, _columns(rows)))

    @staticmethod
    def _rates(times_ms: Sequence[int], counters: Mapping[str, Sequence[int]]) -> dict[str, Series]:
        return {f"{name}_per_s": list(_rate(times_ms, counted)) for name, counted in counters.items()}

    def _stream_samples(self) -> Iterator[tuple[str, array[int]]]:
        members = consumers_by_stream(self._broker)
        delivered: Counter[str] = Counter()
        delivered_bytes: Counter[str] = Counter()
        for name, (copies, size_bytes) in self._delivered_copies():
            delivered[name] += copies
            delivered_bytes[name] += size_bytes
        for stream in self._broker.catalogue:
            read = stream.reading(members.get(stream.name, ()))
            row = (
                stream.counters.messages_published,
                read.delivered_messages + delivered[stream.name],
                stream.counters.bytes_published,
                read.delivered_bytes + delivered_bytes[stream.name],
                read.scan.bytes_skipped,
                read.scan.messages_evaluated - read.scan.messages_matched,
            )
            yield stream.name, array("q", row)

    def _delivered_copies(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Copies and bytes that subscriptions gave out, and messages given to consumer groups, by their stream."""
        for topic, infos in subscription_infos(self._broker):
            for info in infos:
                yield topic.stream.name, (info.counters.delivered, info.counters.delivered_bytes)
        for view in self._broker.consumer_groups.views.known():
            yield view.stream.name, (view.counters.delivered, view.counters.delivered_bytes)


def _nothing() -> array[int]:
    return array("q", [0] * len(_COUNTERS))


def _columns(rows: Iterable[array[int]]) -> dict[str, list[int]]:
    """The counters by name, each over time."""
    columns = zip(*rows, strict=True)
    return {name: list(column) for name, column in zip(_COUNTERS, columns, strict=False)}


def _rate(times_ms: Sequence[int], counted: Sequence[int]) -> Iterator[float | None]:
    """Growth per second since the sample before; None at the first one, and where a counter fell: its stream left."""
    before: tuple[int, int] | None = None
    for at, count in zip(times_ms, counted, strict=True):
        if before is None or count < before[1] or at <= before[0]:
            yield None
        else:
            yield round((count - before[1]) * 1000 / (at - before[0]), 3)
        before = at, count
