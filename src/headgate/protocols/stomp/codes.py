"""What each error of Headgate is called in an ERROR frame: the names of RabbitMQ, in the header `message`."""

from __future__ import annotations

from headgate.errors import (
    AccessRefusedError,
    AuthenticationError,
    BrokerError,
    FilterError,
    HeadgateError,
    LimitExceededError,
    LogError,
    OffsetOutOfRangeError,
    PreconditionFailedError,
    RemoteProtocolError,
    ReservedNameError,
    ResourceExistsError,
    ResourceNotFoundError,
    StorageFullError,
    StreamExistsError,
    StreamLockedError,
    StreamNotFoundError,
    StreamReadOnlyError,
    UnsupportedError,
)

ERROR_MESSAGES: dict[type[HeadgateError], str] = {
    ResourceNotFoundError: "not_found",
    ResourceExistsError: "precondition_failed",
    PreconditionFailedError: "precondition_failed",
    ReservedNameError: "access_refused",
    AccessRefusedError: "access_refused",
    AuthenticationError: "Bad CONNECT",
    UnsupportedError: "not_implemented",
    LimitExceededError: "resource_error",
    BrokerError: "internal_error",
    FilterError: "precondition_failed",
    StreamNotFoundError: "not_found",
    StreamExistsError: "precondition_failed",
    StreamLockedError: "resource_locked",
    StreamReadOnlyError: "access_refused",
    OffsetOutOfRangeError: "precondition_failed",
    StorageFullError: "resource_error",
    LogError: "internal_error",
    RemoteProtocolError: "Invalid frame",
}
"""The name of each error; a class that is missing has that of its nearest base."""


def error_message(error: HeadgateError) -> str:
    """What an error is called. A RemoteProtocolError may bring its own name as its code."""
    if isinstance(error, RemoteProtocolError) and isinstance(error.code, str):
        return error.code
    return next((ERROR_MESSAGES[kind] for kind in type(error).__mro__ if kind in ERROR_MESSAGES), "internal_error")
