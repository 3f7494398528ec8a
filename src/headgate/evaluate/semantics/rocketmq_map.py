"""RocketMQ over a property map that was never stored: as `rocketmq`, but an empty string is a string."""

from __future__ import annotations

from headgate.evaluate.semantics.rocketmq import among, arithmetic, compare, like, property_value, signed
from headgate.language import Value
from headgate.message import FieldReference, Message

__all__ = ["among", "arithmetic", "compare", "field", "like", "signed"]


def field(message: Message, reference: FieldReference) -> Value:
    """A property as it is."""
    return property_value(message.value(reference), reference)
