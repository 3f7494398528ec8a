"""The cases of Service Bus tables: SQL filters, correlation filters, actions, and the copies that sets of rules make.

A check returns when the case came out as the table says and raises `Disagreement` otherwise. User properties and system
properties of a line become a message; what a line says of properties afterwards is looked up as a filter would.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from headgate.case_tables.rabbitmq import Disagreement, Line, WrongLine, field
from headgate.errors import ConfigError, FilterError
from headgate.evaluate import Action, Engine, Filter, Verdict, changed_copies, copies_of, servicebus_value
from headgate.language import EvaluationFailed
from headgate.language.servicebus import ValueKind, kind_of, number_of, system_property, text_of, time_span, value_of
from headgate.message import NULL, AmqpType, AmqpValue, EncodedMessages, FieldReference, Message, Section, timestamp_ms

_DIALECT = "servicebus"
_PLACES = ("create", "evaluate", "either")
_VERDICTS = {"true": Verdict.TRUE, "false": Verdict.FALSE, "unknown": Verdict.UNKNOWN}
_NO_MATCH = (Verdict.FALSE, Verdict.UNKNOWN)
_TYPES = {
    "string": AmqpType.STRING,
    "int": AmqpType.INT,
    "long": AmqpType.LONG,
    "double": AmqpType.DOUBLE,
    "float": AmqpType.FLOAT,
    "bool": AmqpType.BOOLEAN,
}
_TICKS_PER_SECOND = 10_000_000


def check_sql_filter(content: Line, engines: tuple[Engine, ...], now_ms: int) -> None:
    """A case with `expression`: the verdict of an SQL filter, or where it goes wrong."""
    text, expected = field(content, "expression", str), field(content, "expect", str)
    message = _message(content)
    parameters = {name: _typed(name, value) for name, value in content.get("params", {}).items()}
    try:
        filter = Filter.parse(text, _DIALECT, parameters=parameters)
    except FilterError as error:
        _refused(content, expected, error)
        return
    if expected == "error":
        if _error_at(content) == "create":
            raise Disagreement("refused", "accepted")
        expected = "error of the evaluation"
    _check_verdict(filter, message, expected, engines, now_ms)


def check_correlation(content: Line, engines: tuple[Engine, ...], now_ms: int) -> None:
    """A case with `filter`: the verdict of a correlation filter; a wrong one is refused."""
    expected = field(content, "expect", str)
    message = _message(content)
    try:
        filter = _correlation(field(content, "filter", dict))
    except (FilterError, ConfigError) as error:
        if expected != "error":
            raise Disagreement("accepted", f"refused: {error}") from None
        return
    if expected == "error":
        raise Disagreement("refused", "accepted")
    _check_verdict(filter, message, expected, engines, now_ms)


def check_action(content: Line, engines: tuple[Engine, ...], now_ms: int) -> None:
    """A case with `action`: the properties of the copy, or where the action goes wrong."""
    text, expected = field(content, "action", str), field(content, "expect", str)
    message = _message(content)
    try:
        action = Action.parse(text)
    except FilterError as error:
        _refused(content, expected, error)
        return
    if expected == "error" and _error_at(content) == "create":
        raise Disagreement("refused", "accepted")
    batch, which, times = EncodedMessages.of([message.encode()]), np.array([0]), np.array([now_ms], dtype=np.int64)
    for engine in engines:
        made = changed_copies([(action, None)], which, batch, now_ms=times, identity_of=lambda row: b"", engine=engine)
        if len(made.failed):
            if expected != "error":
                raise Disagreement("a copy", f"error: {_failure(action, message, now_ms)}", engine.value)
            continue
        if expected == "error":
            raise Disagreement("an error", "a copy", engine.value)
        for wrong in _differences(content, Message.decode(made.messages.message(0))):
            raise Disagreement(*wrong, engine.value)


def _failure(action: Action, message: Message, now_ms: int) -> str:
    try:
        action.apply(message, now_ms=now_ms, identity=b"")
    except EvaluationFailed as failed:
        return str(failed)
    return "none, as the reference sees it"


@dataclass(frozen=True, slots=True)
class _Rule:
    name: str
    filter: Filter
    action: Action | None


def check_copies(content: Line, now_ms: int) -> None:
    """A case with `expect_copies`: exactly these messages, in any order."""
    message = _message(content)
    try:
        rules = [_rule(line) for line in field(content, "rules", list)]
    except FilterError as error:
        raise Disagreement("rules that are accepted", f"refused: {error.reason}") from None
    found = copies_of(rules, message, now_ms=now_ms, identity_of=lambda rule: rule.name.encode())
    left = list(found.copies)
    expected = field(content, "expect_copies", list)
    if len(left) != len(expected):
        raise Disagreement(f"{len(expected)} copies", f"{len(left)}: {', '.join(str(copy.rule) for copy in left)}")
    for wanted in expected:
        if not isinstance(wanted, dict):
            raise WrongLine(f"key 'expect_copies': found {wanted!r}, expected objects")
        name = wanted.get("rule")
        copy = next((copy for copy in left if _rule_name(copy.message) == name), None)
        if copy is None:
            raise Disagreement(f"a copy of rule {name}", f"copies of {', '.join(str(copy.rule) for copy in left)}")
        for wrong in _differences(wanted, copy.message):
            raise Disagreement(f"copy of rule {name}: {wrong[0]}", wrong[1])
        left.remove(copy)


def _rule(line: Any) -> _Rule:
    if not isinstance(line, dict):
        raise WrongLine(f"key 'rules': found {line!r}, expected objects")
    if "correlation" in line:
        filter = _correlation(field(line, "correlation", dict))
    else:
        filter = Filter.parse(field(line, "sql", str), _DIALECT)
    action = Action.parse(field(line, "action", str)) if "action" in line else None
    return _Rule(field(line, "name", str), filter, action)


def _rule_name(message: Message) -> str | None:
    typed = message.value(_user("RuleName"))
    return None if typed is None else str(typed.value)


def _correlation(conditions: Line) -> Filter:
    given = dict(conditions)
    if "properties" in given:
        properties = field(given, "properties", dict)
        given["properties"] = {name: _typed(name, value) for name, value in properties.items()}
    return Filter.from_correlation(**given)


def _refused(content: Line, expected: str, error: FilterError) -> None:
    """A filter or an action was refused: raises unless it had to be."""
    if expected != "error":
        raise Disagreement(expected, f"refused: {error.reason}")
    if _error_at(content) == "evaluate":
        raise Disagreement("accepted, and an error of the evaluation", f"refused: {error.reason}")


def _error_at(content: Line) -> str:
    place = field(content, "error_at", str)
    if place not in _PLACES:
        raise WrongLine(f"key 'error_at': found {place!r}, expected one of {', '.join(_PLACES)}")
    return place


def _check_verdict(filter: Filter, message: Message, expected: str, engines: tuple[Engine, ...], now_ms: int) -> None:
    if expected == "nomatch":
        wanted: tuple[Verdict, ...] = _NO_MATCH
    elif expected == "error of the evaluation":
        wanted = (Verdict.ERROR,)
    elif expected in _VERDICTS:
        wanted = (_VERDICTS[expected],)
    else:
        raise WrongLine(f"key 'expect': found {expected!r}, expected one of {', '.join(_VERDICTS)}, nomatch, error")
    batch = EncodedMessages.of([message.encode()])
    for engine in engines:
        verdict = Verdict(filter.verdicts(batch, now_ms=now_ms, engine=engine)[0])
        if verdict not in wanted:
            raise Disagreement(expected, verdict.name.lower(), engine.value)
        if bool(filter.mask(batch, now_ms=now_ms, engine=engine)[0]) is not (verdict is Verdict.TRUE):
            raise Disagreement(expected, "another verdict where only matches are asked for", engine.value)


def _message(content: Line) -> Message:
    properties = {name: _typed(name, value) for name, value in field(content, "props", dict).items()}
    message = Message(b"", application_properties=properties)
    for name, text in field(content, "sys", dict).items():
        kind = AmqpType.SYMBOL if name.lower() == "contenttype" else AmqpType.STRING
        message = message.with_changes([(_system(name), AmqpValue(kind, text))])
    return message


def _system(name: str) -> FieldReference:
    found = system_property(name)
    if found is None or found.reference is None:
        raise WrongLine(f"found system property {name!r}, expected one that a message holds")
    return found.reference


def _user(name: str) -> FieldReference:
    return FieldReference(Section.APPLICATION_PROPERTIES, key=name.encode(), ignore_case=True)


def _typed(name: str, given: Any) -> AmqpValue:
    """A property, a parameter or a condition of a line: `{"t": type, "v": value}`."""
    if not isinstance(given, dict) or not isinstance(given.get("t"), str):
        raise WrongLine(f'{name!r}: found {given!r}, expected {{"t": type, "v": value}}')
    kind: str = given["t"]
    value: Any = given.get("v")
    try:
        match kind:
            case "null":
                return NULL
            case "guid":
                return AmqpValue(AmqpType.UUID, uuid.UUID(value))
            case "datetime":
                return AmqpValue(AmqpType.TIMESTAMP, timestamp_ms(datetime.datetime.fromisoformat(value)))
            case "timespan_seconds":
                return time_span(round(value * _TICKS_PER_SECOND))
            case "double" | "float":
                return AmqpValue(_TYPES[kind], float(value))
            case _ if kind in _TYPES:
                return AmqpValue(_TYPES[kind], value)
    except (ValueError, TypeError, AttributeError) as error:
        raise WrongLine(f"{name!r}: found {given!r}: {error}") from None
    raise WrongLine(
        f"{name!r}: found type {kind!r}, expected null, guid, datetime, timespan_seconds, {', '.join(_TYPES)}"
    )


def _differences(expected: Line, copy: Message) -> Iterator[tuple[str, str]]:
    """What is otherwise in a copy than a line says, as (expected, found)."""
    for name, wanted in expected.get("expect_props", {}).items():
        found = copy.whole_value(_user(name))
        if found is None or not _is_as(name, found, wanted):
            yield f"{name} is {wanted}", "absent" if found is None else f"{found.type.value} {found.value}"
    for name, text in expected.get("expect_sys", {}).items():
        value = servicebus_value(copy, _system(name))
        if value is None or text_of(value) != text.encode():
            yield f"sys.{name} is {text}", "unset" if value is None else text_of(value).decode(errors="replace")
    for name in expected.get("absent_props", ()):
        if copy.value(_user(name)) is not None:
            yield f"no {name}", f"{name} is there"
    for name in expected.get("unset_sys", ()):
        if servicebus_value(copy, _system(name)) is not None:
            yield f"sys.{name} is unset", "it is set"


def _is_as(name: str, found: AmqpValue, wanted: Any) -> bool:
    """Whether a property is as a line says: `number` is any numeric type, a type without `v` any value of it."""
    if not isinstance(wanted, dict):
        raise WrongLine(f'{name!r}: found {wanted!r}, expected {{"t": type, "v": value}}')
    if wanted.get("t") == "number":
        value = value_of(found)
        return value is not None and kind_of(value) is ValueKind.NUMBER and number_of(value) == wanted.get("v")
    if wanted.get("t") == "guid" and "v" not in wanted:
        return found.type is AmqpType.UUID
    return found == _typed(name, wanted)
