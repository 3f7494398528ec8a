"""Requests about message topics and consumer groups, which RocketMQ's clients use.

    GET    rocketmq/topics          the topics that the user may read
    GET    rocketmq/topics/T        one, with its queues
    PUT    rocketmq/topics/T        {"queues", "accepts"}
    DELETE rocketmq/topics/T
    GET    rocketmq/groups          the groups that the user may read
    GET    rocketmq/groups/G        one
    PUT    rocketmq/groups/G        {"fifo", "max_attempts", "backoff_ms", …}
    DELETE rocketmq/groups/G
    POST   rocketmq/groups/G/reset  {"topic", "to", "queue"}: where it goes on; `to` as where a reader begins

Fields that are left out of a PUT stay as they are; in something new they have their defaults. The query `only` is as in
`requests`. The permission patterns of users apply to names of topics and groups: *read* to see one, *configure* to
change it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import msgspec

from headgate.broker import (
    Broker,
    BrokerStream,
    GroupCounters,
    GroupSettings,
    GroupView,
    MessageKind,
    MessageTopic,
    Permission,
)
from headgate.errors import (
    AccessRefusedError,
    HeadgateError,
    PreconditionFailedError,
    ProtocolError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from headgate.log import OffsetSpecification
from headgate.protocols.rocketmq import check_group, check_topic
from headgate.scan import ScanCounters
from headgate.server.listings import count_messages, error_of, may_read, open_streams, shown
from headgate.server.topics.bodies import decoded
from headgate.server.topics.broker_answers import told
from headgate.server.topics.routes import Answer, Asked, Endpoint

Row = dict[str, Any]


class MessageTopicBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a topic to change; omitted ones stay, or have the default in a new topic."""

    queues: int | None = None
    accepts: list[MessageKind] | None = None


class ResetBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a group goes on in the queues of a topic, or in one of them."""

    topic: str
    to: str
    queue: int | None = None


class MessageTopicRequests:
    """Answers these requests over one broker, in its loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> Iterator[Endpoint]:
        """The paths that are answered here."""
        yield Endpoint("rocketmq/topics", {"GET": self._topics})
        topic = {"GET": self._topic, "PUT": self._put_topic, "DELETE": self._delete_topic}
        yield Endpoint("rocketmq/topics/{topic}", topic)
        yield Endpoint("rocketmq/groups", {"GET": self._groups})
        group = {"GET": self._group, "PUT": self._put_group, "DELETE": self._delete_group}
        yield Endpoint("rocketmq/groups/{group}", group)
        yield Endpoint("rocketmq/groups/{group}/reset", {"POST": self._reset_group})

    # topics

    async def _topics(self, asked: Asked) -> Answer:
        await self._count(open_streams(self._broker))
        return Answer(list(message_topic_rows(self._broker, asked.session.user)))

    async def _topic(self, asked: Asked) -> Answer:
        self._check_readable(asked, asked.topic)
        broker = self._broker
        topic = broker.message_topics.get(asked.topic)
        await self._count(broker.catalogue.get(name) for name in topic.streams)
        queues = [queue_row(broker, number, name) for number, name in enumerate(topic.streams)]
        places = [
            place_row(broker, view) for name in topic.streams for view in broker.consumer_groups.views.views(name)
        ]
        return Answer({**message_topic_row(broker, topic), "queues": queues, "groups": places})

    async def _put_topic(self, asked: Asked) -> Answer:
        given, topics = decoded(asked.request.body, MessageTopicBody), self._broker.message_topics
        self._check_may_change(asked, asked.topic)
        is_new = _is_new(asked, topics.find(asked.topic) is not None, asked.topic)
        if is_new:
            _check_name(check_topic, asked.topic)
            accepts = list(MessageKind) if given.accepts is None else given.accepts
            made = topics.create(asked.topic, given.queues, accepts)
        else:
            made = topics.change(asked.topic, queues=given.queues, accepts=given.accepts)
        return Answer(message_topic_row(self._broker, made), is_new)

    async def _delete_topic(self, asked: Asked) -> Answer:
        self._check_may_change(asked, asked.topic)
        self._broker.message_topics.delete(asked.topic)
        return Answer({"name": asked.topic})

    # groups

    async def _groups(self, asked: Asked) -> Answer:
        users, groups = self._broker.users, self._broker.consumer_groups
        places = await all_group_rows(self._broker)
        names = [name for name in groups.names() if may_read(users, asked.session.user, name)]
        return Answer([group_row(self._broker, name, places) for name in names])

    async def _group(self, asked: Asked) -> Answer:
        self._check_readable(asked, asked.group)
        return await self._group_answer(asked.group)

    async def _group_answer(self, name: str, *, is_new: bool = False) -> Answer:
        places = await all_group_rows(self._broker)
        members = [shown(member) for member in self._broker.members.of(name)]
        return Answer({**group_row(self._broker, name, places), "members": members, "places": places.of(name)}, is_new)

    async def _put_group(self, asked: Asked) -> Answer:
        given, groups = decoded(asked.request.body, dict[str, Any]), self._broker.consumer_groups
        self._check_may_change(asked, asked.group)
        before = groups.find(asked.group)
        is_new = _is_new(asked, before is not None, asked.group)
        if is_new:
            _check_name(check_group, asked.group)
        groups.declare(asked.group, (before or GroupSettings()).changed(given))
        return await self._group_answer(asked.group, is_new=is_new)

    async def _reset_group(self, asked: Asked) -> Answer:
        self._check_may_change(asked, asked.group)
        broker, given = self._broker, decoded(asked.request.body, ResetBody)
        if broker.consumer_groups.find(asked.group) is None:
            raise ResourceNotFoundError("no such consumer group", subject=asked.group)
        start = OffsetSpecification.parse(given.to)
        self._check_readable(asked, given.topic)
        topic = broker.message_topics.get(given.topic)
        if given.queue is not None and not 0 <= given.queue < len(topic.streams):
            raise ResourceNotFoundError(f"it has no queue {given.queue}", subject=topic.name)
        for name in topic.streams if given.queue is None else [topic.streams[given.queue]]:
            stream = broker.catalogue.get(name)
            with stream.guarded():
                offset = stream.stream.offset_of(start, now_ms=broker.now_ms())
            await told(partial(broker.consumer_groups.reset, name, asked.group, offset))
        return await self._group_answer(asked.group)

    async def _delete_group(self, asked: Asked) -> Answer:
        self._check_may_change(asked, asked.group)
        self._broker.consumer_groups.remove(asked.group)
        return Answer({"name": asked.group})

    # inside

    async def _count(self, streams: Iterable[BrokerStream]) -> None:
        """Read the files that messages are counted from, in a thread: the first time that may take seconds."""
        await asyncio.to_thread(count_messages, list(streams))

    def _check_readable(self, asked: Asked, name: str) -> None:
        user = asked.session.user
        if not may_read(self._broker.users, user, name):
            raise AccessRefusedError(f"user {user!r} may not read {name!r}")

    def _check_may_change(self, asked: Asked, name: str) -> None:
        self._broker.users.check(asked.session.user, Permission.CONFIGURE, name)


def _is_new(asked: Asked, is_there: bool, name: str) -> bool:
    """Whether a PUT creates something. Raises ResourceExistsError, ResourceNotFoundError if `only` forbids it."""
    if is_there and asked.only == "new":
        raise ResourceExistsError("it is there already", subject=name)
    if not is_there and asked.only == "existing":
        raise ResourceNotFoundError("there is none of that name", subject=name)
    return not is_there


def _check_name(check: Callable[[str], None], name: str) -> None:
    try:
        check(name)
    except ProtocolError as error:
        raise PreconditionFailedError(error.reason, subject=name[:80]) from error


def message_topic_rows(broker: Broker, user: str) -> Iterator[Row]:
    """The topics that a user may read, in order; the row of an unreadable topic has its error."""
    for name in broker.message_topics.names():
        if may_read(broker.users, user, name):
            try:
                yield message_topic_row(broker, broker.message_topics.get(name))
            except HeadgateError as error:
                yield {"name": name, "error": str(error)}


def message_topic_row(broker: Broker, topic: MessageTopic) -> Row:
    """One topic with the sums over its queues. Raises LogError."""
    queues = [queue_row(broker, number, name) for number, name in enumerate(topic.streams)]
    error = next((queue["error"] for queue in queues if "error" in queue), None)
    return {
        "name": topic.name,
        "queues": len(queues),
        "accepts": [kind.value for kind in MessageKind if kind in topic.accepts],
        **{what: sum(queue[what] for queue in queues) for what in ("messages", "size_bytes", "scheduled")},
        **({} if error is None else {"error": error}),
    }


def queue_row(broker: Broker, number: int, name: str) -> Row:
    """One queue: its stream with offsets and sizes, and how many scheduled messages wait. Raises LogError."""
    stream = broker.catalogue.get(name)
    return {
        "queue": number,
        "stream": name,
        "first_offset": stream.first_offset,
        "next_offset": stream.next_offset,
        "messages": stream.messages_from(0),
        "size_bytes": stream.size_bytes(),
        "scheduled": broker.topics.scheduler.count(stream),
        **error_of(stream),
    }


_COUNTED = ("lag", "claimed", "available", "moving")


def group_row(broker: Broker, name: str, found: GroupRows) -> Row:
    """One consumer group with its settings and the sums over its places. Raises ResourceNotFoundError.

    `error` says what is wrong with the files of a place, or that the group may have one more place in a stream that
    cannot be read.
    """
    settings = broker.consumer_groups.find(name)
    if settings is None:
        raise ResourceNotFoundError("no such consumer group", subject=name)
    places = found.of(name)
    error = next((place["error"] for place in places if "error" in place), found.error)
    return {
        "name": name,
        **settings.json_object(),
        "members": len(broker.members.of(name)),
        "queues": len(places),
        **{what: sum(place[what] for place in places) for what in _COUNTED},
        "counters": _summed(GroupCounters.__dataclass_fields__, (place["counters"] for place in places)),
        "reading": _summed(ScanCounters.__struct_fields__, (place["reading"] for place in places)),
        **({} if error is None else {"error": error}),
    }


def _summed(names: Iterable[str], counted: Iterable[Mapping[str, int]]) -> dict[str, int]:
    rows = list(counted)
    return {name: sum(row[name] for row in rows) for name in names}


@dataclass(slots=True)
class GroupRows:
    """The places of all groups in all queues; `error` is of the last stream whose places cannot be read."""

    by_group: dict[str, list[Row]] = field(default_factory=dict)
    error: str | None = None

    def of(self, group: str) -> list[Row]:
        """The places of one group."""
        return self.by_group.get(group, [])


async def all_group_rows(broker: Broker) -> GroupRows:
    """The places of all groups.

    Cost: opening the ledger of each stream that groups used, milliseconds each; other tasks have their turns between.
    """
    found = GroupRows()
    views = broker.consumer_groups.views
    for name in views.streams():
        try:
            for view in views.views(name):
                found.by_group.setdefault(view.group, []).append(place_row(broker, view))
        except ResourceNotFoundError:
            pass  # deleted meanwhile
        except HeadgateError as error:
            found.error = f"the groups of stream {name!r} cannot be read: {error}"
        await asyncio.sleep(0)
    return found


def place_row(broker: Broker, view: GroupView) -> Row:
    """The place of a group in one queue: its messages there, and its counters since the broker opened it.

    `lag` counts unsettled messages: `claimed` ones are with members, `available` ones came back, `moving` ones are on
    their way to the dead letters.
    """
    topic, queue = broker.message_topics.queue_of(view.stream.name)
    counts = view.counts()
    return {
        "group": view.group,
        "topic": topic,
        "queue": queue,
        "stream": view.stream.name,
        "committed_offset": view.committed_offset,
        "position": view.position,
        "next_offset": view.stream.next_offset,
        **{what: getattr(counts, what) for what in _COUNTED},
        "counters": asdict(view.counters),
        "reading": view.scan_counters.as_dict(),
        **error_of(view.stream),
    }
