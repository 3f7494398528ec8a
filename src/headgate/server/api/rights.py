"""What a user may do and see: shared by the endpoints."""

from __future__ import annotations

from headgate.broker import ADMINISTRATOR, Broker, BrokerStream, Users
from headgate.errors import AccessRefusedError, ResourceNotFoundError
from headgate.server.listings import may_read, near_names


def is_administrator(users: Users, user: str) -> bool:
    """Whether a user is there and an administrator."""
    return user in users and ADMINISTRATOR in users.get(user).tags


def check_administrator(users: Users, user: str) -> None:
    """Raise AccessRefusedError unless the user is an administrator."""
    if not is_administrator(users, user):
        raise AccessRefusedError(f"user {user!r} has not the tag {ADMINISTRATOR}")


def found_stream(broker: Broker, user: str, name: str) -> BrokerStream:
    """A stream. Raises ResourceNotFoundError with similar names that the user may read, LogError."""
    try:
        return broker.catalogue.get(name)
    except ResourceNotFoundError as error:
        near = near_names(broker, user, error)
        raise ResourceNotFoundError(f"{error.reason}{near}", subject=error.subject) from error


def readable_stream(broker: Broker, user: str, name: str) -> BrokerStream:
    """The same for a stream that the user may read; else raises AccessRefusedError."""
    if not may_read(broker.users, user, name):
        raise AccessRefusedError(f"user {user!r} may not read stream {name!r}")
    return found_stream(broker, user, name)
