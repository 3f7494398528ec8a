"""Bodies of Avro. Source: Apache Avro 1.12, binary encoding.

fastavro checks schemas. Bodies are read here: its reader takes numbers below zero for branches of unions and symbols of
enums, which it counts from the end, and has limits neither of levels nor of items. So the levels of a schema are
limited, types do not contain themselves, items take bytes, and values are counted while a body is read.
"""

from __future__ import annotations

import decimal
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from headgate.errors import ConfigError
from headgate.message.json_body import MAX_DIGITS, MAX_JSON_BYTES

if TYPE_CHECKING:
    from headgate.message.body_schema.schema import Decode

_MAX_LEVELS = 64
_MAX_DECIMAL_BYTES = 208
"""A number of `MAX_DIGITS` digits fits; a longer one has no value."""

_MOST_VALUES = MAX_JSON_BYTES // 2
"""More do not fit into the longest document."""
_VALUES_OF_A_BYTE = 100
"""More than the levels of a schema: only types that take no bytes give a body more values, and work, than this."""
_VALUES_OF_NO_BYTES = 1000

_MOST_BITS = 64
_exact = decimal.Context(prec=2 * MAX_DIGITS, Emin=-100_000, Emax=100_000)
_BOOLEANS = {b"\0": False, b"\1": True}
_float, _double = struct.Struct("<f"), struct.Struct("<d")


def decoder(content: bytes) -> Decode:
    """The decoder of a schema. Raises ConfigError."""
    try:
        import fastavro
        from fastavro.schema import SchemaParseException, UnknownType
    except ImportError as error:
        raise ConfigError("schemas of Avro need fastavro: pip install headgate[avro]") from error
    try:
        stated = json.loads(content, object_hook=_without_hints)
        # First: the library's own functions call themselves without a limit.
        whole = _Schema().type(stated, "", 0)
        fastavro.parse_schema(stated)
    except KeyError as error:
        raise ConfigError(f"not a schema of Avro: a type without {error}") from error
    except (ValueError, SchemaParseException, UnknownType, RecursionError, TypeError, AttributeError) as error:
        raise ConfigError(f"not a schema of Avro: {error or type(error).__name__}") from error

    def decode(body: bytes) -> object:
        octets = _Octets(body)
        value = whole.read(octets)
        if octets.position != len(body):
            raise ValueError("bytes behind the value")
        return value

    return decode


def _without_hints(stated: dict[str, Any]) -> dict[str, Any]:
    """An object without names that are the library's own, for its notes on schemas."""
    return {name: value for name, value in stated.items() if not name.startswith("__")}


class _Octets:
    """A body that is read from its beginning on. Methods raise an error for bytes that are not what is asked for."""

    __slots__ = ("_data", "_left", "position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = min(_MOST_VALUES, _VALUES_OF_NO_BYTES + _VALUES_OF_A_BYTE * len(data))
        self.position = 0

    def count(self, values: int) -> None:
        """Take note of more values; ValueError if the body has more than its bytes allow."""
        self._left -= values
        if self._left < 0:
            raise ValueError("more values than the bytes of the body allow")

    def taken(self, size: int) -> bytes:
        """The next bytes."""
        stop = self.position + size
        if size < 0 or stop > len(self._data):
            raise ValueError("bytes are missing")
        found = self._data[self.position : stop]
        self.position = stop
        return found

    def long(self) -> int:
        """A number of 64 bits: seven of them in a byte, the least ones first, and the sign in the least one."""
        byte = self._data[self.position]
        self.position += 1
        number, shift = byte & 0x7F, 7
        while byte > 0x7F:
            byte = self._data[self.position]
            self.position += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if number >> _MOST_BITS or shift > _MOST_BITS + 6:
                raise ValueError("more than 64 bits")
        return number >> 1 ^ -(number & 1)

    def number(self, stop: int) -> int:
        """A number from 0 to `stop`, that not included."""
        found = self.long()
        if not 0 <= found < stop:
            raise ValueError("the schema has no such branch or symbol")
        return found

    def blocks(self) -> Iterator[int]:
        """How many items each block of an array or map has, which are read before the next is asked for."""
        while items := self.long():
            size = self.long() if items < 0 else None
            start = self.position
            self.count(abs(items))
            yield abs(items)
            if size is not None and self.position - start != size:
                raise ValueError("a block of another size than it says")


_Read: TypeAlias = Callable[[_Octets], object]


@dataclass(slots=True, frozen=True)
class _Type:
    """How a type is read, the records, arrays and maps inside each other in it, and whether its values take bytes."""

    read: _Read
    levels: int = 0
    takes_bytes: bool = True


class _Schema:
    """The types that a schema states, with what names in it stand for; refuses what a body could misuse."""

    def __init__(self) -> None:
        self._within: list[str] = []
        self._named: dict[str, _Type] = {}

    def type(self, stated: Any, namespace: str, level: int) -> _Type:
        """The type that a part within `namespace` states."""
        _check_levels(level)
        if isinstance(stated, list):
            return _union([self.type(branch, namespace, level + 1) for branch in stated])
        if isinstance(stated, str):
            return _PRIMITIVES.get(stated) or self._of_name(stated, namespace)
        kind = stated["type"]
        if isinstance(kind, (dict, list)):
            return self.type(kind, namespace, level + 1)
        if kind == "array":
            return _array(self.type(stated["items"], namespace, level + 1))
        if kind == "map":
            return _map(self.type(stated["values"], namespace, level + 1))
        if kind in ("record", "error"):
            return self._record(stated, namespace, level)
        if kind in ("enum", "fixed"):
            found = _enum(stated["symbols"]) if kind == "enum" else _fixed(stated["size"])
        else:
            found = self.type(kind, namespace, level)
        if stated.get("logicalType") == "decimal" and kind in ("bytes", "fixed"):
            found = _decimal(found, int(stated.get("scale", 0)))
        if kind in ("enum", "fixed"):
            self._named[_full_name(stated["name"], stated.get("namespace", namespace))] = found
        return found

    def _of_name(self, stated: str, namespace: str) -> _Type:
        name = _full_name(stated, namespace)
        if name in self._within:
            raise ConfigError(
                f"the type {stated} contains itself; such schemas of Avro are refused, since a body could nest "
                "without end"
            )
        if name not in self._named:
            raise ConfigError(f"not a schema of Avro: found the type {stated!r}, which nothing in front of it states")
        return self._named[name]

    def _record(self, stated: dict[str, Any], namespace: str, level: int) -> _Type:
        name = _full_name(stated["name"], stated.get("namespace", namespace))
        inner = name.rpartition(".")[0]
        self._within.append(name)
        types = {field["name"]: self.type(field["type"], inner, level + 1) for field in stated["fields"]}
        self._within.pop()
        fields = tuple((field, each.read) for field, each in types.items())

        def read(octets: _Octets) -> object:
            octets.count(1 + len(fields))
            return {field: read_field(octets) for field, read_field in fields}

        found = _nested(read, *types.values(), takes_bytes=any(each.takes_bytes for each in types.values()))
        self._named[name] = found
        return found


def _check_levels(levels: int) -> None:
    if levels > _MAX_LEVELS:
        raise ConfigError(f"the schema of Avro has more than {_MAX_LEVELS} levels")


def _nested(read: _Read, *inner: _Type, takes_bytes: bool = True) -> _Type:
    levels = 1 + max((each.levels for each in inner), default=0)
    _check_levels(levels)
    return _Type(read, levels, takes_bytes)


def _union(branches: list[_Type]) -> _Type:
    reads = [each.read for each in branches]

    def read(octets: _Octets) -> object:
        return reads[octets.number(len(reads))](octets)

    return _Type(read, max((each.levels for each in branches), default=0))


def _array(items: _Type) -> _Type:
    if not items.takes_bytes:
        raise ConfigError("the schema of Avro has an array whose items take no bytes: a body could claim any number")
    read_item = items.read

    def read(octets: _Octets) -> object:
        octets.count(1)
        return [read_item(octets) for count in octets.blocks() for _ in range(count)]

    return _nested(read, items)


def _map(values: _Type) -> _Type:
    read_value = values.read

    def read(octets: _Octets) -> object:
        octets.count(1)
        return {_string(octets): read_value(octets) for count in octets.blocks() for _ in range(count)}

    return _nested(read, values)


def _enum(symbols: list[str]) -> _Type:
    return _Type(lambda octets: symbols[octets.number(len(symbols))])


def _fixed(size: int) -> _Type:
    return _Type(lambda octets: octets.taken(size), takes_bytes=bool(size))


def _decimal(of: _Type, scale: int) -> _Type:
    def read(octets: _Octets) -> object:
        data = of.read(octets)
        assert isinstance(data, bytes)
        if len(data) > _MAX_DECIMAL_BYTES:
            return None
        return decimal.Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _exact)

    return _Type(read, takes_bytes=of.takes_bytes)


def _null(_octets: _Octets) -> object:
    return None


def _boolean(octets: _Octets) -> object:
    return _BOOLEANS[octets.taken(1)]


def _int(octets: _Octets) -> object:
    found = octets.long()
    if not -(2**31) <= found < 2**31:
        raise ValueError("more than 32 bits")
    return found


def _bytes(octets: _Octets) -> bytes:
    return octets.taken(octets.long())


def _string(octets: _Octets) -> str:
    return _bytes(octets).decode()


_PRIMITIVES = {
    "null": _Type(_null, takes_bytes=False),
    "boolean": _Type(_boolean),
    "int": _Type(_int),
    "long": _Type(_Octets.long),
    "float": _Type(lambda octets: _float.unpack(octets.taken(_float.size))[0]),
    "double": _Type(lambda octets: _double.unpack(octets.taken(_double.size))[0]),
    "bytes": _Type(_bytes),
    "string": _Type(_string),
}


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
