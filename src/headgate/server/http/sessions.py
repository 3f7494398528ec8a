"""Sessions of browsers, in the memory of the server: a random id in a cookie, kept here as its digest.

A session ends at logout, after 12 hours without a request, with a change of its user's password, with its user, and
when the server stops.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from dataclasses import dataclass

from headgate.broker import Users
from headgate.clock import Clock

IDLE_S = 12 * 3600.0
"""After this time without a request a session has ended."""
SESSIONS_PER_USER = 100
"""Limit: a further one ends the user's session that was used the longest time ago."""

_ID_BYTES = 32


@dataclass(slots=True)
class Session:
    """A login of a user."""

    user: str
    password_hash: str | None
    used_s: float


class Sessions:
    """All sessions of one server."""

    def __init__(self, users: Users, clock: Clock) -> None:
        self._users = users
        self._clock = clock
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        """By the digests of their ids; the one that was used last is the last."""

    def begin(self, user: str, password_hash: str | None) -> str:
        """Begin a session; gives its id. `password_hash` is what the password was checked against."""
        self._forget_idle()
        own = [key for key, session in self._sessions.items() if session.user == user]
        for key in own[: max(0, len(own) - SESSIONS_PER_USER + 1)]:
            del self._sessions[key]
        identifier = secrets.token_urlsafe(_ID_BYTES)
        self._sessions[_digest(identifier)] = Session(user, password_hash, self._clock.monotonic_s())
        return identifier

    def find(self, identifier: str) -> Session | None:
        """The session of an id, which is used by this; None if there is none, or it has ended."""
        session = self.look(identifier)
        if session is not None:
            session.used_s = self._clock.monotonic_s()
            self._sessions.move_to_end(_digest(identifier))
        return session

    def look(self, identifier: str) -> Session | None:
        """The same, without using it."""
        key = _digest(identifier)
        session = self._sessions.get(key)
        if session is None:
            return None
        is_same = session.user in self._users and self._users.get(session.user).password_hash == session.password_hash
        if not is_same or self._clock.monotonic_s() - session.used_s > IDLE_S:
            del self._sessions[key]
            return None
        return session

    def end(self, identifier: str) -> None:
        """End a session, if there is one."""
        self._sessions.pop(_digest(identifier), None)

    @property
    def idle_end_ms(self) -> int:
        """When a session that is used now ends, without further requests."""
        return self._clock.now_ms() + int(IDLE_S * 1000)

    def _forget_idle(self) -> None:
        oldest_s = self._clock.monotonic_s() - IDLE_S
        while self._sessions and next(iter(self._sessions.values())).used_s < oldest_s:
            self._sessions.popitem(last=False)


def _digest(identifier: str) -> bytes:
    return hashlib.sha256(identifier.encode("utf-8", "surrogatepass")).digest()
