"""An endpoint: one request below `/api`, declared as data.

    Endpoint     method, path, meaning, permission, types of query, body and answer, and the function that answers
    Group        endpoints that belong together, with a title
    Call         one request to an endpoint, decoded
    Answer       a value for JSON, and its status

From these declarations come the routes (`router`), the OpenAPI document (`openapi`) and the tables of
`docs/reference/http.md`. No sockets here: commands that work on files call endpoints, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import msgspec

from headgate.errors import ConfigError

if TYPE_CHECKING:
    from starlette.requests import Request

    from headgate.server.http.access import Identity

BODY_BYTES = 65_536
"""Limit of bodies, unless an endpoint has another one."""

ANY_USER = "any user"
ADMINISTRATORS = "the tag `administrator`"


@dataclass(frozen=True, slots=True)
class Call:
    """One request to an endpoint, as a user; query and body are of the types that the endpoint declares."""

    user: str
    names: Mapping[str, str] = field(default_factory=dict)
    """The named parts of the path, without their percent encoding."""
    query: Any = None
    body: Any = None
    connection: str = ""
    """The address that it comes from, such as `127.0.0.1:50312`."""
    request: Request | None = None
    """The HTTP request; None for a command on files."""
    identity: Identity | None = None
    """How the user is known: password, token or session; None without a login."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a call: a value for JSON, nothing with status 204, or events as they come."""

    value: object = None
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)
    made: str | None = None
    """The id of what a POST made, its subject in the audit stream; None: the names in the path are."""


@dataclass(frozen=True, slots=True)
class EventStream:
    """The value of an answer that goes on: server-sent events, encoded, until the iterator or the client ends.

    A stream does not count as a request that waits; its endpoint limits how many there are. `on_end` is called when it
    has ended, also if nothing of it was sent.
    """

    events: AsyncIterator[bytes]
    on_end: Callable[[], None]


def stored(value: object, *, is_new: bool) -> Answer:
    """The answer to a PUT: 201 where it made something, else 200."""
    return Answer(value, HTTPStatus.CREATED if is_new else HTTPStatus.OK)


Handler = Callable[[Call], Awaitable[Answer]]
"""Answers a call. Raises HeadgateError, which `problem` gives a status, or RequestRefusedError."""


class NoQuery(msgspec.Struct, frozen=True):
    """No parameters; those that other programs send are ignored."""


class ForceQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether something is done although somebody uses it."""

    force: Annotated[bool, msgspec.Meta(description="Do it also where something uses it or it is damaged.")] = False


def described(kind: Any, description: str) -> Any:
    """A type with a description for the OpenAPI document: an object whose keys are open, for example."""
    return Annotated[kind, msgspec.Meta(description=description)]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One request below `/api`: `Endpoint("GET", "topics/{topic}/history", "Every version of every rule.", …)`.

    A name in braces stands for one part of the path. `permission` is for readers; the handler checks it.
    """

    method: str
    path: str
    summary: str
    """One plain sentence: what it gives or does."""
    handler: Handler
    permission: str = ANY_USER
    query: type[msgspec.Struct] = NoQuery
    """The parameters of the query, each `Annotated` with its meaning."""
    body: Any = None
    """The type of the body; None: it takes none. An empty body is an object without keys."""
    example: object = None
    """A body as an example."""
    answer: Any = None
    """The type of the answer; None: it has no body."""
    media_type: str = "application/json"
    """That of the answer."""
    statuses: tuple[int, ...] = (HTTPStatus.OK,)
    """The statuses of success."""
    errors: tuple[int, ...] = ()
    """The statuses of errors besides those that every endpoint of its kind has."""
    needs_login: bool = True
    is_change: bool | None = None
    """Whether it changes something; None: unless it is a GET. A read-only token may not."""
    body_bytes: int = BODY_BYTES
    """Limit."""
    action: str | None = None
    """Its name in the audit stream, such as `user.delete`; None: it changes nothing that is recorded, or its
    handler or a command of the broker's session records it."""

    @property
    def changes(self) -> bool:
        """Whether it changes something."""
        return self.method != "GET" if self.is_change is None else self.is_change

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the path."""
        return tuple(self.path.split("/"))

    def names(self, path: tuple[str, ...]) -> dict[str, str] | None:
        """The named parts of a path; None for a path of another endpoint."""
        if len(self.parts) != len(path):
            return None
        names = {}
        for part, found in zip(self.parts, path, strict=True):
            if part.startswith("{"):
                names[part[1:-1]] = found
            elif part != found:
                return None
        return names

    def decoded_query(self, parameters: Mapping[str, list[str]]) -> msgspec.Struct:
        """The query as the endpoint's type. Raises ConfigError, which names the parameter."""
        lists = {each.encode_name for each in msgspec.structs.fields(self.query) if _is_list(each.type)}
        texts = {name: texts if name in lists else texts[-1] for name, texts in parameters.items()}
        try:
            return msgspec.convert(texts, self.query, strict=False)
        except msgspec.ValidationError as error:
            reason, _, name = str(error).partition(" - at `$.")
            name = name.rstrip("`")
            place = f"{name}: found {texts.get(name)!r}" if name in texts else "the query"
            raise ConfigError(f"{place}: {reason}") from error

    def decoded_body(self, body: bytes) -> Any:
        """The body as the endpoint's type. Raises ConfigError, which names the key."""
        if self.body is None:
            return None
        try:
            return msgspec.json.decode(body or b"{}", type=self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"the body: {error}") from error


def _is_list(kind: Any) -> bool:
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return get_origin(kind) in (list, tuple)


@dataclass(frozen=True, slots=True)
class Group:
    """Endpoints that belong together. With `is_foreign`, errors have the form of RabbitMQ's management plug-in."""

    title: str
    meaning: str
    endpoints: tuple[Endpoint, ...]
    is_foreign: bool = False
