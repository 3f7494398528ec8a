"""Rights of users that are no patterns."""

from __future__ import annotations

from headgate.broker import ADMINISTRATOR, Users
from headgate.errors import AccessRefusedError


def is_administrator(users: Users, user: str) -> bool:
    """Whether a user is there and an administrator."""
    return user in users and ADMINISTRATOR in users.get(user).tags


def check_administrator(users: Users, user: str) -> None:
    """Raise AccessRefusedError unless the user is an administrator."""
    if not is_administrator(users, user):
        raise AccessRefusedError(f"user {user!r} has not the tag {ADMINISTRATOR}")
