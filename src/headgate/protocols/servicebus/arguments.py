"""Reading the maps of requests; every wrong entry is a ConfigError that names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from headgate.errors import ConfigError
from headgate.message import NULL, AmqpType, AmqpValue

Arguments: TypeAlias = Mapping[str, AmqpValue]

TEXTS = (AmqpType.STRING, AmqpType.SYMBOL)
INTEGERS = frozenset(
    {AmqpType.UBYTE, AmqpType.USHORT, AmqpType.UINT, AmqpType.ULONG}
    | {AmqpType.BYTE, AmqpType.SHORT, AmqpType.INT, AmqpType.LONG}
)


def entries(value: AmqpValue, what: str) -> dict[str, AmqpValue]:
    """The entries of a map, by keys that are strings or symbols."""
    if value.type is not AmqpType.MAP:
        raise ConfigError(f"{what} is a map, found {value.type.value}")
    found: dict[str, AmqpValue] = {}
    for key, member in value.value:
        if key.type not in TEXTS:
            raise ConfigError(f"keys of {what} are strings, found {key.type.value}")
        found[key.value] = member
    return found


def optional_map(given: Arguments, name: str) -> dict[str, AmqpValue] | None:
    """A map; None where it is null or not there."""
    value = given.get(name, NULL)
    return None if value.type is AmqpType.NULL else entries(value, name)


def text(given: Arguments, name: str) -> str:
    """A string or a symbol."""
    value = given.get(name, NULL)
    if value.type not in TEXTS:
        raise ConfigError(f"{name} is a string, found {value.type.value}")
    found: str = value.value
    return found


def optional_text(given: Arguments, name: str) -> str | None:
    """The same; None where it is null or not there."""
    return None if given.get(name, NULL).type is AmqpType.NULL else text(given, name)


def integer(given: Arguments, name: str, *, default: int | None = None) -> int:
    """An integer of any width; the default where it is null or not there."""
    value = given.get(name, NULL)
    if value.type is AmqpType.NULL and default is not None:
        return default
    if value.type not in INTEGERS:
        raise ConfigError(f"{name} is an integer, found {value.type.value}")
    return int(value.value)
