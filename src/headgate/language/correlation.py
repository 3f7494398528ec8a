"""Correlation filters: equalities that a message has to fulfil, given by name → a bound tree.

Source: servicebus_filters, section 4. The tree is one `Compare(EQUAL, Field, Constant)` by the rules CORRELATION for
each condition, in the order given, under one And where there are several: the shape that rule sets look up by hash.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from headgate.errors import ConfigError, FilterSyntaxError, FilterTypeError
from headgate.language.servicebus import KEYWORDS, constant_value
from headgate.language.servicebus_values import Kind, kind_of, text_of
from headgate.language.system_properties import system_property
from headgate.language.tree import And, Compare, CompareOperator, Constant, Field, Node, Span, ValueRules
from headgate.language.values import EvaluationFailed, Value
from headgate.message.fields import FieldReference, Section
from headgate.message.types import amqp_value

SYSTEM_FIELDS: Mapping[str, str] = {
    "correlation_id": "CorrelationId",
    "message_id": "MessageId",
    "to": "To",
    "reply_to": "ReplyTo",
    "label": "Label",
    "subject": "Subject",
    "session_id": "SessionId",
    "reply_to_session_id": "ReplyToSessionId",
    "content_type": "ContentType",
}
"""Names of conditions on system properties → the property; `subject` is the newer name of `label`."""

_REGULAR = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def correlation_filter(conditions: Mapping[str, object]) -> tuple[str, Node]:
    """The filter as SQL text, for showing, and its bound tree; the spans of the tree are places in the text.

    `conditions` are texts by the names of `SYSTEM_FIELDS`, and under `properties` a mapping of application properties,
    plain Python values or `AmqpValue`. None is no condition. Raises ConfigError for names and values that cannot be
    meant, FilterError for a filter that cannot match or has no condition.
    """
    text = ""
    equalities: list[Node] = []
    for name, field, value in _conditions(conditions):
        if text:
            text += " AND "
        start = len(text)
        constant = constant_text(value)
        text += f"{name} = {constant}"
        left: Span = (start, start + len(name))
        right: Span = (len(text) - len(constant), len(text))
        field_node = Field(field, ValueRules.SERVICE_BUS, left)
        equality = Compare(
            CompareOperator.EQUAL, field_node, Constant(value, right), ValueRules.CORRELATION, (start, len(text))
        )
        equalities.append(equality)
    if not equalities:
        raise FilterSyntaxError("found no condition, a correlation filter has at least one", dialect=_NAME, text="")
    return text, equalities[0] if len(equalities) == 1 else And(tuple(equalities), (0, len(text)))


_NAME = "correlation"


def _conditions(conditions: Mapping[str, object]) -> Iterable[tuple[str, FieldReference, Value]]:
    for name, given in conditions.items():
        if name != "properties" and name not in SYSTEM_FIELDS:
            known = ", ".join([*SYSTEM_FIELDS, "properties"])
            raise ConfigError(f"a correlation filter has no condition {name!r}; it has {known}")
        if given is None:
            continue
        if name == "properties":
            yield from _property_conditions(given)
            continue
        found = system_property(SYSTEM_FIELDS[name])
        assert found is not None and found.reference is not None
        value = constant_value(given)
        if not isinstance(value, bytes):
            raise ConfigError(f"{name} of a correlation filter takes a string, found {given!r}")
        yield f"sys.{SYSTEM_FIELDS[name]}", found.reference, value


def _property_conditions(given: object) -> Iterable[tuple[str, FieldReference, Value]]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"properties of a correlation filter are a mapping, found a {type(given).__name__}")
    for key, plain in given.items():
        if not isinstance(key, str):
            raise ConfigError(f"the name of a property is a string, found {key!r}")
        name = property_text(key)
        reference = FieldReference(Section.APPLICATION_PROPERTIES, key=_key(key), ignore_case=True)
        value = constant_value(plain)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            text = f"{name} = {constant_text(value)}"
            reason = "null and NaN equal nothing, this condition is never fulfilled"
            raise FilterTypeError(reason, dialect=_NAME, text=text, span=(0, len(text)))
        yield name, reference, value


def _key(name: str) -> bytes:
    """The key as bytes; raises ConfigError for what no key can be."""
    return amqp_value(name).octets() or b""


def property_text(name: str) -> str:
    """The name of an application property as SQL has it: in brackets where it is no regular identifier."""
    if _REGULAR.fullmatch(name) and name.upper() not in KEYWORDS:
        return name
    return "[" + name.replace("]", "]]") + "]"


def constant_text(value: Value) -> str:
    """A value as SQL has it; one that has no constant in SQL as its kind and text."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case float() if math.isfinite(value):
            mantissa, exponent, power = repr(value).partition("e")
            return mantissa + ("" if "." in mantissa else ".0") + ("E" + power if exponent else "")
        case int() | float():
            return str(value)
        case bytes():
            return "'" + value.decode(errors="replace").replace("'", "''") + "'"
        case _:
            try:
                return f"{kind_of(value).value} {text_of(value).decode(errors='replace')}"
            except EvaluationFailed:
                return kind_of(value).value


def correlation_conditions(tree: Node) -> Sequence[str] | None:
    """The conditions of a correlation filter that matches the same messages as a bound SQL filter; None: there is none.

    That is a filter of nothing but `=` between a property of the kinds that correlation filters have and a constant,
    under AND. Where the SQL filter fails because kinds are unlike, the correlation filter is false.
    """
    conjuncts = tree.operands if isinstance(tree, And) else (tree,)
    conditions = []
    for conjunct in conjuncts:
        condition = _condition(conjunct)
        if condition is None:
            return None
        conditions.append(condition)
    return conditions


_SYSTEM_REFERENCES = {
    found.reference: name
    for name, spelled in SYSTEM_FIELDS.items()
    if name != "subject" and (found := system_property(spelled)) is not None
}


def _condition(node: Node) -> str | None:
    if not (
        isinstance(node, Compare) and node.operator is CompareOperator.EQUAL and node.rules is ValueRules.SERVICE_BUS
    ):
        return None
    field, constant = (node.left, node.right) if isinstance(node.left, Field) else (node.right, node.left)
    if not isinstance(field, Field) or not isinstance(constant, Constant) or constant.value is None:
        return None
    if field.reference.section is Section.APPLICATION_PROPERTIES:
        name = (field.reference.key or b"").decode(errors="replace")
        return f"properties.{property_text(name)} = {constant_text(constant.value)}"
    system_field = _SYSTEM_REFERENCES.get(field.reference)
    if system_field is None or kind_of(constant.value) is not Kind.STRING:
        return None
    return f"{system_field} = {constant_text(constant.value)}"
