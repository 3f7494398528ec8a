"""Subscription expressions, the streams of queues, and places in them, as requests name them."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from headgate.broker import Broker, Session
from headgate.derived.match_index import Announcement
from headgate.errors import LimitExceededError, PreconditionFailedError, ResourceNotFoundError
from headgate.evaluate import Filter
from headgate.language.rocketmq import TAGS
from headgate.protocols.rocketmq import numbered_place_of, place_of
from headgate.protocols.rocketmq.remoting import bodies as b

_TAG_TYPES = frozenset({None, "", "TAG"})
_SQL = "SQL92"
_DIALECT = "rocketmq"


def announcement_of(data: b.SubscriptionData, limit_bytes: int) -> Announcement:
    """The announcement of a subscription. Raises LimitExceededError for an expression that is too long."""
    return announced(data.sub_string, data.expression_type, data.sub_version, limit_bytes)


def announced(text: str | None, kind: str | None, version: int, limit_bytes: int) -> Announcement:
    """As `announcement_of`, from the parts; an unknown kind becomes an unknown language."""
    expression = text or ""
    if len(expression) > limit_bytes or len(expression.encode("utf-8", "replace")) > limit_bytes:
        raise LimitExceededError(f"a filter of more than {limit_bytes} bytes")
    if kind in _TAG_TYPES:
        return Announcement(expression or "*", TAGS, version)
    return Announcement(expression, _DIALECT if kind == _SQL else str(kind), version)


_filter_of = functools.lru_cache(maxsize=1024)(Filter.subscribed)


def check_expression(announcement: Announcement) -> Filter | None:
    """The announced filter, None for all messages. Raises FilterError, and ConfigError for an unknown language."""
    return _filter_of(announcement.text, announcement.dialect)


def readable_stream(session: Session, topic: str, queue: int) -> str:
    """The stream of a queue that the client may consume from.

    Raises ResourceNotFoundError for the topic, PreconditionFailedError for the queue, AccessRefusedError.
    """
    found = session.message_topic(topic)
    if found is None:
        raise ResourceNotFoundError(f"topic[{topic}] not exist, apply first please!")
    if not 0 <= queue < len(found.streams):
        raise PreconditionFailedError(
            f"queueId[{queue}] is illegal, topic:[{topic}] readQueueNums:[{len(found.streams)}]"
        )
    session.check_reads(topic)
    return found.streams[queue]


def reads_stream(session: Session, broker: Broker, stream: str) -> bool:
    """Whether the client may consume from the topic that a stream is a queue of."""
    return session.reads(broker.message_topics.queue_of(stream)[0])


@dataclass(frozen=True, slots=True)
class MessageReference:
    """The place of a message."""

    topic: str
    queue: int
    stream: str
    offset: int


def find_message(session: Session, broker: Broker, commit_offset: int, topic: str | None) -> MessageReference:
    """The place of a commit offset, if the client may read it; `topic` is for an offset that does not name its queue.

    Raises ResourceNotFoundError for a queue that does not exist or was replaced, AccessRefusedError,
    PreconditionFailedError, LogError.
    """
    numbered = numbered_place_of(commit_offset)
    if numbered is not None:
        number, offset = numbered
        stream = broker.queue_numbers.find(number)
        if stream is None:
            raise ResourceNotFoundError("can not find message, its queue is not there")
        topic, queue = broker.message_topics.queue_of(stream)
        session.check_reads(topic)
        return MessageReference(topic, queue, stream, offset)
    if not topic:
        raise PreconditionFailedError("can not find message without its topic")
    queue, offset = place_of(commit_offset)
    return MessageReference(topic, queue, readable_stream(session, topic, queue), offset)
