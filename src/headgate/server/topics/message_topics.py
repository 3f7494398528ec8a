"""Endpoints of message topics and consumer groups, which RocketMQ's clients use.

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
from headgate.server.http import Answer, Endpoint, Group, described, stored
from headgate.server.listings import count_messages, error_of, may_read, open_streams, shown
from headgate.server.topics.bodies import NamedAnswer
from headgate.server.topics.broker_answers import told
from headgate.server.topics.calls import PutQuery, TopicCall, TopicEndpoints
from headgate.server.topics.dead_letters import DeadLetterRequests

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


def message_topic_group(broker: Broker) -> Group:
    """The endpoints of message topics and consumer groups."""
    requests, letters = _MessageTopicRequests(broker), DeadLetterRequests(broker)
    return Group(
        "Topics and consumer groups of RocketMQ",
        "Topics and consumer groups that clients of RocketMQ use.",
        (*requests.topic_endpoints(), *requests.group_endpoints(), *letters.group_endpoints()),
    )


class _MessageTopicRequests:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._make = TopicEndpoints(broker).endpoint

    def topic_endpoints(self) -> Iterator[Endpoint]:
        """The endpoints of topics."""
        yield self._make(
            "GET",
            "rocketmq/topics",
            "Topics that the user may read: `queues`, `accepts`, `messages`, `size_bytes`, `scheduled` (messages for "
            "later); `error` where one cannot be read.",
            self._topics,
            answer=list[Row],
        )
        yield self._make(
            "GET",
            "rocketmq/topics/{topic}",
            "One topic with each of its `queues`, and the places of `groups` in them.",
            self._topic,
            permission="read the topic",
            answer=Row,
        )
        yield self._make(
            "PUT",
            "rocketmq/topics/{topic}",
            "Makes a topic, or changes one; queues are added, never removed.",
            self._put_topic,
            permission="configure the topic",
            query=PutQuery,
            body=MessageTopicBody,
            example={"queues": 8, "accepts": ["normal", "delay"]},
            answer=Row,
            statuses=(201, 200),
            errors=(409,),
            action="message-topic.put",
        )
        yield self._make(
            "DELETE",
            "rocketmq/topics/{topic}",
            "Deletes a topic with its queues and messages; publishers and consumers are told.",
            self._delete_topic,
            permission="configure the topic",
            answer=NamedAnswer,
            action="message-topic.delete",
        )

    def group_endpoints(self) -> Iterator[Endpoint]:
        """The endpoints of consumer groups."""
        a_group = "rocketmq/groups/{group}"
        yield self._make(
            "GET",
            "rocketmq/groups",
            "Groups that the user may read: settings, `members`, `queues` in which they have a place, `lag`, "
            "`claimed`, `available`, `moving`, `dead_letters` that were neither resubmitted nor deleted; sums of "
            "`counters` and `reading` since the server opened the queues.",
            self._groups,
            answer=list[Row],
        )
        yield self._make(
            "GET",
            a_group,
            "One group, with the ids of its `members`, and `places`: `topic`, `queue`, `committed_offset` (the lowest "
            "that is not settled), `position`, `next_offset`, counts, `counters` and `reading`.",
            self._group,
            permission="read the group",
            answer=Row,
        )
        yield self._make(
            "PUT",
            a_group,
            "Makes a group, or changes its settings.",
            self._put_group,
            permission="configure the group",
            query=PutQuery,
            body=described(Row, "Settings of the group."),
            example={"fifo": True, "max_attempts": 5, "backoff_ms": [1000, 5000]},
            answer=Row,
            statuses=(201, 200),
            errors=(409,),
            action="group.put",
        )
        yield self._make(
            "POST",
            f"{a_group}/reset",
            "Moves the place of a group in one queue of a topic, or without `queue` in all; `to` is `first`, `next`, "
            "an offset, an interval (`10m`) or an ISO time.",
            self._reset_group,
            permission="configure the group, read the topic",
            body=ResetBody,
            example={"topic": "orders", "to": "first", "queue": 0},
            answer=Row,
            action="group.reset",
        )
        yield self._make(
            "DELETE",
            a_group,
            "Deletes a group and its places; its dead letters stay.",
            self._delete_group,
            permission="configure the group",
            answer=NamedAnswer,
            action="group.delete",
        )

    # topics

    async def _topics(self, call: TopicCall) -> Answer:
        await self._count(open_streams(self._broker))
        return Answer(list(message_topic_rows(self._broker, call.session.user)))

    async def _topic(self, call: TopicCall) -> Answer:
        self._check_readable(call, call.topic)
        broker = self._broker
        topic = broker.message_topics.get(call.topic)
        await self._count(broker.catalogue.get(name) for name in topic.streams)
        queues = [queue_row(broker, number, name) for number, name in enumerate(topic.streams)]
        places = [
            place_row(broker, view) for name in topic.streams for view in broker.consumer_groups.views.views(name)
        ]
        return Answer({**message_topic_row(broker, topic), "queues": queues, "groups": places})

    async def _put_topic(self, call: TopicCall) -> Answer:
        given, topics = call.body, self._broker.message_topics
        self._check_may_change(call, call.topic)
        is_new = _is_new(call, topics.find(call.topic) is not None, call.topic)
        if is_new:
            _check_name(check_topic, call.topic)
            accepts = list(MessageKind) if given.accepts is None else given.accepts
            made = topics.create(call.topic, given.queues, accepts)
        else:
            made = topics.change(call.topic, queues=given.queues, accepts=given.accepts)
        return stored(message_topic_row(self._broker, made), is_new=is_new)

    async def _delete_topic(self, call: TopicCall) -> Answer:
        self._check_may_change(call, call.topic)
        self._broker.message_topics.delete(call.topic)
        return Answer(NamedAnswer(call.topic))

    # groups

    async def _groups(self, call: TopicCall) -> Answer:
        users, groups = self._broker.users, self._broker.consumer_groups
        places = await all_group_rows(self._broker)
        names = [name for name in groups.names() if may_read(users, call.session.user, name)]
        return Answer([group_row(self._broker, name, places) for name in names])

    async def _group(self, call: TopicCall) -> Answer:
        self._check_readable(call, call.group)
        return await self._group_answer(call.group)

    async def _group_answer(self, name: str, *, is_new: bool = False) -> Answer:
        places = await all_group_rows(self._broker)
        members = [shown(member) for member in self._broker.members.of(name)]
        row = {**group_row(self._broker, name, places), "members": members, "places": places.of(name)}
        return stored(row, is_new=is_new)

    async def _put_group(self, call: TopicCall) -> Answer:
        given, groups = call.body, self._broker.consumer_groups
        self._check_may_change(call, call.group)
        before = groups.find(call.group)
        is_new = _is_new(call, before is not None, call.group)
        if is_new:
            _check_name(check_group, call.group)
        groups.declare(call.group, (before or GroupSettings()).changed(given))
        return await self._group_answer(call.group, is_new=is_new)

    async def _reset_group(self, call: TopicCall) -> Answer:
        self._check_may_change(call, call.group)
        broker, given = self._broker, call.body
        if broker.consumer_groups.find(call.group) is None:
            raise ResourceNotFoundError("no such consumer group", subject=call.group)
        start = OffsetSpecification.parse(given.to)
        self._check_readable(call, given.topic)
        topic = broker.message_topics.get(given.topic)
        if given.queue is not None and not 0 <= given.queue < len(topic.streams):
            raise ResourceNotFoundError(f"it has no queue {given.queue}", subject=topic.name)
        for name in topic.streams if given.queue is None else [topic.streams[given.queue]]:
            stream = broker.catalogue.get(name)
            with stream.guarded():
                offset = stream.stream.offset_of(start, now_ms=broker.now_ms())
            await told(partial(broker.consumer_groups.reset, name, call.group, offset))
        return await self._group_answer(call.group)

    async def _delete_group(self, call: TopicCall) -> Answer:
        self._check_may_change(call, call.group)
        self._broker.consumer_groups.remove(call.group)
        return Answer(NamedAnswer(call.group))

    # inside

    async def _count(self, streams: Iterable[BrokerStream]) -> None:
        """Read the files that messages are counted from, in a thread: the first time that may take seconds."""
        await asyncio.to_thread(count_messages, list(streams))

    def _check_readable(self, call: TopicCall, name: str) -> None:
        user = call.session.user
        if not may_read(self._broker.users, user, name):
            raise AccessRefusedError(f"user {user!r} may not read {name!r}")

    def _check_may_change(self, call: TopicCall, name: str) -> None:
        self._broker.users.check(call.session.user, Permission.CONFIGURE, name)


def _is_new(call: TopicCall, is_there: bool, name: str) -> bool:
    """Whether a PUT creates something. Raises ResourceExistsError, ResourceNotFoundError if `only` forbids it."""
    if is_there and call.only == "new":
        raise ResourceExistsError("it is there already", subject=name)
    if not is_there and call.only == "existing":
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
    try:
        letters = broker.consumer_groups.views.dead_letters(name)
        dead_letters = 0 if letters is None else letters.unsettled
    except HeadgateError as problem:
        dead_letters, error = 0, error or f"its dead letters cannot be read: {problem}"
    return {
        "name": name,
        **settings.json_object(),
        "members": len(broker.members.of(name)),
        "queues": len(places),
        **{what: sum(place[what] for place in places) for what in _COUNTED},
        "dead_letters": dead_letters,
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
