"""What each language sees in a message and what its operators do with it: one module per language.

The reference evaluator walks the tree and asks the module that a node's `ValueRules` name. A module has the
functions of `Semantics`; values are Python's where they say everything (bool, int, float, bytes), `AmqpValue` where the
type counts, and None for unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from headgate.evaluate.semantics import correlation, rabbitmq, rocketmq, rocketmq_map, servicebus
from headgate.language.tree import ArithmeticOperator, CompareOperator, LikePattern, ValueRules
from headgate.language.values import Value
from headgate.message import Message
from headgate.message.fields import FieldReference


class Semantics(Protocol):
    """The operators of one language; all but `field` take values of that language.

    Each may raise `EvaluationFailed`, which ends the evaluation of the filter.
    """

    def field(self, message: Message, reference: FieldReference, /) -> Value:
        """What the language sees in a field."""

    def compare(self, operator: CompareOperator, left: Value, right: Value, /) -> bool | None:
        """A comparison."""

    def among(self, subject: Value, members: Iterator[Value], /) -> bool | None:
        """Whether IN, not negated, holds; members are evaluated as far as they are asked for."""

    def like(self, pattern: LikePattern, subject: Value, /) -> bool | None:
        """Whether LIKE, not negated, holds."""

    def arithmetic(self, operator: ArithmeticOperator, left: Value, right: Value, /) -> Value:
        """A binary operation."""

    def signed(self, negative: bool, value: Value, /) -> Value:
        """Unary plus or minus."""


SEMANTICS: Mapping[ValueRules, Semantics] = {
    ValueRules.RABBITMQ: rabbitmq,
    ValueRules.ROCKETMQ: rocketmq,
    ValueRules.ROCKETMQ_MAP: rocketmq_map,
    ValueRules.SERVICE_BUS: servicebus,
    ValueRules.CORRELATION: correlation,
}
"""The semantics that nodes refer to."""
