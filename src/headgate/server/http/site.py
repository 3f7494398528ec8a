"""The application of one HTTP listener. It runs in the event loop and sees the broker as handlers do.

    GET /                        the console; its files are under /console
    GET /favicon.ico             its icon
    GET /health/live             200 while the loop turns
    GET /health/ready            200 while every listener accepts, else 503; names these and damaged streams
    GET /health                  the same, and 503 also while a stream is damaged: for alerts, not for restarts
    GET /metrics                 Prometheus: server and streams; /metrics/per-object adds consumers, connections
    *   /api/…                   endpoints (`headgate.server.api`); GET /api/openapi.json says which

Page, health and metrics are answered at once, even while requests under `/api` wait. Connections are limited: a new one
beyond the limit replaces the one that has owed a request the longest.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from headgate.server import listings as lists
from headgate.server.console import console_routes
from headgate.server.context import ServerContext
from headgate.server.http.access import Access
from headgate.server.http.dispatcher import Dispatcher
from headgate.server.http.endpoint import Group
from headgate.server.metrics import metrics_text

_METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8; escaping=underscores"


def application(context: ServerContext, access: Access, groups: Iterable[Group]) -> Starlette:
    """The application of one listener, with the endpoints of some groups."""
    return _Site(context, access, groups).application()


class _Site:
    def __init__(self, context: ServerContext, access: Access, groups: Iterable[Group]) -> None:
        self._context = context
        self._endpoints = Dispatcher(groups, access, context.broker.audit)

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
                _Below("/api", self._endpoints),
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
        await lists.counted(self._context)
        per_object = request.url.path.endswith("/per-object")
        return Response(metrics_text(self._context, per_object=per_object), media_type=_METRICS_TYPE)


class _Below(BaseRoute):
    """All paths below one, whatever bytes their names have: starlette's own routes do not match a line feed."""

    def __init__(self, path: str, application: ASGIApp) -> None:
        self._path = path
        self._application = application

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether a request is for one of these paths."""
        path = scope["path"]
        is_below = scope["type"] == "http" and (path == self._path or path.startswith(f"{self._path}/"))
        return Match.FULL if is_below else Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._application(scope, receive, send)
