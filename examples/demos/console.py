"""The console with something to see: a server with data, light traffic, a failing rule, and dead letters.

    make demo-console

A server is started over an empty folder and filled: a stream of customer events with filter values, a topic of orders
with subscriptions (the rule of one fails, because some prices are strings), a queue, and a consumer group. Then
publishers and consumers go on until Ctrl-C, or for `--seconds`. The address, the user and the password are printed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from serving import server

from headgate.client import Client, Management, Publisher
from headgate.message import Message

USER, PASSWORD = "guest", "guest"
HISTORY = 40_000
"""Events that are there before anybody looks."""
BATCH = 200
TICK_S = 0.5
EVENT_TYPES = ("user.login", "product.view", "cart.add", "cart.remove", "order.created", "review.submitted")
REGIONS = ("AMER", "EMEA", "APJ", "LATAM")


def main() -> None:
    """Serve until the end."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--seconds", type=float, default=None, help="end after this time (default: on Ctrl-C)")
    arguments.add_argument("--events", type=int, default=HISTORY, help="events that are written at the start")
    given = arguments.parse_args()
    ended = threading.Event()
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, lambda *_: ended.set())
    with tempfile.TemporaryDirectory() as folder, server("--root", str(Path(folder) / "data")) as ports:
        address = f"127.0.0.1:{ports['stream']}"
        management = Management(f"http://127.0.0.1:{ports['http']}", USER, PASSWORD)
        declare(address, management)
        with Client.connect(address) as client:
            write_history(client, given.events)
        print(f"\nconsole: http://127.0.0.1:{ports['http']}/   user {USER}, password {PASSWORD}\n", flush=True)
        with traffic(address, management, ended):
            ended.wait(given.seconds)


def declare(address: str, management: Management) -> None:
    """Streams, a topic with subscriptions, a queue, and a consumer group."""
    with Client.connect(address) as client:
        limits = {"stream-max-segment-size-bytes": 1_000_000, "max-length-bytes": 200_000_000, "max-age": "7D"}
        client.create_stream("customer-events", limits | {"stream-filter-size-bytes": 64})
        client.create_stream("telemetry", {"max-length-bytes": 50_000_000})
    topics = management.topics
    topics.create_topic("orders")
    topics.create_subscription("orders", "emea", {"rules": [{"name": "Europe", "sql": "region = 'EMEA'"}]})
    large = {"name": "Large", "sql": "price > 100", "action": "SET priority = 'high'"}
    topics.create_subscription("orders", "large", {"rules": [large], "dead_letter_on_errors": True})
    premium = {"name": "Premium", "sql": "premium = TRUE AND region IN ('EMEA', 'AMER')"}
    billing = {"rules": [premium], "settings": {"lock_ms": 30_000, "max_delivery_count": 3}}
    topics.create_subscription("orders", "billing", billing)
    topics.declare_entity("jobs", {"settings": {"kind": "queue"}})
    management.rocketmq.create_topic("shipments", queues=4)
    management.rocketmq.create_group("packing", {"max_attempts": 5})


def event(number: int, kind: str, chosen: random.Random) -> Message:
    """A customer event; its subject is its filter value as well."""
    customer = chosen.randrange(5000)
    body = {
        "customer": f"c-{customer}",
        "items": [{"sku": f"s-{chosen.randrange(900)}", "quantity": 1}],
        "note": "grüße",
    }
    return Message(
        json.dumps(body, ensure_ascii=False).encode(),
        priority=chosen.randrange(10),
        message_id=f"e-{number}",
        subject=kind,
        content_type="application/json",
        creation_time=time.time_ns() // 1_000_000,
        application_properties={
            "region": chosen.choice(REGIONS),
            "customer_id": customer,
            "price": round(chosen.uniform(1, 300), 2),
            "premium_customer": chosen.random() < 0.2,
        },
    )


def order(number: int, chosen: random.Random) -> Message:
    """An order; one in twelve has its price as a string, which the rule `Large` cannot compare."""
    price = round(chosen.uniform(5, 250), 2)
    return Message(
        json.dumps({"order": number, "total": price}).encode(),
        message_id=f"o-{number}",
        subject="order",
        content_type="application/json",
        application_properties={
            "region": chosen.choice(REGIONS),
            "price": str(price) if number % 12 == 7 else price,
            "premium": chosen.random() < 0.3,
        },
    )


def subject(message: Message) -> bytes:
    """The filter value of an event."""
    return str((message.properties or {})["subject"].value).encode()


def write_history(client: Client, events: int) -> None:
    """Events in blocks of one type, so that chunks hold few filter values, as with a publisher per type."""
    chosen = random.Random(1)
    with client.publisher("customer-events", filter_value=subject) as publisher:
        for first in range(0, events, BATCH):
            kind = EVENT_TYPES[first // BATCH % len(EVENT_TYPES)]
            numbers = range(first, min(first + BATCH, events))
            _send(publisher, [event(number, kind, chosen) for number in numbers])
    with client.publisher("telemetry") as publisher:
        publisher.send_many([Message(chosen.randbytes(64), subject="sample") for _ in range(2000)])
    with client.publisher("orders") as publisher:
        publisher.send_many([order(number, chosen) for number in range(600)])


@contextlib.contextmanager
def traffic(address: str, management: Management, ended: threading.Event) -> Iterator[None]:
    """Publishers and consumers, each in a thread, until the end."""
    stopped = threading.Event()

    def is_over() -> bool:
        return ended.is_set() or stopped.is_set()

    works: list[Callable[[Callable[[], bool]], None]] = [
        lambda is_over: publish(address, is_over),
        lambda is_over: consume(address, "dashboard", is_over),
        lambda is_over: consume(address, "orders-only", is_over, filter_values=["order.created"]),
        lambda is_over: consume(
            address, "expensive", is_over, filter="price > 250 AND region IN ('EMEA', 'APJ')", dialect="amqp"
        ),
        lambda is_over: bill(management, is_over),
    ]
    threads = [threading.Thread(target=work, args=(is_over,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def publish(address: str, is_over: Callable[[], bool]) -> None:
    """Some hundred events a second, in waves, and a few orders."""
    chosen = random.Random(2)
    numbers = itertools.count(1_000_000)
    with (
        Client.connect(address) as client,
        client.publisher("customer-events", name="shop", filter_value=subject) as events,
        client.publisher("orders", name="checkout") as orders,
    ):
        while not is_over():
            kind = chosen.choice(EVENT_TYPES)
            count = round(110 + 90 * math.sin(time.monotonic() / 12)) + chosen.randrange(20)
            _send(events, [event(next(numbers), kind, chosen) for _ in range(count)])
            _send(orders, [order(next(numbers), chosen) for _ in range(chosen.randrange(1, 4))])
            time.sleep(TICK_S)


def _send(publisher: Publisher, messages: list[Message]) -> None:
    publisher.send_many(messages)
    publisher.flush()


def consume(
    address: str,
    name: str,
    is_over: Callable[[], bool],
    *,
    filter_values: list[str | bytes] | None = None,
    filter: str | None = None,
    dialect: str | None = None,
) -> None:
    """Read the events from the first one, with a filter or without."""
    with (
        Client.connect(address) as client,
        client.consumer(
            "customer-events", start="first", name=name, filter_values=filter_values, filter=filter, dialect=dialect
        ) as consumer,
    ):
        read = 0
        while not is_over():
            if consumer.next(TICK_S) is not None:
                read += 1
                if read % 2000 == 0:
                    consumer.store_offset()


def bill(management: Management, is_over: Callable[[], bool]) -> None:
    """Receive the copies of `billing`: most are completed, some become dead letters."""
    receiver = management.topics.receiver("orders", "billing")
    chosen = random.Random(3)
    while not is_over():
        copies = receiver.receive(20, wait_s=TICK_S)
        bad = {copy.token for copy in copies if chosen.random() < 0.1}
        receiver.complete([copy for copy in copies if copy.token not in bad])
        receiver.dead_letter(
            [copy for copy in copies if copy.token in bad], reason="CardRefused", description="the bank said no"
        )


if __name__ == "__main__":
    main()
