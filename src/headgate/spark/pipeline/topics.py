"""Topics of a pipeline: checks `[[topic]]`, and makes the topics and output streams that it describes.

The keys are the fields of the structures below, as in `configuration`. A subscription without rules has the true rule
`$Default`. A topic without subscriptions in the file is routed by the subscriptions that the commands
`headgate subscription` and `headgate rule` gave it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headgate.errors import ConfigError, StreamNotFoundError
from headgate.log import Stream, stream_folder
from headgate.spark.options import SinkOptions
from headgate.spark.route import output_of_copies, output_of_dead_letters
from headgate.topic import (
    DEFAULT_RULES,
    DEFAULT_SETTINGS,
    Rule,
    RuleDefinition,
    RuleHistory,
    Subscription,
    SubscriptionSettings,
    Topic,
    TopicLimits,
    forward_order,
)


class WrittenStream(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The keys of a stream that is written: options of the sink (`docs/reference/spark-sink.md`)."""

    filter_value: str | None = None
    filter_source: str | None = None
    filter_size_bytes: int | None = None
    max_segment_size_bytes: int | None = None
    max_length_bytes: int | None = None
    max_age: str | None = None
    columns: str | None = None
    durability: str | None = None
    compression: str | None = None


class SubscriptionEntry(WrittenStream, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A subscription of the topic: its rules, and the stream that its copies go to."""

    name: str
    """The name of the subscription, unique in its topic, ignoring case."""
    stream: str | None = None
    """The stream that its copies go to. Default: `TOPIC.SUBSCRIPTION`."""
    fall_through: bool = False
    """Whether it gets the messages of which no other subscription has a copy; then it has no rules."""
    dead_letter: str | None = None
    """A stream for messages for which the evaluation of a rule fails. Default: none."""
    forward_to: str | None = None
    """Another topic that its copies go to, in place of a stream."""
    settings: SubscriptionSettings = DEFAULT_SETTINGS
    rule: list[RuleDefinition] = []

    def subscription(self) -> Subscription:
        """The subscription of the topic."""
        return Subscription(
            self.name,
            tuple(Rule.of(definition) for definition in self.rule) or DEFAULT_RULES,
            fall_through=self.fall_through,
            dead_letter_on_errors=self.dead_letter is not None,
            forward_to=self.forward_to,
            settings=self.settings,
        )


class TopicEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A stream that is routed by the rules of its subscriptions into other streams."""

    name: str
    """The name of the topic, and of the stream under the root whose messages it routes."""
    start: str = "first"
    """Where the first run begins to route: `first` or `next`."""
    max_messages_per_batch: int | None = None
    """At most this many messages are routed before their copies are committed. Default: all messages."""
    limits: TopicLimits = TopicLimits()
    subscription: list[SubscriptionEntry] = []


@dataclass(frozen=True, slots=True)
class RoutedTopic:
    """A topic that a pipeline routes.

    `topic` is the topic of the file, None if the rules on disk count. `outputs` are the options of the streams that its
    subscriptions write to, by their name in `headgate.spark.route`.
    """

    name: str
    start: str
    max_messages_per_batch: int | None
    topic: Topic | None
    outputs: Mapping[str, Mapping[str, str]]

    @property
    def streams(self) -> frozenset[str]:
        """The names of the streams that it writes to."""
        return frozenset(options["stream"] for options in self.outputs.values())


def check_topics(entries: Sequence[TopicEntry], root: Path) -> tuple[RoutedTopic, ...]:
    """The topics of a pipeline, each before its forwarding targets.

    Every rule is compiled. Raises ConfigError, or RuleError with topic, subscription, rule, place and reason.
    """
    declared = {entry.name: _topic(entry, root) for entry in entries}
    if len(declared) < len(entries):
        names = [entry.name for entry in entries]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"topic name {twice!r} is given twice")
    for topic in declared.values():
        topic.check()
    by_name = {entry.name: entry for entry in entries}
    outputs = {entry.name: _outputs(entry, declared[entry.name], root) for entry in entries}
    routed = []
    for topic in forward_order(declared.values()):
        entry = by_name[topic.name]
        _check(entry)
        routed.append(
            RoutedTopic(
                name=entry.name,
                start=entry.start,
                max_messages_per_batch=entry.max_messages_per_batch,
                topic=topic if entry.subscription else None,
                outputs=outputs[entry.name],
            )
        )
    return tuple(routed)


def _topic(entry: TopicEntry, root: Path) -> Topic:
    if entry.subscription:
        return Topic(entry.name, tuple(each.subscription() for each in entry.subscription), entry.limits)
    try:
        history = RuleHistory.find(Stream.open(stream_folder(root, entry.name)))
    except StreamNotFoundError:
        history = None
    if history is None or not history.current.subscriptions:
        raise ConfigError(
            f"topic {entry.name!r}: it has no [[topic.subscription]], and none was made by headgate subscription create"
        )
    return history.current


def _check(entry: TopicEntry) -> None:
    if entry.start not in ("first", "next"):
        raise ConfigError(f"topic {entry.name!r}: start is {entry.start!r}; expected first or next")
    if entry.max_messages_per_batch is not None and entry.max_messages_per_batch < 1:
        raise ConfigError(
            f"topic {entry.name!r}: max_messages_per_batch is {entry.max_messages_per_batch}; expected 1 or more"
        )


def _outputs(entry: TopicEntry, topic: Topic, root: Path) -> dict[str, dict[str, str]]:
    given = {each.name: each for each in entry.subscription}
    outputs: dict[str, dict[str, str]] = {}
    own: dict[str, str] = {}
    for subscription in topic.subscriptions:
        said = given.get(subscription.name, SubscriptionEntry(name=subscription.name))
        where = f"topic {topic.name!r}, subscription {subscription.name!r}"
        keys = {key: getattr(said, key) for key in WrittenStream.__struct_fields__}
        options = {key: str(value) for key, value in keys.items() if value is not None}
        if subscription.forward_to is not None:
            if said.stream is not None or options:
                key = "stream" if said.stream is not None else next(iter(options))
                raise ConfigError(f"{where}: found {key} beside forward_to; its copies go to the topic's stream")
            stream = subscription.forward_to
        else:
            stream = said.stream or f"{topic.name}.{subscription.name}"
            if stream in own:
                raise ConfigError(
                    f"{where}: writes stream {stream!r} as subscription {own[stream]!r} does; give each its own"
                )
            own[stream] = subscription.name
        outputs[output_of_copies(subscription.name)] = {"root": str(root), "stream": stream, **options}
        if subscription.dead_letter_on_errors:
            dead = said.dead_letter or f"{topic.name}.{subscription.name}.dead-letter"
            outputs[output_of_dead_letters(subscription.name)] = {"root": str(root), "stream": dead}
        for name in (stream, said.dead_letter):
            if name == topic.name:
                raise ConfigError(f"{where}: writes the stream that the topic reads; it would never end")
    for name, options in outputs.items():
        try:
            SinkOptions.parse(options)
        except ConfigError as error:
            raise ConfigError(f"topic {topic.name!r}, {name}: {error}") from error
    return outputs
