"""Typed AMQP 1.0 values: the exact type survives every round trip.

The Python types of `AmqpValue.value`, by AMQP type:

    null                                None
    boolean                             bool
    ubyte … ulong, byte … long          int within the type's range
    float, double                       float (that of a float is rounded to 32 bits)
    decimal32, decimal64, decimal128    bytes, opaque: 4, 8, 16
    char                                int, the code point (any 32 bits)
    timestamp                           int, milliseconds since the epoch
    uuid                                uuid.UUID
    binary                              bytes
    string, symbol                      str; bytes that are not UTF-8 are surrogate escapes (`octets` gives them back)
    list                                tuple of AmqpValue
    map                                 tuple of (key, value) pairs, in order, equal keys kept
    array                               AmqpArray
    described                           Described

A list, map, array or described value may hold None: it exists, but its content was not examined (`Message.value`).

Source: OASIS AMQP 1.0 part 1 (types), section 1.6.
"""

from __future__ import annotations

import datetime
import math
import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headgate.errors import ConfigError
from headgate.message.constructors import AmqpType

INTEGER_RANGES: dict[AmqpType, tuple[int, int]] = {
    AmqpType.UBYTE: (0, 2**8 - 1),
    AmqpType.USHORT: (0, 2**16 - 1),
    AmqpType.UINT: (0, 2**32 - 1),
    AmqpType.ULONG: (0, 2**64 - 1),
    AmqpType.BYTE: (-(2**7), 2**7 - 1),
    AmqpType.SHORT: (-(2**15), 2**15 - 1),
    AmqpType.INT: (-(2**31), 2**31 - 1),
    AmqpType.LONG: (-(2**63), 2**63 - 1),
    AmqpType.CHAR: (0, 2**32 - 1),
    AmqpType.TIMESTAMP: (-(2**63), 2**63 - 1),
}
"""Smallest and greatest value of the types that hold a Python int."""

DECIMAL_SIZES: dict[AmqpType, int] = {AmqpType.DECIMAL32: 4, AmqpType.DECIMAL64: 8, AmqpType.DECIMAL128: 16}
"""Bytes of the opaque decimal types."""

_FLOATS = frozenset({AmqpType.FLOAT, AmqpType.DOUBLE})


@dataclass(frozen=True, slots=True, eq=False)
class AmqpValue:
    """One value with its exact type; the head of this module lists the Python types of `value`.

    Raises `ConfigError` for a value that the type cannot hold. Equal means: same type and same value, so int 5 does not
    equal long 5, 0.0 does not equal -0.0, and NaN equals NaN.
    """

    type: AmqpType
    value: Any

    def __post_init__(self) -> None:
        holds, takes = _HOLDS[self.type]
        if not holds(self):
            raise ConfigError(f"{self.type.value} takes {takes}, found {_shown(self.value)}")
        if self.type is AmqpType.FLOAT:
            object.__setattr__(self, "value", _narrowed(self.value))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AmqpValue):
            return NotImplemented
        return self.type is other.type and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((self.type, self._identity()))

    def _identity(self) -> object:
        if self.type in _FLOATS:
            return "NaN" if math.isnan(self.value) else struct.pack(">d", self.value)
        return self.value

    def octets(self) -> bytes | None:
        """The bytes of a string, symbol, binary or uuid; None for the other types."""
        if isinstance(self.value, str):
            return self.value.encode("utf-8", "surrogateescape")
        if isinstance(self.value, uuid.UUID):
            return self.value.bytes
        return self.value if self.type is AmqpType.BINARY else None

    def text(self) -> str | None:
        """The text of a string, symbol or char; None for the other types, and for bytes that are not Unicode text."""
        if self.type is AmqpType.CHAR:
            is_character = self.value <= 0x10FFFF and not 0xD800 <= self.value <= 0xDFFF
            return chr(self.value) if is_character else None
        try:
            return (self.octets() or b"").decode() if isinstance(self.value, str) else None
        except UnicodeDecodeError:
            return None


@dataclass(frozen=True, slots=True)
class AmqpArray:
    """Elements of one type: `of`, each described by `descriptor` if that is given (`elements` are the plain values)."""

    of: AmqpType
    elements: tuple[AmqpValue, ...]
    descriptor: AmqpValue | None = None

    def __post_init__(self) -> None:
        if self.of is AmqpType.DESCRIBED:
            raise ConfigError("an array of described elements has a descriptor and the type of the plain elements")
        for element in self.elements:
            if element.type is not self.of:
                raise ConfigError(f"an array of {self.of.value} cannot hold a {element.type.value}")


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor in front (a symbol or ulong by convention, any value by the standard)."""

    descriptor: AmqpValue
    value: AmqpValue


def _is(kind: type) -> Callable[[AmqpValue], bool]:
    return lambda typed: type(typed.value) is kind


def _is_integer(typed: AmqpValue) -> bool:
    low, high = INTEGER_RANGES[typed.type]
    return type(typed.value) is int and low <= typed.value <= high


def _is_decimal(typed: AmqpValue) -> bool:
    return type(typed.value) is bytes and len(typed.value) == DECIMAL_SIZES[typed.type]


def _is_values(typed: AmqpValue) -> bool:
    return typed.value is None or (
        type(typed.value) is tuple and all(isinstance(member, AmqpValue) for member in typed.value)
    )


def _is_pairs(typed: AmqpValue) -> bool:
    return typed.value is None or (
        type(typed.value) is tuple
        and all(
            type(pair) is tuple and len(pair) == 2 and all(isinstance(member, AmqpValue) for member in pair)
            for pair in typed.value
        )
    )


def _is_text(typed: AmqpValue) -> bool:
    if type(typed.value) is not str:
        return False
    try:
        typed.value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


_HOLDS: dict[AmqpType, tuple[Callable[[AmqpValue], bool], str]] = {
    AmqpType.NULL: (lambda typed: typed.value is None, "None"),
    AmqpType.BOOLEAN: (_is(bool), "a bool"),
    **{kind: (_is_integer, f"an int from {low} to {high}") for kind, (low, high) in INTEGER_RANGES.items()},
    AmqpType.FLOAT: (_is(float), "a float"),
    AmqpType.DOUBLE: (_is(float), "a float"),
    **{kind: (_is_decimal, f"{size} bytes") for kind, size in DECIMAL_SIZES.items()},
    AmqpType.UUID: (_is(uuid.UUID), "a uuid.UUID"),
    AmqpType.BINARY: (_is(bytes), "bytes"),
    AmqpType.STRING: (_is_text, "a str"),
    AmqpType.SYMBOL: (_is_text, "a str"),
    AmqpType.LIST: (_is_values, "a tuple of AmqpValue"),
    AmqpType.MAP: (_is_pairs, "a tuple of pairs of AmqpValue"),
    AmqpType.ARRAY: (lambda typed: typed.value is None or isinstance(typed.value, AmqpArray), "an AmqpArray"),
    AmqpType.DESCRIBED: (lambda typed: typed.value is None or isinstance(typed.value, Described), "a Described"),
}
"""Per type: whether it can hold the value, and the accepted values, in words."""

NULL = AmqpValue(AmqpType.NULL, None)
TRUE = AmqpValue(AmqpType.BOOLEAN, True)
FALSE = AmqpValue(AmqpType.BOOLEAN, False)

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def amqp_value(plain: object) -> AmqpValue:
    """The AMQP value of a plain Python value; an AmqpValue is itself.

    None null, bool boolean, int long (ulong from 2**63), float double, str string, bytes binary, UUID uuid, datetime
    with a time zone timestamp (milliseconds, rounded down), list and tuple list, mapping map (str keys are strings).
    Raises `ConfigError` for anything else.
    """
    match plain:
        case AmqpValue():
            return plain
        case None:
            return NULL
        case bool():
            return TRUE if plain else FALSE
        case int():
            return AmqpValue(AmqpType.LONG if plain < 2**63 else AmqpType.ULONG, int(plain))
        case float():
            return AmqpValue(AmqpType.DOUBLE, float(plain))
        case str():
            return AmqpValue(AmqpType.STRING, str(plain))
        case bytes() | bytearray() | memoryview():
            return AmqpValue(AmqpType.BINARY, bytes(plain))
        case uuid.UUID():
            return AmqpValue(AmqpType.UUID, plain)
        case datetime.datetime():
            return AmqpValue(AmqpType.TIMESTAMP, timestamp_ms(plain))
        case list() | tuple():
            return AmqpValue(AmqpType.LIST, tuple(amqp_value(member) for member in plain))
        case Mapping():
            return AmqpValue(AmqpType.MAP, tuple((amqp_value(key), amqp_value(value)) for key, value in plain.items()))
        case _:
            raise ConfigError(f"no AMQP type for a {type(plain).__name__}; give an AmqpValue")


def timestamp_ms(moment: datetime.datetime) -> int:
    """Milliseconds since the epoch, rounded down. Raises `ConfigError` for a datetime without time zone."""
    if moment.tzinfo is None:
        raise ConfigError(f"{moment.isoformat()} has no time zone; give one, for example datetime.UTC")
    return (moment - _EPOCH) // datetime.timedelta(milliseconds=1)


def _narrowed(value: float) -> float:
    try:
        narrowed: float = struct.unpack(">f", struct.pack(">f", value))[0]
    except OverflowError:
        raise ConfigError(f"float takes what 32 bits can hold, found {value!r}") from None
    return narrowed


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
