"""Correlation filters: equalities that a message has to fulfil, given by name → a bound tree.

Source: servicebus_filters, section 4. The tree is one `Compare(EQUAL, Field, Constant)` by the rules CORRELATION for
each condition, in the order given, under one And where there are several: the shape that rule sets look up by hash.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from headgate.errors import ConfigError, FilterSyntaxError, FilterTypeError
from headgate.language import tree as t
from headgate.language.servicebus.dialect import constant_value
from headgate.language.servicebus.printer import constant_text, property_text
from headgate.language.servicebus.system_properties import CORRELATION_FIELDS, system_property
from headgate.language.values import Value
from headgate.message import FieldReference, Section, amqp_value


def correlation_filter(conditions: Mapping[str, object]) -> tuple[str, t.Node]:
    """The filter as SQL text, for showing, and its bound tree; the spans of the tree are places in the text.

    `conditions` are texts by the names of `CORRELATION_FIELDS`, and under `properties` a mapping of application
    properties, plain Python values or `AmqpValue`. None is no condition. Raises ConfigError for wrong names and
    values, FilterError for a filter that cannot match or has no condition.
    """
    text = ""
    equalities: list[t.Node] = []
    for name, field, value in _conditions(conditions):
        if text:
            text += " AND "
        start = len(text)
        constant = constant_text(value)
        text += f"{name} = {constant}"
        left: t.Span = (start, start + len(name))
        right: t.Span = (len(text) - len(constant), len(text))
        field_node = t.Field(field, t.ValueRules.SERVICE_BUS, left)
        equality = t.Compare(
            t.CompareOperator.EQUAL, field_node, t.Constant(value, right), t.ValueRules.CORRELATION, (start, len(text))
        )
        equalities.append(equality)
    if not equalities:
        raise FilterSyntaxError(
            "found no condition, a correlation filter has at least one", dialect=CORRELATION, text=""
        )
    return text, equalities[0] if len(equalities) == 1 else t.And(tuple(equalities), (0, len(text)))


CORRELATION = "correlation"
"""The language's name in errors of a correlation filter."""


def _conditions(conditions: Mapping[str, object]) -> Iterable[tuple[str, FieldReference, Value]]:
    for name, given in conditions.items():
        if name != "properties" and name not in CORRELATION_FIELDS:
            known = ", ".join([*CORRELATION_FIELDS, "properties"])
            raise ConfigError(f"a correlation filter has no condition {name!r}; it has {known}")
        if given is None:
            continue
        if name == "properties":
            yield from _property_conditions(given)
            continue
        found = system_property(CORRELATION_FIELDS[name])
        assert found is not None and found.reference is not None
        value = constant_value(given)
        if not isinstance(value, bytes):
            raise ConfigError(f"{name} of a correlation filter takes a string, found {given!r}")
        yield f"sys.{CORRELATION_FIELDS[name]}", found.reference, value


def _property_conditions(given: object) -> Iterable[tuple[str, FieldReference, Value]]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"properties of a correlation filter are a mapping, found a {type(given).__name__}")
    for key, plain in given.items():
        if not isinstance(key, str):
            raise ConfigError(f"the name of a property is a string, found {key!r}")
        name = property_text(key)
        reference = FieldReference(Section.APPLICATION_PROPERTIES, key=amqp_value(key).octets(), ignore_case=True)
        value = constant_value(plain)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            text = f"{name} = {constant_text(value)}"
            reason = "null and NaN equal nothing, this condition is never fulfilled"
            raise FilterTypeError(reason, dialect=CORRELATION, text=text, span=(0, len(text)))
        yield name, reference, value
