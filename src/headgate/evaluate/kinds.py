"""The kinds of registers for values of a message in each language: a table by constructor that a program carries.

So a language that tells more types apart costs the others nothing. Types that are missing in a table are VALUELESS.
"""

from __future__ import annotations

from collections.abc import Mapping

from headgate.evaluate import layout
from headgate.language.servicebus import INTEGERS, SystemType, system_type
from headgate.language.tree import Rules, ValueRules
from headgate.message import DECIMAL_SIZES, INTEGER_RANGES, FieldReference, Section
from headgate.message.constructors import CONSTRUCTORS, DESCRIBED, AmqpType

_RABBITMQ = {
    **dict.fromkeys(INTEGER_RANGES, layout.INTEGER),
    **dict.fromkeys((AmqpType.FLOAT, AmqpType.DOUBLE), layout.FLOAT),
    **dict.fromkeys((AmqpType.STRING, AmqpType.SYMBOL, AmqpType.BINARY, AmqpType.UUID), layout.BYTES),
    AmqpType.BOOLEAN: layout.BOOLEAN,
    AmqpType.NULL: layout.NULL,
}

# What is no value there is NULL if other languages see one in it: of equal keys that is the one that counts.
_ROCKETMQ = {
    **dict.fromkeys(INTEGER_RANGES, layout.NULL),
    **dict.fromkeys((AmqpType.SYMBOL, AmqpType.BINARY, AmqpType.UUID), layout.NULL),
    **dict.fromkeys((AmqpType.BYTE, AmqpType.SHORT, AmqpType.FLOAT), layout.ODD),
    AmqpType.INT: layout.INT32,
    AmqpType.LONG: layout.INTEGER,
    AmqpType.DOUBLE: layout.FLOAT,
    AmqpType.STRING: layout.BYTES,
    AmqpType.BOOLEAN: layout.BOOLEAN,
    AmqpType.NULL: layout.NULL,
}

_SERVICE_BUS = {
    **dict.fromkeys(INTEGERS, layout.INTEGER),
    **dict.fromkeys((AmqpType.FLOAT, AmqpType.DOUBLE), layout.FLOAT),
    **dict.fromkeys((*DECIMAL_SIZES, AmqpType.DESCRIBED, AmqpType.LIST, AmqpType.MAP, AmqpType.ARRAY), layout.OPEN),
    **dict.fromkeys((AmqpType.STRING, AmqpType.SYMBOL), layout.BYTES),
    AmqpType.TIMESTAMP: layout.TIMESTAMP,
    AmqpType.CHAR: layout.ODD,
    AmqpType.UUID: layout.UUID,
    AmqpType.BINARY: layout.BINARY,
    AmqpType.BOOLEAN: layout.BOOLEAN,
    AmqpType.NULL: layout.NULL,
}

# Floats and characters are no attributes; other languages see a value in them, so of equal keys they count.
_CESQL = {
    **dict.fromkeys(INTEGERS, layout.INTEGER),
    **dict.fromkeys((AmqpType.FLOAT, AmqpType.DOUBLE, AmqpType.CHAR), layout.NULL),
    **dict.fromkeys((AmqpType.STRING, AmqpType.SYMBOL), layout.BYTES),
    AmqpType.TIMESTAMP: layout.TIMESTAMP,
    AmqpType.UUID: layout.UUID,
    AmqpType.BINARY: layout.BINARY,
    AmqpType.BOOLEAN: layout.BOOLEAN,
    AmqpType.NULL: layout.NULL,
}

FAMILIES: Mapping[Rules, int] = {
    ValueRules.RABBITMQ: layout.RULES_RABBITMQ,
    ValueRules.ROCKETMQ: layout.RULES_ROCKETMQ,
    ValueRules.ROCKETMQ_MAP: layout.RULES_ROCKETMQ,
    ValueRules.SERVICE_BUS: layout.RULES_SERVICE_BUS,
    ValueRules.CORRELATION: layout.RULES_CORRELATION,
    ValueRules.CESQL: layout.RULES_CESQL,
}
"""The family of operations that decides by given rules."""


def _table(kinds: Mapping[AmqpType, int], *, empty: int, not_finite: int) -> bytes:
    table = bytearray([layout.VALUELESS]) * 256
    for constructor, kind in CONSTRUCTORS.items():
        table[constructor] = kinds.get(kind, layout.VALUELESS)
    table[DESCRIBED] = kinds.get(AmqpType.DESCRIBED, layout.VALUELESS)
    table[layout.KIND_OF_EMPTY] = empty
    table[layout.KIND_OF_NOT_FINITE] = not_finite
    return bytes(table)


_SERVICE_BUS_TABLE = _table(_SERVICE_BUS, empty=layout.BYTES, not_finite=layout.OPEN)
KINDS: Mapping[Rules, bytes] = {
    ValueRules.RABBITMQ: _table(_RABBITMQ, empty=layout.BYTES, not_finite=layout.VALUELESS),
    ValueRules.ROCKETMQ: _table(_ROCKETMQ, empty=layout.NULL, not_finite=layout.OPEN),
    ValueRules.ROCKETMQ_MAP: _table(_ROCKETMQ, empty=layout.BYTES, not_finite=layout.OPEN),
    ValueRules.SERVICE_BUS: _SERVICE_BUS_TABLE,
    ValueRules.CORRELATION: _SERVICE_BUS_TABLE,
    ValueRules.CESQL: _table(_CESQL, empty=layout.BYTES, not_finite=layout.VALUELESS),
}
"""256 bytes each, laid out as `layout.py` says; languages of one table may share a program."""

_READINGS = {
    SystemType.TEXT: layout.AS_TEXT,
    SystemType.IDENTIFIER: layout.AS_IDENTIFIER,
    SystemType.TIME_SPAN: layout.AS_TIME_SPAN,
    SystemType.DATE_TIME: layout.AS_DATE_TIME,
    SystemType.INTEGER: layout.AS_INTEGER,
}


def reading(reference: FieldReference, rules: ValueRules) -> int | None:
    """How the kernel reads a field; None if it cannot."""
    if rules in (ValueRules.SERVICE_BUS, ValueRules.CORRELATION):
        of = system_type(reference)
        return layout.AS_IT_IS if of is None else _READINGS.get(of)
    if reference.only is AmqpType.UBYTE and reference.position is not None:
        return layout.UBYTE_ONLY
    if reference.only in (AmqpType.BOOLEAN, AmqpType.UINT) and reference.position is not None:
        return layout.OF_ITS_TYPE
    if reference.only is AmqpType.STRING and reference.section is not Section.APPLICATION_PROPERTIES:
        return layout.AS_TEXT
    return layout.AS_IT_IS if reference.only is None else None
