"""Bodies of Avro, by fastavro. Source: Apache Avro 1.12, binary encoding.

The library's reader is compiled and has limits neither of levels nor of items. So the levels of a schema are limited,
types do not contain themselves, items take bytes, and values are counted while a body is read.
"""

from __future__ import annotations

import decimal
import io
import json
import threading
from typing import TYPE_CHECKING, Any

from headgate.errors import ConfigError
from headgate.message.json_body import MAX_DIGITS, MAX_JSON_BYTES

if TYPE_CHECKING:
    from headgate.message.body_schema.schema import Decode

_DECIMAL = "headgate-decimal"
_COUNTED = "headgate-counted"
_CONTAINERS = ("record", "error", "array", "map")
_MAX_LEVELS = 64
_MAX_DECIMAL_BYTES = 208
"""A number of `MAX_DIGITS` digits fits; a longer one has no value."""

_MOST_VALUES = MAX_JSON_BYTES // 2
"""More do not fit into the longest document."""
_VALUES_OF_A_BYTE = 100
"""More than the levels of a schema: only types that take no bytes give a body more values, and work, than this."""
_VALUES_OF_NO_BYTES = 1000

_exact = decimal.Context(prec=2 * MAX_DIGITS, Emin=-100_000, Emax=100_000)


def decoder(content: bytes) -> Decode:
    """The decoder of a schema. Raises ConfigError."""
    try:
        import fastavro
        from fastavro.read import LOGICAL_READERS
        from fastavro.schema import SchemaParseException, UnknownType
    except ImportError as error:
        raise ConfigError("schemas of Avro need fastavro: pip install headgate[avro]") from error
    for kind in ("bytes", "fixed"):
        LOGICAL_READERS[f"{kind}-{_DECIMAL}"] = _decimal
    for kind in _CONTAINERS:
        LOGICAL_READERS[f"{kind}-{_COUNTED}"] = _counted
    try:
        stated = json.loads(content, object_hook=_without_hints)
        # First: the library's own functions call themselves without a limit, too.
        checked = _Checked().whole(stated)
        fastavro.parse_schema(stated)
        schema = fastavro.parse_schema(checked)
    except KeyError as error:
        raise ConfigError(f"not a schema of Avro: a type without {error}") from error
    except (ValueError, SchemaParseException, UnknownType, RecursionError, TypeError, AttributeError) as error:
        raise ConfigError(f"not a schema of Avro: {error or type(error).__name__}") from error

    def decode(body: bytes) -> object:
        _count.left = min(_MOST_VALUES, _VALUES_OF_NO_BYTES + _VALUES_OF_A_BYTE * len(body))
        file = io.BytesIO(body)
        value = fastavro.schemaless_reader(file, schema, None)
        if file.tell() != len(body):
            raise ValueError("bytes behind the value")
        return value

    return decode


def _without_hints(stated: dict[str, Any]) -> dict[str, Any]:
    """An object without names that are the library's own, for its notes on schemas."""
    return {name: value for name, value in stated.items() if not name.startswith("__")}


def _decimal(data: bytes, writer_schema: dict[str, Any] | None, reader_schema: object = None) -> decimal.Decimal | None:
    if len(data) > _MAX_DECIMAL_BYTES:
        return None
    number = decimal.Decimal(int.from_bytes(data, "big", signed=True))
    return number.scaleb(-int((writer_schema or {}).get("scale", 0)), _exact)


class _Count(threading.local):
    """How many values the body that this thread decodes may still have."""

    left = 0


_count = _Count()


def _counted(data: Any, writer_schema: object = None, reader_schema: object = None) -> Any:
    """A record, array or map, read; ValueError if the body has more values than its bytes allow."""
    _count.left -= 1 + len(data)
    if _count.left < 0:
        raise ValueError("more values than the bytes of the body allow")
    return data


class _Checked:
    """A schema without the logical types that are kept as they are stored; refuses what a body could misuse."""

    def __init__(self) -> None:
        self._within: list[str] = []
        self._empty: set[str] = set()
        self._heights: dict[str, int] = {}

    def whole(self, stated: Any) -> Any:
        """The schema, checked."""
        checked = self.schema(stated, "", 0)
        self._check_height(self._height(checked, ""))
        return checked

    def schema(self, stated: Any, namespace: str, level: int) -> Any:
        """The schema, checked, of a part within `namespace`."""
        self._check_height(level)
        if isinstance(stated, list):
            return [self.schema(branch, namespace, level + 1) for branch in stated]
        if isinstance(stated, str):
            if _full_name(stated, namespace) in self._within:
                raise ConfigError(
                    f"the type {stated} contains itself; such schemas of Avro are refused, since a body could nest "
                    "without end"
                )
            return stated
        kind = stated["type"]
        if isinstance(kind, (dict, list)):
            return self.schema(kind, namespace, level + 1)
        logical = stated.get("logicalType")
        checked = {key: value for key, value in stated.items() if key not in ("logicalType", "default")}
        if logical == "decimal" and kind in ("bytes", "fixed"):
            checked["logicalType"] = _DECIMAL
        elif kind in _CONTAINERS:
            checked["logicalType"] = _COUNTED
        if kind == "array":
            checked["items"] = self.schema(stated["items"], namespace, level + 1)
            if self._is_empty(checked["items"], namespace):
                raise ConfigError(
                    "the schema of Avro has an array whose items take no bytes: a body could claim any number"
                )
        elif kind == "map":
            checked["values"] = self.schema(stated["values"], namespace, level + 1)
        elif kind in ("record", "error"):
            name = _full_name(stated["name"], stated.get("namespace", namespace))
            inner = name.rpartition(".")[0]
            self._within.append(name)
            checked["fields"] = [
                {"name": field["name"], "type": self.schema(field["type"], inner, level + 1)}
                for field in stated["fields"]
            ]
            self._within.pop()
            height = 1 + max((self._height(field["type"], inner) for field in checked["fields"]), default=0)
            self._check_height(height)
            self._heights[name] = height
            if all(self._is_empty(field["type"], inner) for field in checked["fields"]):
                self._empty.add(name)
        elif kind == "fixed" and not stated["size"]:
            self._empty.add(_full_name(stated["name"], stated.get("namespace", namespace)))
        return checked

    def _check_height(self, levels: int) -> None:
        if levels > _MAX_LEVELS:
            raise ConfigError(f"the schema of Avro has more than {_MAX_LEVELS} levels")

    def _height(self, checked: Any, namespace: str) -> int:
        """The levels of records, arrays and maps in a checked part."""
        if isinstance(checked, str):
            return self._heights.get(_full_name(checked, namespace), 0)
        if isinstance(checked, list):
            return max((self._height(branch, namespace) for branch in checked), default=0)
        if "name" in checked:
            return self._heights.get(_full_name(checked["name"], checked.get("namespace", namespace)), 0)
        inner = checked.get("items", checked.get("values"))
        return 0 if inner is None else 1 + self._height(inner, namespace)

    def _is_empty(self, checked: Any, namespace: str) -> bool:
        if isinstance(checked, str):
            return checked == "null" or _full_name(checked, namespace) in self._empty
        if isinstance(checked, list):
            return False
        if "name" in checked:
            return _full_name(checked["name"], checked.get("namespace", namespace)) in self._empty
        return bool(checked["type"] == "null")


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
