"""Unbound tree → bound tree: names become fields, patterns are compiled, constant arithmetic is done once.

A wrong name or pattern is refused here, once, with its place in the text; a bound tree evaluates over any message
without raising.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping

from headgate.errors import FilterError, FilterSyntaxError, FilterTypeError
from headgate.language import tree as t
from headgate.language.dialect import Dialect, NameRefused, path_hint
from headgate.language.functions import called, concatenated
from headgate.language.like import LikeRefused
from headgate.language.values import EvaluationFailed, Value
from headgate.message import FieldReference, Section, without_case

_LOOKS_AT: dict[type, tuple[str, ...]] = {
    t.Compare: ("left", "right"),
    t.CompareSpecial: ("operand",),
    t.In: ("subject",),
    t.LikeText: ("subject",),
    t.IsNull: ("operand",),
    t.Exists: ("operand",),
}
"""The conditions that may hold for any element of an array, and their operands that may be it."""


def parameter_key(name: str) -> str:
    """The key of a parameter's name: the name without case."""
    return without_case(name.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


def bind(tree: t.Node, dialect: Dialect, text: str, parameters: Mapping[str, t.Constant] | None = None) -> t.Node:
    """The bound tree; `tree` was parsed from `text`, `parameters` are constants by `parameter_key`.

    Raises FilterTypeError and FilterSyntaxError.
    """
    return Binder(dialect, text, parameters or {}).bind(tree)


@dataclasses.dataclass(slots=True)
class Binder:
    """Binds the trees of one text, one after the other; `parameters` are constants by `parameter_key`."""

    dialect: Dialect
    text: str
    parameters: Mapping[str, t.Constant] = dataclasses.field(default_factory=dict)
    new_ids: int = 0
    """How many NewId nodes were bound: the number of the next one."""

    def bind(self, node: t.Node) -> t.Node:
        """The bound tree of an unbound one."""
        bind = self.bind
        if type(node) in _LOOKS_AT and any(isinstance(operand, t.BodyPath) for operand in t.children(node)):
            found = self._any_element(node)
            if found is not None:
                return found
        match node:
            case t.Name():
                return self._field(node) if self.dialect.resolve is None else self._resolved(node)
            case t.BodyPath():
                return self._body_field(node)
            case t.Parameter():
                return self._parameter(node)
            case t.PropertyOf():
                return self._property_of(node)
            case t.NewId(span=span):
                self.new_ids += 1
                return t.NewId(self.new_ids - 1, span)
            case t.LikeValue():
                return self._like_value(node)
            case t.LikeText():
                return self._like(node)
            case t.Special(number, span):
                reason = f"{number.value} stands only on one side of a comparison whose other side is a name"
                raise self._error(reason, span, FilterSyntaxError)
            case t.IsNull(operand, negated, span):
                bound = bind(operand)
                if isinstance(operand, t.Name) and isinstance(bound, t.Constant):
                    return t.Constant((bound.value is None) is not negated, span)
                return t.IsNull(bound, negated, span)
            case t.Call():
                return self._call(node)
            case _:
                return self._folded(t.with_operands(node, bind))

    def _field(self, name: t.Name) -> t.Field:
        reference = self._reference(name)
        if name.path:
            # A default and a type of the field do not apply to its elements.
            reference = dataclasses.replace(reference, default=None, only=None, path=name.path)
        return t.Field(reference, self.dialect.rules, name.span)

    def _body_field(self, path: t.BodyPath) -> t.Field:
        steps = tuple(step for step in path.steps if step is not None)
        if len(steps) < len(path.steps):
            reason = "a path with [*] is looked at directly by a comparison, IN, LIKE, IS NULL or EXISTS"
            raise self._error(reason, path.span)
        return t.Field(FieldReference(Section.DATA, path=steps), self.dialect.rules, path.span)

    def _any_element(self, node: t.Node) -> t.Node | None:
        """The AnyElement of a condition that looks at a path with `[*]`; None if it looks at none."""
        paths = {name: getattr(node, name) for name in _LOOKS_AT[type(node)]}
        any_paths = {name: path for name, path in paths.items() if isinstance(path, t.BodyPath) and None in path.steps}
        if not any_paths:
            return None
        (name, path), *others = any_paths.items()
        if others:
            raise self._error("a condition looks at one path with [*]", others[0][1].span)
        parts: list[list[bytes | int]] = [[]]
        for step in path.steps:
            if step is None:
                parts.append([])
            else:
                parts[-1].append(step)
        rules, span = self.dialect.rules, path.span
        arrays: list[t.Field | t.Element] = [t.Field(FieldReference(Section.DATA, path=tuple(parts[0])), rules, span)]
        arrays += [t.Element(tuple(part), rules, span) for part in parts[1:-1]]
        looked_at = {name: t.Element(tuple(parts[-1]), rules, span)}
        condition = self.bind(dataclasses.replace(node, **looked_at))  # type: ignore[arg-type]
        for array in reversed(arrays):
            condition = t.AnyElement(array, condition, node.span)
        return condition

    def _call(self, node: t.Call) -> t.Node:
        """The call, or its value where all arguments are constants: then it must have one."""
        arguments = tuple(map(self.bind, node.arguments))
        values = [argument.value for argument in arguments if isinstance(argument, t.Constant)]
        if len(values) < len(arguments):
            return t.Call(node.function, arguments, node.span)
        value = called(node.function, values)
        if value is None:
            raise self._error(f"{node.function.value} has no value for these constants", node.span)
        return t.Constant(value, node.span)

    def _reference(self, name: t.Name) -> FieldReference:
        if name.section is None and name.name in self.dialect.names:
            return self.dialect.names[name.name]
        section = self.dialect.sections.get(name.section)
        if section is None:
            prefixes = [*self.dialect.sections, *(["body"] if self.dialect.steps else [])]
            known = ", ".join(f"{prefix}." for prefix in prefixes if prefix is not None)
            entry = f"; an entry of a map is {name.section}['{name.name}']"
            hint = entry if self.dialect.references else path_hint(name.section)
            raise self._error(f"found section {name.section!r}, expected one of {known} or no section{hint}", name.span)
        fields = self.dialect.fields.get(section)
        if fields is None:
            return FieldReference(section, key=name.name.encode())
        reference = fields.get(name.name)
        if reference is None:
            near = difflib.get_close_matches(name.name, fields, n=1, cutoff=0.7)
            hint = f"; did you mean {name.section}.{near[0]}?" if near else ""
            raise self._error(
                f"section {name.section!r} has no field {name.name!r}, expected one of {', '.join(fields)}{hint}",
                name.span,
            )
        return reference

    def _like(self, node: t.LikeText) -> t.Like:
        try:
            pattern = self.dialect.compile_like(node.pattern, node.escape)
        except LikeRefused as refused:
            span = node.escape_span if refused.in_escape else self._inside(node, refused.where)
            raise self._error(str(refused), span, FilterSyntaxError) from None
        return t.Like(self.bind(node.subject), pattern, node.negated, self.dialect.rules, node.span)

    def _inside(self, node: t.LikeText, where: t.Span) -> t.Span:
        """The place in the text of a part of the pattern; quotes doubled in the text shift it."""
        start, stop = node.pattern_span
        quote = self.text[start : start + 1]
        before, part = node.pattern[: where[0]], node.pattern[where[0] : where[1]]
        first = start + 1 + len(before) + before.count(quote)
        return first, min(stop, first + len(part) + part.count(quote))

    def _resolved(self, name: t.Name) -> t.Node:
        assert self.dialect.resolve is not None
        try:
            return self.dialect.resolve(name)
        except NameRefused as refused:
            raise self._error(str(refused), name.span) from None

    def _parameter(self, node: t.Parameter) -> t.Constant:
        given = self.parameters.get(parameter_key(node.name))
        if given is None:
            raise self._error(f"no value is given for the parameter @{node.name}", node.span)
        return dataclasses.replace(given, span=node.span)

    def _property_of(self, node: t.PropertyOf) -> t.Node:
        """A constant name becomes a field, or NULL; a constant that is no string stays, an error of each evaluation."""
        name = self.bind(node.name)
        if isinstance(name, t.Constant) and isinstance(name.value, bytes):
            reference = FieldReference(Section.APPLICATION_PROPERTIES, key=name.value, ignore_case=True)
            return t.Field(reference, node.rules, node.span)
        if isinstance(name, t.Constant) and name.value is None:
            return t.Constant(None, node.span)
        return t.PropertyOf(name, node.rules, node.span)

    def _like_value(self, node: t.LikeValue) -> t.Node:
        """LIKE with a compiled pattern, where pattern and escape are constant strings."""
        subject, pattern = self.bind(node.subject), self.bind(node.pattern)
        escape = None if node.escape is None else self.bind(node.escape)
        texts = [part.value if isinstance(part, t.Constant) else None for part in (pattern, escape) if part is not None]
        if not all(isinstance(text, bytes) for text in texts):
            return t.LikeValue(subject, pattern, escape, node.negated, node.rules, node.span)
        decoded = [text.decode("utf-8", "surrogateescape") for text in texts if isinstance(text, bytes)]
        try:
            compiled = self.dialect.compile_like(decoded[0], decoded[1] if escape is not None else None)
        except LikeRefused as refused:
            part = escape if refused.in_escape and escape is not None else pattern
            raise self._error(str(refused), part.span, FilterSyntaxError) from None
        return t.Like(subject, compiled, node.negated, node.rules, node.span)

    def _folded(self, node: t.Node) -> t.Node:
        """A constant where all operands are and the result is known: an overflow is left to evaluate to unknown."""
        operands = t.children(node)
        values = [operand.value for operand in operands if isinstance(operand, t.Constant)]
        if not values or len(values) < len(operands):
            return node
        try:
            match node:
                case t.Compare():
                    value: Value = self.dialect.compare(node.operator, *values)
                case t.Arithmetic():
                    value = self.dialect.arithmetic(node.operator, *values)
                case t.Sign():
                    value = self.dialect.signed(node.negative, *values)
                case t.Concatenate():
                    value = concatenated(*values)
                case _:
                    return node
        except EvaluationFailed:
            return node
        return node if value is None else t.Constant(value, node.span)

    def _error(self, reason: str, span: t.Span, kind: type[FilterError] = FilterTypeError) -> FilterError:
        return kind(reason, dialect=self.dialect.name, text=self.text, span=span)
