"""Error conditions of AMQP 1.0, and which of Headgate's errors becomes which.

Sources: OASIS AMQP 1.0 part 2 (transport), sections 2.8.15 to 2.8.18; what RabbitMQ uses them for: amqp10_rabbit,
sections 3 and 6.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from headgate.errors import (
    AccessRefusedError,
    AuthenticationError,
    BrokerError,
    ConfigError,
    FilterError,
    HeadgateError,
    LimitExceededError,
    LogError,
    MessageError,
    OffsetOutOfRangeError,
    PreconditionFailedError,
    ReservedNameError,
    ResourceExistsError,
    ResourceNotFoundError,
    StorageFullError,
    StreamExistsError,
    StreamLockedError,
    StreamNotFoundError,
    StreamReadOnlyError,
    UnsuitableArgumentError,
    UnsupportedError,
)


class Condition(enum.StrEnum):
    """The symbols of the standard: of errors in general, of connections, sessions and links."""

    INTERNAL_ERROR = "amqp:internal-error"
    NOT_FOUND = "amqp:not-found"
    UNAUTHORIZED_ACCESS = "amqp:unauthorized-access"
    DECODE_ERROR = "amqp:decode-error"
    RESOURCE_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded"
    NOT_ALLOWED = "amqp:not-allowed"
    INVALID_FIELD = "amqp:invalid-field"
    NOT_IMPLEMENTED = "amqp:not-implemented"
    RESOURCE_LOCKED = "amqp:resource-locked"
    PRECONDITION_FAILED = "amqp:precondition-failed"
    RESOURCE_DELETED = "amqp:resource-deleted"
    ILLEGAL_STATE = "amqp:illegal-state"
    FRAME_SIZE_TOO_SMALL = "amqp:frame-size-too-small"
    CONNECTION_FORCED = "amqp:connection:forced"
    FRAMING_ERROR = "amqp:connection:framing-error"
    WINDOW_VIOLATION = "amqp:session:window-violation"
    ERRANT_LINK = "amqp:session:errant-link"
    HANDLE_IN_USE = "amqp:session:handle-in-use"
    UNATTACHED_HANDLE = "amqp:session:unattached-handle"
    DETACH_FORCED = "amqp:link:detach-forced"
    TRANSFER_LIMIT_EXCEEDED = "amqp:link:transfer-limit-exceeded"
    MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded"


class SaslCode(enum.IntEnum):
    """How an authentication ended: part 5 (security), section 5.3.3.6."""

    OK = 0
    AUTH = 1
    SYS = 2
    SYS_PERM = 3
    SYS_TEMP = 4


CONDITIONS: Mapping[type[HeadgateError], Condition] = {
    AccessRefusedError: Condition.UNAUTHORIZED_ACCESS,
    AuthenticationError: Condition.UNAUTHORIZED_ACCESS,
    LimitExceededError: Condition.RESOURCE_LIMIT_EXCEEDED,
    PreconditionFailedError: Condition.PRECONDITION_FAILED,
    ResourceExistsError: Condition.PRECONDITION_FAILED,
    ResourceNotFoundError: Condition.NOT_FOUND,
    UnsupportedError: Condition.NOT_IMPLEMENTED,
    BrokerError: Condition.PRECONDITION_FAILED,
    OffsetOutOfRangeError: Condition.PRECONDITION_FAILED,
    StorageFullError: Condition.RESOURCE_LIMIT_EXCEEDED,
    StreamExistsError: Condition.PRECONDITION_FAILED,
    StreamLockedError: Condition.RESOURCE_LOCKED,
    StreamNotFoundError: Condition.NOT_FOUND,
    StreamReadOnlyError: Condition.NOT_ALLOWED,
    LogError: Condition.INTERNAL_ERROR,
    MessageError: Condition.DECODE_ERROR,
    FilterError: Condition.INVALID_FIELD,
    ConfigError: Condition.INVALID_FIELD,
}
"""The condition that tells a peer of an error; a class that is missing has that of its nearest base class."""

STATUSES: Mapping[type[HeadgateError], int] = {
    AccessRefusedError: 403,
    ResourceNotFoundError: 404,
    StreamNotFoundError: 404,
    ReservedNameError: 403,
    ResourceExistsError: 409,
    UnsuitableArgumentError: 409,
    PreconditionFailedError: 400,
    UnsupportedError: 400,
    LimitExceededError: 400,
    AuthenticationError: 403,
    BrokerError: 500,
    StreamExistsError: 409,
    StreamLockedError: 409,
    StreamReadOnlyError: 403,
    OffsetOutOfRangeError: 400,
    LogError: 500,
    FilterError: 400,
    ConfigError: 400,
    MessageError: 400,
}
"""The status of a management response that tells of an error, looked up likewise."""


def condition_of(error: HeadgateError) -> Condition:
    """The condition of an error."""
    for kind in type(error).__mro__:
        if kind in CONDITIONS:
            return CONDITIONS[kind]
    return Condition.INTERNAL_ERROR


def status_of(error: HeadgateError) -> int:
    """The status of an error of a management request."""
    for kind in type(error).__mro__:
        if kind in STATUSES:
            return STATUSES[kind]
    return 500
