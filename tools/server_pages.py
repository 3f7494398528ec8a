"""Writes docs/reference/configuration.md, http.md and metrics.md: what the code says of keys, requests and metrics.

python tools/server_pages.py            write the pages
python tools/server_pages.py --check    exit status 1 if one is not what would be written
"""

from __future__ import annotations

import inspect
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
from key_tables import default, meanings, plain_keys, tables, write_pages

from headgate.server.http import Endpoint, Group
from headgate.server.listening_sockets import ENCRYPTED, PLAIN
from headgate.server.metrics import (
    CONNECTION,
    CONSUMER,
    GROUP,
    GROUP_READ,
    LISTENER,
    READ,
    RULE,
    SERVER,
    STREAM,
    SUBSCRIPTION,
    TOPIC,
    Family,
)
from headgate.server.settings import ServerSettings
from headgate.testing import served

PAGES = Path(__file__).parent.parent / "docs" / "reference"
TEMPLATES = PAGES

_CONFIGURATION = """# Configuration of the server

`headgate serve --config FILE` reads TOML. Every key has a default, so a file holds only what differs; an
unknown key, or a value of the wrong kind, is refused by name.
A variable `HEADGATE_SERVER__TABLE__KEY` overrides the file: `HEADGATE_SERVER__LISTENERS__AMQP=5673`,
`HEADGATE_SERVER__ROOT=/var/lib/headgate`. Arrays of tables can only be given in the file.
`--root` and `HEADGATE_ROOT` override both.

```toml
root = "/var/lib/headgate"

[listeners]
host = "127.0.0.1"
stomp = "off"

[advertised]
host = "broker.example.com"

[[user]]
name = "orders-app"
password = "…"
permissions = { configure = "^orders", write = "^orders", read = ".*" }

[[stream]]
name = "orders"
arguments = { max-age = "7D", stream-filter-size-bytes = 32 }

[[super_stream]]
name = "events"
partitions = 3
```

When the server starts, it hashes passwords in the file or in variables and writes them to the users file. Anybody who
can read the file or the variables can log in; `headgate user` keeps passwords out of both.
"""

_METRICS = """# Metrics

`GET /metrics` on the HTTP listener gives metrics of the server, of each stream and of each topic in Prometheus' text
format. `GET /metrics/per-object` adds each subscription, each rule, each queue of a consumer group that is in use, each
consumer and each connection. Neither needs a
login.

Metrics that mean the same as in RabbitMQ have its names; `rabbitmq_stream_read_bytes_total` and
`rabbitmq_stream_written_bytes_total` have the names of its Stream PerfTest, but the server counts them, for all clients
of the stream protocol.
Metrics of messages and lags count messages, also those with RabbitMQ's names, where RabbitMQ counts offsets. Chunks of
stored offsets take offsets and hold no message, so a consumer that has examined every message has lag 0.
Counters of streams include consumers that have left, since the server started. Without `_total` the
names are those of `headgate tail --counters`, of the [console](http.md#the-console) and of Spark's progress.

Each number has one meaning, in metrics, `/api`, the command line and the console:

| number | what it counts |
| --- | --- |
| consumers of a stream | consumers of it, receivers of its subscriptions, one for each consumer group that reads it |
| `delivered_messages` | messages given to consumers, those in chunks included; subscriptions and groups count theirs |
| `lag` of a consumer | messages of the stream that it was neither given nor has passed over |
| `lag` of a receiver | copies of its subscription that nobody has: `active` and `waiting` |
| `lag` of a group | messages that it has not settled, those that members have among them |
| `lag` of a stored offset | messages behind it, which a consumer that stores seldom may have been given already |
"""


def configuration_page() -> str:
    """The page of all keys."""
    parts = [_CONFIGURATION]
    for title, table in tables(ServerSettings):
        parts.append(f"## {title}\n")
        parts.append(f"{inspect.getdoc(table)}\n")
        parts.append("| key | value | default | |\n| --- | --- | --- | --- |")
        parts.append("\n".join(_rows(table)) + "\n")
    return "\n".join(parts)


def _rows(table: type[msgspec.Struct]) -> Iterator[str]:
    texts = meanings(table)
    for field, kind in plain_keys(table):
        yield f"| `{field.name}` | {kind} | {default(field)} | {texts.get(field.name, '')} |"


def metrics_page() -> str:
    """The page of all metrics."""
    consumer_read = [(family.name.replace("headgate_", "headgate_consumer_", 1), family) for family in READ]
    return "\n".join(
        (
            _METRICS,
            *_section("The server", _named(SERVER)),
            *_section("Per listener (label `listener`, its key in the configuration)", _named(LISTENER)),
            *_section("Per stream, written (labels `stream`, or `queue` and `vhost`)", _named(STREAM)),
            *_section("Per stream, read (label `stream`)", _named(READ)),
            *_section("Per topic (label `topic`)", _named(TOPIC)),
            *_section("Per subscription (labels `topic`, `subscription`)", _named(SUBSCRIPTION)),
            *_section("Per rule (labels `topic`, `subscription`, `rule`)", _named(RULE)),
            *_section(
                "Per queue of a consumer group (labels `topic`, `queue`, `group`)", _named((*GROUP, *GROUP_READ))
            ),
            *_section(
                "Per consumer (labels `stream`, `consumer`, `tag`, `connection`)", [*_named(CONSUMER), *consumer_read]
            ),
            *_section("Per connection (label `connection`)", _named(CONNECTION)),
        )
    )


def _named(families: Iterable[Family[Any]]) -> list[tuple[str, Family[Any]]]:
    return [(family.name, family) for family in families]


def _section(title: str, families: Iterable[tuple[str, Family[Any]]]) -> Iterator[str]:
    yield f"## {title}\n\n| name | kind | |\n| --- | --- | --- |"
    yield from (f"| `{name}` | {family.kind} | {family.meaning} |" for name, family in families)
    yield ""


def http_page() -> str:
    """The page of requests over HTTP: its template, filled with the endpoints that a server declares.

    `{{requests: TITLE}}` stands for one group, `{{requests}}` for all others but those of RabbitMQ's monitors.
    """
    text = (TEMPLATES / "http.template.md").read_text(encoding="utf-8")
    left = []
    for group in _groups():
        place = f"{{{{requests: {group.title}}}}}"
        if place in text:
            text = text.replace(place, _requests(group))
        elif not group.is_foreign:
            left.append(f"### {group.title}\n\n{group.meaning}\n\n{_requests(group)}")
    text = text.replace("{{requests}}", "\n\n".join(left))
    return f"<!-- Written by tools/server_pages.py from http.template.md and the endpoints; `make docs`. -->\n{text}"


def _groups() -> tuple[Group, ...]:
    """The endpoints that a server has."""
    with tempfile.TemporaryDirectory() as folder:
        listeners = dict.fromkeys((*PLAIN, *ENCRYPTED), "off") | {"host": "127.0.0.1", "http": 0}
        with served(msgspec.convert({"root": folder, "listeners": listeners}, ServerSettings)) as running:
            return running.server.api_groups


def _requests(group: Group) -> str:
    rows = [
        (
            f"`{endpoint.method} /api/{endpoint.path}`",
            endpoint.permission,
            " ".join(_said(endpoint)),
        )
        for endpoint in group.endpoints
    ]
    head = [("request", "permission", "what it does"), ("---", "---", "---")]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in (*head, *rows))


def _said(endpoint: Endpoint) -> Iterator[str]:
    yield endpoint.summary
    if endpoint.example is not None:
        yield f"Body: `{json.dumps(endpoint.example, ensure_ascii=False)}`."
    parameters = [
        f"`{field.encode_name}` ({_description(field.type)})" for field in msgspec.structs.fields(endpoint.query)
    ]
    if parameters:
        yield f"Query: {', '.join(parameters)}."
    if description := _description(endpoint.answer):
        yield f"Answer: {description}."
    if endpoint.statuses != (200,):
        yield f"Status {', '.join(map(str, endpoint.statuses))}."


def _description(kind: Any) -> str:
    """What a value means, as its type says."""
    for part in getattr(kind, "__metadata__", ()):
        if isinstance(part, msgspec.Meta) and part.description:
            text = part.description.removesuffix(".")
            return text[:1].lower() + text[1:]
    return next((found for each in get_args(kind) if (found := _description(each))), "")


WRITERS: dict[str, Callable[[], str]] = {
    "configuration.md": configuration_page,
    "http.md": http_page,
    "metrics.md": metrics_page,
}


def main() -> int:
    """Write the pages, or check them."""
    return write_pages(PAGES, WRITERS, only_check="--check" in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
