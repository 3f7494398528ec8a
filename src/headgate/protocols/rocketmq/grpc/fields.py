"""Fields that many messages have: names with a namespace, durations, times, statuses."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError

from headgate.errors import HeadgateError, ProtocolError
from headgate.protocols.rocketmq import Status, refused, status_code
from headgate.protocols.rocketmq.grpc import messages as pb

OK = pb.Status(code=Status.OK, message="OK")

M = TypeVar("M", bound="pb.Protobuf")

_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799
"""The years 1 to 9999, as protobuf's Timestamp has them."""

_SEPARATOR = "%"
"""Between a namespace and a name, as in the original: a topic of a namespace is one of that name to others."""


def parsed(kind: type[M], data: bytes) -> M:
    """A message of that kind from its bytes. Raises RemoteProtocolError for other bytes."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise refused(Status.BAD_REQUEST, "the request is no message of its kind") from error


def status_of(error: HeadgateError) -> pb.Status:
    """The status that says an error."""
    message = error.reason if isinstance(error, ProtocolError) else str(error)
    return pb.Status(code=status_code(error), message=message)


def full_name(resource: pb.Resource) -> str:
    """The name that the server knows a topic or a group by."""
    return f"{resource.resource_namespace}{_SEPARATOR}{resource.name}" if resource.resource_namespace else resource.name


def milliseconds(duration: pb.Duration) -> int:
    """A duration in whole milliseconds; any numbers may stand in one."""
    return duration.seconds * 1000 + duration.nanos // 1_000_000


def duration(length_ms: int) -> pb.Duration:
    """A duration, from milliseconds."""
    seconds, rest_ms = divmod(length_ms, 1000)
    return pb.Duration(seconds=seconds, nanos=rest_ms * 1_000_000)


def timestamp(at_ms: int) -> pb.Timestamp:
    """A time, from milliseconds since 1970."""
    seconds, rest_ms = divmod(at_ms, 1000)
    return pb.Timestamp(seconds=seconds, nanos=rest_ms * 1_000_000)


def time_ms(at: pb.Timestamp) -> int:
    """A time in milliseconds since 1970. Raises RemoteProtocolError for one outside of the years 1 to 9999."""
    if not (_FIRST_S <= at.seconds <= _LAST_S and 0 <= at.nanos < 1_000_000_000):
        raise refused(Status.BAD_REQUEST, f"{at.seconds} s and {at.nanos} ns are no time of the years 1 to 9999")
    return at.seconds * 1000 + at.nanos // 1_000_000
