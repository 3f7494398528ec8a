"""Tokens → unbound tree: one Pratt parser for all languages, driven by the operator tables of a `Dialect`.

The functions at the end are the forms in the operator tables. A form parses an operand with
`Parser.expression(level)`, and levels do the rest: see `dialect.py`.
"""

from __future__ import annotations

import dataclasses

from headgate.errors import FilterError, FilterLimitError, FilterSyntaxError, FilterTypeError, did_you_mean
from headgate.language import tree as t
from headgate.language.dialect import Dialect, Infix, InfixForm, Level, PrefixForm, TokenKind
from headgate.language.lexer import Lexer, Token
from headgate.message import MAX_PATH_STEPS, AmqpValue

MAX_BODY_PATHS, MAX_WILDCARDS = 16, 2
"""Limits: different paths into the body in a filter; steps `[*]` in a path."""

_CONSTANTS = frozenset({TokenKind.INTEGER, TokenKind.FLOAT, TokenKind.STRING, TokenKind.BINARY})


def parse(text: str, dialect: Dialect) -> t.Node:
    """The unbound tree of `text`; raises FilterSyntaxError, FilterLimitError with the span of the error."""
    parser = Parser(text, dialect)
    tree = dialect.complete(parser, parser.expression(Level.OR))
    parser.check_height(tree)
    if parser.peek.kind is not TokenKind.END and not dialect.ignores_trailing_input:
        raise parser.unexpected("an operator or the end of the filter")
    return tree


class Parser:
    """One run over one text: `peek` is the next token, `level` that of the expression parsed last."""

    def __init__(self, text: str, dialect: Dialect) -> None:
        self.dialect = dialect
        self._lexer = Lexer(text, dialect)
        self._depth = 0
        self.level = Level.PRIMARY
        self.position = 0
        self._next: Token | None = None
        self._paths: set[tuple[bytes | int | None, ...]] = set()

    @property
    def peek(self) -> Token:
        """The next token; it is read only on request, so text after the consumed tokens stays unread."""
        if self._next is None:
            self._next = self._lexer.next()
        return self._next

    def error(self, reason: str, span: t.Span, kind: type[FilterError] = FilterSyntaxError) -> FilterError:
        """An error about a part of the text."""
        return self._lexer.error(reason, span, kind)

    def unexpected(self, expected: str) -> FilterError:
        """The error for a next token that the grammar does not allow."""
        if self.peek.refused:
            return self.error(self.peek.refused, self.peek.span)
        hint = self._lexer.hint_at(self.peek.span[0])
        return self.error(f"found {self.peek}, expected {expected}{hint}", self.peek.span)

    def advance(self) -> Token:
        """Consume the next token."""
        token = self.peek
        if token.refused:
            raise self.error(token.refused, token.span)
        self.position = token.span[1]
        self._next = None
        return token

    def expect(self, symbol: str, where: str = "") -> Token:
        """Consume the keyword or operator `symbol`. Raises FilterSyntaxError for any other token."""
        if self.peek.symbol != symbol:
            raise self.unexpected(repr(symbol) + (f" {where}" if where else ""))
        return self.advance()

    def accept(self, symbol: str) -> bool:
        """Consume the keyword or operator `symbol` if it is next."""
        if self.peek.symbol != symbol:
            return False
        self.advance()
        return True

    def expect_string(self, role: str) -> tuple[str, t.Span]:
        """Consume a string constant."""
        if self.peek.kind is not TokenKind.STRING:
            raise self.unexpected(role)
        token = self.advance()
        assert isinstance(token.value, str)
        return token.value, token.span

    def expression(self, minimum: Level) -> t.Node:
        """An expression of at least level `minimum`, as far as it reaches."""
        self._depth += 1
        if self._depth > self.dialect.max_depth:
            raise self._too_deep(self.dialect.max_depth, self.peek.span)
        left = self.continued(self._operand(minimum), minimum)
        self._depth -= 1
        return left

    def continued(self, left: t.Node, minimum: Level) -> t.Node:
        """The expression of at least level `minimum` that begins with `left`, parsed already, as far as it reaches."""
        if minimum > self.dialect.tightest_infix:
            return left
        while (found := self._operator(minimum)) is not None:
            infix, token, negated = found
            left = infix.form(self, left, token, negated)
            self.level = infix.level
        return left

    def repeated(self, token: Token, limit: int) -> list[int]:
        """The starts of `token`, consumed already, and of its repetitions directly after it: a chain without recursion.

        Raises FilterLimitError.
        """
        starts = [token.span[0]]
        while self.peek.symbol == token.symbol:
            starts.append(self.advance().span[0])
            if len(starts) > limit:
                raise self._too_deep(limit, (starts[limit], starts[limit] + 1))
        return starts

    def check_height(self, node: t.Node) -> None:
        """Raise unless evaluators can walk down the tree: operators that chain to the left nest without depth here."""
        if t.height(node) > self.dialect.max_depth:
            raise self._too_deep(self.dialect.max_depth, node.span)

    def _too_deep(self, limit: int, span: t.Span) -> FilterError:
        return self.error(f"the filter is nested deeper than {limit} levels", span, FilterLimitError)

    def _operand(self, minimum: Level) -> t.Node:
        token = self.peek
        if token.kind in _CONSTANTS:
            self.advance()
            self.level = Level.PRIMARY
            value = token.value.encode() if isinstance(token.value, str) else token.value
            assert isinstance(value, bool | int | float | bytes | AmqpValue)
            return t.Constant(value, token.span)
        if token.kind is TokenKind.NAME:
            return self._name()
        if token.kind is TokenKind.PATH:
            return self._body_path()
        if token.kind is TokenKind.PARAMETER:
            self.advance()
            self.level = Level.PRIMARY
            assert isinstance(token.value, str)
            return t.Parameter(token.value, token.span)
        prefix = self.dialect.prefix.get(token.symbol)
        if prefix is None:
            raise self.unexpected("a value or a name")
        if prefix.level < minimum:
            raise self.error(
                f"found {token}, expected a value or a name; {token.text} … needs parentheses here", token.span
            )
        self.advance()
        node = prefix.form(self, token)
        self.level = prefix.level
        return node

    def _name(self) -> t.Node:
        token = self.advance()
        if self.dialect.functions and self.peek.symbol == "(":
            call = self.dialect.functions.get(self.dialect.fold_keywords(token.text), _no_function)(self, token)
            self.level = Level.PRIMARY
            return call
        assert isinstance(token.value, tuple)
        path: list[bytes | int] = []
        while self.dialect.references and self.peek.kind is TokenKind.REFERENCE:
            reference = self.advance().value
            assert isinstance(reference, bytes | int)
            path.append(reference)
        self.level = Level.NAME
        return t.Name(*token.value, (token.span[0], self.position), tuple(path))

    def _body_path(self) -> t.Node:
        start = self.peek.span[0]
        steps: list[bytes | int | None] = []
        while self.peek.kind is TokenKind.PATH:
            token = self.advance()
            assert isinstance(token.value, bytes | int | None)
            steps.append(token.value)
            if len(steps) > MAX_PATH_STEPS:
                raise self.error(f"a path has at most {MAX_PATH_STEPS} steps", token.span, FilterLimitError)
            if steps.count(None) > MAX_WILDCARDS:
                raise self.error(f"a path has at most {MAX_WILDCARDS} steps [*]", token.span, FilterLimitError)
        span = (start, self.position)
        self._paths.add(tuple(steps))
        if len(self._paths) > MAX_BODY_PATHS:
            reason = f"a filter has at most {MAX_BODY_PATHS} different paths into the body"
            raise self.error(reason, span, FilterLimitError)
        self.level = Level.NAME
        return t.BodyPath(tuple(steps), span)

    def _operator(self, minimum: Level) -> tuple[Infix, Token, bool] | None:
        """Consume the operator behind a left operand, if one is there that takes it."""
        infix = self.dialect.infix.get(self.peek.symbol)
        if infix is not None and not self._takes(infix, minimum):
            return None
        if infix is not None:
            return infix, self.advance(), False
        if self.peek.symbol != "NOT":
            return None
        negatable = {
            symbol: candidate
            for symbol, candidate in self.dialect.infix.items()
            if candidate.negatable and self._takes(candidate, minimum)
        }
        if not negatable:
            return None
        self.advance()
        infix = negatable.get(self.peek.symbol)
        if infix is None:
            raise self.unexpected(f"{' or '.join(negatable)} after NOT")
        return infix, self.advance(), True

    def _takes(self, infix: Infix, minimum: Level) -> bool:
        return infix.level >= minimum and self.level >= infix.left


def group(parser: Parser, token: Token) -> t.Node:
    """`( expression )`; the expression's span includes the parentheses."""
    *outer, innermost = parser.repeated(token, parser.dialect.max_parentheses)
    inner = _closed(parser, parser.expression(Level.OR), innermost)
    for start in reversed(outer):
        parser.level = Level.PRIMARY
        inner = _closed(parser, parser.continued(inner, Level.OR), start)
    return inner


def _closed(parser: Parser, inner: t.Node, start: int) -> t.Node:
    parser.expect(")", "or an operator")
    return dataclasses.replace(inner, span=(start, parser.position))


def named_field(parser: Parser, role: str) -> t.Node:
    """A bare name, with its references; `role` is the expected part in the error."""
    if parser.peek.kind not in (TokenKind.NAME, TokenKind.PATH):
        raise parser.unexpected(role)
    return parser.expression(Level.NAME)


def arguments(parser: Parser, token: Token, member: Level) -> tuple[t.Node, ...]:
    """`( [argument {, argument}] )` behind the name of a function, with arguments of at least level `member`."""
    parser.expect("(", f"after {token.text}")
    found = []
    if parser.peek.symbol != ")":
        found.append(parser.expression(member))
        while parser.accept(","):
            found.append(parser.expression(member))
    parser.expect(")", "or ',' after an argument")
    return tuple(found)


def _no_function(parser: Parser, token: Token) -> t.Node:
    """A name before a parenthesis that no function has."""
    arguments(parser, token, Level.OR)
    hint = did_you_mean(token.text, parser.dialect.functions)
    raise parser.error(f"there is no function {token.text}{hint}", token.span, FilterTypeError)


def constant(value: bool | None) -> PrefixForm:
    """A keyword that is a constant."""
    return lambda _parser, token: t.Constant(value, token.span)


def now(parser: Parser, token: Token) -> t.Node:
    """`UTC ( )`."""
    parser.expect("(", f"after {token.text}")
    parser.expect(")")
    return t.Now((token.span[0], parser.position))


def negation(operand: Level) -> PrefixForm:
    """NOT, once or more, before an operand of level `operand`."""

    def form(parser: Parser, token: Token) -> t.Node:
        starts = parser.repeated(token, parser.dialect.max_depth)
        inner = parser.expression(operand)
        for start in reversed(starts):
            inner = t.Not(inner, (start, parser.position))
        return inner

    return form


def sign(operand: Level) -> PrefixForm:
    """`+` or `-` before an operand of level `operand`."""

    def form(parser: Parser, token: Token) -> t.Node:
        inner = parser.expression(operand)
        return t.Sign(token.symbol == "-", inner, parser.dialect.rules, (token.span[0], parser.position))

    return form


def _span(left: t.Node, parser: Parser) -> t.Span:
    return left.span[0], parser.position


def junction(kind: type[t.And] | type[t.Or], level: Level) -> Infix:
    """AND or OR at `level`; a chain without parentheses becomes one node."""

    def form(parser: Parser, left: t.Node, _token: Token, _negated: bool) -> t.Node:
        chained = isinstance(left, kind) and parser.level is level
        operands = left.operands if chained else (left,)  # type: ignore[union-attr]
        right = parser.expression(Level(level + 1))
        return kind((*operands, right), _span(left, parser))

    return Infix(level, level, form)


def comparison(operator: t.CompareOperator, operand: Level) -> InfixForm:
    """A comparison whose right operand has level `operand`."""

    def form(parser: Parser, left: t.Node, _token: Token, _negated: bool) -> t.Node:
        right = parser.expression(operand)
        return t.Compare(operator, left, right, parser.dialect.rules, _span(left, parser))

    return form


def arithmetic(operator: t.ArithmeticOperator, level: Level) -> Infix:
    """A left-associative arithmetic operator at `level`."""

    def form(parser: Parser, left: t.Node, _token: Token, _negated: bool) -> t.Node:
        right = parser.expression(Level(level + 1))
        return t.Arithmetic(operator, left, right, parser.dialect.rules, _span(left, parser))

    return Infix(level, level, form)


def like(parser: Parser, left: t.Node, _token: Token, negated: bool) -> t.Node:
    """`LIKE string [ESCAPE string]`."""
    pattern, pattern_span = parser.expect_string("the pattern of LIKE, a string constant")
    escape, escape_span = None, pattern_span
    if parser.accept("ESCAPE"):
        escape, escape_span = parser.expect_string("the escape character, a string constant")
    return t.LikeText(left, pattern, escape, negated, pattern_span, escape_span, _span(left, parser))


def in_list(member: Level) -> InfixForm:
    """`IN ( member {, member} )` with members of at least level `member`."""

    def form(parser: Parser, left: t.Node, _token: Token, negated: bool) -> t.Node:
        parser.expect("(", "after IN")
        members = [parser.expression(member)]
        while parser.accept(","):
            members.append(parser.expression(member))
        parser.expect(")", "or ',' after a member of IN")
        return t.In(left, tuple(members), negated, parser.dialect.rules, _span(left, parser))

    return form


def is_null(parser: Parser, left: t.Node, _token: Token, _negated: bool) -> t.Node:
    """`IS [NOT] NULL`."""
    negated = parser.accept("NOT")
    parser.expect("NULL", "after IS")
    return t.IsNull(left, negated, _span(left, parser))
