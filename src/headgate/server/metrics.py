"""The metrics of the server, in the text format of Prometheus.

Each metric is a `Family` with name, kind, meaning and a function that gives its number; `make docs` writes the page
from them. Metrics that mean the same as in RabbitMQ have its names, with `queue` and `vhost` as labels of streams.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Generic, TypeVar

from headgate.broker import (
    Broker,
    BrokerStream,
    BrokerTopic,
    Consumer,
    GroupCounters,
    GroupCounts,
    GroupView,
    IndexLag,
    ReadingCounters,
    RemoteProgress,
    Session,
    StreamCounters,
    SubscriptionInfo,
    ViewCounters,
)
from headgate.log import RemoteState
from headgate.scan import ScanCounters
from headgate.server.connections import ConnectionRecord
from headgate.server.context import ServerContext
from headgate.server.listener_watch import Listeners
from headgate.server.listening_sockets import protocol_of
from headgate.server.listings import (
    consumer_counts,
    consumers,
    consumers_by_stream,
    largest_lags,
    open_streams,
    shown,
)
from headgate.server.topics import subscription_infos
from headgate.topic import ERRORS_COUNTED
from headgate.topic.decisions import RuleCounts
from headgate.version import __version__

S = TypeVar("S")
Number = int | float


@dataclass(frozen=True, slots=True)
class Family(Generic[S]):
    """One metric: `value` gives its number, or None where it is not known. Only names of counters end with `_total`."""

    name: str
    meaning: str
    value: Callable[[S], Number | None]

    @property
    def kind(self) -> str:
        """`counter` or `gauge`."""
        return "counter" if self.name.endswith("_total") else "gauge"


@dataclass(slots=True)
class Totals:
    """Sums over all streams, made once per request."""

    context: ServerContext
    messages: int = 0
    written: StreamCounters = field(default_factory=StreamCounters)
    read: ReadingCounters = field(default_factory=ReadingCounters)
    streams: int = 0
    publishers: int = 0
    consumers: int = 0
    largest_lag: int = 0

    def stream_bytes(self, counted: dict[str, int]) -> int:
        """The bytes of the listeners of the stream protocol."""
        return sum(count for listener, count in counted.items() if protocol_of(listener) == "stream")


SERVER: tuple[Family[Totals], ...] = (
    Family("rabbitmq_connections", "Open connections.", lambda t: len(t.context.connections)),
    Family("rabbitmq_connections_opened_total", "Connections accepted.", lambda t: t.context.connections.totals.opened),
    Family("rabbitmq_connections_closed_total", "Connections ended.", lambda t: t.context.connections.totals.closed),
    Family("rabbitmq_queues", "Streams.", lambda t: t.streams),
    Family(
        "rabbitmq_queues_created_total",
        "Streams created by clients.",
        lambda t: t.context.broker.counters.streams_created,
    ),
    Family(
        "rabbitmq_queues_deleted_total",
        "Streams deleted by clients.",
        lambda t: t.context.broker.counters.streams_deleted,
    ),
    Family(
        "headgate_damaged_streams",
        "Streams with damage that somebody met since the server started; the list of streams says which.",
        lambda t: len(t.context.broker.catalogue.troubles.all()),
    ),
    Family("rabbitmq_queue_messages", "Messages in all streams.", lambda t: t.messages),
    Family("rabbitmq_consumers", "Consumers of all protocols.", lambda t: t.consumers),
    Family("rabbitmq_global_consumers", "Consumers of all protocols.", lambda t: t.consumers),
    Family("rabbitmq_global_publishers", "Publishers of all protocols.", lambda t: t.publishers),
    Family(
        "rabbitmq_global_messages_received_total",
        "Messages that publishers sent and that were new.",
        lambda t: t.written.messages_published,
    ),
    Family(
        "rabbitmq_global_messages_confirmed_total",
        "Messages confirmed to publishers.",
        lambda t: t.written.messages_confirmed,
    ),
    Family(
        "rabbitmq_global_messages_delivered_total",
        "Messages delivered to consumers of streams, those in whole chunks included.",
        lambda t: t.read.delivered_messages,
    ),
    Family(
        "rabbitmq_stream_read_bytes_total",
        "Bytes that clients of the stream protocol read from the server.",
        lambda t: t.stream_bytes(t.context.connections.bytes_sent()),
    ),
    Family(
        "rabbitmq_stream_written_bytes_total",
        "Bytes that clients of the stream protocol wrote to the server.",
        lambda t: t.stream_bytes(t.context.connections.bytes_received()),
    ),
    Family(
        "rabbitmq_stream_consumer_max_offset_lag",
        "Messages between the end of a stream and its slowest consumer, the largest.",
        lambda t: t.largest_lag,
    ),
    Family("rabbitmq_auth_attempts_succeeded_total", "Logins.", lambda t: t.context.connections.totals.logins),
    Family(
        "rabbitmq_auth_attempts_failed_total",
        "Logins that were refused.",
        lambda t: t.context.connections.totals.logins_failed,
    ),
    Family("rabbitmq_process_resident_memory_bytes", "Resident memory of the server.", lambda t: resident_bytes()),
    Family("rabbitmq_process_open_fds", "Open file descriptors.", lambda t: open_descriptors()),
    Family(
        "rabbitmq_process_max_fds",
        "Limit of file descriptors.",
        lambda t: resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    ),
    Family(
        "headgate_connections_refused_total",
        "Connections beyond the limit.",
        lambda t: t.context.connections.totals.refused,
    ),
    Family(
        "headgate_connections_timed_out_total",
        "Connections whose client was not known in time.",
        lambda t: t.context.connections.totals.timed_out,
    ),
    Family(
        "headgate_connections_failed_total",
        "Connections ended by an error of the server.",
        lambda t: t.context.connections.totals.failed,
    ),
    Family(
        "headgate_offsets_stored_total",
        "Offsets that consumers stored.",
        lambda t: t.context.broker.counters.offsets_stored,
    ),
)

_WRITTEN_MEANING = {
    "messages_published": "Messages written to the stream.",
    "messages_confirmed": "Messages confirmed to publishers, duplicates included.",
    "messages_duplicate": "Messages dropped as duplicates: by their publisher's sequence, or by their message id.",
    "messages_refused": "Messages that could not be written.",
    "bytes_published": "Bytes of the messages that were written.",
    "chunks_written": "Chunks written.",
    "bytes_written": "Bytes of chunks written.",
    "write_errors": "Writes that failed.",
}
_SCAN_MEANING = {
    "chunks_examined": "Chunks that stage 1 examined.",
    "chunks_skipped": "Chunks that stage 1 ruled out: their data was not read.",
    "chunks_skipped_by_index": "Chunks that the match index ruled out.",
    "chunks_skipped_by_columns": "Chunks that column files ruled out.",
    "chunks_skipped_by_lookup": "Chunks that lookup files ruled out.",
    "chunks_without_match": "Chunks read without a match: false positives of stage 1 if it tested them.",
    "chunks_corrupt": "Damaged chunks that were skipped.",
    "cpu_ns": "Nanoseconds of processor time that reading and deciding took, shared work divided among its readers.",
    "bytes_read": "Bytes of chunks read.",
    "bytes_skipped": "Bytes of chunks that were skipped.",
    "column_bytes_read": "Bytes of column files read to decide messages.",
    "messages_evaluated": "Messages that stage 2 evaluated, or that were read without a filter.",
    "messages_decided_by_index": "Messages that the match index decided.",
    "messages_decided_by_columns": "Messages that column files decided.",
    "messages_decided_by_lookup": "Messages that lookup files decided.",
    "messages_matched": "Messages that passed all filters.",
    "messages_unknown": "Messages whose verdict was unknown; counted in exact mode only.",
    "messages_error": "Messages whose verdict was an error; counted in exact mode only.",
    "messages_malformed": "Messages that a filter found not to be AMQP messages.",
    "bodies_sampled": "Bodies that were looked at for a filter with paths into bodies: at most one of each read.",
    "bodies_unreadable": "Bodies among those looked at that are no JSON, or not of the stream's schema.",
}


@dataclass(slots=True)
class StreamSample:
    """One stream with the reads of all its consumers, past ones included."""

    stream: BrokerStream
    read: ReadingCounters
    messages: int
    consumers: int
    lag: int
    index: IndexLag | None
    remote: RemoteProgress | None

    @property
    def moved(self) -> RemoteState | None:
        """What it has in object storage, after the last pass."""
        return None if self.remote is None else self.remote.state


READ: tuple[Family[ReadingCounters], ...] = (
    *(
        Family(f"headgate_{name}_total", _SCAN_MEANING[name], attrgetter(f"scan.{name}"))
        for name in ScanCounters.__struct_fields__
    ),
    Family(
        "headgate_delivered_messages_total",
        "Messages delivered to consumers, those in whole chunks included.",
        lambda read: read.delivered_messages,
    ),
    Family(
        "headgate_delivered_chunks_total",
        "Chunks delivered to consumers that take chunks.",
        lambda read: read.delivered_chunks,
    ),
    Family("headgate_delivered_bytes_total", "Bytes delivered.", lambda read: read.delivered_bytes),
    Family(
        "headgate_messages_lost_total",
        "Messages that retention deleted before a consumer came to them.",
        lambda read: read.messages_lost,
    ),
)
"""Metrics of reading: per stream (label `stream`), per consumer (`stream`, `consumer`, `tag`, `connection`)."""

STREAM: tuple[Family[StreamSample], ...] = (
    Family("rabbitmq_detailed_queue_messages", "Messages in the stream.", lambda s: s.messages),
    Family(
        "rabbitmq_detailed_queue_consumers",
        "Consumers of the stream, with receivers of its subscriptions and what reads it for consumer groups.",
        lambda s: s.consumers,
    ),
    Family(
        "rabbitmq_detailed_stream_consumer_max_offset_lag",
        "The lag of its slowest consumer, as the list of consumers has it.",
        lambda s: s.lag,
    ),
    Family("headgate_stream_first_offset", "First offset kept.", lambda s: s.stream.first_offset),
    Family("headgate_stream_next_offset", "Offset behind the last message.", lambda s: s.stream.next_offset),
    Family("headgate_stream_publishers", "Publishers of the stream.", lambda s: len(s.stream.publishers)),
    Family(
        "headgate_match_index_lag_messages",
        "Offsets at the end of the stream that the match index has no results for; only where the server calculates.",
        lambda s: None if s.index is None else s.index.messages,
    ),
    Family(
        "headgate_match_index_lag_seconds",
        "For how long the first of them has waited, at least.",
        lambda s: None if s.index is None else s.index.behind_ms / 1000,
    ),
    Family(
        "headgate_remote_segments",
        "Segments of the stream in object storage; only where it has a place there.",
        lambda s: None if s.moved is None else s.moved.segments,
    ),
    Family("headgate_remote_bytes", "Their bytes.", lambda s: None if s.moved is None else s.moved.bytes),
    Family(
        "headgate_remote_unmoved_bytes",
        "Bytes of sealed segments that are still to be moved there.",
        lambda s: None if s.moved is None else s.moved.unmoved_bytes,
    ),
    Family(
        "headgate_remote_failing",
        "1 while moving fails, else 0; the list of streams says why.",
        lambda s: None if s.remote is None else int(bool(s.remote.error)),
    ),
    Family(
        "headgate_remote_last_failure_seconds",
        "When moving failed last, in seconds since 1970.",
        lambda s: None if s.remote is None or s.remote.failed_ms is None else s.remote.failed_ms / 1000,
    ),
    *(
        Family(
            f"headgate_{counter.name}_total",
            _WRITTEN_MEANING[counter.name],
            attrgetter(f"stream.counters.{counter.name}"),
        )
        for counter in fields(StreamCounters)
    ),
)

_COPIES_MEANING = {
    "decided": "Copies that were decided.",
    "delivered": "Copies given out, each time they were.",
    "delivered_bytes": "Bytes of the copies given out.",
    "completed": "Copies completed by receivers.",
    "released": "Copies given back by receivers.",
    "dead_lettered": "Copies that became dead letters: by receivers, after too many attempts, or after their lifetime.",
    "deferred": "Copies put aside by receivers.",
    "expired": "Locks that ended before their copies were settled.",
    "outlived": "Copies that nobody received in their lifetime.",
}


@dataclass(slots=True)
class TopicSample:
    """One topic with its subscriptions as they are now."""

    topic: BrokerTopic
    infos: list[SubscriptionInfo]


TOPIC: tuple[Family[TopicSample], ...] = (
    Family("headgate_topic_subscriptions", "Subscriptions of the topic.", lambda t: len(t.infos)),
    Family(
        "headgate_topic_undecided",
        "Offsets of messages whose copies are not decided yet.",
        lambda t: t.topic.stream.next_offset - t.topic.next_offset,
    ),
    Family(
        "headgate_topic_active", "Copies that are available, of all subscriptions.", lambda t: _sum(t, "counts.active")
    ),
    Family("headgate_topic_locked", "Copies that receivers hold.", lambda t: _sum(t, "counts.locked")),
    Family("headgate_topic_dead_lettered", "Dead letters.", lambda t: _sum(t, "dead_lettered")),
    Family(
        "headgate_topic_messages_decided_total",
        "Messages that were decided.",
        lambda t: t.topic.counters.messages_decided,
    ),
    Family(
        "headgate_topic_moved_total",
        "Copies that were moved: to dead letters, aside, to other topics.",
        lambda t: t.topic.moved,
    ),
    Family(
        "headgate_topic_rule_failures_total",
        "Filters and actions of rules that failed, one for each rule and message.",
        lambda t: t.topic.counters.rule_failures,
    ),
    Family(
        "headgate_topic_bodies_sampled_total",
        "Bodies that were looked at because a rule has paths into bodies: at most one of each batch.",
        lambda t: t.topic.counters.bodies_sampled,
    ),
    Family(
        "headgate_topic_bodies_unreadable_total",
        "Bodies among those looked at that are no JSON, or not of the stream's schema.",
        lambda t: t.topic.counters.bodies_unreadable,
    ),
    Family("headgate_topic_rule_changes_total", "Changes of rules.", lambda t: t.topic.counters.rule_changes),
    Family(
        "headgate_topic_cpu_ns_total",
        "Nanoseconds of processor time that deciding took, for all subscriptions at once.",
        lambda t: t.topic.counters.cpu_ns,
    ),
)

SUBSCRIPTION: tuple[Family[SubscriptionInfo], ...] = (
    Family("headgate_subscription_active", "Copies that are available.", lambda s: s.counts.active),
    Family("headgate_subscription_locked", "Copies that receivers hold.", lambda s: s.counts.locked),
    Family("headgate_subscription_waiting", "Copies that wait for their backoff.", lambda s: s.counts.waiting),
    Family("headgate_subscription_deferred", "Copies put aside.", lambda s: s.deferred),
    Family("headgate_subscription_dead_lettered", "Dead letters.", lambda s: s.dead_lettered),
    Family("headgate_subscription_forwarding", "Copies on their way to other streams.", lambda s: s.forwarding),
    Family("headgate_subscription_receivers", "Receivers.", lambda s: s.receivers),
    *(
        Family(
            f"headgate_subscription_{counter.name}_total",
            _COPIES_MEANING[counter.name],
            attrgetter(f"counters.{counter.name}"),
        )
        for counter in fields(ViewCounters)
    ),
)

RULES_COUNTED = 1_000
"""A topic with more filters has no metrics for each: a hundred thousand lines would be read at every scrape."""

RULE: tuple[Family[RuleCounts], ...] = (
    Family(
        "headgate_rule_matched_total",
        "Messages that the rule selected, of those decided since the server opened the topic; of topics with at most "
        f"{RULES_COUNTED:,} SQL and correlation filters, and not of a rule that is not asked because another one of "
        "its subscription takes all messages.",
        attrgetter("matched"),
    ),
    Family(
        "headgate_rule_errors_total",
        "Messages that its filter could not be evaluated for; of topics with at most "
        f"{ERRORS_COUNTED} rules, and of subscriptions that keep dead letters of errors.",
        attrgetter("errors"),
    ),
    Family(
        "headgate_rule_failed_actions_total",
        "Messages that the rule selected and its action failed for: it gave no copy of them.",
        attrgetter("failed_actions"),
    ),
    Family(
        "headgate_rule_last_failure_offset",
        "Offset of the last message that filter or action failed for, if there is one.",
        attrgetter("last_failure"),
    ),
)

CONSUMER: tuple[Family[Consumer], ...] = (
    Family("headgate_consumer_lag", "Messages between the end of the stream and the consumer.", lambda c: c.lag),
    Family(
        "headgate_consumer_filtered_lag",
        "About how many messages of the lag the consumer will be given: the share that its filters have kept so far.",
        lambda c: c.filtered_lag,
    ),
    Family("headgate_consumer_credit", "What it may still be sent.", lambda c: c.wanted),
)

_GROUP_MEANING = {
    "delivered": "Messages given to members, each time they were.",
    "delivered_bytes": "Bytes of the messages given to members.",
    "filtered": "Offsets that were passed over: messages that the filter did not take, and bookkeeping.",
    "lost": "Offsets that retention deleted before the group came to them.",
    "completed": "Messages that members acknowledged one by one; classic clients of RocketMQ do that only with "
    "messages that came again.",
    "expired": "Invisible times that ended before their messages were acknowledged.",
    "dead_lettered": "Messages that became dead letters.",
}


@dataclass(slots=True)
class GroupSample:
    """The position of a consumer group in a queue, and its counts there."""

    view: GroupView
    counts: GroupCounts


GROUP: tuple[Family[GroupSample], ...] = (
    Family("headgate_group_lag", "Messages that the group has not settled.", lambda s: s.counts.lag),
    Family("headgate_group_claimed", "Messages that members have.", lambda s: s.counts.claimed),
    Family(
        "headgate_group_available",
        "Messages that came back, and wait to be given again.",
        lambda s: s.counts.available,
    ),
    *(
        Family(
            f"headgate_group_{counter.name}_total",
            _GROUP_MEANING[counter.name],
            attrgetter(f"view.counters.{counter.name}"),
        )
        for counter in fields(GroupCounters)
    ),
)
"""Of queues in use, and for some seconds after their last use: their ledgers are open."""

GROUP_READ: tuple[Family[GroupSample], ...] = tuple(
    Family(f"headgate_group_{name}_total", _SCAN_MEANING[name], attrgetter(f"view.scan_counters.{name}"))
    for name in ScanCounters.__struct_fields__
)
"""The cost of reading for the group."""

CONNECTION: tuple[Family[ConnectionRecord], ...] = (
    Family(
        "rabbitmq_detailed_connection_incoming_bytes_total",
        "Bytes from the client.",
        lambda record: record.bytes_received,
    ),
    Family(
        "rabbitmq_detailed_connection_outgoing_bytes_total", "Bytes to the client.", lambda record: record.bytes_sent
    ),
)

LISTENER: tuple[Family[tuple[Listeners, str]], ...] = (
    Family(
        "headgate_listener_accepts",
        "1 while the listener takes connections, else 0.",
        lambda sample: int(sample[1] not in sample[0].ended()),
    ),
    Family(
        "headgate_listener_restarts_total",
        "How often the listener had ended and was started again.",
        lambda sample: sample[0].restarts[sample[1]],
    ),
)


def metrics_text(context: ServerContext, *, per_object: bool) -> bytes:
    """All families; `per_object` adds subscriptions, rules, consumers and connections, one line each."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(context, per_object=per_object))
    return generate_latest(registry)


class _Collector:
    """Gives `prometheus_client` the families of one request."""

    def __init__(self, context: ServerContext, *, per_object: bool) -> None:
        self._context = context
        self._per_object = per_object

    def collect(self) -> Iterator[Any]:
        """The families with their numbers."""
        broker = self._context.broker
        live = list(consumers(broker))
        samples = _stream_samples(broker, open_streams(broker))
        identity = _family("rabbitmq_build_info", "gauge", "The server's version.", ("product_name", "product_version"))
        identity.add_metric(("Headgate", __version__), 1)
        yield identity
        yield from _families(SERVER, (), [((), _totals(self._context, samples))])
        listeners = self._context.listeners
        yield from _families(LISTENER, ("listener",), [((name,), (listeners, name)) for name in listeners.restarts])
        labelled = [((sample.stream.name,), sample) for sample in samples]
        rabbitmq = [((sample.stream.name, "/"), sample) for sample in samples]
        for family in STREAM:
            is_ours = family.name.startswith("headgate_")
            yield from _families(
                (family,), ("stream",) if is_ours else ("queue", "vhost"), labelled if is_ours else rabbitmq
            )
        yield from _families(READ, ("stream",), [(labels, sample.read) for labels, sample in labelled])
        topics = [TopicSample(topic, infos) for topic, infos in subscription_infos(broker)]
        yield from _families(TOPIC, ("topic",), [((sample.topic.stream.name,), sample) for sample in topics])
        if self._per_object:
            subscriptions = [
                ((sample.topic.stream.name, info.name), info) for sample in topics for info in sample.infos
            ]
            yield from _families(SUBSCRIPTION, ("topic", "subscription"), subscriptions)
            yield from _families(RULE, ("topic", "subscription", "rule"), list(_rule_samples(topics)))
            groups = list(_group_samples(broker))
            yield from _families((*GROUP, *GROUP_READ), ("topic", "queue", "group"), groups)
            yield from self._objects(live)

    def _objects(self, live: list[tuple[Session, Consumer]]) -> Iterator[Any]:
        labels = ("stream", "consumer", "tag", "connection")
        labelled = [
            (
                (consumer.stream, shown(consumer.options.name or ""), shown(consumer.options.tag), session.connection),
                consumer,
            )
            for session, consumer in live
        ]
        yield from _families(CONSUMER, labels, labelled)
        each = [(names, ReadingCounters.of([consumer])) for names, consumer in labelled]
        for family in READ:
            name = family.name.replace("headgate_", "headgate_consumer_", 1)
            yield from _families((Family(name, family.meaning, family.value),), labels, each)
        connections = [((record.name,), record) for record in self._context.connections]
        yield from _families(CONNECTION, ("connection",), connections)


def _sum(sample: TopicSample, field_name: str) -> int | None:
    values = list(map(attrgetter(field_name), sample.infos))
    return None if None in values else sum(values)


def _rule_samples(topics: Iterable[TopicSample]) -> Iterator[tuple[tuple[str, str, str], RuleCounts]]:
    for sample in topics:
        topic = sample.topic
        counts = topic.history.counts
        if counts.sql + counts.correlation <= RULES_COUNTED:
            for info in sample.infos:
                rule_counts = topic.rule_failures.counts(info.name)
                for rule in topic.history.rules(info.name):
                    yield (topic.stream.name, info.name, rule.rule.name), rule_counts[rule.number]


def _group_samples(broker: Broker) -> Iterator[tuple[tuple[str, str, str], GroupSample]]:
    for view in broker.consumer_groups.views.known():
        topic, queue = broker.message_topics.queue_of(view.stream.name)
        yield (topic, str(queue), shown(view.group)), GroupSample(view, view.counts())


def _families(
    families: Iterable[Family[S]], labels: tuple[str, ...], samples: Sequence[tuple[tuple[str, ...], S]]
) -> Iterator[Any]:
    for family in families:
        made = _family(family.name, family.kind, family.meaning, labels)
        for names, sample in samples:
            value = family.value(sample)
            if value is not None:
                made.add_metric(names, value)
        yield made


def _family(name: str, kind: str, meaning: str, labels: tuple[str, ...]) -> Any:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    make = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
    return make(name, meaning, labels=labels)


def _stream_samples(broker: Broker, streams: Iterable[BrokerStream]) -> list[StreamSample]:
    by_stream = consumers_by_stream(broker)
    counts, lags = consumer_counts(broker), largest_lags(broker)
    samples = []
    for stream in streams:
        members = by_stream.get(stream.name, [])
        index = broker.index_lag(stream)
        read, messages = stream.reading(members), stream.messages_from(0)
        remote = broker.remote_progress(stream)
        lag = lags.get(stream.name, 0)
        samples.append(StreamSample(stream, read, messages, counts[stream.name], lag, index, remote))
    return samples


def _totals(context: ServerContext, samples: list[StreamSample]) -> Totals:
    totals = Totals(context, streams=len(samples))
    for sample in samples:
        totals.messages += sample.messages
        totals.publishers += len(sample.stream.publishers)
        totals.consumers += sample.consumers
        totals.largest_lag = max(totals.largest_lag, sample.lag)
        for counter in fields(StreamCounters):
            counted = getattr(totals.written, counter.name) + getattr(sample.stream.counters, counter.name)
            setattr(totals.written, counter.name, counted)
        totals.read.include(sample.read)
    return totals


def resident_bytes() -> int:
    """Resident memory of this process in bytes, 0 if unknown."""
    try:
        with open("/proc/self/statm", "rb") as status:
            return int(status.read().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def open_descriptors() -> int:
    """Open file descriptors of this process, 0 if unknown."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0
