"""A client of stream servers, Headgate or RabbitMQ: blocking calls over sockets, no threads.

Hides connections, credit, confirms, and the recovery when a connection breaks.

    with Client.connect("localhost:5552") as client:
        client.create_stream("orders")
        with client.publisher("orders", filter_value=region_of) as publisher:
            publisher.send(Message(b"…", application_properties={"region": "EMEA"}))
        for offset, message in client.consumer("orders", start="first", filter_values=["EMEA"], filter="price > 5"):
            ...

`Subscription` reads whole batches of encoded messages, as the command line and Spark do; `delivered_chunks`, `extent`
and `header_at` look at a stream's chunks, and `Management` asks a server over HTTP. Its `topics` make and change
subscriptions and rules, and a `SubscriptionReceiver` takes the copies of a subscription and settles them; its
`rocketmq` makes and changes topics and consumer groups of RocketMQ's clients. `DeadLetters` of either are looked at and
published again. A `PipelineReport` tells the server's console of a job of Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.client.address import DEFAULT_USER, ServerAddress, Tls
    from headgate.client.client import Client
    from headgate.client.connection import StreamStatistics
    from headgate.client.consumer import Consumer
    from headgate.client.inspection import DeliveredChunk, delivered_chunks, extent, header_at, verify_delivered
    from headgate.client.management import Management
    from headgate.client.pipelines import PipelinePart, PipelineReport, PipelineState, RuleProgress
    from headgate.client.publisher import Publisher
    from headgate.client.retry import Retry
    from headgate.client.rocketmq import RocketTopics
    from headgate.client.subscription import ServedFilter, Subscription, SubscriptionOptions
    from headgate.client.topics import (
        Ask,
        CopyPage,
        DeadLetters,
        Jobs,
        ReadCopy,
        ReceivedCopy,
        SubscriptionReceiver,
        Topics,
    )
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
