"""AMQP values and messages as JSON.

*Typed* JSON keeps the exact type: `{"t": type, "v": value}`, the form of the test tables.

    null                 no "v"
    float, double        a number, or "NaN", "Infinity", "-Infinity"
    char                 the character (its number if Unicode has none)
    timestamp            milliseconds since the epoch
    uuid                 its text
    binary, decimals     "hex" instead of "v"; so are strings and symbols that are not UTF-8
    list                 typed values
    map                  [key, value] pairs of typed values
    array                "of" (type of the elements) and in "v" the elements without their type ({"hex": …} where there
                         is no "v"); "descriptor" (typed) if they are described
    described            "descriptor" and "v", both typed

*Plain* JSON is for reading: a number, text, list or object, {"hex": …} for other bytes; types are lost.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from typing import Any, TypeAlias

from headgate.errors import ConfigError
from headgate.message.constructors import AmqpType
from headgate.message.types import DECIMAL_SIZES, AmqpArray, AmqpValue, Described

Json: TypeAlias = Any
"""A value of `json.loads`: None, bool, int, float, str, list or dict with str keys."""

_FLOATS = (AmqpType.FLOAT, AmqpType.DOUBLE)
_TEXTS = (AmqpType.STRING, AmqpType.SYMBOL)
_TYPES = {kind.value: kind for kind in AmqpType}


def to_json(value: AmqpValue) -> dict[str, Json]:
    """The typed JSON of a value."""
    held = value.value
    match value.type:
        case AmqpType.NULL:
            content: dict[str, Json] = {}
        case AmqpType.LIST:
            content = {"v": [to_json(member) for member in held]}
        case AmqpType.MAP:
            content = {"v": [[to_json(key), to_json(member)] for key, member in held]}
        case AmqpType.ARRAY:
            content = {"of": held.of.value, "v": [_raw(element) for element in held.elements]}
            if held.descriptor is not None:
                content["descriptor"] = to_json(held.descriptor)
        case AmqpType.DESCRIBED:
            content = {"descriptor": to_json(held.descriptor), "v": to_json(held.value)}
        case _:
            plain = plain_json(value)
            content = plain if isinstance(plain, dict) else {"v": plain}
    return {"t": value.type.value, **content}


def _raw(element: AmqpValue) -> Json:
    typed = to_json(element)
    del typed["t"]
    return typed["v"] if typed.keys() == {"v"} else typed or None


def plain_json(value: AmqpValue) -> Json:
    """JSON for reading: the value without its type."""
    held = value.value
    match value.type:
        case AmqpType.FLOAT | AmqpType.DOUBLE:
            if math.isfinite(held):
                return held
            return "NaN" if math.isnan(held) else "Infinity" if held > 0 else "-Infinity"
        case AmqpType.CHAR:
            character = value.text()
            return held if character is None else character
        case AmqpType.UUID:
            return str(held)
        case AmqpType.STRING | AmqpType.SYMBOL:
            text = value.text()
            return {"hex": (value.octets() or b"").hex()} if text is None else text
        case AmqpType.BINARY | AmqpType.DECIMAL32 | AmqpType.DECIMAL64 | AmqpType.DECIMAL128:
            return {"hex": held.hex()}
        case AmqpType.LIST:
            return [plain_json(member) for member in held]
        case AmqpType.MAP:
            return _plain_map(held)
        case AmqpType.ARRAY:
            return [plain_json(element) for element in held.elements]
        case AmqpType.DESCRIBED:
            return plain_json(held.value)
        case _:
            return held


def _plain_map(pairs: tuple[tuple[AmqpValue, AmqpValue], ...]) -> Json:
    """An object where every key is a different text; else a list of [key, value] pairs."""
    keys = [plain_json(key) for key, _ in pairs]
    values = [plain_json(value) for _, value in pairs]
    if all(isinstance(key, str) for key in keys) and len(set(keys)) == len(keys):
        return dict(zip(keys, values, strict=True))
    return [list(pair) for pair in zip(keys, values, strict=True)]


def from_json(typed: Json) -> AmqpValue:
    """The value of typed JSON. Raises `ConfigError` with the reason."""
    if not isinstance(typed, dict) or not isinstance(typed.get("t"), str):
        raise ConfigError(f'a typed value is {{"t": type, "v": value}}, found {_shown(typed)}')
    kind = _TYPES.get(typed["t"])
    if kind is None:
        raise ConfigError(f"no AMQP type {typed['t']!r}; types are {', '.join(_TYPES)}")
    expected = _expected_keys(kind, typed)
    if typed.keys() - {"t"} != expected:
        wanted = ", ".join(f'"{key}"' for key in sorted(expected)) or "nothing"
        raise ConfigError(f'a typed {kind.value} has {wanted} beside "t", found {_shown(typed)}')
    match kind:
        case AmqpType.LIST:
            return AmqpValue(kind, tuple(from_json(member) for member in _list(typed)))
        case AmqpType.MAP:
            return AmqpValue(kind, tuple(_pair(pair) for pair in _list(typed)))
        case AmqpType.ARRAY:
            return AmqpValue(kind, _array(typed))
        case AmqpType.DESCRIBED:
            return AmqpValue(kind, Described(from_json(typed["descriptor"]), from_json(typed["v"])))
    return _scalar(kind, typed)


def _expected_keys(kind: AmqpType, typed: Mapping[str, Json]) -> set[str]:
    match kind:
        case AmqpType.NULL:
            return set()
        case AmqpType.ARRAY:
            return {"of", "v", "descriptor"} if "descriptor" in typed else {"of", "v"}
        case AmqpType.DESCRIBED:
            return {"descriptor", "v"}
        case AmqpType.BINARY:
            return {"hex"}
    if kind in DECIMAL_SIZES or (kind in _TEXTS and "hex" in typed):
        return {"hex"}
    return {"v"}


def _list(typed: Mapping[str, Json]) -> list[Json]:
    members = typed["v"]
    if not isinstance(members, list):
        raise ConfigError(f'"v" of a typed {typed["t"]} is a list, found {_shown(members)}')
    return members


def _pair(pair: Json) -> tuple[AmqpValue, AmqpValue]:
    if not isinstance(pair, list) or len(pair) != 2:
        raise ConfigError(f"a typed map holds [key, value] pairs, found {_shown(pair)}")
    return from_json(pair[0]), from_json(pair[1])


def _array(typed: Mapping[str, Json]) -> AmqpArray:
    kind = _TYPES.get(typed["of"]) if isinstance(typed["of"], str) else None
    if kind is None:
        raise ConfigError(f"no AMQP type {_shown(typed['of'])}; types are {', '.join(_TYPES)}")
    elements = []
    for raw in _list(typed):
        content = {} if kind is AmqpType.NULL else raw if isinstance(raw, dict) else {"v": raw}
        if kind is AmqpType.NULL and raw is not None:
            raise ConfigError(f"an array of nulls holds null, found {_shown(raw)}")
        elements.append(from_json({**content, "t": kind.value}))
    descriptor = from_json(typed["descriptor"]) if "descriptor" in typed else None
    return AmqpArray(kind, tuple(elements), descriptor)


def _scalar(kind: AmqpType, typed: Mapping[str, Json]) -> AmqpValue:
    if "hex" in typed:
        octets = from_hex(typed["hex"])
        return AmqpValue(kind, octets.decode("utf-8", "surrogateescape") if kind in _TEXTS else octets)
    held = typed.get("v")
    if kind in _FLOATS:
        if type(held) is int or held in ("NaN", "Infinity", "-Infinity"):
            try:
                held = float(held)
            except OverflowError:
                raise ConfigError(f"{kind.value} takes a float, found {_shown(held)}") from None
    elif kind is AmqpType.CHAR and isinstance(held, str) and len(held) == 1:
        held = ord(held)
    elif kind is AmqpType.UUID and isinstance(held, str):
        try:
            held = uuid.UUID(held)
        except ValueError:
            raise ConfigError(f"{held!r} is no uuid") from None
    return AmqpValue(kind, held)


def from_hex(text: Json) -> bytes:
    """The bytes of pairs of hex digits. Raises `ConfigError`."""
    try:
        return bytes.fromhex(text)
    except (TypeError, ValueError):
        raise ConfigError(f"pairs of hex digits expected, found {_shown(text)}") from None


def from_plain_or_typed(json: Json) -> object:
    """A value for `Message`: an `AmqpValue` for typed JSON, bytes for `{"hex": …}`, else the JSON itself.

    An object is typed JSON if it has the key "t".
    """
    if isinstance(json, dict):
        if "t" in json:
            return from_json(json)
        if json.keys() == {"hex"}:
            return from_hex(json["hex"])
        return {key: from_plain_or_typed(value) for key, value in json.items()}
    if isinstance(json, list):
        return [from_plain_or_typed(member) for member in json]
    return json


def _shown(json: Json) -> str:
    text = repr(json)
    return text if len(text) <= 80 else text[:79] + "…"
