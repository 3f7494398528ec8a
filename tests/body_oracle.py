"""A second evaluator for filters that look into JSON bodies, over Python's `json`: the judge of their cases.

It shares with the package the parser of filters and the decoder of other sections than the body, and nothing of
`headgate.message.json_body` and `headgate.evaluate`. Numbers are fractions; a value is a list of its kind and content.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, TypeAlias

from headgate.language import tree as t
from headgate.message import Message, Section

Truth: TypeAlias = bool | None
Value: TypeAlias = tuple[str, Any] | None
"""Kind (integer, decimal, double, text, boolean) and content; None is unknown."""

_ABSENT = object()
_NO_VALUE = object()
_CONSTRUCTORS = {Section.DATA: {0xA0: 1, 0xB0: 4}, Section.AMQP_VALUE: {0xA0: 1, 0xB0: 4, 0xA1: 1, 0xB1: 4}}


class _Decimal(str):
    """The text of a number with a fraction or an exponent."""


class _NotJsonError(Exception):
    pass


def judged(tree: t.Node, data: bytes) -> Truth:
    """Whether a filter is true for a message; None for unknown."""
    found = _Judge(*_decoded(data)).value(tree)
    return found[1] if found is not None and found[0] == "boolean" else None


@functools.lru_cache(1024)
def _decoded(data: bytes) -> tuple[Message, Any]:
    message = Message.decode(data)
    return message, _document(message)


def _document(message: Message) -> Any:
    """The body as Python's parser reads it; `_ABSENT` where it is not JSON."""
    octets = _octets(message.encoded_body)
    try:
        if octets is None or len(octets) > 4 * 1024 * 1024:
            raise _NotJsonError
        text = octets.decode("utf-8")
        depth = deepest = 0
        for bracket in re.findall(r"[\[\]{}]", re.sub(r'"(?:\\.|[^"\\])*"', "", text, flags=re.DOTALL)):
            depth += 1 if bracket in "[{" else -1
            deepest = max(deepest, depth)
        if deepest > 512:
            raise _NotJsonError
        return json.loads(text, parse_float=_Decimal, parse_int=_integer, parse_constant=_constant)
    except (_NotJsonError, ValueError):
        return _ABSENT


def _integer(text: str) -> object:
    return int(text) if len(text.lstrip("-")) <= 500 else _NO_VALUE


def _constant(_text: str) -> object:
    raise _NotJsonError


def _octets(body: bytes) -> bytes | None:
    parts = []
    kind = None
    while body:
        if body[:2] != b"\x00\x53" or len(body) < 4:
            return None
        if body[2] == Section.FOOTER:
            break
        width = _CONSTRUCTORS.get(Section(body[2]), {}).get(body[3])
        if width is None or kind not in (None, Section.DATA) or kind not in (None, body[2]):
            return None
        kind = body[2]
        stop = 4 + width + int.from_bytes(body[4 : 4 + width], "big")
        if len(body) < stop:
            return None
        parts.append(body[4 + width : stop])
        body = body[stop:]
    return b"".join(parts) if parts else None


def _at(value: Any, path: Iterable[bytes | int]) -> Any:
    for step in path:
        if isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        elif isinstance(step, bytes) and isinstance(value, dict) and step.decode() in value:
            value = value[step.decode()]
        else:
            return _ABSENT
    return value


def _of_json(found: Any) -> Value:
    match found:
        case bool():
            return "boolean", found
        case int():
            return "integer", Fraction(found)
        case _Decimal():
            digits, _, exponent = found.lower().partition("e")
            whole, _, fraction = digits.lstrip("-").partition(".")
            if len(whole) + len(fraction) > 500 or abs(int(exponent or "0")) > 9999:
                return None
            power = Fraction(10) ** (int(exponent or "0") - len(fraction))
            return "decimal", int(whole + fraction) * power * (-1 if digits.startswith("-") else 1)
        case str():
            is_text = not any("\ud800" <= character <= "\udfff" for character in found)
            return ("text", found.encode()) if is_text else None
        case _:
            return None


def _of_python(found: Any) -> Value:
    match found:
        case bool():
            return "boolean", found
        case int():
            return "integer", Fraction(found)
        case float():
            return "double", found
        case bytes():
            return "text", found
        case str():
            return "text", found.encode()
        case _:
            return None


def _is_number(value: Value) -> bool:
    return value is not None and value[0] in ("integer", "decimal", "double")


def _compared(left: tuple[str, Any], right: tuple[str, Any]) -> int | None:
    """Less than 0, 0 or more; None for values that are not of one kind."""
    if _is_number(left) and _is_number(right):
        # Beside a decimal a double is its shortest text; else the number that it is.
        as_text = "decimal" in (left[0], right[0])
        first, second = (
            (Fraction(repr(content)) if as_text else Fraction(content)) if kind == "double" else content
            for kind, content in (left, right)
        )
        return (first > second) - (first < second)
    if left[0] != right[0]:
        return None
    return (left[1] > right[1]) - (left[1] < right[1])


class _Judge:
    def __init__(self, message: Message, document: Any, element: Any = _ABSENT) -> None:
        self.message = message
        self.document = document
        self.element = element

    def found(self, node: t.Field | t.Element) -> Any:
        """What stands at a path of the body."""
        if isinstance(node, t.Element):
            return _at(self.element, node.path)
        return _at(self.document, node.reference.path)

    def truth(self, node: t.Node) -> Truth:
        found = self.value(node)
        return found[1] if found is not None and found[0] == "boolean" else None

    def value(self, node: t.Node) -> Value:
        match node:
            case t.Constant():
                return _of_python(node.value)
            case t.Field() if node.reference.section is not Section.DATA:
                typed = self.message.value(node.reference)
                return _of_python(node.reference.default if typed is None else typed.value)
            case t.Field() | t.Element():
                return _of_json(self.found(node))
            case t.And() | t.Or():
                outcomes = [self.truth(operand) for operand in node.operands]
                decisive = isinstance(node, t.Or)
                return _boolean(decisive if decisive in outcomes else None if None in outcomes else not decisive)
            case t.Not():
                return _negated(self.truth(node.operand))
            case t.AnyElement():
                array = self.found(node.array)
                if not isinstance(array, list):
                    return None
                outcomes = [_Judge(self.message, self.document, each).truth(node.condition) for each in array]
                return _boolean(True if True in outcomes else None if None in outcomes else False)
            case t.Compare():
                return self.comparison(node)
            case t.In():
                subject = self.value(node.subject)
                members = [self.value(member) for member in node.members]
                if subject is None:
                    return None
                is_among = any(member is not None and _compared(subject, member) == 0 for member in members)
                return _boolean(is_among is not node.negated)
            case t.Like():
                matches = self.like(node)
                return _negated(matches) if node.negated else _boolean(matches)
            case t.IsNull():
                return _boolean((self.value(node.operand) is None) is not node.negated)
            case t.Exists():
                assert isinstance(node.operand, t.Field | t.Element)
                if isinstance(node.operand, t.Field) and node.operand.reference.section is not Section.DATA:
                    return _boolean(self.message.value(node.operand.reference) is not None)
                return _boolean(self.found(node.operand) is not _ABSENT)
            case t.CompareSpecial():
                return self.special(node)
            case t.Sign():
                operand = self.value(node.operand)
                return (operand[0], -operand[1] if node.negative else operand[1]) if _is_number(operand) else None  # type: ignore[index]
            case t.Arithmetic():
                return self.arithmetic(node)
            case t.Concatenate():
                left, right = self.value(node.left), self.value(node.right)
                if left is None or right is None or left[0] != "text" or right[0] != "text":
                    return None
                joined = left[1] + right[1]
                return ("text", joined) if len(joined) <= 65_535 else None
            case t.Call():
                return self.call(node)
            case _:
                raise NotImplementedError(node)

    def comparison(self, node: t.Compare) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        if left is None or right is None:
            return None
        order, symbol = _compared(left, right), node.operator.value
        if order is None or (left[0] == "boolean" and symbol not in ("=", "<>")):
            return _boolean(symbol == "<>")
        is_less, is_equal = order < 0, order == 0
        outcomes = {"=": is_equal, "<>": not is_equal, "<": is_less, ">": not is_less and not is_equal}
        outcomes |= {"<=": is_less or is_equal, ">=": not is_less}
        return _boolean(outcomes[symbol])

    def special(self, node: t.CompareSpecial) -> Value:
        value, symbol = self.value(node.operand), node.operator.value
        if value is None:
            return None
        if not _is_number(value) or node.number is t.SpecialNumber.NAN:
            return _boolean(symbol == "<>")
        is_below = node.number is t.SpecialNumber.INFINITY
        return _boolean(symbol in (("<", "<=", "<>") if is_below else (">", ">=", "<>")))

    def like(self, node: t.Like) -> Truth:
        subject = self.value(node.subject)
        if subject is None or subject[0] != "text":
            return None
        wildcards = {t.LikeWildcard.ANY: "[^\n]*", t.LikeWildcard.ONE: "[^\n]"}
        if node.pattern.shape is not t.LikeShape.GENERAL:
            wildcards[t.LikeWildcard.ANY] = "(?s:.*)"
        parts = [part if isinstance(part, bytes) else wildcards[part] for part in node.pattern.parts]
        pattern = "".join(re.escape(part.decode()) if isinstance(part, bytes) else part for part in parts)
        is_general = node.pattern.shape is t.LikeShape.GENERAL
        return re.fullmatch(pattern + ("\n?" if is_general else ""), subject[1].decode()) is not None

    def arithmetic(self, node: t.Arithmetic) -> Value:
        left, right, symbol = self.value(node.left), self.value(node.right), node.operator.value
        if left is None or right is None or not _is_number(left) or not _is_number(right):
            return None
        if left[0] == right[0] == "integer" and symbol != "/":
            first, second = int(left[1]), int(right[1])
            if symbol == "%":
                rest = None if second == 0 else abs(first) % abs(second) * (-1 if first < 0 else 1)
                return None if rest is None else ("integer", Fraction(rest))
            whole = {"+": first + second, "-": first - second, "*": first * second}[symbol]
            return "integer", Fraction(whole)
        if symbol == "%":
            return None
        try:
            a, b = float(left[1]), float(right[1])
            result = a + b if symbol == "+" else a - b if symbol == "-" else a * b if symbol == "*" else a / b
        except (OverflowError, ZeroDivisionError):
            return None
        return ("double", result) if abs(result) != float("inf") and result == result else None

    def call(self, node: t.Call) -> Value:
        text, *counts = [self.value(argument) for argument in node.arguments]
        if text is None or text[0] != "text" or any(count is None or count[0] != "integer" for count in counts):
            return None
        characters = text[1].decode()
        numbers = [int(count[1]) for count in counts if count is not None]
        match node.function:
            case t.Function.LOWER:
                return "text", characters.lower().encode()
            case t.Function.UPPER:
                return "text", characters.upper().encode()
            case t.Function.LEFT:
                return ("text", characters[: numbers[0]].encode()) if numbers[0] >= 0 else None
            case t.Function.RIGHT:
                start = max(len(characters) - numbers[0], 0)
                return ("text", characters[start:].encode()) if numbers[0] >= 0 else None
            case t.Function.SUBSTRING:
                places = range(numbers[0], numbers[0] + (numbers[1] if len(numbers) > 1 else len(characters) + 1))
                taken = (character for place, character in enumerate(characters, 1) if place in places)
                return "text", "".join(taken).encode()
            case _:
                raise NotImplementedError(node)


def _boolean(truth: Truth) -> Value:
    return None if truth is None else ("boolean", truth)


def _negated(truth: Truth) -> Value:
    return None if truth is None else ("boolean", not truth)
