"""Carrying out the moves of a topic's ledger: dead letters, deferred copies, copies for another topic.

A move is an intent in the ledger. It names its target by kind and name: `dead-letters/3` and `deferred/3` are the small
streams of the subscription with that number, `stream/orders` is a stream of the root.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from headgate.message import AmqpType, AmqpValue, amqp_value
from headgate.topic import DESCRIPTION_PROPERTY, REASON_PROPERTY, with_properties


class TargetKind(StrEnum):
    """What a move goes to."""

    DEAD_LETTERS = "dead-letters"
    DEFERRED = "deferred"
    STREAM = "stream"

    def named(self, name: object) -> str:
        """The target of that name, as the ledger keeps it."""
        return f"{self.value}/{name}"

    @staticmethod
    def parse(target: str) -> tuple[TargetKind, str]:
        """Kind and name. Raises ValueError for a target that nobody writes."""
        kind, _, name = target.partition("/")
        return TargetKind(kind), name


class Movement(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a copy is changed on its way to another stream: what a move of the ledger keeps, as JSON.

    `subscription` is the number of the one that forwards it.
    """

    reason: str | None = None
    description: str | None = None
    properties: dict[str, object] = {}
    subscription: int = 0

    def encode(self) -> bytes:
        """Its bytes, which `decode` reads."""
        return msgspec.json.encode(self)

    @staticmethod
    def decode(data: bytes) -> Movement:
        """A movement from its bytes."""
        return msgspec.json.decode(data, type=Movement)

    def marked(self, message: bytes) -> bytes:
        """An encoded message with reason, description and properties among its application properties."""
        marks: dict[str, AmqpValue] = {name: amqp_value(value) for name, value in self.properties.items()}
        for name, text in ((REASON_PROPERTY, self.reason), (DESCRIPTION_PROPERTY, self.description)):
            if text is not None:
                marks[name] = AmqpValue(AmqpType.STRING, text)
        return with_properties(message, marks) if marks else message
