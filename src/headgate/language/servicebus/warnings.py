"""Warnings about a Service Bus filter: traps, and filters for which a correlation filter is cheaper.

Source: servicebus_filters, sections 2.1, 3.2 and 4.
"""

from __future__ import annotations

from collections.abc import Iterator

from headgate.language import tree as t
from headgate.language.servicebus.printer import constant_text, property_text
from headgate.language.servicebus.system_properties import CORRELATION_FIELDS, system_property
from headgate.language.servicebus.values import ValueKind, kind_of, number_of
from headgate.language.warnings import FilterWarning
from headgate.message import Section


def warnings(text: str, tree: t.Node) -> Iterator[FilterWarning]:
    """A text in double quotes, which is a property; NULL as an operand; equalities that need no SQL."""
    for node in t.walk(tree):
        if isinstance(node, t.Compare | t.In):
            yield from _operand_warnings(text, node)
    conditions = correlation_conditions(tree)
    if conditions is not None:
        yield FilterWarning(
            tree.span,
            f"these are only equalities: the correlation filter {', '.join(conditions)} is much cheaper",
        )


def _operand_warnings(text: str, node: t.Compare | t.In) -> Iterator[FilterWarning]:
    first, *others = t.children(node)
    for operand in (first, *others):
        if isinstance(operand, t.Constant) and operand.value is None:
            hint = "; IS NULL asks for it" if isinstance(first, t.Field) else ""
            yield FilterWarning(operand.span, f"what is compared with NULL is unknown{hint}")
        quoted = text[slice(*operand.span)]
        if isinstance(operand, t.Field) and operand is not first and quoted.startswith('"'):
            string = "'" + quoted[1:-1].replace('""', '"').replace("'", "''") + "'"
            yield FilterWarning(operand.span, f"{quoted} is the name of a property; the text is {string}")


def correlation_conditions(tree: t.Node) -> tuple[str, ...] | None:
    """The conditions of a correlation filter, true for the same messages as a bound SQL filter; None if there is none.

    The SQL filter must be an AND of `=` between a property that correlation filters have and a constant, with each
    property at most once: a correlation filter has one condition for it.
    """
    found = tuple(map(_condition, t.conjuncts(tree)))
    conditions = tuple(condition for condition in found if condition is not None)
    if len(conditions) < len(found) or len({name.casefold() for name, _ in conditions}) < len(conditions):
        return None
    return tuple(f"{name} = {value}" for name, value in conditions)


_EXACT_LIMIT = 2**53
"""From here on a comparison as doubles differs from one by value."""

_SYSTEM_FIELDS = {
    found.reference: name
    for name, spelled in CORRELATION_FIELDS.items()
    if name != "subject" and (found := system_property(spelled)) is not None
}


def _condition(node: t.Node) -> tuple[str, str] | None:
    """The name of a condition, and its value."""
    if not (
        isinstance(node, t.Compare)
        and node.operator is t.CompareOperator.EQUAL
        and node.rules is t.ValueRules.SERVICE_BUS
    ):
        return None
    field, constant = (node.left, node.right) if isinstance(node.left, t.Field) else (node.right, node.left)
    if not isinstance(field, t.Field) or not isinstance(constant, t.Constant) or constant.value is None:
        return None
    if kind_of(constant.value) is ValueKind.NUMBER and not -_EXACT_LIMIT < number_of(constant.value) < _EXACT_LIMIT:
        return None
    if field.reference.section is Section.APPLICATION_PROPERTIES:
        name = (field.reference.key or b"").decode(errors="replace")
        return f"properties.{property_text(name)}", constant_text(constant.value)
    system_field = _SYSTEM_FIELDS.get(field.reference)
    if system_field is None or kind_of(constant.value) is not ValueKind.STRING:
        return None
    return system_field, constant_text(constant.value)
