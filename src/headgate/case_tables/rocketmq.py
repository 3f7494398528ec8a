"""The cases of RocketMQ tables: expressions over property maps, tag expressions, hashes of tags.

A check returns when the case came out as the table says and raises `Disagreement` otherwise. Property maps become
messages as they are stored (`headgate.message.rocketmq`), so both engines decide them. A stored message has no empty
values; a map that has one is decided as the map that it is (`ValueRules.ROCKETMQ_MAP`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any

from headgate.case_tables.rabbitmq import Disagreement, Line, WrongLine, field
from headgate.errors import FilterError
from headgate.evaluate import Engine, Filter, Verdict
from headgate.language import bind, parse
from headgate.language.rocketmq import ROCKETMQ, ROCKETMQ_MAP, parse_tags, tag_hash
from headgate.message import AmqpType, AmqpValue, EncodedMessages, stored_message

TAG_KINDS = ("tagexpr", "taghash")
"""Kinds of lines about tags."""

_LETTERS = {Verdict.TRUE: "T", Verdict.FALSE: "F", Verdict.UNKNOWN: "N", Verdict.ERROR: "X"}
_EXCEPTION = "java.lang.RuntimeException: "
_TYPES = {
    "byte": AmqpType.BYTE,
    "short": AmqpType.SHORT,
    "int": AmqpType.INT,
    "long": AmqpType.LONG,
    "float": AmqpType.FLOAT,
    "double": AmqpType.DOUBLE,
    "bool": AmqpType.BOOLEAN,
    "string": AmqpType.STRING,
}


@dataclass(slots=True)
class PropertyMaps:
    """The maps of a table, in the order of their lines."""

    ids: list[str] = dataclass_field(default_factory=list)
    messages: list[bytes] = dataclass_field(default_factory=list)
    has_empty_value: list[bool] = dataclass_field(default_factory=list)

    def add(self, content: Line) -> None:
        """The map of a `map` line: `props`, or `typed`. Raises WrongLine, ConfigError."""
        name_of_map = field(content, "id", str)
        properties: Mapping[str, object]
        if "typed" in content:
            properties = {name: _typed(name, given) for name, given in field(content, "typed", dict).items()}
        else:
            properties = field(content, "props", dict)
            for name, value in properties.items():
                if not isinstance(value, str):
                    raise WrongLine(f"property {name!r}: found {value!r}, expected a text")
        self.messages.append(stored_message(properties).encode())
        self.ids.append(name_of_map)
        self.has_empty_value.append(any(value in ("", AmqpValue(AmqpType.STRING, "")) for value in properties.values()))

    def verdicts(self, text: str, engine: Engine, now_ms: int) -> str:
        """One letter per map, as tables write verdicts. Raises FilterError for an expression that is refused."""
        letters = [""] * len(self.ids)
        for dialect, of_empty_values in ((ROCKETMQ, False), (ROCKETMQ_MAP, True)):
            filter = Filter(bind(parse(text, dialect), dialect, text), text, ROCKETMQ.name)
            rows = [row for row, has_empty in enumerate(self.has_empty_value) if has_empty is of_empty_values]
            batch = EncodedMessages.of(self.messages[row] for row in rows)
            found = filter.verdicts(batch, now_ms=now_ms, engine=engine)
            for row, verdict in zip(rows, found, strict=True):
                letters[row] = _LETTERS[Verdict(int(verdict))]
        return "".join(letters)


def _typed(name: str, given: Any) -> AmqpValue:
    if not isinstance(given, dict) or given.get("t") not in _TYPES or not isinstance(given.get("v"), str):
        raise WrongLine(f"property {name!r}: found {given!r}, expected t (one of {', '.join(_TYPES)}) and v, a text")
    kind, text = _TYPES[given["t"]], given["v"]
    try:
        match kind:
            case AmqpType.STRING:
                return AmqpValue(kind, text)
            case AmqpType.BOOLEAN:
                return AmqpValue(kind, {"true": True, "false": False}[text])
            case AmqpType.FLOAT | AmqpType.DOUBLE:
                return AmqpValue(kind, float(text))
            case _:
                return AmqpValue(kind, int(text))
    except (KeyError, ValueError):
        raise WrongLine(f"property {name!r}: found {text!r}, expected a {given['t']}") from None


def check_expression(content: Line, maps: PropertyMaps, engines: tuple[Engine, ...], now_ms: int) -> None:
    """A case of kind `expr`: whether it compiles, the reason if it does not and tables fix it, all verdicts if it does.

    Of failures only the texts of RuntimeException are fixed; that of a parser is every system's own.
    """
    text, outcome = field(content, "expr", str), field(content, "compile", str)
    if outcome not in ("ok", "error"):
        raise WrongLine(f"key 'compile': found {outcome!r}, expected ok or error")
    if outcome == "error":
        _check_refused(content, text, maps, now_ms)
        return
    expected = field(content, "r", str)
    if len(expected) != len(maps.ids) or set(expected) - set(_LETTERS.values()):
        raise WrongLine(f"key 'r': found {expected!r}, expected a T, F, N or X for each of {len(maps.ids)} maps")
    for engine in engines:
        try:
            got = maps.verdicts(text, engine, now_ms)
        except FilterError as error:
            raise Disagreement("compiles", f"refused: {error.reason}") from None
        if got != expected:
            differing = [name for name, one, other in zip(maps.ids, expected, got, strict=True) if one != other]
            raise Disagreement(expected, f"{got}; differing: {', '.join(differing)}", engine.value)


def _check_refused(content: Line, text: str, maps: PropertyMaps, now_ms: int) -> None:
    try:
        maps.verdicts(text, Engine.REFERENCE, now_ms)
    except FilterError as error:
        expected = content.get("error")
        if content.get("error_class") == "RuntimeException" and expected != _EXCEPTION + error.reason:
            raise Disagreement(f"refused: {expected}", f"refused: {error.reason}") from None
        return
    raise Disagreement("refused", "compiles")


def check_tags(content: Line) -> None:
    """A case of kind `taghash` or `tagexpr`."""
    if content["kind"] == "taghash":
        code, expected_code = tag_hash(field(content, "tag", str)), field(content, "code", int)
        if code != expected_code:
            raise Disagreement(f"code {expected_code}", f"code {code}")
        return
    try:
        expression = parse_tags(field(content, "expr", str))
    except FilterError as error:
        expected_error = content.get("error")
        if expected_error is None or not str(expected_error).endswith(error.reason):
            raise Disagreement(expected_error or "accepted", f"refused: {error.reason}") from None
        return
    if "error" in content:
        raise Disagreement(f"refused: {content['error']}", "accepted")
    found = {"sub": expression.text, "tags": sorted(expression.tags), "codes": list(expression.codes)}
    tags = sorted(map(str, field(content, "tags", list)))
    expected = {"sub": content.get("sub"), "tags": tags, "codes": content.get("codes")}
    if found != expected:
        raise Disagreement(expected, found)
