"""Administration for Service Bus clients over HTTP: entities, subscriptions and rules as Atom documents.

    GET, PUT, DELETE   /ENTITY, /TOPIC/subscriptions/NAME, …/rules/NAME
    GET                /$Resources/topics, /$Resources/queues, /TOPIC/subscriptions, …/rules     pages: $skip, $top
    GET                /ENTITY/$DeadLetterQueue, /TOPIC/subscriptions/NAME/$DeadLetterQueue
    GET                /$namespaceinfo
    GET                /health         200 while a message that is sent would be taken, else 503

PUT creates, or with `If-Match` changes what exists. Requests carry a shared-access signature in `Authorization`, and
more in other headers for the targets of forwarding. Source: servicebus_wire, section 8.
"""

from __future__ import annotations

import datetime
import logging
import os
import urllib.parse
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TypeVar

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from headgate.broker import Actor, Entities, Entity, EntityRule, EntitySubscription, Right
from headgate.errors import (
    AccessRefusedError,
    AuthenticationError,
    BrokerError,
    ConfigError,
    HeadgateError,
    ResourceExistsError,
    ResourceNotFoundError,
    UnsupportedError,
)
from headgate.protocols.servicebus import (
    DescriptionKind,
    EntityDescription,
    Entry,
    Part,
    Resource,
    ResourceKind,
    error_document,
    feed,
    parse_entry,
    parse_resource,
    read_description,
    read_rule_description,
    refusal_of,
    told_description,
    told_namespace,
    told_rule_description,
)
from headgate.server.context import ServerContext
from headgate.server.http import body_of, peer_of
from headgate.server.listings import damaged_lines
from headgate.server.servicebus.access import RequestAccess
from headgate.server.servicebus.descriptions import rule_definition, rule_description
from headgate.server.servicebus.entities import (
    WantedSubscription,
    dead_letters_description,
    declaration_of,
    entity_description,
    subscription_description,
)
from headgate.server.topics import told
from headgate.topic import RuleDefinition, TopicKind

_BODY_BYTES = 262_144
_REQUESTS = 64
"""Limit: requests at a time; more get status 503."""

_PAGE = 100
"""Limit: entries per response; also the number without `$top`."""

_ROOM_BYTES = 16 << 20
"""Least free space on the disk for a healthy server: a chunk may need as much."""

_ENTRY = "application/atom+xml;type=entry;charset=utf-8"
_FEED = "application/atom+xml;type=feed;charset=utf-8"
_ERROR = "application/xml; charset=utf-8"
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_TOKENS = ("authorization", "servicebussupplementaryauthorization", "servicebusdlqsupplementaryauthorization")
_WORDS = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    413: "Request Entity Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Server Busy",
}

_AUDITED = {ResourceKind.ENTITY: "entity", ResourceKind.SUBSCRIPTION: "subscription", ResourceKind.RULE: "rule"}
"""The names of these resources in actions of the audit stream."""

logger = logging.getLogger("headgate.server.servicebus")

T = TypeVar("T")


def administration_site(context: ServerContext) -> Starlette:
    """The application that administrates the entities of a broker, in the broker's own event loop."""
    site = _Administration(context)
    return Starlette(
        routes=[
            Route("/health", site.health),
            Route("/{path:path}", site.answer, methods=["GET", "PUT", "DELETE", "POST", "PATCH", "OPTIONS", "HEAD"]),
        ]
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    """One request, with the resource that its path names and its rights."""

    request: Request
    resource: Resource
    access: RequestAccess
    body: bytes

    @property
    def base(self) -> str:
        """The URL under which the client sees all entities."""
        return f"{self.request.url.scheme}://{self.request.headers.get('host', 'localhost')}"

    @property
    def changes_only(self) -> bool:
        """Whether a PUT may only change an existing entity."""
        return "if-match" in self.request.headers

    def address(self, resource: Resource) -> str:
        """The URL of a resource."""
        return f"{self.base}/{resource.encoded_path}"

    def number(self, name: str, default: int) -> int:
        """A number of the query. Raises ConfigError."""
        given = self.request.query_params.get(name)
        if given is None:
            return default
        if not (given.isascii() and given.isdecimal() and len(given) < 10):
            raise ConfigError(f"{name}: found {given!r}, expected a number of 0 or more")
        return int(given)


class _Administration:
    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._started_ms = context.clock.now_ms()
        self._requests = 0

    @property
    def _entities(self) -> Entities:
        return self._context.broker.entities

    async def health(self, _request: Request) -> Response:
        """Whether a message sent now would be stored: clients are accepted, and the disk has room."""
        is_healthy = self._context.is_ready
        if is_healthy:
            root = self._context.broker.root
            room = os.statvfs(root)
            is_healthy = room.f_bavail * room.f_frsize >= _ROOM_BYTES and os.access(root, os.W_OK)
        lines = ["healthy\n" if is_healthy else "unhealthy\n", *damaged_lines(self._context.broker)]
        return PlainTextResponse("".join(lines), 200 if is_healthy else 503, _HEADERS)

    async def answer(self, request: Request) -> Response:
        """The answer to a request about entities; refusals are worded as Service Bus words them."""
        raw = request.scope["raw_path"].decode("ascii")
        if self._requests >= _REQUESTS:
            return self._refused(503, f"{_REQUESTS} requests are being answered, ask again later", raw)
        self._requests += 1
        try:
            return await self._answer(request, raw)
        except ClientDisconnect:
            # The client has gone.
            return Response(status_code=400)
        except (AuthenticationError, AccessRefusedError) as error:
            logger.info("%s: %s %s refused: %s", peer_of(request).host, request.method, raw, error)
            return self._refused(401, str(error), raw)
        except UnsupportedError as error:
            return self._refused(405, str(error), raw)
        except HeadgateError as error:
            subject = error.subject if isinstance(error, BrokerError) else ""
            refusal = refusal_of(error, subject or urllib.parse.unquote(raw).strip("/"))
            if refusal.status >= 500:
                logger.error("%s %s failed: %s", request.method, raw, error)
            return self._refused(refusal.status, refusal.text, raw, sub_code=refusal.sub_code)
        finally:
            self._requests -= 1

    async def _answer(self, request: Request, raw: str) -> Response:
        tokens = [value for name in _TOKENS if (value := request.headers.get(name)) is not None]
        access = RequestAccess(self._context, peer_of(request), request.url.hostname, tokens)
        try:
            resource = parse_resource(raw)
        except ConfigError as error:
            raise ResourceNotFoundError(str(error), subject=raw.strip("/")) from error
        body = await body_of(request, _BODY_BYTES)
        if body is None:
            return self._refused(413, f"the body is longer than {_BODY_BYTES} bytes", raw)
        asked = _Asked(request, resource, access, body)
        kind, method = resource.kind, "GET" if request.method == "HEAD" else request.method
        lists: dict[ResourceKind, Callable[[_Asked], Response]] = {
            ResourceKind.TOPICS: partial(self._entity_page, TopicKind.TOPIC),
            ResourceKind.QUEUES: partial(self._entity_page, TopicKind.QUEUE),
            ResourceKind.SUBSCRIPTIONS: self._subscription_page,
            ResourceKind.RULES: self._rule_page,
        }
        if kind in lists and method == "GET":
            return lists[kind](asked)
        if kind is ResourceKind.DEAD_LETTERS and method == "GET":
            return self._dead_letters(asked)
        if kind is ResourceKind.NAMESPACE and method == "GET":
            return self._namespace(asked)
        answers = {
            ResourceKind.ENTITY: self._entity,
            ResourceKind.SUBSCRIPTION: self._subscription,
            ResourceKind.RULE: self._rule,
        }
        if kind not in answers or method not in ("GET", "PUT", "DELETE"):
            raise UnsupportedError(f"{request.method} is not for this path")
        if method == "GET":
            return await answers[kind](asked, method)
        peer = peer_of(request)
        actor = Actor(access.user, "Service Bus administration", f"{peer.host}:{peer.port}")
        what = "delete" if method == "DELETE" else "change" if asked.changes_only else "create"
        with self._context.broker.audit.attempt(actor, f"{_AUDITED[kind]}.{what}", resource.path):
            return await answers[kind](asked, method)

    def _refused(self, status: int, text: str, path: str, *, sub_code: int | None = None) -> Response:
        """A refusal. Clients show its detail; some read the sub-code; users quote the tracking id to their support."""
        now = datetime.datetime.fromtimestamp(self._context.clock.now_ms() / 1000, datetime.UTC)
        detail = (
            f"SubCode={sub_code or status * 100}. {_WORDS.get(status, 'Error')}. {text} TrackingId:{uuid.uuid4()}, "
            f"SystemTracker:headgate:{path.strip('/')}, Timestamp:{now:%Y-%m-%dT%H:%M:%S}"
        )
        headers = _HEADERS | ({"WWW-Authenticate": "SharedAccessSignature"} if status == 401 else {})
        return Response(error_document(status, detail), status, headers, _ERROR)

    # topics and queues

    async def _entity(self, asked: _Asked, method: str) -> Response:
        name = asked.resource.entity
        found = self._managed(asked, name)
        if method == "PUT":
            return await self._put_entity(asked, found)
        entity = _there(found, name)
        if method == "DELETE":
            await told(partial(self._entities.delete, entity.name))
            return Response(status_code=200, headers=_HEADERS)
        return _entry(self._entity_entry(asked, entity))

    def _managed(self, asked: _Asked, name: str) -> Entity | None:
        """The entity of a name, None if there is none. Raises AccessRefusedError if the caller may not know that."""
        try:
            found = self._entities.find(name)
        except ResourceNotFoundError:
            found = None
        self._check(asked, replace(asked.resource, entity=name if found is None else found.name))
        return found

    def _check(self, asked: _Asked, resource: Resource) -> None:
        """Check the right to manage: of a rule on its subscription, of a list of subscriptions on its topic."""
        if resource.kind in (ResourceKind.RULE, ResourceKind.RULES):
            resource = replace(resource, kind=ResourceKind.SUBSCRIPTION)
        elif resource.kind is ResourceKind.SUBSCRIPTIONS:
            resource = replace(resource, kind=ResourceKind.ENTITY)
        elif resource.kind is ResourceKind.DEAD_LETTERS:
            resource = resource.owner
        asked.access.check(Right.MANAGE, resource.path)

    async def _put_entity(self, asked: _Asked, found: Entity | None) -> Response:
        entities, name = self._entities, asked.resource.entity
        described = read_description(parse_entry(asked.body))
        if described.kind is DescriptionKind.SUBSCRIPTION:
            raise ConfigError("found a SubscriptionDescription, expected a TopicDescription or a QueueDescription")
        if asked.changes_only:
            name = _there(found, name).name
            if found is not None and entity_description(found)[0].kind is not described.kind:
                raise ConfigError(f"found a {described.kind.value}, and it is a {found.kind}")
        elif found is not None:
            raise ResourceExistsError("is there already", subject=found.name)
        wanted = declaration_of(name, described, found, now_ms=self._context.clock.now_ms())
        put = entities.create if found is None else entities.update
        entity: Entity = await told(partial(put, wanted, check_target=partial(asked.access.check, Right.SEND)))
        return _entry(self._entity_entry(asked, entity), is_new=found is None)

    def _entity_entry(self, asked: _Asked, entity: Entity) -> Entry:
        described, runtime = entity_description(entity)
        resource = Resource(ResourceKind.ENTITY, entity.name)
        content = told_description(
            described,
            runtime,
            message_size_bytes=self._context.settings.servicebus.message_size_bytes,
            address=lambda target: asked.address(Resource(ResourceKind.ENTITY, target)),
        )
        return Entry(asked.address(resource), entity.name, runtime.created_ms, runtime.updated_ms, content)

    def _entity_page(self, kind: TopicKind, asked: _Asked) -> Response:
        names = (name for name in self._entities.names(kind) if asked.access.allows(Right.MANAGE, name))
        return self._page(asked, names, lambda name: self._entity_entry(asked, self._entities.find(name)))

    def _dead_letters(self, asked: _Asked) -> Response:
        resource = asked.resource
        entity = _there(self._managed(asked, resource.entity), resource.entity)
        if not resource.subscription and entity.kind is TopicKind.TOPIC:
            raise ResourceNotFoundError("a topic has no dead letters itself", subject=resource.path)
        found = entity.subscription(resource.subscription) if resource.subscription else entity.queue
        resource = replace(resource, entity=entity.name, subscription=found.name if resource.subscription else "")
        described, runtime = dead_letters_description(found, of_transfer=resource.part is Part.TRANSFER_DEAD_LETTERS)
        content = told_description(
            described,
            runtime,
            message_size_bytes=self._context.settings.servicebus.message_size_bytes,
            address=asked.base.__add__,
        )
        return _entry(Entry(asked.address(resource), resource.path, runtime.created_ms, runtime.updated_ms, content))

    def _namespace(self, asked: _Asked) -> Response:
        name = (asked.request.url.hostname or "localhost").partition(".")[0]
        content = told_namespace(name, created_ms=self._started_ms)
        return _entry(Entry(asked.address(asked.resource), name, self._started_ms, self._started_ms, content))

    # subscriptions

    async def _subscription(self, asked: _Asked, method: str) -> Response:
        topic = _there(self._managed(asked, asked.resource.entity), asked.resource.entity)
        name = asked.resource.subscription
        if method == "PUT":
            return await self._put_subscription(asked, topic)
        found = topic.subscription(name)
        if method == "DELETE":
            await told(partial(self._entities.delete_subscription, topic.name, found.name))
            return Response(status_code=200, headers=_HEADERS)
        return _entry(self._subscription_entry(asked, topic, found))

    async def _put_subscription(self, asked: _Asked, topic: Entity) -> Response:
        name = asked.resource.subscription
        described = read_description(parse_entry(asked.body))
        if described.kind is not DescriptionKind.SUBSCRIPTION:
            raise ConfigError(f"found a {described.kind.value}, expected a SubscriptionDescription")
        found = topic.subscription(name) if asked.changes_only else None
        wanted = WantedSubscription.of(topic.name, name, described, found)
        put = partial(
            self._entities.update_subscription
            if found is not None
            # The rules of an existing subscription are changed one by one.
            else partial(self._entities.create_subscription, rules=_rules(described)),
            topic.name,
            name if found is None else found.name,
            wanted.settings,
            check_target=partial(asked.access.check, Right.SEND),
            dead_letter_on_errors=wanted.dead_letter_on_errors,
            forward_to=wanted.forward_to,
        )
        entity: Entity = await told(put)
        return _entry(self._subscription_entry(asked, entity, entity.subscription(name)), is_new=found is None)

    def _subscription_entry(self, asked: _Asked, topic: Entity, found: EntitySubscription) -> Entry:
        described, runtime = subscription_description(found)
        resource = Resource(ResourceKind.SUBSCRIPTION, topic.name, found.name)
        content = told_description(
            described,
            runtime,
            message_size_bytes=self._context.settings.servicebus.message_size_bytes,
            address=lambda target: asked.address(Resource(ResourceKind.ENTITY, target)),
        )
        return Entry(asked.address(resource), found.name, runtime.created_ms, runtime.updated_ms, content)

    def _subscription_page(self, asked: _Asked) -> Response:
        topic = _there(self._managed(asked, asked.resource.entity), asked.resource.entity)
        return self._page(asked, topic.subscriptions, lambda each: self._subscription_entry(asked, topic, each))

    # rules

    async def _rule(self, asked: _Asked, method: str) -> Response:
        topic = _there(self._managed(asked, asked.resource.entity), asked.resource.entity)
        subscription, name = topic.subscription(asked.resource.subscription), asked.resource.rule
        entities = self._entities
        if method == "GET":
            return _entry(self._rule_entry(asked, topic, subscription, subscription.rule(name)))
        if method == "DELETE":
            await told(partial(entities.remove_rule, topic.name, subscription.name, name))
            return Response(status_code=200, headers=_HEADERS)
        content = parse_entry(asked.body)
        if content.name != "RuleDescription":
            raise ConfigError(f"found a {content.name}, expected a RuleDescription")
        if asked.changes_only:
            name = subscription.rule(name).name
        definition = rule_definition(read_rule_description(content, name))
        put = entities.replace_rule if asked.changes_only else entities.add_rule
        entity: Entity = await told(partial(put, topic.name, subscription.name, definition))
        made = entity.subscription(subscription.name)
        return _entry(self._rule_entry(asked, entity, made, made.rule(name)), is_new=not asked.changes_only)

    def _rule_entry(self, asked: _Asked, topic: Entity, subscription: EntitySubscription, rule: EntityRule) -> Entry:
        resource = Resource(ResourceKind.RULE, topic.name, subscription.name, rule.name)
        content = told_rule_description(rule_description(rule))
        return Entry(asked.address(resource), rule.name, rule.created_ms, rule.created_ms, content)

    def _rule_page(self, asked: _Asked) -> Response:
        topic = _there(self._managed(asked, asked.resource.entity), asked.resource.entity)
        subscription = topic.subscription(asked.resource.subscription)
        return self._page(asked, subscription.rules, lambda rule: self._rule_entry(asked, topic, subscription, rule))

    def _page(self, asked: _Asked, rows: Iterable[T], entry: Callable[[T], Entry]) -> Response:
        """A page of a list; it names the next page, if there is one, so that the client asks for it."""
        skip = asked.number("$skip", 0)
        top = min(asked.number("$top", _PAGE), _PAGE) or _PAGE
        found: Sequence[T] = list(islice(rows, skip, skip + top + 1))
        address = asked.address(asked.resource)
        following = None
        if len(found) > top:
            following = f"{address}?$skip={skip + top}&$top={top}"
            version = asked.request.query_params.get("api-version")
            if version is not None:
                following += f"&api-version={urllib.parse.quote(version)}"
        document = feed(
            address,
            asked.resource.path,
            [entry(row) for row in found[:top]],
            updated_ms=self._context.clock.now_ms(),
            next_address=following,
        )
        return Response(document, 200, _HEADERS, _FEED)


def _there(found: Entity | None, name: str) -> Entity:
    if found is None:
        raise ResourceNotFoundError("no such topic or queue", subject=name)
    return found


def _rules(described: EntityDescription) -> list[RuleDefinition] | None:
    """The rules of a new subscription; None: the default rule."""
    return None if described.default_rule is None else [rule_definition(described.default_rule)]


def _entry(entry: Entry, *, is_new: bool = False) -> Response:
    return Response(entry.document(), 201 if is_new else 200, _HEADERS, _ENTRY)
