"""Reply codes of AMQP 0.9.1: which of them close only the channel, and which code answers each error of Headgate.

Source: AMQP 0-9-1, section 1.2 (reply codes).
"""

from __future__ import annotations

import enum

from headgate import errors


class ReplyCode(enum.IntEnum):
    """The codes with the numbers and names of the standard."""

    REPLY_SUCCESS = 200
    CONTENT_TOO_LARGE = 311
    NO_ROUTE = 312
    NO_CONSUMERS = 313
    CONNECTION_FORCED = 320
    INVALID_PATH = 402
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    FRAME_ERROR = 501
    SYNTAX_ERROR = 502
    COMMAND_INVALID = 503
    CHANNEL_ERROR = 504
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    NOT_ALLOWED = 530
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541


CHANNEL_CODES = frozenset(
    {
        ReplyCode.CONTENT_TOO_LARGE,
        ReplyCode.NO_ROUTE,
        ReplyCode.NO_CONSUMERS,
        ReplyCode.ACCESS_REFUSED,
        ReplyCode.NOT_FOUND,
        ReplyCode.RESOURCE_LOCKED,
        ReplyCode.PRECONDITION_FAILED,
    }
)
"""Codes that close the channel; every other one closes the connection."""

ERROR_CODES: dict[type[errors.HeadgateError], ReplyCode] = {
    errors.ResourceNotFoundError: ReplyCode.NOT_FOUND,
    errors.ResourceExistsError: ReplyCode.PRECONDITION_FAILED,
    errors.PreconditionFailedError: ReplyCode.PRECONDITION_FAILED,
    errors.ReservedNameError: ReplyCode.ACCESS_REFUSED,
    errors.AccessRefusedError: ReplyCode.ACCESS_REFUSED,
    errors.AuthenticationError: ReplyCode.ACCESS_REFUSED,
    errors.UnsupportedError: ReplyCode.NOT_IMPLEMENTED,
    errors.LimitExceededError: ReplyCode.RESOURCE_ERROR,
    errors.BrokerError: ReplyCode.INTERNAL_ERROR,
    errors.FilterError: ReplyCode.PRECONDITION_FAILED,
    errors.StreamNotFoundError: ReplyCode.NOT_FOUND,
    errors.StreamExistsError: ReplyCode.PRECONDITION_FAILED,
    errors.StreamLockedError: ReplyCode.RESOURCE_LOCKED,
    errors.StreamReadOnlyError: ReplyCode.ACCESS_REFUSED,
    errors.OffsetOutOfRangeError: ReplyCode.PRECONDITION_FAILED,
    errors.StorageFullError: ReplyCode.RESOURCE_ERROR,
    errors.StreamFullError: ReplyCode.PRECONDITION_FAILED,
    # What is wrong with the files of one stream must not end the connection. RabbitMQ says the same of a stream that
    # has no running replica.
    errors.LogError: ReplyCode.PRECONDITION_FAILED,
}
"""The code of each error; a missing class has the code of its nearest base."""


def reply_code(error: errors.HeadgateError) -> ReplyCode:
    """The reply code that answers an error."""
    return next((ERROR_CODES[kind] for kind in type(error).__mro__ if kind in ERROR_CODES), ReplyCode.INTERNAL_ERROR)


def reply_text(code: ReplyCode, reason: str) -> str:
    """The text that goes with a code: its name, as RabbitMQ writes it, and the reason; at most 255 bytes of UTF-8."""
    text = f"{code.name} - {reason}"
    encoded = text.encode("utf-8", "replace")
    return text if len(encoded) <= 255 else encoded[:252].decode("utf-8", "ignore") + "…"
