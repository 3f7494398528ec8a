"""As what kind of register each language sees the values of a message: a table by constructor that a program carries.

So a language that tells more types apart costs the others nothing. What is missing in a table is VALUELESS.
"""

from __future__ import annotations

from collections.abc import Mapping

from headgate.evaluate import layout
from headgate.language.tree import ValueRules
from headgate.message.constructors import CONSTRUCTORS, DESCRIBED, AmqpType

_INTEGERS = (
    AmqpType.UBYTE, AmqpType.USHORT, AmqpType.UINT, AmqpType.ULONG, AmqpType.BYTE, AmqpType.SHORT, AmqpType.INT,
    AmqpType.LONG,
)  # fmt: skip
_DECIMALS = (AmqpType.DECIMAL32, AmqpType.DECIMAL64, AmqpType.DECIMAL128)

_RABBITMQ = {
    **dict.fromkeys((*_INTEGERS, AmqpType.TIMESTAMP, AmqpType.CHAR), layout.INTEGER),
    **dict.fromkeys((AmqpType.FLOAT, AmqpType.DOUBLE), layout.FLOAT),
    **dict.fromkeys((AmqpType.STRING, AmqpType.SYMBOL, AmqpType.BINARY, AmqpType.UUID), layout.BYTES),
    AmqpType.BOOLEAN: layout.BOOLEAN,
    AmqpType.NULL: layout.NULL,
}

# What is no value there is NULL if other languages see one in it: of equal keys that is the one that counts.
_ROCKETMQ = {
    **dict.fromkeys(_INTEGERS, layout.NULL),
    **dict.fromkeys((AmqpType.TIMESTAMP, AmqpType.CHAR), layout.NULL),
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
    **dict.fromkeys(_INTEGERS, layout.INTEGER),
    **dict.fromkeys((*_DECIMALS, AmqpType.DESCRIBED), layout.OPEN),
    **dict.fromkeys((AmqpType.STRING, AmqpType.SYMBOL), layout.BYTES),
    AmqpType.FLOAT: layout.ODD,
    AmqpType.DOUBLE: layout.FLOAT,
    AmqpType.TIMESTAMP: layout.TIMESTAMP,
    AmqpType.CHAR: layout.CHAR,
    AmqpType.UUID: layout.UUID,
    AmqpType.BINARY: layout.BINARY,
    AmqpType.BOOLEAN: layout.BOOLEAN,
    AmqpType.NULL: layout.NULL,
}

FAMILIES: Mapping[ValueRules, int] = {
    ValueRules.RABBITMQ: layout.RULES_RABBITMQ,
    ValueRules.ROCKETMQ: layout.RULES_ROCKETMQ,
    ValueRules.SERVICE_BUS: layout.RULES_SERVICE_BUS,
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


KINDS: Mapping[ValueRules, bytes] = {
    ValueRules.RABBITMQ: _table(_RABBITMQ, empty=layout.BYTES, not_finite=layout.VALUELESS),
    ValueRules.ROCKETMQ: _table(_ROCKETMQ, empty=layout.NULL, not_finite=layout.OPEN),
    ValueRules.SERVICE_BUS: _table(_SERVICE_BUS, empty=layout.BYTES, not_finite=layout.OPEN),
}
"""256 bytes each, laid out as `layout.py` says."""
