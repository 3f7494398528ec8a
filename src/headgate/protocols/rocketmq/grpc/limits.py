"""Limits of requests; limits of messages are in `checks`."""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.protocols.rocketmq import Limits


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
