"""The name server's part: where topics are, which is here.

A topic that is not there yet is looked up by producers under another name, `TBW102`: how it would be made. The retry
topic of a consumer group is there from its first heartbeat on; it is no stream (docs/design/consumer-groups.md). Nor is
the topic of replies, which is always there.
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
"""What clients know of an original that nobody configured."""

_INHERIT = 1
"""The bit that says that topics are made after this one."""


def route_of(topics: MessageTopics, topic: str, address: str, *, is_retry: bool) -> b.RouteData:
    """Where a topic is; `is_retry`: it is the retry topic of a consumer group. Raises ResourceNotFoundError, LogError.

    `address` is what clients are told to connect to.
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
