"""The identity behind a request: the access key that signed it, or the default user for a client that needs no key.

There is no login: a session begins with the first request of its key.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate.broker import Permission, Session
from headgate.errors import AuthenticationError
from headgate.protocols.rocketmq.remoting import ACCESS_KEY, Command, is_signed
from headgate.server.context import ServerContext
from headgate.server.rocketmq.rights import check_of_key, user_without_key
from headgate.server.transport import Transport

_MOST_SESSIONS = 16
"""Limit: sessions, and so access keys, per connection. Clients may share a connection, each with its own key."""


class Access:
    """The sessions of one connection: one for each key that signed, and one for requests that are not signed."""

    def __init__(
        self, transport: Transport, context: ServerContext, *, protocol: str, opened: Callable[[Session], None]
    ) -> None:
        self._transport = transport
        self._context = context
        self._protocol = protocol
        self._opened = opened
        self._sessions: dict[str, Session] = {}
        """By the name of the key; the empty name stands for requests without a key."""

    def session_of(self, command: Command) -> Session:
        """The session that a request belongs to. Raises AuthenticationError for a request that is refused."""
        keys = self._context.broker.keys
        if not keys:
            return self._sessions.get("") or self._open_unsigned()
        name = command.fields.get(ACCESS_KEY, "")
        if not name:
            raise self._refused("the request has no AccessKey", name)
        known = name in keys
        key = keys.get(name) if known else None
        if not is_signed(command, () if key is None else (key.primary, key.secondary)):
            raise self._refused("there is no such AccessKey, or its Signature is another one", name)
        return self._sessions.get(name) or self._open(name, name, check_of_key(keys, name))

    def end(self) -> None:
        """The connection is gone."""
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()

    def _open_unsigned(self) -> Session:
        user = user_without_key(self._context, self._transport.peer)
        if user is None:
            raise self._refused("the client needs an access key; `headgate key add` makes one", "")
        return self._open("", user, None)

    def _open(self, name: str, user: str, check: Callable[[Permission, str], None] | None) -> Session:
        if len(self._sessions) >= _MOST_SESSIONS:
            raise AuthenticationError(f"more than {_MOST_SESSIONS} access keys on one connection")
        record = self._context.connections.of(self._transport)
        record.user = user
        session = self._context.broker.open_session(user, protocol=self._protocol, connection=record.name, check=check)
        self._sessions[name] = session
        self._context.connections.totals.logins += 1
        self._opened(session)
        return session

    def _refused(self, reason: str, name: str) -> AuthenticationError:
        self._context.authenticator.note_refusal(self._transport, name, reason)
        return AuthenticationError(reason)
