"""Rights of users that are no patterns."""

from __future__ import annotations

from headgate.broker import Users
from headgate.errors import AccessRefusedError
from headgate.server.authenticator import ADMINISTRATOR


def check_administrator(users: Users, user: str) -> None:
    """Raise AccessRefusedError unless the user is an administrator."""
    if ADMINISTRATOR not in users.get(user).tags:
        raise AccessRefusedError(f"user {user!r} has not the tag {ADMINISTRATOR}")
