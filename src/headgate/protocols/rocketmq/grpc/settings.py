"""The limits of requests, and the settings that a client sends over its stream: checked, and sent back completed.

Source: rocketmq_wire, A3; `GrpcClientSettingsManager` of RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headgate.protocols.rocketmq import Limits, Status, check_group, check_topic, refused
from headgate.protocols.rocketmq.grpc import messages as pb
from headgate.protocols.rocketmq.grpc.fields import duration, full_name

_CONSUMERS = (pb.ClientType.PUSH_CONSUMER, pb.ClientType.SIMPLE_CONSUMER)
_PRODUCER_ATTEMPTS = 3
_FIRST_BACKOFF_MS, _LAST_BACKOFF_MS, _BACKOFF_FACTOR = 10, 1_000, 2.0


@dataclass(frozen=True, slots=True)
class GrpcLimits:
    """Limits of requests, with the defaults of RocketMQ's settings; `messages` are the limits of messages."""

    messages: Limits = field(default_factory=Limits)
    batch: int = 32
    """Messages of one receive."""
    polling_ms: int = 20_000
    """How long a receive may wait for messages."""
    renewed_ms: int = 60_000
    """The invisible time of messages that the server renews."""
    entries: int = 1_024
    """Entries of one acknowledgement, and messages of one send."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of a client: its group (producers have none), and type and text of the filter for each topic."""

    kind: pb.ClientType
    group: str | None
    filters: Mapping[str, tuple[int, str]]

    @property
    def is_producer(self) -> bool:
        """Whether the client sends messages; other clients receive them."""
        return self.kind == pb.ClientType.PRODUCER

    @staticmethod
    def of(given: pb.Settings) -> ClientSettings:
        """The settings, checked. Raises RemoteProtocolError for wrong names, and for types of clients not served."""
        kind = given.client_type
        if kind == pb.ClientType.PRODUCER and given.WhichOneof("pub_sub") != "subscription":
            for topic in given.publishing.topics:
                check_topic(full_name(topic))
            return ClientSettings(pb.ClientType.PRODUCER, None, {})
        if kind not in _CONSUMERS or given.WhichOneof("pub_sub") != "subscription":
            raise refused(Status.UNRECOGNIZED_CLIENT_TYPE, f"clients of type {_type_name(kind)} are not served")
        group = full_name(given.subscription.group)
        check_group(group)
        return ClientSettings(pb.ClientType(kind), group, dict(_filters(given.subscription)))


def settings_answer(
    given: pb.Settings, *, fifo: bool, max_attempts: int, backoff_ms: Sequence[int], limits: GrpcLimits
) -> pb.Settings:
    """The settings of a client, completed; `fifo`, `max_attempts` and `backoff_ms` come from a consumer's group."""
    answer = pb.Settings()
    answer.CopyFrom(given)
    if given.client_type == pb.ClientType.PRODUCER:
        backoff = pb.ExponentialBackoff(
            initial=duration(_FIRST_BACKOFF_MS), max=duration(_LAST_BACKOFF_MS), multiplier=_BACKOFF_FACTOR
        )
        answer.backoff_policy.CopyFrom(pb.RetryPolicy(max_attempts=_PRODUCER_ATTEMPTS, exponential_backoff=backoff))
        answer.publishing.max_body_size = limits.messages.body_bytes
        answer.publishing.validate_message_type = True
        return answer
    waits = pb.CustomizedBackoff(next=map(duration, backoff_ms))
    answer.backoff_policy.CopyFrom(pb.RetryPolicy(max_attempts=max_attempts, customized_backoff=waits))
    answer.subscription.fifo = fifo
    answer.subscription.receive_batch_size = limits.batch
    answer.subscription.long_polling_timeout.CopyFrom(duration(limits.polling_ms))
    answer.metric.on = False
    return answer


def _filters(subscription: pb.Subscription) -> Iterator[tuple[str, tuple[int, str]]]:
    for entry in subscription.subscriptions:
        topic = full_name(entry.topic)
        check_topic(topic)
        yield topic, (entry.expression.type, entry.expression.expression)


def _type_name(kind: int) -> str:
    return next((each.name for each in pb.ClientType if each == kind), str(kind))
