"""Who asks: the user of a request, by HTTP Basic."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable

from starlette.requests import Request

from headgate.errors import AuthenticationError
from headgate.protocols.sasl import Plain
from headgate.server.context import ServerContext
from headgate.server.event_loop import EventLoop
from headgate.server.http.problem import RequestRefusedError
from headgate.server.http_server import peer_of
from headgate.server.transport import Peer

_REALM = {"WWW-Authenticate": 'Basic realm="Headgate"'}


class _Caller:
    """The caller of a request, for the authenticator."""

    def __init__(self, peer: Peer, event_loop: EventLoop) -> None:
        self.peer = peer
        self._event_loop = event_loop

    def call_soon(self, call: Callable[[], None]) -> None:
        self._event_loop.call_soon(call)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Callable[[], None]:
        return self._event_loop.loop.call_later(delay_s, call).cancel


class Access:
    """The users of requests."""

    def __init__(self, context: ServerContext, event_loop: EventLoop) -> None:
        self._context = context
        self._event_loop = event_loop

    async def user(self, request: Request) -> str:
        """The user that a request comes from. Raises RequestRefusedError."""
        credentials = _basic(request.headers.get("authorization", ""))
        if credentials is None:
            raise RequestRefusedError(401, "give a user and a password (HTTP Basic)", _REALM)
        try:
            return await self._authenticated(request, credentials)
        except AuthenticationError as error:
            raise RequestRefusedError(401, str(error), _REALM) from error

    async def _authenticated(self, request: Request, credentials: Plain) -> str:
        answer: asyncio.Future[str | AuthenticationError] = asyncio.get_running_loop().create_future()

        def answered(result: str | AuthenticationError) -> None:
            if not answer.done():
                answer.set_result(result)

        caller = _Caller(peer_of(request), self._event_loop)
        self._context.authenticator.authenticate(caller, credentials, answered)
        result = await answer
        if isinstance(result, AuthenticationError):
            raise result
        return result


def _basic(header: str) -> Plain | None:
    kind, _, encoded = header.partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:  # also of what is no ASCII, no base64, no UTF-8
        return None
    return Plain(user, password) if colon else None
