"""Error conditions of AMQP 1.0, and the condition for each error of Headgate.

Sources: OASIS AMQP 1.0 part 2 (transport), sections 2.8.15 to 2.8.18; their use in RabbitMQ: amqp10_rabbit,
sections 3 and 6.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from headgate import errors


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


CONDITIONS: Mapping[type[errors.HeadgateError], Condition] = {
    errors.AccessRefusedError: Condition.UNAUTHORIZED_ACCESS,
    errors.AuthenticationError: Condition.UNAUTHORIZED_ACCESS,
    errors.LimitExceededError: Condition.RESOURCE_LIMIT_EXCEEDED,
    errors.ResourceNotFoundError: Condition.NOT_FOUND,
    errors.UnsupportedError: Condition.NOT_IMPLEMENTED,
    errors.BrokerError: Condition.PRECONDITION_FAILED,
    errors.OffsetOutOfRangeError: Condition.PRECONDITION_FAILED,
    errors.StorageFullError: Condition.RESOURCE_LIMIT_EXCEEDED,
    errors.StreamExistsError: Condition.PRECONDITION_FAILED,
    errors.StreamLockedError: Condition.RESOURCE_LOCKED,
    errors.StreamNotFoundError: Condition.NOT_FOUND,
    errors.StreamReadOnlyError: Condition.NOT_ALLOWED,
    errors.LogError: Condition.INTERNAL_ERROR,
    errors.MessageError: Condition.DECODE_ERROR,
    errors.FilterError: Condition.INVALID_FIELD,
    errors.ConfigError: Condition.INVALID_FIELD,
}
"""The condition for each class of error; a missing class has that of its nearest base class."""

STATUSES: Mapping[type[errors.HeadgateError], int] = {
    errors.AccessRefusedError: 403,
    errors.ResourceNotFoundError: 404,
    errors.StreamNotFoundError: 404,
    errors.ReservedNameError: 403,
    errors.ResourceExistsError: 409,
    errors.UnsuitableArgumentError: 409,
    errors.PreconditionFailedError: 400,
    errors.UnsupportedError: 400,
    errors.LimitExceededError: 400,
    errors.AuthenticationError: 403,
    errors.BrokerError: 500,
    errors.StreamExistsError: 409,
    errors.StreamLockedError: 409,
    errors.StreamReadOnlyError: 403,
    errors.OffsetOutOfRangeError: 400,
    errors.LogError: 500,
    errors.FilterError: 400,
    errors.ConfigError: 400,
    errors.MessageError: 400,
}
"""The status of a management response for each class of error, looked up in the same way."""


def condition_of(error: errors.HeadgateError) -> Condition:
    """The condition of an error."""
    return next((CONDITIONS[kind] for kind in type(error).__mro__ if kind in CONDITIONS), Condition.INTERNAL_ERROR)


def status_of(error: errors.HeadgateError) -> int:
    """The status of an error of a management request."""
    return next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), 500)
