"""Text → tokens, one at a time: text after an expression is read only if the language requires it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headgate.errors import FilterError, FilterLimitError, FilterSyntaxError
from headgate.language.dialect import Dialect, TokenKind, TokenRefused, TokenRule, TokenValue, path_hint
from headgate.language.tree import Span

_PATH_BEFORE = re.compile(r"\bbody(\.\w+)*$", re.ASCII)


@dataclass(slots=True)
class Token:
    """One token; `symbol` is the keyword (in the dialect's letter case) or the operator, empty for all other kinds."""

    kind: TokenKind
    text: str
    symbol: str
    value: TokenValue
    span: Span
    refused: str = ""
    """Why the text cannot be this token; an error only if the token is used."""

    def __str__(self) -> str:
        if self.kind is TokenKind.END:
            return "the end of the filter"
        shown = self.text if len(self.text) <= 40 else self.text[:37] + "…"
        return f"{self.kind.value} {shown}" if self.kind is not TokenKind.OPERATOR else f"{shown!r}"


class Lexer:
    """Reads tokens of `text` from left to right. Raises FilterSyntaxError and FilterLimitError."""

    def __init__(self, text: str, dialect: Dialect) -> None:
        self.text = text
        self.dialect = dialect
        self._position = 0
        self._tokens = 0
        self._last: dict[str, int] = {}
        self._name_stop = -1
        self._behind_name: tuple[TokenRule, ...] = ()
        limit = dialect.max_code_points
        if limit is not None and len(text) > limit:
            raise self.error(
                f"the filter has {len(text)} characters, {dialect.name} allows {limit}",
                (limit, len(text)),
                FilterLimitError,
            )
        for position, character in enumerate(text):
            if "\ud800" <= character <= "\udfff":
                raise self.error("found half of a surrogate pair, which is no character", (position, position + 1))

    def error(self, reason: str, span: Span, kind: type[FilterError] = FilterSyntaxError) -> FilterError:
        """An error about a part of this text."""
        return kind(reason, dialect=self.dialect.name, text=self.text, span=span)

    def next(self) -> Token:
        """The next token; END, again and again, after the last."""
        while True:
            if self._position == len(self.text):
                return Token(TokenKind.END, "", "", None, (self._position, self._position))
            rule, stop = self._longest_match()
            if rule.kind is not TokenKind.SKIPPED:
                break
            self._position = stop
        span = (self._position, stop)
        self._position = stop
        self._tokens += 1
        limit = self.dialect.max_tokens
        if limit is not None and self._tokens > limit:
            raise self.error(
                f"the filter has more than the {limit} tokens that {self.dialect.name} allows", span, FilterLimitError
            )
        text = self.text[span[0] : span[1]]
        if rule.kind is TokenKind.WORD:
            return self._word(text, rule, span)
        try:
            value = rule.read(text)
        except TokenRefused as refused:
            return Token(rule.kind, text, "", None, span, str(refused))
        if rule.kind in (TokenKind.NAME, TokenKind.REFERENCE, TokenKind.PATH):
            self._name_stop = stop
            self._behind_name = self.dialect.steps if rule.kind is TokenKind.PATH else self.dialect.references
        return Token(rule.kind, text, text if rule.kind is TokenKind.OPERATOR else "", value, span)

    def _longest_match(self) -> tuple[TokenRule, int]:
        best, best_stop = None, self._position
        if self._position == self._name_stop:
            best, best_stop = self._longest_of(self._behind_name)
        if best is None:
            best, best_stop = self._longest_of(self.dialect.tokens)
        if best is None:
            character = self.text[self._position]
            shown = repr(character) if character.isprintable() else f"character U+{ord(character):04X}"
            reason = self.dialect.unclosed.get(
                character, f"found {shown}, which begins no token of {self.dialect.name}"
            )
            raise self.error(reason + self.hint_at(self._position), (self._position, self._position + 1))
        return best, best_stop

    def hint_at(self, position: int) -> str:
        """What to add to the refusal of a step of a path into the body, by a language without paths."""
        before = _PATH_BEFORE.search(self.text, max(0, position - 200), position)
        step = self.text[position : position + 1]
        # A bracket right behind `body` would be no path.
        is_step = before is not None and (step == "." or (step == "[" and "." in before[0]))
        return path_hint("body") if is_step and not self.dialect.references else ""

    def _longest_of(self, rules: tuple[TokenRule, ...]) -> tuple[TokenRule | None, int]:
        best, best_stop = None, self._position
        for rule in rules:
            if rule.ends_with and self._position > self._last_of(rule.ends_with):
                continue
            match = rule.pattern.match(self.text, self._position)
            if match is not None and match.end() > best_stop:
                best, best_stop = rule, match.end()
        return best, best_stop

    def _last_of(self, characters: str) -> int:
        """The position of the last of the characters in the text, -1 without one."""
        if characters not in self._last:
            self._last[characters] = max(map(self.text.rfind, characters))
        return self._last[characters]

    def _word(self, text: str, rule: TokenRule, span: Span) -> Token:
        keyword = self.dialect.fold_keywords(text)
        if keyword in self.dialect.keywords:
            return Token(TokenKind.KEYWORD, text, keyword, None, span)
        if text.lower() in self.dialect.reserved:
            hint = f"; the keyword is {text.upper()}" if text.upper() in self.dialect.keywords else ""
            raise self.error(f"{text} is reserved and cannot be a name{hint}", span)
        self._name_stop = span[1]
        self._behind_name = self.dialect.references
        try:
            value = rule.read(text)
        except TokenRefused as refused:
            return Token(TokenKind.NAME, text, "", None, span, str(refused))
        return Token(TokenKind.NAME, text, "", value, span)
