"""The status codes of RocketMQ's gRPC protocol, and refusals that carry one. Source: `apache.rocketmq.v2`, `Code`."""

from __future__ import annotations

import enum

from headgate.errors import (
    AccessRefusedError,
    AuthenticationError,
    BrokerError,
    EntityDisabledError,
    FilterError,
    HeadgateError,
    LimitExceededError,
    ProtocolError,
    RemoteProtocolError,
    ResourceNotFoundError,
    StreamFullError,
    UnsupportedError,
)


class Status(enum.IntEnum):
    """Status codes of answers, by their numbers on the wire."""

    OK = 20000
    MULTIPLE_RESULTS = 30000
    BAD_REQUEST = 40000
    ILLEGAL_ACCESS_POINT = 40001
    ILLEGAL_TOPIC = 40002
    ILLEGAL_CONSUMER_GROUP = 40003
    ILLEGAL_MESSAGE_TAG = 40004
    ILLEGAL_MESSAGE_KEY = 40005
    ILLEGAL_MESSAGE_GROUP = 40006
    ILLEGAL_MESSAGE_PROPERTY_KEY = 40007
    INVALID_TRANSACTION_ID = 40008
    ILLEGAL_MESSAGE_ID = 40009
    ILLEGAL_FILTER_EXPRESSION = 40010
    ILLEGAL_INVISIBLE_TIME = 40011
    ILLEGAL_DELIVERY_TIME = 40012
    INVALID_RECEIPT_HANDLE = 40013
    MESSAGE_PROPERTY_CONFLICT_WITH_TYPE = 40014
    UNRECOGNIZED_CLIENT_TYPE = 40015
    MESSAGE_CORRUPTED = 40016
    CLIENT_ID_REQUIRED = 40017
    ILLEGAL_POLLING_TIME = 40018
    ILLEGAL_OFFSET = 40019
    ILLEGAL_LITE_TOPIC = 40020
    UNAUTHORIZED = 40100
    FORBIDDEN = 40300
    NOT_FOUND = 40400
    MESSAGE_NOT_FOUND = 40401
    TOPIC_NOT_FOUND = 40402
    CONSUMER_GROUP_NOT_FOUND = 40403
    OFFSET_NOT_FOUND = 40404
    REQUEST_TIMEOUT = 40800
    PAYLOAD_TOO_LARGE = 41300
    MESSAGE_BODY_TOO_LARGE = 41301
    MESSAGE_BODY_EMPTY = 41302
    PRECONDITION_FAILED = 42800
    TOO_MANY_REQUESTS = 42900
    REQUEST_HEADER_FIELDS_TOO_LARGE = 43100
    MESSAGE_PROPERTIES_TOO_LARGE = 43101
    INTERNAL_ERROR = 50000
    INTERNAL_SERVER_ERROR = 50001
    NOT_IMPLEMENTED = 50100
    PROXY_TIMEOUT = 50400
    UNSUPPORTED = 50500
    VERSION_UNSUPPORTED = 50501
    VERIFY_FIFO_MESSAGE_UNSUPPORTED = 50502
    FAILED_TO_CONSUME_MESSAGE = 60000


def refused(status: Status, reason: str) -> RemoteProtocolError:
    """The error that refuses a request with a status; `reason` is RocketMQ's text where clients know one."""
    return RemoteProtocolError(reason, code=status)


_STATUSES: tuple[tuple[type[HeadgateError], Status], ...] = (
    (FilterError, Status.ILLEGAL_FILTER_EXPRESSION),
    (AuthenticationError, Status.UNAUTHORIZED),
    (AccessRefusedError, Status.FORBIDDEN),
    (EntityDisabledError, Status.FORBIDDEN),
    (ResourceNotFoundError, Status.NOT_FOUND),
    (LimitExceededError, Status.TOO_MANY_REQUESTS),
    (StreamFullError, Status.TOO_MANY_REQUESTS),
    (UnsupportedError, Status.UNSUPPORTED),
    (BrokerError, Status.BAD_REQUEST),
    (HeadgateError, Status.INTERNAL_SERVER_ERROR),
)
"""The status that answers an error, by the first class that fits. A ProtocolError brings its own."""


def status_code(error: HeadgateError) -> int:
    """The code of the status that answers an error."""
    if isinstance(error, ProtocolError):
        return int(error.code)
    return next(status for kind, status in _STATUSES if isinstance(error, kind))
