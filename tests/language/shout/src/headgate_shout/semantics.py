"""The operators of `shout`: texts without letter case; a comparison with anything else is an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headgate.evaluate.semantics.rabbitmq import arithmetic, field, like, signed
from headgate.evaluate.verdict import EvaluationFailed
from headgate.language.tree import CompareOperator

__all__ = ["among", "arithmetic", "compare", "field", "like", "signed"]


def compare(operator: CompareOperator, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if not (isinstance(left, bytes) and isinstance(right, bytes)):
        raise EvaluationFailed("shout knows texts only")
    return (left.lower() == right.lower()) is (operator is CompareOperator.EQUAL)


def among(subject: Any, members: Iterator[Any]) -> bool | None:
    if subject is None:
        return None
    return any(compare(CompareOperator.EQUAL, subject, member) for member in members)
