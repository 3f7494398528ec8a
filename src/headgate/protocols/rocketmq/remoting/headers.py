"""Typed headers: the fields of requests and of answers.

Names are the protocol's own, numbers are texts on the wire. A request with a missing field, or a value of another
type, is refused with an error that names the field; unknown fields are ignored, as in the original.

Sources: rocketmq_wire B2 to B5; the classes `…RequestHeader` and `…ResponseHeader` of the original's module `remoting`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntFlag
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from headgate.errors import RemoteProtocolError
from headgate.protocols.rocketmq.remoting.codes import RequestCode
from headgate.protocols.rocketmq.remoting.frames import Command, Int32

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Offset = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]

T = TypeVar("T", bound=msgspec.Struct)


class PullFlag(IntFlag):
    """The bits of `sysFlag` in a pull."""

    COMMIT_OFFSET = 1
    MAY_WAIT = 2
    HAS_SUBSCRIPTION = 4
    LITE = 16


class MessageFlag(IntFlag):
    """The bits of `sysFlag` in a message."""

    COMPRESSED = 1
    PREPARED = 4
    ROLLED_BACK = 12
    BORN_HOST_IS_V6 = 16
    STORE_HOST_IS_V6 = 32


class RouteRequest(msgspec.Struct, rename="camel"):
    """`GET_ROUTEINFO_BY_TOPIC`."""

    topic: str


class QueueRequest(msgspec.Struct, rename="camel"):
    """A queue of a topic: `GET_MAX_OFFSET`, `GET_MIN_OFFSET`, `GET_EARLIEST_MSG_STORETIME`."""

    topic: str
    queue_id: Int32


class SearchOffsetRequest(msgspec.Struct, rename="camel"):
    """`SEARCH_OFFSET_BY_TIMESTAMP`: the first message from a time on (`lower`), or the last one before it (`upper`)."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str = "lower"


class QueryOffsetRequest(msgspec.Struct, rename="camel"):
    """`QUERY_CONSUMER_OFFSET`."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool = True


class UpdateOffsetRequest(msgspec.Struct, rename="camel"):
    """`UPDATE_CONSUMER_OFFSET`."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Offset


class PullRequest(msgspec.Struct, rename="camel"):
    """`PULL_MESSAGE`, `LITE_PULL_MESSAGE`; `subscription` counts only with `PullFlag.HAS_SUBSCRIPTION`."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Offset
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Offset = 0
    suspend_timeout_millis: Int64 = 0
    sub_version: Int64 = 0
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Int32 = 2**31 - 1


class SendRequest(msgspec.Struct, rename="camel"):
    """`SEND_MESSAGE`, `SEND_REPLY_MESSAGE`, and with names of one letter both `…_V2` and `SEND_BATCH_MESSAGE`."""

    producer_group: str
    topic: str
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32 = 0
    default_topic: str = ""
    default_topic_queue_nums: Int32 = 4
    properties: str = ""
    reconsume_times: Int32 = 0
    unit_mode: bool = False
    batch: bool = False
    max_reconsume_times: Int32 | None = None


class RecallRequest(msgspec.Struct, rename="camel"):
    """`RECALL_MESSAGE`."""

    topic: str
    recall_handle: str


class SendBackRequest(msgspec.Struct, rename="camel"):
    """`CONSUMER_SEND_MSG_BACK`: the message at a place of the commit log could not be consumed."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


class ViewMessageRequest(msgspec.Struct, rename="camel"):
    """`VIEW_MESSAGE_BY_ID`: the message at a place of the commit log."""

    offset: Int64
    topic: str | None = None


class QueryMessageRequest(msgspec.Struct, rename="camel"):
    """`QUERY_MESSAGE`: the messages of a key."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    index_type: str | None = None
    is_unique: bool = msgspec.field(default=False, name="_UNIQUE_KEY_QUERY")


class GroupRequest(msgspec.Struct, rename="camel"):
    """`GET_CONSUMER_LIST_BY_GROUP`."""

    consumer_group: str


class UnregisterRequest(msgspec.Struct, rename="camel"):
    """`UNREGISTER_CLIENT`."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class RunningInfoRequest(msgspec.Struct, rename="camel"):
    """`GET_CONSUMER_RUNNING_INFO`."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


_LETTERS = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "l": "maxReconsumeTimes",
    "m": "batch",
}


_NAMED_SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)


def read_header(command: Command, kind: type[T]) -> T:
    """The fields of a request as a typed header. Raises RemoteProtocolError that names the wrong field."""
    return _convert(command.fields, kind)


def read_send(command: Command) -> SendRequest:
    """The header of any request to send; errors as `read_header`."""
    fields: Mapping[str, str] = command.fields
    if command.code not in _NAMED_SENDS:
        fields = {_LETTERS[name]: value for name, value in fields.items() if name in _LETTERS}
    return _convert(fields, SendRequest)


def _convert(fields: Mapping[str, str], kind: type[T]) -> T:
    try:
        return msgspec.convert(fields, kind, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise RemoteProtocolError(f"the header of the request: {str(error)[:200]}", code="wrong header") from error


def pull_fields(*, next_offset: int, min_offset: int, max_offset: int) -> dict[str, str]:
    """The fields of an answer to a pull."""
    return {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(next_offset),
        "minOffset": str(min_offset),
        "maxOffset": str(max_offset),
    }
