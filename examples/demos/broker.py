"""The broker in a minute: RabbitMQ's own clients publish and consume with filters; what each stage removed is shown.

    make demo-broker

A server is started over an empty folder. rstream publishes 20 000 events over the stream protocol, each with its event
type as filter value, then reads them three ways: all of them; only chunks that may hold orders (stage 1), with the rest
dropped by the client (stage 3); and rabbitmq-amqp-python-client over AMQP 1.0 with the SQL filter of RabbitMQ's
documentation (stages 1 and 2). Then a topic gets a subscription whose rule changes its copies. pika receives them as
from a queue, settles one, and reads the one that it refused among the dead letters.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, fields

import pika
from rabbitmq_amqp_python_client import (
    AddressHelper,
    AMQPMessagingHandler,
    Environment,
    Event,
    OffsetSpecification,
    StreamConsumerOptions,
    StreamFilterOptions,
)
from rstream import (
    AMQPMessage,
    Consumer,
    ConsumerOffsetSpecification,
    FilterConfiguration,
    Header,
    MessageContext,
    OffsetType,
    Producer,
    Properties,
    amqp_decoder,
)
from serving import headgate, server

STREAM = "customer-events"
BATCHES, BATCH = 200, 100
EVENT_TYPES = ("user.login", "product.view", "cart.add", "cart.remove", "order.created", "review.submitted")
REGIONS = ("AMER", "EMEA", "APJ", "LATAM")
LAST = b"the last order"

ORDERS = """
p.subject = 'order.created' AND
p.creation_time > UTC() - 3600000 AND
region IN ('AMER', 'EMEA', 'APJ') AND
(h.priority > 4 OR price >= 99.99 OR premium_customer = TRUE)
"""


@dataclass
class Counters:
    """What the stages did, from the server's metrics."""

    chunks_examined: int = 0
    chunks_skipped: int = 0
    messages_evaluated: int = 0
    messages_matched: int = 0
    sent_bytes: int = 0

    @classmethod
    def now(cls, port: int) -> Counters:
        """Ask the server."""
        with urllib.request.urlopen(f"http://localhost:{port}/metrics") as answer:
            lines = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[:1] != "#")
        names = [field.name for field in fields(cls)][:-1]
        counted = [int(float(lines[f'headgate_{name}_total{{stream="{STREAM}"}}'])) for name in names]
        return cls(*counted, int(float(lines[f'headgate_delivered_bytes_total{{stream="{STREAM}"}}'])))

    def since(self, before: Counters) -> Counters:
        """What came since then."""
        return Counters(*(getattr(self, field.name) - getattr(before, field.name) for field in fields(self)))


def events() -> Iterator[list[AMQPMessage]]:
    """Batches of events; a batch is mostly of one type, as when the services that emit them take turns."""
    chance = random.Random(7)
    for number in range(BATCHES):
        usual = EVENT_TYPES[number % len(EVENT_TYPES)]
        batch = [event(chance, usual if chance.random() < 0.999 else chance.choice(EVENT_TYPES)) for _ in range(BATCH)]
        if number == BATCHES - 1:
            batch[-1] = AMQPMessage(
                properties=Properties(subject=b"order.created", creation_time=now_ms()),
                application_properties={"region": "EMEA", "price": 999.0},
                body=LAST,
            )
        yield batch


def now_ms() -> int:
    """Milliseconds since 1970."""
    return int(time.time() * 1000)


def event(chance: random.Random, event_type: str) -> AMQPMessage:
    """One event."""
    return AMQPMessage(
        header=Header(durable=True, priority=chance.choice((4, 4, 4, 5))),
        properties=Properties(subject=event_type.encode(), creation_time=now_ms()),
        application_properties={
            "region": chance.choice(REGIONS),
            "price": round(chance.expovariate(1 / 30), 2),
            "premium_customer": chance.random() < 0.05,
        },
        body=b"x" * 100,
    )


async def event_type_of(message: AMQPMessage) -> str:
    """The filter value of a message."""
    return str(message.properties.subject, "utf-8")


async def publish(port: int) -> None:
    """Publish everything with the event type as filter value; each batch is confirmed before the next is sent."""
    async with Producer(
        "localhost", port, username="guest", password="guest", filter_value_extractor=event_type_of
    ) as producer:
        await producer.create_stream(STREAM)
        for batch in events():
            confirmed = asyncio.Event()
            left = len(batch)

            def count(_: object, confirmed: asyncio.Event = confirmed) -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    confirmed.set()

            await producer.send_batch(STREAM, batch, on_publish_confirm=count)
            await asyncio.wait_for(confirmed.wait(), timeout=60)


async def consume_over_the_stream_protocol(port: int, filter_input: FilterConfiguration | None) -> int:
    """How many messages reach the application."""
    received = 0
    consumer = Consumer("localhost", port, username="guest", password="guest")

    def on_message(message: AMQPMessage, _: MessageContext) -> None:
        nonlocal received
        received += 1
        if bytes(message.body) == LAST:
            consumer.stop()

    await consumer.start()
    await consumer.subscribe(
        STREAM,
        on_message,
        decoder=amqp_decoder,
        offset_specification=ConsumerOffsetSpecification(OffsetType.FIRST, None),
        filter_input=filter_input,
    )
    await asyncio.wait_for(consumer.run(), timeout=60)
    await consumer.close()
    return received


class LastReceived(Exception):  # noqa: N818 — no error
    """Ends the client's loop, which stops for an exception only."""


class UntilTheLast(AMQPMessagingHandler):  # type: ignore[misc]
    """Counts messages up to the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.received = 0

    def on_amqp_message(self, event: Event) -> None:
        """Called by the client for each message."""
        self.received += 1
        self.delivery_context.accept(event)
        if bytes(event.message.body) == LAST:
            raise LastReceived


def consume_over_amqp_10(port: int) -> int:
    """How many messages reach the application."""
    environment = Environment(uri=f"amqp://guest:guest@localhost:{port}/")
    connection = environment.connection()
    connection.dial()
    handler = UntilTheLast()
    consumer = connection.consumer(
        AddressHelper.queue_address(STREAM),
        message_handler=handler,
        consumer_options=StreamConsumerOptions(
            offset_specification=OffsetSpecification.first,
            filter_options=StreamFilterOptions(values=["order.created"], sql=ORDERS),
        ),
    )
    with contextlib.suppress(LastReceived):
        consumer.run()
    environment.close()
    return handler.received


TOPIC = "shop-orders"
QUEUE = f"{TOPIC}/Subscriptions/red"
HALVED = '{"name": "Halved", "sql": "color = \'red\'", "action": "SET quantity = quantity / 2"}'


def topic_and_dead_letter(amqp: int, stream: int) -> None:
    """A subscription with an action: copies are received, settled, refused."""
    there = f"localhost:{stream}"
    headgate("topic", "create", TOPIC, "--server", there)
    headgate("subscription", "create", TOPIC, "red", "--rule", HALVED, "--server", there)
    connection = pika.BlockingConnection(pika.ConnectionParameters("localhost", amqp))
    channel = connection.channel()
    channel.confirm_delivery()
    for color, quantity in (("red", 10), ("blue", 4), ("red", 3)):
        order = pika.BasicProperties(headers={"color": color, "quantity": quantity})
        channel.basic_publish("", TOPIC, f"{quantity} {color} ones".encode(), order)
    print(f"\npika published three orders to {TOPIC}; it receives from {QUEUE}:")
    channel.basic_qos(prefetch_count=10)
    for method, properties, body in channel.consume(QUEUE, inactivity_timeout=10):
        quantity = properties.headers["quantity"]
        if quantity == 5:
            channel.basic_ack(method.delivery_tag)
            print(f"  {body.decode()!r}, quantity {quantity}: settled")
        else:
            channel.basic_nack(method.delivery_tag, requeue=False)
            print(f"  {body.decode()!r}, quantity {quantity}: refused")
            break
    channel.cancel()
    method, properties, body = None, None, None
    until = time.monotonic() + 10
    while method is None and time.monotonic() < until:
        method, properties, body = channel.basic_get(f"{QUEUE}/$DeadLetterQueue", auto_ack=True)
    print(f"  {body.decode()!r} is a dead letter, quantity {properties.headers['quantity']}")
    connection.close()
    headgate("subscription", "ls", TOPIC, "--server", there)


def show(title: str, received: int, counted: Counters) -> None:
    """One line for each stage that took something away."""
    print(f"\n{title}")
    print(
        f"  stage 1  {counted.chunks_skipped:>6,} of {counted.chunks_examined:,} chunks skipped by their Bloom filters"
    )
    if counted.messages_evaluated:
        removed = counted.messages_evaluated - counted.messages_matched
        print(f"  stage 2  {removed:>9,} of {counted.messages_evaluated:,} messages removed by the server's SQL filter")
    print(f"  sent     {counted.sent_bytes:>9,} bytes; {received:,} messages reached the application")


def main() -> None:
    """Serve, publish, consume three ways, stop."""
    with tempfile.TemporaryDirectory() as root, server("--root", root) as ports:
        asyncio.run(publish(ports["stream"]))
        print(f"{BATCHES * BATCH:,} events published by rstream")
        before = Counters.now(ports["http"])

        def told(title: str, received: int) -> None:
            nonlocal before
            after = Counters.now(ports["http"])
            show(title, received, after.since(before))
            before = after

        told("rstream, everything", asyncio.run(consume_over_the_stream_protocol(ports["stream"], None)))

        checked = 0

        def is_order(message: AMQPMessage) -> bool:
            nonlocal checked
            checked += 1
            return bytes(message.properties.subject) == b"order.created"

        orders = FilterConfiguration(values_to_filter=["order.created"], predicate=is_order)
        received = asyncio.run(consume_over_the_stream_protocol(ports["stream"], orders))
        told("rstream, filter value order.created, checked again by the client", received)
        print(f"  stage 3  {checked - received:>9,} of {checked:,} messages dropped by the client")
        told(
            "rabbitmq-amqp-python-client over AMQP 1.0, filter value order.created and the SQL filter of orders",
            consume_over_amqp_10(ports["amqp"]),
        )
        topic_and_dead_letter(ports["amqp"], ports["stream"])


if __name__ == "__main__":
    main()
