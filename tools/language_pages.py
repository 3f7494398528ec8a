"""Writes docs/languages/*.md: the hand-written template of each language, filled with tables of its dialect record.

python tools/language_pages.py            write the pages
python tools/language_pages.py --check    exit status 1 if a page is out of date
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headgate import Filter, Message
from headgate.language import dialect_named
from headgate.language.dialect import Dialect, Level, TokenKind
from headgate.language.registry import BUILT_IN
from headgate.language.servicebus.system_properties import SYSTEM_PROPERTIES
from headgate.language.tree import ValueRules

PAGES = Path(__file__).parent.parent / "docs" / "languages"
NOW_MS = 1_767_225_600_000

_MESSAGES: dict[str, dict[str, Any]] = {
    "A": {"subject": "order.created", "application_properties": {"region": "EMEA", "price": 120.5, "size": "5"}},
    "B": {"subject": "order.paid", "application_properties": {"Region": "emea", "price": "9.5", "urgent": True}},
    "C": {},
}
_BODIES: dict[str, dict[str, bytes]] = {
    "amqp": {
        "A": b'{"order": {"total": 120.50, "lines": [{"sku": "A-17"}, {"sku": "B-3"}]}, "flags": ["gift", "urgent"]}',
        "B": b'{"order": {"total": "9.5", "lines": []}, "flags": null}',
    }
}
"""The bodies of the same messages, in languages that look into them."""

_EVENTS: dict[str, dict[str, Any]] = {
    "A": {
        "application_properties": {
            "cloudEvents_type": "com.example.order",
            "cloudEvents_priority": 7,
            "cloudEvents_urgent": True,
        }
    },
    "B": {
        "application_properties": {
            "cloudEvents_type": "com.example.bill",
            "cloudEvents_priority": "12",
            "cloudEvents_urgent": "no",
        }
    },
    "C": {},
}
_EXAMPLES = {
    "rabbitmq": (
        "region = 'EMEA'",
        "price > 100",
        "price <> 9.5",
        "NOT region = 'AMER'",
        "region IN ('AMER', 'EMEA') AND price > 99.99",
        "p.subject LIKE 'order.%'",
        "urgent",
        "urgent IS NULL",
        "h.priority = 4",
        "price / 0 = 1 OR size = '5'",
    ),
    "amqp": (
        "LOWER(region) = 'emea'",
        "EXISTS(region)",
        "LEFT(p.subject, 5) || '!' = 'order!'",
        "price < INF",
        "m.[x-opt-tag] IS NULL",
        "h.durable",
        "p.creation_time < DATE('2026-01-01')",
        "body.order.total > 100",
        "body.order.total = 120.5 AND body.order.lines[1].sku LIKE 'B-%'",
        "body.flags[*] = 'urgent'",
        "NOT body.order.lines[*].sku = 'X-1'",
        "body.flags IS NULL AND EXISTS(body.flags)",
    ),
    "rocketmq": (
        "region = 'EMEA'",
        "size > 4",
        "price > 4",
        "region STARTSWITH 'E'",
        "region NOT CONTAINS 'X'",
        "size BETWEEN 1 AND 9",
        "urgent",
        "size = 5 this is ignored",
        "TAGS IS NULL",
    ),
    "servicebus": (
        "region = 'EMEA'",
        "REGION = 'EMEA'",
        "price > 100",
        "sys.Label LIKE 'order.%'",
        "EXISTS(region) AND price IS NOT NULL",
        "price > 100 OR sys.Label = 'order.paid'",
        "sys.Label = 'order.paid' OR price > 100",
        "size + 1 = '51'",
    ),
    "cesql": (
        "type = 'com.example.order'",
        "type LIKE 'com.example.%' AND priority > 9",
        "priority = 7",
        "priority IN ('7', '12')",
        "urgent",
        "urgent OR type LIKE '%bill'",
        "EXISTS type",
        "EXISTS type AND NOT (type = 'com.example.bill')",
        "LENGTH(type) % 2 = 0",
    ),
}


def page(name: str) -> str:
    """The page of a language."""
    dialect = dialect_named(name)
    text = (PAGES / f"{name}.template.md").read_text(encoding="utf-8")
    parts = {
        "tokens": _tokens(dialect),
        "words": _words(dialect),
        "operators": _operators(dialect),
        "names": _names(dialect),
        "limits": _limits(dialect),
        "examples": _examples(name),
    }
    for key, lines in parts.items():
        text = text.replace(f"{{{{{key}}}}}", "\n".join(lines))
    note = f"<!-- Written by tools/language_pages.py from {name}.template.md and the dialect record; `make docs`. -->\n"
    return note + text


def _code(text: str) -> str:
    """Text as code in a cell of a table."""
    quotes = "``" if "`" in text else "`"
    return quotes + text.replace("|", "\\|") + quotes


def _tokens(dialect: Dialect) -> Iterator[str]:
    yield "| token | regular expression |"
    yield "| --- | --- |"
    for rule in (*dialect.tokens, *dialect.references, *dialect.steps):
        if rule.kind is not TokenKind.SKIPPED:
            yield f"| {rule.kind.value} | {_code(rule.pattern.pattern)} |"


def _words(dialect: Dialect) -> Iterator[str]:
    folded = dialect.fold_keywords("Or") == dialect.fold_keywords("oR")
    case = "in any letter case" if folded else "in capitals"
    yield f"Keywords, {case}: {', '.join(map(_code, sorted(dialect.keywords)))}."
    if dialect.reserved:
        yield ""
        yield f"Reserved words, in any letter case, never names: {', '.join(map(_code, sorted(dialect.reserved)))}."
    if dialect.functions:
        listed = ", ".join(_code(f"{name.lower()}(…)") for name in sorted(dialect.functions))
        yield ""
        yield f"Functions, which are names elsewhere: {listed}."


def _operators(dialect: Dialect) -> Iterator[str]:
    yield "| binds | operators | left operand |"
    yield "| --- | --- | --- |"
    for level in Level:
        before = [_code(f"{symbol} …") for symbol, form in dialect.prefix.items() if form.level is level]
        lefts: dict[Level, list[str]] = {}
        for symbol, infix in dialect.infix.items():
            if infix.level is level:
                spelled = f"… [NOT] {symbol} …" if infix.negatable else f"… {symbol} …"
                lefts.setdefault(infix.left, []).append(_code(spelled))
        if before:
            yield f"| {level.value} {level.name.lower()} | {', '.join(before)} | |"
        for left, symbols in lefts.items():
            chains = "the same level: it chains" if left <= level else f"at least {left.name.lower()}"
            yield f"| {level.value} {level.name.lower()} | {', '.join(symbols)} | {chains} |"


def _names(dialect: Dialect) -> Iterator[str]:
    yield "| prefix | section | names |"
    yield "| --- | --- | --- |"
    if dialect.rules is ValueRules.SERVICE_BUS:
        yield "| none, `user.` | application properties | any, in any letter case |"
        for found in SYSTEM_PROPERTIES:
            names = ", ".join(_code(f"sys.{name}") for name in found.names)
            settable = ", may be set by an action" if found.settable else ""
            yield f"| {names} | system property | {found.type.value}{settable} |"
        return
    by_section: dict[Any, list[str]] = {}
    for prefix, section in dialect.sections.items():
        by_section.setdefault(section, []).append("none" if prefix is None else _code(f"{prefix}."))
    for section, prefixes in by_section.items():
        known = dialect.fields.get(section)
        names = "any" if known is None else ", ".join(map(_code, known))
        yield f"| {', '.join(prefixes)} | {section.name.lower().replace('_', ' ')} | {names} |"
    for name, reference in dialect.names.items():
        where = f"{reference.section.name.lower().replace('_', ' ')}"
        place = f" {_code(reference.key.decode())}" if reference.key is not None else ""
        yield f"| {_code(name)} | {where}{place} | a string; system property |"


def _limits(dialect: Dialect) -> Iterator[str]:
    def shown(number: int | None) -> str:
        return "none" if number is None else f"{number:,}"

    yield "| limit | |"
    yield "| --- | --- |"
    yield f"| characters | {shown(dialect.max_code_points)} |"
    yield f"| tokens | {shown(dialect.max_tokens)} |"
    yield f"| nested operators and parentheses | {shown(dialect.max_depth)} |"
    yield f"| parentheses that open directly one after the other | {shown(dialect.max_parentheses)} |"
    if dialect.ignores_trailing_input:
        yield "| text after a complete expression | ignored |"


def _examples(name: str) -> Iterator[str]:
    messages, bodies = _EVENTS if name == "cesql" else _MESSAGES, _BODIES.get(name, {})
    for letter, fields in messages.items():
        properties = ", ".join(f"{key} = {value!r}" for key, value in fields.get("application_properties", {}).items())
        subject = f"subject {fields['subject']!r}; " if "subject" in fields else ""
        body = f"; body {_code(bodies[letter].decode())}" if letter in bodies else ""
        yield f"- {letter}: {subject}application properties {properties}{body}" if fields else f"- {letter}: nothing"
    yield ""
    yield f"| filter | {' | '.join(messages)} |"
    yield f"| --- |{' --- |' * len(messages)}"
    for text in _EXAMPLES[name]:
        filter = Filter.parse(text, name)
        given = (Message(bodies.get(letter, b""), **fields) for letter, fields in messages.items())
        verdicts = [filter.verdict(message, now_ms=NOW_MS) for message in given]
        yield f"| {_code(text)} | {' | '.join(verdict.name.lower() for verdict in verdicts)} |"


def main() -> int:
    """Write the pages, or with `--check` say which are not up to date."""
    stale = []
    for name in BUILT_IN:
        path, text = PAGES / f"{name}.md", page(name)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    print(f"{'written' if '--check' not in sys.argv else 'not up to date'}: {', '.join(stale) or 'nothing'}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    raise SystemExit(main())
