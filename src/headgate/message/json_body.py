"""The body of a message as JSON: which bytes are a document, and the values that paths lead to in it.

Strict RFC 8259 in UTF-8, checked as a whole and never decoded as a whole: a value is a place in the text. Nothing here
recurses, so the cost is bounded by the length of the text. The reasons are in docs/design/body-paths.md.
"""

from __future__ import annotations

import enum
import itertools
import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TypeAlias

from headgate.errors import MessageError
from headgate.message.constructors import CONSTRUCTOR_WIDTHS, WIDTH_SIZE8
from headgate.message.fields import Section
from headgate.message.framing import read_descriptor, skip_value

MAX_JSON_BYTES = 1 << 22
"""A longer body is not looked into: the least limit of messages among the brokers that are spoken for (RocketMQ's)."""

MAX_NESTING = 512
"""Arrays and objects inside each other; a text with more is taken as not JSON."""

MAX_DIGITS = 500
"""A number of more digits has no value. Python reads 640 digits under any `sys.set_int_max_str_digits`."""

MAX_EXPONENT = 9999
"""A number with a greater exponent, or a lesser one than minus this, has no value."""

JsonScalar: TypeAlias = bool | int | Decimal | bytes | None
"""A number is an int as it is written without fraction and exponent, else a Decimal; a string is its UTF-8."""


class JsonKind(enum.Enum):
    """The kinds of values of JSON."""

    OBJECT = "object"
    ARRAY = "array"
    STRING = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"
    NULL = "null"


_KINDS = {
    ord("{"): JsonKind.OBJECT,
    ord("["): JsonKind.ARRAY,
    ord('"'): JsonKind.STRING,
    ord("t"): JsonKind.BOOLEAN,
    ord("f"): JsonKind.BOOLEAN,
    ord("n"): JsonKind.NULL,
}

# A repeated group takes memory for each repetition, so repetitions of groups are few; a single character's are free.
_FEW = rb"{0,100}"
_BLANKS = rb"[ \t\n\r]*+"
_CHARACTERS = rb'[^"\\\x00-\x1f]*+'
_ESCAPE = rb'\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4})'
_PLAIN_STRING = rb'"' + _CHARACTERS + rb'"'
_LITERAL = rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null"
_PLAIN = _BLANKS + rb"(?:" + _PLAIN_STRING + rb"|" + _LITERAL + rb")" + _BLANKS

_value = re.compile(_BLANKS + rb"(?:\[(" + _BLANKS + rb"\])?|\{(" + _BLANKS + rb'\})?|(")|(' + _LITERAL + rb"))").match
"""An empty array (group 1) or object (2), or the beginning of one; the beginning of a string (3); a literal (4)."""

_plain_elements = re.compile(rb"(?:" + _PLAIN + rb",)" + _FEW).match
_plain_members = re.compile(rb"(?:" + _BLANKS + _PLAIN_STRING + _BLANKS + rb":" + _PLAIN + rb",)" + _FEW).match
"""Scalars that come next in an array or object and are followed by another value."""

_blanks = re.compile(_BLANKS).match
_behind = re.compile(_BLANKS + rb"([,\]}])").match
_quote = re.compile(_BLANKS + rb'"').match
_colon = re.compile(_BLANKS + rb":").match
_escapes = re.compile(rb"(?:" + _CHARACTERS + _ESCAPE + rb")" + _FEW).match
_rest_of_string = re.compile(_CHARACTERS + rb'"').match
_literal = re.compile(_LITERAL).match
_number = re.compile(rb"-?([0-9]++)(?:\.([0-9]++))?(?:[eE]([+-]?[0-9]++))?").fullmatch
_ARRAY, _OBJECT, _END_OF_ARRAY, _END_OF_OBJECT, _COMMA = b"[{]},"
_IS_STRING, _IS_LITERAL = 3, 4


class _NotJsonError(Exception):
    """The text breaks the grammar, or a limit."""


@dataclass(frozen=True, slots=True)
class JsonValue:
    """The value that begins at `start` in `text`, which is a document of JSON."""

    text: bytes
    start: int

    @property
    def kind(self) -> JsonKind:
        """What it is."""
        return _KINDS.get(self.text[self.start], JsonKind.NUMBER)

    def scalar(self) -> JsonScalar:
        """The value that filters compare. None for null, arrays, objects, and for what has no such value.

        That is a string with half of a surrogate pair, and a number beyond `MAX_DIGITS` or `MAX_EXPONENT`.
        """
        match self.kind:
            case JsonKind.OBJECT | JsonKind.ARRAY | JsonKind.NULL:
                return None
            case JsonKind.BOOLEAN:
                return self.text[self.start] == ord("t")
            case JsonKind.STRING:
                return _string_value(self.text[self.start : _behind_string(self.text, self.start + 1)])
            case JsonKind.NUMBER:
                return json_number(self.text[self.start : _end(_literal(self.text, self.start))])

    def shown(self, most: int = 80) -> str:
        """Its text in the document, cut to `most` characters."""
        text = self.text[self.start : _skip(self.text, self.start)][: 4 * most].decode(errors="ignore")
        return text if len(text) <= most else text[: most - 1] + "…"

    def at(self, path: tuple[bytes | int, ...]) -> JsonValue | None:
        """The value that `path` leads to: names of members (of equal ones the last), and numbers of elements, from 0.

        Cost: one walk over each object and array on the way.
        """
        found: JsonValue | None = self
        for step in path:
            if found is None:
                return None
            found = found._element(step) if isinstance(step, int) else found._member(step)
        return found

    def elements(self) -> Iterator[JsonValue] | None:
        """The elements of an array; None for any other value."""
        return self._elements() if self.text[self.start] == _ARRAY else None

    def _element(self, number: int) -> JsonValue | None:
        elements = self.elements()
        return None if elements is None else next((each for at, each in enumerate(elements) if at == number), None)

    def _member(self, name: bytes) -> JsonValue | None:
        found = None
        if self.text[self.start] == _OBJECT:
            for key, value in self._members():
                if _string_value(key) == name:
                    found = value
        return found

    def _each(self, steps: Collection[bytes | int]) -> dict[bytes | int, JsonValue]:
        """The members and elements that some steps lead to."""
        found: dict[bytes | int, JsonValue] = {}
        if self.text[self.start] == _OBJECT:
            for key, value in self._members():
                name = _string_value(key)
                if name is not None and name in steps:
                    found[name] = value
        elif self.text[self.start] == _ARRAY:
            behind = 1 + max((step for step in steps if isinstance(step, int)), default=-1)
            for number, value in enumerate(itertools.islice(self._elements(), behind)):
                if number in steps:
                    found[number] = value
        return found

    def _elements(self) -> Iterator[JsonValue]:
        position = self.start
        while self.text[position] != _END_OF_ARRAY:
            position = _end(_blanks(self.text, position + 1))
            if self.text[position] == _END_OF_ARRAY:
                return
            yield JsonValue(self.text, position)
            position = _end(_behind(self.text, _skip(self.text, position))) - 1

    def _members(self) -> Iterator[tuple[bytes, JsonValue]]:
        """The members, each with its key as it is written."""
        position = self.start
        while self.text[position] != _END_OF_OBJECT:
            start = _end(_blanks(self.text, position + 1))
            if self.text[start] == _END_OF_OBJECT:
                return
            stop = _behind_string(self.text, start + 1)
            position = _end(_blanks(self.text, _end(_colon(self.text, stop))))
            yield self.text[start:stop], JsonValue(self.text, position)
            position = _end(_behind(self.text, _skip(self.text, position))) - 1


@dataclass(frozen=True, slots=True)
class _Branch:
    """A place that paths lead to or through."""

    numbers: list[int] = field(default_factory=list)
    """The paths that end here."""
    steps: dict[bytes | int, _Branch] = field(default_factory=dict)


class JsonPaths:
    """Several paths that are followed together: an array or object on the way of more than one is walked once."""

    __slots__ = ("_count", "_root")

    def __init__(self, paths: Sequence[tuple[bytes | int, ...]]) -> None:
        self._count = len(paths)
        self._root = _Branch()
        for number, path in enumerate(paths):
            branch = self._root
            for step in path:
                branch = branch.steps.setdefault(step, _Branch())
            branch.numbers.append(number)

    def values(self, document: JsonValue | None) -> list[JsonValue | None]:
        """What `JsonValue.at` gives for each path, in their order; None for each where there is no document."""
        found: list[JsonValue | None] = [None] * self._count
        left = [] if document is None else [(document, self._root)]
        while left:
            value, branch = left.pop()
            for number in branch.numbers:
                found[number] = value
            if branch.steps:
                left += ((each, branch.steps[step]) for step, each in value._each(branch.steps).items())
        return found


def json_document(text: bytes) -> JsonValue | None:
    """The value that a text is; None for a text that is not JSON, or exceeds `MAX_JSON_BYTES` or `MAX_NESTING`.

    The whole text is checked. Cost: at most half a second a megabyte.
    """
    if len(text) > MAX_JSON_BYTES:
        return None
    try:
        text.decode()
        start = _end(_blanks(text, 0))
        stop = _end(_blanks(text, _skip(text, start)))
    except (_NotJsonError, UnicodeDecodeError):
        return None
    return JsonValue(text, start) if stop == len(text) else None


def body_text(data: bytes, position: int) -> bytes | None:
    """The bytes of a body that may be JSON, of a message whose body begins at `position`.

    These are the data sections joined, or an amqp-value that is a string or a binary. None for other bodies, for none,
    and where the framing breaks before the footer.
    """
    parts: list[bytes] = []
    kind: Section | None = None
    try:
        while position < len(data):
            section, position = read_descriptor(data, position)
            if section is Section.FOOTER:
                break
            is_next = kind is None or kind is section is Section.DATA
            if not is_next or data[position : position + 1] not in _TEXT_CONSTRUCTORS.get(section, ()):
                return None
            kind = section
            content = position + (2 if CONSTRUCTOR_WIDTHS[data[position]] == WIDTH_SIZE8 else 5)
            position = skip_value(data, position, len(data))
            parts.append(data[content:position])
    except MessageError:
        return None
    return b"".join(parts) if parts else None


_TEXT_CONSTRUCTORS = {
    Section.DATA: (b"\xa0", b"\xb0"),
    Section.AMQP_VALUE: (b"\xa0", b"\xb0", b"\xa1", b"\xb1"),
}


def _skip(text: bytes, position: int) -> int:
    """The position behind the value that begins at `position`, blanks before it included. Raises _NotJsonError."""
    closers = bytearray()
    while True:
        value = _value(text, position)
        position = _end(value)
        assert value is not None
        if value.lastindex == _IS_STRING:
            position = _behind_string(text, position)
        elif value.lastindex != _IS_LITERAL and len(closers) == MAX_NESTING:
            raise _NotJsonError
        if value.lastindex is None:
            closers.append(_END_OF_ARRAY if text[position - 1] == _ARRAY else _END_OF_OBJECT)
            position = _next_value(text, position, closers[-1])
            continue
        while closers:
            position = _end(_behind(text, position))
            found = text[position - 1]
            if found == _COMMA:
                position = _next_value(text, position, closers[-1])
                break
            if found != closers.pop():
                raise _NotJsonError
        else:
            return position


def _next_value(text: bytes, position: int, closer: int) -> int:
    """Where a value begins that is not passed yet, behind a comma or the beginning of an array or object."""
    if closer == _END_OF_ARRAY:
        return _end(_plain_elements(text, position))
    position = _end(_quote(text, _end(_plain_members(text, position))))
    return _end(_colon(text, _behind_string(text, position)))


def _behind_string(text: bytes, position: int) -> int:
    """The position behind the string of which `position` is the first character. Raises _NotJsonError."""
    while (stop := _end(_escapes(text, position))) > position:
        position = stop
    return _end(_rest_of_string(text, position))


def _end(match: re.Match[bytes] | None) -> int:
    if match is None:
        raise _NotJsonError
    return match.end()


def _string_value(token: bytes) -> bytes | None:
    """The UTF-8 of a string in quotes; None if it has half of a surrogate pair."""
    if b"\\" not in token:
        return token[1:-1]
    try:
        text: str = json.loads(token)
        return text.encode()
    except UnicodeEncodeError:
        return None


def json_number(token: bytes) -> int | Decimal | None:
    """The value of a number as it is written; None for one beyond `MAX_DIGITS` or `MAX_EXPONENT`."""
    parts = _number(token)
    assert parts is not None
    whole, fraction, exponent = parts.groups()
    if len(whole) + len(fraction or b"") > MAX_DIGITS:
        return None
    if fraction is None and exponent is None:
        return int(token)
    if exponent is not None and not _is_small(exponent):
        return None
    return Decimal(token.decode())


def _is_small(exponent: bytes) -> bool:
    digits = exponent.lstrip(b"+-").lstrip(b"0")
    return len(digits) <= len(str(MAX_EXPONENT))
