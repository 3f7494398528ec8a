"""Values and bodies of AMQP 1.0 as clients of RocketMQ see them: they know texts and bytes only.

    string, symbol                      the text
    boolean                             true, false
    ubyte … ulong, byte … long          decimal digits
    float, double                       as Java prints it: 1.5, 1.0E10, NaN, Infinity
    decimal32, decimal64, decimal128    decimal digits, exactly: 1.50 is 1.5; 1E+20; NaN, Infinity
    char                                the character
    timestamp                           milliseconds since 1970, decimal digits
    uuid                                8-4-4-4-12 hexadecimal digits, lower case
    binary                              hexadecimal digits, lower case
    null, list, map, array, described   none: the property is not there

    no body, data sections              the bytes, joined
    one value: string, symbol, binary   its bytes
    one value of another type           JSON
    sequences                           JSON, one array of all elements

Bytes of texts that are not UTF-8 are U+FFFD, as a client of the original would read them.
"""

from __future__ import annotations

import decimal
import json
import math
from fractions import Fraction

import numpy as np

from headgate.language.rocketmq import double_text
from headgate.message import INTEGER_RANGES, AmqpType, AmqpValue, Body, Section, decimal_value, plain_json

_EXACT = decimal.Context(prec=60, Emin=-10_000, Emax=10_000)
_INTEGERS = frozenset(INTEGER_RANGES) - {AmqpType.CHAR}


def value_text(value: AmqpValue) -> str | None:
    """The text of a value; None for one that has none."""
    held = value.value
    if value.type in _INTEGERS:
        return str(held)
    match value.type:
        case AmqpType.STRING | AmqpType.SYMBOL:
            return (value.octets() or b"").decode("utf-8", "replace")
        case AmqpType.BOOLEAN:
            return "true" if held else "false"
        case AmqpType.FLOAT:
            return double_text(float(str(np.float32(held))))
        case AmqpType.DOUBLE:
            return double_text(held)
        case AmqpType.CHAR:
            return value.text()
        case AmqpType.UUID:
            return str(held)
        case AmqpType.BINARY:
            octets: bytes = held
            return octets.hex()
        case AmqpType.DECIMAL32 | AmqpType.DECIMAL64 | AmqpType.DECIMAL128:
            return _decimal_text(decimal_value(value))
        case _:
            return None


def _decimal_text(number: Fraction | float) -> str:
    if isinstance(number, float):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    quotient = _EXACT.divide(decimal.Decimal(number.numerator), decimal.Decimal(number.denominator))
    return str(_EXACT.normalize(quotient))


def body_bytes(body: Body | None) -> bytes:
    """The bytes that a body is."""
    if body is None:
        return b""
    octets = body.octets()
    if octets is not None:
        return octets
    values = body.values()
    if body.section is Section.AMQP_VALUE:
        return _json(plain_json(values[0]))
    return _json([plain_json(member) for sequence in values for member in sequence.value])


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
