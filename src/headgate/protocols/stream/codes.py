"""Numbers of the stream protocol: commands (stream_protocol.md section 2), response and error codes (section 7)."""

from __future__ import annotations

from enum import IntEnum

from headgate import errors

REPLY_BIT = 0x8000
"""Set in the key of a reply."""


class Command(IntEnum):
    """Keys of frames, without the bit of replies."""

    DECLARE_PUBLISHER = 1
    PUBLISH = 2
    PUBLISH_CONFIRM = 3
    PUBLISH_ERROR = 4
    QUERY_PUBLISHER_SEQUENCE = 5
    DELETE_PUBLISHER = 6
    SUBSCRIBE = 7
    DELIVER = 8
    CREDIT = 9
    STORE_OFFSET = 10
    QUERY_OFFSET = 11
    UNSUBSCRIBE = 12
    CREATE = 13
    DELETE = 14
    METADATA = 15
    METADATA_UPDATE = 16
    PEER_PROPERTIES = 17
    SASL_HANDSHAKE = 18
    SASL_AUTHENTICATE = 19
    TUNE = 20
    OPEN = 21
    CLOSE = 22
    HEARTBEAT = 23
    ROUTE = 24
    PARTITIONS = 25
    CONSUMER_UPDATE = 26
    EXCHANGE_COMMAND_VERSIONS = 27
    STREAM_STATS = 28
    CREATE_SUPER_STREAM = 29
    DELETE_SUPER_STREAM = 30
    RESOLVE_OFFSET_SPECIFICATION = 31


class ResponseCode(IntEnum):
    """Codes of replies, publishing errors, metadata updates and Close frames."""

    OK = 0x01
    STREAM_DOES_NOT_EXIST = 0x02
    SUBSCRIPTION_ID_EXISTS = 0x03
    SUBSCRIPTION_ID_UNKNOWN = 0x04
    STREAM_EXISTS = 0x05
    STREAM_NOT_AVAILABLE = 0x06
    SASL_MECHANISM_UNSUPPORTED = 0x07
    AUTHENTICATION_FAILURE = 0x08
    SASL_ERROR = 0x09
    SASL_CHALLENGE = 0x0A
    LOOPBACK_ONLY = 0x0B
    VIRTUAL_HOST_ACCESS_FAILURE = 0x0C
    UNKNOWN_FRAME = 0x0D
    FRAME_TOO_LARGE = 0x0E
    INTERNAL_ERROR = 0x0F
    ACCESS_REFUSED = 0x10
    PRECONDITION_FAILED = 0x11
    PUBLISHER_DOES_NOT_EXIST = 0x12
    NO_OFFSET = 0x13
    SASL_MECHANISM_MAY_NOT_CHANGE = 0x14
    SASL_USER_MAY_NOT_CHANGE = 0x15


SERVER_VERSIONS: tuple[tuple[int, int, int], ...] = tuple(
    (key, 1, 2 if key == Command.PUBLISH else 1)
    for key in (1, 2, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 22, 23, 24, 25, 28, 29, 30, 31)
)
"""The server's answer to ExchangeCommandVersions: (key, lowest, highest version), in the order clients rely on."""

CLIENT_VERSIONS: tuple[tuple[int, int, int], ...] = (
    (Command.PUBLISH_CONFIRM, 1, 1),
    (Command.PUBLISH_ERROR, 1, 1),
    (Command.DELIVER, 1, 2),
    (Command.METADATA_UPDATE, 1, 1),
    (Command.CONSUMER_UPDATE, 1, 1),
)
"""The commands that our client can receive: (key, lowest, highest version)."""

RESPONSE_CODES: dict[type[errors.HeadgateError], ResponseCode] = {
    errors.ResourceNotFoundError: ResponseCode.STREAM_DOES_NOT_EXIST,
    errors.ResourceExistsError: ResponseCode.PRECONDITION_FAILED,
    errors.PreconditionFailedError: ResponseCode.PRECONDITION_FAILED,
    errors.AccessRefusedError: ResponseCode.ACCESS_REFUSED,
    errors.AuthenticationError: ResponseCode.AUTHENTICATION_FAILURE,
    errors.LoopbackOnlyError: ResponseCode.LOOPBACK_ONLY,
    errors.UnsupportedError: ResponseCode.PRECONDITION_FAILED,
    errors.LimitExceededError: ResponseCode.PRECONDITION_FAILED,
    errors.BrokerError: ResponseCode.INTERNAL_ERROR,
    errors.FilterError: ResponseCode.PRECONDITION_FAILED,
    errors.ConfigError: ResponseCode.PRECONDITION_FAILED,
    errors.MessageError: ResponseCode.PRECONDITION_FAILED,
    errors.StreamNotFoundError: ResponseCode.STREAM_DOES_NOT_EXIST,
    errors.StreamExistsError: ResponseCode.STREAM_EXISTS,
    errors.StreamLockedError: ResponseCode.STREAM_NOT_AVAILABLE,
    errors.StreamReadOnlyError: ResponseCode.ACCESS_REFUSED,
    errors.OffsetOutOfRangeError: ResponseCode.NO_OFFSET,
    errors.StreamFullError: ResponseCode.PRECONDITION_FAILED,
    errors.LogError: ResponseCode.INTERNAL_ERROR,
    errors.HeadgateError: ResponseCode.INTERNAL_ERROR,
}
"""An error has the code of its class, or of the nearest class above it."""


def response_code(error: errors.HeadgateError) -> ResponseCode:
    """The code for an error; a ProtocolError may bring its own."""
    if isinstance(error, errors.ProtocolError) and error.code in ResponseCode.__members__.values():
        return ResponseCode(int(error.code))
    return next(RESPONSE_CODES[kind] for kind in type(error).__mro__ if kind in RESPONSE_CODES)


def name_of_code(code: int) -> str:
    """A response code in words, for messages: `precondition failed (0x11)`."""
    try:
        return f"{ResponseCode(code).name.lower().replace('_', ' ')} (0x{code:02x})"
    except ValueError:
        return f"unknown code 0x{code:02x}"
