"""Names of errors in the header `message` of ERROR frames: RabbitMQ's name for each error of Headgate."""

from __future__ import annotations

from headgate import errors

ERROR_MESSAGES: dict[type[errors.HeadgateError], str] = {
    errors.ResourceNotFoundError: "not_found",
    errors.ResourceExistsError: "precondition_failed",
    errors.PreconditionFailedError: "precondition_failed",
    errors.ReservedNameError: "access_refused",
    errors.AccessRefusedError: "access_refused",
    errors.AuthenticationError: "Bad CONNECT",
    errors.UnsupportedError: "not_implemented",
    errors.LimitExceededError: "resource_error",
    errors.BrokerError: "internal_error",
    errors.FilterError: "precondition_failed",
    errors.StreamNotFoundError: "not_found",
    errors.StreamExistsError: "precondition_failed",
    errors.StreamLockedError: "resource_locked",
    errors.StreamReadOnlyError: "access_refused",
    errors.OffsetOutOfRangeError: "precondition_failed",
    errors.StorageFullError: "resource_error",
    errors.LogError: "internal_error",
    errors.RemoteProtocolError: "Invalid frame",
}
"""The name of each error; a missing class has the name of its nearest base."""


def error_message(error: errors.HeadgateError) -> str:
    """The name of an error. A RemoteProtocolError may bring its own name as its code."""
    if isinstance(error, errors.RemoteProtocolError) and isinstance(error.code, str):
        return error.code
    return next((ERROR_MESSAGES[kind] for kind in type(error).__mro__ if kind in ERROR_MESSAGES), "internal_error")
