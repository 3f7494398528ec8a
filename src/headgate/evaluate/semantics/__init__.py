"""The values that each language sees in a message, and its operators: one module per language.

The reference evaluator walks the tree and calls the module of a node's rules. A module has the functions of
`Semantics`; values are Python's where these are enough (bool, int, float, bytes), `AmqpValue` where the type counts,
and None for unknown.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator, Mapping
from typing import Protocol, cast

from headgate.errors import ConfigError
from headgate.evaluate.semantics import cesql, correlation, rabbitmq, rocketmq, rocketmq_map, servicebus
from headgate.language import Value
from headgate.language import tree as t
from headgate.message import FieldReference, Message


class Semantics(Protocol):
    """The operators of one language; all but `field` take values of that language.

    Each may raise `EvaluationFailed`, which ends the evaluation of the filter.
    """

    def field(self, message: Message, reference: FieldReference, /) -> Value:
        """The value of a field, as the language sees it."""

    def compare(self, operator: t.CompareOperator, left: Value, right: Value, /) -> bool | None:
        """A comparison."""

    def among(self, subject: Value, members: Iterator[Value], /) -> bool | None:
        """Whether IN, not negated, holds; members are evaluated only as far as needed."""

    def like(self, pattern: t.LikePattern, subject: Value, /) -> bool | None:
        """Whether LIKE, not negated, holds."""

    def arithmetic(self, operator: t.ArithmeticOperator, left: Value, right: Value, /) -> Value:
        """A binary operation."""

    def signed(self, negative: bool, value: Value, /) -> Value:
        """Unary plus or minus."""


SEMANTICS: Mapping[t.ValueRules, Semantics] = {
    t.ValueRules.RABBITMQ: rabbitmq,
    t.ValueRules.ROCKETMQ: rocketmq,
    t.ValueRules.ROCKETMQ_MAP: rocketmq_map,
    t.ValueRules.SERVICE_BUS: servicebus,
    t.ValueRules.CORRELATION: correlation,
    t.ValueRules.CESQL: cesql,
}
"""The semantics of the languages that come with the package."""

_OPERATORS = ("field", "compare", "among", "like", "arithmetic", "signed")


def semantics_of(rules: t.Rules) -> Semantics:
    """The operators that a node's rules name. Raises ConfigError for a module from outside that lacks one."""
    return _loaded(rules.module) if isinstance(rules, t.OwnRules) else SEMANTICS[rules]


@functools.cache
def _loaded(name: str) -> Semantics:
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"the module {name} with the operators of a language cannot be imported: {error}") from error
    missing = [operator for operator in _OPERATORS if not callable(getattr(module, operator, None))]
    if missing:
        raise ConfigError(f"the module {name} has not all operators of a language, {missing[0]} is missing")
    return cast(Semantics, module)
