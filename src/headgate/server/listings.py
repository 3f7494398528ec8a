"""Rows of lists: one mapping per stream, consumer, connection or user, and one for the server; changes of users.

HTTP and the command line share them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from headgate.broker import (
    ADMINISTRATOR,
    NOTHING,
    Broker,
    BrokerStream,
    ChunkConsumer,
    Consumer,
    GroupView,
    Permission,
    Permissions,
    Receiver,
    Session,
    Users,
    arguments_declared,
)
from headgate.errors import AccessRefusedError, HeadgateError, ResourceNotFoundError, did_you_mean
from headgate.log import StreamInfo, read_tracking
from headgate.message.body_schema import SchemaFormat, schema_facts
from headgate.scan import ScanCounters
from headgate.server.authenticator import MONITORING
from headgate.server.connections import ConnectionRecord
from headgate.server.context import ServerContext
from headgate.server.identity import NODE, PRODUCT, VERSION
from headgate.topic import SubscriptionName, topics_forwarding_to
from headgate.version import __version__

Row = dict[str, object]


def may_see_all(users: Users, user: str) -> bool:
    """Whether a user is an administrator or monitors the server."""
    return user in users and bool({ADMINISTRATOR, MONITORING} & set(users.get(user).tags))


def near_names(broker: Broker, user: str, error: ResourceNotFoundError) -> str:
    """`; did you mean 'orders'?`: names similar to a missing one that the user may read; empty without any."""
    names: list[str] = []
    if error.reason == "no such stream":
        names = broker.catalogue.names()
    elif error.reason == "no such topic":
        names = broker.message_topics.names()
    elif error.reason == "no such consumer group":
        names = broker.consumer_groups.names()
    return did_you_mean(error.subject, (name for name in names if may_read(broker.users, user, name)))


def may_read(users: Users, user: str, stream: str) -> bool:
    """Whether a user may see a stream and its consumers."""
    if may_see_all(users, user):
        return True
    try:
        users.check(user, Permission.READ, stream)
    except AccessRefusedError:
        return False
    return True


def overview_row(context: ServerContext, user: str) -> Row:
    """The server itself, and the user of the request."""
    return {
        "product": "Headgate",
        "version": __version__,
        "serves_as": f"{PRODUCT} {VERSION}",
        "node": NODE,
        "ready": context.is_ready,
        "ports": context.ports,
        "user": user,
        "tags": list(context.broker.users.get(user).tags),
    }


def open_streams(broker: Broker) -> Iterator[BrokerStream]:
    """All streams that can be opened; lists show the errors of others."""
    for name in broker.catalogue.names():
        with contextlib.suppress(HeadgateError):
            yield broker.catalogue.get(name)


def count_messages(streams: Iterable[BrokerStream]) -> None:
    """Read the files that the messages of streams are counted from, ahead of lists. In any thread."""
    for stream in streams:
        stream.messages_from(0)


async def counted(context: ServerContext) -> None:
    """Before the first count of messages, read all index files in a thread, which may take seconds.

    Later counts read only what was written since.
    """
    if not context.has_counted:
        await asyncio.to_thread(count_messages, list(open_streams(context.broker)))
        context.has_counted = True


def stream_rows(broker: Broker, user: str) -> Iterator[Row]:
    """The streams that a user may read, in order of their names; the row of an unreadable stream has its error."""
    members, counts = consumers_by_stream(broker), consumer_counts(broker)
    for name in broker.catalogue.names():
        if may_read(broker.users, user, name):
            try:
                row = stream_row(broker, broker.catalogue.get(name), members.get(name, ()), counts[name])
            except HeadgateError as error:
                row = {"name": name, "error": str(error)}
            yield row


def error_of(stream: BrokerStream) -> Row:
    """`error`, if the files of a stream are damaged and the damage was met; else nothing."""
    return {} if stream.damage is None else {"error": stream.damage}


def damaged_lines(broker: Broker) -> Iterator[str]:
    """A line for each damaged stream, without facts that only users may see."""
    for name in broker.catalogue.troubles.all():
        yield f"stream {shown(name)!r} is damaged: the list of streams says how, headgate stream repair what to do\n"


def stream_row(broker: Broker, stream: BrokerStream, members: Iterable[Consumer], consumer_count: int) -> Row:
    """One stream with its counters; its reading counts `members` together with consumers that are gone.

    `consumer_count` is the stream's count in `consumer_counts`.

    `match_index` says how far the index is behind, None if the server calculates none.
    """
    read = stream.reading(members)
    lag = broker.index_lag(stream)
    return {
        "name": stream.name,
        "arguments": arguments_declared(stream),
        "first_offset": stream.first_offset,
        "next_offset": stream.next_offset,
        "messages": stream.messages_from(0),
        "size_bytes": stream.size_bytes(),
        "publishers": len(stream.publishers),
        "consumers": consumer_count,
        "match_index": None if lag is None else {"lag_messages": lag.messages, "lag_seconds": lag.behind_ms / 1000},
        "counters": asdict(stream.counters),
        "reading": {
            **read.scan.as_dict(),
            "delivered_messages": read.delivered_messages,
            "delivered_chunks": read.delivered_chunks,
            "delivered_bytes": read.delivered_bytes,
            "messages_lost": read.messages_lost,
        },
        **remote_facts(broker, stream),
        **error_of(stream),
    }


def remote_facts(broker: Broker, stream: BrokerStream) -> Row:
    """Place, segments and bytes of a stream in object storage, and why moving failed last; nothing for others.

    Numbers are those after the last pass; before the first one there are none.
    """
    progress = broker.remote_progress(stream)
    if progress is None:
        return {}
    return {
        "remote": stream.stream.remote,
        **({} if progress.state is None else progress.state.facts()),
        "remote_error": progress.error or None,
        "remote_failed_ms": progress.failed_ms,
    }


def stored_offsets(stream: BrokerStream, written: Mapping[bytes, int]) -> dict[bytes, int]:
    """The offsets that consumers stored in a stream: `written` ones, and newer ones that are still to be written."""
    pending = {} if stream.writer is None else stream.writer.pending_offsets
    return {**written, **pending, **stream.offsets}


def stream_detail(broker: Broker, stream: BrokerStream, info: StreamInfo) -> Row:
    """One stream as `headgate stream info` shows it on files, with its row of the list; `info` was read from them.

    `publishers` are the sequences of the named publishers, as in that command.
    """
    return {
        **stream_row(
            broker,
            stream,
            (consumer for _, consumer in consumers(broker) if consumer.stream == stream.name),
            consumer_counts(broker)[stream.name],
        ),
        **info.facts(),
        **schema_facts(stream.stream.body_schema),
        "publishers": {shown(name): sequence for name, (_, sequence) in info.tracking.sequences.items()},
        "stored_offsets": {
            shown(name): offset for name, offset in stored_offsets(stream, info.tracking.offsets).items()
        },
    }


def users_of(broker: Broker, user: str, stream: BrokerStream) -> list[str]:
    """The users of a stream, in words: each consumer with its connection, topics that forward to it, publishers.

    What `user` may not read has no name here: who may delete a stream need not see who consumes it.
    """
    members = [(session, consumer) for session, consumer in consumers(broker) if consumer.stream == stream.name]
    found = [
        f"consumer {shown(consumer.options.name or consumer.options.tag)!r} of user {session.user!r} "
        f"({session.protocol}, {session.connection})"
        for session, consumer in members
    ]
    if members and not may_read(broker.users, user, stream.name):
        found = [_counted(len(members), "consumer")]
    for name in topics_forwarding_to(broker.root, stream.name):
        topic = f"topic {name!r}" if may_read(broker.users, user, name) else "a topic"
        found.append(f"{topic}, which forwards to it")
    publishers = len(stream.publishers)
    return found + ([_counted(publishers, "publisher")] if publishers else [])


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count > 1)}"


def consumers(broker: Broker) -> Iterator[tuple[Session, Consumer]]:
    """The consumers of all sessions."""
    for session in broker.sessions:
        for consumer in session.consumers:
            yield session, consumer


def consumers_by_stream(broker: Broker) -> dict[str, list[Consumer]]:
    """The consumers of all sessions, by the names of their streams."""
    members: dict[str, list[Consumer]] = {}
    for _session, consumer in consumers(broker):
        members.setdefault(consumer.stream, []).append(consumer)
    return members


def receivers(broker: Broker) -> Iterator[tuple[Session, Receiver, SubscriptionName]]:
    """The receivers of subscriptions and queues, of all sessions."""
    for session in broker.sessions:
        for receiver in session.receivers:
            if receiver.name is not None:
                yield session, receiver, receiver.name


def group_readers(broker: Broker) -> Iterator[tuple[GroupView, Consumer]]:
    """Consumer groups that the broker reads streams for, each with the reader of one stream."""
    for view in broker.consumer_groups.views.known():
        reader = view.reader
        if reader is not None:
            yield view, reader


def consumer_counts(broker: Broker) -> Counter[str]:
    """How many consumers each stream has: the number of its rows in the list of consumers."""
    counts = Counter(consumer.stream for _, consumer in consumers(broker))
    counts.update(name.topic for _, _, name in receivers(broker))
    counts.update(view.stream.name for view, _ in group_readers(broker))
    return counts


def largest_lags(broker: Broker) -> dict[str, int]:
    """The largest lag of each stream that has consumers, of all consumers in the list."""
    lags = [(consumer.stream, consumer.lag) for _, consumer in consumers(broker)]
    lags += [(name.topic, receiver.lag) for _, receiver, name in receivers(broker)]
    lags += [(view.stream.name, view.counts().lag) for view, _ in group_readers(broker)]
    found: dict[str, int] = {}
    for stream, lag in lags:
        found[stream] = max(lag, found.get(stream, 0))
    return found


def shown(name: str | bytes) -> str:
    """A client's name for something, with escapes for bytes that are not UTF-8: JSON and metrics cannot hold them."""
    encoded = name if isinstance(name, bytes) else name.encode("utf-8", "backslashreplace")
    return encoded.decode(errors="backslashreplace")


def consumer_rows(broker: Broker, user: str) -> Iterator[Row]:
    """The consumers of streams that a user may read, with the filters in force.

    Receivers of subscriptions come next, with the name of the subscription; their lag is the unclaimed copies.
    Readers for consumer groups come last: their tag is the name of the group, they have no connection and no user,
    their counters begin when the group was first used, and their lag is the messages that the group has not settled.
    """
    for session, consumer in consumers(broker):
        if may_read(broker.users, user, consumer.stream):
            yield {
                **_consumer_facts(consumer),
                "tag": shown(consumer.options.tag),
                "connection": session.connection,
                "protocol": session.protocol,
                "user": session.user,
                **_consumer_by_other_names(session, consumer.stream, consumer),
            }
    for session, receiver, name in receivers(broker):
        if may_read(broker.users, user, name.topic) or may_read(broker.users, user, str(name)):
            yield {
                **_receiver_facts(receiver, name),
                "tag": shown(receiver.tag),
                "connection": session.connection,
                "protocol": session.protocol,
                "user": session.user,
                **_consumer_by_other_names(session, str(name), receiver),
            }
    for view, reading in group_readers(broker):
        if may_read(broker.users, user, view.stream.name):
            counts = view.counts()
            yield {
                **_consumer_facts(reading),
                "lag": counts.lag,
                "filtered_lag": reading.filtered_lag + counts.lag - counts.unseen,
                "delivered_messages": view.counters.delivered,
                "delivered_bytes": view.counters.delivered_bytes,
                "tag": shown(view.group),
                "connection": "",
                "protocol": "consumer group",
                "user": "",
                "counters": view.scan_counters.as_dict(),
            }


def _consumer_by_other_names(session: Session, queue: str, consumer: Consumer | Receiver) -> Row:
    """Fields of RabbitMQ's list of consumers that have other names here."""
    is_active = isinstance(consumer, Receiver) or consumer.is_active
    tag = consumer.tag if isinstance(consumer, Receiver) else consumer.options.tag
    return {
        "queue": {"name": queue, "vhost": "/"},
        "consumer_tag": shown(tag),
        "activity_status": "up" if is_active else "waiting",
        "exclusive": False,
        "ack_required": True,
        "prefetch_count": consumer.wanted,
        "channel_details": {"connection_name": session.connection, "name": session.connection, "user": session.user},
    }


def _receiver_facts(receiver: Receiver, name: SubscriptionName) -> Row:
    """A receiver of a subscription, as a consumer of its topic: rules, not filters, choose its messages."""
    return {
        "stream": name.topic,
        "name": shown(str(name)),
        "filter_values": [],
        "match_unfiltered": False,
        "dialect": None,
        "filter": None,
        "next_offset": None,
        "lag": receiver.lag,
        "filtered_lag": receiver.lag,
        "lost": 0,
        "credit": receiver.wanted,
        "active": True,
        "delivered_chunks": None,
        "delivered_messages": receiver.delivered_messages,
        "delivered_bytes": receiver.delivered_bytes,
        "counters": ScanCounters().as_dict(),
    }


def _consumer_facts(consumer: Consumer) -> Row:
    """One consumer: its place, its filters, and the cost of its reading."""
    options = consumer.options
    return {
        "stream": consumer.stream,
        "name": None if options.name is None else shown(options.name),
        "filter_values": [value.decode(errors="backslashreplace") for value in options.filter_values],
        "match_unfiltered": options.match_unfiltered,
        "dialect": None if options.filter is None else options.filter.dialect,
        "filter": None if options.filter is None else options.filter.text,
        "next_offset": consumer.next_offset,
        "lag": consumer.lag,
        "filtered_lag": consumer.filtered_lag,
        "lost": consumer.lost,
        "credit": consumer.wanted,
        "active": consumer.is_active,
        "delivered_chunks": consumer.delivered_chunks if isinstance(consumer, ChunkConsumer) else None,
        "delivered_messages": consumer.delivered_messages,
        "delivered_bytes": consumer.delivered_bytes,
        "counters": consumer.counters.as_dict(),
    }


def offset_rows(broker: Broker, user: str) -> Iterator[Row]:
    """The offsets that consumers stored in streams that a user may read. Reads the bookkeeping of every stream.

    The row of a stream that cannot be opened, or whose bookkeeping cannot be read, has its error.
    """
    for name in broker.catalogue.names():
        if may_read(broker.users, user, name):
            try:
                stream = broker.catalogue.get(name)
                with stream.guarded():
                    stored = stored_offsets(stream, read_tracking(stream.stream).offsets)
            except HeadgateError as error:
                yield {"stream": name, "error": str(error)}
            else:
                rows = stored_rows(stream.name, stored, stream.next_offset, stream.messages_from)
                yield from ({**row, **error_of(stream)} for row in rows)


def stored_rows(
    stream: str, stored: Mapping[bytes, int], next_offset: int, messages_from: Callable[[int], int]
) -> Iterator[Row]:
    """Stored offsets of one stream by their names, with the number of messages after them."""
    for name, offset in sorted(stored.items()):
        yield {
            "stream": stream,
            "name": shown(name),
            "stored_offset": offset,
            "next_offset": next_offset,
            "lag": messages_from(offset + 1),
        }


def connection_rows(context: ServerContext, user: str) -> Iterator[Row]:
    """The open connections; a user that may not see all of them sees its own."""
    sees_all = may_see_all(context.broker.users, user)
    for record in context.connections:
        if sees_all or record.user == user:
            yield {
                "name": record.name,
                "peer_host": record.peer.host,
                "peer_port": record.peer.port,
                "host": record.peer.local_host,
                "port": context.ports.get(record.listener),
                "listener": record.listener,
                "encrypted": record.peer.is_encrypted,
                "protocol": record.protocol,
                "user": record.user,
                "client": {shown(key): shown(text) for key, text in record.client.items()},
                "opened_ms": record.opened_ms,
                "bytes_received": record.bytes_received,
                "bytes_sent": record.bytes_sent,
                "state": "running" if record.is_read else "flow",
                **_connection_by_other_names(record),
            }


def _connection_by_other_names(record: ConnectionRecord) -> Row:
    """Fields of RabbitMQ's list of connections that are missing here, or have other names."""
    return {
        "vhost": "/",
        "node": NODE,
        "type": "network",
        "ssl": record.peer.is_encrypted,
        "connected_at": record.opened_ms,
        "recv_oct": record.bytes_received,
        "send_oct": record.bytes_sent,
        "client_properties": {shown(key): shown(text) for key, text in record.client.items()},
    }


def user_rows(users: Users) -> Iterator[Row]:
    """Users with their tags and permissions, without a trace of their passwords."""
    for name in users:
        user = users.get(name)
        permissions = user.permissions
        yield {
            "name": name,
            "tags": list(user.tags),
            "configure": permissions.configure,
            "write": permissions.write,
            "read": permissions.read,
            "has_password": user.password_hash is not None,
        }


class BodySchemaFiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The schema of the bodies in a new stream.

    `files` are in base64: one under `""`, an `.avsc` or a FileDescriptorSet; or each under the id of a registry, where
    bodies begin with one. `type` is the full name of a Protobuf message.
    """

    format: SchemaFormat
    files: dict[str, bytes]
    type: str | None = None


class StreamChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """New values for arguments of a stream, by their names without `x-`; null removes an argument.

    `body_schema` is for a stream that is made, and is never changed.
    """

    arguments: dict[str, Any]
    body_schema: BodySchemaFiles | None = None


class UserChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change of a user; fields that are left out stay as they are, and are empty for a new user."""

    password: str | None = None
    tags: list[str] | None = None
    permissions: Permissions | None = None


def change_user(users: Users, name: str, change: UserChange) -> bool:
    """Create a user (returns True), or change one. Raises PreconditionFailedError for a wrong name or pattern."""
    if name not in users:
        tags = tuple(change.tags or ())
        users.add(name, change.password, tags=tags, permissions=change.permissions or NOTHING)
        return True
    if change.permissions is not None:
        users.permit(name, change.permissions)
    if change.tags is not None:
        users.set_tags(name, tuple(change.tags))
    if change.password is not None:
        users.set_password(name, change.password)
    return False
