"""Bodies in JSON: routes, heartbeats, lists of members, locks of queues.

Clients in Java write with fastjson, which leaves quotes off keys that are numbers, and takes keys without quotes,
texts in single quotes and commas too many. We write standard JSON, which all clients read, and read theirs.

Source: rocketmq_wire B2, B5; the classes of these names in the original's module `remoting`.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from headgate.errors import RemoteProtocolError
from headgate.protocols.rocketmq.remoting.frames import Buffer, Int32
from headgate.protocols.rocketmq.remoting.headers import Int64

READ, WRITE = 4, 2
"""Permission bits of a queue."""

T = TypeVar("T", bound=msgspec.Struct)


# routes


class BrokerData(msgspec.Struct, rename="camel"):
    """A broker; its addresses by its numbers in the cluster, 0 for the one that takes messages."""

    cluster: str
    broker_name: str
    broker_addrs: dict[str, str]


class QueueData(msgspec.Struct, rename="camel"):
    """How many queues of a topic a broker has."""

    broker_name: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32 = READ | WRITE
    topic_sys_flag: Int32 = 0


class RouteData(msgspec.Struct, rename="camel"):
    """Where a topic is."""

    broker_datas: list[BrokerData]
    queue_datas: list[QueueData]
    filter_server_table: dict[str, list[str]] = {}


class ClusterInfo(msgspec.Struct, rename="camel"):
    """The brokers that a name server knows."""

    broker_addr_table: dict[str, BrokerData]
    cluster_addr_table: dict[str, list[str]]


# heartbeats


class SubscriptionData(msgspec.Struct, rename="camel"):
    """The subscription of a consumer group to a topic. `expressionType` none or empty means TAG."""

    topic: str
    sub_string: str | None = None
    expression_type: str | None = None
    tags_set: list[str] | None = None
    code_set: list[Int32] | None = None
    sub_version: Int64 = 0
    class_filter_mode: bool = False


class ConsumerData(msgspec.Struct, rename="camel"):
    """A client's membership of a consumer group."""

    group_name: str
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    subscription_data_set: list[SubscriptionData] | None = None
    unit_mode: bool = False


class ProducerData(msgspec.Struct, rename="camel"):
    """A client's membership of a producer group."""

    group_name: str


class Heartbeat(msgspec.Struct, rename="camel"):
    """A sign of life of a client. With `withoutSub` its subscriptions are left out: the last heartbeat's count."""

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] | None = None
    consumer_data_set: list[ConsumerData] | None = None
    heartbeat_fingerprint: Int64 = 0
    without_sub: bool = False


def subscriptions_of(body: Buffer) -> list[SubscriptionData]:
    """The subscriptions of a consumer, from the body of its `GET_CONSUMER_RUNNING_INFO`.

    The rest of the body is no standard JSON: clients in Java have objects as keys. Raises RemoteProtocolError.
    """
    _, _, rest = str(bytes(body), "utf-8", "replace").partition('"subscriptionSet":')
    try:
        _, stop = _SCANNER.raw_decode(rest)
        return _SUBSCRIPTIONS.decode(rest[:stop].encode())
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"the body of the answer: {str(error)[:200]}", code="wrong body") from error


class CheckClient(msgspec.Struct, rename="camel"):
    """A client asks whether an expression can be served."""

    client_id: str | None = None
    group: str | None = None
    subscription_data: SubscriptionData | None = None


# groups


class ConsumerList(msgspec.Struct, rename="camel"):
    """The members of a consumer group."""

    consumer_id_list: list[str]


class MessageQueue(msgspec.Struct, frozen=True, rename="camel"):
    """A queue as clients name it."""

    topic: str
    queue_id: Int32
    broker_name: str | None = None


class LockRequest(msgspec.Struct, rename="camel"):
    """`LOCK_BATCH_MQ`, `UNLOCK_BATCH_MQ`: a member wants queues for itself, or gives them back."""

    consumer_group: str
    client_id: str
    queues: list[MessageQueue] = msgspec.field(default_factory=list, name="mqSet")


class LockAnswer(msgspec.Struct, rename="camel"):
    """The queues that a member has for itself."""

    locked: list[MessageQueue] = msgspec.field(name="lockOKMQSet")


class AssignmentRequest(msgspec.Struct, rename="camel"):
    """`QUERY_ASSIGNMENT`: a member that does not divide queues itself asks which ones it has."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str | None = None
    message_model: str | None = None


class QueueAssignment(msgspec.Struct, rename="camel"):
    """A queue that a member has, and how it is to take its messages."""

    message_queue: MessageQueue
    mode: str = "PULL"
    attachments: dict[str, str] = {}


class AssignmentAnswer(msgspec.Struct, rename="camel"):
    """All that a member has of a topic."""

    message_queue_assignments: list[QueueAssignment]


_encode = msgspec.json.Encoder().encode
_SCANNER = json.JSONDecoder()
_SUBSCRIPTIONS = msgspec.json.Decoder(list[SubscriptionData], strict=False)
_TEXT = rb"""("(?:[^"\\]++|\\(?:.|\Z))*+(?:"|\Z))"""
"""A text in quotes, or one without an end; no byte is examined twice."""
_UNQUOTED = re.compile(
    _TEXT + rb"""|'((?:[^'\\]++|\\(?:.|\Z))*+)(?:'|\Z)|(?<![\w$."'-])([A-Za-z_$][\w$.-]*+|-?[0-9]+)(?=\s*+:)""",
    re.DOTALL,
)
_COMMA = re.compile(_TEXT + rb"""|,(?=\s*+[\]}])""", re.DOTALL)


def encode_body(value: msgspec.Struct) -> bytes:
    """A body in standard JSON."""
    return _encode(value)


def decode_body(body: Buffer, kind: type[T]) -> T:
    """A body as a `kind`. Raises RemoteProtocolError with the reason; cost linear in its length."""
    decode: Callable[[Buffer], T] = _decoder(kind).decode
    try:
        try:
            return decode(body)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return decode(_standard(bytes(body)))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"the body of the request: {str(error)[:200]}", code="wrong body") from error


@functools.cache
def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind, strict=False)


def _standard(body: bytes) -> bytes:
    """The same in standard JSON, as far as fastjson's liberties go."""
    return _COMMA.sub(lambda match: match[1] or b"", _UNQUOTED.sub(_quoted, body))


def _quoted(match: re.Match[bytes]) -> bytes:
    if match[1] is not None:
        return match[1]
    text = match[3] if match[3] is not None else match[2].replace(rb"\'", b"'").replace(b'"', rb"\"")
    return b'"' + text + b'"'
