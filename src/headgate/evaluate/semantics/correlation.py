"""Correlation filters: the values of Service Bus, and an equality that is true or false.

Source: servicebus_filters, section 4. There is no other operator.
"""

from __future__ import annotations

from headgate.evaluate.semantics.operators import lacking
from headgate.evaluate.semantics.servicebus import field
from headgate.language import Value
from headgate.language.servicebus import equals
from headgate.language.tree import CompareOperator

__all__ = ["among", "arithmetic", "compare", "field", "like", "signed"]


def compare(operator: CompareOperator, left: Value, right: Value) -> bool:
    """Whether both have a value, and one that is equal."""
    if operator is not CompareOperator.EQUAL:
        raise TypeError(f"no {operator.value} in a correlation filter")
    return equals(left, right)


among = like = arithmetic = signed = lacking
