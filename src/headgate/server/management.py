"""RabbitMQ's management plug-in, as far as monitors use it: in its form and at its paths under `/api`, read-only.

    GET overview, cluster-name, whoami, aliveness-test/VHOST
    GET queues, queues/VHOST, queues/VHOST/NAME          also exchanges and bindings of VHOST; vhosts, vhosts/VHOST
    GET nodes, nodes/NAME
    GET health/checks/CHECK

The forms are RabbitMQ 4.3.6's. Lists show what the user may read, as our own lists do. A stream is a queue of type
`stream`, a subscription a queue of type `quorum`, as in the other protocols. The numbers equal those of our lists.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Annotated, Any

import msgspec

from headgate.broker import (
    EXCHANGE_KINDS,
    Binding,
    Broker,
    BrokerStream,
    Consumer,
    Exchange,
    SubscriptionInfo,
    arguments_declared,
    check_pattern,
    matches,
)
from headgate.errors import AccessRefusedError, HeadgateError, PreconditionFailedError, ResourceNotFoundError
from headgate.protocols.sasl import Mechanism
from headgate.server import listings as lists
from headgate.server.context import ServerContext
from headgate.server.http import Answer, Call, Endpoint, Group
from headgate.server.identity import NODE, VERSION
from headgate.server.listening_sockets import ENCRYPTED, protocol_of
from headgate.server.metrics import open_descriptors, resident_bytes
from headgate.topic import QUEUE_SUBSCRIPTION, SubscriptionName
from headgate.version import __version__

Row = dict[str, Any]

_VHOST = "/"
_DEFAULT_EXCHANGE = "amq.default"
"""The name of the default exchange in paths; its own name is empty."""
_LOW_DISK_BYTES = 50_000_000
"""RabbitMQ's default alarm limit for free disk space. Here no publisher is blocked before the disk is full."""
_RATE_OVER_S = 5.0
"""A rate is measured over at least this time, as in RabbitMQ."""
_FORGOTTEN_AFTER_S = 3600.0
_PAGE_ROWS = 100
_MOST_PAGE_ROWS = 500

_ALSO_CALLED = {"amqp091": "amqp", "amqp10": "amqp", "amqp0.9.1": "amqp", "amqp1.0": "amqp", "amqps": "amqp/ssl"}


class Rates:
    """Growth rates of counters, from one request to the next: nothing is measured between requests."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._samples: dict[tuple[str, str], list[tuple[float, Mapping[str, int]]]] = {}

    def with_details(self, kind: str, name: str, counts: Mapping[str, int]) -> Row:
        """The counts of one object, each with its `_details`: growth per second; 0.0 at the first request."""
        now_s = self._monotonic_s()
        samples = self._samples.setdefault((kind, name), [])
        if not samples or now_s - samples[-1][0] >= _RATE_OVER_S:
            samples.append((now_s, counts))
            del samples[:-2]
        since_s, before = samples[0]
        elapsed_s = now_s - since_s
        row: Row = dict(counts)
        for counter, count in counts.items():
            grown = count - before.get(counter, count)
            # A fallen counter belongs to a new object of this name.
            falls = counter.startswith("messages")
            rate = (grown if falls else max(0, grown)) / elapsed_s if elapsed_s > 0 else 0.0
            row[f"{counter}_details"] = {"rate": rate}
        return row

    def forget(self) -> None:
        """Drop counts without a request in the last hour."""
        oldest_s = self._monotonic_s() - _FORGOTTEN_AFTER_S
        self._samples = {key: samples for key, samples in self._samples.items() if samples[-1][0] >= oldest_s}


def management_group(context: ServerContext) -> Group:
    """The endpoints, in RabbitMQ's form."""
    return Group(
        "What monitors of RabbitMQ ask for",
        "Read-only, in the form of RabbitMQ's management plug-in; shows what the user may read.",
        tuple(_endpoints(_Management(context))),
        is_foreign=True,
    )


def _endpoints(management: _Management) -> Iterator[Endpoint]:
    def get(path: str, summary: str, handler: Callable[[Call], Awaitable[Answer]], **more: Any) -> Endpoint:
        async def answer(call: Call) -> Answer:
            await management.prepare()
            return await handler(call)

        return Endpoint("GET", path, summary, answer, **{"answer": Row, **more})

    listed = {"query": PageQuery, "answer": list[Row] | Row}
    yield get("overview", "The server, its listeners and totals; the user of the request.", management.overview)
    yield get("cluster-name", "The name of the node.", management.cluster_name)
    yield get("whoami", "The user of the request.", management.who)
    yield get("aliveness-test/{vhost}", "Whether the virtual host is there.", management.aliveness)
    yield get("queues", "Streams and subscriptions as queues.", management.queues, **listed)
    yield get("queues/{vhost}", "The same.", management.queues, **listed)
    yield get("queues/{vhost}/{queue}", "One queue.", management.queue)
    yield get("exchanges", "Exchanges.", management.exchanges, **listed)
    yield get("exchanges/{vhost}", "The same.", management.exchanges, **listed)
    yield get("exchanges/{vhost}/{exchange}", "One exchange.", management.exchange)
    yield get("bindings", "Bindings.", management.bindings, **listed)
    yield get("bindings/{vhost}", "The same.", management.bindings, **listed)
    yield get("vhosts", "The virtual host, as a list.", management.virtual_hosts, answer=list[Row])
    yield get("vhosts/{vhost}", "The virtual host.", management.virtual_host)
    yield get("nodes", "The node, as a list.", management.nodes, answer=list[Row])
    yield get("nodes/{node}", "The node.", management.node)
    for path in ("health/checks/{check}", "health/checks/{check}/{argument}"):
        yield get(path, "A health check: 200 or 503.", management.health)


class _Management:
    """Answers the requests of one server."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._broker: Broker = context.broker
        self._rates = Rates(context.clock.monotonic_s)
        self._began_s = context.clock.monotonic_s()

    async def prepare(self) -> None:
        """Before each answer: messages can be counted, and old rates are dropped."""
        await lists.counted(self._context)
        self._rates.forget()

    async def overview(self, call: Call) -> Answer:
        """Our overview together with RabbitMQ's: equal names mean the same in both."""
        return Answer(self._overview(call.user))

    async def cluster_name(self, _call: Call) -> Answer:
        """The name of the one node."""
        return Answer({"name": NODE})

    async def who(self, call: Call) -> Answer:
        """The user of the call."""
        tags = list(self._broker.users.get(call.user).tags)
        return Answer({"name": call.user, "tags": tags, "is_internal_user": True})

    async def aliveness(self, call: Call) -> Answer:
        """Whether the virtual host is there."""
        _check_virtual_host(call)
        return Answer({"status": "ok"})

    async def queues(self, call: Call) -> Answer:
        """Streams and subscriptions as queues."""
        _check_virtual_host(call)
        return Answer(_page(self._queues(call.user), call.query))

    async def queue(self, call: Call) -> Answer:
        """One of them."""
        _check_virtual_host(call)
        return Answer(self._queue(call.names["queue"], call.user))

    async def exchanges(self, call: Call) -> Answer:
        """Exchanges."""
        _check_virtual_host(call)
        return Answer(_page(map(_exchange_row, self._exchanges(call.user)), call.query))

    async def exchange(self, call: Call) -> Answer:
        """One of them; in a path the exchange without a name has one."""
        _check_virtual_host(call)
        name = call.names["exchange"].replace(_DEFAULT_EXCHANGE, "")
        return Answer(_named(map(_exchange_row, self._exchanges(call.user)), name))

    async def bindings(self, call: Call) -> Answer:
        """Bindings."""
        _check_virtual_host(call)
        return Answer(_page(self._bindings(call.user), call.query))

    async def virtual_hosts(self, call: Call) -> Answer:
        """The one virtual host, as a list."""
        return Answer([self._virtual_host(call.user)])

    async def virtual_host(self, call: Call) -> Answer:
        """The one virtual host."""
        _check_virtual_host(call)
        return Answer(self._virtual_host(call.user))

    async def nodes(self, _call: Call) -> Answer:
        """The one node, as a list."""
        return Answer([self._node()])

    async def node(self, call: Call) -> Answer:
        """The one node."""
        if call.names["node"] != NODE:
            raise ResourceNotFoundError(f"there is one node, {NODE}", subject=call.names["node"])
        return Answer(self._node())

    async def health(self, call: Call) -> Answer:
        """A health check."""
        argument = call.names.get("argument")
        return self._health([call.names["check"], *([] if argument is None else [argument])])

    # queues

    def _queues(self, user: str) -> list[Row]:
        return sorted(self._queue_rows(user), key=itemgetter("name"))

    def _queue_rows(self, user: str) -> Iterator[Row]:
        """The streams and subscriptions that a user may read; the row of an unreadable stream has its error."""
        broker = self._broker
        members, counts = lists.consumers_by_stream(broker), lists.consumer_counts(broker)
        for name in broker.catalogue.names():
            is_untold = lists.may_read(broker.users, user, name)
            try:
                stream = broker.catalogue.get(name)
                if is_untold:
                    yield self._stream(stream, members.get(name, ()), counts[name])
                    is_untold = False
                if broker.topics.is_topic(stream):
                    for info in broker.topics.get(name).subscriptions.infos():
                        queue = str(SubscriptionName(name, info.name))
                        if info.name != QUEUE_SUBSCRIPTION and lists.may_read(broker.users, user, queue):
                            yield self._subscription(queue, info)
            except HeadgateError as error:
                if is_untold:
                    yield {**_queue_facts(name, "stream"), "state": "down", "error": str(error)}

    def _queue(self, name: str, user: str) -> Row:
        broker = self._broker
        if not lists.may_read(broker.users, user, name):
            raise AccessRefusedError(f"user {user!r} may not read queue {name!r}")
        stream = broker.catalogue.find(name)
        if stream is not None:
            return self._stream(
                stream, lists.consumers_by_stream(broker).get(name, ()), lists.consumer_counts(broker)[name]
            )
        meant = SubscriptionName.parse(name)
        if meant is not None and not meant.is_dead_letter:
            topic = broker.catalogue.find(meant.topic)
            if topic is not None and broker.topics.is_topic(topic):
                for info in broker.topics.get(meant.topic).subscriptions.infos():
                    if info.name == meant.subscription:
                        return self._subscription(name, info)
        raise ResourceNotFoundError("no such queue", subject=name)

    def _stream(self, stream: BrokerStream, members: Iterable[Consumer], consumers: int) -> Row:
        row = lists.stream_row(self._broker, stream, members, consumers)
        written, read = stream.counters, row["reading"]
        assert isinstance(read, dict)
        arguments = {f"x-{name}": value for name, value in arguments_declared(stream).items()}
        return {
            **_queue_facts(stream.name, "stream"),
            "arguments": {"x-queue-type": "stream"} | arguments,
            "consumers": row["consumers"],
            "publishers": row["publishers"],
            "message_bytes": row["size_bytes"],
            **self._rates.with_details("messages", stream.name, _messages(stream.messages_from(0), 0)),
            "message_stats": self._rates.with_details(
                "stats",
                stream.name,
                {
                    "publish": written.messages_published,
                    "confirm": written.messages_confirmed,
                    "deliver": read["delivered_messages"],
                    "deliver_get": read["delivered_messages"],
                },
            ),
            **({"state": "down"} if stream.damage is not None else {}),
            **lists.error_of(stream),
        }

    def _subscription(self, name: str, info: SubscriptionInfo) -> Row:
        counts, counters = info.counts, info.counters
        return {
            **_queue_facts(name, "quorum"),
            "consumers": info.receivers,
            **self._rates.with_details("messages", name, _messages(counts.active + counts.waiting, counts.locked)),
            "message_stats": self._rates.with_details(
                "stats",
                name,
                {
                    "publish": counters.decided,
                    "deliver": counters.delivered,
                    "deliver_get": counters.delivered,
                    "ack": counters.completed,
                },
            ),
        }

    # exchanges and the virtual host

    def _exchanges(self, user: str) -> list[Exchange]:
        users = self._broker.users
        return [each for each in self._broker.exchanges.all() if lists.may_read(users, user, each.name)]

    def _bindings(self, user: str) -> Iterator[Row]:
        users = self._broker.users
        readable = {exchange.name for exchange in self._exchanges(user)}
        for name in self._broker.catalogue.names():
            if lists.may_read(users, user, name):
                yield _binding_row(Binding("", name, name))
        for binding in self._broker.exchanges.bindings():
            if binding.source in readable:
                yield _binding_row(binding)

    def _virtual_host(self, user: str) -> Row:
        connections = self._context.connections
        messages, stats = self._totals(user, self._queues(user))
        return {
            "name": _VHOST,
            "description": "the only virtual host",
            "tags": [],
            "metadata": {"description": "the only virtual host", "tags": [], "default_queue_type": "stream"},
            "default_queue_type": "stream",
            "tracing": False,
            "protected_from_deletion": True,
            "cluster_state": {NODE: "running"},
            "recv_oct": connections.bytes_received().total(),
            "send_oct": connections.bytes_sent().total(),
            **messages,
            "message_stats": stats,
        }

    def _totals(self, user: str, queues: list[Row]) -> tuple[Row, Row]:
        """Sums over the queues that a user may read: messages, and counts of their deliveries."""
        messages = {name: sum(row.get(name, 0) for row in queues) for name in _messages(0, 0)}
        stats = {
            name: sum(row.get("message_stats", {}).get(name, 0) for row in queues)
            for name in ("publish", "confirm", "deliver", "deliver_get", "ack")
        }
        return (
            self._rates.with_details("all messages", user, messages),
            self._rates.with_details("all stats", user, stats),
        )

    # the server

    def _overview(self, user: str) -> Row:
        """Our overview together with RabbitMQ's: equal names mean the same in both."""
        context, queues = self._context, self._queues(user)
        counters, connections = self._broker.counters, context.connections.totals
        messages, stats = self._totals(user, queues)
        churn = {
            "connection_created": connections.opened,
            "connection_closed": connections.closed,
            "queue_created": counters.streams_created,
            "queue_deleted": counters.streams_deleted,
        }
        return {
            **lists.overview_row(context, user),
            "management_version": VERSION,
            "rabbitmq_version": VERSION,
            "product_name": "Headgate",
            "product_version": __version__,
            "cluster_name": NODE,
            "cluster_tags": {},
            "node_tags": {},
            "rates_mode": "basic",
            "disable_stats": False,
            "enable_queue_totals": False,
            "default_queue_type": "stream",
            "exchange_types": _exchange_types(),
            "message_stats": stats,
            "churn_rates": self._rates.with_details("churn", "", churn),
            "queue_totals": messages,
            "object_totals": {
                "consumers": sum(1 for _ in lists.consumer_rows(self._broker, user)),
                "exchanges": len(self._exchanges(user)),
                "queues": len(queues),
                "connections": sum(1 for _ in lists.connection_rows(context, user)),
                "channels": sum(1 for session in self._broker.sessions if self._sees(user, session.user)),
            },
            "statistics_db_event_queue": 0,
            "listeners": self._listeners(),
            "contexts": self._contexts(),
        }

    def _sees(self, user: str, other: str) -> bool:
        return user == other or lists.may_see_all(self._broker.users, user)

    def _ports(self) -> dict[str, int]:
        """The ports of the listeners that accept."""
        ended = self._context.listeners.ended()
        return {listener: port for listener, port in self._context.ports.items() if listener not in ended}

    def _listeners(self) -> list[Row]:
        host = self._context.settings.listeners.host
        return [
            {
                "node": NODE,
                "protocol": _protocol(listener),
                "ip_address": "::" if host == "*" else host,
                "port": port,
                "socket_opts": {},
                "tls": listener in ENCRYPTED,
            }
            for listener, port in sorted(self._ports().items())
        ]

    def _contexts(self) -> list[Row]:
        return [
            {
                "node": NODE,
                "description": "Headgate",
                "path": "/",
                "ip": row["ip_address"],
                "port": row["port"],
                "ssl_opts": [],
                "protocol": row["protocol"],
            }
            for row in self._listeners()
            if row["protocol"] in ("http", "https")
        ]

    def _node(self) -> Row:
        context = self._context
        disk_free = self._disk_free_bytes()
        pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), resource.getpagesize()
        return {
            "name": NODE,
            "type": "disc",
            "running": True,
            "being_drained": False,
            "os_pid": str(os.getpid()),
            "uptime": int((context.clock.monotonic_s() - self._began_s) * 1000),
            "rates_mode": "basic",
            "processors": os.cpu_count(),
            "mem_used": resident_bytes(),
            "mem_limit": pages * page_bytes,
            "mem_alarm": False,
            "disk_free": disk_free,
            "disk_free_limit": _LOW_DISK_BYTES,
            "disk_free_alarm": disk_free < _LOW_DISK_BYTES,
            "fd_used": open_descriptors(),
            "fd_total": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "sockets_used": len(context.connections),
            "sockets_total": context.settings.limits.connections,
            "db_dir": str(self._broker.root),
            "log_files": [],
            "config_files": [],
            "partitions": [],
            "enabled_plugins": ["rabbitmq_management", "rabbitmq_stomp", "rabbitmq_stream"],
            "applications": [{"name": "headgate", "description": "Headgate", "version": __version__}],
            "exchange_types": _exchange_types(),
            "auth_mechanisms": [{"name": each, "description": f"SASL {each}", "enabled": True} for each in Mechanism],
            "contexts": self._contexts(),
            "cluster_links": [],
        }

    def _disk_free_bytes(self) -> int:
        with contextlib.suppress(OSError):
            return shutil.disk_usage(self._broker.root).free
        return 0

    def _health(self, check: list[str]) -> Answer:
        context = self._context
        match check:
            case ["alarms" | "local-alarms"]:
                if self._disk_free_bytes() >= _LOW_DISK_BYTES:
                    return _well()
                alarm = {"node": NODE, "resource": "disk"}
                return _failed("There are alarms in effect", alarms=[alarm])
            case ["virtual-hosts" | "node-is-mirror-sync-critical"]:
                return _well()
            case ["node-is-quorum-critical"]:
                return _well(reason="single node cluster")
            case ["ready-to-serve-clients" | "is-in-service"]:
                return _well() if context.is_ready else _failed("a listener does not accept")
            case ["below-node-connection-limit"]:
                limit, current = context.settings.limits.connections, len(context.connections)
                if current < limit:
                    return _well()
                return _failed("connection limit is reached", limit=limit, current=current)
            case ["port-listener", port]:
                ports = sorted(self._ports().values())
                if not (port.isascii() and port.isdigit() and len(port) <= 5):
                    raise PreconditionFailedError(f"{port[:40]!r} is no port")
                if int(port) in ports:
                    return _well(port=int(port))
                return _failed("No active listener", missing=int(port), ports=ports)
            case ["protocol-listener", name]:
                protocols = sorted({_protocol(listener) for listener in self._ports()})
                if _ALSO_CALLED.get(name.lower(), name.lower()) in protocols:
                    return _well(protocols=protocols)
                return _failed("No active listener", missing=[name], protocols=protocols)
        raise ResourceNotFoundError("no such health check", subject="/".join(check))


def _queue_facts(name: str, kind: str) -> Row:
    return {
        "name": name,
        "vhost": _VHOST,
        "type": kind,
        "durable": True,
        "auto_delete": False,
        "exclusive": False,
        "arguments": {"x-queue-type": kind},
        "effective_policy_definition": {},
        "state": "running",
        "node": NODE,
        "leader": NODE,
        "members": [NODE],
        "online": [NODE],
    }


def _messages(ready: int, unacknowledged: int) -> dict[str, int]:
    return {
        "messages": ready + unacknowledged,
        "messages_ready": ready,
        "messages_unacknowledged": unacknowledged,
    }


def _exchange_row(exchange: Exchange) -> Row:
    return {
        "name": exchange.name,
        "vhost": _VHOST,
        "type": exchange.kind,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": exchange.arguments,
    }


def _binding_row(binding: Binding) -> Row:
    return {
        "source": binding.source,
        "vhost": _VHOST,
        "destination": binding.queue or binding.exchange,
        "destination_type": "queue" if binding.queue else "exchange",
        "routing_key": binding.key,
        "arguments": binding.arguments,
        "properties_key": binding.key or "~",
    }


def _exchange_types() -> list[Row]:
    return [
        {"name": kind, "description": f"exchanges of type {kind}", "enabled": True} for kind in sorted(EXCHANGE_KINDS)
    ]


def _protocol(listener: str) -> str:
    """The protocol of a listener in RabbitMQ's words: `stream`, `stream/ssl`, `https`."""
    if listener not in ENCRYPTED or listener == "https":
        return listener
    return f"{protocol_of(listener)}/ssl"


def _named(rows: Iterable[Row], name: str) -> Row:
    for row in rows:
        if row["name"] == name:
            return row
    raise ResourceNotFoundError("nothing of that name", subject=name)


class PageQuery(msgspec.Struct, frozen=True):
    """A page of a list; without `page` the whole list. Other parameters are ignored, as clients send many."""

    page: Annotated[int, msgspec.Meta(ge=1, description="The page, from 1 on.")] | None = None
    page_size: Annotated[int, msgspec.Meta(ge=1, le=_MOST_PAGE_ROWS, description="Rows of a page.")] = _PAGE_ROWS
    name: Annotated[str, msgspec.Meta(description="Only rows whose name has this text; with `page`.")] = ""
    use_regex: Annotated[str, msgspec.Meta(description="`true`: `name` is a regular expression.")] = ""


def _page(rows: Iterable[Row], query: PageQuery) -> object:
    """A whole list, or the page of it that the query asks for, filtered by the query's `name`."""
    found = list(rows)
    if query.page is None:
        return found
    page, size, wanted = query.page, query.page_size, query.name
    if query.use_regex == "true":
        check_pattern(wanted)
        kept = [row for row in found if matches(f"(?i:{wanted})", row.get("name", ""))]
    else:
        kept = [row for row in found if wanted.lower() in row.get("name", "").lower()]
    pages = max(1, -(-len(kept) // size))
    if page > pages:
        raise PreconditionFailedError(f"page {page}; there are {pages}")
    items = kept[(page - 1) * size : page * size]
    return {
        "total_count": len(found),
        "filtered_count": len(kept),
        "item_count": len(items),
        "items": items,
        "page": page,
        "page_count": pages,
        "page_size": size,
    }


def _check_virtual_host(call: Call) -> None:
    """Raise ResourceNotFoundError for another virtual host than the only one."""
    named = call.names.get("vhost", _VHOST)
    if named != _VHOST:
        raise ResourceNotFoundError("there is one virtual host, /", subject=named)


def _well(**more: object) -> Answer:
    return Answer({"status": "ok", **more})


def _failed(reason: str, **more: object) -> Answer:
    return Answer({"status": "failed", "reason": reason, **more}, 503)
