"""Correlation filters: the values of Service Bus, and an equality that is true or false.

Source: servicebus_filters, section 4. There is no other operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from headgate.evaluate.semantics.servicebus import field
from headgate.language import Value
from headgate.language.servicebus import equals
from headgate.language.tree import ArithmeticOperator, CompareOperator, LikePattern

__all__ = ["among", "arithmetic", "compare", "field", "like", "signed"]


def compare(operator: CompareOperator, left: Value, right: Value) -> bool:
    """Whether both have a value, and one that is equal."""
    if operator is not CompareOperator.EQUAL:
        raise TypeError(f"no {operator.value} in a correlation filter")
    return equals(left, right)


def among(_subject: Value, _members: Iterator[Value]) -> NoReturn:
    """Not in a correlation filter."""
    raise TypeError("no IN in a correlation filter")


def like(_pattern: LikePattern, _subject: Value) -> NoReturn:
    """Not in a correlation filter."""
    raise TypeError("no LIKE in a correlation filter")


def arithmetic(_operator: ArithmeticOperator, _left: Value, _right: Value) -> NoReturn:
    """Not in a correlation filter."""
    raise TypeError("no arithmetic in a correlation filter")


def signed(_negative: bool, _value: Value) -> NoReturn:
    """Not in a correlation filter."""
    raise TypeError("no sign in a correlation filter")
