"""Definitions of the configuration, applied when the server starts: users, streams, topics, queues, groups."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from headgate.broker import (
    ADMINISTRATOR,
    EVERYTHING,
    Broker,
    EntityDeclaration,
    GroupSettings,
    MessageKind,
    Permissions,
    Users,
    any_target,
    in_steps,
    is_damage,
)
from headgate.derived.lookup import declare_lookup
from headgate.errors import AuthenticationError, ConfigError, HeadgateError
from headgate.log import StreamArguments
from headgate.protocols.rocketmq import check_group, check_topic
from headgate.server.settings import (
    ConsumerGroupEntry,
    MessageTopicEntry,
    QueueEntry,
    RocketMq,
    ServerSettings,
    Storage,
    SuperStreamEntry,
    TopicEntry,
)
from headgate.server.topics import told


def placement_of(storage: Storage) -> StreamArguments:
    """Where in object storage the sealed segments of new streams go, as arguments of a stream."""
    return StreamArguments(
        remote=storage.remote, remote_after_ms=round(storage.remote_after_s * 1000), local_bytes=storage.local_bytes
    )


def apply_definitions(broker: Broker, settings: ServerSettings) -> None:
    """Create missing entities, and set passwords and permissions of users from the file.

    Raises ConfigError that names the entry: an existing stream with other arguments stays as it is. A damaged stream
    is logged, and does not affect the others.
    """
    default = settings.authentication
    if default.default_password is not None:
        _define_user(
            broker.users, default.default_user, default.default_password, (ADMINISTRATOR,), permissions=EVERYTHING
        )
    for user in settings.user:
        given = user.permissions
        permissions = Permissions(given.configure, given.write, given.read)
        try:
            _define_user(broker.users, user.name, user.password, tuple(user.tags), permissions=permissions)
        except HeadgateError as error:
            raise ConfigError(f"user {user.name!r}: {error}") from error
    for stream in settings.stream:
        try:
            broker.streams.declare(stream.name, dict(stream.arguments))
            if stream.columns is not None:
                _declare_columns(broker, stream.name, stream.columns)
            if stream.lookup:
                declare_lookup(broker.catalogue.get(stream.name).stream, stream.lookup)
        except HeadgateError as error:
            if not is_damage(error):
                raise ConfigError(f"stream {stream.name!r}: {error}") from error
    for entry in settings.super_stream:
        try:
            _define_super_stream(broker, entry)
        except HeadgateError as error:
            if not is_damage(error):
                raise ConfigError(f"super_stream {entry.name!r}: {error}") from error
    _define_message_topics(broker, settings.rocketmq)


def _declare_columns(broker: Broker, name: str, columns: str) -> None:
    # Imports pyarrow.
    from headgate.derived.columns import declare_columns

    declare_columns(broker.catalogue.get(name).stream, columns)


def check_message_topics(settings: RocketMq) -> None:
    """Check topics and consumer groups of the file. Raises ConfigError that names the first wrong one."""
    checks: tuple[tuple[str, Sequence[MessageTopicEntry | ConsumerGroupEntry], Callable[[str], None]], ...] = (
        ("topic", settings.topic, check_topic),
        ("group", settings.group, check_group),
    )
    for kind, entries, check in checks:
        names: set[str] = set()
        for entry in entries:
            try:
                check(entry.name)
                if isinstance(entry, ConsumerGroupEntry):
                    GroupSettings().changed(_said(entry)).check(entry.name)
            except HeadgateError as error:
                raise ConfigError(f"rocketmq.{kind} {entry.name!r}: {error}") from error
            if entry.name in names:
                raise ConfigError(f"rocketmq.{kind} {entry.name!r} is there twice")
            names.add(entry.name)


def _define_message_topics(broker: Broker, settings: RocketMq) -> None:
    topics, groups = broker.message_topics, broker.consumer_groups
    for topic in settings.topic:
        accepts = None if topic.accepts is None else [MessageKind(kind) for kind in topic.accepts]
        try:
            if topics.find(topic.name) is None:
                topics.create(topic.name, topic.queues, list(MessageKind) if accepts is None else accepts)
            else:
                topics.change(topic.name, queues=topic.queues, accepts=accepts)
        except HeadgateError as error:
            if not is_damage(error):
                raise ConfigError(f"rocketmq.topic {topic.name!r}: {error}") from error
    for group in settings.group:
        try:
            groups.declare(group.name, groups.settings_of(group.name).changed(_said(group)))
        except HeadgateError as error:
            raise ConfigError(f"rocketmq.group {group.name!r}: {error}") from error


def _said(entry: ConsumerGroupEntry) -> dict[str, object]:
    """The settings of a group that its entry sets."""
    said = {name: getattr(entry, name) for name in entry.__struct_fields__ if name != "name"}
    return {name: value for name, value in said.items() if value is not None}


def declared_entities(settings: ServerSettings) -> list[EntityDeclaration]:
    """The topics and queues of the file. Raises ConfigError, RuleError for the first one that is wrong in itself."""
    declared = [_queue(entry) for entry in settings.queue] + [_topic(entry) for entry in settings.topic]
    names: set[str] = set()
    for each in declared:
        each.check()
        if each.name.casefold() in names:
            raise ConfigError(f"{each.settings.kind} {each.name!r} is there twice: names are compared without case")
        names.add(each.name.casefold())
    return declared


async def declare_entities(broker: Broker, declared: Sequence[EntityDeclaration]) -> None:
    """Create topics and queues, or change them to their declarations. Raises ConfigError that names one."""
    for each in in_steps(declared, broker.topics.names()) if declared else ():
        try:
            await told(functools.partial(broker.entities.declare, each, check_target=any_target))
        except HeadgateError as error:
            raise ConfigError(f"{each.settings.kind} {each.name!r}: {error}") from error


def _queue(entry: QueueEntry) -> EntityDeclaration:
    said = {name: getattr(entry, name) for name in ("name", "max_size_megabytes", "delivery", "forward_to")}
    return _declaration("queue", entry.name, {**said, "settings": {**entry.settings, "kind": "queue"}})


def _topic(entry: TopicEntry) -> EntityDeclaration:
    subscriptions = [
        {
            "name": each.name,
            "settings": each.settings,
            "dead_letter_on_errors": each.dead_letter_on_errors,
            "forward_to": each.forward_to,
            "rules": each.rule or None,
        }
        for each in entry.subscription
    ]
    said = {"name": entry.name, "max_size_megabytes": entry.max_size_megabytes, "subscriptions": subscriptions}
    return _declaration("topic", entry.name, {**said, "settings": {**entry.settings, "kind": "topic"}})


def _declaration(kind: str, name: str, said: dict[str, Any]) -> EntityDeclaration:
    try:
        return EntityDeclaration.of(said)
    except ConfigError as error:
        raise ConfigError(f"{kind} {name!r}: {error}") from error


def _define_user(users: Users, name: str, password: str, tags: tuple[str, ...], *, permissions: Permissions) -> None:
    if name not in users:
        users.add(name, password, tags=tags, permissions=permissions)
        return
    try:
        users.authenticate(name, password)
    except AuthenticationError:
        users.set_password(name, password)
    known = users.get(name)
    if known.tags != tags:
        users.set_tags(name, tags)
    if known.permissions != permissions:
        users.permit(name, permissions)


def _define_super_stream(broker: Broker, entry: SuperStreamEntry) -> None:
    keys = entry.binding_keys or [str(number) for number in range(entry.partitions or 0)]
    bound = [(f"{entry.name}-{key}", key) for key in keys]
    if entry.name not in broker.exchanges:
        for partition, _key in bound:
            broker.streams.declare(partition, dict(entry.arguments))
        broker.exchanges.create_super_stream(entry.name, bound)
        return
    there = [(binding.queue, binding.key) for binding in broker.exchanges.bindings(source=entry.name)]
    if sorted(there) != sorted(bound):
        raise ConfigError(f"it is there with the partitions {[queue for queue, _key in there]}")
