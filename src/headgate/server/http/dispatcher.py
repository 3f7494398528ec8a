"""Answers requests below `/api` by their endpoints, in the event loop.

Only these requests may wait, so their number is limited.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from urllib.parse import parse_qs, unquote

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from headgate.broker import Actor, Audit
from headgate.errors import HeadgateError
from headgate.server.http.access import Access, Identity
from headgate.server.http.endpoint import Answer, Call, Endpoint, EventStream, Group
from headgate.server.http.openapi import document_endpoint
from headgate.server.http.problem import MEDIA_TYPE, Problem, RequestRefusedError, problem_of
from headgate.server.http.requests import body_of, peer_of
from headgate.server.http.router import Router

REQUESTS = 64
"""Limit: requests of users under `/api` at a time; logins have a limit of their own."""
QUERY_BYTES = 16_384
"""Limit of a path with its query."""
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""Headers of answers with data: names in them come from clients, and they are only for this user, now."""


class Dispatcher:
    """An ASGI application of the endpoints of some groups."""

    def __init__(self, groups: Iterable[Group], access: Access, audit: Audit) -> None:
        listed = tuple(groups)
        self._router = Router((document_endpoint(listed), *listed))
        self._access = access
        self._audit = audit
        self._requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as ASGI says."""
        request = Request(scope, receive, send)
        try:
            path = _parts(scope)
        except RequestRefusedError as refused:
            await self._refusal((), refused.problem, refused.headers)(scope, receive, send)
            return
        response = await self._answer(request, path)
        await response(scope, receive, send)

    async def _answer(self, request: Request, path: tuple[str, ...]) -> Response:
        """The answer to a request; errors of the broker are problems."""
        try:
            return _response(await self._called(request, path))
        except RequestRefusedError as refused:
            return self._refusal(path, refused.problem, refused.headers)
        except ClientDisconnect:
            # The client has gone.
            return Response(status_code=400)
        except HeadgateError as error:
            problem = problem_of(error)
            allowed = {"Allow": ", ".join(self._router.methods(path))} if problem.status == 405 else {}
            return self._refusal(path, problem, allowed)

    async def _called(self, request: Request, path: tuple[str, ...]) -> Answer:
        if len(request.scope["raw_path"]) + len(request.scope["query_string"]) > QUERY_BYTES:
            raise RequestRefusedError(414, f"path and query are longer than {QUERY_BYTES} bytes")
        endpoint, names = self._router.find("GET" if request.method == "HEAD" else request.method, path)
        self._access.check_origin(request)
        if not endpoint.needs_login:
            return await self._handled(request, endpoint, names, None)
        # Not counted until its user is known: nobody else's wrong passwords keep users out.
        identity = await self._access.identity(request)
        if self._requests >= REQUESTS:
            raise RequestRefusedError(503, f"{REQUESTS} requests are being answered, ask again later")
        self._requests += 1
        try:
            return await self._handled(request, endpoint, names, identity)
        finally:
            self._requests -= 1

    async def _handled(
        self, request: Request, endpoint: Endpoint, names: dict[str, str], identity: Identity | None
    ) -> Answer:
        """The answer of an endpoint to a user, who may not do everything with it."""
        if identity is not None and endpoint.changes:
            if identity.token is not None and identity.token.read_only:
                raise RequestRefusedError(403, "the token is for reading only")
            if identity.session_id is not None:
                self._access.check_change(request)
        body = await body_of(request, endpoint.body_bytes)
        if body is None:
            raise RequestRefusedError(413, f"the body is longer than {endpoint.body_bytes} bytes")
        peer = peer_of(request)
        parameters = parse_qs(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        call = Call(
            "" if identity is None else identity.user,
            names,
            endpoint.decoded_query(parameters),
            endpoint.decoded_body(body),
            f"{peer.host}:{peer.port}",
            request,
            identity,
        )
        if endpoint.action is None:
            return await endpoint.handler(call)
        actor = Actor(call.user, "HTTP", call.connection)
        subject = "/".join(names.values())
        with self._audit.attempt(actor, endpoint.action, subject, {"body": msgspec.to_builtins(call.body)}) as attempt:
            answer = await endpoint.handler(call)
            attempt.subject = answer.made or subject
            return answer

    def _refusal(self, path: tuple[str, ...], problem: Problem, headers: dict[str, str]) -> Response:
        if self._router.is_foreign(path):
            value: object = {"error": problem.detail, "reason": problem.detail}
            return _json(value, problem.status, headers, "application/json")
        return _json(problem, problem.status, headers, MEDIA_TYPE)


def _parts(scope: Scope) -> tuple[str, ...]:
    """The parts of a path behind `/api`, as it was sent: names hold slashes that are percent-encoded.

    Some clients end a path with a slash. Raises RequestRefusedError for bytes that are no text.
    """
    sent = scope["raw_path"].decode("ascii").removesuffix("/")
    try:
        return tuple(unquote(part, errors="strict") for part in sent.split("/")[2:])
    except UnicodeDecodeError as error:
        raise RequestRefusedError(400, f"the path {sent[:200]!r} has bytes that are no UTF-8") from error


class _Events(StreamingResponse):
    """An answer of server-sent events."""

    def __init__(self, stream: EventStream, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(stream.events, status, headers, "text/event-stream")
        self._on_end = stream.on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until there are no more, or the client has gone."""
        if scope["method"] == "HEAD":
            self.body_iterator = _no_events()
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


async def _no_events() -> AsyncIterator[bytes]:
    return
    yield b""


def _response(answer: Answer) -> Response:
    headers = {**_HEADERS, **answer.headers}
    if isinstance(answer.value, EventStream):
        return _Events(answer.value, answer.status, headers)
    if answer.status == 204:
        return Response(status_code=204, headers=headers)
    return _json(answer.value, answer.status, headers, "application/json")


def _json(value: object, status: int, headers: dict[str, str], media_type: str) -> Response:
    return Response(
        msgspec.json.encode(value, enc_hook=str), status, headers={**_HEADERS, **headers}, media_type=media_type
    )
