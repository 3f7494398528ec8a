"""Which columns of its source the SQL of a step names for certain, known without Spark.

Only one form of statement is understood: a single `SELECT … FROM source`, without join, subquery or lambda. In it a
name is taken for a column only where nothing else can stand: between a token that precedes an expression and one that
follows it. A name that the statement also uses in any other place (as an alias, a function, a keyword) is skipped. All
the rest is left to Spark, since refusing a statement that Spark accepts is worse than refusing late.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<space>\s+|--(?:\\\n|[^\n])*)
    |(?P<text>[rR]'[^']*'|[rR]"[^"]*"|[xX]?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))
    |(?P<name>(?!\d)\w+|`(?:[^`]|``)+`)
    |(?P<number>\d[\w.]*|\.\d\w*)
    |(?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)
_BEYOND = re.compile(
    r"/\*|[${?@]|->|=>|\|>|\.\s*\*"
    r"|\b(?:array|map|struct)\s*<|\bas\s*\("
    r"|\b(?:inline|inline_outer|stack|transform|json_tuple|\w*explode\w*)\s*\(",
    re.IGNORECASE,
)
"""Syntax that may make names that no source has, or contain some: hints, lambdas, `x.*`, types with parameters,
generators."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OPERATORS = frozenset("=<>!+-*/%|&^~")
_BEHIND_TABLE = _words("WHERE GROUP HAVING ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET ;") | {""}
_BEFORE = _OPERATORS | _words("( , SELECT DISTINCT WHERE AND OR NOT BY HAVING CASE WHEN THEN ELSE")
_BEHIND = (
    _OPERATORS
    | _BEHIND_TABLE
    | _words(") , [ : AS FROM AND OR NOT IS IN LIKE ILIKE RLIKE BETWEEN THEN ELSE END WHEN ASC DESC NULLS")
)
_NO_COLUMNS = _words(
    "all null true false default interval rows range grouping__id user session_user current_user current_path "
    "current_catalog current_database current_schema current_date current_time current_timestamp "
    "localtime localtimestamp "
    "year quarter month week day dayofyear hour minute second millisecond microsecond "
    "years quarters months weeks days hours minutes seconds milliseconds microseconds"
)
"""Names that stand alone and are none of a source: literals, functions without parentheses, units of time."""


@dataclass(slots=True)
class _Token:
    """`text` is in capitals where it is a plain name; `parts` are the parts of a name with dots, as written."""

    text: str
    parts: list[str]
    depth: int

    @property
    def is_name(self) -> bool:
        return bool(self.parts)


def columns_of_statement(sql: str) -> tuple[str, list[str]] | None:
    """The source that a statement reads, and the columns of it that it names, each once, as they stand in the text.

    A column is `region` or `properties.subject`. None for a statement that is not of the one form.
    """
    tokens = list(_tokens(sql))
    at = next((at for at, token in enumerate(tokens) if token.text == "FROM" and token.depth == 0), None)
    is_of_the_form = tokens[0].text == "SELECT" and [token.text for token in tokens].count("SELECT") == 1
    if at is None or not is_of_the_form or _BEYOND.search(_without_texts(sql)):
        return None
    table = tokens[at + 1]
    behind = at + 2 + (tokens[at + 2].text == "AS" if table.is_name else 0)
    alias = tokens[behind] if tokens[behind].is_name and tokens[behind].text not in _BEHIND_TABLE else None
    if len(table.parts) != 1 or tokens[behind + (alias is not None)].text not in _BEHIND_TABLE:
        return None
    columns: dict[str, None] = {}
    others = {table.parts[0].lower(), *_NO_COLUMNS}
    for before, token, after in zip([_END, *tokens], tokens, tokens[1:], strict=False):
        if not token.is_name:
            continue
        is_between = before.text in _BEFORE and after.text in _BEHIND and not (after.text == "FROM" and after.depth)
        if is_between and token.text not in _BEFORE | _BEHIND and "`" not in token.text:
            columns[".".join(token.parts)] = None
        else:
            others.add(token.parts[0].lower())
    return table.parts[0], [column for column in columns if column.split(".")[0].lower() not in others]


_END = _Token("", [], 0)


def _tokens(sql: str) -> Iterator[_Token]:
    """The tokens of a statement, names with dots as one, and two that end it."""
    depth = 0
    name: _Token | None = None
    dotted = False
    for found in _TOKEN.finditer(sql):
        text = found[0]
        if found.lastgroup == "space":
            continue
        if found.lastgroup == "name" and name is not None and dotted:
            name.parts.append(text)
            name.text += f".{text}"
            dotted = False
            continue
        if text == "." and name is not None and not dotted:
            dotted = True
            continue
        if name is not None:
            yield name
            name = None
        depth += (text == "(") - (text == ")")
        if found.lastgroup == "name":
            name, dotted = _Token(text.upper(), [text], depth), False
        else:
            yield _Token(text, [], depth)
    if name is not None:
        yield name
    yield from (_END, _END)


def _without_texts(sql: str) -> str:
    return "".join("''" if found.lastgroup == "text" else found[0] for found in _TOKEN.finditer(sql))
