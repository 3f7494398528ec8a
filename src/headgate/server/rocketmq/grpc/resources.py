"""Topics and groups that a call names, as the broker has them."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.broker import MessageKind, MessageTopic
from headgate.broker.consumer_groups import GroupSettings
from headgate.errors import ResourceNotFoundError
from headgate.protocols.rocketmq import Status, check_group, check_topic, refused
from headgate.protocols.rocketmq.grpc import messages as pb
from headgate.server.context import ServerContext
from headgate.server.rocketmq.grpc.clients import GrpcClient

TYPES: Mapping[MessageKind, pb.MessageType] = {
    MessageKind.NORMAL: pb.MessageType.NORMAL,
    MessageKind.FIFO: pb.MessageType.FIFO,
    MessageKind.DELAY: pb.MessageType.DELAY,
}


class Resources:
    """Finds the topic and the consumer group of a call."""

    def __init__(self, context: ServerContext) -> None:
        self._groups = context.broker.consumer_groups

    def topic(self, client: GrpcClient, name: str, *, for_producer: bool) -> MessageTopic:
        """A topic; a missing one is made if the settings allow it. Raises RemoteProtocolError and broker errors."""
        check_topic(name)
        try:
            return client.session.ensure_message_topic(name, for_producer=for_producer)
        except ResourceNotFoundError as error:
            raise refused(Status.TOPIC_NOT_FOUND, f"no route of topic {name}: there is no such topic") from error

    def group(self, name: str) -> GroupSettings:
        """The settings of a consumer group; a missing one is declared if the settings allow it. Errors as `topic`."""
        check_group(name)
        try:
            return self._groups.ensure(name)
        except ResourceNotFoundError as error:
            raise refused(Status.CONSUMER_GROUP_NOT_FOUND, f"there is no consumer group {name}") from error


def accepted_types(topic: MessageTopic) -> tuple[pb.MessageType, ...]:
    """The message types that a topic accepts."""
    return tuple(told for kind, told in TYPES.items() if kind in topic.accepts)
