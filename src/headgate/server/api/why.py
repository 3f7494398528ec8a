"""`POST /api/why`: why a consumer got a message, or did not, by `headgate.trace`, with what only the server knows."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Annotated

import msgspec

from headgate.broker import Broker, BrokerStream, ConsumerOptions, Permission
from headgate.errors import AccessRefusedError, ConfigError, ResourceNotFoundError, RuleNotFoundError
from headgate.evaluate import Filter
from headgate.language import DEFAULT_DIALECT
from headgate.server import listings as lists
from headgate.server.api.rights import found_stream
from headgate.server.context import ServerContext
from headgate.server.http import Answer, Call, Endpoint, Group, RequestRefusedError
from headgate.topic import DEAD_LETTER_QUEUE, SubscriptionName
from headgate.trace import Answer as WhyAnswer
from headgate.trace import ConnectedConsumer, Facts, Question, ReaderFilter, Selector, ask

BUDGET_MS = 5_000
MOST_BUDGET_MS = 20_000
QUESTIONS = 4
"""Limit: questions that are being answered at a time; each has a thread."""


class WhyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"consumer": "for"}):
    """Which message of a stream, topic or queue, and for whom. Exactly one of `id`, `offset` and `where` is given."""

    name: Annotated[str, msgspec.Meta(description="The stream, topic or queue.")]
    id: Annotated[str | None, msgspec.Meta(description="The message id.")] = None
    offset: Annotated[int | None, msgspec.Meta(description="The offset of the message, 0 or more.")] = None
    where: Annotated[str | None, msgspec.Meta(description="A filter that selects the message alone.")] = None
    language: Annotated[str | None, msgspec.Meta(description="The language of `where`.")] = None
    consumer: Annotated[
        str | None,
        msgspec.Meta(
            description="A subscription, a queue, the dead letters of either, a consumer group, a connected consumer, "
            "or a name of stored offsets; without it all that there are."
        ),
    ] = None
    filter: Annotated[str | None, msgspec.Meta(description="A filter to ask in place of a consumer.")] = None
    filter_language: str = DEFAULT_DIALECT
    filter_values: tuple[str, ...] = ()
    match_unfiltered: bool = False
    budget_ms: Annotated[
        int, msgspec.Meta(ge=0, le=MOST_BUDGET_MS, description="How long the message is looked for.")
    ] = BUDGET_MS

    def question(self) -> Question:
        """The question. Raises ConfigError, FilterError."""
        selector = Selector(id=self.id, offset=self.offset, where=self.where, language=self.language)
        wanted = ReaderFilter(
            None if self.filter is None else Filter.parse(self.filter, self.filter_language),
            tuple(value.encode() for value in self.filter_values),
            self.match_unfiltered,
        )
        question = Question(self.name, selector, self.consumer, wanted, self.budget_ms / 1_000)
        question.check()
        return question


def why_group(context: ServerContext) -> Group:
    """The endpoint of these questions."""
    return Group(
        "Why not?",
        "Why a consumer got a message, or did not.",
        (
            Endpoint(
                "POST",
                "why",
                "Why a consumer got a message, or did not: where it is stored, the rules or the filter in force for "
                "it with each clause, and what became of it.",
                _Questions(context).answer,
                permission="read the stream or topic; or the subscription, for its own messages",
                body=WhyRequest,
                example={"name": "orders", "id": "a-4711", "for": "red"},
                answer=WhyAnswer,
                errors=(404,),
                is_change=False,
            ),
        ),
    )


class _Questions:
    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._broker = context.broker
        self._asked = 0

    async def answer(self, call: Call) -> Answer:
        request: WhyRequest = call.body
        name, only = self._permitted(call.user, request)
        # In a thread: a long filter takes a while.
        question = await asyncio.to_thread(request.question)
        if only is not None:
            question = replace(question, consumer=str(only))
        streams = self._streams(name, call.user)
        if self._asked >= QUESTIONS:
            raise RequestRefusedError(503, f"{QUESTIONS} such questions are being answered, ask again later")
        self._asked += 1
        try:
            facts = facts_of(self._broker, call.user, streams)
            # In a thread: it may read all of a stream.
            answer = await asyncio.to_thread(
                ask,
                question,
                [stream.stream for stream in streams],
                self._broker.root,
                clock=self._context.clock,
                facts=facts,
            )
        finally:
            self._asked -= 1
        return Answer((answer if only is None else _own(answer)).as_dict())

    def _permitted(self, user: str, request: WhyRequest) -> tuple[str, SubscriptionName | None]:
        """The stream or topic of a question; and the subscription, if that is all that the user may read.

        Raises AccessRefusedError.
        """
        users, named = self._broker.users, SubscriptionName.parse(request.name)
        name = request.name if named is None or self._broker.catalogue.find(request.name) else named.topic
        try:
            users.check(user, Permission.READ, name)
        except AccessRefusedError:
            if request.consumer is None and named is None:
                raise
            only = _subscription_of(name, request.consumer or request.name)
            users.check(user, Permission.READ, str(only))
            if request.where is not None or not self._has_subscription(only):
                # A filter over all messages would tell what those of others hold.
                raise
            return name, only
        return name, None

    def _has_subscription(self, name: SubscriptionName) -> bool:
        try:
            return self._broker.topics.get(name.topic).history.has_subscription(name.subscription)
        except (RuleNotFoundError, ResourceNotFoundError):
            return False

    def _streams(self, name: str, user: str) -> list[BrokerStream]:
        """The stream of a name, or the queues of a topic. Raises ResourceNotFoundError with similar names, LogError."""
        topic = self._broker.message_topics.find(name)
        return [found_stream(self._broker, user, each) for each in (topic.streams if topic is not None else (name,))]


def _subscription_of(topic: str, consumer: str) -> SubscriptionName:
    """The subscription, or its dead letters, that a name means in a topic. Raises ConfigError for an empty name."""
    parsed = SubscriptionName.parse(consumer)
    if parsed is not None and parsed.topic == topic:
        return parsed
    name, slash, rest = consumer.partition("/")
    if not name:
        raise ConfigError("for: found an empty name")
    return SubscriptionName(topic, name, bool(slash) and rest.lower() == DEAD_LETTER_QUEUE.lower())


def _own(answer: WhyAnswer) -> WhyAnswer:
    """The answer for a user who may read the subscription only: nothing of a message that it did not get."""
    if any(each.copies for each in answer.consumers):
        return answer
    text = "its rules do not select the message; what the message says, only readers of the topic are told"
    hidden = []
    for each in answer.consumers:
        steps = tuple(replace(step, text=text) if step.step == "decided" else step for step in each.steps)
        summary = text if each.decisions else each.summary
        hidden.append(replace(each, summary=summary, steps=steps, decisions=()))
    message = None if answer.message is None else replace(answer.message, id=None, filter_value=None)
    return replace(answer, message=message, consumers=tuple(hidden))


# what only the server knows


def facts_of(broker: Broker, user: str, streams: Sequence[BrokerStream]) -> Facts:
    """The connected consumers of some streams, as far as a user may see them."""
    names = {stream.name for stream in streams}
    return Facts(
        is_known=True,
        consumers=tuple(_consumers(broker, user, names)),
        receivers=tuple(_receivers(broker, user, names)),
        readers=tuple(_readers(broker, user, names)),
        offsets=tuple(
            (stream.name, lists.shown(name), offset)
            for stream in streams
            for name, offset in lists.stored_offsets(stream, {}).items()
        ),
    )


def _consumers(broker: Broker, user: str, streams: Collection[str]) -> Iterator[ConnectedConsumer]:
    for session, consumer in lists.consumers(broker):
        if consumer.stream in streams and lists.may_read(broker.users, user, consumer.stream):
            options = consumer.options
            yield _connected(
                consumer.stream,
                "" if options.name is None else lists.shown(options.name),
                options,
                tag=lists.shown(options.tag),
                connection=session.connection,
                user=session.user,
                protocol=session.protocol,
                begun_at=consumer.begun_at,
                next_offset=consumer.next_offset,
                credit=consumer.wanted,
            )


def _receivers(broker: Broker, user: str, streams: Collection[str]) -> Iterator[ConnectedConsumer]:
    for session, receiver, name in lists.receivers(broker):
        readable = (name.topic, str(name))
        if name.topic in streams and any(lists.may_read(broker.users, user, each) for each in readable):
            yield ConnectedConsumer(
                name.topic,
                str(name),
                tag=lists.shown(receiver.tag),
                connection=session.connection,
                user=session.user,
                protocol=session.protocol,
                credit=receiver.wanted,
            )


def _readers(broker: Broker, user: str, streams: Collection[str]) -> Iterator[ConnectedConsumer]:
    """The consumer groups of RocketMQ's clients with what their members ask for now."""
    for view in broker.consumer_groups.views.known():
        stream = view.stream.name
        if stream not in streams or not lists.may_read(broker.users, user, stream):
            continue
        if view.reader is not None:
            yield _connected(
                stream,
                view.group,
                view.reader.options,
                protocol="consumer group",
                next_offset=view.position,
                credit=view.reader.wanted,
            )
            continue
        topic, _ = broker.message_topics.queue_of(stream)
        subscription = broker.members.subscription(view.group, topic)
        if subscription is not None and subscription.refusal is None:
            yield ConnectedConsumer(
                stream, view.group, protocol="consumer group", filter=subscription.filter, next_offset=view.position
            )


def _connected(stream: str, name: str, options: ConsumerOptions, **more: object) -> ConnectedConsumer:
    request = options.request()
    return ConnectedConsumer(
        stream,
        name,
        filter=request.filter,
        filter_values=request.filter_values,
        match_unfiltered=request.match_unfiltered,
        **more,  # type: ignore[arg-type]
    )
