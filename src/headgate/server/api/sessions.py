"""Logging in and out with a cookie, for the console."""

from __future__ import annotations

import msgspec

from headgate.server.context import ServerContext
from headgate.server.http import Access, Answer, Call, Endpoint, Group, Identity


class LoginBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user and the user's password."""

    user: str
    password: str

    def __repr__(self) -> str:
        """Without the password."""
        return f"LoginBody({self.user!r})"


class SessionAnswer(msgspec.Struct, frozen=True):
    """Who is logged in."""

    user: str
    tags: list[str]
    expires_ms: int | None
    """When the session ends without further requests; null for a request without a session."""
    stream_port: int | None
    """Where clients of the stream protocol connect, as `--server` does; null without such a listener."""
    stream_tls_port: int | None
    """The same with TLS."""


def session_group(context: ServerContext, access: Access) -> Group:
    """The endpoints of the session."""
    requests = _SessionRequests(context, access)
    return Group(
        "Sessions",
        "Logins of browsers by a cookie. Scripts use HTTP Basic or tokens.",
        (
            Endpoint(
                "POST",
                "session",
                "Logs in: sets a cookie. After 12 hours without a request, and with a change of the password, the "
                "session has ended.",
                requests.begin,
                permission="none",
                body=LoginBody,
                example={"user": "anna", "password": "…"},
                answer=SessionAnswer,
                errors=(401, 403),
                needs_login=False,
            ),
            Endpoint("GET", "session", "The user of the request, with the tags.", requests.show, answer=SessionAnswer),
            Endpoint("DELETE", "session", "Logs out.", requests.end, statuses=(204,)),
        ),
    )


class _SessionRequests:
    def __init__(self, context: ServerContext, access: Access) -> None:
        self._context = context
        self._users = context.broker.users
        self._access = access

    async def begin(self, call: Call) -> Answer:
        assert call.request is not None
        identity = await self._access.begin_session(call.request, call.body.user, call.body.password)
        cookie = self._access.cookie(call.request, identity.session_id)
        return Answer(self._answer(identity), headers={"Set-Cookie": cookie})

    async def show(self, call: Call) -> Answer:
        assert call.identity is not None
        return Answer(self._answer(call.identity))

    async def end(self, call: Call) -> Answer:
        assert call.identity is not None and call.request is not None
        if call.identity.session_id is None:
            return Answer(status=204)
        self._access.sessions.end(call.identity.session_id)
        return Answer(status=204, headers={"Set-Cookie": self._access.cookie(call.request, None)})

    def _answer(self, identity: Identity) -> SessionAnswer:
        tags = list(self._users.get(identity.user).tags)
        advertised, ports = self._context.settings.advertised, self._context.ports
        return SessionAnswer(
            identity.user,
            tags,
            None if identity.session_id is None else self._access.sessions.idle_end_ms,
            stream_port=(advertised.port or ports["stream"]) if "stream" in ports else None,
            stream_tls_port=(advertised.tls_port or ports["stream_tls"]) if "stream_tls" in ports else None,
        )
