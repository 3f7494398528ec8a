"""Orders of a shop over RocketMQ: the same program for RocketMQ and Headgate.

    ROCKETMQ_ENDPOINT=127.0.0.1:8081 python examples/rocketmq/orders.py

It needs the topic `orders`. Two consumer groups read it: `packing` by tag, `billing` by an SQL92 expression on
properties, which are texts in RocketMQ and compare as numbers with numbers.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator

from rocketmq import (
    ClientConfiguration,
    Credentials,
    FilterExpression,
    Message,
    Producer,
    SimpleConsumer,
)
from rocketmq.grpc_protocol import FilterType

TOPIC = "orders"
PAID = FilterExpression("paid")
LARGE = FilterExpression("region = 'EMEA' AND price BETWEEN 40 AND 60 AND TAGS = 'paid'", FilterType.SQL)
ORDERS = 100
PAUSES_S = (0, 3)
"""Between sending and receiving, a round each: what calculates ahead is two seconds behind at most."""
INVISIBLE_S = 30
WAIT_S = 1


def order(number: int) -> Message:
    """An order: every second one is paid, every fifth from EMEA."""
    message = Message()
    message.topic = TOPIC
    message.body = f"order {number}".encode()
    message.tag = "paid" if number % 2 else "created"
    message.keys = f"order-{number}"
    message.add_property("region", "EMEA" if number % 5 == 0 else "AMER")
    message.add_property("price", str(number % ORDERS))
    return message


def waiting(consumer: SimpleConsumer) -> Iterator[Message]:
    """What there is for a consumer now, acknowledged one by one."""
    while found := consumer.receive(32, INVISIBLE_S):
        for message in found:
            consumer.ack(message)
            yield message


def main() -> int:
    """Send, receive with both filters, twice: the second time late, when the verdicts of the expression are there."""
    endpoint = os.environ.get("ROCKETMQ_ENDPOINT")
    if endpoint is None:
        print("ROCKETMQ_ENDPOINT: expected host:port", file=sys.stderr)
        return 2
    logging.disable()
    configuration = ClientConfiguration(endpoint, Credentials())
    producer = Producer(configuration, (TOPIC,))
    packing = SimpleConsumer(configuration, "packing", {TOPIC: PAID}, WAIT_S)
    billing = SimpleConsumer(configuration, "billing", {TOPIC: LARGE}, WAIT_S)
    clients = (producer, packing, billing)
    for client in clients:
        client.startup()
    for number, pause_s in enumerate(PAUSES_S):
        for each in range(ORDERS):
            producer.send(order(number * ORDERS + each))
        print(f"{ORDERS} orders sent to the topic {TOPIC!r}, received after {pause_s} seconds", flush=True)
        time.sleep(pause_s)
        for name, consumer, expression in (("packing", packing, PAID), ("billing", billing, LARGE)):
            bodies = sorted(message.body.decode() for message in waiting(consumer))
            print(f"  {name} ({expression.expression}): {len(bodies)} messages, {', '.join(bodies[:3])} …", flush=True)
    for client in clients:
        client.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
