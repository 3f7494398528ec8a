"""The name server's part: the routes of topics, which all lead here.

For a topic that does not exist yet, producers look up another name, `TBW102`: how the topic would be made. The retry
topic of a consumer group exists from its first heartbeat on; it is no stream (docs/design/consumer-groups.md). Nor is
the topic of replies, which always exists.
"""

from __future__ import annotations

from headgate.broker import MessageTopics
from headgate.errors import ResourceNotFoundError
from headgate.protocols.rocketmq import AUTOMATIC_TOPIC
from headgate.protocols.rocketmq.remoting import bodies as b

BROKER_NAME = "headgate"
CLUSTER = "DefaultCluster"
REPLY_TOPIC = f"{CLUSTER}_REPLY_TOPIC"
REGION = "DefaultRegion"
"""Names as in an original with its default configuration."""

_INHERIT = 1
"""The permission bit of a topic that is the model for new topics."""


def route_of(topics: MessageTopics, topic: str, address: str, *, is_retry: bool) -> b.RouteData:
    """The route of a topic; `is_retry`: it is a consumer group's retry topic. Raises ResourceNotFoundError, LogError.

    `address` is the address that clients connect to.
    """
    permissions = b.READ | b.WRITE
    if topic == AUTOMATIC_TOPIC and topics.may_create(for_producer=True):
        queues, permissions = topics.queues_of_new, permissions | _INHERIT
    elif is_retry or topic == REPLY_TOPIC:
        queues = 1
    else:
        found = topics.find(topic)
        if found is None:
            raise ResourceNotFoundError("No topic route info in name server for the topic", subject=topic)
        queues = len(found.streams)
    return b.RouteData(
        [b.BrokerData(CLUSTER, BROKER_NAME, {"0": address})],
        [b.QueueData(BROKER_NAME, queues, queues, permissions)],
    )


def cluster_of(address: str) -> b.ClusterInfo:
    """The one broker there is."""
    return b.ClusterInfo({BROKER_NAME: b.BrokerData(CLUSTER, BROKER_NAME, {"0": address})}, {CLUSTER: [BROKER_NAME]})
