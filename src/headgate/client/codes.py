"""The errors of the client for response codes of the stream protocol."""

from __future__ import annotations

from headgate.errors import (
    AccessRefusedError,
    AuthenticationError,
    BrokerError,
    ConnectionLostError,
    HeadgateError,
    PreconditionFailedError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from headgate.protocols.stream import ResponseCode, name_of_code

ERRORS: dict[int, type[BrokerError]] = {
    ResponseCode.STREAM_DOES_NOT_EXIST: ResourceNotFoundError,
    ResponseCode.SUBSCRIPTION_ID_EXISTS: PreconditionFailedError,
    ResponseCode.SUBSCRIPTION_ID_UNKNOWN: ResourceNotFoundError,
    ResponseCode.STREAM_EXISTS: ResourceExistsError,
    ResponseCode.SASL_MECHANISM_UNSUPPORTED: AuthenticationError,
    ResponseCode.AUTHENTICATION_FAILURE: AuthenticationError,
    ResponseCode.SASL_ERROR: AuthenticationError,
    ResponseCode.SASL_CHALLENGE: AuthenticationError,
    ResponseCode.LOOPBACK_ONLY: AuthenticationError,
    ResponseCode.VIRTUAL_HOST_ACCESS_FAILURE: AccessRefusedError,
    ResponseCode.ACCESS_REFUSED: AccessRefusedError,
    ResponseCode.PRECONDITION_FAILED: PreconditionFailedError,
    ResponseCode.PUBLISHER_DOES_NOT_EXIST: ResourceNotFoundError,
    ResponseCode.NO_OFFSET: ResourceNotFoundError,
}
"""A code that is not here is a BrokerError; the one for a stream that is not available now is ConnectionLostError."""


def refusal(code: int, subject: str, *, server: str) -> HeadgateError:
    """The error for a reply that is not OK; `subject` names the object of the command."""
    if code == ResponseCode.STREAM_NOT_AVAILABLE:
        return ConnectionLostError(f"{subject}: {name_of_code(code)}", server=server)
    return ERRORS.get(code, BrokerError)(f"the server answers: {name_of_code(code)}", subject=subject)
