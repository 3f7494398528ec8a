"""HTTP: console, health, metrics, lists, and users. It runs in the event loop and sees the broker as handlers do.

    GET    /                        the console, a page that shows the lists; its files are under /console
    GET    /favicon.ico             its icon
    GET    /health/live             200 while the loop turns
    GET    /health/ready            200 while every listener accepts, else 503; names these and damaged streams
    GET    /health                  the same, and 503 also while a stream is damaged: for alerts, not for restarts
    GET    /metrics                 Prometheus: server and streams; /metrics/per-object adds consumers, connections
    GET    /api/overview, /api/queues, /api/nodes, … what monitors of RabbitMQ ask for: `headgate.server.management`
    GET    /api/streams, /api/consumers, /api/offsets, /api/connections, /api/users
    GET    /api/streams/NAME        one stream with all that its files say, which are read for it
    DELETE /api/streams/NAME        delete it; 409 while it is used, or damaged, unless the query says force=true
    *      /api/topics…             topics, subscriptions, rules, copies: see `headgate.server.topics.requests`
    *      /api/entities…           topics and queues, each all in one
    *      /api/rocketmq/…          topics and consumer groups of RocketMQ's clients
    PUT    /api/users/NAME          make or change a user: {"password", "tags", "permissions": {"configure", …}}
    DELETE /api/users/NAME

Paths under `/api` need a user (HTTP Basic); lists show what that user may read, only administrators manage users.

Only requests under `/api` may wait, so only their number is limited; page, health and metrics are answered at once,
even while others wait. Connections are limited as well: a new one beyond the limit replaces the one that has owed a
request the longest.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from headgate.broker import OF_REMOTE, Broker, BrokerStream, Permission, arguments_declared, is_damage
from headgate.errors import (
    AccessRefusedError,
    AuthenticationError,
    BrokerError,
    ConfigError,
    HeadgateError,
    LogError,
    ResourceExistsError,
    ResourceNotFoundError,
    RuleError,
    RuleExistsError,
    RuleNotFoundError,
    StreamLockedError,
    UnsupportedError,
)
from headgate.log import stream_info
from headgate.protocols.sasl import Plain
from headgate.server import listings as lists
from headgate.server import management
from headgate.server.authenticator import ADMINISTRATOR
from headgate.server.console import console_routes
from headgate.server.context import ServerContext
from headgate.server.event_loop import EventLoop
from headgate.server.http_server import body_of, peer_of
from headgate.server.management import Management
from headgate.server.metrics import metrics_text
from headgate.server.topics import TopicRequest, TopicRequests
from headgate.server.transport import Peer

T = TypeVar("T")

_METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8; escaping=underscores"
_BODY_BYTES = 65_536
_TOPIC_BODY_BYTES = 1 << 20
"""A larger limit: a new subscription may have many rules, and settling many tokens."""

_REQUESTS = 64
"""Limit: requests under `/api` at a time."""
_LISTED = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""Headers of answers with data: names in them come from clients, and they are only for this user, now."""
_REALM = {"WWW-Authenticate": 'Basic realm="Headgate"'}

_STATUSES: tuple[tuple[type[HeadgateError], int], ...] = (
    (ResourceNotFoundError, 404),
    (RuleNotFoundError, 404),
    (AccessRefusedError, 403),
    (UnsupportedError, 405),
    (ResourceExistsError, 409),
    (RuleExistsError, 409),
    (StreamLockedError, 409),
    (BrokerError, 400),
    (RuleError, 400),
    (ConfigError, 400),
    (HeadgateError, 500),
)
"""The status for each kind of error: the first kind that fits counts."""


class _RefusedError(Exception):
    """A request that is answered with a status and a reason."""

    def __init__(self, status: int, reason: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(reason)
        self.response = _json({"error": reason}, status, headers)


class _Request:
    """The caller of a request, for the authenticator."""

    def __init__(self, peer: Peer, event_loop: EventLoop) -> None:
        self.peer = peer
        self._event_loop = event_loop

    def call_soon(self, call: Callable[[], None]) -> None:
        self._event_loop.call_soon(call)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Callable[[], None]:
        return self._event_loop.loop.call_later(delay_s, call).cancel


def site(context: ServerContext, event_loop: EventLoop) -> Starlette:
    """The application of one listener."""
    return _Site(context, event_loop).application()


class _Site:
    def __init__(self, context: ServerContext, event_loop: EventLoop) -> None:
        self._context = context
        self._event_loop = event_loop
        self._topics = TopicRequests(context.broker)
        self._management = Management(context)
        self._requests = 0
        self._has_counted = False

    def application(self) -> Starlette:
        """The application with its routes."""
        return Starlette(
            routes=[
                *console_routes(),
                Route("/health", self._health),
                Route("/health/live", self._live),
                Route("/health/ready", self._ready),
                Route("/metrics", self._metrics),
                Route("/metrics/per-object", self._metrics),
                *(Route(f"/api/{path}", self._with_user(self._managed)) for path in management.PATHS),
                *(Route(f"/api/{path}/{{rest:path}}", self._with_user(self._managed)) for path in management.PATHS),
                Route("/api/streams", self._listed(lists.stream_rows)),
                Route("/api/streams/{name:path}", self._with_user(self._stream)),
                Route("/api/streams/{name:path}", self._with_user(self._change_stream), methods=["PUT"]),
                Route("/api/streams/{name:path}", self._with_user(self._delete_stream), methods=["DELETE"]),
                Route("/api/consumers", self._listed(lists.consumer_rows)),
                Route("/api/offsets", self._listed(lists.offset_rows)),
                *(
                    Route(
                        f"/api/{path}", self._with_user(self._topic_request), methods=["GET", "PUT", "POST", "DELETE"]
                    )
                    for path in _paths(route.path for route in self._topics.routes)
                ),
                Route("/api/connections", self._with_user(self._connections)),
                Route("/api/users", self._with_user(self._users)),
                Route("/api/users/{name}", self._with_user(self._put_user), methods=["PUT"]),
                Route("/api/users/{name}", self._with_user(self._delete_user), methods=["DELETE"]),
            ]
        )

    async def _live(self, _request: Request) -> Response:
        return PlainTextResponse("live\n")

    async def _ready(self, _request: Request) -> Response:
        is_ready = self._context.is_ready
        return self._with_damages("ready" if is_ready else "not ready", is_well=is_ready)

    async def _health(self, _request: Request) -> Response:
        is_well = self._context.is_ready and not self._context.broker.catalogue.troubles.all()
        return self._with_damages("healthy" if is_well else "unhealthy", is_well=is_well)

    def _with_damages(self, state: str, *, is_well: bool) -> Response:
        ended = [f"listener {name} does not accept\n" for name in self._context.listeners.ended()]
        lines = [f"{state}\n", *ended, *lists.damaged_lines(self._context.broker)]
        return PlainTextResponse("".join(lines), 200 if is_well else 503)

    async def _metrics(self, request: Request) -> Response:
        await self._count()
        per_object = request.url.path.endswith("/per-object")
        return Response(metrics_text(self._context, per_object=per_object), media_type=_METRICS_TYPE)

    async def _managed(self, request: Request, user: str) -> Response:
        await self._count()
        *path, last = _parts(request)
        # Some clients end a path with a slash.
        asked = (*path, last) if last else tuple(path)
        status, value = self._management.answer(asked, request.query_params, user)
        return _json(value, status)

    def _listed(self, rows: Callable[[Broker, str], Iterable[lists.Row]]) -> Callable[[Request], Awaitable[Response]]:
        """A route for a list."""

        async def listed(_request: Request, user: str) -> Response:
            await self._count()
            return _json(list(rows(self._context.broker, user)))

        return self._with_user(listed)

    async def _stream(self, request: Request, user: str) -> Response:
        broker, name = self._context.broker, request.path_params["name"]
        if not lists.may_read(broker.users, user, name):
            raise _RefusedError(403, f"user {user!r} may not read stream {name!r}")
        stream = self._found_stream(name, user)
        # In a thread: it examines the header of every chunk.
        with stream.guarded():
            info = await asyncio.to_thread(stream_info, stream.stream)
        return _json(lists.stream_detail(broker, stream, info))

    def _found_stream(self, name: str, user: str) -> BrokerStream:
        """A stream. Raises ResourceNotFoundError with similar names that the user may read, LogError."""
        broker = self._context.broker
        try:
            return broker.catalogue.get(name)
        except ResourceNotFoundError as error:
            near = lists.near_names(broker, user, error)
            raise ResourceNotFoundError(f"{error.reason}{near}", subject=error.subject) from error

    async def _change_stream(self, request: Request, user: str) -> Response:
        broker, name = self._context.broker, request.path_params["name"]
        broker.users.check(user, Permission.CONFIGURE, name)
        stream = self._found_stream(name, user)
        arguments = (await _body(request, lists.StreamChange)).arguments
        if not arguments.keys().isdisjoint(OF_REMOTE):
            # The server writes there with its own rights.
            self._check_administrator(user)
        broker.streams.change(stream.name, arguments)
        return _json({"name": stream.name, "arguments": arguments_declared(broker.catalogue.get(stream.name))})

    async def _delete_stream(self, request: Request, user: str) -> Response:
        broker, name = self._context.broker, request.path_params["name"]
        broker.users.check(user, Permission.CONFIGURE, name)
        is_forced = request.query_params.get("force") == "true"
        try:
            stream = self._found_stream(name, user)
        except LogError as error:
            if not is_damage(error):
                raise
            if not is_forced:
                raise _RefusedError(409, str(error)) from error
            broker.streams.delete_damaged(name)
            return _json({"messages": None})
        if not is_forced and (used_by := lists.users_of(broker, stream)):
            raise _RefusedError(409, f"stream {name!r} is in use by {', '.join(used_by)}")
        return _json({"messages": broker.streams.delete(stream)})

    async def _topic_request(self, request: Request, user: str) -> Response:
        asked = TopicRequest(
            "GET" if request.method == "HEAD" else request.method,
            _parts(request),
            request.query_params,
            await _data(request, _TOPIC_BODY_BYTES),
        )
        peer = peer_of(request)
        answer = await self._topics.answer(asked, user, connection=f"{peer.host}:{peer.port}")
        return _json(answer.value, 201 if answer.is_new else 200)

    async def _connections(self, _request: Request, user: str) -> Response:
        return _json(list(lists.connection_rows(self._context, user)))

    async def _users(self, _request: Request, user: str) -> Response:
        self._check_administrator(user)
        return _json(list(lists.user_rows(self._context.broker.users)))

    async def _put_user(self, request: Request, user: str) -> Response:
        self._check_administrator(user)
        users = self._context.broker.users
        name = request.path_params["name"]
        change = await _body(request, lists.UserChange)
        is_new = lists.change_user(users, name, change)
        return _json({"name": name}, 201 if is_new else 200)

    async def _delete_user(self, request: Request, user: str) -> Response:
        self._check_administrator(user)
        self._context.broker.users.remove(request.path_params["name"])
        return Response(status_code=204)

    async def _count(self) -> None:
        """Before the first count of messages, read all index files in a thread, which may take seconds.

        Later counts read only what was written since.
        """
        if not self._has_counted:
            await asyncio.to_thread(lists.count_messages, list(lists.open_streams(self._context.broker)))
            self._has_counted = True

    def _check_administrator(self, user: str) -> None:
        if ADMINISTRATOR not in self._context.broker.users.get(user).tags:
            raise _RefusedError(403, f"user {user!r} has not the tag {ADMINISTRATOR}")

    def _with_user(
        self, handle: Callable[[Request, str], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """A route for users: it refuses callers that are no user, and answers errors of the broker in JSON."""

        async def handled(request: Request) -> Response:
            if self._requests >= _REQUESTS:
                return _json({"error": f"{_REQUESTS} requests are being answered, ask again later"}, 503)
            self._requests += 1
            try:
                return await handle(request, await self._user(request))
            except _RefusedError as refused:
                return refused.response
            except ClientDisconnect:
                # The client has gone.
                return Response(status_code=400)
            except HeadgateError as error:
                status = next(status for kind, status in _STATUSES if isinstance(error, kind))
                return _json(_reason(error), status)
            finally:
                self._requests -= 1

        return handled

    async def _user(self, request: Request) -> str:
        """The user that the request comes from. Raises _RefusedError."""
        credentials = _basic(request.headers.get("authorization", ""))
        if credentials is None:
            raise _RefusedError(401, "give a user and a password (HTTP Basic)", _REALM)
        answer: asyncio.Future[str | AuthenticationError] = asyncio.get_running_loop().create_future()

        def answered(result: str | AuthenticationError) -> None:
            if not answer.done():
                answer.set_result(result)

        caller = _Request(peer_of(request), self._event_loop)
        self._context.authenticator.authenticate(caller, credentials, answered)
        result = await answer
        if isinstance(result, AuthenticationError):
            raise _RefusedError(401, str(result), _REALM)
        return result


def _paths(routes: Iterable[str]) -> Iterable[str]:
    """The paths of the router for routes of `TopicRequests`, by their first parts.

    The rest is matched there: the router splits a path where a name has a slash that is percent-encoded.
    """
    parts = (route.partition("/") for route in routes)
    return dict.fromkeys(f"{first}/{{rest:path}}" if rest else first for first, _, rest in parts)


def _parts(request: Request) -> tuple[str, ...]:
    """The parts of a path behind `/api`, as it was sent: names hold slashes that are percent-encoded."""
    return tuple(unquote(part) for part in request.scope["raw_path"].decode("ascii").split("/")[2:])


def _basic(header: str) -> Plain | None:
    kind, _, encoded = header.partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:  # also of what is no ASCII, no base64, no UTF-8
        return None
    return Plain(user, password) if colon else None


def _reason(error: HeadgateError) -> dict[str, object]:
    """The reason of an error; for a wrong filter or action also the place in its text."""
    reason: dict[str, object] = {"error": str(error)}
    if isinstance(error, RuleError) and error.cause is not None:
        reason |= {"text": error.cause.text, "span": error.cause.span}
    return reason


async def _data(request: Request, most_bytes: int) -> bytes:
    """The body of a request. Raises _RefusedError for a longer one."""
    data = await body_of(request, most_bytes)
    if data is None:
        raise _RefusedError(413, f"the body is longer than {most_bytes} bytes")
    return data


async def _body(request: Request, kind: type[T]) -> T:
    data = await _data(request, _BODY_BYTES)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _RefusedError(400, f"the body: {error}") from error


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(
        msgspec.json.encode(value, enc_hook=str),
        status,
        headers={**_LISTED, **(headers or {})},
        media_type="application/json",
    )
