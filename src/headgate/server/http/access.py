"""Who asks: the user of a request, by HTTP Basic, by a token, or by the session in a cookie.

A browser sends cookies, and passwords that its own dialog asked for, along with requests that other pages make. So
requests that come from another page are refused by what browsers say of them (`Origin`, `Sec-Fetch-Site`); one that
changes something by a cookie has to say that it comes from our page, and to be JSON, which forms cannot send.
"""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from starlette.requests import Request

from headgate.broker import Token
from headgate.errors import AuthenticationError
from headgate.protocols.sasl import Credentials, Plain
from headgate.server.connections import is_name_of_this_machine
from headgate.server.context import ServerContext
from headgate.server.event_loop import EventLoop
from headgate.server.http.problem import RequestRefusedError
from headgate.server.http.requests import peer_of
from headgate.server.http.sessions import Sessions
from headgate.server.transport import Peer

_REALM = {"WWW-Authenticate": 'Basic realm="Headgate"'}
_COOKIE = "headgate-session"

LOGINS = 64
LOGINS_PER_ADDRESS = 32
"""Limits: logins that wait for their answer at a time. They hold up no request that is logged in."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The user of a request; `token` where it came by a token, `session_id` where by a cookie."""

    user: str
    token: Token | None = None
    session_id: str | None = None


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
    """The users of requests, on all listeners of a server."""

    def __init__(self, context: ServerContext, event_loop: EventLoop) -> None:
        self._context = context
        self._event_loop = event_loop
        self.sessions = Sessions(context.broker.users, context.clock)
        self._logins: Counter[str] = Counter()
        """How many are being checked, or are refused after a delay, by the address that they come from."""

    async def identity(self, request: Request) -> Identity:
        """Who a request comes from. Raises RequestRefusedError."""
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        credentials: Credentials | None = None
        if kind.lower() == "basic":
            credentials = _basic(given)
        elif kind.lower() == "bearer":
            credentials = Plain("", given.strip())
        elif not kind:
            return self._by_session(request)
        if credentials is None:
            raise self._unknown(request, "found no user and password, expected HTTP Basic or a bearer token")
        token = None
        if isinstance(credentials, Plain):
            token = self._context.broker.users.tokens.find(credentials.password, now_ms=self._context.clock.now_ms())
        try:
            return Identity(await self._authenticated(request, credentials), token)
        except AuthenticationError as error:
            raise self._unknown(request, str(error)) from error

    def is_still_known(self, identity: Identity) -> bool:
        """Whether the login of a request that goes on still counts: its session or token, or at least its user."""
        if identity.session_id is not None:
            return self.sessions.look(identity.session_id) is not None
        users = self._context.broker.users
        if identity.token is not None:
            return any(token == identity.token for _, token in users.tokens.all(now_ms=self._context.clock.now_ms()))
        return identity.user in users

    async def begin_session(self, request: Request, user: str, password: str) -> Identity:
        """Log a user in, and begin a session. Raises RequestRefusedError."""
        users = self._context.broker.users
        if users.tokens.find(password, now_ms=self._context.clock.now_ms()) is not None:
            raise RequestRefusedError(401, "found a token, expected a password: a session is for a person")
        # From before the check: a password that changes meanwhile begins no session.
        password_hash = users.get(user).password_hash if user in users else None
        try:
            name = await self._authenticated(request, Plain(user, password))
        except AuthenticationError as error:
            raise self._unknown(request, str(error)) from error
        return Identity(name, session_id=self.sessions.begin(name, password_hash))

    def cookie(self, request: Request, session_id: str | None) -> str:
        """The header that sets the cookie of a session; None: that removes it."""
        ending = "; Max-Age=0" if session_id is None else ""
        secure = "; Secure" if request.url.scheme == "https" else ""
        return f"{_cookie_name(request)}={session_id or ''}; Path=/; HttpOnly; SameSite=Strict{secure}{ending}"

    def check_origin(self, request: Request) -> None:
        """Refuse a request that another page made; browsers say so. Raises RequestRefusedError."""
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
        is_navigation = request.headers.get("sec-fetch-mode") == "navigate" and request.method == "GET"
        if site not in (None, "same-origin", "none") and not is_navigation:
            raise RequestRefusedError(403, f"the request comes from another site (Sec-Fetch-Site: {site})")
        if origin is not None and not _is_own(request, origin):
            raise RequestRefusedError(403, f"the request comes from another site (Origin: {origin[:100]})")

    def check_change(self, request: Request) -> None:
        """Refuse a change by a cookie that may come from another page. Raises RequestRefusedError."""
        headers = request.headers
        if headers.get("sec-fetch-site", "same-origin" if "origin" in headers else "none") != "same-origin":
            raise RequestRefusedError(403, "a change by a session has to say where it comes from (Origin)")
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if has_body and kind != "application/json":
            raise RequestRefusedError(415, f"found a body of type {kind[:100]!r}, expected application/json")

    def _by_session(self, request: Request) -> Identity:
        identifier = request.cookies.get(_cookie_name(request))
        session = None if identifier is None else self.sessions.find(identifier)
        if session is None:
            raise self._unknown(request, "give a user and a password (HTTP Basic), a token (Bearer), or log in")
        if self._context.authenticator.is_from_elsewhere(_peer(request), session.user):
            raise self._unknown(request, "Login was refused")
        return Identity(session.user, session_id=identifier)

    def _unknown(self, request: Request, reason: str) -> RequestRefusedError:
        """The refusal of an unknown caller. A page that asks gets no header that opens the browser's own dialog."""
        is_page = request.headers.get("sec-fetch-mode", "navigate") != "navigate"
        return RequestRefusedError(401, reason, {} if is_page else _REALM)

    async def _authenticated(self, request: Request, credentials: Credentials) -> str:
        answer: asyncio.Future[str | AuthenticationError] = asyncio.get_running_loop().create_future()

        def answered(result: str | AuthenticationError) -> None:
            if not answer.done():
                answer.set_result(result)

        peer = _peer(request)
        if self._logins[peer.host] >= LOGINS_PER_ADDRESS or self._logins.total() >= LOGINS:
            raise RequestRefusedError(503, "too many logins are being checked, ask again later")
        self._logins[peer.host] += 1
        try:
            caller = _Caller(peer, self._event_loop)
            self._context.authenticator.authenticate(caller, credentials, answered, takes_read_only=True)
            result = await answer
        finally:
            self._logins[peer.host] -= 1
            # Addresses without any are forgotten.
            self._logins += Counter()
        if isinstance(result, AuthenticationError):
            raise result
        return result


def _peer(request: Request) -> Peer:
    """The peer; it counts as this machine only if it calls this machine by its own name.

    Otherwise any page could log in as the default user: a name of the page's own site that is made to mean 127.0.0.1
    makes its requests come from this machine, and from the page that they go to, for all that the browser says.
    """
    peer = peer_of(request)
    return replace(peer, is_loopback=peer.is_loopback and is_name_of_this_machine(request.headers.get("host", "")))


def _cookie_name(request: Request) -> str:
    """One for each listener: browsers send cookies of a host to all its ports, so two servers would share a name."""
    host_and_port = request.scope.get("server")
    return _COOKIE if host_and_port is None else f"{_COOKIE}-{host_and_port[1]}"


def _is_own(request: Request, origin: str) -> bool:
    """Whether an origin is that of this server's page. Behind a proxy that ends TLS only the host can be compared."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    is_downgraded = request.url.scheme == "https" and parts.scheme != "https"
    return parts.netloc.lower() == request.headers.get("host", "").lower() and not is_downgraded


def _basic(encoded: str) -> Plain | None:
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:  # also of what is no ASCII, no base64, no UTF-8
        return None
    return Plain(user, password) if colon else None
