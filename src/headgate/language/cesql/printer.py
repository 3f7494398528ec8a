"""Tree → text in CloudEvents SQL: parsing and binding the text of a bound tree gives that tree again."""

from __future__ import annotations

import re

from headgate.language import tree as t
from headgate.language.dialect import Level, Unspellable
from headgate.language.printer import Printer, level_of
from headgate.language.values import Value

KEYWORDS = frozenset({"AND", "OR", "XOR", "NOT", "LIKE", "EXISTS", "IN", "TRUE", "FALSE"})
"""Words that are not names, in any letter case."""

STRINGS = (re.compile(r"'(?:[^'\\]|\\.)*'", re.DOTALL), re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL))
"""String constants."""

_NODES = (
    *(t.And, t.Or, t.Not, t.Compare, t.In, t.Like, t.LikeText, t.Exists, t.Arithmetic, t.Sign),
    *(t.Constant, t.Name, t.Attribute, t.Apply),
)
_NAME = re.compile("[a-z0-9]+", re.IGNORECASE)


def print_tree(node: t.Node) -> str:
    """The text of a tree. Raises Unspellable for nodes, names and constants of other languages."""
    return _Printer().text(node, Level.OR)


class _Printer(Printer):
    negation = signed = Level.SIGN

    def comparison(self, _operator: t.CompareOperator) -> tuple[Level, Level, Level]:
        return Level.COMPARISON, Level.COMPARISON, Level.SUM

    def constant(self, value: Value) -> tuple[Level, str]:
        match value:
            case bool():
                return Level.PRIMARY, str(value).upper()
            case int():
                return level_of(str(value))
            case bytes():
                return Level.PRIMARY, _quoted(value)
            case _:
                raise Unspellable(f"{value!r} is no constant of CloudEvents SQL")

    def name(self, node: t.Name | t.Parameter) -> str:
        if not _NAME.fullmatch(node.name) or node.name.isdigit() or node.name.upper() in KEYWORDS:
            raise Unspellable(f"{node.name!r} is no attribute of CloudEvents SQL")
        return node.name

    def spelled(self, node: t.Node) -> tuple[Level, str]:
        if not isinstance(node, _NODES):
            raise Unspellable(f"{type(node).__name__} has no spelling in CloudEvents SQL")
        text = self.text
        match node:
            case t.Exists(operand):
                return Level.PRIMARY, f"EXISTS {text(operand, Level.NAME)}"
            case t.And(operands) | t.Or(operands):
                word = " AND " if isinstance(node, t.And) else " OR "
                # All logical operators bind alike: a junction inside stands in parentheses.
                return Level.OR, word.join(text(operand, Level.AND) for operand in operands)
            case t.In(subject, members, negated):
                listed = ", ".join(text(member, Level.OR) for member in members)
                return Level.TEST, f"{text(subject, Level.TEST)} {_not(negated)}IN ({listed})"
            case t.LikeText(subject, pattern, _, negated):
                spelled = f"{_not(negated)}LIKE {_quoted(pattern.encode())}"
                return Level.TEST, f"{text(subject, Level.TEST)} {spelled}"
            case t.Like(subject, compiled, negated):
                spelled = f"{_not(negated)}LIKE {_quoted(_pattern(compiled))}"
                return Level.TEST, f"{text(subject, Level.TEST)} {spelled}"
            case _:
                return super().spelled(node)


def _not(negated: bool) -> str:
    return "NOT " if negated else ""


def _pattern(pattern: t.LikePattern) -> bytes:
    parts = [part.value.encode() if isinstance(part, t.LikeWildcard) else _escaped(part) for part in pattern.parts]
    return b"".join(parts)


def _escaped(part: bytes) -> bytes:
    return part.replace(b"%", b"\\%").replace(b"_", b"\\_")


def unquoted(text: str) -> str:
    """The text that a string constant, quotes included, stands for."""
    quote = text[0]
    return text[1:-1].replace(f"\\{quote}", quote)


def _quoted(octets: bytes) -> str:
    """A string constant. Raises Unspellable."""
    try:
        text = octets.decode()
    except UnicodeDecodeError:
        raise Unspellable("a string here is UTF-8") from None
    escaped = text.replace("'", "\\'")
    for spelled in (f"'{text}'", f'"{text}"', f"'{escaped}'"):
        if any(string.fullmatch(spelled) for string in STRINGS) and unquoted(spelled) == text:
            return spelled
    raise Unspellable(f"{text[:40]!r} has no spelling in CloudEvents SQL: a backslash cannot stand before the quote")
