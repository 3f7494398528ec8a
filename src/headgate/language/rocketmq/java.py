"""Java's numbers and strings: parsing, printing and hashing as in Java.

A string is a sequence of UTF-16 units, an int has 32 bits, a long 64. Source: rocketmq_filters, sections 6.4 and
7, and the documentation of java.lang of Java 17 (Integer.parseInt, Double.valueOf, Double.toString, String.hashCode).
"""

from __future__ import annotations

import math
import re
import struct
import unicodedata
from decimal import Decimal
from fractions import Fraction

from headgate.message import INTEGER_RANGES
from headgate.message.constructors import AmqpType

_DOUBLE = re.compile(r"([+-]?)(?:(NaN)|(Infinity)|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?)")
_HEXADECIMAL = re.compile(r"([+-]?)(0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+))[pP]([+-]?)([0-9]+)[fFdD]?")
_TRIMMED = "".join(map(chr, range(0x21)))
_LONGEST_LONG = 19
_HEXADECIMAL_EXPONENT_DIGITS = 18


class NumberFormat(Exception):  # noqa: N818 - what Java throws there; callers turn it into errors of their own
    """A text that is not a number of the kind wanted; the message is Java's."""

    def __init__(self, text: str, reason: str | None = None) -> None:
        super().__init__(reason or f'For input string: "{text}"')


def units(text: str) -> bytes:
    """The UTF-16 units of a string, big-endian: comparing these bytes orders strings as Java does."""
    return text.encode("utf-16-be", "surrogatepass")


def string_hash(text: str) -> int:
    """`String.hashCode`: h = 31 h + unit over the UTF-16 units, wrapped to 32 bits with sign."""
    encoded, hashed = units(text), 0
    for (unit,) in struct.iter_unpack(">H", encoded):
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    return hashed - (1 << 32) if hashed >> 31 else hashed


def trimmed(text: str) -> str:
    """`String.trim`: without characters up to U+0020 at both ends."""
    return text.strip(_TRIMMED)


def parse_integer(text: str, kind: AmqpType) -> int:
    """An integer of `kind` (byte, short, int, long): one sign or none, then decimal digits of any script of the BMP.

    Raises NumberFormat, also out of the range of `kind`.
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    decimals = [unicodedata.decimal(digit, None) if digit <= "\uffff" else None for digit in digits]
    if not decimals or None in decimals:
        raise NumberFormat(text)
    significant = "".join(map(str, decimals)).lstrip("0") or "0"
    if len(significant) > _LONGEST_LONG:
        raise NumberFormat(text)
    value = -int(significant) if text[0] == "-" else int(significant)
    low, high = INTEGER_RANGES[kind]
    if not low <= value <= high:
        raise NumberFormat(text)
    return value


def parse_double(text: str) -> float:
    """`Double.valueOf`: decimal or hexadecimal, NaN and Infinity, a suffix d or f, blanks at both ends.

    ASCII digits only; overflow is an infinity, underflow zero. Raises NumberFormat.
    """
    body = trimmed(text)
    if not body:
        raise NumberFormat(text, "empty String")
    decimal = _DOUBLE.fullmatch(body)
    if decimal is not None:
        sign, nan, infinity, number = decimal.groups()
        if nan:
            return math.nan
        value = math.inf if infinity else float(number)
    else:
        sign, value = _hexadecimal(body)
    return -value if sign == "-" else value


def _hexadecimal(body: str) -> tuple[str, float]:
    found = _HEXADECIMAL.fullmatch(body)
    if found is None:
        raise NumberFormat(body)
    sign, mantissa, exponent_sign, exponent = found.groups()
    if not mantissa[2:].strip("0."):
        return sign, 0.0
    exponent = exponent.lstrip("0") or "0"
    if len(exponent) > _HEXADECIMAL_EXPONENT_DIGITS:
        return sign, 0.0 if exponent_sign == "-" else math.inf
    try:
        return sign, float.fromhex(f"{mantissa}p{exponent_sign}{exponent}")
    except OverflowError:
        return sign, math.inf


def parse_float(text: str) -> float:
    """`Float.valueOf`: as `parse_double`, rounded once, to 32 bits. Raises NumberFormat."""
    double = parse_double(text)
    if not math.isfinite(double):
        return double
    narrowed = to_float(double)
    if not _is_tie(double, narrowed):
        return narrowed
    # The double lies halfway between two floats; what the text has beyond the double decides.
    beyond = _compared_exactly(trimmed(text), double)
    if beyond == 0:
        return narrowed
    below, above = sorted((narrowed, _other_side(double, narrowed)))
    return above if beyond > 0 else below


def to_float(number: float) -> float:
    """A double or a long as a float of 32 bits, rounded once, to nearest and ties to even; or infinite."""
    if isinstance(number, int):
        return _integer_to_float(number)
    try:
        narrowed: float = struct.unpack(">f", struct.pack(">f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return narrowed


def _integer_to_float(number: int) -> float:
    """Rounding to 24 bits in integers: by way of a double a long would be rounded twice."""
    excess = max(0, abs(number).bit_length() - 24)
    magnitude, rest = abs(number) >> excess, abs(number) & ((1 << excess) - 1)
    half = (1 << excess) >> 1
    if rest > half or (rest == half and half and magnitude & 1):
        magnitude += 1
    return math.copysign(float(magnitude << excess), number)


_LARGEST_FLOAT = struct.unpack(">f", b"\x7f\x7f\xff\xff")[0]
_FLOAT_OVERFLOW = 2.0**128


def _other_side(double: float, narrowed: float) -> float:
    """The float next to `narrowed` in the direction of `double`."""
    if math.isinf(narrowed):
        return math.copysign(_LARGEST_FLOAT, narrowed)
    (bits,) = struct.unpack(">I", struct.pack(">f", abs(narrowed)))
    outwards = abs(double) > abs(narrowed)
    (moved,) = struct.unpack(">f", struct.pack(">I", bits + 1 if outwards else bits - 1))
    return math.copysign(moved, double)


def _is_tie(double: float, narrowed: float) -> bool:
    """Whether a double is as far from `narrowed` as from the next float (2**128 stands for infinity)."""
    if double == narrowed:
        return False
    nearest, other = Fraction(_finite(narrowed)), Fraction(_finite(_other_side(double, narrowed)))
    return abs(Fraction(double) - nearest) == abs(other - Fraction(double))


def _finite(number: float) -> float:
    return math.copysign(_FLOAT_OVERFLOW, number) if math.isinf(number) else number


def _compared_exactly(text: str, double: float) -> int:
    """Below, at or above zero: the exact value of a text that was parsed to a double that is finite and not zero."""
    found = _HEXADECIMAL.fullmatch(text)
    if found is None:
        # Decimal takes any number of digits and compares without rounding.
        exact, parsed = Decimal(text.rstrip("fFdD")), Decimal(double)
        return (exact > parsed) - (exact < parsed)
    sign, mantissa, exponent_sign, exponent = found.groups()
    whole, _, fraction = mantissa[2:].partition(".")
    power = int(exponent_sign + (exponent.lstrip("0") or "0")) - 4 * len(fraction)
    magnitude = int(whole + fraction, 16) * Fraction(2) ** power
    value = -magnitude if sign == "-" else magnitude
    return (value > double) - (value < double)


def double_text(value: float) -> str:
    """`Double.toString`: at least one digit after the point, an exponent outside 10**-3 … 10**7.

    The shortest digits that read back, but two at least (4.9E-324), as from Java 19 on; older ones print a digit more
    for some doubles.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign, magnitude = "-" if math.copysign(1.0, value) < 0 else "", abs(value)
    shortest = repr(magnitude)
    if magnitude == 0 or 1e-3 <= magnitude < 1e7:
        return sign + shortest
    digits = shortest.partition("e")[0].replace(".", "").strip("0")
    if len(digits) == 1:
        digits = f"{magnitude:.1e}".partition("e")[0].replace(".", "")
    return f"{sign}{digits[0]}.{digits[1:]}E{Decimal(shortest).adjusted()}"
