"""A client of stream servers, Headgate or RabbitMQ: blocking calls over sockets, no threads.

Hides connections, credit, confirms, and what has to be done when a connection breaks.

    with Client.connect("localhost:5552") as client:
        client.create_stream("orders")
        with client.publisher("orders", filter_value=region_of) as publisher:
            publisher.send(Message(b"…", application_properties={"region": "EMEA"}))
        for offset, message in client.consumer("orders", start="first", filter_values=["EMEA"], filter="price > 5"):
            ...

`Subscription` reads whole batches of encoded messages, which is what the command line and Spark do. The names below are
imported when they are first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.client.address import ServerAddress, Tls
    from headgate.client.client import Client, StreamStatistics
    from headgate.client.consumer import Consumer
    from headgate.client.publisher import Publisher
    from headgate.client.retry import Retry
    from headgate.client.subscription import ServedFilter, Subscription, SubscriptionOptions

_HOMES = {
    "Client": "headgate.client.client",
    "Consumer": "headgate.client.consumer",
    "Publisher": "headgate.client.publisher",
    "Retry": "headgate.client.retry",
    "ServedFilter": "headgate.client.subscription",
    "ServerAddress": "headgate.client.address",
    "StreamStatistics": "headgate.client.client",
    "Subscription": "headgate.client.subscription",
    "SubscriptionOptions": "headgate.client.subscription",
    "Tls": "headgate.client.address",
}

__all__ = [
    "Client",
    "Consumer",
    "Publisher",
    "Retry",
    "ServedFilter",
    "ServerAddress",
    "StreamStatistics",
    "Subscription",
    "SubscriptionOptions",
    "Tls",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headgate.client' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
