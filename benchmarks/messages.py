"""Encoded customer events for benchmarks: a million in a second, from a pool of different ones.

150 to 250 bytes, 5 to 10 application properties, a header, 3 of the 13 properties, a JSON body. The kinds of
event differ in their keys, so that a reader meets changing layouts as in a real stream.
"""

from __future__ import annotations

import datetime
import json
import random

import numpy as np

from headgate.message import AmqpType, AmqpValue, Message
from headgate.message.batch import EncodedMessages

CREATED_FROM = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
POOL = 20_000
SHARES = {
    "user.login": 18,
    "product.view": 38,
    "cart.add": 16,
    "order.created": 10,
    "order.paid": 8,
    "order.shipped": 6,
    "search.query": 4,
}
REGIONS = ("AMER", "EMEA", "APJ")


def event(number: int, chance: random.Random, *, only_strings: bool = False) -> bytes:
    """One encoded event; the same number and the same chance give the same bytes.

    With `only_strings` every application property is a string, as RocketMQ has them.
    """
    kind = chance.choices(list(SHARES), list(SHARES.values()))[0]
    order = kind.startswith("order")
    keys: dict[str, object] = {
        "customer_id": chance.randrange(1, 5_000_000),
        "region": chance.choice(REGIONS),
        "premium_customer": chance.random() < 0.2,
        "channel": chance.choice(("web", "app", "store")),
        "session": f"{chance.randrange(16**5):05x}",
    }
    if kind != "user.login":
        keys["price"] = round(chance.expovariate(1 / 60), 2)
        keys["quantity"] = AmqpValue(AmqpType.INT, chance.randrange(1, 9))
    if order:
        keys["order_id"] = f"o-{chance.randrange(10**9):09d}"
        keys["currency"] = chance.choice(("USD", "EUR", "JPY"))
    if chance.random() < 0.2:
        keys["campaign"] = chance.choice(("spring", "friday", "mail-41"))
    if only_strings:
        keys = {name: _text(value) for name, value in keys.items()}
    header = {"durable": True} | ({"priority": chance.randrange(10)} if order else {})
    properties: dict[str, object] = {
        "subject": kind,
        "creation_time": CREATED_FROM + datetime.timedelta(milliseconds=number * 7),
    }
    properties |= {"message_id": f"{number:08x}"} if order else {"content_type": "application/json"}
    body = json.dumps({"n": number}, separators=(",", ":")).encode()
    return Message(
        body,
        header=header,
        properties=properties,
        application_properties=keys,
    ).encode()


def _text(value: object) -> str:
    return str(value.value if isinstance(value, AmqpValue) else value).lower() if not isinstance(value, str) else value


def event_batch(count: int, *, seed: int = 20_26, only_strings: bool = False) -> EncodedMessages:
    """`count` events in random order out of a pool of `POOL` different ones."""
    chance = random.Random(seed)
    pool = [event(number, chance, only_strings=only_strings) for number in range(min(count, POOL))]
    chosen = np.random.default_rng(seed).integers(0, len(pool), count)
    lengths = np.array([len(message) for message in pool], dtype=np.int64)[chosen]
    joined = b"".join([pool[index] for index in chosen.tolist()]) + bytes(8)
    # A copy of numpy's own: it lies in large pages, as the buffers that chunks are read into do.
    data = np.frombuffer(joined, dtype=np.uint8).copy()
    return EncodedMessages(data, np.cumsum(lengths) - lengths, lengths)
