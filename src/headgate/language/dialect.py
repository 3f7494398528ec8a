"""A filter language as data: its tokens, its operators by level, its limits, its names.

The lexer (`lexer.py`) and the parser (`parser.py`) are driven by a `Dialect` and know no language. The grammar of every
supported language is stratified into levels: an operand of an operator is an expression of at least a given level, and
that one rule says where NOT may stand, whether comparisons chain, and what IS NULL applies to.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from headgate.language.tree import ArithmeticOperator, CompareOperator, LikePattern, Name, Node, Rules
from headgate.language.values import Value, arithmetic, signed
from headgate.message import AmqpValue, FieldReference, Section

if TYPE_CHECKING:
    from headgate.language.lexer import Token
    from headgate.language.parser import Parser
    from headgate.language.warnings import FilterWarning


class TokenKind(enum.Enum):
    """Kinds of tokens; the value is the name in error messages."""

    SKIPPED = "white space"
    WORD = "word"
    KEYWORD = "keyword"
    OPERATOR = "operator"
    INTEGER = "integer"
    FLOAT = "number"
    STRING = "string"
    BINARY = "binary constant"
    NAME = "name"
    REFERENCE = "reference"
    PATH = "path into the body"
    PARAMETER = "parameter"
    END = "end of the filter"


TokenValue: TypeAlias = "bool | int | float | bytes | str | AmqpValue | tuple[str | None, str] | None"
"""The value of a token: a constant, the text of a string, (section, name) of a name, or a step of a path.

A step is a name, the number of an element, or None for `[*]`.
"""


class TokenRefused(Exception):  # noqa: N818 - not an error of the user's tree: the lexer turns it into a FilterError
    """A rule's `read` does not take the text it matched; the message is the reason."""


class NameRefused(Exception):  # noqa: N818 - not an error of the user's tree: the binder turns it into a FilterError
    """A dialect's `resolve` does not know the name; the message is the reason."""


def path_hint(section: str | None) -> str:
    """What to add to the refusal of a section that was meant as a path into the body, by a language without paths."""
    return "; paths into the body are in the language amqp" if section == "body" else ""


class Unspellable(ValueError):  # noqa: N818 - for those who convert filters: they turn it into a FilterError
    """A tree that a language has no text for; the message names the part."""


@dataclass(frozen=True, slots=True)
class TokenRule:
    """One line of the lexical grammar: the longest match of all rules counts, on equal length the earlier rule.

    A WORD becomes a keyword, is refused when reserved, or else is a name; the other kinds are taken as they are.
    """

    kind: TokenKind
    pattern: re.Pattern[str]
    read: Callable[[str], TokenValue]
    ends_with: str = ""
    """Characters, one of which ends every match; where none follows, the rule is not tried: no text is read twice."""


class Level(enum.IntEnum):
    """Levels of expressions, loosest first."""

    OR = 1
    AND = 2
    NOT = 3
    EQUALITY = 4
    COMPARISON = 5
    SUM = 6
    PRODUCT = 7
    TEST = 8
    SIGN = 9
    PRIMARY = 10
    NAME = 11


PrefixForm: TypeAlias = "Callable[[Parser, Token], Node]"
"""Parses what follows a token that begins an expression; the token is consumed already."""

InfixForm: TypeAlias = "Callable[[Parser, Node, Token, bool], Node]"
"""Parses what follows an operator behind its left operand; the flag says that NOT stood before the operator."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """A keyword or operator that begins an expression of `level`."""

    level: Level
    form: PrefixForm


@dataclass(frozen=True, slots=True)
class Infix:
    """An operator whose left operand has at least level `left`, and which makes an expression of `level`.

    `negatable`: NOT may stand before it (`NOT LIKE`).
    """

    level: Level
    left: Level
    form: InfixForm
    negatable: bool = False


@dataclass(frozen=True, slots=True)
class Dialect:
    """One filter language."""

    name: str
    tokens: tuple[TokenRule, ...]
    keywords: frozenset[str]
    prefix: Mapping[str, Prefix]
    infix: Mapping[str, Infix]
    sections: Mapping[str | None, Section]
    """Prefix before the dot → section; None is where a name without prefix is looked up."""
    fields: Mapping[Section, Mapping[str, FieldReference]]
    """Sections with fixed fields; in other sections any name is a key."""
    compile_like: Callable[[str, str | None], LikePattern]
    """Pattern and escape (None without ESCAPE) → compiled pattern; raises `LikeRefused`."""
    rules: Rules
    reserved: frozenset[str] = frozenset()
    """Words, in lower case, that are not names in any letter case."""
    fold_keywords: Callable[[str], str] = str
    """Brings a word to the letter case of `keywords`, in languages that ignore it there."""
    references: tuple[TokenRule, ...] = ()
    """Lexical rules that count directly after a name or a reference, before all others; `[0]` and `['key']` there."""
    steps: tuple[TokenRule, ...] = ()
    """Lexical rules that count directly behind the beginning or a step of a path into the body, before all others."""
    unclosed: Mapping[str, str] = field(default_factory=dict)
    """First character of a token with an end mark → the error text if no rule matches there."""
    max_code_points: int | None = None
    max_tokens: int | None = None
    max_depth: int = 200
    """Nested operands and parentheses, and the height of the tree; beyond it a filter is refused."""
    max_parentheses: int = 200
    """Parentheses that open directly one after the other, which the parser takes without recursion."""
    ignores_trailing_input: bool = False
    names: Mapping[str, FieldReference] = field(default_factory=dict)
    """Names without a prefix that stand for a field of their own instead of a key of section None."""
    complete: Callable[[Parser, Node], Node] = lambda _parser, tree: tree
    """Makes the filter of the outermost expression, or refuses it."""
    signed: Callable[[bool, Value], Value] = signed
    """Unary minus (true) or plus of a constant, done when the filter is bound.

    Here and below: None or `EvaluationFailed` leaves it to the evaluators.
    """
    arithmetic: Callable[[ArithmeticOperator, Value, Value], Value] = arithmetic
    """Arithmetic of two constants, done when the filter is bound."""
    compare: Callable[[CompareOperator, Value, Value], bool | None] = lambda _operator, _left, _right: None
    """A comparison of two constants, done when the filter is bound."""
    functions: Mapping[str, PrefixForm] = field(default_factory=dict)
    """Names that are functions directly before a parenthesis, and names elsewhere; in the case of `fold_keywords`."""
    resolve: Callable[[Name], Node] | None = None
    """The node for a name, where `sections`, `fields` and `names` are not enough; raises `NameRefused`."""
    warnings: Callable[[str, Node], Iterable[FilterWarning]] = lambda _text, _tree: ()
    """Warnings about an accepted text and its bound tree."""
    print_tree: Callable[[Node], str] | None = None
    """Tree → text, or `Unspellable`; None where `headgate.language.printer` prints the language."""
    takes_parameters: bool = False
    """Whether values may be given beside the text."""
    title: str = ""
    """What people call it, for menus; empty where that is its name."""
    example: str = ""
    """A filter of the language that shows what is its own, for menus and pages; empty where nobody wrote one."""
    page: str | None = None
    """Where it is explained: a page of our documentation from the root of the site, or an address."""
    tightest_infix: Level = field(init=False)
    """The tightest level of `infix`. An operand that must bind tighter is followed by no operator."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tightest_infix", max(infix.level for infix in self.infix.values()))
