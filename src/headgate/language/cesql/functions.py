"""The functions of CloudEvents SQL, and the type of the result of an expression.

Source: CloudEvents SQL 1.0.0, section 3.5. Arguments are cast to the types of the parameters; the unit of texts is the
code point, and a byte that is not UTF-8 counts as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.language import tree as t
from headgate.language.cesql.values import ErrorKind, EventValue, Failure, ValueType, cast, in_range, type_of
from headgate.language.values import Value

_WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
"""Unicode's White_Space; Python's `strip()` takes four control characters more."""


@dataclass(frozen=True, slots=True)
class Function:
    """One function: `parameters` are their types, None for any; `repeats` is the type of any number of further ones.

    `optional` is how many of the last parameters may be left out. `apply` takes texts as `str` and may raise Failure.
    """

    result: ValueType
    parameters: tuple[ValueType | None, ...]
    apply: Callable[..., Any]
    optional: int = 0
    repeats: ValueType | None = None

    def takes(self, arguments: int) -> bool:
        """Whether it can be called with so many arguments."""
        most = arguments if self.repeats is not None else len(self.parameters)
        return len(self.parameters) - self.optional <= arguments <= most


def applied(name: str, arguments: Sequence[Value]) -> EventValue:
    """The result of the function of that name. Raises Failure."""
    function = FUNCTIONS[name]
    types = [*function.parameters, *[function.repeats] * (len(arguments) - len(function.parameters))]
    given = [_argument(value, wanted, function) for value, wanted in zip(arguments, types, strict=False)]
    result = function.apply(*given)
    return _octets(result) if isinstance(result, str) else result


def _argument(value: Value, wanted: ValueType | None, function: Function) -> bool | int | str:
    given = cast(value, wanted or type_of(value), function.result.zero)
    return given.decode("utf-8", "surrogateescape") if isinstance(given, bytes) else given


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _cast_to(wanted: ValueType) -> Callable[[bool | int | str], EventValue]:
    return lambda given: cast(_octets(given) if isinstance(given, str) else given, wanted)


def _left(text: str, count: int) -> str:
    return text[: _counted(count, text)]


def _right(text: str, count: int) -> str:
    return text[max(len(text) - _counted(count, text), 0) :]


def _counted(count: int, text: str) -> int:
    if count < 0:
        raise Failure(ErrorKind.FUNCTION_EVALUATION, f"{count} characters were asked for", _octets(text))
    return count


def _substring(text: str, position: int, length: int | None = None) -> str:
    """From a position, counted from 1, or below 0 from the end; at 0 nothing."""
    if not -len(text) <= position <= len(text) or (length is not None and length < 0):
        what = f"position {position}" if length is None else f"position {position}, length {length}"
        raise Failure(ErrorKind.FUNCTION_EVALUATION, f"{what} is no part of a text of {len(text)} characters", b"")
    if position == 0:
        return ""
    start = position - 1 if position > 0 else len(text) + position
    return text[start:] if length is None else text[start : start + length]


def _absolute(number: int) -> int:
    return in_range(abs(number), f"ABS({number})", 2**31 - 1)


_TEXT, _NUMBER, _TRUTH = ValueType.STRING, ValueType.INTEGER, ValueType.BOOLEAN
FUNCTIONS: Mapping[str, Function] = {
    "INT": Function(_NUMBER, (None,), _cast_to(_NUMBER)),
    "BOOL": Function(_TRUTH, (None,), _cast_to(_TRUTH)),
    "STRING": Function(_TEXT, (None,), _cast_to(_TEXT)),
    "ABS": Function(_NUMBER, (_NUMBER,), _absolute),
    "LENGTH": Function(_NUMBER, (_TEXT,), len),
    "CONCAT": Function(_TEXT, (), lambda *texts: "".join(texts), repeats=_TEXT),
    "CONCAT_WS": Function(_TEXT, (_TEXT,), lambda between, *texts: between.join(texts), repeats=_TEXT),
    "LOWER": Function(_TEXT, (_TEXT,), str.lower),
    "UPPER": Function(_TEXT, (_TEXT,), str.upper),
    "TRIM": Function(_TEXT, (_TEXT,), lambda text: text.strip(_WHITE_SPACE)),
    "LEFT": Function(_TEXT, (_TEXT, _NUMBER), _left),
    "RIGHT": Function(_TEXT, (_TEXT, _NUMBER), _right),
    "SUBSTRING": Function(_TEXT, (_TEXT, _NUMBER, _NUMBER), _substring, optional=1),
}
"""The functions by name."""


def result_type(node: t.Node) -> ValueType | None:
    """The type of the result of an expression, bound or not; None for an attribute, whose event decides."""
    match node:
        case t.Constant(value):
            return type_of(value)
        case t.Name() | t.Attribute():
            return None
        case t.Arithmetic() | t.Sign():
            return ValueType.INTEGER
        case t.Apply(function):
            return FUNCTIONS[function].result
        case _:
            return ValueType.BOOLEAN
