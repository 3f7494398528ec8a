"""A client of stream servers, Headgate or RabbitMQ: blocking calls over sockets, no threads.

Hides connections, credit, confirms, and what has to be done when a connection breaks.

    with Client.connect("localhost:5552") as client:
        client.create_stream("orders")
        with client.publisher("orders", filter_value=region_of) as publisher:
            publisher.send(Message(b"…", application_properties={"region": "EMEA"}))
        for offset, message in client.consumer("orders", start="first", filter_values=["EMEA"], filter="price > 5"):
            ...

`Subscription` reads whole batches of encoded messages, which is what the command line and Spark do.
"""

from headgate.client.address import ServerAddress, Tls
from headgate.client.client import Client, StreamStatistics
from headgate.client.consumer import Consumer
from headgate.client.publisher import Publisher
from headgate.client.retry import Retry
from headgate.client.subscription import ServedFilter, Subscription, SubscriptionOptions

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
