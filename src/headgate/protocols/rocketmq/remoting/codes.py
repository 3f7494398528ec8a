"""Numbers of the protocol, and the code that answers each error.

Source: rocketmq_wire, part B; the classes of the same names in the original's module `remoting`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, IntFlag

from headgate.errors import (
    AccessRefusedError,
    AuthenticationError,
    BrokerError,
    FilterError,
    HeadgateError,
    LimitExceededError,
    LogError,
    PreconditionFailedError,
    ProtocolError,
    ResourceNotFoundError,
    StorageFullError,
    StreamFullError,
    UnsupportedError,
)
from headgate.protocols.rocketmq.codes import Status

VERSION = 513
"""The version in answers: RocketMQ 5.5.0. Clients derive from it what a broker can do, SQL92 for example."""


class Serialization(IntEnum):
    """How the header of a frame is written; an answer is written as its request was."""

    JSON = 0
    BINARY = 1


class Language(IntEnum):
    """The language that a peer is written in."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


class Flag(IntFlag):
    """The bits of a frame's flag."""

    RESPONSE = 1
    ONE_WAY = 2


class RequestCode(IntEnum):
    """Requests that are understood; every other number is answered with `REQUEST_CODE_NOT_SUPPORTED`."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    GET_CONSUMER_LIST_BY_GROUP = 38
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    CHECK_CLIENT_CONFIG = 46
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    GET_CONSUMER_RUNNING_INFO = 307
    SEND_MESSAGE_V2 = 310
    SEND_BATCH_MESSAGE = 320
    SEND_REPLY_MESSAGE = 324
    SEND_REPLY_MESSAGE_V2 = 325
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326
    LITE_PULL_MESSAGE = 361
    RECALL_MESSAGE = 370
    QUERY_ASSIGNMENT = 400


class ResponseCode(IntEnum):
    """Codes of answers."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29
    CONSUMER_NOT_ONLINE = 206


_CODES: tuple[tuple[type[HeadgateError], ResponseCode], ...] = (
    (AuthenticationError, ResponseCode.NO_PERMISSION),
    (AccessRefusedError, ResponseCode.NO_PERMISSION),
    (ResourceNotFoundError, ResponseCode.TOPIC_NOT_EXIST),
    (StreamFullError, ResponseCode.SERVICE_NOT_AVAILABLE),
    (StorageFullError, ResponseCode.SERVICE_NOT_AVAILABLE),
    (LimitExceededError, ResponseCode.MESSAGE_ILLEGAL),
    (PreconditionFailedError, ResponseCode.INVALID_PARAMETER),
    (UnsupportedError, ResponseCode.NO_PERMISSION),
    (FilterError, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    (ProtocolError, ResponseCode.SYSTEM_ERROR),
    (BrokerError, ResponseCode.SYSTEM_ERROR),
    (LogError, ResponseCode.SYSTEM_ERROR),
    (HeadgateError, ResponseCode.SYSTEM_ERROR),
)


_STATUSES: Mapping[int | str, ResponseCode] = {
    Status.ILLEGAL_TOPIC: ResponseCode.INVALID_PARAMETER,
    Status.ILLEGAL_CONSUMER_GROUP: ResponseCode.INVALID_PARAMETER,
    Status.MESSAGE_BODY_TOO_LARGE: ResponseCode.MESSAGE_ILLEGAL,
    Status.MESSAGE_PROPERTIES_TOO_LARGE: ResponseCode.MESSAGE_ILLEGAL,
    Status.MESSAGE_CORRUPTED: ResponseCode.MESSAGE_ILLEGAL,
}
"""The codes of refusals that both protocols share."""


def response_code(error: HeadgateError) -> ResponseCode:
    """The code that answers an error: the first in the table for one of its classes."""
    if isinstance(error, ProtocolError) and error.code in _STATUSES:
        return _STATUSES[error.code]
    return next(code for kind, code in _CODES if isinstance(error, kind))
