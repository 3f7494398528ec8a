"""The action of a Service Bus rule: text → statements, bound and checked.

Source: servicebus_filters, sections 2.3, 5 and 6.

    statements ::= statement …      statement ::= action [;]
    action     ::= SET property = value | REMOVE property
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from headgate.errors import FilterLimitError, FilterTypeError
from headgate.language.binder import Binder
from headgate.language.dialect import Level, TokenKind
from headgate.language.parser import Parser
from headgate.language.servicebus.dialect import (
    SERVICE_BUS,
    check_kinds,
    lexical_rules,
    parameter_values,
    property_name,
)
from headgate.language.servicebus.limits import DEFAULT_LIMITS, Limits
from headgate.language.servicebus.printer import KEYWORDS
from headgate.language.servicebus.system_properties import SystemProperty, missing_system_property, system_property
from headgate.language.tree import Name, Node, Span
from headgate.message import FieldReference, Section

Target: TypeAlias = FieldReference | SystemProperty
"""The target of a statement: an application property, in any letter case, or a system property that may be set."""


@dataclass(frozen=True, slots=True)
class SetProperty:
    """`SET target = value`: `value` is a bound tree; an unknown value makes the property null."""

    target: Target
    value: Node
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class RemoveProperty:
    """`REMOVE target`; no error if it is not there."""

    target: Target
    span: Span = (0, 0)


Statement: TypeAlias = SetProperty | RemoveProperty

_KEYWORDS = KEYWORDS | {"SET", "REMOVE"}
_ACTION = replace(
    SERVICE_BUS,
    name="servicebus action",
    keywords=_KEYWORDS,
    tokens=lexical_rules(_KEYWORDS, punctuation=";"),
    unclosed={character: reason for character, reason in SERVICE_BUS.unclosed.items() if character != ";"},
)


def parse_action(
    text: str, *, parameters: Mapping[str, object] | None = None, limits: Limits = DEFAULT_LIMITS
) -> tuple[Statement, ...]:
    """The statements of an action text, in order; `parameters` are the values of `@name`.

    Raises FilterSyntaxError, FilterTypeError and FilterLimitError with the span; ConfigError for parameters.
    """
    dialect = replace(_ACTION, max_code_points=limits.action_characters)
    parser = Parser(text, dialect)
    binder = Binder(dialect, text, parameter_values(parameters or {}))
    statements: list[Statement] = []
    while parser.peek.kind is not TokenKind.END or not statements:
        statement = _statement(parser, binder)
        parser.accept(";")
        if len(statements) == limits.action_expressions:
            reason = f"the action has more than the {limits.action_expressions} expressions that are allowed"
            raise parser.error(reason, statement.span, FilterLimitError)
        statements.append(statement)
    return tuple(statements)


def _statement(parser: Parser, binder: Binder) -> Statement:
    if parser.peek.symbol not in ("SET", "REMOVE"):
        raise parser.unexpected("SET or REMOVE")
    keyword = parser.advance()
    name = property_name(parser)
    target = _target(parser, name)
    if keyword.symbol == "REMOVE":
        if parser.peek.kind is not TokenKind.END and parser.peek.symbol not in (";", "SET", "REMOVE"):
            raise parser.unexpected("';', another statement or the end of the action")
        return RemoveProperty(target, (keyword.span[0], parser.position))
    parser.expect("=", "after the property")
    value = parser.expression(Level.SUM)
    span = (keyword.span[0], parser.position)
    if parser.peek.kind is not TokenKind.END and parser.peek.symbol not in (";", "SET", "REMOVE"):
        raise parser.unexpected("an operator, ';', another statement or the end of the action")
    check_kinds(parser, value, is_condition=False)
    parser.check_height(value)
    return SetProperty(target, binder.bind(value), span)


def _target(parser: Parser, name: Name) -> Target:
    if name.section in (None, "user"):
        return FieldReference(Section.APPLICATION_PROPERTIES, key=name.name.encode(), ignore_case=True)
    if name.section != "sys":
        reason = f"found scope {name.section!r}, expected sys. or user. or none"
        raise parser.error(reason, name.span, FilterTypeError)
    found = system_property(name.name)
    if found is None:
        raise parser.error(missing_system_property(name.name), name.span, FilterTypeError)
    if not found.settable:
        raise parser.error(f"the system property {found.names[0]} is read-only", name.span, FilterTypeError)
    return found
