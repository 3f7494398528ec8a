"""Bodies of Avro, by fastavro. Source: Apache Avro 1.12, binary encoding.

The library's reader is compiled and calls itself for each level without a limit, so a schema in which a type contains
itself would let a body end the process. It reads as many items as a body claims, so items have to take bytes.
"""

from __future__ import annotations

import decimal
import io
import json
from typing import TYPE_CHECKING, Any

from headgate.errors import ConfigError
from headgate.message.json_body import MAX_DIGITS

if TYPE_CHECKING:
    from headgate.message.body_schema.schema import Decode

_DECIMAL = "headgate-decimal"
_MAX_LEVELS = 64
_MAX_DECIMAL_BYTES = 208
"""A number of `MAX_DIGITS` digits fits; a longer one has no value."""

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
    try:
        stated = json.loads(content)
        fastavro.parse_schema(stated)
        schema = fastavro.parse_schema(_Checked().schema(stated, "", 0))
    except (ValueError, SchemaParseException, UnknownType, RecursionError, KeyError, TypeError) as error:
        raise ConfigError(f"not a schema of Avro: {error or type(error).__name__}") from error

    def decode(body: bytes) -> object:
        file = io.BytesIO(body)
        value = fastavro.schemaless_reader(file, schema, None)
        if file.tell() != len(body):
            raise ValueError("bytes behind the value")
        return value

    return decode


def _decimal(data: bytes, writer_schema: dict[str, Any] | None, reader_schema: object = None) -> decimal.Decimal | None:
    if len(data) > _MAX_DECIMAL_BYTES:
        return None
    number = decimal.Decimal(int.from_bytes(data, "big", signed=True))
    return number.scaleb(-int((writer_schema or {}).get("scale", 0)), _exact)


class _Checked:
    """A schema without the logical types that are kept as they are stored; refuses what a body could misuse."""

    def __init__(self) -> None:
        self._within: list[str] = []
        self._empty: set[str] = set()

    def schema(self, stated: Any, namespace: str, level: int) -> Any:
        """The schema, checked, of a part within `namespace`."""
        if level > _MAX_LEVELS:
            raise ConfigError(f"the schema of Avro has more than {_MAX_LEVELS} levels")
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
            if all(self._is_empty(field["type"], inner) for field in checked["fields"]):
                self._empty.add(name)
        elif kind == "fixed" and not stated["size"]:
            self._empty.add(_full_name(stated["name"], stated.get("namespace", namespace)))
        return checked

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
